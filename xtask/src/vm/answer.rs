//! What hugemr answered in a guest, as far as checks of the host read it.
use serde::Deserialize;

/// The part of a `hugemr/register/1` document that tells of MRs.
#[derive(Debug, Deserialize)]
pub(super) struct Document {
    pub(super) mrs: Vec<Mr>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Mr {
    pub(super) addr: String,
    pub(super) len: u64,
    pub(super) lkey: String,
    pub(super) predicted: Option<Predicted>,
    pub(super) seen: Option<Seen>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Predicted {
    pub(super) entries: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Seen {
    pub(super) page: Option<u64>,
    pub(super) entries: Option<u64>,
}

/// A number as it is written in answers and logs: `0x7e00`.
pub(super) fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}
