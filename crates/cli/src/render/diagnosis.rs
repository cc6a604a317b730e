//! A diagnosis: the summary, then causes in order, each with evidence, what would decide, and the fix.

use hugemr_core::diagnose::logs::WithoutErrno;
use hugemr_core::diagnose::{Diagnosis, Standing};
use hugemr_core::size::{Bytes, Grouped};

use super::words;

/// The whole answer.
pub(crate) fn long(diagnosis: &Diagnosis) -> String {
    let mut lines = vec![diagnosis.summary.clone()];
    if diagnosis.cannot_tell() {
        lines.push("cannot tell: nothing that is known points to a cause".to_owned());
    }
    if diagnosis.undecided() {
        lines.push(format!(
            "cannot tell which of {}: nothing but the error itself speaks for the first",
            diagnosis.left()
        ));
    }
    for (i, ranked) in diagnosis.causes.iter().enumerate() {
        let number = if ranked.standing == Standing::RuledOut {
            "x".to_owned()
        } else {
            (i + 1).to_string()
        };
        lines.push(format!(
            "{number:2} {:10} {}: {}",
            ranked.standing,
            ranked.cause.name(),
            ranked.cause.meaning()
        ));
        let part = |head: &str, text: &str| format!("   {head:10} {text}");
        lines.extend(ranked.evidence_for.iter().map(|text| part("for", text)));
        lines.extend(ranked.against.iter().map(|text| part("against", text)));
        if ranked.standing != Standing::RuledOut {
            lines.extend(ranked.decide.iter().map(|text| part("decide", text)));
            lines.push(part("fix", &ranked.fix));
        }
    }
    if let Some(cost) = diagnosis.arithmetic {
        lines.push(format!(
            "{}: {} entries at 4 KiB, {} at 64 KiB, {} at 2 MiB, {} at 1 GiB",
            Bytes(cost.length),
            Grouped(cost.entries_4k),
            Grouped(cost.entries_64k),
            Grouped(cost.entries_2m),
            Grouped(cost.entries_1g)
        ));
    }
    if !diagnosis.unknown.is_empty() {
        lines.push(format!(
            "would help to know: {}",
            diagnosis.unknown.join(", ")
        ));
    }
    lines.join("\n")
}

/// The failures of a log whose errno cannot be read, where others have one.
pub(crate) fn without_errno(silent: &WithoutErrno) -> String {
    let mut lines: Vec<String> = silent.lines.iter().map(|n| Grouped(*n).to_string()).collect();
    if silent.count > lines.len() as u64 {
        lines.push("...".to_owned());
    }
    format!(
        "{} more {} ({} {}): errno not readable; the same failure told again by an upper layer, or another one: run the program with LC_ALL=C",
        Grouped(silent.count),
        words::plural(silent.count, "failure", "failures"),
        words::plural(silent.count, "line", "lines"),
        lines.join(", ")
    )
}

/// The summary and the first cause, for a failure.
pub(crate) fn short(diagnosis: &Diagnosis) -> String {
    let mut lines = vec![format!("diagnosis  {}", diagnosis.summary)];
    if let Some(first) = diagnosis.first() {
        lines.push(format!(
            "{:9}  {}: {}",
            first.standing,
            first.cause.name(),
            first.cause.meaning()
        ));
        lines.extend(
            first
                .evidence_for
                .iter()
                .map(|text| format!("{:9}  {text}", "for")),
        );
        lines.push(format!("{:9}  {}", "fix", first.fix));
    }
    lines.join("\n")
}
