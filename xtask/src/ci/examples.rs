//! Packages that use hugemr from outside of the workspace.

use std::path::PathBuf;

use anyhow::{Result, bail};

use super::{Ci, Outcome, libtest, must};
use crate::tree::{cargo, root, target_dir};

pub(super) fn step(ci: &mut Ci) -> Result<Outcome> {
    let manifests = manifests()?;
    if manifests.is_empty() {
        bail!("no package under examples/");
    }
    let mut errors = Vec::new();
    for manifest in &manifests {
        let name = manifest.display();
        must(
            cargo()
                .args(["tree", "--edges", "normal", "--manifest-path"])
                .arg(manifest),
        )?;
        let mut test = cargo();
        test.args(["test", "--manifest-path"]).arg(manifest);
        // One folder for all: they share their dependencies.
        let run = libtest::run(test.env("CARGO_TARGET_DIR", target_dir().join("examples")))?;
        if let Err(error) = ci.count(run, &name.to_string()) {
            errors.push(format!("{error:#}"));
        }
    }
    if errors.is_empty() {
        Ok(Outcome::Done(format!("{} packages", manifests.len())))
    } else {
        bail!("{}", errors.join("; "))
    }
}

/// The manifests of all packages under examples/.
pub(super) fn manifests() -> Result<Vec<PathBuf>> {
    let Ok(folders) = std::fs::read_dir(root().join("examples")) else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for folder in folders {
        let manifest = folder?.path().join("Cargo.toml");
        if manifest.is_file() {
            found.push(manifest);
        }
    }
    found.sort();
    Ok(found)
}
