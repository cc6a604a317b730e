//! What is missing in which pool for a request, given what is there now.

use super::{Change, ReserveError, ReserveRequest, Spread, pieces};
use crate::ledger::{Entry, claims, persistent};
use crate::pools::Pools;
use crate::root::Root;

/// The changes that are missing for a request, given what is there now.
pub(super) fn changes(
    root: &Root,
    entries: &[Entry],
    request: &ReserveRequest,
    own: Option<u64>,
) -> Result<Vec<Change>, ReserveError> {
    let page = request.page;
    let pools = Pools::read(root);
    let pool = pools.of(page).ok_or_else(|| ReserveError::NoSuchPage {
        page,
        sizes: pools.sizes(),
    })?;
    let unknown = ReserveError::Unknown { page };
    let Some(available) = pool.available() else {
        return Err(unknown);
    };
    let claimed = claims(root, entries, page, None, own);
    let short = request
        .pages
        .saturating_sub(available.saturating_sub(claimed));
    let nodes: Vec<u32> = pools
        .nodes
        .iter()
        .filter(|node| node.pools.iter().any(|pool| pool.page == page))
        .map(|node| node.id)
        .collect();
    if let Spread::Only(node) | Spread::First(node) = request.spread
        && !nodes.contains(&node)
    {
        return Err(ReserveError::NoSuchNode { node, nodes });
    }
    let shares: Vec<(Option<u32>, u64)> = match request.spread {
        _ if !pools.per_node => vec![(None, short)],
        Spread::Even => split(short, &nodes),
        Spread::Pieces(piece) => {
            let free = |node: &u32| pools.on_node(*node, page).map_or(0, |pool| pool.free);
            let free: Vec<(u32, u64)> = nodes.iter().map(|node| (*node, free(node))).collect();
            pieces::missing(request.pages, piece.get(), &free, short)
        }
        Spread::First(node) => vec![(Some(node), short)],
        Spread::Only(node) => {
            // Promises are made for the host: which node keeps them is not known, so the host's count must do too.
            let free = pools.on_node(node, page).map_or(0, |pool| pool.free);
            let claimed = claims(root, entries, page, Some(node), own);
            let here = request.pages.saturating_sub(free.saturating_sub(claimed));
            vec![(Some(node), short.max(here))]
        }
    };
    shares
        .into_iter()
        .filter(|(_, pages)| *pages > 0)
        .map(|(node, pages)| {
            let from = persistent(root, page, node).ok_or(ReserveError::Unknown { page })?;
            let to = from.saturating_add(pages);
            Ok(Change {
                page,
                node,
                from,
                to,
            })
        })
        .collect()
}

/// Splits a number of pages evenly, the rest to the first nodes.
fn split(pages: u64, nodes: &[u32]) -> Vec<(Option<u32>, u64)> {
    let n = (nodes.len() as u64).max(1);
    let share = |i: u64| pages / n + u64::from(i < pages % n);
    nodes
        .iter()
        .zip(0..)
        .map(|(node, i)| (Some(*node), share(i)))
        .collect()
}
