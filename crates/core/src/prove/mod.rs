//! What an MR was seen to become in the kernel, against what was predicted of it.
//!
//! Two things can be seen while `ibv_reg_mr` runs: what the kernel's page-size helper returns (`ib_umem_find_best_pgsz`, by
//! a return probe), and what the driver says of the MR in its debug lines. The first is the page size, the second the number
//! of entries, in the vendor's driver both. Which of them belong to which MR is the business of whoever watches.

mod line;

pub use line::{DebugLine, debug_line};

use crate::layout::{Prediction, entries};
use crate::size::PageSize;

/// By what the kernel is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// A return probe on the page-size helper.
    Kretprobe,
    /// The driver's debug lines.
    DebugLines,
}

impl How {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kretprobe => "kretprobe",
            Self::DebugLines => "debug lines",
        }
    }
}

/// One thing that was seen during one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// What the helper returned, bytes; 0 where it found no page size.
    Returned(u64),
    /// What the driver said.
    Line(DebugLine),
}

/// What an MR was seen to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Page size; `None` where only entries were seen, and several page sizes make as many.
    pub page: Option<PageSize>,
    /// Entries of the device's table.
    pub entries: u64,
}

/// What the proof of one MR says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As predicted.
    Same(Seen),
    /// Not as predicted.
    Differs(Seen),
    /// Seen, but nothing had been predicted.
    NotPredicted(Seen),
    /// Nothing was seen: the kernel lost it, or the driver does not say it of such MRs.
    NotSeen,
    /// Several things were seen that contradict each other: somebody else's MR may be among them.
    Unclear,
}

impl Verdict {
    /// What was seen.
    #[must_use]
    pub fn seen(&self) -> Option<Seen> {
        match self {
            Self::Same(seen) | Self::Differs(seen) | Self::NotPredicted(seen) => Some(*seen),
            Self::NotSeen | Self::Unclear => None,
        }
    }
}

/// Judges one MR of `[addr, addr + len)`, registered at the same device address, by what was seen during its call.
#[must_use]
pub fn judge(predicted: Option<Prediction>, signs: &[Sign], addr: u64, len: u64) -> Verdict {
    let mut all = seen(signs, addr, len);
    all.dedup();
    match (all.as_slice(), predicted) {
        ([], _) => Verdict::NotSeen,
        ([one], None) => Verdict::NotPredicted(*one),
        ([one], Some(predicted)) => {
            let page = one.page.is_none_or(|page| page == predicted.page);
            if page && one.entries == predicted.entries {
                Verdict::Same(*one)
            } else {
                Verdict::Differs(*one)
            }
        }
        _ => Verdict::Unclear,
    }
}

/// What the signs of one call say of its MR.
fn seen(signs: &[Sign], addr: u64, len: u64) -> Vec<Seen> {
    // The vendor's driver names the range first, and then what became of it: what it says of another range (a queue) is not
    // ours. The driver in the kernel's tree names none; there, tables of queues are contiguous and those of MRs are not.
    let named = |sign: &Sign| matches!(sign, Sign::Line(DebugLine::Range { .. }));
    let names_ranges = signs.iter().any(named);
    let mut own = false;
    let mut all = Vec::new();
    for sign in signs {
        match *sign {
            Sign::Returned(bytes) => all.extend(PageSize::new(bytes).ok().map(|page| Seen {
                page: Some(page),
                entries: entries(page, addr, len),
            })),
            Sign::Line(DebugLine::Range { start, len: bytes }) => {
                own = start == addr && bytes == len;
            }
            Sign::Line(DebugLine::Pages { page, entries }) if own => {
                all.extend(PageSize::new(page).ok().map(|page| Seen {
                    page: Some(page),
                    entries,
                }));
                own = false;
            }
            Sign::Line(DebugLine::Table {
                bytes,
                contiguous: false,
            }) if !names_ranges => {
                let entries = bytes / 8;
                all.push(Seen {
                    page: only_page(entries, addr, len),
                    entries,
                });
            }
            Sign::Line(_) => {}
        }
    }
    all
}

/// The page size that makes so many entries of a range; `None` where several do, or none.
fn only_page(count: u64, addr: u64, len: u64) -> Option<PageSize> {
    let fits = |page: &PageSize| entries(*page, addr, len) == count;
    let mut pages = (12..=40).filter_map(PageSize::from_shift).filter(fits);
    let first = pages.next()?;
    pages.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::{GIB, MIB};

    const ADDR: u64 = 0x7e00_0000_0000;

    fn predicted(page: PageSize, entries: u64) -> Option<Prediction> {
        Some(Prediction {
            page,
            entries,
            level: 2,
            wire_len: 64 * GIB,
            refused: None,
        })
    }

    #[test]
    fn what_the_helper_returned() {
        let of = |bytes| {
            judge(
                predicted(PageSize::M2, 32),
                &[Sign::Returned(bytes)],
                ADDR,
                64 * MIB,
            )
        };
        let seen = |page, entries| Seen {
            page: Some(page),
            entries,
        };
        assert_eq!(of(2 << 20), Verdict::Same(seen(PageSize::M2, 32)));
        assert_eq!(of(4096), Verdict::Differs(seen(PageSize::K4, 16384)));
        assert_eq!(of(0), Verdict::NotSeen);
        let twice = [Sign::Returned(2 << 20), Sign::Returned(4096)];
        assert_eq!(judge(None, &twice, ADDR, 64 * MIB), Verdict::Unclear);
        let same = [Sign::Returned(2 << 20), Sign::Returned(2 << 20)];
        assert_eq!(
            judge(None, &same, ADDR, 64 * MIB),
            Verdict::NotPredicted(seen(PageSize::M2, 32))
        );
        assert_eq!(judge(None, &[], ADDR, 64 * MIB), Verdict::NotSeen);
    }

    #[test]
    fn the_tree_s_driver_says_how_large_the_table_is() {
        let table = |bytes, contiguous| Sign::Line(DebugLine::Table { bytes, contiguous });
        let signs = [table(4096, true), table(32 * 8, false)];
        let expected = Seen {
            page: Some(PageSize::M2),
            entries: 32,
        };
        assert_eq!(
            judge(predicted(PageSize::M2, 32), &signs, ADDR, 64 * MIB),
            Verdict::Same(expected)
        );
        assert_eq!(
            judge(predicted(PageSize::K4, 16384), &signs, ADDR, 64 * MIB),
            Verdict::Differs(expected)
        );
        // One entry: every page that is long enough makes one.
        let one = Seen {
            page: None,
            entries: 1,
        };
        assert_eq!(
            judge(
                predicted(PageSize::M2, 1),
                &[table(8, false)],
                ADDR,
                2 * MIB
            ),
            Verdict::Same(one)
        );
        // A table whose length no page size gives is never as predicted.
        let odd = Seen {
            page: None,
            entries: 31,
        };
        assert_eq!(
            judge(
                predicted(PageSize::M2, 32),
                &[table(31 * 8, false)],
                ADDR,
                64 * MIB
            ),
            Verdict::Differs(odd)
        );
    }

    #[test]
    fn the_vendor_s_driver_names_the_range() {
        let range = |start, len| Sign::Line(DebugLine::Range { start, len });
        let pages = |page, entries| Sign::Line(DebugLine::Pages { page, entries });
        let table = Sign::Line(DebugLine::Table {
            bytes: 8 * 32,
            contiguous: false,
        });
        let queue = pages(4096, 1);
        let signs = [
            queue,
            range(ADDR, 64 * MIB),
            pages(2 << 20, 32),
            table,
            queue,
        ];
        let expected = Seen {
            page: Some(PageSize::M2),
            entries: 32,
        };
        assert_eq!(
            judge(predicted(PageSize::M2, 32), &signs, ADDR, 64 * MIB),
            Verdict::Same(expected)
        );
        // Somebody else's MR.
        let signs = [range(ADDR + 4096, 64 * MIB), pages(4096, 7), table];
        assert_eq!(
            judge(predicted(PageSize::M2, 32), &signs, ADDR, 64 * MIB),
            Verdict::NotSeen
        );
    }
}
