//! Raises pools for one reservation, step by step.

use hugemr_core::size::Bytes;

use super::missing::changes;
use super::{Change, Effort, ReserveError, ReserveRequest, Spread, Step, added};
use crate::facts::Memory;
use crate::ledger::{Entry, Ledger, Owner, State, persistent};
use crate::pools::Pools;
use crate::root::Root;

/// One reservation being made, under the lock.
pub(super) struct Work<'s> {
    pub(super) id: u64,
    pub(super) owner: Option<Owner>,
    pub(super) request: ReserveRequest,
    pub(super) step: &'s mut dyn FnMut(Step),
}

impl Work<'_> {
    pub(super) fn raise_all(
        &mut self,
        ledger: &mut Ledger<'_>,
        effort: Effort,
        cancel: &dyn Fn() -> bool,
    ) -> Result<(), ReserveError> {
        let wanted = changes(ledger.root(), &ledger.entries, &self.request, Some(self.id))?;
        if let Err(error) = self.claim(ledger, &wanted) {
            if !wanted.is_empty() {
                return Err(error);
            }
            // Enough is there: what is going to be mapped is not told to others, and nothing is changed.
            tracing::debug!(%error, "no claim");
            ledger.entries.retain(|entry| entry.id != self.id);
            return Ok(());
        }
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
            if let Err(error) = ledger.save() {
                // Nothing is going to be changed, so nothing must be settled either.
                self.entry(ledger, node).state = State::Settled;
                return Err(error.into());
            }
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
