//! What every backend must do. One list of checks, run for the simulator, for the real backend over fake-verbs and
//! for a real device; `cargo test conformance` shows the results side by side.
//!
//! For a backend of your own: implement [`Rig`] and call `conformance_suite!`.

use std::collections::HashSet;
use std::sync::Barrier;
use std::thread;

use hugemr_core::backend::{Access, MrHandle, MrRequest, RegBackend, RegisteredMr, VerbError};
use hugemr_core::errno::Errno;

use crate::memory::{Memory, request};

/// Limits of a small device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// A family by its name.
    pub(crate) family: &'static str,
    /// Entries, one for each 4 KiB.
    pub(crate) entries: u64,
    pub(crate) max_mr: u64,
    pub(crate) max_mr_size: u64,
}

impl Limits {
    const PLENTY: Self = Self {
        family: "erdma",
        entries: 1 << 20,
        max_mr: 4096,
        max_mr_size: 1 << 36,
    };
}

/// How a backend is had.
pub(crate) trait Rig {
    type Backend: RegBackend;
    /// One device, opened twice (a simulator may give two).
    fn open(&self) -> [Self::Backend; 2];
    /// A device with these limits, where that can be had.
    fn small(&self, limits: Limits) -> Option<Self::Backend>;
}

fn reg(backend: &impl RegBackend, request: &MrRequest) -> Result<RegisteredMr, VerbError> {
    // SAFETY: each test registers memory that outlives its MRs, or a range that must be refused.
    unsafe { backend.reg_mr(request) }
}

/// Asserts a refusal with this errno.
#[track_caller]
fn refused(backend: &impl RegBackend, request: &MrRequest, errno: Errno) {
    match reg(backend, request) {
        Err(error) => assert_eq!(error.errno, errno, "{request:?}"),
        Ok(mr) => {
            backend.dereg_mr(mr.handle).unwrap();
            panic!("{request:?} was registered");
        }
    }
}

pub(crate) fn an_mr_comes_and_goes(rig: &impl Rig) {
    let [backend, _] = rig.open();
    let memory = Memory::pages(4);
    let mr = reg(&backend, &memory.request()).unwrap();
    backend.dereg_mr(mr.handle).unwrap();
    let again = reg(&backend, &memory.request()).unwrap();
    backend.dereg_mr(again.handle).unwrap();
}

pub(crate) fn one_range_twice_is_two_mrs(rig: &impl Rig) {
    let [backend, _] = rig.open();
    let memory = Memory::pages(4);
    let mrs: Vec<RegisteredMr> = (0..8)
        .map(|_| reg(&backend, &memory.request()).unwrap())
        .collect();
    let handles: HashSet<MrHandle> = mrs.iter().map(|mr| mr.handle).collect();
    let keys: HashSet<u32> = mrs.iter().map(|mr| mr.rkey.0).collect();
    assert_eq!((handles.len(), keys.len()), (8, 8));
    for mr in mrs {
        backend.dereg_mr(mr.handle).unwrap();
    }
}

pub(crate) fn any_part_of_a_page_can_be_registered(rig: &impl Rig) {
    let [backend, _] = rig.open();
    let memory = Memory::pages(2);
    for (offset, len) in [(0, 1), (1, 4095), (4095, 2), (8191, 1)] {
        let mr = reg(&backend, &request(memory.addr() + offset, len)).unwrap();
        backend.dereg_mr(mr.handle).unwrap();
    }
}

pub(crate) fn too_long_is_einval(rig: &impl Rig) {
    let [backend, _] = rig.open();
    let memory = Memory::pages(1);
    // A device without a limit promises nothing: rxe says EINVAL from 2^32 pages of 4 KiB on, siw of Linux 6.1 makes
    // an MR of nothing.
    if let Some(longest) = backend.device().max_mr_size.at_most() {
        let request = request(memory.addr(), longest + 1);
        refused(&backend, &request, Errno::EINVAL);
    }
    if let Some(small) = rig.small(Limits {
        max_mr_size: 8192,
        ..Limits::PLENTY
    }) {
        let memory = Memory::pages(4);
        refused(&small, &request(memory.addr(), 8193), Errno::EINVAL);
        let mr = reg(&small, &request(memory.addr(), 8192)).unwrap();
        small.dereg_mr(mr.handle).unwrap();
    }
}

pub(crate) fn beyond_the_address_space_is_einval(rig: &impl Rig) {
    let [backend, _] = rig.open();
    refused(&backend, &request(u64::MAX - 4095, 8192), Errno::EINVAL);
}

pub(crate) fn access_that_the_kernel_refuses_is_einval(rig: &impl Rig) {
    let [backend, _] = rig.open();
    let memory = Memory::pages(1);
    for access in [
        Access::REMOTE_WRITE,
        Access::REMOTE_ATOMIC,
        Access::REMOTE_WRITE | Access::REMOTE_READ,
    ] {
        assert!(access.refusal().is_some());
        let request = MrRequest {
            access,
            ..memory.request()
        };
        refused(&backend, &request, Errno::EINVAL);
    }
}

pub(crate) fn access_that_the_kernel_takes_is_taken(rig: &impl Rig) {
    let [backend, _] = rig.open();
    let memory = Memory::pages(1);
    for access in [
        Access::empty(),
        Access::LOCAL_WRITE,
        Access::REMOTE_READ,
        Access::REMOTE_RW,
        Access::REMOTE_RW | Access::REMOTE_ATOMIC,
        Access::REMOTE_RW | Access::RELAXED_ORDERING,
    ] {
        assert_eq!(access.refusal(), None);
        let request = MrRequest {
            access,
            ..memory.request()
        };
        let mr = reg(&backend, &request).unwrap();
        backend.dereg_mr(mr.handle).unwrap();
    }
}

pub(crate) fn the_device_may_name_memory_otherwise(rig: &impl Rig) {
    let [backend, _] = rig.open();
    let memory = Memory::pages(2);
    for (iova, fits) in [(0x10_0000, true), (0, true), (0x10_0001, false)] {
        let request = MrRequest {
            iova,
            ..memory.request()
        };
        if fits {
            let mr = reg(&backend, &request).unwrap();
            backend.dereg_mr(mr.handle).unwrap();
        } else {
            refused(&backend, &request, Errno::EINVAL);
        }
    }
}

pub(crate) fn a_handle_is_given_back_once(rig: &impl Rig) {
    let [backend, other] = rig.open();
    let memory = Memory::pages(1);
    let mr = reg(&backend, &memory.request()).unwrap();
    backend.dereg_mr(mr.handle).unwrap();
    let errno = |result: Result<(), VerbError>| result.unwrap_err().errno;
    assert_eq!(errno(backend.dereg_mr(mr.handle)), Errno::EINVAL);
    assert_eq!(errno(backend.dereg_mr(MrHandle(0))), Errno::EINVAL);
    assert_eq!(errno(backend.dereg_mr(MrHandle(u64::MAX))), Errno::EINVAL);
    assert_eq!(errno(other.dereg_mr(mr.handle)), Errno::EINVAL);
}

pub(crate) fn over_budget_has_the_errno_of_the_family(rig: &impl Rig) {
    for family in ["erdma", "ionic", "efa", "mlx4"] {
        let Some(backend) = rig.small(Limits {
            family,
            entries: 64,
            ..Limits::PLENTY
        }) else {
            return;
        };
        let dialect = backend.device().family.dialect();
        let memory = Memory::pages(65);
        let mut mrs: Vec<RegisteredMr> = (0..64)
            .map(|page| reg(&backend, &memory.page(page)).unwrap())
            .collect();
        refused(&backend, &memory.page(64), dialect.over_budget);
        // What is given back can be had again, and no more.
        backend.dereg_mr(mrs.pop().unwrap().handle).unwrap();
        mrs.push(reg(&backend, &memory.page(64)).unwrap());
        refused(&backend, &memory.page(63), dialect.over_budget);
        for mr in mrs {
            backend.dereg_mr(mr.handle).unwrap();
        }
        let all = reg(&backend, &request(memory.addr(), 64 * 4096)).unwrap();
        backend.dereg_mr(all.handle).unwrap();
    }
}

pub(crate) fn over_the_count_has_the_errno_of_the_family(rig: &impl Rig) {
    for family in ["erdma", "efa"] {
        let Some(backend) = rig.small(Limits {
            family,
            max_mr: 10,
            ..Limits::PLENTY
        }) else {
            return;
        };
        let memory = Memory::pages(1);
        let mut mrs = Vec::new();
        let error = loop {
            match reg(&backend, &memory.request()) {
                Ok(mr) => mrs.push(mr),
                Err(error) => break error,
            }
            assert!(mrs.len() <= 10);
        };
        assert_eq!(error.errno, backend.device().family.dialect().over_mr_count);
        assert_eq!(mrs.len(), 10);
        backend.dereg_mr(mrs.pop().unwrap().handle).unwrap();
        mrs.push(reg(&backend, &memory.request()).unwrap());
        for mr in mrs {
            backend.dereg_mr(mr.handle).unwrap();
        }
    }
}

pub(crate) fn a_refused_registration_holds_nothing(rig: &impl Rig) {
    let Some(backend) = rig.small(Limits {
        entries: 8,
        ..Limits::PLENTY
    }) else {
        return;
    };
    let memory = Memory::pages(9);
    for _ in 0..100 {
        assert!(reg(&backend, &memory.request()).is_err());
    }
    let mr = reg(&backend, &request(memory.addr(), 8 * 4096)).unwrap();
    backend.dereg_mr(mr.handle).unwrap();
}

const THREADS: usize = 8;
const ROUNDS: usize = 50;

pub(crate) fn eight_threads_at_once(rig: &impl Rig) {
    let [backend, _] = rig.open();
    let memory = Memory::pages(THREADS);
    let start = Barrier::new(THREADS);
    let kept: Vec<RegisteredMr> = thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|index| {
                let (backend, memory, start) = (&backend, &memory, &start);
                scope.spawn(move || {
                    start.wait();
                    let mut kept = Vec::new();
                    for round in 0..ROUNDS {
                        let mr = reg(backend, &memory.page(index)).unwrap();
                        if round % 5 == 0 {
                            kept.push(mr);
                        } else {
                            backend.dereg_mr(mr.handle).unwrap();
                        }
                    }
                    kept
                })
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap())
            .collect()
    });
    let keys: HashSet<u32> = kept.iter().map(|mr| mr.rkey.0).collect();
    assert_eq!(keys.len(), THREADS * ROUNDS / 5);
    // Given back by other threads than those that took them.
    thread::scope(|scope| {
        for part in kept.chunks(7) {
            let backend = &backend;
            scope.spawn(move || {
                for mr in part {
                    backend.dereg_mr(mr.handle).unwrap();
                }
            });
        }
    });
}

pub(crate) fn threads_share_the_budget_to_the_entry(rig: &impl Rig) {
    let Some(backend) = rig.small(Limits {
        entries: 100,
        ..Limits::PLENTY
    }) else {
        return;
    };
    let over = backend.device().family.dialect().over_budget;
    let memory = Memory::pages(THREADS);
    let mrs: Vec<RegisteredMr> = thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|index| {
                let (backend, memory) = (&backend, &memory);
                scope.spawn(move || {
                    let mut mrs = Vec::new();
                    for _ in 0..20 {
                        match reg(backend, &memory.page(index)) {
                            Ok(mr) => mrs.push(mr),
                            Err(error) => assert_eq!(error.errno, over),
                        }
                    }
                    mrs
                })
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap())
            .collect()
    });
    assert_eq!(mrs.len(), 100);
    for mr in mrs {
        backend.dereg_mr(mr.handle).unwrap();
    }
}

pub(crate) fn a_device_can_be_opened_twice(rig: &impl Rig) {
    let [one, two] = rig.open();
    assert_eq!(one.device(), two.device());
    let memory = Memory::pages(1);
    let a = reg(&one, &memory.request()).unwrap();
    let b = reg(&two, &memory.request()).unwrap();
    one.dereg_mr(a.handle).unwrap();
    drop(one);
    two.dereg_mr(b.handle).unwrap();
    let again = reg(&two, &memory.request()).unwrap();
    two.dereg_mr(again.handle).unwrap();
}

/// Makes a test of each check, in a module of the given name.
macro_rules! conformance_suite {
    ($module:ident, $rig:expr $(, #[$attribute:meta])*) => {
        mod $module {
            use super::*;
            conformance_suite!(@tests $rig, [$(#[$attribute])*]
                an_mr_comes_and_goes
                one_range_twice_is_two_mrs
                any_part_of_a_page_can_be_registered
                too_long_is_einval
                beyond_the_address_space_is_einval
                access_that_the_kernel_refuses_is_einval
                access_that_the_kernel_takes_is_taken
                the_device_may_name_memory_otherwise
                a_handle_is_given_back_once
                over_budget_has_the_errno_of_the_family
                over_the_count_has_the_errno_of_the_family
                a_refused_registration_holds_nothing
                eight_threads_at_once
                threads_share_the_budget_to_the_entry
                a_device_can_be_opened_twice
            );
        }
    };
    (@tests $rig:expr, $attributes:tt $($check:ident)*) => {
        $(conformance_suite!(@test $rig, $attributes $check);)*
    };
    (@test $rig:expr, [$(#[$attribute:meta])*] $check:ident) => {
        #[test]
        $(#[$attribute])*
        fn $check() {
            $crate::conformance::$check(&$rig);
        }
    };
}
