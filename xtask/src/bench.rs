//! `cargo xtask bench [FILTER]`: the benchmarks, with the machine that they ran on.

use anyhow::{Result, bail};

use crate::tree::cargo;

pub(crate) fn run(args: &[String]) -> Result<()> {
    println!("machine: {}", machine());
    let status = cargo()
        .args(["bench", "--package", "hugemr-benches", "--"])
        .args(args)
        .status()?;
    if !status.success() {
        bail!("cargo bench ended with {status}");
    }
    Ok(())
}

/// A number means nothing without the machine: processor, how many, kernel, load before the run.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let processor = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let processor = processor.map_or("unknown processor", |(_, name)| name);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let (kernel, load) = (read("/proc/sys/kernel/osrelease"), read("/proc/loadavg"));
    let load = load.split(' ').next().unwrap_or_default();
    format!(
        "{processor}, {cpus} CPUs, Linux {}, load {load}",
        kernel.trim()
    )
}
