//! One kind of pages, worked out to the end.

use crate::chunks::{Chunk, Segment};
use crate::device::Device;
use crate::fact::Fit;
use crate::host::Host;
use crate::layout::{self, Rules};
use crate::quirk::{self, Quirk, QuirkState};
use crate::size::{Bytes, PageSize, PageSizes};

use super::answer::{ChunkBound, Code, Plan, Verdict};
use super::judge::{checks, judge};
use super::pieces::{Piece, fork_hazard, huge_pages, pieces, split_report};
use super::request::{Pages, PlanRequest, Wish};
use super::tiling::{NoTiling, Tiling, tile};

/// A plan, and where it does not fit, the sentence that says why.
pub(super) type Evaluated = (Plan, Option<String>);

/// Works out the request with pages that are decided (not `Auto`).
pub(super) fn evaluate(
    request: &PlanRequest,
    pages: Pages,
    device: &Device,
    host: &Host,
) -> Result<Evaluated, NoTiling> {
    let wanted = request.wanted();
    if wanted == 0 || matches!(&request.wish, Wish::Buffers(lens) if lens.contains(&0)) {
        let text = "nothing to register: the size is 0 (ibv_reg_mr refuses length 0)".to_owned();
        return Err(NoTiling {
            code: Code::Empty,
            text,
        });
    }
    let pieces = pieces(request, pages, host).ok_or_else(|| too_big(wanted))?;
    let quirks = quirk::states(&host.platform, device.family);
    let mut work = Work {
        request,
        pages,
        device,
        quirks: &quirks,
        rules: Rules::of(&host.platform, device.family),
        segments: Vec::new(),
        parts: Vec::new(),
    };
    for piece in &pieces {
        work.add(piece, &pieces)?;
    }
    work.finish(&pieces, host).ok_or_else(|| too_big(wanted))
}

fn too_big(wanted: u64) -> NoTiling {
    NoTiling {
        code: Code::TooBig,
        text: format!(
            "{} is more than an address space of 2^64 bytes can take",
            Bytes(wanted)
        ),
    }
}

/// The page size as the device sees it: the largest that it offers, and 4 KiB where the kernel has no choice.
fn seen(device: &Device, quirks: &[QuirkState], page: PageSize) -> Option<PageSize> {
    let no_choice = quirks
        .iter()
        .any(|q| q.quirk == Quirk::NoLargePages && q.counts());
    device
        .page_size_cap
        .largest_at_most(if no_choice { PageSize::K4 } else { page })
}

/// What one segment needs.
pub(super) struct Part {
    tiling: Tiling,
    pub(super) longest: u64,
    pub(super) view: View,
    entries: (u64, u64),
    pub(super) largest: (u64, u64),
    hit: Vec<Quirk>,
}

/// The first, the inner and the last chunk of a segment, as far as there are any, and how many there are of each. Inner
/// ones are equal.
pub(super) fn kinds(segment: &Segment) -> impl Iterator<Item = (Chunk, u64)> + use<> {
    let (segment, count) = (*segment, segment.count());
    let inner = (1, count.saturating_sub(2));
    let last = (count.saturating_sub(1), u64::from(count > 1));
    [(0, count.min(1)), inner, last]
        .into_iter()
        .filter(|(_, many)| *many > 0)
        .filter_map(move |(i, many)| Some((segment.chunk(i)?, many)))
}

/// In which pages the device sees the chunks of a segment, at best.
#[derive(Clone, Copy)]
pub(super) struct View {
    pub(super) page: PageSize,
    /// The same for the first chunk: smaller where its start is what an IOMMU aligns.
    first: PageSize,
    /// Of what the device offers, no page longer than the MR is used: what it offers. Linux 5.2 to 5.8 choose so; and
    /// an IOMMU aligns the block of I/O addresses of an MR to its length rounded up to a power of two, no further.
    by_length: Option<PageSizes>,
}

impl View {
    /// Entries of a chunk on pages of at most `page`. The step is a multiple of it, and so it does not matter on which
    /// border the segment lies.
    pub(super) fn entries(&self, segment: &Segment, chunk: &Chunk, page: PageSize) -> u64 {
        let into = chunk.offset - segment.offset;
        let mut page = if into == 0 {
            page.min(self.first)
        } else {
            page
        };
        if let Some(cap) = self.by_length
            && chunk.len < page.bytes()
        {
            let power = PageSize::new(chunk.len.next_power_of_two());
            let shorter = power.ok().and_then(|power| cap.largest_at_most(power));
            page = shorter.or(cap.smallest()).unwrap_or(page);
        }
        layout::entries(page, segment.skew.saturating_add(into), chunk.len)
    }
}

struct Work<'a> {
    request: &'a PlanRequest,
    pages: Pages,
    device: &'a Device,
    quirks: &'a [QuirkState],
    rules: Rules,
    segments: Vec<Segment>,
    parts: Vec<Part>,
}

impl Work<'_> {
    fn add(&mut self, piece: &Piece, all: &[Piece]) -> Result<(), NoTiling> {
        let (request, device) = (self.request, self.device);
        let best = seen(device, self.quirks, piece.page).ok_or_else(|| NoTiling {
            code: Code::PageUnsupported,
            text: format!("the device offers no page of at most {}", piece.page),
        })?;
        let max_mr = device.max_mr.less(device.used.mrs);
        let too_many = |step: u64, chunk: u64| {
            let count: u64 = all
                .iter()
                .map(|p| p.len.saturating_add(p.addr % step).div_ceil(chunk))
                .fold(0, u64::saturating_add);
            max_mr.fit(count.saturating_mul(request.pds)) == Fit::Over
        };
        // The tiling follows from the page: pieces of one page share it, and many buffers cost no more than one look each.
        let tiling = match (self.segments.last(), self.parts.last()) {
            (Some(before), Some(part)) if before.page == piece.page => part.tiling,
            _ => tile(request, device, self.quirks, piece.page, best, too_many)?,
        };
        let skew = piece.addr % tiling.step;
        let chunk = if request.single {
            skew + piece.len
        } else {
            tiling.chunk
        };
        let first_index = self
            .segments
            .last()
            .map_or(0, |s| s.first_index + s.count());
        let segment = Segment {
            offset: piece.offset,
            len: piece.len,
            page: piece.page,
            chunk,
            skew,
            first_index,
        };
        let view = self.view(piece, best);
        let kinds = || kinds(&segment).map(|(chunk, _)| chunk);
        let longest = kinds().map(|chunk| chunk.len).max().unwrap_or(0);
        let whole = |page| {
            let all = self::kinds(&segment)
                .map(|(chunk, many)| view.entries(&segment, &chunk, page).saturating_mul(many));
            all.fold(0, u64::saturating_add)
        };
        let one = |page| {
            let largest = kinds().map(|chunk| view.entries(&segment, &chunk, page));
            largest.max().unwrap_or(0)
        };
        // Large page sizes make it possible that a shorter chunk, and not the longest, meets a defect.
        let meets = |state: &QuirkState, chunk: Chunk| {
            let entries = view.entries(&segment, &chunk, best);
            let len = match state.quirk {
                // The kernel cuts whole base pages.
                Quirk::ScatterBoundary | Quirk::IommuPadding => layout::entries(
                    PageSize::K4,
                    piece.addr + (chunk.offset - piece.offset),
                    chunk.len,
                )
                .saturating_mul(PageSize::K4.bytes()),
                _ => chunk.len,
            };
            state.can_hit(len, best, entries)
        };
        let hit: Vec<Quirk> = self
            .quirks
            .iter()
            .filter(|state| state.quirk != Quirk::NoLargePages)
            .filter(|state| kinds().any(|chunk| meets(state, chunk)))
            .map(|state| state.quirk)
            .collect();
        let uncertain = self.pages == Pages::Thp || hit.contains(&Quirk::ScatterBoundary);
        let worst = if uncertain { PageSize::K4 } else { best };
        self.parts.push(Part {
            tiling,
            longest,
            view,
            entries: (whole(best), whole(worst)),
            largest: (one(best), one(worst)),
            hit,
        });
        self.segments.push(segment);
        Ok(())
    }

    /// An IOMMU shows each MR from the start of a block of its own, and so a start within a page, or an MR shorter than
    /// a page, makes all its pages smaller. Source: `iommu_dma_alloc_iova`, Linux `drivers/iommu/dma-iommu.c` 6.12.
    fn view(&self, piece: &Piece, best: PageSize) -> View {
        let cap = self.device.page_size_cap;
        let iommu = self.rules.iommu == Some(true);
        let aligned = PageSize::from_shift(piece.addr.trailing_zeros().clamp(12, 63));
        let aligned = aligned.and_then(|page| cap.largest_at_most(page));
        View {
            page: best,
            first: match aligned {
                Some(page) if iommu => page.min(best),
                _ => best,
            },
            by_length: (self.rules.block_by_length || iommu).then_some(cap),
        }
    }

    fn finish(self, pieces: &[Piece], host: &Host) -> Option<Evaluated> {
        let (request, device) = (self.request, self.device);
        let mapped: u64 = sum(pieces.iter().map(|p| p.len))?;
        let mrs = self
            .segments
            .last()
            .map_or(0, |s| s.first_index + s.count());
        let entries = (
            sum(self.parts.iter().map(|p| p.entries.0))?,
            sum(self.parts.iter().map(|p| p.entries.1))?,
        );
        let copies = request.devices.checked_mul(request.pds)?;
        let huge_pages = match self.pages {
            Pages::Thp => Vec::new(),
            _ => huge_pages(pieces),
        };
        // At worst, as the entries: each page of THP can be a small one, and a run of its own.
        let runs = sum(pieces.iter().map(|p| {
            let page = match self.pages {
                Pages::Thp => PageSize::K4,
                _ => p.page,
            };
            layout::entries(page, p.addr, p.len)
        }))?;
        let first = self.parts.first()?;
        let mut hit: Vec<Quirk> = self
            .parts
            .iter()
            .flat_map(|p| p.hit.iter().copied())
            .collect();
        hit.dedup();
        let mut plan = Plan {
            verdict: Verdict::Fits,
            pages: self.pages,
            wanted: request.wanted(),
            mapped,
            step: first.tiling.step,
            chunk: first.longest,
            bound: if mrs == self.segments.len() as u64 {
                ChunkBound::Nothing
            } else {
                first.tiling.bound
            },
            mrs,
            entries,
            huge_pages,
            pinned: mapped.checked_mul(copies)?,
            registrations: mrs.checked_mul(copies)?,
            accounted: mapped.checked_mul(request.processes)?,
            kernel_memory: entries
                .1
                .checked_mul(8)?
                .checked_add(runs.checked_mul(32)?)?
                .checked_mul(copies)?,
            checks: Vec::new(),
            quirks: self.quirks.to_vec(),
            hit,
            first_failure: None,
            alternatives: Vec::new(),
            split: request
                .split
                .map(|split| split_report(request, pieces, split))
                .unwrap_or_default(),
            fork_hazard: fork_hazard(request, pieces),
            segments: Vec::new(),
        };
        plan.checks = checks(request, device, host, &plan, &self.parts)?;
        plan.segments = self.segments;
        let text = judge(request, device, &self.rules, &mut plan, &self.parts);
        Some((plan, text))
    }
}

pub(super) fn sum(mut values: impl Iterator<Item = u64>) -> Option<u64> {
    values.try_fold(0u64, u64::checked_add)
}
