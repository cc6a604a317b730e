//! Pages become real piece by piece, in the order of addresses, on several threads at once, so that the first chunk is
//! complete early and its registration overlaps with the chunks behind it.
//!
//! A thread takes the next piece when it is done with the last, across the borders of chunks: no thread waits for
//! another at the end of a chunk. The one that completes a chunk also reads its layout and lets it pass the gate,
//! while the others go on.
//!
//! Where chunks lie on several NUMA nodes, each node is a *lane* of its own. Threads begin in different lanes, so that
//! all nodes clear their memory at the same time, and help out in the others when their own is empty.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hugemr_core::chunks::Chunk;
use hugemr_core::size::{MIB, PageSize};

/// Bytes that a thread takes at a time, at most, unless a page is larger. It bounds how long a cancel waits.
const PIECE: u64 = 64 * MIB;

/// A part of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) chunk: Chunk,
    /// Distance from the start of the memory.
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// The pieces of all chunks, handed out in order within each lane, and the account of what is done.
pub(crate) struct Pieces<C> {
    state: Mutex<State<C>>,
    /// Threads in a lane, when all are at work.
    threads: NonZeroUsize,
}

struct Lane<C> {
    chunks: C,
    /// The chunk that is being handed out, and how much of it was.
    current: Option<(Chunk, u64)>,
}

struct State<C> {
    lanes: Vec<Lane<C>>,
    /// Of chunks that are neither untouched nor complete: bytes that are not done. A few for each thread.
    missing: BTreeMap<u64, u64>,
    done: u64,
}

/// What is done after a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    /// Bytes of all chunks.
    pub(crate) done: u64,
    /// The piece was the last of its chunk.
    pub(crate) completes: bool,
}

impl<C: Iterator<Item = Chunk>> Lane<C> {
    /// The next piece, and whether it begins a chunk.
    fn take(&mut self, threads: NonZeroUsize) -> Option<(Piece, bool)> {
        let (chunk, taken) = match self.current {
            Some(current) => current,
            None => (self.chunks.next()?, 0),
        };
        let len = piece(chunk.len, chunk.page, threads).min(chunk.len - taken);
        let taken_now = taken + len;
        self.current = (taken_now < chunk.len).then_some((chunk, taken_now));
        let piece = Piece {
            chunk,
            offset: chunk.offset + taken,
            len,
        };
        Some((piece, taken == 0))
    }
}

impl<C: Iterator<Item = Chunk>> Pieces<C> {
    pub(crate) fn new(lanes: Vec<C>, threads: NonZeroUsize) -> Self {
        let each = threads.get().div_ceil(lanes.len().max(1));
        let lane = |chunks| Lane {
            chunks,
            current: None,
        };
        Self {
            state: Mutex::new(State {
                lanes: lanes.into_iter().map(lane).collect(),
                missing: BTreeMap::new(),
                done: 0,
            }),
            threads: NonZeroUsize::new(each).unwrap_or(NonZeroUsize::MIN),
        }
    }

    /// The next piece that nobody has taken, of the thread's own lane as long as there is one.
    pub(crate) fn take(&self, thread: usize) -> Option<Piece> {
        let mut state = self.lock();
        let lanes = state.lanes.len();
        let mut order = (0..lanes).map(|step| (thread + step) % lanes);
        let taken = order.find_map(|lane| state.lanes[lane].take(self.threads));
        let (piece, begins) = taken?;
        if begins {
            state.missing.insert(piece.chunk.index, piece.chunk.len);
        }
        Some(piece)
    }

    /// Notes that a piece is done.
    pub(crate) fn done(&self, piece: &Piece) -> Account {
        let mut state = self.lock();
        state.done += piece.len;
        let missing = state.missing.get_mut(&piece.chunk.index);
        let left = missing.map_or(0, |missing| {
            *missing = missing.saturating_sub(piece.len);
            *missing
        });
        if left == 0 {
            state.missing.remove(&piece.chunk.index);
        }
        Account {
            done: state.done,
            completes: left == 0,
        }
    }

    /// Whether every piece was taken and is done.
    pub(crate) fn are_done(&self) -> bool {
        let mut state = self.lock();
        let empty = |lane: &mut Lane<C>| lane.current.is_none() && lane.chunks.next().is_none();
        state.missing.is_empty() && state.lanes.iter_mut().all(empty)
    }

    /// Never held while foreign code runs.
    fn lock(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Length of the pieces of a chunk: whole pages, and each thread has a share of the first chunk.
fn piece(chunk: u64, page: PageSize, threads: NonZeroUsize) -> u64 {
    let share = chunk.div_ceil(threads.get() as u64).min(PIECE);
    share.max(1).next_multiple_of(page.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugemr_core::chunks::Segment;
    use hugemr_core::size::GIB;
    use proptest::prelude::*;

    fn segment(len: u64, chunk: u64, page: PageSize) -> Segment {
        Segment {
            offset: 0,
            len,
            page,
            chunk,
            skew: 0,
            first_index: 0,
        }
    }

    fn chunks(segment: &Segment) -> impl Iterator<Item = Chunk> + '_ {
        (0..segment.count()).filter_map(|i| segment.chunk(i))
    }

    #[test]
    fn each_thread_has_a_share_of_the_first_chunk() {
        let of = |chunk, page, threads| piece(chunk, page, NonZeroUsize::new(threads).unwrap());
        assert_eq!(of(16 * MIB, PageSize::M2, 2), 8 * MIB);
        assert_eq!(of(64 * GIB, PageSize::M2, 2), PIECE);
        assert_eq!(of(2 * MIB, PageSize::M2, 8), 2 * MIB);
        assert_eq!(of(64 * GIB, PageSize::G1, 2), GIB);
    }

    #[test]
    fn threads_begin_in_their_own_lane_and_help_out_in_others() {
        let all = segment(6 * MIB, MIB, PageSize::K4);
        let lane = |of: u64| chunks(&all).filter(move |chunk| chunk.index / 3 == of);
        let two = NonZeroUsize::new(2).unwrap();
        let pieces = Pieces::new(vec![lane(0), lane(1)], two);
        let take = |thread: usize| pieces.take(thread).map(|piece| piece.chunk.index);
        // One thread in a lane: a piece is a chunk.
        assert_eq!([take(0), take(1)], [Some(0), Some(3)]);
        assert_eq!([take(1), take(1), take(1)], [Some(4), Some(5), Some(1)]);
        assert_eq!([take(0), take(0), take(1)], [Some(2), None, None]);
    }

    proptest! {
        #[test]
        fn pieces_cover_every_chunk_in_order_and_the_last_one_done_completes_it(
            pages in 1u64..300,
            chunk_pages in 1u64..70,
            threads in 1usize..9,
            picks in prop::collection::vec(any::<prop::sample::Index>(), 400),
        ) {
            let page = PageSize::M2;
            let segment = segment(pages * page.bytes(), chunk_pages * page.bytes(), page);
            let threads = NonZeroUsize::new(threads).unwrap();
            let pieces = Pieces::new(vec![chunks(&segment)], threads);
            let mut taken = Vec::new();
            while let Some(piece) = pieces.take(taken.len()) {
                let end = taken.last().map_or(0, |last: &Piece| last.offset + last.len);
                prop_assert_eq!(piece.offset, end);
                prop_assert_eq!(piece.len % page.bytes(), 0);
                prop_assert!(piece.offset >= piece.chunk.offset);
                prop_assert!(piece.offset + piece.len <= piece.chunk.offset + piece.chunk.len);
                taken.push(piece);
            }
            prop_assert_eq!(taken.iter().map(|piece| piece.len).sum::<u64>(), segment.len);
            // Done in any order.
            let mut picks = picks.iter().cycle();
            let mut completed = Vec::new();
            let mut done = 0;
            while !taken.is_empty() {
                prop_assert!(!pieces.are_done());
                let piece = taken.swap_remove(picks.next().unwrap().index(taken.len()));
                let account = pieces.done(&piece);
                done += piece.len;
                prop_assert_eq!(account.done, done);
                let open = taken.iter().any(|other| other.chunk.index == piece.chunk.index);
                prop_assert_eq!(account.completes, !open);
                completed.extend(account.completes.then_some(piece.chunk.index));
            }
            completed.sort_unstable();
            prop_assert!(completed.into_iter().eq(0..segment.count()));
            prop_assert!(pieces.are_done());
        }
    }
}
