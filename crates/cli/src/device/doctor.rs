//! The device for the doctor: one that cannot be used is a finding there, and no failure.

use hugemr_core::backend::RegBackend as _;
use hugemr_core::device::Device;
use hugemr_core::doctor::{Verbs, nameless};
use hugemr_core::host::Platform;
use hugemr_verbs::{OpenOptions, Unavailable};

use super::{Which, choose_one, identity, open_simulated, overrides};
use crate::args::FactArgs;
use crate::exit::Failure;

/// The device, or what stands for it.
pub(crate) struct Asked {
    pub(crate) device: Device,
    pub(crate) verbs: Verbs,
    /// The platform of a simulated device.
    pub(crate) profile: Option<Platform>,
    /// Which device it is, where it could be opened.
    pub(crate) which: Option<Which>,
}

/// Asks for a device. With several and no name it is a failure only where `one` must be chosen.
pub(crate) fn ask(name: Option<&str>, facts: &FactArgs, one: bool) -> Result<Asked, Failure> {
    if let Some(name) = name {
        return if name.starts_with("sim:") {
            simulated(name, facts)
        } else {
            Ok(real(name))
        };
    }
    let list = match hugemr_verbs::list(&OpenOptions::default()) {
        Ok(list) => list,
        Err(error) => return Ok(unavailable(nameless(), &error)),
    };
    match list.as_slice() {
        [only] => Ok(real(&only.name)),
        several if one => Err(choose_one(several)),
        several => {
            let free = several.iter().filter(|entry| entry.blocked.is_none());
            let names: Vec<String> = free.map(|entry| entry.name.clone()).collect();
            let blocked = several.iter().find_map(|entry| entry.blocked.as_ref());
            Ok(match blocked {
                Some(error) if names.is_empty() => unavailable(nameless(), error),
                _ => usable(nameless(), names),
            })
        }
    }
}

/// Facts alone, of a host that is not this one.
pub(crate) fn not_asked(name: Option<&str>) -> Asked {
    let mut device = nameless();
    if let Some(name) = name {
        name.clone_into(&mut device.name);
    }
    Asked {
        device,
        verbs: Verbs::NotAsked,
        profile: None,
        which: None,
    }
}

fn simulated(name: &str, facts: &FactArgs) -> Result<Asked, Failure> {
    let device = open_simulated(name, &overrides(facts))?;
    Ok(Asked {
        device: device.device().clone(),
        verbs: Verbs::Simulated(Vec::new()),
        profile: Some(device.platform().clone()),
        which: Some(identity::simulated(&device)),
    })
}

fn real(name: &str) -> Asked {
    match hugemr_verbs::open(name, &OpenOptions::default()) {
        Ok(backend) => Asked {
            which: Some(identity::real(&backend)),
            ..usable(super::with_others(&backend), vec![name.to_owned()])
        },
        Err(error) => {
            let mut device = nameless();
            name.clone_into(&mut device.name);
            unavailable(device, &error)
        }
    }
}

fn usable(device: Device, names: Vec<String>) -> Asked {
    Asked {
        device,
        verbs: Verbs::Usable(names),
        profile: None,
        which: None,
    }
}

fn unavailable(device: Device, error: &Unavailable) -> Asked {
    Asked {
        device,
        verbs: Verbs::Unavailable {
            code: error.code(),
            text: error.to_string(),
            way_out: error.way_out(),
        },
        profile: None,
        which: None,
    }
}
