//! What a user would write without hugemr: bare calls and loops, as fast as they can be.

use std::io;
use std::ptr::NonNull;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// Bytes of a 2 MiB page.
pub(crate) const HUGE: usize = 2 << 20;
/// Bytes that MADV_POPULATE_WRITE can be asked for at least.
pub(crate) const BASE: usize = 4096;

/// Shared anonymous memory of 2 MiB pages, as a program maps it by hand.
pub(crate) struct Memory {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: it is plain memory; all access goes through raw pointers, whose users keep to ranges of their own.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps; nothing is populated unless `more` has MAP_POPULATE.
    pub(crate) fn map(len: usize, more: libc::c_int) -> Result<Self> {
        let flags =
            libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB | more;
        // SAFETY: without MAP_FIXED no existing mapping is touched.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).context("mmap of huge pages");
        }
        let base = NonNull::new(base.cast()).context("mmap answered 0")?;
        Ok(Self { base, len })
    }

    pub(crate) fn addr(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn at(&self, offset: usize) -> *mut u8 {
        self.base.as_ptr().wrapping_add(offset)
    }

    /// One byte of each page, one after the other.
    pub(crate) fn touch(&self, from: usize, to: usize) {
        for at in (from..to).step_by(HUGE) {
            // SAFETY: inside the mapping, which is writable; nobody reads what is written.
            unsafe { self.at(at).write_volatile(1) };
        }
    }

    /// MADV_POPULATE_WRITE of one part.
    pub(crate) fn populate_write(&self, from: usize, to: usize) -> Result<()> {
        // SAFETY: inside the mapping; the advice does not change content.
        let code =
            unsafe { libc::madvise(self.at(from).cast(), to - from, libc::MADV_POPULATE_WRITE) };
        if code != 0 {
            return Err(io::Error::last_os_error()).context("MADV_POPULATE_WRITE");
        }
        Ok(())
    }

    /// MADV_POPULATE_WRITE of all, on so many threads.
    pub(crate) fn populate_all(&self, threads: usize) {
        self.shares(threads, |from, to| {
            self.populate_write(from, to)
                .expect("the pages are promised");
        });
    }

    /// Clears one part with the instruction that the kernel clears pages with, in pieces of its length.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn rep_stosb(&self, from: usize, to: usize) {
        for at in (from..to).step_by(BASE) {
            let place = self.at(at);
            // SAFETY: 4096 bytes inside the mapping, which is writable; the direction flag is clear by the ABI.
            unsafe {
                std::arch::asm!(
                    "rep stosb",
                    inout("rcx") BASE => _,
                    inout("rdi") place => _,
                    in("al") 0u8,
                    options(nostack, preserves_flags)
                );
            }
        }
    }

    /// Runs `work` on that many threads, the calling one included, each on an equal share of whole pages. None begins
    /// before all are up: a thread of Rust maps memory when it starts, and would wait for what populates by then. One of
    /// C has no such need, and the loop that is measured should be no slower than one in C.
    pub(crate) fn shares(&self, threads: usize, work: impl Fn(usize, usize) + Sync) {
        let pages = self.len / HUGE;
        let cut = |i: usize| pages * i / threads * HUGE;
        let up = Barrier::new(threads);
        std::thread::scope(|scope| {
            for i in 1..threads {
                let (work, up) = (&work, &up);
                scope.spawn(move || {
                    up.wait();
                    work(cut(i), cut(i + 1));
                });
            }
            up.wait();
            work(0, cut(1));
        });
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody has a pointer into it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// How long it takes.
pub(crate) fn timed(work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}
