//! Median and quartiles.

use std::fmt;

/// Median and quartiles of some numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) p25: f64,
    pub(crate) median: f64,
    pub(crate) p75: f64,
}

impl Spread {
    /// Of at least one number; NaN of none.
    pub(crate) fn of(numbers: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = numbers.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| quantile(&sorted, share);
        Self {
            p25: at(0.25),
            median: at(0.5),
            p75: at(0.75),
        }
    }

    /// Each number times a factor above 0.
    pub(crate) fn times(self, factor: f64) -> Self {
        Self {
            p25: self.p25 * factor,
            median: self.median * factor,
            p75: self.p75 * factor,
        }
    }

    /// An amount divided by each number: the quartiles change places.
    pub(crate) fn rate(self, amount: f64) -> Self {
        Self {
            p25: amount / self.p75,
            median: amount / self.median,
            p75: amount / self.p25,
        }
    }
}

/// Between the two neighbours, in proportion.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let at = share * last as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and the length"
    )]
    let below = at.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * (at - at.floor())
}

impl fmt::Display for Spread {
    /// `1.57 [1.55..1.60]`, with as many digits as say something.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = match self.median.abs() {
            x if x >= 1000.0 => 0,
            x if x >= 100.0 => 1,
            x if x >= 0.1 => 2,
            _ => 3,
        };
        write!(
            f,
            "{:.digits$} [{:.digits$}..{:.digits$}]",
            self.median, self.p25, self.p75
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_neighbours() {
        let spread = Spread::of([4.0, 1.0, 2.0, 3.0]);
        assert_eq!((spread.p25, spread.median, spread.p75), (1.75, 2.5, 3.25));
        assert_eq!(Spread::of([7.0]).to_string(), "7.00 [7.00..7.00]");
        let rate = spread.rate(10.0);
        assert!(rate.p25 < rate.median && rate.median < rate.p75);
        assert!(Spread::of([]).median.is_nan());
    }
}
