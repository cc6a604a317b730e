//! Which NUMA node each chunk of a plan lies on: whole chunks, so that none straddles two nodes.
//!
//! A chunk on two nodes costs no entries, but every transfer over it crosses the link between the nodes for one half, and
//! nobody can say for which. So the range is cut into stretches of whole chunks, each on one node, that of the device first.

use crate::chunks::Segment;
use crate::host::Node;
use crate::size::{Bytes, Count, Grouped, PageSize, plural};

/// Where pages shall lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Nodes {
    /// As the kernel gives them.
    #[default]
    Any,
    /// Whole chunks on one node each: this node first (the device's), where one is named, then the others.
    Whole(Option<u32>),
    /// All on this node.
    Only(u32),
    /// Page by page on all nodes that have pages of that size in turn: chunks straddle.
    Interleave,
}

/// Neighbouring chunks with the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Distance from the start of the planned range, bytes.
    pub offset: u64,
    /// Length, bytes.
    pub len: u64,
    /// Page size.
    pub page: PageSize,
    /// Where.
    pub place: Place,
}

/// Where the pages of a stretch shall lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Anywhere.
    Any,
    /// On this node.
    On(u32),
    /// On these in turn.
    Interleaved(Vec<u32>),
}

/// Chunks that no node can hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// There is no such node, or it has no pool of that size.
    #[error(
        "NUMA node {node} has no pool of {page} pages (nodes that have one: {})",
        list(nodes)
    )]
    NoSuchNode {
        /// Asked for.
        node: u32,
        /// Page size.
        page: PageSize,
        /// Nodes that have one.
        nodes: Vec<u32>,
    },
    /// One node has too few free pages.
    #[error("NUMA node {node} has {} of {page}, {} {} needed", Count(*free, "free huge page"), Grouped(*need), plural(*need, "is", "are"))]
    Short {
        /// The node.
        node: u32,
        /// Page size.
        page: PageSize,
        /// Pages needed.
        need: u64,
        /// Pages free.
        free: u64,
    },
    /// The nodes have enough pages together, but not for whole chunks.
    #[error(
        "an MR would straddle two NUMA nodes: {} of {} of {} find a node with so many free {page} pages ({}){}; \
         or let MRs straddle with --interleave",
        Grouped(*placed), Count(*chunks, "chunk"), Bytes(*chunk), counts(free),
        fits.map_or_else(String::new, |fits| format!("; --chunk {} would fit", Bytes(fits).argument()))
    )]
    Straddles {
        /// Page size.
        page: PageSize,
        /// Length of a chunk, bytes.
        chunk: u64,
        /// Chunks that found a place.
        placed: u64,
        /// Chunks there are.
        chunks: u64,
        /// Free pages by node.
        free: Vec<(u32, u64)>,
        /// Length of a chunk with which it would fit, bytes.
        fits: Option<u64>,
    },
}

fn list(nodes: &[u32]) -> String {
    let names: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

fn counts(free: &[(u32, u64)]) -> String {
    let text = |(node, pages): &(u32, u64)| format!("node{node} {}", Grouped(*pages));
    free.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// Places the chunks of all segments. Pages that a stretch takes are not free for the next.
///
/// # Errors
/// See [`PlaceError`].
pub fn place(
    segments: &[Segment],
    nodes: &[Node],
    wish: Nodes,
) -> Result<Vec<Stretch>, PlaceError> {
    // With one node there is nothing to choose, and a policy would only be in the way.
    if wish == Nodes::Any || nodes.len() < 2 && !matches!(wish, Nodes::Only(_)) {
        return Ok(segments.iter().map(|s| whole(s, Place::Any)).collect());
    }
    let mut taken: Vec<(u32, PageSize, u64)> = Vec::new();
    let mut stretches = Vec::new();
    for segment in segments {
        let free = free(nodes, segment.page, &taken);
        let new = match wish {
            Nodes::Any => vec![whole(segment, Place::Any)],
            Nodes::Interleave => {
                let having = free.iter().filter(|(_, free)| *free > 0);
                let ids: Vec<u32> = having.map(|(node, _)| *node).collect();
                // Where no node has a page, the mapping says how many are short.
                let place = if ids.is_empty() {
                    Place::Any
                } else {
                    Place::Interleaved(ids)
                };
                vec![whole(segment, place)]
            }
            Nodes::Only(node) => vec![only(segment, node, &free)?],
            Nodes::Whole(first) => in_order(segment, first, &free)?,
        };
        for stretch in &new {
            if let Place::On(node) = stretch.place {
                taken.push((node, segment.page, stretch.len / segment.page.bytes()));
            }
        }
        stretches.extend(new);
    }
    Ok(stretches)
}

fn whole(segment: &Segment, place: Place) -> Stretch {
    Stretch {
        offset: segment.offset,
        len: segment.len,
        page: segment.page,
        place,
    }
}

/// Free pages of that size by node, less those that are taken.
fn free(nodes: &[Node], page: PageSize, taken: &[(u32, PageSize, u64)]) -> Vec<(u32, u64)> {
    let of = |node: &Node| {
        let pool = node.pools.iter().find(|pool| pool.page == page)?;
        let used = taken
            .iter()
            .filter(|(id, size, _)| *id == node.id && *size == page);
        let used: u64 = used.map(|(_, _, pages)| pages).sum();
        Some((node.id, pool.free.saturating_sub(used)))
    };
    nodes.iter().filter_map(of).collect()
}

fn only(segment: &Segment, node: u32, free: &[(u32, u64)]) -> Result<Stretch, PlaceError> {
    let page = segment.page;
    let need = page.pages_for(segment.len);
    match free.iter().find(|(id, _)| *id == node) {
        None => Err(PlaceError::NoSuchNode {
            node,
            page,
            nodes: free.iter().map(|(id, _)| *id).collect(),
        }),
        Some((_, free)) if *free < need => Err(PlaceError::Short {
            node,
            page,
            need,
            free: *free,
        }),
        Some(_) => Ok(whole(segment, Place::On(node))),
    }
}

/// Whole chunks on the first node as far as it has pages, then on the next.
///
/// All chunks are equal but the last, which is shorter. As many full ones as there are fit exactly where the sum of what each
/// node can hold says so, in whatever order they are placed; the short one then goes where room is left.
fn in_order(
    segment: &Segment,
    first: Option<u32>,
    free: &[(u32, u64)],
) -> Result<Vec<Stretch>, PlaceError> {
    let page = segment.page;
    let chunks = segment.count();
    let cost = page.pages_for(segment.chunk).max(1);
    let last = segment.chunk(chunks.saturating_sub(1));
    let last_cost = last.map_or(0, |chunk| page.pages_for(chunk.len));
    let short_last = u64::from(last_cost < cost);
    let full = chunks - short_last;
    let mut order = free.to_vec();
    order.sort_by_key(|(node, _)| (Some(*node) != first, *node));
    // By node: chunks that it takes, in the order of the range.
    let mut takes: Vec<(u32, u64)> = Vec::new();
    let mut left = full;
    for (node, pages) in &mut order {
        let n = left.min(*pages / cost);
        left -= n;
        *pages -= n * cost;
        takes.push((*node, n));
    }
    if left == 0 && short_last == 1 {
        // On the node of its neighbour, if it has room.
        let neighbour = takes.iter().rposition(|(_, n)| *n > 0).unwrap_or(0);
        let fits = |i: &usize| order.get(*i).is_some_and(|(_, pages)| *pages >= last_cost);
        let at = Some(neighbour)
            .filter(fits)
            .or_else(|| (0..order.len()).find(fits));
        match at {
            Some(i) => takes.push((order[i].0, 1)),
            None => left = 1,
        }
    } else {
        left += short_last;
    }
    if left > 0 {
        return Err(PlaceError::Straddles {
            page,
            chunk: segment.chunk,
            placed: chunks - left,
            chunks,
            free: free.to_vec(),
            fits: smaller(segment, free),
        });
    }
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut at = 0;
    for (node, n) in takes.into_iter().filter(|(_, n)| *n > 0) {
        let border = |i: u64| {
            segment
                .chunk(i)
                .map_or(segment.offset + segment.len, |c| c.offset)
        };
        let (start, end) = (border(at), border(at + n));
        at += n;
        match stretches.last_mut() {
            Some(last) if last.place == Place::On(node) => last.len += end - start,
            _ => stretches.push(Stretch {
                offset: start,
                len: end - start,
                page,
                place: Place::On(node),
            }),
        }
    }
    Ok(stretches)
}

/// A half, a quarter, ... of the chunk with which whole ones fit: of whole pages still.
fn smaller(segment: &Segment, free: &[(u32, u64)]) -> Option<u64> {
    let page = segment.page.bytes();
    let halves = std::iter::successors(Some(segment.chunk / 2), |chunk| Some(chunk / 2));
    let whole = halves
        .take_while(|chunk| *chunk >= page)
        .filter(|chunk| chunk.is_multiple_of(page));
    whole.into_iter().find(|chunk| {
        let room: u64 = free.iter().map(|(_, pages)| pages / (chunk / page)).sum();
        room >= segment.len.div_ceil(*chunk)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HugePool;
    use crate::size::{GIB, MIB};
    use proptest::prelude::*;

    fn node(id: u32, free: u64) -> Node {
        let pool = HugePool {
            page: PageSize::M2,
            total: free,
            free,
            surplus: 0,
        };
        Node {
            id,
            pools: vec![pool],
            ..Node::default()
        }
    }

    fn segment(len: u64, chunk: u64) -> Segment {
        Segment {
            offset: 0,
            len,
            page: PageSize::M2,
            chunk,
            skew: 0,
            first_index: 0,
        }
    }

    fn on(offset: u64, len: u64, node: u32) -> Stretch {
        Stretch {
            offset,
            len,
            page: PageSize::M2,
            place: Place::On(node),
        }
    }

    #[test]
    fn the_device_s_node_comes_first() {
        let nodes = [node(0, 100), node(1, 100)];
        let all = segment(256 * MIB, 64 * MIB);
        assert_eq!(
            place(&[all], &nodes, Nodes::Whole(Some(1))).unwrap(),
            [on(0, 192 * MIB, 1), on(192 * MIB, 64 * MIB, 0)]
        );
        assert_eq!(
            place(&[all], &nodes, Nodes::Whole(None)).unwrap(),
            [on(0, 192 * MIB, 0), on(192 * MIB, 64 * MIB, 1)]
        );
        // What the first segment has taken is not there for the second.
        let second = Segment {
            offset: 256 * MIB,
            first_index: 4,
            ..segment(64 * MIB, 64 * MIB)
        };
        let both = place(&[all, second], &nodes, Nodes::Whole(Some(1))).unwrap();
        assert_eq!(both[2], on(256 * MIB, 64 * MIB, 0));
    }

    #[test]
    fn what_would_straddle_is_refused_with_a_way_out() {
        let nodes = [node(0, 48), node(1, 48)];
        let error = place(
            &[segment(192 * MIB, 64 * MIB)],
            &nodes,
            Nodes::Whole(Some(0)),
        )
        .unwrap_err();
        assert!(
            matches!(error, PlaceError::Straddles { placed: 2, chunks: 3, fits: Some(f), .. } if f == 32 * MIB)
        );
        let text = error.to_string();
        assert!(
            text.contains("--chunk 32MiB") && text.contains("node0 48, node1 48"),
            "{text}"
        );
    }

    #[test]
    fn one_node_only() {
        let nodes = [node(0, 48), node(1, 10)];
        let all = segment(64 * MIB, 64 * MIB);
        assert_eq!(
            place(&[all], &nodes, Nodes::Only(0)).unwrap(),
            [on(0, 64 * MIB, 0)]
        );
        let error = place(&[all], &nodes, Nodes::Only(1)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "NUMA node 1 has 10 free huge pages of 2 MiB, 32 are needed"
        );
        let error = place(&[all], &nodes, Nodes::Only(7)).unwrap_err();
        assert!(
            error.to_string().contains("nodes that have one: 0, 1"),
            "{error}"
        );
    }

    #[test]
    fn one_node_needs_no_policy() {
        let all = place(&[segment(GIB, GIB)], &[node(0, 1)], Nodes::Whole(Some(0))).unwrap();
        assert_eq!(all[0].place, Place::Any);
    }

    proptest! {
        /// Stretches tile the range, hold whole chunks, and no node gives more than it has; and what is refused could not
        /// have been placed.
        #[test]
        fn whole_chunks_on_one_node_each(
            free in proptest::collection::vec(0u64..60, 2..5),
            chunk in 1u64..20,
            pages in 1u64..120,
            first in proptest::option::of(0u32..5),
        ) {
            let nodes: Vec<Node> = (0..).zip(&free).map(|(id, free)| node(id, *free)).collect();
            let size = PageSize::M2.bytes();
            let all = segment(pages * size, chunk * size);
            match place(&[all], &nodes, Nodes::Whole(first)) {
                Ok(stretches) => {
                    let mut at = 0;
                    let mut used = vec![0; free.len()];
                    for s in &stretches {
                        prop_assert_eq!(s.offset, at);
                        prop_assert!(s.offset.is_multiple_of(all.chunk));
                        let Place::On(node) = s.place else { panic!("{s:?}") };
                        used[node as usize] += s.len / size;
                        at += s.len;
                    }
                    prop_assert_eq!(at, all.len);
                    prop_assert!(used.iter().zip(&free).all(|(used, free)| used <= free));
                }
                Err(PlaceError::Straddles { fits, .. }) => {
                    let room: u64 = free.iter().map(|free| free / chunk).sum();
                    let rest = pages % chunk;
                    let left_for_rest = free.iter().any(|free| free % chunk >= rest) || room > pages / chunk;
                    prop_assert!(room < pages / chunk || rest > 0 && !left_for_rest);
                    if let Some(fits) = fits {
                        let again = segment(all.len, fits);
                        prop_assert!(place(&[again], &nodes, Nodes::Whole(first)).is_ok());
                    }
                }
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }
}
