//! The number of an equal chunk, and whether a range ends in it, by one multiplication.

/// Takes offsets to a line on which each chunk is `2^64` long: the upper half of the product is the number of the chunk, the
/// lower half says where in it the offset is. What the factor is off by adds up along the chunks, so a table may have too
/// many chunks for it: 3,849 of 66 MiB always fit, and any number whose length is a power of two.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// `2^64 / chunk`, rounded up or down; not 0.
    factor: u64,
    /// 0 where the factor is rounded up, 1 where it is rounded down.
    bias: u32,
}

impl Scale {
    /// `None` where one of `count` chunks would come out wrong, or the chunk is shorter than 2 bytes.
    ///
    /// Rounded up, with `error = factor * chunk - 2^64`: the byte `within` of chunk `n` becomes
    /// `n * 2^64 + n * error + within * factor`. Rounded down, with `error = 2^64 - factor * chunk` and bytes counted from 1:
    /// `n * 2^64 - n * error + (within + 1) * factor`. While `count * error` is less than a factor, each chunk stays in its own
    /// stretch of `2^64` and no byte gets to where the next one is: both halves are exact.
    pub(super) fn new(chunk: u64, count: usize) -> Option<Self> {
        let line = 1u128 << 64;
        let down = line.checked_div(chunk.into())?;
        let below = line - down * u128::from(chunk);
        let fits = |factor: u128, error: u128, bias: u32| {
            let factor = u64::try_from(factor).ok()?;
            // One less, so that the last byte of a chunk is below u64::MAX, the highest limit.
            let most = u128::from(factor.checked_sub(1)?);
            let errors = error.checked_mul(count as u128)?;
            (errors < most).then_some(Self { factor, bias })
        };
        let up = match below {
            0 => fits(down, 0, 0),
            _ => fits(down + 1, u128::from(chunk) - below, 0),
        };
        up.or_else(|| fits(down, below, 1))
    }

    /// How many bytes before the first chunk the offsets begin that are given to [`place`](Self::place).
    pub(super) fn bias(self) -> u64 {
        self.bias.into()
    }

    /// The chunk of an offset, and a place in it to compare with [`limit`](Self::limit).
    ///
    /// Behind the last chunk the number may be too high or too low, but is no chunk's. The byte that is offset 0 where there is a bias
    /// is before the first chunk, and gets a place that no limit is above.
    #[inline(always)]
    pub(super) fn place(self, offset: u64) -> (u64, u64) {
        let product = u128::from(offset) * u128::from(self.factor);
        let within = product as u64;
        (
            (product >> 64) as u64,
            within.wrapping_sub(self.bias.into()),
        )
    }

    /// The first `room` bytes of a chunk have places below this, and no others have; `room` is at most the chunk.
    #[inline(always)]
    pub(super) fn limit(self, room: u64) -> u64 {
        // Only a whole chunk comes to 2^64 and more. Without a branch, or the compiler makes two loops of one.
        let (limit, beyond) = room.overflowing_mul(self.factor);
        limit | u64::from(beyond).wrapping_neg()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The highest number of chunks that there is a scale for; 0 where there is none for one.
    fn most(chunk: u64) -> usize {
        let fits = |count: &usize| Scale::new(chunk, *count).is_some();
        let (mut yes, mut no) = (0, 1 << 63);
        while no - yes > 1 {
            let middle = yes + (no - yes) / 2;
            *(if fits(&middle) { &mut yes } else { &mut no }) = middle;
        }
        yes
    }

    /// What the offset `at` and the room must come to.
    fn check(chunk: u64, count: usize, at: u64, room: u64) -> Result<(), TestCaseError> {
        let scale = Scale::new(chunk, count).unwrap();
        let (number, place) = scale.place(at.wrapping_add(scale.bias()));
        let fits = number < count as u64 && place < scale.limit(room);
        let really = at / chunk < count as u64 && at % chunk < room;
        prop_assert_eq!(
            fits,
            really,
            "{} of {} x {}, room {}: {:?}",
            at,
            count,
            chunk,
            room,
            scale
        );
        if really {
            prop_assert_eq!(number, at / chunk);
        }
        Ok(())
    }

    #[test]
    fn every_byte_of_small_chunks_has_its_place() {
        for chunk in 2..40 {
            for count in [1, 2, 3, 50] {
                let ends = (chunk * count as u64 + 100..).step_by(977);
                let all = (0..chunk * count as u64 + 100).chain(ends.take(100));
                for at in all.chain(u64::MAX - 100..=u64::MAX) {
                    for room in 0..=chunk {
                        check(chunk, count, at, room).unwrap();
                    }
                }
            }
        }
    }

    #[test]
    fn powers_of_two_have_as_many_chunks_as_there_are_and_others_fewer_than_promised() {
        for log in 1..64 {
            let chunk = 1u64 << log;
            let count = usize::try_from(u64::MAX / chunk).unwrap();
            assert!(Scale::new(chunk, count).is_some(), "{log}");
        }
        assert!(Scale::new(0, 1).is_none() && Scale::new(1, 1).is_none());
        let mib = 1u64 << 20;
        assert!(most(66 * mib) >= 3849);
        assert_eq!(most(3 << 30), 5);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn both_halves_are_exact(
            chunk in (2u64.., 27u32..62).prop_map(|(chunk, less)| (chunk >> less).max(2)),
            few in any::<usize>(),
            number in any::<u64>(),
            within in any::<u64>(),
            room in any::<u64>(),
        ) {
            let most = most(chunk).min(usize::try_from(u64::MAX / chunk).unwrap());
            prop_assume!(most > 0);
            for count in [1, most, 1 + few % most] {
                let last = (count - 1) as u64 * chunk;
                let starts = [0, last, number % count as u64 * chunk];
                for start in starts {
                    let room = room % (chunk + 1);
                    for within in [0, chunk - 1, within % chunk, room, room.saturating_sub(1)] {
                        for room in [0, 1, room, chunk - 1, chunk] {
                            check(chunk, count, start.saturating_add(within), room)?;
                        }
                    }
                }
                let end = last.saturating_add(chunk);
                for at in [end, end.saturating_add(chunk - 1), end.saturating_add(within), u64::MAX, u64::MAX - 1] {
                    check(chunk, count, at, chunk)?;
                }
            }
        }
    }
}
