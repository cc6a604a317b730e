//! From `--device` to a device: the only module that names a backend.

pub(crate) mod doctor;
mod identity;
pub(crate) mod probe;
pub(crate) mod stated;

use std::sync::Arc;

use hugemr_core::backend::{RegBackend, VerifyBackend};
use hugemr_core::chunks::{Chunk, Segment};
use hugemr_core::device::{Device, Family};
use hugemr_core::fact::{Kind, Limit, Source};
use hugemr_core::host::{Host, Platform};
use hugemr_core::layout::PhysRun;
use hugemr_core::size::PageSize;
use hugemr_host::root::Root;
use hugemr_sim::{Outcome, Overrides, SimDevice, SimMemory};
use hugemr_verbs::{OpenOptions, VerbsBackend};

use crate::args::{Budget, FactArgs, Memlock};
use crate::exit::Failure;

pub(crate) use identity::Which;

/// An opened device.
pub(crate) enum Opened {
    Simulated(Arc<SimDevice>),
    Real(Arc<VerbsBackend>),
}

impl Opened {
    pub(crate) fn backend(&self) -> Arc<dyn RegBackend> {
        match self {
            Self::Simulated(device) => Arc::<SimDevice>::clone(device),
            Self::Real(device) => Arc::<VerbsBackend>::clone(device),
        }
    }

    pub(crate) fn device(&self) -> Device {
        match self {
            Self::Simulated(device) => device.device().clone(),
            Self::Real(device) => with_others(device),
        }
    }

    /// Which device it is, and the software that drives it.
    pub(crate) fn which(&self) -> Which {
        match self {
            Self::Simulated(device) => identity::simulated(device),
            Self::Real(device) => identity::real(device),
        }
    }

    /// The device as one that can move data.
    pub(crate) fn verifier(&self) -> Option<&dyn VerifyBackend> {
        match self {
            Self::Simulated(_) => None,
            Self::Real(device) => Some(&**device),
        }
    }

    /// The NUMA node that the device is near, where it is known.
    pub(crate) fn numa_node(&self) -> Option<u32> {
        match self {
            Self::Simulated(_) => None,
            Self::Real(device) => device.info().pci.as_ref()?.numa_node,
        }
    }

    /// The simulated device, whose inside can be read.
    pub(crate) fn simulated(&self) -> Option<&SimDevice> {
        match self {
            Self::Simulated(device) => Some(device),
            Self::Real(_) => None,
        }
    }
}

/// The device's limits, with what the kernel tells of the MRs of others.
fn with_others(backend: &VerbsBackend) -> Device {
    let device = backend.device();
    Device {
        used: crate::host::used_by_others(&device.name),
        ..device.clone()
    }
}

/// What of the facts the simulator must obey: it then is such a kernel, driver and device.
fn overrides(facts: &FactArgs) -> Overrides {
    let given = |flag: &'static str| Source::new(Kind::Given, flag);
    let exact = |n: u64, flag| Limit::exact(n, given(flag));
    Overrides {
        kernel: facts.kernel.map(|kernel| kernel.0),
        driver: facts.driver,
        entries: match facts.budget {
            Some(Budget::Between(low, high)) if low == high => Some(exact(low, "--budget")),
            _ => None,
        },
        max_mr: facts.max_mr.map(|n| exact(n, "--max-mr")),
        memlock: match facts.memlock {
            Some(Memlock::Bytes(n)) => Some(n),
            _ => None,
        },
        ..Overrides::default()
    }
}

/// The flags that say of a simulated device what it is: what is seen of it then is not seen of the device that was named.
/// Kernel and driver are not among them, as the limits file keeps them apart by itself.
pub(crate) fn made_up(opened: &Opened, facts: &FactArgs) -> Vec<&'static str> {
    let Some(_) = opened.simulated() else {
        return Vec::new();
    };
    let made = overrides(facts);
    let flags = [
        ("--budget", made.entries.is_some()),
        ("--max-mr", made.max_mr.is_some()),
    ];
    let given = flags.into_iter().filter(|(_, given)| *given);
    given.map(|(flag, _)| flag).collect()
}

/// Which device a name means, for a command that registers nothing on it.
pub(crate) fn which(name: &str) -> Result<Which, Failure> {
    check_name(name)?;
    if name.starts_with("sim:") {
        let device = open_simulated(name, &Overrides::default())?;
        return Ok(identity::simulated(&device));
    }
    Ok(identity::unopened(name))
}

/// The one key of the device that a name means, as in the limits file; what opens no device is its own key.
pub(crate) fn key(name: &str) -> String {
    let device = name
        .starts_with("sim:")
        .then(|| open_simulated(name, &Overrides::default()));
    match device {
        Some(Ok(device)) => identity::simulated(&device).identity.device,
        _ => name.to_owned(),
    }
}

/// The name of the only real device, where there is one.
pub(crate) fn only() -> Option<String> {
    only_real().ok()
}

/// What a name alone tells of a device that is not opened.
pub(crate) struct Named {
    pub(crate) which: Which,
    /// The family; `None` where neither the name nor this host tells.
    pub(crate) family: Option<Family>,
    /// The limits that a simulated device has; none of a real one.
    pub(crate) limits: Device,
    /// Kernel and driver of a simulated device; nothing of a real one.
    pub(crate) platform: Platform,
}

/// The device that a name means, for a command that registers nothing on it but reasons about it.
pub(crate) fn named(name: &str) -> Result<Named, Failure> {
    check_name(name)?;
    if name.starts_with("sim:") {
        let device = open_simulated(name, &Overrides::default())?;
        return Ok(Named {
            which: identity::simulated(&device),
            family: Some(device.device().family),
            limits: device.device().clone(),
            platform: device.platform().clone(),
        });
    }
    let family = family(&Root::real(), name);
    Ok(Named {
        which: identity::unopened(name),
        family,
        limits: Device::unlimited(name, family.unwrap_or(Family::Other)),
        platform: Platform::default(),
    })
}

/// The family of a real device: by the vendor that sysfs tells where it is on this host, else by its name.
fn family(root: &Root, name: &str) -> Option<Family> {
    let text = root.text(&format!("/sys/class/infiniband/{name}/device/vendor"));
    let vendor = text.and_then(|text| u32::from_str_radix(text.strip_prefix("0x")?, 16).ok());
    match vendor {
        Some(vendor) => Some(Family::of_device(name, vendor)),
        None => Family::of_name(name),
    }
}

/// Refuses what can be the name of no device.
pub(crate) fn check_name(name: &str) -> Result<(), Failure> {
    if name.is_empty() {
        return Err(Failure::usage("--device: the name is empty").with(CHOOSE));
    }
    if name.contains(char::is_control) && !name.starts_with("sim:") {
        let name = crate::typed::quoted(name.as_ref());
        return Err(Failure::usage(format_args!(
            "--device {name}: a device of this host has no such characters in its name"
        ))
        .with(CHOOSE));
    }
    if name.contains('/') && !name.starts_with("sim:") {
        return Err(Failure::usage(format_args!(
            "--device {name}: a device of this host has no / in its name"
        ))
        .with(format!(
            "a file with a simulated device: --device {}",
            crate::typed::quoted(format!("sim:{name}").as_ref())
        )));
    }
    Ok(())
}

/// Asks whether a simulated device was meant: the name is one of those, and this host has no device of that name.
pub(crate) fn note_meant(name: Option<&str>) {
    let Some(name) = name.filter(|name| !name.starts_with("sim:") && !is_present(name)) else {
        return;
    };
    let known = simulated().into_iter().map(|(known, _)| known);
    let mut known = known.filter(|known| known["sim:".len()..].eq_ignore_ascii_case(name));
    if let Some(known) = known.next() {
        crate::commands::note(format!(
            "this host has no device {name}; did you mean the simulated {known}?"
        ));
    }
}

/// Whether the kernel of this host has that device.
pub(crate) fn is_present(name: &str) -> bool {
    let named = !name.is_empty() && !name.contains('/');
    named && Root::real().exists(&format!("/sys/class/infiniband/{name}"))
}

/// Opens a device and tells what is known of the host it is on.
pub(crate) fn open(name: Option<&str>, facts: &FactArgs) -> Result<(Opened, Host), Failure> {
    name.map_or(Ok(()), check_name)?;
    match name {
        Some(name) if name.starts_with("sim:") => {
            let device = open_simulated(name, &overrides(facts))?;
            let host = Host {
                platform: device.platform().clone(),
                ..Host::default()
            };
            Ok((Opened::Simulated(Arc::new(device)), host))
        }
        Some(name) => open_real(name),
        None => open_real(&only_real()?),
    }
}

fn open_simulated(name: &str, overrides: &Overrides) -> Result<SimDevice, Failure> {
    hugemr_sim::open(name, overrides).map_err(|error| {
        let mut failure = Failure::usage(&error);
        failure.more.extend(sources(&error));
        failure
    })
}

fn open_real(name: &str) -> Result<(Opened, Host), Failure> {
    let device = hugemr_verbs::open(name, &OpenOptions::default()).map_err(|error| {
        Failure::system(format_args!("cannot open {name}: {error}"))
            .with(error.way_out())
            .with("simulated devices: hugemr devices --simulated")
    })?;
    let host = crate::host::read();
    Ok((Opened::Real(Arc::new(device)), host))
}

/// The name of the only real device; with several or none the choices.
fn only_real() -> Result<String, Failure> {
    match hugemr_verbs::list(&OpenOptions::default()) {
        Ok(devices) => match devices.as_slice() {
            [one] => Ok(one.name.clone()),
            several => Err(choose_one(several)),
        },
        Err(error) => Err(Failure::usage(format_args!(
            "no --device, and no real one can be used: {error}"
        ))
        .with(error.way_out())
        .with(CHOOSE)),
    }
}

const CHOOSE: &str = "name one with --device (a simulated one: --device sim:ecs.r8a.32xlarge, see hugemr devices --simulated)";

/// Several devices, and no name.
fn choose_one(several: &[hugemr_verbs::DeviceEntry]) -> Failure {
    let names: Vec<&str> = several.iter().map(|d| d.name.as_str()).collect();
    let text = format!(
        "there are {} RDMA devices: {}",
        names.len(),
        names.join(", ")
    );
    Failure::usage(text).with(CHOOSE)
}

/// The real devices of this machine, opened for their limits where possible.
pub(crate) fn real() -> Result<Vec<RealDevice>, hugemr_verbs::Unavailable> {
    let options = OpenOptions::default();
    let list = hugemr_verbs::list(&options)?;
    Ok(list
        .into_iter()
        .map(|entry| {
            let opened = match entry.blocked.clone() {
                Some(blocked) => Err(blocked),
                None => hugemr_verbs::open(&entry.name, &options),
            };
            RealDevice {
                name: entry.name,
                opened,
            }
        })
        .collect())
}

/// A real device, and why it cannot be used if it cannot.
pub(crate) struct RealDevice {
    pub(crate) name: String,
    pub(crate) opened: Result<VerbsBackend, hugemr_verbs::Unavailable>,
}

/// (name, description) of the simulated devices.
pub(crate) fn simulated() -> Vec<(String, String)> {
    hugemr_sim::profiles()
        .into_iter()
        .map(|profile| (format!("sim:{}", profile.name), profile.about))
        .collect()
}

pub(crate) fn sources(error: &dyn std::error::Error) -> Vec<String> {
    let mut list = Vec::new();
    let mut next = error.source();
    while let Some(cause) = next {
        list.push(cause.to_string());
        next = cause.source();
    }
    list
}

/// One MR as the simulated device got it.
#[derive(Clone, Copy)]
pub(crate) struct Arrived {
    pub(crate) page: PageSize,
    pub(crate) entries: u64,
    pub(crate) len: u64,
    pub(crate) wire_len: u64,
}

/// What the inside of a simulated device shows.
pub(crate) struct Inside {
    pub(crate) entries: u64,
    pub(crate) count: u64,
    /// In the order of addresses.
    pub(crate) mrs: Vec<Arrived>,
}

/// Reads the inside of the device, where it has one that can be read.
pub(crate) fn report(opened: &Opened) -> Option<Inside> {
    let device = opened.simulated()?;
    let state = device.state();
    let mut live = device.mrs();
    live.sort_by_key(|mr| mr.request.addr);
    let mrs = live
        .iter()
        .map(|mr| Arrived {
            page: mr.arrival.page,
            entries: mr.arrival.entries,
            len: mr.request.len.get(),
            wire_len: mr.arrival.wire_len,
        })
        .collect();
    Some(Inside {
        entries: state.entries,
        count: state.mrs,
        mrs,
    })
}

/// Lays simulated memory behind the segments.
pub(crate) fn back(
    device: &SimDevice,
    base: u64,
    segments: &[Segment],
    contiguous: bool,
) -> Result<(), Failure> {
    for segment in segments {
        let memory = if contiguous {
            SimMemory::Contiguous {
                page: segment.page,
                phys_base: CONTIGUOUS_BASE + segment.offset,
            }
        } else {
            SimMemory::scattered(segment.page)
        };
        device
            .back(base + segment.offset, segment.len, memory)
            .map_err(Failure::usage)?;
    }
    Ok(())
}

/// Physical start of contiguous simulated memory: above the hole below 4 GiB that real machines have.
const CONTIGUOUS_BASE: u64 = 1 << 32;

/// Tells the simulated device how the memory behind a chunk lies: as read, or, where that is not allowed, scattered.
pub(crate) fn back_runs(
    device: &SimDevice,
    chunk: &Chunk,
    addr: u64,
    runs: &[PhysRun],
) -> Result<(), String> {
    let memory = if runs.is_empty() {
        SimMemory::scattered(chunk.page)
    } else {
        SimMemory::Runs(runs.to_vec())
    };
    device
        .back(addr, chunk.len, memory)
        .map_err(|error| error.to_string())
}

/// The page size of the MR that the simulated device refused last.
pub(crate) fn refused_page(opened: &Opened) -> Option<PageSize> {
    let log = opened.simulated()?.log();
    let refused = |outcome: &Outcome| matches!(outcome, Outcome::Refused { .. });
    Some(
        log.iter()
            .rev()
            .find(|event| refused(&event.outcome))?
            .arrival?
            .page,
    )
}

/// Entries of the MRs that a simulated device held when it refused one for want of entries, and with that one.
pub(crate) fn refused_level(opened: &Opened) -> Option<(u64, u64)> {
    let device = opened.simulated()?;
    let log = device.log();
    let state = device.state();
    // A log that has lost its beginning tells no sum.
    if log.len() as u64 != state.registered + state.refused {
        return None;
    }
    let refused = |event: &hugemr_sim::RegEvent| matches!(event.outcome, Outcome::Refused { .. });
    let at = log.iter().rposition(refused)?;
    // One that never reached the device was not refused for want of entries.
    log[at].arrival?;
    let entries = |event: &hugemr_sim::RegEvent| event.arrival.map_or(0, |arrival| arrival.entries);
    let held = log[..at]
        .iter()
        .filter(|event| matches!(event.outcome, Outcome::Registered(_)));
    let fitted: u64 = held.map(entries).sum();
    Some((fitted, fitted + entries(&log[at])))
}
