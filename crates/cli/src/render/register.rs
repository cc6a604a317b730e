//! What became of a registration.

use std::time::Duration;

use hugemr::{BuildError, Cause, LayoutProof, PageProof, Proof, Report};
use hugemr_core::diagnose::{BackingPages, Diagnosis, Evidence, diagnose};
use hugemr_core::errno::Errno;
use hugemr_core::plan::{Plan, Resource};
use hugemr_core::prove::Verdict;
use hugemr_core::registrar::{Mr, RegisterCause, RegisterFailure};
use hugemr_core::size::{Bytes, Grouped, PageSize};

use super::{diagnosis, table, words};
use crate::commands::plan::Asked;
use crate::device::{Arrived, Inside};
use crate::estimate::Estimated;
use crate::exit::Failure;
use crate::progress::Pools;
use crate::typed::quoted;

/// What is held, as the command got it.
pub(crate) struct Held {
    pub(crate) mrs: Vec<Mr>,
    /// Where there is memory behind it.
    pub(crate) report: Option<Report>,
    /// Mapping, populating and registering together.
    pub(crate) took: Duration,
    /// Free huge pages before.
    pub(crate) pools: Vec<(PageSize, u64)>,
}

/// The proof by moving data.
pub(crate) enum Proved {
    NotAsked,
    Yes(Proof, Duration),
    Impossible(String),
    No(String),
}

/// One MR as planned, predicted and arrived.
pub(crate) struct Row {
    pub(crate) mr: Mr,
    pub(crate) predicted: Option<hugemr_core::layout::Prediction>,
    pub(crate) arrived: Option<Arrived>,
    /// Where the kernel was watched.
    pub(crate) seen: Option<Verdict>,
}

/// What there is to say of a registration that stands.
pub(crate) struct Seen {
    pub(crate) device: String,
    pub(crate) bytes: u64,
    pub(crate) rows: Vec<Row>,
    /// Entries: read from the device object, or predicted from the physical layout.
    pub(crate) entries: Option<(u64, &'static str)>,
    pub(crate) proved: Proved,
    pub(crate) report: Option<Report>,
    pub(crate) took: Duration,
    /// Why the MRs are no longer, where a defect bounds them, and what would lift it.
    pub(crate) why_short: Option<String>,
    /// What was done to the pools for it, where that was asked for.
    pub(crate) reserved: Option<Pools>,
    /// What was predicted before, where that was asked for.
    pub(crate) estimated: Option<Estimated>,
    /// No MR is other than it should be.
    pub(crate) as_planned: bool,
    /// Entries at most, as planned, where it became more.
    pub(crate) planned_entries: Option<u64>,
}

impl Seen {
    pub(crate) fn of(
        device: &str,
        plan: &Plan,
        held: &Held,
        inside: Option<&Inside>,
        proved: Proved,
    ) -> Self {
        let page_proof = held.report.as_ref().and_then(|r| r.pages.as_ref());
        let rows: Vec<Row> = held
            .mrs
            .iter()
            .enumerate()
            .map(|(i, mr)| Row {
                mr: *mr,
                predicted: held.report.as_ref().and_then(|r| r.mrs.get(i)?.predicted),
                arrived: inside.and_then(|inside| inside.mrs.get(i).copied()),
                seen: page_proof.and_then(|proof| proof.verdict(i)),
            })
            .collect();
        let entries = inside
            .map(|inside| (inside.entries, "read from the device object"))
            .or_else(|| {
                let proof = page_proof?;
                let all = (0..held.mrs.len()).map(|i| Some(proof.verdict(i)?.seen()?.entries));
                Some((all.sum::<Option<u64>>()?, super::prove::how(proof)?))
            })
            .or_else(|| {
                let predicted = held.report.as_ref()?.entries()?;
                Some((predicted, "predicted from the physical layout"))
            });
        let as_planned = !matches!(proved, Proved::No(_))
            && rows
                .iter()
                .all(|row| row.length_arrived() && row.as_predicted());
        let as_planned = as_planned && page_proof.is_none_or(|proof| proof.different() == 0);
        // Fewer are no harm: contiguous memory can be seen in larger pages.
        let more = entries.is_some_and(|(entries, _)| entries > plan.entries.1);
        let as_planned = as_planned && !more;
        Self {
            device: device.to_owned(),
            bytes: plan.mapped,
            rows,
            entries,
            proved,
            report: held.report.clone(),
            took: held.took,
            why_short: super::plan::why_short(plan),
            reserved: None,
            estimated: None,
            as_planned,
            planned_entries: more.then_some(plan.entries.1),
        }
    }
}

impl Seen {
    pub(crate) fn page_proof(&self) -> Option<&PageProof> {
        self.report.as_ref()?.pages.as_ref()
    }
}

impl Row {
    fn length_arrived(&self) -> bool {
        self.wire_length()
            .is_none_or(|(len, wire_len)| wire_len == len)
    }

    /// Bytes asked for, and bytes that the device has of them: as arrived, else as predicted.
    fn wire_length(&self) -> Option<(u64, u64)> {
        let arrived = self.arrived.map(|a| (a.len, a.wire_len));
        arrived.or_else(|| Some((self.mr.chunk.len, self.predicted?.wire_len)))
    }

    fn as_predicted(&self) -> bool {
        match (self.predicted, self.arrived) {
            (Some(p), Some(a)) => {
                (p.page, p.entries, p.wire_len) == (a.page, a.entries, a.wire_len)
            }
            _ => true,
        }
    }

    /// Page size and entries: as arrived, else as seen, else as predicted.
    pub(crate) fn page_and_entries(&self) -> Option<(PageSize, u64)> {
        let seen = self.seen.and_then(|verdict| verdict.seen());
        self.arrived
            .map(|a| (a.page, a.entries))
            .or_else(|| seen.and_then(|seen| Some((seen.page?, seen.entries))))
            .or_else(|| self.predicted.map(|p| (p.page, p.entries)))
    }
}

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
            "WRONG LENGTH: {} of {} MRs reached the device cut, though every call succeeded: {} asked for, {} {how}",
            cut.len(),
            seen.rows.len(),
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
            "NOT AS PREDICTED: {off} of {} MRs (--all)",
            seen.rows.len()
        ));
    }
    if let (Some(planned), Some((entries, how))) = (seen.planned_entries, seen.entries) {
        lines.push(format!(
            "NOT AS PLANNED: {} entries, {how}; {} were planned",
            Grouped(entries),
            Grouped(planned)
        ));
    }
    lines.extend(seen.page_proof().map(super::prove::lines));
    lines.extend(proved(&seen.proved));
    lines.push(times(seen));
    lines.extend(predicted(seen));
    lines.join("\n")
}

fn headline(seen: &Seen) -> String {
    let count = Grouped(seen.rows.len() as u64);
    let word = if seen.rows.len() == 1 { "MR" } else { "MRs" };
    let mut line = format!(
        "registered {} on {}: {count} {word}",
        Bytes(seen.bytes),
        seen.device
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
            ", page size {}, {} entries ({how})",
            pages.join(" and "),
            Grouped(entries)
        ));
    }
    if let Some(Report {
        layout: LayoutProof::NotRead(why),
        ..
    }) = &seen.report
    {
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
            "proved: RDMA write and read at both ends of {} MRs and across {} borders, {}",
            proof.mrs,
            proof.borders,
            seconds(*took)
        )),
        Proved::Impossible(why) => Some(format!("unproven: {why}")),
        Proved::No(why) => Some(format!("PROOF FAILED: {why}")),
    }
}

fn times(seen: &Seen) -> String {
    match &seen.report {
        Some(report) => format!(
            "  time {}populate {}, register {} (overlapped), total {}; {} threads",
            report
                .reserve
                .map_or_else(String::new, |took| format!("reserve {}, ", seconds(took))),
            seconds(report.populate),
            seconds(report.register),
            seconds(seen.took),
            report.threads
        ),
        None => format!("  time register {}", seconds(seen.took)),
    }
}

/// The prediction beside what happened.
fn predicted(seen: &Seen) -> Option<String> {
    let report = seen.report.as_ref()?;
    let took = [
        ("reserve", report.reserve),
        ("populate", Some(report.populate)),
        ("register", Some(report.registering)),
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
    let word = if released.mrs == 1 { "MR" } else { "MRs" };
    let mut line = format!(
        "released: {} {word} in {}",
        Grouped(released.mrs),
        seconds(released.took)
    );
    if let Some((mrs, entries)) = released.inside {
        line.push_str(&format!(
            "; the device object holds {} {} and {} {} of ours",
            Grouped(mrs),
            words::plural(mrs, "MR", "MRs"),
            Grouped(entries),
            words::plural(entries, "entry", "entries")
        ));
    }
    if let Some(pools) = &released.reserved {
        line.push_str(&format!("\n  pools: {}", super::reserve::lowered(pools)));
    }
    for (page, before, after) in &released.pools {
        let (b, a) = (Grouped(*before), Grouped(*after));
        line.push_str(&if before == after {
            format!("\n  pool {page}: {a} pages free, as before")
        } else {
            format!("\n  pool {page}: {a} pages free, {b} before (others use it too)")
        });
    }
    line
}

/// A registration that failed and was rolled back, with its diagnosis.
pub(crate) fn failure(
    asked: &Asked,
    plan: &Plan,
    diagnosed: Option<&Diagnosis>,
    error: &BuildError,
) -> Failure {
    let mut out = match &*error.cause {
        Cause::Register(failure) => {
            Failure::system(format_args!("on {}: {failure}", asked.device.name))
        }
        cause => Failure::system(format_args!("{} failed: {cause}", error.step)),
    };
    match &*error.cause {
        Cause::Register(failure) => {
            out.more.extend(
                crate::device::sources(failure)
                    .into_iter()
                    .map(|c| format!("because {c}")),
            );
            out.more
                .push(format!("planned: {}", words::mrs(&plan.segments)));
            if let Some(diagnosed) = diagnosed {
                let said = diagnosis::short(diagnosed);
                out.more.extend(said.lines().map(str::to_owned));
                out.diagnosis = Some(Box::new(crate::json::diagnosis(diagnosed)));
            }
            out.failed = Some(Box::new(crate::json::failed(failure)));
        }
        cause => {
            if let Cause::Close(error) = cause {
                out.failed = Some(Box::new(crate::json::not_closed(error)));
            }
            out.more.extend(
                crate::device::sources(cause)
                    .into_iter()
                    .map(|c| format!("because {c}")),
            );
        }
    }
    out
}

/// Why a registration failed; `None` where no verb did. The limits file is for commands, as a shell takes it.
pub(crate) fn diagnosed(
    asked: &Asked,
    plan: &Plan,
    limits_file: Option<String>,
    failure: &RegisterFailure,
) -> Option<Diagnosis> {
    let evidence = evidence(asked, plan, failure)?;
    Some(diagnose(&Evidence {
        limits_file,
        ..evidence
    }))
}

/// What a failed `ibv_reg_mr` tells, with what the plan knows.
fn evidence(asked: &Asked, plan: &Plan, failure: &RegisterFailure) -> Option<Evidence> {
    let RegisterCause::Verb(error) = failure.cause() else {
        return None;
    };
    let mut evidence = Evidence::of_errno(error.errno, asked.device.family)
        .on_device(&asked.device)
        .on_host(&asked.host);
    evidence.device = Some(quoted(asked.which.named.as_ref()));
    let (others, most) = asked.device.used.mrs;
    evidence.mrs_live = (most == Some(others)).then(|| others.saturating_add(failure.stood()));
    evidence.length = failure.span().map(|span| span.len);
    let planned = failure.span().map(|span| span.page);
    evidence.backing = planned.map(BackingPages::Of);
    if let Some((best, worst)) = plan.check(Resource::EntriesPerMr).map(|check| check.need) {
        let stood = failure.stood();
        let (low, high) = asked.device.used.entries;
        evidence.entries_used = Some((low + best * stood, high.map(|high| high + worst * stood)));
        if best == worst {
            evidence.effective_page = planned.filter(|page| {
                evidence
                    .length
                    .is_some_and(|len| page.pages_for(len) == best)
            });
        }
    }
    if let Some(page) = crate::device::refused_page(&asked.opened) {
        evidence.effective_page = Some(page);
    }
    if asked.opened.simulated().is_none() {
        evidence.device_present = Some(crate::device::is_present(&asked.device.name));
    } else if error.errno != Errno::ENOMEM {
        // A simulated device counts nothing but what it is told: its process pins nothing.
        evidence.memlock = None;
    }
    Some(evidence)
}

/// `0.53 s`, `12 ms`, `85 us`.
pub(crate) fn seconds(took: Duration) -> String {
    match took.as_micros() {
        0..1_000 => format!("{} us", took.as_micros()),
        1_000..1_000_000 => format!("{} ms", took.as_millis()),
        _ => format!("{:.2} s", took.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugemr_core::backend::{Lkey, MrHandle, RegisteredMr, Rkey};
    use hugemr_core::chunks::Chunk;
    use hugemr_core::layout::Prediction;
    use hugemr_core::prove::{How, Seen as InKernel};
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
            estimated: None,
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
}
