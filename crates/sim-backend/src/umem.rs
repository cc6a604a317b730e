//! What the kernel makes of a piece of user memory: scatter-gather entries, and one page size for the whole MR.
//!
//! Source: `__ib_umem_get` and `ib_umem_find_best_pgsz`, Linux `drivers/infiniband/core/umem.c` 5.2 to 7.3;
//! `sg_alloc_append_table_from_pages`, Linux `lib/scatterlist.c`.

use hugemr_core::layout::PhysRun;
use hugemr_core::size::PageSize;

use crate::memory::BASE_PAGE;

/// Bytes that the kernel pins in one batch: as many pages as pointers fit in one page.
const BATCH: u64 = 512 * BASE_PAGE;

/// Longest scatter-gather entry, bytes: `UINT_MAX` rounded down to a page.
pub(crate) const DEFAULT_SG_CAP: u64 = 0xffff_f000;

/// How a kernel chooses the page size of an MR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageRule {
    /// Linux before 5.2: there is no choice, 4 KiB.
    BasePages,
    /// Linux 5.2 to 5.8: every entry must be aligned, and a page is not longer than the length rounded up to a
    /// power of two.
    EveryEntryByLength,
    /// Linux 5.9 up to the fix of 2025: every entry must be aligned, the artificial cut of a run longer than
    /// 4 GiB - 4 KiB included.
    EveryEntry,
    /// Since the fix (6.1.141, 6.12.31, 6.15): only real physical discontinuities must be aligned.
    Discontinuities,
}

/// Scatter-gather entries of physical runs: batch by batch, a page joins the last entry where it follows it
/// physically and the entry stays within the cap.
#[derive(Clone, Debug)]
pub(crate) struct SgEntries<I> {
    runs: I,
    /// Rest of the run that is being read.
    run: Option<PhysRun>,
    /// Bytes left in the batch.
    batch: u64,
    /// Rest of a piece that did not fit in the last entry.
    rest: Option<PhysRun>,
    /// The last entry, which may still grow.
    open: Option<PhysRun>,
    cap: u64,
}

impl<I: Iterator<Item = PhysRun>> SgEntries<I> {
    /// `cap`: longest entry in bytes; rounded down to a page, at least one.
    pub(crate) fn new(runs: I, cap: u64) -> Self {
        Self {
            runs,
            run: None,
            batch: BATCH,
            rest: None,
            open: None,
            cap: (cap & !(BASE_PAGE - 1)).max(BASE_PAGE),
        }
    }

    /// The next piece of a run that lies within one batch.
    fn piece(&mut self) -> Option<PhysRun> {
        let run = match self.run.take() {
            Some(run) => run,
            None => self.runs.next()?,
        };
        let (piece, rest) = cut(run, self.batch);
        self.run = rest;
        self.batch -= piece.len;
        if self.batch == 0 {
            self.batch = BATCH;
        }
        Some(piece)
    }
}

/// The first `at_most` bytes of a run, and the rest.
fn cut(run: PhysRun, at_most: u64) -> (PhysRun, Option<PhysRun>) {
    let len = run.len.min(at_most);
    let rest = PhysRun {
        phys: run.phys.wrapping_add(len),
        len: run.len - len,
    };
    (PhysRun { len, ..run }, (rest.len > 0).then_some(rest))
}

impl<I: Iterator<Item = PhysRun>> Iterator for SgEntries<I> {
    type Item = PhysRun;

    fn next(&mut self) -> Option<PhysRun> {
        loop {
            let Some(piece) = self.rest.take().or_else(|| self.piece()) else {
                return self.open.take();
            };
            if let Some(open) = &mut self.open
                && open.phys.wrapping_add(open.len) == piece.phys
                && open.len < self.cap
            {
                let (joined, rest) = cut(piece, self.cap - open.len);
                open.len += joined.len;
                self.rest = rest;
                continue;
            }
            let (entry, rest) = cut(piece, self.cap);
            self.rest = rest;
            if let Some(done) = self.open.replace(entry) {
                return Some(done);
            }
        }
    }
}

/// The page size of an MR of `len` bytes that the device knows at `iova`, of those in the bit set `sizes`. `entries`
/// are the entries of the memory's DMA mapping, from the start of its first 4 KiB page.
///
/// `None` where the kernel finds none: the range wraps, or 4 KiB is not in the set.
pub(crate) fn best_page(
    rule: PageRule,
    sizes: u64,
    iova: u64,
    len: u64,
    entries: impl Iterator<Item = PhysRun>,
) -> Option<PageSize> {
    let last = iova.checked_add(len.checked_sub(1)?)?;
    if sizes & (BASE_PAGE | (BASE_PAGE - 1)) == 0 {
        return None;
    }
    let limit = match rule {
        PageRule::BasePages => return Some(PageSize::K4),
        PageRule::EveryEntryByLength => len.checked_next_power_of_two().unwrap_or(0),
        PageRule::EveryEntry | PageRule::Discontinuities => {
            // No page larger than the smallest aligned block around the whole range.
            let bits = (iova ^ last)
                .checked_ilog2()
                .map_or(1, |highest| highest + 1);
            sizes & u64::MAX.checked_shl(bits).unwrap_or(0)
        }
    };
    let walked = match rule {
        PageRule::Discontinuities => discontinuity_bits(sizes, iova, entries),
        _ => entry_bits(sizes, iova, entries),
    };
    let mask = limit | walked;
    let allowed = match mask.trailing_zeros() {
        64 => sizes,
        zeros => sizes & (u64::MAX >> (63 - zeros)),
    };
    PageSize::from_shift(allowed.checked_ilog2()?)
}

/// Whether the smallest page is settled, so that the rest of the walk cannot change the result.
fn settled(mask: u64, sizes: u64) -> bool {
    mask.trailing_zeros() <= sizes.trailing_zeros()
}

/// Address bits that limit the page since the fix: those at starts of contiguous DMA runs.
fn discontinuity_bits(sizes: u64, iova: u64, entries: impl Iterator<Item = PhysRun>) -> u64 {
    let mut mask = 0;
    let mut va = iova;
    let mut skip = iova & (BASE_PAGE - 1);
    let mut run_end = None;
    for entry in entries {
        if run_end != Some(entry.phys) {
            mask |= entry.phys.wrapping_add(skip) ^ va;
            if run_end.is_some() {
                mask |= va;
            }
        }
        run_end = Some(entry.phys.wrapping_add(entry.len));
        va = va.wrapping_add(entry.len - skip);
        skip = 0;
        if settled(mask, sizes) {
            break;
        }
    }
    mask
}

/// Address bits that limit the page before the fix: those at the borders of every entry.
fn entry_bits(sizes: u64, iova: u64, entries: impl Iterator<Item = PhysRun>) -> u64 {
    let mut mask = 0;
    let mut va = iova;
    let mut skip = iova & (BASE_PAGE - 1);
    let mut entries = entries.peekable();
    while let Some(entry) = entries.next() {
        mask |= entry.phys.wrapping_add(skip) ^ va;
        va = va.wrapping_add(entry.len - skip);
        skip = 0;
        if entries.peek().is_some() {
            mask |= va;
        }
        if settled(mask, sizes) {
            break;
        }
    }
    mask
}

/// Table entries of [iova, iova + len) on pages of that size.
pub(crate) fn blocks(page: PageSize, iova: u64, len: u64) -> u64 {
    let first = iova >> page.shift();
    // The range does not wrap and is not empty: `best_page` found a page for it.
    let last = iova.saturating_add(len.saturating_sub(1)) >> page.shift();
    last - first + 1
}
