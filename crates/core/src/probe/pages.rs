//! The longest MR, and whether the device is given large pages.

use std::sync::Arc;

use super::run::Run;
use super::{End, entries};
use crate::backend::{Backing, RegBackend};
use crate::errno::Errno;

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
        let pages = room.min(memory.len() / page.bytes());
        let len = pages.checked_mul(page.bytes())?;
        let limit = self.backend.device().max_mr_size.at_most();
        if entries(len) <= room || limit.is_some_and(|most| len > most) {
            return None;
        }
        let made = self.register(memory, len, page).ok()?;
        let used = match made {
            Ok(registration) => {
                self.left += u64::from(registration.close().is_err());
                true
            }
            Err(_) => false,
        };
        Some(LargePages { used, len, room })
    }

    /// As long as the device says an MR may be, and a page longer. On an empty table.
    pub(super) fn longest<L: Backing>(&mut self, memory: &Arc<L>) -> Option<Longest> {
        let page = memory.page();
        let advertised = self.backend.device().max_mr_size.at_most();
        let len = advertised.unwrap_or(u64::MAX).min(memory.len());
        let mut longest = Longest {
            len,
            refused: None,
            longer_refused: None,
        };
        match self.register(memory, len, page).ok()? {
            Err(errno) => longest.refused = Some(errno),
            Ok(registration) => {
                self.left += u64::from(registration.close().is_err());
                let longer = len.checked_add(page.bytes())?;
                if advertised == Some(len) && longer <= memory.len() {
                    let made = self.register(memory, longer, page).ok()?;
                    longest.longer_refused = Some(made.is_err());
                    if let Ok(registration) = made {
                        self.left += u64::from(registration.close().is_err());
                    }
                }
            }
        }
        Some(longest)
    }
}
