//! Versions of kernels and of the vendor's driver bundle.

use std::fmt;
use std::str::FromStr;

/// An upstream Linux version. `patch` is absent where only the series is known (`6.8`).
///
/// What `uname -r` prints is a package's name on Debian and Ubuntu (`6.1.0-57-amd64` is 6.1.192); see
/// [`KernelVersion::upstream`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelVersion {
    /// First number.
    pub major: u16,
    /// Second number.
    pub minor: u16,
    /// Third number: the stable release. `None`: not known (counts as the oldest of its series).
    pub patch: Option<u16>,
}

impl KernelVersion {
    /// major.minor.patch.
    #[must_use]
    pub const fn new(major: u16, minor: u16, patch: u16) -> Self {
        Self {
            major,
            minor,
            patch: Some(patch),
        }
    }

    /// (major, minor), for comparing series.
    #[must_use]
    pub const fn series(self) -> (u16, u16) {
        (self.major, self.minor)
    }

    /// Whether this is certainly `major.minor.patch` or later **of the same series**.
    #[must_use]
    pub fn at_least_patch(self, patch: u16) -> bool {
        self.patch.is_some_and(|own| own >= patch)
    }

    /// The upstream version behind a running kernel.
    ///
    /// `uname_r` and `uname_v` are the two fields of uname(2), `signature` is the text of
    /// `/proc/version_signature` (Ubuntu only). Debian writes the upstream version into `uname -v`
    /// (`#1 SMP Debian 6.1.192-3 (...)`), Ubuntu as the last word of the signature. Everywhere else
    /// `uname -r` is believed for a release that does not look like a distribution's ABI name
    /// (`X.Y.0-N`, or a vendor kernel with a suffix after a dash): otherwise unknown.
    #[must_use]
    pub fn upstream(uname_r: &str, uname_v: &str, signature: Option<&str>) -> Option<Self> {
        if let Some(rest) = uname_v.split("Debian ").nth(1) {
            return rest.split(['-', '~', ' ', '+']).next()?.parse().ok();
        }
        if let Some(signature) = signature {
            return signature.split_whitespace().last()?.parse().ok();
        }
        let (release, suffix) = uname_r.split_once(['-', '+']).unwrap_or((uname_r, ""));
        let version: Self = release.parse().ok()?;
        let packaged = suffix.chars().next().is_some_and(|c| c.is_ascii_digit());
        (!packaged && version.patch.is_some()).then_some(version)
    }
}

impl FromStr for KernelVersion {
    type Err = VersionError;
    fn from_str(text: &str) -> Result<Self, VersionError> {
        let numbers = numbers(text, 2..=3)?;
        let patch = numbers.get(2).copied();
        Ok(Self {
            major: numbers[0],
            minor: numbers[1],
            patch,
        })
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        self.patch.map_or(Ok(()), |patch| write!(f, ".{patch}"))
    }
}

/// The version of the vendor's installer bundle (`erdma_installer 1.5.7`): the number space in which the
/// vendor announces its fixes. Not the version of the Debian package, nor that of the driver's source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BundleVersion(pub u16, pub u16, pub u16);

impl FromStr for BundleVersion {
    type Err = VersionError;
    fn from_str(text: &str) -> Result<Self, VersionError> {
        let numbers = numbers(text, 3..=3)?;
        Ok(Self(numbers[0], numbers[1], numbers[2]))
    }
}

impl fmt::Display for BundleVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// A text that is no version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no version (write for example 6.12.31 or 1.5.7)")]
pub struct VersionError(pub String);

fn numbers(text: &str, count: std::ops::RangeInclusive<usize>) -> Result<Vec<u16>, VersionError> {
    let error = || VersionError(text.to_owned());
    let numbers: Vec<u16> = text
        .trim()
        .split('.')
        .map(|part| {
            let digits = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            if digits {
                part.parse().map_err(|_| error())
            } else {
                Err(error())
            }
        })
        .collect::<Result<_, _>>()?;
    if count.contains(&numbers.len()) {
        Ok(numbers)
    } else {
        Err(error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(r: &str, v: &str, signature: Option<&str>, want: Option<KernelVersion>) {
        assert_eq!(
            KernelVersion::upstream(r, v, signature),
            want,
            "{r} | {v} | {signature:?}"
        );
    }

    #[test]
    fn the_upstream_version_is_read_where_it_is_written() {
        let debian = "#1 SMP PREEMPT_DYNAMIC Debian 6.1.192-3 (2026-10-01)";
        check(
            "6.1.0-57-amd64",
            debian,
            None,
            Some(KernelVersion::new(6, 1, 192)),
        );
        let backport = "#1 SMP PREEMPT_DYNAMIC Debian 7.3.4-1~bpo13+1 (2026-11-02)";
        check(
            "7.3.4+deb13-amd64",
            backport,
            None,
            Some(KernelVersion::new(7, 3, 4)),
        );
        let ubuntu = Some("Ubuntu 5.15.0-105.115-generic 5.15.148");
        check(
            "5.15.0-105-generic",
            "#115-Ubuntu SMP",
            ubuntu,
            Some(KernelVersion::new(5, 15, 148)),
        );
    }

    #[test]
    fn a_package_name_is_not_a_version() {
        check("5.15.0-105-generic", "#115-Ubuntu SMP", None, None);
        check("5.10.134-16.1.al8.x86_64", "#1 SMP", None, None);
        check(
            "6.18.44-fc-v782",
            "#1 SMP",
            None,
            Some(KernelVersion::new(6, 18, 44)),
        );
        check("6.15.3", "#1 SMP", None, Some(KernelVersion::new(6, 15, 3)));
        check("garbage", "", None, None);
    }

    #[test]
    fn versions_are_parsed_whole_or_refused() {
        assert_eq!(
            "6.8".parse(),
            Ok(KernelVersion {
                major: 6,
                minor: 8,
                patch: None
            })
        );
        assert_eq!("1.5.7".parse(), Ok(BundleVersion(1, 5, 7)));
        for text in [
            "", "6", "6.", "6.1.2.3", "6.x", "6.1-rc1", "+6.1", "99999.1",
        ] {
            assert!(text.parse::<KernelVersion>().is_err(), "{text}");
        }
        assert!("1.5".parse::<BundleVersion>().is_err());
    }
}
