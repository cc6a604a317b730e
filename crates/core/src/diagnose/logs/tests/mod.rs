//! Lines as they stand in public reports (shortened; the report is named), and anything else.

mod counts;
mod joined;
mod reports;
mod words;

use super::*;
use crate::diagnose::{Cause, Diagnosis, Standing, diagnose};
use crate::errno::Errno;

fn read(lines: &str) -> Log {
    let mut log = Log::default();
    lines.lines().for_each(|line| log.read(line));
    log
}

/// The first failure of a log, and its diagnosis on a family (or the one that the log names).
#[track_caller]
fn first(lines: &str, family: Option<Family>) -> (Failure, Diagnosis) {
    let mut failure = read(lines)
        .failures()
        .into_iter()
        .next()
        .expect("a failure");
    failure.evidence.family = family.or(failure.evidence.family);
    let diagnosis = diagnose(&failure.evidence);
    (failure, diagnosis)
}

#[track_caller]
fn stands(diagnosis: &Diagnosis, cause: Cause, standing: Standing) {
    let ranked = diagnosis
        .of(cause)
        .unwrap_or_else(|| panic!("{cause}: {diagnosis:#?}"));
    assert_eq!(ranked.standing, standing, "{diagnosis:#?}");
}

/// The line tells a failure, with this errno.
#[track_caller]
fn is_failure(line: &str, errno: Option<Errno>) {
    let found = scan(line).unwrap_or_else(|| panic!("{line}"));
    assert_eq!(found.evidence.errno, errno, "{line}");
}
