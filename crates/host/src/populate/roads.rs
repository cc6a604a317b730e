//! The two roads to the pages of a range, on one thread. What fails tells the first address for which that is so.
//!
//! **Of each huge page the end comes first.** The kernel clears a huge page so that what was asked for is cleared last,
//! to leave it in the caches, and the rest on the way to it (`clear_huge_page`, later `folio_zero_user`, of mm/memory.c;
//! hugetlbfs tells it the address of the fault since commit 285b8dcaacfc, Linux 4.19 or before). Whoever asks for the
//! beginning of a page, as MADV_POPULATE_WRITE of a range and every first touch do, has it cleared backwards, 4 KiB by
//! 4 KiB from its end, which processors are slower at. Asking for the last 4 KiB has it cleared forwards: about a quarter
//! more speed where docs/performance.md was measured (docs/decisions/0011-the-end-of-a-page-first.md).

use std::thread;

use hugemr_core::errno::Errno;

use super::PIECE;
use crate::sys::{self, Advice};

/// A call that a signal or a passing shortage interrupted is repeated; a lasting one shows itself as another error.
fn again(mut call: impl FnMut() -> sys::Result<()>) -> sys::Result<()> {
    const TRIES: usize = 1000;
    for _ in 0..TRIES {
        match call() {
            Err(Errno::EINTR | Errno::EAGAIN) => thread::yield_now(),
            other => return other,
        }
    }
    call()
}

/// `from` is on a border of a base page.
pub(super) fn populate_write(from: u64, to: u64, page: u64) -> Result<(), (u64, Errno)> {
    let populate =
        |from: u64, to: u64| again(|| sys::madvise(from, to - from, Advice::PopulateWrite));
    // What fails here fails again below, where it is looked into. So does a huge page that is not huge.
    if let Ok(missing) = missing_ends(from, to, page) {
        let _ = missing
            .iter()
            .try_for_each(|end| populate(*end, end + sys::base_page()));
    }
    let Err(mut errno) = populate(from, to) else {
        return Ok(());
    };
    // The call does not say where it stopped. What it has populated costs little a second time, so look for the
    // first page that fails by halves: [from, good) is populated, and [good, bad) is known to fail.
    let (mut good, mut bad) = (from, to);
    loop {
        let border = good - good % page;
        let pages = (bad - border).div_ceil(page);
        if pages <= 1 {
            break;
        }
        let middle = border + pages / 2 * page;
        match populate(good, middle) {
            Ok(()) => good = middle,
            Err(other) => (bad, errno) = (middle, other),
        }
    }
    // Nothing fails any more where somebody has given pages back meanwhile.
    populate(good, to).map_err(|_| (good, errno))
}

/// The last base pages of the huge pages that end in `[from, to)`, as far as they are not there yet. None for pages that
/// are larger than a piece: those are gigantic to the kernel, which clears them forwards always.
pub(super) fn missing_ends(from: u64, to: u64, page: u64) -> sys::Result<Vec<u64>> {
    let base = sys::base_page();
    if page <= base || page > PIECE {
        return Ok(Vec::new());
    }
    let mut there = vec![0u8; sys::size((to - from) / base)];
    sys::resident(from, &mut there)?;
    let ends = (from / page..to / page).map(|number| (number + 1) * page - base);
    let missing = |end: &u64| there[sys::size((end - from) / base)] & 1 == 0;
    Ok(ends.filter(missing).collect())
}

/// Touches every page that overlaps `[from, to)`.
pub(super) fn touch_range(from: u64, to: u64, page: u64) -> Result<(), (u64, Errno)> {
    let base = sys::base_page();
    let touch = |addr: u64| again(|| sys::or_zero(addr));
    let mut there = vec![0u8; sys::size(page.min(PIECE) / base)];
    let mut at = from - from % base;
    while at < to {
        let block_end = (at - at % page)
            .saturating_add(page)
            .min(to.next_multiple_of(base));
        let last = block_end - base;
        touch(last).map_err(|errno| (at, errno))?;
        // The rest of a huge page has come along, or must be touched page by page.
        while at < last {
            let count = sys::size((last - at) / base).min(there.len());
            let part = &mut there[..count];
            sys::resident(at, part).map_err(|errno| (at, errno))?;
            for (i, flag) in part.iter().enumerate() {
                if flag & 1 == 0 {
                    let addr = at + i as u64 * base;
                    touch(addr).map_err(|errno| (addr, errno))?;
                }
            }
            at += count as u64 * base;
        }
        at = block_end;
    }
    Ok(())
}
