//! Where an offset lies, in a few nanoseconds.
//!
//! Most tables are made of equal chunks without a gap: then the number of the MR is a shift, or a multiplication by
//! the reciprocal of the chunk, and one load fetches the keys (8 bytes an MR). Other tables have [`Buckets`] (24 bytes
//! an MR and at most 16 for the buckets). Binary searches of any kind were measured to be slower than both, and than
//! the page table of UCX.

use super::Entry;
use super::buckets::Buckets;
use crate::backend::Rkey;

/// The keys of one MR.
#[derive(Clone, Copy, Debug)]
pub(super) struct MrKeys<L> {
    pub(super) lkey: L,
    pub(super) rkey: Rkey,
}

/// The three ways. Offsets are from the first byte of the table, and at most its `reach`.
pub(super) enum Index<L> {
    /// Equal chunks of a power of two.
    Shift { chunks: Equal<L>, shift: u32 },
    /// Other equal chunks.
    Stride { chunks: Equal<L>, by: Reciprocal },
    /// Anything else.
    Buckets(Buckets<L>),
}

/// Equal chunks without a gap; the first and the last may be shorter.
pub(super) struct Equal<L> {
    /// What is lacking in the first chunk: the borders lie at multiples of `chunk`, less `skew`.
    skew: u64,
    chunk: u64,
    keys: Box<[MrKeys<L>]>,
}

impl<L: Copy> Index<L> {
    /// `entries` are valid; `reach` is the offset of their last byte.
    pub(super) fn new(entries: Vec<Entry<L>>, reach: u64, contiguous: bool) -> Self {
        let equal = contiguous.then(|| equal(&entries)).flatten();
        // Offset + skew may overflow only where the table spans nearly all addresses.
        let equal = equal.filter(|(_, skew)| reach.checked_add(*skew).is_some());
        let Some((chunk, skew)) = equal else {
            return Self::Buckets(Buckets::new(entries, reach));
        };
        let by = Reciprocal::new(chunk, reach + skew);
        if by.is_none() && !chunk.is_power_of_two() {
            return Self::Buckets(Buckets::new(entries, reach));
        }
        let keys = entries.into_iter().map(|entry| MrKeys {
            lkey: entry.lkey,
            rkey: entry.rkey,
        });
        let chunks = Equal {
            skew,
            chunk,
            keys: keys.collect(),
        };
        match by {
            Some(by) => Self::Stride { chunks, by },
            None => Self::Shift {
                chunks,
                shift: chunk.trailing_zeros(),
            },
        }
    }

    /// The keys of the MR that holds `offset` and the `more` bytes behind it; both together are at most `reach`.
    #[inline(always)]
    pub(super) fn find(&self, offset: u64, more: u64) -> Option<super::Key<L>> {
        match self {
            Self::Shift { chunks, shift } => {
                let at = offset + chunks.skew;
                let number = at >> shift;
                (number == (at + more) >> shift).then_some(())?;
                chunks.key(number)
            }
            Self::Stride { chunks, by } => {
                let at = offset + chunks.skew;
                let number = by.divide(at);
                // As far into the chunk as `at`, and the chunk must have `more` bytes behind it.
                let rest = chunks.chunk - 1 - (at - number * chunks.chunk);
                (more <= rest).then_some(())?;
                chunks.key(number)
            }
            Self::Buckets(buckets) => {
                let (index, mr) = buckets.at_or_after(offset)?;
                (mr.from <= offset && more <= mr.to - offset).then_some(super::Key {
                    lkey: mr.keys.lkey,
                    rkey: mr.keys.rkey,
                    index,
                })
            }
        }
    }

    /// Number of the first MR that ends at `offset` or behind it.
    pub(super) fn at_or_after(&self, offset: u64) -> usize {
        let number = match self {
            Self::Shift { chunks, shift } => (offset + chunks.skew) >> shift,
            Self::Stride { chunks, by } => by.divide(offset + chunks.skew),
            Self::Buckets(buckets) => {
                return buckets
                    .at_or_after(offset)
                    .map_or(buckets.mrs().len(), |(index, _)| index);
            }
        };
        usize::try_from(number).unwrap_or(usize::MAX)
    }

    /// First and last offset of an MR, and its keys.
    #[inline]
    pub(super) fn mr(&self, index: usize, reach: u64) -> Option<(u64, u64, MrKeys<L>)> {
        match self {
            Self::Shift { chunks, .. } | Self::Stride { chunks, .. } => {
                let keys = *chunks.keys.get(index)?;
                let (from, to) = chunks.bounds(index, reach);
                Some((from, to, keys))
            }
            Self::Buckets(buckets) => {
                let mr = buckets.mrs().get(index)?;
                Some((mr.from, mr.to, mr.keys))
            }
        }
    }
}

impl<L> Index<L> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Shift { chunks, .. } | Self::Stride { chunks, .. } => chunks.keys.len(),
            Self::Buckets(buckets) => buckets.mrs().len(),
        }
    }
}

/// The chunk and what lacks in the first one, where the entries (which touch each other) are equal.
fn equal<L>(entries: &[Entry<L>]) -> Option<(u64, u64)> {
    let (first, rest) = entries.split_first()?;
    let Some((last, inner)) = rest.split_last() else {
        return Some((first.len, 0));
    };
    let chunk = match inner.first() {
        Some(one) => one.len,
        None => first.len.max(last.len),
    };
    let fits = first.len <= chunk && last.len <= chunk && inner.iter().all(|mr| mr.len == chunk);
    fits.then(|| (chunk, chunk - first.len))
}

impl<L: Copy> Equal<L> {
    #[inline]
    fn key(&self, number: u64) -> Option<super::Key<L>> {
        let index = usize::try_from(number).ok()?;
        let keys = self.keys.get(index)?;
        Some(super::Key {
            lkey: keys.lkey,
            rkey: keys.rkey,
            index,
        })
    }

    /// First and last offset of the `index`-th chunk. `reach + skew` is at most 2^64 - 1, which makes saturation
    /// harmless: it is cut at `reach`.
    #[inline]
    fn bounds(&self, index: usize, reach: u64) -> (u64, u64) {
        let border = (index as u64).saturating_mul(self.chunk);
        let to = border.saturating_add(self.chunk - 1) - self.skew;
        (border.saturating_sub(self.skew), to.min(reach))
    }
}

/// Division by a constant as a multiplication, exact for every dividend up to the largest one it was made for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reciprocal {
    /// Twos in the divisor, shifted out of both sides first.
    twos: u32,
    /// `ceil(2^(64 + shift) / odd)`, where `odd` is the divisor without its twos.
    factor: u64,
    /// `floor(log2(odd))`.
    shift: u32,
}

impl Reciprocal {
    /// `None` for 0, for a power of two (shift instead), or where a dividend up to `largest` would come out wrong.
    ///
    /// With `x` the dividend without the divisor's twos, and `error = factor * odd - 2^(64 + shift)`, which is less
    /// than `odd`: `x * factor / 2^(64 + shift) = x / odd + x * error / (odd * 2^(64 + shift))`. The fraction of
    /// `x / odd` is at most `(odd - 1) / odd`, so the floor is exact while `x * error < 2^(64 + shift)`.
    pub(super) fn new(divisor: u64, largest: u64) -> Option<Self> {
        if divisor == 0 || divisor.is_power_of_two() {
            return None;
        }
        let twos = divisor.trailing_zeros();
        let odd = divisor >> twos;
        let shift = odd.ilog2();
        let power = 1u128 << (64 + shift);
        let factor = power.div_ceil(u128::from(odd));
        let error = factor * u128::from(odd) - power;
        let exact = u128::from(largest >> twos) * error < power;
        let factor = u64::try_from(factor).ok()?;
        exact.then_some(Self {
            twos,
            factor,
            shift,
        })
    }

    #[inline]
    pub(super) fn divide(self, dividend: u64) -> u64 {
        let x = u128::from(dividend >> self.twos);
        let high = (x * u128::from(self.factor)) >> 64;
        let high = high as u64;
        high >> self.shift
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Lkey;
    use proptest::prelude::*;

    fn index(ranges: &[(u64, u64)], contiguous: bool) -> Index<Lkey> {
        let entries = ranges.iter().map(|(addr, len)| Entry {
            addr: *addr,
            len: *len,
            lkey: Lkey(0),
            rkey: Rkey(0),
        });
        let (last, len) = ranges[ranges.len() - 1];
        let reach = last - ranges[0].0 + (len - 1);
        Index::new(entries.collect(), reach, contiguous)
    }

    #[test]
    fn each_kind_of_table_gets_its_index() {
        let shift = |ranges: &[_]| matches!(index(ranges, true), Index::Shift { .. });
        assert!(shift(&[(10, 8)]));
        assert!(shift(&[(0, 8), (8, 8), (16, 8)]));
        assert!(shift(&[(6, 2), (8, 8), (16, 8), (24, 1)]));
        assert!(shift(&[(6, 2), (8, 8)]));
        assert!(shift(&[(0, 8), (8, 3)]));
        let stride = |ranges: &[_]| matches!(index(ranges, true), Index::Stride { .. });
        assert!(stride(&[(0, 12)]));
        assert!(stride(&[(0, 12), (12, 12), (24, 12)]));
        assert!(stride(&[(0, 1), (1, 12), (13, 12), (25, 7)]));
        let buckets = |ranges: &[_], touch| matches!(index(ranges, touch), Index::Buckets(_));
        assert!(buckets(&[(0, 8), (8, 9), (17, 8), (25, 8)], true));
        assert!(buckets(&[(0, 9), (9, 8), (17, 8)], true));
        assert!(buckets(&[(0, 8), (16, 8)], false));
        // Offset and skew together would overflow.
        assert!(buckets(&[(0, 1), (1, u64::MAX)], true));
    }

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
        for divisor in (1u64..2000).filter(|d| !d.is_power_of_two()) {
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
            divisor in (1u64.., 0u32..63).prop_map(|(d, less)| (d >> less).max(3)),
            x in any::<u64>(),
            less in 0u32..63,
        ) {
            prop_assume!(!divisor.is_power_of_two());
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
        }
    }

    #[test]
    fn powers_of_two_and_zero_have_no_reciprocal() {
        assert!(Reciprocal::new(0, 1).is_none());
        assert!((0..64).all(|log| Reciprocal::new(1 << log, 1).is_none()));
    }
}
