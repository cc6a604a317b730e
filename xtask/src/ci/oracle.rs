//! Our own declarations of libibverbs against those that bindgen makes of the installed headers.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use super::{Ci, Outcome, libtest, must};
use crate::tree::{cargo, target_dir};

/// A file, not a folder: a folder means the newest libclang in it, and rdma-sys 0.3 fails with 16 and newer.
const LIBCLANG: &[&str] = &[
    "/usr/lib/llvm-14/lib/libclang-14.so.1",
    "/usr/lib/llvm-14/lib/libclang.so.1",
];

pub(super) fn step(ci: &mut Ci) -> Result<Outcome> {
    let Some(libclang) = LIBCLANG.iter().find(|path| Path::new(path).is_file()) else {
        bail!("libclang 14 is not there (none of {})", LIBCLANG.join(", "));
    };
    let linked = |args: &[&str]| -> Command {
        let mut command = cargo();
        // A folder of its own: the feature changes how the backend is built.
        command
            .args(args)
            .env("CARGO_TARGET_DIR", target_dir().join("oracle"));
        command.env("LIBCLANG_PATH", libclang);
        command
    };
    let package = ["-p", "hugemr-verbs", "--features", "linked-verbs"];
    let mut test = |name: &str| -> Result<u64> {
        let test = [&["test"], &package[..], &["--test", name]].concat();
        let counts = ci.count(libtest::run(&mut linked(&test))?, name)?;
        if counts.passed == 0 {
            bail!("{name}: no test passed");
        }
        Ok(counts.passed)
    };
    let (compared, suite) = (test("oracle")?, test("suite")?);
    must(&mut linked(
        &[
            &["clippy"],
            &package[..],
            &["--all-targets", "--", "-D", "warnings"],
        ]
        .concat(),
    ))?;
    Ok(Outcome::Done(format!(
        "{compared} tests passed, and {suite} of the suite on the linked build, which is clean"
    )))
}
