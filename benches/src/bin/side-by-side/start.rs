//! Whole processes, from posix_spawn to waitpid: starting, planning, memory.

use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use hugemr_benches::Random;

use crate::bench::Bench;
use crate::report::{Section, Target};
use crate::resident;
use crate::sample::{Effort, Way, alternate};

/// Runs of a process in one round: single runs of a millisecond are too short for the clock of the noise.
const RUNS: u32 = 20;
const VERSION: &str = "hugemr --version";
const DEVINFO: &str = "ibv_devinfo";
const HUGEADM: &str = "hugeadm --pool-list";

struct Program {
    path: CString,
    args: Vec<CString>,
}

impl Program {
    fn new(path: &Path, args: &[&str]) -> Result<Self> {
        let path = CString::new(path.as_os_str().as_encoded_bytes())?;
        let words = std::iter::once(Ok(path.clone())).chain(args.iter().map(|a| CString::new(*a)));
        Ok(Self {
            args: words.collect::<Result<_, _>>()?,
            path,
        })
    }

    /// How long it takes to its end.
    fn run(&self) -> Result<Duration> {
        let mut argv: Vec<*mut libc::c_char> = self
            .args
            .iter()
            .map(|arg| arg.as_ptr().cast_mut())
            .collect();
        argv.push(std::ptr::null_mut());
        let quiet = Quiet::new()?;
        let mut pid = 0;
        let start = Instant::now();
        // SAFETY: the strings and the array, which ends with null, live through the call; the environment is empty.
        let code = unsafe {
            libc::posix_spawn(
                &raw mut pid,
                self.path.as_ptr(),
                &raw const quiet.0,
                std::ptr::null(),
                argv.as_ptr(),
                [std::ptr::null_mut()].as_ptr(),
            )
        };
        if code != 0 {
            let error = std::io::Error::from_raw_os_error(code);
            return Err(error).with_context(|| format!("starting {:?}", self.path));
        }
        let mut status = 0;
        // SAFETY: the child is ours, and the place is written by the kernel.
        let got = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        let wall = start.elapsed();
        if got != pid {
            bail!("waitpid: {}", std::io::Error::last_os_error());
        }
        if libc::WIFSIGNALED(status) {
            bail!(
                "{:?} was killed by signal {}",
                self.path,
                libc::WTERMSIG(status)
            );
        }
        Ok(wall)
    }

    fn command(&self) -> Command {
        let word = |word: &CString| OsStr::from_bytes(word.as_bytes()).to_owned();
        let mut command = Command::new(word(&self.path));
        command.args(self.args.iter().skip(1).map(word)).env_clear();
        command
    }
}

/// Sends standard output and error nowhere.
struct Quiet(libc::posix_spawn_file_actions_t);

impl Quiet {
    fn new() -> Result<Self> {
        const NOWHERE: &CStr = c"/dev/null";
        let mut actions = MaybeUninit::uninit();
        // SAFETY: the place is written by the call.
        let code = unsafe { libc::posix_spawn_file_actions_init(actions.as_mut_ptr()) };
        if code != 0 {
            bail!("posix_spawn_file_actions_init: {code}");
        }
        // SAFETY: written, because the call succeeded.
        let mut quiet = Self(unsafe { actions.assume_init() });
        for fd in [1, 2] {
            // SAFETY: the actions are initialised, the name is a C string.
            let code = unsafe {
                libc::posix_spawn_file_actions_addopen(
                    &raw mut quiet.0,
                    fd,
                    NOWHERE.as_ptr(),
                    libc::O_WRONLY,
                    0,
                )
            };
            if code != 0 {
                bail!("posix_spawn_file_actions_addopen: {code}");
            }
        }
        Ok(quiet)
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // SAFETY: initialised, and destroyed once.
        unsafe { libc::posix_spawn_file_actions_destroy(&raw mut self.0) };
    }
}

/// A program in one of the usual folders.
fn find(name: &str) -> Option<PathBuf> {
    ["/usr/bin", "/usr/sbin", "/bin", "/sbin"]
        .iter()
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.is_file())
}

/// Programs that take turns run by run within a round, as somebody would start them: not each many times over from caches
/// that it has warmed for itself.
struct Turns<'a> {
    programs: &'a [(String, Program)],
    /// What the programs took whose time nobody has asked for yet.
    took: RefCell<Vec<Option<Duration>>>,
    random: RefCell<Random>,
}

impl<'a> Turns<'a> {
    fn new(programs: &'a [(String, Program)]) -> Self {
        let took = RefCell::new(vec![None; programs.len()]);
        Self {
            programs,
            took,
            random: RefCell::new(Random(17)),
        }
    }

    fn shuffle(&self, order: &mut [usize]) {
        let mut random = self.random.borrow_mut();
        for last in (1..order.len()).rev() {
            let other = random.below(last as u64 + 1);
            order.swap(last, usize::try_from(other).unwrap_or(last));
        }
    }

    /// Time of all runs of one program in this round; the first who asks runs all.
    fn of(&self, which: usize) -> Result<Duration> {
        let mut took = self.took.borrow_mut();
        if took[which].is_none() {
            took.fill(Some(Duration::ZERO));
            let mut order: Vec<usize> = (0..self.programs.len()).collect();
            for _ in 0..RUNS {
                // Nobody always comes behind the same one, which leaves more or less of use in the caches.
                self.shuffle(&mut order);
                for &i in &order {
                    let wall = self.programs[i].1.run()?;
                    took[i] = Some(took[i].unwrap_or_default() + wall);
                }
            }
        }
        Ok(took[which].take().unwrap_or_default())
    }
}

pub(crate) fn run(bench: &Bench) -> Result<Section> {
    let mut section = Section::new("Start", "");
    let Some(hugemr) = &bench.hugemr else {
        section.missing("the command hugemr was not given (--hugemr PATH)");
        return Ok(section);
    };
    section.about = format!(
        "Whole processes, {RUNS} runs of each in a round, in turn. Each program is a fresh copy, made in the same way, as an \
         installer makes it: how a file lies in the page cache (in large folios or in single pages) counts for more than what \
         is in it. `ibv_devinfo` finds {}.",
        if Path::new("/sys/class/infiniband").is_dir() {
            "the devices of this machine"
        } else {
            "no device"
        }
    );
    let installed = tempfile::tempdir().context("a folder for the programs")?;
    let install = |program: &Path| {
        let name = program.file_name().context("a program has a name")?;
        let copy = installed.path().join(name);
        std::fs::copy(program, &copy).with_context(|| format!("copying {}", program.display()))?;
        Ok::<_, anyhow::Error>(copy)
    };
    let hugemr = &install(hugemr)?;
    let plan = |size: &str| format!("hugemr plan {size}");
    let sizes = ["1GiB", "1TiB", "1PiB"];
    let mut programs = Vec::new();
    for size in sizes {
        let args = ["plan", size, "--device", "sim:erdma", "--pages", "2MiB"];
        programs.push((plan(size), Program::new(hugemr, &args)?));
    }
    let version = Program::new(hugemr, &["--version"])?;
    programs.push((VERSION.to_owned(), version));
    let no_device = Program::new(hugemr, &["devices"])?;
    programs.push(("hugemr devices".to_owned(), no_device));
    for (name, package, args) in [
        (DEVINFO, "ibverbs-utils", [].as_slice()),
        (HUGEADM, "libhugetlbfs-bin", ["--pool-list"].as_slice()),
    ] {
        let file = name.split(' ').next().unwrap_or(name);
        match find(file) {
            Some(path) => programs.push((name.to_owned(), Program::new(&install(&path)?, args)?)),
            None => section.missing(format!("{name} is not installed (Debian: {package})")),
        }
    }
    for (name, program) in &programs {
        let what = format!("{name}: largest resident memory");
        match resident::largest(&mut program.command()) {
            Ok(kib) => section.figure(what, format!("{kib} KiB")),
            Err(why) => section.missing(format!("{what}: {why:#}")),
        }
    }
    let turns = Turns::new(&programs);
    let ways = programs.iter().enumerate().map(|(i, (name, _))| {
        let turns = &turns;
        Way::new(name.as_str(), move || turns.of(i))
    });
    let effort = Effort {
        processes: RUNS * u32::try_from(programs.len())?,
        ..bench.effort(11)
    };
    let measured = alternate(&effort, ways.collect())?;
    let has = |name: &str| measured.names().iter().any(|n| n == name);
    if has(DEVINFO) {
        section.ratio(
            format!("{VERSION}: time over {DEVINFO}"),
            &measured,
            measured.ratio(VERSION, DEVINFO),
            Target::AtMost(1.1),
        );
    }
    for size in sizes {
        for (other, target) in [(DEVINFO, Target::AtMost(1.1)), (HUGEADM, Target::Told)] {
            if has(other) {
                let ratio = measured.ratio(&plan(size), other);
                let what = format!("{}: time over {other}", plan(size));
                let row = section.ratio(what, &measured, ratio, target);
                if size == "1TiB" {
                    row.at_a_glance();
                }
            }
        }
    }
    section.ratio(
        "a plan of 1 PiB: time over one of 1 GiB (a million times as much)",
        &measured,
        measured.ratio(&plan("1PiB"), &plan("1GiB")),
        Target::AtMost(1.5),
    );
    for name in measured.names() {
        let ms = measured.seconds(name).times(1e3 / f64::from(RUNS));
        section.figure(name, format!("{ms} ms"));
    }
    let bytes = std::fs::metadata(hugemr)?.len();
    section.figure(
        "size of the binary",
        format!("{:.2} MiB", bytes as f64 / (1 << 20) as f64),
    );
    Ok(section)
}
