//! Which address range has which layout.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use hugemr_core::layout::PhysRun;
use hugemr_core::size::PageSize;

use crate::error::SimError;
use crate::memory::{BASE_PAGE, DefaultLayout, Layout, SimMemory};

/// A part of a range with one layout.
#[derive(Clone, Debug)]
struct Piece {
    from: u64,
    to: u64,
    layout: Layout,
}

/// Which addresses have which layout.
#[derive(Debug)]
pub(crate) struct AddressSpace {
    /// By first address; no two overlap.
    pieces: BTreeMap<u64, Piece>,
    pub(crate) default: DefaultLayout,
    /// Whether a range without a layout of its own is not mapped.
    pub(crate) strict: bool,
}

impl AddressSpace {
    pub(crate) fn new(default: DefaultLayout, strict: bool) -> Self {
        Self {
            pieces: BTreeMap::new(),
            default,
            strict,
        }
    }

    /// Gives a range a layout, instead of whatever it had.
    pub(crate) fn back(&mut self, addr: u64, len: u64, memory: SimMemory) -> Result<(), SimError> {
        let to = range_end(addr, len)?;
        let layout = Layout::new(memory, addr, len)?;
        self.clear(addr, to);
        let piece = Piece {
            from: addr,
            to,
            layout,
        };
        self.pieces.insert(addr, piece);
        Ok(())
    }

    /// Takes the layout of a range away.
    pub(crate) fn unback(&mut self, addr: u64, len: u64) -> Result<(), SimError> {
        let to = range_end(addr, len)?;
        self.clear(addr, to);
        Ok(())
    }

    fn clear(&mut self, from: u64, to: u64) {
        let before = self.pieces.range(..from).next_back();
        let first = before.map_or(from, |(start, _)| *start);
        let hit: Vec<u64> = self
            .pieces
            .range(first..to)
            .filter(|(_, piece)| piece.to > from)
            .map(|(start, _)| *start)
            .collect();
        for start in hit {
            let Some(piece) = self.pieces.remove(&start) else {
                continue;
            };
            if piece.from < from {
                let left = Piece {
                    to: from,
                    ..piece.clone()
                };
                self.pieces.insert(left.from, left);
            }
            if piece.to > to {
                self.pieces.insert(to, Piece { from: to, ..piece });
            }
        }
    }

    /// The physical runs of [from, to), both multiples of 4 KiB; `None` where a part of it is not mapped.
    pub(crate) fn runs(&self, from: u64, to: u64) -> Option<Runs> {
        let before = self.pieces.range(..=from).next_back();
        let first = before.map_or(from, |(start, _)| *start);
        let mut pieces = Vec::new();
        let mut at = from;
        let mut gaps = false;
        let mut gap = |pieces: &mut Vec<Piece>, from, to| {
            gaps = true;
            pieces.push(Piece {
                from,
                to,
                layout: self.default.layout(),
            });
        };
        for (_, piece) in self.pieces.range(first..to) {
            if piece.to <= at {
                continue;
            }
            if piece.from > at {
                gap(&mut pieces, at, piece.from);
            }
            let start = piece.from.max(from);
            at = piece.to.min(to);
            pieces.push(Piece {
                from: start,
                to: at,
                layout: piece.layout.clone(),
            });
        }
        if at < to {
            gap(&mut pieces, at, to);
        }
        if gaps && self.strict {
            return None;
        }
        Some(Runs {
            pieces: pieces.into(),
            piece: 0,
            at: from,
        })
    }
}

fn range_end(addr: u64, len: u64) -> Result<u64, SimError> {
    let aligned = (addr | len).is_multiple_of(BASE_PAGE) && len > 0;
    addr.checked_add(len)
        .filter(|_| aligned)
        .ok_or(SimError::BadRange { addr, len })
}

/// Physical runs in virtual order. Neighbouring runs may be contiguous: merging is the kernel's business.
#[derive(Clone, Debug)]
pub(crate) struct Runs {
    pieces: Arc<[Piece]>,
    piece: usize,
    at: u64,
}

impl Iterator for Runs {
    type Item = PhysRun;

    fn next(&mut self) -> Option<PhysRun> {
        let piece = self.pieces.get(self.piece)?;
        let run = piece.layout.run(self.at, piece.to);
        self.at += run.len;
        if self.at >= piece.to {
            self.piece += 1;
        }
        Some(run)
    }
}

/// The blocks of `page` bytes in [from, to) that are not one aligned page of that size, neighbours joined.
pub(crate) fn not_huge(
    runs: impl Iterator<Item = PhysRun>,
    from: u64,
    to: u64,
    page: PageSize,
) -> Vec<Range<u64>> {
    let size = page.bytes();
    let mut found: Vec<Range<u64>> = Vec::new();
    let mut bad = |start: u64, end: u64| {
        let start = start & !(size - 1);
        let end = end.checked_next_multiple_of(size).unwrap_or(u64::MAX);
        match found.last_mut() {
            Some(last) if last.end >= start => last.end = last.end.max(end),
            _ => found.push(start..end),
        }
    };
    let mut va = from;
    let mut runs = runs.peekable();
    while let Some(mut run) = runs.next() {
        while let Some(next) = runs.next_if(|next| next.phys == run.phys.wrapping_add(run.len)) {
            run.len += next.len;
        }
        let end = va + run.len;
        if (run.phys ^ va) & (size - 1) != 0 {
            bad(va, end);
        } else {
            if va != from && !va.is_multiple_of(size) {
                bad(va, va + 1);
            }
            if end != to && !end.is_multiple_of(size) {
                bad(end - 1, end);
            }
        }
        va = end;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DEFAULT: DefaultLayout = DefaultLayout::scattered(PageSize::K4);

    fn contiguous(phys_base: u64) -> SimMemory {
        SimMemory::Contiguous {
            page: PageSize::K4,
            phys_base,
        }
    }

    #[test]
    fn strict_memory_has_no_gaps() {
        let mut space = AddressSpace::new(DEFAULT, true);
        space.back(0x1000, 0x2000, contiguous(0)).expect("a range");
        space.back(0x4000, 0x1000, contiguous(0)).expect("a range");
        for (from, to, mapped) in [
            (0x1000, 0x3000, true),
            (0x2000, 0x3000, true),
            (0x4000, 0x5000, true),
            (0, 0x3000, false),
            (0x1000, 0x4000, false),
            (0x1000, 0x5000, false),
            (0x6000, 0x7000, false),
        ] {
            assert_eq!(space.runs(from, to).is_some(), mapped, "{from:#x}..{to:#x}");
        }
        space.strict = false;
        assert!(space.runs(0, 0x10_0000).is_some());
    }

    #[test]
    fn ranges_are_whole_pages_below_the_end_of_the_address_space() {
        let mut space = AddressSpace::new(DEFAULT, false);
        for (addr, len) in [
            (0, 0),
            (1, 4096),
            (4096, 1),
            (u64::MAX - 4095, 4096),
            (u64::MAX - 4095, 8192),
        ] {
            assert!(space.back(addr, len, contiguous(0)).is_err(), "{addr:#x}");
            assert!(space.unback(addr, len).is_err());
        }
    }

    #[test]
    fn not_huge_names_the_blocks() {
        const M2: u64 = 2 << 20;
        let check = |runs: &[(u64, u64)], from: u64, want: &[Range<u64>]| {
            let len: u64 = runs.iter().map(|run| run.1).sum();
            let runs = runs.iter().map(|&(phys, len)| PhysRun { phys, len });
            assert_eq!(not_huge(runs, from, from + len, PageSize::M2), want);
        };
        check(&[(8 * M2, M2), (2 * M2, 2 * M2)], M2, &[]);
        check(&[(8 * M2, M2 / 2), (8 * M2 + M2 / 2, M2 / 2)], 0, &[]);
        // One small page in the second block, a shifted fourth block.
        let split = [
            (0, M2),
            (9 * M2, 4096),
            (3 * M2 + 4096, 2 * M2 - 4096),
            (4096, M2),
        ];
        check(&split, 0, &[M2..2 * M2, 3 * M2..4 * M2]);
        // The outer borders need not be whole.
        check(&[(4096, M2 - 4096), (4 * M2, 4096)], M2 + 4096, &[]);
    }

    proptest! {
        /// Each page has the layout that was said last.
        #[test]
        fn the_last_layout_counts(
            steps in prop::collection::vec((0u64..40, 1u64..20, any::<bool>()), 0..20),
            from in 0u64..50, pages in 1u64..20,
        ) {
            const PAGE: u64 = 4096;
            let mut space = AddressSpace::new(DefaultLayout::Contiguous { page: PageSize::K4 }, false);
            let mut model = std::collections::HashMap::new();
            for (step, (start, count, backed)) in (1u64..).zip(steps) {
                let (addr, len) = (start * PAGE, count * PAGE);
                if backed {
                    let run = PhysRun { phys: step << 40, len };
                    space.back(addr, len, SimMemory::Runs(vec![run])).expect("a range");
                } else {
                    space.unback(addr, len).expect("a range");
                }
                for page in start..start + count {
                    if backed {
                        model.insert(page, (step << 40) + (page - start) * PAGE);
                    } else {
                        model.remove(&page);
                    }
                }
            }
            let mut page = from;
            for run in space.runs(from * PAGE, (from + pages) * PAGE).expect("not strict") {
                for inside in 0..run.len / PAGE {
                    let want = model.get(&page).copied().unwrap_or((page + 1) * PAGE);
                    prop_assert_eq!(run.phys + inside * PAGE, want);
                    page += 1;
                }
            }
            prop_assert_eq!(page, from + pages);
        }
    }
}
