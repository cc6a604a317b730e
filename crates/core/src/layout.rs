//! From physical runs to the page size and the entries of an MR, and to what reaches the device, by closed form.
//!
//! The kernel builds a list of segments from the pinned pages and asks `ib_umem_find_best_pgsz` for one page size for
//! the whole MR (Linux `drivers/infiniband/core/umem.c`). Walking the list, it collects in one mask all bits in which
//! virtual and DMA address differ and all bits of the virtual addresses of inner borders; the lowest bit set decides.
//! The lowest bit of an OR is the minimum of the lowest bits, and the lowest bit in which two numbers differ is the
//! lowest bit of their difference: so the answer is a minimum of trailing zeros over the discontinuities, and for the
//! rule before 2025 also over the cuts of long runs, of which two are enough to know all.

use crate::device::Family;
use crate::errno::Errno;
use crate::host::Platform;
use crate::quirk::{CONTIGUOUS_ENTRIES, ONE_LEVEL_ENTRIES, Quirk, SEGMENT_CAP};
use crate::size::{GIB, PageSize, PageSizes};

/// A stretch of physically contiguous memory, in the order of virtual addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhysRun {
    /// Physical address of its first byte.
    pub phys: u64,
    /// Length, bytes.
    pub len: u64,
}

/// The physical layout of a mapped range: maximal runs, found by address in logarithmic time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    base: u64,
    /// (distance of the run's start from `base`, physical address), ascending.
    runs: Vec<(u64, u64)>,
    len: u64,
}

impl Layout {
    /// The layout of the range that starts at `base` (a multiple of 4 KiB). Neighbouring runs that continue each
    /// other are joined; empty ones are dropped.
    #[must_use]
    pub fn new(base: u64, runs: impl IntoIterator<Item = PhysRun>) -> Self {
        let mut layout = Self {
            base,
            runs: Vec::new(),
            len: 0,
        };
        for run in runs.into_iter().filter(|run| run.len > 0) {
            let continues = layout
                .runs
                .last()
                .is_some_and(|(at, phys)| phys.wrapping_add(layout.len - at) == run.phys);
            if !continues {
                layout.runs.push((layout.len, run.phys));
            }
            layout.len += run.len;
        }
        layout
    }

    /// First address.
    #[must_use]
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Length, bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is no memory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of maximal runs.
    #[must_use]
    pub fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// The runs of `[start, end)` as (virtual address, physical address, length); `None` where it is not inside.
    pub fn slice(
        &self,
        start: u64,
        end: u64,
    ) -> Option<impl Iterator<Item = (u64, u64, u64)> + '_> {
        let (from, to) = (start.checked_sub(self.base)?, end.checked_sub(self.base)?);
        if from >= to || to > self.len {
            return None;
        }
        let first = self.runs.partition_point(|(at, _)| *at <= from) - 1;
        Some(
            self.runs[first..]
                .iter()
                .enumerate()
                .map_while(move |(i, &(at, phys))| {
                    let next = self
                        .runs
                        .get(first + i + 1)
                        .map_or(self.len, |(next, _)| *next);
                    let (low, high) = (at.max(from), next.min(to));
                    (low < high).then(|| (self.base + low, phys + (low - at), high - low))
                }),
        )
    }
}

/// How many bits of the length reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireLength {
    /// All.
    Whole,
    /// 32 where the table has at most one level, else all.
    ShortForm,
    /// Always 32.
    Low32,
}

/// The rules of one kernel and driver, as they bear on one MR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The kernel chooses a page size at all (5.2 and later).
    pub large_pages: bool,
    /// Cuts of long runs count as borders (before the fix of 2025).
    pub old_rule: bool,
    /// No page is larger than the MR's length, rounded up to a power of two (5.2 to 5.8).
    pub block_by_length: bool,
    /// Longest segment, bytes, a multiple of 4 KiB. Smaller in tests.
    pub segment_cap: u64,
    /// Most entries of one MR in the driver's table.
    pub table_entries: u64,
    /// What reaches the device of the length.
    pub wire_length: WireLength,
    /// The device sees addresses of an IOMMU: known to, known not to, or not known.
    pub iommu: Option<bool>,
}

impl Rules {
    /// The rules of a platform; what is not known counts as the platform's presumption says.
    #[must_use]
    pub fn of(platform: &Platform, family: Family) -> Self {
        let counts = |quirk: Quirk| quirk.on(platform, family).counts();
        let length = Quirk::WireLength.on(platform, family);
        let erdma = family == Family::Erdma;
        Self {
            large_pages: !counts(Quirk::NoLargePages),
            old_rule: counts(Quirk::ScatterBoundary),
            block_by_length: counts(Quirk::ScatterBoundary)
                && (platform.kernel).is_some_and(|kernel| kernel.series() < (5, 9)),
            segment_cap: SEGMENT_CAP,
            table_entries: match (erdma, counts(Quirk::ContiguousTable)) {
                (true, true) => CONTIGUOUS_ENTRIES,
                (true, false) => ONE_LEVEL_ENTRIES.pow(3),
                (false, _) => u64::MAX,
            },
            wire_length: match (length.counts(), length.only_up_to_entries) {
                (false, _) => WireLength::Whole,
                (true, Some(_)) => WireLength::ShortForm,
                (true, None) => WireLength::Low32,
            },
            iommu: platform.iommu,
        }
    }
}

/// What an MR becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// Page size chosen by the kernel.
    pub page: PageSize,
    /// Entries of the device's table.
    pub entries: u64,
    /// Levels of the driver's table: 0 means that the entries travel in the command, or that the driver's table is
    /// not known (other families than erdma).
    pub level: u8,
    /// Length that reaches the device, bytes.
    pub wire_len: u64,
    /// The errno with which the driver refuses it before asking the device.
    pub refused: Option<Errno>,
}

/// Predicts one MR from the physical layout of its memory.
///
/// `addr` and `iova` are equal modulo 4 KiB. `None` where the layout does not cover the MR, where `len` is 0, or
/// where no page size of `cap` can be used (the helper answers 0, and a driver refuses with EINVAL).
#[must_use]
pub fn predict(
    layout: &Layout,
    addr: u64,
    len: u64,
    iova: u64,
    cap: PageSizes,
    rules: &Rules,
) -> Option<Prediction> {
    let last = iova.checked_add(len.checked_sub(1)?)?;
    let (start, end) = (
        addr & !0xfff,
        addr.checked_add(len)?.checked_next_multiple_of(4096)?,
    );
    let mut zeros = u64::BITS;
    if rules.iommu == Some(true) {
        // One naturally aligned block of device addresses: only the start can disagree.
        zeros = zeros.min(iova.trailing_zeros().max(12));
        if rules.old_rule && end - start > rules.segment_cap {
            zeros = 12;
        }
        let _covered = layout.slice(start, end)?;
    } else {
        let shift = iova.wrapping_sub(addr);
        for (i, (at, phys, run)) in layout.slice(start, end)?.enumerate() {
            let va = at.wrapping_add(shift);
            zeros = zeros.min(phys.wrapping_sub(va).trailing_zeros());
            if i > 0 {
                zeros = zeros.min(va.trailing_zeros());
            }
            if rules.old_rule {
                zeros = zeros.min(cut_zeros(va, run, rules.segment_cap));
            }
        }
    }
    if !rules.large_pages {
        zeros = 12;
    }
    // The helper refuses a set without the base page.
    if !cap.contains(PageSize::K4) {
        return None;
    }
    let zeros = zeros.max(12);
    let page = if rules.block_by_length {
        let block = len
            .checked_next_power_of_two()
            .map_or(64, u64::trailing_zeros);
        let bound = PageSize::from_shift(zeros.min(block).min(63));
        bound
            .and_then(|bound| cap.largest_at_most(bound))
            .or(cap.smallest())?
    } else {
        page_of(zeros, iova, last, cap)?
    };
    Some(arrive(page, iova, len, rules))
}

/// Fewest trailing zeros of the borders inside a run that is cut every `cap` bytes; 64 where there is none.
///
/// The borders are `va + j * cap` for j = 1, 2, ... Adding `cap` keeps the lowest bit where it lies below that of
/// `cap`, and otherwise two neighbours have it between them at that of `cap`: two terms decide.
fn cut_zeros(va: u64, run: u64, cap: u64) -> u32 {
    let cuts = run.div_ceil(cap) - 1;
    match cuts {
        0 => u64::BITS,
        1 => va.wrapping_add(cap).trailing_zeros(),
        _ => va
            .wrapping_add(cap)
            .trailing_zeros()
            .min(cap.trailing_zeros()),
    }
}

/// The largest offered page of at most 2^`zeros` bytes that is no larger than the smallest offered block which holds
/// `[first, last]`.
fn page_of(zeros: u32, first: u64, last: u64, cap: PageSizes) -> Option<PageSize> {
    let differ = (first ^ last).max(1).ilog2() + 1;
    let block = cap.0 & u64::MAX.checked_shl(differ).unwrap_or(0);
    let bound = zeros.min(block.trailing_zeros()).min(63);
    cap.largest_at_most(PageSize::from_shift(bound)?)
}

/// Entries of an MR: blocks of `page` that `[iova, iova + len)` touches.
#[must_use]
pub fn entries(page: PageSize, iova: u64, len: u64) -> u64 {
    let size = u128::from(page.bytes());
    let end = u128::from(iova) + u128::from(len);
    let blocks = end.div_ceil(size) - u128::from(iova) / size;
    u64::try_from(blocks).unwrap_or(u64::MAX)
}

/// Levels of erdma's table for that many entries: 0 inline, then 512 to the power of the level.
#[must_use]
pub fn level(entries: u64) -> u8 {
    match entries {
        0..=4 => 0,
        5..=512 => 1,
        513..=262_144 => 2,
        _ => 3,
    }
}

/// What the driver makes of a page size.
#[must_use]
pub fn arrive(page: PageSize, iova: u64, len: u64, rules: &Rules) -> Prediction {
    let entries = entries(page, iova, len);
    let level = match rules.table_entries {
        CONTIGUOUS_ENTRIES => level(entries).min(1),
        u64::MAX => 0,
        _ => level(entries),
    };
    let short = match rules.wire_length {
        WireLength::Whole => false,
        WireLength::ShortForm => level <= 1,
        WireLength::Low32 => true,
    };
    Prediction {
        page,
        entries,
        level,
        wire_len: if short { len % (4 * GIB) } else { len },
        refused: (entries > rules.table_entries).then_some(Errno::ENOMEM),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::MIB;

    const NEW: Rules = Rules {
        large_pages: true,
        old_rule: false,
        block_by_length: false,
        segment_cap: SEGMENT_CAP,
        table_entries: ONE_LEVEL_ENTRIES.pow(3),
        wire_length: WireLength::ShortForm,
        iommu: Some(false),
    };
    const OLD: Rules = Rules {
        old_rule: true,
        ..NEW
    };

    fn one_run(base: u64, phys: u64, len: u64) -> Layout {
        Layout::new(base, [PhysRun { phys, len }])
    }

    /// The six lengths that were run on a real kernel over six contiguous 1 GiB pages, under both rules.
    #[test]
    fn contiguous_gigabyte_pages() {
        let (va, pa) = (0x7f00_0000_0000, 0x1_4000_0000);
        let layout = one_run(va, pa, 6 * GIB);
        for (len, new_entries, old_page, old_entries, wire) in [
            (3 * GIB, 3, PageSize::G1, 3, 3 * GIB),
            (4 * GIB - 2 * MIB, 4, PageSize::G1, 4, 4 * GIB - 2 * MIB),
            (4 * GIB - 4096, 4, PageSize::G1, 4, 4 * GIB - 4096),
            (4 * GIB, 4, PageSize::K4, 1_048_576, 0),
            (5 * GIB, 5, PageSize::K4, 1_310_720, GIB),
            (6 * GIB, 6, PageSize::K4, 1_572_864, 2 * GIB),
        ] {
            let new = predict(&layout, va, len, va, PageSizes::ERDMA, &NEW).unwrap();
            assert_eq!(
                (new.page, new.entries, new.wire_len),
                (PageSize::G1, new_entries, wire)
            );
            let old = predict(&layout, va, len, va, PageSizes::ERDMA, &OLD).unwrap();
            assert_eq!((old.page, old.entries), (old_page, old_entries), "{len:#x}");
            assert!(old.page == PageSize::G1 || old.wire_len == len);
        }
        // Exactly 4 KiB into the page the first cut falls on a border again.
        let odd = predict(
            &layout,
            va + 4096,
            4 * GIB,
            va + 4096,
            PageSizes::ERDMA,
            &OLD,
        )
        .unwrap();
        assert_eq!(odd.page, PageSize::G1);
    }

    #[test]
    fn congruence_decides_how_far_contiguous_pages_merge() {
        let len = 256 * MIB;
        for (modulo, want) in [(4 * MIB, 22), (16 * MIB, 24), (32 * MIB, 25)] {
            let layout = one_run(0x7f00_0000_0000, 0x4000_0000 + modulo, len);
            let got = predict(
                &layout,
                layout.base(),
                len,
                layout.base(),
                PageSizes::ERDMA,
                &NEW,
            );
            assert_eq!(got.unwrap().page.shift(), want);
        }
    }

    #[test]
    fn one_small_hole_drags_the_whole_mr_down() {
        let (va, page) = (0x7f00_0000_0000, 2 * MIB);
        let mut runs: Vec<PhysRun> = (0..512)
            .map(|i| PhysRun {
                phys: (2 * i + 1) * page,
                len: page,
            })
            .collect();
        let whole = Layout::new(va, runs.clone());
        let fine = predict(&whole, va, GIB, va, PageSizes::ERDMA, &NEW).unwrap();
        assert_eq!(
            (fine.page, fine.entries, fine.level),
            (PageSize::M2, 512, 1)
        );
        runs[100].len -= 4096;
        runs.insert(
            101,
            PhysRun {
                phys: 0x9000_0000_1000,
                len: 4096,
            },
        );
        let holed = Layout::new(va, runs);
        let bad = predict(&holed, va, GIB, va, PageSizes::ERDMA, &NEW).unwrap();
        assert_eq!((bad.page, bad.entries), (PageSize::K4, 262_144));
        // An MR that ends before the hole is not touched by it.
        let before = predict(&holed, va, 100 * page, va, PageSizes::ERDMA, &NEW).unwrap();
        assert_eq!(before.page, PageSize::M2);
    }

    #[test]
    fn a_block_never_reaches_beyond_what_holds_the_range() {
        let layout = one_run(0x4000_0000, 0x8000_0000, GIB);
        let small = predict(
            &layout,
            0x4000_0000,
            8192,
            0x4000_0000,
            PageSizes::ERDMA,
            &NEW,
        )
        .unwrap();
        assert_eq!((small.page.bytes(), small.entries), (8192, 1));
        let byte = predict(&layout, 0x4000_0000, 1, 0x4000_0000, PageSizes::ERDMA, &NEW).unwrap();
        assert_eq!((byte.page, byte.entries), (PageSize::K4, 1));
    }

    #[test]
    fn before_5_9_the_length_bounds_the_page() {
        let layout = one_run(0x4000_0000, 0x8000_0000, GIB);
        let by_length = Rules {
            block_by_length: true,
            ..OLD
        };
        let at = |rules, addr| {
            let mr = predict(&layout, addr, 8192, addr, PageSizes::ERDMA, &rules).unwrap();
            (mr.page.bytes(), mr.entries)
        };
        assert_eq!(at(OLD, 0x4000_1000), (16384, 1));
        assert_eq!(at(by_length, 0x4000_1000), (8192, 2));
        assert_eq!(at(by_length, 0x4000_2000), (8192, 1));
    }

    #[test]
    fn a_set_without_the_base_page_is_refused() {
        let layout = one_run(0x4000_0000, 0x8000_0000, GIB);
        let cap = PageSizes(0x20_0000);
        assert_eq!(
            predict(&layout, 0x4000_0000, GIB, 0x4000_0000, cap, &NEW),
            None
        );
    }

    #[test]
    fn tables_and_lengths() {
        for (n, want) in [
            (1, 0),
            (4, 0),
            (5, 1),
            (512, 1),
            (513, 2),
            (262_144, 2),
            (262_145, 3),
        ] {
            assert_eq!(level(n), want);
        }
        let first = Rules {
            table_entries: CONTIGUOUS_ENTRIES,
            wire_length: WireLength::Low32,
            ..NEW
        };
        assert_eq!(arrive(PageSize::M2, 0, 64 * GIB, &first).wire_len, 0);
        assert_eq!(arrive(PageSize::K4, 0, 2 * GIB, &first).refused, None);
        assert_eq!(
            arrive(PageSize::K4, 0, 2 * GIB + 4096, &first).refused,
            Some(Errno::ENOMEM)
        );
        assert_eq!(arrive(PageSize::M2, 0, 64 * GIB, &NEW).wire_len, 64 * GIB);
        assert_eq!(arrive(PageSize::M2, 4096, 2 * MIB, &NEW).entries, 2);
    }

    #[test]
    fn layouts_are_normalised() {
        let parts = [
            PhysRun { phys: 0, len: 4096 },
            PhysRun {
                phys: 4096,
                len: 8192,
            },
        ];
        let layout = Layout::new(0x10000, parts);
        assert_eq!((layout.run_count(), layout.len()), (1, 12288));
        assert!(layout.slice(0x10000, 0x10000 + 12289).is_none());
        assert!(layout.slice(0x0f000, 0x11000).is_none());
    }
}
