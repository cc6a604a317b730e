//! One module a command.

pub(crate) mod devices;
pub(crate) mod diagnose;
pub(crate) mod doctor;
pub(crate) mod generate;
pub(crate) mod inspect;
pub(crate) mod learn;
pub(crate) mod plan;
pub(crate) mod probe;
pub(crate) mod register;
pub(crate) mod release;
pub(crate) mod replay;
pub(crate) mod reserve;
pub(crate) mod usage;
pub(crate) mod ways;

use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use hugemr_input::InputError;

use crate::exit::Failure;
use crate::render::words;

/// Writes an answer.
pub(crate) fn say(text: &str) -> Result<(), Failure> {
    // One write: standard output writes up to the last line end that it is given, and the rest when another one comes.
    let mut text = words::shown(text).into_owned();
    text.push('\n');
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

/// A log or vectors that cannot be read.
pub(crate) fn unreadable(path: &Path, error: &InputError) -> Failure {
    let failure = Failure::usage(format_args!("cannot read {}: {error}", path.display()));
    match error {
        InputError::NotRegular(_) => failure.with("way out    - reads from standard input"),
        _ => failure,
    }
}

/// A note on the answer: on standard error, and as `notes` of the JSON documents that follow. Said once.
pub(crate) fn note(text: String) {
    let mut notes = NOTES.lock().unwrap_or_else(PoisonError::into_inner);
    if !notes.contains(&text) {
        remark(&format!("note: {text}"));
        notes.push(text);
    }
}

/// The notes so far.
pub(crate) fn notes() -> Vec<String> {
    NOTES.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

static NOTES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Writes a remark to standard error.
pub(crate) fn remark(text: &str) {
    let _gone = writeln!(std::io::stderr().lock(), "{}", words::shown(text));
}
