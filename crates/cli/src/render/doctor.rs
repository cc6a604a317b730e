//! Findings as one screen: the answer, then what stands in the way in order of harm.

use hugemr_core::doctor::{Answer, Finding, Harm, Report};
use hugemr_core::plan::{Plan, mrs};
use hugemr_core::size::{Bytes, Count};

/// Columns of the screen.
const WIDTH: usize = 100;

/// The whole answer. `wish`: what was asked for, bytes.
pub(crate) fn doctor(report: &Report, wish: Option<u64>, all: bool) -> String {
    let mut lines = vec![head(report, wish)];
    for finding in &report.findings {
        if finding.harm != Harm::Fine || all {
            lines.push(say(finding));
        }
    }
    let fine = report.count(Harm::Fine);
    if fine > 0 && !all {
        lines.push(format!("({} fine: --all)", Count(fine as u64, "check")));
    }
    lines.join("\n")
}

fn head(report: &Report, wish: Option<u64>) -> String {
    let counts = [
        (Harm::Block, "blocker", "blockers"),
        (Harm::Risk, "risk", "risks"),
        (Harm::Unknown, "unknown", "unknown"),
    ];
    let counts: Vec<String> = counts
        .into_iter()
        .filter_map(|(harm, one, many)| match report.count(harm) {
            0 => None,
            1 => Some(format!("1 {one}")),
            n => Some(format!("{n} {many}")),
        })
        .collect();
    let counts = if counts.is_empty() {
        "nothing to mend".to_owned()
    } else {
        counts.join(", ")
    };
    match (report.answer, wish, &report.plan) {
        (Answer::No, ..) => format!("NO, not as this host is now: {counts}"),
        (Answer::Yes, Some(wish), Some(plan)) => format!("yes: {}; {counts}", planned(wish, plan)),
        (Answer::Yes, ..) => format!("yes, nothing stands in the way: {counts}"),
        (Answer::Undecided, Some(wish), Some(plan)) => {
            format!("undecided: {}; {counts}", planned(wish, plan))
        }
        (Answer::Undecided, ..) => format!("undecided: {counts}"),
    }
}

fn planned(wish: u64, plan: &Plan) -> String {
    format!(
        "{} as {} on {}",
        Bytes(wish),
        mrs(&plan.segments),
        plan.pages.words()
    )
}

fn say(finding: &Finding) -> String {
    let (label, fix) = match finding.harm {
        Harm::Block => ("BLOCK", "fix"),
        Harm::Risk => ("RISK", "fix"),
        Harm::Unknown => ("?", "know"),
        Harm::Fine => ("fine", "fix"),
    };
    let mut lines = vec![wrap(&format!("{label:5} "), &finding.what)];
    let mut part = |name: &str, texts: &[String]| {
        for (i, text) in texts.iter().enumerate() {
            let name = if i == 0 { name } else { "" };
            lines.push(wrap(&format!("      {name:4}  "), text));
        }
    };
    part("seen", &finding.seen);
    if !finding.so.is_empty() {
        part("so", std::slice::from_ref(&finding.so));
    }
    part(fix, &finding.fix);
    lines.join("\n")
}

/// Pieces between which a line may be broken: words, and each command of ours as a whole, so that it can be copied.
fn pieces(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let bare = rest.trim_start_matches('(');
        let is_command = bare.starts_with("sudo hugemr ") || bare.starts_with("hugemr ");
        // A command ends before the next one, or before the gap of a remark.
        let ends = if is_command {
            ["; ", "   "]
        } else {
            [" ", " "]
        };
        let end = ends
            .iter()
            .filter_map(|end| Some(rest.find(end)? + end.len()));
        let (piece, behind) = rest.split_at(end.min().unwrap_or(rest.len()));
        pieces.push(piece);
        rest = behind;
    }
    pieces
}

/// The text behind its head, broken between pieces where it is too wide. Blanks inside a line stay as they are.
fn wrap(head: &str, text: &str) -> String {
    let indent = " ".repeat(head.chars().count());
    let mut lines = Vec::new();
    let mut line = head.to_owned();
    let mut first = true;
    for word in pieces(text) {
        let width = line.chars().count() + word.trim_end().chars().count();
        if width > WIDTH && !first && !word.trim().is_empty() {
            lines.push(line.trim_end().to_owned());
            line.clone_from(&indent);
        }
        line.push_str(word);
        first = false;
    }
    lines.push(line.trim_end().to_owned());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_broken_between_words() {
        let text = wrap("RISK  ", &"word ".repeat(40));
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
        assert_eq!(text.lines().count(), 3);
        assert!(text.lines().nth(1).unwrap().starts_with("      word"));
        assert_eq!(wrap("a ", "b   c"), "a b   c");
        let command = format!("sudo hugemr probe --device 'sim:{}'", "a b/".repeat(30));
        let text = wrap(
            "know  ",
            &format!("measure it: {command}; or state it: --budget N"),
        );
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let other = format!("{command};");
        assert_eq!(
            lines,
            ["know  measure it:", &other, "or state it: --budget N"]
        );
        assert_eq!(
            wrap("a ", &"x".repeat(200)),
            format!("a {}", "x".repeat(200))
        );
    }
}
