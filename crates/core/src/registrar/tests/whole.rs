//! Everything is registered, and everything is given back.

use mockall::{Sequence, mock, predicate};

use super::*;

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
