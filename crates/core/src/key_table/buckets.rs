//! The index of irregular tables: equal stretches of addresses, *buckets*, over MRs of any lengths and gaps.
//!
//! A bucket knows the first MR that ends in it or behind it, and a scan of a few MRs finds the right one. Where many
//! MRs crowd in one bucket, because a few others lie far away (heap and mappings are 2^45 bytes apart), that bucket
//! has buckets of its own. Where there would be too many buckets, halving takes over: it stays right, but is not O(1).

use std::ops::Range;

use super::Entry;
use super::index::MrKeys;

/// An MR. All of it in one place: a look-up touches one bucket and, mostly, one of these.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mr<L> {
    /// Offset of its first byte.
    pub(super) from: u64,
    /// Offset of its last byte.
    pub(super) to: u64,
    pub(super) keys: MrKeys<L>,
}

impl<L> Mr<L> {
    /// Whether it holds `offset`, which is not behind it, and the `more` bytes behind that.
    #[inline(always)]
    fn holds(&self, offset: u64, more: u64) -> bool {
        self.from <= offset && more <= self.to - offset
    }
}

pub(super) struct Buckets<L> {
    /// Address of the first byte of the first MR.
    base: u64,
    /// Offset of the last byte of the last one.
    reach: u64,
    /// log2 of a bucket's length.
    shift: u32,
    /// For each bucket the number of an MR, or with [`NESTED`] that of a nest. The buckets of nests stand behind.
    firsts: Box<[u32]>,
    nests: Box<[Nest]>,
    mrs: Box<[Mr<L>]>,
}

/// The buckets of a crowded bucket.
#[derive(Clone, Copy, Debug)]
struct Nest {
    /// Offset of its first byte.
    start: u64,
    /// Where its buckets stand, and how many follow the first.
    at: u32,
    more: u32,
    /// log2 of their length.
    shift: u32,
}

/// Marks a bucket that has buckets of its own. Numbers of MRs and of nests are smaller.
const NESTED: u32 = 1 << 31;
/// Most MRs of a table: so that places of buckets, four for each MR, have 32 bits.
pub(super) const MOST_MRS: usize = (NESTED >> 1) as usize - 1;
/// Most buckets for each MR of the table, those of nests included.
const BUCKETS_PER_MR: usize = 4;
/// Most buckets for each MR in a nest, and in what has nests.
const BUCKETS_IN_NESTS: usize = 2;
/// Longest scan; a bucket with more MRs is crowded.
const LONGEST_SCAN: usize = 4;

impl<L: Copy> Buckets<L> {
    /// `entries` are valid; `reach` is the offset of their last byte.
    pub(super) fn new(entries: Vec<Entry<L>>, reach: u64) -> Self {
        let base = entries.first().map_or(0, |entry| entry.addr);
        let mrs = entries.into_iter().map(|entry| Mr {
            from: entry.addr - base,
            to: entry.addr - base + (entry.len - 1),
            keys: MrKeys {
                lkey: entry.lkey,
                rkey: entry.rkey,
            },
        });
        let mrs: Box<[Mr<L>]> = mrs.collect();
        let all = Stretch {
            held: 0..mrs.len(),
            start: 0,
            end: reach,
        };
        let mut build = Build::new(&mrs);
        let mut shift = build.fill(&all, BUCKETS_PER_MR);
        if build.is_crowded(&all) {
            build.firsts.clear();
            shift = build.fill(&all, BUCKETS_IN_NESTS);
            build.nest(&all, 0, shift);
        }
        let (firsts, nests) = (build.firsts, build.nests);
        Self {
            base,
            reach,
            shift,
            firsts: firsts.into_boxed_slice(),
            nests: nests.into_boxed_slice(),
            mrs,
        }
    }

    /// The MR that holds `addr` and the `more` bytes behind it, with its number.
    #[inline]
    pub(super) fn holder(&self, addr: u64, more: u64) -> Option<(usize, &Mr<L>)> {
        let offset = addr.wrapping_sub(self.base);
        if offset > self.reach {
            return None;
        }
        let (index, mr) = self.near(offset)?;
        if offset > mr.to {
            return self.holder_behind(index + 1, offset, more);
        }
        mr.holds(offset, more).then_some((index, mr))
    }

    /// The same from the MR `first` on.
    #[cold]
    #[inline]
    fn holder_behind(&self, first: usize, offset: u64, more: u64) -> Option<(usize, &Mr<L>)> {
        let (index, mr) = self.scan(first, offset)?;
        mr.holds(offset, more).then_some((index, mr))
    }

    /// The first MR that ends at `offset` (which is at most `reach`) or behind it.
    #[inline]
    pub(super) fn at_or_after(&self, offset: u64) -> Option<(usize, &Mr<L>)> {
        let (index, mr) = self.near(offset)?;
        if offset <= mr.to {
            return Some((index, mr));
        }
        self.scan(index + 1, offset)
    }

    /// That MR, or one before it.
    #[inline(always)]
    fn near(&self, offset: u64) -> Option<(usize, &Mr<L>)> {
        let bucket = usize::try_from(offset >> self.shift).ok()?;
        let mut first = *self.firsts.get(bucket)?;
        while first & NESTED != 0 {
            let nest = self.nests.get((first & !NESTED) as usize)?;
            first = *self.firsts.get(nest.bucket(offset)?)?;
        }
        // The first step of the scan is taken without a branch (nobody can predict it), the others are rare.
        let first = first as usize;
        let index = first + usize::from(self.mrs.get(first)?.to < offset);
        Some((index, self.mrs.get(index)?))
    }

    /// The first MR from `first` on that ends at `offset` or behind it: a few one by one, then by halves.
    #[inline]
    fn scan(&self, first: usize, offset: u64) -> Option<(usize, &Mr<L>)> {
        let behind = self.mrs.get(first..)?;
        let few = behind.iter().take(LONGEST_SCAN);
        let near = few.take_while(|mr| mr.to < offset).count();
        let index = if near < LONGEST_SCAN {
            first + near
        } else {
            first + behind.partition_point(|mr| mr.to < offset)
        };
        Some((index, self.mrs.get(index)?))
    }
}

impl<L> Buckets<L> {
    #[inline]
    pub(super) fn mrs(&self) -> &[Mr<L>] {
        &self.mrs
    }
}

impl Nest {
    /// Where the bucket of `offset` stands. Before its start and behind its end a nest holds nothing.
    #[inline(always)]
    fn bucket(&self, offset: u64) -> Option<usize> {
        let own = offset.saturating_sub(self.start) >> self.shift;
        usize::try_from(u64::from(self.at) + own.min(u64::from(self.more))).ok()
    }
}

/// A stretch of offsets and the MRs that end in it, or for the last one all that are left.
struct Stretch {
    held: Range<usize>,
    start: u64,
    end: u64,
}

struct Build<'a, L> {
    mrs: &'a [Mr<L>],
    firsts: Vec<u32>,
    nests: Vec<Nest>,
}

impl<'a, L> Build<'a, L> {
    fn new(mrs: &'a [Mr<L>]) -> Self {
        Self {
            mrs,
            firsts: Vec::new(),
            nests: Vec::new(),
        }
    }

    /// Adds the buckets of a stretch, at most `per_mr` for each MR; tells their shift.
    fn fill(&mut self, of: &Stretch, per_mr: usize) -> u32 {
        let span = of.end - of.start;
        let most = (of.held.len() * per_mr) as u64;
        let shift = (0..63).find(|shift| span >> shift < most).unwrap_or(63);
        let mut first = of.held.start;
        for bucket in 0..=span >> shift {
            let at = of.start + (bucket << shift);
            while self.mrs.get(first).is_some_and(|mr| mr.to < at) {
                first += 1;
            }
            self.firsts.push(number(first));
        }
        shift
    }

    /// The MRs of each bucket from the place `at` to the end, which are those of a stretch.
    fn held(&self, of: &Stretch, at: usize) -> impl Iterator<Item = Range<usize>> + use<L> {
        let firsts = self.firsts[at..].to_vec();
        let end = of.held.end;
        (0..firsts.len()).map(move |bucket| {
            let behind = firsts.get(bucket + 1).map_or(end, |next| *next as usize);
            firsts[bucket] as usize..behind
        })
    }

    fn is_crowded(&self, of: &Stretch) -> bool {
        self.held(of, 0).any(|held| held.len() > LONGEST_SCAN)
    }

    /// Gives crowded buckets buckets of their own, as long as there may be more. Each level is at most half as long as
    /// the one above it, because it starts with its first MR and ends with its last.
    fn nest(&mut self, of: &Stretch, at: usize, shift: u32) {
        for (bucket, held) in self.held(of, at).enumerate() {
            let room = self.mrs.len() * BUCKETS_PER_MR - self.firsts.len();
            let per_mr = (room / held.len().max(1)).min(BUCKETS_IN_NESTS);
            if held.len() <= LONGEST_SCAN || per_mr == 0 {
                continue;
            }
            let start = of.start + ((bucket as u64) << shift);
            let end = start.saturating_add((1 << shift) - 1).min(of.end);
            let own = &self.mrs[held.clone()];
            let inner = Stretch {
                start: own.first().map_or(start, |mr| mr.from.max(start)),
                end: own.last().map_or(end, |mr| mr.to.min(end)),
                held,
            };
            let inner_at = self.firsts.len();
            let inner_shift = self.fill(&inner, per_mr);
            self.firsts[at + bucket] = NESTED | number(self.nests.len());
            self.nests.push(Nest {
                start: inner.start,
                at: number(inner_at),
                more: number(self.firsts.len() - inner_at - 1),
                shift: inner_shift,
            });
            self.nest(&inner, inner_at, inner_shift);
        }
    }
}

/// A number that fits because a table has at most [`MOST_MRS`] MRs, and four buckets for each.
fn number(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Lkey, Rkey};
    use proptest::prelude::*;

    fn buckets(ranges: &[(u64, u64)]) -> Buckets<Lkey> {
        let entries = ranges.iter().map(|(addr, len)| Entry {
            addr: *addr,
            len: *len,
            lkey: Lkey(0),
            rkey: Rkey(0),
        });
        let (last, len) = ranges[ranges.len() - 1];
        Buckets::new(entries.collect(), last - ranges[0].0 + (len - 1))
    }

    /// Longest scan over a list of MRs, and where it happens.
    fn longest_scan(buckets: &Buckets<Lkey>) -> usize {
        let scan = |offset: u64| {
            let bucket = usize::try_from(offset >> buckets.shift).unwrap();
            let mut first = buckets.firsts[bucket];
            while first & NESTED != 0 {
                let nest = buckets.nests[(first & !NESTED) as usize];
                first = buckets.firsts[nest.bucket(offset).unwrap()];
            }
            buckets.at_or_after(offset).unwrap().0 - first as usize
        };
        let ends = buckets.mrs.iter().flat_map(|mr| [mr.from, mr.to]);
        ends.map(scan).max().unwrap()
    }

    #[test]
    fn buckets_are_few_and_scans_are_short() {
        let spread: Vec<_> = (0..1000).map(|i| (i * 100 + i % 7, 50)).collect();
        let with = |far: &[(u64, u64)]| [&spread[..], far].concat();
        let two = with(&[(1 << 50, 1)]);
        let three = with(&[(1 << 45, 1), (1 << 46, 9), (1 << 62, 1)]);
        let clusters = [0u64, 1 << 40, 1 << 45]
            .iter()
            .flat_map(|base| spread.iter().map(move |(at, len)| (base + at, *len)));
        let clusters: Vec<_> = clusters.collect();
        for (ranges, nests) in [(&spread, 0), (&two, 1), (&three, 2), (&clusters, 3)] {
            let buckets = buckets(ranges);
            assert_eq!(buckets.nests.len(), nests);
            assert!(buckets.firsts.len() <= 4 * ranges.len());
            assert!(longest_scan(&buckets) <= LONGEST_SCAN);
        }
    }

    #[test]
    fn what_has_too_many_buckets_is_searched_by_halves() {
        // Each MR twice as far as the one before: no equal stretches suit them.
        let ranges: Vec<_> = (0..60).map(|log| (1u64 << log, 1)).collect();
        let buckets = buckets(&ranges);
        assert!(longest_scan(&buckets) > LONGEST_SCAN);
        for (index, (at, _)) in ranges.iter().enumerate() {
            let found = |offset| buckets.at_or_after(offset).map(|(index, _)| index);
            assert_eq!(found(at - 1), Some(index));
            let between = at - 1 + at / 2;
            let next = index + usize::from(between > at - 1);
            assert_eq!(found(between), (next < 60).then_some(next));
        }
    }

    proptest! {
        #[test]
        fn the_first_mr_behind_an_offset_is_found(
            shape in prop::collection::vec(
                (prop_oneof![8 => 0u64..3, 1 => 0u64..1000, 1 => 1u64 << 30..1 << 50], 1u64..9),
                1..80,
            ),
            picks in prop::collection::vec(any::<u64>(), 20),
        ) {
            let mut at = 0;
            let ranges: Vec<_> = shape.into_iter().enumerate().map(|(i, (gap, len))| {
                let start = if i == 0 { 0 } else { at + gap };
                at = start + len;
                (start, len)
            }).collect();
            let buckets = buckets(&ranges);
            prop_assert!(buckets.firsts.len() <= 4 * ranges.len());
            let ends = ranges.iter().flat_map(|(start, len)| [*start, start + len - 1, start + len]);
            for offset in ends.chain(picks.iter().map(|pick| pick % at)).filter(|o| *o < at) {
                let want = ranges.iter().position(|(start, len)| start + (len - 1) >= offset);
                prop_assert_eq!(buckets.at_or_after(offset).map(|(index, _)| index), want);
            }
        }
    }
}
