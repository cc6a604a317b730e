//! Segments laid on the memory, checked once.

use super::error::{MrSpan, RequestError};
use crate::chunks::{Chunk, Segment};

/// Segments that follow each other without a gap and lie within one memory.
///
/// *Invariant*: `base + offset + len` of the last is at most 2^64, no segment or chunk is empty, and the numbers of
/// the chunks go on from one segment to the next.
#[derive(Clone, Debug)]
pub(super) struct Cut {
    base: u64,
    segments: Box<[Segment]>,
    count: u64,
    bytes: u64,
}

impl Cut {
    pub(super) fn new(base: u64, len: u64, segments: &[Segment]) -> Result<Self, RequestError> {
        let end = u128::from(base) + u128::from(len);
        if end > 1 << 64 {
            return Err(RequestError::BeyondEnd { base, len });
        }
        let first = segments.first().ok_or(RequestError::NoChunk)?;
        // Where the next one starts, and with which number.
        let mut at = first.offset;
        let mut number = first.first_index;
        for (segment, s) in segments.iter().enumerate() {
            if s.len == 0 || s.chunk == 0 || s.skew >= s.chunk {
                return Err(RequestError::BadSegment { segment });
            }
            if s.offset != at {
                let (expected, found) = (at, s.offset);
                return Err(RequestError::NotTiled {
                    segment,
                    expected,
                    found,
                });
            }
            let beyond = RequestError::BeyondMemory { segment, len };
            at = match at.checked_add(s.len) {
                Some(end) if end <= len => end,
                _ => return Err(beyond),
            };
            let numbers = (s.first_index == number).then(|| number.checked_add(s.count()));
            number = numbers
                .flatten()
                .ok_or(RequestError::BadSegment { segment })?;
        }
        Ok(Self {
            base,
            segments: segments.into(),
            count: number - first.first_index,
            bytes: at - first.offset,
        })
    }

    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// Number of chunks.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Length of all chunks.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn addr(&self, chunk: &Chunk) -> u64 {
        self.base + chunk.offset
    }

    pub(super) fn span(&self, chunk: &Chunk) -> MrSpan {
        MrSpan {
            index: chunk.index,
            addr: self.addr(chunk),
            len: chunk.len,
            page: chunk.page,
        }
    }

    /// All chunks, in order, one at a time.
    pub(super) fn chunks(&self) -> impl Iterator<Item = Chunk> + '_ {
        self.segments.iter().flat_map(Segment::chunks)
    }

    /// The place of the chunk with that number.
    pub(super) fn place(&self, number: u64) -> Option<u64> {
        number.checked_sub(self.segments.first()?.first_index)
    }

    /// The chunk with that place, counted from 0 in this cut.
    pub(super) fn chunk(&self, place: u64) -> Option<Chunk> {
        let first = self.segments.first()?.first_index;
        let number = first.checked_add(place)?;
        let behind = self.segments.partition_point(|s| s.first_index <= number);
        let segment = self.segments.get(behind.checked_sub(1)?)?;
        segment.chunk(number - segment.first_index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::PageSize;

    fn segment(offset: u64, len: u64, chunk: u64, first_index: u64) -> Segment {
        Segment {
            offset,
            len,
            page: PageSize::K4,
            chunk,
            skew: 0,
            first_index,
        }
    }

    #[test]
    fn chunks_are_found_by_their_place() {
        let segments = [segment(0, 10, 4, 5), segment(10, 6, 2, 8)];
        let cut = Cut::new(100, 16, &segments).unwrap();
        assert_eq!((cut.count(), cut.bytes()), (6, 16));
        for (place, chunk) in (0..).zip(cut.chunks()) {
            assert_eq!(cut.chunk(place), Some(chunk));
            assert_eq!(chunk.index, 5 + place);
            assert_eq!(cut.place(chunk.index), Some(place));
        }
        assert_eq!(cut.place(4), None);
        assert_eq!(cut.chunk(6), None);
    }

    #[test]
    fn what_does_not_tile_is_refused() {
        let cut = |segments: &[Segment]| Cut::new(0, 16, segments).unwrap_err();
        assert_eq!(cut(&[]), RequestError::NoChunk);
        let bad = RequestError::BadSegment { segment: 0 };
        assert_eq!(cut(&[segment(0, 0, 4, 0)]), bad);
        assert_eq!(cut(&[segment(0, 4, 0, 0)]), bad);
        let skewed = Segment {
            skew: 4,
            ..segment(0, 4, 4, 0)
        };
        assert_eq!(cut(&[skewed]), bad);
        assert_eq!(cut(&[segment(0, 4, 1, u64::MAX - 2)]), bad);
        for found in [3, 5] {
            assert_eq!(
                cut(&[segment(0, 4, 4, 0), segment(found, 4, 4, 1)]),
                RequestError::NotTiled {
                    segment: 1,
                    expected: 4,
                    found,
                }
            );
        }
        let bad = RequestError::BadSegment { segment: 1 };
        assert_eq!(cut(&[segment(0, 4, 4, 0), segment(4, 4, 4, 2)]), bad);
        let beyond = |segment| RequestError::BeyondMemory { segment, len: 16 };
        assert_eq!(cut(&[segment(0, 17, 4, 0)]), beyond(0));
        assert_eq!(cut(&[segment(16, 1, 4, 0)]), beyond(0));
        assert_eq!(cut(&[segment(u64::MAX, 2, 4, 0)]), beyond(0));
    }

    #[test]
    fn memory_may_end_at_the_end_of_the_address_space() {
        let base = u64::MAX - 15;
        let cut = Cut::new(base, 16, &[segment(0, 16, 8, 0)]).unwrap();
        assert_eq!(
            cut.chunk(1).map(|chunk| cut.addr(&chunk)),
            Some(u64::MAX - 7)
        );
        assert_eq!(
            Cut::new(base, 17, &[segment(0, 16, 8, 0)]).unwrap_err(),
            RequestError::BeyondEnd { base, len: 17 }
        );
    }
}
