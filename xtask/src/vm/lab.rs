//! What every guest needs, fetched and built once, and one run of a guest with its checks.
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use super::cache::Cache;
use super::checks::{self, Choice};
use super::guest::{End, Guest};
use super::initramfs::Initramfs;
use super::judge::Report;
use super::kernel::{Kernel, Version};
use super::modules::Module;
use super::qemu::Qemu;
use super::step::step;
use super::userland::Userland;

const INIT: &str = include_str!("../../guest/init");
const LIB: &str = include_str!("../../guest/lib.sh");
/// Programs of our own for the guests, in C so that they share nothing with what is tested: a second opinion on
/// registration, the article's loop, and a writer of stamps.
const OWN: &[(&str, &str)] = &[
    ("mr-probe", include_str!("../../guest/probe.c")),
    ("mr-demo", include_str!("../../guest/demo.c")),
    ("mr-stamp", include_str!("../../guest/stamp.c")),
];

/// QEMU, kernel and programs for guests of one kernel version.
#[derive(Debug)]
pub(crate) struct Lab<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) version: Version,
    pub(crate) kernel: Kernel,
    qemu: Qemu,
    userland: Userland,
    own: Vec<(&'static str, PathBuf)>,
    hugemr: Option<PathBuf>,
    /// More programs of this tree, by the name that they have in the guest.
    pub(crate) programs: Vec<(&'static str, PathBuf)>,
}

/// A guest and its checks.
#[derive(Debug)]
pub(crate) struct Spec<'a> {
    /// Names its files, for example `rxe`.
    pub(crate) name: &'a str,
    /// Shell, with one function a check.
    pub(crate) script: String,
    /// Loaded in this order before the script starts.
    pub(crate) modules: Vec<Module>,
    /// Modules that the script loads itself.
    pub(crate) late_modules: Vec<Module>,
    pub(crate) memory_mib: u32,
    /// RAM that a device process can map.
    pub(crate) shared_memory: bool,
    /// More of the kernel's command line.
    pub(crate) append: &'a str,
    /// More of QEMU's.
    pub(crate) arguments: Vec<String>,
    pub(crate) limit: Duration,
}

impl<'a> Lab<'a> {
    pub(crate) fn open(
        cache: &'a Cache,
        version: Version,
        qemu: Qemu,
        hugemr: Option<&Path>,
    ) -> Result<Self> {
        let kernel = Kernel::fetch(cache, version)?;
        let userland = Userland::fetch(cache)?;
        let own = OWN
            .iter()
            .map(|(name, source)| Ok((*name, userland.compile(cache, name, source)?)))
            .collect::<Result<_>>()?;
        let hugemr = hugemr.map(Path::to_path_buf);
        Ok(Self {
            cache,
            version,
            kernel,
            qemu,
            userland,
            own,
            hugemr,
            programs: Vec::new(),
        })
    }

    /// What the files of a run are named after.
    pub(crate) fn tag(&self, name: &str, choice: &Choice) -> String {
        let tag = format!("{name}-{}", self.version.label());
        match &choice.sabotage {
            Some(check) => format!("{tag}-sabotage-{check}"),
            None => tag,
        }
    }

    /// Boots one guest, and judges what it says about the checks of its script.
    pub(crate) fn run(&self, spec: &Spec<'_>, choice: &Choice) -> Result<(Report, End)> {
        let names = choice.apply(&checks::list(&spec.script)?)?;
        let tag = self.tag(spec.name, choice);
        let initramfs = self.cache.path(format!("run/{tag}.cpio"));
        let mut root = Initramfs::new(&self.userland, INIT)?;
        root.modules(&spec.modules, &spec.late_modules);
        for (name, path) in &self.own {
            root.program(name, path)?;
        }
        if let Some(hugemr) = &self.hugemr {
            root.program("hugemr", hugemr)?;
        }
        for (name, path) in &self.programs {
            root.program(name, path)?;
        }
        root.text("lib.sh", LIB);
        root.text("main.sh", &format!("{}\nrun_checks\n", spec.script));
        root.text("checks", &format!("{}\n", names.join("\n")));
        root.text("sabotage", choice.sabotage.as_deref().unwrap_or(""));
        root.write(&initramfs)?;
        let guest = Guest {
            qemu: &self.qemu,
            kernel: &self.kernel,
            initramfs: &initramfs,
            memory_mib: spec.memory_mib,
            shared_memory: spec.shared_memory,
            append: spec.append,
            arguments: &spec.arguments,
            log: self.cache.path(format!("run/{tag}.log")),
            limit: spec.limit,
        };
        let release = &self.kernel.release;
        let what = format!("{}: run {} checks on {release}", spec.name, names.len());
        let end = step(&what, || guest.run())?;
        std::fs::remove_file(&initramfs)?;
        println!("vm: {} (log: {})", end.summary(), guest.log.display());
        Ok((Report::judge(&end.log, &names), end))
    }
}
