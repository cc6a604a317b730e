//! One result line a vector, and the closing line.

use std::path::Path;

use hugemr_core::size::Count;
use serde_json::{Value, json};

use super::Answer;
use super::compare::Mismatch;
use super::vector::Name;
use crate::exit::{Exit, Failure};

const SCHEMA: &str = "hugemr/replay/1";

/// Longest reason that is shown, characters: a key of a broken line can be as long as the line.
const LONGEST_REASON: usize = 1000;

/// How a line ended.
pub(super) enum Outcome {
    Passed(Answer),
    Failed(Answer, Vec<Mismatch>),
    /// Answered, and nothing was wanted.
    Unasked(Answer),
    Broken(String),
}

/// A line with its outcome.
pub(super) struct Report {
    pub(super) name: Name,
    pub(super) outcome: Outcome,
}

const UNASKED: &str = "nothing is wanted";

impl Report {
    pub(super) fn text(&self, line: u64) -> String {
        let name = match &self.name {
            Some((id, op)) => format!("{id} {op}"),
            None => format!("line {line}"),
        };
        match &self.outcome {
            Outcome::Passed(answer) => format!("pass {name}  {}", answer.gist),
            Outcome::Unasked(answer) => format!("skip {name}: {UNASKED}  {}", answer.gist),
            Outcome::Broken(why) if self.name.is_some() => {
                format!("ERROR line {line}, {name}: {}", shown(why))
            }
            Outcome::Broken(why) => format!("ERROR {name}: {}", shown(why)),
            Outcome::Failed(_, mismatches) => {
                let list: Vec<String> = mismatches
                    .iter()
                    .map(|m| format!("{}: want {}, got {}", m.key, m.want, m.got))
                    .collect();
                format!("FAIL {name} {}", shown(&list.join("; ")))
            }
        }
    }

    pub(super) fn json(&self, file: &Path, line: u64) -> String {
        let (id, op) = match &self.name {
            Some((id, op)) => (Some(id), Some(op)),
            None => (None, None),
        };
        let (outcome, answer, mismatches, reason) = match &self.outcome {
            Outcome::Passed(answer) => ("pass", Some(answer), None, None),
            Outcome::Failed(answer, list) => ("fail", Some(answer), Some(list), None),
            Outcome::Unasked(answer) => ("skip", Some(answer), None, Some(UNASKED.to_owned())),
            Outcome::Broken(why) => ("error", None, None, Some(shown(why))),
        };
        let mismatches: Vec<Value> = mismatches
            .into_iter()
            .flatten()
            .map(|m| json!({ "key": m.key, "want": m.want, "got": m.got }))
            .collect();
        json!({
            "schema": SCHEMA,
            "file": file.to_string_lossy(),
            "line": line,
            "id": id,
            "op": op,
            "outcome": outcome,
            "answer": answer.map(|answer| &answer.fields),
            "mismatches": mismatches,
            "reason": reason,
        })
        .to_string()
    }
}

/// One of several files that could not be read, or not to its end, or has no vector.
pub(super) fn unread(json: bool, file: &Path, why: &Failure) -> String {
    if json {
        return json!({
            "schema": SCHEMA,
            "file": file.to_string_lossy(),
            "outcome": "error",
            "reason": why.what,
            "more": why.more,
        })
        .to_string();
    }
    let mut lines = vec![format!("ERROR {}", why.what)];
    lines.extend(why.more.iter().map(|line| format!("  {line}")));
    lines.join("\n")
}

/// Text that came from the file, safe for a terminal.
fn shown(text: &str) -> String {
    let mut shown = String::new();
    for (i, c) in text.chars().enumerate() {
        if i >= LONGEST_REASON {
            shown.push_str("...");
            break;
        }
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// The numbers of the closing line.
#[derive(Default)]
pub(super) struct Tally {
    passed: u64,
    failed: u64,
    skipped: u64,
    broken: u64,
}

impl Tally {
    pub(super) fn count(&mut self, outcome: &Outcome) {
        *match outcome {
            Outcome::Passed(_) => &mut self.passed,
            Outcome::Failed(..) => &mut self.failed,
            Outcome::Unasked(_) => &mut self.skipped,
            Outcome::Broken(_) => &mut self.broken,
        } += 1;
    }

    pub(super) fn all(&self) -> u64 {
        self.passed + self.failed + self.skipped + self.broken
    }

    /// The same of one more file.
    pub(super) fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.broken += other.broken;
    }

    pub(super) fn exit(&self) -> Exit {
        match (self.broken, self.failed) {
            (0, 0) => Exit::Yes,
            (0, _) => Exit::No,
            _ => Exit::Usage,
        }
    }

    fn text(&self) -> String {
        let mut text = format!(
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        );
        if self.broken > 0 {
            text += &format!(", {}", Count(self.broken, "broken line"));
        }
        text
    }

    fn summary(&self) -> Value {
        json!({
            "passed": self.passed,
            "failed": self.failed,
            "skipped": self.skipped,
            "broken": self.broken,
        })
    }

    /// The closing line of a file, which is named where there are several.
    pub(super) fn closing(&self, json: bool, file: Option<&Path>) -> String {
        match (json, file) {
            (false, None) => self.text(),
            (false, Some(file)) => format!("{}: {}", file.display(), self.text()),
            (true, None) => json!({ "schema": SCHEMA, "summary": self.summary() }).to_string(),
            (true, Some(file)) => {
                let file = file.to_string_lossy();
                json!({ "schema": SCHEMA, "file": file, "summary": self.summary() }).to_string()
            }
        }
    }

    /// The last line of several files.
    pub(super) fn closing_all(&self, json: bool, files: u64, unread: u64) -> String {
        if json {
            let files = json!({ "given": files, "unread": unread });
            return json!({ "schema": SCHEMA, "files": files, "summary": self.summary() })
                .to_string();
        }
        let mut text = format!("{}: {}", Count(files, "file"), self.text());
        if unread > 0 {
            text += &format!(", {} not read", Count(unread, "file"));
        }
        text
    }
}
