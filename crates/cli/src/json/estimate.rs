//! A prediction as part of a document.

use hugemr_core::estimate::{Cost, Seconds};
use serde_json::{Value, json};

use crate::estimate::Estimated;

/// Seconds at best, likely and at worst (null: not known), each step with how its cost is known.
pub(crate) fn estimate(of: &Estimated) -> Value {
    let times = &of.times;
    json!({
        "threads": of.way.threads,
        "missing_pages": of.way.missing_pages,
        "reserve": step(times.reserve, &of.costs.reserve),
        "populate": step(times.populate, &of.costs.populate),
        "pin": step(times.pin, &of.costs.pin),
        "register": step(times.register, &of.costs.command),
        "total": step(times.total, &None),
        "not_known": of.not_known,
    })
}

fn step(time: Option<Seconds>, cost: &Option<Cost>) -> Value {
    time.map_or(Value::Null, |time| {
        let source = cost.as_ref().map(|cost| &cost.source);
        json!({
            "best": time.best,
            "likely": time.likely,
            "worst": time.worst,
            "kind": source.map(|source| source.kind.to_string()),
            "source": source.map(|source| &source.text),
        })
    })
}
