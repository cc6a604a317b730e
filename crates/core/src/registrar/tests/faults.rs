//! A call that fails or panics: what is said, what is rolled back, and what stays mapped.

use super::*;

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
