//! Where an offset lies, in a few nanoseconds.
//!
//! Most tables are made of equal chunks without a gap, of which the first and the last may be shorter: then one multiplication by
//! the reciprocal of the chunk tells the number of the MR and how far in it the offset is ([`Scale`]), and one load fetches a key
//! (8 bytes an MR, lkeys and rkeys apart). Three comparisons are all checks there are: that the range ends in the table, that the
//! table has that chunk, and that the range ends in it. Other tables have [`Buckets`] (24 bytes an MR and at most 16 for the
//! buckets). Binary searches of any kind were measured to be slower than both, and than the page table of UCX.
//!
//! A loop over look-ups of equal chunks has 17 instructions for each, whatever their length is; a bare loop that computes the number,
//! loads the key and checks nothing has 6 where the chunk is a power of two, else 9. On an EPYC of 2.4 GHz (Zen 3) it takes 1.0 to
//! 1.2 ns. It is bound by how many instructions and jumps the CPU takes in, not by waiting: while others use the machine, up to
//! twice as long was measured, and 1.4 times as long where the loop crosses a cache line. Of chunks that are counted in units of
//! 4 KiB a range that ends in the last of them takes a call more.

use super::Entry;
use super::buckets::Buckets;
use super::scale::Scale;
use crate::backend::Rkey;

/// The keys of one MR.
#[derive(Clone, Copy, Debug)]
pub(super) struct MrKeys<L> {
    pub(super) rkey: Rkey,
    pub(super) lkey: L,
}

/// The two ways. Equal chunks are no variant of an enum, but fields that are always there: then nothing has to be known before
/// they are loaded, and a loop over look-ups loads them once. Which way it is, is asked before a way is tried: the compiler
/// makes a loop for each way, in which a hit takes no jump.
pub(super) struct Index<L> {
    /// Equal chunks; none in a table of other MRs.
    equal: Equal<L>,
    /// Such a table.
    buckets: Option<Buckets<L>>,
}

/// Equal chunks without a gap; the first and the last may be shorter. All that a look-up needs is in two cache lines that are
/// fetched together.
#[repr(C, align(128))]
struct Equal<L> {
    /// Address of the first byte.
    base: u64,
    /// Length of a whole chunk; 0 in a table of other MRs.
    chunk: u64,
    scale: Scale,
    /// At least one, but in a table of other MRs. Local and remote keys apart: who posts work needs one of them, and twice as many
    /// are in the cache.
    rkeys: Box<[Rkey]>,
    /// As many.
    lkeys: Box<[L]>,
    /// Offset of the last byte; at least the length of a chunk, less 1.
    reach: u64,
    /// Where on the scale the first byte is: by how much the first chunk is shorter, and the bias.
    start: u64,
    /// By how much the first chunk is shorter.
    skip: u64,
}

impl<L: Copy> Index<L> {
    /// `entries` are valid; `reach` is the offset of their last byte.
    pub(super) fn new(entries: Vec<Entry<L>>, reach: u64, contiguous: bool) -> Self {
        let chunk = contiguous.then(|| equal(&entries)).flatten();
        match chunk.and_then(|chunk| Equal::new(&entries, chunk, reach)) {
            Some(equal) => Self {
                equal,
                buckets: None,
            },
            None => Self {
                equal: Equal::none(),
                buckets: Some(Buckets::new(entries, reach)),
            },
        }
    }

    /// The keys of the MR that holds `addr` and the `more` bytes behind it. Of long chunks the last bytes may not be found: see
    /// [`at_edge`](Self::at_edge).
    #[inline(always)]
    pub(super) fn find(&self, addr: u64, more: u64) -> Option<super::Key<L>> {
        if self.equal.is_there() {
            return self.equal.find(addr, more);
        }
        let (index, mr) = self.buckets.as_ref()?.holder(addr, more)?;
        Some(super::Key {
            lkey: mr.keys.lkey,
            rkey: mr.keys.rkey,
            index,
        })
    }

    /// As `find`, of ranges that end with a chunk of more than 4 KiB; `offset` is at most `reach`.
    #[inline]
    pub(super) fn at_edge(&self, offset: u64, more: u64) -> Option<super::Key<L>> {
        if self.buckets.is_some() {
            return None;
        }
        let index = self.at_or_after(offset);
        let (_, to, keys) = self.mr(index)?;
        (more <= to - offset).then_some(super::Key {
            lkey: keys.lkey,
            rkey: keys.rkey,
            index,
        })
    }

    /// Number of the first MR that ends at `offset` or behind it.
    #[inline]
    pub(super) fn at_or_after(&self, offset: u64) -> usize {
        match &self.buckets {
            None => self.equal.at_or_after(offset),
            Some(buckets) => buckets
                .at_or_after(offset)
                .map_or(buckets.mrs().len(), |(index, _)| index),
        }
    }

    /// First and last offset of an MR, and its keys.
    #[inline]
    pub(super) fn mr(&self, index: usize) -> Option<(u64, u64, MrKeys<L>)> {
        match &self.buckets {
            None => {
                let keys = self.equal.keys(index)?;
                let (from, to) = self.equal.bounds(index);
                Some((from, to, keys))
            }
            Some(buckets) => {
                let mr = buckets.mrs().get(index)?;
                Some((mr.from, mr.to, mr.keys))
            }
        }
    }
}

impl<L> Index<L> {
    pub(super) fn len(&self) -> usize {
        match &self.buckets {
            None => self.equal.count(),
            Some(buckets) => buckets.mrs().len(),
        }
    }
}

/// The length of the chunks, where the entries (which touch each other) are equal.
fn equal<L>(entries: &[Entry<L>]) -> Option<u64> {
    let (first, rest) = entries.split_first()?;
    let Some((last, inner)) = rest.split_last() else {
        return Some(first.len);
    };
    let chunk = match inner.first() {
        Some(one) => one.len,
        None => first.len.max(last.len),
    };
    let fits = first.len <= chunk && last.len <= chunk && inner.iter().all(|mr| mr.len == chunk);
    fits.then_some(chunk)
}

impl<L: Copy> Equal<L> {
    /// `entries` are equal chunks; `reach` is the offset of their last byte. `None` where there is no scale for them.
    fn new(entries: &[Entry<L>], chunk: u64, reach: u64) -> Option<Self> {
        let first = entries.first()?;
        let skip = chunk - first.len;
        let scale = Scale::new(chunk, entries.len())?;
        let start = skip.checked_add(scale.bias())?;
        // Places on the scale.
        start.checked_add(reach)?;
        Some(Self {
            base: first.addr,
            chunk,
            scale,
            rkeys: entries.iter().map(|entry| entry.rkey).collect(),
            lkeys: entries.iter().map(|entry| entry.lkey).collect(),
            reach,
            start,
            skip,
        })
    }

    /// In which nothing is found.
    fn none() -> Self {
        Self {
            base: 0,
            chunk: 0,
            scale: Scale::NONE,
            rkeys: Box::default(),
            lkeys: Box::default(),
            reach: 0,
            start: 0,
            skip: 0,
        }
    }

    #[inline(always)]
    fn is_there(&self) -> bool {
        self.chunk != 0
    }

    /// The keys of the chunk that holds `addr` and the `more` bytes behind it.
    #[inline(always)]
    fn find(&self, addr: u64, more: u64) -> Option<super::Key<L>> {
        // Fetched here, or a loop would fetch where it begins for each look-up.
        let rkeys = &*self.rkeys;
        let lkeys = self.lkeys.get(..rkeys.len())?;
        // An address before the base wraps, and is beyond every end. A loop over look-ups of one length finds the end and the room
        // once. Where `more` is beyond `reach`, there is no room.
        let offset = addr.wrapping_sub(self.base);
        let last = self.reach.saturating_sub(more);
        let room = self.chunk.saturating_sub(more);
        let (number, fits) = self.scale.place(offset.wrapping_add(self.start), room);
        // No `&&`: then all of the table is read in any case, and a loop reads it once.
        if !(fits & (offset <= last)) {
            return None;
        }
        let index = usize::try_from(number).ok()?;
        let rkey = *rkeys.get(index)?;
        let lkey = *lkeys.get(index)?;
        Some(super::Key { lkey, rkey, index })
    }

    #[inline]
    fn keys(&self, index: usize) -> Option<MrKeys<L>> {
        Some(MrKeys {
            lkey: *self.lkeys.get(index)?,
            rkey: *self.rkeys.get(index)?,
        })
    }

    /// First and last offset of the `index`-th chunk, which there is.
    #[inline]
    fn bounds(&self, index: usize) -> (u64, u64) {
        let from = (index as u64) * self.chunk;
        // Saturation is harmless: the last chunk ends at `reach`.
        let to = from.saturating_add(self.chunk - 1) - self.skip;
        (from.saturating_sub(self.skip), to.min(self.reach))
    }
}

impl<L> Equal<L> {
    /// Number of the chunk that holds `offset`; of bytes behind the last one it is higher.
    #[inline]
    fn at_or_after(&self, offset: u64) -> usize {
        let at = offset.saturating_add(self.skip);
        let number = at.checked_div(self.chunk).map(usize::try_from);
        number.and_then(Result::ok).unwrap_or(usize::MAX)
    }

    fn count(&self) -> usize {
        self.rkeys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Lkey;

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
        let equal = |ranges: &[_]| index(ranges, true).buckets.is_none();
        assert!(equal(&[(10, 8)]));
        assert!(equal(&[(0, 8), (8, 8), (16, 8)]));
        assert!(equal(&[(6, 2), (8, 8), (16, 8), (24, 1)]));
        assert!(equal(&[(6, 2), (8, 8)]));
        assert!(equal(&[(0, 8), (8, 3)]));
        assert!(equal(&[(0, 12), (12, 12), (24, 12)]));
        assert!(equal(&[(0, 1), (1, 12), (13, 12), (25, 7)]));
        let buckets = |ranges: &[_], touch| index(ranges, touch).buckets.is_some();
        assert!(buckets(&[(0, 8), (8, 9), (17, 8), (25, 8)], true));
        assert!(buckets(&[(0, 9), (9, 8), (17, 8)], true));
        assert!(buckets(&[(0, 8), (16, 8)], false));
        // There is no scale for them.
        assert!(buckets(&[(0, 1), (1, 1)], true));
        assert!(buckets(&[(0, LONG), (LONG, LONG)], true));
    }

    /// A length of which not even two can be told apart by one multiplication.
    const LONG: u64 = (1 << 63) - 1;

    #[test]
    fn what_a_look_up_of_equal_chunks_needs_is_two_cache_lines() {
        let end = std::mem::offset_of!(Equal<Lkey>, skip);
        assert!(end <= 128 && align_of::<Equal<Lkey>>() == 128);
    }
}
