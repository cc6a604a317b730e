//! What a plan needs held against what there is, and the verdict.

use crate::device::Device;
use crate::errno::Errno;
use crate::fact::{Fit, Kind, Limit, Source};
use crate::host::Host;
use crate::layout::{self, Rules};
use crate::quirk::Quirk;
use crate::size::{Bytes, Count, Grouped, plural};

use super::answer::{Check, Code, Plan, Resource, Verdict, shortage};
use super::evaluate::{Part, kinds, sum};
use super::request::Pages;
use super::request::{Leave, PlanRequest, Wish};
use super::tiling::PINNABLE;

/// The arithmetic, in the order in which a reader wants it; `None` beyond 2^64.
pub(super) fn checks(
    request: &PlanRequest,
    device: &Device,
    host: &Host,
    plan: &Plan,
    parts: &[Part],
) -> Option<Vec<Check>> {
    let longest = parts.iter().map(|p| p.longest).max()?;
    let mut max_mr_size = request.max_mr_size.map_or_else(
        || device.max_mr_size.clone(),
        |size| {
            let flag = || Source::new(Kind::Given, "--max-mr-size");
            Limit::exact(size, request.max_mr_size_from.clone().unwrap_or_else(flag))
        },
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
            Some(left(request.leave, &free(device), &device.entries)),
        ),
        check(
            Resource::EntriesPerMr,
            (largest(|p| p.largest.0), largest(|p| p.largest.1)),
            Some(device.entries_per_mr.clone()),
        ),
    ];
    let ours = !matches!(request.wish, Wish::Adopted { .. });
    if ours {
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
    let of_no_pool = plan.of_no_pool();
    if ours && of_no_pool > 0 {
        let need = exactly(of_no_pool.checked_mul(request.processes)?);
        list.push(check(Resource::Memory, need, host.memory.clone()));
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
    let mut left = match leave {
        Leave::Nothing => free.clone(),
        Leave::Entries(n) => free.less((n, Some(n))),
        Leave::PerCent(p) => {
            let share = |n: u64| {
                u64::try_from((u128::from(n) * u128::from(p)).div_ceil(100)).unwrap_or(u64::MAX)
            };
            let most = whole.at_most().map_or(share(whole.certain()), share);
            free.less((share(whole.certain()), Some(most)))
        }
    };
    if leave != Leave::Nothing {
        left.source.text = format!("{}, less --leave", left.source.text).into();
    }
    left
}

/// Fills in the verdict and the first failure; the sentence of a refusal.
pub(super) fn judge(
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
        Resource::Memory => Code::MemoryShort,
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
            small_pages(plan) + &kept(request, device, check).unwrap_or_else(|| shortage(check)),
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

/// The entries of the device that nobody holds: what `--leave` takes its share of.
pub(super) fn free(device: &Device) -> Limit {
    device.entries.less(device.used.entries)
}

/// The sentence where what is to be left free for others is in the way, alone or with the size of the table.
fn kept(request: &PlanRequest, device: &Device, check: &Check) -> Option<String> {
    if request.leave == Leave::Nothing || check.resource != Resource::Entries {
        return None;
    }
    let free = free(device).at_most()?;
    let left = check.limit.as_ref()?.at_most()?;
    Some(format!(
        "needs {}, the device has {} free, of which --leave {} keeps {}: {} {} left",
        Count(check.need.0, "MTT entry"),
        Grouped(free),
        request.leave,
        Grouped(free - left.min(free)),
        Grouped(left),
        plural(left, "is", "are"),
    ))
}

/// Why large pages do not help, where they do not.
fn small_pages(plan: &Plan) -> String {
    let useless = plan
        .quirks
        .iter()
        .find(|q| q.quirk == Quirk::NoLargePages && q.counts());
    useless
        .filter(|_| plan.pages == Pages::Thp || !plan.huge_pages.is_empty())
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
