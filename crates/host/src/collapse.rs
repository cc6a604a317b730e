//! Turns memory that is there already, as base pages, into transparent huge pages, in place (MADV_COLLAPSE, Linux 6.1).
//!
//! It copies each huge page (about 0.4 s/GiB) and is slower by far than asking for huge pages before the memory is
//! populated: it is for memory of another program or allocator, and only where the caller asks for it. The
//! setting `transparent_hugepage/enabled` does not matter to it, MADV_NOHUGEPAGE does. Pages that are pinned already,
//! by a registered MR, cannot be moved.

use hugemr_core::backend::Backing;
use hugemr_core::errno::Errno;
use hugemr_core::size::{Bytes, PageSize};

use crate::facts::Memory;
use crate::root::Root;
use crate::sys::{self, Advice};

/// What became of the memory. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collapsed {
    /// In transparent huge pages now, by the kernel's word; those that were before included.
    pub huge: u64,
    /// At the ends of the range, where no whole huge page fits.
    pub ends: u64,
    /// Refused.
    pub refused: u64,
    /// The first huge page that was refused, with the errno of the last attempt: EAGAIN or EBUSY (a passing one),
    /// ENOMEM (no free huge page), EINVAL (memory that cannot be huge).
    pub first_refused: Option<(u64, Errno)>,
}

/// Why nothing was collapsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CollapseError {
    /// The kernel has no MADV_COLLAPSE.
    #[error("this kernel cannot collapse memory (needs Linux 6.1 with transparent huge pages)")]
    Unsupported,
    /// There is no memory, or it has another page size already.
    #[error("memory of {page} pages cannot be collapsed")]
    Unsuitable {
        /// Page size of the memory.
        page: PageSize,
    },
    /// The caller's token said stop.
    #[error("cancelled; {} in huge pages", Bytes(so_far.huge))]
    Cancelled {
        /// What was done until then.
        so_far: Collapsed,
    },
}

/// Collapses all of `memory`, asking `cancel` before each huge page. `root` tells the size of a transparent huge
/// page.
///
/// Each refusal that may pass (EAGAIN, EBUSY, ENOMEM: a page was locked or in use at that moment, or no free
/// huge page was at hand) is tried three times.
///
/// # Errors
/// See [`CollapseError`]. Huge pages that are refused are no error, but counted.
pub fn collapse(
    root: &Root,
    memory: &dyn Backing,
    cancel: &dyn Fn() -> bool,
) -> Result<Collapsed, CollapseError> {
    const TRIES: usize = 3;
    if !sys::knows(Advice::Collapse) {
        return Err(CollapseError::Unsupported);
    }
    let thp = Memory::read(root).thp_page.unwrap_or(PageSize::M2).bytes();
    if !memory.is_mapped() || memory.page().bytes() >= thp {
        return Err(CollapseError::Unsuitable {
            page: memory.page(),
        });
    }
    let (start, end) = (memory.base(), memory.base().saturating_add(memory.len()));
    let mut so_far = Collapsed::default();
    let mut at = start;
    while at < end {
        let next = (at - at % thp).saturating_add(thp).min(end);
        if next - at < thp {
            so_far.ends += next - at;
            at = next;
            continue;
        }
        if cancel() {
            return Err(CollapseError::Cancelled { so_far });
        }
        let mut outcome = Ok(());
        for _ in 0..TRIES {
            outcome = sys::madvise(at, thp, Advice::Collapse);
            let passing = [Errno::EAGAIN, Errno::EBUSY, Errno::ENOMEM, Errno::EINTR];
            match outcome {
                Err(errno) if passing.contains(&errno) => std::thread::yield_now(),
                _ => break,
            }
        }
        match outcome {
            Ok(()) => so_far.huge += thp,
            Err(errno) => {
                so_far.refused += thp;
                so_far.first_refused.get_or_insert((at, errno));
            }
        }
        at = next;
    }
    Ok(so_far)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adopt::Adopted;
    use crate::smaps;
    use hugemr_core::size::MIB;

    #[test]
    fn memory_of_an_ordinary_program_becomes_huge() {
        let root = Root::real();
        if !sys::knows(Advice::Collapse) {
            let mut bytes = [0u8; 8];
            let base = bytes.as_mut_ptr();
            // SAFETY: the array outlives the value.
            let memory = unsafe { Adopted::with_page(base, 8, PageSize::K4, ()) }.unwrap();
            let error = collapse(&root, &memory, &|| false).unwrap_err();
            assert_eq!(error, CollapseError::Unsupported);
            return;
        }
        let mut bytes = vec![7u8; 8 << 20];
        let (base, len) = (bytes.as_mut_ptr(), bytes.len() as u64);
        // SAFETY: the vector lives in the value, and its buffer does not move.
        let memory = unsafe { Adopted::with_page(base, len, PageSize::K4, bytes) }.unwrap();
        let error = collapse(&root, &memory, &|| true).unwrap_err();
        assert!(matches!(error, CollapseError::Cancelled { .. }), "{error}");
        let done = collapse(&root, &memory, &|| false).unwrap();
        assert_eq!(done.huge + done.ends + done.refused, len);
        assert!(done.ends < 4 * MIB);
        // The kernel may lack free huge pages; what it says it has done it must have done.
        let vmas = smaps::range(&root, memory.base(), len).unwrap();
        let thp: u64 = vmas.iter().map(|vma| vma.thp).sum();
        assert!(thp >= done.huge, "{thp} {done:?}");
        assert!(memory.into_inner().iter().all(|byte| *byte == 7));
    }

    #[test]
    fn huge_memory_is_left_alone() {
        if !sys::knows(Advice::Collapse) {
            return;
        }
        let memory = hugemr_core::backend::NoMemory {
            base: 0,
            len: 1 << 21,
            page: PageSize::M2,
        };
        let error = collapse(&Root::real(), &memory, &|| false).unwrap_err();
        assert_eq!(error, CollapseError::Unsuitable { page: PageSize::M2 });
    }
}
