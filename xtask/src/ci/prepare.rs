//! What a fresh Debian machine with Rust lacks.

use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use super::groups::is_root;
use super::{Ci, Outcome, must};

/// A package, and what for.
pub(crate) type Package = (&'static str, &'static str);

/// What CI needs. The virtual machines fetch their own, privately.
const PACKAGES: &[Package] = &[
    ("gcc", "the linker, and readelf"),
    ("libc6-dev", "to link"),
    ("pkg-config", "oracle: finds libibverbs"),
    (
        "libibverbs-dev",
        "oracle: the headers that our declarations are held against",
    ),
    ("librdmacm-dev", "oracle: rdma-sys wants it"),
    (
        "libclang-14-dev",
        "oracle: bindgen of rdma-sys fails with 16 and newer",
    ),
    ("clang-14", "oracle: the compiler's own headers"),
    (
        "util-linux",
        "setpriv and unshare, for the run without rights",
    ),
];

pub(super) fn step(_: &mut Ci) -> Result<Outcome> {
    if !is_debian() {
        let names: Vec<&str> = PACKAGES.iter().map(|(name, _)| *name).collect();
        let list = names.join(" ");
        return Ok(Outcome::Skipped(format!(
            "not a Debian system; needed, by Debian's names: {list}"
        )));
    }
    let missing = missing(PACKAGES);
    if missing.is_empty() {
        return Ok(Outcome::Done(format!(
            "{} packages are there",
            PACKAGES.len()
        )));
    }
    for (name, what_for) in &missing {
        println!("missing: {name:16} {what_for}");
    }
    let names: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
    if !is_root() {
        bail!(
            "as root: apt-get update && apt-get install {}",
            names.join(" ")
        );
    }
    get(&names)?;
    Ok(Outcome::Done(format!("installed {}", names.join(" "))))
}

/// Installs what is missing where that can be done, and tells what is missing still. Nothing depends on it: a failure
/// is said and goes on.
pub(crate) fn install(packages: &[Package]) -> Vec<Package> {
    if !is_debian() {
        return packages.to_vec();
    }
    let names: Vec<&str> = missing(packages).iter().map(|(name, _)| *name).collect();
    if is_root()
        && !names.is_empty()
        && let Err(error) = get(&names)
    {
        eprintln!("{error:#}");
    }
    missing(packages)
}

fn missing(packages: &[Package]) -> Vec<Package> {
    let missing = packages.iter().filter(|(name, _)| !installed(name));
    missing.copied().collect()
}

fn get(names: &[&str]) -> Result<()> {
    must(apt().args(["update", "-q"]))?;
    must(
        apt()
            .args(["install", "-q", "-y", "--no-install-recommends"])
            .args(names),
    )
}

fn is_debian() -> bool {
    works(Command::new("dpkg-query").arg("--version"))
}

fn apt() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

fn installed(package: &str) -> bool {
    let status = Command::new("dpkg-query")
        .args(["-W", "-f", "${db:Status-Status}", package])
        .output();
    status.is_ok_and(|output| output.stdout.starts_with(b"installed"))
}

fn works(command: &mut Command) -> bool {
    let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}
