//! Recurring turns of phrase.

use std::time::Duration;

use hugemr_core::fact::Limit;
use hugemr_core::host::{Driver, Platform};
use hugemr_core::plan::{Alternative, Pages, Plan, Resource};
use hugemr_core::size::{Bytes, Count, Grouped, MIB};

/// `85 us`, `12 ms`, `0.53 s`, `23 min`, `2 h 5 min`: how long something took, or is expected to take.
pub(crate) fn time(time: Duration) -> String {
    const MINUTE: u64 = 60;
    let pair = |(first, of), (second, part)| match second {
        0 => format!("{} {of}", Grouped(first)),
        _ => format!("{} {of} {second} {part}", Grouped(first)),
    };
    // What is shown is rounded, and the unit chosen of that: no 60.00 s.
    let secs = (time.as_millis() + 500) / 1000;
    let secs = u64::try_from(secs).unwrap_or(u64::MAX);
    let minutes = secs.saturating_add(MINUTE / 2) / MINUTE;
    match time.as_micros() {
        0..1_000 => format!("{} us", time.as_micros()),
        1_000..1_000_000 => format!("{} ms", time.as_millis()),
        1_000_000..59_995_000 => format!("{:.2} s", time.as_secs_f64()),
        _ if secs < 10 * MINUTE => pair((secs / MINUTE, "min"), (secs % MINUTE, "s")),
        _ if minutes < 120 => format!("{minutes} min"),
        _ => pair((minutes / 60, "h"), (minutes % 60, "min")),
    }
}

/// `5m`, `2h`, `60s`: as a flag takes it.
pub(crate) fn deadline(time: Duration) -> String {
    let seconds = time.as_secs();
    let is_whole =
        |unit| seconds > unit && seconds.is_multiple_of(unit) && time.subsec_nanos() == 0;
    if is_whole(3600) {
        format!("{}h", seconds / 3600)
    } else if is_whole(60) {
        format!("{}m", seconds / 60)
    } else {
        format!("{time:?}")
    }
}

/// As the flag `--pages` takes it.
pub(crate) fn pages_flag(pages: Pages) -> String {
    match pages {
        Pages::Only(page) => Bytes(page.bytes()).argument(),
        Pages::Thp => "thp".to_owned(),
        Pages::Mixed => "mixed".to_owned(),
        Pages::Auto => "auto".to_owned(),
    }
}

/// `458,752`, or `131,072 to 67,108,864`.
pub(crate) fn range(need: (u64, u64)) -> String {
    if need.0 == need.1 {
        Grouped(need.0).to_string()
    } else {
        format!("{} to {}", Grouped(need.0), Grouped(need.1))
    }
}

/// The same with its noun.
pub(crate) fn entries((least, most): (u64, u64)) -> String {
    crate::limits::entries((least, Some(most)), "")
}

/// The value of a limit in the unit of its resource.
pub(crate) fn limit(resource: Resource, limit: &Limit) -> String {
    let show = |n: u64| amount(resource, n);
    match (limit.is_unlimited(), limit.certain(), limit.at_most()) {
        (true, ..) => "none".to_owned(),
        (false, 0, None) => "unknown".to_owned(),
        (false, low, None) => format!("{} or more", show(low)),
        (false, low, Some(high)) if low == high => show(low),
        (false, low, Some(high)) => format!("{} to {}", show(low), show(high)),
    }
}

/// A number in the unit of its resource.
pub(crate) fn amount(resource: Resource, n: u64) -> String {
    match resource {
        Resource::MrLength | Resource::Cgroup(_) => Bytes(n).to_string(),
        Resource::Memory => Bytes(n / MIB * MIB).to_string(),
        Resource::Memlock => format!("{} KiB", Grouped(n.div_ceil(1024))),
        _ => Grouped(n).to_string(),
    }
}

/// Name of a resource at the head of a line.
pub(crate) fn resource(resource: Resource) -> String {
    match resource {
        Resource::MrLength => "MR length".to_owned(),
        Resource::MrCount => "MR count".to_owned(),
        Resource::Entries => "MTT entries".to_owned(),
        Resource::EntriesPerMr => "entries per MR".to_owned(),
        Resource::HugePages(_) => "huge pages".to_owned(),
        Resource::Cgroup(page) => format!("cgroup {page}"),
        Resource::Memory => "memory".to_owned(),
        Resource::Memlock => "memlock".to_owned(),
    }
}

/// `kernel 5.15, erdma_installer 1.5.2`.
pub(crate) fn platform(platform: &Platform) -> String {
    let kernel = platform
        .kernel
        .map_or_else(|| "unknown".to_owned(), |k| k.to_string());
    let driver = match platform.driver {
        Driver::InTree => "in-tree driver".to_owned(),
        Driver::Vendor(Some(bundle)) => format!("erdma_installer {bundle}"),
        Driver::Vendor(None) => "vendor's driver, version unknown".to_owned(),
        Driver::Unknown => "driver unknown".to_owned(),
    };
    format!("kernel {kernel}, {driver}")
}

/// `2 MiB pages: 458,752 pages, 14 MRs of 64 GiB`.
pub(crate) fn alternative(other: &Alternative) -> String {
    let name = match other.pages {
        Pages::Only(page) => format!("{page} pages"),
        _ => other.pages.words(),
    };
    let need = match other.huge_pages.as_slice() {
        [(_, count)] => Count(*count, "page").to_string(),
        _ => entries(other.entries),
    };
    format!(
        "{name}: {need}, {} of {}",
        Count(other.mrs, "MR"),
        Bytes(other.chunk)
    )
}

/// A text from outside, for a terminal: what would move its cursor or colour it is shown as an escape.
pub(crate) fn shown(text: &str) -> std::borrow::Cow<'_, str> {
    if !text.contains(|c: char| c.is_control() && c != '\n' && c != '\t') {
        return text.into();
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if c.is_control() && c != '\n' && c != '\t' {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
    }
    safe.into()
}

/// Whether the plan has only chunks of one length.
pub(crate) fn rounded(plan: &Plan) -> Option<String> {
    (plan.mapped != plan.wanted).then(|| {
        format!(
            "asked for {}, mapped and registered {} (whole pages)",
            Bytes(plan.wanted),
            Bytes(plan.mapped)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_in_the_unit_that_one_counts_in() {
        for (micros, text) in [
            (0, "0 us"),
            (999, "999 us"),
            (1_000, "1 ms"),
            (999_999, "999 ms"),
            (1_000_000, "1.00 s"),
            (59_990_000, "59.99 s"),
            (59_996_000, "1 min"),
            (61_400_000, "1 min 1 s"),
            (599_400_000, "9 min 59 s"),
            (599_600_000, "10 min"),
            (1_404_850_000, "23 min"),
            (7_169_000_000, "119 min"),
            (7_171_000_000, "2 h"),
            (7_200_000_000, "2 h"),
            (7_500_000_000, "2 h 5 min"),
        ] {
            assert_eq!(time(Duration::from_micros(micros)), text, "{micros}");
        }
        assert!(time(Duration::MAX).contains(" h"));
    }
}
