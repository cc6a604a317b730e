//! Changes of pools as documents: schemas `hugemr/reserve/1` and `hugemr/release/1`.

use hugemr_host::reserve::Change;
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

pub(crate) fn reserve(reserved: &Reserved) -> Value {
    json!({
        "schema": "hugemr/reserve/1",
        "changed": reserved.changed,
        "dry_run": reserved.dry_run,
        "page": reserved.page.bytes(),
        "pages": reserved.pages,
        "available": reserved.available,
        "pools": reserved.pools.iter().map(change).collect::<Vec<_>>(),
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
        "others_left": released.others,
        "traces": released.traces.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
