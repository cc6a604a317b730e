//! `cargo xtask vm rxe`: checks on a software device with a real verbs stack and huge pages.
use std::time::Duration;

use anyhow::Result;

use super::checks::Choice;
use super::judge::Report;
use super::lab::{Lab, Spec};
use super::modules::Modules;

const SCRIPT: &str = concat!(
    include_str!("../../guest/rxe.sh"),
    include_str!("../../guest/hugemr.sh"),
    include_str!("../../guest/usage.sh")
);

/// `?` in front: a module that some kernels have built in or no longer need.
const MODULES: &[&str] = &[
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
    Ok(lab.run(&spec, choice)?.0)
}
