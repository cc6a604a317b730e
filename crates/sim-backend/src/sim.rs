//! The simulated device as a backend.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use hugemr_core::backend::{MrHandle, MrRequest, RegBackend, RegisteredMr, Verb, VerbError};
use hugemr_core::device::{Device, Family};
use hugemr_core::errno::Errno;
use hugemr_core::fact::Limit;
use hugemr_core::host::Platform;
use hugemr_core::layout::PhysRun;
use hugemr_core::size::PageSize;

use crate::device::{Arrival, Capacity, DeviceState, Layer, LiveMr, RegEvent, Table};
use crate::driver::DriverModel;
use crate::error::SimError;
use crate::faults::{Faults, delay};
use crate::kernel::Kernel;
use crate::memory::{DefaultLayout, SimMemory};
use crate::overrides::Overrides;
use crate::profile::Profile;
use crate::space::{AddressSpace, not_huge};
use crate::umem::blocks;

/// Opens a simulated device: a profile or family by name (see [`profiles`](crate::profiles)), or a file, which is
/// recognised by a `/` or by ending in `.toml`. A leading `sim:` is allowed.
///
/// # Errors
/// [`SimError::UnknownName`] with all names, or what is wrong with the file.
pub fn open(name: &str, overrides: &Overrides) -> Result<SimDevice, SimError> {
    let name = name.strip_prefix("sim:").unwrap_or(name);
    let is_toml = Path::new(name).extension().is_some_and(|e| e == "toml");
    let mut profile = if name.contains('/') || is_toml {
        Profile::read(Path::new(name))?
    } else {
        Profile::named(name)?
    };
    overrides.apply(&mut profile);
    Ok(SimDevice::new(profile))
}

/// An opened simulated device. All methods can be called from several threads at once.
#[derive(Debug)]
pub struct SimDevice {
    profile: Profile,
    kernel: Kernel,
    driver: DriverModel,
    max_mr_size: u64,
    memory: RwLock<AddressSpace>,
    faults: RwLock<Faults>,
    table: Table,
    reg_calls: AtomicU64,
    dereg_calls: AtomicU64,
    /// The command queue has timed out.
    dead: AtomicBool,
}

/// What a device really does at a limit: what is said explicitly, else what is known of it; where only an interval is
/// known its upper end, where nothing is known no limit.
fn actual(limit: &Limit, said: Option<u64>) -> u64 {
    let known = match (limit.is_unlimited(), limit.at_most(), limit.certain()) {
        (true, ..) | (false, None, 0) => u64::MAX,
        (false, Some(most), _) => most,
        (false, None, certain) => certain,
    };
    said.unwrap_or(known)
}

impl SimDevice {
    /// The device of a profile.
    #[must_use]
    pub fn new(profile: Profile) -> Self {
        let device = &profile.device;
        let erdma = device.family == Family::Erdma;
        let capacity = Capacity {
            entries: actual(&device.entries, profile.actual_entries),
            entries_per_mr: actual(&device.entries_per_mr, None),
            mrs: actual(&device.max_mr, None),
            memlock: profile.memlock,
        };
        let most = |(least, most): (u64, Option<u64>)| most.unwrap_or(least);
        let others = (most(device.used.entries), most(device.used.mrs));
        Self {
            kernel: Kernel::of(&profile.platform, erdma, profile.sg_cap),
            driver: DriverModel::of(device.family, &profile.platform),
            max_mr_size: actual(&device.max_mr_size, profile.actual_max_mr_size),
            memory: RwLock::new(AddressSpace::new(profile.memory, profile.strict_memory)),
            faults: RwLock::new(profile.faults.clone()),
            table: Table::new(
                capacity,
                device.family.dialect(),
                others,
                profile.log_capacity,
            ),
            reg_calls: AtomicU64::new(0),
            dereg_calls: AtomicU64::new(0),
            dead: AtomicBool::new(false),
            profile,
        }
    }

    /// Kernel and driver as the profile states them.
    #[must_use]
    pub fn platform(&self) -> &Platform {
        &self.profile.platform
    }

    /// The profile, with the overrides it was opened with.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// How the simulated kernel behaves.
    #[must_use]
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// How the simulated driver behaves.
    #[must_use]
    pub fn driver(&self) -> DriverModel {
        self.driver
    }

    /// What the device holds now, read from its own table.
    #[must_use]
    pub fn state(&self) -> DeviceState {
        self.table.state()
    }

    /// A live MR as the device holds it.
    #[must_use]
    pub fn mr(&self, handle: MrHandle) -> Option<LiveMr> {
        self.table.mr(handle)
    }

    /// All live MRs, by address.
    #[must_use]
    pub fn mrs(&self) -> Vec<LiveMr> {
        self.table.mrs()
    }

    /// The latest registrations, oldest first: at most [`Profile::log_capacity`].
    #[must_use]
    pub fn log(&self) -> Vec<RegEvent> {
        self.table.log()
    }

    /// Says how the memory of a range lies physically, instead of whatever was said before. MRs that exist already
    /// do not change.
    ///
    /// # Errors
    /// [`SimError`] where the range or the runs are not in units of 4 KiB, or the runs do not cover the range.
    pub fn back(&self, addr: u64, len: u64, memory: SimMemory) -> Result<(), SimError> {
        self.memory_mut().back(addr, len, memory)
    }

    /// Takes the layout of a range away: it has the default layout again, or, with strict memory, is not mapped.
    ///
    /// # Errors
    /// [`SimError::BadRange`].
    pub fn unback(&self, addr: u64, len: u64) -> Result<(), SimError> {
        self.memory_mut().unback(addr, len)
    }

    /// Changes the layout of all ranges that have none of their own.
    pub fn set_default_layout(&self, layout: DefaultLayout) {
        self.memory_mut().default = layout;
    }

    /// The parts of a range (outer borders rounded to 4 KiB) that are not backed by aligned pages of at least `page`:
    /// whole blocks of `page` bytes, neighbours joined. Empty where the range is not mapped.
    #[must_use]
    pub fn not_huge(&self, addr: u64, len: u64, page: PageSize) -> Vec<Range<u64>> {
        let base = PageSize::K4.bytes();
        let Some(to) = (addr.checked_add(len)).and_then(|end| end.checked_next_multiple_of(base))
        else {
            return Vec::new();
        };
        let from = addr & !(base - 1);
        let runs = self.memory().runs(from, to);
        runs.map_or_else(Vec::new, |runs| not_huge(runs, from, to, page))
    }

    /// The physical runs behind a range, in virtual order, as a pagemap would show them (outer borders rounded to
    /// 4 KiB); neighbours may continue each other. `None` where a part is not mapped, or the range is not one.
    #[must_use]
    pub fn runs(&self, addr: u64, len: u64) -> Option<Vec<PhysRun>> {
        let base = PageSize::K4.bytes();
        let to = addr.checked_add(len)?.checked_next_multiple_of(base)?;
        let from = addr & !(base - 1);
        Some(self.memory().runs(from, to)?.collect())
    }

    /// Changes failures and delays. Calls keep their numbers: see [`calls`](Self::calls).
    pub fn set_faults(&self, faults: Faults) {
        *self.faults.write().unwrap_or_else(PoisonError::into_inner) = faults;
    }

    /// How often a verb has been called.
    #[must_use]
    pub fn calls(&self, verb: Verb) -> u64 {
        self.counter(verb).load(Ordering::Relaxed)
    }

    fn counter(&self, verb: Verb) -> &AtomicU64 {
        match verb {
            Verb::RegMr => &self.reg_calls,
            Verb::DeregMr => &self.dereg_calls,
        }
    }

    fn memory(&self) -> RwLockReadGuard<'_, AddressSpace> {
        self.memory.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn memory_mut(&self) -> RwLockWriteGuard<'_, AddressSpace> {
        self.memory.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call, and lets it fail where that was asked for.
    fn call(&self, verb: Verb) -> Result<(), Errno> {
        let n = self.counter(verb).fetch_add(1, Ordering::Relaxed) + 1;
        if self.dead.load(Ordering::Relaxed) {
            return Err(Errno::ENODEV);
        }
        let faults = self.faults.read().unwrap_or_else(PoisonError::into_inner);
        let Some(errno) = faults.at(verb, n) else {
            return Ok(());
        };
        if errno == Errno::ETIME {
            self.dead.store(true, Ordering::Relaxed);
        }
        Err(errno)
    }

    /// From the request to the device's answer. An errno that is not in the log yet comes with its layer.
    fn register(&self, request: &MrRequest) -> Result<RegisteredMr, Refusal> {
        let asked_for = "failure on demand";
        self.call(Verb::RegMr)
            .map_err(|errno| Refusal::Before(Layer::Fault, errno, asked_for))?;
        let pinned = (self.kernel)
            .check(request, self.max_mr_size)
            .map_err(|(layer, errno, why)| Refusal::Before(layer, errno, why))?;
        let kernel = |(errno, why)| Refusal::Before(Layer::Kernel, errno, why);
        let bytes = pinned.to - pinned.from;
        self.table.pin(bytes).map_err(kernel)?;
        let result = self.map_and_register(request, pinned.from, pinned.to);
        if result.is_err() {
            self.table.unpin(bytes);
        }
        result
    }

    fn map_and_register(
        &self,
        request: &MrRequest,
        from: u64,
        to: u64,
    ) -> Result<RegisteredMr, Refusal> {
        let kernel = |(errno, why)| Refusal::Before(Layer::Kernel, errno, why);
        let (iova, len) = (request.iova, request.len.get());
        // The runs are a snapshot: nothing is locked while they are walked.
        let runs = self.memory().runs(from, to);
        let runs =
            runs.ok_or_else(|| kernel((Errno::EFAULT, "a part of the range is not mapped")))?;
        let sizes = self.profile.device.page_size_cap;
        let page = self.kernel.page(sizes, iova, len, runs).map_err(kernel)?;
        let entries = blocks(page, iova, len);
        let command = (self.driver.command(len, entries)).map_err(|errno| {
            Refusal::Before(Layer::Driver, errno, "the table of the MR is too large")
        })?;
        let time = {
            let faults = self.faults.read().unwrap_or_else(PoisonError::into_inner);
            faults.reg_time(len)
        };
        delay(time);
        let arrival = Arrival {
            iova,
            wire_len: command.wire_len,
            page,
            entries,
            level: command.level,
            form: command.form,
        };
        (self.table)
            .register(request, arrival, to - from)
            .map_err(Refusal::Device)
    }
}

/// How a registration was refused.
enum Refusal {
    /// Before the device was asked: not in the log yet.
    Before(Layer, Errno, &'static str),
    /// By the device.
    Device(Errno),
}

impl RegBackend for SimDevice {
    fn device(&self) -> &Device {
        &self.profile.device
    }

    /// Touches no memory: any range can be registered.
    unsafe fn reg_mr(&self, request: &MrRequest) -> Result<RegisteredMr, VerbError> {
        self.register(request).map_err(|refusal| {
            let errno = match refusal {
                Refusal::Before(layer, errno, why) => {
                    self.table.refused(request, (layer, errno, why));
                    errno
                }
                Refusal::Device(errno) => errno,
            };
            tracing::debug!(addr = request.addr, len = request.len, %errno, "reg_mr refused");
            VerbError {
                verb: Verb::RegMr,
                errno,
            }
        })
    }

    /// EINVAL for a handle that is not live.
    fn dereg_mr(&self, mr: MrHandle) -> Result<(), VerbError> {
        let time = {
            let faults = self.faults.read().unwrap_or_else(PoisonError::into_inner);
            faults.dereg_time()
        };
        delay(time);
        self.call(Verb::DeregMr)
            .and_then(|()| self.table.deregister(mr))
            .map_err(|errno| VerbError {
                verb: Verb::DeregMr,
                errno,
            })
    }

    fn needs_memory(&self) -> bool {
        false
    }
}
