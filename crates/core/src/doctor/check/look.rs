//! Whether the page size of an MR could be proved by the kernel itself.

use crate::doctor::{Examined, Finding, Visible};

/// kprobes by tracefs.
pub(super) fn kprobes(e: &Examined<'_>, out: &mut Vec<Finding>) {
    const WHAT: &str = "the page size of an MR cannot be proved by a kretprobe";
    let kernel = &e.case.facts.kernel;
    if kernel.lockdown.as_deref() == Some("confidentiality") {
        out.push(
            Finding::unknown("kprobes", WHAT)
                .seen("[confidentiality]   /sys/kernel/security/lockdown")
                .fix("boot without lockdown=confidentiality; until then the layout in pagemap says what to expect"),
        );
        return;
    }
    let place = "/sys/kernel/tracing/kprobe_events";
    let finding = Finding::unknown("kprobes", WHAT);
    out.push(match e.case.facts.tracing.kprobes {
        Visible::Yes => Finding::fine("kprobes", "the page size of an MR can be proved by a kretprobe"),
        Visible::Denied => finding
            .seen(format!("{place} is not for this process"))
            .fix(format!("run as root: sudo {}", e.case.commands.again)),
        Visible::NotMounted => finding
            .seen("tracefs is not mounted   /proc/self/mountinfo")
            .fix("sudo mount -t tracefs nodev /sys/kernel/tracing"),
        Visible::NotBuilt => finding
            .seen(format!("{place} is not there"))
            .fix("a kernel with CONFIG_KPROBE_EVENTS; until then the layout in pagemap says what to expect"),
        Visible::Unknown => finding
            .seen("/proc/self/mountinfo cannot be read")
            .fix("hugemr doctor --host-root DIR, with the host's root mounted at DIR"),
    });
}

/// The driver's own debug lines.
pub(super) fn dynamic_debug(e: &Examined<'_>, out: &mut Vec<Finding>) {
    let place = "/sys/kernel/debug/dynamic_debug/control";
    let finding = Finding::unknown(
        "dynamic_debug",
        "the driver's debug lines cannot be switched on",
    );
    out.push(match e.case.facts.tracing.dynamic_debug {
        Visible::Yes => Finding::fine(
            "dynamic_debug",
            "the driver's debug lines can be switched on",
        ),
        Visible::Denied => finding
            .seen(format!("{place} is not for this process"))
            .fix(format!("run as root: sudo {}", e.case.commands.again)),
        Visible::NotMounted => finding
            .seen("debugfs is not mounted   /proc/self/mountinfo")
            .fix("sudo mount -t debugfs none /sys/kernel/debug"),
        Visible::NotBuilt => finding
            .seen(format!("{place} is not there"))
            .fix("a kernel with CONFIG_DYNAMIC_DEBUG; a kretprobe does as well"),
        Visible::Unknown => finding
            .seen("/proc/self/mountinfo cannot be read")
            .fix("hugemr doctor --host-root DIR, with the host's root mounted at DIR"),
    });
}
