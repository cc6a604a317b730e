//! Takes back the pages of a reservation.

use super::{Change, PerPool, ReserveError, Step};
use crate::ledger::{Entry, Ledger, State, persistent};

/// Takes back the pages of some entries. One that fails does not keep the others from it; the first failure is
/// returned.
pub(super) fn lower_all(
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
