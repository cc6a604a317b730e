//! The virtual machines, each in a run of `cargo xtask vm` of its own.

use anyhow::Result;

use super::libtest::{self, Counts};
use super::{Ci, Outcome};
use crate::tree::cargo;

/// What `cargo xtask vm` ends with where packages or QEMU cannot be had.
const UNAVAILABLE: i32 = 3;

/// A real verbs stack: soft RoCE.
pub(super) fn rxe(ci: &mut Ci) -> Result<Outcome> {
    guest(ci, &["rxe"])
}

/// The same with two NUMA nodes.
pub(super) fn numa(ci: &mut Ci) -> Result<Outcome> {
    guest(ci, &["numa"])
}

/// Scenarios that are quick, and hold the command against Linux's own driver: what it does, what it says of faults, and
/// the defects that it plans around.
const SCENARIOS: [&str; 4] = [
    "erdma-basic",
    "erdma-hugemr",
    "erdma-faults",
    "erdma-defects",
];

/// Linux's own erdma driver on the emulated device, on one kernel. The rest is for `cargo xtask vm erdma`.
pub(super) fn erdma(ci: &mut Ci) -> Result<Outcome> {
    let named = SCENARIOS.iter().flat_map(|name| ["--scenario", name]);
    let args: Vec<&str> = ["erdma", "--kernel", "6.1"]
        .into_iter()
        .chain(named)
        .collect();
    guest(ci, &args)
}

fn guest(ci: &mut Ci, args: &[&str]) -> Result<Outcome> {
    let mut command = cargo();
    command
        .args(["run", "--quiet", "--package", "xtask", "--", "vm"])
        .args(args);
    let run = libtest::run_and_count(&mut command, closing_line)?;
    if run.code == Some(UNAVAILABLE) {
        return Ok(Outcome::Skipped(
            "packages or QEMU cannot be had (see above)".into(),
        ));
    }
    let skipped = run.counts.skipped;
    ci.counts.skipped += skipped;
    let Counts { passed, .. } = ci.count(run, "vm")?;
    Ok(Outcome::Done(format!(
        "{passed} checks passed, {skipped} skipped"
    )))
}

/// Reads `vm: rxe 6.1   12 passed, 0 failed, 1 skipped`.
fn closing_line(line: &str) -> Option<Counts> {
    let words: Vec<&str> = line.strip_prefix("vm: ")?.split_whitespace().collect();
    let &[.., passed, "passed,", failed, "failed,", skipped, "skipped"] = &words[..] else {
        return None;
    };
    let number = |word: &str| word.parse().ok();
    Some(Counts {
        passed: number(passed)?,
        failed: number(failed)?,
        skipped: number(skipped)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_read() {
        let counts = Counts {
            passed: 12,
            failed: 1,
            skipped: 2,
        };
        let line = "vm: erdma-basic 6.12     12 passed, 1 failed, 2 skipped";
        assert_eq!(closing_line(line), Some(counts));
        assert_eq!(closing_line("vm: total time 61 s"), None);
        assert_eq!(closing_line("12 passed, 1 failed, 2 skipped"), None);
    }
}
