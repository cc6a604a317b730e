//! How to register: threads, progress, cancelling, and the gate that a chunk waits at.

use std::error::Error;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::chunks::Chunk;

/// Options of a registration. The default: one worker, no callback, nothing to wait for.
#[derive(Clone)]
#[non_exhaustive]
pub struct Options<'a> {
    /// Threads that register, the calling one among them. Where fewer can be started, fewer work.
    pub workers: NonZeroUsize,
    /// Called after each MR, by the worker that made it, several at once. Numbers of a later call can be smaller than
    /// those of an earlier one from another thread. The worker waits for it.
    pub progress: Option<&'a (dyn Fn(&Progress) + Sync)>,
    /// Stops registering between two chunks.
    pub cancel: Option<CancelToken>,
    /// What a chunk waits for before it is registered.
    pub gate: Option<&'a dyn Gate>,
    /// Who is told right before and right after each call.
    pub witness: Option<&'a dyn Witness>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            workers: NonZeroUsize::MIN,
            progress: None,
            cancel: None,
            gate: None,
            witness: None,
        }
    }
}

impl<'a> Options<'a> {
    /// The default.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With this number of threads.
    #[must_use]
    pub fn workers(mut self, workers: NonZeroUsize) -> Self {
        self.workers = workers;
        self
    }

    /// With a progress callback.
    #[must_use]
    pub fn progress(mut self, progress: &'a (dyn Fn(&Progress) + Sync)) -> Self {
        self.progress = Some(progress);
        self
    }

    /// With a cancel token.
    #[must_use]
    pub fn cancel(mut self, token: &CancelToken) -> Self {
        self.cancel = Some(token.clone());
        self
    }

    /// With a gate.
    #[must_use]
    pub fn gate(mut self, gate: &'a dyn Gate) -> Self {
        self.gate = Some(gate);
        self
    }

    /// With a witness.
    #[must_use]
    pub fn witness(mut self, witness: &'a dyn Witness) -> Self {
        self.witness = Some(witness);
        self
    }
}

impl fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("workers", &self.workers)
            .field("progress", &self.progress.is_some())
            .field("cancel", &self.cancel)
            .field("gate", &self.gate.is_some())
            .field("witness", &self.witness.is_some())
            .finish()
    }
}

/// How far registering has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// MRs registered.
    pub mrs: u64,
    /// MRs there will be.
    pub total_mrs: u64,
    /// Bytes registered.
    pub bytes: u64,
    /// Bytes there will be.
    pub total_bytes: u64,
}

/// A switch that stops a registration from another thread. Clones are the same switch.
#[derive(Clone, Debug, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// A token that is not cancelled.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels, for good. Safe in a signal handler.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What a chunk waits for before it is registered: that it is populated, for example, so that one chunk is
/// populated while others are registered.
///
/// Workers ask once for each chunk, in the order of their numbers, each worker for one at a time; a gate may name another
/// chunk that is ready instead. A closure is a gate that keeps the order.
pub trait Gate: Sync {
    /// Returns the [number](Chunk::index) of a chunk that is ready: of `turn`, whose turn it is, or of another one that
    /// was not named before, where that is ready first. It may block, and then it watches the cancel token itself.
    ///
    /// # Errors
    /// No chunk will be ready, or waiting was given up.
    fn wait_ready(&self, turn: &Chunk) -> Result<u64, GateError>;

    /// Registering has failed or was cancelled: who waits should give up ([`GateError::Stopped`]), and whoever makes
    /// chunks ready may stop. Called once, by the worker that saw it first.
    fn stopped(&self) {}
}

impl<F: Fn(&Chunk) -> Result<(), GateError> + Sync> Gate for F {
    fn wait_ready(&self, turn: &Chunk) -> Result<u64, GateError> {
        self(turn).map(|()| turn.index)
    }
}

/// Is told of each call of `reg_mr`, by the thread that makes it: what the kernel reports of this thread between the two is
/// about this MR.
pub trait Witness: Sync {
    /// The next thing that this thread does is the call.
    fn before(&self, chunk: &Chunk);
    /// The call has returned, with success or not.
    fn after(&self, chunk: &Chunk);
}

/// Why a chunk did not become ready.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GateError {
    /// Waiting was given up, because the registration was stopped or cancelled.
    #[error("waiting was given up")]
    Stopped,
    /// A number that is none of a chunk, or that it has named before.
    #[error("the gate named chunk {0}, which is not there or was named before")]
    BadNumber(u64),
    /// It cannot become ready.
    #[error(transparent)]
    Failed(Box<dyn Error + Send + Sync>),
}

impl GateError {
    /// The chunk cannot become ready, because of `error`.
    pub fn failed(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Failed(error.into())
    }
}
