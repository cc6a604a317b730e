//! Causes in the device's limits: table, lengths, counts.

use crate::device::{Family, LOWEST_FIELD_REPORT};
use crate::errno::Errno;
use crate::fact::{Fit, Limit};
use crate::host::Driver;
use crate::quirk::{CONTIGUOUS_ENTRIES, ONE_LEVEL_ENTRIES, Presence, Quirk, SEGMENT_CAP};
use crate::size::{Bytes, Count, GIB, Grouped, PageSize, plural};

use super::{Case, Scale, is_solid};
use crate::diagnose::{BackingPages, MemoryKind};

pub(super) fn table_full(case: &Case<'_>, s: &mut Scale) {
    let e = case.e;
    let need = e.need();
    if let (Some(need), Some(budget)) = (need, &e.entries_budget) {
        let used = e.entries_used.unwrap_or((0, None));
        let left = budget.less(used);
        let of = format!(
            "{} entries, {} ({})",
            most(budget.certain(), budget.at_most()),
            budget.source,
            used_text(used)
        );
        match left.fit(need) {
            Fit::Over => s.proves(format!("needs {} of {of}", Grouped(need))),
            Fit::Fits if budget.is_unlimited() => s.lacks("the entry budget of the device"),
            Fit::Fits if is_solid(budget) => {
                s.excludes(format!("needs only {} of {of}", Grouped(need)))
            }
            Fit::Fits => s.weakens(format!("needs only {} of {of}", Grouped(need))),
            Fit::Undecided => {
                if used.1.is_none() {
                    s.lacks("the entries that are in use");
                }
                if budget.at_most().is_none() {
                    s.lacks("the entry budget of the device");
                }
            }
        }
    } else {
        if e.entries_budget
            .as_ref()
            .is_none_or(crate::fact::Limit::is_unlimited)
        {
            s.lacks("the entry budget of the device");
        }
        if need.is_none() {
            s.lacks(if e.length.is_none() {
                "the length"
            } else {
                "the page size of the MR"
            });
        }
    }
    match e.entries_budget.as_ref().filter(|budget| bounds(budget)) {
        Some(budget) => budget_share(case, budget, s),
        None => small_page_share(case, need, s),
    }
    if e.others_hold_mrs == Some(true) {
        s.points("other processes hold MRs of this device");
    }
    if e.said_out_of_mr_size == Some(false) && e.may_be_erdma() && e.may_be_vendor() {
        s.points("no \"Out of mr size\" in the kernel log: not the length");
    }
}

/// Whether the budget says how large the table is, and is no guess: then no other number counts.
fn bounds(budget: &Limit) -> bool {
    is_solid(budget) && !budget.is_unlimited() && budget.at_most().is_some()
}

/// What share of a table of known size the MR takes, where use by others decides.
fn budget_share(case: &Case<'_>, budget: &Limit, s: &mut Scale) {
    let e = case.e;
    let backing = || match e.backing {
        Some(BackingPages::Of(page)) => e.entries_at(page),
        _ => None,
    };
    let used = e.entries_used.unwrap_or((0, None));
    let (Some(need), Some(whole)) = (e.need().or_else(backing), budget.at_most()) else {
        return;
    };
    if budget.less(used).fit(need) != Fit::Undecided {
        return;
    }
    let least = if budget.known().is_some() {
        ""
    } else {
        "at least "
    };
    let text = format!(
        "{} {} {least}{} % of {}, {} ({})",
        Count(need, "entry"),
        plural(need, "is", "are"),
        percent(need, whole),
        most(budget.certain(), budget.at_most()),
        budget.source,
        used_text(used)
    );
    // A tenth: several such MRs are common.
    if need >= whole / 10 {
        s.points(text);
    } else {
        s.weakens(text);
    }
}

/// `67.3`, or three decimals below 1.
fn percent(part: u64, whole: u64) -> String {
    let whole = u128::from(whole.max(1));
    let scaled = (u128::from(part) * 100_000 + whole / 2) / whole;
    match scaled {
        0 => "less than 0.001".to_owned(),
        1..1000 => format!("0.{scaled:03}"),
        _ => format!("{}.{}", scaled / 1000, scaled % 1000 / 100),
    }
}

/// Small pages: one MR takes a share of the table that is worth noting.
fn small_page_share(case: &Case<'_>, need: Option<u64>, s: &mut Scale) {
    let e = case.e;
    // What the MR got, or what it can hardly have exceeded.
    let (page, whose) = match (e.effective_page, e.backing) {
        (Some(page), _) => (page, "the MR"),
        (None, Some(BackingPages::Of(page))) => (page, "the mapping"),
        _ => return,
    };
    // On eRDMA EIO comes from the device only; other families share the errno with the kernel.
    let device_spoke = e.family == Some(Family::Erdma) && case.errno == Some(Errno::EIO);
    let Some(need) = need.or_else(|| e.entries_at(page)) else {
        let a_gib = Count(GIB / page.bytes().min(GIB), "entry");
        let text = format!("{whose} has {page} pages, {a_gib} a GiB");
        return match (page <= PageSize::K64, device_spoke) {
            (true, true) => s.proves(text),
            (true, false) => s.points(text),
            (false, _) => s.weakens(text),
        };
    };
    let text = format!("{whose} has {page} pages: {}", Count(need, "entry"));
    let large = need >= LOWEST_FIELD_REPORT / 100 && page <= PageSize::K64;
    match (large, device_spoke) {
        (true, true) => {
            let share = percent(need, LOWEST_FIELD_REPORT);
            let lowest = Grouped(LOWEST_FIELD_REPORT);
            s.proves(format!(
                "{text}, {share} % of the smallest full table reported ({lowest})"
            ));
        }
        (true, false) => s.points(text),
        (false, _) if need <= ONE_LEVEL_ENTRIES => s.weakens(text),
        (false, _) => {}
    }
}

pub(super) fn small_pages(case: &Case<'_>, s: &mut Scale) {
    let e = case.e;
    let scatter = Quirk::ScatterBoundary.on(&e.platform, e.family.unwrap_or(Family::Other));
    let old = Quirk::NoLargePages.on(&e.platform, e.family.unwrap_or(Family::Other));
    // What a probe saw says it of every MR, whatever is behind this one.
    if old.counts() && e.platform.large_pages.is_some() && e.is_huge().is_none() {
        s.points(format!("{}: {}", old.why, Quirk::NoLargePages.effect()));
    }
    match (e.backing, e.effective_page) {
        (Some(BackingPages::Of(backing)), Some(page)) if page < backing => {
            s.proves(format!(
                "{backing} pages behind it, but the MR got {page} pages"
            ));
        }
        (Some(BackingPages::Huge), Some(page)) if page <= PageSize::K64 => {
            s.proves(format!("huge pages behind it, but the MR got {page} pages"));
        }
        (Some(BackingPages::Of(backing)), Some(page)) => {
            s.excludes(format!(
                "the MR got {page} pages, its memory has {backing} pages"
            ));
            return;
        }
        (Some(BackingPages::Of(backing)), None) if backing <= PageSize::K4 => {
            s.excludes("its memory has 4 KiB pages: there is nothing smaller");
            return;
        }
        (None, Some(page)) if e.memory == Some(MemoryKind::Gpu) && e.may_be_erdma() => {
            if page >= PageSize::K64 {
                s.excludes(format!("GPU memory, and the MR got {page} pages"));
            } else {
                s.points(format!(
                    "GPU memory can have 64 KiB pages, the MR got {page}"
                ));
            }
            return;
        }
        (_, Some(page)) if page >= PageSize::M2 => {
            s.weakens(format!("the MR got {page} pages"));
            return;
        }
        (_, None) => s.lacks("the page size of the MR"),
        _ => {}
    }
    if old.counts() && e.is_huge() == Some(true) {
        s.proves(format!("{}: {}", old.why, Quirk::NoLargePages.effect()));
    }
    if scatter.counts()
        && e.length.is_some_and(|len| len > SEGMENT_CAP)
        && e.is_huge() != Some(false)
    {
        let text = format!("{}: {}", scatter.why, Quirk::ScatterBoundary.effect());
        match e.longest_run {
            Some(run) if run > SEGMENT_CAP && scatter.presence == Presence::Present => {
                s.proves(format!("{} in one physical run, and {text}", Bytes(run)));
            }
            Some(run) if run <= SEGMENT_CAP => {
                s.weakens(format!(
                    "the longest physical run is {}: the defect at 4 GiB is not met",
                    Bytes(run)
                ));
            }
            _ => s.points(text),
        }
    }
}

pub(super) fn leaked_mrs(case: &Case<'_>, s: &mut Scale) {
    match case.e.others_hold_mrs {
        Some(true) => s.points("other processes hold MRs of this device"),
        Some(false) => s.excludes("no other process holds MRs of this device"),
        None => s.lacks("whether other processes hold MRs"),
    }
}

pub(super) fn max_mr_size(case: &Case<'_>, s: &mut Scale) {
    let e = case.e;
    match (e.length, &e.max_mr_size) {
        (Some(len), Some(limit)) => match limit.fit(len) {
            Fit::Over => {
                let most = limit.at_most().unwrap_or_default();
                s.proves(format!(
                    "{} is longer than {} ({})",
                    Bytes(len),
                    Bytes(most),
                    limit.source
                ));
            }
            Fit::Fits if limit.is_unlimited() => s.lacks("max_mr_size"),
            Fit::Fits if is_solid(limit) => {
                s.excludes(format!(
                    "{} is not longer than {} ({})",
                    Bytes(len),
                    Bytes(limit.certain()),
                    limit.source
                ));
            }
            Fit::Fits => s.weakens(format!(
                "{} is not longer than {} ({})",
                Bytes(len),
                Bytes(limit.certain()),
                limit.source
            )),
            Fit::Undecided => s.lacks("max_mr_size"),
        },
        (None, _) => s.lacks("the length"),
        (_, None) => s.lacks("max_mr_size"),
    }
    if !e.may_be_erdma() {
        return;
    }
    match (e.said_out_of_mr_size, e.platform.driver) {
        (Some(true), _) if e.length != Some(0) => s.proves("the driver printed \"Out of mr size\""),
        (Some(false), Driver::Vendor(_)) => {
            s.excludes("the vendor's driver prints \"Out of mr size\" then, and it is not in the kernel log");
        }
        (Some(false), Driver::Unknown) => {
            s.weakens(
                "no \"Out of mr size\" in the kernel log, which the vendor's driver would print",
            );
        }
        _ => {}
    }
}

pub(super) fn mr_count(case: &Case<'_>, s: &mut Scale) {
    let e = case.e;
    if e.said_keys_exhausted == Some(true) {
        s.proves("the kernel log says that the device has no memory key left (limits exceeded)");
    }
    let (Some(live), Some(limit)) = (e.mrs_live, &e.max_mr) else {
        s.lacks("the number of MRs of the device");
        return;
    };
    let of = format!(
        "{} of {} ({})",
        Count(live, "MR"),
        most(limit.certain(), limit.at_most()),
        limit.source
    );
    match limit.fit(live.saturating_add(1)) {
        Fit::Over => s.proves(of),
        Fit::Fits if is_solid(limit) && !limit.is_unlimited() => s.excludes(format!("only {of}")),
        Fit::Fits if !limit.is_unlimited() => s.weakens(format!("only {of}")),
        _ => s.lacks("max_mr"),
    }
}

pub(super) fn per_mr_table(case: &Case<'_>, s: &mut Scale) {
    let e = case.e;
    let Some(need) = e.need() else {
        s.lacks(if e.length.is_none() {
            "the length"
        } else {
            "the page size of the MR"
        });
        return;
    };
    let need_text = Count(need, "entry");
    if let Some(limit) = e.entries_per_mr.as_ref().filter(|l| !l.is_unlimited()) {
        let of = format!(
            "{} in one MR ({})",
            most(limit.certain(), limit.at_most()),
            limit.source
        );
        match limit.fit(need) {
            Fit::Over => s.proves(format!("needs {need_text} of {of}")),
            Fit::Fits if is_solid(limit) => s.excludes(format!("needs only {need_text} of {of}")),
            Fit::Fits => s.weakens(format!("needs only {need_text} of {of}")),
            Fit::Undecided => s.lacks("the entries that one MR may have"),
        }
        return;
    }
    if e.family != Some(Family::Erdma) {
        s.lacks("the entries that one MR may have");
        return;
    }
    let table = Quirk::ContiguousTable.on(&e.platform, Family::Erdma);
    if need <= CONTIGUOUS_ENTRIES {
        s.excludes(format!(
            "needs only {need_text}: every erdma driver can have {} in one MR",
            Grouped(CONTIGUOUS_ENTRIES)
        ));
    } else if need > ONE_LEVEL_ENTRIES.pow(3) {
        s.proves(format!(
            "needs {need_text}; three levels of the driver's table hold {}",
            Grouped(ONE_LEVEL_ENTRIES.pow(3))
        ));
    } else {
        let text = format!(
            "needs {need_text}; {}: {}",
            table.why,
            Quirk::ContiguousTable.effect()
        );
        match table.presence {
            Presence::Present => s.proves(text),
            Presence::Presumed => s.points(text),
            Presence::Absent => s.excludes(format!("needs {need_text}; {}", table.why)),
        }
    }
}

fn most(certain: u64, at_most: Option<u64>) -> String {
    match at_most {
        Some(high) if high == certain => Grouped(high).to_string(),
        Some(high) => format!("{} to {}", Grouped(certain), Grouped(high)),
        None => format!("at least {}", Grouped(certain)),
    }
}

fn used_text(used: (u64, Option<u64>)) -> String {
    match used {
        (0, None) => "use by others not known".to_owned(),
        (low, None) => format!("at least {} in use", Grouped(low)),
        (low, Some(high)) if low == high => format!("{} in use", Grouped(low)),
        (low, Some(high)) => format!("{} to {} in use", Grouped(low), Grouped(high)),
    }
}
