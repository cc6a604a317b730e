//! Answers as JSON. Every document has `schema`, a name with a version that changes when a field changes its meaning or
//! goes; new fields may come at any time. Sizes are bytes, addresses are hex strings (they may exceed 2^53), every limit
//! has its source. `docs/json.md` describes the fields.

mod diagnosis;
mod doctor;
mod estimate;
mod facts;
mod inspect;
mod limits;
mod plan;
mod prove;
mod register;
mod reserve;
mod walk;

pub(crate) use diagnosis::diagnosis;
pub(crate) use doctor::doctor;
pub(crate) use estimate::estimate;
pub(crate) use facts::{facts, read as read_facts};
pub(crate) use inspect::inspect;
pub(crate) use limits::{probe, saved};
pub(crate) use plan::{PlanDocument, RefusalDocument, limit};
pub(crate) use register::{failed, not_closed, register};
pub(crate) use reserve::{release, reserve, stays};

use serde::Serialize;

use crate::exit::{Exit, Failure};

/// A failure as a document.
#[derive(Serialize)]
pub(crate) struct FailureDocument<'a> {
    schema: &'static str,
    exit: u8,
    error: &'a str,
    more: &'a [String],
    /// Why a registration failed: `hugemr/diagnosis/1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    diagnosis: Option<&'a serde_json::Value>,
    /// What stood when a registration failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<&'a serde_json::Value>,
    /// Pages that should have been given back and stay in the pools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pools_left: Option<&'a serde_json::Value>,
}

impl<'a> FailureDocument<'a> {
    pub(crate) fn new(failure: &'a Failure) -> Self {
        Self {
            schema: "hugemr/error/1",
            exit: failure.exit as u8,
            error: &failure.what,
            more: &failure.more,
            diagnosis: failure.diagnosis.as_deref(),
            failed: failure.failed.as_deref(),
            pools_left: failure.pools_left.as_deref(),
        }
    }
}

/// How a document is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// The whole answer, for a person to read too.
    Document,
    /// One of several, in one line (JSON Lines).
    Line,
}

/// Writes the only document of an answer.
pub(crate) fn write(document: &impl Serialize) -> Result<(), Failure> {
    write_as(Style::Document, document)
}

/// Writes a document with a final newline.
pub(crate) fn write_as(style: Style, document: &impl Serialize) -> Result<(), Failure> {
    use std::io::Write as _;
    let notes = crate::commands::notes();
    let text = if notes.is_empty() {
        laid_out(style, document)
    } else {
        laid_out(style, &Noted { document, notes })
    };
    let text = text.map_err(|e| Failure {
        exit: Exit::System,
        ..Failure::system(e)
    })?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(())
}

/// A document with the notes on it.
#[derive(Serialize)]
struct Noted<'a, T> {
    #[serde(flatten)]
    document: &'a T,
    notes: Vec<String>,
}

fn laid_out(style: Style, document: &impl Serialize) -> Result<String, serde_json::Error> {
    match style {
        Style::Document => serde_json::to_string_pretty(document),
        Style::Line => serde_json::to_string(document),
    }
}

/// `0x7e0000000000`.
pub(crate) fn hex(address: u64) -> String {
    format!("{address:#x}")
}
