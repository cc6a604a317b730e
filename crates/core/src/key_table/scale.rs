//! The number of an equal chunk, and whether a range ends in it, by one multiplication.

/// log2 of a coarse unit: 4 KiB.
const GRAIN: u8 = 12;

/// Takes offsets to a line on which each chunk is `2^64` long: the upper half of the product is the number of the chunk, the
/// lower half says where in it the offset is.
///
/// What the factor is off by adds up along the chunks. Where that is too much (it never is where their length is a power of two, nor
/// for up to 3,849 chunks of 66 MiB), the line takes units of 4 KiB instead of bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// `2^64 / chunk`, rounded up or down; not 0.
    factor: u64,
    /// 0 where the factor is rounded up, 1 where it is rounded down.
    bias: u32,
    /// log2 of a unit: 0, or [`GRAIN`].
    grain: u8,
}

impl Scale {
    /// By which nothing is found.
    pub(super) const NONE: Self = Self {
        factor: 0,
        bias: 0,
        grain: 0,
    };

    /// `None` where one of `count` chunks would come out wrong: those of one byte, some that are no multiple of 4 KiB, and some of
    /// more than 1 TiB.
    pub(super) fn new(chunk: u64, count: usize) -> Option<Self> {
        let units = chunk >> GRAIN;
        let whole = units << GRAIN == chunk;
        let coarse = || whole.then(|| Self::of(units, count, GRAIN)).flatten();
        Self::of(chunk, count, 0).or_else(coarse)
    }

    /// Rounded up, with `error = factor * chunk - 2^64`: the byte `within` of chunk `n` becomes
    /// `n * 2^64 + n * error + within * factor`. Rounded down, with `error = 2^64 - factor * chunk` and bytes counted from 1:
    /// `n * 2^64 - n * error + (within + 1) * factor`. While `count * error` is less than a factor, each chunk stays in its own
    /// stretch of `2^64` and no byte gets to where the next one is: both halves are exact.
    fn of(chunk: u64, count: usize, grain: u8) -> Option<Self> {
        let line = 1u128 << 64;
        let down = line.checked_div(chunk.into())?;
        let below = line - down * u128::from(chunk);
        let fits = |factor: u128, error: u128, bias: u32| {
            let factor = u64::try_from(factor).ok()?;
            // One less, so that the last byte of a chunk is below u64::MAX, the highest limit.
            let most = u128::from(factor.checked_sub(1)?);
            let errors = error.checked_mul(count as u128)?;
            (errors < most).then_some(Self {
                factor,
                bias,
                grain,
            })
        };
        let up = match below {
            0 => fits(down, 0, 0),
            _ => fits(down + 1, u128::from(chunk) - below, 0),
        };
        // Off by 1, the last byte would be u64::MAX.
        let round_down = || fits(down, below, 1).filter(|_| below > 1);
        up.or_else(round_down)
    }

    /// How many bytes before the first chunk the offsets begin that are given to [`place`](Self::place).
    pub(super) fn bias(self) -> u64 {
        u64::from(self.bias) << self.grain
    }

    /// The chunk of an offset of the table, and whether the offset is among its first `room` bytes; `room` is at most the chunk.
    /// In units of 4 KiB it may say no of the last byte of room and the 4 KiB before it.
    #[inline(always)]
    pub(super) fn place(self, offset: u64, room: u64) -> (u64, bool) {
        // Of a unit all bytes must be among them.
        let (units, room) = (offset >> self.grain, room >> self.grain);
        let product = u128::from(units) * u128::from(self.factor);
        #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
        let within = product as u64;
        // Only all of a chunk comes to 2^64 and more. Where the factor is rounded down, bytes are counted from 1.
        let (limit, beyond) = room.overflowing_mul(self.factor);
        let limit = limit.wrapping_add(self.bias.into()) | u64::from(beyond).wrapping_neg();
        ((product >> 64) as u64, within < limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    /// The highest number of chunks that `new` has a scale for; 0 where there is none for one.
    fn most(new: impl Fn(u64, usize) -> Option<Scale>, chunk: u64) -> usize {
        let (mut yes, mut no) = (0, 1 << 63);
        while no - yes > 1 {
            let middle = yes + (no - yes) / 2;
            *(if new(chunk, middle).is_some() {
                &mut yes
            } else {
                &mut no
            }) = middle;
        }
        yes
    }

    /// In bytes, or not at all.
    fn bytes(chunk: u64, count: usize) -> Option<Scale> {
        Scale::of(chunk, count, 0)
    }

    fn whole(chunk: u64, count: usize) -> Option<Scale> {
        Scale::new(chunk, count)
    }

    /// What the offset `at` and the room must come to.
    fn check(
        scale: Scale,
        (chunk, count): (u64, usize),
        at: u64,
        room: u64,
    ) -> Result<(), TestCaseError> {
        // No table has it.
        let Some(offset) = at.checked_add(scale.bias()) else {
            return Ok(());
        };
        let (number, holds) = scale.place(offset, room);
        let found = (number < count as u64 && holds).then_some(number);
        let really = (at / chunk < count as u64 && at % chunk < room).then_some(at / chunk);
        let unsure = scale.grain != 0 && room.saturating_sub(at % chunk) <= 1 << GRAIN;
        if found.is_some() || !unsure {
            prop_assert_eq!(
                found,
                really,
                "{} of {} x {}, room {}",
                at,
                count,
                chunk,
                room
            );
        }
        Ok(())
    }

    #[test]
    fn every_byte_of_small_chunks_has_its_place() {
        for chunk in 2..40 {
            for count in [1, 2, 3, 50] {
                let scale = Scale::new(chunk, count).unwrap();
                let end = chunk * count as u64 + 100;
                let beyond = (end..).step_by(977).take(100);
                for at in (0..end).chain(beyond).chain(u64::MAX - 100..=u64::MAX) {
                    for room in 0..=chunk {
                        check(scale, (chunk, count), at, room).unwrap();
                    }
                }
            }
        }
    }

    #[test]
    fn how_many_chunks_a_scale_has_room_for() {
        for log in 1..64 {
            let chunk = 1u64 << log;
            let count = usize::try_from(u64::MAX / chunk).unwrap();
            assert!(bytes(chunk, count).is_some(), "{log}");
        }
        assert!(Scale::new(0, 1).is_none() && Scale::new(1, 1).is_none());
        assert!(most(bytes, 66 * MIB) >= 3849);
        assert_eq!(most(bytes, 3 * GIB), 5);
        assert!(most(whole, 3 * GIB) > 10_000_000);
        // No multiple of 4 KiB.
        assert_eq!(most(whole, 3 * GIB + 1), most(bytes, 3 * GIB + 1));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn a_table_of_256_tib_has_a_scale(units in 1u64..=(1 << 28), fewer in 0u32..28) {
            let chunk = (units >> fewer).max(1) << GRAIN;
            let count = usize::try_from((1 << 48) / chunk).unwrap();
            prop_assert!(Scale::new(chunk, count).is_some());
        }

        #[test]
        fn both_halves_are_exact(
            chunk in (2u64.., 18u32..62, any::<bool>()).prop_map(|(chunk, less, pages)| {
                let chunk = (chunk >> less).max(2);
                if pages { chunk.next_multiple_of(1 << GRAIN) } else { chunk }
            }),
            few in any::<usize>(),
            number in any::<u64>(),
            within in any::<u64>(),
            room in any::<u64>(),
        ) {
            let most = most(whole, chunk).min(usize::try_from(u64::MAX / chunk).unwrap());
            for count in [1, most.max(1), 1 + few % most.max(1)] {
                // Long chunks of any length have none.
                let Some(scale) = Scale::new(chunk, count) else { continue };
                let last = (count - 1) as u64 * chunk;
                for start in [0, last, number % count as u64 * chunk] {
                    let room = room % (chunk + 1);
                    for within in [0, chunk - 1, within % chunk, room, room.saturating_sub(1)] {
                        for room in [0, 1, room, chunk - 1, chunk] {
                            check(scale, (chunk, count), start.saturating_add(within), room)?;
                        }
                    }
                }
                let end = last.saturating_add(chunk);
                for at in [end, end.saturating_add(chunk - 1), end.saturating_add(within), u64::MAX, u64::MAX - 1] {
                    check(scale, (chunk, count), at, chunk)?;
                }
            }
        }
    }
}
