//! Virtual machines with a real verbs stack, under QEMU in software emulation.
//!
//! Nothing is installed for them: QEMU, kernels and the guests' programs are Debian packages,
//! unpacked privately under `target/vm`.
use std::path::PathBuf;
use std::process::exit;
use std::time::Instant;

use anyhow::{Result, ensure};

mod agree;
mod answer;
mod build;
mod cache;
mod checks;
mod collapsed;
mod conformance;
mod cpio;
mod defects;
mod emulator;
mod erdma;
mod guest;
mod initramfs;
mod judge;
mod kernel;
mod lab;
mod layouts;
mod mirror;
mod module;
mod modules;
mod numa;
mod options;
mod overlap;
mod packages;
mod proved;
mod qemu;
mod rxe;
mod sabotage;
mod step;
mod userland;

use build::{build, build_example, given, hugemr};
use cache::{Cache, Unavailable};
use erdma::{SCENARIOS, Scenario};
use judge::Report;
use kernel::{Kernel, Version};
use lab::Lab;
use module::Toolchain;
use options::{Options, Task, USAGE};
use qemu::Qemu;
use step::{step, together};

/// Reports by the guest's name.
type Reports = Vec<(String, Report)>;

/// `cargo xtask vm ...`
pub(crate) fn run(args: &[String]) -> Result<()> {
    let options = match Options::parse(args) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("xtask vm: {error:#}\n{USAGE}");
            exit(2);
        }
    };
    match perform(&options) {
        Err(error) if error.downcast_ref::<Unavailable>().is_some() => {
            eprintln!("xtask vm: {error:#}");
            exit(3);
        }
        result => result,
    }
}

fn perform(options: &Options) -> Result<()> {
    let start = Instant::now();
    let cache = Cache::open()?;
    let mut reports = Reports::new();
    match options.task {
        Task::Clean => return step("remove the cache", || cache.clean()),
        Task::Fetch => return fetch(&cache),
        Task::Rxe => run_rxe(&cache, options, &options.kernels, &mut reports)?,
        Task::Numa => run_numa(&cache, options, &options.kernels, &mut reports)?,
        Task::Erdma => run_erdma(&cache, options, &mut reports)?,
        Task::All => {
            run_rxe(&cache, options, &[Version::V6_1], &mut reports)?;
            run_numa(&cache, options, &[Version::V6_1], &mut reports)?;
            run_erdma(&cache, options, &mut reports)?;
        }
    }
    println!();
    for (title, report) in &reports {
        println!("vm: {title:20} {}", report.closing_line());
    }
    println!("vm: total time {:.0} s", start.elapsed().as_secs_f64());
    let bad = reports.iter().filter(|(_, report)| !report.good()).count();
    ensure!(bad == 0, "{bad} of {} guests failed", reports.len());
    Ok(())
}

/// Everything that guests are made of, but for programs of this tree.
fn fetch(cache: &Cache) -> Result<()> {
    Qemu::small(cache)?;
    Qemu::with_vfio_user(cache)?;
    fetch_kernels(cache, &Version::ALL)?;
    fetch_modules(cache, &Version::ALL)
}

fn fetch_kernels(cache: &Cache, versions: &[Version]) -> Result<()> {
    for version in versions {
        Lab::open(cache, *version, Qemu::small(cache)?, None)?;
    }
    Ok(())
}

/// The modules of a guest with an emulated device.
fn fetch_modules(cache: &Cache, versions: &[Version]) -> Result<()> {
    for version in versions {
        let toolchain = Toolchain::fetch(cache, *version, &Kernel::fetch(cache, *version)?)?;
        toolchain.erdma()?;
        toolchain.old_rule()?;
        println!("vm: {}", toolchain.provenance()?);
    }
    Ok(())
}

fn run_rxe(
    cache: &Cache,
    options: &Options,
    kernels: &[Version],
    reports: &mut Reports,
) -> Result<()> {
    let programs = || {
        let hugemr = hugemr(options)?;
        let suite = match &hugemr {
            Some(_) => rxe::suite()?,
            None => Vec::new(),
        };
        Ok((hugemr, suite))
    };
    let ((hugemr, suite), ()) = together(programs, || fetch_kernels(cache, kernels))?;
    for version in kernels {
        let mut lab = Lab::open(cache, *version, Qemu::small(cache)?, hugemr.as_deref())?;
        lab.programs.clone_from(&suite);
        let list = checks::list(&rxe::script())?;
        let report = sabotage::run(&options.choice, &list, |choice| rxe::run(&lab, choice))?;
        println!("{}", report.table());
        reports.push((format!("rxe {}", version.label()), report));
    }
    Ok(())
}

fn run_numa(
    cache: &Cache,
    options: &Options,
    kernels: &[Version],
    reports: &mut Reports,
) -> Result<()> {
    let (hugemr, ()) = together(|| hugemr(options), || fetch_kernels(cache, kernels))?;
    for version in kernels {
        let lab = Lab::open(cache, *version, Qemu::small(cache)?, hugemr.as_deref())?;
        let list = checks::list(numa::SCRIPT)?;
        let report = sabotage::run(&options.choice, &list, |choice| numa::run(&lab, choice))?;
        println!("{}", report.table());
        reports.push((format!("rxe-numa {}", version.label()), report));
    }
    Ok(())
}

fn run_erdma(cache: &Cache, options: &Options, reports: &mut Reports) -> Result<()> {
    let scenarios = scenarios(options)?;
    let guests = || {
        Qemu::with_vfio_user(cache)?;
        fetch_kernels(cache, &options.kernels)?;
        fetch_modules(cache, &options.kernels)
    };
    let (programs, ()) = together(|| Programs::build(options, &scenarios), guests)?;
    for version in &options.kernels {
        let qemu = Qemu::with_vfio_user(cache)?;
        let mut lab = Lab::open(cache, *version, qemu, programs.hugemr.as_deref())?;
        lab.programs.clone_from(&programs.agree);
        for scenario in &scenarios {
            let report = sabotage::run(&options.choice, &scenario.checks()?, |choice| {
                scenario.run(&lab, &programs.emulator, choice)
            })?;
            println!("{}", report.table());
            reports.push((format!("{} {}", scenario.name, version.label()), report));
        }
    }
    Ok(())
}

/// The scenarios that are asked for, as far as there are programs for them.
fn scenarios(options: &Options) -> Result<Vec<&'static Scenario>> {
    let mut scenarios = Vec::new();
    for scenario in SCENARIOS {
        let useful = !options.without_hugemr() || !scenario.needs_hugemr();
        let named = match options.scenarios.as_slice() {
            [] => options.everywhere() || scenario.in_default(),
            names => names.iter().any(|name| name == scenario.name),
        };
        if useful && named && options.choice.concerns(&scenario.checks()?) {
            scenarios.push(scenario);
        }
    }
    let names: Vec<_> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
    let unknown = options
        .scenarios
        .iter()
        .any(|name| !names.contains(&name.as_str()));
    ensure!(
        !unknown && !scenarios.is_empty(),
        "no scenario has that name and that check; there are: {}",
        names.join(", ")
    );
    Ok(scenarios)
}

/// What guests with an emulated device need of this tree.
struct Programs {
    emulator: PathBuf,
    hugemr: Option<PathBuf>,
    /// Registers random layouts and writes down what was predicted. Built of the tree under test, so left out where
    /// that is.
    agree: Vec<(&'static str, PathBuf)>,
}

impl Programs {
    fn build(options: &Options, scenarios: &[&Scenario]) -> Result<Self> {
        let hugemr = hugemr(options)?;
        let emulator = match &options.emulator {
            Some(path) => given(path)?,
            None => build("erdma-emulator", "erdma-emu")?,
        };
        let mut agree = Vec::new();
        if hugemr.is_some() && scenarios.iter().any(|scenario| scenario.needs_agree()) {
            agree.push(("agree", build_example("hugemr-verbs", "agree")?));
        }
        Ok(Self {
            emulator,
            hugemr,
            agree,
        })
    }
}
