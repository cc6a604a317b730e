//! DMA mapping through an IOMMU: the device sees addresses of a block of its own, not physical ones.
//!
//! `iommu_dma_map_sg` takes one naturally aligned block of I/O addresses for the whole MR and pads an entry where the
//! next one would cross a multiple of 4 GiB; `__finalise_sg` then joins neighbours up to `UINT_MAX` bytes, but
//! never across such a multiple. Source: Linux `drivers/iommu/dma-iommu.c` 6.1 and 6.12. What a real device does with
//! a mapping whose padded length has wrapped (6.1) was not observed; only the addresses that Linux computes are
//! modelled.

use hugemr_core::layout::PhysRun;

/// Distance of the borders that a DMA segment must not cross, bytes: the PCI core's default, kept by erdma.
const SEGMENT: u64 = 1 << 32;

/// A padded entry became longer than a `u32` can say: EOVERFLOW.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PaddingOverflow;

/// Scatter-gather entries, each with the space it takes in the block of I/O addresses.
#[derive(Clone, Debug)]
struct Padded<I: Iterator<Item = PhysRun>> {
    entries: std::iter::Peekable<I>,
    /// I/O addresses handed out before the next entry.
    used: u64,
}

impl<I: Iterator<Item = PhysRun>> Iterator for Padded<I> {
    /// Length of the entry, and of the entry with its padding.
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        let entry = self.entries.next()?;
        self.used += entry.len;
        let mut padded = entry.len;
        if let Some(next) = self.entries.peek() {
            let pad = self.used.next_multiple_of(SEGMENT) - self.used;
            if pad != 0 && pad < next.len - 1 {
                padded += pad;
                self.used += pad;
            }
        }
        Some((entry.len, padded))
    }
}

/// The DMA segments that the device sees. `checked`: the kernel notices when padding overflows; otherwise the padded
/// length silently wraps at 32 bits.
pub(crate) fn map<I>(
    entries: I,
    checked: bool,
) -> Result<impl Iterator<Item = PhysRun>, PaddingOverflow>
where
    I: Iterator<Item = PhysRun> + Clone,
{
    let padded = Padded {
        entries: entries.peekable(),
        used: 0,
    };
    let mut total = 0u64;
    for (_, len) in padded.clone() {
        if checked && len > u64::from(u32::MAX) {
            return Err(PaddingOverflow);
        }
        total = total.saturating_add(len);
    }
    // One block, aligned to its size.
    let base = total.checked_next_power_of_two().unwrap_or(1 << 63);
    Ok(Segments {
        padded,
        next: base,
        open: None,
        closed: false,
    })
}

/// Entries joined to segments.
struct Segments<I: Iterator<Item = PhysRun>> {
    padded: Padded<I>,
    /// I/O address of the next entry.
    next: u64,
    open: Option<PhysRun>,
    /// Whether padding follows the open segment, so that nothing can join it.
    closed: bool,
}

impl<I: Iterator<Item = PhysRun>> Iterator for Segments<I> {
    type Item = PhysRun;

    fn next(&mut self) -> Option<PhysRun> {
        loop {
            let Some((len, padded)) = self.padded.next() else {
                return self.open.take();
            };
            let at = self.next;
            let taken = padded % SEGMENT;
            self.next = at.wrapping_add(taken);
            let joinable = !self.closed && !at.is_multiple_of(SEGMENT);
            self.closed = len < taken;
            if let Some(open) = &mut self.open
                && joinable
                && u64::from(u32::MAX) - open.len >= len
            {
                open.len += len;
                continue;
            }
            if let Some(done) = self.open.replace(PhysRun { phys: at, len }) {
                return Some(done);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::umem::{DEFAULT_SG_CAP, PageRule, SgEntries, best_page};

    const GIB: u64 = 1 << 30;
    const ERDMA: u64 = 0x7fff_f000;
    const VA: u64 = 0x7e00_0000_0000;

    /// Every other page of `page` bytes: nothing is physically contiguous.
    fn scattered(page: u64, len: u64) -> impl Iterator<Item = PhysRun> + Clone {
        (0..len / page).map(move |i| PhysRun {
            phys: (2 * i + 1) * page,
            len: page,
        })
    }

    fn shift<I>(rule: PageRule, runs: I, len: u64, checked: bool) -> Option<u32>
    where
        I: Iterator<Item = PhysRun> + Clone,
    {
        let segments = map(SgEntries::new(runs, DEFAULT_SG_CAP), checked).ok()?;
        best_page(rule, ERDMA, VA, len, segments).map(|page| page.shift())
    }

    #[test]
    fn scattered_pages_look_contiguous() {
        let new = PageRule::Discontinuities;
        assert_eq!(shift(new, scattered(4096, GIB), GIB, true), Some(30));
        assert_eq!(
            shift(new, scattered(4096, 5 * GIB), 5 * GIB, true),
            Some(30)
        );
        assert_eq!(
            shift(new, scattered(2 << 20, 8 * GIB), 8 * GIB, true),
            Some(30)
        );
    }

    #[test]
    fn the_old_rule_meets_the_cut_below_4_gib() {
        let old = PageRule::EveryEntry;
        let at = |page, len| shift(old, scattered(page, len), len, true);
        assert_eq!(at(4096, 4 * GIB - 4096), Some(30));
        assert_eq!(at(4096, 4 * GIB), Some(12));
        // 2 MiB pages are joined up to 4 GiB - 2 MiB.
        assert_eq!(at(2 << 20, 8 * GIB), Some(21));
    }

    #[test]
    fn a_long_run_overflows_where_that_is_noticed() {
        let run = |len| std::iter::once(PhysRun { phys: GIB, len });
        let new = PageRule::Discontinuities;
        assert_eq!(
            shift(new, run(4 * GIB - 4096), 4 * GIB - 4096, true),
            Some(30)
        );
        // One page behind the cut needs no padding, two do.
        assert_eq!(shift(new, run(4 * GIB), 4 * GIB, true), Some(30));
        assert_eq!(shift(new, run(4 * GIB + 4096), 4 * GIB + 4096, true), None);
        assert!(shift(new, run(4 * GIB + 4096), 4 * GIB + 4096, false).is_some());
    }

    #[test]
    fn padding_keeps_entries_from_crossing_4_gib() {
        let check = |runs: &[(u64, u64)], want: Option<&[(u64, u64)]>| {
            let run = |&(phys, len): &(u64, u64)| PhysRun { phys, len };
            let entries: Vec<PhysRun> = runs.iter().map(run).collect();
            let segments = map(entries.into_iter(), true).ok();
            let segments = segments.map(Iterator::collect::<Vec<PhysRun>>);
            assert_eq!(segments, want.map(|want| want.iter().map(run).collect()));
        };
        const HALF: u64 = GIB / 2;
        // 1 GiB, 2.5 GiB, 1 GiB: the third begins at the next multiple of 4 GiB.
        check(
            &[(8 * GIB, GIB), (16 * GIB, 5 * HALF), (32 * GIB, GIB)],
            Some(&[(8 * GIB, 7 * HALF), (12 * GIB, GIB)]),
        );
        // An entry alone in its 4 GiB would be padded to 4 GiB, one more than fits in 32 bits.
        check(&[(8 * GIB, 3 * GIB), (16 * GIB, 2 * GIB)], None);
    }
}
