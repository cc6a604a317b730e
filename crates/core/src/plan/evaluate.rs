//! One kind of pages, worked out to the end.

use crate::chunks::{Chunk, Segment};
use crate::device::Device;
use crate::errno::Errno;
use crate::fact::{Fit, Kind, Limit, Source};
use crate::host::Host;
use crate::layout::{self, Rules};
use crate::quirk::{self, Quirk, QuirkState};
use crate::size::{Bytes, PageSize, PageSizes};

use super::answer::{Check, ChunkBound, Code, Plan, Resource, SplitReport, Verdict, shortage};
use super::request::{Leave, Pages, PlanRequest, Split, Wish};
use super::tiling::{NoTiling, PINNABLE, Tiling, tile};

/// A plan, and where it does not fit, the sentence that says why.
pub(super) type Evaluated = (Plan, Option<String>);

/// A stretch of the range with one page size, not cut yet.
struct Piece {
    offset: u64,
    len: u64,
    page: PageSize,
    /// Address of adopted memory, else 0: ours starts on a border.
    addr: u64,
}

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
struct Part {
    tiling: Tiling,
    longest: u64,
    view: View,
    entries: (u64, u64),
    largest: (u64, u64),
    hit: Vec<Quirk>,
}

/// The first, the inner and the last chunk of a segment, as far as there are any, and how many there are of each. Inner
/// ones are equal.
fn kinds(segment: &Segment) -> impl Iterator<Item = (Chunk, u64)> + use<> {
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
struct View {
    page: PageSize,
    /// The same for the first chunk: smaller where its start is what an IOMMU aligns.
    first: PageSize,
    /// The kernel takes no page longer than the MR: what the device offers.
    by_length: Option<PageSizes>,
}

impl View {
    /// Entries of a chunk on pages of at most `page`. The step is a multiple of it, and so it does not matter on which
    /// border the segment lies.
    fn entries(&self, segment: &Segment, chunk: &Chunk, page: PageSize) -> u64 {
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

    /// An IOMMU shows each MR from the start of a block of its own, and so a start within a page makes all its pages
    /// smaller.
    fn view(&self, piece: &Piece, best: PageSize) -> View {
        let cap = self.device.page_size_cap;
        let aligned = PageSize::from_shift(piece.addr.trailing_zeros().clamp(12, 63));
        let aligned = aligned.and_then(|page| cap.largest_at_most(page));
        View {
            page: best,
            first: match aligned {
                Some(page) if self.rules.iommu == Some(true) => page.min(best),
                _ => best,
            },
            by_length: self.rules.block_by_length.then_some(cap),
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
        let huge_pages = huge_pages(pieces);
        let runs = sum(pieces
            .iter()
            .map(|p| layout::entries(p.page, p.addr, p.len)))?;
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

fn sum(mut values: impl Iterator<Item = u64>) -> Option<u64> {
    values.try_fold(0u64, u64::checked_add)
}

/// The range as pieces of one page size, rounded to whole pages; `None` beyond 2^64.
fn pieces(request: &PlanRequest, pages: Pages, host: &Host) -> Option<Vec<Piece>> {
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

fn huge_pages(pieces: &[Piece]) -> Vec<(PageSize, u64)> {
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

fn split_report(request: &PlanRequest, pieces: &[Piece], split: Split) -> Option<SplitReport> {
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

fn fork_hazard(request: &PlanRequest, pieces: &[Piece]) -> Option<Errno> {
    let piece = pieces.first()?;
    let off = |value: u64| !value.is_multiple_of(piece.page.bytes());
    let raw_off = off(piece.addr) || off(piece.addr.wrapping_add(request.wanted()));
    (request.fork.init && !request.fork.hugepages_safe && raw_off && piece.page > PageSize::K4)
        .then_some(Errno::EINVAL)
}

/// The arithmetic, in the order in which a reader wants it; `None` beyond 2^64.
fn checks(
    request: &PlanRequest,
    device: &Device,
    host: &Host,
    plan: &Plan,
    parts: &[Part],
) -> Option<Vec<Check>> {
    let longest = parts.iter().map(|p| p.longest).max()?;
    let mut max_mr_size = request.max_mr_size.map_or_else(
        || device.max_mr_size.clone(),
        |size| Limit::exact(size, Source::new(Kind::Given, "--max-mr-size")),
    );
    if longest > PINNABLE && max_mr_size.fit(longest) != Fit::Over {
        let source = Source::new(Kind::Documented, "Linux pins 2^32 - 1 pages of 4 KiB");
        max_mr_size = Limit::exact(PINNABLE, source);
    }
    let others = sum(request
        .others
        .iter()
        .map(|o| layout::entries(o.page, 0, o.bytes)))?;
    let entries = |n: u64| n.checked_mul(request.pds)?.checked_add(others);
    let check = |resource, need, limit| Check {
        resource,
        need,
        limit,
    };
    let exactly = |n: u64| (n, n);
    let largest = |pick: fn(&Part) -> u64| parts.iter().map(pick).max().unwrap_or(0);
    let mut list = vec![
        check(Resource::MrLength, exactly(longest), Some(max_mr_size)),
        check(
            Resource::MrCount,
            exactly(plan.mrs.checked_mul(request.pds)?),
            Some(device.max_mr.less(device.used.mrs)),
        ),
        check(
            Resource::Entries,
            (entries(plan.entries.0)?, entries(plan.entries.1)?),
            Some(left(
                request.leave,
                &device.entries.less(device.used.entries),
                &device.entries,
            )),
        ),
        check(
            Resource::EntriesPerMr,
            (largest(|p| p.largest.0), largest(|p| p.largest.1)),
            Some(device.entries_per_mr.clone()),
        ),
    ];
    let ours = !matches!(request.wish, Wish::Adopted { .. });
    if ours && plan.pages != Pages::Thp {
        for &(page, count) in &plan.huge_pages {
            let need = exactly(count.checked_mul(request.processes)?);
            let free = host.free_pages(page).map(|free| {
                Limit::exact(
                    free,
                    Source::new(Kind::Documented, "free_hugepages less reserved"),
                )
            });
            list.push(check(Resource::HugePages(page), need, free));
            if let Some(&(_, bytes)) = host.cgroup.iter().find(|(size, _)| *size == page) {
                let limit = Limit::exact(bytes, Source::new(Kind::Documented, "hugetlb cgroup"));
                let need = exactly(count.checked_mul(page.bytes())?);
                list.push(check(Resource::Cgroup(page), need, Some(limit)));
            }
        }
    }
    let memlock = host
        .memlock
        .as_ref()
        .map(|limit| limit.less((host.pinned, Some(host.pinned))));
    list.push(check(Resource::Memlock, exactly(plan.pinned), memlock));
    Some(list)
}

/// What is left of the budget when others are to have their share.
fn left(leave: Leave, free: &Limit, whole: &Limit) -> Limit {
    match leave {
        Leave::Nothing => free.clone(),
        Leave::Entries(n) => free.less((n, Some(n))),
        Leave::PerCent(p) => {
            let share = |n: u64| {
                u64::try_from((u128::from(n) * u128::from(p)).div_ceil(100)).unwrap_or(u64::MAX)
            };
            let most = whole.at_most().map_or(share(whole.certain()), share);
            free.less((share(whole.certain()), Some(most)))
        }
    }
}

/// Fills in the verdict and the first failure; the sentence of a refusal.
fn judge(
    request: &PlanRequest,
    device: &Device,
    rules: &Rules,
    plan: &mut Plan,
    parts: &[Part],
) -> Option<String> {
    let code_of = |resource| match resource {
        Resource::MrLength => Code::TooLong,
        Resource::MrCount => Code::OverMrCount,
        Resource::Entries => Code::OverBudget,
        Resource::EntriesPerMr => Code::OverPerMrEntries,
        Resource::HugePages(_) => Code::HugepageShort,
        Resource::Cgroup(_) => Code::HugetlbCgroup,
        Resource::Memlock => Code::Memlock,
    };
    let refused = |resource: Resource| {
        plan.checks
            .iter()
            .find(|c| c.resource == resource && c.fit() == Fit::Over)
    };
    let structural = refused(Resource::MrLength).or_else(|| refused(Resource::EntriesPerMr));
    let defect = plan.hit.iter().find(|_| !request.ignore_quirks).copied();
    let (code, text) = if let Some(check) = structural {
        (code_of(check.resource), shortage(check))
    } else if let Some(quirk) = defect {
        let longest = parts.iter().map(|p| p.longest).max().unwrap_or(0);
        let why = plan
            .quirks
            .iter()
            .find(|q| q.quirk == quirk)
            .map_or("", |q| q.why.as_str());
        let text = format!(
            "MRs of {} meet a defect ({quirk}: {why}): {}",
            Bytes(longest),
            quirk.effect()
        );
        (Code::Defect(quirk), text)
    } else if let Some(check) = plan.checks.iter().find(|c| c.fit() == Fit::Over) {
        (
            code_of(check.resource),
            small_pages(plan) + &shortage(check),
        )
    } else {
        let undecided = plan.checks.iter().any(|c| c.fit() == Fit::Undecided);
        let beyond = request.max_mr_size.is_some()
            && parts
                .iter()
                .any(|p| device.max_mr_size.fit(p.longest) == Fit::Over);
        plan.verdict = match (undecided, beyond) {
            (true, _) => Verdict::Undecided,
            (false, true) => Verdict::OkOverride,
            (false, false) => Verdict::Fits,
        };
        return None;
    };
    plan.verdict = Verdict::Refused(code);
    plan.first_failure = first_failure(request, device, rules, plan, parts, code);
    Some(text)
}

/// Why large pages do not help, where they do not.
fn small_pages(plan: &Plan) -> String {
    let useless = plan
        .quirks
        .iter()
        .find(|q| q.quirk == Quirk::NoLargePages && q.counts());
    useless
        .filter(|_| !plan.huge_pages.is_empty())
        .map_or_else(String::new, |state| {
            format!("large pages cannot be used here ({}): ", state.why)
        })
}

/// The first MR that the device or its driver would refuse, and with what; counted over all protection domains of one
/// device, one after the other. `None` where it would refuse none: what is to be left for others is no limit of the
/// device.
fn first_failure(
    request: &PlanRequest,
    device: &Device,
    rules: &Rules,
    plan: &Plan,
    parts: &[Part],
    code: Code,
) -> Option<(u64, Errno)> {
    if !matches!(
        code,
        Code::OverBudget
            | Code::OverMrCount
            | Code::TooLong
            | Code::OverPerMrEntries
            | Code::Defect(Quirk::ContiguousTable)
    ) {
        return None;
    }
    let most = |limit: &Limit| limit.at_most().unwrap_or(u64::MAX);
    let dialect = device.family.dialect();
    let longest = most(&device.max_mr_size)
        .max(request.max_mr_size.unwrap_or(0))
        .min(PINNABLE);
    let per_mr = most(&device.entries_per_mr);
    let mrs = most(&device.max_mr.less(device.used.mrs));
    let entries = most(&device.entries.less(device.used.entries));
    let kinds = || {
        let pairs = plan.segments.iter().zip(parts);
        pairs.flat_map(|(segment, part)| {
            kinds(segment).map(|(chunk, many)| {
                (
                    chunk,
                    many,
                    part.view.entries(segment, &chunk, part.view.page),
                )
            })
        })
    };
    // Protection domains for which there is room as a whole.
    let alone = kinds()
        .all(|(chunk, _, need)| chunk.len <= longest && need <= per_mr.min(rules.table_entries));
    let whole = (mrs / plan.mrs.max(1)).min(entries / plan.entries.0.max(1));
    let whole = if alone { whole.min(request.pds) } else { 0 };
    if whole == request.pds {
        return None;
    }
    let (mut index, mut room) = (whole * plan.mrs, entries - whole * plan.entries.0);
    for (chunk, many, need) in kinds() {
        if chunk.len > longest {
            return Some((index, dialect.too_long));
        }
        if need > rules.table_entries {
            return Some((index, Errno::ENOMEM));
        }
        if need > per_mr {
            return Some((index, dialect.over_per_mr));
        }
        let fit = (room / need.max(1)).min(mrs - index);
        if fit < many {
            let full = mrs - index == fit;
            let errno = if full {
                dialect.over_mr_count
            } else {
                dialect.over_budget
            };
            return Some((index + fit, errno));
        }
        (index, room) = (index + many, room - many * need);
    }
    None
}
