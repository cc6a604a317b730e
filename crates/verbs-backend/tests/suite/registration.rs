//! Registrations through the real backend: errno, leftovers, rollback.

use std::num::NonZeroUsize;

use hugemr_core::backend::{Access, MrRequest, RegBackend, RegisteredMr, Verb, VerbError};
use hugemr_core::chunks::Segment;
use hugemr_core::errno::Errno;
use hugemr_core::registrar::{Options, RegisterError, Registration};
use hugemr_core::size::PageSize;
use hugemr_verbs::VerbsBackend;

use crate::fake::{Counts, Fake};
use crate::memory::Memory;

fn reg(backend: &VerbsBackend, request: &MrRequest) -> Result<RegisteredMr, VerbError> {
    // SAFETY: each test keeps its memory until its MRs are gone.
    unsafe { backend.reg_mr(request) }
}

#[test]
fn errno_is_the_one_of_the_call() {
    for errno in [
        Errno::EIO,
        Errno::ENOMEM,
        Errno::EFAULT,
        Errno::EPERM,
        Errno::ETIME,
    ] {
        let name = errno.name().unwrap();
        let fake = Fake::new(&format!("device erdma_0 reg.2={name}"));
        let backend = fake.open("erdma_0").unwrap();
        let memory = Memory::pages(1);
        let first = reg(&backend, &memory.request()).unwrap();
        let error = reg(&backend, &memory.request()).unwrap_err();
        assert_eq!(
            error,
            VerbError {
                verb: Verb::RegMr,
                errno
            }
        );
        if errno == Errno::ETIME {
            // The simulated command queue is dead now.
            let error = reg(&backend, &memory.request()).unwrap_err();
            assert_eq!(error.errno, Errno::ENODEV);
            continue;
        }
        backend.dereg_mr(first.handle).unwrap();
        drop(backend);
        assert_eq!(fake.counts(), Counts::default());
    }
}

#[test]
fn a_failed_dereg_keeps_the_mr() {
    let fake = Fake::new("device erdma_0 dereg.1=EBUSY");
    let backend = fake.open("erdma_0").unwrap();
    let memory = Memory::pages(1);
    let mr = reg(&backend, &memory.request()).unwrap();
    assert_eq!(
        backend.dereg_mr(mr.handle),
        Err(VerbError {
            verb: Verb::DeregMr,
            errno: Errno::EBUSY
        })
    );
    assert_eq!(backend.live_mrs(), 1);
    backend.dereg_mr(mr.handle).unwrap();
    assert_eq!(backend.live_mrs(), 0);
}

#[test]
fn what_is_left_goes_with_the_backend() {
    let fake = Fake::new("device erdma_0");
    let backend = fake.open("erdma_0").unwrap();
    let memory = Memory::pages(4);
    for page in 0..4 {
        reg(&backend, &memory.page(page)).unwrap();
    }
    let alive = fake.counts();
    assert_eq!((alive.contexts, alive.pds, alive.mrs), (1, 1, 4));
    drop(backend);
    assert_eq!(fake.counts(), Counts::default());
}

#[test]
fn two_openings_share_the_budget_of_the_device() {
    let fake = Fake::new("device erdma_0 sim=erdma entries=10 page=4096");
    let one = fake.open("erdma_0").unwrap();
    let two = fake.open("erdma_0").unwrap();
    let memory = Memory::pages(10);
    reg(&one, &memory.request()).unwrap();
    let error = reg(&two, &memory.page(0)).unwrap_err();
    assert_eq!(error.errno, Errno::EIO);
    drop(one);
    let mr = reg(&two, &memory.page(0)).unwrap();
    two.dereg_mr(mr.handle).unwrap();
}

#[test]
fn an_old_library_can_do_all_but_an_address_of_its_own() {
    let fake = Fake::without("ibv_reg_mr_iova2");
    fake.write("libfake_verbs.so.conf", "device erdma_0");
    let backend = fake.open("erdma_0").unwrap();
    let memory = Memory::pages(1);
    let relaxed = MrRequest {
        access: Access::REMOTE_RW | Access::RELAXED_ORDERING,
        ..memory.request()
    };
    let mr = reg(&backend, &relaxed).unwrap();
    backend.dereg_mr(mr.handle).unwrap();
    let elsewhere = MrRequest {
        iova: 0,
        ..memory.request()
    };
    let error = reg(&backend, &elsewhere).unwrap_err();
    assert_eq!(error.errno, Errno::EOPNOTSUPP);
}

/// Registered in chunks by core's registrar, with as many threads.
fn register_in_chunks(
    backend: VerbsBackend,
    memory: Memory,
    workers: usize,
) -> Result<Registration<VerbsBackend, Memory>, RegisterError<Memory>> {
    let segment = Segment {
        offset: 0,
        len: memory.request().len.get(),
        page: PageSize::K4,
        chunk: 4096,
        skew: 0,
        first_index: 0,
    };
    let options = Options::new().workers(NonZeroUsize::new(workers).unwrap());
    Registration::new(backend, memory, &[segment], Access::REMOTE_RW, &options)
}

#[test]
fn a_failure_in_the_middle_rolls_back_over_the_real_backend() {
    for workers in [1, 8] {
        let fake = Fake::new("device erdma_0 sim=erdma page=4096 entries=40");
        let backend = fake.open("erdma_0").unwrap();
        let error = register_in_chunks(backend, Memory::pages(64), workers).unwrap_err();
        let failure = error.failure();
        assert_eq!(failure.errno(), Some(Errno::EIO));
        assert!(failure.rollback().is_clean(), "{failure:?}");
        assert!(error.memory().is_some());
        assert_eq!(fake.counts(), Counts::default());
    }
}

#[test]
fn a_registration_closes_over_the_real_backend() {
    let fake = Fake::new("device erdma_0 sim=erdma page=4096");
    let backend = fake.open("erdma_0").unwrap();
    let registration = register_in_chunks(backend, Memory::pages(64), 8).unwrap();
    assert_eq!(fake.counts().mrs, 64);
    registration.close().unwrap();
    assert_eq!(fake.counts(), Counts::default());
}

#[test]
fn a_dereg_that_fails_is_said_and_the_memory_stays() {
    let fake = Fake::new("device erdma_0 sim=erdma page=4096 dereg.3=EBUSY");
    let backend = fake.open("erdma_0").unwrap();
    let registration = register_in_chunks(backend, Memory::pages(8), 1).unwrap();
    let error = registration.close().unwrap_err();
    assert_eq!((error.closed(), error.left().len()), (7, 1));
}
