//! Random layouts: what was predicted, what the simulator computed, and what arrived at the device.
use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::agree::Run;
use super::emulator::{Event, RegMr};
use super::kernel::Version;

/// A line of the program `agree` in the guest.
#[derive(Debug, Deserialize)]
struct Line {
    kind: String,
    va: u64,
    len: u64,
    runs: u64,
    longest: u64,
    core: Option<Answer>,
    sim: Answer,
    real: Registered,
}

/// One MR as somebody says that it arrives, or the errno with which it does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
enum Answer {
    Arrives {
        shift: u8,
        entries: u64,
        level: u8,
        wire: u64,
    },
    Refused {
        errno: i32,
    },
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Registered {
    Lkey { lkey: u32 },
    Errno { errno: i32 },
}

/// tried, agreed, of them with a run of 4 GiB and more
#[derive(Debug, Default)]
struct Tally {
    tried: u64,
    agreed: u64,
    long: u64,
}

/// Page size, entries, level and length at the device are what core predicted before, and what the simulator computed.
pub(crate) fn agree(run: &Run<'_>) -> Result<String> {
    let mut arrived = run.events.iter().filter_map(|event| match event {
        Event::RegMr(mr) if mr.kind == "user" => Some(mr),
        _ => None,
    });
    let (mut tallies, mut rule) = (BTreeMap::<(String, String), Tally>::new(), String::new());
    let mut disagreed = Vec::new();
    for line in run.log.lines().filter_map(|line| line.strip_prefix("| ")) {
        if let Some(head) = line.strip_prefix("AGREE-SEED ") {
            println!("vm: layouts of seed {head}");
            rule = head.rsplit(' ').next().unwrap_or_default().to_owned();
            continue;
        }
        let Some(json) = line.strip_prefix("AGREE ") else {
            continue;
        };
        let line: Line = serde_json::from_str(json).with_context(|| format!("in {json}"))?;
        let seen = match line.real {
            Registered::Errno { errno } => Answer::Refused { errno },
            Registered::Lkey { lkey } => {
                let mr = arrived
                    .find(|mr| mr.va == line.va)
                    .with_context(|| format!("0x{:x} never arrived at the device", line.va))?;
                ensure!(
                    mr.key == lkey,
                    "key 0x{lkey:x} in the guest, 0x{:x} at the device",
                    mr.key
                );
                seen(mr)
            }
        };
        let tally = tallies
            .entry((rule.clone(), line.kind.clone()))
            .or_default();
        tally.tried += 1;
        tally.long += u64::from(line.longest >= 4 << 30);
        if line.core.is_some_and(|core| same(run.version, core, seen))
            && same(run.version, line.sim, seen)
        {
            tally.agreed += 1;
        } else {
            disagreed.push(format!(
                "{} of {} B at 0x{:x} ({} runs): core {:?}, simulator {:?}, device {seen:?}",
                line.kind, line.len, line.va, line.runs, line.core, line.sim
            ));
        }
    }
    ensure!(!tallies.is_empty(), "the guest tried no layout");
    println!("  rule  kind        tried  agreed  disagreed  run >= 4 GiB");
    for ((rule, kind), t) in &tallies {
        println!(
            "  {rule:4}  {kind:10}  {:5}  {:6}  {:9}  {:5}",
            t.tried,
            t.agreed,
            t.tried - t.agreed,
            t.long
        );
    }
    let tried: u64 = tallies.values().map(|t| t.tried).sum();
    ensure!(
        disagreed.is_empty(),
        "{} of {tried} disagree: {}",
        disagreed.len(),
        disagreed.join("; ")
    );
    let kinds: BTreeSet<&String> = tallies.keys().map(|(_, kind)| kind).collect();
    Ok(format!("{tried} layouts of {} kinds agree", kinds.len()))
}

fn seen(mr: &RegMr) -> Answer {
    Answer::Arrives {
        shift: mr.page_shift,
        entries: mr.entries,
        level: mr.level,
        wire: mr.len,
    }
}

/// The first driver says only inline or not: its tables have one level, of any size.
fn same(version: Version, said: Answer, seen: Answer) -> bool {
    let flat = |answer| match answer {
        Answer::Arrives {
            shift,
            entries,
            level,
            wire,
        } if version == Version::V6_1 => Answer::Arrives {
            shift,
            entries,
            level: level.min(1),
            wire,
        },
        other => other,
    };
    flat(said) == flat(seen)
}

/// The MRs that the last program registered follow each other without a gap, with their true lengths, 896 GiB in all.
pub(crate) fn gapless(run: &Run<'_>) -> Result<String> {
    let mut mrs = last_round(run.events);
    ensure!(!mrs.is_empty(), "no region arrived at the device");
    super::agree::released(run)?;
    mrs.sort_by_key(|mr| mr.va);
    let (mut end, mut bytes, mut entries) = (mrs[0].va, 0u64, 0u64);
    for mr in &mrs {
        ensure!(mr.va == end, "a gap: 0x{:x} follows 0x{end:x}", mr.va);
        ensure!(mr.len > 0, "0x{:x} arrived with length 0", mr.va);
        end = mr.va + mr.len;
        bytes += mr.len;
        entries += mr.entries;
    }
    ensure!(bytes == 896 << 30, "{bytes} B arrived, not 896 GiB");
    ensure!(entries == 458_752, "{entries} entries arrived, not 458,752");
    Ok(format!(
        "{} MRs, one range of 896 GiB, 458,752 entries",
        mrs.len()
    ))
}

/// The accepted regions since the device was last empty before one was registered.
fn last_round(events: &[Event]) -> Vec<&RegMr> {
    let (mut round, mut empty) = (Vec::new(), true);
    for event in events {
        match event {
            Event::RegMr(mr) if mr.kind == "user" && mr.result == "ok" => {
                if empty {
                    round.clear();
                }
                empty = false;
                round.push(mr);
            }
            Event::DeregMr(mr) => empty |= mr.used == 0,
            _ => {}
        }
    }
    round
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = concat!(
        "| AGREE-SEED 7 cap 4294963200 rule new\n",
        "| AGREE {\"kind\":\"2m\",\"number\":0,\"va\":2097152,\"len\":2097152,\"runs\":1,\"longest\":2097152,",
        "\"core\":{\"shift\":21,\"entries\":1,\"level\":0,\"wire\":2097152},",
        "\"sim\":{\"shift\":21,\"entries\":1,\"level\":0,\"wire\":2097152},\"real\":{\"lkey\":256}}\n",
    );

    fn arrived(entries: u64) -> Event {
        Event::RegMr(RegMr {
            n: 1,
            kind: "user".to_owned(),
            key: 256,
            va: 2_097_152,
            len: 2_097_152,
            page_shift: 21,
            level: 0,
            entries,
            used: 1,
            budget: 10,
            result: "ok".to_owned(),
            table_error: None,
            waiting: 0,
        })
    }

    #[test]
    fn three_answers_are_held_against_each_other() {
        let run = |events: &[Event]| {
            agree(&Run {
                version: Version::V6_12,
                log: LOG,
                events,
            })
        };
        assert!(run(&[arrived(1)]).is_ok());
        assert!(run(&[arrived(2)]).is_err());
        assert!(run(&[]).is_err());
    }

    /// Fourteen MRs as the article makes them, registered and released in order.
    fn round(base: u64, len: u64) -> Vec<Event> {
        let reg = |n: u32| {
            Event::RegMr(RegMr {
                n: u64::from(n) + 1,
                kind: "user".to_owned(),
                key: n << 8,
                va: base + (u64::from(n) << 36),
                len,
                page_shift: 21,
                level: 2,
                entries: 32_768,
                used: 32_768 * (u64::from(n) + 1),
                budget: 1 << 20,
                result: "ok".to_owned(),
                table_error: None,
                waiting: 0,
            })
        };
        let dereg = |n: u32| {
            Event::DeregMr(super::super::emulator::DeregMr {
                key: n << 8,
                used: 32_768 * u64::from(n),
                result: "ok".to_owned(),
                waiting: 0,
            })
        };
        (0..14).map(reg).chain((0..14).rev().map(dereg)).collect()
    }

    #[test]
    fn the_last_program_is_gapless_whatever_the_first_one_did() {
        let judge = |events: &[Event]| {
            gapless(&Run {
                version: Version::V6_12,
                log: "",
                events,
            })
        };
        let (cut, whole) = (round(1 << 40, 0), round(2 << 40, 64 << 30));
        assert!(judge(&whole).is_ok());
        assert!(judge(&[cut.clone(), whole.clone()].concat()).is_ok());
        assert!(judge(&[whole.clone(), cut].concat()).is_err());
        let mut gap = whole;
        gap.remove(3);
        assert!(judge(&gap).is_err());
    }
}
