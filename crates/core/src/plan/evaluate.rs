//! One kind of pages, worked out to the end.

use crate::chunks::Segment;
use crate::device::Device;
use crate::errno::Errno;
use crate::fact::{Fit, Kind, Limit, Source};
use crate::host::Host;
use crate::layout;
use crate::quirk::{self, Quirk, QuirkState};
use crate::size::{Bytes, PageSize};

use super::answer::{Check, ChunkBound, Code, Plan, Resource, SplitReport, Verdict, shortage};
use super::request::{Leave, Pages, PlanRequest, Split, Wish};
use super::tiling::{NoTiling, Tiling, tile};

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
    entries: (u64, u64),
    largest: (u64, u64),
    hit: Vec<Quirk>,
}

struct Work<'a> {
    request: &'a PlanRequest,
    pages: Pages,
    device: &'a Device,
    quirks: &'a [QuirkState],
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
        let too_many = |chunk: u64| {
            let count: u64 = all
                .iter()
                .map(|p| p.len.div_ceil(chunk))
                .fold(0, u64::saturating_add);
            max_mr.fit(count.saturating_mul(request.pds)) != Fit::Fits
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
        let longest = chunk.min(piece.len);
        // Borders lie on page borders, so the blocks of all chunks are the blocks of the whole.
        let whole = |page: PageSize| layout::entries(page, skew, piece.len);
        let one = |page: PageSize| {
            let start = if segment.count() > 2 {
                0
            } else {
                skew % page.bytes()
            };
            layout::entries(page, start, longest)
        };
        let hit: Vec<Quirk> = self
            .quirks
            .iter()
            .filter(|state| state.quirk != Quirk::NoLargePages)
            .filter(|state| state.can_hit(longest, best, one(best)))
            .map(|state| state.quirk)
            .collect();
        let uncertain = self.pages == Pages::Thp || hit.contains(&Quirk::ScatterBoundary);
        let worst = if uncertain { PageSize::K4 } else { best };
        self.parts.push(Part {
            tiling,
            longest,
            entries: (whole(best), whole(worst)),
            largest: (one(best), one(worst)),
            hit,
        });
        self.segments.push(segment);
        Ok(())
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
        let text = judge(request, device, &mut plan, &self.parts);
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
    let max_mr_size = request.max_mr_size.map_or_else(
        || device.max_mr_size.clone(),
        |size| Limit::exact(size, Source::new(Kind::Given, "--max-mr-size")),
    );
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
    plan.first_failure = first_failure(device, plan, code);
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

/// The first MR that the device or the kernel would refuse, and with what.
fn first_failure(device: &Device, plan: &Plan, code: Code) -> Option<(u64, Errno)> {
    let errno = code.errno(device)?;
    let index = match code {
        Code::OverBudget => {
            let check = plan.check(Resource::Entries)?;
            let room = check.limit.as_ref()?.at_most()?;
            let one = plan.check(Resource::EntriesPerMr)?.need.0.max(1);
            (room / one).min(plan.mrs.saturating_sub(1))
        }
        Code::OverMrCount => plan.check(Resource::MrCount)?.limit.as_ref()?.at_most()?,
        Code::TooLong | Code::OverPerMrEntries => 0,
        _ => return None,
    };
    Some((index, errno))
}
