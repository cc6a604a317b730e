//! `cargo xtask vm rxe`: checks on a software device with a real verbs stack and huge pages.
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::build::cargo;
use super::checks::Choice;
use super::conformance;
use super::judge::Report;
use super::lab::{Lab, Spec};
use super::modules::Modules;

const SCRIPT: &str = concat!(
    include_str!("../../guest/rxe.sh"),
    include_str!("../../guest/hugemr.sh"),
    include_str!("../../guest/hugemr-nobody.sh"),
    include_str!("../../guest/usage.sh")
);

/// `?` in front: a module that some kernels have built in or no longer need.
pub(super) const MODULES: &[&str] = &[
    "dummy",
    "?crc32_generic",
    "ib_uverbs",
    "rdma_ucm",
    "rdma_rxe",
];
/// 640 MiB in 2 MiB pages, one 1 GiB page, and room for the guest.
const MEMORY_MIB: u32 = 4096;
const HUGE: &str = "hugepagesz=1G hugepages=1 huge2m=320";

/// The shell with all checks of this guest.
pub(crate) fn script() -> String {
    SCRIPT.to_owned()
}

/// Boots one guest with a software device and judges it.
pub(crate) fn run(lab: &Lab<'_>, choice: &Choice) -> Result<Report> {
    let spec = Spec {
        name: "rxe",
        script: script(),
        modules: Modules::open(&lab.kernel.modules)?.load_order(MODULES)?,
        late_modules: Vec::new(),
        memory_mib: MEMORY_MIB,
        shared_memory: false,
        append: HUGE,
        arguments: Vec::new(),
        limit: Duration::from_secs(300),
    };
    let (report, end) = lab.run(&spec, choice)?;
    if let Some(table) = conformance::table(&end.log) {
        println!("{table}");
    }
    Ok(report)
}

/// The test suite of the backend as programs of a guest: itself, and fake-verbs, which it looks for at its side.
/// Built as `cargo test` builds them: a test is not worth the time that optimizing takes.
pub(crate) fn suite() -> Result<Vec<(&'static str, PathBuf)>> {
    let messages = cargo(&[
        "test",
        "--package",
        "hugemr-verbs",
        "--test",
        "suite",
        "--no-run",
        "--message-format=json",
    ])?;
    let suite = messages.lines().find_map(executable);
    let suite = suite.context("cargo built no test suite")?;
    let library = suite.with_file_name("libfake_verbs.so");
    Ok(vec![("verbs-suite", suite), ("libfake_verbs.so", library)])
}

/// The program that one of cargo's messages is about, where it is a test.
fn executable(message: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let is_test = message["profile"]["test"] == true;
    message["executable"]
        .as_str()
        .filter(|_| is_test)
        .map(PathBuf::from)
}
