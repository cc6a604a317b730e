//! A device that is a table of entries.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use hugemr_core::backend::{
    Lkey, MrHandle, MrRequest, RegBackend, RegisteredMr, Rkey, Verb, VerbError,
};
use hugemr_core::device::{Device, Family, Used};
use hugemr_core::errno::Errno;
use hugemr_core::size::PageSize;

pub(crate) const LARGE: u64 = 1 << 45;

/// A table, and nothing else: entries by 4 KiB, or by the page behind [`LARGE`].
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) device: Device,
    pub(crate) budget: u64,
    pub(crate) per_mr: u64,
    pub(crate) mrs: u64,
    /// Whether large pages count as one entry.
    pub(crate) large: bool,
    pub(crate) others: Mutex<u64>,
    /// Calls (from 1) that fail, first to last, with an errno.
    pub(crate) faults: Vec<(u64, u64, Errno)>,
    /// After so many calls others hold this much.
    pub(crate) allocations: Vec<(u64, u64)>,
    /// The most entries that were ever held, by small pages.
    pub(crate) most: Mutex<u64>,
    /// Deregistrations fail with this.
    pub(crate) stuck: Option<Errno>,
    /// What a registration takes, for each call and for each entry, and what percentage of that a deregistration takes.
    pub(crate) takes: (Duration, Duration, u32),
    /// A deregistration takes its time for each so many MRs that are held; 0: whatever is held.
    pub(crate) crowd: u64,
    /// The first of so many deregistrations fail.
    pub(crate) busy: Mutex<u64>,
    /// The longest MR, bytes.
    pub(crate) longest: u64,
    /// The time.
    pub(crate) now: Mutex<Duration>,
    /// Entries held, by which call, and how many calls there were.
    pub(crate) state: Mutex<(u64, BTreeMap<u64, u64>, u64)>,
}

impl Table {
    pub(crate) fn new(family: Family, budget: u64) -> Self {
        Self {
            device: Device::unlimited("table", family),
            budget,
            per_mr: u64::MAX,
            mrs: u64::MAX,
            large: true,
            others: Mutex::new(0),
            faults: Vec::new(),
            allocations: Vec::new(),
            most: Mutex::default(),
            stuck: None,
            takes: (Duration::ZERO, Duration::ZERO, 0),
            crowd: 0,
            busy: Mutex::default(),
            longest: u64::MAX,
            now: Mutex::default(),
            state: Mutex::default(),
        }
    }

    pub(crate) fn others(&self) -> Used {
        let n = *self.others.lock().unwrap();
        Used {
            entries: (n, Some(n)),
            mrs: (0, Some(0)),
        }
    }

    pub(crate) fn live(&self) -> usize {
        self.state.lock().unwrap().1.len()
    }

    /// How long an MR takes to be registered.
    pub(crate) fn time(&self, entries: u64) -> Duration {
        let (call, entry, _) = self.takes;
        call + entry * entries.try_into().unwrap_or(u32::MAX)
    }

    pub(crate) fn spend(&self, time: Duration) {
        *self.now.lock().unwrap() += time;
    }

    pub(crate) fn now(&self) -> Duration {
        *self.now.lock().unwrap()
    }
}

impl RegBackend for Table {
    fn device(&self) -> &Device {
        &self.device
    }

    unsafe fn reg_mr(&self, request: &MrRequest) -> Result<RegisteredMr, VerbError> {
        let fail = |errno| {
            Err(VerbError {
                verb: Verb::RegMr,
                errno,
            })
        };
        let mut state = self.state.lock().unwrap();
        state.2 += 1;
        let call = state.2;
        let mut others = self.others.lock().unwrap();
        for (at, hold) in &self.allocations {
            if *at == call {
                *others = (*hold).min(self.budget.saturating_sub(state.0));
            }
        }
        let hit = |(first, last, _): &&(u64, u64, Errno)| (*first..=*last).contains(&call);
        if let Some((.., errno)) = self.faults.iter().find(hit) {
            return fail(*errno);
        }
        let dialect = self.device.family.dialect();
        let page = if request.addr >= LARGE && self.large {
            PageSize::M2
        } else {
            PageSize::K4
        };
        let need = page.pages_for(request.len.get());
        self.spend(self.time(need));
        if request.len.get() > self.longest {
            return fail(dialect.too_long);
        }
        if need > self.per_mr {
            return fail(dialect.over_per_mr);
        }
        let held = state.0;
        if state.1.len() as u64 >= self.mrs {
            return fail(dialect.over_mr_count);
        }
        if held + *others + need > self.budget {
            return fail(dialect.over_budget);
        }
        state.1.insert(call, need);
        state.0 += need;
        let mut most = self.most.lock().unwrap();
        *most = (*most).max(held + need);
        let key = u32::try_from(call).unwrap();
        Ok(RegisteredMr {
            handle: MrHandle(call),
            lkey: Lkey(key),
            rkey: Rkey(key),
        })
    }

    fn dereg_mr(&self, mr: MrHandle) -> Result<(), VerbError> {
        if let Some(errno) = self.stuck {
            return Err(VerbError {
                verb: Verb::DeregMr,
                errno,
            });
        }
        let mut busy = self.busy.lock().unwrap();
        if *busy > 0 {
            *busy -= 1;
            return Err(VerbError {
                verb: Verb::DeregMr,
                errno: Errno::EBUSY,
            });
        }
        let mut state = self.state.lock().unwrap();
        let crowd = (state.1.len() as u64).checked_div(self.crowd).unwrap_or(1);
        let entries = state.1.remove(&mr.0).expect("a handle of ours");
        state.0 -= entries;
        let crowd = u32::try_from(crowd).unwrap();
        self.spend(self.time(entries) * self.takes.2 * crowd / 100);
        Ok(())
    }

    fn needs_memory(&self) -> bool {
        false
    }
}
