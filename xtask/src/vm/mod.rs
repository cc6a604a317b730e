//! Virtual machines with a real verbs stack, under QEMU in software emulation.
//!
//! Nothing is installed for them: QEMU, kernels and the guests' programs are Debian packages,
//! unpacked privately under `target/vm`.
use std::path::{Path, PathBuf};
use std::process::{Command, exit};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};

mod agree;
mod answer;
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
mod userland;

use cache::{Cache, Unavailable, step, workspace};
use judge::Report;
use kernel::Version;
use lab::Lab;
use options::{Options, Task, USAGE};
use qemu::Qemu;

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

fn fetch(cache: &Cache) -> Result<()> {
    Qemu::small(cache)?;
    Qemu::with_vfio_user(cache)?;
    for version in Version::ALL {
        let lab = Lab::open(cache, version, Qemu::small(cache)?, None)?;
        let toolchain = module::Toolchain::fetch(cache, version, &lab.kernel)?;
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
    let hugemr = hugemr(options)?;
    let suite = match &hugemr {
        Some(_) => rxe::suite()?,
        None => Vec::new(),
    };
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
    let hugemr = hugemr(options)?;
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
    let hugemr = hugemr(options)?;
    let emulator = match &options.emulator {
        Some(path) => given(path)?,
        None => build("erdma-emulator", "erdma-emu")?,
    };
    let mut scenarios = Vec::new();
    for scenario in erdma::SCENARIOS {
        let useful = hugemr.is_some() || !scenario.needs_hugemr();
        let named = match options.scenarios.as_slice() {
            [] => options.everywhere() || scenario.in_default(),
            names => names.iter().any(|name| name == scenario.name),
        };
        if useful && named && options.choice.concerns(&scenario.checks()?) {
            scenarios.push(scenario);
        }
    }
    let names: Vec<_> = erdma::SCENARIOS
        .iter()
        .map(|scenario| scenario.name)
        .collect();
    let unknown = options
        .scenarios
        .iter()
        .find(|name| !names.contains(&name.as_str()));
    if unknown.is_some() || scenarios.is_empty() {
        bail!(
            "no scenario has that name and that check; there are: {}",
            names.join(", ")
        );
    }
    // Built of the tree under test, so left out where that is. It registers random layouts and writes down what was
    // predicted.
    let agree = match scenarios.iter().any(|scenario| scenario.needs_agree()) {
        true if hugemr.is_some() => vec![("agree", build_example("hugemr-verbs", "agree")?)],
        _ => Vec::new(),
    };
    for version in &options.kernels {
        let qemu = Qemu::with_vfio_user(cache)?;
        let mut lab = Lab::open(cache, *version, qemu, hugemr.as_deref())?;
        lab.programs.clone_from(&agree);
        for scenario in &scenarios {
            let report = sabotage::run(&options.choice, &scenario.checks()?, |choice| {
                scenario.run(&lab, &emulator, choice)
            })?;
            println!("{}", report.table());
            reports.push((format!("{} {}", scenario.name, version.label()), report));
        }
    }
    Ok(())
}

/// The command under test: as given, or built here. `none` leaves it out.
fn hugemr(options: &Options) -> Result<Option<PathBuf>> {
    match &options.hugemr {
        Some(path) if path.as_os_str() == "none" => Ok(None),
        Some(path) => given(path).map(Some),
        None => build("hugemr-cli", "hugemr").map(Some),
    }
}

fn given(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path)?;
    ensure!(path.is_file(), "no program {}", path.display());
    Ok(path)
}

/// Builds a program of the workspace as a user would.
fn build(package: &str, program: &str) -> Result<PathBuf> {
    cargo_build(&["-p", package], program)
}

/// Builds an example of the workspace.
fn build_example(package: &str, example: &str) -> Result<PathBuf> {
    cargo_build(
        &["-p", package, "--example", example],
        &format!("examples/{example}"),
    )
}

fn cargo_build(what: &[&str], program: &str) -> Result<PathBuf> {
    cargo(&[&["build", "--release"], what].concat())?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let path = workspace()?.join(target).join("release").join(program);
    given(&path).with_context(|| format!("no {program} was built"))
}

/// Runs cargo in the workspace and gives what it wrote to standard output.
fn cargo(what: &[&str]) -> Result<String> {
    let root = workspace()?;
    step(&format!("build: cargo {}", what.join(" ")), || {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        cache::output(build.current_dir(&root).args(what))
    })
}
