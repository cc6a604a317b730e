//! Programs of this tree for the guests, built by cargo.
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::cache::{output, workspace};
use super::options::Options;
use super::step::step;

/// The command under test: as given, or built here. `none` leaves it out.
pub(crate) fn hugemr(options: &Options) -> Result<Option<PathBuf>> {
    match &options.hugemr {
        Some(_) if options.without_hugemr() => Ok(None),
        Some(path) => given(path).map(Some),
        None => build("hugemr-cli", "hugemr").map(Some),
    }
}

pub(crate) fn given(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path)?;
    ensure!(path.is_file(), "no program {}", path.display());
    Ok(path)
}

/// Builds a program of the workspace as a user would.
pub(crate) fn build(package: &str, program: &str) -> Result<PathBuf> {
    cargo_build(&["-p", package], program)
}

/// Builds an example of the workspace.
pub(crate) fn build_example(package: &str, example: &str) -> Result<PathBuf> {
    cargo_build(
        &["-p", package, "--example", example],
        &format!("examples/{example}"),
    )
}

fn cargo_build(what: &[&str], program: &str) -> Result<PathBuf> {
    cargo(&[&["build", "--release"], what].concat())?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let path = workspace()?.join(target).join("release").join(program);
    given(&path).with_context(|| format!("no {program} was built"))
}

/// Runs cargo in the workspace and gives what it wrote to standard output.
pub(crate) fn cargo(what: &[&str]) -> Result<String> {
    let root = workspace()?;
    step(&format!("build: cargo {}", what.join(" ")), || {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        output(build.current_dir(&root).args(what))
    })
}
