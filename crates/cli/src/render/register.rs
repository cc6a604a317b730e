//! What became of a registration.

mod failure;
mod seen;

use std::time::Duration;

use hugemr::{LayoutProof, Report};
use hugemr_core::size::{Bytes, Count, Grouped, PageSize, plural};

use super::table;
use super::words::time;
use crate::progress::Pools;

pub(crate) use super::words::time as seconds;
pub(crate) use failure::{diagnosed, failure};
pub(crate) use seen::{Held, Proved, Row, Seen};

pub(crate) fn registered(seen: &Seen, all: bool) -> String {
    let mut lines = vec![headline(seen)];
    lines.extend(seen.why_short.iter().map(|why| format!("  {why}")));
    lines.push(mr_table(seen, all));
    let cut: Vec<&Row> = seen
        .rows
        .iter()
        .filter(|row| !row.length_arrived())
        .collect();
    if let Some((row, (len, wire_len))) =
        cut.first().and_then(|row| Some((row, row.wire_length()?)))
    {
        let how = if row.arrived.is_some() {
            "arrived"
        } else {
            "sent, as this driver does (predicted)"
        };
        lines.push(format!(
            "WRONG LENGTH: {} of {} reached the device cut, though every call succeeded: {} asked for, {} {how}",
            cut.len(),
            Count(seen.rows.len() as u64, "MR"),
            Bytes(len),
            Bytes(wire_len)
        ));
        lines.push(
            "  transfers beyond the length that arrived would fail; do not use these MRs"
                .to_owned(),
        );
    }
    let off = seen.rows.iter().filter(|row| !row.as_predicted()).count();
    if off > 0 {
        lines.push(format!(
            "NOT AS PREDICTED: {off} of {} (--all)",
            Count(seen.rows.len() as u64, "MR")
        ));
    }
    if let (Some(planned), Some((entries, how))) = (seen.planned_entries, seen.entries) {
        lines.push(format!(
            "NOT AS PLANNED: {}, {how}; {} {} planned",
            Count(entries, "entry"),
            Grouped(planned),
            plural(planned, "was", "were")
        ));
    }
    lines.extend(seen.page_proof().map(super::prove::lines));
    lines.extend(proved(&seen.proved));
    lines.push(times(seen));
    lines.extend(predicted(seen));
    lines.join("\n")
}

fn headline(seen: &Seen) -> String {
    let mut line = format!(
        "registered {} on {}: {}",
        Bytes(seen.bytes),
        seen.device,
        Count(seen.rows.len() as u64, "MR")
    );
    let mut pages: Vec<PageSize> = seen
        .rows
        .iter()
        .filter_map(Row::page_and_entries)
        .map(|(page, _)| page)
        .collect();
    pages.sort_unstable();
    pages.dedup();
    let pages: Vec<String> = pages.iter().map(ToString::to_string).collect();
    if let Some((entries, how)) = seen.entries {
        line.push_str(&format!(
            ", page size {}, {} ({how})",
            pages.join(" and "),
            Count(entries, "entry")
        ));
    }
    let not_read = match &seen.report {
        Some(Report {
            layout: LayoutProof::NotRead(why),
            ..
        }) => Some(why),
        _ => None,
    };
    if let Some(why) = seen.unproved.as_ref().or(not_read) {
        line.push_str(&format!("\n  page size not proved: {why}"));
    }
    line
}

fn mr_table(seen: &Seen, all: bool) -> String {
    let predicted = seen
        .rows
        .iter()
        .any(|row| row.predicted.is_some() && (row.arrived.is_some() || row.seen.is_some()));
    let watched = seen.rows.iter().any(|row| row.seen.is_some());
    let shown = |i: usize| all || i == 0 || i + 1 == seen.rows.len();
    let mut rows = Vec::new();
    for (_, row) in seen.rows.iter().enumerate().filter(|(i, _)| shown(*i)) {
        let (page, entries) = row.page_and_entries().map_or_else(
            || (row.mr.chunk.page.to_string(), "-".to_owned()),
            |(page, entries)| (page.to_string(), Grouped(entries).to_string()),
        );
        let mut cells = vec![
            row.mr.chunk.index.to_string(),
            format!("{:#x}", row.mr.addr),
            Bytes(row.mr.chunk.len).to_string(),
            format!("{:#010x}/{:#010x}", row.mr.mr.lkey.0, row.mr.mr.rkey.0),
            page,
            entries,
        ];
        if predicted {
            let text = row.predicted.map_or_else(
                || "-".to_owned(),
                |p| format!("{}, {}", p.page, Grouped(p.entries)),
            );
            cells.push(text);
        }
        if watched {
            cells.push(row.seen.map_or_else(|| "-".to_owned(), super::prove::cell));
        }
        rows.push(cells);
    }
    let mut head = vec!["MR", "address", "length", "lkey/rkey", "page", "entries"];
    if predicted {
        head.push("predicted");
    }
    if watched {
        head.push("seen");
    }
    let mut text = table(&head, &rows);
    if seen.rows.len() > rows.len() {
        let more = Grouped((seen.rows.len() - rows.len()) as u64);
        text.push_str(&format!("\n  ({more} more: --all)"));
    }
    text
}

fn proved(proved: &Proved) -> Option<String> {
    match proved {
        Proved::NotAsked => None,
        Proved::Yes(proof, took) => Some(format!(
            "proved: RDMA write and read at both ends of {} and across {}, {}",
            Count(proof.mrs as u64, "MR"),
            Count(proof.borders as u64, "border"),
            time(*took)
        )),
        Proved::Impossible(why) => Some(format!("unproven: {why}")),
        Proved::No(why) => Some(format!("PROOF FAILED: {why}")),
    }
}

fn times(seen: &Seen) -> String {
    match &seen.report {
        Some(report) => format!(
            "  time {}populate {}, register {} (overlapped), total {}; {}",
            report
                .reserve
                .map_or_else(String::new, |took| format!("reserve {}, ", time(took))),
            time(report.populate),
            time(report.register),
            time(seen.took),
            Count(report.threads as u64, "thread")
        ),
        None => format!("  time register {}", time(seen.took)),
    }
}

/// The prediction beside what happened.
fn predicted(seen: &Seen) -> Option<String> {
    let report = seen.report.as_ref()?;
    let took = [
        ("reserve", report.reserve),
        ("populate", Some(report.populate)),
        (super::estimate::CALLS, Some(report.registering)),
        ("together", Some(seen.took)),
    ];
    let estimated = seen.estimated.as_ref()?;
    Some(super::estimate::compared(estimated, &took))
}

/// What is left after the release.
pub(crate) struct Released {
    pub(crate) mrs: u64,
    pub(crate) took: Duration,
    /// MRs and entries that the device object still holds.
    pub(crate) inside: Option<(u64, u64)>,
    /// Page size, free before, free after.
    pub(crate) pools: Vec<(PageSize, u64, u64)>,
    /// What was done to the pools, where that was asked for.
    pub(crate) reserved: Option<Pools>,
}

pub(crate) fn released(released: &Released) -> String {
    let mut line = format!(
        "released: {} in {}",
        Count(released.mrs, "MR"),
        time(released.took)
    );
    if let Some((mrs, entries)) = released.inside {
        line.push_str(&format!(
            "; the device object holds {} and {} of ours",
            Count(mrs, "MR"),
            Count(entries, "entry")
        ));
    }
    if let Some(pools) = &released.reserved {
        line.push_str(&format!("\n  pools: {}", super::reserve::lowered(pools)));
    }
    for (page, before, after) in &released.pools {
        let (b, a) = (Grouped(*before), Count(*after, "page"));
        line.push_str(&if before == after {
            format!("\n  pool {page}: {a} free, as before")
        } else {
            format!("\n  pool {page}: {a} free, {b} before (others use it too)")
        });
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugemr::{PageProof, Proof};
    use hugemr_core::backend::{Lkey, MrHandle, RegisteredMr, Rkey};
    use hugemr_core::chunks::Chunk;
    use hugemr_core::layout::Prediction;
    use hugemr_core::prove::{How, Seen as InKernel, Verdict};
    use hugemr_core::registrar::Mr;
    use hugemr_core::size::GIB;
    use hugemr_host::populate::Road;

    const MRS: u32 = 14;

    fn mr(index: u32) -> Mr {
        let offset = u64::from(index) * 64 * GIB;
        Mr {
            chunk: Chunk {
                index: index.into(),
                offset,
                len: 64 * GIB,
                page: PageSize::M2,
            },
            addr: 0x7e00_0000_0000 + offset,
            mr: RegisteredMr {
                handle: MrHandle(index.into()),
                lkey: Lkey((index + 1) << 8),
                rkey: Rkey((index + 1) << 8),
            },
        }
    }

    fn arrived() -> crate::device::Arrived {
        crate::device::Arrived {
            page: PageSize::M2,
            entries: 32_768,
            len: 64 * GIB,
            wire_len: 64 * GIB,
        }
    }

    /// 896 GiB on a real device, the kernel watched; `odd` is what it was seen to make of the last MR.
    fn seen(odd: Verdict) -> Seen {
        let same = Verdict::Same(InKernel {
            page: Some(PageSize::M2),
            entries: 32_768,
        });
        let predicted = Some(Prediction {
            page: PageSize::M2,
            entries: 32_768,
            level: 2,
            wire_len: 64 * GIB,
            refused: None,
        });
        let mut verdicts = vec![same; MRS as usize];
        verdicts[MRS as usize - 1] = odd;
        let row = |i: u32| Row {
            mr: mr(i),
            predicted,
            arrived: None,
            seen: Some(verdicts[i as usize]),
        };
        Seen {
            device: "erdma_0".to_owned(),
            bytes: 896 * GIB,
            rows: (0..MRS).map(row).collect(),
            entries: Some((458_752, "seen by kretprobe")),
            proved: Proved::Yes(
                Proof {
                    mrs: 14,
                    borders: 13,
                    bytes: 3456,
                },
                Duration::from_millis(200),
            ),
            report: Some(Report {
                reserved: Vec::new(),
                reserve: Some(Duration::from_millis(41_800)),
                mrs: Vec::new(),
                layout: LayoutProof::Read,
                places: Vec::new(),
                pages: Some(PageProof::Watched {
                    how: How::Kretprobe,
                    mrs: verdicts.clone(),
                    lost: 0,
                    trouble: None,
                    left: None,
                }),
                road: Road::PopulateWrite,
                threads: 64,
                populate: Duration::from_millis(8100),
                register: Duration::from_secs(3),
                registering: Duration::from_secs(2),
            }),
            took: Duration::from_secs(51),
            why_short: None,
            reserved: None,
            risk: None,
            estimated: None,
            unproved: None,
            as_planned: true,
            planned_entries: None,
        }
    }

    #[test]
    fn the_screen_of_a_registration_whose_page_sizes_were_seen() {
        let same = Verdict::Same(InKernel {
            page: Some(PageSize::M2),
            entries: 32_768,
        });
        snapbox::assert_data_eq!(
            registered(&seen(same), false),
            snapbox::str![[r#"
registered 896 GiB on erdma_0: 14 MRs, page size 2 MiB, 458,752 entries (seen by kretprobe)
  MR  address         length  lkey/rkey              page   entries  predicted      seen
  0   0x7e0000000000  64 GiB  0x00000100/0x00000100  2 MiB  32,768   2 MiB, 32,768  2 MiB, 32,768
  13  0x7ed000000000  64 GiB  0x00000e00/0x00000e00  2 MiB  32,768   2 MiB, 32,768  2 MiB, 32,768
  (12 more: --all)
page size proved by kretprobe: 14 of 14 as predicted
proved: RDMA write and read at both ends of 14 MRs and across 13 borders, 200 ms
  time reserve 41.80 s, populate 8.10 s, register 3.00 s (overlapped), total 51.00 s; 64 threads
"#]]
        );
    }

    #[test]
    fn the_screen_of_one_that_is_not_as_predicted() {
        let odd = Verdict::Differs(InKernel {
            page: Some(PageSize::K4),
            entries: 16_777_216,
        });
        snapbox::assert_data_eq!(
            registered(&seen(odd), false),
            snapbox::str![[r#"
registered 896 GiB on erdma_0: 14 MRs, page size 4 KiB and 2 MiB, 458,752 entries (seen by kretprobe)
  MR  address         length  lkey/rkey              page   entries     predicted      seen
  0   0x7e0000000000  64 GiB  0x00000100/0x00000100  2 MiB  32,768      2 MiB, 32,768  2 MiB, 32,768
  13  0x7ed000000000  64 GiB  0x00000e00/0x00000e00  4 KiB  16,777,216  2 MiB, 32,768  4 KiB, 16,777,216  DIFFERS
  (12 more: --all)
PAGE SIZE NOT AS PREDICTED: 1 of 14 MRs, seen by kretprobe (--all)
proved: RDMA write and read at both ends of 14 MRs and across 13 borders, 200 ms
  time reserve 41.80 s, populate 8.10 s, register 3.00 s (overlapped), total 51.00 s; 64 threads
"#]]
        );
    }

    /// On a simulated device: no kernel is watched, and what is held against each other may be missing.
    #[test]
    fn what_was_not_held_against_each_other_is_unproved() {
        let mut seen = seen(Verdict::NotSeen);
        for row in &mut seen.rows {
            (row.seen, row.arrived) = (None, Some(arrived()));
        }
        assert_eq!(seen.why_unproved(), None);
        seen.rows[3].predicted = None;
        let why = seen.why_unproved();
        assert!(why.is_some_and(|why| why.contains("not every MR")));
        if let Some(report) = &mut seen.report {
            report.layout = LayoutProof::NotRead("hidden".to_owned());
        }
        assert_eq!(seen.why_unproved().as_deref(), Some("hidden"));
        seen.report = None;
        seen.unproved = seen.why_unproved();
        let said = headline(&seen);
        assert!(
            said.contains("page size not proved: without memory"),
            "{said}"
        );
    }
}
