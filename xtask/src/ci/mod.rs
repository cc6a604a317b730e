//! `cargo xtask ci`: everything that must hold before a merge, in order, with a table at the end.
//!
//! A step that fails does not stop the following ones, but for the first, which brings what the others need.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::tree::{Tree, cargo, root};

mod examples;
mod groups;
mod guests;
mod hugepages;
mod libtest;
mod oracle;
mod prepare;
mod release;
mod soak;
mod user;

pub(crate) use groups::is_root;
pub(crate) use hugepages::{interrupted, survive_interrupts};
use libtest::Counts;
pub(crate) use libtest::with_seed;
pub(crate) use prepare::{Package, install};
pub(crate) use soak::run as soak;

/// What a step that did not fail says about itself.
enum Outcome {
    Done(String),
    /// It cannot be done here, and why.
    Skipped(String),
}

/// What the steps share.
#[derive(Default)]
struct Ci {
    /// Over all test runs; `skipped` are ignored tests that no step ran.
    counts: Counts,
}

impl Ci {
    /// Adds a test run; fails where it failed.
    fn count(&mut self, run: libtest::Run, what: &str) -> Result<Counts> {
        self.counts.passed += run.counts.passed;
        self.counts.failed += run.counts.failed;
        if run.code != Some(0) {
            bail!(
                "{what}: {} passed, {} failed",
                run.counts.passed,
                run.counts.failed
            );
        }
        Ok(run.counts)
    }
}

/// name, what it does, how
type Step = (&'static str, &'static str, fn(&mut Ci) -> Result<Outcome>);

const PREPARE: &str = "prepare";
const STEPS: &[Step] = &[
    (
        PREPARE,
        "install what a fresh Debian machine lacks",
        prepare::step,
    ),
    ("fmt", "the code is formatted", fmt),
    ("tidy", "the house rules hold", tidy),
    ("clippy", "no warning from clippy", clippy),
    ("test", "unit, integration and doc tests", test),
    (
        "groups",
        "tests that need huge pages, root or a device, as far as this machine allows",
        groups::step,
    ),
    ("doc", "the documentation builds without a warning", doc),
    (
        "examples",
        "packages outside of the workspace, as a user would write them",
        examples::step,
    ),
    (
        "user",
        "the same tests as a user without rights, without network",
        user::step,
    ),
    (
        "release",
        "the release binary does not need libibverbs",
        release::binary,
    ),
    ("main-job", "the first command of README", release::main_job),
    (
        "oracle",
        "our declarations against the installed headers",
        oracle::step,
    ),
    (
        "vm-rxe",
        "a real verbs stack in a virtual machine",
        guests::rxe,
    ),
    (
        "vm-numa",
        "a software device in a guest with two NUMA nodes",
        guests::numa,
    ),
    (
        "vm-erdma",
        "Linux's erdma driver on the emulated device, quickly",
        guests::erdma,
    ),
];

pub(crate) fn run(args: &[String]) -> Result<()> {
    let Selection { steps, left_out } = match select(args)? {
        Some(selection) => selection,
        None => return Ok(()),
    };
    let (mut ci, mut table) = (Ci::default(), Vec::new());
    let start = Instant::now();
    for (number, (name, what, step)) in steps.iter().enumerate() {
        println!("\n== {}/{} {name}: {what}", number + 1, steps.len());
        let (begun, failed_before) = (Instant::now(), ci.counts.failed);
        let result = step(&mut ci);
        let took = begun.elapsed();
        let (state, note) = match result {
            Ok(Outcome::Done(note)) => ("ok", note),
            Ok(Outcome::Skipped(why)) => ("skipped", why),
            Err(error) => {
                // A step that failed without a failed test must show in the closing line too.
                ci.counts.failed += u64::from(ci.counts.failed == failed_before);
                ("FAILED", format!("{error:#}"))
            }
        };
        println!("== {name}: {state} after {}  {note}", seconds(took));
        table.push((*name, state, took, note));
        if *name == PREPARE && state == "FAILED" {
            break;
        }
    }
    println!("\nstep        state       time  note");
    for (name, state, took, note) in &table {
        let first = note.lines().next().unwrap_or_default();
        println!("{name:10}  {state:8}  {:>7}  {first}", seconds(*took));
    }
    println!("{:10}  {:8}  {:>7}", "all", "", seconds(start.elapsed()));
    let failed: Vec<&str> = table
        .iter()
        .filter(|row| row.1 == "FAILED")
        .map(|row| row.0)
        .collect();
    let Counts {
        passed,
        failed: failures,
        skipped,
    } = ci.counts;
    println!("{passed} passed, {failures} failed, {skipped} skipped");
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    if in_ci() && !left_out.is_empty() {
        bail!(
            "CI is set, and steps that could run were left out: {}",
            left_out.join(", ")
        );
    }
    Ok(())
}

struct Selection {
    steps: Vec<Step>,
    left_out: Vec<&'static str>,
}

fn select(args: &[String]) -> Result<Option<Selection>> {
    let (mut only, mut skip) = (Vec::new(), Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let list = match arg.as_str() {
            "--list" => {
                STEPS
                    .iter()
                    .for_each(|(name, what, _)| println!("{name:10} {what}"));
                return Ok(None);
            }
            "--only" => &mut only,
            "--skip" => &mut skip,
            other => bail!("{other}: ci knows --list, --only STEP and --skip STEP"),
        };
        match args
            .next()
            .and_then(|name| STEPS.iter().find(|step| step.0 == name))
        {
            Some(step) => list.push(step.0),
            None => bail!("{arg} wants the name of a step (see cargo xtask ci --list)"),
        }
    }
    let wanted =
        |step: &&Step| (only.is_empty() || only.contains(&step.0)) && !skip.contains(&step.0);
    let steps: Vec<Step> = STEPS.iter().filter(wanted).copied().collect();
    let left_out = STEPS
        .iter()
        .filter(|step| !wanted(step))
        .map(|step| step.0)
        .collect();
    Ok(Some(Selection { steps, left_out }))
}

fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// Runs a command to its end, its output shown; an error unless it succeeded.
fn must(command: &mut std::process::Command) -> Result<()> {
    println!("$ {}", shown(command));
    let status = command
        .status()
        .map_err(|error| cannot_start(command, &error))?;
    if !status.success() {
        bail!("{} ended with {status}", shown(command));
    }
    Ok(())
}

/// Runs a command to its end and gives what it wrote to standard output; an error unless it succeeded.
fn output(command: &mut std::process::Command) -> Result<String> {
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|error| cannot_start(command, &error))?;
    if !output.status.success() {
        bail!("{} ended with {}", shown(command), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn cannot_start(command: &std::process::Command, error: &std::io::Error) -> anyhow::Error {
    anyhow::anyhow!(
        "{} cannot be started: {error}",
        command.get_program().to_string_lossy()
    )
}

/// The command as a person would type it.
fn shown(command: &std::process::Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let name = program
        .file_name()
        .unwrap_or(program.as_os_str())
        .to_string_lossy()
        .into_owned();
    let set = command.get_envs().filter_map(|(key, value)| {
        value.map(|value| format!("{}={:?}", key.to_string_lossy(), value.to_string_lossy()))
    });
    let args = command
        .get_args()
        .map(|arg| arg.to_string_lossy().into_owned());
    set.chain([name]).chain(args).collect::<Vec<_>>().join(" ")
}

fn fmt(_: &mut Ci) -> Result<Outcome> {
    must(cargo().args(["fmt", "--all", "--check"]))?;
    // Packages outside of the workspace are not among `all`.
    let others = examples::manifests()?
        .into_iter()
        .chain([root().join("fuzz/Cargo.toml")]);
    for manifest in others {
        must(
            cargo()
                .args(["fmt", "--check", "--manifest-path"])
                .arg(manifest),
        )?;
    }
    Ok(Outcome::Done(String::new()))
}

fn tidy(_: &mut Ci) -> Result<Outcome> {
    let rules = crate::tidy::check(&Tree::read(&root())?)?;
    Ok(Outcome::Done(format!("{rules} rules")))
}

fn clippy(_: &mut Ci) -> Result<Outcome> {
    must(cargo().args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))?;
    Ok(Outcome::Done(String::new()))
}

fn test(ci: &mut Ci) -> Result<Outcome> {
    let run = libtest::run(cargo().args(["test", "--workspace", "--no-fail-fast"]))?;
    let ignored = run.counts.skipped;
    let counts = ci.count(run, "cargo test --workspace")?;
    Ok(Outcome::Done(format!(
        "{} passed, {ignored} ignored (see groups)",
        counts.passed
    )))
}

fn doc(_: &mut Ci) -> Result<Outcome> {
    must(
        cargo()
            .args(["doc", "--workspace", "--no-deps"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    Ok(Outcome::Done(String::new()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(args: &[&str]) -> Option<Vec<&'static str>> {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let selection = select(&args).ok()??;
        Some(selection.steps.iter().map(|step| step.0).collect())
    }

    #[test]
    fn steps_are_chosen_by_name() {
        assert_eq!(names(&[]).map(|all| all.len()), Some(STEPS.len()));
        assert_eq!(
            names(&["--only", "fmt", "--only", "doc"]),
            Some(vec!["fmt", "doc"])
        );
        assert_eq!(
            names(&["--skip", "fmt"]).map(|all| all.len()),
            Some(STEPS.len() - 1)
        );
        for wrong in [&["--only", "nothing"][..], &["--only"], &["--fast"]] {
            assert_eq!(names(wrong), None);
        }
    }

    #[test]
    fn commands_are_shown_as_typed() {
        let mut command = std::process::Command::new("/usr/bin/cargo");
        command.args(["doc", "--no-deps"]).env("A", "b c");
        assert_eq!(shown(&command), "A=\"b c\" cargo doc --no-deps");
    }
}
