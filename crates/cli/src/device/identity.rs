//! Which device: what it and its software are called in the limits file, and what it is called on a command line.
//!
//! In the limits file a device has one key, however it was typed. A simulated one of a file has the name that the file gives,
//! or, where it gives none, the place of the file.

use hugemr_core::backend::RegBackend as _;
use hugemr_core::device::Family;
use hugemr_core::host::Driver;
use hugemr_core::limits::Identity;
use hugemr_host::facts::{DriverFacts, Facts};
use hugemr_host::root::Root;
use hugemr_sim::SimDevice;
use hugemr_verbs::VerbsBackend;

/// A device.
pub(crate) struct Which {
    /// Its key in the limits file, and the software that drives it.
    pub(crate) identity: Identity,
    /// Keys that older limits files may have for it.
    pub(crate) former: Vec<String>,
    /// As `--device` takes it.
    pub(crate) named: String,
}

/// A simulated device with the kernel and driver of its profile.
pub(super) fn simulated(device: &SimDevice) -> Which {
    let platform = device.platform();
    let name = &device.device().name;
    let file = device.profile().file.as_deref();
    let named = file.map_or_else(|| name.clone(), |file| format!("sim:{}", file.display()));
    let key = match file.map(std::fs::canonicalize) {
        // A file that gives no name has been called by its path.
        Some(Ok(place)) if *name == named => format!("sim:{}", place.display()),
        _ if name.starts_with("sim:") => name.clone(),
        // A device file can give any name, and what is learned of it must never count for a real device.
        _ => format!("sim:{name}"),
    };
    Which {
        former: (key != named).then(|| named.clone()).into_iter().collect(),
        identity: Identity {
            device: key,
            kernel: platform.kernel.map(|kernel| kernel.to_string()),
            driver: kind(platform.driver),
            ..Identity::default()
        },
        named,
    }
}

/// A real device that is not opened: its name, and the kernel of this host.
pub(super) fn unopened(name: &str) -> Which {
    let kernel = Facts::read(&Root::real()).kernel.release;
    of_real(Identity {
        device: name.to_owned(),
        kernel: (!kernel.is_empty()).then_some(kernel),
        ..Identity::default()
    })
}

/// A real device has one name.
fn of_real(identity: Identity) -> Which {
    Which {
        named: identity.device.clone(),
        former: Vec::new(),
        identity,
    }
}

/// A real device on this host.
pub(super) fn real(backend: &VerbsBackend) -> Which {
    let info = backend.info();
    let root = Root::real();
    let facts = Facts::read(&root);
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let erdma = backend.device().family == Family::Erdma;
    of_real(Identity {
        device: backend.device().name.clone(),
        guid: Some(info.node_guid.to_string()),
        kernel: text(&facts.kernel.release),
        driver: erdma.then(|| driver(&facts.driver)).flatten(),
        firmware: text(&info.fw_ver),
        instance: instance(&root),
    })
}

fn kind(driver: Driver) -> Option<String> {
    match driver {
        Driver::InTree => Some("in-tree".to_owned()),
        Driver::Vendor(Some(bundle)) => Some(format!("vendor {bundle}")),
        Driver::Vendor(None) => Some("vendor".to_owned()),
        Driver::Unknown => None,
    }
}

/// Kind, and the fingerprint of the module's source: the bundle version can be read nowhere.
fn driver(facts: &DriverFacts) -> Option<String> {
    let kind = kind(facts.kind)?;
    let source = facts
        .candidates
        .iter()
        .find(|candidate| candidate.source == "module srcversion");
    Some(source.map_or_else(|| kind.clone(), |source| format!("{kind} {}", source.text)))
}

/// The type of the instance, where cloud-init has left it. The metadata service is not asked: no command of hugemr uses
/// the network unasked.
fn instance(root: &Root) -> Option<String> {
    let text = root.text("/run/cloud-init/instance-data.json")?;
    let found = ["\"instance-type\": \"", "\"instance_type\": \""]
        .into_iter()
        .find_map(|key| text.split(key).nth(1)?.split('"').next());
    found.filter(|word| !word.is_empty()).map(str::to_owned)
}
