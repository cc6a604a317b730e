//! A diagnosis: the summary, then causes in order, each with evidence, what would decide, and the fix.

use hugemr_core::diagnose::logs::{LONGEST_LINE, WithoutErrno};
use hugemr_core::diagnose::{Diagnosis, Ranked, Standing};
use hugemr_core::size::{Bytes, Count, Grouped, plural};

/// The whole answer.
pub(crate) fn long(diagnosis: &Diagnosis) -> String {
    let mut lines = vec![diagnosis.summary.clone()];
    if diagnosis.cannot_tell() {
        lines.push("cannot tell: nothing that is known points to a cause".to_owned());
    }
    lines.extend(undecided(diagnosis));
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
            "{}: {} at 4 KiB, {} at 64 KiB, {} at 2 MiB, {} at 1 GiB",
            Bytes(cost.length),
            Count(cost.entries_4k, "entry"),
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

/// That several causes are left, and why none of them is the answer.
fn undecided(diagnosis: &Diagnosis) -> Option<String> {
    let why = if diagnosis.has_point() {
        format!("equal evidence speaks for the first {}", diagnosis.equals())
    } else {
        "nothing but the error itself speaks for the first".to_owned()
    };
    let left = diagnosis.left();
    diagnosis
        .undecided()
        .then(|| format!("cannot tell which of {left}: {why}"))
}

/// Numbers of lines, and whether there are more.
fn numbers(lines: &[u64], count: u64) -> String {
    let mut list: Vec<String> = lines.iter().map(|n| Grouped(*n).to_string()).collect();
    if count > lines.len() as u64 {
        list.push("...".to_owned());
    }
    format!("{} {}", plural(count, "line", "lines"), list.join(", "))
}

/// The failures of a log whose errno cannot be read, where others have one.
pub(crate) fn without_errno(silent: &WithoutErrno) -> String {
    format!(
        "{} ({}): errno not readable; the same failure told again by an upper layer, or another one: run the program with LC_ALL=C",
        Count(silent.count, "more failure"),
        numbers(&silent.lines, silent.count)
    )
}

/// The lines of a log that were read in part.
pub(crate) fn cut(count: u64, lines: &[u64]) -> String {
    format!(
        "{}: longer than {}, and only the beginning was read",
        numbers(lines, count),
        Bytes(LONGEST_LINE as u64)
    )
}

/// The summary and the first cause, for a failure. Where it is undecided, every cause that is left with what would decide,
/// and no fix: it could be drastic, and of no use.
pub(crate) fn short(diagnosis: &Diagnosis) -> String {
    let mut lines = vec![format!("diagnosis  {}", diagnosis.summary)];
    let part = |head: &str, text: &str| format!("{head:9}  {text}");
    let named = |ranked: &Ranked| {
        let text = format!("{}: {}", ranked.cause.name(), ranked.cause.meaning());
        part(&ranked.standing.to_string(), &text)
    };
    if let Some(text) = undecided(diagnosis) {
        lines.push(part("undecided", &text));
        for ranked in diagnosis.causes.iter().take(diagnosis.left()) {
            lines.push(named(ranked));
            lines.extend(ranked.decide.iter().map(|text| part("decide", text)));
        }
    } else if let Some(first) = diagnosis.first() {
        lines.push(named(first));
        lines.extend(first.evidence_for.iter().map(|text| part("for", text)));
        lines.push(part("fix", &first.fix));
    }
    lines.join("\n")
}
