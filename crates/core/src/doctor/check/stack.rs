//! The RDMA stack: libibverbs' answer, the PCI function and its driver, ports.

use crate::doctor::{Examined, Finding, RdmaDevice, Verbs};

/// Whether a device can be used from user space.
pub(super) fn verbs(e: &Examined<'_>, out: &mut Vec<Finding>) {
    match e.case.verbs {
        Verbs::Simulated(filled) => {
            let text = format!(
                "{} is simulated: its limits are its profile's",
                e.case.device.name
            );
            let finding = Finding::fine("device", text);
            out.push(if filled.is_empty() {
                finding
            } else {
                finding.seen(format!(
                    "what the host does not say is of the profile too: {}",
                    filled.join(", ")
                ))
            });
        }
        Verbs::Usable(names) => out.push(Finding::fine(
            "device",
            format!("can be opened: {}", names.join(", ")),
        )),
        Verbs::Unavailable {
            code,
            text,
            way_out,
        } => out.push(
            Finding::block(code, format!("no RDMA device can be used: {text}"))
                .seen("libibverbs, /sys/class/infiniband, /dev/infiniband")
                .fix(way_out.clone()),
        ),
        Verbs::NotAsked => by_files(e, out),
    }
}

/// What sysfs and the device files tell where libibverbs was not asked.
fn by_files(e: &Examined<'_>, out: &mut Vec<Finding>) {
    let Some(devices) = &e.case.facts.devices else {
        out.push(
            Finding::unknown("devices_unseen", "RDMA devices cannot be seen")
                .seen("/sys/class is not there")
                .fix("hugemr doctor --host-root DIR, with the host's root mounted at DIR")
                .deciding(true),
        );
        return;
    };
    if devices.is_empty() {
        out.push(
            Finding::block("no_device", "the kernel has no RDMA device")
                .seen("/sys/class/infiniband is empty")
                .fix("bind an ERI to the instance, then: sudo modprobe erdma; rdma link"),
        );
    }
    for device in devices {
        by_file(device, out);
    }
}

fn by_file(device: &RdmaDevice, out: &mut Vec<Finding>) {
    let name = &device.name;
    match (&device.uverbs, device.char_device) {
        (None, _) => out.push(
            Finding::block(
                "no_kernel_support",
                format!("user space cannot reach {name}: no uverbs entry"),
            )
            .seen(format!("/sys/class/infiniband_verbs has none for {name}"))
            .fix("sudo modprobe ib_uverbs"),
        ),
        (Some(uverbs), Some(false)) => out.push(
            Finding::block(
                "no_char_device",
                format!("{name} has no character device /dev/infiniband/{uverbs}"),
            )
            .seen("/dev/infiniband")
            .fix(format!(
                "docker run --device /dev/infiniband/{uverbs} (Kubernetes: the RDMA device plugin); on a host udev makes it"
            )),
        ),
        (Some(_), _) => out.push(Finding::fine("device", format!("{name} is there"))),
    }
}

/// eRDMA functions that no driver has taken.
pub(super) fn functions(e: &Examined<'_>, out: &mut Vec<Finding>) {
    if matches!(e.case.verbs, Verbs::Simulated(_)) {
        return;
    }
    for function in e.case.facts.functions.iter().flatten() {
        match &function.driver {
            None if function.erdma => out.push(
                Finding::block(
                    "function_without_driver",
                    format!("the eRDMA function {} has no driver", function.address),
                )
                .seen(format!("/sys/bus/pci/devices/{}/driver is not there", function.address))
                .fix("sudo modprobe erdma (not there: the vendor's installer, or a kernel with CONFIG_INFINIBAND_ERDMA)"),
            ),
            None => {}
            Some(driver) => out.push(Finding::fine(
                "function",
                format!("PCI function {} is driven by {driver}", function.address),
            )),
        }
    }
}

/// Ports that move no data.
pub(super) fn ports(e: &Examined<'_>, out: &mut Vec<Finding>) {
    if matches!(e.case.verbs, Verbs::Simulated(_)) {
        return;
    }
    let asked = &e.case.device.name;
    let devices = e.case.facts.devices.iter().flatten();
    let all: Vec<&RdmaDevice> = devices.collect();
    let named: Vec<&RdmaDevice> = all.iter().copied().filter(|d| d.name == *asked).collect();
    for device in if named.is_empty() { all } else { named } {
        for port in &device.ports {
            let (name, number) = (&device.name, port.number);
            let file = format!("/sys/class/infiniband/{name}/ports/{number}/state");
            out.push(match port.state.as_deref() {
                Some("ACTIVE") => {
                    Finding::fine("port", format!("port {number} of {name} is active"))
                }
                Some(state) => Finding::risk(
                    "port_not_active",
                    format!("port {number} of {name} is {state}"),
                )
                .seen(file)
                .so("memory can be registered, and no data moves")
                .fix(format!(
                    "rdma link show {name}/{number}, then: sudo ip link set dev NETDEV up"
                )),
                None => Finding::unknown(
                    "port_unknown",
                    format!("the state of port {number} of {name} cannot be read"),
                )
                .seen(file)
                .fix(format!("rdma link show {name}/{number}")),
            });
        }
    }
}
