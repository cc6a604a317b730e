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

mod pace;
mod pages;
mod run;

pub use pages::{LargePages, Longest, NoLargePages};

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Backing, RegBackend};
use crate::device::Used;
use crate::errno::Errno;
use crate::size::PageSize;

use run::Run;

/// Why a probe stopped before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// What time is left is needed for the release.
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
    /// When everything must be released, on the caller's `clock`; `None`: there is time. What is tried ends so early that the
    /// release of what is held ends by then, as far as the releases so far tell.
    pub deadline: Option<Duration>,
    /// The time, from any beginning. Needed where there is a deadline.
    pub clock: &'a dyn Fn() -> Duration,
    /// Asked before each registration: whether somebody wants it to stop.
    pub cancelled: &'a dyn Fn() -> bool,
    /// What others hold at this moment. Asked around the registrations that confirm the size of the table.
    pub others: &'a dyn Fn() -> Used,
    /// Told after each registration.
    pub progress: &'a dyn Fn(Progress),
}

impl Default for Options<'_> {
    /// No bound, no deadline, and nobody else on the device.
    fn default() -> Self {
        Self {
            up_to: None,
            per_mr: None,
            count: None,
            deadline: None,
            clock: &|| Duration::ZERO,
            cancelled: &|| false,
            others: &|| Used::NOTHING,
            progress: &|_| {},
        }
    }
}

/// What ended the search for the size of the table, or the count of MRs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum End {
    /// The table was full, confirmed.
    Full,
    /// As many MRs as were to be counted were held.
    Counted,
    /// As many entries as the caller allowed were held.
    UpTo,
    /// It stopped before its end.
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
            Self::Counted => "counted",
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
    /// What ended the count of MRs; [`End::MrCount`] where that was confirmed.
    pub max_mr_end: Option<End>,
    /// Why something was not tried any more, whatever it was.
    pub stopped: Option<Stop>,
    /// Registrations that were tried, refused ones included.
    pub tried: u64,
    /// Failures in between that said nothing about the table.
    pub disturbances: u64,
    /// The longest MR on large pages, where there was memory to try it.
    pub longest: Option<Longest>,
    /// Whether the device was given large pages.
    pub large_pages: Option<LargePages>,
    /// Why that is not known, where there was memory to try it.
    pub large_pages_not: Option<NoLargePages>,
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
/// `log2(largest MR)` more where the device limits the entries of one MR and nobody said so. Where the number of MRs ends it,
/// it begins anew with longer ones, each time with twice the longest so far, and not once more than that gets further. Where it takes more than a
/// thirty-second part of the time until its deadline, a few MRs are released and registered anew, to learn how long that
/// takes.
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
    let large_pages = large.map(|memory| run.large_pages(memory, end));
    let per_mr = run.per_mr(end);
    run.release();
    let used = large_pages.and_then(Result::ok);
    let longest = large.and_then(|memory| run.longest(memory, used));
    let counted = options.count.map(|most| run.count(most));
    run.found(end, (per_mr, counted), longest, large_pages)
}

/// Entries of `bytes` on the small memory.
fn entries(bytes: u64) -> u64 {
    bytes / PageSize::K4.bytes()
}
