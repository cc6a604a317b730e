//! `op: calc`: what mlx4's two module parameters allow, and which ones a host needs.

use hugemr_core::device::{mlx4_log_num_mtt, mlx4_registrable};
use hugemr_core::size::{Bytes, PageSize};
use serde::{Deserialize, Serialize};

use super::{Answer, facts, read};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    log_num_mtt: u32,
    log_mtts_per_seg: u32,
    #[serde(default, deserialize_with = "read::page")]
    page: Option<PageSize>,
    ram: Option<u64>,
    factor: Option<u64>,
}

#[derive(Serialize)]
struct Fields {
    message: String,
    registrable: u64,
    registrable_now: u64,
    log_num_mtt: Option<u32>,
    registrable_new: Option<u64>,
}

pub(super) fn answer(input: &Input) -> Result<Answer, String> {
    let page = facts::page(input.page).bytes();
    let per_seg = input.log_mtts_per_seg;
    let beyond = || "that is beyond 2^64 bytes".to_owned();
    let registrable = mlx4_registrable(input.log_num_mtt, per_seg, page).ok_or_else(beyond)?;
    let mut fields = Fields {
        message: format!("registrable: {}", Bytes(registrable)),
        registrable,
        registrable_now: registrable,
        log_num_mtt: None,
        registrable_new: None,
    };
    match (input.ram, input.factor) {
        (Some(ram), factor) => {
            let factor = factor.unwrap_or(1);
            let log = mlx4_log_num_mtt(ram, factor, per_seg, page).ok_or_else(beyond)?;
            let new = mlx4_registrable(log, per_seg, page).ok_or_else(beyond)?;
            fields.message += &format!("; log_num_mtt={log}: {}", Bytes(new));
            (fields.log_num_mtt, fields.registrable_new) = (Some(log), Some(new));
        }
        (None, Some(_)) => return Err("factor goes with ram".to_owned()),
        (None, None) => {}
    }
    let gist = fields.message.clone();
    Answer::new(&fields, gist)
}
