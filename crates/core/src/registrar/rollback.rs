//! Takes MRs back, the last first, and keeps account of those that stay.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;

use super::cut::Cut;
use super::error::{LeftCause, LeftMr};
use super::worker::HeldMr;
use crate::backend::RegBackend;

/// Deregisters `mrs` in reverse, each once, going on after failures; tells which stayed, the last first. Never panics.
///
/// With several workers MRs are started in reverse.
pub(super) fn deregister<B: RegBackend>(
    backend: &B,
    cut: &Cut,
    mrs: &[HeldMr],
    workers: NonZeroUsize,
) -> Vec<LeftMr> {
    // Number of MRs that were taken in hand.
    let taken = AtomicUsize::new(0);
    let work = || {
        let mut left = Vec::new();
        loop {
            let behind = taken.fetch_add(1, Ordering::Relaxed);
            let place = mrs.len().checked_sub(behind + 1);
            let Some(held) = place.and_then(|place| mrs.get(place)) else {
                return left;
            };
            left.extend(deregister_one(backend, cut, held));
        }
    };
    let more = (workers.get() - 1).min(mrs.len().saturating_sub(1));
    if more == 0 {
        return work();
    }
    let mut left = std::thread::scope(|scope| {
        let mut others = Vec::with_capacity(more);
        for number in 1..=more {
            let builder = Builder::new().name(format!("hugemr-dereg-{number}"));
            match builder.spawn_scoped(scope, work) {
                Ok(thread) => others.push(thread),
                Err(error) => {
                    tracing::warn!(%error, "{number} of {} workers", more + 1);
                    break;
                }
            }
        }
        let mut left = work();
        for thread in others {
            left.extend(
                thread
                    .join()
                    .expect("a worker catches the backend's panics"),
            );
        }
        left
    });
    left.sort_unstable_by_key(|left| std::cmp::Reverse(left.span.index));
    left
}

fn deregister_one<B: RegBackend>(backend: &B, cut: &Cut, held: &HeldMr) -> Option<LeftMr> {
    let cause = match catch_unwind(AssertUnwindSafe(|| backend.dereg_mr(held.mr.handle))) {
        Ok(Ok(())) => return None,
        Ok(Err(error)) => LeftCause::Verb(error),
        Err(panic) => {
            // To drop it could panic again.
            std::mem::forget(panic);
            LeftCause::Panicked
        }
    };
    // Every held MR was made from a chunk of the cut.
    let chunk = cut.chunk(held.place)?;
    Some(LeftMr {
        span: cut.span(&chunk),
        mr: held.mr,
        cause,
    })
}
