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
    let best = match (rule, allowed) {
        // Shorter than a page: these kernels fall back to the smallest one.
        (PageRule::EveryEntryByLength, 0) => sizes.trailing_zeros(),
        _ => allowed.checked_ilog2()?,
    };
    PageSize::from_shift(best)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::SimMemory;
    use proptest::prelude::*;

    const GIB: u64 = 1 << 30;
    const MIB: u64 = 1 << 20;
    const ERDMA: u64 = 0x7fff_f000;

    fn run(phys: u64, len: u64) -> PhysRun {
        PhysRun { phys, len }
    }

    fn entries(runs: &[PhysRun], cap: u64) -> Vec<PhysRun> {
        SgEntries::new(runs.iter().copied(), cap).collect()
    }

    /// P as a shift and N.
    fn page(rule: PageRule, iova: u64, len: u64, runs: &[PhysRun], cap: u64) -> (u32, u64) {
        let entries = SgEntries::new(runs.iter().copied(), cap);
        let page = best_page(rule, ERDMA, iova, len, entries).expect("a page");
        (page.shift(), blocks(page, iova, len))
    }

    #[test]
    fn entries_join_across_batches_and_are_cut_at_the_cap() {
        let cap = DEFAULT_SG_CAP;
        let long = [run(GIB, 3 * GIB), run(4 * GIB, 3 * GIB)];
        assert_eq!(
            entries(&long, cap),
            [run(GIB, cap), run(GIB + cap, 6 * GIB - cap)]
        );
        let apart = [run(GIB, 4096), run(GIB + 8192, 4096), run(GIB + 4096, 4096)];
        assert_eq!(entries(&apart, cap), apart);
        let small = entries(&[run(0, 10 * 4096)], 3 * 4096 + 5);
        assert_eq!(
            small.iter().map(|e| e.len / 4096).collect::<Vec<_>>(),
            [3, 3, 3, 1]
        );
    }

    /// Six ascending 1 GiB pages on Linux 6.12.117, as shipped and with the rule from before the fix.
    #[test]
    fn one_run_of_1_gib_pages() {
        let base = 0x7f00_0000_0000;
        for (len, new, old) in [
            (3 * GIB, (30, 3), (30, 3)),
            (4 * GIB - 2 * MIB, (30, 4), (30, 4)),
            (4 * GIB - 4096, (30, 4), (30, 4)),
            (4 * GIB, (30, 4), (12, 1_048_576)),
            (5 * GIB, (30, 5), (12, 1_310_720)),
            (6 * GIB, (30, 6), (12, 1_572_864)),
        ] {
            let runs = [run(5 * GIB, len)];
            let cap = DEFAULT_SG_CAP;
            assert_eq!(page(PageRule::Discontinuities, base, len, &runs, cap), new);
            assert_eq!(page(PageRule::EveryEntry, base, len, &runs, cap), old);
        }
        // From 4 KiB on, the first cut happens to fall on a border.
        let runs = [run(5 * GIB + 4096, 4 * GIB)];
        let shifted = page(
            PageRule::EveryEntry,
            base + 4096,
            4 * GIB,
            &runs,
            DEFAULT_SG_CAP,
        );
        assert_eq!(shifted.0, 30);
    }

    #[test]
    fn a_page_is_no_larger_than_the_block_around_the_range() {
        let runs = [run(0x7f00_0020_0000, 64 * MIB)];
        let at = |rule, iova, len| page(rule, iova, len, &runs, DEFAULT_SG_CAP);
        let new = PageRule::Discontinuities;
        assert_eq!(at(new, 0x7f00_0020_0000, 2 * MIB), (21, 1));
        assert_eq!(at(new, 0x7f00_0020_0000, 2 * MIB + 1), (23, 1));
        assert_eq!(at(new, 0x7f00_0020_0000, 1), (12, 1));
        // 5.2 to 5.8 look at the length only.
        let by_length = PageRule::EveryEntryByLength;
        assert_eq!(at(by_length, 0x7f00_0020_0000, 2 * MIB), (21, 1));
        assert_eq!(at(by_length, 0x7f00_0020_0000, 2 * MIB + 1), (22, 2));
        assert_eq!(
            at(PageRule::BasePages, 0x7f00_0020_0000, 2 * MIB),
            (12, 512)
        );
    }

    #[test]
    fn no_page_for_ranges_that_wrap_or_sets_without_base_pages() {
        let runs = || [run(0, 8192)].into_iter();
        let rule = PageRule::Discontinuities;
        assert_eq!(best_page(rule, ERDMA, u64::MAX - 4095, 8192, runs()), None);
        assert!(best_page(rule, ERDMA, u64::MAX - 8191, 8192, runs()).is_some());
        assert_eq!(best_page(rule, 1 << 21, 0, 8192, runs()), None);
    }

    /// A range, the runs behind it, and a cap.
    fn case() -> impl Strategy<Value = (u64, u64, Vec<PhysRun>, u64)> {
        let page = prop::sample::select(vec![12u32, 14, 16]);
        (
            page,
            1u64..300,
            0u64..40,
            any::<u64>(),
            0u64..64,
            1u64..128,
            0u64..4096,
        )
            .prop_map(|(shift, pages, mean, seed, start, cap, inside)| {
                let page = PageSize::from_shift(shift).expect("a page");
                let (addr, len) = ((1 << 40) + (start << shift), pages << shift);
                let memory = SimMemory::random(page, addr, len, mean, seed);
                let SimMemory::Runs(runs) = memory else {
                    unreachable!("random memory is runs")
                };
                (addr + inside, len - inside, runs, cap * 4096)
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// It does not matter in which pieces a run is reported.
        #[test]
        fn splitting_runs_changes_nothing((iova, len, runs, cap) in case(), at in 0usize..300) {
            let mut split = runs.clone();
            let pages: u64 = runs.iter().map(|run| run.len / 4096).sum();
            let mut left = at as u64 % pages * 4096;
            let index = runs.iter().position(|run| {
                let here = left < run.len;
                left -= if here { 0 } else { run.len };
                here
            }).expect("a run");
            if left > 0 {
                let (first, rest) = cut(runs[index], left);
                split.splice(index..=index, std::iter::once(first).chain(rest));
            }
            prop_assert_eq!(entries(&runs, cap), entries(&split, cap));
            for rule in [PageRule::EveryEntry, PageRule::EveryEntryByLength, PageRule::Discontinuities] {
                prop_assert_eq!(page(rule, iova, len, &runs, cap), page(rule, iova, len, &split, cap));
            }
        }

        /// Entries are the runs: same bytes in the same order, none beyond the cap, none that could have grown.
        #[test]
        fn entries_hold_the_runs((_, _, runs, cap) in case()) {
            let pages = |runs: &[PhysRun]| -> Vec<u64> {
                runs.iter().flat_map(|run| (0..run.len / 4096).map(|i| run.phys + i * 4096)).collect()
            };
            let entries = entries(&runs, cap);
            prop_assert_eq!(pages(&entries), pages(&runs));
            prop_assert!(entries.iter().all(|entry| entry.len <= cap));
            for pair in entries.windows(2) {
                prop_assert!(pair[0].phys + pair[0].len != pair[1].phys || pair[0].len == cap);
            }
        }

        /// The fix never makes pages smaller, and changes nothing while no run exceeds the cap.
        #[test]
        fn the_fix_only_helps((iova, len, runs, cap) in case()) {
            let new = page(PageRule::Discontinuities, iova, len, &runs, cap);
            let old = page(PageRule::EveryEntry, iova, len, &runs, cap);
            prop_assert!(new.0 >= old.0 && new.1 <= old.1);
            let merged = entries(&runs, u64::MAX);
            if merged.iter().all(|run| run.len <= cap) {
                prop_assert_eq!(new, old);
            }
        }

        /// What the rule promises: each block is contiguous, and lies in memory as in the address space.
        #[test]
        fn every_block_is_one_piece_of_memory((iova, len, runs, cap) in case()) {
            let (shift, count) = page(PageRule::Discontinuities, iova, len, &runs, cap);
            let first = iova & !4095;
            let mut at = first;
            let mut block = None;
            for page in runs.iter().flat_map(|run| (0..run.len / 4096).map(|i| run.phys + i * 4096)) {
                let own = (at >> shift, page.wrapping_sub(at));
                prop_assert_eq!(page % (1 << shift), at % (1 << shift));
                if let Some((number, delta)) = block && number == own.0 {
                    prop_assert_eq!(delta, own.1);
                }
                block = Some(own);
                at += 4096;
            }
            prop_assert_eq!(count, ((iova + len - 1) >> shift) - (iova >> shift) + 1);
        }

        /// Leaving the walk early gives what walking to the end gives.
        #[test]
        fn stopping_early_changes_nothing((iova, _, runs, cap) in case()) {
            // With bit 0 in the set the walk is never settled before its end: the mask has no bit below a page.
            let all = || SgEntries::new(runs.iter().copied(), cap);
            for (stopped, whole) in [
                (discontinuity_bits(ERDMA, iova, all()), discontinuity_bits(1, iova, all())),
                (entry_bits(ERDMA, iova, all()), entry_bits(1, iova, all())),
            ] {
                prop_assert_eq!(stopped.trailing_zeros(), whole.trailing_zeros());
            }
        }
    }
}
