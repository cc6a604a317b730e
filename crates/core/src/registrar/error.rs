//! Why memory is not registered, and what is left on the device.

use std::error::Error;
use std::fmt;

use crate::backend::{RegisteredMr, VerbError};
use crate::errno::Errno;
use crate::size::{Bytes, Count, PageSize};

/// Why a request cannot be carried out, known before anything is registered. Segments are counted from 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// No segment.
    #[error("there is no chunk to register")]
    NoChunk,
    /// A segment that is no segment: empty, without chunk length, or numbered out of order.
    #[error(
        "segment {segment} is malformed: empty, chunk length 0, skew beyond it, or numbered out of order"
    )]
    BadSegment {
        /// Which.
        segment: usize,
    },
    /// A segment that does not begin where the one before it ends.
    #[error("segment {segment} starts at offset {found}, the one before it ends at {expected}")]
    NotTiled {
        /// Which.
        segment: usize,
        /// Where it should start.
        expected: u64,
        /// Where it starts.
        found: u64,
    },
    /// A segment goes beyond the memory.
    #[error("segment {segment} goes beyond the memory, which has {len} B")]
    BeyondMemory {
        /// Which.
        segment: usize,
        /// Length of the memory.
        len: u64,
    },
    /// The memory goes beyond 2^64.
    #[error("memory of {len} B at {base:#x} goes beyond the end of the address space")]
    BeyondEnd {
        /// Address.
        base: u64,
        /// Bytes.
        len: u64,
    },
    /// No kernel would take this access.
    #[error("access refused: {0}")]
    Access(&'static str),
    /// A range without memory, for a device that needs some.
    #[error(
        "{device} needs memory, and there is none behind the range (only simulated devices do without)"
    )]
    NoMemory {
        /// The device.
        device: String,
    },
}

/// The place of an MR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrSpan {
    /// Number in the plan, from 0.
    pub index: u64,
    /// Address of its first byte.
    pub addr: u64,
    /// Length, bytes.
    pub len: u64,
    /// Page size of the memory behind it, as planned.
    pub page: PageSize,
}

impl fmt::Display for MrSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            index,
            addr,
            len,
            page,
        } = self;
        write!(f, "MR {index} ({} at {addr:#x}, {page} pages)", Bytes(*len))
    }
}

/// Why an MR is still registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeftCause {
    /// The device or the kernel refused to take it back.
    #[error(transparent)]
    Verb(#[from] VerbError),
    /// The backend panicked while taking it back.
    #[error("the backend panicked")]
    Panicked,
}

/// An MR that could not be deregistered: the device may still use its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftMr {
    /// Where.
    pub span: MrSpan,
    /// The backend's handle, and the keys.
    pub mr: RegisteredMr,
    /// Why.
    pub cause: LeftCause,
}

/// What became of the MRs that stood when a registration failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rollback {
    /// None is left.
    Clean,
    /// These are left, the last first.
    Left(Vec<LeftMr>),
}

impl Rollback {
    pub(super) fn new(left: Vec<LeftMr>) -> Self {
        if left.is_empty() {
            Self::Clean
        } else {
            Self::Left(left)
        }
    }

    /// Whether no MR is left.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.left().is_empty()
    }

    /// The MRs that are left, the last first.
    #[must_use]
    pub fn left(&self) -> &[LeftMr] {
        match self {
            Self::Clean => &[],
            Self::Left(left) => left,
        }
    }
}

impl fmt::Display for Rollback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clean => f.write_str("rolled back"),
            Self::Left(left) => write!(f, "rolled back but for {}", List(left)),
        }
    }
}

/// How many MRs a message names.
const NAMED: usize = 3;

/// The number of MRs and the first few of them.
struct List<'a>(&'a [LeftMr]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", Count(self.0.len() as u64, "MR"))?;
        for (i, left) in self.0.iter().take(NAMED).enumerate() {
            let comma = if i == 0 { "" } else { "; " };
            write!(f, "{comma}{}: {}", left.span, left.cause)?;
        }
        if self.0.len() > NAMED {
            f.write_str("; ...")?;
        }
        Ok(())
    }
}

/// What stopped a registration.
#[derive(Debug)]
#[non_exhaustive]
pub enum RegisterCause {
    /// The request itself; nothing was tried.
    Request(RequestError),
    /// The backend refused a chunk.
    Verb(VerbError),
    /// A chunk did not become ready.
    Gate(Box<dyn Error + Send + Sync>),
    /// The cancel token, or a gate that gave up.
    Cancelled,
}

/// How a registration failed: where, why, and what became of what stood already.
#[derive(Debug)]
#[non_exhaustive]
pub struct RegisterFailure {
    cause: RegisterCause,
    span: Option<MrSpan>,
    stood: u64,
    total: u64,
    rollback: Rollback,
}

impl RegisterFailure {
    /// The first cause.
    #[must_use]
    pub fn cause(&self) -> &RegisterCause {
        &self.cause
    }

    /// The chunk that failed, or that came next when the registration was cancelled; `None` where nothing was tried.
    #[must_use]
    pub fn span(&self) -> Option<MrSpan> {
        self.span
    }

    /// How many MRs stood when registering had stopped.
    #[must_use]
    pub fn stood(&self) -> u64 {
        self.stood
    }

    /// How many MRs there should have been; 0 where nothing was tried.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// What became of the MRs that stood. Where it is not clean, the memory is leaked.
    #[must_use]
    pub fn rollback(&self) -> &Rollback {
        &self.rollback
    }

    /// The errno of the backend, where it was the backend that refused.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match &self.cause {
            RegisterCause::Verb(error) => Some(error.errno),
            _ => None,
        }
    }
}

impl fmt::Display for RegisterFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.cause, &self.span) {
            (RegisterCause::Request(_), _) | (_, None) => f.write_str("nothing was registered")?,
            (RegisterCause::Verb(_), Some(span)) => write!(f, "{span} was not registered")?,
            (RegisterCause::Gate(_), Some(span)) => write!(f, "{span} did not become ready")?,
            (RegisterCause::Cancelled, Some(span)) => write!(f, "cancelled before {span}")?,
        }
        if self.stood > 0 {
            write!(f, "; {} of {} stood: ", self.stood, Count(self.total, "MR"))?;
            write!(f, "{}", self.rollback)?;
        }
        if !self.rollback.is_clean() {
            f.write_str("; the memory stays mapped until the process ends")?;
        }
        Ok(())
    }
}

impl Error for RegisterFailure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.cause {
            RegisterCause::Request(error) => Some(error),
            RegisterCause::Verb(error) => Some(error),
            RegisterCause::Gate(error) => Some(error.as_ref()),
            RegisterCause::Cancelled => None,
        }
    }
}

/// A registration that did not come about: the [failure](Self::failure), and the memory.
///
/// Where MRs are left on the memory it is leaked, and not in here.
#[non_exhaustive]
pub struct RegisterError<M> {
    memory: Option<M>,
    failure: Box<RegisterFailure>,
}

impl<M> RegisterError<M> {
    pub(super) fn request(memory: M, error: RequestError) -> Self {
        let failure = RegisterFailure {
            cause: RegisterCause::Request(error),
            span: None,
            stood: 0,
            total: 0,
            rollback: Rollback::Clean,
        };
        Self {
            memory: Some(memory),
            failure: Box::new(failure),
        }
    }

    /// `memory` is there where the rollback is clean.
    pub(super) fn failed(
        memory: Option<M>,
        cause: RegisterCause,
        span: MrSpan,
        (stood, total): (u64, u64),
        rollback: Rollback,
    ) -> Self {
        let failure = RegisterFailure {
            cause,
            span: Some(span),
            stood,
            total,
            rollback,
        };
        Self {
            memory,
            failure: Box::new(failure),
        }
    }

    /// Where, why, and what became of the rest.
    #[must_use]
    pub fn failure(&self) -> &RegisterFailure {
        &self.failure
    }

    /// The memory; `None` where it was leaked.
    #[must_use]
    pub fn memory(&self) -> Option<&M> {
        self.memory.as_ref()
    }

    /// The memory (`None` where it was leaked) and the failure.
    #[must_use]
    pub fn into_parts(self) -> (Option<M>, RegisterFailure) {
        (self.memory, *self.failure)
    }
}

impl<M> fmt::Debug for RegisterError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisterError")
            .field("failure", &self.failure)
            .field("memory_leaked", &self.memory.is_none())
            .finish()
    }
}

impl<M> fmt::Display for RegisterError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.failure.fmt(f)
    }
}

impl<M> Error for RegisterError<M> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.failure.source()
    }
}

/// MRs that could not be deregistered when a registration was closed. The others were; the memory is leaked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CloseError {
    left: Vec<LeftMr>,
    closed: usize,
}

impl CloseError {
    /// `left` is not empty.
    pub(super) fn new(left: Vec<LeftMr>, mrs: usize) -> Self {
        let closed = mrs - left.len();
        Self { left, closed }
    }

    /// The MRs that are left, the last first.
    #[must_use]
    pub fn left(&self) -> &[LeftMr] {
        &self.left
    }

    /// How many MRs were deregistered.
    #[must_use]
    pub fn closed(&self) -> usize {
        self.closed
    }
}

impl fmt::Display for CloseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} deregistered, left {}",
            Count(self.closed as u64, "MR"),
            List(&self.left)
        )?;
        f.write_str("; the memory stays mapped until the process ends")
    }
}

impl Error for CloseError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // Named in the text already, beside the MRs that they belong to.
        None
    }
}
