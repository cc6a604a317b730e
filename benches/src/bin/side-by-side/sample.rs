//! Several ways to the same end, measured in turn.
//!
//! One *round* runs each way once, in an order that rotates. Rounds during which others used the machine are thrown away,
//! and ratios are taken within a round: what slows the whole machine down slows both sides of a ratio.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::noise::Watch;
use crate::stats::Spread;

/// One way. It answers the seconds that count, so that preparing and tidying up do not.
pub(crate) struct Way<'a> {
    name: String,
    run: Box<dyn FnMut() -> Result<f64> + 'a>,
}

impl<'a> Way<'a> {
    pub(crate) fn new(name: impl Into<String>, run: impl FnMut() -> Result<Duration> + 'a) -> Self {
        let mut run = run;
        Self {
            name: name.into(),
            run: Box::new(move || Ok(run()?.as_secs_f64())),
        }
    }
}

/// A signal that ends everything in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Set by the first SIGINT, SIGTERM or SIGHUP.
    pub(crate) fn on_signals() -> Result<Self> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let stop = Self::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&stop.0))?;
        }
        Ok(stop)
    }

    /// # Errors
    /// Where a signal came.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_set() {
            bail!("stopped by a signal");
        }
        Ok(())
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// How long to go on.
#[derive(Clone, Debug)]
pub(crate) struct Effort {
    /// Quiet rounds that are wanted.
    pub(crate) rounds: usize,
    /// When to give up on a busy machine.
    pub(crate) most: Duration,
    /// Processes that a round starts.
    pub(crate) processes: u32,
    pub(crate) stop: Stop,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Measured {
    names: Vec<String>,
    /// Seconds, by round and way. Of the quiet rounds; of all where too few were quiet.
    rounds: Vec<Vec<f64>>,
    pub(crate) quiet: usize,
    pub(crate) all: usize,
}

/// So few quiet rounds say nothing.
const LEAST: usize = 3;

/// Measures the ways in turn, after one round that does not count (it warms caches and memory up).
pub(crate) fn alternate(effort: &Effort, mut ways: Vec<Way<'_>>) -> Result<Measured> {
    let begin = Instant::now();
    let (mut quiet, mut loud) = (Vec::new(), Vec::new());
    let mut number = 0;
    loop {
        let watch = Watch::start();
        let mut round = vec![0.0; ways.len()];
        for step in 0..ways.len() {
            let which = (number + step) % ways.len();
            effort.stop.check()?;
            round[which] = (ways[which].run)()?;
        }
        number += 1;
        let (noise, seconds) = watch.end();
        if number == 1 {
            continue;
        }
        // Where nothing is known of others, nothing can be thrown away.
        if noise.is_none_or(|noise| noise.is_quiet(seconds, effort.processes)) {
            quiet.push(round);
        } else {
            loud.push(round);
        }
        if quiet.len() >= effort.rounds || begin.elapsed() > effort.most {
            break;
        }
    }
    let (few, all) = (quiet.len() < LEAST, quiet.len() + loud.len());
    let kept = quiet.len();
    if few {
        quiet.append(&mut loud);
    }
    Ok(Measured {
        names: ways.into_iter().map(|way| way.name).collect(),
        rounds: quiet,
        quiet: kept,
        all,
    })
}

impl Measured {
    /// Whether too few rounds were quiet, so that all were taken.
    pub(crate) fn is_disturbed(&self) -> bool {
        self.quiet < LEAST
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// Seconds of one way.
    pub(crate) fn seconds(&self, way: &str) -> Spread {
        let at = self.at(way);
        Spread::of(self.rounds.iter().map(|round| round[at]))
    }

    /// Seconds of one way over those of another, round by round.
    pub(crate) fn ratio(&self, way: &str, over: &str) -> Spread {
        let (way, over) = (self.at(way), self.at(over));
        Spread::of(self.rounds.iter().map(|round| round[way] / round[over]))
    }

    /// Adds the longer of two ways, round by round, as a way of its own.
    pub(crate) fn add_longer(&mut self, name: &str, one: &str, other: &str) {
        let (one, other) = (self.at(one), self.at(other));
        self.names.push(name.to_owned());
        for round in &mut self.rounds {
            let longer = round[one].max(round[other]);
            round.push(longer);
        }
    }

    /// The place of a way. A name that no way has is a mistake in this program.
    fn at(&self, way: &str) -> usize {
        let place = self.names.iter().position(|name| name == way);
        place.unwrap_or_else(|| panic!("no way {way:?} among {:?}", self.names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn effort(rounds: usize) -> Effort {
        Effort {
            rounds,
            // No round can be quiet enough for the clock: one that counts is enough.
            most: Duration::ZERO,
            processes: 0,
            stop: Stop::default(),
        }
    }

    #[test]
    fn ways_take_turns_and_the_first_round_does_not_count() {
        let order = RefCell::new(String::new());
        let way = |name: &'static str, millis: u64| {
            let order = &order;
            Way::new(name, move || {
                order.borrow_mut().push_str(name);
                Ok(Duration::from_millis(millis))
            })
        };
        let mut measured = alternate(&effort(1), vec![way("a", 4), way("b", 2)]).unwrap();
        assert_eq!(order.into_inner(), "abba");
        assert_eq!(measured.all, 1);
        assert_eq!(measured.ratio("a", "b").median, 2.0);
        measured.add_longer("longer", "b", "a");
        assert_eq!(measured.seconds("longer").median, 0.004);
    }

    #[test]
    fn a_signal_ends_it() {
        let mut effort = effort(1);
        effort.stop = Stop(Arc::new(AtomicBool::new(true)));
        let way = Way::new("a", || Ok(Duration::ZERO));
        assert!(alternate(&effort, vec![way]).is_err());
    }
}
