//! What the process may pin and map.

use crate::doctor::{Examined, Finding, ProcessFacts};
use crate::size::{Bytes, Grouped};

fn kib(bytes: u64) -> String {
    format!("{} KiB", Grouped(bytes.div_ceil(1024)))
}

/// RLIMIT_MEMLOCK, or the capability that lifts it.
pub(super) fn memlock(e: &Examined<'_>, out: &mut Vec<Finding>) {
    let process = &e.case.facts.process;
    let (who, dir) = (process.who(), process.dir());
    let Some(limit) = &e.case.host.memlock else {
        out.push(
            Finding::unknown(
                "memlock_unknown",
                format!("memlock of {who} cannot be read"),
            )
            .seen(format!("{dir}/limits"))
            .fix(format!("sudo grep 'locked memory' {dir}/limits"))
            .deciding(e.wished()),
        );
        return;
    };
    let need = e
        .plan()
        .map(|plan| plan.pinned.saturating_add(e.case.host.pinned));
    let Some(may) = limit
        .known()
        .filter(|may| need.is_none_or(|need| need > *may))
    else {
        let what = format!("memlock of {who}: {}", limit.source.text);
        out.push(Finding::fine("memlock", what));
        return;
    };
    let hard = match process.memlock {
        Some(limit) if limit.soft == Some(may) => match limit.hard {
            None => " (hard unlimited)".to_owned(),
            Some(hard) if hard != may => format!(" (hard {})", Bytes(hard)),
            Some(_) => String::new(),
        },
        _ => String::new(),
    };
    let head = format!("memlock {}{hard} in {who}", Bytes(may));
    let mut finding = match need {
        Some(need) => Finding::block("memlock", format!("{head}; need {}", kib(need))),
        None => Finding::risk("memlock", head).so("no more than that can be registered"),
    };
    finding = finding.seen(format!("{dir}/limits; {}", rights(process)));
    for fix in ways(process, need) {
        finding = finding.fix(fix);
    }
    out.push(finding);
}

/// Why the capability does not help.
fn rights(process: &ProcessFacts) -> String {
    let capability = match (process.cap_ipc_lock, process.initial_user_ns) {
        (Some(true), Some(false)) => {
            "IPC_LOCK is of a user namespace of its own, and does not count there"
        }
        (Some(true), _) => "CapEff has IPC_LOCK, of an unknown user namespace",
        (Some(false), _) => "CapEff lacks IPC_LOCK",
        (None, _) => "CapEff not readable",
    };
    let parent = process
        .parent
        .as_ref()
        .map_or_else(String::new, |parent| format!("; parent {parent}"));
    format!("{capability}{parent}")
}

/// What raises the limit, by what runs the process.
fn ways(process: &ProcessFacts, need: Option<u64>) -> Vec<String> {
    let mut ways = Vec::new();
    let parent = process.parent.as_deref().unwrap_or_default();
    if process.container == Some(true) || parent.starts_with("containerd") {
        ways.push(
            "docker run --ulimit memlock=-1; Kubernetes: LimitMEMLOCK=infinity in containerd.service, then restart the pod"
                .to_owned(),
        );
    } else if let Some(unit) = &process.unit {
        ways.push(format!(
            "LimitMEMLOCK=infinity in [Service] (sudo systemctl edit {unit}), then: sudo systemctl restart {unit}"
        ));
    }
    match (process.pid, process.memlock.map(|limit| limit.hard)) {
        (Some(pid), _) => ways.push(format!(
            "at once: sudo prlimit --pid {pid} --memlock=unlimited:unlimited"
        )),
        (None, Some(None)) => ways.push("ulimit -l unlimited".to_owned()),
        (None, Some(Some(hard))) if need.is_some_and(|need| hard >= need) => {
            ways.push(format!("ulimit -l {}", hard / 1024));
        }
        (None, _) => ways.push("sudo prlimit --pid $$ --memlock=unlimited:unlimited".to_owned()),
    }
    ways
}

/// RLIMIT_AS.
pub(super) fn address_space(e: &Examined<'_>, out: &mut Vec<Finding>) {
    let process = &e.case.facts.process;
    let Some(limit) = process.address_space.and_then(|limit| limit.soft) else {
        return;
    };
    let used = process.virtual_size.unwrap_or(0);
    let (who, dir) = (process.who(), process.dir());
    let seen = format!("Max address space   {dir}/limits");
    let fix = process.pid.map_or_else(
        || "ulimit -v unlimited".to_owned(),
        |pid| format!("sudo prlimit --pid {pid} --as=unlimited:unlimited"),
    );
    match e.plan() {
        Some(plan) if plan.mapped.saturating_add(used) <= limit => {}
        Some(plan) => out.push(
            Finding::block(
                "address_space",
                format!(
                    "{who} may map {} of address space; need {} more than the {} in use",
                    Bytes(limit),
                    Bytes(plan.mapped),
                    kib(used)
                ),
            )
            .seen(seen)
            .so("mmap fails with ENOMEM")
            .fix(fix),
        ),
        None => out.push(
            Finding::risk(
                "address_space",
                format!("{who} may map only {} of address space", Bytes(limit)),
            )
            .seen(seen)
            .so("a larger mmap fails with ENOMEM")
            .fix(fix),
        ),
    }
}
