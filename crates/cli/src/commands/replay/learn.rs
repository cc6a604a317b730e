//! `op: learn`: what fitted and what failed become bounds of the budget.

use std::num::NonZeroU64;

use hugemr_core::learn::{Tried, budget};
use hugemr_core::size::PageSize;
use serde::{Deserialize, Serialize};

use super::{Answer, facts, read};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    #[serde(default, deserialize_with = "read::page")]
    page: Option<PageSize>,
    /// Sizes that fitted, each as one MR on an empty device.
    #[serde(default)]
    ok_bytes: Vec<NonZeroU64>,
    #[serde(default)]
    fail_bytes: Vec<NonZeroU64>,
    /// Or: equal MRs.
    mr_bytes: Option<NonZeroU64>,
    ok_count: Option<u64>,
    fail_count: Option<u64>,
}

#[derive(Serialize)]
struct Fields {
    message: String,
    budget_low: u64,
    budget_high_excl: Option<u64>,
}

pub(super) fn answer(input: &Input) -> Result<Answer, String> {
    let page = facts::page(input.page);
    let counted = input.ok_count.is_some() || input.fail_count.is_some();
    if counted != input.mr_bytes.is_some() {
        return Err("mr_bytes goes with ok_count or fail_count".to_owned());
    }
    if !counted && input.ok_bytes.is_empty() && input.fail_bytes.is_empty() {
        return Err("nothing was tried: ok_bytes, fail_bytes, or mr_bytes with a count".to_owned());
    }
    let tried = |list: &[NonZeroU64], count: Option<u64>| -> Vec<Tried> {
        let one = list.iter().map(|bytes| Tried::one(*bytes, page));
        let equal = input.mr_bytes.zip(count);
        let equal = equal.map(|(mr_bytes, count)| Tried {
            mr_bytes,
            page,
            count,
        });
        one.chain(equal).collect()
    };
    let learned = budget(
        tried(&input.ok_bytes, input.ok_count),
        tried(&input.fail_bytes, input.fail_count),
    )
    .map_err(|error| error.to_string())?;
    let message = learned.to_string();
    let fields = Fields {
        message: message.clone(),
        budget_low: learned.low,
        budget_high_excl: learned.high_excl,
    };
    Answer::new(&fields, message)
}
