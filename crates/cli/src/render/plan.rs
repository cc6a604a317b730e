//! A plan that fits, or may.

use hugemr_core::device::Family;
use hugemr_core::fact::{Fit, Limit};
use hugemr_core::host::Host;
use hugemr_core::plan::{
    Check, ChunkBound, Code, Pages, Plan, PlanRequest, Resource, Verdict, mrs,
};
use hugemr_core::quirk::{Presence, Quirk, QuirkState};
use hugemr_core::size::{Bytes, Count, Grouped, PageSize};

use super::table::table;
use super::words;
use crate::commands::plan::Asked;

/// Command lines for an answer.
pub(crate) struct Commands {
    /// Carries the plan out; empty where none does.
    pub(crate) next: String,
    /// Measures the device.
    pub(crate) probe: String,
}

/// The whole answer.
pub(crate) fn plan(plan: &Plan, asked: &Asked, commands: &Commands) -> String {
    let mut lines = vec![headline(plan)];
    lines.extend(words::rounded(plan).map(|text| format!("  {text}")));
    lines.push(arithmetic(plan, &asked.request));
    lines.extend(profile(plan, &asked.host));
    lines.extend(bound(plan));
    for other in &plan.alternatives {
        lines.push(format!(
            "not taken: {} ({})",
            words::alternative(other),
            match other.verdict {
                Verdict::Fits | Verdict::OkOverride =>
                    "fits too; 2 MiB pages come first, as a host has them more easily",
                Verdict::Refused(Code::Defect(quirk)) => quirk.name(),
                verdict => verdict.name(),
            }
        ));
    }
    if let Some(text) = undecided(plan, asked, &commands.probe) {
        lines.push(text);
    }
    if commands.next.is_empty() {
        lines.push("every MR: --list, every rule: --explain".to_owned());
    } else {
        lines.push(format!(
            "next: {}          every MR: --list, every rule: --explain",
            commands.next
        ));
    }
    lines.join("\n")
}

fn headline(plan: &Plan) -> String {
    match plan.verdict {
        Verdict::Fits => format!("fits: {plan}"),
        Verdict::OkOverride => {
            format!("fits, above the advertised limit as you override it: {plan}")
        }
        Verdict::Undecided => {
            format!("undecided: {plan}; no known limit forbids it, none allows it")
        }
        Verdict::Refused(code) => format!("refused ({}): {plan}", code.name()),
    }
}

fn arithmetic(plan: &Plan, request: &PlanRequest) -> String {
    let mut rows = Vec::new();
    for check in &plan.checks {
        if check.resource == Resource::EntriesPerMr
            && check
                .limit
                .as_ref()
                .is_none_or(hugemr_core::fact::Limit::is_unlimited)
        {
            continue;
        }
        let need = match check.resource {
            Resource::HugePages(page) => format!("{} x {page}", Grouped(check.need.0)),
            Resource::Memory => Bytes(check.need.1).to_string(),
            Resource::MrLength | Resource::Memlock | Resource::Cgroup(_) => {
                words::amount(check.resource, check.need.1)
            }
            _ => words::range(check.need),
        };
        let (limit, source) = match &check.limit {
            Some(limit) => (
                words::limit(check.resource, limit),
                limit.source.to_string(),
            ),
            None => ("not read".to_owned(), not_read(check.resource)),
        };
        let mark = match check.fit() {
            Fit::Fits => "",
            Fit::Undecided => "  ?",
            Fit::Over => "  <- too much",
        };
        rows.push(vec![
            words::resource(check.resource),
            need,
            limit,
            format!("{source}{mark}"),
        ]);
        if check.resource == Resource::Entries && !request.others.is_empty() {
            // The rest of the need is of the plan, in each PD.
            let own = plan.entries.0.saturating_mul(request.pds);
            rows.push(vec![
                "  of which".to_owned(),
                Grouped(check.need.0.saturating_sub(own)).to_string(),
                "-".to_owned(),
                "--other".to_owned(),
            ]);
        }
    }
    let kernel = Bytes(plan.kernel_memory).to_string();
    rows.push(vec![
        "kernel mem".to_owned(),
        kernel,
        "-".to_owned(),
        "8 B/entry + 32 B/run".to_owned(),
    ]);
    table(&["", "need", "limit", "where the limit comes from"], &rows)
}

fn not_read(resource: Resource) -> String {
    match resource {
        Resource::Memlock => "the process that registers is not this one".to_owned(),
        _ => "simulated host".to_owned(),
    }
}

/// Kernel, driver, and the defects that matter for an MR of this plan or nearly so.
fn profile(plan: &Plan, host: &Host) -> Vec<String> {
    let mut lines = vec![format!(
        "profile: {} (change with --kernel, --driver)",
        words::platform(&host.platform)
    )];
    for state in plan.quirks.iter().filter(|state| worth_a_line(state)) {
        lines.push(format!(
            "  {:18} {}",
            state.quirk.name(),
            standing(plan, state)
        ));
    }
    lines
}

fn worth_a_line(state: &QuirkState) -> bool {
    state.counts()
        || (state.quirk == Quirk::ScatterBoundary && !state.why.starts_with("kernel before"))
}

fn standing(plan: &Plan, state: &QuirkState) -> String {
    let page = plan
        .segments
        .iter()
        .map(|s| s.page)
        .min()
        .unwrap_or(PageSize::K4);
    let presence = match state.presence {
        Presence::Absent => return state.why.clone(),
        Presence::Present => format!("present ({})", state.why),
        Presence::Presumed => format!("presumed ({})", state.why),
    };
    if plan.bound == ChunkBound::Quirk(state.quirk) {
        return format!(
            "{presence}: MRs of {}; lifted by {}",
            Bytes(plan.chunk),
            state.lifted_by
        );
    }
    if plan.hit.contains(&state.quirk) {
        return format!("{presence}, HIT: {}", state.quirk.effect());
    }
    if state.quirk == Quirk::NoLargePages {
        return format!(
            "{presence}: {}; lifted by {}",
            state.quirk.effect(),
            state.lifted_by
        );
    }
    if state.quirk == Quirk::DisguisedSize {
        return format!("{presence}: {}", state.quirk.effect());
    }
    match (state.quirk, state.only_up_to_entries) {
        (Quirk::WireLength, Some(most)) if plan.chunk >= 4 << 30 => {
            let entries = plan.chunk / page.bytes();
            format!(
                "{presence}, not hit: {} per MR > {most}",
                Count(entries, "entry")
            )
        }
        _ => format!("{presence}, not hit by MRs of {}", Bytes(plan.chunk)),
    }
}

/// Why the MRs are no longer, where a defect bounds them, and what would lift it.
pub(crate) fn why_short(plan: &Plan) -> Option<String> {
    let ChunkBound::Quirk(quirk) = plan.bound else {
        return None;
    };
    let state = plan.quirks.iter().find(|state| state.quirk == quirk)?;
    let how = if state.presence == Presence::Presumed {
        "presumed, "
    } else {
        ""
    };
    Some(format!(
        "MRs of {} and no longer because of {quirk} ({how}{}); lifted by {}",
        Bytes(plan.chunk),
        state.why,
        state.lifted_by
    ))
}

fn bound(plan: &Plan) -> Option<String> {
    let ChunkBound::Quirk(quirk) = plan.bound else {
        return None;
    };
    Some(format!(
        "MRs of {} and no longer because of: {}",
        Bytes(plan.chunk),
        quirk.effect()
    ))
}

/// Whether it is the need that is not known, and the limit is.
fn need_is_open(check: &Check) -> bool {
    let known = |limit: &Limit| limit.at_most() == Some(limit.certain());
    check.need.0 < check.need.1 && check.limit.as_ref().is_some_and(known)
}

fn undecided(plan: &Plan, asked: &Asked, probe: &str) -> Option<String> {
    let (device, host) = (&asked.device, &asked.host);
    (plan.verdict == Verdict::Undecided).then(|| match plan.check(Resource::Entries) {
        Some(check) if check.fit() == Fit::Undecided && need_is_open(check) => format!(
            "how many entries of {} it needs is not known beforehand: between {} and {}, by the pages that the kernel has at hand (--strict refuses)",
            device.name,
            Grouped(check.need.0),
            Grouped(check.need.1)
        ),
        Some(check) if check.fit() == Fit::Undecided => {
            let mut text = format!(
                "the number of table entries of {} is not known exactly: register will show it (--strict refuses)",
                device.name
            );
            let unknown = check.limit.as_ref().is_some_and(|limit| limit.certain() == 0 && limit.at_most().is_none());
            if unknown && device.family == Family::Erdma {
                // Of the CPUs of this host only where the device is on it.
                let vcpus = host.nodes.as_ref().and_then(|_| crate::host::cpus());
                text.push_str(&format!(
                    "\n  {}; know: {probe}",
                    hugemr_core::prior::text(vcpus.filter(|_| asked.opened.simulated().is_none()))
                ));
            }
            text
        }
        _ => "a limit is not known exactly: register will show it (--strict refuses)".to_owned(),
    })
}

/// Every segment and every rule with its source.
pub(crate) fn explain(plan: &Plan) -> String {
    let mut lines = vec!["segments".to_owned()];
    for (i, segment) in plan.segments.iter().enumerate() {
        lines.push(format!(
            "  {i}: offset {}, {} on {} pages, {}",
            Bytes(segment.offset),
            Bytes(segment.len),
            segment.page,
            mrs(&[*segment])
        ));
        if i == 15 && plan.segments.len() > 16 {
            lines.push(format!(
                "  ... and {} more (--list shows every MR)",
                plan.segments.len() - 16
            ));
            break;
        }
    }
    lines.push(format!(
        "borders are multiples of {} (page and block together); a chunk is bounded by {}",
        Bytes(plan.step),
        match plan.bound {
            ChunkBound::Asked => "your --chunk".to_owned(),
            ChunkBound::MaxMrSize => "max_mr_size".to_owned(),
            ChunkBound::EntriesPerMr => "the entries of one MR".to_owned(),
            ChunkBound::Quirk(quirk) => format!("a defect: {quirk}"),
            ChunkBound::Nothing => "nothing (each buffer is one MR)".to_owned(),
        }
    ));
    lines.push("rules".to_owned());
    for state in &plan.quirks {
        let presence = match state.presence {
            Presence::Present => "present",
            Presence::Presumed => "presumed",
            Presence::Absent => "absent",
        };
        lines.push(format!(
            "  {:18} {presence}: {}",
            state.quirk.name(),
            state.why
        ));
        lines.push(format!("  {:18} {}", "", state.quirk.effect()));
        let lift = if state.lifted_by.is_empty() {
            String::new()
        } else {
            format!("; lifted by {}", state.lifted_by)
        };
        lines.push(format!(
            "  {:18} source: {}{lift}",
            "",
            state.quirk.source()
        ));
    }
    if matches!(plan.pages, Pages::Thp) {
        lines.push(
            "entries: at best all pages are 2 MiB, at worst one 4 KiB page in each MR".to_owned(),
        );
    }
    lines.join("\n")
}
