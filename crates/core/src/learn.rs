//! What registrations that were tried say about a budget that is published nowhere: a lower and an upper bound.

use std::fmt;
use std::num::NonZeroU64;

use crate::layout;
use crate::size::{Count, Grouped, PageSize, plural};

/// MRs of one length that were on the device together, each from a page border on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried {
    /// Length of each MR, bytes.
    pub mr_bytes: NonZeroU64,
    /// Page size in which the device saw them.
    pub page: PageSize,
    /// How many; where it failed, the one that was refused among them.
    pub count: u64,
}

impl Tried {
    /// One MR.
    #[must_use]
    pub const fn one(mr_bytes: NonZeroU64, page: PageSize) -> Self {
        Self {
            mr_bytes,
            page,
            count: 1,
        }
    }

    /// Entries of all of them; `None` beyond 2^64 - 1.
    #[must_use]
    pub fn entries(&self) -> Option<u64> {
        layout::entries(self.page, 0, self.mr_bytes.get()).checked_mul(self.count)
    }
}

/// What is known of a budget of entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Learned {
    /// So many fitted.
    pub low: u64,
    /// So many did not; `None` where nothing failed.
    pub high_excl: Option<u64>,
}

/// `589,824 entries fit, 2,097,152 do not`.
impl fmt::Display for Learned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fit = plural(self.low, "fits", "fit");
        write!(f, "{} {fit}", Count(self.low, "entry"))?;
        match self.high_excl {
            Some(high) => write!(f, ", {} {} not", Grouped(high), plural(high, "does", "do")),
            None => Ok(()),
        }
    }
}

/// Why nothing can be learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LearnError {
    /// More entries than can be counted.
    #[error("{} of {} B: more than 2^64 - 1 entries", Count(.0.count, "MR"), .0.mr_bytes)]
    TooBig(Tried),
    /// A failure with no MR at all.
    #[error("a failure of 0 MRs says nothing")]
    NoMr,
    /// One entry did not fit, and no table has none.
    #[error(
        "1 entry did not fit: a table without entries is none, so another reason refused it (hugemr diagnose --errno ERRNO)"
    )]
    NoTable,
    /// What failed needs no more than what fitted: the budget was not the reason, or was not the same.
    #[error("{} fitted and {} did not: that is no limit of the table", Count(*low, "entry"), Grouped(*high_excl))]
    Contradiction {
        /// So many fitted.
        low: u64,
        /// So many did not.
        high_excl: u64,
    },
}

/// The budget as far as what fitted and what failed tell it. It claims nothing between the two.
///
/// # Errors
/// [`LearnError`]; a contradiction among them.
pub fn budget(
    fitted: impl IntoIterator<Item = Tried>,
    failed: impl IntoIterator<Item = Tried>,
) -> Result<Learned, LearnError> {
    let mut learned = Learned::default();
    for tried in fitted {
        let entries = tried.entries().ok_or(LearnError::TooBig(tried))?;
        learned.low = learned.low.max(entries);
    }
    for tried in failed {
        let entries = match tried.entries() {
            Some(0) => return Err(LearnError::NoMr),
            Some(entries) => entries,
            None => return Err(LearnError::TooBig(tried)),
        };
        learned.high_excl = Some(learned.high_excl.map_or(entries, |high| high.min(entries)));
    }
    match learned {
        Learned {
            low: 0,
            high_excl: Some(1),
        } => Err(LearnError::NoTable),
        Learned {
            low,
            high_excl: Some(high_excl),
        } if high_excl <= low => Err(LearnError::Contradiction { low, high_excl }),
        learned => Ok(learned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::GIB;
    use proptest::prelude::*;

    fn tried(bytes: u64, count: u64) -> Tried {
        Tried {
            mr_bytes: NonZeroU64::new(bytes).unwrap(),
            page: PageSize::K4,
            count,
        }
    }

    /// kvcache-ai/Mooncake#304: 95 GiB fit, 96 and 97 do not.
    #[test]
    fn the_largest_that_fitted_and_the_smallest_that_did_not() {
        let learned = budget(
            [95, 94].map(|n| tried(n * GIB, 1)),
            [97, 96].map(|n| tried(n * GIB, 1)),
        );
        let want = Learned {
            low: 24_903_680,
            high_excl: Some(25_165_824),
        };
        assert_eq!(learned, Ok(want));
    }

    /// microsoft/NetworkDirect#14: 31 MRs of 4,225,000,000 B fit, the next does not.
    #[test]
    fn equal_mrs_each_begin_on_a_border() {
        let learned = budget([tried(4_225_000_000, 31)], [tried(4_225_000_000, 32)]);
        let want = Learned {
            low: 31_976_345,
            high_excl: Some(33_007_840),
        };
        assert_eq!(learned, Ok(want));
    }

    #[test]
    fn a_table_without_entries_is_none() {
        assert_eq!(budget([], [tried(4096, 1)]), Err(LearnError::NoTable));
        assert!(budget([], [tried(4097, 1)]).is_ok());
    }

    #[test]
    fn nothing_is_claimed_without_evidence() {
        assert_eq!(budget([], []), Ok(Learned::default()));
        assert_eq!(budget([tried(1, 1)], []).unwrap().high_excl, None);
        assert_eq!(budget([], [tried(1, 0)]), Err(LearnError::NoMr));
        let contradiction = budget([tried(8192, 1)], [tried(8191, 1)]);
        let (low, high_excl) = (2, 2);
        assert_eq!(
            contradiction,
            Err(LearnError::Contradiction { low, high_excl })
        );
        let huge = tried(u64::MAX, u64::MAX);
        assert_eq!(budget([huge], []), Err(LearnError::TooBig(huge)));
        assert_eq!(budget([], [huge]), Err(LearnError::TooBig(huge)));
    }

    proptest! {
        /// Whatever the true budget is, what a device of that budget answers leaves it inside.
        #[test]
        fn the_true_budget_stays_inside(
            budget_is in 1u64..1 << 40,
            tries in prop::collection::vec((1u64..1 << 52, 1u64..64), 0..20),
        ) {
            let tries: Vec<Tried> = tries.into_iter().map(|(bytes, count)| tried(bytes, count)).collect();
            let (fitted, failed): (Vec<Tried>, Vec<Tried>) =
                tries.into_iter().partition(|t| t.entries().unwrap() <= budget_is);
            let learned = budget(fitted, failed).unwrap();
            prop_assert!(learned.low <= budget_is);
            prop_assert!(learned.high_excl.is_none_or(|high| high > budget_is));
        }
    }
}
