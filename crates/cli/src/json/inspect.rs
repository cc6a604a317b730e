//! A process's memory as a document: schema `hugemr/inspect/1`.

use hugemr_host::inspect::NoLayout;
use serde_json::{Value, json};

use super::hex;
use crate::commands::inspect::{Inspected, Row};
use crate::render::words;

pub(crate) fn inspect(seen: &Inspected) -> Value {
    json!({
        "schema": "hugemr/inspect/1",
        "pid": seen.pid,
        "name": seen.process.name,
        "pinned": seen.process.pinned,
        "platform": words::platform(&seen.platform),
        "mappings": seen.rows.iter().map(row).collect::<Vec<_>>(),
        "other_mappings": seen.others,
        "total": {
            "bytes": seen.total.bytes,
            "entries": range(seen.total.entries),
            "entries_at_2MiB": seen.total.at_2m,
        },
    })
}

fn row(row: &Row) -> Value {
    let (mapping, forecast) = (&row.mapping, &row.forecast);
    json!({
        "addr": hex(mapping.start),
        "len": mapping.len,
        "name": mapping.name,
        "shared": mapping.shared,
        "hugetlb": mapping.hugetlb,
        "kernel_page": mapping.page.bytes(),
        "present": mapping.present,
        "thp": mapping.thp,
        "runs": row.runs.as_ref().ok(),
        "why_no_runs": row.runs.as_ref().err().map(|why| code(*why)),
        "mr": {
            "exact": forecast.exact,
            "page": range((forecast.page.1.bytes(), forecast.page.0.bytes())),
            "entries": range(forecast.entries),
            "wrong_length": forecast.wrong_length.map(|(asked, got)| json!({ "asked": asked, "arrives": got })),
        },
    })
}

fn range((low, high): (u64, u64)) -> Value {
    if low == high {
        json!(low)
    } else {
        json!({ "min": low, "max": high })
    }
}

fn code(why: NoLayout) -> &'static str {
    match why {
        NoLayout::NotAllowed => "not_allowed",
        NoLayout::NotPopulated => "not_populated",
        NoLayout::TooLarge => "too_large",
        _ => "failed",
    }
}
