//! The steps of the transaction, and what is told of them.

use std::fmt;
use std::time::Duration;

/// A step of the transaction, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// Address space is mapped; huge pages are promised.
    Map,
    /// Pages are made real.
    Populate,
    /// Physical layout is read, and each MR predicted.
    Layout,
    /// MRs are registered.
    Register,
    /// MRs are taken back.
    Deregister,
    /// Memory is given back.
    Unmap,
}

impl Step {
    /// Every step, in order.
    pub const ALL: [Self; 6] = [
        Self::Map,
        Self::Populate,
        Self::Layout,
        Self::Register,
        Self::Deregister,
        Self::Unmap,
    ];

    /// One word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::Populate => "populate",
            Self::Layout => "layout",
            Self::Register => "register",
            Self::Deregister => "deregister",
            Self::Unmap => "unmap",
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
    /// A step has ended well.
    End(Step, Duration),
}
