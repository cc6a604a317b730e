//! Why a pool was not built.

use hugemr_core::layout::Prediction;
use hugemr_core::place::PlaceError;
use hugemr_core::registrar::{CloseError, RegisterFailure};
use hugemr_core::size::{Bytes, Count, Grouped, PageSize, plural};
use hugemr_host::layout::LayoutError;
use hugemr_host::mapping::MapError;
use hugemr_host::populate::PopulateError;
use hugemr_host::reserve::ReserveError;

use crate::step::Step;

/// A pool was not built. Whatever had been done was undone, or the error says what is left.
#[derive(Debug, thiserror::Error)]
#[error("{step} failed{}", left(.not_given_back.as_deref()))]
pub struct BuildError {
    /// The step that failed.
    pub step: Step,
    /// Why.
    #[source]
    pub cause: Box<Cause>,
    /// Why pages that had been added to the pools could not be taken back; they stay in the ledger.
    pub not_given_back: Option<Box<ReserveError>>,
}

impl BuildError {
    /// A failure after which nothing is left.
    #[must_use]
    pub fn new(step: Step, cause: impl Into<Cause>) -> Self {
        Self {
            step,
            cause: Box::new(cause.into()),
            not_given_back: None,
        }
    }
}

fn left(not_given_back: Option<&ReserveError>) -> String {
    not_given_back.map_or_else(String::new, |error| {
        format!("; and the pools could not be lowered again: {error}")
    })
}

/// The first cause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// Pools could not be raised, or not be lowered at the end.
    #[error(transparent)]
    Reserve(#[from] ReserveError),
    /// The chunks cannot be placed on NUMA nodes as asked for.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// No memory was mapped.
    #[error(transparent)]
    Map(#[from] MapError),
    /// Pages could not be made real. MRs that stood already were taken back.
    #[error(transparent)]
    Populate(#[from] PopulateError),
    /// The physical layout could not be read, though the rights would allow it.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// What the layout predicts is not what was planned.
    #[error(transparent)]
    Check(#[from] CheckFailure),
    /// The caller's hook refused.
    #[error("{0}")]
    Hook(String),
    /// The device refused, or the cancel token stopped it; what was registered was taken back, as the text says.
    #[error(transparent)]
    Register(#[from] RegisterFailure),
    /// MRs could not be taken back; their memory stays mapped.
    #[error(transparent)]
    Close(#[from] CloseError),
}

/// An MR that would not become what was planned, found before it was registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckFailure {
    /// Smaller pages than planned, and so more entries.
    #[error(
        "MR {mr} ({} at {addr:#x}) would take {} of {}, {} {} planned{}",
        Bytes(*len), Count(predicted.entries, "entry"), predicted.page, Grouped(*planned), plural(*planned, "was", "were"),
        hole.map_or_else(String::new, |hole| format!("; the first page that is not {page} is at {hole:#x}"))
    )]
    Entries {
        /// Number of the MR.
        mr: u64,
        /// Its address.
        addr: u64,
        /// Its length, bytes.
        len: u64,
        /// Page size that it should have.
        page: PageSize,
        /// What it would become.
        predicted: Prediction,
        /// Entries planned, at worst.
        planned: u64,
        /// The first stretch of `page` bytes that is no such page.
        hole: Option<u64>,
    },
    /// The device would be told a wrong length, and the call would succeed.
    #[error(
        "MR {mr} ({} at {addr:#x}) would reach the device with a length of {}: it has only {}, and such tables are sent with 32 bits of length",
        Bytes(*len), Bytes(predicted.wire_len), Count(predicted.entries, "entry")
    )]
    WireLength {
        /// Number of the MR.
        mr: u64,
        /// Its address.
        addr: u64,
        /// Its length, bytes.
        len: u64,
        /// What it would become.
        predicted: Prediction,
    },
}
