//! What a registration that stands is seen to be: as planned, as predicted, as arrived.

use std::time::Duration;

use hugemr::{LayoutProof, PageProof, Proof, Report};
use hugemr_core::plan::Plan;
use hugemr_core::prove::Verdict;
use hugemr_core::registrar::Mr;
use hugemr_core::size::PageSize;

use crate::device::{Arrived, Inside};
use crate::estimate::Estimated;
use crate::progress::Pools;

/// What is held, as the command got it.
pub(crate) struct Held {
    pub(crate) mrs: Vec<Mr>,
    /// Where there is memory behind it.
    pub(crate) report: Option<Report>,
    /// Mapping, populating and registering together.
    pub(crate) took: Duration,
    /// Free huge pages before.
    pub(crate) pools: Vec<(PageSize, u64)>,
}

/// The proof by moving data.
pub(crate) enum Proved {
    NotAsked,
    Yes(Proof, Duration),
    Impossible(String),
    No(String),
}

/// One MR as planned, predicted and arrived.
pub(crate) struct Row {
    pub(crate) mr: Mr,
    pub(crate) predicted: Option<hugemr_core::layout::Prediction>,
    pub(crate) arrived: Option<Arrived>,
    /// Where the kernel was watched.
    pub(crate) seen: Option<Verdict>,
}

/// What there is to say of a registration that stands.
pub(crate) struct Seen {
    pub(crate) device: String,
    pub(crate) bytes: u64,
    pub(crate) rows: Vec<Row>,
    /// Entries: read from the device object, or predicted from the physical layout.
    pub(crate) entries: Option<(u64, &'static str)>,
    pub(crate) proved: Proved,
    pub(crate) report: Option<Report>,
    pub(crate) took: Duration,
    /// Why the MRs are no longer, where a defect bounds them, and what would lift it.
    pub(crate) why_short: Option<String>,
    /// What was done to the pools for it, where that was asked for.
    pub(crate) reserved: Option<Pools>,
    /// What was risked by that.
    pub(crate) risk: Option<String>,
    /// What was predicted before, where that was asked for.
    pub(crate) estimated: Option<Estimated>,
    /// Why the page size of a simulated device was not shown, where that was asked for.
    pub(crate) unproved: Option<String>,
    /// No MR is other than it should be.
    pub(crate) as_planned: bool,
    /// Entries at most, as planned, where it became more.
    pub(crate) planned_entries: Option<u64>,
}

impl Seen {
    pub(crate) fn of(
        device: &str,
        plan: &Plan,
        held: &Held,
        inside: Option<&Inside>,
        proved: Proved,
    ) -> Self {
        let page_proof = held.report.as_ref().and_then(|r| r.pages.as_ref());
        let rows: Vec<Row> = held
            .mrs
            .iter()
            .enumerate()
            .map(|(i, mr)| Row {
                mr: *mr,
                predicted: held.report.as_ref().and_then(|r| r.mrs.get(i)?.predicted),
                arrived: inside.and_then(|inside| inside.mrs.get(i).copied()),
                seen: page_proof.and_then(|proof| proof.verdict(i)),
            })
            .collect();
        let entries = inside
            .map(|inside| (inside.entries, "read from the device object"))
            .or_else(|| {
                let proof = page_proof?;
                let all = (0..held.mrs.len()).map(|i| Some(proof.verdict(i)?.seen()?.entries));
                Some((all.sum::<Option<u64>>()?, crate::render::prove::how(proof)?))
            })
            .or_else(|| {
                let predicted = held.report.as_ref()?.entries()?;
                Some((predicted, "predicted from the physical layout"))
            });
        let as_planned = !matches!(proved, Proved::No(_))
            && rows
                .iter()
                .all(|row| row.length_arrived() && row.as_predicted());
        let as_planned = as_planned && page_proof.is_none_or(|proof| proof.different() == 0);
        // Fewer are no harm: contiguous memory can be seen in larger pages.
        let more = entries.is_some_and(|(entries, _)| entries > plan.entries.1);
        let as_planned = as_planned && !more;
        Self {
            device: device.to_owned(),
            bytes: plan.mapped,
            rows,
            entries,
            proved,
            report: held.report.clone(),
            took: held.took,
            why_short: crate::render::plan::why_short(plan),
            reserved: None,
            risk: None,
            estimated: None,
            unproved: None,
            as_planned,
            planned_entries: more.then_some(plan.entries.1),
        }
    }

    pub(crate) fn page_proof(&self) -> Option<&PageProof> {
        self.report.as_ref()?.pages.as_ref()
    }

    /// Why not every MR that arrived was held against a prediction; `None`: every one was.
    pub(crate) fn why_unproved(&self) -> Option<String> {
        let held = |row: &Row| row.predicted.is_some() && row.arrived.is_some();
        match &self.report {
            None => Some("without memory nothing is predicted (--memory real predicts)".to_owned()),
            Some(Report {
                layout: LayoutProof::NotRead(why),
                ..
            }) => Some(why.clone()),
            Some(_) if self.rows.iter().all(held) => None,
            Some(_) => Some("not every MR was predicted".to_owned()),
        }
    }
}

impl Row {
    pub(super) fn length_arrived(&self) -> bool {
        self.wire_length()
            .is_none_or(|(len, wire_len)| wire_len == len)
    }

    /// Bytes asked for, and bytes that the device has of them: as arrived, else as predicted.
    pub(super) fn wire_length(&self) -> Option<(u64, u64)> {
        let arrived = self.arrived.map(|a| (a.len, a.wire_len));
        arrived.or_else(|| Some((self.mr.chunk.len, self.predicted?.wire_len)))
    }

    pub(super) fn as_predicted(&self) -> bool {
        match (self.predicted, self.arrived) {
            (Some(p), Some(a)) => {
                (p.page, p.entries, p.wire_len) == (a.page, a.entries, a.wire_len)
            }
            _ => true,
        }
    }

    /// Page size and entries: as arrived, else as seen, else as predicted.
    pub(crate) fn page_and_entries(&self) -> Option<(PageSize, u64)> {
        let seen = self.seen.and_then(|verdict| verdict.seen());
        self.arrived
            .map(|a| (a.page, a.entries))
            .or_else(|| seen.and_then(|seen| Some((seen.page?, seen.entries))))
            .or_else(|| self.predicted.map(|p| (p.page, p.entries)))
    }
}
