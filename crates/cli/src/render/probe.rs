//! What a probe has found.

use std::time::Duration;

use hugemr_core::device::Device;
use hugemr_core::limits::Range;
use hugemr_core::probe::{End, Found, LargePages, Longest, NoLargePages, Stop};
use hugemr_core::size::{Bytes, Count, Grouped, plural};

use super::table::table;
use super::words::time;
use crate::commands::probe::Report;
use crate::limits::{entries, range};

/// The whole answer: the number first, what it rests on second, what is left last.
pub(crate) fn text(report: &Report) -> String {
    let found = &report.found;
    let mut rows = vec![
        row(
            "table",
            &range(found.entries),
            &why(found, report.longer, &report.device),
        ),
        row("one MR", &per_mr(found.per_mr), "entries"),
    ];
    rows.push(match found.max_mr {
        Some(mrs) => row("MR count", &range(mrs), &why_count(report)),
        None => row(
            "MR count",
            &report
                .device
                .max_mr
                .known()
                .map_or_else(|| "unknown".to_owned(), |n| Grouped(n).to_string()),
            &format!(
                "{}; {} {} held at once; count: --count-mrs",
                report.device.max_mr.source,
                Grouped(found.mrs),
                plural(found.mrs, "was", "were")
            ),
        ),
    });
    let over = |entries: u64| {
        let most = report.up_to.unwrap_or_default();
        format!(
            "not tried: it would take up to {}, more than --up-to {most}",
            Count(entries, "entry")
        )
    };
    let (longest, large) = match &report.no_large {
        Some(why) => (format!("not tried: {why}"), "not tried".to_owned()),
        None => (
            match (found.longest, found.longest_over) {
                (Some(tried), _) => longest(tried),
                (None, Some(entries)) => over(entries),
                (None, None) => not_tried(found.stopped, ""),
            },
            match (found.large_pages, found.large_pages_over) {
                (Some(tried), _) => large_pages(tried),
                (None, Some(entries)) => over(entries),
                (None, None) => not_tried_large(found),
            },
        ),
    };
    rows.push(row("longest MR", &longest, ""));
    rows.push(row("large pages", &large, ""));
    rows.push(row("lengths", &lengths(report), ""));
    let mut lines = vec![head(report), table(&[], &rows)];
    if report.others.mrs.0 > 0 {
        lines.push(format!(
            "beside others, who held {} of {} when it began",
            Count(report.others.mrs.0, "MR"),
            entries(report.others.entries, "")
        ));
    }
    if found.entries.1.is_none() && found.end == End::Full && found.left == 0 {
        lines.push(
            "no upper end: what others hold cannot be seen (rdma resource show mr)".to_owned(),
        );
    }
    let held = match (found.left, report.left) {
        (0, Some((mrs, entries))) => {
            let (mrs, entries) = (Count(mrs, "MR"), Count(entries, "entry"));
            format!("; the device object holds {mrs} and {entries} of ours")
        }
        (0, None) => "; everything is released".to_owned(),
        (left, _) => {
            let (mrs, stay) = (Count(left, "MR"), plural(left, "stays", "stay"));
            format!("; {mrs} could not be deregistered and {stay} until this process ends")
        }
    };
    lines.push(format!(
        "{} in {}{held}",
        Count(found.tried, "registration"),
        time(Duration::try_from_secs_f64(report.seconds).unwrap_or_default())
    ));
    lines.join("\n")
}

fn row(name: &str, value: &str, why: &str) -> Vec<String> {
    vec![name.to_owned(), value.to_owned(), why.to_owned()]
}

fn head(report: &Report) -> String {
    let name = &report.device.name;
    let found = &report.found;
    match (found.exact(), found.end) {
        (Some(n), _) => format!("{name} has {}, to the entry", Count(n, "table entry")),
        (None, End::Nothing(errno)) => format!("nothing can be registered on {name}: {errno}"),
        (None, _) => format!("{name} has {}", entries(found.entries, "table ")),
    }
}

fn why(found: &Found, longer: bool, device: &Device) -> String {
    if found.left > 0 && found.entries.1.is_none() && matches!(found.end, End::Full | End::Unsteady)
    {
        let errno = found
            .left_errno
            .map_or_else(String::new, |errno| format!(" ({errno})"));
        return format!(
            "{} failed{errno}: what was not taken back stays registered until the process ends",
            Count(found.left, "deregistration")
        );
    }
    match found.end {
        End::Full if found.exact().is_some() => "measured: one more was refused, the same without it was not".to_owned(),
        End::Full => "measured beside others".to_owned(),
        End::UpTo => "as many as --up-to allows".to_owned(),
        End::Stopped(stop) => stopped(stop).to_owned(),
        // Far fewer than the device has: the errno alone proves nothing.
        End::MrCount(n) if n < device.max_mr.certain() && !device.max_mr.is_unlimited() => format!(
            "ended by {} after {}, as if no MR were left, though there should be {} ({}): no proof of the count",
            device.family.dialect().over_mr_count,
            Count(n, "MR"),
            Grouped(device.max_mr.certain()),
            device.max_mr.source
        ),
        End::MrCount(n) if !longer && found.held >= n.saturating_mul(found.per_mr.0) => {
            format!("no MR was left after {}, and no longer one is possible", Grouped(n))
        }
        End::MrCount(n) if !longer => format!("no MR was left after {}", Grouped(n)),
        End::MrCount(n) => format!("no MR was left after {}: longer ones with --mr SIZE", Grouped(n)),
        End::Nothing(_) => "nothing fits".to_owned(),
        End::Failed(errno) => format!("ended by {errno}, which says nothing about the table"),
        _ => "the answers contradicted each other: others come and go, or the device fails now and then".to_owned(),
    }
}

/// What ended the count of MRs.
fn why_count(report: &Report) -> String {
    let found = &report.found;
    match found.max_mr_end {
        Some(End::MrCount(_)) if found.max_mr.is_some_and(|(_, high)| high.is_some()) => {
            "measured: one more was refused, the same without it was not".to_owned()
        }
        Some(End::MrCount(_)) => {
            "no more was left; how many others hold cannot be seen (rdma resource show mr)"
                .to_owned()
        }
        Some(End::UpTo) => format!(
            "counting ended there: each takes an entry, and --up-to {} allows no more",
            report.up_to.unwrap_or_default()
        ),
        Some(End::Counted) => "counted no further".to_owned(),
        Some(End::Full) => {
            "as many fill the table: it refuses more, and not their number".to_owned()
        }
        Some(End::Stopped(stop)) => format!("counting ended there: {}", stopped(stop)),
        Some(End::Failed(errno)) => format!("counting ended there: {errno}"),
        _ => "the answers contradicted each other".to_owned(),
    }
}

const fn stopped(stop: Stop) -> &'static str {
    match stop {
        Stop::Deadline => "the time that is left is for the release (--deadline)",
        Stop::Cancelled => "stopped by a signal",
    }
}

fn not_tried(stop: Option<Stop>, why: &'static str) -> String {
    let why = match stop {
        Some(Stop::Deadline) => "it and its release could take longer than is left (--deadline)",
        Some(stop) => stopped(stop),
        None => why,
    };
    match why {
        "" => "not tried".to_owned(),
        why => format!("not tried: {why}"),
    }
}

/// Why large pages were not tried, or not to an end that proves anything.
fn not_tried_large(found: &Found) -> String {
    let why = match found.large_pages_not {
        None => return "not tried".to_owned(),
        Some(NoLargePages::Stopped(stop)) => return not_tried(Some(stop), ""),
        Some(NoLargePages::NotFull) => "needs a full table".to_owned(),
        Some(NoLargePages::MrCount) => format!(
            "no MR is left for it: {} {} the table",
            Count(found.mrs, "MR"),
            plural(found.mrs, "fills", "fill")
        ),
        Some(NoLargePages::NotReleased) => "a deregistration failed".to_owned(),
        Some(NoLargePages::UpTo) => "it could take more than --up-to".to_owned(),
        Some(NoLargePages::TooShort) => {
            "it needs an MR of more entries than have worked as one here".to_owned()
        }
        Some(NoLargePages::Failed(errno)) => {
            format!("ended by {errno}, which says nothing of pages")
        }
        Some(_) => "the answers contradicted each other".to_owned(),
    };
    format!("not tried: {why}")
}

fn per_mr((low, high): Range) -> String {
    match high {
        Some(refused) if refused == low + 1 => {
            format!("{}, {} refused", Grouped(low), Grouped(refused))
        }
        Some(refused) => format!("{} or more, {} refused", Grouped(low), Grouped(refused)),
        None => format!("{} or more", Grouped(low)),
    }
}

fn longest(longest: Longest) -> String {
    let len = Bytes(longest.len);
    match (longest.refused, longest.longer_refused) {
        (Some(errno), _) => {
            let within = longest
                .within
                .map_or_else(String::new, |(worked, refused)| {
                    format!(
                        "; {} worked, {} refused twice",
                        Bytes(worked),
                        Bytes(refused)
                    )
                });
            format!("{len} refused: {errno}{within}")
        }
        (None, Some(true)) => format!("{len} registered, a page more refused"),
        (None, Some(false)) => format!("{len} registered, and a page more too"),
        (None, None) => format!("{len} registered"),
    }
}

fn large_pages(large: LargePages) -> String {
    let len = Bytes(large.len);
    let room = format!(
        "{} {} free",
        Count(large.room, "entry"),
        plural(large.room, "was", "were")
    );
    if large.used {
        format!("used: {len} fitted where {room}")
    } else {
        format!("NOT used: {len} did not fit where {room}")
    }
}

/// Whether the longest MR arrived whole. A real device cannot be asked for the length it got.
fn lengths(report: &Report) -> String {
    match (report.sent, report.found.longest) {
        (Some(sent), Some(longest)) if sent == longest.len => {
            format!("{} arrived whole", Bytes(sent))
        }
        (Some(sent), Some(longest)) => {
            format!("WRONG: {} arrived as {}", Bytes(longest.len), Bytes(sent))
        }
        _ if report.left.is_some() => "not tried: no MR of that length was registered".to_owned(),
        _ if !report.wire_length.counts() => format!(
            "whole ({}, inferred: a device tells no length)",
            report.wire_length.why
        ),
        _ => format!(
            "32 bits of it may be sent for MRs of 4 GiB and more ({}, inferred); prove: hugemr register --verify",
            report.wire_length.why
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hugemr_core::backend::{NoMemory, RegBackend as _};
    use hugemr_core::errno::Errno;
    use hugemr_core::probe::{Options, probe};
    use hugemr_core::size::PageSize;

    use super::*;

    /// A device, and what a short probe of it has found: the tests then say how it ended.
    fn probed() -> (Arc<hugemr_sim::SimDevice>, Found) {
        let device = hugemr_sim::open("sim:erdma", &hugemr_sim::Overrides::default());
        let device = Arc::new(device.unwrap());
        let small = Arc::new(NoMemory {
            base: 1 << 44,
            len: 1 << 20,
            page: PageSize::K4,
        });
        let options = Options {
            up_to: Some(1),
            ..Options::default()
        };
        let none: Option<&Arc<NoMemory>> = None;
        let found = probe(&device, &small, none, &options);
        (device, found)
    }

    /// The errno of a full count far below what there should be is no proof of the count.
    #[test]
    fn a_refusal_far_below_the_count_is_not_said_to_be_the_count() {
        let (device, mut found) = probed();
        let mut why_after = |n| {
            found.end = End::MrCount(n);
            why(&found, false, device.device())
        };
        let said = why_after(4);
        assert!(
            said.contains("ENOSPC") && said.contains("no proof"),
            "{said}"
        );
        let most = device.device().max_mr.certain();
        assert!(why_after(most).starts_with("no MR was left"));
    }

    /// The reason for an open interval is what was seen, and no guess.
    #[test]
    fn failed_deregistrations_are_the_reason_that_is_said() {
        let (device, mut found) = probed();
        found.left = 3;
        found.left_errno = Some(Errno::EIO);
        for end in [End::Full, End::Unsteady] {
            found.end = end;
            let said = why(&found, true, device.device());
            assert!(said.starts_with("3 deregistrations failed (EIO"), "{said}");
            assert!(said.contains("until the process ends"), "{said}");
        }
        found.left = 0;
        assert!(why(&found, true, device.device()).contains("others come and go"));
    }
}
