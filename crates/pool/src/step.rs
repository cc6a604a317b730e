//! The steps of the transaction, and what is told of them.

use std::fmt;
use std::time::{Duration, Instant};

use hugemr_host::reserve::Step as PoolStep;

/// A step of the transaction, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// Pools of huge pages are raised by what is missing, where that was asked for.
    Reserve,
    /// Address space is mapped; huge pages are promised.
    Map,
    /// Pages are made real.
    Populate,
    /// Physical layout is read, and each MR predicted.
    Layout,
    /// MRs are registered.
    Register,
    /// MRs are proved by moving data, where that was asked for.
    Verify,
    /// The pool is in use.
    Hold,
    /// MRs are taken back.
    Deregister,
    /// Memory is given back.
    Unmap,
    /// Pools of huge pages are lowered by exactly what was added.
    GiveBack,
}

impl Step {
    /// Every step, in order.
    pub const ALL: [Self; 10] = [
        Self::Reserve,
        Self::Map,
        Self::Populate,
        Self::Layout,
        Self::Register,
        Self::Verify,
        Self::Hold,
        Self::Deregister,
        Self::Unmap,
        Self::GiveBack,
    ];

    /// One word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reserve => "reserve",
            Self::Map => "map",
            Self::Populate => "populate",
            Self::Layout => "layout",
            Self::Register => "register",
            Self::Verify => "verify",
            Self::Hold => "hold",
            Self::Deregister => "deregister",
            Self::Unmap => "unmap",
            Self::GiveBack => "give back",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Something happened. Told from the threads that work, possibly several at once; the callback must not block long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A step begins.
    Begin(Step),
    /// A step has come so far.
    Progress {
        /// Which.
        step: Step,
        /// Bytes done; ever growing within a step.
        done: u64,
        /// Bytes there are.
        total: u64,
    },
    /// A pool is being changed, within [`Step::Reserve`] or [`Step::GiveBack`].
    Pool(PoolStep),
    /// A step has ended well. Populating, reading the layout and registering overlap; the time of the layout is the sum over
    /// all threads.
    End(Step, Duration),
}

/// Tells the beginning of a step and its good end.
pub(crate) fn timed<T, E>(
    tell: &dyn Fn(Event),
    step: Step,
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    tell(Event::Begin(step));
    let start = Instant::now();
    let done = work()?;
    tell(Event::End(step, start.elapsed()));
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The step after a step. A new one does not compile until it has its place here.
    fn next(step: Step) -> Option<Step> {
        match step {
            Step::Reserve => Some(Step::Map),
            Step::Map => Some(Step::Populate),
            Step::Populate => Some(Step::Layout),
            Step::Layout => Some(Step::Register),
            Step::Register => Some(Step::Verify),
            Step::Verify => Some(Step::Hold),
            Step::Hold => Some(Step::Deregister),
            Step::Deregister => Some(Step::Unmap),
            Step::Unmap => Some(Step::GiveBack),
            Step::GiveBack => None,
        }
    }

    #[test]
    fn all_is_every_step_in_order() {
        let walk: Vec<Step> = std::iter::successors(Some(Step::Reserve), |s| next(*s)).collect();
        assert_eq!(walk, Step::ALL);
        assert!(Step::ALL.is_sorted());
    }
}
