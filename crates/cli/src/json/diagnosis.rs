//! A diagnosis as a document: schema `hugemr/diagnosis/1`.

use hugemr_core::diagnose::Diagnosis;
use serde_json::{Value, json};

pub(crate) fn diagnosis(diagnosis: &Diagnosis) -> Value {
    json!({
        "schema": "hugemr/diagnosis/1",
        "operation": diagnosis.operation.name(),
        "errno": diagnosis.errno.map(|errno| errno.name().map_or_else(|| errno.0.to_string(), str::to_owned)),
        "family": diagnosis.family.map(hugemr_core::device::Family::name),
        "summary": diagnosis.summary,
        "cannot_tell": diagnosis.cannot_tell(),
        "undecided": diagnosis.undecided(),
        "causes": diagnosis.causes.iter().map(|ranked| json!({
            "cause": ranked.cause.name(),
            "standing": ranked.standing.to_string(),
            "meaning": ranked.cause.meaning(),
            "for": ranked.evidence_for,
            "against": ranked.against,
            "decide": ranked.decide,
            "fix": ranked.fix,
        })).collect::<Vec<_>>(),
        "arithmetic": diagnosis.arithmetic.map(|cost| json!({
            "length": cost.length,
            "entries_4k": cost.entries_4k,
            "entries_64k": cost.entries_64k,
            "entries_2m": cost.entries_2m,
            "entries_1g": cost.entries_1g,
        })),
        "unknown": diagnosis.unknown,
    })
}
