//! Guest memory that the virtual machine shares: files mapped at bus addresses.
//!
//! The only unsafe code of the crate is here. Every access to mapped memory is atomic, since the guest uses
//! the same memory at the same time.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::ptr::NonNull;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::mem::{GuestMemory, MemError};

/// Most windows at once; QEMU has a few dozen.
const MAX_WINDOWS: usize = 4096;

/// What a window allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The device may read.
    pub read: bool,
    /// The device may write.
    pub write: bool,
}

/// A whole file, mapped. Windows are parts of it: so a file on huge pages needs no window to be aligned to
/// them, and a file is mapped once however many windows it has.
struct FileMap {
    base: NonNull<u8>,
    len: usize,
    writable: bool,
}

impl FileMap {
    fn new(file: &File, len: u64) -> Result<Self, Errno> {
        let len = usize::try_from(len).map_err(|_| Errno::NOMEM)?;
        if len == 0 {
            return Err(Errno::INVAL);
        }
        let map = |prot| {
            // SAFETY: a new mapping at a place of the kernel's choice touches nothing of ours.
            unsafe { mmap(std::ptr::null_mut(), len, prot, MapFlags::SHARED, file, 0) }
        };
        let (base, writable) = match map(ProtFlags::READ | ProtFlags::WRITE) {
            Ok(base) => (base, true),
            Err(Errno::ACCESS | Errno::PERM) => (map(ProtFlags::READ)?, false),
            Err(error) => return Err(error),
        };
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self {
            base,
            len,
            writable,
        })
    }

    fn byte(&self, at: usize) -> &AtomicU8 {
        assert!(at < self.len, "checked when the window was made");
        // SAFETY: inside the mapping, which lives as long as `self`; everybody else who has this memory is
        // another process. A file cut short later raises SIGBUS: the virtual machine, which owns the file,
        // does not do that.
        unsafe { AtomicU8::from_ptr(self.base.as_ptr().wrapping_add(at)) }
    }

    fn word32(&self, at: usize) -> &AtomicU32 {
        assert!(
            at.is_multiple_of(4) && at < self.len && self.len - at >= 4,
            "checked before"
        );
        // SAFETY: as `byte`; the mapping begins on a page, so the word is aligned.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().wrapping_add(at).cast()) }
    }

    fn word64(&self, at: usize) -> &AtomicU64 {
        assert!(
            at.is_multiple_of(8) && at < self.len && self.len - at >= 8,
            "checked before"
        );
        // SAFETY: as `byte`; the mapping begins on a page, so the word is aligned.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().wrapping_add(at).cast()) }
    }

    /// Bytes up to the next aligned word, so that the rest can be done by words.
    fn head(at: usize, len: usize) -> usize {
        (at.next_multiple_of(8) - at).min(len)
    }

    fn load(&self, at: usize, buf: &mut [u8]) {
        let (head, rest) = buf.split_at_mut(Self::head(at, buf.len()));
        let (words, tail) = rest.as_chunks_mut::<8>();
        let words_at = at + head.len();
        let tail_at = words_at + words.len() * 8;
        for (i, b) in head.iter_mut().enumerate() {
            *b = self.byte(at + i).load(Ordering::Relaxed);
        }
        for (i, w) in words.iter_mut().enumerate() {
            *w = self
                .word64(words_at + i * 8)
                .load(Ordering::Relaxed)
                .to_ne_bytes();
        }
        for (i, b) in tail.iter_mut().enumerate() {
            *b = self.byte(tail_at + i).load(Ordering::Relaxed);
        }
    }

    fn store(&self, at: usize, data: &[u8]) {
        let (head, rest) = data.split_at(Self::head(at, data.len()));
        let (words, tail) = rest.as_chunks::<8>();
        let words_at = at + head.len();
        let tail_at = words_at + words.len() * 8;
        for (i, b) in head.iter().enumerate() {
            self.byte(at + i).store(*b, Ordering::Relaxed);
        }
        for (i, w) in words.iter().enumerate() {
            self.word64(words_at + i * 8)
                .store(u64::from_ne_bytes(*w), Ordering::Relaxed);
        }
        for (i, b) in tail.iter().enumerate() {
            self.byte(tail_at + i).store(*b, Ordering::Relaxed);
        }
    }
}

impl Drop for FileMap {
    fn drop(&mut self) {
        // SAFETY: this mapping, whole; no reference into it outlives `self`.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

/// A piece of the bus.
struct Window {
    size: u64,
    access: Access,
    /// None for memory that came without a file (ROMs do): known, but out of reach.
    part: Option<(Rc<FileMap>, usize)>,
}

/// Everything that the virtual machine lets the device reach.
#[derive(Default)]
pub struct AddressSpace {
    windows: BTreeMap<u64, Window>,
    maps: Vec<((u64, u64), Weak<FileMap>)>,
}

impl AddressSpace {
    /// Nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `size` bytes at bus address `addr`: those of `file` from `offset` on.
    ///
    /// # Errors
    /// When the window is empty, wraps, overlaps another, is not all in the file, or cannot be mapped.
    pub fn map(
        &mut self,
        addr: u64,
        size: u64,
        access: Access,
        file: Option<(&File, u64)>,
    ) -> Result<(), Errno> {
        let end = addr.checked_add(size).ok_or(Errno::INVAL)?;
        if size == 0 {
            return Err(Errno::INVAL);
        }
        if self.overlaps(addr, end) {
            return Err(Errno::EXIST);
        }
        if self.windows.len() >= MAX_WINDOWS {
            return Err(Errno::NOSPC);
        }
        let part = match file {
            None => None,
            Some((file, offset)) => {
                let last = offset.checked_add(size).ok_or(Errno::INVAL)?;
                let map = self.file_map(file, last)?;
                let offset = usize::try_from(offset).map_err(|_| Errno::INVAL)?;
                Some((map, offset))
            }
        };
        self.windows.insert(addr, Window { size, access, part });
        Ok(())
    }

    fn overlaps(&self, addr: u64, end: u64) -> bool {
        self.windows
            .range(..end)
            .next_back()
            .is_some_and(|(start, w)| start + w.size > addr)
    }

    fn file_map(&mut self, file: &File, last: u64) -> Result<Rc<FileMap>, Errno> {
        let meta = file
            .metadata()
            .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::INVAL))?;
        if last > meta.len() {
            return Err(Errno::INVAL);
        }
        let id = (meta.dev(), meta.ino());
        self.maps.retain(|(_, map)| map.strong_count() > 0);
        let known = self
            .maps
            .iter()
            .filter(|(i, _)| *i == id)
            .find_map(|(_, map)| {
                map.upgrade()
                    .filter(|map| u64::try_from(map.len).is_ok_and(|len| last <= len))
            });
        if let Some(map) = known {
            return Ok(map);
        }
        let map = Rc::new(FileMap::new(file, meta.len())?);
        self.maps.push((id, Rc::downgrade(&map)));
        Ok(map)
    }

    /// Removes the windows in `size` bytes at `addr`.
    ///
    /// # Errors
    /// When there is none, or one lies there only in part.
    pub fn unmap(&mut self, addr: u64, size: u64) -> Result<(), Errno> {
        let end = addr.checked_add(size).ok_or(Errno::INVAL)?;
        if end == addr {
            return Err(Errno::INVAL);
        }
        if self
            .windows
            .range(..addr)
            .next_back()
            .is_some_and(|(start, w)| start + w.size > addr)
        {
            return Err(Errno::INVAL);
        }
        let inside: Vec<u64> = self
            .windows
            .range(addr..end)
            .map(|(start, _)| *start)
            .collect();
        let last = inside.last().copied().ok_or(Errno::NOENT)?;
        if self.windows.get(&last).is_some_and(|w| last + w.size > end) {
            return Err(Errno::INVAL);
        }
        for start in inside {
            self.windows.remove(&start);
        }
        Ok(())
    }

    /// Removes every window.
    pub fn clear(&mut self) {
        self.windows.clear();
    }

    /// Calls `f` with each piece of memory under a range, and the place of its first byte in the range. Nothing
    /// is called unless the whole range is there.
    fn pieces(
        &self,
        addr: u64,
        len: usize,
        allowed: impl Fn(Access, &FileMap) -> bool,
        mut f: impl FnMut(&FileMap, usize, std::ops::Range<usize>),
    ) -> Result<(), MemError> {
        let error = MemError {
            addr,
            len: len as u64,
        };
        for pass in [false, true] {
            let mut done = 0usize;
            while done < len {
                let at = addr.checked_add(done as u64).ok_or(error)?;
                let (start, window) = self.windows.range(..=at).next_back().ok_or(error)?;
                let into = at - start;
                let left = window
                    .size
                    .checked_sub(into)
                    .filter(|left| *left > 0)
                    .ok_or(error)?;
                let (map, offset) = window.part.as_ref().ok_or(error)?;
                if !allowed(window.access, map) {
                    return Err(error);
                }
                let n = usize::try_from(left).unwrap_or(usize::MAX).min(len - done);
                if pass {
                    let into = usize::try_from(into).map_err(|_| error)?;
                    f(map, offset + into, done..done + n);
                }
                done += n;
            }
        }
        Ok(())
    }
}

impl GuestMemory for AddressSpace {
    fn read(&self, addr: u64, buf: &mut [u8]) -> Result<(), MemError> {
        self.pieces(
            addr,
            buf.len(),
            |access, _| access.read,
            |map, at, range| {
                if let Some(part) = buf.get_mut(range) {
                    map.load(at, part);
                }
            },
        )
    }

    fn write(&self, addr: u64, bytes: &[u8]) -> Result<(), MemError> {
        self.pieces(
            addr,
            bytes.len(),
            |access, map| access.write && map.writable,
            |map, at, range| {
                if let Some(part) = bytes.get(range) {
                    map.store(at, part);
                }
            },
        )
    }

    fn publish(&self, addr: u64, word: [u8; 4]) -> Result<(), MemError> {
        let mut done = false;
        self.pieces(
            addr,
            4,
            |access, map| access.write && map.writable,
            |map, at, range| {
                if range.len() == 4 && at.is_multiple_of(4) {
                    // The stores of the entry's body were relaxed: they come first for who sees this one.
                    fence(Ordering::Release);
                    map.word32(at)
                        .store(u32::from_ne_bytes(word), Ordering::Release);
                    done = true;
                }
            },
        )?;
        if done {
            Ok(())
        } else {
            Err(MemError { addr, len: 4 })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::os::unix::fs::FileExt;

    const RW: Access = Access {
        read: true,
        write: true,
    };
    const RO: Access = Access {
        read: true,
        write: false,
    };

    fn memfd(len: u64) -> File {
        let fd = memfd_create("guest", MemfdFlags::CLOEXEC).expect("memfd");
        ftruncate(&fd, len).expect("size");
        File::from(fd)
    }

    #[test]
    fn accesses_of_every_alignment() {
        let file = memfd(0x3000);
        let mut space = AddressSpace::new();
        space
            .map(0x10_0000, 0x2000, RW, Some((&file, 0x1000)))
            .expect("map");
        for at in 0..9 {
            for len in 0..40 {
                let data: Vec<u8> = (1..=len).collect();
                space.write(0x10_0000 + at, &data).expect("write");
                let mut back = vec![0; data.len()];
                space.read(0x10_0000 + at, &mut back).expect("read");
                assert_eq!(back, data);
                file.read_exact_at(&mut back, 0x1000 + at).expect("file");
                assert_eq!(back, data);
            }
        }
        space.publish(0x10_0004, [9, 8, 7, 6]).expect("publish");
        let mut back = [0; 4];
        file.read_exact_at(&mut back, 0x1004).expect("file");
        assert_eq!(back, [9, 8, 7, 6]);
        assert!(space.publish(0x10_0002, [0; 4]).is_err());
    }

    #[test]
    fn a_range_over_two_windows_is_all_or_nothing() {
        let file = memfd(0x4000);
        let mut space = AddressSpace::new();
        space
            .map(0x1000, 0x1000, RW, Some((&file, 0x3000)))
            .expect("map");
        space
            .map(0x2000, 0x1000, RW, Some((&file, 0x0000)))
            .expect("map");
        space
            .map(0x4000, 0x1000, RO, Some((&file, 0x1000)))
            .expect("map");
        assert_eq!(space.maps.len(), 1, "one file, mapped once");
        space.write(0x1ffd, b"abcdef").expect("write");
        let mut back = [0; 3];
        file.read_exact_at(&mut back, 0x3ffd).expect("file");
        assert_eq!(&back, b"abc");
        file.read_exact_at(&mut back, 0).expect("file");
        assert_eq!(&back, b"def");
        assert!(space.write(0x2ffe, b"xyz").is_err(), "a hole follows");
        space.read(0x2ffd, &mut back).expect("read");
        assert_eq!(back, [0; 3], "nothing of it was written");
        assert!(space.write(0x4000, b"x").is_err(), "read-only");
        assert!(space.read(0x4ffd, &mut back).is_ok());
        assert!(space.read(0x4ffe, &mut back).is_err());
        assert!(space.read(u64::MAX, &mut back).is_err());
        assert!(space.read(0, &mut back).is_err());
    }

    #[test]
    fn windows_come_and_go() {
        let file = memfd(0x4000);
        let mut space = AddressSpace::new();
        let map = |space: &mut AddressSpace, addr, size, offset| {
            space.map(addr, size, RW, Some((&file, offset)))
        };
        assert_eq!(map(&mut space, 0x1000, 0, 0), Err(Errno::INVAL));
        assert_eq!(map(&mut space, u64::MAX, 2, 0), Err(Errno::INVAL));
        assert_eq!(
            map(&mut space, 0x1000, 0x1000, 0x3001),
            Err(Errno::INVAL),
            "beyond the file"
        );
        assert_eq!(map(&mut space, 0x1000, 0x1000, u64::MAX), Err(Errno::INVAL));
        assert_eq!(map(&mut space, 0x1000, 0x1000, 0), Ok(()));
        assert_eq!(map(&mut space, 0x1fff, 0x1000, 0), Err(Errno::EXIST));
        assert_eq!(map(&mut space, 0x0001, 0x1000, 0), Err(Errno::EXIST));
        assert_eq!(map(&mut space, 0x2000, 0x1000, 0), Ok(()));
        assert_eq!(space.map(0x8000, 0x1000, RO, None), Ok(()));
        assert!(space.read(0x8000, &mut [0]).is_err(), "no file, no memory");
        assert_eq!(space.unmap(0x1800, 0x1000), Err(Errno::INVAL));
        assert_eq!(space.unmap(0x1000, 0x1800), Err(Errno::INVAL));
        assert_eq!(space.unmap(0x5000, 0x1000), Err(Errno::NOENT));
        assert_eq!(space.unmap(0x1000, 0), Err(Errno::INVAL));
        assert_eq!(space.unmap(0x1000, 0x8000), Ok(()));
        assert!(space.read(0x1000, &mut [0]).is_err());
        assert_eq!(map(&mut space, 0x1000, 0x1000, 0), Ok(()));
        space.clear();
        assert_eq!(space.unmap(0, u64::MAX), Err(Errno::NOENT));
    }

    #[test]
    fn a_file_for_reading_only_is_mapped_so() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("rom");
        std::fs::write(&path, [7; 4096]).expect("write");
        let file = File::open(&path).expect("open");
        let mut space = AddressSpace::new();
        space.map(0, 4096, RW, Some((&file, 0))).expect("map");
        let mut back = [0; 1];
        space.read(9, &mut back).expect("read");
        assert_eq!(back, [7]);
        assert!(space.write(9, &back).is_err());
        let empty = memfd(0);
        assert_eq!(space.map(8192, 1, RW, Some((&empty, 0))), Err(Errno::INVAL));
    }
}
