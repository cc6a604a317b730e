//! What the device says to the wish.

use crate::device::{Family, LOWEST_FIELD_REPORT};
use crate::doctor::{Case, Examined, Finding, Verbs};
use crate::fact::Fit;
use crate::plan::{Pages, Refusal, Resource, WayOut, reserve_command};
use crate::prior;
use crate::size::{Bytes, Count, Grouped};

/// A refusal by the device's limits.
pub(super) fn device(e: &Examined<'_>, out: &mut Vec<Finding>) {
    if let Some(refusal) = &e.outcome.device_refuses {
        out.push(refused(&e.case, refusal).seen(format!("limits of {}", e.case.device.name)));
    } else if let Some(plan) = e.plan() {
        out.push(Finding::fine(
            "plan",
            format!(
                "{} of at most {}, {}",
                Count(plan.mrs, "MR"),
                Bytes(plan.chunk),
                Count(plan.entries.1, "entry")
            ),
        ));
    }
}

/// A refusal as a finding.
pub(in crate::doctor) fn refused(case: &Case<'_>, refusal: &Refusal) -> Finding {
    let finding = Finding::block(refusal.code.name(), refusal.text.clone());
    let ways = refusal.ways_out.iter().filter_map(|one| way(case, one));
    ways.fold(finding, Finding::fix)
}

fn way(case: &Case<'_>, way: &WayOut) -> Option<String> {
    Some(match way {
        WayOut::Pages(other) => match other.pages {
            Pages::Only(page) => format!(
                "{page} pages: {}, {}      (--pages {})",
                Count(other.entries.1, "entry"),
                Count(other.mrs, "MR"),
                Bytes(page.bytes()).argument()
            ),
            _ => return None,
        },
        WayOut::Smaller(bytes) => format!(
            "{} would fit      (--for {})",
            Bytes(*bytes),
            Bytes(*bytes).argument()
        ),
        WayOut::Reserve { page, need, short } => {
            let bytes = short.saturating_mul(page.bytes());
            if case.facts.memory.spare().is_some_and(|spare| bytes > spare) {
                return None;
            }
            reserve_command(*page, *need)
        }
        WayOut::LongerChunks(bytes) | WayOut::ShorterChunks(bytes) => {
            let size = case.wish.map_or(0, |wish| wish.wanted());
            format!(
                "MRs of {} (hugemr plan {} --chunk {}{})",
                Bytes(*bytes),
                Bytes(size).argument(),
                Bytes(*bytes).argument(),
                case.commands.plan
            )
        }
        WayOut::OwnChunks(bytes) => format!("MRs of {}, as hugemr plan cuts", Bytes(*bytes)),
        WayOut::Override(bytes) => format!(
            "where the device allows it: --max-mr-size {}",
            Bytes(*bytes).argument()
        ),
        WayOut::Memlock(bytes) => format!(
            "let the process pin {} (ulimit -l unlimited)",
            Bytes(*bytes)
        ),
        // The doctor asks for nothing to be left.
        WayOut::Leave(_) => return None,
        WayOut::Lift(quirk, how) => format!("{quirk}: {how}"),
    })
}

/// Limits of the device that are not known.
pub(super) fn budget(e: &Examined<'_>, out: &mut Vec<Finding>) {
    let Some(plan) = e.plan().filter(|_| e.outcome.device_refuses.is_none()) else {
        return;
    };
    if matches!(e.case.verbs, Verbs::Unavailable { .. }) {
        // The limits of a device that cannot be opened are the least of the troubles.
        return;
    }
    for check in &plan.checks {
        let Some(limit) = &check.limit else { continue };
        if check.fit() != Fit::Undecided {
            continue;
        }
        let need = Grouped(check.need.1);
        let source = format!("{}: {}", e.case.device.name, limit.source);
        let finding = match check.resource {
            Resource::Entries if limit.certain() > 0 || limit.at_most().is_some() => {
                Finding::unknown(
                    "budget",
                    match limit.at_most() {
                        Some(most) => format!(
                            "MTT budget between {} and {}; need {need}",
                            Grouped(limit.certain()),
                            Count(most, "entry")
                        ),
                        None => format!(
                            "MTT budget at least {}; need {need}",
                            Count(limit.certain(), "entry")
                        ),
                    },
                )
            }
            Resource::Entries if e.case.device.family == Family::Erdma => rule_of_thumb(
                e,
                Finding::unknown(
                    "budget",
                    format!(
                        "MTT budget never measured here; lowest field report {} entries (need {} %)",
                        Grouped(LOWEST_FIELD_REPORT),
                        per_cent(check.need.1, LOWEST_FIELD_REPORT)
                    ),
                ),
            ),
            Resource::Entries => Finding::unknown(
                "budget",
                format!(
                    "MTT budget not known; need {}",
                    Count(check.need.1, "entry")
                ),
            ),
            Resource::MrCount => Finding::unknown(
                "mr_count",
                match limit.at_most() {
                    Some(most) => format!(
                        "how many MRs others hold is not known; need {need} of at most {}",
                        Grouped(most)
                    ),
                    None => format!("how many MRs the device has is not known; need {need}"),
                },
            ),
            Resource::EntriesPerMr => Finding::unknown(
                "entries_per_mr",
                format!("how many entries one MR may have is not known; need {need}"),
            ),
            _ => Finding::unknown("limit", format!("a limit is not known; need {need}")),
        };
        out.push(
            finding
                .seen(source)
                .fix(match (check.resource, e.case.verbs) {
                    (Resource::Entries, Verbs::Usable(_)) => {
                        format!(
                            "sudo hugemr probe{}; or state it: --budget N",
                            e.case.commands.probe
                        )
                    }
                    _ => format!(
                        "try it: hugemr register {}{}; or state it: --budget N",
                        Bytes(plan.wanted).argument(),
                        e.case.commands.plan
                    ),
                })
                .deciding(true),
        );
    }
}

/// What the number of vCPUs lets one guess, marked as what it is.
fn rule_of_thumb(e: &Examined<'_>, finding: Finding) -> Finding {
    let nodes = e.case.host.nodes.iter().flatten();
    let vcpus: u64 = nodes.map(|node| node.cpus.len() as u64).sum();
    match prior::by_vcpus(vcpus) {
        Some(entries) if vcpus > 0 => finding.so(format!(
            "rule of thumb {} ({} for each of {}, inferred)",
            Count(entries, "entry"),
            Grouped(prior::ENTRIES_PER_VCPU),
            Count(vcpus, "vCPU")
        )),
        _ => finding,
    }
}

/// With one decimal.
fn per_cent(part: u64, whole: u64) -> String {
    match u128::from(part) * 1000 / u128::from(whole.max(1)) {
        0 if part > 0 => "less than 0.1".to_owned(),
        tenths => format!("{}.{}", tenths / 10, tenths % 10),
    }
}

#[cfg(test)]
mod tests {
    use super::per_cent;

    #[test]
    fn shares() {
        assert_eq!(per_cent(458_752, 24_903_680), "1.8");
        assert_eq!(per_cent(1, 24_903_680), "less than 0.1");
        assert_eq!(per_cent(0, 0), "0.0");
    }
}
