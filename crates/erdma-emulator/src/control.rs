//! Commands to a running device: one line each, answered by one line of JSON.
//!
//! | line | effect |
//! |---|---|
//! | `status` | the totals so far |
//! | `budget N` | another budget, in entries |
//! | `fault SPEC` | one more fault, see [`faults`](crate::faults) |
//! | `clear-faults` | no more faults |
//! | `stamp KEY [PERIOD]` | stamp check of the region with this lkey (decimal, or hexadecimal with 0x) |
//! | `quit` | the end, totals written |
//! | `abort` | the end at once, without an answer and nothing written, as when the process is killed |
//!
//! The answer has `"ok": true` and what there is to say, or `"ok": false` and an `"error"`.

use serde_json::{Value, json};

use crate::device::Device;
use crate::mem::GuestMemory;

/// Longest line taken.
pub const MAX_LINE: usize = 4096;

/// What a line led to.
pub struct Answer {
    /// One line of JSON.
    pub reply: Value,
    /// What is to be done after the reply.
    pub then: Then,
}

/// Whether a device goes on after a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It goes on.
    Serve,
    /// It ends in order.
    Quit,
    /// Its process ends at once.
    Abort,
}

/// Obeys one line.
pub fn obey(line: &str, device: &mut Device, mem: &dyn GuestMemory) -> Answer {
    let words: Vec<&str> = line.split_whitespace().collect();
    let result = match words.as_slice() {
        ["status"] => Ok(json!({"totals": device.totals()})),
        ["budget", n] => number(n).map(|n| {
            device.set_budget(n);
            json!({"budget": n, "used": device.ledger().used()})
        }),
        ["fault", spec] => spec.parse().map_err(|e| format!("{e}")).and_then(|fault| {
            let added = device.add_fault(fault);
            if added {
                Ok(json!({}))
            } else {
                Err("too many faults".into())
            }
        }),
        ["clear-faults"] => {
            device.clear_faults();
            Ok(json!({}))
        }
        ["stamp", key] => stamp(key, None, device, mem),
        ["stamp", key, period] => stamp(key, Some(period), device, mem),
        ["quit" | "abort"] => Ok(json!({})),
        _ => Err(
            "commands: status, budget N, fault SPEC, clear-faults, stamp KEY [PERIOD], quit, abort"
                .into(),
        ),
    };
    let then = match words.as_slice() {
        ["quit"] => Then::Quit,
        ["abort"] => Then::Abort,
        _ => Then::Serve,
    };
    let reply = match result {
        Ok(mut value) => {
            value["ok"] = true.into();
            value
        }
        Err(error) => json!({"ok": false, "error": error}),
    };
    Answer { reply, then }
}

fn stamp(
    key: &str,
    period: Option<&str>,
    device: &mut Device,
    mem: &dyn GuestMemory,
) -> Result<Value, String> {
    let lkey = number(key)?;
    let period = period.map(number).transpose()?;
    let report = u32::try_from(lkey)
        .ok()
        .and_then(|k| device.check_stamps(k, period, mem));
    let report = report.ok_or_else(|| format!("no region of a program has the key {key}"))?;
    Ok(json!({"key": lkey, "stamp": report}))
}

fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("{text:?} is no number"))
}
