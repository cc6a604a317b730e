//! Memory of the caller's, taken as it is.
//!
//! Adopted memory is never unmapped, advised, bound, collapsed or populated here; who wants it populated calls
//! [`crate::populate`] on it.

use std::fmt;
use std::io;

use hugemr_core::backend::Backing;
use hugemr_core::size::PageSize;

use crate::facts::Memory;
use crate::root::Root;
use crate::smaps;

/// Why memory could not be adopted. The keep-alive value comes back.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct AdoptError<K> {
    /// What the caller gave.
    pub keep_alive: K,
    /// Why not.
    #[source]
    pub reason: AdoptReason,
}

/// Why memory could not be adopted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdoptReason {
    /// Length 0.
    #[error("a range of 0 B at {base:#x}")]
    Empty {
        /// Its address.
        base: u64,
    },
    /// Null, or an end beyond the address space.
    #[error("{len} B at {base:#x} is no range of addresses")]
    NoRange {
        /// Address given.
        base: u64,
        /// Bytes given.
        len: u64,
    },
    /// An address of the range is not mapped.
    #[error("nothing is mapped at {addr:#x}")]
    NotMapped {
        /// The first such address.
        addr: u64,
    },
    /// smaps could not be read.
    #[error("/proc/self/smaps could not be read")]
    Smaps(#[source] io::Error),
}

/// Memory of the caller's, kept mapped by `K` (a `Vec`, an `Arc`, a `Box<dyn Any + Send + Sync>`).
pub struct Adopted<K> {
    base: u64,
    len: u64,
    page: PageSize,
    writable: bool,
    keep_alive: K,
}

impl<K: Send + Sync> Adopted<K> {
    /// Adopts `len` bytes at `base` and finds out what is behind them, by smaps (which costs a walk over all memory
    /// of the process: see [`smaps`]).
    ///
    /// The page size found is the smallest in the range. A mapping counts as 2 MiB pages where *all* of it is in
    /// transparent huge pages now; the kernel may split them later unless they are pinned.
    ///
    /// # Safety
    /// `[base, base + len)` is mapped memory, and stays mapped, at this place, until `keep_alive` is dropped. It is
    /// writable where it is going to be registered with write access.
    ///
    /// # Errors
    /// See [`AdoptReason`]. The keep-alive value comes back.
    pub unsafe fn new(
        root: &Root,
        base: *mut u8,
        len: u64,
        keep_alive: K,
    ) -> Result<Self, AdoptError<K>> {
        let base = base.expose_provenance() as u64;
        match look(root, base, len) {
            Ok((page, writable)) => Ok(Self {
                base,
                len,
                page,
                writable,
                keep_alive,
            }),
            Err(reason) => Err(AdoptError { keep_alive, reason }),
        }
    }

    /// Adopts memory whose page size the caller knows; nothing is read.
    ///
    /// # Safety
    /// As for [`Adopted::new`]. A page size that is not true harms nobody but the plan.
    ///
    /// # Errors
    /// [`AdoptReason::Empty`] and [`AdoptReason::NoRange`]. The keep-alive value comes back.
    pub unsafe fn with_page(
        base: *mut u8,
        len: u64,
        page: PageSize,
        keep_alive: K,
    ) -> Result<Self, AdoptError<K>> {
        let base = base.expose_provenance() as u64;
        match check(base, len) {
            Ok(()) => Ok(Self {
                base,
                len,
                page,
                writable: true,
                keep_alive,
            }),
            Err(reason) => Err(AdoptError { keep_alive, reason }),
        }
    }

    /// Whether all of it was mapped writable when it was adopted (taken for granted by [`Adopted::with_page`]).
    #[must_use]
    pub fn writable(&self) -> bool {
        self.writable
    }

    /// Gives the memory back.
    #[must_use]
    pub fn into_inner(self) -> K {
        self.keep_alive
    }
}

fn check(base: u64, len: u64) -> Result<(), AdoptReason> {
    if len == 0 {
        return Err(AdoptReason::Empty { base });
    }
    // The last byte may be the last of the address space, its end may not wrap.
    if base == 0 || base.checked_add(len - 1).is_none() {
        return Err(AdoptReason::NoRange { base, len });
    }
    Ok(())
}

fn look(root: &Root, base: u64, len: u64) -> Result<(PageSize, bool), AdoptReason> {
    check(base, len)?;
    let vmas = smaps::range(root, base, len).map_err(AdoptReason::Smaps)?;
    if let Some(addr) = smaps::first_gap(&vmas, base, len) {
        return Err(AdoptReason::NotMapped { addr });
    }
    let thp = Memory::read(root).thp_page.unwrap_or(PageSize::M2);
    let pages = vmas.iter().map(|vma| vma.page_size(thp));
    Ok((
        pages.min().unwrap_or(PageSize::K4),
        vmas.iter().all(|vma| vma.writable),
    ))
}

// SAFETY: whoever made the value promised that the range stays mapped until `keep_alive` is dropped, and the value owns
// `keep_alive`.
unsafe impl<K: Send + Sync> Backing for Adopted<K> {
    fn base(&self) -> u64 {
        self.base
    }
    fn len(&self) -> u64 {
        self.len
    }
    fn page(&self) -> PageSize {
        self.page
    }
}

impl<K> fmt::Debug for Adopted<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adopted")
            .field("base", &format_args!("{:#x}", self.base))
            .field("len", &self.len)
            .field("page", &self.page)
            .field("writable", &self.writable)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{Kind, MapRequest};
    use std::any::Any;

    #[test]
    fn a_vector_is_adopted_and_given_back() {
        let mut bytes = vec![3u8; 10_000];
        let (base, len) = (bytes.as_mut_ptr(), bytes.len() as u64);
        // SAFETY: the vector lives in the value, and its buffer does not move.
        let memory = unsafe { Adopted::new(&Root::real(), base, len, bytes) }.unwrap();
        assert_eq!(memory.base(), base.addr() as u64);
        assert_eq!(memory.page(), PageSize::K4);
        assert!(memory.writable());
        assert_eq!(memory.into_inner(), vec![3u8; 10_000]);
    }

    #[test]
    fn a_boxed_keep_alive_will_do() {
        let mapping = MapRequest::new(Kind::Base, 8192)
            .map(&Root::real())
            .unwrap();
        let base = mapping.as_ptr();
        let keep: Box<dyn Any + Send + Sync> = Box::new(mapping);
        // SAFETY: the mapping lives in the box.
        let memory = unsafe { Adopted::with_page(base, 8192, PageSize::K4, keep) }.unwrap();
        let shared: Box<dyn Backing> = Box::new(memory);
        assert_eq!(shared.len(), 8192);
    }

    #[test]
    fn what_is_no_memory_comes_back() {
        let null = std::ptr::null_mut();
        // SAFETY: refused, so nothing is promised about it.
        let error = unsafe { Adopted::new(&Root::real(), null, 1, 42) }.unwrap_err();
        assert_eq!(error.keep_alive, 42);
        let end = std::ptr::without_provenance_mut(usize::MAX);
        // SAFETY: refused, so nothing is promised about it.
        let error = unsafe { Adopted::with_page(end, 2, PageSize::K4, ()) }.unwrap_err();
        assert!(matches!(error.reason, AdoptReason::NoRange { .. }));
        let page = std::ptr::without_provenance_mut(4096);
        // SAFETY: refused, so nothing is promised about it.
        let error = unsafe { Adopted::new(&Root::real(), page, 1, ()) }.unwrap_err();
        assert!(matches!(
            error.reason,
            AdoptReason::NotMapped { addr: 4096 }
        ));
    }

    #[test]
    #[ignore = "needs huge pages"]
    fn huge_pages_are_recognised() {
        let _pools = crate::root::fake::pool_lock();
        let kind = Kind::HugeTlb(PageSize::M2);
        let mapping = MapRequest::new(kind, 4 << 20).map(&Root::real()).unwrap();
        let (base, len) = (mapping.as_ptr(), mapping.len());
        // SAFETY: the mapping lives in the value.
        let memory = unsafe { Adopted::new(&Root::real(), base, len, mapping) }.unwrap();
        assert_eq!(memory.page(), PageSize::M2);
    }
}
