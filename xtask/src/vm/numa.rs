//! `cargo xtask vm numa`: a software device in a guest with two NUMA nodes.
use std::time::Duration;

use anyhow::Result;

use super::checks::Choice;
use super::judge::Report;
use super::lab::{Lab, Spec};
use super::modules::Modules;
use super::rxe;

/// The shell with all checks of this guest.
pub(crate) const SCRIPT: &str = include_str!("../../guest/rxe-numa.sh");

/// Of each node.
const NODE_MIB: u32 = 640;

/// Boots one guest with two nodes and judges it.
pub(crate) fn run(lab: &Lab<'_>, choice: &Choice) -> Result<Report> {
    let mut arguments = Vec::new();
    for node in 0..2 {
        // The one CPU is near node 0; node 1 has memory only.
        let cpus = if node == 0 { ",cpus=0" } else { "" };
        arguments.extend([
            "-object".to_owned(),
            format!("memory-backend-ram,id=node{node},size={NODE_MIB}M"),
            "-numa".to_owned(),
            format!("node,nodeid={node},memdev=node{node}{cpus}"),
        ]);
    }
    let spec = Spec {
        name: "rxe-numa",
        script: SCRIPT.to_owned(),
        modules: Modules::open(&lab.kernel.modules)?.load_order(rxe::MODULES)?,
        late_modules: Vec::new(),
        memory_mib: 2 * NODE_MIB,
        shared_memory: false,
        append: "",
        arguments,
        limit: Duration::from_secs(240),
    };
    Ok(lab.run(&spec, choice)?.0)
}
