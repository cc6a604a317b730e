//! Progress on standard error: bars on a terminal, one line a step elsewhere.
//!
//! A bar stands from the beginning of its step. Its speed is what was done over the time since then, waiting included, and
//! before anything is done there is none: a first number that is made up is worse than no number.

use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hugemr::host::reserve::{Change, Step as PoolStep};
use hugemr::{Event, Step};
use hugemr_core::probe::Progress;
use hugemr_core::size::{Bytes, Count, PageSize};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::render::reserve as render;
use crate::render::words::time;
use crate::signals::Watch;
use crate::waiting::Waiting;

/// Shows the steps of a transaction, and keeps what it did to the pools.
pub(crate) struct Steps<'a> {
    bars: Option<MultiProgress>,
    state: Mutex<State>,
    quiet: bool,
    watch: &'a Watch,
    /// Bytes that are to be populated and registered.
    total: u64,
}

#[derive(Default)]
struct State {
    open: Vec<(Step, ProgressBar)>,
    waiting: Option<Waiting>,
    pools: Pools,
}

/// What was done to the pools, pool by pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pools {
    /// From the first count found to what was there after the last write.
    pub(crate) raised: Vec<Change>,
    pub(crate) lowered: Vec<Change>,
    /// Pages that were to be given back, and were gone already.
    pub(crate) gone: Vec<(PageSize, u64)>,
}

impl Pools {
    pub(crate) fn note(&mut self, step: &PoolStep) {
        match step {
            PoolStep::Raising(change) => {
                let same = |c: &Change| c.page == change.page && c.node == change.node;
                if !self.raised.iter().any(same) {
                    let to = change.from;
                    self.raised.push(Change { to, ..*change });
                }
            }
            PoolStep::Came { node, pages } => {
                // Pools of one size are raised together, so the last of that node is meant.
                if let Some(change) = self.raised.iter_mut().rev().find(|c| c.node == *node) {
                    change.to = change.to.saturating_add(*pages);
                }
            }
            PoolStep::Lowering(change) => self.lowered.push(*change),
            PoolStep::Gone { page, pages, .. } => self.gone.push((*page, *pages)),
            PoolStep::Short(_) | PoolStep::Compacting | PoolStep::DroppingCaches => {}
        }
    }

    /// Pages that were gone already.
    pub(crate) fn gone(&self) -> u64 {
        self.gone.iter().map(|(_, pages)| pages).sum()
    }

    /// Only those to which something came.
    pub(crate) fn raised(&self) -> impl Iterator<Item = &Change> {
        self.raised.iter().filter(|change| change.to > change.from)
    }
}

impl<'a> Steps<'a> {
    /// `quiet`: nothing at all, for JSON.
    pub(crate) fn new(quiet: bool, watch: &'a Watch, total: u64) -> Self {
        let bars = (!quiet).then(|| MultiProgress::with_draw_target(target()));
        // On one that is hidden the lines between the bars would be lost, too.
        let bars = bars.filter(|bars| !bars.is_hidden());
        Self {
            bars,
            state: Mutex::default(),
            quiet,
            watch,
            total,
        }
    }

    pub(crate) fn tell(&self, event: Event) {
        if let Event::Begin(step) = event {
            self.watch.comes_to(step);
        }
        #[cfg(debug_assertions)]
        crate::test_at::event(&event, self.watch);
        self.watch.is_stopped();
        match event {
            Event::Begin(Step::Reserve) if !self.quiet => {
                self.state().waiting = Some(Waiting::start(self.bars.as_ref()));
            }
            Event::Begin(step) => {
                self.state().waiting = None;
                if matches!(step, Step::Populate | Step::Register) {
                    self.progress(step, 0, self.total);
                }
            }
            Event::Progress { step, done, total } => self.progress(step, done, total),
            Event::Pool(step) => {
                self.state().pools.note(&step);
                if let Some(text) = render::step(&step) {
                    self.line(&format!("{:10} {text}", Step::Reserve.name()));
                }
            }
            Event::End(step, took) => self.end(step, took),
            _ => {}
        }
    }

    fn progress(&self, step: Step, done: u64, total: u64) {
        let Some(bars) = &self.bars else { return };
        let open = &mut self.state().open;
        let known = open.iter().position(|(s, _)| *s == step);
        let i = known.unwrap_or_else(|| {
            open.push((step, bars.add(bar(step, total))));
            open.len() - 1
        });
        let bar = &open[i].1;
        // Threads tell in any order; a bar never goes back.
        bar.set_position(bar.position().max(done));
    }

    fn end(&self, step: Step, took: Duration) {
        {
            let mut state = self.state();
            if step == Step::Reserve {
                state.waiting = None;
            }
            if let Some(i) = state.open.iter().position(|(s, _)| *s == step) {
                state.open.remove(i).1.finish_and_clear();
            }
        }
        let text = match step {
            Step::Reserve => Some(render::raised(&self.pools())),
            Step::GiveBack => Some(render::lowered(&self.pools())),
            // Said by the command itself.
            Step::Hold => return,
            _ => None,
        };
        match text {
            Some(text) => self.line(&format!("{:10} {text}  {}", step.name(), time(took))),
            None if took > Duration::from_millis(1) => {
                self.line(&format!("{:10} {}", step.name(), time(took)));
            }
            None => {}
        }
    }

    fn line(&self, text: &str) {
        if self.quiet {
            return;
        }
        match &self.bars {
            Some(bars) => {
                let _gone = bars.println(text);
            }
            None => crate::commands::remark(text),
        }
    }

    /// What has been done to the pools so far.
    pub(crate) fn pools(&self) -> Pools {
        self.state().pools.clone()
    }

    /// Takes the bars away, when something went wrong in the middle.
    pub(crate) fn clear(&self) {
        let mut state = self.state();
        state.waiting = None;
        for (_, bar) in state.open.drain(..) {
            bar.finish_and_clear();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Standard error; hidden where it is no terminal, or one on which no line can be drawn anew (`TERM=dumb`).
fn target() -> ProgressDrawTarget {
    ProgressDrawTarget::stderr_with_hz(10)
}

/// What a probe has tried: on a terminal a line that changes, elsewhere nothing.
pub(crate) struct Trying {
    line: ProgressBar,
    start: Instant,
}

impl Trying {
    /// `quiet`: nothing at all, for JSON.
    pub(crate) fn start(quiet: bool) -> Self {
        let style = ProgressStyle::with_template("probe      {spinner} {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner());
        let target = if quiet {
            ProgressDrawTarget::hidden()
        } else {
            target()
        };
        let line = ProgressBar::with_draw_target(None, target).with_style(style);
        let start = Instant::now();
        Self { line, start }
    }

    pub(crate) fn tell(&self, progress: Progress) {
        if self.line.is_hidden() {
            return;
        }
        self.line.set_message(format!(
            "{} held, {}, {}, {}",
            Count(progress.mrs, "MR"),
            Count(progress.held, "entry"),
            Count(progress.tried, "registration"),
            time(self.start.elapsed())
        ));
        self.line.tick();
    }
}

impl Drop for Trying {
    fn drop(&mut self) {
        self.line.finish_and_clear();
    }
}

fn bar(step: Step, total: u64) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{prefix:10} [{bar:20}] {binary_bytes} {msg} {took} {pace}")
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .with_key(
                "took",
                |state: &ProgressState, out: &mut dyn std::fmt::Write| {
                    let _ = out.write_str(&time(state.elapsed()));
                },
            )
            .with_key(
                "pace",
                |state: &ProgressState, out: &mut dyn std::fmt::Write| {
                    let text = pace(state.pos(), state.len().unwrap_or(0), state.elapsed());
                    let _ = out.write_str(&text);
                },
            )
            .progress_chars("##-");
    ProgressBar::new(total)
        .with_style(style)
        .with_prefix(step.name())
        .with_message(format!("of {}", Bytes(total)))
}

/// Speed since the beginning, and what is left at that speed. Nothing before something is done.
fn pace(done: u64, total: u64, elapsed: Duration) -> String {
    let took = elapsed.as_secs_f64();
    if done == 0 || took <= 0.0 {
        return "no speed yet".to_owned();
    }
    let speed = done as f64 / took;
    let left = total.saturating_sub(done) as f64 / speed;
    let mut text = format!("{:.2} GiB/s", speed / (1u64 << 30) as f64);
    if left > 0.0 {
        let left = Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX);
        let _ = write!(text, ", {} left", time(left));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_what_was_done_over_all_the_time() {
        const GIB: u64 = 1 << 30;
        let after = |done, secs| pace(done, 10 * GIB, Duration::from_secs(secs));
        assert_eq!(after(0, 3), "no speed yet");
        assert_eq!(after(GIB, 0), "no speed yet");
        assert_eq!(after(GIB, 1), "1.00 GiB/s, 9.00 s left");
        // Waiting counts: the second GiB after 3 more seconds.
        assert_eq!(after(2 * GIB, 4), "0.50 GiB/s, 16.00 s left");
        assert_eq!(after(10 * GIB, 20), "0.50 GiB/s");
    }
}
