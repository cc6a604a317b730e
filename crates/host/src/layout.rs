//! Where the pages of memory lie physically, by `/proc/PID/pagemap`.
//!
//! Physical addresses are shown only to who has CAP_SYS_ADMIN (Linux 4.2): others read 0 as the page frame number,
//! which no page of a process has, and get [`LayoutError::NotAllowed`].
//!
//! Source: Linux `Documentation/admin-guide/mm/pagemap.rst`. One entry of 8 bytes for each base page: bits 0 to 54 the
//! page frame number, bit 62 swapped, bit 63 present.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::thread;

use hugemr_core::layout::PhysRun;
use hugemr_core::size::PageSize;

use crate::facts::ProcessId;
use crate::root::Root;
use crate::sys;

/// Why the layout could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// Physical addresses are hidden from this process.
    #[error(
        "physical addresses are hidden (needs root, or CAP_SYS_ADMIN in the initial user namespace)"
    )]
    NotAllowed,
    /// A page is not there: not populated yet, or given back.
    #[error("the page at {addr:#x} is not populated")]
    NotPresent {
        /// Its address.
        addr: u64,
    },
    /// A page is swapped out.
    #[error("the page at {addr:#x} is swapped out")]
    Swapped {
        /// Its address.
        addr: u64,
    },
    /// Memory that was said to be of huge pages is not.
    #[error("the memory at {addr:#x} is no page of {page}")]
    NotHuge {
        /// Start of what would be the huge page.
        addr: u64,
        /// The size that was said.
        page: PageSize,
    },
    /// The range is empty or wraps.
    #[error("{len} B at {base:#x} is no range of addresses")]
    NoRange {
        /// Address given.
        base: u64,
        /// Bytes given.
        len: u64,
    },
    /// pagemap could not be read.
    #[error("pagemap of process {process} could not be read")]
    Read {
        /// Which process.
        process: ProcessId,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// How densely pagemap is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stride {
    /// Every base page: exact for any memory.
    Every,
    /// One entry for each huge page of a pool; two of them are read by one call across their border, which makes it 2 to 3
    /// times faster than every entry of 2 MiB pages.
    /// Each huge page is checked by its alignment only, so this is for memory that is known to be of a pool:
    /// transparent huge pages take [`Stride::Every`].
    Huge(PageSize),
}

/// The pagemap of a process.
#[derive(Debug)]
pub struct PageMap {
    file: File,
    process: ProcessId,
    base_page: u64,
}

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const FRAME: u64 = (1 << 55) - 1;

impl PageMap {
    /// Opens the pagemap of a process.
    ///
    /// # Errors
    /// [`LayoutError::NotAllowed`], or that of the system.
    pub fn open(root: &Root, process: ProcessId) -> Result<Self, LayoutError> {
        let file = File::open(root.path(&process.file("pagemap"))).map_err(|source| {
            if source.kind() == io::ErrorKind::PermissionDenied {
                LayoutError::NotAllowed
            } else {
                LayoutError::Read { process, source }
            }
        })?;
        Ok(Self {
            file,
            process,
            base_page: sys::base_page(),
        })
    }

    /// Gives each stretch of physically contiguous memory behind `[base, base + len)` to `each`, in the order of
    /// virtual addresses, merged as far as physical addresses ascend without a gap. Their lengths add up to `len`.
    ///
    /// # Errors
    /// See [`LayoutError`]; the runs before the failure were given already.
    pub fn each_run(
        &self,
        base: u64,
        len: u64,
        stride: Stride,
        mut each: impl FnMut(PhysRun),
    ) -> Result<(), LayoutError> {
        let end = match base.checked_add(len) {
            Some(end) if len > 0 => end,
            _ => return Err(LayoutError::NoRange { base, len }),
        };
        let mut merger = Merger::default();
        let mut page = |addr: u64, phys: u64, len: u64| {
            // Of the page's bytes only those inside the range.
            let from = addr.max(base);
            let to = addr.saturating_add(len).min(end);
            let run = PhysRun {
                phys: phys + (from - addr),
                len: to - from,
            };
            if let Some(run) = merger.push(run) {
                each(run);
            }
        };
        match stride {
            Stride::Huge(huge) if huge.bytes() > self.base_page => {
                self.huge_pages(base, end, huge, &mut page)?;
            }
            Stride::Huge(_) | Stride::Every => self.base_pages(base, end, &mut page)?,
        }
        if let Some(run) = merger.last {
            each(run);
        }
        Ok(())
    }

    /// All runs of `[base, base + len)`, read by that many threads (0 counts as 1). 16 bytes for each run: memory of
    /// scattered base pages has one for each page.
    ///
    /// # Errors
    /// See [`LayoutError`]: the failure with the lowest address.
    pub fn runs(
        &self,
        base: u64,
        len: u64,
        stride: Stride,
        n_threads: usize,
    ) -> Result<Vec<PhysRun>, LayoutError> {
        /// Below so many bytes a thread costs more than it gains.
        const WORTH_A_THREAD: u64 = 1 << 30;
        if len == 0 || base.checked_add(len).is_none() {
            return Err(LayoutError::NoRange { base, len });
        }
        let useful = usize::try_from(len / WORTH_A_THREAD).unwrap_or(usize::MAX);
        let n = n_threads.min(useful).max(1) as u64;
        // Cut on borders of 2^31 bytes or less often, which are borders of pairs of any huge page.
        let cut = |i: u64| {
            if i == n {
                return len;
            }
            let at = base
                + u64::try_from(u128::from(len) * u128::from(i) / u128::from(n)).unwrap_or(len);
            (at - at % (2 * WORTH_A_THREAD)).saturating_sub(base)
        };
        let read = |from: u64, to: u64| {
            let mut runs = Vec::new();
            if from < to {
                self.each_run(base + from, to - from, stride, |run| runs.push(run))?;
            }
            Ok(runs)
        };
        if n == 1 {
            return read(0, len);
        }
        let mut parts = Vec::new();
        thread::scope(|scope| {
            let others: Vec<_> = (1..n)
                .map(|i| {
                    let work = move || read(cut(i), cut(i + 1));
                    let name = "hugemr-layout".to_owned();
                    let spawned = thread::Builder::new().name(name).spawn_scoped(scope, work);
                    (i, spawned)
                })
                .collect();
            parts.push(read(0, cut(1)));
            for (i, other) in others {
                parts.push(match other.map(thread::ScopedJoinHandle::join) {
                    Ok(Ok(part)) => part,
                    Ok(Err(panic)) => std::panic::resume_unwind(panic),
                    // The system gave no thread.
                    Err(_) => read(cut(i), cut(i + 1)),
                });
            }
        });
        let mut merger = Merger::default();
        let mut runs = Vec::new();
        for part in parts {
            for run in part? {
                runs.extend(merger.push(run));
            }
        }
        runs.extend(merger.last);
        Ok(runs)
    }

    /// The first address in `[base, base + len)`, rounded outwards to whole pages of `page`, of a stretch of `page`
    /// bytes that is not one physically contiguous and aligned page: a 4 KiB hole in memory that should be huge.
    /// `None`: all of it is as good as huge pages for a device.
    ///
    /// # Errors
    /// See [`LayoutError`].
    pub fn first_small(
        &self,
        base: u64,
        len: u64,
        page: PageSize,
    ) -> Result<Option<u64>, LayoutError> {
        let huge = page.bytes();
        let no_range = || LayoutError::NoRange { base, len };
        let end = base
            .checked_add(len)
            .filter(|_| len > 0)
            .ok_or_else(no_range)?;
        let mut at = base - base % huge;
        while at < end {
            let stop = at.checked_add(huge).ok_or_else(no_range)?;
            let mut run = None;
            let mut runs = 0;
            let whole = self.each_run(at, huge, Stride::Every, |next| {
                run.get_or_insert(next);
                runs += 1;
            });
            match whole {
                // A part outside the range need not be there at all: then it is no huge page either.
                Err(LayoutError::NotPresent { addr }) if addr < base || addr >= end => {
                    return Ok(Some(at));
                }
                Err(error) => return Err(error),
                Ok(()) => {}
            }
            if runs != 1 || run.is_some_and(|run| run.phys % huge != 0) {
                return Ok(Some(at));
            }
            at = stop;
        }
        Ok(None)
    }

    fn base_pages(
        &self,
        base: u64,
        end: u64,
        page: &mut impl FnMut(u64, u64, u64),
    ) -> Result<(), LayoutError> {
        /// Entries read at a time: 256 KiB, 128 MiB of memory.
        const BLOCK: u64 = 1 << 15;
        let mut at = base - base % self.base_page;
        let most = (end - at).div_ceil(self.base_page).min(BLOCK);
        let mut entries = vec![0u8; sys::size(most * 8)];
        while at < end {
            let count = (end - at).div_ceil(self.base_page).min(BLOCK);
            let block = &mut entries[..sys::size(count * 8)];
            self.read(at, block)?;
            for entry in block.as_chunks::<8>().0 {
                let frame = frame(u64::from_ne_bytes(*entry), at)?;
                page(at, frame * self.base_page, self.base_page);
                at += self.base_page;
            }
        }
        Ok(())
    }

    fn huge_pages(
        &self,
        base: u64,
        end: u64,
        huge: PageSize,
        page: &mut impl FnMut(u64, u64, u64),
    ) -> Result<(), LayoutError> {
        let size = huge.bytes();
        let inner = size - self.base_page;
        let mut found = |at: u64, entry: u64, offset: u64| {
            let phys = frame(entry, at + offset)? * self.base_page;
            match phys.checked_sub(offset) {
                Some(head) if head % size == 0 => page(at, head, size),
                _ => {
                    return Err(LayoutError::NotHuge {
                        addr: at,
                        page: huge,
                    });
                }
            }
            Ok(())
        };
        let mut at = base - base % size;
        while at < end {
            // The last entry of one huge page and the first of the next, by one call.
            let next = at.saturating_add(size);
            if next < end {
                let mut pair = [0u8; 16];
                self.read(at + inner, &mut pair)?;
                let [first, second] = [&pair[..8], &pair[8..]].map(|bytes| {
                    let mut entry = [0u8; 8];
                    entry.copy_from_slice(bytes);
                    u64::from_ne_bytes(entry)
                });
                found(at, first, inner)?;
                found(next, second, 0)?;
                at = next.saturating_add(size);
            } else {
                let mut entry = [0u8; 8];
                self.read(at, &mut entry)?;
                found(at, u64::from_ne_bytes(entry), 0)?;
                at = next;
            }
        }
        Ok(())
    }

    /// Reads the entries from that of the base page at `addr`.
    fn read(&self, addr: u64, entries: &mut [u8]) -> Result<(), LayoutError> {
        let offset = addr / self.base_page * 8;
        self.file.read_exact_at(entries, offset).map_err(|source| {
            if source.kind() == io::ErrorKind::UnexpectedEof {
                // Beyond the end of the address space.
                LayoutError::NotPresent { addr }
            } else {
                LayoutError::Read {
                    process: self.process,
                    source,
                }
            }
        })
    }
}

/// The page frame number of an entry.
fn frame(entry: u64, addr: u64) -> Result<u64, LayoutError> {
    if entry & SWAPPED != 0 {
        return Err(LayoutError::Swapped { addr });
    }
    if entry & PRESENT == 0 {
        return Err(LayoutError::NotPresent { addr });
    }
    match entry & FRAME {
        0 => Err(LayoutError::NotAllowed),
        frame => Ok(frame),
    }
}

/// Joins runs that follow each other physically.
#[derive(Debug, Default)]
struct Merger {
    last: Option<PhysRun>,
}

impl Merger {
    /// Takes a run and gives back one that is complete.
    fn push(&mut self, run: PhysRun) -> Option<PhysRun> {
        match &mut self.last {
            Some(last) if last.phys + last.len == run.phys => {
                last.len += run.len;
                None
            }
            last => last.replace(run),
        }
    }
}

#[cfg(test)]
mod tests;
