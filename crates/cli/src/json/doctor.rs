//! The doctor's findings as a document: schema `hugemr/doctor/1`.

use hugemr_core::doctor::{Finding, Harm, Report, Taken};
use hugemr_core::host::Host;
use serde_json::{Value, json};

use super::PlanDocument;

pub(crate) fn doctor(
    report: &Report,
    device: &str,
    wish: Option<u64>,
    taken: &Taken,
    host: &Host,
) -> Value {
    let counts: serde_json::Map<String, Value> = Harm::ALL
        .iter()
        .map(|harm| (harm.name().to_owned(), report.count(*harm).into()))
        .collect();
    json!({
        "schema": "hugemr/doctor/1",
        "answer": report.answer.name(),
        "for": wish,
        "device": device,
        "facts": { "seconds": taken.seconds, "boot_id": taken.boot_id, "host": taken.host },
        "counts": counts,
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
        "plan": report.plan.as_ref().map(|plan| PlanDocument::new(device, plan, host)),
    })
}

fn finding(finding: &Finding) -> Value {
    json!({
        "code": finding.code,
        "harm": finding.harm.name(),
        "what": finding.what,
        "seen": finding.seen,
        "so": (!finding.so.is_empty()).then_some(&finding.so),
        "fix": finding.fix,
        "decides": finding.decides,
    })
}
