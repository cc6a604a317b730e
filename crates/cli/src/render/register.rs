//! What became of a registration.

use std::sync::Arc;
use std::time::Duration;

use hugemr_core::backend::{Backing, RegBackend};
use hugemr_core::plan::Plan;
use hugemr_core::registrar::{Mr, RegisterFailure, Registration};
use hugemr_core::size::{Bytes, Grouped};

use super::{table, words};
use crate::args::RegisterCommand;
use crate::commands::plan::Asked;
use crate::device::Inside;
use crate::exit::Failure;

/// The answer, and whether everything came as planned.
pub(crate) struct Seen {
    pub(crate) text: String,
    pub(crate) as_planned: bool,
}

pub(crate) fn registered<M: Backing>(
    command: &RegisterCommand,
    asked: &Asked,
    registration: &Registration<Arc<dyn RegBackend>, M>,
    inside: Option<&Inside>,
    took: Duration,
) -> Seen {
    let mrs: Vec<Mr> = registration.mrs().collect();
    let mut as_planned = true;
    let mut lines = vec![headline(asked, registration.bytes(), &mrs, inside)];
    let shown = |i: usize| command.all || i == 0 || i + 1 == mrs.len();
    let mut rows = Vec::new();
    for (i, mr) in mrs.iter().enumerate().filter(|(i, _)| shown(*i)) {
        let arrived = inside.and_then(|inside| inside.mrs.get(i));
        let (page, entries) = arrived.map_or_else(
            || (mr.chunk.page.to_string(), "-".to_owned()),
            |a| (a.page.to_string(), Grouped(a.entries).to_string()),
        );
        rows.push(vec![
            mr.chunk.index.to_string(),
            format!("{:#x}", mr.addr),
            Bytes(mr.chunk.len).to_string(),
            format!("{:#010x}/{:#010x}", mr.mr.lkey.0, mr.mr.rkey.0),
            page,
            entries,
        ]);
    }
    lines.push(table(
        &["MR", "address", "length", "lkey/rkey", "page", "entries"],
        &rows,
    ));
    if mrs.len() > rows.len() {
        lines.push(format!(
            "  ({} more: --all)",
            Grouped((mrs.len() - rows.len()) as u64)
        ));
    }
    if let Some(inside) = inside {
        let wrong: Vec<_> = inside.mrs.iter().filter(|a| a.wire_len != a.len).collect();
        if let Some(first) = wrong.first() {
            as_planned = false;
            lines.push(format!(
                "WRONG LENGTH: {} of {} MRs reached the device cut, though every call succeeded: {} asked for, {} arrived",
                wrong.len(),
                mrs.len(),
                Bytes(first.len),
                Bytes(first.wire_len)
            ));
            lines.push(
                "  transfers beyond the length that arrived would fail; do not use these MRs"
                    .to_owned(),
            );
        }
    }
    lines.push(format!("  time register {}", seconds(took)));
    Seen {
        text: lines.join("\n"),
        as_planned,
    }
}

fn headline(asked: &Asked, bytes: u64, mrs: &[Mr], inside: Option<&Inside>) -> String {
    let count = Grouped(mrs.len() as u64);
    let word = if mrs.len() == 1 { "MR" } else { "MRs" };
    let mut line = format!(
        "registered {} on {}: {count} {word}",
        Bytes(bytes),
        asked.device.name
    );
    if let Some(inside) = inside {
        let mut pages: Vec<_> = inside.mrs.iter().map(|mr| mr.page).collect();
        pages.sort_unstable();
        pages.dedup();
        let pages: Vec<String> = pages.iter().map(ToString::to_string).collect();
        line.push_str(&format!(
            ", page size {} and {} entries (read from the device object)",
            pages.join(" and "),
            Grouped(inside.entries)
        ));
    }
    line
}

pub(crate) fn released(count: usize, inside: Option<&Inside>, took: Duration) -> String {
    let mut line = format!(
        "released: {} MRs in {}",
        Grouped(count as u64),
        seconds(took)
    );
    if let Some(inside) = inside {
        line.push_str(&format!(
            "; the device object holds {} MRs and {} entries of ours",
            Grouped(inside.count),
            Grouped(inside.entries)
        ));
    }
    line
}

/// A registration that failed and was rolled back, with its diagnosis.
pub(crate) fn failure(asked: &Asked, plan: &Plan, failure: &RegisterFailure) -> Failure {
    let mut out = Failure::system(format_args!("on {}: {failure}", asked.device.name));
    for cause in crate::device::sources(failure) {
        out.more.push(format!("because {cause}"));
    }
    out.more.push(format!(
        "{} of {} MRs stood; rollback: {}",
        Grouped(failure.stood()),
        Grouped(plan.mrs),
        failure.rollback()
    ));
    out.more
        .push(format!("planned: {}", words::mrs(&plan.segments)));
    out
}

/// `0.53 s`, `12 ms`, `85 us`.
pub(crate) fn seconds(took: Duration) -> String {
    match took.as_micros() {
        0..1_000 => format!("{} us", took.as_micros()),
        1_000..1_000_000 => format!("{} ms", took.as_millis()),
        _ => format!("{:.2} s", took.as_secs_f64()),
    }
}
