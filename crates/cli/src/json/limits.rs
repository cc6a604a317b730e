//! Probes and records: schema `hugemr/probe/1`, and what `hugemr/learn/2` has in common with it.

use hugemr_core::limits::{Learned, Range, Record};
use hugemr_core::probe::{End, NoLargePages};
use serde_json::{Value, json};

use crate::commands::probe::Report;
use crate::limits::{NotSaved, Saved};

fn range((low, high): Range) -> Value {
    json!({ "min": low, "max": high })
}

/// What was saved, and where; null where nothing was.
pub(crate) fn saved(saved: Option<&Result<Saved, NotSaved>>) -> Value {
    let saved = saved.and_then(|saved| saved.as_ref().ok());
    json!(saved.map(|saved| {
        let replaced = match saved.learned {
            Learned::Replaced(old) => Some(range(old)),
            Learned::Nothing | Learned::Narrowed => None,
        };
        json!({ "file": saved.path, "record": record(&saved.record), "replaced": replaced })
    }))
}

fn record(record: &Record) -> Value {
    let (identity, seen) = (&record.identity, &record.seen);
    json!({
        "device": identity.device,
        "guid": identity.guid,
        "kernel": identity.kernel,
        "driver": identity.driver,
        "firmware": identity.firmware,
        "instance": identity.instance,
        "confidence": record.confidence.name(),
        "changed": record.seconds,
        "entries": range(seen.entries),
        "entries_per_mr": range(seen.per_mr),
        "max_mr": range(seen.mrs),
        "longest_mr": seen.longest,
        "refused_mr": seen.refused,
        "large_pages": seen.large_pages,
    })
}

pub(crate) fn probe(
    report: &Report,
    was_saved: Option<&Result<Saved, NotSaved>>,
    not_saved: Option<&str>,
) -> Value {
    let found = &report.found;
    json!({
        "schema": "hugemr/probe/1",
        "device": report.device.name,
        "end": found.end.name(),
        "exact": found.exact(),
        "entries": range(found.entries),
        "entries_per_mr": { "worked": found.per_mr.0, "refused": found.per_mr.1 },
        "max_mr": found.max_mr.map(range),
        "max_mr_end": found.max_mr_end.map(End::name),
        "held": { "entries": found.held, "mrs": found.mrs },
        "longest_mr": found.longest.map(|longest| json!({
            "len": longest.len,
            "errno": longest.refused.and_then(hugemr_core::errno::Errno::name),
            "longer_refused": longest.longer_refused,
            "within": longest.within.map(|(worked, refused)| json!({ "worked": worked, "refused": refused })),
            "sent": report.sent,
        })),
        "large_pages": found.large_pages.map(|large| json!({
            "used": large.used, "len": large.len, "room": large.room,
        })),
        "large_pages_not": found.large_pages_not.map(NoLargePages::name),
        "large_not_tried": report.no_large,
        // The entries that it could have taken.
        "over_up_to": { "longest_mr": found.longest_over, "large_pages": found.large_pages_over },
        "registrations": found.tried,
        "disturbances": found.disturbances,
        "stopped": found.stopped.map(|stop| End::Stopped(stop).name()),
        "left": found.left,
        "seconds": report.seconds,
        "saved": saved(was_saved),
        "not_saved": not_saved,
    })
}
