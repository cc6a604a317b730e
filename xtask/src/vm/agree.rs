//! What the guest says it did, against what the device says it saw.
use std::collections::HashMap;

use anyhow::{Context as _, Result, bail, ensure};

use super::answer::hexadecimal;
use super::emulator::{DeregMr, Event, RegMr};
use super::kernel::Version;

/// A region that the probe in the guest registered: first address and length.
type Region = (u64, u64);

/// What there is to hold against each other after a guest has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) version: Version,
    /// The guest's.
    pub(crate) log: &'a str,
    /// The device's.
    pub(crate) events: &'a [Event],
}

/// Entries that the driver of 6.1 can hand over: one block of kernel memory of 4 MiB.
const TABLE_LIMIT_6_1: u64 = 524_288;

/// Every region the probe names arrived with that address, in that order, with the length that
/// the driver sends for it; and nothing is lent at the end.
pub(crate) fn device_log(run: &Run<'_>) -> Result<String> {
    let said = regions(run.log);
    let seen = accepted(run.events);
    ensure!(!said.is_empty(), "the guest names no region");
    let (mut at, mut cut) = (0, 0);
    for (va, len) in &said {
        let found = seen[at..].iter().position(|mr| mr.va == *va);
        let found = found.with_context(|| format!("0x{va:x} never arrived at the device"))?;
        let mr = seen[at + found];
        let sent = wire_length(run.version, *len, mr.entries);
        ensure!(
            mr.len == sent,
            "0x{va:x}: length {} at the device, expected {sent}",
            mr.len
        );
        cut += usize::from(sent != *len);
        at += found + 1;
    }
    let lengths = match cut {
        0 => String::new(),
        n => format!(", {n} with the upper half of the length lost, as this driver does"),
    };
    Ok(format!(
        "{} named by the guest of {}{lengths}",
        said.len(),
        released(run)?
    ))
}

/// Every table was right and within the budget, and nothing is lent at the end.
pub(crate) fn released(run: &Run<'_>) -> Result<String> {
    let said = tables(run)?;
    let left = lent_at_the_end(run.events)?;
    ensure!(left == 0, "{left} entries lent at the end");
    Ok(format!("{said}, all back"))
}

/// No registration is missing from the device's log, from the first on.
pub(crate) fn complete(run: &Run<'_>) -> Result<()> {
    for (n, mr) in (1..).zip(registrations(run.events)) {
        ensure!(
            mr.n == n,
            "registration {n} is missing from the log, {} is there",
            mr.n
        );
    }
    Ok(())
}

/// Every table was right and within the budget.
pub(crate) fn tables(run: &Run<'_>) -> Result<String> {
    let seen = accepted(run.events);
    ensure!(!seen.is_empty(), "no region arrived at the device");
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
    let entries: u64 = seen.iter().map(|mr| mr.entries).sum();
    Ok(format!("{} regions with {entries} entries", seen.len()))
}

/// The drivers' known defect: the length has 32 bits in 6.1, and later wherever the table has no
/// second level.
fn wire_length(version: Version, len: u64, entries: u64) -> u64 {
    if version == Version::V6_1 || entries <= 512 {
        len & 0xffff_ffff
    } else {
        len
    }
}

/// Every line of the return probe names the page size with which the region arrived.
pub(crate) fn rule_log(run: &Run<'_>) -> Result<String> {
    let calls: Vec<Call> = run.log.lines().filter_map(Call::parse).collect();
    ensure!(!calls.is_empty(), "the return probe says nothing");
    let seen = accepted(run.events);
    let (mut at, mut replaced) = (0, 0);
    for call in &calls {
        let Some(found) = seen[at..].iter().position(|mr| mr.va == call.iova) else {
            let too_many = call.blocks(call.old) > TABLE_LIMIT_6_1;
            ensure!(
                run.version == Version::V6_1 && too_many,
                "0x{:x} never arrived",
                call.iova
            );
            replaced += 1;
            continue;
        };
        let mr = seen[at + found];
        at += found + 1;
        let page = 1_u64 << mr.page_shift;
        let Call { iova, new, old, .. } = *call;
        ensure!(
            page == old || page == new,
            "0x{iova:x}: page size {page} at the device, new rule {new}, old rule {old}"
        );
        replaced += usize::from(page == old && page != new);
        let blocks = call.blocks(page);
        ensure!(
            mr.entries == blocks,
            "{} entries of {page} bytes, {blocks} needed",
            mr.entries
        );
    }
    let n = calls.len();
    ensure!(
        replaced > 0,
        "in none of {n} calls was the page size replaced"
    );
    Ok(format!(
        "{replaced} of {n} calls by the old rule, the others by the new, as at the device"
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
    /// Blocks of `page` bytes that the range touches.
    fn blocks(&self, page: u64) -> u64 {
        (self.iova + self.length).div_ceil(page) - self.iova / page
    }

    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line
            .split_once("old rule: ")?
            .1
            .split_whitespace()
            .collect();
        let of = |key: &str| {
            let at = words.iter().position(|word| *word == key)?;
            hexadecimal(words.get(at + 1)?)
        };
        Some(Self {
            iova: of("iova")?,
            length: of("length")?,
            new: of("new")?,
            old: of("old")?,
        })
    }
}

/// All registrations, refused ones included.
fn registrations(events: &[Event]) -> impl Iterator<Item = &RegMr> {
    events.iter().filter_map(|event| match event {
        Event::RegMr(mr) => Some(mr),
        _ => None,
    })
}

/// The regions of programs that the device took.
fn accepted(events: &[Event]) -> Vec<&RegMr> {
    registrations(events)
        .filter(|mr| mr.kind == "user" && mr.result == "ok")
        .collect()
}

/// Lines `MR index address length` of the probe.
fn regions(log: &str) -> Vec<Region> {
    let parse = |line: &str| {
        let mut words = line.strip_prefix("| MR ")?.split_whitespace();
        let va = hexadecimal(words.nth(1)?)?;
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
            Event::DeregMr(DeregMr {
                key, used, result, ..
            }) if result == "ok" => {
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
            n: u64::from(key),
            kind,
            key,
            va,
            len,
            page_shift,
            level: 2,
            entries,
            used,
            budget,
            result,
            table_error,
            waiting: 0,
        })
    }

    fn dereg(key: u32, used: u64) -> Event {
        Event::DeregMr(DeregMr {
            key,
            used,
            result: "ok".into(),
            waiting: 0,
        })
    }

    const LOG: &str = "| MR 0 0x200000 4194304\n| registered 1 MRs\nPASS x\n";

    fn run<'a>(log: &'a str, events: &'a [Event]) -> Run<'a> {
        Run {
            version: Version::V6_12,
            log,
            events,
        }
    }

    #[test]
    fn agreement() {
        let events = [reg(1, 0x20_0000, 4 << 20, 21, 2, 2), dereg(1, 0)];
        let said = device_log(&run(LOG, &events)).expect("agrees");
        assert_eq!(
            said,
            "1 named by the guest of 1 regions with 2 entries, all back"
        );
    }

    #[test]
    fn a_log_with_a_gap_is_found() {
        let at = |n| reg(n, 0x20_0000, 4 << 20, 21, 2, 2);
        assert!(complete(&run(LOG, &[at(1), dereg(1, 0), at(2)])).is_ok());
        assert!(complete(&run(LOG, &[at(2)])).is_err());
        assert!(complete(&run(LOG, &[at(1), at(3)])).is_err());
    }

    #[test]
    fn each_disagreement_is_found() {
        let lost: [Event; 0] = [];
        let short = [reg(1, 0x20_0000, 1, 21, 2, 2), dereg(1, 0)];
        let kept = [reg(1, 0x20_0000, 4 << 20, 21, 2, 2)];
        let miscounted = [reg(1, 0x20_0000, 4 << 20, 21, 2, 3), dereg(1, 0)];
        for (events, word) in [
            (&lost[..], "never arrived"),
            (&short[..], "length 1 at the device"),
            (&kept[..], "lent at the end"),
            (&miscounted[..], "the device counts 3"),
        ] {
            let error = device_log(&run(LOG, events)).expect_err(word).to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn lengths_are_cut_as_the_drivers_cut_them() {
        let (len, cut) = (5 << 30, 1 << 30);
        assert_eq!(wire_length(Version::V6_1, len, 2560), cut);
        assert_eq!(wire_length(Version::V6_12, len, 2560), len);
        assert_eq!(wire_length(Version::V7_3, len, 5), cut);
        assert_eq!(wire_length(Version::V7_3, 4096, 1), 4096);
    }

    #[test]
    fn the_return_probe_is_held_against_the_device() {
        let line = "| old rule: iova 0x200000 length 0x400000 new 0x200000 old 0x1000\n";
        let by_old = [reg(1, 0x20_0000, 4 << 20, 12, 1024, 1024)];
        assert!(rule_log(&run(line, &by_old)).is_ok());
        let by_new = [reg(1, 0x20_0000, 4 << 20, 21, 2, 2)];
        let by_none = [reg(1, 0x20_0000, 4 << 20, 13, 512, 512)];
        let wrong_count = [reg(1, 0x20_0000, 4 << 20, 12, 1023, 1023)];
        for (log, events, word) in [
            (line, &by_new, "none of 1"),
            (line, &by_none, "page size 8192"),
            (line, &wrong_count, "1024 needed"),
            ("", &by_old, "says nothing"),
        ] {
            let error = rule_log(&run(log, events)).expect_err(word).to_string();
            assert!(error.contains(word), "{error}");
        }
        assert!(rule_log(&run(line, &[])).is_err());
    }

    #[test]
    fn only_6_1_may_refuse_a_table_by_itself() {
        let line = "| old rule: iova 0x40000000 length 0x140000000 new 0x40000000 old 0x1000\n";
        assert!(
            rule_log(&Run {
                version: Version::V6_1,
                log: line,
                events: &[]
            })
            .is_ok()
        );
        assert!(rule_log(&run(line, &[])).is_err());
    }
}
