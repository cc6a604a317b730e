//! The longest MR, and whether the device is given large pages.

use std::sync::Arc;

use super::run::Run;
use super::{End, Stop, entries};
use crate::backend::{Backing, RegBackend};
use crate::errno::Errno;
use crate::size::PageSize;

/// Entries that are freed at most for an MR on large pages.
const ROOM: u64 = 512;

/// The longest MR that was tried, on large pages and an empty table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Longest {
    /// Its length, bytes: what the device advertises, or all of the memory there was.
    pub len: u64,
    /// What it was refused with; `None`: it was registered.
    pub refused: Option<Errno>,
    /// Whether a page more was refused; `None`: not tried.
    pub longer_refused: Option<bool>,
    /// Where it was refused for its length, and again: the longest that worked and the shortest that did not, bytes.
    pub within: Option<(u64, u64)>,
}

/// Whether an MR on large pages costs fewer entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LargePages {
    /// Whether it was registered where only large pages leave room for it.
    pub used: bool,
    /// Its length, bytes.
    pub len: u64,
    /// Entries that were free.
    pub room: u64,
}

/// Why it is not known whether the device is given large pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoLargePages {
    /// The table was not filled.
    NotFull,
    /// The MRs were used up: none was left for it.
    MrCount,
    /// A deregistration failed, so nobody knows what is free.
    NotReleased,
    /// Without large pages it could have taken more entries than the caller allowed.
    UpTo,
    /// No MR as long as it would have to be is known to work.
    TooShort,
    /// It stopped before its end.
    Stopped(Stop),
    /// A failure that says nothing about pages.
    Failed(Errno),
    /// The answers contradicted each other.
    Unsteady,
}

impl NoLargePages {
    /// The stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotFull => "not_full",
            Self::MrCount => "mr_count",
            Self::NotReleased => "not_released",
            Self::UpTo => "up_to",
            Self::TooShort => "too_short",
            Self::Stopped(stop) => End::Stopped(stop).name(),
            Self::Failed(_) => "failed",
            Self::Unsteady => "unsteady",
        }
    }
}

impl From<End> for NoLargePages {
    /// What ended an attempt.
    fn from(end: End) -> Self {
        match end {
            End::MrCount(_) => Self::MrCount,
            End::UpTo => Self::UpTo,
            End::Stopped(stop) => Self::Stopped(stop),
            End::Failed(errno) => Self::Failed(errno),
            _ => Self::Unsteady,
        }
    }
}

impl<B: RegBackend + Clone, M: Backing> Run<'_, B, M> {
    /// A full table is relieved of a few entries: enough for an MR on large pages, and far too few for one that is
    /// entered 4 KiB by 4 KiB. Whether it fits then is a proof that needs no look into kernel or device.
    pub(super) fn large_pages<L: Backing>(
        &mut self,
        memory: &Arc<L>,
        end: End,
    ) -> Result<LargePages, NoLargePages> {
        if end != End::Full || self.entries == 0 {
            return Err(NoLargePages::NotFull);
        }
        let page = memory.page();
        let freed = self.pop();
        let room = freed.min(ROOM);
        // What could not be freed is no room, and no higher bound makes one of it.
        if self.left.mrs > 0 {
            return Err(NoLargePages::NotReleased);
        }
        if freed > room && !self.fits(freed - room)? {
            return Err(NoLargePages::Unsteady);
        }
        // So long that it is allowed even if it is entered 4 KiB by 4 KiB.
        let allowed = self.allowed() / entries(page.bytes());
        // So many entries have worked as one MR, and so long a one: it is the table that refuses.
        let works = self.single.0.saturating_mul(PageSize::K4.bytes());
        let longest = room.min(memory.len().min(works) / page.bytes());
        let len = longest.min(allowed).checked_mul(page.bytes());
        let len = len.ok_or(NoLargePages::TooShort)?;
        if entries(len) <= room {
            let needed = entries((room / entries(page.bytes()) + 1) * page.bytes());
            if allowed < longest && entries(longest * page.bytes()) > room {
                self.over.1 = Some(self.entries.saturating_add(needed));
                return Err(NoLargePages::UpTo);
            }
            return Err(NoLargePages::TooShort);
        }
        let limit = self.backend.device().max_mr_size.at_most();
        if limit.is_some_and(|most| len > most) {
            return Err(NoLargePages::TooShort);
        }
        let mut fits = || match self.register(memory, len, page, entries(len))? {
            Ok(mr) => {
                self.close(mr);
                Ok(true)
            }
            Err(errno) if errno == self.dialect.over_budget => Ok(false),
            Err(errno) if errno == self.dialect.over_mr_count => Err(NoLargePages::MrCount),
            Err(errno) => Err(NoLargePages::Failed(errno)),
        };
        let used = fits()?;
        // A refusal in passing is none.
        if !used && fits()? {
            return Err(NoLargePages::Unsteady);
        }
        // The room is proved: so many entries fit, and where it was enough, not one more.
        if !self.fits(room)? || (used && self.fits(1)?) {
            return Err(NoLargePages::Unsteady);
        }
        if self.left.mrs > 0 {
            return Err(NoLargePages::NotReleased);
        }
        Ok(LargePages { used, len, room })
    }

    /// As long as the device says an MR may be, and a page longer. On an empty table.
    pub(super) fn longest<L: Backing>(
        &mut self,
        memory: &Arc<L>,
        large: Option<LargePages>,
    ) -> Option<Longest> {
        let page = memory.page();
        let most = |len| match large {
            Some(LargePages { used: true, .. }) => page.pages_for(len),
            _ => PageSize::K4.pages_for(len),
        };
        let advertised = self.backend.device().max_mr_size.at_most();
        let len = advertised.unwrap_or(u64::MAX).min(memory.len());
        if most(len) > self.allowed() {
            self.over.0 = Some(most(len));
            return None;
        }
        let mut longest = Longest {
            len,
            refused: None,
            longer_refused: None,
            within: None,
        };
        match self.register(memory, len, page, most(len)).ok()? {
            Err(errno) => {
                longest.refused = Some(errno);
                longest.within = self.within(memory, (len, errno), &most);
            }
            Ok(mr) => {
                self.close(mr);
                let longer = len.checked_add(page.bytes());
                let longer =
                    longer.filter(|longer| advertised == Some(len) && *longer <= memory.len());
                if let Some(longer) = longer
                    && let Ok(made) = self.register(memory, longer, page, most(longer))
                {
                    longest.longer_refused = Some(made.is_err());
                    if let Ok(mr) = made {
                        self.close(mr);
                    }
                }
            }
        }
        Some(longest)
    }

    /// Between which lengths the limit is. What is refused twice for its length, and takes no more entries than one MR may have, is
    /// above it.
    fn within<L: Backing>(
        &mut self,
        memory: &Arc<L>,
        (refused, errno): (u64, Errno),
        most: &dyn Fn(u64) -> u64,
    ) -> Option<(u64, u64)> {
        if self.length.is_some() {
            return self.length;
        }
        let page = memory.page();
        let works = |run: &mut Self, len: u64| {
            let most = most(len);
            (most <= run.allowed()).then_some(())?;
            match run.register(memory, len, page, most).ok()? {
                Ok(mr) => {
                    run.close(mr);
                    Some(true)
                }
                Err(again) => (again == errno).then_some(false),
            }
        };
        // Too many entries have the same errno with some devices.
        let for_length = errno == self.dialect.too_long && errno != self.dialect.over_budget;
        if !for_length || most(refused) > self.single.0 || works(self, refused)? {
            return None;
        }
        let small = self.single.0.saturating_mul(PageSize::K4.bytes());
        let (mut low, mut high) = (
            small.min(refused - 1) / page.bytes(),
            refused / page.bytes(),
        );
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match works(self, middle * page.bytes()) {
                Some(true) => low = middle,
                Some(false) => high = middle,
                None => break,
            }
        }
        let (low, high) = (low * page.bytes(), high * page.bytes());
        (works(self, high) == Some(false)).then_some((low, high))
    }
}
