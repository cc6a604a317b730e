//! What the kernel was seen to make of the MRs, within `hugemr/register/1`.

use hugemr::PageProof;
use hugemr_core::prove::Verdict;
use serde_json::{Value, json};

pub(super) fn document(proof: &PageProof) -> Value {
    match proof {
        PageProof::Impossible(why) => impossible(why),
        PageProof::Watched {
            how,
            mrs,
            lost,
            trouble,
            left,
        } => json!({
            "how": how.name(),
            "mrs": mrs.len(),
            "same": proof.same(),
            "different": proof.different(),
            "lost": lost,
            "trouble": trouble,
            "left": left,
        }),
    }
}

/// Asked for, and not to be had.
pub(super) fn impossible(why: &str) -> Value {
    json!({ "how": Value::Null, "why": why })
}

pub(super) fn verdict(verdict: Verdict) -> Value {
    let word = match verdict {
        Verdict::Same(_) => "same",
        Verdict::Differs(_) => "differs",
        Verdict::NotPredicted(_) => "not_predicted",
        Verdict::NotSeen => "not_seen",
        Verdict::Unclear => "unclear",
    };
    let seen = verdict.seen();
    json!({
        "verdict": word,
        "page": seen.and_then(|seen| seen.page).map(|page| page.bytes()),
        "entries": seen.map(|seen| seen.entries),
    })
}
