//! Which pages, what else would do, and how much would fit.

use crate::device::Device;
use crate::fact::Limit;
use crate::host::Host;
use crate::quirk::Quirk;
use crate::size::PageSize;

use super::answer::{Alternative, Code, MaxFit, Plan, Refusal, Resource, Verdict, WayOut};
use super::evaluate::{Evaluated, evaluate};
use super::judge::free;
use super::request::{Leave, Pages, PlanRequest, Wish};
use super::tiling::{NoTiling, lcm, longest_mr, usable};

/// Plans a request.
///
/// With [`Pages::Auto`] the huge pages are taken with which it fits: 2 MiB before 1 GiB before both mixed; what was
/// passed over is in [`Plan::alternatives`]. It never falls back to 4 KiB pages by itself.
///
/// # Errors
/// A [`Refusal`] where the plan does not fit. It names the limit, the need, what is available, the largest size that
/// would fit and the ways out, and holds the plan that would be carried out by force.
pub fn plan(request: &PlanRequest, device: &Device, host: &Host) -> Result<Plan, Box<Refusal>> {
    let mut results: Vec<(Pages, Result<Evaluated, NoTiling>)> = candidates(request, host)
        .map(|pages| (pages, evaluate(request, pages, device, host)))
        .collect();
    let rank = |result: &Result<Evaluated, NoTiling>| match result {
        Ok((plan, _)) => match plan.verdict {
            Verdict::Fits | Verdict::OkOverride => 0,
            Verdict::Undecided => 1,
            Verdict::Refused(_) => 2,
        },
        Err(_) => 3,
    };
    let best = (0..results.len())
        .min_by_key(|i| rank(&results[*i].1))
        .unwrap_or(0);
    let passed_over: Vec<Alternative> = results
        .iter()
        .enumerate()
        .filter(|(i, _)| *i != best)
        .filter_map(|(_, (pages, result))| Some(alternative(*pages, &result.as_ref().ok()?.0)))
        .collect();
    let (pages, result) = results.swap_remove(best);
    match result {
        Ok((mut plan, None)) => {
            plan.alternatives = passed_over;
            Ok(plan)
        }
        Ok((mut plan, Some(text))) => {
            plan.alternatives = passed_over;
            Err(Box::new(refuse(request, device, host, plan, text)))
        }
        Err(no) => Err(Box::new(Refusal {
            errno: no.code.errno(device),
            ways_out: lead_out(
                ways_without_tiling(request, device, pages, no.code),
                (request, device, host),
            ),
            code: no.code,
            text: no.text,
            max_fit: None,
            plan: None,
        })),
    }
}

/// Kinds of pages that are worked out for a request.
fn candidates<'a>(request: &'a PlanRequest, host: &'a Host) -> impl Iterator<Item = Pages> + 'a {
    let list: &[Pages] = match request.pages {
        Pages::Auto => &[
            Pages::Only(PageSize::M2),
            Pages::Only(PageSize::G1),
            Pages::Mixed,
        ],
        ref decided => std::slice::from_ref(decided),
    };
    // Pools of both sizes are only mixed where they were read and neither is enough alone.
    let apart = move |pages: &Pages| {
        *pages != Pages::Mixed || list.len() == 1 || mixing_helps(request, host)
    };
    list.iter().copied().filter(apart)
}

/// The ways that are not refused in their turn: each that changes the request is planned. Where the chunk that was asked
/// for is in the way and no other one is found, the planner's own is.
fn lead_out(ways: Vec<WayOut>, asked: (&PlanRequest, &Device, &Host)) -> Vec<WayOut> {
    let (request, device, host) = asked;
    let first = |way: &WayOut| {
        let changed = way.applied(request)?;
        candidates(&changed, host).find_map(|pages| {
            let (plan, refused) = evaluate(&changed, pages, device, host).ok()?;
            refused.is_none().then_some(plan)
        })
    };
    let mut ways: Vec<WayOut> = ways
        .into_iter()
        .filter(|way| way.applied(request).is_none() || first(way).is_some())
        .collect();
    let chunks = |way: &WayOut| matches!(way, WayOut::LongerChunks(_) | WayOut::ShorterChunks(_));
    if (request.chunk.is_some() || request.single)
        && !ways.iter().any(chunks)
        && let Some(plan) = first(&WayOut::OwnChunks(0))
    {
        ways.insert(0, WayOut::OwnChunks(plan.chunk));
    }
    ways
}

fn mixing_helps(request: &PlanRequest, host: &Host) -> bool {
    let some_giant = host.free_pages(PageSize::G1).is_some_and(|free| free > 0);
    some_giant && request.block.is_none() && matches!(request.wish, Wish::Total(_))
}

fn alternative(pages: Pages, plan: &Plan) -> Alternative {
    Alternative {
        pages,
        verdict: plan.verdict,
        mrs: plan.mrs,
        entries: plan.entries,
        chunk: plan.chunk,
        huge_pages: plan.huge_pages.clone(),
    }
}

fn refuse(
    request: &PlanRequest,
    device: &Device,
    host: &Host,
    plan: Plan,
    text: String,
) -> Refusal {
    let code = plan.verdict.refused().unwrap_or(Code::TooLong);
    let max_fit = max_fit(request, plan.pages, device, host);
    let ways = ways_out(request, device, host, &plan, max_fit);
    let no_pool = plan
        .huge_pages
        .iter()
        .find(|(page, _)| !host.may_have_pool(*page));
    Refusal {
        code,
        text: match no_pool {
            Some((page, _)) if code == Code::HugepageShort => {
                format!("this host has no pool of huge pages of {page}")
            }
            _ => text,
        },
        // Entries that are only kept for others are there: the device would take every MR of the plan.
        errno: (code != Code::OverBudget || plan.first_failure.is_some())
            .then(|| code.errno(device))
            .flatten(),
        ways_out: lead_out(ways, (request, device, host)),
        max_fit: Some(max_fit),
        plan: Some(Box::new(plan)),
    }
}

/// The largest size, bytes, that fits with those pages (not [`Pages::Auto`]): certainly, and at most. Everything else
/// stays as requested; several buffers count as one range of their total.
#[must_use]
pub fn max_fit(request: &PlanRequest, pages: Pages, device: &Device, host: &Host) -> MaxFit {
    let unit = match (pages, &request.wish) {
        (_, Wish::Adopted { .. }) => 1,
        (Pages::Only(page), _) => page.bytes(),
        _ => PageSize::M2.bytes(),
    };
    let verdict = |units: u64| {
        let mut smaller = request.clone();
        let len = units * unit;
        smaller.wish = match request.wish {
            Wish::Adopted { addr, .. } => Wish::Adopted { addr, len },
            _ => Wish::Total(len),
        };
        evaluate(&smaller, pages, device, host)
            .map_or(Verdict::Refused(Code::TooBig), |(p, _)| p.verdict)
    };
    let top = (u64::MAX / 2) / unit;
    let fits = |units| matches!(verdict(units), Verdict::Fits | Verdict::OkOverride);
    let possible = |units| verdict(units).refused().is_none();
    let largest = |holds: &dyn Fn(u64) -> bool| {
        if pages != Pages::Mixed {
            return largest(0, top, holds);
        }
        // One page of 1 GiB takes less than 511 of 2 MiB: whole ones first, and then the rest.
        let giant = PageSize::G1.bytes() / unit;
        let whole = giant * largest(0, top / giant, |giants| holds(giants * giant));
        largest(whole, whole + (giant - 1), holds)
    };
    let most = largest(&possible);
    MaxFit {
        certain: largest(&fits) * unit,
        at_most: (most < top).then_some(most * unit),
    }
}

/// The largest number between `least` and `top` for which `holds`, which is monotone; `least` where none does.
fn largest(least: u64, top: u64, holds: impl Fn(u64) -> bool) -> u64 {
    if holds(top) {
        return top;
    }
    let (mut low, mut high) = (least, top);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

fn ways_out(
    request: &PlanRequest,
    device: &Device,
    host: &Host,
    plan: &Plan,
    max_fit: MaxFit,
) -> Vec<WayOut> {
    let mut ways = Vec::new();
    let other_pages = |ways: &mut Vec<WayOut>| {
        if matches!(request.wish, Wish::Adopted { .. }) {
            return;
        }
        for pages in [PageSize::M2, PageSize::G1]
            .map(Pages::Only)
            .into_iter()
            .chain([Pages::Thp])
        {
            if pages == plan.pages {
                continue;
            }
            if let Ok((other, None)) = evaluate(request, pages, device, host)
                && (pages != Pages::Thp || other.verdict == Verdict::Fits)
            {
                ways.push(WayOut::Pages(alternative(pages, &other)));
            }
        }
    };
    match plan.verdict.refused() {
        Some(code @ (Code::OverBudget | Code::OverPerMrEntries)) => {
            if code == Code::OverBudget && request.leave != Leave::Nothing {
                ways.extend(less_left(device, plan).map(WayOut::Leave));
            }
            other_pages(&mut ways);
            for state in plan
                .quirks
                .iter()
                .filter(|q| q.quirk == Quirk::NoLargePages && q.counts())
            {
                ways.push(WayOut::Lift(state.quirk, state.lifted_by));
            }
        }
        Some(Code::OverMrCount) => {
            let room = plan
                .check(Resource::MrCount)
                .and_then(|c| c.limit.as_ref())
                .map_or(1, |limit| (usable(limit) / request.pds.max(1)).max(1));
            let least = plan.mapped.div_ceil(room);
            if let Some(chunk) = least.checked_next_multiple_of(plan.step)
                && longest_mr(request, device) >= chunk
            {
                ways.push(WayOut::LongerChunks(chunk));
            }
            other_pages(&mut ways);
        }
        Some(Code::TooLong) => {
            let limit = longest_mr(request, device);
            ways.push(WayOut::ShorterChunks(
                limit - limit % plan.step.min(limit.max(1)),
            ));
        }
        Some(Code::Defect(quirk)) => {
            let mut open = request.clone();
            (open.chunk, open.single) = (None, false);
            if let Ok((other, None)) = evaluate(&open, plan.pages, device, host) {
                ways.push(WayOut::ShorterChunks(other.chunk));
            }
            if quirk == Quirk::WireLength && plan.pages != Pages::Only(PageSize::M2) {
                other_pages(&mut ways);
            }
            if let Some(state) = plan.quirks.iter().find(|q| q.quirk == quirk) {
                ways.push(WayOut::Lift(quirk, state.lifted_by));
            }
        }
        Some(Code::HugepageShort) => {
            for check in &plan.checks {
                if let Resource::HugePages(page) = check.resource {
                    let have = check.limit.as_ref().map_or(u64::MAX, Limit::certain);
                    let short = check.need.0.saturating_sub(have);
                    if short > 0 && host.may_have_pool(page) {
                        ways.push(WayOut::Reserve {
                            page,
                            short,
                            need: check.need.0,
                        });
                    }
                }
            }
            other_pages(&mut ways);
            let base = Pages::Only(PageSize::K4);
            if plan.pages != base
                && let Ok((other, None)) = evaluate(request, base, device, host)
            {
                ways.push(WayOut::Pages(alternative(base, &other)));
            }
        }
        Some(Code::MemoryShort) => other_pages(&mut ways),
        Some(Code::Memlock) => ways.push(WayOut::Memlock(plan.pinned.saturating_add(host.pinned))),
        _ => {}
    }
    if max_fit.certain > 0 && max_fit.certain < plan.wanted {
        ways.push(WayOut::Smaller(max_fit.certain));
    }
    ways
}

/// The most entries that can be left free beside the plan: certainly, else where the table is as large as it may be.
fn less_left(device: &Device, plan: &Plan) -> Option<u64> {
    let (best, worst) = plan.check(Resource::Entries)?.need;
    let free = free(device);
    let certain = free.certain().checked_sub(worst);
    certain.or_else(|| free.at_most()?.checked_sub(best))
}

fn ways_without_tiling(
    request: &PlanRequest,
    device: &Device,
    pages: Pages,
    code: Code,
) -> Vec<WayOut> {
    let limit = longest_mr(request, device);
    let Pages::Only(page) = pages else {
        return Vec::new();
    };
    match code {
        Code::LimitBelowPage => vec![WayOut::Override(page.bytes())],
        Code::BlockAboveLimit => lcm(page.bytes(), request.block.unwrap_or(1).max(1))
            .map(WayOut::Override)
            .into_iter()
            .collect(),
        Code::ChunkOffStep => lcm(page.bytes(), request.block.unwrap_or(1).max(1))
            .map(|step| {
                let chunk = request.chunk.unwrap_or(step);
                WayOut::LongerChunks((chunk - chunk % step).max(step).min(limit))
            })
            .into_iter()
            .collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Family;
    use crate::fact::{Kind, Source};
    use crate::plan::{OtherUse, plan};

    /// What no device would refuse has no errno; what one would refuse, whatever is kept besides, has.
    #[test]
    fn what_is_only_kept_for_others_has_no_errno() {
        let device = Device {
            entries: Limit::exact(1024, Source::new(Kind::Given, "test")),
            ..Device::unlimited("test", Family::Erdma)
        };
        let refused = |pages: u64, leave, others: Vec<OtherUse>| {
            let request = PlanRequest {
                leave,
                others,
                ..PlanRequest::total(pages * 4096).pages(Pages::Only(PageSize::K4))
            };
            let refusal = plan(&request, &device, &Host::default()).unwrap_err();
            assert_eq!(refusal.code, Code::OverBudget);
            refusal.errno
        };
        let other = OtherUse {
            bytes: 512 * 4096,
            page: PageSize::K4,
        };
        assert_eq!(refused(1000, Leave::Entries(100), vec![]), None);
        assert_eq!(refused(1000, Leave::PerCent(50), vec![]), None);
        assert_eq!(refused(1000, Leave::Nothing, vec![other]), None);
        let full = device.family.dialect().over_budget;
        assert_eq!(refused(1025, Leave::Nothing, vec![]), Some(full));
        assert_eq!(refused(1025, Leave::Entries(100), vec![]), Some(full));
    }
}
