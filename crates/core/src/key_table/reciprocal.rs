//! Division by a number that is known when a table is built.

/// Division by a constant as a shift, or as a multiplication; exact for every dividend up to the largest one it was made for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reciprocal {
    /// `ceil(2^(64 + shift) / divisor)`; 0 where the divisor is a power of two.
    factor: u64,
    /// `floor(log2(divisor))`.
    shift: u32,
}

impl Reciprocal {
    /// Division by 1.
    pub(super) const ONE: Self = Self {
        factor: 0,
        shift: 0,
    };

    /// `None` for 0, or where a dividend up to `largest` would come out wrong.
    ///
    /// With `error = factor * divisor - 2^(64 + shift)`, which is less than `divisor`:
    /// `x * factor / 2^(64 + shift) = x / divisor + x * error / (divisor * 2^(64 + shift))`. The fraction of `x / divisor` is
    /// at most `(divisor - 1) / divisor`, so the floor is exact while `x * error < 2^(64 + shift)`: at least up to 2^63, since
    /// the divisor is below `2^(shift + 1)`. Beyond, it may be too high; it is never too low.
    pub(super) fn new(divisor: u64, largest: u64) -> Option<Self> {
        let shift = divisor.checked_ilog2()?;
        if divisor.is_power_of_two() {
            return Some(Self { factor: 0, shift });
        }
        let power = 1u128 << (64 + shift);
        let factor = power.div_ceil(u128::from(divisor));
        let error = factor * u128::from(divisor) - power;
        let exact = u128::from(largest) * error < power;
        let factor = u64::try_from(factor).ok()?;
        exact.then_some(Self { factor, shift })
    }

    /// Whether the divisor is a power of two.
    pub(super) fn is_shift(self) -> bool {
        self.factor == 0
    }

    pub(super) fn divide(self, dividend: u64) -> u64 {
        if self.is_shift() {
            return dividend >> self.shift;
        }
        self.multiply(dividend)
    }

    /// As `divide`, where the divisor is no power of two.
    #[inline(always)]
    pub(super) fn multiply(self, dividend: u64) -> u64 {
        let high = (u128::from(dividend) * u128::from(self.factor)) >> 64;
        (high as u64) >> self.shift
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Largest dividend at which the formula promises to be exact, for a divisor.
    fn largest(divisor: u64) -> u64 {
        let exact = |x: &u64| Reciprocal::new(divisor, *x).is_some();
        if exact(&u64::MAX) {
            return u64::MAX;
        }
        // Exactness is monotone.
        let (mut yes, mut no) = (0, u64::MAX);
        while no - yes > 1 {
            let middle = yes + (no - yes) / 2;
            *(if exact(&middle) { &mut yes } else { &mut no }) = middle;
        }
        yes
    }

    #[test]
    fn small_divisors_divide_exactly_up_to_their_largest_dividend() {
        for divisor in 1u64..2000 {
            let top = largest(divisor);
            assert!(top >= 1 << 63, "{divisor}: {top}");
            let by = Reciprocal::new(divisor, top).unwrap();
            let edges = (0..3000).chain(top - 3000..=top);
            for x in edges {
                assert_eq!(by.divide(x), x / divisor, "{x} / {divisor}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn the_reciprocal_divides_exactly(
            divisor in (1u64.., 0u32..63).prop_map(|(d, less)| (d >> less).max(1)),
            x in any::<u64>(),
            less in 0u32..63,
        ) {
            let top = largest(divisor);
            let by = Reciprocal::new(divisor, top).unwrap();
            let x = (x >> less).min(top);
            let multiple = x - x % divisor;
            for x in [x, multiple, multiple.saturating_sub(1), multiple | 1, top, top - 1] {
                let x = x.min(top);
                prop_assert_eq!(by.divide(x), x / divisor, "{} / {}", x, divisor);
            }
            let last = top - top % divisor;
            let before = last.saturating_sub(1);
            prop_assert_eq!(by.divide(before), before / divisor);
            prop_assert!(by.divide(u64::MAX) >= u64::MAX / divisor);
        }
    }

    #[test]
    fn powers_of_two_are_shifted_and_zero_divides_nothing() {
        assert!(Reciprocal::new(0, 1).is_none());
        for log in 0..64 {
            let by = Reciprocal::new(1 << log, u64::MAX).unwrap();
            assert_eq!((by.factor, by.divide(u64::MAX)), (0, u64::MAX >> log));
        }
    }
}
