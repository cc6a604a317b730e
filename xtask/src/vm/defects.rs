//! The two known defects as the device saw them: which regions arrived cut, and which with small pages.
use anyhow::{Result, ensure};

use super::agree::Run;
use super::emulator::{Event, RegMr};
use super::kernel::Version;

const GIB: u64 = 1 << 30;
/// One MR of 5 GiB on 4 KiB pages.
const SCATTERED: u64 = 1_310_720;

/// The regions of programs that were taken.
fn accepted<'a>(run: &Run<'a>) -> impl Iterator<Item = &'a RegMr> {
    run.events.iter().filter_map(|event| match event {
        Event::RegMr(mr) if mr.kind == "user" && mr.result == "ok" => Some(mr),
        _ => None,
    })
}

/// What the table of a region maps, bytes.
fn mapped(mr: &RegMr) -> u64 {
    mr.entries << mr.page_shift
}

/// Of the forced regions of 5, 4 and 64 GiB 1 GiB arrived, and twice nothing; every other length is whole.
pub(crate) fn lengths(run: &Run<'_>) -> Result<String> {
    let (mut cut, mut whole) = (Vec::new(), 0);
    for mr in accepted(run) {
        if mapped(mr).saturating_sub(mr.len) >= 4 * GIB {
            cut.push((mapped(mr) / GIB, mr.len));
        } else {
            whole += 1;
        }
    }
    // More than one try was made until the pages lay in order.
    cut.dedup();
    ensure!(
        cut == [(5, GIB), (4, 0), (64, 0)],
        "of (GiB mapped, length at the device) are cut: {cut:?}"
    );
    Ok(format!(
        "5 GiB arrived as 1 GiB, 4 GiB and 64 GiB as 0; {whole} other lengths whole"
    ))
}

/// One region came with 4 KiB pages, the forced one; on 6.1, whose driver cannot make such a table, none.
pub(crate) fn scatter(run: &Run<'_>) -> Result<String> {
    let small: Vec<u64> = accepted(run)
        .filter(|mr| mr.page_shift < 30)
        .map(|mr| mr.entries)
        .collect();
    let others = accepted(run).count() - small.len();
    let expected: &[u64] = if run.version == Version::V6_1 {
        &[]
    } else {
        &[SCATTERED]
    };
    ensure!(
        small == expected,
        "regions with pages below 1 GiB have {small:?} entries, expected {expected:?}"
    );
    ensure!(others > 0, "no region with pages of 1 GiB");
    Ok(format!(
        "{} MR with {SCATTERED} entries of 4 KiB, {others} with entries of 1 GiB",
        small.len()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reg(len: u64, page_shift: u8, entries: u64) -> Event {
        Event::RegMr(RegMr {
            n: 1,
            kind: "user".into(),
            key: 256,
            va: GIB,
            len,
            page_shift,
            level: 1,
            entries,
            used: 0,
            budget: 0,
            result: "ok".into(),
            table_error: None,
            waiting: 0,
        })
    }

    fn run(version: Version, events: &[Event]) -> Run<'_> {
        Run {
            version,
            log: "",
            events,
        }
    }

    #[test]
    fn cut_lengths_are_found() {
        let all = [
            reg(2 * GIB, 30, 2),
            reg(GIB, 30, 5),
            reg(0, 30, 4),
            reg(0, 30, 64),
        ];
        assert!(lengths(&run(Version::V6_1, &all)).is_ok());
        assert!(lengths(&run(Version::V6_1, &all[..3])).is_err());
        let one_more = [&all[..], &[reg(GIB, 30, 5)]].concat();
        assert!(lengths(&run(Version::V7_3, &one_more)).is_err());
    }

    #[test]
    fn small_pages_are_found() {
        let large = reg(2 * GIB, 30, 2);
        let both = [large.clone(), reg(5 * GIB, 12, SCATTERED)];
        assert!(scatter(&run(Version::V6_12, &both)).is_ok());
        assert!(scatter(&run(Version::V6_1, &both)).is_err());
        assert!(scatter(&run(Version::V6_1, &both[..1])).is_ok());
        assert!(scatter(&run(Version::V6_12, &both[..1])).is_err());
        assert!(scatter(&run(Version::V6_1, &[])).is_err());
    }
}
