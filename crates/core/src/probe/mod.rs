//! Finds the limits of a device by trying: how many entries its table has, and how many of them one MR may have.
//!
//! Little memory is enough. Each registration of the same small buffer costs its entries anew, so the table is filled
//! by registering it again and again, in coarse steps, and the exact entry is found by bisection. Nothing but
//! [`RegBackend`] is used, and every MR is taken back.
//!
//! What counts as proof. That something fitted is certain: others can only make it less. That something did not fit
//! is certain only where the table was the reason, so a bound is taken from a refusal only after the device has shown,
//! right before and right after, that it takes the same registration without the one entry more. A refusal that is
//! not confirmed is no bound: the answer is then an interval without an upper end.

mod pages;
mod run;

pub use pages::{LargePages, Longest};

use std::sync::Arc;

use crate::backend::{Backing, RegBackend};
use crate::device::Used;
use crate::errno::Errno;
use crate::size::PageSize;

use run::Run;

/// Why a probe was told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Its time is up.
    Deadline,
    /// Somebody wants it to.
    Cancelled,
}

/// How far a probe has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Entries that are held now.
    pub held: u64,
    /// MRs that are held now.
    pub mrs: u64,
    /// Registrations that were tried.
    pub tried: u64,
}

/// How to probe.
pub struct Options<'a> {
    /// Hold no more entries than this at once, whatever is looked for; `None`: as many as there are. An MR on large pages
    /// counts 4 KiB by 4 KiB until the device has shown that it enters large pages: it may take so many.
    pub up_to: Option<u64>,
    /// Entries that one MR may have, as far as it is known: longer ones are tried only to prove it.
    pub per_mr: Option<u64>,
    /// Count MRs too, up to this number: one registration for each.
    pub count: Option<u64>,
    /// Asked before each registration.
    pub stop: &'a dyn Fn() -> Option<Stop>,
    /// What others hold at this moment. Asked around the registrations that confirm the size of the table.
    pub others: &'a dyn Fn() -> Used,
    /// Told after each registration.
    pub progress: &'a dyn Fn(Progress),
}

impl Default for Options<'_> {
    /// No bound, and nobody else on the device.
    fn default() -> Self {
        Self {
            up_to: None,
            per_mr: None,
            count: None,
            stop: &|| None,
            others: &|| Used::NOTHING,
            progress: &|_| {},
        }
    }
}

/// What ended the search for the size of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// The table was full, confirmed.
    Full,
    /// As many entries as the caller allowed were held.
    UpTo,
    /// It was told to stop.
    Stopped(Stop),
    /// No MR was left, at this number of ours.
    MrCount(u64),
    /// Not even one page can be registered.
    Nothing(Errno),
    /// A failure that says nothing about the table.
    Failed(Errno),
    /// The answers contradicted each other again and again: others come and go, or the device fails now and then.
    Unsteady,
}

impl End {
    /// The stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::UpTo => "up_to",
            Self::Stopped(Stop::Deadline) => "deadline",
            Self::Stopped(Stop::Cancelled) => "cancelled",
            Self::MrCount(_) => "mr_count",
            Self::Nothing(_) => "nothing_fits",
            Self::Failed(_) => "failed",
            Self::Unsteady => "unsteady",
        }
    }
}

/// At least, and at most (`None`: not known).
pub type Range = (u64, Option<u64>);

/// What a probe has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// What ended the search.
    pub end: End,
    /// Entries of the table: at least, and at most where that was confirmed.
    pub entries: Range,
    /// The most entries that were held at once.
    pub held: u64,
    /// The most MRs that were held at once.
    pub mrs: u64,
    /// Entries of one MR: the most that worked, and the fewest that did not although the table had room.
    pub per_mr: Range,
    /// MRs of the device: at least, and at most; `None`: not counted.
    pub max_mr: Option<Range>,
    /// Registrations that were tried, refused ones included.
    pub tried: u64,
    /// Failures in between that said nothing about the table.
    pub disturbances: u64,
    /// The longest MR on large pages, where there was memory to try it.
    pub longest: Option<Longest>,
    /// Whether the device was given large pages.
    pub large_pages: Option<LargePages>,
    /// Entries that the longest MR could have taken, where that was more than was allowed: it was not tried.
    pub longest_over: Option<u64>,
    /// The same of an MR on large pages.
    pub large_pages_over: Option<u64>,
    /// MRs that could not be deregistered; 0 is the rule.
    pub left: u64,
    /// Why the first of them could not be.
    pub left_errno: Option<Errno>,
}

impl Found {
    /// The size of the table, where it is known to the entry.
    #[must_use]
    pub fn exact(&self) -> Option<u64> {
        self.entries.1.filter(|high| *high == self.entries.0)
    }
}

/// Probes a device with `small`, memory that costs one entry for each 4 KiB ([`PageSize::K4`]) wherever an MR begins
/// and ends, and, where it is there, `large` on huge pages, for the longest MR.
///
/// Everything is released when it returns; [`Found::left`] counts what the device would not give back (that memory is
/// leaked).
///
/// The table takes at most `2 log2(budget) + budget / largest MR` registrations for a budget of 128 entries and more, and
/// `log2(largest MR)` more where the device limits the entries of one MR and nobody said so.
pub fn probe<B, M, L>(
    backend: &B,
    small: &Arc<M>,
    large: Option<&Arc<L>>,
    options: &Options<'_>,
) -> Found
where
    B: RegBackend + Clone,
    M: Backing,
    L: Backing,
{
    let mut run = Run::new(backend, small, options);
    let end = run.table();
    let large_pages = large.and_then(|memory| run.large_pages(memory, end));
    let per_mr = run.per_mr(end);
    run.release();
    let longest = large.and_then(|memory| run.longest(memory, large_pages));
    let max_mr = options.count.map(|most| run.count(most));
    run.found(end, (per_mr, max_mr), longest, large_pages)
}

/// Entries of `bytes` on the small memory.
fn entries(bytes: u64) -> u64 {
    bytes / PageSize::K4.bytes()
}
