//! Values as they are typed: sizes, numbers, versions, lists. What cannot be taken is refused in words.

use std::str::FromStr;

use hugemr_core::backend::Access;
use hugemr_core::errno::Errno;
use hugemr_core::host::Driver;
use hugemr_core::plan::{Leave, OtherUse, Pages};
use hugemr_core::size::{Bytes, PageSize, SizeError, ungrouped};
use hugemr_core::version::{BundleVersion, KernelVersion};

/// What the name of a simulated device begins with.
const SIMULATED: &str = "sim:";

/// The name of a device; the prefix of a simulated one in any case.
pub(crate) fn parse_device(text: &str) -> Result<String, std::convert::Infallible> {
    let (prefix, name) = text.split_at_checked(SIMULATED.len()).unwrap_or((text, ""));
    Ok(if prefix.eq_ignore_ascii_case(SIMULATED) {
        format!("{SIMULATED}{name}")
    } else {
        text.to_owned()
    })
}

/// A size with its text, so that `64GB` can be answered with a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) bytes: u64,
    pub(crate) text: String,
    pub(crate) decimal: bool,
}

impl FromStr for Size {
    type Err = SizeError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (bytes, decimal) = Bytes::parse(text)?;
        Ok(Self {
            bytes: bytes.0,
            text: text.to_owned(),
            decimal,
        })
    }
}

/// Limits as the user states them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Budget {
    Unknown,
    Between(u64, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memlock {
    Unlimited,
    Bytes(u64),
}

/// A kernel version, or the statement that it is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaybeKernel(pub(crate) Option<KernelVersion>);

pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    let digits = ungrouped(text)
        .ok_or_else(|| format!("{text:?}: commas stand before groups of three digits"))?;
    let is_number = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    if !is_number(&digits) {
        let is_below = digits.strip_prefix('-').is_some_and(is_number);
        let what = if is_below {
            "below 0"
        } else {
            "no whole number"
        };
        return Err(format!("{text:?} is {what}"));
    }
    digits
        .parse()
        .map_err(|_| format!("{text} is above {}, the largest number", u64::MAX))
}

/// A size of at least one byte.
pub(crate) fn parse_length(text: &str) -> Result<Size, String> {
    let size: Size = text.parse().map_err(|error: SizeError| error.to_string())?;
    match size.bytes {
        0 => Err(format!("{text:?} is too short: at least one byte")),
        _ => Ok(size),
    }
}

/// A whole number of at least one.
fn parse_some<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    match parse_count(text)? {
        0 => Err("0 is too few: at least 1".to_owned()),
        n => T::try_from(n).map_err(|_| format!("{text} is too many")),
    }
}

/// How many devices or protection domains.
pub(super) fn parse_copies(text: &str) -> Result<u64, String> {
    match parse_some(text)? {
        n if n > 1024 => Err(format!("{n} is too many: at most 1024")),
        n => Ok(n),
    }
}

/// The number of a process.
pub(crate) fn parse_pid(text: &str) -> Result<u32, String> {
    // PID_MAX_LIMIT, Linux include/linux/threads.h: a number is below it.
    const MOST: u64 = 4 << 20;
    match parse_some::<u64>(text)? {
        n if n < MOST => u32::try_from(n).map_err(|_| format!("{n} is no process")),
        n => Err(format!(
            "{n} is no process: the kernel's numbers are below {MOST}"
        )),
    }
}

/// The number of a node.
pub(crate) fn parse_id(text: &str) -> Result<u32, String> {
    u32::try_from(parse_count(text)?).map_err(|_| format!("{text} is no such number"))
}

pub(super) fn parse_threads(text: &str) -> Result<std::num::NonZeroUsize, String> {
    let n: usize = parse_some(text)?;
    std::num::NonZeroUsize::new(n).ok_or_else(|| "0 is too few: at least 1".to_owned())
}

pub(super) fn parse_alias(text: &str) -> Result<std::num::NonZeroU64, String> {
    let n: u64 = parse_some(text)?;
    std::num::NonZeroU64::new(n).ok_or_else(|| "0 is too few: at least 1".to_owned())
}

pub(crate) fn parse_budget(text: &str) -> Result<Budget, String> {
    if text.eq_ignore_ascii_case("unknown") {
        return Ok(Budget::Unknown);
    }
    let (low, high) = match text.split_once('-') {
        Some((low, high)) if !low.is_empty() && !high.is_empty() => (low, high),
        Some(_) => return Err(format!("{text:?} is no N, no LOW-HIGH and not unknown")),
        None => (text, text),
    };
    let (low, high) = (parse_count(low)?, parse_count(high)?);
    if low > high {
        return Err(format!(
            "{low} is above {high}: write the lower number first"
        ));
    }
    Ok(Budget::Between(low, high))
}

pub(crate) fn parse_kernel(text: &str) -> Result<MaybeKernel, String> {
    if text.eq_ignore_ascii_case("unknown") {
        return Ok(MaybeKernel(None));
    }
    text.parse()
        .map(|version| MaybeKernel(Some(version)))
        .map_err(|_| {
            let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.');
            match digits.map(|at| text[..at].trim_end_matches('.')) {
                Some(front) if front.parse::<KernelVersion>().is_ok() => format!(
                    "{text:?} is no upstream version: what a distribution puts behind it hides which fixes it has; write {front} for the fixes of that version alone, or unknown"
                ),
                _ => format!("{text:?} is no kernel version (write for example 6.12.31 or 6.8, or unknown)"),
            }
        })
}

pub(crate) fn parse_driver(text: &str) -> Result<Driver, String> {
    match text.to_ascii_lowercase().as_str() {
        "in-tree" => Ok(Driver::InTree),
        "vendor" => Ok(Driver::Vendor(None)),
        "unknown" => Ok(Driver::Unknown),
        _ => text
            .parse::<BundleVersion>()
            .map(|bundle| Driver::Vendor(Some(bundle)))
            .map_err(|_| {
                format!(
                    "{text:?} is no driver (write in-tree, vendor, a bundle like 1.5.7, or unknown)"
                )
            }),
    }
}

pub(crate) fn parse_memlock(text: &str) -> Result<Memlock, String> {
    if matches!(text, "unlimited" | "infinity" | "-1") {
        return Ok(Memlock::Unlimited);
    }
    Bytes::parse(text)
        .map(|(bytes, _)| Memlock::Bytes(bytes.0))
        .map_err(|e| e.to_string())
}

pub(super) fn parse_pages(text: &str) -> Result<Pages, String> {
    match text.to_ascii_lowercase().as_str() {
        "auto" => Ok(Pages::Auto),
        "mixed" => Ok(Pages::Mixed),
        "thp" => Ok(Pages::Thp),
        _ => parse_page(text).map(Pages::Only),
    }
}

pub(crate) fn parse_page(text: &str) -> Result<PageSize, String> {
    text.parse::<PageSize>().map_err(|e| e.to_string())
}

pub(super) fn parse_leave(text: &str) -> Result<Leave, String> {
    match text.strip_suffix('%') {
        Some(percent) => match percent.trim().parse::<u8>() {
            Ok(p) if p <= 100 => Ok(Leave::PerCent(p)),
            _ => Err(format!("{text:?} is no whole percentage from 0% to 100%")),
        },
        None => match parse_count(text)? {
            0 => Ok(Leave::Nothing),
            n => Ok(Leave::Entries(n)),
        },
    }
}

pub(super) fn parse_other(text: &str) -> Result<OtherUse, String> {
    let (bytes, page) = text
        .split_once('@')
        .ok_or_else(|| format!("{text:?} is no SIZE@PAGE like 80GiB@64KiB"))?;
    let bytes = Bytes::parse(bytes).map_err(|e| e.to_string())?.0.0;
    Ok(OtherUse {
        bytes,
        page: parse_page(page)?,
    })
}

pub(super) fn parse_errno(text: &str) -> Result<Errno, String> {
    // As the kernel and libfabric return it: -5.
    let positive = text.strip_prefix('-').unwrap_or(text);
    Errno::parse(positive)
        .ok_or_else(|| format!("{text:?} is no errno that is known (write EIO or 5)"))
}

pub(super) fn parse_family(text: &str) -> Result<hugemr_core::device::Family, String> {
    hugemr_core::device::Family::named(text)
}

const ACCESS: &str = "local-write, remote-read, remote-write, remote-atomic, relaxed-ordering";

pub(super) fn parse_access(text: &str) -> Result<Access, String> {
    let mut access = Access::empty();
    for word in text
        .split([',', '|', '+'])
        .map(str::trim)
        .filter(|w| !w.is_empty())
    {
        access |= match word.to_ascii_lowercase().replace('_', "-").as_str() {
            "local-write" => Access::LOCAL_WRITE,
            "remote-write" => Access::REMOTE_WRITE,
            "remote-read" => Access::REMOTE_READ,
            "remote-atomic" => Access::REMOTE_ATOMIC,
            "relaxed-ordering" => Access::RELAXED_ORDERING,
            _ => return Err(format!("{word:?} is no access flag ({ACCESS})")),
        };
    }
    if access.is_empty() {
        return Err(format!(
            "{text:?} has no access flag: write a list of {ACCESS}"
        ));
    }
    access
        .refusal()
        .map_or(Ok(access), |why| Err(format!("{text}: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_or_refused_in_words() {
        assert_eq!(
            parse_budget("400,000-500_000"),
            Ok(Budget::Between(400_000, 500_000))
        );
        assert!(parse_budget("5-4").is_err());
        assert!(parse_budget("1,5-2").is_err());
        assert!(parse_count("1,0000").is_err());
        // Also of those that take no 0.
        for text in ["-1", "-1,000"] {
            let is_below = Err(format!("{text:?} is below 0"));
            assert_eq!(parse_count(text), is_below);
            assert_eq!(parse_threads(text).map(|n| n.get() as u64), is_below);
        }
        for text in ["", "x", "-", "-x", "1.5", "--1", "-+1"] {
            assert_eq!(
                parse_count(text),
                Err(format!("{text:?} is no whole number"))
            );
        }
        assert_eq!(parse_leave("10%"), Ok(Leave::PerCent(10)));
        assert!(parse_leave("101%").is_err());
        assert!(parse_other("80GiB").is_err());
        assert!(parse_access("remote-write").is_err());
        assert_eq!(parse_access("remote-read"), Ok(Access::REMOTE_READ));
        assert_eq!(
            parse_driver("1.5.7"),
            Ok(Driver::Vendor(Some(BundleVersion(1, 5, 7))))
        );
        assert!(parse_driver("1.5").is_err());
        // What is advised is itself taken.
        let refused = |text| parse_kernel(text).map(drop).unwrap_err();
        assert!(refused("6.8-generic").contains("write 6.8 for the fixes"));
        assert!(refused("6.x").contains("no kernel version"));
        assert!(parse_pages("3MiB").is_err());
    }
}
