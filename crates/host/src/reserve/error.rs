//! Why pages could not be reserved or given back.

use std::error::Error as _;
use std::io;

use hugemr_core::size::{Bytes, Count, Grouped, PageSize, plural};

use super::{Change, PerPool};
use crate::ledger::LedgerError;

/// Why pages could not be reserved or given back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReserveError {
    /// The kernel has no huge pages of that size.
    #[error("this kernel has no pool of {page} pages")]
    NoSuchPage {
        /// Page size asked for.
        page: PageSize,
        /// Page sizes for which it has pools.
        sizes: Vec<PageSize>,
    },
    /// The host has no such node, or it has no pool of that size.
    #[error("there is no pool of that size on node {node}")]
    NoSuchNode {
        /// Node asked for.
        node: u32,
        /// Nodes that have one.
        nodes: Vec<u32>,
    },
    /// A count of the pool is not readable, or absurd.
    #[error("the counts of the pool of {page} pages cannot be read, or make no sense")]
    Unknown {
        /// Page size.
        page: PageSize,
    },
    /// More than there is.
    #[error("{need} more of huge pages needed, {available} of memory available")]
    Memory {
        /// What the pools would have to grow by.
        need: Bytes,
        /// MemAvailable.
        available: Bytes,
    },
    /// Rights are missing: the commands that would do it.
    #[error("changing the pools needs root; {}", commands.join("; "))]
    NotAllowed {
        /// The changes, as commands.
        commands: Vec<String>,
    },
    /// A pool could not be written.
    #[error("{file} could not be set to {pages}")]
    Write {
        /// The file.
        file: String,
        /// The count.
        pages: u64,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The kernel did not find that many pages, whatever was done.
    #[error(
        "{} of {} of {page} could not be had: memory is in use or too fragmented \
         (at boot it is not: kernel parameters hugepagesz= and hugepages=); {} came and {} given back",
        Grouped(*missing), Count(*need, "huge page"), Grouped(*came), plural(*came, "was", "were")
    )]
    Short {
        /// Page size.
        page: PageSize,
        /// Pages asked for.
        need: u64,
        /// Pages missing.
        missing: u64,
        /// Pages that had come.
        came: u64,
        /// Pages taken back, by pool.
        back: PerPool,
    },
    /// The caller's token said stop.
    #[error("cancelled")]
    Cancelled {
        /// Pages taken back, by pool.
        back: PerPool,
    },
    /// The ledger.
    #[error(transparent)]
    Ledger(LedgerError),
    /// Pages were not given back.
    #[error("{} could not be given back", all(stays))]
    Stay {
        /// Which.
        stays: Vec<Stays>,
        /// Why; of several reasons the first.
        #[source]
        source: Box<ReserveError>,
    },
    /// It failed, and so did taking back what had come.
    #[error("{}; and of what had come {}", chain(first), chain(second))]
    Twice {
        /// The first failure.
        first: Box<ReserveError>,
        /// The failure of taking back.
        second: Box<ReserveError>,
    },
}

/// Pages of one pool that were not given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stays {
    /// Page size.
    pub page: PageSize,
    /// Node; `None`: the pool of the whole host.
    pub node: Option<u32>,
    /// Pages.
    pub pages: u64,
    /// Whether they were reserved [to be kept](super::Reserve::keep).
    pub kept: bool,
    /// The command that takes them back. `None`: they are in the ledger, so [`release_stale`](super::release_stale) does as
    /// soon as their process is gone, [`release_kept`](super::release_kept) where they were kept.
    pub by_hand: Option<String>,
}

/// `2 pages of 2 MiB (4 MiB)`, by page size.
fn all(stays: &[Stays]) -> String {
    let mut sizes: Vec<PageSize> = stays.iter().map(|stays| stays.page).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let one = |page: PageSize| {
        let of = stays.iter().filter(|stays| stays.page == page);
        let pages = of.fold(0u64, |sum, stays| sum.saturating_add(stays.pages));
        let bytes = Bytes(pages.saturating_mul(page.bytes()));
        format!("{} of {page} ({bytes})", Count(pages, "page"))
    };
    sizes.into_iter().map(one).collect::<Vec<_>>().join(", ")
}

/// An error with its sources, in one line.
fn chain(error: &ReserveError) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    text
}

impl From<LedgerError> for ReserveError {
    fn from(error: LedgerError) -> Self {
        match error {
            LedgerError::Cancelled => Self::Cancelled { back: Vec::new() },
            other => Self::Ledger(other),
        }
    }
}

impl ReserveError {
    pub(super) fn not_allowed(changes: &[Change]) -> Self {
        Self::NotAllowed {
            commands: changes.iter().map(Change::command).collect(),
        }
    }

    pub(super) fn write(change: &Change, source: io::Error) -> Self {
        if crate::sys::root_would_help(&source) {
            return Self::not_allowed(&[*change]);
        }
        Self::Write {
            file: change.file(),
            pages: change.to,
            source,
        }
    }

    /// Pages that stay in the pools after it, though they should have been given back.
    #[must_use]
    pub fn stays(&self) -> &[Stays] {
        match self {
            Self::Stay { stays, .. } => stays,
            Self::Twice { second, .. } => second.stays(),
            _ => &[],
        }
    }

    /// What is wrong with the ledger, if that is why.
    #[must_use]
    pub fn ledger(&self) -> Option<&LedgerError> {
        match self {
            Self::Ledger(error) => Some(error),
            Self::Stay { source, .. } => source.ledger(),
            Self::Twice { first, second } => first.ledger().or_else(|| second.ledger()),
            _ => None,
        }
    }

    /// Of two failures to give back: the first, with the pages of both.
    #[must_use]
    pub fn with_stays_of(mut self, other: &Self) -> Self {
        if let Self::Stay { stays, .. } = &mut self {
            stays.extend_from_slice(other.stays());
        }
        self
    }

    /// With what taking back has given.
    pub(super) fn rolled_back(mut self, result: Result<PerPool, Self>) -> Self {
        match result {
            Ok(taken) => {
                if let Self::Short { back, .. } | Self::Cancelled { back } = &mut self {
                    *back = taken;
                }
                self
            }
            Err(second) => Self::Twice {
                first: Box::new(self),
                second: Box::new(second),
            },
        }
    }
}
