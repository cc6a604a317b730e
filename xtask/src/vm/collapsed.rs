//! Memory that was collapsed between two registrations: what hugemr predicted, and what arrived at the device.
use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::agree::Run;
use super::emulator::Event;

/// The line of the program in the guest.
#[derive(Debug, Deserialize)]
struct Line {
    va: u64,
    len: u64,
    before: Predicted,
    after: Predicted,
    seconds_per_gib: f64,
}

#[derive(Debug, Deserialize)]
struct Predicted {
    shift: u8,
    entries: u64,
}

/// The range arrived twice, each time as predicted: in smaller pages first, then in pages of 2 MiB or more.
pub(crate) fn collapsed(run: &Run<'_>) -> Result<String> {
    let mut lines = run.log.lines();
    let json = lines.find_map(|line| line.strip_prefix("| COLLAPSE "));
    let json = json.context("the guest says nothing of a collapse")?;
    let line: Line = serde_json::from_str(json).with_context(|| format!("in {json}"))?;
    let arrived: Vec<_> = run
        .events
        .iter()
        .filter_map(|event| match event {
            Event::RegMr(mr) if mr.va == line.va && mr.len == line.len => Some(mr),
            _ => None,
        })
        .collect();
    let [first, second] = arrived.as_slice() else {
        anyhow::bail!("the range arrived {} times, not twice", arrived.len());
    };
    for (said, seen) in [(&line.before, first), (&line.after, second)] {
        ensure!(
            (said.shift, said.entries) == (seen.page_shift, seen.entries),
            "predicted 2^{} and {} entries, arrived 2^{} and {}",
            said.shift,
            said.entries,
            seen.page_shift,
            seen.entries
        );
    }
    ensure!(first.page_shift < 21, "the memory was huge before");
    ensure!(second.page_shift >= 21, "the memory is not huge afterwards");
    Ok(format!(
        "{} entries before, {} after, as predicted; {:.2} s/GiB",
        first.entries, second.entries, line.seconds_per_gib
    ))
}
