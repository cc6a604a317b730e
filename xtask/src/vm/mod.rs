//! Virtual machines with a real verbs stack, under QEMU in software emulation.
//!
//! Nothing is installed for them: QEMU, kernels and the guests' programs are Debian packages,
//! unpacked privately under `target/vm`.
use std::path::PathBuf;
use std::process::{Command, exit};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};

mod cache;
mod checks;
mod cpio;
mod guest;
mod initramfs;
mod judge;
mod kernel;
mod module;
mod modules;
mod options;
mod packages;
mod qemu;
mod rxe;
mod sabotage;
mod userland;

use cache::{Cache, Unavailable, workspace};
use judge::Report;
use options::{Options, Task, USAGE};

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
    let mut reports = Vec::new();
    match options.task {
        Task::Clean => return cache.clean(),
        Task::Rxe => run_rxe(&cache, options, &mut reports)?,
        Task::Fetch => {
            for v in kernel::Version::ALL {
                let k = kernel::Kernel::fetch(&cache, v)?;
                let t = module::Toolchain::fetch(&cache, v, &k)?;
                println!("{:?}", t.erdma());
                println!("{:?}", t.old_rule());
            }
            qemu::Qemu::with_vfio_user(&cache)?;
            return Ok(());
        }
        _ => bail!("not yet"),
    }
    println!();
    for (title, report) in &reports {
        println!("vm: {title:12} {}", report.closing_line());
    }
    println!("vm: total time {:.0} s", start.elapsed().as_secs_f64());
    let bad = reports.iter().filter(|(_, report)| !report.good()).count();
    ensure!(bad == 0, "{bad} of {} guests failed", reports.len());
    Ok(())
}

fn run_rxe(cache: &Cache, options: &Options, out: &mut Vec<(String, Report)>) -> Result<()> {
    let hugemr = hugemr(options)?;
    for version in &options.kernels {
        let rxe = rxe::Rxe::prepare(cache, *version, hugemr.clone())?;
        let list = checks::list(rxe::SCRIPT)?;
        let report = sabotage::run(&options.choice, &list, |choice| rxe.run(choice))?;
        println!("{}", report.table());
        out.push((format!("rxe {}", version.label()), report));
    }
    Ok(())
}

/// The command under test: as given, or built here.
fn hugemr(options: &Options) -> Result<PathBuf> {
    if let Some(path) = &options.hugemr {
        return std::path::absolute(path).context("--hugemr");
    }
    build("hugemr-cli", "hugemr")
}

/// Builds a program of the workspace as a user would.
fn build(package: &str, program: &str) -> Result<PathBuf> {
    let root = workspace()?;
    cache::step(
        &format!("build: cargo build --release -p {package}"),
        || {
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let mut build = Command::new(cargo);
            build
                .current_dir(&root)
                .args(["build", "--release", "-p", package]);
            cache::output(&mut build).map(drop)
        },
    )?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let path = root.join(target).join("release").join(program);
    ensure!(path.exists(), "{package} built no {}", path.display());
    Ok(path)
}
