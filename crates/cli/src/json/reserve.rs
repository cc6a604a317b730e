//! Changes of pools as documents: schemas `hugemr/reserve/1` and `hugemr/release/1`.

use hugemr_host::reserve::{Change, Stays};
use serde_json::{Value, json};

use crate::commands::release::Released;
use crate::commands::reserve::Reserved;

/// One pool before and after. Counts are persistent pages.
pub(super) fn change(change: &Change) -> Value {
    json!({
        "page": change.page.bytes(),
        "node": change.node,
        "file": change.file(),
        "before": change.from,
        "after": change.to,
    })
}

/// Pages that stay in the pools, and the commands that take them back.
pub(crate) fn stays(stays: &[Stays], commands: &[String]) -> Value {
    let one = |stays: &Stays| {
        json!({
            "page": stays.page.bytes(),
            "node": stays.node,
            "pages": stays.pages,
            "noted": stays.by_hand.is_none(),
        })
    };
    json!({ "pools": stays.iter().map(one).collect::<Vec<_>>(), "commands": commands })
}

pub(crate) fn reserve(reserved: &Reserved) -> Value {
    json!({
        "schema": "hugemr/reserve/1",
        "changed": reserved.changed,
        "dry_run": reserved.dry_run,
        "page": reserved.page.bytes(),
        "pages": reserved.pages,
        "available": reserved.available,
        "pools": reserved.pools.iter().map(change).collect::<Vec<_>>(),
        "stale": reserved.stale,
        "risk": reserved.risk,
        "seconds": reserved.took.map(|took| took.as_secs_f64()),
        "persist": reserved.persist.as_ref().map(|kept| json!({
            "boot_line": kept.boot_line, "unit_file": kept.unit_file, "unit": kept.unit,
        })),
    })
}

pub(crate) fn release(released: &Released) -> Value {
    json!({
        "schema": "hugemr/release/1",
        "changed": released.changed,
        "dry_run": released.dry_run,
        "stale": released.stale,
        "pools": released.pools.iter().map(change).collect::<Vec<_>>(),
        "in_use": released.in_use,
        "gone": released.gone.iter().map(|(_, pages)| pages).sum::<u64>(),
        "others_left": released.others,
        "traces": released.traces.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
