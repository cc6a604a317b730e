//! How simulated memory lies in physical memory, and which address range has which layout.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use hugemr_core::layout::PhysRun;
use hugemr_core::size::PageSize;

use crate::error::SimError;

/// The base page of the simulated kernel, bytes (x86-64, most arm64 kernels).
pub(crate) const BASE_PAGE: u64 = 4096;

/// Physical layout of one range of simulated memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SimMemory {
    /// Pages of one size, each alone: the next page in virtual order never follows it physically. Which frame a
    /// page gets depends only on its address and the seed.
    Scattered {
        /// Page size.
        page: PageSize,
        /// Another seed gives other frames.
        seed: u64,
    },
    /// One ascending run. It starts at the first physical address from `phys_base` on that is congruent to the
    /// virtual one modulo the page and **not** modulo twice the page, so that nothing larger than the page fits
    /// by luck.
    Contiguous {
        /// Page size.
        page: PageSize,
        /// Lowest physical address, bytes.
        phys_base: u64,
    },
    /// These runs, in virtual order, for example read from `/proc/self/pagemap`. Their lengths add up to the range.
    Runs(Vec<PhysRun>),
    /// Scattered huge pages, `count` of which are not huge: the kernel backed them with single 4 KiB pages, as it
    /// does for transparent huge pages when no free huge page is left. Spread evenly over the range; one hole lies
    /// in the middle.
    Holes {
        /// Page size of the rest.
        page: PageSize,
        /// Huge pages that are not huge; at most all of them.
        count: u64,
        /// Another seed gives other frames.
        seed: u64,
    },
}

impl SimMemory {
    /// Scattered pages with seed 0.
    #[must_use]
    pub const fn scattered(page: PageSize) -> Self {
        Self::Scattered { page, seed: 0 }
    }

    /// Runs of random lengths for `len` bytes from virtual address `addr`: 1 to `2 * mean - 1` pages each (the last
    /// may be shorter). A run lies anywhere, or right behind or before the former one, or congruent to its virtual
    /// address far beyond the page: the cases that decide about a page size. Same arguments, same runs.
    #[must_use]
    pub fn random(page: PageSize, addr: u64, len: u64, mean: u64, seed: u64) -> Self {
        let mut random = SplitMix(seed);
        let (mut runs, mut at) = (Vec::<PhysRun>::new(), 0);
        while at < len {
            let pages = 1 + random.next() % (2 * mean.max(1) - 1);
            let run_len = pages.saturating_mul(page.bytes()).min(len - at);
            let va = addr.wrapping_add(at);
            let anywhere = (random.next() % (1 << 36)) << page.shift();
            let phys = match (random.next() % 4, runs.last()) {
                (0, Some(last)) => last.phys.wrapping_add(last.len),
                (1, Some(last)) => last.phys.wrapping_sub(run_len),
                (2, _) => va.wrapping_add(anywhere << (random.next() % 6)),
                _ => anywhere | (va & (page.bytes() - 1)),
            };
            runs.push(PhysRun { phys, len: run_len });
            at += run_len;
        }
        Self::Runs(runs)
    }
}

/// Layout of every range that was not said with [`SimDevice::back`](crate::SimDevice::back).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DefaultLayout {
    /// As [`SimMemory::Scattered`].
    Scattered {
        /// Page size.
        page: PageSize,
        /// Another seed gives other frames.
        seed: u64,
    },
    /// The whole address space is one run: the physical address is the virtual one plus a page.
    Contiguous {
        /// Page size.
        page: PageSize,
    },
}

impl DefaultLayout {
    /// Scattered pages with seed 0.
    #[must_use]
    pub const fn scattered(page: PageSize) -> Self {
        Self::Scattered { page, seed: 0 }
    }

    fn layout(self) -> Layout {
        match self {
            Self::Scattered { page, seed } => Layout::Scattered { page, seed },
            Self::Contiguous { page } => Layout::Linear {
                delta: page.bytes(),
            },
        }
    }
}

/// A layout resolved at its place in the address space.
#[derive(Clone, Debug)]
enum Layout {
    Scattered {
        page: PageSize,
        seed: u64,
    },
    /// Physical = virtual + delta, modulo 2^64.
    Linear {
        delta: u64,
    },
    /// (offset of its first byte, run), and the address of offset 0.
    Runs {
        origin: u64,
        runs: Arc<[(u64, PhysRun)]>,
    },
    Holes {
        page: PageSize,
        seed: u64,
        first_page: u64,
        pages: u64,
        count: u64,
    },
}

impl Layout {
    fn new(memory: SimMemory, addr: u64, len: u64) -> Result<Self, SimError> {
        Ok(match memory {
            SimMemory::Scattered { page, seed } => Self::Scattered { page, seed },
            SimMemory::Contiguous { page, phys_base } => {
                let (size, twice) = (page.bytes(), page.bytes().wrapping_mul(2));
                // phys = phys_base + up, where phys - addr is an odd multiple of the page.
                let want = addr.wrapping_add(size).wrapping_sub(phys_base);
                let up = if twice == 0 { want } else { want & (twice - 1) };
                Self::Linear {
                    delta: phys_base.wrapping_add(up).wrapping_sub(addr),
                }
            }
            SimMemory::Runs(runs) => {
                let mut at = 0u64;
                let mut table = Vec::with_capacity(runs.len());
                for run in runs {
                    let aligned = (run.phys | run.len).is_multiple_of(BASE_PAGE);
                    let Some(end) = at.checked_add(run.len).filter(|_| aligned && run.len > 0)
                    else {
                        return Err(SimError::BadRun(run));
                    };
                    table.push((at, run));
                    at = end;
                }
                if at != len {
                    return Err(SimError::RunsDoNotCover { runs: at, len });
                }
                Self::Runs {
                    origin: addr,
                    runs: table.into(),
                }
            }
            SimMemory::Holes { page, count, seed } => {
                let first_page = addr >> page.shift();
                let pages = ((addr + (len - 1)) >> page.shift()) - first_page + 1;
                Self::Holes {
                    page,
                    seed,
                    first_page,
                    pages,
                    count: count.min(pages),
                }
            }
        })
    }

    /// The run that begins at `at`, not beyond `to`.
    fn run(&self, at: u64, to: u64) -> PhysRun {
        match *self {
            Self::Scattered { page, seed } => in_page(frame(at, page, seed), page, at, to),
            Self::Linear { delta } => PhysRun {
                phys: at.wrapping_add(delta),
                len: to - at,
            },
            Self::Runs { origin, ref runs } => {
                let offset = at - origin;
                let next = runs.partition_point(|(start, _)| *start <= offset);
                let (start, run) = runs[next.saturating_sub(1)];
                let inside = offset - start;
                PhysRun {
                    phys: run.phys.wrapping_add(inside),
                    len: (run.len - inside).min(to - at),
                }
            }
            Self::Holes {
                page,
                seed,
                first_page,
                pages,
                count,
            } => {
                let start = frame(at, page, seed);
                if !is_hole((at >> page.shift()) - first_page, pages, count) {
                    return in_page(start, page, at, to);
                }
                // The small pages of a hole lie in descending order: they never merge.
                let small = (at & (page.bytes() - 1)) / BASE_PAGE;
                let last = page.bytes() / BASE_PAGE - 1;
                in_page(start + (last - small) * BASE_PAGE, PageSize::K4, at, to)
            }
        }
    }
}

/// The run from `at` to the end of its page, whose frame starts at `start`.
fn in_page(start: u64, page: PageSize, at: u64, to: u64) -> PhysRun {
    let inside = at & (page.bytes() - 1);
    PhysRun {
        phys: start | inside,
        len: (page.bytes() - inside).min(to - at),
    }
}

/// The frame of the page at `va`: a bijection on the page numbers of a 52-bit physical address space, of which
/// only even frames are used, so that no two frames are neighbours.
fn frame(va: u64, page: PageSize, seed: u64) -> u64 {
    let width = 51u32.saturating_sub(page.shift()).max(1);
    let mask = (1u64 << width) - 1;
    let half = width.div_ceil(2);
    let mut x = (va >> page.shift()).wrapping_add(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)) & mask;
    // Odd factors and right shifts: each step can be undone.
    for factor in [0xbf58_476d_1ce4_e5b9u64, 0x94d0_49bb_1331_11eb] {
        x ^= x >> half;
        x = x.wrapping_mul(factor) & mask;
    }
    x ^= x >> half;
    (x << 1) << page.shift()
}

/// Whether page `index` of `pages` is one of `count` holes that are spread evenly.
fn is_hole(index: u64, pages: u64, count: u64) -> bool {
    let (pages, count, index) = (u128::from(pages), u128::from(count), u128::from(index));
    let near = index * count / pages;
    (near..near + 2).any(|hole| hole < count && (2 * hole + 1) * pages / (2 * count) == index)
}

/// A pseudo-random sequence (`SplitMix64`, Steele, Lea and Flood 2014).
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

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
