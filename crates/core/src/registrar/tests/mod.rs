//! The registrar on a device that keeps account of what is registered.

mod faults;
mod gate;
mod properties;
mod whole;

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
