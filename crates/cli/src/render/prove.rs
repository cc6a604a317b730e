//! What the kernel was seen to make of the MRs.

use hugemr::PageProof;
use hugemr_core::prove::{How, Verdict};
use hugemr_core::size::{Count, Grouped};

/// Where the number of entries comes from.
pub(crate) fn how(proof: &PageProof) -> Option<&'static str> {
    match proof {
        PageProof::Watched { how, .. } => Some(match how {
            How::Kretprobe => "seen by kretprobe",
            How::DebugLines => "seen by debug lines",
        }),
        PageProof::Impossible(_) => None,
    }
}

/// The verdict on one MR, for the table.
pub(crate) fn cell(verdict: Verdict) -> String {
    let seen = |word: &str| {
        let seen = verdict.seen().map(|seen| {
            let page = seen
                .page
                .map_or_else(|| "page not told".to_owned(), |page| page.to_string());
            format!("{page}, {}{word}", Grouped(seen.entries))
        });
        seen.unwrap_or_default()
    };
    match verdict {
        Verdict::Same(_) => seen(""),
        Verdict::Differs(_) => seen("  DIFFERS"),
        Verdict::NotPredicted(_) => seen("  (not predicted)"),
        Verdict::NotSeen => "not seen".to_owned(),
        Verdict::Unclear => "unclear".to_owned(),
    }
}

/// What is said under the table.
pub(crate) fn lines(proof: &PageProof) -> String {
    let (how, mrs, lost, trouble, left) = match proof {
        PageProof::Impossible(why) => return format!("page size not seen in the kernel: {why}"),
        PageProof::Watched {
            how,
            mrs,
            lost,
            trouble,
            left,
        } => (how.name(), mrs, *lost, trouble, left),
    };
    let count = |which: fn(&Verdict) -> bool| mrs.iter().filter(|v| which(v)).count();
    let number = |n: usize| Grouped(n as u64);
    let of = number(mrs.len());
    let mut text = match proof.different() {
        0 => format!(
            "page size proved by {how}: {} of {of} as predicted",
            number(proof.same())
        ),
        n => format!(
            "PAGE SIZE NOT AS PREDICTED: {} of {}, seen by {how} (--all)",
            number(n),
            Count(mrs.len() as u64, "MR")
        ),
    };
    for (which, word) in [
        (
            count(|v| matches!(v, Verdict::NotPredicted(_))),
            "seen, not predicted",
        ),
        (count(|v| matches!(v, Verdict::NotSeen)), "not seen"),
        (
            count(|v| matches!(v, Verdict::Unclear)),
            "unclear: others registered at the same time",
        ),
    ] {
        if which > 0 {
            text.push_str(&format!("; {} {word}", number(which)));
        }
    }
    if lost > 0 {
        text.push_str(&format!("; the kernel dropped events ({})", Grouped(lost)));
    }
    if let Some(why) = trouble {
        text.push_str(&format!("; not all could be read: {why}"));
    }
    if let Some(why) = left {
        text.push_str(&format!(
            "\n  could not be switched off: {why}; sudo hugemr release --stale"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugemr_core::prove::Seen;
    use hugemr_core::size::PageSize;

    #[test]
    fn every_verdict_is_said() {
        let seen = Seen {
            page: Some(PageSize::M2),
            entries: 32_768,
        };
        let proof = |mrs: Vec<Verdict>| PageProof::Watched {
            how: How::Kretprobe,
            mrs,
            lost: 0,
            trouble: None,
            left: None,
        };
        assert_eq!(
            lines(&proof(vec![Verdict::Same(seen); 14])),
            "page size proved by kretprobe: 14 of 14 as predicted"
        );
        let bad = proof(vec![
            Verdict::Same(seen),
            Verdict::Differs(seen),
            Verdict::NotSeen,
        ]);
        assert_eq!(
            lines(&bad),
            "PAGE SIZE NOT AS PREDICTED: 1 of 3 MRs, seen by kretprobe (--all); 1 not seen"
        );
        assert_eq!(cell(Verdict::Differs(seen)), "2 MiB, 32,768  DIFFERS");
        let impossible = PageProof::Impossible("kretprobe: x is for root only".to_owned());
        assert_eq!(
            lines(&impossible),
            "page size not seen in the kernel: kretprobe: x is for root only"
        );
    }
}
