//! How many pages each node lacks so that every MR finds a node that holds all of it.

/// Pages to add, by node, so that `pages` pages in pieces of `piece` (the last one may be shorter) find a place, each piece on
/// one node. What the nodes have is used first; what is missing comes evenly. At least `short` pages in all.
pub(super) fn missing(
    pages: u64,
    piece: u64,
    free: &[(u32, u64)],
    short: u64,
) -> Vec<(Option<u32>, u64)> {
    let piece = piece.clamp(1, pages.max(1));
    let (full, rest) = (pages / piece, pages % piece);
    let held: u64 = free.iter().map(|(_, free)| free / piece).sum();
    let lacking = full.saturating_sub(held);
    let n = (free.len() as u64).max(1);
    let mut adds: Vec<u64> = free
        .iter()
        .zip(0..)
        .map(|((_, free), i)| {
            let pieces = lacking / n + u64::from(i < lacking % n);
            // The odd pages that are there already are part of the first piece.
            (pieces * piece).saturating_sub(if pieces > 0 { free % piece } else { 0 })
        })
        .collect();
    // Where a node holds a piece more than is needed, the rest goes there.
    if rest > 0 && held <= full {
        let odd = |i: usize| if adds[i] > 0 { 0 } else { free[i].1 % piece };
        let best = (0..free.len()).max_by_key(|i| odd(*i));
        if let Some(i) = best {
            adds[i] += rest.saturating_sub(odd(i));
        }
    }
    // Pages that are free but promised to others are no one's here.
    let sum: u64 = adds.iter().sum();
    if let Some(last) = adds.last_mut() {
        *last += short.saturating_sub(sum);
    }
    let nodes = free.iter().map(|(node, _)| Some(*node));
    nodes.zip(adds).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn adds(pages: u64, piece: u64, free: &[u64]) -> Vec<u64> {
        let free: Vec<(u32, u64)> = (0..).zip(free.iter().copied()).collect();
        let adds = missing(pages, piece, &free, 0);
        adds.into_iter().map(|(_, pages)| pages).collect()
    }

    #[test]
    fn what_is_there_is_used() {
        assert_eq!(adds(96, 32, &[0, 0]), [64, 32]);
        assert_eq!(adds(80, 16, &[3, 5]), [45, 27]);
        assert_eq!(adds(80, 16, &[80, 0]), [0, 0]);
        // Odd pages of both would be enough, but no piece would fit.
        assert_eq!(adds(16, 16, &[8, 8]), [8, 0]);
        assert_eq!(adds(40, 32, &[32, 3]), [0, 5]);
    }

    proptest! {
        /// Afterwards the pieces fit, nothing more is missing, and no node was raised for more than it takes.
        #[test]
        fn the_pieces_fit_afterwards(
            pages in 1u64..200,
            piece in 1u64..50,
            free in proptest::collection::vec(0u64..80, 1..5),
        ) {
            let adds = adds(pages, piece, &free);
            let now: Vec<u64> = free.iter().zip(&adds).map(|(free, add)| free + add).collect();
            let piece = piece.min(pages);
            let (full, rest) = (pages / piece, pages % piece);
            let held: u64 = now.iter().map(|now| now / piece).sum();
            prop_assert!(held >= full);
            prop_assert!(held > full || rest == 0 || now.iter().any(|now| now % piece >= rest));
            prop_assert!(self::adds(pages, piece, &now).iter().all(|add| *add == 0));
            prop_assert!(adds.iter().sum::<u64>() <= pages);
        }
    }
}
