//! Threads that begin together.
//!
//! A thread that starts maps a stack for its signal handlers, and for that it needs the address space for itself.
//! MADV_POPULATE_WRITE keeps others from that until the call is done, which takes seconds for some GiB. So a thread that
//! populated at once would keep those behind it from starting; here all of them are up before the first begins. (Seen
//! with Rust 1.95 on Linux 6.18: two threads on halves of 4 GiB were as slow as one. Source: `mmap_lock`, Linux
//! `Documentation/mm/process_addrs.rst`; the stack is mapped by Rust's `std::sys::pal::unix::stack_overflow`.)

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// What the calling thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// It works as the others do, with the number 0.
    Works,
    /// It waits for the others; but works where the system gives no other.
    Waits,
}

/// Runs `work` on `threads` threads of that name with their numbers from 0, and waits for all of them. 0 counts as 1. A
/// thread that the system does not give is done without. Returns how many there were.
///
/// # Panics
/// Where `work` panics, once the other threads are done.
pub fn together(name: &str, threads: usize, caller: Caller, work: impl Fn(usize) + Sync) -> usize {
    let own = usize::from(caller == Caller::Works);
    let others = threads.max(1) - own;
    let gate = Gate::default();
    thread::scope(|scope| {
        let mut started = 0;
        for number in own..own + others {
            let (gate, work) = (&gate, &work);
            let begin = move || {
                gate.pass();
                work(number);
            };
            let builder = thread::Builder::new().name(name.to_owned());
            if let Err(error) = builder.spawn_scoped(scope, begin) {
                tracing::debug!(%error, name, "{started} of {others} threads");
                break;
            }
            started += 1;
        }
        gate.open(started);
        if own == 1 || started == 0 {
            work(0);
            started += 1;
        }
        started
    })
}

#[derive(Default)]
struct Gate {
    /// Threads before it, and whether it is open.
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Gate {
    /// Waits until it is open.
    fn pass(&self) {
        let mut state = self.lock();
        state.0 += 1;
        self.changed.notify_all();
        let closed = |state: &mut (usize, bool)| !state.1;
        let opened = self.changed.wait_while(state, closed);
        drop(opened.unwrap_or_else(PoisonError::into_inner));
    }

    /// Opens it when so many wait before it.
    fn open(&self, wanted: usize) {
        let fewer = |state: &mut (usize, bool)| state.0 < wanted;
        let waited = self.changed.wait_while(self.lock(), fewer);
        waited.unwrap_or_else(PoisonError::into_inner).1 = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, (usize, bool)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::Barrier;

    #[test]
    fn all_begin_before_any_ends_and_have_numbers_of_their_own() {
        for (threads, caller) in [(1, Caller::Works), (5, Caller::Works), (4, Caller::Waits)] {
            let barrier = Barrier::new(threads);
            let numbers = Mutex::new(BTreeSet::new());
            let me = thread::current().id();
            let ran = together("team", threads, caller, |number| {
                barrier.wait();
                let own = thread::current().id() == me;
                assert_eq!(own, number == 0 && caller == Caller::Works);
                assert!(own || thread::current().name() == Some("team"));
                numbers.lock().unwrap().insert(number);
            });
            assert_eq!(ran, threads);
            assert!(numbers.into_inner().unwrap().into_iter().eq(0..threads));
        }
    }

    #[test]
    fn nobody_works_before_all_are_up() {
        let gate = Gate::default();
        let (passed, up) = (Mutex::new(0), Mutex::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    *up.lock().unwrap() += 1;
                    gate.pass();
                    assert_eq!(*up.lock().unwrap(), 3);
                    *passed.lock().unwrap() += 1;
                });
            }
            gate.open(3);
        });
        assert_eq!(*passed.lock().unwrap(), 3);
    }

    #[test]
    fn no_thread_counts_as_one() {
        for caller in [Caller::Works, Caller::Waits] {
            assert_eq!(together("team", 0, caller, |_| ()), 1);
        }
    }
}
