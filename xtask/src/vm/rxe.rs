//! `cargo xtask vm rxe`: checks on a software device with a real verbs stack and huge pages.
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use super::cache::{Cache, step};
use super::checks::{self, Choice};
use super::guest::Guest;
use super::initramfs::Initramfs;
use super::judge::Report;
use super::kernel::{Kernel, Version};
use super::modules::Modules;
use super::qemu::Qemu;
use super::userland::Userland;

pub(crate) const INIT: &str = include_str!("../../guest/init");
pub(crate) const LIB: &str = include_str!("../../guest/lib.sh");
pub(crate) const PROBE: &str = include_str!("../../guest/probe.c");
pub(crate) const SCRIPT: &str = include_str!("../../guest/rxe.sh");

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
const LIMIT: Duration = Duration::from_secs(240);

/// Everything a guest with a software device needs, fetched and built.
#[derive(Debug)]
pub(crate) struct Rxe<'a> {
    cache: &'a Cache,
    version: Version,
    qemu: Qemu,
    kernel: Kernel,
    userland: Userland,
    probe: PathBuf,
    hugemr: PathBuf,
}

impl<'a> Rxe<'a> {
    pub(crate) fn prepare(cache: &'a Cache, version: Version, hugemr: PathBuf) -> Result<Self> {
        let qemu = Qemu::small(cache)?;
        let kernel = Kernel::fetch(cache, version)?;
        let userland = Userland::fetch(cache)?;
        let probe = userland.compile(cache, "mr-probe", PROBE)?;
        Ok(Self {
            cache,
            version,
            qemu,
            kernel,
            userland,
            probe,
            hugemr,
        })
    }

    /// Boots one guest and judges it.
    pub(crate) fn run(&self, choice: &Choice) -> Result<Report> {
        let names = choice.apply(&checks::list(SCRIPT)?)?;
        let tag = match &choice.sabotage {
            Some(name) => format!("rxe-{}-sabotage-{name}", self.version.label()),
            None => format!("rxe-{}", self.version.label()),
        };
        let mut root = Initramfs::new(&self.userland, INIT)?;
        root.modules(&Modules::open(&self.kernel.modules)?.load_order(MODULES)?);
        root.program("mr-probe", &self.probe)?;
        root.program("hugemr", &self.hugemr)?;
        root.text("lib.sh", LIB);
        root.text("main.sh", &format!("{SCRIPT}\nrun_checks\n"));
        root.text("checks", &format!("{}\n", names.join("\n")));
        root.text("sabotage", choice.sabotage.as_deref().unwrap_or(""));
        let initramfs = self.cache.path(format!("run/{tag}.cpio"));
        root.write(&initramfs)?;
        let guest = Guest {
            qemu: &self.qemu,
            kernel: &self.kernel,
            initramfs,
            memory_mib: MEMORY_MIB,
            shared_memory: false,
            append: HUGE.into(),
            arguments: Vec::new(),
            log: self.cache.path(format!("run/{tag}.log")),
            limit: LIMIT,
        };
        let what = format!("rxe: run {} checks on {}", names.len(), self.kernel.release);
        let end = step(&what, || guest.run())?;
        println!("vm: {} (log: {})", end.summary(), guest.log.display());
        Ok(Report::judge(&end.log, &names))
    }
}
