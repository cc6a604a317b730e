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
    let test = [&["test"], &package[..], &["--test", "oracle"]].concat();
    let counts = ci.count(libtest::run(&mut linked(&test))?, "oracle")?;
    if counts.passed == 0 {
        bail!("the oracle compared nothing");
    }
    must(&mut linked(
        &[
            &["clippy"],
            &package[..],
            &["--all-targets", "--", "-D", "warnings"],
        ]
        .concat(),
    ))?;
    Ok(Outcome::Done(format!(
        "{} tests passed, linked build clean",
        counts.passed
    )))
}
