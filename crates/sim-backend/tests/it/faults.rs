//! Failures and delays on demand, and many threads at once.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hugemr_core::backend::{RegBackend, Verb};
use hugemr_core::errno::Errno;
use hugemr_core::fact::{Kind, Limit, Source};
use hugemr_core::size::{GIB, MIB, PageSize};
use hugemr_sim::{DefaultLayout, Faults, Layer, Outcome, Overrides, SimDevice};

use crate::common::{BASE, reg, sim};

fn with(faults: Faults) -> SimDevice {
    let overrides = Overrides {
        faults: Some(faults),
        ..Overrides::default()
    };
    sim("erdma", &overrides)
}

#[test]
fn the_nth_call_fails_and_leaves_nothing() {
    let device = with(Faults::default().fail(Verb::RegMr, 2, Errno::EIO));
    let calls: Vec<bool> = (0..3).map(|_| reg(&device, BASE, MIB).is_ok()).collect();
    assert_eq!(calls, [true, false, true]);
    let state = device.state();
    assert_eq!((state.mrs, state.pinned, state.refused), (2, 2 * MIB, 1));
    let Outcome::Refused { by, errno, .. } = device.log()[1].outcome else {
        panic!("not refused");
    };
    assert_eq!((by, errno), (Layer::Fault, Errno::EIO));
}

#[test]
fn a_failed_dereg_leaves_the_mr() {
    let device = with(Faults::default().fail(Verb::DeregMr, 1, Errno::EIO));
    let mr = reg(&device, BASE, MIB).expect("no limit");
    let failed = device.dereg_mr(mr.handle).expect_err("asked for");
    assert_eq!((failed.verb, failed.errno), (Verb::DeregMr, Errno::EIO));
    assert_eq!(device.state().mrs, 1);
    device.dereg_mr(mr.handle).expect("the second call");
    assert_eq!(device.state().mrs, 0);
    assert_eq!(device.calls(Verb::DeregMr), 2);
}

#[test]
fn after_a_timeout_the_device_is_gone() {
    let device = with(Faults::default());
    let mr = reg(&device, BASE, MIB).expect("no limit");
    let next = device.calls(Verb::RegMr) + 1;
    device.set_faults(Faults::default().fail(Verb::RegMr, next, Errno::ETIME));
    assert_eq!(reg(&device, BASE, MIB), Err(Errno::ETIME));
    assert_eq!(reg(&device, BASE, MIB), Err(Errno::ENODEV));
    let gone = device.dereg_mr(mr.handle).expect_err("the queue is dead");
    assert_eq!(gone.errno, Errno::ENODEV);
}

#[test]
fn delays_of_several_threads_overlap() {
    let each = Duration::from_millis(50);
    let device = with(Faults::default().reg_delay(each));
    let start = Instant::now();
    thread::scope(|scope| {
        for i in 0..8 {
            let device = &device;
            scope.spawn(move || reg(device, BASE + i * GIB, MIB).expect("no limit"));
        }
    });
    let took = start.elapsed();
    assert!(took >= each && took < 6 * each, "{took:?}");
    assert_eq!(device.state().mrs, 8);
}

#[test]
fn many_threads_never_exceed_the_budget() {
    const BUDGET: u64 = 1000;
    let overrides = Overrides {
        entries: Some(Limit::exact(BUDGET, Source::new(Kind::Given, "test"))),
        memory: Some(DefaultLayout::scattered(PageSize::K4)),
        ..Overrides::default()
    };
    let device = sim("erdma", &overrides);
    let (start, refused) = (Barrier::new(8), AtomicU64::new(0));
    thread::scope(|scope| {
        for thread in 0..8u64 {
            let (device, start, refused) = (&device, &start, &refused);
            scope.spawn(move || {
                start.wait();
                let mut held = Vec::new();
                for i in 0..500u64 {
                    let pages = 1 + (i * 37 + thread * 11) % 120;
                    match reg(device, BASE + thread * GIB + i * 4096, pages * 4096) {
                        Ok(mr) => held.push(mr.handle),
                        Err(errno) => {
                            assert_eq!(errno, Errno::EIO);
                            refused.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    assert!(device.state().entries <= BUDGET);
                    if i % 3 == 2 && !held.is_empty() {
                        device.dereg_mr(held.swap_remove(0)).expect("a live MR");
                    }
                }
                for handle in held {
                    device.dereg_mr(handle).expect("a live MR");
                }
            });
        }
    });
    let state = device.state();
    assert_eq!((state.entries, state.mrs, state.pinned), (0, 0, 0));
    assert!(state.peak_entries <= BUDGET && state.peak_entries > BUDGET / 2);
    assert_eq!(state.registered + state.refused, 4000);
    assert_eq!(state.refused, refused.into_inner());
    assert!(state.refused > 0);
}
