//! Numbers that know where they come from.
//!
//! Most limits of these devices are published nowhere. A number that was read from a device, one that was
//! measured, one that somebody inferred and one that a profile assumes must not look alike, and an unknown
//! number must never look like 0 or like a guess.

use std::borrow::Cow;
use std::fmt;

/// How a number came to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Reported by the device or the kernel, or stated in their documentation or source.
    Documented,
    /// Found by trying: a probe, or what registrations did.
    Measured,
    /// Concluded from other facts.
    Inferred,
    /// Taken for granted by a profile.
    Assumed,
    /// Said by the user.
    Given,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Documented => "documented",
            Self::Measured => "measured",
            Self::Inferred => "inferred",
            Self::Assumed => "assumed",
            Self::Given => "given",
        })
    }
}

/// Where a number comes from: its kind and a few words for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// How it came to be known.
    pub kind: Kind,
    /// For example `max_mr_size` or `upper bound of the vendor's article`.
    pub text: Cow<'static, str>,
}

impl Source {
    /// A source with a text.
    pub fn new(kind: Kind, text: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            text: text.into(),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.text, self.kind)
    }
}

/// An upper limit, known exactly, as an interval, or not at all.
///
/// `need <= certain` fits; `need > at_most` does not; between, nobody knows. `certain` is 0 and `at_most`
/// `None` where nothing is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    certain: u64,
    at_most: Option<u64>,
    unlimited: bool,
    /// Where the numbers come from.
    pub source: Source,
}

/// Whether a need fits under a [`Limit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// Certainly.
    Fits,
    /// Not known.
    Undecided,
    /// Certainly not.
    Over,
}

impl Limit {
    /// Known to the unit: `value` fits, `value + 1` does not.
    #[must_use]
    pub const fn exact(value: u64, source: Source) -> Self {
        Self {
            certain: value,
            at_most: Some(value),
            unlimited: false,
            source,
        }
    }

    /// `certain` fits, `at_most + 1` does not. Where `at_most < certain` it is raised to `certain`.
    #[must_use]
    pub fn interval(certain: u64, at_most: Option<u64>, source: Source) -> Self {
        let at_most = at_most.map(|high| high.max(certain));
        Self {
            certain,
            at_most,
            unlimited: false,
            source,
        }
    }

    /// Nothing is known.
    #[must_use]
    pub const fn unknown(source: Source) -> Self {
        Self {
            certain: 0,
            at_most: None,
            unlimited: false,
            source,
        }
    }

    /// There is no such limit.
    #[must_use]
    pub const fn unlimited(source: Source) -> Self {
        Self {
            certain: u64::MAX,
            at_most: None,
            unlimited: true,
            source,
        }
    }

    /// The largest value that certainly fits; 0 where nothing is known, `u64::MAX` where there is no limit.
    #[must_use]
    pub const fn certain(&self) -> u64 {
        self.certain
    }

    /// The value above which nothing fits; `None` where not known or where there is no limit.
    #[must_use]
    pub const fn at_most(&self) -> Option<u64> {
        self.at_most
    }

    /// Whether there is no such limit.
    #[must_use]
    pub const fn is_unlimited(&self) -> bool {
        self.unlimited
    }

    /// The value, where it is known exactly.
    #[must_use]
    pub fn known(&self) -> Option<u64> {
        self.at_most.filter(|high| *high == self.certain)
    }

    /// Whether `need` fits.
    #[must_use]
    pub fn fit(&self, need: u64) -> Fit {
        if self.unlimited || need <= self.certain {
            Fit::Fits
        } else if self.at_most.is_some_and(|high| need > high) {
            Fit::Over
        } else {
            Fit::Undecided
        }
    }

    /// What is left under the limit when between `used.0` and `used.1` (`None`: unknown) are taken already.
    #[must_use]
    pub fn less(&self, used: (u64, Option<u64>)) -> Self {
        if self.unlimited {
            return self.clone();
        }
        let certain = used.1.map_or(0, |most| self.certain.saturating_sub(most));
        let at_most = self.at_most.map(|high| high.saturating_sub(used.0));
        Self {
            certain,
            at_most,
            unlimited: false,
            source: self.source.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Source {
        Source::new(Kind::Assumed, "test")
    }

    #[test]
    fn a_need_fits_or_not_or_nobody_knows() {
        let interval = Limit::interval(10, Some(20), source());
        let fits: Vec<Fit> = [10, 11, 20, 21].map(|need| interval.fit(need)).into();
        assert_eq!(fits, [Fit::Fits, Fit::Undecided, Fit::Undecided, Fit::Over]);
        assert_eq!(Limit::unknown(source()).fit(1), Fit::Undecided);
        assert_eq!(Limit::unknown(source()).fit(0), Fit::Fits);
        assert_eq!(Limit::unlimited(source()).fit(u64::MAX), Fit::Fits);
        assert_eq!(Limit::exact(5, source()).fit(6), Fit::Over);
    }

    #[test]
    fn what_others_use_narrows_both_ends() {
        let left = Limit::interval(100, Some(200), source()).less((30, Some(40)));
        assert_eq!((left.certain(), left.at_most()), (60, Some(170)));
        let left = Limit::exact(100, source()).less((30, None));
        assert_eq!((left.certain(), left.at_most()), (0, Some(70)));
    }
}
