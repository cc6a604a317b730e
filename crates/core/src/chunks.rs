//! How a range is cut: runs of equal chunks, iterated lazily, never a list of millions.

use crate::size::PageSize;

/// One MR to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Number of the MR in the whole plan, from 0.
    pub index: u64,
    /// Distance of its start from the start of the planned range, bytes.
    pub offset: u64,
    /// Length, bytes; never 0.
    pub len: u64,
    /// Page size of the memory behind it.
    pub page: PageSize,
}

/// A stretch of the planned range with one page size, cut into equal chunks (all but the last, and but the
/// first where the memory does not start on a border).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Distance from the start of the planned range, bytes.
    pub offset: u64,
    /// Length, bytes; never 0.
    pub len: u64,
    /// Page size of the memory behind it.
    pub page: PageSize,
    /// Length of a full chunk, bytes; never 0.
    pub chunk: u64,
    /// How far the start lies above a border, bytes; below `chunk`. 0 for memory that hugemr maps.
    pub skew: u64,
    /// Number of the first chunk in the whole plan.
    pub first_index: u64,
}

impl Segment {
    /// One MR of `len` bytes, which is not 0, at the start of the range.
    #[must_use]
    pub const fn whole(len: u64, page: PageSize) -> Self {
        Self {
            offset: 0,
            len,
            page,
            chunk: len,
            skew: 0,
            first_index: 0,
        }
    }

    /// Number of chunks.
    #[must_use]
    pub fn count(&self) -> u64 {
        narrow((u128::from(self.len) + u128::from(self.skew)).div_ceil(u128::from(self.chunk)))
    }

    /// The `i`-th chunk, counted from 0 within the segment.
    #[must_use]
    pub fn chunk(&self, i: u64) -> Option<Chunk> {
        // The k-th border lies at k * chunk - skew from the start of the segment.
        let border = |k: u64| {
            let at = u128::from(k) * u128::from(self.chunk);
            at.saturating_sub(u128::from(self.skew))
                .min(u128::from(self.len))
        };
        let (start, end) = (border(i), border(i + 1));
        (i < self.count()).then(|| Chunk {
            index: self.first_index + i,
            offset: self.offset + narrow(start),
            len: narrow(end - start),
            page: self.page,
        })
    }

    /// All chunks, in order.
    pub fn chunks(&self) -> impl Iterator<Item = Chunk> + use<> {
        let own = *self;
        (0..own.count()).filter_map(move |i| own.chunk(i))
    }
}

/// Numbers here are at most `len + skew`, and a segment lies below 2^64.
fn narrow(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn chunks_tile_the_segment(len in 1u64..10_000, chunk in 1u64..500, skew in 0u64..500) {
            let segment = Segment {
                offset: 7, len, page: PageSize::K4, chunk, skew: skew % chunk, first_index: 3,
            };
            let mut at = 7;
            for (i, part) in segment.chunks().enumerate() {
                prop_assert_eq!(part.offset, at);
                prop_assert!(part.len > 0 && part.len <= chunk);
                prop_assert_eq!(part.index, 3 + i as u64);
                let inner = i > 0 && (i as u64) < segment.count() - 1;
                prop_assert!(!inner || part.len == chunk);
                at += part.len;
            }
            prop_assert_eq!(at, 7 + len);
        }
    }
}
