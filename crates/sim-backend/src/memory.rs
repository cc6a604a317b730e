//! How simulated memory lies in physical memory.

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

    pub(crate) fn layout(self) -> Layout {
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
pub(crate) enum Layout {
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
    /// The layout of `memory` for `len` bytes (not 0) from `addr`.
    pub(crate) fn new(memory: SimMemory, addr: u64, len: u64) -> Result<Self, SimError> {
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
    pub(crate) fn run(&self, at: u64, to: u64) -> PhysRun {
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page() -> impl Strategy<Value = PageSize> {
        (12u32..31).prop_map(|shift| PageSize::from_shift(shift).expect("a page"))
    }

    fn holes(memory: &SimMemory, addr: u64, len: u64, page: PageSize) -> Vec<u64> {
        let layout = Layout::new(memory.clone(), addr, len).expect("a layout");
        (addr >> page.shift()..=(addr + len - 1) >> page.shift())
            .filter(|number| {
                let start = (number << page.shift()).max(addr);
                layout.run(start, addr + len).len == BASE_PAGE
            })
            .collect()
    }

    #[test]
    fn one_hole_lies_in_the_middle_and_many_are_spread() {
        let (page, addr, len) = (PageSize::M2, 7 << 30, 6 << 30);
        let memory = |count| SimMemory::Holes {
            page,
            count,
            seed: 0,
        };
        let first = addr >> 21;
        assert_eq!(holes(&memory(1), addr, len, page), [first + 1536]);
        assert_eq!(
            holes(&memory(3), addr, len, page),
            [512, 1536, 2560].map(|n| first + n)
        );
        assert_eq!(holes(&memory(9999), addr, len, page).len(), 3072);
        assert_eq!(holes(&memory(0), addr, len, page).len(), 0);
    }

    #[test]
    fn runs_must_cover_the_range_in_pages() {
        let run = |phys, len| PhysRun { phys, len };
        for (runs, fits) in [
            (vec![run(0, 4096), run(1 << 20, 4096)], true),
            (vec![run(0, 4096)], false),
            (vec![run(0, 12_288)], false),
            (vec![run(0, 8192), run(0, 0)], false),
            (vec![run(5, 8192)], false),
            (vec![], false),
        ] {
            let layout = Layout::new(SimMemory::Runs(runs.clone()), 0, 8192);
            assert_eq!(layout.is_ok(), fits, "{runs:?}");
        }
    }

    proptest! {
        #[test]
        fn scattered_pages_are_aligned_apart_and_never_neighbours(
            page in page(), number in 0u64..1 << 16, other in 0u64..1 << 16, seed: u64,
        ) {
            let at = |number: u64| frame(number << page.shift(), page, seed);
            // Even frames only: none has a neighbour.
            prop_assert_eq!(at(number) % (2 * page.bytes()), 0);
            prop_assert!(at(number) < 1 << 52);
            prop_assert_eq!(at(number) == at(other), number == other);
        }

        #[test]
        fn a_contiguous_range_agrees_only_modulo_the_page(
            page in page(), base in 0u64..1 << 35, phys_base in 0u64..1 << 51,
        ) {
            let addr = base << 12;
            let memory = SimMemory::Contiguous { page, phys_base };
            let run = Layout::new(memory, addr, 1 << 32).expect("a layout").run(addr, addr + (1 << 32));
            prop_assert_eq!(run.len, 1 << 32);
            prop_assert!(run.phys >= phys_base && run.phys - phys_base < 2 * page.bytes());
            prop_assert_eq!((run.phys ^ addr).trailing_zeros(), page.shift());
        }

        #[test]
        fn random_runs_cover_the_range(
            page in page(), pages in 1u64..200, mean in 0u64..20, seed: u64, start in 0u64..1 << 16,
        ) {
            let (addr, len) = (start << page.shift(), pages << page.shift());
            let memory = SimMemory::random(page, addr, len, mean, seed);
            prop_assert_eq!(&memory, &SimMemory::random(page, addr, len, mean, seed));
            prop_assert!(Layout::new(memory.clone(), addr, len).is_ok());
            let SimMemory::Runs(runs) = memory else { panic!("no runs") };
            prop_assert!(runs.iter().all(|run| (run.phys | run.len) % page.bytes() == 0));
        }

        #[test]
        fn as_many_holes_as_asked_for(pages in 1u64..500, count in 0u64..600) {
            let found = (0..pages).filter(|n| is_hole(*n, pages, count.min(pages))).count();
            prop_assert_eq!(found as u64, count.min(pages));
        }
    }
}
