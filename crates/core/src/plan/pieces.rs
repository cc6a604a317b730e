//! The wish as stretches of one page size, before it is cut into MRs.

use crate::errno::Errno;
use crate::host::Host;
use crate::layout;
use crate::size::PageSize;

use super::answer::SplitReport;
use super::request::{Pages, PlanRequest, Split, Wish};

/// A stretch of the range with one page size, not cut yet.
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) page: PageSize,
    /// Address of adopted memory, else 0: ours starts on a border.
    pub(super) addr: u64,
}

/// The range as pieces of one page size, rounded to whole pages; `None` beyond 2^64.
pub(super) fn pieces(request: &PlanRequest, pages: Pages, host: &Host) -> Option<Vec<Piece>> {
    let page = match pages {
        Pages::Only(page) => page,
        Pages::Thp => PageSize::M2,
        Pages::Auto | Pages::Mixed => return mixed(request, host),
    };
    let mut align = page.bytes();
    if let Some(split) = request.split.filter(|split| split.align) {
        align = align.checked_mul(split.pieces.max(1))?;
    }
    let one = |offset, len: u64| {
        let len = len.checked_next_multiple_of(align)?;
        Some(Piece {
            offset,
            len,
            page,
            addr: 0,
        })
    };
    match &request.wish {
        Wish::Total(len) => Some(vec![one(0, *len)?]),
        Wish::Adopted { addr, len } => {
            addr.checked_add(*len)?;
            Some(vec![Piece {
                offset: 0,
                len: *len,
                page,
                addr: *addr,
            }])
        }
        Wish::Buffers(lens) => {
            let mut offset = 0u64;
            let mut list = Vec::with_capacity(lens.len());
            for len in lens {
                let piece = one(offset, *len)?;
                offset = offset.checked_add(piece.len)?;
                list.push(piece);
            }
            Some(list)
        }
    }
}

/// The largest pages first, as many as are free (or as go in, where the pools were not read), then 2 MiB.
fn mixed(request: &PlanRequest, host: &Host) -> Option<Vec<Piece>> {
    let mut rest = request
        .wanted()
        .checked_next_multiple_of(PageSize::M2.bytes())?;
    let whole = rest / PageSize::G1.bytes();
    let giant = host
        .free_pages(PageSize::G1)
        .map_or(whole, |free| free.min(whole));
    let mut list = Vec::new();
    let mut offset = 0;
    if giant > 0 {
        let len = giant * PageSize::G1.bytes();
        list.push(Piece {
            offset,
            len,
            page: PageSize::G1,
            addr: 0,
        });
        (offset, rest) = (len, rest - len);
    }
    if rest > 0 {
        list.push(Piece {
            offset,
            len: rest,
            page: PageSize::M2,
            addr: 0,
        });
    }
    Some(list)
}

pub(super) fn huge_pages(pieces: &[Piece]) -> Vec<(PageSize, u64)> {
    let mut list: Vec<(PageSize, u64)> = Vec::new();
    for piece in pieces.iter().filter(|p| p.page > PageSize::K64) {
        let count = layout::entries(piece.page, piece.addr, piece.len);
        match list.iter_mut().find(|(page, _)| *page == piece.page) {
            Some((_, sum)) => *sum += count,
            None => list.push((piece.page, count)),
        }
    }
    list
}

pub(super) fn split_report(
    request: &PlanRequest,
    pieces: &[Piece],
    split: Split,
) -> Option<SplitReport> {
    let (page, n) = (pieces.first()?.page, split.pieces.max(1));
    let mapping_align = page.bytes().checked_mul(n)?;
    let whole_pages = request.wanted().checked_next_multiple_of(page.bytes())?;
    let piece = whole_pages / n;
    Some(SplitReport {
        piece,
        aligned: whole_pages.is_multiple_of(n) && piece.is_multiple_of(page.bytes()),
        aligned_mapping: request.wanted().checked_next_multiple_of(mapping_align)?,
        mapping_align,
    })
}

pub(super) fn fork_hazard(request: &PlanRequest, pieces: &[Piece]) -> Option<Errno> {
    let piece = pieces.first()?;
    let off = |value: u64| !value.is_multiple_of(piece.page.bytes());
    let raw_off = off(piece.addr) || off(piece.addr.wrapping_add(request.wanted()));
    (request.fork.init && !request.fork.hugepages_safe && raw_off && piece.page > PageSize::K4)
        .then_some(Errno::EINVAL)
}
