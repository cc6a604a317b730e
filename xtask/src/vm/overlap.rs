//! How many registrations and releases the device had before it at once, against the number of threads.
use std::collections::HashMap;

use anyhow::{Context as _, Result, ensure};

use super::agree::Run;
use super::answer::{Document, hexadecimal};
use super::emulator::{DeregMr, Event, RegMr};

/// Lines of the guest's log with the number of threads and a document behind it.
const MARK: &str = "| OVERLAP ";

/// MRs of a run whose arrival is told to the reader.
const TOLD: usize = 5;

/// With every answer late, one thread never has more than one command under way, and several have one each: as many
/// answers are owed, less one, as there are threads. Each MR arrives with the entries that were predicted.
pub(crate) fn overlap(run: &Run<'_>) -> Result<String> {
    let arrived: Vec<&RegMr> = run.events.iter().filter_map(registration).collect();
    let gone: Vec<&DeregMr> = run.events.iter().filter_map(release).collect();
    let (mut at, mut said) = (0, Vec::new());
    for line in run.log.lines() {
        let Some((threads, json)) = line.strip_prefix(MARK).and_then(|l| l.split_once(' ')) else {
            continue;
        };
        let threads: u64 = threads.parse().with_context(|| line.to_owned())?;
        let document: Document =
            serde_json::from_str(json).with_context(|| format!("in {json}"))?;
        let end = at + document.mrs.len();
        let (regs, frees) = arrived
            .get(at..end)
            .zip(gone.get(at..end))
            .context("the guest names more MRs than came and went")?;
        at = end;
        one_run(&document, regs, frees)?;
        for (what, waiting) in [
            ("registration", most(regs.iter().map(|mr| mr.waiting))),
            ("release", most(frees.iter().map(|mr| mr.waiting))),
        ] {
            ensure!(
                waiting + 1 == threads,
                "{}, and at the most crowded {what} {waiting} answers were owed",
                count(threads)
            );
        }
        said.push(told(threads, regs, frees));
    }
    ensure!(said.len() > 1, "the guest compares nothing");
    Ok(said.join("; "))
}

fn count(threads: u64) -> String {
    format!("{threads} thread{}", if threads == 1 { "" } else { "s" })
}

fn most(waiting: impl Iterator<Item = u64>) -> u64 {
    waiting.max().unwrap_or(0)
}

/// The regions of programs that the device took.
fn registration(event: &Event) -> Option<&RegMr> {
    match event {
        Event::RegMr(mr) if mr.kind == "user" && mr.result == "ok" => Some(mr),
        _ => None,
    }
}

fn release(event: &Event) -> Option<&DeregMr> {
    match event {
        Event::DeregMr(mr) if mr.result == "ok" => Some(mr),
        _ => None,
    }
}

/// The MRs of a document came in any order, as predicted, and went again.
fn one_run(document: &Document, regs: &[&RegMr], frees: &[&DeregMr]) -> Result<()> {
    let mut by_key: HashMap<u32, &RegMr> = regs.iter().map(|mr| (mr.key, *mr)).collect();
    ensure!(by_key.len() == regs.len(), "a key was given twice");
    for mr in &document.mrs {
        let [addr, lkey] = [&mr.addr, &mr.lkey].map(|text| hexadecimal(text));
        let found = regs.iter().find(|r| Some(r.va) == addr && r.len == mr.len);
        let found = found.with_context(|| format!("{} did not arrive", mr.addr))?;
        ensure!(
            lkey == Some(found.key.into()),
            "{}: key {}, at the device 0x{:x}",
            mr.addr,
            mr.lkey,
            found.key
        );
        let predicted = mr.predicted.as_ref().map(|p| p.entries);
        ensure!(
            predicted == Some(found.entries),
            "{}: {predicted:?} entries predicted, {} arrived",
            mr.addr,
            found.entries
        );
    }
    for free in frees {
        let known = by_key.remove(&free.key).is_some();
        ensure!(known, "key 0x{:x} went and had not come", free.key);
    }
    Ok(())
}

/// The first MRs as they arrived, and how many answers were owed at each.
fn told(threads: u64, regs: &[&RegMr], frees: &[&DeregMr]) -> String {
    let first = regs.iter().take(TOLD);
    let first: Vec<_> = first
        .map(|mr| format!("0x{:x} (key 0x{:x}) {}", mr.va, mr.key, mr.waiting))
        .collect();
    let waits = |waiting: Vec<u64>| {
        let waiting: Vec<_> = waiting.iter().map(u64::to_string).collect();
        waiting.join(" ")
    };
    let later = regs.windows(2).filter(|two| two[0].va > two[1].va).count();
    format!(
        "{}, {} MRs: {}, ...; answers owed at registrations {}, at releases {}; {later} came after a higher address",
        count(threads),
        regs.len(),
        first.join(", "),
        waits(regs.iter().map(|mr| mr.waiting).collect()),
        waits(frees.iter().map(|mr| mr.waiting).collect()),
    )
}

#[cfg(test)]
mod tests {
    use super::super::kernel::Version;
    use super::*;

    /// One thread, then two, with two MRs each.
    const LOG: &str = "\
| OVERLAP 1 {\"mrs\":[{\"addr\":\"0x1000\",\"len\":64,\"lkey\":\"0x100\",\"predicted\":{\"entries\":8}},\
{\"addr\":\"0x2000\",\"len\":64,\"lkey\":\"0x200\",\"predicted\":{\"entries\":8}}]}
| OVERLAP 2 {\"mrs\":[{\"addr\":\"0x1000\",\"len\":64,\"lkey\":\"0x100\",\"predicted\":{\"entries\":8}},\
{\"addr\":\"0x2000\",\"len\":64,\"lkey\":\"0x200\",\"predicted\":{\"entries\":8}}]}
";

    fn reg(key: u32, waiting: u64) -> Event {
        Event::RegMr(RegMr {
            n: 1,
            kind: "user".into(),
            key,
            va: u64::from(key) << 4,
            len: 64,
            page_shift: 12,
            level: 1,
            entries: 8,
            used: 0,
            budget: 100,
            result: "ok".into(),
            table_error: None,
            waiting,
        })
    }

    fn dereg(key: u32, waiting: u64) -> Event {
        Event::DeregMr(DeregMr {
            key,
            used: 0,
            result: "ok".into(),
            waiting,
        })
    }

    fn serial() -> Vec<Event> {
        vec![
            reg(0x100, 0),
            reg(0x200, 0),
            dereg(0x200, 0),
            dereg(0x100, 0),
        ]
    }

    fn at_once() -> Vec<Event> {
        vec![
            reg(0x200, 0),
            reg(0x100, 1),
            dereg(0x100, 0),
            dereg(0x200, 1),
        ]
    }

    fn judge(runs: [Vec<Event>; 2]) -> Result<String> {
        overlap(&Run {
            version: Version::V6_12,
            log: LOG,
            events: &runs.concat(),
        })
    }

    #[test]
    fn as_many_at_once_as_threads() {
        let said = judge([serial(), at_once()]).expect("as it should be");
        assert!(
            said.contains("registrations 0 1, at releases 0 1; 1 came after"),
            "{said}"
        );
    }

    #[test]
    fn too_few_and_too_many_are_found() {
        let crowded = |n| {
            vec![
                reg(0x100, 0),
                reg(0x200, n),
                dereg(0x200, 0),
                dereg(0x100, 1),
            ]
        };
        for (runs, word) in [
            ([serial(), serial()], "2 threads, and"),
            ([at_once(), at_once()], "1 thread, and"),
            ([serial(), crowded(2)], "registration 2"),
            (
                [serial(), [&at_once()[..2], &serial()[2..]].concat()],
                "release 0",
            ),
        ] {
            let error = judge(runs).expect_err(word).to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn other_mrs_than_those_named_are_found() {
        let mut wrong_entries = at_once();
        let Event::RegMr(mr) = &mut wrong_entries[0] else {
            unreachable!()
        };
        mr.entries = 4096;
        let mut freed_twice = at_once();
        freed_twice[2] = dereg(0x200, 0);
        for (second, word) in [
            (at_once()[..3].to_vec(), "more MRs than came and went"),
            (wrong_entries, "4096 arrived"),
            (freed_twice, "had not come"),
        ] {
            let error = judge([serial(), second]).expect_err(word).to_string();
            assert!(error.contains(word), "{error}");
        }
        let nothing = Run {
            version: Version::V6_12,
            log: "",
            events: &[],
        };
        assert!(overlap(&nothing).is_err());
    }
}
