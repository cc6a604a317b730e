//! Which machine, and which day: a number means nothing without them.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

/// Processor, how many, memory, kernel, load before the run.
pub(crate) fn describe() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let field = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.split_once(": "))
            .map(|(_, value)| value.to_owned())
    };
    let processor = field("model name").unwrap_or_else(|| "unknown processor".to_owned());
    let virtual_machine = if info.lines().any(|line| {
        line.starts_with("flags") && line.split_whitespace().any(|flag| flag == "hypervisor")
    }) {
        ", a virtual machine"
    } else {
        ""
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let meminfo = read("/proc/meminfo");
    let memory = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    let memory = memory.map_or_else(String::new, |kib| {
        format!(", {:.0} GiB", kib / f64::from(1 << 20))
    });
    let (kernel, load) = (read("/proc/sys/kernel/osrelease"), read("/proc/loadavg"));
    let load = load.split(' ').next().unwrap_or_default();
    format!(
        "{processor}, {cpus} CPUs{memory}, Linux {}{virtual_machine}, load {load} before the run",
        kernel.trim()
    )
}

/// `2026-01-02`, UTC.
pub(crate) fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    date(since.map_or(0, |since| since.as_secs() / 86_400))
}

/// Days since 1970-01-01 in the Gregorian calendar, counted in years that begin with March: a leap day is the last.
fn date(days: u64) -> String {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(11_016), "2000-02-29");
        assert_eq!(date(11_017), "2000-03-01");
        assert_eq!(date(20_454), "2026-01-01");
        assert_eq!(date(20_453), "2025-12-31");
    }
}
