//! The arguments of `probe`, `learn` and `usage`, and the place of the limits file.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use hugemr_core::size::PageSize;

use crate::typed::Typed;

use super::{FactArgs, Size, parse_count, parse_device, parse_page, variable};

/// Names the limits file where no flag does.
const LIMITS: &str = "HUGEMR_LIMITS";

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct LimitsArgs {
    /// File of measured limits [default: /var/lib/hugemr/limits.toml for root, else hugemr/limits.toml in the XDG state folder]
    #[arg(long, value_name = "FILE")]
    pub(crate) limits: Option<PathBuf>,
}

impl LimitsArgs {
    /// Takes the file that the environment names, where no flag named one.
    pub(crate) fn or_environment(&mut self) {
        if self.limits.is_none() {
            self.limits = variable(LIMITS).map(PathBuf::from);
        }
    }

    /// The file that was named, quoted for a shell. What the environment names it names again.
    pub(crate) fn quoted(&self) -> Option<String> {
        let named = self.limits.as_ref()?.as_os_str();
        let again = variable(LIMITS).is_some_and(|file| file == named);
        (!again).then(|| crate::typed::quoted(named))
    }
}

#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one flag of the command line"
)]
pub(crate) struct ProbeCommand {
    /// On which device: erdma_0, sim:NAME or sim:./FILE.toml [default: the only real one]
    #[arg(long, value_name = "DEVICE", value_parser = parse_device)]
    pub(crate) device: Option<String>,
    /// Hold no more than N table entries at once
    #[arg(long, value_name = "N", value_parser = parse_entries)]
    pub(crate) up_to: Option<u64>,
    /// End by this time, with what is known then: 60s, 5m. Trying stops early enough to release by then what is held
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "60s")]
    pub(crate) deadline: Duration,
    /// Length of the MRs of which the table is filled; the memory behind them is 16 MiB at most [default: 1GiB; of a
    /// simulated device the longest]
    #[arg(long, value_name = "SIZE")]
    pub(crate) mr: Option<Size>,
    /// Count the MRs that the device has, too: one registration for each
    #[arg(long)]
    pub(crate) count_mrs: bool,
    /// Probe although other processes hold MRs: their registrations can fail meanwhile, and the answer is an interval
    #[arg(long)]
    pub(crate) beside_others: bool,
    /// Save nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Answer as one JSON document
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) facts: FactArgs,
    /// As it was typed.
    #[arg(skip)]
    pub(crate) typed: Typed,
}

#[derive(Debug, Args)]
pub(crate) struct LearnCommand {
    /// A size that was registered, as one MR on an empty device (may be repeated)
    #[arg(long, value_name = "SIZE")]
    pub(crate) ok: Vec<Size>,
    /// A size that the device refused because its table was full (may be repeated)
    #[arg(long, value_name = "SIZE")]
    pub(crate) fail: Vec<Size>,
    /// Page size of the memory, as the device saw it
    #[arg(long, value_name = "PAGE", value_parser = parse_page, default_value = "4KiB")]
    pub(crate) page: PageSize,
    /// Save it for this device; without it, it is only said
    #[arg(long, value_name = "DEVICE", value_parser = parse_device)]
    pub(crate) device: Option<String>,
    #[command(flatten)]
    pub(crate) limits: LimitsArgs,
    /// Answer as one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UsageCommand {
    /// Of which device [default: every one]
    #[arg(long, value_name = "DEVICE", value_parser = parse_device)]
    pub(crate) device: Option<String>,
    #[command(flatten)]
    pub(crate) limits: LimitsArgs,
    /// Answer as one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

fn parse_entries(text: &str) -> Result<u64, String> {
    match parse_count(text)? {
        0 => Err("0 entries: nothing could be tried".to_owned()),
        n => Ok(n),
    }
}

/// In less no device is opened and asked.
const SHORTEST_MICROS: u64 = 10_000;

fn parse_time(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is no time (write 60s, 0.5s, 5m, 1h or 500ms)");
    let at = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    // Thousandths are enough.
    let whole: u64 = whole.parse().map_err(|_| bad())?;
    if part.is_empty() || part.len() > 3 {
        return Err(bad());
    }
    let part: u64 = format!("{part:0<3}").parse().map_err(|_| bad())?;
    let micros = match unit {
        "ms" => 1000,
        "" | "s" => 1_000_000,
        "m" | "min" => 60_000_000,
        "h" => 3_600_000_000,
        _ => return Err(bad()),
    };
    let time = whole
        .checked_mul(micros)
        .and_then(|time| time.checked_add(part * (micros / 1000)))
        .ok_or_else(bad)?;
    if time < SHORTEST_MICROS {
        return Err(format!(
            "{text:?} is too short for a probe: 10ms or more, 60s is usual"
        ));
    }
    Ok(Duration::from_micros(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let read = |text| parse_time(text).ok().map(|time| time.as_millis());
        assert_eq!(read("60s"), Some(60_000));
        assert_eq!(read("2m"), Some(120_000));
        assert_eq!(read("7"), Some(7000));
        assert_eq!(read("500ms"), Some(500));
        assert_eq!(read("0.5s"), Some(500));
        assert_eq!(read("1.25m"), Some(75_000));
        assert_eq!(read("1h"), Some(3_600_000));
        for bad in [
            "",
            "s",
            "1d",
            "-1s",
            "99999999999999999999s",
            "1.s",
            ".5s",
            "1.2.3s",
            "0",
            "0.0s",
            "1ms",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
