//! Progress on standard error: bars on a terminal, one line a step elsewhere.

use std::io::IsTerminal as _;
use std::sync::Mutex;
use std::time::Duration;

use hugemr::{Event, Step};
use hugemr_core::size::Bytes;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::render::register::seconds;

/// Shows the steps of a transaction.
pub(crate) struct Steps {
    bars: Option<MultiProgress>,
    open: Mutex<Vec<(Step, ProgressBar)>>,
    quiet: bool,
}

impl Steps {
    /// `quiet`: nothing at all, for JSON.
    pub(crate) fn new(quiet: bool) -> Self {
        let terminal = !quiet && std::io::stderr().is_terminal();
        let bars = terminal
            .then(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10)));
        Self {
            bars,
            open: Mutex::new(Vec::new()),
            quiet,
        }
    }

    pub(crate) fn tell(&self, event: Event) {
        let mut open = self
            .open
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        match event {
            Event::Progress { step, done, total } => {
                let Some(bars) = &self.bars else { return };
                let known = open.iter().position(|(s, _)| *s == step);
                let i = known.unwrap_or_else(|| {
                    open.push((step, bars.add(bar(step, total))));
                    open.len() - 1
                });
                let bar = &open[i].1;
                // Threads tell in any order; a bar never goes back.
                bar.set_position(bar.position().max(done));
            }
            Event::End(step, took) => {
                if let Some(i) = open.iter().position(|(s, _)| *s == step) {
                    open.remove(i).1.finish_and_clear();
                }
                if !self.quiet && took > Duration::from_millis(1) {
                    self.line(&format!("{:10} {}", step.name(), seconds(took)));
                }
            }
            _ => {}
        }
    }

    fn line(&self, text: &str) {
        match &self.bars {
            Some(bars) => {
                let _gone = bars.println(text);
            }
            None => crate::commands::remark(text),
        }
    }

    /// Takes the bars away, when something went wrong in the middle.
    pub(crate) fn clear(&self) {
        let mut open = self
            .open
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        for (_, bar) in open.drain(..) {
            bar.finish_and_clear();
        }
    }
}

fn bar(step: Step, total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{prefix:10} [{bar:20}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec} {msg} eta {eta}",
    )
    .unwrap_or_else(|_| ProgressStyle::default_bar())
    .progress_chars("##-");
    ProgressBar::new(total)
        .with_style(style)
        .with_prefix(step.name())
        .with_message(format!("of {}", Bytes(total)))
}
