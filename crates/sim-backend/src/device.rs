//! The simulated device: the translation table of all MRs, and a ledger of everything that was asked of it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use hugemr_core::backend::{Lkey, MrHandle, MrRequest, RegisteredMr, Rkey};
use hugemr_core::device::Dialect;
use hugemr_core::errno::Errno;
use hugemr_core::size::PageSize;

use crate::driver::Form;

/// Who refused a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// The kernel: access, alignment, pinning, DMA mapping.
    Kernel,
    /// The driver: length, size of the table.
    Driver,
    /// The device: budget, MR count, entries of one MR.
    Device,
    /// Nobody: a failure that was asked for.
    Fault,
}

/// What reached the device for one MR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Start of the MR as the device names it.
    pub iova: u64,
    /// Length as sent, bytes. Differs from the length asked for where the driver cuts it.
    pub wire_len: u64,
    /// Page size of the MR.
    pub page: PageSize,
    /// Entries of its table.
    pub entries: u64,
    /// Levels of its table (0: inside the command).
    pub level: u8,
    /// Form of the command.
    pub form: Form,
}

/// How a registration ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The MR exists, under this handle.
    Registered(MrHandle),
    /// Refused.
    Refused {
        /// By whom.
        by: Layer,
        /// The errno.
        errno: Errno,
        /// In a few words.
        why: &'static str,
    },
}

/// One call of `reg_mr`, as the simulator saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegEvent {
    /// Number of the event since the device was opened, from 0.
    pub number: u64,
    /// The calling thread.
    pub thread: ThreadId,
    /// What was asked for.
    pub request: MrRequest,
    /// What reached the device; `None` where the call ended before it.
    pub arrival: Option<Arrival>,
    /// How it ended.
    pub outcome: Outcome,
}

/// A live MR as the device holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveMr {
    /// Handle and keys.
    pub mr: RegisteredMr,
    /// What was asked for.
    pub request: MrRequest,
    /// What reached the device.
    pub arrival: Arrival,
}

impl LiveMr {
    /// Whether the device knows the MR's true length. Where it does not, transfers beyond the length that it knows
    /// would fail although the registration succeeded.
    #[must_use]
    pub const fn usable(&self) -> bool {
        self.arrival.wire_len == self.request.len.get()
    }
}

/// What the device holds at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceState {
    /// Table entries of the MRs registered here.
    pub entries: u64,
    /// The most there were at once.
    pub peak_entries: u64,
    /// Table entries held by others from the start.
    pub others_entries: u64,
    /// MRs registered here.
    pub mrs: u64,
    /// The most there were at once.
    pub peak_mrs: u64,
    /// MRs held by others from the start.
    pub others_mrs: u64,
    /// Bytes pinned (4 KiB pages spanned; counted again for each MR).
    pub pinned: u64,
    /// Calls of `reg_mr` that succeeded.
    pub registered: u64,
    /// Calls of `reg_mr` that failed.
    pub refused: u64,
    /// Calls of `dereg_mr` that succeeded.
    pub deregistered: u64,
}

/// What a simulated device really holds, whatever it says about itself. `u64::MAX`: no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capacity {
    pub(crate) entries: u64,
    pub(crate) entries_per_mr: u64,
    pub(crate) mrs: u64,
    pub(crate) memlock: Option<u64>,
}

/// MR indices fit in the upper 24 bits of a key.
const INDICES: u64 = 1 << 24;

/// The device's own bookkeeping.
#[derive(Debug)]
pub(crate) struct Table {
    capacity: Capacity,
    dialect: Dialect,
    log_capacity: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    now: DeviceState,
    live: HashMap<MrHandle, Live>,
    indices: HashSet<u64>,
    next_index: u64,
    next_handle: u64,
    log: VecDeque<RegEvent>,
}

#[derive(Debug)]
struct Live {
    mr: LiveMr,
    index: u64,
    pinned: u64,
}

impl Table {
    pub(crate) fn new(
        capacity: Capacity,
        dialect: Dialect,
        others: (u64, u64),
        log_capacity: usize,
    ) -> Self {
        let state = State {
            now: DeviceState {
                others_entries: others.0,
                others_mrs: others.1,
                ..DeviceState::default()
            },
            // The driver uses index 0 only after its cursor has wrapped; the others came first.
            next_index: others.1.saturating_add(1),
            next_handle: 1,
            ..State::default()
        };
        Self {
            capacity,
            dialect,
            log_capacity,
            state: Mutex::new(state),
        }
    }

    /// A panic of another thread leaves numbers, which are always consistent between statements that matter.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state(&self) -> DeviceState {
        self.lock().now
    }

    pub(crate) fn log(&self) -> Vec<RegEvent> {
        self.lock().log.iter().copied().collect()
    }

    pub(crate) fn mr(&self, handle: MrHandle) -> Option<LiveMr> {
        self.lock().live.get(&handle).map(|live| live.mr)
    }

    pub(crate) fn mrs(&self) -> Vec<LiveMr> {
        let mut all: Vec<LiveMr> = self.lock().live.values().map(|live| live.mr).collect();
        all.sort_by_key(|live| (live.request.iova, live.mr.handle));
        all
    }

    /// Charges bytes against the limit of locked memory. Source: `__ib_umem_get`, Linux
    /// `drivers/infiniband/core/umem.c`.
    pub(crate) fn pin(&self, bytes: u64) -> Result<(), (Errno, &'static str)> {
        let mut state = self.lock();
        let pinned = state.now.pinned.saturating_add(bytes);
        match self.capacity.memlock {
            Some(0) => Err((Errno::EPERM, "no memory may be locked")),
            Some(limit) if pinned > limit => Err((Errno::ENOMEM, "limit of locked memory")),
            _ => {
                state.now.pinned = pinned;
                Ok(())
            }
        }
    }

    pub(crate) fn unpin(&self, bytes: u64) {
        let mut state = self.lock();
        state.now.pinned = state.now.pinned.saturating_sub(bytes);
    }

    /// Takes an MR in, or refuses it, and writes it into the log.
    pub(crate) fn register(
        &self,
        request: &MrRequest,
        arrival: Arrival,
        pinned: u64,
    ) -> Result<RegisteredMr, Errno> {
        let mut state = self.lock();
        let index = match self.admit(&state, arrival.entries) {
            Ok(index) => index,
            Err((errno, why)) => {
                state.refuse(request, Some(arrival), (Layer::Device, errno, why));
                state.trim(self.log_capacity);
                return Err(errno);
            }
        };
        let key = u32::try_from(index << 8).unwrap_or(u32::MAX);
        let mr = RegisteredMr {
            handle: MrHandle(state.next_handle),
            lkey: Lkey(key),
            rkey: Rkey(key),
        };
        state.next_handle += 1;
        state.next_index = index + 1;
        state.indices.insert(index);
        let live = Live {
            mr: LiveMr {
                mr,
                request: *request,
                arrival,
            },
            index,
            pinned,
        };
        state.live.insert(mr.handle, live);
        let now = &mut state.now;
        now.entries += arrival.entries;
        now.mrs += 1;
        now.peak_entries = now.peak_entries.max(now.entries);
        now.peak_mrs = now.peak_mrs.max(now.mrs);
        now.registered += 1;
        state.note(request, Some(arrival), Outcome::Registered(mr.handle));
        state.trim(self.log_capacity);
        Ok(mr)
    }

    /// The index of a new MR of so many entries, in the order in which driver and device decide.
    fn admit(&self, state: &State, entries: u64) -> Result<u64, (Errno, &'static str)> {
        if entries > self.capacity.entries_per_mr {
            return Err((
                self.dialect.over_per_mr,
                "more entries than one MR may have",
            ));
        }
        let index = self
            .free_index(state)
            .ok_or((self.dialect.over_mr_count, "no MR index left"))?;
        let used = (state.now.entries).saturating_add(state.now.others_entries);
        if entries > self.capacity.entries.saturating_sub(used) {
            return Err((self.dialect.over_budget, "table of all MRs full"));
        }
        Ok(index)
    }

    /// The next free index after the last one handed out, else the first free one (`erdma_alloc_idx`, Linux
    /// `drivers/infiniband/hw/erdma/erdma_verbs.c`).
    fn free_index(&self, state: &State) -> Option<u64> {
        let count = self.capacity.mrs.min(INDICES);
        let taken = state.now.mrs.saturating_add(state.now.others_mrs);
        if taken >= count {
            return None;
        }
        let others = 1..=state.now.others_mrs;
        let free = |index: &u64| !others.contains(index) && !state.indices.contains(index);
        (state.next_index..count)
            .find(free)
            .or_else(|| (0..count).find(free))
    }

    /// Takes an MR out.
    pub(crate) fn deregister(&self, handle: MrHandle) -> Result<(), Errno> {
        let mut state = self.lock();
        let live = state.live.remove(&handle).ok_or(Errno::EINVAL)?;
        state.indices.remove(&live.index);
        let now = &mut state.now;
        now.entries -= live.mr.arrival.entries;
        now.mrs -= 1;
        now.pinned = now.pinned.saturating_sub(live.pinned);
        now.deregistered += 1;
        Ok(())
    }

    /// Writes a registration into the log that ended before the device was asked.
    pub(crate) fn refused(&self, request: &MrRequest, cause: (Layer, Errno, &'static str)) {
        let mut state = self.lock();
        state.refuse(request, None, cause);
        state.trim(self.log_capacity);
    }
}

impl State {
    fn refuse(
        &mut self,
        request: &MrRequest,
        arrival: Option<Arrival>,
        (by, errno, why): (Layer, Errno, &'static str),
    ) {
        self.now.refused += 1;
        self.note(request, arrival, Outcome::Refused { by, errno, why });
    }

    fn note(&mut self, request: &MrRequest, arrival: Option<Arrival>, outcome: Outcome) {
        self.log.push_back(RegEvent {
            number: self.now.registered + self.now.refused - 1,
            thread: std::thread::current().id(),
            request: *request,
            arrival,
            outcome,
        });
    }

    fn trim(&mut self, capacity: usize) {
        while self.log.len() > capacity {
            self.log.pop_front();
        }
    }
}
