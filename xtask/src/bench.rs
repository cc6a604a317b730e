//! `cargo xtask bench`: hugemr beside what users do by hand, as one table and as docs/performance.md.
//!
//! The program that measures is `side-by-side` in benches/. This task installs what it compares with, where it may,
//! and builds everything before anything is measured.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::ci::{Package, install, interrupted, is_root, survive_interrupts};
use crate::tree::{cargo, root, target_dir};

/// Packages with what hugemr is compared with, and what of them.
const PACKAGES: &[Package] = &[
    ("libucx0", "look-up: ucs_pgtable_lookup"),
    ("ibverbs-utils", "start: ibv_devinfo"),
    ("libhugetlbfs-bin", "start: hugeadm --pool-list"),
];

/// As `side-by-side` knows them: it is built for minutes before it could say that it has no such one.
const SUBJECTS: [&str; 6] = [
    "populate", "pipeline", "register", "lookup", "layout", "start",
];

const USAGE: &str = "\
bench [--quick] [SUBJECT...]   side by side; all subjects in full: docs/performance.md is written
bench --criterion [FILTER]     the criterion benchmarks instead";

pub(crate) fn run(args: &[String]) -> Result<()> {
    match args.split_first() {
        Some((first, filter)) if first == "--criterion" => done(
            cargo()
                .args(["bench", "--package", "hugemr-benches", "--benches", "--"])
                .args(filter),
        ),
        _ => side_by_side(args),
    }
}

fn side_by_side(args: &[String]) -> Result<()> {
    check(args)?;
    for (package, what_for) in install(PACKAGES) {
        eprintln!("not installed: {package} ({what_for}); its rows will say so");
    }
    // The command as users have it, and the program that measures built for speed, as who embeds the library builds.
    done(cargo().args(["build", "--profile", "release", "--package", "hugemr-cli"]))?;
    let mut build = cargo();
    build.args(["build", "--profile", "fast", "--package", "hugemr-benches"]);
    if cfg!(target_arch = "x86_64") {
        build.env("RUSTFLAGS", aligned(std::env::var("RUSTFLAGS").ok()));
    }
    done(&mut build)?;
    let mut program = Command::new(target_dir().join("fast/side-by-side"));
    program
        .current_dir(root())
        .arg("--hugemr")
        .arg(target_dir().join("release/hugemr"))
        .args(args);
    if args.is_empty() {
        program.args(["--markdown", "docs/performance.md"]);
    }
    if !is_root() {
        eprintln!("not root: no huge pages can be reserved, and pagemap hides physical addresses");
    }
    measured(&mut program)
}

fn check(args: &[String]) -> Result<()> {
    if let Some(flag) = args.iter().find(|a| a.starts_with('-') && *a != "--quick") {
        bail!("{flag}: {USAGE}");
    }
    let known = |arg: &str| arg == "--quick" || SUBJECTS.contains(&arg);
    if let Some(other) = args.iter().find(|arg| !known(arg)) {
        bail!("{other:?} is no subject: {}\n{USAGE}", SUBJECTS.join(", "));
    }
    Ok(())
}

/// Flags by which loops begin at a cache line. A loop of a dozen instructions that crosses one takes up to 1.4 times as long, and
/// whether it does is for the linker to say: any change anywhere would decide who is faster.
fn aligned(flags: Option<String>) -> String {
    let flags = flags.unwrap_or_default();
    format!("{flags} -C llvm-args=-x86-experimental-pref-innermost-loop-alignment=6")
        .trim_start()
        .to_owned()
}

/// Runs it to its end. A signal to this task goes on to the program, which gives back what it took; it is waited for.
fn measured(command: &mut Command) -> Result<()> {
    survive_interrupts();
    let program = command.get_program().to_owned();
    let mut child = command
        .stdin(Stdio::null())
        .spawn()
        .with_context(|| format!("starting {}", program.display()))?;
    let mut told = false;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if interrupted() && !told {
            told = true;
            // SAFETY: takes numbers. The child is ours and not waited for yet, so the number is still its own.
            unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    if !status.success() {
        bail!("{} ended with {status}", program.display());
    }
    Ok(())
}

fn done(command: &mut Command) -> Result<()> {
    let status = command.status()?;
    if !status.success() {
        bail!("{} ended with {status}", command.get_program().display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_subject_is_said_before_anything_is_built() {
        let of = |line: &str| {
            let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            check(&args).map_err(|error| error.to_string())
        };
        assert_eq!(of(""), Ok(()));
        assert_eq!(of("--quick lookup start"), Ok(()));
        assert!(of("lookup nope").is_err_and(|said| said.starts_with("\"nope\" is no subject")));
        assert!(of("--nope").is_err());
    }

    /// The program that measures has the same.
    #[test]
    fn the_subjects_are_those_of_the_program() {
        let source = include_str!("../../benches/src/bin/side-by-side/main.rs");
        let list = source
            .split_once("const SUBJECTS")
            .and_then(|(_, list)| list.split_once("];"));
        let (list, _) = list.expect("a list");
        let runs = list.matches("::run").count();
        assert_eq!(runs, SUBJECTS.len());
        for subject in SUBJECTS {
            assert!(list.contains(&format!("\"{subject}\",")), "{subject}");
            assert!(list.contains(&format!("{subject}::run")), "{subject}");
        }
    }
}
