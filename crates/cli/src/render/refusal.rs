//! A plan that does not fit, with the way out.

use hugemr_core::plan::{Code, Refusal, WayOut};
use hugemr_core::size::{Bytes, Grouped, PageSize};

use super::words;

/// The whole answer. `command` makes a command line of a verb and a changed size or flags.
pub(crate) fn refusal(refusal: &Refusal, again: &dyn Fn(Option<u64>, &str) -> String) -> String {
    let mut lines = vec![format!("does not fit: {}", refusal.text)];
    lines.extend(failure(refusal).map(|text| format!("  {text}")));
    if let Some(fit) = refusal.max_fit
        && let Some(plan) = &refusal.plan
    {
        lines.push(match (fit.certain, fit.at_most) {
            (0, None) => "  how much would fit is not known".to_owned(),
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
    for way in &refusal.ways_out {
        lines.push(format!("  {head:12} {}", way_out(way, again)));
        head = "";
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
        Code::OverBudget => format!(" ({} entries per {} MR)", Grouped(per), Bytes(plan.chunk)),
        _ => String::new(),
    };
    Some(format!(
        "ibv_reg_mr would return {name} at MR {} of {}{detail}",
        index + 1,
        Grouped(plan.mrs)
    ))
}

fn way_out(way: &WayOut, again: &dyn Fn(Option<u64>, &str) -> String) -> String {
    match way {
        WayOut::Pages(other) => format!(
            "{:52} {}",
            words::alternative(other),
            again(None, &format!("--pages {}", words::pages_flag(other.pages)))
        ),
        WayOut::Reserve { page, short, need } => format!(
            "{} more huge pages of {page} ({}), {} in all: {}",
            Grouped(*short),
            Bytes(short.saturating_mul(page.bytes())),
            Grouped(*need),
            reserve_command(*page, *need)
        ),
        WayOut::Smaller(bytes) => {
            format!(
                "{:52} {}",
                format!("{} would fit", Bytes(*bytes)),
                again(Some(*bytes), "")
            )
        }
        WayOut::LongerChunks(bytes) | WayOut::ShorterChunks(bytes) => format!(
            "{:52} {}",
            format!("MRs of {}", Bytes(*bytes)),
            again(None, &format!("--chunk {}", words::size_flag(*bytes)))
        ),
        WayOut::Override(bytes) => format!(
            "a limit of {} or more, if the device allows it: --max-mr-size {}",
            Bytes(*bytes),
            words::size_flag(*bytes)
        ),
        WayOut::Memlock(bytes) => format!(
            "let the process pin {} KiB: ulimit -l unlimited, LimitMEMLOCK=infinity, or CAP_IPC_LOCK",
            Grouped(bytes.div_ceil(1024))
        ),
        WayOut::Lift(quirk, how) => format!("{quirk}: {how}"),
        _ => format!("{way:?}"),
    }
}

/// Until so much is free; the same for one run is `register --reserve`.
fn reserve_command(page: PageSize, need: u64) -> String {
    let size = words::size_flag(need.saturating_mul(page.bytes()));
    let pages = if page == PageSize::M2 {
        String::new()
    } else {
        format!(" --pages {}", words::size_flag(page.bytes()))
    };
    format!("sudo hugemr reserve {size}{pages}, or register --reserve")
}
