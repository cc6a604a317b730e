//! The gate: who says which chunk is ready, and in which order.

use super::*;

#[test]
fn a_chunk_is_registered_when_it_is_ready() {
    let scene = Scene::new(6, Faults::default());
    // Chunk i waits until chunk i has been made ready by another thread.
    let ready = Mutex::new(0);
    let wake = std::sync::Condvar::new();
    let gate = |chunk: &Chunk| {
        let mut ready = ready.lock().unwrap();
        while *ready <= chunk.index {
            ready = wake.wait(ready).unwrap();
        }
        assert!(scene.device.live().len() as u64 <= *ready);
        Ok(())
    };
    let options = Options::new().workers(workers(2)).gate(&gate);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..6 {
                *ready.lock().unwrap() += 1;
                wake.notify_all();
                std::thread::yield_now();
            }
        });
        assert_eq!(scene.register(&options).unwrap().len(), 6);
    });
}

/// Names chunks in an order of its own.
struct Shuffled(Vec<u64>);

impl Gate for Shuffled {
    fn wait_ready(&self, turn: &Chunk) -> Result<u64, GateError> {
        Ok(self.0[usize::try_from(turn.index).unwrap()])
    }
}

#[test]
fn a_gate_may_choose_the_order() {
    for n in [1, 3] {
        let scene = Scene::new(5, Faults::default());
        let gate = Shuffled(vec![3, 0, 4, 2, 1]);
        let options = Options::new().workers(workers(n)).gate(&gate);
        let registration = scene.register(&options).unwrap();
        let mrs: Vec<_> = registration.mrs().collect();
        assert!(mrs.iter().zip(0..).all(|(mr, n)| mr.chunk.index == n));
        let key = |at: usize| mrs[at].mr.lkey.0;
        let mut order: Vec<usize> = (0..5).collect();
        order.sort_by_key(|at| key(*at));
        if n == 1 {
            assert_eq!(order, [3, 0, 4, 2, 1]);
        }
        let keys = registration.keys();
        for mr in &mrs {
            let found = keys.lookup(mr.addr, mr.chunk.len).unwrap();
            assert_eq!(found.lkey, mr.mr.lkey);
        }
    }
}

#[test]
fn a_gate_that_names_a_chunk_twice_or_none_that_is_there_is_found() {
    for (order, bad) in [([0, 1, 1], 1), ([2, 3, 0], 3)] {
        let scene = Scene::new(3, Faults::default());
        let gate = Shuffled(order.to_vec());
        let error = scene.register(&Options::new().gate(&gate)).unwrap_err();
        let RegisterCause::Gate(cause) = error.failure().cause() else {
            panic!("{error:?}");
        };
        let text = format!("the gate named chunk {bad}, which is not there or was named before");
        assert_eq!(cause.to_string(), text);
        scene.accounts_for(error).unwrap();
    }
}

struct Failing {
    stopped: AtomicUsize,
    stops: bool,
}

impl Gate for Failing {
    fn wait_ready(&self, turn: &Chunk) -> Result<u64, GateError> {
        match turn.index {
            3.. if self.stops => Err(GateError::Stopped),
            3.. => Err(GateError::failed("page 7 is poisoned")),
            number => Ok(number),
        }
    }
    fn stopped(&self) {
        self.stopped.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_gate_that_fails_stops_everything_once() {
    for (n, stops) in [(1, false), (4, false), (1, true), (4, true)] {
        let scene = Scene::new(8, Faults::default());
        let gate = Failing {
            stopped: AtomicUsize::new(0),
            stops,
        };
        let options = Options::new().workers(workers(n)).gate(&gate);
        let error = scene.register(&options).unwrap_err();
        match error.failure().cause() {
            RegisterCause::Cancelled => assert!(stops),
            RegisterCause::Gate(error) => assert_eq!(error.to_string(), "page 7 is poisoned"),
            other => panic!("{other:?}"),
        }
        assert_eq!(gate.stopped.load(Ordering::Relaxed), 1);
        scene.accounts_for(error).unwrap();
    }
}

/// Chunk 1 waits until registering has stopped, and then is ready, or fails too. Chunk 0 fails, here or later.
struct Late {
    stopped: Mutex<usize>,
    wake: std::sync::Condvar,
    entered: std::sync::Barrier,
    fails: bool,
}

impl Gate for Late {
    fn wait_ready(&self, turn: &Chunk) -> Result<u64, GateError> {
        // Two workers are at the gate: none stops before the other has a chunk.
        self.entered.wait();
        if turn.index == 0 {
            return if self.fails {
                Err(GateError::failed("first"))
            } else {
                Ok(turn.index)
            };
        }
        let mut stopped = self.stopped.lock().unwrap();
        while *stopped == 0 {
            stopped = self.wake.wait(stopped).unwrap();
        }
        if self.fails {
            return Err(GateError::failed("second"));
        }
        Ok(turn.index)
    }
    fn stopped(&self) {
        *self.stopped.lock().unwrap() += 1;
        self.wake.notify_all();
    }
}

#[test]
fn after_the_first_failure_nothing_is_registered_and_no_other_is_told() {
    for fails in [false, true] {
        let faults = Faults {
            reg: once(0),
            ..Faults::default()
        };
        let scene = Scene::new(2, faults);
        let gate = Late {
            stopped: Mutex::new(0),
            wake: std::sync::Condvar::new(),
            entered: std::sync::Barrier::new(2),
            fails,
        };
        let options = Options::new().workers(workers(2)).gate(&gate);
        let error = scene.register(&options).unwrap_err();
        assert_eq!(error.failure().span().map(|span| span.index), Some(0));
        let cause = error.source().unwrap().to_string();
        assert_eq!(cause == "first", fails, "{cause}");
        assert_eq!(scene.device.calls.lock().unwrap().reg, usize::from(!fails));
        assert_eq!(*gate.stopped.lock().unwrap(), 1);
        scene.accounts_for(error).unwrap();
    }
}
