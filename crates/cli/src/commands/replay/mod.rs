//! `hugemr replay`: cases from a file through the code of the commands, and a comparison with what each case wants.
//!
//! The way of a line: `lines` (bounded, UTF-8) -> `vector` (id, op, `in`, `want`) -> one module an op (`in` -> answer, of
//! `in` alone) -> `compare` (answer against `want`) -> `report`. `docs/replay.md` describes the fields.

mod calc;
mod compare;
mod diagnose;
mod facts;
mod learn;
mod lines;
mod lookup;
mod plan;
mod read;
mod report;
mod simulate;
mod vector;

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::args::ReplayCommand;
use crate::exit::{Ended, Exit, Failure};
use lines::{BadLine, Lines};
use report::{Outcome, Tally};
use vector::{Op, Vector};

/// Most vectors of one file: their ids are kept, to find one that comes twice.
const MOST_VECTORS: usize = 100_000;

/// What the code of the commands answers to one `in`.
pub(super) struct Answer {
    /// Always the same fields for one op; null where one does not apply.
    fields: Map<String, Value>,
    /// In a few words, for a person.
    gist: String,
}

impl Answer {
    fn new(fields: &impl Serialize, gist: String) -> Result<Self, String> {
        match serde_json::to_value(fields) {
            Ok(Value::Object(fields)) => Ok(Self { fields, gist }),
            Ok(other) => Err(format!("an answer that is no object: {other}")),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// The answer to the `in` of a vector. Nothing else of the vector comes in here: not its id, not what it wants.
fn answer(op: Op, input: &str) -> Result<Answer, String> {
    match op {
        Op::Plan => plan::answer(read::object(input)?),
        Op::Sim => simulate::answer(read::object(input)?),
        Op::Lookup => lookup::answer(&read::object(input)?),
        Op::Diagnose => diagnose::answer(&read::object(input)?),
        Op::Learn => learn::answer(&read::object(input)?),
        Op::Calc => calc::answer(&read::object(input)?),
    }
}

pub(crate) fn run(command: &ReplayCommand) -> Ended {
    let files = &command.files;
    if files.iter().filter(|file| is_input(file)).count() > 1 {
        return Err(
            Failure::usage("- is given twice, and standard input can be read once")
                .with("way out    drop one of them"),
        );
    }
    if let [file] = files.as_slice() {
        let mut tally = Tally::default();
        one_file(file, command.json, &mut tally)??;
        super::say(&tally.closing(command.json, None))?;
        return Ok(tally.exit());
    }
    let mut all = Tally::default();
    let mut unread = 0;
    for file in files {
        let mut tally = Tally::default();
        match one_file(file, command.json, &mut tally)? {
            Ok(()) => super::say(&tally.closing(command.json, Some(file)))?,
            Err(why) => {
                unread += 1;
                super::say(&report::unread(command.json, file, &why))?;
            }
        }
        all.add(&tally);
    }
    super::say(&all.closing_all(command.json, files.len() as u64, unread))?;
    Ok(if unread > 0 { Exit::Usage } else { all.exit() })
}

fn is_input(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// Whether a file was read to its end, or why not. The outer error is that of the output, after which nothing can be said.
type Read = Result<Result<(), Failure>, Failure>;

fn one_file(file: &Path, json: bool, tally: &mut Tally) -> Read {
    if is_input(file) {
        return replay(std::io::stdin().lock(), file, json, tally);
    }
    match hugemr_input::open(file) {
        Ok(open) => replay(BufReader::new(open), file, json, tally),
        Err(error) => Ok(Err(super::unreadable(file, &error))),
    }
}

/// Runs the lines to the end, or to where the file cannot be read on.
fn replay(from: impl BufRead, file: &Path, json: bool, tally: &mut Tally) -> Read {
    let mut lines = Lines::new(from);
    let mut ids = HashSet::new();
    while let Some(line) = lines.next() {
        let (number, text) = match line {
            Ok(line) => line,
            Err(error) => return Ok(Err(super::unreadable(file, &error.into()))),
        };
        if text.as_ref().is_ok_and(|text| text.trim().is_empty()) {
            continue;
        }
        if ids.len() >= MOST_VECTORS {
            return Ok(Err(Failure::usage(format_args!(
                "{} has more than {MOST_VECTORS} vectors: split the file",
                file.display()
            ))));
        }
        let report = one(text, &mut ids);
        tally.count(&report.outcome);
        super::say(&if json {
            report.json(file, number)
        } else {
            report.text(number)
        })?;
    }
    if tally.all() == 0 {
        return Ok(Err(Failure::usage(format_args!(
            "there is no vector in {}",
            file.display()
        ))));
    }
    Ok(Ok(()))
}

/// One line to its end.
fn one(text: Result<&str, BadLine>, ids: &mut HashSet<String>) -> report::Report {
    let broken = |name, why: String| report::Report {
        name,
        outcome: Outcome::Broken(why),
    };
    let text = match text {
        Ok(text) => text,
        Err(bad) => return broken(None, bad.to_string()),
    };
    let vector = match Vector::parse(text) {
        Ok(vector) => vector,
        Err((name, why)) => return broken(name, why),
    };
    let name = Some((vector.id.clone(), vector.op.name()));
    if !ids.insert(vector.id) {
        return broken(name, "the id was used on a line before".to_owned());
    }
    let answer = match answer(vector.op, vector.input) {
        Ok(answer) => answer,
        Err(why) => return broken(name, format!("in: {why}")),
    };
    let outcome = match compare::compare(&vector.want, &answer.fields) {
        Ok(_) if vector.want.is_empty() => Outcome::Unasked(answer),
        Ok(mismatches) if mismatches.is_empty() => Outcome::Passed(answer),
        Ok(mismatches) => Outcome::Failed(answer, mismatches),
        Err(why) => return broken(name, format!("want: {why}")),
    };
    report::Report { name, outcome }
}
