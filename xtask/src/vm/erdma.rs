//! `cargo xtask vm erdma`: the unmodified `erdma` driver on an emulated device.
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::agree::{self, Run};
use super::checks::{self, Choice};
use super::collapsed;
use super::defects;
use super::emulator::Emulator;
use super::judge::Report;
use super::lab::{Lab, Spec};
use super::layouts;
use super::module::Toolchain;
use super::modules::{Module, Modules};
use super::overlap;
use super::proved;

/// Held against each other outside the guest: its log and the device's.
type HostCheck = (&'static str, fn(&Run<'_>) -> Result<String>);

/// A guest with an emulated device: what the device has, and what is checked.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    script: &'static str,
    entries: &'static str,
    memory_mib: u32,
    append: &'static str,
    seconds: u64,
    host_checks: &'static [HostCheck],
}

macro_rules! script {
    ($($file:literal),+) => {
        concat!(include_str!("../../guest/erdma.sh"), include_str!("../../guest/emu.sh"), $(include_str!(concat!("../../guest/", $file))),+)
    };
}

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "erdma-basic",
        script: script!("erdma-basic.sh"),
        entries: "40000",
        memory_mib: 1024,
        append: "huge2m=40",
        seconds: 180,
        host_checks: &[("device-log", agree::device_log)],
    },
    Scenario {
        name: "erdma-hugemr",
        script: script!("hugemr.sh", "hugemr-nobody.sh", "devices.sh"),
        entries: "3000000",
        memory_mib: 4096,
        append: "hugepagesz=1G hugepages=1 huge2m=320",
        seconds: 300,
        host_checks: &[("released", agree::released)],
    },
    Scenario {
        name: "erdma-probe",
        script: script!("erdma-probe.sh"),
        entries: "777777",
        memory_mib: 1024,
        append: "huge2m=40",
        seconds: 400,
        host_checks: &[("released", agree::released)],
    },
    Scenario {
        name: "erdma-prove",
        script: script!("erdma-prove.sh"),
        entries: "200000",
        memory_mib: 1536,
        append: "guest.kprobes huge2m=48",
        seconds: 500,
        host_checks: &[("proved", proved::proved)],
    },
    Scenario {
        name: "erdma-collapse",
        script: script!("erdma-collapse.sh"),
        entries: "200000",
        memory_mib: 1024,
        append: "",
        seconds: 240,
        host_checks: &[("collapsed", collapsed::collapsed)],
    },
    Scenario {
        name: "erdma-old-rule",
        script: script!("erdma-old-rule.sh"),
        entries: "100000",
        memory_mib: 768,
        append: "huge2m=40",
        seconds: 180,
        host_checks: &[
            ("device-log", agree::device_log),
            ("rule-log", agree::rule_log),
        ],
    },
    Scenario {
        name: "erdma-agree",
        script: script!("erdma-agree.sh"),
        entries: "4000000",
        memory_mib: 1024,
        append: "huge2m=64",
        seconds: 400,
        host_checks: &[("layouts", layouts::agree)],
    },
    Scenario {
        name: "erdma-agree-long",
        script: script!("erdma-agree-long.sh"),
        entries: "4000000",
        memory_mib: 8192,
        append: "hugepagesz=1G hugepages=5",
        seconds: 500,
        host_checks: &[("layouts", layouts::agree)],
    },
    Scenario {
        name: "erdma-article",
        script: script!("erdma-article.sh"),
        entries: "33554431",
        memory_mib: 768,
        append: "huge2m=40",
        seconds: 500,
        host_checks: &[
            ("gapless", layouts::gapless),
            ("device-log", agree::device_log),
        ],
    },
    Scenario {
        name: "erdma-faults",
        script: script!("erdma-faults.sh"),
        entries: "3000000",
        memory_mib: 768,
        append: "huge2m=100",
        seconds: 400,
        host_checks: &[("tables", agree::tables)],
    },
    Scenario {
        name: "erdma-faults-late",
        script: script!("erdma-faults-late.sh"),
        entries: "3000000",
        memory_mib: 768,
        append: "huge2m=100",
        seconds: 300,
        host_checks: &[("tables", agree::tables)],
    },
    Scenario {
        name: "erdma-overlap",
        script: script!("erdma-overlap.sh"),
        entries: "3000000",
        memory_mib: 768,
        append: "guest.kprobes huge2m=136",
        seconds: 240,
        host_checks: &[
            ("overlap-at-the-device", overlap::overlap),
            ("released", agree::released),
        ],
    },
    Scenario {
        name: "erdma-defects",
        script: script!("erdma-defects.sh"),
        entries: "3000000",
        memory_mib: 8192,
        append: "hugepagesz=1G hugepages=5",
        seconds: 400,
        host_checks: &[
            ("scatter-at-the-device", defects::scatter),
            ("lengths-at-the-device", defects::lengths),
            ("released", agree::released),
        ],
    },
    Scenario {
        name: "erdma-budget",
        script: script!("erdma-budget.sh"),
        entries: "3000000",
        memory_mib: 1536,
        append: "huge2m=40",
        seconds: 400,
        host_checks: &[("released", agree::released)],
    },
    Scenario {
        name: "erdma-scale",
        script: script!("erdma-scale.sh"),
        entries: "33554431",
        memory_mib: 512,
        append: "huge2m=40",
        seconds: 400,
        host_checks: &[("device-log", agree::device_log)],
    },
    Scenario {
        name: "erdma-large",
        script: script!("erdma-large.sh"),
        entries: "3000000",
        memory_mib: 8192,
        append: "hugepagesz=1G hugepages=5",
        seconds: 400,
        host_checks: &[
            ("device-log", agree::device_log),
            ("rule-log", agree::rule_log),
        ],
    },
];

const MODULES: &[&str] = &[
    "?virtio_pci",
    "virtio_net",
    "ib_uverbs",
    "rdma_ucm",
    "erdma",
];
const LATE: &[&str] = &["erdma"];

impl Scenario {
    /// Whether all that it checks are programs of this tree.
    pub(crate) fn needs_hugemr(&self) -> bool {
        !matches!(
            self.name,
            "erdma-basic" | "erdma-old-rule" | "erdma-scale" | "erdma-large"
        )
    }

    /// Whether it calls the program that registers memory of its own and tells what it predicted.
    pub(crate) fn needs_agree(&self) -> bool {
        self.script.contains("agree $DEVICE")
    }

    /// Whether `vm erdma` runs it without being asked to: these on three kernels take less than a quarter of an hour. The
    /// full scale of the article is asked for by name; `vm all` runs every one.
    pub(crate) fn in_default(&self) -> bool {
        matches!(
            self.name,
            "erdma-basic"
                | "erdma-hugemr"
                | "erdma-old-rule"
                | "erdma-agree"
                | "erdma-faults"
                | "erdma-defects"
        )
    }

    /// The checks in the guest and those outside of it.
    pub(crate) fn checks(&self) -> Result<Vec<String>> {
        let mut names = checks::list(self.script)?;
        names.extend(self.host_checks.iter().map(|check| check.0.to_owned()));
        Ok(names)
    }

    /// Boots one guest on one emulated device and judges both.
    pub(crate) fn run(&self, lab: &Lab<'_>, emulator: &Path, choice: &Choice) -> Result<Report> {
        choice.apply(&self.checks()?)?;
        let host = |name: &String| self.host_checks.iter().any(|check| check.0 == name);
        // A check outside needs all that happens inside.
        let inside = Choice {
            only: choice.only.clone().filter(|name| !host(name)),
            sabotage: choice.sabotage.clone().filter(|name| !host(name)),
        };
        let (modules, late_modules) = modules(lab)?;
        let tag = lab.tag(self.name, choice);
        let device = [
            "--entries",
            self.entries,
            "--mr-shift",
            "36",
            "--qp-blocks",
            "16",
        ];
        let device = [&device[..], &["--flags", "0x28"]].concat();
        let emulator = Emulator::start(emulator, &lab.cache.path("run"), &tag, &device)?;
        let spec = Spec {
            name: self.name,
            script: self.script.to_owned(),
            modules,
            late_modules,
            memory_mib: self.memory_mib,
            shared_memory: true,
            append: self.append,
            arguments: emulator.arguments(),
            limit: Duration::from_secs(self.seconds),
        };
        let (mut report, end) = lab.run(&spec, &inside)?;
        let mut events = emulator.finish()?;
        for (name, check) in self.host_checks {
            if choice.only.as_deref().is_some_and(|only| only != *name) {
                continue;
            }
            if choice.sabotage.as_deref() == Some(name) {
                // Half of what the device saw is lost, at the beginning and at the end.
                let quarter = events.len().div_ceil(4);
                events.truncate(events.len() - quarter);
                events.drain(..quarter);
            }
            let run = Run {
                version: lab.version,
                log: &end.log,
                events: &events,
            };
            report.add(name, agree::complete(&run).and_then(|()| check(&run)));
        }
        if choice.only.as_ref().is_some_and(host) {
            report
                .verdicts
                .retain(|verdict| choice.only.as_ref() == Some(&verdict.name));
        }
        Ok(report)
    }
}

/// What loads before the script, and what the script loads itself.
fn modules(lab: &Lab<'_>) -> Result<(Vec<Module>, Vec<Module>)> {
    let toolchain = Toolchain::fetch(lab.cache, lab.version, &lab.kernel)?;
    let mut all = Modules::open(&lab.kernel.modules)?;
    all.add(&toolchain.erdma()?)?;
    let order = all.load_order(MODULES)?;
    let (mut late, early): (Vec<_>, Vec<_>) = order
        .into_iter()
        .partition(|module| LATE.contains(&module.name.as_str()));
    ensure!(
        late.len() == LATE.len(),
        "the erdma module is among the modules"
    );
    let image = std::fs::read(toolchain.old_rule()?)?;
    println!("vm: {}", toolchain.provenance()?);
    late.push(Module {
        name: "hugemr_old_rule".into(),
        image,
    });
    Ok((early, late))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A guest without a program that its script calls fails late, and only there.
    #[test]
    fn guests_have_the_programs_that_their_scripts_call() {
        let needs: Vec<_> = SCENARIOS
            .iter()
            .filter(|scenario| scenario.needs_agree())
            .map(|scenario| scenario.name)
            .collect();
        assert_eq!(needs, ["erdma-collapse", "erdma-agree", "erdma-agree-long"]);
    }
}
