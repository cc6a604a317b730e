//! Mapped memory for registrations.

use std::num::NonZeroU64;

use hugemr_core::backend::Backing;
use hugemr_core::backend::{Access, MrRequest};
use hugemr_core::size::PageSize;

/// An anonymous mapping, whole pages.
#[derive(Debug)]
pub(crate) struct Memory {
    base: *mut u8,
    len: usize,
}

// SAFETY: a plain mapping; the tests that touch it do so from one thread.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) fn pages(count: usize) -> Self {
        let len = count * 4096;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED);
        Self {
            base: base.cast(),
            len,
        }
    }

    pub(crate) fn addr(&self) -> u64 {
        self.base.expose_provenance() as u64
    }

    pub(crate) fn fill(&mut self) -> Vec<u8> {
        let bytes: Vec<u8> = (0..self.len).map(|i| (i * 7 % 251) as u8).collect();
        // SAFETY: as long as the mapping.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base, self.len) };
        bytes
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        // SAFETY: as long as the mapping.
        unsafe { std::ptr::copy_nonoverlapping(self.base, bytes.as_mut_ptr(), self.len) };
        bytes
    }

    /// All of it.
    pub(crate) fn request(&self) -> MrRequest {
        request(self.addr(), self.len as u64)
    }

    /// One page of it.
    pub(crate) fn page(&self, index: usize) -> MrRequest {
        assert!((index + 1) * 4096 <= self.len);
        request(self.addr() + index as u64 * 4096, 4096)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by us; each test takes its MRs back before.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

// SAFETY: mapped, readable and writable until dropped.
unsafe impl Backing for Memory {
    fn base(&self) -> u64 {
        self.addr()
    }
    fn len(&self) -> u64 {
        self.len as u64
    }
    fn page(&self) -> PageSize {
        PageSize::K4
    }
}

pub(crate) fn request(addr: u64, len: u64) -> MrRequest {
    MrRequest {
        addr,
        len: NonZeroU64::new(len).unwrap(),
        iova: addr,
        access: Access::REMOTE_RW,
    }
}
