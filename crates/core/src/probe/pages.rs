//! The longest MR, and whether the device is given large pages.

use std::sync::Arc;

use super::run::Run;
use super::{End, entries};
use crate::backend::{Backing, RegBackend};
use crate::errno::Errno;
use crate::size::PageSize;

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

impl<B: RegBackend + Clone, M: Backing> Run<'_, B, M> {
    /// A full table is relieved of a few entries: enough for an MR on large pages, and far too few for one that is
    /// entered 4 KiB by 4 KiB. Whether it fits then is a proof that needs no look into kernel or device.
    pub(super) fn large_pages<L: Backing>(
        &mut self,
        memory: &Arc<L>,
        end: End,
    ) -> Option<LargePages> {
        if end != End::Full || self.entries == 0 {
            return None;
        }
        let page = memory.page();
        let room = self.pop();
        // So long that it is allowed even if it is entered 4 KiB by 4 KiB.
        let allowed = self.allowed() / entries(page.bytes());
        let longest = room.min(memory.len() / page.bytes());
        let len = longest.min(allowed).checked_mul(page.bytes())?;
        if entries(len) <= room {
            let needed = entries((room / entries(page.bytes()) + 1) * page.bytes());
            let over = allowed < longest && entries(longest * page.bytes()) > room;
            self.over.1 = over.then(|| self.entries.saturating_add(needed));
            return None;
        }
        let limit = self.backend.device().max_mr_size.at_most();
        if limit.is_some_and(|most| len > most) {
            return None;
        }
        let made = self.register(memory, len, page, entries(len)).ok()?;
        let used = match made {
            Ok(mr) => {
                self.close(mr);
                true
            }
            Err(_) => false,
        };
        Some(LargePages { used, len, room })
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
        };
        match self.register(memory, len, page, most(len)).ok()? {
            Err(errno) => longest.refused = Some(errno),
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
}
