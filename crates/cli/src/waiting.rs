//! What is shown while a pool is being raised.
//!
//! Kernels from about 6.12 on publish the count of a pool only at the end of the write, so there is no share of the whole to
//! be shown: what can be told is the time, and how MemFree falls.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hugemr_host::facts::Memory;
use hugemr_host::root::Root;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::render::words::time;

/// Runs until it is dropped.
pub(crate) struct Waiting {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Waiting {
    /// On a terminal (`bars`) a line that changes, elsewhere a line now and then: also where no line can be drawn anew.
    pub(crate) fn start(bars: Option<&MultiProgress>) -> Self {
        let line = bars.filter(|bars| !bars.is_hidden()).map(|bars| {
            let style = ProgressStyle::with_template("reserve    {spinner} {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner());
            bars.add(ProgressBar::new_spinner().with_style(style))
        });
        let every = if line.is_some() {
            Duration::from_millis(250)
        } else {
            Duration::from_secs(10)
        };
        let (stop, stopped) = mpsc::channel::<()>();
        let start = Instant::now();
        let before = free();
        let tell = move || {
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let text = text(start.elapsed(), before, free());
                match &line {
                    Some(line) => {
                        line.set_message(text);
                        line.tick();
                    }
                    None => crate::commands::remark(&format!("reserve    {text}")),
                }
            }
            if let Some(line) = &line {
                line.finish_and_clear();
            }
        };
        // Without a thread nothing is shown, and the work goes on.
        let thread = std::thread::Builder::new()
            .name("hugemr-waiting".to_owned())
            .spawn(tell);
        Self {
            stop: Some(stop),
            thread: thread.ok(),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _told = thread.join();
        }
    }
}

fn free() -> Option<u64> {
    Memory::read(&Root::real()).free
}

fn text(elapsed: Duration, before: Option<u64>, now: Option<u64>) -> String {
    let mut text = time(elapsed);
    if let (Some(before), Some(now)) = (before, now) {
        let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64);
        let change = if now <= before {
            format!("{} less", gib(before - now))
        } else {
            format!("{} more", gib(now - before))
        };
        text = format!("{text}, MemFree {}, {change} than at the start", gib(now));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_falling_memory_are_told_and_no_share() {
        let gib = |n: u64| Some(n << 30);
        let told = |before, now| text(Duration::from_millis(12_340), before, now);
        assert_eq!(
            told(gib(1000), gib(780)),
            "12.34 s, MemFree 780.0 GiB, 220.0 GiB less than at the start"
        );
        assert_eq!(
            told(gib(1), gib(3)),
            "12.34 s, MemFree 3.0 GiB, 2.0 GiB more than at the start"
        );
        assert_eq!(told(None, gib(1)), "12.34 s");
    }

    #[test]
    fn it_ends_when_dropped() {
        let start = Instant::now();
        drop(Waiting::start(None));
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}
