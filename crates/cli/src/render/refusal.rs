//! A plan that does not fit, with the way out.

use crate::commands::ways::Way;
use crate::limits::Correction;
use hugemr_core::plan::{Code, Refusal, WayOut};
use hugemr_core::size::{Bytes, Count, Grouped};

use super::words;

/// The whole answer, with the ways out that are ways here.
pub(crate) fn refusal(refusal: &Refusal, ways: &[Way], correction: Option<&Correction>) -> String {
    let mut lines = vec![format!("does not fit: {}", refusal.text)];
    let limit = refusal.met().and_then(|check| check.limit.as_ref());
    lines.extend(limit.map(|limit| format!("  the limit comes from    {}", limit.source)));
    lines.extend(failure(refusal).map(|text| format!("  {text}")));
    if let Some(fit) = refusal.max_fit
        && let Some(plan) = &refusal.plan
    {
        lines.push(match (fit.certain, fit.at_most) {
            (0, None) => "  how much would fit is not known".to_owned(),
            (0, Some(0)) => format!(
                "  largest on {:12} nothing fits",
                words::pages_flag(plan.pages)
            ),
            (certain, Some(most)) if certain == most => {
                format!(
                    "  largest on {:12} {}",
                    words::pages_flag(plan.pages),
                    Bytes(certain)
                )
            }
            (certain, most) => format!(
                "  largest on {:12} {} certainly, {} at most",
                words::pages_flag(plan.pages),
                Bytes(certain),
                most.map_or_else(|| "unknown".to_owned(), |m| Bytes(m).to_string())
            ),
        });
    }
    let mut head = "way out";
    for way in ways {
        let what = what(&way.way);
        for command in &way.commands {
            // A longer text has a line of its own, so that the commands stay in their column.
            let fits = what.chars().count() <= 52;
            if !fits {
                lines.push(format!("  {head:12} {what}"));
                head = "";
            }
            lines.push(format!(
                "  {head:12} {:52} {command}",
                if fits { what.as_str() } else { "" }
            ));
            head = "";
        }
        if way.commands.is_empty() {
            lines.push(format!("  {head:12} {what}"));
            head = "";
        }
    }
    if let Some(correction) = limit.and_then(|limit| correction?.of(limit)) {
        lines.push(format!("  {head:12} {}", correction.text()));
    }
    lines.join("\n")
}

fn failure(refusal: &Refusal) -> Option<String> {
    let plan = refusal.plan.as_ref()?;
    let (index, errno) = plan.first_failure?;
    let name = errno.name().unwrap_or("an error");
    let per = plan
        .check(hugemr_core::plan::Resource::EntriesPerMr)?
        .need
        .0;
    let detail = match refusal.code {
        Code::OverBudget => format!(" ({} per {} MR)", Count(per, "entry"), Bytes(plan.chunk)),
        _ => String::new(),
    };
    Some(format!(
        "ibv_reg_mr would return {name} at MR {} (counted from 0) of {}{detail}",
        Grouped(index),
        Grouped(plan.mrs)
    ))
}

/// A way out in words.
fn what(way: &WayOut) -> String {
    match way {
        WayOut::Pages(other) => words::alternative(other),
        WayOut::Reserve { page, short, need } => format!(
            "{} of {page} ({}), {} in all",
            Count(*short, "more huge page"),
            Bytes(short.saturating_mul(page.bytes())),
            Grouped(*need),
        ),
        WayOut::Smaller(bytes) => format!("{} would fit", Bytes(*bytes)),
        WayOut::LongerChunks(bytes) | WayOut::ShorterChunks(bytes) => {
            format!("MRs of {}", Bytes(*bytes))
        }
        WayOut::OwnChunks(bytes) => format!("MRs of {}, as the planner cuts", Bytes(*bytes)),
        WayOut::Override(bytes) => format!(
            "a limit of {} or more, if the device allows it: --max-mr-size {}",
            Bytes(*bytes),
            Bytes(*bytes).argument()
        ),
        WayOut::Memlock(bytes) => format!(
            "let the process pin {} KiB: ulimit -l unlimited, LimitMEMLOCK=infinity, or CAP_IPC_LOCK",
            Grouped(bytes.div_ceil(1024))
        ),
        WayOut::Leave(0) => "leave none free for others".to_owned(),
        WayOut::Leave(entries) => {
            format!("leave at most {} free for others", Count(*entries, "entry"))
        }
        WayOut::Lift(quirk, how) => format!("a platform without this ({quirk}): {how}"),
        _ => format!("{way:?}"),
    }
}
