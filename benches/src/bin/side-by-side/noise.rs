//! What others did on this machine while something was measured.
//!
//! A round counts only if the machine was ours: little CPU time of other processes and of the hypervisor, few involuntary
//! switches. CPU time of all is read from `/proc/stat` (proc_stat(5), ticks of 10 ms), our own from getrusage(2).

use std::fs;
use std::mem::MaybeUninit;
use std::time::Instant;

/// The state of the counters at a moment.
pub(crate) struct Watch {
    since: Instant,
    counters: Option<Counters>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    /// Seconds of CPU time of the whole machine that was spent, idle and steal excluded.
    busy: f64,
    /// Seconds that the hypervisor gave to others.
    steal: f64,
    /// Seconds of this process and its children that were waited for.
    own: f64,
    /// Involuntary context switches of the same.
    switches: f64,
}

/// What disturbed a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Noise {
    /// CPU time of others, in CPUs (1.0: one CPU all the time).
    pub(crate) others: f64,
    /// The same of the hypervisor.
    pub(crate) steal: f64,
    /// Involuntary context switches a second.
    pub(crate) switches: f64,
}

impl Noise {
    /// Whether the measurement counts. Accounting by ticks makes up to two of them out of nothing; and where it starts
    /// `processes`, each of them and its parent can push the other aside.
    pub(crate) fn is_quiet(&self, seconds: f64, processes: u32) -> bool {
        let slack = 0.02 / seconds.max(0.02);
        let switches = 150.0 + 2.0 * f64::from(processes) / seconds.max(0.02);
        self.others <= 0.06 + slack && self.steal <= 0.02 + slack && self.switches <= switches
    }
}

impl Watch {
    pub(crate) fn start() -> Self {
        Self {
            since: Instant::now(),
            counters: Counters::read(),
        }
    }

    /// What was going on, and for how many seconds. `None` where the counters cannot be read.
    pub(crate) fn end(self) -> (Option<Noise>, f64) {
        let seconds = self.since.elapsed().as_secs_f64();
        let noise = self
            .counters
            .zip(Counters::read())
            .map(|(from, to)| between(from, to, seconds));
        (noise, seconds)
    }
}

fn between(from: Counters, to: Counters, seconds: f64) -> Noise {
    let own = to.own - from.own;
    Noise {
        others: ((to.busy - from.busy - own) / seconds).max(0.0),
        steal: (to.steal - from.steal) / seconds,
        switches: (to.switches - from.switches) / seconds,
    }
}

impl Counters {
    fn read() -> Option<Self> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        // SAFETY: sysconf takes a number and touches no memory.
        let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
        let (busy, steal) = busy_and_steal(stat.lines().next()?)?;
        let seconds = |count: f64| count / ticks as f64;
        let mut counters = Self {
            busy: seconds(busy),
            steal: seconds(steal),
            ..Self::default()
        };
        for who in [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN] {
            let usage = usage(who)?;
            let time = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
            counters.own += time(usage.ru_utime) + time(usage.ru_stime);
            counters.switches += usage.ru_nivcsw as f64;
        }
        Some(counters)
    }
}

/// Ticks of `cpu  user nice system idle iowait irq softirq steal ...`.
fn busy_and_steal(line: &str) -> Option<(f64, f64)> {
    let mut words = line.split_ascii_whitespace();
    (words.next()? == "cpu").then_some(())?;
    let ticks: Vec<f64> = words.map_while(|word| word.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] = ticks[..] else {
        return None;
    };
    Some((user + nice + system + irq + softirq, steal))
}

fn usage(who: libc::c_int) -> Option<libc::rusage> {
    let mut usage = MaybeUninit::uninit();
    // SAFETY: the kernel writes a whole rusage to the place.
    let code = unsafe { libc::getrusage(who, usage.as_mut_ptr()) };
    // SAFETY: written, because the call succeeded.
    (code == 0).then(|| unsafe { usage.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_of_others_is_what_is_left() {
        let line = "cpu  100 10 50 9999 7 3 2 40 0 0";
        assert_eq!(busy_and_steal(line), Some((165.0, 40.0)));
        assert_eq!(busy_and_steal("cpu0 1 2 3 4 5 6 7 8"), None);
        assert_eq!(busy_and_steal("cpu 1 2"), None);
        let at = |busy, own| Counters {
            busy,
            own,
            ..Counters::default()
        };
        let noise = between(at(1.0, 0.5), at(4.0, 2.5), 2.0);
        assert_eq!(noise.others, 0.5);
        assert!(!noise.is_quiet(2.0, 0));
        let alone = between(at(1.0, 0.5), at(3.0, 2.5), 2.0);
        assert!(alone.is_quiet(2.0, 0));
        let pushed = Noise {
            switches: 200.0,
            ..alone
        };
        assert!(!pushed.is_quiet(2.0, 0) && !pushed.is_quiet(2.0, 49));
        assert!(pushed.is_quiet(2.0, 50));
    }

    #[test]
    fn our_own_work_is_not_noise() {
        let from = Counters::read().expect("Linux has these counters");
        let start = Instant::now();
        let mut x = 1u64;
        while start.elapsed().as_millis() < 100 {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        let to = Counters::read().expect("Linux has these counters");
        // Threads of other tests are ours too, so only a lower bound can be told.
        assert!(to.own > from.own && to.busy > from.busy);
    }
}
