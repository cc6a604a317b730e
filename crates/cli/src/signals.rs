//! Signals, for the commands that hold or change something: the first asks everything to stop in order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use hugemr::Step;
use hugemr_core::registrar::CancelToken;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::signal_name;

use crate::exit::Failure;

/// Signals that end a process that does not catch them, and that come from outside: a closed terminal or ssh session (HUP), a
/// quit key, a limit of CPU time, a watchdog (ABRT), a timer, the power supply. Those that a fault of the program raises
/// (SEGV, BUS, ILL, FPE, TRAP, SYS) are not among them, and KILL cannot be caught. signal(7).
const ENDING: &[i32] = &[
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGABRT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGSTKFLT,
    libc::SIGXCPU,
    libc::SIGXFSZ,
];

/// Those that are watched: SIGINT and SIGTERM always; the others, real-time ones included, unless this process was started
/// with them ignored (`nohup`).
fn watched() -> Vec<i32> {
    let others = ENDING.iter().copied();
    let real_time = libc::SIGRTMIN()..=libc::SIGRTMAX();
    let ignored = ignored();
    [SIGINT, SIGTERM]
        .into_iter()
        .chain(others.chain(real_time).filter(|signal| {
            let bit = u32::try_from(signal - 1).unwrap_or(0);
            ignored & (1u64 << bit) == 0
        }))
        .collect()
}

/// The set of ignored signals (`SigIgn` of proc(5)): bit 0 is signal 1.
fn ignored() -> u64 {
    let status = hugemr_host::root::Root::real().read("/proc/self/status");
    let status = status.unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

/// Watches the signals that would end this process, for the rest of it.
pub(crate) struct Watch {
    token: CancelToken,
    /// Set by the handler itself: a write to a pool that a signal has cut short is seen at once.
    flag: Arc<AtomicBool>,
    at: At,
    came: Mutex<mpsc::Receiver<i32>>,
    answered: Answered,
}

impl Watch {
    pub(crate) fn start() -> Result<Self, Failure> {
        let token = CancelToken::new();
        let flag = Arc::new(AtomicBool::new(false));
        let cannot = |e| Failure::system(format_args!("cannot watch signals: {e}"));
        let watched = watched();
        for &signal in &watched {
            signal_hook::flag::register(signal, Arc::clone(&flag)).map_err(cannot)?;
        }
        let (tell, came) = mpsc::channel();
        let mut signals = Signals::new(&watched).map_err(cannot)?;
        let cancel = token.clone();
        let at = At::default();
        let now = at.clone();
        let answered = Answered::default();
        let said = answered.clone();
        let watch = move || {
            let mut first = true;
            for signal in signals.forever() {
                cancel.cancel();
                if let Some(text) = answer(now.get(), first) {
                    crate::commands::remark(&format!("{}: {text}", name(signal)));
                }
                first = false;
                said.set();
                if tell.send(signal).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name("hugemr-signals".to_owned())
            .spawn(watch)
            .map_err(cannot)?;
        Ok(Self {
            token,
            flag,
            at,
            came: Mutex::new(came),
            answered,
        })
    }

    /// Whether a signal came; cancels the token, if the thread that does has not had its turn yet.
    pub(crate) fn is_stopped(&self) -> bool {
        if self.flag.load(Ordering::Acquire) {
            self.token.cancel();
        }
        self.token.is_cancelled()
    }

    /// Which step of the transaction has begun. Steps overlap: the last one in their order counts. After a signal it is
    /// left as it was when the signal came.
    pub(crate) fn comes_to(&self, step: Step) {
        if !self.is_stopped() {
            self.at.come_to(step);
        }
    }

    /// Cancelled by the first signal.
    pub(crate) fn token(&self) -> &CancelToken {
        &self.token
    }

    /// Whether a signal came, and which; does not wait.
    pub(crate) fn seen(&self) -> Option<&'static str> {
        self.came().try_recv().ok().map(name)
    }

    /// Waits for a signal.
    pub(crate) fn wait(&self) -> &'static str {
        self.came()
            .recv()
            .map_or("the end of the signal watch", name)
    }

    fn came(&self) -> MutexGuard<'_, mpsc::Receiver<i32>> {
        self.came.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watch {
    /// The command may see the flag and end before the thread that answers the signal had its turn: it gets it, so that
    /// no end is without its reason.
    fn drop(&mut self) {
        if self.flag.load(Ordering::Acquire) {
            self.answered.wait();
        }
    }
}

/// Whether a signal was answered. Clones are the same.
#[derive(Clone, Default)]
struct Answered(Arc<(Mutex<bool>, Condvar)>);

impl Answered {
    fn set(&self) {
        let (answered, changed) = &*self.0;
        *answered.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }

    /// At most a second: a terminal that takes no more text must not keep the process.
    fn wait(&self) {
        let (answered, changed) = &*self.0;
        let lock = answered.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = changed.wait_timeout_while(lock, Duration::from_secs(1), |answered| !*answered);
    }
}

/// The step of the transaction that is under way. Clones are the same place.
#[derive(Clone, Default)]
struct At(Arc<Mutex<Option<Step>>>);

impl At {
    fn come_to(&self, step: Step) {
        let mut at = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *at = (*at).max(Some(step));
    }

    fn get(&self) -> Option<Step> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a signal is answered with, by the step and by whether it is the first.
fn answer(at: Option<Step>, first: bool) -> Option<&'static str> {
    match (at, first) {
        // Who holds answers itself.
        (None | Some(Step::Hold), true) => None,
        (Some(Step::Register), true) => Some(
            "stopping and taking everything back; the pinning of an MR cannot be interrupted, so those under way are waited for",
        ),
        (Some(Step::Reserve), true) => {
            Some("stopping, and giving back what has come; this waits for the write to the pool")
        }
        (Some(Step::Deregister | Step::Unmap | Step::GiveBack), true) => {
            Some("already taking everything back")
        }
        (Some(Step::Map | Step::Populate | Step::Layout | Step::Verify), true) => {
            Some("stopping and taking everything back")
        }
        (_, false) => Some(
            "stopping already; kill -9 would leave huge pages behind where some were added, for hugemr release --stale",
        ),
    }
}

fn name(signal: i32) -> &'static str {
    signal_name(signal).unwrap_or("a signal")
}
