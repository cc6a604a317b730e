//! A registration as a document: schema `hugemr/register/1`.

use hugemr::LayoutProof;
use hugemr_core::registrar::{CloseError, LeftMr, RegisterFailure};
use serde_json::{Value, json};

use super::hex;
use super::reserve::change;
use crate::render::register::{Proved, Released, Row, Seen};

pub(crate) fn register(seen: &Seen, released: Option<&Released>) -> Value {
    json!({
        "schema": "hugemr/register/1",
        "device": seen.device,
        "bytes": seen.bytes,
        "as_planned": seen.as_planned,
        "entries": seen.entries.map(|(entries, how)| json!({ "value": entries, "how": how })),
        "layout": seen.report.as_ref().map(|report| match &report.layout {
            LayoutProof::Read => json!({ "read": true }),
            LayoutProof::NotRead(why) => json!({ "read": false, "why": why }),
        }),
        "reserved": seen.reserved.as_ref().map(|pools| pools.raised().map(change).collect::<Vec<_>>()),
        "risk": seen.risk,
        "page_proof": match &seen.unproved {
            Some(why) => Some(super::prove::impossible(why)),
            None => seen.page_proof().map(super::prove::document),
        },
        "mrs": seen.rows.iter().map(row).collect::<Vec<_>>(),
        "verified": match &seen.proved {
            Proved::NotAsked => None,
            Proved::Yes(..) => Some("proven"),
            Proved::Impossible(_) => Some("unproven"),
            Proved::No(_) => Some("failed"),
        },
        "proof": match &seen.proved {
            Proved::NotAsked => Value::Null,
            Proved::Yes(proof, _) => json!({ "ok": true, "mrs": proof.mrs, "borders": proof.borders }),
            Proved::Impossible(why) => json!({ "ok": Value::Null, "why": why }),
            Proved::No(why) => json!({ "ok": false, "why": why }),
        },
        "seconds": {
            "reserve": seen.report.as_ref().and_then(|report| report.reserve).map(|took| took.as_secs_f64()),
            "populate": seen.report.as_ref().map(|report| report.populate.as_secs_f64()),
            "register": seen.report.as_ref().map_or(seen.took, |report| report.register).as_secs_f64(),
            "registering": seen.report.as_ref().map(|report| report.registering.as_secs_f64()),
            "total": seen.took.as_secs_f64(),
        },
        "estimate": seen.estimated.as_ref().map(super::estimate),
        "released": released.map(|released| json!({
            "mrs": released.mrs,
            "seconds": released.took.as_secs_f64(),
            "left": released.inside.map(|(mrs, entries)| json!({ "mrs": mrs, "entries": entries })),
            "given_back": released.reserved.as_ref().map(|pools| {
                pools.lowered.iter().map(change).collect::<Vec<_>>()
            }),
            "gone": released.reserved.as_ref().map(crate::progress::Pools::gone),
            "pools": released.pools.iter().map(|(page, before, after)| {
                json!({ "page": page.bytes(), "free_before": before, "free_after": after })
            }).collect::<Vec<_>>(),
        })),
    })
}

/// What stood when it failed: `mr` is the number of the one that did, from 0.
pub(crate) fn failed(failure: &RegisterFailure) -> Value {
    json!({
        "mr": failure.span().map(|span| span.index),
        "stood": failure.stood(),
        "total": failure.total(),
        "left": left(failure.rollback().left()),
    })
}

/// What stands when the release failed.
pub(crate) fn not_closed(error: &CloseError) -> Value {
    json!({ "closed": error.closed(), "left": left(error.left()) })
}

/// MRs that could not be taken back, with the keys by which peers still reach the memory.
fn left(list: &[LeftMr]) -> Vec<Value> {
    let one = |left: &LeftMr| {
        json!({
            "index": left.span.index,
            "addr": hex(left.span.addr),
            "len": left.span.len,
            "lkey": hex(left.mr.lkey.0.into()),
            "rkey": hex(left.mr.rkey.0.into()),
            "cause": left.cause.to_string(),
        })
    };
    list.iter().map(one).collect()
}

fn row(row: &Row) -> Value {
    json!({
        "index": row.mr.chunk.index,
        "addr": hex(row.mr.addr),
        "len": row.mr.chunk.len,
        "lkey": hex(row.mr.mr.lkey.0.into()),
        "rkey": hex(row.mr.mr.rkey.0.into()),
        "backing_page": row.mr.chunk.page.bytes(),
        "predicted": row.predicted.map(|p| json!({
            "page": p.page.bytes(), "entries": p.entries, "level": p.level, "wire_len": p.wire_len,
        })),
        "seen": row.seen.map(super::prove::verdict),
        "arrived": row.arrived.map(|a| json!({
            "page": a.page.bytes(), "entries": a.entries, "wire_len": a.wire_len,
        })),
    })
}
