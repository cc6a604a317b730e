//! From an address to the keys of the MR it lies in, at the cost of an array index.
//!
//! A [`KeyTable`] is an immutable snapshot: cheap to clone, read from any number of threads without a lock. It is
//! built from the MRs of a registration, or from any sorted list of MRs ([`Entry`]), or read from what a peer sent
//! ([`KeyTable::import`]).
//!
//! - [`lookup`](KeyTable::lookup) answers the one MR that holds a whole range; or that the range crosses MRs; or
//!   which of its bytes no MR holds.
//! - [`split`](KeyTable::split) cuts a range that crosses MRs into one part for each, without allocating.
//!
//! ```
//! use hugemr_core::backend::{Lkey, Rkey};
//! use hugemr_core::key_table::{Entry, KeyTable, LookupError};
//!
//! let mr = |addr, key| Entry { addr, len: 0x1000, lkey: Lkey(key), rkey: Rkey(key) };
//! let keys = KeyTable::new([mr(0x1000, 7), mr(0x2000, 8)])?;
//! assert_eq!(keys.lookup(0x1800, 0x800)?.rkey, Rkey(7));
//! assert_eq!(keys.lookup(0x1800, 0x900), Err(LookupError::Crosses { first: 0, last: 1 }));
//! let parts = keys.split(0x1800, 0x900)?.map(|part| (part.addr, part.len, part.lkey.0));
//! assert!(parts.eq([(0x1800, 0x800, 7), (0x2000, 0x100, 8)]));
//!
//! let peer = KeyTable::import(&keys.export())?;
//! assert_eq!(peer.lookup(0x2000, 1)?.rkey, Rkey(8));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Ranges are never added up with wrapping: the last byte is what is compared, so a range may end at 2^64 itself.
//!
//! *Invariant*: entries are sorted, not empty, do not wrap and do not overlap; every constructor proves it.

mod buckets;
mod error;
mod export;
mod index;
mod scale;
mod split;

pub use error::{ImportError, LookupError, MissingRange, TableError};
pub use export::{FORMAT_VERSION, MAGIC};
pub use split::Split;

use std::fmt;
use std::sync::Arc;

use crate::backend::{Lkey, Rkey};
use buckets::MOST_MRS;
use index::Index;

/// One MR on the way into a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<L = Lkey> {
    /// Address of its first byte, as it is looked up.
    pub addr: u64,
    /// Length, bytes; not 0.
    pub len: u64,
    /// Local key.
    pub lkey: L,
    /// Remote key.
    pub rkey: Rkey,
}

/// Stands for the lkey in a table that came from a peer: local keys mean nothing elsewhere, and are not exported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NoLkey;

/// The keys of one MR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<L = Lkey> {
    /// Local key; [`NoLkey`] in a peer's table.
    pub lkey: L,
    /// Remote key.
    pub rkey: Rkey,
    /// Number of the MR in the table, from 0, in the order of addresses.
    pub index: usize,
}

/// The part of a range that lies in one MR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<L = Lkey> {
    /// Address of its first byte.
    pub addr: u64,
    /// Length, bytes; not 0.
    pub len: u64,
    /// Local key; [`NoLkey`] in a peer's table.
    pub lkey: L,
    /// Remote key.
    pub rkey: Rkey,
    /// Number of the MR in the table, from 0, in the order of addresses.
    pub index: usize,
}

/// An immutable table from addresses to keys.
///
/// `KeyTable` is a table of the own process. [`PeerKeyTable`] is one that was [imported](KeyTable::import) and has
/// rkeys only; the type of the lkey makes it impossible to post a peer's table as local memory.
#[derive(Clone)]
pub struct KeyTable<L = Lkey> {
    inner: Arc<Inner<L>>,
}

/// A table that came from a peer.
pub type PeerKeyTable = KeyTable<NoLkey>;

struct Inner<L> {
    /// Address of the first byte of the first MR.
    base: u64,
    /// Distance of the last byte of the last MR from `base`.
    reach: u64,
    index: Index<L>,
    /// The stretches without a gap, sorted: they tell missing bytes from crossed borders.
    runs: Box<[Run]>,
}

/// A stretch of MRs that touch each other. Ends are inclusive: the end of the address space has no number.
#[derive(Clone, Copy, Debug)]
struct Run {
    start: u64,
    last: u64,
}

impl KeyTable {
    /// A table of MRs sorted by address.
    ///
    /// # Errors
    /// No MR at all, one that is empty or wraps, two that overlap or are out of order; see [`TableError`].
    pub fn new(entries: impl IntoIterator<Item = Entry>) -> Result<Self, TableError> {
        Self::build(entries.into_iter().collect())
    }
}

impl<L: Copy> KeyTable<L> {
    fn build(entries: Vec<Entry<L>>) -> Result<Self, TableError> {
        let runs = runs(&entries)?;
        let [Run { start: base, .. }, ..] = runs[..] else {
            return Err(TableError::NoMr);
        };
        let last = runs.last().map_or(base, |run| run.last);
        let reach = last - base;
        let index = Index::new(entries, reach, runs.len() == 1);
        let runs = runs.into_boxed_slice();
        Ok(Self {
            inner: Arc::new(Inner {
                base,
                reach,
                index,
                runs,
            }),
        })
    }

    /// The keys of the one MR that holds all of `[addr, addr + len)`.
    ///
    /// # Errors
    /// The range is empty or goes beyond 2^64, crosses MRs (then [`split`](Self::split) it), or has bytes that no
    /// MR holds. Missing bytes are reported before crossed borders.
    // Left to itself the compiler makes a call of it, and the answer goes through memory: 6 ns instead of 2.
    #[inline(always)]
    pub fn lookup(&self, addr: u64, len: u64) -> Result<Key<L>, LookupError> {
        let table = &*self.inner;
        // For len 0 this is 2^64 - 1: no MR has so many bytes behind an address in it, so it ends in `explain` like every
        // other miss.
        let more = len.wrapping_sub(1);
        match table.index.find(addr, more) {
            Some(key) => Ok(key),
            None => table.find_at_edge(addr, len),
        }
    }

    /// The parts of `[addr, addr + len)`, one for each MR, in order. The whole range is checked first, and neither
    /// the check nor the iteration allocates.
    ///
    /// # Errors
    /// As [`lookup`](Self::lookup), but that crossing MRs is no error.
    #[inline]
    pub fn split(&self, addr: u64, len: u64) -> Result<Split<'_, L>, LookupError> {
        let (first, last) = match self.lookup(addr, len) {
            Ok(key) => (key.index, key.index),
            Err(LookupError::Crosses { first, last }) => (first, last),
            Err(error) => return Err(error),
        };
        Ok(Split::new(self, addr, addr + (len - 1), first, last))
    }

    /// Number of MRs; never 0.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a table has one MR at least")]
    pub fn len(&self) -> usize {
        self.inner.index.len()
    }

    /// Address of the first byte of the first MR.
    #[must_use]
    pub fn base(&self) -> u64 {
        self.inner.base
    }

    /// Whether the MRs touch each other from the first to the last.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        self.inner.runs.len() == 1
    }

    /// The `index`-th MR, whole.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Part<L>> {
        let table = &*self.inner;
        let (from, to, keys) = table.index.mr(index)?;
        Some(Part {
            addr: table.base + from,
            len: to - from + 1,
            lkey: keys.lkey,
            rkey: keys.rkey,
            index,
        })
    }

    /// All MRs, in the order of addresses.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Part<L>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }
}

impl<L: Copy> Inner<L> {
    /// The last bytes of a long chunk; else why there is no single MR.
    // `inline`, and all that it calls: then each unit of code that looks up has it, the compiler sees that it only reads, and a
    // loop fetches what it needs of the table once. It is cold, and stays a call.
    #[cold]
    #[inline]
    fn find_at_edge(&self, addr: u64, len: u64) -> Result<Key<L>, LookupError> {
        let offset = addr.wrapping_sub(self.base);
        let more = len.wrapping_sub(1);
        if offset <= self.reach
            && let Some(key) = self.index.at_edge(offset, more)
        {
            return Ok(key);
        }
        Err(self.explain(addr, len))
    }

    /// Why `lookup` found no single MR.
    #[cold]
    #[inline]
    fn explain(&self, addr: u64, len: u64) -> LookupError {
        let Some(more) = len.checked_sub(1) else {
            return LookupError::Empty { addr };
        };
        let Some(last) = addr.checked_add(more) else {
            return LookupError::BeyondEnd { addr, len };
        };
        let at = self.runs.partition_point(|run| run.last < addr);
        let missing = |start: u64, next: Option<&Run>| {
            let before_next = next.map_or(u64::MAX, |run| run.start - 1);
            LookupError::Missing(MissingRange {
                start,
                last: last.min(before_next),
            })
        };
        match self.runs.get(at) {
            Some(run) if run.start <= addr => {
                if last > run.last {
                    return missing(run.last + 1, self.runs.get(at + 1));
                }
                LookupError::Crosses {
                    first: self.index.at_or_after(addr - self.base),
                    last: self.index.at_or_after(last - self.base),
                }
            }
            next => missing(addr, next),
        }
    }
}

impl<L> fmt::Debug for KeyTable<L> {
    /// Short: a table may have millions of MRs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyTable")
            .field("mrs", &self.inner.index.len())
            .field("base", &format_args!("{:#x}", self.inner.base))
            .field("runs", &self.inner.runs.len())
            .finish_non_exhaustive()
    }
}

/// Checks the entries and finds the stretches without a gap.
fn runs<L: Copy>(entries: &[Entry<L>]) -> Result<Vec<Run>, TableError> {
    if entries.len() > MOST_MRS {
        return Err(TableError::TooMany(entries.len()));
    }
    let mut runs: Vec<Run> = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let start = entry.addr;
        let more = entry
            .len
            .checked_sub(1)
            .ok_or(TableError::EmptyMr { index })?;
        let last = start
            .checked_add(more)
            .ok_or(TableError::BeyondEnd { index })?;
        match runs.last_mut() {
            Some(run) if start <= run.last => return Err(disorder(entries, index, last)),
            Some(run) if start - 1 == run.last => run.last = last,
            _ => runs.push(Run { start, last }),
        }
    }
    Ok(runs)
}

/// Which rule the `index`-th entry, which ends at `last`, breaks towards the one before it.
fn disorder<L>(entries: &[Entry<L>], index: usize, last: u64) -> TableError {
    let before = index.saturating_sub(1);
    match entries.get(before) {
        Some(former) if last < former.addr => TableError::Unsorted { index },
        _ => TableError::Overlap {
            first: before,
            second: index,
        },
    }
}

#[cfg(test)]
mod tests;
