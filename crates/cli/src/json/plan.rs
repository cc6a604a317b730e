//! A plan and a refusal as documents: schema `hugemr/plan/1`.

use crate::commands::plan::Asked;
use crate::commands::ways::{Reservable, Way};
use hugemr_core::fact::{Fit, Limit};
use hugemr_core::host::{Driver, Host};
use hugemr_core::plan::{Alternative, ChunkBound, MaxFit, Plan, Refusal, Resource, WayOut};
use hugemr_core::quirk::Presence;
use serde::Serialize;
use serde_json::{Value, json};

use crate::estimate::Estimated;
use crate::limits::Correction;
use crate::render::words;

#[derive(Serialize)]
pub(crate) struct PlanDocument {
    schema: &'static str,
    device: String,
    verdict: &'static str,
    pages: String,
    wanted: u64,
    mapped: u64,
    mrs: u64,
    chunk: u64,
    step: u64,
    chunk_bounded_by: String,
    entries: Value,
    huge_pages: Vec<Value>,
    pinned: u64,
    kernel_memory: u64,
    registrations: u64,
    segments: Vec<Value>,
    checks: Vec<Value>,
    quirks: Vec<Value>,
    alternatives: Vec<Value>,
    platform: Value,
    /// Where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    estimate: Option<Value>,
}

#[derive(Serialize)]
pub(crate) struct RefusalDocument {
    schema: &'static str,
    device: String,
    verdict: &'static str,
    text: String,
    errno: Option<&'static str>,
    first_failure: Option<u64>,
    max_fit: Option<Value>,
    ways_out: Vec<Value>,
    /// How to correct the limits file, where the limit that was met comes from it.
    correction: Option<Value>,
    /// What `--reserve` could add, where that was asked for and is not enough.
    reservable: Option<Value>,
    plan: Option<PlanDocument>,
}

impl PlanDocument {
    pub(crate) fn new(device: &str, plan: &Plan, host: &Host) -> Self {
        Self {
            schema: "hugemr/plan/1",
            device: device.to_owned(),
            verdict: plan.verdict.name(),
            pages: words::pages_flag(plan.pages),
            wanted: plan.wanted,
            mapped: plan.mapped,
            mrs: plan.mrs,
            chunk: plan.chunk,
            step: plan.step,
            chunk_bounded_by: bound(plan.bound),
            entries: need(plan.entries),
            huge_pages: huge_pages(&plan.huge_pages),
            pinned: plan.pinned,
            kernel_memory: plan.kernel_memory,
            registrations: plan.registrations,
            segments: plan
                .segments
                .iter()
                .map(|s| {
                    json!({
                        "offset": s.offset, "len": s.len, "page": s.page.bytes(), "chunk": s.chunk,
                        "skew": s.skew, "mrs": s.count(), "first_mr": s.first_index,
                    })
                })
                .collect(),
            checks: plan
                .checks
                .iter()
                .map(|c| {
                    json!({
                        "resource": resource(c.resource),
                        "need": need(c.need),
                        "limit": c.limit.as_ref().map(limit),
                        "fit": match c.fit() {
                            // What was not read is not judged.
                            _ if c.limit.is_none() => "not_read",
                            Fit::Fits => "fits",
                            Fit::Undecided => "undecided",
                            Fit::Over => "over",
                        },
                    })
                })
                .collect(),
            quirks: plan
                .quirks
                .iter()
                .map(|q| {
                    json!({
                        "name": q.quirk.code(),
                        "presence": match q.presence {
                            Presence::Present => "present",
                            Presence::Presumed => "presumed",
                            Presence::Absent => "absent",
                        },
                        "why": q.why,
                        "lifted_by": q.lifted_by,
                        "hit": plan.hit.contains(&q.quirk),
                        "source": q.quirk.source(),
                    })
                })
                .collect(),
            alternatives: plan.alternatives.iter().map(alternative).collect(),
            platform: platform(host),
            estimate: None,
        }
    }

    pub(crate) fn with_estimate(self, estimated: Option<&Estimated>) -> Self {
        Self {
            estimate: estimated.map(super::estimate),
            ..self
        }
    }
}

impl RefusalDocument {
    pub(crate) fn new(
        asked: &Asked,
        refusal: &Refusal,
        ways: &[Way],
        reservable: Option<&Reservable>,
    ) -> Self {
        let device = asked.device.name.as_str();
        let limit = refusal.met().and_then(|check| check.limit.as_ref());
        let correction = limit.and_then(|limit| asked.correction.as_ref()?.of(limit));
        Self {
            schema: "hugemr/plan/1",
            device: device.to_owned(),
            verdict: refusal.code.name(),
            text: refusal.text.clone(),
            errno: refusal.errno.and_then(hugemr_core::errno::Errno::name),
            first_failure: refusal
                .plan
                .as_ref()
                .and_then(|p| p.first_failure)
                .map(|f| f.0),
            max_fit: refusal.max_fit.map(
                |MaxFit { certain, at_most }| json!({ "certain": certain, "at_most": at_most }),
            ),
            ways_out: ways.iter().map(way_out).collect(),
            correction: correction.map(
                |Correction {
                     file, name, probe, ..
                 }| { json!({ "file": file, "name": name, "command": probe }) },
            ),
            reservable: reservable.map(|reservable| {
                json!({
                    "pages": reservable.pages.map(|(page, count)| json!({
                        "page": page.bytes(), "count": count,
                    })),
                    "fits": reservable.smaller.as_ref().map(|(bytes, command)| json!({
                        "bytes": bytes, "command": command,
                    })),
                })
            }),
            plan: refusal
                .plan
                .as_ref()
                .map(|plan| PlanDocument::new(device, plan, &asked.host)),
        }
    }
}

/// A limit: `min`, `max` (null: not known), or `unlimited`, with kind and source.
pub(crate) fn limit(limit: &Limit) -> Value {
    let (kind, source) = (limit.source.kind.to_string(), &limit.source.text);
    if limit.is_unlimited() {
        return json!({ "unlimited": true, "kind": kind, "source": source });
    }
    json!({ "min": limit.certain(), "max": limit.at_most(), "kind": kind, "source": source })
}

fn need((best, worst): (u64, u64)) -> Value {
    if best == worst {
        json!(best)
    } else {
        json!({ "min": best, "max": worst })
    }
}

fn huge_pages(list: &[(hugemr_core::size::PageSize, u64)]) -> Vec<Value> {
    list.iter()
        .map(|(page, count)| json!({ "page": page.bytes(), "count": count }))
        .collect()
}

fn alternative(other: &Alternative) -> Value {
    json!({
        "pages": words::pages_flag(other.pages),
        "verdict": other.verdict.name(),
        "mrs": other.mrs,
        "entries": need(other.entries),
        "chunk": other.chunk,
        "huge_pages": huge_pages(&other.huge_pages),
    })
}

fn bound(bound: ChunkBound) -> String {
    match bound {
        ChunkBound::Asked => "asked".to_owned(),
        ChunkBound::MaxMrSize => "max_mr_size".to_owned(),
        ChunkBound::EntriesPerMr => "entries_per_mr".to_owned(),
        ChunkBound::Quirk(quirk) => quirk.code().to_owned(),
        ChunkBound::Nothing => "nothing".to_owned(),
    }
}

fn resource(resource: Resource) -> String {
    match resource {
        Resource::MrLength => "mr_length".to_owned(),
        Resource::MrCount => "mr_count".to_owned(),
        Resource::Entries => "entries".to_owned(),
        Resource::EntriesPerMr => "entries_per_mr".to_owned(),
        Resource::HugePages(page) => format!("huge_pages_{}", page.bytes()),
        Resource::Cgroup(page) => format!("cgroup_hugetlb_{}", page.bytes()),
        Resource::Memory => "memory".to_owned(),
        Resource::Memlock => "memlock".to_owned(),
    }
}

/// Kernel and driver that were reckoned with; null: not known.
fn platform(host: &Host) -> Value {
    let platform = &host.platform;
    let (driver, bundle) = match platform.driver {
        Driver::InTree => (Some("in-tree"), None),
        Driver::Vendor(bundle) => (Some("vendor"), bundle),
        Driver::Unknown => (None, None),
    };
    json!({
        "kernel": platform.kernel.map(|kernel| kernel.to_string()),
        "driver": driver,
        "bundle": bundle.map(|bundle| bundle.to_string()),
    })
}

fn way_out(way: &Way) -> Value {
    let mut value = match &way.way {
        WayOut::Pages(other) => json!({ "way": "pages", "plan": alternative(other) }),
        WayOut::Reserve { page, short, need } => {
            json!({ "way": "reserve", "page": page.bytes(), "short": short, "need": need })
        }
        WayOut::Smaller(bytes) => json!({ "way": "smaller", "bytes": bytes }),
        WayOut::LongerChunks(bytes) => json!({ "way": "longer_chunks", "bytes": bytes }),
        WayOut::ShorterChunks(bytes) => json!({ "way": "shorter_chunks", "bytes": bytes }),
        WayOut::OwnChunks(bytes) => json!({ "way": "own_chunks", "bytes": bytes }),
        WayOut::Override(bytes) => json!({ "way": "max_mr_size", "bytes": bytes }),
        WayOut::Memlock(bytes) => json!({ "way": "memlock", "bytes": bytes }),
        WayOut::Leave(entries) => json!({ "way": "leave", "entries": entries }),
        WayOut::Lift(quirk, how) => json!({ "way": "lift", "quirk": quirk.code(), "how": how }),
        other => json!({ "way": format!("{other:?}") }),
    };
    value["commands"] = json!(way.commands);
    value
}
