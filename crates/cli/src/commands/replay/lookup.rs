//! `op: lookup`: an address range and a list of MRs become the MR that holds it, the parts, or what is missing.

use hugemr_core::backend::{Lkey, Rkey};
use hugemr_core::key_table::{Entry, KeyTable, LookupError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Answer;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    chunks: Vec<(u64, u64)>,
    addr: u64,
    len: u64,
}

#[derive(Serialize)]
struct Fields {
    verdict: &'static str,
    message: String,
    chunk: Option<usize>,
    split: Option<Vec<(usize, u64)>>,
    missing: Option<(u64, Value)>,
}

pub(super) fn answer(input: &Input) -> Result<Answer, String> {
    let entries = (0u32..)
        .zip(&input.chunks)
        .map(|(key, &(addr, len))| Entry {
            addr,
            len,
            lkey: Lkey(key),
            rkey: Rkey(key),
        });
    let table = KeyTable::new(entries).map_err(|error| format!("chunks: {error}"))?;
    let found = table.lookup(input.addr, input.len);
    let parts = table.split(input.addr, input.len).ok();
    let fields = Fields {
        verdict: match &found {
            Ok(_) => "ok",
            Err(LookupError::Crosses { .. }) => "crosses",
            Err(LookupError::Missing(_)) => "not_registered",
            Err(LookupError::Empty { .. }) => "empty",
            Err(_) => "beyond_end",
        },
        message: match &found {
            Ok(key) => format!("MR {} holds it", key.index),
            Err(error) => error.to_string(),
        },
        chunk: found.as_ref().ok().map(|key| key.index),
        split: parts.map(|parts| parts.map(|part| (part.index, part.len)).collect()),
        missing: match &found {
            Err(LookupError::Missing(range)) => {
                // 2^64 is the only end that is no 64-bit number.
                let end = u64::try_from(range.end());
                Some((range.start, end.map_or(json!("2^64"), |end| json!(end))))
            }
            _ => None,
        },
    };
    let gist = format!("{}: {}", fields.verdict, fields.message);
    Answer::new(&fields, gist)
}
