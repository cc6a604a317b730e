//! What libtest prints: summaries, lists, reasons of ignored tests.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::{cannot_start, output, shown};
use crate::tree::cargo;

/// Tests by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) skipped: u64,
}

/// A run of one or more test binaries.
#[derive(Debug)]
pub(super) struct Run {
    /// Exit code; `None` where a signal ended it.
    pub(super) code: Option<i32>,
    pub(super) counts: Counts,
}

/// Where proptest finds the seed of its random input.
pub(super) const SEED: &str = "PROPTEST_RNG_SEED";

/// The seed where the environment names none: a run of the same commit says the same thing everywhere. New seeds are
/// tried by `cargo xtask soak`.
pub(super) const USUAL_SEED: u64 = 1;

/// Gives a command that runs tests the usual seed, unless one is named.
pub(crate) fn with_seed(command: &mut Command) -> &mut Command {
    if std::env::var_os(SEED).is_none() && !command.get_envs().any(|(key, _)| key == SEED) {
        command.env(SEED, USUAL_SEED.to_string());
    }
    command
}

/// Runs a command that runs tests; shows what it says and counts the summaries.
pub(super) fn run(command: &mut Command) -> Result<Run> {
    run_and_count(with_seed(command), summary)
}

/// The same for what says its counts in other words.
pub(super) fn run_and_count(
    command: &mut Command,
    summary: fn(&str) -> Option<Counts>,
) -> Result<Run> {
    println!("$ {}", shown(command));
    let spawned = command.stdout(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|error| cannot_start(command, &error))?;
    let mut counts = Counts::default();
    for line in BufReader::new(child.stdout.take().context("no pipe")?).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        println!("{line}");
        if let Some(more) = summary(&line) {
            counts.passed += more.passed;
            counts.failed += more.failed;
            counts.skipped += more.skipped;
        }
    }
    let code = child.wait()?.code();
    Ok(Run { code, counts })
}

/// Reads `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s`.
fn summary(line: &str) -> Option<Counts> {
    let (_, numbers) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let number = |what: &str| {
        let part = numbers
            .split("; ")
            .find_map(|part| part.strip_suffix(what))?;
        part.trim().parse().ok()
    };
    Some(Counts {
        passed: number("passed")?,
        failed: number("failed")?,
        skipped: number("ignored")?,
    })
}

/// A built test binary of the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Binary {
    /// `hugemr-core lib`.
    pub(super) name: String,
    pub(super) path: PathBuf,
    /// Where cargo would run it.
    pub(super) package_dir: PathBuf,
}

impl Binary {
    /// The binary, started as cargo starts it.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command
            .current_dir(&self.package_dir)
            .env("CARGO_MANIFEST_DIR", &self.package_dir);
        command
    }

    /// Its ignored tests by what they need: the text of the `ignore` attribute, as compiled in.
    pub(super) fn ignored(&self) -> Result<BTreeMap<String, Vec<String>>> {
        let list = output(
            self.command()
                .args(["--list", "--ignored", "--format", "terse"]),
        )?;
        let names: Vec<&str> = list
            .lines()
            .filter_map(|line| line.strip_suffix(": test"))
            .collect();
        let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
        if names.is_empty() {
            return Ok(groups);
        }
        // Named without --ignored, an ignored test is not run: libtest says why instead.
        let said = output(self.command().arg("--exact").args(&names))?;
        let mut reasons: BTreeMap<&str, &str> = said.lines().filter_map(ignored_line).collect();
        for name in names {
            let Some(reason) = reasons.remove(name) else {
                bail!("{}: {name} is ignored and does not say why", self.name);
            };
            groups
                .entry(reason.to_owned())
                .or_default()
                .push(name.to_owned());
        }
        Ok(groups)
    }
}

/// Reads `test pool::reserves ... ignored, needs root`: name and reason.
fn ignored_line(line: &str) -> Option<(&str, &str)> {
    let (name, state) = line.strip_prefix("test ")?.split_once(" ... ")?;
    Some((name, state.strip_prefix("ignored, ")?))
}

/// Builds all test binaries of the workspace and says where they are.
pub(super) fn binaries() -> Result<Vec<Binary>> {
    let messages =
        output(cargo().args(["test", "--workspace", "--no-run", "--message-format=json"]))?;
    let mut binaries: Vec<Binary> = messages.lines().filter_map(binary).collect();
    binaries.sort_by(|a, b| a.name.cmp(&b.name));
    if binaries.is_empty() {
        bail!("cargo built no test binary");
    }
    Ok(binaries)
}

/// Reads one of cargo's messages.
fn binary(message: &str) -> Option<Binary> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    let path = PathBuf::from(message["executable"].as_str().filter(|_| is_test)?);
    let package_dir = PathBuf::from(message["manifest_path"].as_str()?)
        .parent()?
        .to_path_buf();
    let target = &message["target"];
    let package = package_dir.file_name()?.to_string_lossy().into_owned();
    let name = format!(
        "{package} {} {}",
        target["kind"][0].as_str()?,
        target["name"].as_str()?
    );
    Some(Binary {
        name,
        path,
        package_dir,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_read() {
        let line = "test result: FAILED. 12 passed; 3 failed; 4 ignored; 0 measured; 5 filtered out; finished in 0.10s";
        assert_eq!(
            summary(line),
            Some(Counts {
                passed: 12,
                failed: 3,
                skipped: 4
            })
        );
        assert_eq!(summary("test result: the device says no"), None);
        assert_eq!(summary("test a ... ok"), None);
    }

    #[test]
    fn reasons_are_read() {
        assert_eq!(
            ignored_line("test a::b ... ignored, needs root"),
            Some(("a::b", "needs root"))
        );
        assert_eq!(ignored_line("test a::b ... ignored"), None);
        assert_eq!(ignored_line("test a::b ... ok"), None);
    }

    #[test]
    fn test_binaries_are_told_from_others() {
        let message = |test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/r/crates/core/Cargo.toml","target":{{"kind":["lib"],"name":"hugemr_core"}},"profile":{{"test":{test}}},"executable":"/t/core-1"}}"#
            )
        };
        let name = binary(&message(true)).map(|binary| binary.name);
        assert_eq!(name.as_deref(), Some("core lib hugemr_core"));
        assert_eq!(binary(&message(false)), None);
    }
}
