//! What the guest says it did, against what the device says it saw.
use std::collections::HashMap;

use anyhow::{Context as _, Result, bail, ensure};

use super::emulator::{DeregMr, Event, RegMr};

/// A region that the probe in the guest registered: first address and length.
type Region = (u64, u64);

/// Every region the probe names arrived with that address and length, in that order; and nothing
/// is lent at the end.
pub(crate) fn device_log(log: &str, events: &[Event]) -> Result<String> {
    let said = regions(log);
    let seen: Vec<&RegMr> = user_regions(events)
        .filter(|mr| mr.result == "ok")
        .collect();
    ensure!(!said.is_empty(), "the guest names no region");
    let mut rest = seen.iter();
    for (va, len) in &said {
        let mr = rest.find(|mr| mr.va == *va);
        let mr = mr.with_context(|| format!("0x{va:x} never arrived at the device"))?;
        ensure!(
            mr.len == *len,
            "0x{va:x}: {len} bytes in the guest, {} at the device",
            mr.len
        );
    }
    for mr in &seen {
        if let Some(error) = &mr.table_error {
            bail!("the table of 0x{:x} is wrong: {error}", mr.va);
        }
        ensure!(
            mr.used <= mr.budget,
            "{} of {} entries lent",
            mr.used,
            mr.budget
        );
    }
    let left = lent_at_the_end(events)?;
    ensure!(left == 0, "{left} entries lent at the end");
    let entries: u64 = seen.iter().map(|mr| mr.entries).sum();
    Ok(format!(
        "{} regions of the guest among {} at the device, {entries} entries, all back",
        said.len(),
        seen.len()
    ))
}

/// Every line of the return probe names the page size with which the region arrived.
pub(crate) fn rule_log(log: &str, events: &[Event]) -> Result<String> {
    let calls: Vec<Call> = log.lines().filter_map(Call::parse).collect();
    ensure!(!calls.is_empty(), "the return probe says nothing");
    let mut replaced = 0;
    let mut seen = user_regions(events).filter(|mr| mr.result == "ok");
    for call in &calls {
        let mr = seen.find(|mr| mr.va == call.iova);
        let mr = mr.with_context(|| format!("0x{:x} never arrived", call.iova))?;
        let page = 1_u64 << mr.page_shift;
        if page == call.old && page != call.new {
            replaced += 1;
        }
        ensure!(
            page == call.old || page == call.new,
            "0x{:x}: page size {page} at the device, new rule {}, old rule {}",
            call.iova,
            call.new,
            call.old
        );
        let blocks = (call.iova + call.length).div_ceil(page) - call.iova / page;
        ensure!(
            mr.entries == blocks,
            "{} entries of {page} bytes, {blocks} needed",
            mr.entries
        );
    }
    ensure!(
        replaced > 0,
        "in none of {} calls was the page size replaced",
        calls.len()
    );
    Ok(format!(
        "{replaced} of {} calls arrived by the old rule, the others by the new",
        calls.len()
    ))
}

/// A line of the test module: `old rule: iova 0x.. length 0x.. new 0x.. old 0x..`
#[derive(Debug, PartialEq, Eq)]
struct Call {
    iova: u64,
    length: u64,
    new: u64,
    old: u64,
}

impl Call {
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line
            .split_once("old rule: ")?
            .1
            .split_whitespace()
            .collect();
        let of = |key: &str| {
            let at = words.iter().position(|word| *word == key)?;
            u64::from_str_radix(words.get(at + 1)?.strip_prefix("0x")?, 16).ok()
        };
        Some(Self {
            iova: of("iova")?,
            length: of("length")?,
            new: of("new")?,
            old: of("old")?,
        })
    }
}

fn user_regions(events: &[Event]) -> impl Iterator<Item = &RegMr> {
    events.iter().filter_map(|event| match event {
        Event::RegMr(mr) if mr.kind == "user" => Some(mr),
        _ => None,
    })
}

/// Lines `MR index address length` of the probe.
fn regions(log: &str) -> Vec<Region> {
    let parse = |line: &str| {
        let mut words = line.strip_prefix("| MR ")?.split_whitespace();
        let va = u64::from_str_radix(words.nth(1)?.strip_prefix("0x")?, 16).ok()?;
        Some((va, words.next()?.parse().ok()?))
    };
    log.lines().filter_map(parse).collect()
}

/// Counted here from what was given and taken back, and compared with the device's own count.
fn lent_at_the_end(events: &[Event]) -> Result<u64> {
    let (mut lent, mut claimed) = (HashMap::new(), 0);
    for event in events {
        match event {
            Event::RegMr(mr) if mr.result == "ok" => {
                lent.insert(mr.key, mr.entries);
                claimed = mr.used;
            }
            Event::DeregMr(DeregMr { key, used, result }) if result == "ok" => {
                ensure!(
                    lent.remove(key).is_some(),
                    "key 0x{key:x} released but never given"
                );
                claimed = *used;
            }
            Event::Reset {} => {
                lent.clear();
                claimed = 0;
            }
            _ => {}
        }
        let sum: u64 = lent.values().sum();
        ensure!(
            sum == claimed,
            "the device counts {claimed} entries, its log {sum}"
        );
    }
    Ok(claimed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reg(key: u32, va: u64, len: u64, page_shift: u8, entries: u64, used: u64) -> Event {
        let (kind, result) = ("user".into(), "ok".into());
        let (budget, table_error) = (100, None);
        Event::RegMr(RegMr {
            kind,
            key,
            va,
            len,
            page_shift,
            entries,
            used,
            budget,
            result,
            table_error,
        })
    }

    fn dereg(key: u32, used: u64) -> Event {
        Event::DeregMr(DeregMr {
            key,
            used,
            result: "ok".into(),
        })
    }

    const LOG: &str = "| MR 0 0x200000 4194304\n| registered 1 MRs\nPASS x\n";

    #[test]
    fn agreement() {
        let events = [reg(1, 0x20_0000, 4 << 20, 21, 2, 2), dereg(1, 0)];
        let said = device_log(LOG, &events).expect("agrees");
        assert!(said.starts_with("1 regions of the guest among 1"), "{said}");
    }

    #[test]
    fn each_disagreement_is_found() {
        let lost: [Event; 0] = [];
        let short = [reg(1, 0x20_0000, 1, 21, 2, 2), dereg(1, 0)];
        let kept = [reg(1, 0x20_0000, 4 << 20, 21, 2, 2)];
        let miscounted = [reg(1, 0x20_0000, 4 << 20, 21, 2, 3), dereg(1, 0)];
        for (events, word) in [
            (&lost[..], "never arrived"),
            (&short[..], "1 at the device"),
            (&kept[..], "lent at the end"),
            (&miscounted[..], "the device counts 3"),
        ] {
            let error = device_log(LOG, events).expect_err(word).to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn the_return_probe_is_held_against_the_device() {
        let line = "| old rule: iova 0x200000 length 0x400000 new 0x200000 old 0x1000\n";
        let by_old = [reg(1, 0x20_0000, 4 << 20, 12, 1024, 1024)];
        assert!(rule_log(line, &by_old).is_ok());
        let by_new = [reg(1, 0x20_0000, 4 << 20, 21, 2, 2)];
        assert!(
            rule_log(line, &by_new)
                .expect_err("not replaced")
                .to_string()
                .contains("none of 1")
        );
        let by_none = [reg(1, 0x20_0000, 4 << 20, 13, 512, 512)];
        assert!(
            rule_log(line, &by_none)
                .expect_err("neither")
                .to_string()
                .contains("8192")
        );
        assert!(rule_log("", &by_old).is_err());
    }
}
