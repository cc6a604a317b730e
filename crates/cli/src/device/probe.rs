//! What a probe needs of a device: memory behind its MRs, and what the inside of a simulated one tells.

use std::sync::Arc;

use hugemr_core::backend::{NoMemory, RegBackend};
use hugemr_core::probe::{Found, Options, probe};
use hugemr_core::size::{GIB, MIB, PageSize};
use hugemr_host::mapping::{Kind, MapRequest, Mapping};
use hugemr_host::root::Root;
use hugemr_sim::SimMemory;

use super::Opened;

/// Addresses of the small and the large memory of a simulated device.
const SMALL: u64 = 0x7e00_0000_0000;
const LARGE: u64 = 0x6e00_0000_0000;
/// Memory behind the small MRs at most, bytes. The kernel counts the pins of a page in the upper bits of 31 (1,024 each,
/// GUP_PIN_COUNTING_BIAS in Linux include/linux/mm.h): with 4,096 pages there is room for 2^33 entries.
const BEHIND: u64 = 16 * MIB;

/// A probe, and what else was seen.
pub(crate) struct Probed {
    pub(crate) found: Found,
    /// The length that reached the device for the longest MR: known of a simulated device only.
    pub(crate) sent: Option<u64>,
    /// Why there was no memory on large pages.
    pub(crate) no_large: Option<String>,
}

/// Probes with MRs of up to `mr` bytes.
pub(crate) fn run(opened: &Opened, mr: u64, options: &Options<'_>) -> Result<Probed, String> {
    let backend = opened.backend();
    let mr = mr / PageSize::K4.bytes() * PageSize::K4.bytes();
    let longest = opened.device().max_mr_size.at_most();
    match opened {
        Opened::Simulated(device) => {
            let k4 = PageSize::K4;
            let small = Arc::new(NoMemory {
                base: SMALL,
                len: mr,
                page: k4,
            });
            let len = longest.unwrap_or(64 << 30).min(1 << 42) + PageSize::M2.bytes();
            let large = Arc::new(NoMemory {
                base: LARGE,
                len,
                page: PageSize::M2,
            });
            let laid = device
                .back(SMALL, mr, SimMemory::scattered(k4))
                .and_then(|()| device.back(LARGE, len, SimMemory::scattered(PageSize::M2)));
            laid.map_err(|error| error.to_string())?;
            let found = probe(&backend, &small, Some(&large), options);
            let registered = found.longest.filter(|longest| longest.refused.is_none());
            let sent = registered.and_then(|longest| {
                let log = device.log();
                let event = log.iter().rev().find(|event| {
                    event.request.addr == LARGE && event.request.len.get() == longest.len
                })?;
                Some(event.arrival?.wire_len)
            });
            Ok(Probed {
                found,
                sent,
                no_large: None,
            })
        }
        Opened::Real(_) => {
            let small = small(mr)?;
            let (large, no_large) = match large(longest) {
                Ok(large) => (Some(large), None),
                Err(why) => (None, Some(why)),
            };
            let found = probe(&backend, &small, large.as_ref(), options);
            Ok(Probed {
                found,
                sent: None,
                no_large,
            })
        }
    }
}

/// Length of the MRs where nobody says one. A simulated device needs no memory for them; on a real one they are short
/// enough for the tables of every driver, and for the kernel's list of pages (32 B each).
pub(crate) fn usual_mr(opened: &Opened) -> u64 {
    match opened {
        Opened::Simulated(device) => {
            let longest = device.device().max_mr_size.at_most();
            longest.unwrap_or(64 * GIB).clamp(GIB, 256 * GIB)
        }
        Opened::Real(_) => GIB,
    }
}

/// Memory that costs one entry for each 4 KiB, whatever physical memory the kernel gives: the same page comes twice in
/// a row at its beginning, so the second page never continues the first, and the border between them is a multiple of
/// 4 KiB and of nothing more. By the rule of `ib_umem_find_best_pgsz` (Linux drivers/infiniband/core/umem.c), one such
/// border makes every MR that begins here an MR of 4 KiB pages.
fn small(mr: u64) -> Result<Arc<Mapping>, String> {
    let page = PageSize::K4;
    let twice = 2 * page.bytes();
    let rest = mr.saturating_sub(twice).max(page.bytes());
    let pages = rest.min(BEHIND) / page.bytes();
    MapRequest::new(Kind::Alias { page, pages: 1 }, twice)
        .then(Kind::Alias { page, pages }, rest)
        .align(PageSize::M2.bytes())
        .map(&Root::real())
        .map(Arc::new)
        .map_err(|error| format!("no memory to probe with: {error}"))
}

/// One huge page, again and again, for an MR a page longer than the device allows. Each repetition is a mapping, and a
/// process may have about 65,000 (vm.max_map_count).
fn large(longest: Option<u64>) -> Result<Arc<Mapping>, String> {
    let page = PageSize::M2;
    let most = 32_769 * page.bytes();
    let wish = longest.unwrap_or(most).min(most - page.bytes()) + page.bytes();
    let len = wish / page.bytes() * page.bytes();
    MapRequest::new(Kind::Alias { page, pages: 1 }, len)
        .map(&Root::real())
        .map(Arc::new)
        .map_err(|error| error.to_string())
}

/// Whether the device's table counts are those of simulated memory.
pub(crate) fn is_simulated(opened: &Opened) -> bool {
    opened.simulated().is_some()
}

/// Whether nothing is left on a simulated device.
pub(crate) fn left(opened: &Opened) -> Option<(u64, u64)> {
    super::report(opened).map(|inside| (inside.count, inside.entries))
}

/// What others hold, now.
pub(crate) fn others(opened: &Opened) -> hugemr_core::device::Used {
    match opened {
        Opened::Simulated(device) => device.device().used,
        Opened::Real(device) => crate::host::used_by_others(&device.device().name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugemr_core::backend::Backing as _;

    /// Needs no pool: the buffer is of base pages, the same one twice at its beginning, and few behind all of it.
    #[test]
    fn the_small_buffer_is_there_without_huge_pages_and_begins_with_one_page_twice() {
        let memory = small(64 * MIB).unwrap();
        assert_eq!((memory.len(), memory.page()), (64 * MIB, PageSize::K4));
        let at = |offset: usize| memory.as_ptr().wrapping_add(offset);
        // SAFETY: the mapping is ours, readable and writable, and longer than each offset.
        unsafe { at(5).write_volatile(7) };
        // SAFETY: as above.
        let seen = [5, 4096 + 5, 8192 + 5].map(|offset| unsafe { at(offset).read_volatile() });
        assert_eq!(
            seen,
            [7, 7, 0],
            "the second page is the first, the third is another"
        );
        // SAFETY: as above.
        unsafe { at(8192).write_volatile(9) };
        let again = 8192 + usize::try_from(BEHIND).unwrap();
        // SAFETY: as above; 16 MiB and two pages are less than 64 MiB.
        let seen = unsafe { at(again).read_volatile() };
        assert_eq!(seen, 9, "16 MiB stand behind all of it");
        // The shortest there can be.
        assert_eq!(small(4096).unwrap().page(), PageSize::K4);
    }
}
