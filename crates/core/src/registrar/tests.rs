use super::*;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::backend::{Lkey, MrHandle, MrRequest, NoMemory, Rkey, Verb, VerbError};
use crate::device::{Device, Family};
use crate::errno::Errno;
use crate::size::PageSize;
use mockall::{Sequence, mock, predicate};
use proptest::prelude::*;

const CHUNK: u64 = 4096;
const BASE: u64 = 1 << 40;

/// A device that keeps account, and fails or panics at the calls that it is told. Calls are counted from 0.
#[derive(Debug)]
struct Ledger {
    device: Device,
    calls: Mutex<Calls>,
    faults: Faults,
}

#[derive(Debug, Default)]
struct Calls {
    reg: usize,
    dereg: usize,
    live: BTreeMap<u64, MrRequest>,
    /// Addresses in the order of their deregistration.
    gone: Vec<u64>,
}

#[derive(Clone, Debug, Default)]
struct Faults {
    reg: BTreeSet<usize>,
    reg_panic: Option<usize>,
    dereg: BTreeSet<usize>,
    dereg_panic: Option<usize>,
}

impl Ledger {
    fn new(faults: Faults) -> Arc<Self> {
        Arc::new(Self {
            device: Device::unlimited("ledger", Family::Erdma),
            calls: Mutex::default(),
            faults,
        })
    }

    fn live(&self) -> Vec<u64> {
        let calls = self.calls.lock().unwrap();
        calls.live.values().map(|request| request.addr).collect()
    }

    fn gone(&self) -> Vec<u64> {
        self.calls.lock().unwrap().gone.clone()
    }
}

impl RegBackend for Ledger {
    fn device(&self) -> &Device {
        &self.device
    }

    unsafe fn reg_mr(&self, request: &MrRequest) -> Result<RegisteredMr, VerbError> {
        let call = {
            let mut calls = self.calls.lock().unwrap();
            calls.reg += 1;
            calls.reg - 1
        };
        std::thread::yield_now();
        assert_ne!(self.faults.reg_panic, Some(call), "a planned panic");
        if self.faults.reg.contains(&call) {
            let (verb, errno) = (Verb::RegMr, Errno::EIO);
            return Err(VerbError { verb, errno });
        }
        let mut calls = self.calls.lock().unwrap();
        let number = u32::try_from(call).unwrap();
        calls.live.insert(call as u64, *request);
        Ok(RegisteredMr {
            handle: MrHandle(call as u64),
            lkey: Lkey(number),
            rkey: Rkey(number + 1000),
        })
    }

    fn dereg_mr(&self, mr: MrHandle) -> Result<(), VerbError> {
        let mut calls = self.calls.lock().unwrap();
        let call = calls.dereg;
        calls.dereg += 1;
        if self.faults.dereg_panic == Some(call) {
            drop(calls);
            panic!("a planned panic");
        }
        if self.faults.dereg.contains(&call) {
            let (verb, errno) = (Verb::DeregMr, Errno::EBUSY);
            return Err(VerbError { verb, errno });
        }
        let request = calls.live.remove(&mr.0).expect("a live MR");
        calls.gone.push(request.addr);
        Ok(())
    }

    fn needs_memory(&self) -> bool {
        false
    }
}

/// A range that notes when it is freed, and whether an MR was on it then.
struct Watched {
    range: NoMemory,
    device: Arc<Ledger>,
    freed: Arc<AtomicUsize>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.freed.fetch_add(1, Ordering::Relaxed);
        let live = self.device.live();
        assert!(live.is_empty(), "freed under MRs {live:?}");
    }
}

// SAFETY: it is not mapped.
unsafe impl Backing for Watched {
    fn base(&self) -> u64 {
        self.range.base
    }
    fn len(&self) -> u64 {
        self.range.len
    }
    fn page(&self) -> PageSize {
        self.range.page
    }
    fn is_mapped(&self) -> bool {
        false
    }
}

/// A device, and memory for a number of chunks on it.
struct Scene {
    device: Arc<Ledger>,
    freed: Arc<AtomicUsize>,
    segments: [Segment; 1],
    chunks: usize,
}

impl Scene {
    fn new(chunks: usize, faults: Faults) -> Self {
        let segment = Segment {
            offset: 0,
            len: chunks as u64 * CHUNK,
            page: PageSize::K4,
            chunk: CHUNK,
            skew: 0,
            first_index: 0,
        };
        Self {
            device: Ledger::new(faults),
            freed: Arc::default(),
            segments: [segment],
            chunks,
        }
    }

    fn memory(&self) -> Watched {
        Watched {
            range: NoMemory {
                base: BASE,
                len: self.chunks as u64 * CHUNK,
                page: PageSize::K4,
            },
            device: Arc::clone(&self.device),
            freed: Arc::clone(&self.freed),
        }
    }

    fn register(
        &self,
        options: &Options<'_>,
    ) -> Result<Registration<Arc<Ledger>, Watched>, RegisterError<Watched>> {
        let (device, memory) = (Arc::clone(&self.device), self.memory());
        Registration::new(device, memory, &self.segments, Access::REMOTE_RW, options)
    }

    fn freed(&self) -> usize {
        self.freed.load(Ordering::Relaxed)
    }

    /// Addresses of the first `n` chunks, the last first.
    fn reversed(&self, n: usize) -> Vec<u64> {
        (0..n as u64).rev().map(|i| BASE + i * CHUNK).collect()
    }

    /// Where a rollback was clean nothing is left and the memory came back; otherwise just what the error lists is
    /// left, and the memory is leaked.
    fn accounts_for(&self, error: RegisterError<Watched>) -> Result<(), TestCaseError> {
        let (memory, failure) = error.into_parts();
        let mut left: Vec<u64> = failure
            .rollback()
            .left()
            .iter()
            .map(|l| l.span.addr)
            .collect();
        prop_assert!(left.is_sorted_by(|a, b| a > b));
        left.reverse();
        prop_assert_eq!(self.device.live(), left.clone());
        prop_assert_eq!(memory.is_some(), left.is_empty());
        prop_assert_eq!(self.freed(), 0);
        drop(memory);
        prop_assert_eq!(self.freed(), usize::from(left.is_empty()));
        Ok(())
    }
}

fn workers(n: usize) -> NonZeroUsize {
    NonZeroUsize::new(n).unwrap()
}

fn once(call: usize) -> BTreeSet<usize> {
    BTreeSet::from([call])
}

#[test]
fn it_registers_every_chunk_and_takes_all_back_in_reverse() {
    for n in [1, 2, 8] {
        let scene = Scene::new(14, Faults::default());
        let seen = Mutex::new(Vec::new());
        let progress = |p: &Progress| seen.lock().unwrap().push((p.mrs, p.bytes));
        let options = Options::new().workers(workers(n)).progress(&progress);
        let registration = scene.register(&options).unwrap();
        assert_eq!((registration.len(), registration.bytes()), (14, 14 * CHUNK));
        let mrs: Vec<Mr> = registration.mrs().collect();
        let keys = registration.keys();
        for (i, mr) in mrs.iter().enumerate() {
            assert_eq!(mr.chunk.index, i as u64);
            assert_eq!(mr.addr, BASE + i as u64 * CHUNK);
            let key = keys.lookup(mr.addr, CHUNK).unwrap();
            assert_eq!((key.lkey, key.rkey), (mr.mr.lkey, mr.mr.rkey));
        }
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        let want: Vec<_> = (1..=14).map(|i| (i, i * CHUNK)).collect();
        assert_eq!(seen, want);
        drop(registration);
        assert_eq!(scene.device.gone(), scene.reversed(14));
        assert_eq!(scene.freed(), 1);
        // A snapshot outlives the registration.
        assert_eq!(keys.len(), 14);
    }
}

#[test]
fn a_registration_may_change_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Registration<Arc<dyn RegBackend>, Watched>>();
    shared::<RegisterError<Watched>>();
    shared::<CloseError>();
}

#[test]
fn close_gives_the_memory_back() {
    for n in [1, 3] {
        let scene = Scene::new(9, Faults::default());
        let registration = scene.register(&Options::new().workers(workers(n))).unwrap();
        let memory = registration.close().unwrap();
        assert!(scene.device.live().is_empty());
        assert_eq!(scene.freed(), 0);
        if n == 1 {
            assert_eq!(scene.device.gone(), scene.reversed(9));
        }
        drop(memory);
        assert_eq!(scene.freed(), 1);
    }
}

#[test]
fn a_failure_names_the_chunk_the_cause_and_what_stood() {
    let faults = Faults {
        reg: once(2),
        ..Faults::default()
    };
    let scene = Scene::new(5, faults);
    let error = scene.register(&Options::new()).unwrap_err();
    assert_eq!(scene.device.gone(), scene.reversed(2));
    assert_eq!(
        error.to_string(),
        "MR 2 (4 KiB at 0x10000002000, 4 KiB pages) was not registered; 2 of 5 MRs stood: rolled back"
    );
    let source = error.source().unwrap().to_string();
    assert_eq!(source, "ibv_reg_mr failed: EIO [5] Input/output error");
    let failure = error.failure();
    assert_eq!((failure.stood(), failure.total()), (2, 5));
    assert_eq!(failure.errno(), Some(Errno::EIO));
    assert_eq!(failure.span().map(|span| span.index), Some(2));
    assert!(error.memory().is_some());
    scene.accounts_for(error).unwrap();
}

#[test]
fn a_failed_rollback_leaks_the_memory_and_says_so() {
    let faults = Faults {
        reg: once(2),
        dereg: once(0),
        ..Faults::default()
    };
    let scene = Scene::new(5, faults);
    let error = scene.register(&Options::new()).unwrap_err();
    assert_eq!(scene.device.gone(), [BASE]);
    assert_eq!(
        error.to_string(),
        "MR 2 (4 KiB at 0x10000002000, 4 KiB pages) was not registered; 2 of 5 MRs stood: \
         rolled back but for 1 MR: MR 1 (4 KiB at 0x10000001000, 4 KiB pages): \
         ibv_dereg_mr failed: EBUSY [16] Device or resource busy; \
         the memory stays mapped until the process ends"
    );
    assert!(error.memory().is_none());
    scene.accounts_for(error).unwrap();
}

#[test]
fn close_and_drop_go_on_after_a_failure_and_leak_the_memory() {
    for fault in 0..2 {
        let faults = Faults {
            dereg: once(1),
            dereg_panic: (fault == 1).then_some(3),
            ..Faults::default()
        };
        let scene = Scene::new(5, faults.clone());
        let error = scene.register(&Options::new()).unwrap().close().err();
        let error = error.unwrap();
        let left: Vec<u64> = error.left().iter().map(|left| left.span.index).collect();
        assert_eq!(left, [3, 1][..=fault]);
        assert_eq!(error.closed() + error.left().len(), 5);
        assert_eq!(
            error
                .left()
                .last()
                .map(|left| left.cause == LeftCause::Panicked),
            Some(fault == 1)
        );
        assert_eq!(scene.device.live().len(), left.len());
        assert_eq!(scene.freed(), 0);

        let scene = Scene::new(5, faults);
        drop(scene.register(&Options::new()).unwrap());
        assert_eq!(scene.device.live().len(), left.len());
        assert_eq!(scene.freed(), 0);
    }
}

#[test]
fn a_panic_in_the_backend_leaves_the_memory_mapped() {
    for n in [1, 4] {
        let faults = Faults {
            reg_panic: Some(3),
            ..Faults::default()
        };
        let scene = Scene::new(8, faults);
        let options = Options::new().workers(workers(n));
        let panic = catch_unwind(AssertUnwindSafe(|| scene.register(&options)));
        assert!(panic.is_err());
        assert!(scene.device.live().is_empty());
        assert_eq!(scene.freed(), 0);
    }
}

#[test]
fn what_can_be_known_before_is_refused_before() {
    let scene = Scene::new(2, Faults::default());
    let refusal = |segments: &[Segment], access| {
        let (device, memory) = (Arc::clone(&scene.device), scene.memory());
        let error = Registration::new(device, memory, segments, access, &Options::new());
        let (memory, failure) = error.unwrap_err().into_parts();
        assert!(memory.is_some());
        assert_eq!((failure.span(), failure.stood()), (None, 0));
        match failure.cause() {
            RegisterCause::Request(error) => error.clone(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refusal(&[], Access::REMOTE_RW), RequestError::NoChunk);
    let beyond = Segment {
        len: 2 * CHUNK + 1,
        ..scene.segments[0]
    };
    assert_eq!(
        refusal(&[beyond], Access::REMOTE_RW),
        RequestError::BeyondMemory {
            segment: 0,
            len: 2 * CHUNK
        }
    );
    let no_local = refusal(&scene.segments, Access::REMOTE_WRITE);
    assert!(matches!(no_local, RequestError::Access(_)));
    assert_eq!(scene.device.calls.lock().unwrap().reg, 0);
}

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

#[test]
fn other_workers_take_no_chunk_after_a_failure() {
    let faults = Faults {
        reg: once(0),
        ..Faults::default()
    };
    // So many that one worker cannot get through before the other has said stop.
    let scene = Scene::new(5000, faults);
    let options = Options::new().workers(workers(2));
    let error = scene.register(&options).unwrap_err();
    assert!(error.failure().stood() < 4999);
    scene.accounts_for(error).unwrap();
}

mock! {
    #[derive(Debug)]
    Nic {}
    impl RegBackend for Nic {
        fn device(&self) -> &Device;
        unsafe fn reg_mr(&self, request: &MrRequest) -> Result<RegisteredMr, VerbError>;
        fn dereg_mr(&self, mr: MrHandle) -> Result<(), VerbError>;
        fn needs_memory(&self) -> bool;
    }
}

fn nic() -> MockNic {
    let mut nic = MockNic::new();
    nic.expect_device()
        .return_const(Device::unlimited("nic", Family::Erdma));
    nic
}

#[test]
fn each_mr_is_deregistered_once_and_in_reverse() {
    let scene = Scene::new(3, Faults::default());
    let mut nic = nic();
    let mut order = Sequence::new();
    nic.expect_needs_memory().return_const(false);
    for i in 0..3u32 {
        nic.expect_reg_mr()
            .times(1)
            .in_sequence(&mut order)
            .withf(move |request| request.addr == BASE + u64::from(i) * CHUNK)
            .returning(move |_| {
                Ok(RegisteredMr {
                    handle: MrHandle(u64::from(i) + 7),
                    lkey: Lkey(i),
                    rkey: Rkey(i),
                })
            });
    }
    for i in (0..3).rev() {
        nic.expect_dereg_mr()
            .times(1)
            .in_sequence(&mut order)
            .with(predicate::eq(MrHandle(i + 7)))
            .returning(|_| Ok(()));
    }
    let memory = scene.memory();
    let options = Options::new();
    let made = Registration::new(nic, memory, &scene.segments, Access::REMOTE_RW, &options);
    // A panic of the mock counts as an MR left behind: a drop would only log it.
    made.unwrap().close().map(drop).unwrap();
}

#[test]
fn a_real_device_refuses_a_range_without_memory() {
    let scene = Scene::new(3, Faults::default());
    let mut nic = nic();
    nic.expect_needs_memory().return_const(true);
    nic.expect_reg_mr().never();
    let memory = scene.memory();
    let options = Options::new();
    let made = Registration::new(nic, memory, &scene.segments, Access::REMOTE_RW, &options);
    let error = made.unwrap_err();
    assert_eq!(
        error.source().unwrap().to_string(),
        "nic needs memory, and there is none behind the range (only simulated devices do without)"
    );
    assert!(error.memory().is_some());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_fault_anywhere_leaves_nothing_or_says_what(
        chunks in 1usize..40,
        n in 1usize..6,
        reg in prop::collection::btree_set(0usize..40, 0..3),
        dereg in prop::collection::btree_set(0usize..40, 0..4),
        close in any::<bool>(),
    ) {
        let faults = Faults { reg: reg.clone(), dereg: dereg.clone(), ..Faults::default() };
        let scene = Scene::new(chunks, faults);
        let fails = reg.first().is_some_and(|call| *call < chunks);
        match scene.register(&Options::new().workers(workers(n))) {
            Ok(registration) => {
                prop_assert!(!fails);
                let mrs = registration.len();
                prop_assert_eq!(mrs, chunks);
                let left = dereg.iter().filter(|call| **call < mrs).count();
                if close {
                    match registration.close() {
                        Ok(memory) => {
                            prop_assert_eq!((left, scene.freed()), (0, 0));
                            drop(memory);
                        }
                        Err(error) => {
                            let mut named: Vec<u64> =
                                error.left().iter().map(|left| left.span.addr).collect();
                            named.reverse();
                            prop_assert_eq!(named, scene.device.live());
                            prop_assert_eq!(error.closed(), mrs - left);
                        }
                    }
                } else {
                    drop(registration);
                }
                prop_assert_eq!(scene.device.live().len(), left);
                prop_assert_eq!(scene.freed(), usize::from(left == 0));
            }
            Err(error) => {
                prop_assert!(fails);
                prop_assert_eq!(error.failure().errno(), Some(Errno::EIO));
                let stood = error.failure().stood();
                let left = dereg.iter().filter(|call| (**call as u64) < stood).count();
                prop_assert_eq!(error.failure().rollback().left().len(), left);
                prop_assert!(stood < chunks as u64);
                if n == 1 {
                    prop_assert_eq!(Some(stood), reg.first().map(|call| *call as u64));
                }
                scene.accounts_for(error)?;
            }
        }
    }

    #[test]
    fn cancelling_anywhere_leaves_nothing(
        chunks in 1usize..40,
        n in 1usize..6,
        at in 0u64..45,
        dereg in prop::collection::btree_set(0usize..40, 0..2),
        in_gate in any::<bool>(),
    ) {
        let scene = Scene::new(chunks, Faults { dereg, ..Faults::default() });
        let token = CancelToken::new();
        let progress = |p: &Progress| if !in_gate && p.mrs >= at { token.cancel() };
        let gate = |chunk: &Chunk| {
            if in_gate && chunk.index >= at {
                token.cancel();
            }
            Ok(())
        };
        let mut options = Options::new().workers(workers(n)).progress(&progress).cancel(&token);
        if in_gate {
            options = options.gate(&gate);
        }
        match scene.register(&options) {
            Ok(registration) => {
                // The token may come too late.
                prop_assert!(at + n as u64 >= chunks as u64);
                prop_assert_eq!(registration.len(), chunks);
                prop_assert!(!in_gate || at >= chunks as u64);
            }
            Err(error) => {
                prop_assert!(matches!(error.failure().cause(), RegisterCause::Cancelled));
                prop_assert_eq!(error.failure().errno(), None);
                scene.accounts_for(error)?;
            }
        }
    }

    #[test]
    fn a_panic_in_a_callback_leaves_nothing(
        chunks in 1usize..20,
        n in 1usize..5,
        at in 0u64..20,
        in_gate in any::<bool>(),
        dereg in prop::collection::btree_set(0usize..20, 0..2),
    ) {
        let scene = Scene::new(chunks, Faults { dereg, ..Faults::default() });
        let progress = |p: &Progress| assert!(in_gate || p.mrs != at + 1, "a planned panic");
        let gate = |chunk: &Chunk| {
            assert!(!in_gate || chunk.index != at, "a planned panic");
            Ok(())
        };
        let options = Options::new().workers(workers(n)).progress(&progress).gate(&gate);
        let made = catch_unwind(AssertUnwindSafe(|| scene.register(&options)));
        prop_assert_eq!(made.is_err(), at < chunks as u64);
        drop(made);
        let clean = scene.device.live().is_empty();
        prop_assert_eq!(scene.freed(), usize::from(clean));
        // What is left is what the device refused to take back.
        let calls = scene.device.calls.lock().unwrap();
        let refused = scene.device.faults.dereg.iter().filter(|call| **call < calls.dereg);
        prop_assert_eq!(calls.live.len(), refused.count());
    }
}
