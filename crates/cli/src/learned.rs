//! What a registration teaches: what fitted, and what the device refused, narrow what is known of it.
//!
//! Only what is certain becomes a bound. A refusal is one only where the diagnosis has decided that the table, or the number
//! of MRs, was the reason. A real device does not tell how many entries an MR took: what fitted is taken from the physical
//! layout where that was read, and what was refused counts 4 KiB by 4 KiB, the most it can have been.

use hugemr_core::diagnose::{Cause, Diagnosis};
use hugemr_core::limits::{Confidence, Learned, Seen, UNKNOWN};
use hugemr_core::plan::Plan;
use hugemr_core::registrar::RegisterFailure;
use hugemr_core::size::PageSize;

use crate::args::FactArgs;
use crate::commands::plan::Asked;
use crate::limits::{self, Saved};
use crate::{device, host};

/// `entries` fitted together, as `mrs` MRs. What is to be said of it, if anything.
pub(crate) fn from_success(
    facts: &FactArgs,
    asked: &Asked,
    entries: Option<u64>,
    mrs: u64,
) -> Option<String> {
    let seen = Seen {
        entries: (entries.unwrap_or(0), None),
        mrs: (mrs, None),
        ..Seen::default()
    };
    save(facts, asked, &seen)
}

/// A registration was refused, for the reason that the diagnosis tells.
pub(crate) fn from_failure(
    facts: &FactArgs,
    asked: &Asked,
    plan: &Plan,
    (failure, diagnosis): (&RegisterFailure, &Diagnosis),
) -> Option<String> {
    let dialect = asked.device.family.dialect();
    let others = match asked.opened.simulated() {
        Some(_) => asked.device.used,
        None => host::used_by_others(&asked.device.name),
    };
    let stood = failure.stood();
    let mut seen = Seen::default();
    // The inside of a simulated device says whether the device itself refused, and at which level.
    let level = device::refused_level(&asked.opened);
    if level.is_none() && asked.opened.simulated().is_some() {
        return None;
    }
    if diagnosis.decides_for(Cause::TableFull) {
        match level {
            Some((fitted, needed)) => {
                let most = others.entries.1;
                let high = most.and_then(|most| (needed - 1).checked_add(most));
                // One MR alone: its own limit may be the reason.
                let alone = fitted == 0 && dialect.over_per_mr == dialect.over_budget;
                seen.entries = (fitted, high.filter(|_| !alone));
            }
            None => seen.entries.1 = at_most(plan, failure, others.entries.1),
        }
    } else if diagnosis.decides_for(Cause::MrCount) {
        seen.mrs = (stood, others.mrs.1.and_then(|most| stood.checked_add(most)));
    } else {
        return None;
    }
    save(facts, asked, &seen)
}

/// The most entries that the table can have, by a refusal of memory whose page size nobody has seen.
fn at_most(plan: &Plan, failure: &RegisterFailure, others: Option<u64>) -> Option<u64> {
    let each = |len: u64| PageSize::K4.pages_for(len).saturating_add(1);
    let stood = each(plan.chunk).checked_mul(failure.stood())?;
    let needed = stood.checked_add(each(failure.span()?.len))?;
    (needed - 1).checked_add(others?)
}

fn save(facts: &FactArgs, asked: &Asked, seen: &Seen) -> Option<String> {
    if *seen == Seen::default() || !device::made_up(&asked.opened, facts).is_empty() {
        return None;
    }
    let name = &asked.which.named;
    match limits::save(&facts.limits, &asked.which, seen, Confidence::Seen)? {
        Ok(Saved {
            learned: Learned::Nothing,
            ..
        }) => None,
        Ok(Saved {
            learned,
            record,
            path,
        }) => {
            let now = if seen.entries == UNKNOWN {
                let one = record.seen.mrs == (1, Some(1));
                let mrs = limits::range(record.seen.mrs);
                format!(
                    "{name} is now known to have {mrs} {}",
                    if one { "MR" } else { "MRs" }
                )
            } else {
                let entries = limits::entries(record.seen.entries, "");
                format!("table of {name} is now known to have {entries}")
            };
            let was = match learned {
                Learned::Replaced(old) => {
                    format!(", which contradicts {} before", limits::range(old))
                }
                _ => String::new(),
            };
            Some(format!("{now}{was} (saved in {})", path.display()))
        }
        Err(why) => Some(why.failure().what),
    }
}
