//! What was found about each MR.

use std::time::Duration;

use hugemr_core::layout::Prediction;
use hugemr_core::place::Stretch;
use hugemr_core::size::PageSize;
use hugemr_host::populate::Road;

use crate::prove::PageProof;

/// Whether the physical layout could be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayoutProof {
    /// Every MR was predicted from the physical addresses of its pages.
    Read,
    /// It was not read, and why: one line.
    NotRead(String),
}

/// One MR, as predicted before it was registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrReport {
    /// Page size, entries, level and length that are to be expected at the device; `None` where the layout was not read.
    pub predicted: Option<Prediction>,
    /// Physically contiguous runs behind it; 0 where not read.
    pub runs: u64,
}

/// What was found while the pool was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Pages that were added to pools: page size, node (`None`: the pool of the whole host), number.
    pub reserved: Vec<(PageSize, Option<u32>, u64)>,
    /// What that took; `None` where it was not asked for.
    pub reserve: Option<Duration>,
    /// In the order of MRs.
    pub mrs: Vec<MrReport>,
    /// Whether the predictions are there.
    pub layout: LayoutProof,
    /// Where the chunks were placed: one stretch at least for each segment of the plan.
    pub places: Vec<Stretch>,
    /// What the kernel was seen to make of the MRs, where that was asked for.
    pub pages: Option<PageProof>,
    /// How pages were made real.
    pub road: Road,
    /// Threads that made pages real, and that registered.
    pub threads: usize,
    /// From the beginning of the first to the end of the last populated chunk.
    pub populate: Duration,
    /// From the beginning of the first to the end of the last registration; it overlaps populating.
    pub register: Duration,
    /// The same without the time that the threads waited for chunks to be populated: their average.
    pub registering: Duration,
}

impl Report {
    /// Entries predicted, of all MRs; `None` where the layout was not read.
    #[must_use]
    pub fn entries(&self) -> Option<u64> {
        self.mrs
            .iter()
            .map(|mr| mr.predicted.map(|p| p.entries))
            .sum()
    }
}
