//! The pools of a transaction: raised by what is missing before memory is mapped, lowered by exactly that after it is
//! unmapped.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use hugemr_core::registrar::CancelToken;
use hugemr_core::size::PageSize;
use hugemr_host::facts::{Cgroup, ProcessId};
use hugemr_host::mapping::{MapError, check_cgroup};
use hugemr_host::reserve::{
    Effort, Kept, Reservation, Reserve, ReserveError, ReserveRequest, Spread, mapping,
};
use hugemr_host::root::Root;

use crate::error::{BuildError, Cause};
use crate::step::{Event, Step, timed};

/// What pools must have, and how they may come by it.
pub(crate) struct Wish<'a> {
    pub(crate) root: &'a Root,
    /// Pages by size, and from which nodes.
    pub(crate) need: Vec<(PageSize, u64, Spread)>,
    pub(crate) effort: Effort,
    pub(crate) cancel: &'a CancelToken,
}

/// Pages of the pools that are there for one transaction. Dropped, they are given back: whoever owns it drops the
/// memory first.
#[derive(Debug, Default)]
pub(crate) struct Reserved {
    /// Dropped before what is given back when it is dropped: that wants the same lock.
    kept: Option<Kept>,
    list: Vec<Reservation>,
    asked: bool,
}

impl Wish<'_> {
    /// Raises the pools.
    pub(crate) fn fulfil(&self, tell: &dyn Fn(Event)) -> Result<Reserved, BuildError> {
        let mut reserved = Reserved {
            kept: None,
            list: Vec::new(),
            asked: true,
        };
        let made = timed(tell, Step::Reserve, || {
            for &(page, pages, _) in &self.need {
                self.within_cgroup(page, pages)?;
            }
            for &(page, pages, spread) in &self.need {
                let made = self.one(page, pages, spread, tell)?;
                reserved.list.extend(made);
            }
            Ok::<(), Cause>(())
        });
        match made {
            Ok(()) => Ok(reserved),
            Err(cause) => Err(BuildError::new(Step::Reserve, cause).rolled_back(reserved, tell)),
        }
    }

    /// A pool is not raised for a mapping that would be refused.
    fn within_cgroup(&self, page: PageSize, pages: u64) -> Result<(), MapError> {
        let need = pages.saturating_mul(page.bytes());
        check_cgroup(&Cgroup::read(self.root, ProcessId::Own), page, need)
    }

    /// `None`: enough is there, and the rights to note in the ledger that it is wanted are missing. The kernel's promise
    /// when it is mapped is what counts then.
    fn one(
        &self,
        page: PageSize,
        pages: u64,
        spread: Spread,
        tell: &dyn Fn(Event),
    ) -> Result<Option<Reservation>, ReserveError> {
        let guarded = Guarded::new(tell);
        let cancel = || self.cancel.is_cancelled() || guarded.has_panicked();
        let mut step = |step| guarded.tell(Event::Pool(step));
        let request = ReserveRequest {
            page,
            pages,
            spread,
        };
        let made = Reserve::new(self.root, request)
            .effort(self.effort)
            .on_step(&mut step)
            .cancel(&cancel)
            .run();
        // A reservation that stands is dropped by the panic, and so given back.
        guarded.go_on();
        match made {
            Err(ReserveError::NotAllowed { commands }) if commands.is_empty() => Ok(None),
            other => other.map(Some),
        }
    }
}

impl Reserved {
    /// Pages that were added: page size, node (`None`: the pool of the whole host), number.
    pub(crate) fn added(&self) -> Vec<(PageSize, Option<u32>, u64)> {
        let of = |one: &Reservation| {
            let page = one.page();
            let added = one.added().iter();
            added
                .map(|(node, pages)| (page, *node, *pages))
                .collect::<Vec<_>>()
        };
        self.list.iter().flat_map(of).collect()
    }

    /// Maps the memory: the kernel keeps the pages for this process from then on.
    pub(crate) fn mapping<T>(
        &self,
        cancel: &dyn Fn() -> bool,
        map: impl FnOnce() -> T,
    ) -> Result<T, ReserveError> {
        mapping(&self.list, cancel, map)
    }

    /// Keeps others from counting on the pages that become free when the memory is unmapped, until they are given back. Where
    /// that cannot be had, giving back says why.
    pub(crate) fn keep_from_others(&mut self) {
        let added = self.list.iter().find(|one| !one.added().is_empty());
        self.kept = added.and_then(|one| one.keep_from_others().ok());
    }

    /// Lowers the pools. One that fails does not keep the others from it; the first failure is returned.
    pub(crate) fn give_back(self, tell: &dyn Fn(Event)) -> Result<(), ReserveError> {
        if !self.asked {
            return Ok(());
        }
        // All of it, so that whatever is dropped where a callback panics is dropped in order.
        let whole = self;
        timed(tell, Step::GiveBack, move || {
            let whole = whole;
            let guarded = Guarded::new(tell);
            let mut first = Ok(());
            for one in whole.list {
                let mut step = |step| guarded.tell(Event::Pool(step));
                let back = match &whole.kept {
                    Some(kept) => one.give_back_under(kept, &mut step),
                    None => one.give_back(&mut step),
                };
                first = match (first, back) {
                    (Ok(()), back) => back.map(drop),
                    (Err(first), Err(next)) => Err(first.with_stays_of(&next)),
                    (first, Ok(_)) => first,
                };
            }
            guarded.go_on();
            first
        })
    }
}

impl BuildError {
    /// Gives the pages back, and says so where that fails.
    pub(crate) fn rolled_back(mut self, reserved: Reserved, tell: &dyn Fn(Event)) -> Self {
        self.not_given_back = reserved.give_back(tell).err().map(Box::new);
        self
    }
}

/// Calls a foreign callback in the middle of a change of a pool. A panic in it waits until the change is complete: one that
/// went through would leave pages that nobody gives back while the process lives.
struct Guarded<'a> {
    callback: &'a dyn Fn(Event),
    panic: RefCell<Option<Box<dyn Any + Send>>>,
}

impl<'a> Guarded<'a> {
    fn new(callback: &'a dyn Fn(Event)) -> Self {
        Self {
            callback,
            panic: RefCell::new(None),
        }
    }

    fn tell(&self, event: Event) {
        if self.has_panicked() {
            return;
        }
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (self.callback)(event))) {
            *self.panic.borrow_mut() = Some(panic);
        }
    }

    fn has_panicked(&self) -> bool {
        self.panic.borrow().is_some()
    }

    /// Goes on with the panic, if there was one.
    fn go_on(self) {
        if let Some(panic) = self.panic.into_inner() {
            resume_unwind(panic);
        }
    }
}

#[cfg(test)]
mod tests;
