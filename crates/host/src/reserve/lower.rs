//! Takes back the pages of a reservation.

use super::error::Stays;
use super::{Change, PerPool, ReserveError, Step};
use crate::ledger::{self, Entry, Ledger, State, persistent};
use crate::root::Root;

/// Takes back the pages of some entries. One that fails does not keep the others from it; the error tells what stays, and
/// the first failure.
pub(super) fn lower_all(
    ledger: &mut Ledger<'_>,
    step: &mut dyn FnMut(Step),
    which: impl Fn(&Entry) -> bool,
) -> Result<PerPool, ReserveError> {
    let mut taken = PerPool::new();
    let mut failure = None;
    let mut any = false;
    for i in 0..ledger.entries.len() {
        if !which(&ledger.entries[i]) {
            continue;
        }
        any = true;
        ledger.entries[i].claim = 0;
        if ledger.entries[i].added == 0 {
            continue;
        }
        match lower(ledger, i, step) {
            Ok(0) => {}
            Ok(pages) => taken.push((ledger.entries[i].node, pages)),
            Err(error) => {
                failure.get_or_insert(error);
            }
        }
    }
    // What can fail here is only to drop entries that say nothing any more.
    if any && let Err(error) = ledger.save() {
        tracing::debug!(%error, "the ledger keeps entries of no pages");
    }
    match failure {
        None => Ok(taken),
        Some(error) => {
            let stays = ledger.entries.iter().filter(|e| which(e) && e.added > 0);
            Err(stay(ledger.root(), stays.cloned().collect(), error))
        }
    }
}

/// The failure after which these entries have not been taken back.
pub(super) fn stay(root: &Root, entries: Vec<Entry>, source: ReserveError) -> ReserveError {
    // What the ledger cannot be asked for is not known to it.
    let noted = ledger::look(root).unwrap_or_default();
    let is_noted = |entry: &Entry| {
        let same = |e: &&Entry| {
            (e.id, e.owner, e.page, e.node) == (entry.id, entry.owner, entry.page, entry.node)
        };
        noted
            .iter()
            .find(same)
            .is_some_and(|e| e.added > 0 || e.state != State::Settled)
    };
    let stays = |entry: Entry| Stays {
        page: entry.page,
        node: entry.node,
        pages: entry.added,
        kept: entry.owner.is_none(),
        by_hand: (!is_noted(&entry)).then(|| by_hand(root, &entry)).flatten(),
    };
    ReserveError::Stay {
        stays: entries.into_iter().map(stays).collect(),
        source: Box::new(source),
    }
}

/// The command that takes them back where hugemr no longer knows of them.
fn by_hand(root: &Root, entry: &Entry) -> Option<String> {
    let from = persistent(root, entry.page, entry.node)?;
    let change = Change {
        page: entry.page,
        node: entry.node,
        from,
        to: from.saturating_sub(entry.added),
    };
    Some(change.command())
}

/// Takes back the pages of one entry. What somebody else has taken already is not there to be taken.
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
        if let Err(error) = ledger.write() {
            ledger.entries[i].state = State::Settled;
            return Err(error.into());
        }
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
    let taken = change.from - change.to;
    let written = if taken > 0 {
        step(Step::Lowering(change));
        root.write(&change.file(), &change.to.to_string())
    } else {
        Ok(())
    };
    ledger.entries[i].state = State::Settled;
    written.map_err(|source| ReserveError::write(&change, source))?;
    if taken < added {
        let pages = added - taken;
        step(Step::Gone { page, node, pages });
    }
    // The kernel always reaches a lower count, by making pages surplus where it cannot free them. Reading the count
    // again would mistake another writer's pages for ours.
    ledger.entries[i].added = 0;
    // The pages are gone. An entry that still says that they are going is settled by the count of the pool.
    if let Err(error) = ledger.write() {
        tracing::debug!(%error, "the ledger is settled by who locks it next");
    }
    Ok(taken)
}
