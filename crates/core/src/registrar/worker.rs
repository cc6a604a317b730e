//! Registers chunk after chunk, in one thread or several.

use std::any::Any;
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

use super::cut::Cut;
use super::error::RegisterCause;
use super::options::{GateError, Options, Progress};
use crate::backend::{Access, MrRequest, RegBackend, RegisteredMr};
use crate::chunks::Chunk;

/// Bits of a word.
const WORD: u64 = u64::BITS as u64;

/// What a panic carries.
pub(super) type Panic = Box<dyn Any + Send>;

/// An MR and the place of its chunk in the cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldMr {
    pub(super) place: u64,
    pub(super) mr: RegisteredMr,
}

/// What came of registering.
pub(super) struct Outcome {
    /// What stands, by place. All chunks where nothing below is set.
    pub(super) mrs: Vec<HeldMr>,
    /// The first failure, in time.
    pub(super) failure: Option<(Chunk, RegisterCause)>,
    /// The first panic.
    pub(super) panic: Option<Panic>,
    /// The backend panicked: it may hold an MR that nobody has a handle of.
    pub(super) in_doubt: bool,
}

/// Registers every chunk of the cut, or stops at the first failure. Panics are caught and handed back.
///
/// # Safety
/// The chunks lie in mapped memory that stays mapped, and is not given away, until every MR of the outcome has been
/// deregistered with success, and forever where the outcome is in doubt; or the backend needs no memory.
pub(super) unsafe fn register<B: RegBackend>(
    backend: &B,
    cut: &Cut,
    access: Access,
    options: &Options<'_>,
) -> Outcome {
    let words = options.gate.map_or(0, |_| cut.count().div_ceil(WORD));
    let named = (0..words).map(|_| 0);
    let run = Run {
        backend,
        cut,
        access,
        options,
        next: AtomicU64::new(0),
        named: named.map(AtomicU64::new).collect(),
        stop: AtomicBool::new(false),
        in_doubt: AtomicBool::new(false),
        done: Mutex::new((0, 0)),
        failure: Mutex::new(None),
        panic: Mutex::new(None),
    };
    let more = options.workers.get() - 1;
    let more = usize::try_from(cut.count() - 1).map_or(more, |chunks| more.min(chunks));
    let mut mrs = if more == 0 {
        // SAFETY: the caller's promise.
        unsafe { run.work() }
    } else {
        // SAFETY: the caller's promise.
        unsafe { run.work_with(more) }
    };
    mrs.sort_unstable_by_key(|held| held.place);
    Outcome {
        mrs,
        failure: run
            .failure
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner),
        panic: run
            .panic
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner),
        in_doubt: run.in_doubt.into_inner(),
    }
}

/// What the workers of one registration share.
struct Run<'a, B> {
    backend: &'a B,
    cut: &'a Cut,
    access: Access,
    options: &'a Options<'a>,
    /// Turns that workers have taken: one for each chunk.
    next: AtomicU64,
    /// Chunks that a gate has named, a bit for each; empty without a gate.
    named: Box<[AtomicU64]>,
    /// No further chunk is taken.
    stop: AtomicBool,
    in_doubt: AtomicBool,
    /// MRs and bytes registered.
    done: Mutex<(u64, u64)>,
    failure: Mutex<Option<(Chunk, RegisterCause)>>,
    panic: Mutex<Option<Panic>>,
}

impl<B: RegBackend> Run<'_, B> {
    /// Works in this thread and `more` others.
    ///
    /// # Safety
    /// As [`register`].
    unsafe fn work_with(&self, more: usize) -> Vec<HeldMr> {
        std::thread::scope(|scope| {
            let mut others = Vec::with_capacity(more);
            for number in 1..=more {
                let builder = Builder::new().name(format!("hugemr-reg-{number}"));
                // SAFETY: the caller's promise.
                match builder.spawn_scoped(scope, || unsafe { self.work() }) {
                    Ok(thread) => others.push(thread),
                    Err(error) => {
                        tracing::warn!(%error, "{number} of {} workers", more + 1);
                        break;
                    }
                }
            }
            // SAFETY: the caller's promise.
            let mut mrs = unsafe { self.work() };
            for thread in others {
                match thread.join() {
                    Ok(theirs) => mrs.extend(theirs),
                    // `work` catches what others throw, so this does not happen; if it does, its MRs are lost.
                    Err(panic) => {
                        self.in_doubt.store(true, Ordering::Relaxed);
                        self.panicked(panic);
                    }
                }
            }
            mrs
        })
    }

    /// Takes chunks until none is left or somebody says stop.
    ///
    /// # Safety
    /// As [`register`].
    unsafe fn work(&self) -> Vec<HeldMr> {
        let mut own = Vec::new();
        while !self.is_stopped() {
            let turn = self.next.fetch_add(1, Ordering::Relaxed);
            let Some((place, chunk)) = self.admit(turn) else {
                break;
            };
            // Room first: once the device holds the MR, nothing may fail before it is noted.
            own.reserve(1);
            // SAFETY: the caller's promise.
            let Some(mr) = (unsafe { self.reg_mr(&chunk) }) else {
                break;
            };
            own.push(HeldMr { place, mr });
            self.report(&chunk);
        }
        own
    }

    /// The chunk of this turn, which is ready, and its place; `None` where there are no more, or somebody has stopped.
    fn admit(&self, turn: u64) -> Option<(u64, Chunk)> {
        let chunk = self.cut.chunk(turn)?;
        if self.is_cancelled() {
            self.fail(&chunk, RegisterCause::Cancelled);
            return None;
        }
        let Some(gate) = self.options.gate else {
            return Some((turn, chunk));
        };
        match self.guard(|| gate.wait_ready(&chunk))? {
            Ok(_) if self.is_cancelled() => self.fail(&chunk, RegisterCause::Cancelled),
            Ok(_) if self.is_stopped() => {}
            Ok(number) => match self.named(number) {
                Some(ready) => return Some(ready),
                None => {
                    let error = GateError::BadNumber(number);
                    self.fail(&chunk, RegisterCause::Gate(error.into()));
                }
            },
            // It gave up because of us, or because of the token.
            Err(GateError::Stopped) => self.fail(&chunk, RegisterCause::Cancelled),
            Err(GateError::Failed(error)) => self.fail(&chunk, RegisterCause::Gate(error)),
            Err(error @ GateError::BadNumber(_)) => {
                self.fail(&chunk, RegisterCause::Gate(error.into()));
            }
        }
        None
    }

    /// The chunk with that number, the first time that it is named.
    fn named(&self, number: u64) -> Option<(u64, Chunk)> {
        let place = self.cut.place(number)?;
        let chunk = self.cut.chunk(place)?;
        let word = self.named.get(usize::try_from(place / WORD).ok()?)?;
        let bit = 1 << (place % WORD);
        let first = word.fetch_or(bit, Ordering::Relaxed) & bit == 0;
        first.then_some((place, chunk))
    }

    /// # Safety
    /// As [`register`].
    unsafe fn reg_mr(&self, chunk: &Chunk) -> Option<RegisteredMr> {
        let addr = self.cut.addr(chunk);
        let request = MrRequest {
            addr,
            len: NonZeroU64::new(chunk.len)?,
            iova: addr,
            access: self.access,
        };
        if let Some(witness) = self.options.witness {
            self.guard(|| witness.before(chunk))?;
        }
        let answer = self.guard(|| {
            // SAFETY: the chunk lies in the memory that the caller promises to keep mapped until the MR is
            // deregistered, forever if that fails or stays in doubt.
            unsafe { self.backend.reg_mr(&request) }
        });
        if let Some(witness) = self.options.witness {
            // A panic of it is kept by the guard; the MR, if there is one, is noted all the same.
            let _kept = self.guard(|| witness.after(chunk));
        }
        match answer {
            Some(Ok(mr)) => Some(mr),
            Some(Err(error)) => {
                self.fail(chunk, RegisterCause::Verb(error));
                None
            }
            None => {
                self.in_doubt.store(true, Ordering::Relaxed);
                None
            }
        }
    }

    fn report(&self, chunk: &Chunk) {
        let Some(progress) = self.options.progress else {
            return;
        };
        let (mrs, bytes) = {
            let mut done = lock(&self.done);
            done.0 += 1;
            done.1 += chunk.len;
            *done
        };
        let now = Progress {
            mrs,
            total_mrs: self.cut.count(),
            bytes,
            total_bytes: self.cut.bytes(),
        };
        self.guard(|| progress(&now));
    }

    /// Calls foreign code; a panic in it stops the run and is kept.
    fn guard<T>(&self, foreign: impl FnOnce() -> T) -> Option<T> {
        // Nothing of ours is broken half-way: foreign code is called without a lock and sees shared borrows only.
        match catch_unwind(AssertUnwindSafe(foreign)) {
            Ok(value) => Some(value),
            Err(panic) => {
                self.panicked(panic);
                None
            }
        }
    }

    fn panicked(&self, panic: Panic) {
        {
            let mut first = lock(&self.panic);
            if first.is_none() {
                *first = Some(panic);
            } else {
                // One panic is handed on. To drop this one could panic again.
                std::mem::forget(panic);
            }
        }
        self.stop();
    }

    fn fail(&self, chunk: &Chunk, cause: RegisterCause) {
        lock(&self.failure).get_or_insert((*chunk, cause));
        self.stop();
    }

    /// Stops all workers; the first to do so tells the gate.
    fn stop(&self) {
        if self.stop.swap(true, Ordering::AcqRel) {
            return;
        }
        if let Some(gate) = self.options.gate {
            self.guard(|| gate.stopped());
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn is_cancelled(&self) -> bool {
        let token = self.options.cancel.as_ref();
        token.is_some_and(super::CancelToken::is_cancelled)
    }
}

/// A lock that is never held while foreign code runs, so that a poisoned one is as good as any.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
