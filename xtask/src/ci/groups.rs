//! Tests that need more than any machine has: found by their `ignore` attribute, run where they can be.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use super::hugepages::{HugePages, interrupted, survive_interrupts};
use super::libtest::{self, Binary};
use super::{Ci, Outcome};
use crate::tidy::{NEEDS, need};

/// 2 MiB pages that a test may count on.
const TEST_PAGES: u64 = 512;

/// Names the device for tests that need a real one.
const DEVICE_VARIABLE: &str = "HUGEMR_TEST_DEVICE";

/// Ignored tests with one reason, by binary.
type Group = Vec<(Binary, Vec<String>)>;

pub(super) fn step(ci: &mut Ci) -> Result<Outcome> {
    let mut groups: BTreeMap<&str, Group> = BTreeMap::new();
    for binary in libtest::binaries()? {
        for (reason, names) in binary.ignored()? {
            let Some(need) = need(&reason) else {
                bail!("{}: {reason:?} is none of {NEEDS:?}", binary.name);
            };
            groups
                .entry(need)
                .or_default()
                .push((binary.clone(), names));
        }
    }
    let (mut notes, mut errors) = (Vec::new(), Vec::new());
    for (reason, group) in &groups {
        let count: usize = group.iter().map(|(_, names)| names.len()).sum();
        match prepare(reason)? {
            Host::Lacks(what) => {
                println!("skipped: {count} tests that say {reason:?}, because {what}");
                ci.counts.skipped += count as u64;
                notes.push(format!("{reason}: {count} skipped, {what}"));
            }
            Host::Ready(pages) => {
                println!("{count} tests that say {reason:?}");
                let ran = run_group(ci, group);
                if let Some(pages) = pages {
                    let added = pages.added();
                    pages.give_back()?;
                    println!("{added} pages of 2 MiB went back to the system");
                }
                match ran {
                    Ok(()) => notes.push(format!("{reason}: {count} ran")),
                    Err(error) => errors.push(format!("{reason}: {error:#}")),
                }
            }
        }
        if interrupted() {
            bail!("interrupted");
        }
    }
    if !errors.is_empty() {
        bail!("{}", errors.join("; "));
    }
    Ok(Outcome::Done(if notes.is_empty() {
        "no test is ignored".into()
    } else {
        notes.join("; ")
    }))
}

fn run_group(ci: &mut Ci, group: &Group) -> Result<()> {
    let mut errors = Vec::new();
    for (binary, names) in group {
        // One at a time: the pools belong to the whole machine.
        let args = ["--ignored", "--exact", "--test-threads=1"];
        let mut command = binary.command();
        if let Some(device) = verbs_device() {
            command.env(DEVICE_VARIABLE, device);
        }
        let run = libtest::run(command.args(args).args(names))?;
        let ran = run.counts.passed + run.counts.failed;
        let all = names.len() as u64;
        match ci.count(run, &binary.name) {
            Err(error) => errors.push(format!("{error:#}")),
            Ok(_) if ran != all => {
                errors.push(format!("{}: {ran} of {all} tests ran", binary.name))
            }
            Ok(_) => {}
        }
    }
    if errors.is_empty() {
        Ok(())
    } else {
        bail!("{}", errors.join("; "))
    }
}

/// Whether this machine has what a group needs.
enum Host {
    Ready(Option<HugePages>),
    Lacks(String),
}

fn prepare(reason: &str) -> Result<Host> {
    Ok(match reason {
        "needs root" if is_root() => Host::Ready(None),
        "needs root" => Host::Lacks("this is not root".into()),
        "needs huge pages and root" if !is_root() => Host::Lacks("this is not root".into()),
        "needs huge pages" | "needs huge pages and root" => {
            survive_interrupts();
            match HugePages::take(TEST_PAGES) {
                Ok(pages) => Host::Ready(Some(pages)),
                Err(error) => Host::Lacks(format!(
                    "{TEST_PAGES} pages of 2 MiB cannot be had: {error:#}"
                )),
            }
        }
        "needs a real verbs device" if verbs_device().is_some() => Host::Ready(None),
        "needs a real verbs device" => Host::Lacks("/sys/class/infiniband has no device".into()),
        "needs a guest" => Host::Lacks("cargo xtask vm runs it in its guest".into()),
        other => bail!("{other:?} is none of {NEEDS:?}"),
    })
}

pub(crate) fn is_root() -> bool {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// The device that was asked for, else the first.
fn verbs_device() -> Option<String> {
    if let Ok(name) = std::env::var(DEVICE_VARIABLE) {
        return Some(name);
    }
    let first = std::fs::read_dir("/sys/class/infiniband")
        .ok()?
        .next()?
        .ok()?;
    Some(first.file_name().to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fixed_form_is_known() {
        for reason in NEEDS {
            // Those with pages are known too, but asking would take pages.
            if !reason.contains("pages") {
                assert!(prepare(reason).is_ok(), "{reason}");
            }
        }
        assert!(prepare("needs luck").is_err());
    }
}
