//! Carries a plan out: registers memory chunk by chunk, and takes it all back.
//!
//! A [`Registration`] owns the backend, the memory and the MRs. While it lives, every chunk is registered; when it is
//! dropped or [closed](Registration::close), the MRs are deregistered in reverse and only then the memory is freed.
//!
//! - **All or nothing.** The first error stops every worker; what was registered is deregistered in reverse, and
//!   [`RegisterError`] tells the chunk, the cause, and what became of the rollback, and gives the memory back.
//! - **The device comes first.** Where a deregistration fails, the device may still write to the memory. It is then
//!   leaked, never freed, and the error (for a drop: the log) says so.
//! - **Unwinding.** A panic in a callback rolls everything back before it goes on. A panic inside the backend leaves in
//!   doubt what the device holds: the rest is rolled back and the memory leaked.
//! - **Threads.** The caller's number, none but the calling one by default.
//!
//! *Invariant*: this is the only caller of [`RegBackend::reg_mr`], in `worker`.

mod cut;
mod error;
mod options;
mod rollback;
mod worker;

pub use error::{
    CloseError, LeftCause, LeftMr, MrSpan, RegisterCause, RegisterError, RegisterFailure,
    RequestError, Rollback,
};
pub use options::{CancelToken, Gate, GateError, Options, Progress, Witness};

use std::fmt;
use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;
use std::panic::resume_unwind;

use crate::backend::{Access, Backing, RegBackend, RegisteredMr};
use crate::chunks::{Chunk, Segment};
use crate::key_table::{Entry, KeyTable};
use cut::Cut;
use rollback::deregister;
use worker::{HeldMr, Outcome, Panic};

/// Memory that is registered on one device, in chunks.
///
/// Dropping it deregisters in reverse and then drops the memory; see the [module](self).
pub struct Registration<B: RegBackend, M: Backing> {
    backend: B,
    /// `None` only when `close` has taken it. Not dropped on its own: only when no MR is left on it.
    memory: Option<ManuallyDrop<M>>,
    cut: Cut,
    /// Every chunk of `cut`, in order; none after `close`.
    mrs: Vec<HeldMr>,
    access: Access,
    keys: KeyTable,
    workers: NonZeroUsize,
}

/// One registered MR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mr {
    /// The chunk; its offset counts from [`Backing::base`].
    pub chunk: Chunk,
    /// Address of its first byte.
    pub addr: u64,
    /// What the backend made of it.
    pub mr: RegisteredMr,
}

impl<B: RegBackend, M: Backing> Registration<B, M> {
    /// Registers the chunks of `segments` on `memory`, offset 0 being [`Backing::base`].
    ///
    /// The segments follow each other without a gap, and lie within the memory; they need not cover all of it.
    ///
    /// # Errors
    /// Before anything is registered: segments that break these rules, an access that no kernel takes, a range
    /// without memory for a backend that needs some. Later: the first failure of the backend or the gate, or
    /// the cancel token. Nothing stays registered, and the error has the memory; or it says what stayed registered,
    /// and the memory is leaked.
    ///
    /// # Panics
    /// Only as a callback or the backend panics; everything is rolled back first.
    pub fn new(
        backend: B,
        memory: M,
        segments: &[Segment],
        access: Access,
        options: &Options<'_>,
    ) -> Result<Self, RegisterError<M>> {
        let cut = match check(&backend, &memory, segments, access) {
            Ok(cut) => cut,
            Err(error) => return Err(RegisterError::request(memory, error)),
        };
        let memory = ManuallyDrop::new(memory);
        // SAFETY: `check` has proved that the chunks lie within `[base, base + len)`, or that the backend needs no
        // memory. By the promise of `Backing` the range is mapped, and is the memory's own, until the memory is
        // dropped, and forever if it never is. It is wrapped in `ManuallyDrop`, here and in `Registration`, and is
        // unwrapped in three places only (`undo`, `close`, `drop`), each after every MR has been deregistered with
        // success and none is in doubt. Otherwise, panics included, it is leaked.
        let outcome = unsafe { worker::register(&backend, &cut, access, options) };
        if outcome.failure.is_some() || outcome.panic.is_some() || outcome.in_doubt {
            return Err(undo(&backend, memory, &cut, outcome));
        }
        let mrs = outcome.mrs;
        let keys = key_table(&cut, &mrs);
        Ok(Self {
            backend,
            memory: Some(memory),
            cut,
            mrs,
            access,
            keys,
            workers: options.workers,
        })
    }

    /// The keys of every MR: a snapshot that outlives nothing, but may be kept. Cheap to clone.
    #[must_use]
    pub fn keys(&self) -> KeyTable {
        self.keys.clone()
    }

    /// The MRs, in the order of addresses.
    pub fn mrs(&self) -> impl Iterator<Item = Mr> + '_ {
        self.cut.chunks().zip(&self.mrs).map(|(chunk, held)| Mr {
            chunk,
            addr: self.cut.addr(&chunk),
            mr: held.mr,
        })
    }

    /// Number of MRs; never 0.
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "a registration has one MR at least"
    )]
    pub fn len(&self) -> usize {
        self.mrs.len()
    }

    /// Registered bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.cut.bytes()
    }

    /// What the MRs allow.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// The backend.
    #[must_use]
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// The memory.
    ///
    /// # Panics
    /// Never: only `close` and `drop` take the memory, and they consume the registration.
    #[must_use]
    pub fn memory(&self) -> &M {
        self.memory
            .as_deref()
            .expect("the memory is there until close or drop")
    }

    /// Deregisters every MR, in reverse, with as many threads as it was registered with, and gives the memory back.
    ///
    /// # Errors
    /// The MRs that could not be deregistered; all others are. The memory is leaked then.
    pub fn close(self) -> Result<M, CloseError> {
        let workers = self.workers;
        self.close_with(workers)
    }

    /// [`close`](Self::close), with this number of threads. With one the order is strictly reverse; with more, MRs
    /// are started in reverse.
    ///
    /// # Errors
    /// As [`close`](Self::close).
    ///
    /// # Panics
    /// Never; see [`memory`](Self::memory).
    pub fn close_with(mut self, workers: NonZeroUsize) -> Result<M, CloseError> {
        let mrs = std::mem::take(&mut self.mrs);
        let memory = self.memory.take();
        let left = deregister(&self.backend, &self.cut, &mrs, workers);
        if left.is_empty() {
            // No MR is on the memory any more.
            let memory = memory.expect("the memory is there until close or drop");
            return Ok(ManuallyDrop::into_inner(memory));
        }
        Err(CloseError::new(left, mrs.len()))
    }
}

impl<B: RegBackend, M: Backing> Drop for Registration<B, M> {
    fn drop(&mut self) {
        let mrs = std::mem::take(&mut self.mrs);
        // Taken, it is leaked unless it is unwrapped.
        let memory = self.memory.take();
        let left = deregister(&self.backend, &self.cut, &mrs, NonZeroUsize::MIN);
        if left.is_empty() {
            drop(memory.map(ManuallyDrop::into_inner));
        } else {
            let error = CloseError::new(left, mrs.len());
            tracing::error!(device = %self.backend.device().name, "{error}");
        }
    }
}

impl<B: RegBackend, M: Backing> fmt::Debug for Registration<B, M> {
    /// Short: there may be millions of MRs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration")
            .field("backend", &self.backend)
            .field("base", &format_args!("{:#x}", self.cut.base()))
            .field("bytes", &self.cut.bytes())
            .field("mrs", &self.mrs.len())
            .finish_non_exhaustive()
    }
}

/// What can be known before anything is registered.
fn check<B: RegBackend, M: Backing>(
    backend: &B,
    memory: &M,
    segments: &[Segment],
    access: Access,
) -> Result<Cut, RequestError> {
    if let Some(why) = access.refusal() {
        return Err(RequestError::Access(why));
    }
    if backend.needs_memory() && !memory.is_mapped() {
        let device = backend.device().name.clone();
        return Err(RequestError::NoMemory { device });
    }
    Cut::new(memory.base(), memory.len(), segments)
}

/// Takes back what stood when registering stopped, and goes on with the panic if it was one.
fn undo<B: RegBackend, M: Backing>(
    backend: &B,
    memory: ManuallyDrop<M>,
    cut: &Cut,
    outcome: Outcome,
) -> RegisterError<M> {
    let Outcome {
        mrs,
        failure,
        panic,
        in_doubt,
    } = outcome;
    let left = deregister(backend, cut, &mrs, NonZeroUsize::MIN);
    let rollback = Rollback::new(left);
    let clean = rollback.is_clean() && !in_doubt;
    // Unwrapped only where no MR is on it any more.
    let memory = clean.then(|| ManuallyDrop::into_inner(memory));
    let stood = mrs.len() as u64;
    match (failure, panic) {
        (Some((chunk, cause)), None) => {
            let span = cut.span(&chunk);
            RegisterError::failed(memory, cause, span, (stood, cut.count()), rollback)
        }
        (_, panic) => {
            if !clean {
                let device = &backend.device().name;
                tracing::error!(%device, in_doubt, "panic while registering: {rollback}; the memory is leaked");
            }
            drop(memory);
            let panic: Panic = panic.unwrap_or_else(|| Box::new("a worker ended by a panic"));
            resume_unwind(panic)
        }
    }
}

/// The table of a complete registration.
fn key_table(cut: &Cut, mrs: &[HeldMr]) -> KeyTable {
    let entries = cut.chunks().zip(mrs).map(|(chunk, held)| Entry {
        addr: cut.addr(&chunk),
        len: chunk.len,
        lkey: held.mr.lkey,
        rkey: held.mr.rkey,
    });
    KeyTable::new(entries).expect("the chunks of a cut are sorted and do not overlap")
}

#[cfg(test)]
mod tests;
