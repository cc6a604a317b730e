//! The limits file as a text.
//!
//! A text of a later version, damaged or cut off, is refused. Keys that this version does not know are kept.

use hugemr_core::limits::{Confidence, Identity, Range, Record, Seen};
use serde::{Deserialize, Serialize};

use super::Limits;

/// The version that is written.
pub const VERSION: u64 = 1;
/// The last line: a file without it was cut off.
const END: &str = "# end";

/// What the first line begins with.
const HEAD: &str = "# Limits of RDMA devices";

/// Whether a text that is not understood may have been a limits file once: it has the first line of one, a block of a device, or a
/// version and no table of another kind (`Cargo.lock` has both).
pub(super) fn resembles(text: &str) -> bool {
    let lines = || text.lines().map(str::trim);
    let has_device = lines().any(|line| line == "[[device]]");
    let is_table = |line: &str| line.starts_with('[');
    let is_version = |line: &str| {
        let value = line.strip_prefix("version");
        value.is_some_and(|value| value.trim_start().starts_with('='))
    };
    text.starts_with(HEAD) || has_device || lines().any(is_version) && !lines().any(is_table)
}

/// As it is written.
#[derive(Serialize, Deserialize)]
struct Written {
    version: u64,
    #[serde(default)]
    device: Vec<WrittenRecord>,
    #[serde(flatten)]
    rest: toml::Table,
}

#[derive(Serialize, Deserialize)]
struct WrittenRecord {
    name: String,
    guid: Option<String>,
    kernel: Option<String>,
    driver: Option<String>,
    firmware: Option<String>,
    instance: Option<String>,
    /// Seconds since 1970.
    changed: u64,
    confidence: String,
    entries: Option<Span>,
    entries_per_mr: Option<Span>,
    max_mr: Option<Span>,
    longest_mr: Option<u64>,
    refused_mr: Option<u64>,
    large_pages: Option<bool>,
    #[serde(flatten)]
    rest: toml::Table,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Span {
    at_least: u64,
    at_most: Option<u64>,
}

impl Limits {
    /// Reads a text. An empty one knows nothing.
    ///
    /// # Errors
    /// Where and why it is not understood.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            // As mktemp makes it. A text of hugemr never is: it takes the place of the old one as a whole.
            return Ok(Self::default());
        }
        // The version first: a later one may look different otherwise.
        let table: toml::Table = toml::from_str(text).map_err(|error| one_line(text, &error))?;
        match table.get("version").map(toml::Value::as_integer) {
            Some(Some(1)) => {}
            Some(Some(other)) if other > 1 => {
                return Err(format!(
                    "version {other} is of a later hugemr; this one knows version {VERSION}"
                ));
            }
            Some(Some(other)) => {
                return Err(format!("version {other} was never written by hugemr"));
            }
            Some(None) => return Err("version is no number".to_owned()),
            None => return Err("no version: hugemr did not write it".to_owned()),
        }
        if text.trim_end().lines().last() != Some(END) {
            // A number that was cut off would be another number.
            return Err(format!(
                "cut off: the last line is not \"{END}\"; if the last record is complete, nothing else is missing, and it can be added (echo '{END}' >> FILE)"
            ));
        }
        let written: Written = toml::from_str(text).map_err(|error| one_line(text, &error))?;
        let mut limits = Self {
            rest: written.rest,
            ..Self::default()
        };
        for (number, one) in (1..).zip(written.device) {
            let name = one.name.clone();
            let bad = |why| format!("device {number} ({name:?}): {why}");
            let (record, rest) = record(one).map_err(bad)?;
            limits.records.push(record);
            limits.rests.push(rest);
        }
        Ok(limits)
    }

    /// The text that [`parse`](Self::parse) reads back.
    #[must_use]
    pub fn text(&self) -> String {
        let rests = self
            .rests
            .iter()
            .cloned()
            .chain(std::iter::repeat_with(toml::Table::new));
        let written = Written {
            version: VERSION,
            device: self
                .records
                .iter()
                .zip(rests)
                .map(|(record, rest)| write(record, rest))
                .collect(),
            rest: self.rest.clone(),
        };
        let body = toml::to_string(&written).unwrap_or_default();
        format!("{HEAD}, measured by hugemr. To forget one, delete its block.\n{body}{END}\n")
    }
}

fn record(one: WrittenRecord) -> Result<(Record, toml::Table), String> {
    let confidence = Confidence::parse(&one.confidence).ok_or_else(|| {
        format!(
            "confidence {:?} is not probed, seen or told",
            one.confidence
        )
    })?;
    let span = |key: &str, span: Option<Span>| match span {
        None => Ok((0, None)),
        Some(Span {
            at_least,
            at_most: Some(most),
        }) if at_least > most => Err(format!(
            "{key}: at_least {at_least} is above at_most {most}"
        )),
        Some(Span { at_least, at_most }) => Ok((at_least, at_most)),
    };
    let record = Record {
        seen: Seen {
            entries: span("entries", one.entries)?,
            per_mr: span("entries_per_mr", one.entries_per_mr)?,
            mrs: span("max_mr", one.max_mr)?,
            longest: one.longest_mr,
            refused: one.refused_mr,
            large_pages: one.large_pages,
        },
        identity: Identity {
            device: one.name,
            guid: one.guid,
            kernel: one.kernel,
            driver: one.driver,
            firmware: one.firmware,
            instance: one.instance,
        },
        confidence,
        seconds: one.changed,
    };
    Ok((record, one.rest))
}

fn write(record: &Record, rest: toml::Table) -> WrittenRecord {
    // TOML has 63 bits for a number: a lower end beyond is cut, an upper end beyond is none.
    const MOST: u64 = i64::MAX as u64;
    let span = |(low, high): Range| {
        let span = Span {
            at_least: low.min(MOST),
            at_most: high.filter(|high| *high <= MOST),
        };
        (low > 0 || high.is_some()).then_some(span)
    };
    let (identity, seen) = (record.identity.clone(), &record.seen);
    WrittenRecord {
        name: identity.device,
        guid: identity.guid,
        kernel: identity.kernel,
        driver: identity.driver,
        firmware: identity.firmware,
        instance: identity.instance,
        changed: record.seconds.min(MOST),
        confidence: record.confidence.name().to_owned(),
        entries: span(seen.entries),
        entries_per_mr: span(seen.per_mr),
        max_mr: span(seen.mrs),
        longest_mr: seen.longest.map(|bytes| bytes.min(MOST)),
        refused_mr: seen.refused.filter(|bytes| *bytes <= MOST),
        large_pages: seen.large_pages,
        rest,
    }
}

/// The message of a TOML error with its line, without the picture of it.
fn one_line(text: &str, error: &toml::de::Error) -> String {
    let place = hugemr_input::Place::of(text, error.span());
    format!("{place}: {}", hugemr_input::plain(error.message()))
}
