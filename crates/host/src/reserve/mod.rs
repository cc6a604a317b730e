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
//! * Every change is written to the [`ledger`] first.
//!
//! Source: `set_max_huge_pages`, Linux `mm/hugetlb.c`.

mod error;
mod pieces;

use std::fmt;
use std::num::NonZeroU64;

use hugemr_core::size::{Bytes, PageSize};

use crate::facts::Memory;
use crate::ledger::{self, Entry, Ledger, Owner, State, claims, persistent};
use crate::pools::{Pools, pool_dir};
use crate::root::Root;
pub use error::ReserveError;

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
}

/// The changes that a request needs: a dry run. Empty: enough is available.
///
/// # Errors
/// See [`ReserveError`].
pub fn plan(root: &Root, request: &ReserveRequest) -> Result<Vec<Change>, ReserveError> {
    let entries = ledger::look(root)?;
    changes(root, &entries, request, None)
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
        let allowed = |error: ledger::LedgerError| match error {
            ledger::LedgerError::File { denied: true, .. } => {
                ReserveError::not_allowed(&plan(self.root, &self.request).unwrap_or_default())
            }
            other => other.into(),
        };
        let mut ledger = Ledger::lock(self.root, cancel).map_err(allowed)?;
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
                id: work.id,
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
    id: u64,
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
        let mut ledger = Ledger::lock(&self.root, &|| false)?;
        for entry in ledger.entries.iter_mut().filter(|e| e.id == self.id) {
            entry.claim = 0;
        }
        ledger.save()?;
        Ok(())
    }

    /// Takes the added pages back: to be called when the memory is unmapped.
    ///
    /// # Errors
    /// Those of the pools and of the ledger. What could not be given back stays in the ledger.
    pub fn give_back(mut self, step: &mut dyn FnMut(Step)) -> Result<PerPool, ReserveError> {
        self.live = false;
        self.back(step)
    }

    fn back(&self, step: &mut dyn FnMut(Step)) -> Result<PerPool, ReserveError> {
        let mut ledger = Ledger::lock(&self.root, &|| false)?;
        lower_all(&mut ledger, step, |e| e.id == self.id)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.live
            && let Err(error) = self.back(&mut |_| ())
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

/// The changes that are missing for a request, given what is there now.
fn changes(
    root: &Root,
    entries: &[Entry],
    request: &ReserveRequest,
    own: Option<u64>,
) -> Result<Vec<Change>, ReserveError> {
    let page = request.page;
    let pools = Pools::read(root);
    let pool = pools.of(page).ok_or_else(|| ReserveError::NoSuchPage {
        page,
        sizes: pools.sizes(),
    })?;
    let unknown = ReserveError::Unknown { page };
    let Some(available) = pool.available() else {
        return Err(unknown);
    };
    let claimed = claims(root, entries, page, None, own);
    let short = request
        .pages
        .saturating_sub(available.saturating_sub(claimed));
    let nodes: Vec<u32> = pools
        .nodes
        .iter()
        .filter(|node| node.pools.iter().any(|pool| pool.page == page))
        .map(|node| node.id)
        .collect();
    if let Spread::Only(node) | Spread::First(node) = request.spread
        && !nodes.contains(&node)
    {
        return Err(ReserveError::NoSuchNode { node, nodes });
    }
    let shares: Vec<(Option<u32>, u64)> = match request.spread {
        _ if !pools.per_node => vec![(None, short)],
        Spread::Even => split(short, &nodes),
        Spread::Pieces(piece) => {
            let free = |node: &u32| pools.on_node(*node, page).map_or(0, |pool| pool.free);
            let free: Vec<(u32, u64)> = nodes.iter().map(|node| (*node, free(node))).collect();
            pieces::missing(request.pages, piece.get(), &free, short)
        }
        Spread::First(node) => vec![(Some(node), short)],
        Spread::Only(node) => {
            // Promises are made for the host: which node keeps them is not known, so the host's count must do too.
            let free = pools.on_node(node, page).map_or(0, |pool| pool.free);
            let claimed = claims(root, entries, page, Some(node), own);
            let here = request.pages.saturating_sub(free.saturating_sub(claimed));
            vec![(Some(node), short.max(here))]
        }
    };
    shares
        .into_iter()
        .filter(|(_, pages)| *pages > 0)
        .map(|(node, pages)| {
            let from = persistent(root, page, node).ok_or(ReserveError::Unknown { page })?;
            let to = from.saturating_add(pages);
            Ok(Change {
                page,
                node,
                from,
                to,
            })
        })
        .collect()
}

/// Splits a number of pages evenly, the rest to the first nodes.
fn split(pages: u64, nodes: &[u32]) -> Vec<(Option<u32>, u64)> {
    let n = (nodes.len() as u64).max(1);
    let share = |i: u64| pages / n + u64::from(i < pages % n);
    nodes
        .iter()
        .zip(0..)
        .map(|(node, i)| (Some(*node), share(i)))
        .collect()
}

/// One reservation being made, under the lock.
struct Work<'s> {
    id: u64,
    owner: Option<Owner>,
    request: ReserveRequest,
    step: &'s mut dyn FnMut(Step),
}

impl Work<'_> {
    fn raise_all(
        &mut self,
        ledger: &mut Ledger<'_>,
        effort: Effort,
        cancel: &dyn Fn() -> bool,
    ) -> Result<(), ReserveError> {
        let wanted = changes(ledger.root(), &ledger.entries, &self.request, Some(self.id))?;
        self.claim(ledger, &wanted)?;
        let only = matches!(self.request.spread, Spread::Only(_));
        let mut ladder = [
            (Rung::Write, true),
            (Rung::OtherNodes, !only),
            (Rung::Compact, effort.compact),
            (Rung::DropCaches, effort.drop_caches),
        ]
        .into_iter()
        .filter_map(|(rung, allowed)| allowed.then_some(rung));
        let mut rung = ladder.next();
        for round in 0.. {
            let missing = changes(ledger.root(), &ledger.entries, &self.request, Some(self.id))?;
            if missing.is_empty() {
                break;
            }
            check_memory(ledger.root(), &missing)?;
            if cancel() {
                return Err(ReserveError::Cancelled { back: Vec::new() });
            }
            let short = missing.iter().map(|change| change.to - change.from).sum();
            // Somebody who takes the pages as fast as they come must not have us empty the host for him.
            let Some(now) = rung.filter(|_| round < ROUNDS) else {
                return Err(self.short(ledger, short));
            };
            if now != Rung::Write {
                (self.step)(Step::Short(short));
            }
            self.prepare(ledger.root(), now);
            let came = match now {
                Rung::OtherNodes => self.raise_elsewhere(ledger, short, cancel)?,
                _ => self.raise(ledger, &missing, cancel)?,
            };
            // A rung is used as long as it gains something.
            if came == 0 {
                rung = ladder.next();
            }
        }
        Ok(())
    }

    /// What a rung does before the write. A failure is none of ours: the write shows what it was worth.
    fn prepare(&mut self, root: &Root, rung: Rung) {
        let (step, file) = match rung {
            Rung::Write | Rung::OtherNodes => return,
            Rung::Compact => (Step::Compacting, "/proc/sys/vm/compact_memory"),
            Rung::DropCaches => (Step::DroppingCaches, "/proc/sys/vm/drop_caches"),
        };
        (self.step)(step);
        if let Err(error) = root.write(file, "1") {
            tracing::debug!(%error, file, "not written");
        }
    }

    /// Writes down what this reservation is going to map, on the nodes of which it is going to come.
    fn claim(&self, ledger: &mut Ledger<'_>, wanted: &[Change]) -> Result<(), ReserveError> {
        if self.owner.is_none() {
            return Ok(());
        }
        let node = match self.request.spread {
            Spread::Only(node) | Spread::First(node) if Pools::read(ledger.root()).per_node => {
                Some(node)
            }
            _ => wanted.first().and_then(|change| change.node),
        };
        self.entry(ledger, node).claim = self.request.pages;
        ledger.save()?;
        Ok(())
    }

    /// The entry of a pool, made where there is none.
    fn entry<'l>(&self, ledger: &'l mut Ledger<'_>, node: Option<u32>) -> &'l mut Entry {
        let same = |e: &Entry| e.id == self.id && e.node == node;
        let at = ledger.entries.iter().position(same).unwrap_or_else(|| {
            ledger.entries.push(Entry {
                id: self.id,
                owner: self.owner,
                page: self.request.page,
                node,
                added: 0,
                claim: 0,
                state: State::Settled,
            });
            ledger.entries.len() - 1
        });
        &mut ledger.entries[at]
    }

    fn raise(
        &mut self,
        ledger: &mut Ledger<'_>,
        changes: &[Change],
        cancel: &dyn Fn() -> bool,
    ) -> Result<u64, ReserveError> {
        let mut sum = 0;
        for change in changes {
            if cancel() {
                return Err(ReserveError::Cancelled { back: Vec::new() });
            }
            sum += self.raise_one(ledger, change.node, change.to - change.from)?;
        }
        Ok(sum)
    }

    fn raise_elsewhere(
        &mut self,
        ledger: &mut Ledger<'_>,
        mut short: u64,
        cancel: &dyn Fn() -> bool,
    ) -> Result<u64, ReserveError> {
        let pools = Pools::read(ledger.root());
        let mut sum = 0;
        if !pools.per_node {
            return Ok(0);
        }
        let has = |pool: &hugemr_core::host::HugePool| pool.page == self.request.page;
        let nodes: Vec<u32> = pools
            .nodes
            .iter()
            .filter(|node| node.pools.iter().any(has))
            .map(|node| node.id)
            .collect();
        for node in nodes {
            if short == 0 {
                break;
            }
            if cancel() {
                return Err(ReserveError::Cancelled { back: Vec::new() });
            }
            let came = self.raise_one(ledger, Some(node), short)?;
            short -= came;
            sum += came;
        }
        Ok(sum)
    }

    /// Raises one pool and returns how many pages came.
    fn raise_one(
        &mut self,
        ledger: &mut Ledger<'_>,
        node: Option<u32>,
        by: u64,
    ) -> Result<u64, ReserveError> {
        let root = ledger.root();
        let page = self.request.page;
        let read = || persistent(root, page, node).ok_or(ReserveError::Unknown { page });
        let mut from = read()?;
        // The count that is written must be fresh: somebody may have changed it while the ledger was saved.
        let change = loop {
            let change = Change {
                page,
                node,
                from,
                to: from.saturating_add(by),
            };
            self.entry(ledger, node).state = State::Raising {
                before: from,
                target: change.to,
            };
            ledger.save()?;
            from = read()?;
            if from == change.from {
                break change;
            }
        };
        (self.step)(Step::Raising(change));
        let written = root.write(&change.file(), &change.to.to_string());
        let came = read().map(|now| now.saturating_sub(change.from).min(by));
        let entry = self.entry(ledger, node);
        entry.state = State::Settled;
        entry.added += *came.as_ref().unwrap_or(&0);
        ledger.save()?;
        written.map_err(|source| ReserveError::write(&change, source))?;
        let pages = came?;
        (self.step)(Step::Came { node, pages });
        Ok(pages)
    }

    fn short(&self, ledger: &Ledger<'_>, missing: u64) -> ReserveError {
        let came = added(ledger, self.id).iter().map(|(_, pages)| pages).sum();
        ReserveError::Short {
            page: self.request.page,
            need: self.request.pages,
            missing,
            came,
            back: Vec::new(),
        }
    }
}

/// Writes for one reservation. More than two are needed where surplus pages become persistent ones first.
const ROUNDS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rung {
    Write,
    OtherNodes,
    Compact,
    DropCaches,
}

/// More than there is would push the host into reclaim for minutes, and give nothing.
fn check_memory(root: &Root, wanted: &[Change]) -> Result<(), ReserveError> {
    let bytes = wanted.iter().fold(0u64, |sum, change| {
        let pages = change.to - change.from;
        sum.saturating_add(pages.saturating_mul(change.page.bytes()))
    });
    match Memory::read(root).available {
        Some(available) if bytes > available => Err(ReserveError::Memory {
            need: Bytes(bytes),
            available: Bytes(available),
        }),
        _ => Ok(()),
    }
}

/// Takes back the pages of some entries. One that fails does not keep the others from it; the first failure is
/// returned.
fn lower_all(
    ledger: &mut Ledger<'_>,
    step: &mut dyn FnMut(Step),
    which: impl Fn(&Entry) -> bool,
) -> Result<PerPool, ReserveError> {
    let mut taken = PerPool::new();
    let mut failure = None;
    for i in 0..ledger.entries.len() {
        if !which(&ledger.entries[i]) {
            continue;
        }
        ledger.entries[i].claim = 0;
        if ledger.entries[i].added == 0 {
            continue;
        }
        match lower(ledger, i, step) {
            Ok(pages) => taken.push((ledger.entries[i].node, pages)),
            Err(error) => {
                failure.get_or_insert(error);
            }
        }
    }
    ledger.save()?;
    failure.map_or(Ok(taken), Err)
}

/// Takes back the pages of one entry.
fn lower(
    ledger: &mut Ledger<'_>,
    i: usize,
    step: &mut dyn FnMut(Step),
) -> Result<u64, ReserveError> {
    let root = ledger.root();
    let Entry {
        page, node, added, ..
    } = ledger.entries[i];
    let read = || persistent(root, page, node).ok_or(ReserveError::Unknown { page });
    let mut from = read()?;
    let change = loop {
        // Below 0 where somebody else has taken more than his own.
        let to = from.saturating_sub(added);
        ledger.entries[i].state = State::Lowering {
            before: from,
            target: to,
        };
        ledger.write()?;
        let change = Change {
            page,
            node,
            from,
            to,
        };
        from = read()?;
        if from == change.from {
            break change;
        }
    };
    step(Step::Lowering(change));
    let written = root.write(&change.file(), &change.to.to_string());
    ledger.entries[i].state = State::Settled;
    written.map_err(|source| ReserveError::write(&change, source))?;
    // The kernel always reaches a lower count, by making pages surplus where it cannot free them. Reading the count
    // again would mistake another writer's pages for ours.
    ledger.entries[i].added = 0;
    ledger.write()?;
    Ok(change.from - change.to)
}

#[cfg(test)]
mod tests;
