//! Who works when: shown by threads that wait for each other, so that a pipeline which does one thing after the other
//! would wait in vain.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::sync::{Condvar, Mutex};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use hugemr::core::backend::{MrHandle, MrRequest, RegBackend, RegisteredMr, VerbError};
use hugemr::core::chunks::Chunk;
use hugemr::core::device::Device;
use hugemr::core::host::Host;
use hugemr::core::layout::PhysRun;
use hugemr::core::plan::{Pages, Plan, PlanRequest, plan};
use hugemr::core::size::{MIB, PageSize};
use hugemr::{Build, Event, Step};

/// Nothing here takes longer; on a busy machine either.
const FOREVER: Duration = Duration::from_secs(60);

/// A place where threads wait until so many different ones have been there.
struct Rendezvous {
    wanted: usize,
    came: Mutex<HashSet<ThreadId>>,
    changed: Condvar,
}

impl Rendezvous {
    fn of(wanted: usize) -> Self {
        Self {
            wanted,
            came: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Whether the others came. Once they all were there, nobody waits any more.
    fn wait(&self) -> bool {
        let mut came = self.came.lock().unwrap();
        came.insert(thread::current().id());
        self.changed.notify_all();
        let waited = |came: &mut HashSet<ThreadId>| came.len() < self.wanted;
        let (came, _) = self
            .changed
            .wait_timeout_while(came, FOREVER, waited)
            .unwrap();
        came.len() >= self.wanted
    }
}

/// The simulated device, with a rendezvous of threads in its calls.
struct Nic {
    device: hugemr_sim::SimDevice,
    registering: Rendezvous,
    releasing: Rendezvous,
    registered: Mutex<Vec<u64>>,
    changed: Condvar,
}

impl std::fmt::Debug for Nic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Nic")
    }
}

impl Nic {
    fn wanting(threads: usize) -> Self {
        Self {
            device: hugemr_sim::open("sim:erdma", &hugemr_sim::Overrides::default()).unwrap(),
            registering: Rendezvous::of(threads),
            releasing: Rendezvous::of(threads),
            registered: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Whether an MR at that address is registered in time.
    fn waits_for(&self, addr: u64) -> bool {
        let registered = self.registered.lock().unwrap();
        let missing = |list: &mut Vec<u64>| !list.contains(&addr);
        let (registered, _) = self
            .changed
            .wait_timeout_while(registered, FOREVER, missing)
            .unwrap();
        registered.contains(&addr)
    }
}

impl RegBackend for Nic {
    fn device(&self) -> &Device {
        self.device.device()
    }

    unsafe fn reg_mr(&self, request: &MrRequest) -> Result<RegisteredMr, VerbError> {
        assert!(self.registering.wait(), "one thread registers alone");
        // SAFETY: the caller's promise.
        let mr = unsafe { self.device.reg_mr(request) }?;
        self.registered.lock().unwrap().push(request.addr);
        self.changed.notify_all();
        Ok(mr)
    }

    fn dereg_mr(&self, mr: MrHandle) -> Result<(), VerbError> {
        assert!(self.releasing.wait(), "one thread releases alone");
        self.device.dereg_mr(mr)
    }
}

fn planned(nic: &Nic, mrs: u64) -> Plan {
    let mut request = PlanRequest::total(mrs * MIB).pages(Pages::Only(PageSize::K4));
    request.chunk = Some(MIB);
    let platform = nic.device.platform().clone();
    let host = Host {
        platform,
        ..Host::default()
    };
    let plan = plan(&request, nic.device(), &host).unwrap();
    assert_eq!(plan.mrs, mrs);
    plan
}

fn threads(n: usize) -> NonZeroUsize {
    NonZeroUsize::new(n).unwrap()
}

#[test]
fn a_chunk_is_registered_while_later_ones_are_populated() {
    let nic = std::sync::Arc::new(Nic::wanting(1));
    let plan = planned(&nic, 8);
    // Before any chunk but the first is let through, the one before it must have been registered.
    let hook = |chunk: &Chunk, addr: u64, _: &[PhysRun]| {
        if chunk.index == 0 || nic.waits_for(addr - MIB) {
            Ok(())
        } else {
            Err(format!("MR {} waits for the others", chunk.index - 1))
        }
    };
    let build = Build::new(&plan).before_each(&hook);
    let pool = build.build(std::sync::Arc::clone(&nic)).unwrap();
    assert_eq!(pool.report().mrs.len(), 8);
    pool.close().unwrap();
}

#[test]
fn as_many_threads_as_asked_for_populate_register_and_release() {
    for n in [1, 2, 3] {
        let nic = Nic::wanting(n);
        let plan = planned(&nic, 12);
        let populating = Rendezvous::of(n);
        let (began, ended) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        let tell = |event: Event| match event {
            Event::Begin(step) => began.lock().unwrap().push((step, Instant::now())),
            Event::End(step, _) => ended.lock().unwrap().push((step, Instant::now())),
            Event::Progress {
                step: Step::Populate,
                ..
            } => {
                assert!(populating.wait(), "one thread populates alone");
            }
            _ => {}
        };
        Build::new(&plan)
            .threads(threads(n))
            .progress(&tell)
            .run(nic, |pool| {
                assert_eq!(pool.report().threads, n);
                let backend = pool.backend();
                assert_eq!(backend.registering.came.lock().unwrap().len(), n);
                assert_eq!(populating.came.lock().unwrap().len(), n);
            })
            .unwrap();
        // Unmapped at once, after every MR was released.
        let at = |list: &Mutex<Vec<(Step, Instant)>>, step| {
            let list = list.lock().unwrap();
            let times: Vec<Instant> = list.iter().filter(|e| e.0 == step).map(|e| e.1).collect();
            assert_eq!(times.len(), 1, "{step}");
            times[0]
        };
        assert!(at(&began, Step::Unmap) >= at(&ended, Step::Deregister));
    }
}

#[test]
fn progress_counts_every_byte_once() {
    let nic = Nic::wanting(2);
    let plan = planned(&nic, 16);
    let told = Mutex::new(Vec::new());
    let tell = |event: Event| {
        if let Event::Progress { step, done, total } = event {
            told.lock().unwrap().push((step, done, total));
        }
    };
    Build::new(&plan)
        .threads(threads(2))
        .progress(&tell)
        .build(nic)
        .unwrap()
        .close()
        .unwrap();
    let told = told.into_inner().unwrap();
    for step in [Step::Populate, Step::Register] {
        let mut done: Vec<u64> = Vec::new();
        for (of, bytes, total) in &told {
            assert_eq!(*total, 16 * MIB);
            done.extend((*of == step).then_some(*bytes));
        }
        let number = done.len();
        done.sort_unstable();
        done.dedup();
        assert_eq!(done.len(), number, "{step}: the same sum twice");
        assert_eq!(done.last(), Some(&(16 * MIB)), "{step}");
    }
}
