//! The whole transaction on the pools of this machine: whatever happens at whichever event of it, each pool has in the end
//! what it had before.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hugemr::core::backend::{
    MrHandle, MrRequest, RegBackend, RegisteredMr, Rkey, VerbError, VerifyBackend, VerifyError,
};
use hugemr::core::device::Device;
use hugemr::core::host::Host;
use hugemr::core::plan::{Pages, Plan, PlanRequest, plan};
use hugemr::core::registrar::CancelToken;
use hugemr::core::size::{MIB, PageSize};
use hugemr::host::ledger;
use hugemr::host::pools::Pools;
use hugemr::host::reserve::Spread;
use hugemr::host::root::Root;
use hugemr::{Build, Event, Step};

/// The simulated device, and a way to move data that always works.
#[derive(Debug)]
struct Nic(hugemr_sim::SimDevice);

impl RegBackend for Nic {
    fn device(&self) -> &Device {
        self.0.device()
    }

    unsafe fn reg_mr(&self, request: &MrRequest) -> Result<RegisteredMr, VerbError> {
        // SAFETY: the caller's promise.
        unsafe { self.0.reg_mr(request) }
    }

    fn dereg_mr(&self, mr: MrHandle) -> Result<(), VerbError> {
        self.0.dereg_mr(mr)
    }
}

impl VerifyBackend for Nic {
    fn round_trip(&self, _addr: u64, _len: u32, _rkey: Rkey) -> Result<(), VerifyError> {
        Ok(())
    }
}

/// Held by each test here: they watch the same pools.
fn lock() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

fn nic() -> Nic {
    Nic(hugemr_sim::open("sim:erdma", &hugemr_sim::Overrides::default()).unwrap())
}

/// So many pages more than there are, in MRs of 16 MiB.
fn plan_beyond_the_pool(nic: &Nic, more: u64) -> Plan {
    let pool = *Pools::read(&Root::real()).of(PageSize::M2).unwrap();
    let pages = pool.available().unwrap() + more;
    assert!(pages < 1024, "too many free huge pages for a test: {pages}");
    let mut request = PlanRequest::total(pages * 2 * MIB).pages(Pages::Only(PageSize::M2));
    request.chunk = Some(16 * MIB);
    let host = Host {
        platform: nic.0.platform().clone(),
        ..Host::default()
    };
    plan(&request, nic.device(), &host).unwrap()
}

fn persistent() -> u64 {
    let pool = *Pools::read(&Root::real()).of(PageSize::M2).unwrap();
    pool.persistent().unwrap()
}

/// The pool has the count again, and the ledger nothing of this process. Others that use the machine are waited for.
fn is_as_before(before: u64, what: &str) {
    let mine = |e: &ledger::Entry| e.owner.is_some_and(|owner| owner.pid == std::process::id());
    let entries = ledger::look(&Root::real()).unwrap();
    assert!(!entries.iter().any(mine), "{what}: {entries:?}");
    let deadline = Instant::now() + Duration::from_secs(10);
    while persistent() != before {
        assert!(
            Instant::now() < deadline,
            "{what}: {before} pages before, {} after",
            persistent()
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs the whole transaction with verify and hold, and returns the steps that began.
fn transaction(tell: &(dyn Fn(Event) + Sync), cancel: &CancelToken) -> Result<(), Step> {
    let nic = nic();
    let prover = self::nic();
    let plan = plan_beyond_the_pool(&nic, 16);
    Build::new(&plan)
        .reserve(Spread::Even)
        .threads(NonZeroUsize::new(2).unwrap())
        .cancel(cancel)
        .progress(tell)
        .run(nic, |pool| {
            assert_eq!(
                pool.report().reserved.iter().map(|(.., n)| n).sum::<u64>(),
                16
            );
            let proof = pool.verify(&prover, tell).unwrap();
            assert_eq!(proof.mrs, pool.mrs().count());
            pool.hold(tell, || ());
        })
        .map_err(|error| {
            assert!(error.not_given_back.is_none(), "{error}");
            error.step
        })
}

#[test]
#[ignore = "needs huge pages and root"]
fn every_step_is_told_and_the_pool_is_lowered_by_what_was_added() {
    let _pools = lock();
    let before = persistent();
    let begun = Mutex::new(Vec::new());
    let ended = Mutex::new(Vec::new());
    let tell = |event: Event| match event {
        Event::Begin(step) => begun.lock().unwrap().push(step),
        Event::End(step, _) => ended.lock().unwrap().push(step),
        _ => {}
    };
    transaction(&tell, &CancelToken::new()).unwrap();
    is_as_before(before, "plain");
    for told in [begun, ended] {
        let mut told = told.into_inner().unwrap();
        // Populating, looking and registering overlap.
        told.sort_unstable();
        assert_eq!(told, Step::ALL);
    }
}

#[test]
#[ignore = "needs huge pages and root"]
fn a_panic_at_any_event_leaves_the_pool_as_it_was() {
    let _pools = lock();
    let before = persistent();
    let mut at = 0;
    loop {
        let events = AtomicUsize::new(0);
        let tell = |event: Event| {
            let now = events.fetch_add(1, Ordering::Relaxed) == at;
            assert!(!now, "a planned panic at {event:?}");
        };
        let made = catch_unwind(AssertUnwindSafe(|| transaction(&tell, &CancelToken::new())));
        is_as_before(before, &format!("panic at event {at}"));
        if let Ok(done) = made {
            done.unwrap();
            break;
        }
        at += 1;
    }
    assert!(at > 2 * Step::ALL.len(), "{at} events only");
}

#[test]
#[ignore = "needs huge pages and root"]
fn a_cancel_at_any_event_leaves_the_pool_as_it_was() {
    let _pools = lock();
    let before = persistent();
    let mut failed = Vec::new();
    for at in 0.. {
        let token = CancelToken::new();
        let events = AtomicUsize::new(0);
        let tell = |_: Event| {
            if events.fetch_add(1, Ordering::Relaxed) == at {
                token.cancel();
            }
        };
        let done = transaction(&tell, &token);
        is_as_before(before, &format!("cancel at event {at}"));
        failed.extend(done.err());
        if !token.is_cancelled() {
            break;
        }
    }
    failed.dedup();
    assert_eq!(failed.first(), Some(&Step::Reserve));
    assert!(failed.contains(&Step::Register), "{failed:?}");
}

#[test]
#[ignore = "needs huge pages and root"]
fn a_pool_that_is_dropped_takes_the_same_way_back() {
    let _pools = lock();
    let before = persistent();
    let nic = nic();
    let plan = plan_beyond_the_pool(&nic, 16);
    let pool = Build::new(&plan).reserve(Spread::Even).build(nic).unwrap();
    assert_eq!(persistent(), before + 16);
    drop(pool);
    is_as_before(before, "dropped");
}

#[test]
#[ignore = "needs huge pages and root"]
fn a_refusal_of_the_device_gives_everything_back() {
    let _pools = lock();
    let before = persistent();
    let overrides = hugemr_sim::Overrides {
        // Planned for a larger table than there is.
        max_mr: Some(hugemr::core::fact::Limit::exact(
            1,
            hugemr::core::fact::Source::new(hugemr::core::fact::Kind::Given, "test"),
        )),
        ..hugemr_sim::Overrides::default()
    };
    let small = hugemr_sim::open("sim:erdma", &overrides).unwrap();
    let plan = plan_beyond_the_pool(&nic(), 16);
    assert!(plan.mrs > 1);
    let error = Build::new(&plan)
        .reserve(Spread::Even)
        .build(small)
        .unwrap_err();
    assert_eq!(error.step, Step::Register);
    assert!(error.not_given_back.is_none());
    is_as_before(before, "refused");
}

#[test]
#[ignore = "needs huge pages and root"]
fn without_a_wish_no_pool_is_touched() {
    let _pools = lock();
    let before = persistent();
    let nic = nic();
    let plan = plan_beyond_the_pool(&nic, 16);
    let error = Build::new(&plan).build(nic).unwrap_err();
    assert_eq!(error.step, Step::Map);
    is_as_before(before, "not asked for");
}
