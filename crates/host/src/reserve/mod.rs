//! Raises huge-page pools by what is missing, and takes back exactly what it added.
//!
//! * The need counts what a mapping can *have*: free pages that are promised to nobody, less what other
//!   reservations of hugemr are still going to map. Where that is enough, nothing is changed.
//! * A plain write comes first. The kernel reclaims and compacts inside the write by itself; it succeeds although fewer
//!   pages came, so the count is read again. Only on a short count follow the steps of [`Effort`], each as
//!   long as it gains something.
//! * What is written is always the count found there plus or minus our own pages, never a count remembered from
//!   before: what others added or removed meanwhile stays. (The kernel knows no relative write, so between
//!   reading and writing an outside writer can be overtaken; the two are one after the other for that reason.)
//! * Giving back lowers the persistent count. Pages that are in use or promised to somebody stay with him: the kernel makes
//!   them surplus, which go when they are freed.
//! * Every change is written to the [`ledger`] first, so that whoever comes after a killed process takes back what that has
//!   added, and once. What the ledger cannot be told is not done, and said; to take an entry out it needs no room.
//!
//! Source: `set_max_huge_pages`, Linux `mm/hugetlb.c`.

mod error;
mod lower;
mod missing;
mod pieces;
mod raise;

use std::fmt;
use std::io;
use std::num::NonZeroU64;

use hugemr_core::size::PageSize;

use crate::ledger::{self, Entry, Ledger, Lock, Owner, State};
use crate::pools::pool_dir;
use crate::root::Root;
pub use error::{ReserveError, Stays};
use lower::{lower_all, stay};
use missing::changes;
use raise::Work;

/// From which nodes pages are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// The same number from each node.
    #[default]
    Even,
    /// So many from each node that pieces of so many pages find a place on one node each, about the same number from each:
    /// for MRs that must not straddle nodes.
    Pieces(NonZeroU64),
    /// From this node only.
    Only(u32),
    /// From this node as far as it has them, then from the others.
    First(u32),
}

/// What may be done when the kernel gives too few pages. Each of it slows the host down while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Compact memory (`vm.compact_memory`).
    pub compact: bool,
    /// Drop clean page cache (`vm.drop_caches = 1`).
    pub drop_caches: bool,
}

impl Default for Effort {
    /// Compact, but keep the cache.
    fn default() -> Self {
        Self {
            compact: true,
            drop_caches: false,
        }
    }
}

/// How many pages shall be available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReserveRequest {
    /// Page size.
    pub page: PageSize,
    /// Pages.
    pub pages: u64,
    /// Their nodes.
    pub spread: Spread,
}

/// One change of one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Page size.
    pub page: PageSize,
    /// Node; `None`: the pool of the whole host.
    pub node: Option<u32>,
    /// Persistent pages now.
    pub from: u64,
    /// Persistent pages afterwards.
    pub to: u64,
}

impl Change {
    /// The file that is written.
    #[must_use]
    pub fn file(&self) -> String {
        format!("{}/nr_hugepages", pool_dir(self.page, self.node))
    }

    /// The command that does the same.
    #[must_use]
    pub fn command(&self) -> String {
        format!("sudo sh -c 'echo {} > {}'", self.to, self.file())
    }
}

/// What is going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A pool is being raised. Kernels from about 6.12 on publish the count only at the end of the write.
    Raising(Change),
    /// So many pages came.
    Came {
        /// Of which pool.
        node: Option<u32>,
        /// Pages.
        pages: u64,
    },
    /// So many pages are missing still.
    Short(u64),
    /// Memory is being compacted.
    Compacting,
    /// Clean page cache is being dropped.
    DroppingCaches,
    /// A pool is being lowered.
    Lowering(Change),
    /// So many pages were to be given back, and somebody else has taken them away already.
    Gone {
        /// Page size.
        page: PageSize,
        /// Of which pool.
        node: Option<u32>,
        /// Pages.
        pages: u64,
    },
}

/// The changes that a request needs: a dry run. Empty: enough is available.
///
/// # Errors
/// See [`ReserveError`].
pub fn plan(root: &Root, request: &ReserveRequest) -> Result<Vec<Change>, ReserveError> {
    let entries = ledger::look(root)?;
    changes(root, &entries, request, None)
}

/// Whether this process has the rights to make these changes; none of them is made.
///
/// # Errors
/// What making them would end with.
pub fn check(root: &Root, changes: &[Change]) -> Result<(), ReserveError> {
    Lock::open(root).map_err(|error| no_ledger(error, changes))?;
    changes.iter().try_for_each(|change| {
        let opened = root.may_write(&change.file());
        opened.map_err(|source| ReserveError::write(change, source))
    })
}

/// Why the ledger cannot be had for these changes.
fn no_ledger(error: ledger::LedgerError, changes: &[Change]) -> ReserveError {
    let ledger::LedgerError::File { denied, source, .. } = &error else {
        return error.into();
    };
    let closed = matches!(
        source.kind(),
        io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::StorageFull
    );
    // Where nothing is missing nothing need be changed, either.
    if *denied || (closed && changes.is_empty()) {
        return ReserveError::not_allowed(changes);
    }
    error.into()
}

/// A reservation to be made.
pub struct Reserve<'a> {
    root: &'a Root,
    request: ReserveRequest,
    effort: Effort,
    keep: bool,
    step: Option<&'a mut Steps<'a>>,
    cancel: Option<&'a Cancel<'a>>,
}

type Steps<'a> = dyn FnMut(Step) + 'a;
type Cancel<'a> = dyn Fn() -> bool + 'a;

impl<'a> Reserve<'a> {
    /// A reservation that belongs to this process.
    #[must_use]
    pub fn new(root: &'a Root, request: ReserveRequest) -> Self {
        Self {
            root,
            request,
            effort: Effort::default(),
            keep: false,
            step: None,
            cancel: None,
        }
    }

    /// What may be done on a short count.
    #[must_use]
    pub fn effort(mut self, effort: Effort) -> Self {
        self.effort = effort;
        self
    }

    /// Belongs to nobody: the pages stay when the process ends, until [`release_kept`]. They are meant for others, so
    /// they are not held back from other reservations.
    #[must_use]
    pub fn keep(mut self) -> Self {
        self.keep = true;
        self
    }

    /// Is told each step.
    #[must_use]
    pub fn on_step(mut self, step: &'a mut (dyn FnMut(Step) + 'a)) -> Self {
        self.step = Some(step);
        self
    }

    /// Is asked between two steps whether to stop. A write under way ends only on a signal, or when it is done.
    #[must_use]
    pub fn cancel(mut self, cancel: &'a (dyn Fn() -> bool + 'a)) -> Self {
        self.cancel = Some(cancel);
        self
    }

    /// Makes the reservation.
    ///
    /// # Errors
    /// See [`ReserveError`]. What was added on the way is taken back.
    pub fn run(mut self) -> Result<Reservation, ReserveError> {
        let never = || false;
        let cancel = self.cancel.unwrap_or(&never);
        let mut ledger = Ledger::lock(self.root, cancel).map_err(|error| {
            let changes = plan(self.root, &self.request).unwrap_or_default();
            no_ledger(error, &changes)
        })?;
        let mut work = Work {
            id: ledger.next_id(),
            owner: (!self.keep).then(|| Owner::own(self.root)),
            request: self.request,
            step: &mut |step| {
                if let Some(told) = &mut self.step {
                    told(step);
                }
            },
        };
        match work.raise_all(&mut ledger, self.effort, cancel) {
            Ok(()) => Ok(Reservation {
                root: self.root.clone(),
                ledger: ledger.name.clone(),
                id: work.id,
                owner: work.owner,
                page: self.request.page,
                added: added(&ledger, work.id),
                live: !self.keep,
            }),
            Err(error) => {
                let back = lower_all(&mut ledger, work.step, |e| e.id == work.id);
                Err(error.rolled_back(back))
            }
        }
    }
}

impl fmt::Debug for Reserve<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserve")
            .field("root", &self.root)
            .field("request", &self.request)
            .field("effort", &self.effort)
            .field("keep", &self.keep)
            .finish_non_exhaustive()
    }
}

/// Pages by pool.
pub type PerPool = Vec<(Option<u32>, u64)>;

fn added(ledger: &Ledger<'_>, id: u64) -> PerPool {
    let own = ledger.entries.iter().filter(|e| e.id == id && e.added > 0);
    own.map(|e| (e.node, e.added)).collect()
}

/// Pages that were made available. Given back when dropped, unless it was [kept](Reserve::keep).
#[derive(Debug)]
#[must_use = "the pages are given back when it is dropped"]
pub struct Reservation {
    root: Root,
    /// The name of the ledger in which it stands.
    ledger: String,
    id: u64,
    owner: Option<Owner>,
    page: PageSize,
    added: PerPool,
    live: bool,
}

impl Reservation {
    /// Pages that were added, by pool. Empty: enough was available, and nothing was changed.
    #[must_use]
    pub fn added(&self) -> &[(Option<u32>, u64)] {
        &self.added
    }

    /// Page size of the pools.
    #[must_use]
    pub fn page(&self) -> PageSize {
        self.page
    }

    /// Says that the pages are mapped now, and so promised to this process by the kernel: other reservations need not
    /// leave them to it any longer.
    ///
    /// # Errors
    /// Those of the ledger.
    pub fn mapped(&self) -> Result<(), ReserveError> {
        mapping(std::slice::from_ref(self), &|| false, || ())
    }

    /// Takes the added pages back: to be called when the memory is unmapped.
    ///
    /// # Errors
    /// Those of the pools and of the ledger. What could not be given back stays in the ledger.
    pub fn give_back(mut self, step: &mut dyn FnMut(Step)) -> Result<PerPool, ReserveError> {
        self.live = false;
        self.back(None, step)
    }

    /// Waits until other hugemr are done with the pools, and keeps them from the pools. Until that value is dropped the
    /// reservation can be given back under it only.
    ///
    /// # Errors
    /// Those of the lock.
    pub fn keep_from_others(&self) -> Result<Kept, ReserveError> {
        let lock = Lock::take(&self.root, &|| false)?;
        Ok(Kept { lock })
    }

    /// [`give_back`](Self::give_back), while the pools are kept from others.
    ///
    /// # Errors
    /// As `give_back`.
    pub fn give_back_under(
        mut self,
        kept: &Kept,
        step: &mut dyn FnMut(Step),
    ) -> Result<PerPool, ReserveError> {
        self.live = false;
        self.back(Some(kept), step)
    }

    fn back(
        &self,
        kept: Option<&Kept>,
        step: &mut dyn FnMut(Step),
    ) -> Result<PerPool, ReserveError> {
        let ledger = match kept {
            Some(kept) => Ledger::under(&self.root, &kept.lock),
            None => Ledger::lock(&self.root, &|| false),
        };
        let mut ledger = match ledger {
            Ok(ledger) => ledger,
            Err(error) if self.added.is_empty() => return Err(error.into()),
            Err(error) => return Err(stay(&self.root, self.entries(self.id), error.into())),
        };
        let mut id = self.id;
        if ledger.name != self.ledger {
            // Another one has taken its place, and knows nothing of these pages; of its numbers one may be the same.
            id = ledger.next_id();
            ledger.entries.extend(self.entries(id));
        }
        lower_all(&mut ledger, step, |e| e.id == id)
    }

    /// What the ledger should say of it.
    fn entries(&self, id: u64) -> Vec<Entry> {
        let entry = |&(node, added): &(Option<u32>, u64)| Entry {
            id,
            owner: self.owner,
            page: self.page,
            node,
            added,
            claim: 0,
            state: State::Settled,
        };
        self.added.iter().map(entry).collect()
    }
}

/// Maps the memory for which pages were reserved, and says so as [`Reservation::mapped`] does. Both under the lock: between the
/// two the pages would count twice, as promised by the kernel and as still to be mapped.
///
/// # Errors
/// Those of the ledger. Memory that was mapped already is dropped then.
pub fn mapping<T>(
    reservations: &[Reservation],
    cancel: &dyn Fn() -> bool,
    map: impl FnOnce() -> T,
) -> Result<T, ReserveError> {
    let Some(first) = reservations.first() else {
        return Ok(map());
    };
    let mut ledger = Ledger::lock(&first.root, cancel)?;
    let mapped = map();
    let name = ledger.name.clone();
    let own = |e: &Entry| {
        let same = |one: &Reservation| one.ledger == name && one.id == e.id && one.owner == e.owner;
        reservations.iter().any(same)
    };
    let mut claimed = false;
    for entry in ledger.entries.iter_mut().filter(|e| own(e)) {
        claimed |= entry.claim > 0;
        entry.claim = 0;
    }
    if claimed {
        ledger.save()?;
    }
    Ok(mapped)
}

/// While it lives no other hugemr counts or changes pools. To be had before memory is unmapped whose pages are to be given back:
/// between the two they are free, and who counted on them would find them gone.
#[derive(Debug)]
pub struct Kept {
    lock: Lock,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.live
            && let Err(error) = self.back(None, &mut |_| ())
        {
            tracing::warn!(%error, added = ?self.added, "huge pages not given back");
        }
    }
}

/// Takes back what processes that are gone have left (killed ones).
///
/// # Errors
/// See [`ReserveError`].
pub fn release_stale(root: &Root, step: &mut dyn FnMut(Step)) -> Result<PerPool, ReserveError> {
    release(root, step, |e| {
        e.owner.is_some_and(|owner| !owner.is_alive(root))
    })
}

/// Takes back what was reserved to be [kept](Reserve::keep).
///
/// # Errors
/// See [`ReserveError`].
pub fn release_kept(root: &Root, step: &mut dyn FnMut(Step)) -> Result<PerPool, ReserveError> {
    release(root, step, |e| e.owner.is_none())
}

fn release(
    root: &Root,
    step: &mut dyn FnMut(Step),
    which: impl Fn(&Entry) -> bool,
) -> Result<PerPool, ReserveError> {
    // Without a ledger there is nothing to do, and no need for rights.
    if !ledger::look(root)?.iter().any(&which) {
        return Ok(Vec::new());
    }
    let mut ledger = Ledger::lock(root, &|| false)?;
    lower_all(&mut ledger, step, which)
}

#[cfg(test)]
mod tests;
