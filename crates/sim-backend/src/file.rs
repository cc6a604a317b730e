//! Simulated devices in files: `sim:./my-device.toml`.
//!
//! A file starts from a profile and says what is different. Every key but `base` is optional; a key that is not known
//! is an error, which names the file, the line and the key. A complete example, with every key:
//!
//! ```toml
#![doc = include_str!("../example.toml")]
//! ```
//!
//! | value | written as |
//! |---|---|
//! | a size | `"64GiB"`, `"64G"` or a number of bytes; no decimal units |
//! | a limit | a number or size, `"unlimited"`, `"unknown"`, or a table with `value`, or `at_least` and `at_most`, and `kind` (`documented`, `measured`, `inferred`, `assumed`, `given`) and `source` |
//! | a kernel | `"6.12.31"`, `"6.8"` or `"unknown"` |
//! | a driver | `"in-tree"`, `"vendor"`, the version of the vendor's bundle such as `"1.5.7"`, or `"unknown"` |
//! | an errno | `"EIO"` or a number |

mod value;

use std::num::NonZeroU64;
use std::path::Path;
use std::time::Duration;

use hugemr_core::backend::Verb;
use hugemr_core::device::Used;
use hugemr_core::errno::Errno;
use hugemr_core::fact::Limit;
use hugemr_core::host::{Driver, Presumption};
use hugemr_core::size::{PageSize, PageSizes};
use hugemr_core::version::KernelVersion;
use serde::Deserialize;

use crate::error::SimError;
use crate::faults::Faults;
use crate::memory::DefaultLayout;
use crate::overrides::Overrides;
use crate::profile::Profile;

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeviceFile {
    #[serde(deserialize_with = "value::profile")]
    base: Profile,
    name: Option<String>,
    about: Option<String>,
    #[serde(default)]
    limits: Limits,
    #[serde(default)]
    actual: Actual,
    #[serde(default)]
    used: UsedByOthers,
    mlx4: Option<Mlx4>,
    #[serde(default)]
    platform: PlatformKeys,
    #[serde(default)]
    memory: Memory,
    #[serde(default)]
    delay: Delay,
    #[serde(default)]
    fault: Vec<Fault>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Limits {
    #[serde(deserialize_with = "value::limit")]
    max_mr_size: Option<Limit>,
    #[serde(deserialize_with = "value::limit")]
    max_mr: Option<Limit>,
    #[serde(deserialize_with = "value::limit")]
    entries: Option<Limit>,
    #[serde(deserialize_with = "value::limit")]
    entries_per_mr: Option<Limit>,
    #[serde(deserialize_with = "value::page_size_cap")]
    page_size_cap: Option<PageSizes>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Actual {
    entries: Option<u64>,
    #[serde(deserialize_with = "value::size")]
    max_mr_size: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct UsedByOthers {
    entries: u64,
    mrs: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mlx4 {
    log_num_mtt: u32,
    log_mtts_per_seg: u32,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PlatformKeys {
    #[serde(deserialize_with = "value::kernel")]
    kernel: Option<Option<KernelVersion>>,
    #[serde(deserialize_with = "value::driver")]
    driver: Option<Driver>,
    sg_fix: Option<bool>,
    mtt_va: Option<bool>,
    iommu: Option<bool>,
    #[serde(deserialize_with = "value::presumption")]
    unknown: Option<Presumption>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LayoutName {
    Scattered,
    Contiguous,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Memory {
    layout: Option<LayoutName>,
    #[serde(deserialize_with = "value::page")]
    page: Option<PageSize>,
    seed: u64,
    strict: Option<bool>,
    #[serde(deserialize_with = "value::size")]
    memlock: Option<u64>,
    #[serde(deserialize_with = "value::size")]
    sg_cap: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Delay {
    #[serde(deserialize_with = "value::delay")]
    reg_us: u64,
    #[serde(deserialize_with = "value::delay")]
    reg_us_per_gib: u64,
    #[serde(deserialize_with = "value::delay")]
    dereg_us: u64,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Call {
    RegMr,
    DeregMr,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultKeys {
    call: Call,
    first: NonZeroU64,
    last: Option<NonZeroU64>,
    #[serde(deserialize_with = "value::errno")]
    errno: Errno,
}

#[derive(Deserialize)]
#[serde(try_from = "FaultKeys")]
struct Fault {
    verb: Verb,
    first: u64,
    last: u64,
    errno: Errno,
}

impl TryFrom<FaultKeys> for Fault {
    type Error = &'static str;

    fn try_from(keys: FaultKeys) -> Result<Self, Self::Error> {
        let last = keys.last.unwrap_or(keys.first);
        if last < keys.first {
            return Err("last is before first");
        }
        Ok(Self {
            verb: match keys.call {
                Call::RegMr => Verb::RegMr,
                Call::DeregMr => Verb::DeregMr,
            },
            first: keys.first.get(),
            last: last.get(),
            errno: keys.errno,
        })
    }
}

impl Profile {
    /// Reads a device file.
    ///
    /// # Errors
    /// [`SimError::Unreadable`], or [`SimError::BadFile`] with line and key.
    pub fn read(path: &Path) -> Result<Self, SimError> {
        let shown = path.display().to_string();
        let text = hugemr_input::text(path, hugemr_input::SETTINGS).map_err(|source| {
            SimError::Unreadable {
                path: shown.clone(),
                source,
            }
        })?;
        let mut profile = Self::from_toml(&text, &shown)?;
        profile.file = Some(path.to_owned());
        Ok(profile)
    }

    /// Reads the text of a device file; `path` is its name in errors, and that of the device unless the file gives
    /// one.
    ///
    /// # Errors
    /// [`SimError::BadFile`] with line and key.
    pub fn from_toml(text: &str, path: &str) -> Result<Self, SimError> {
        let file: DeviceFile =
            toml::from_str(text).map_err(|error| bad_file(text, path, &error))?;
        Ok(file.into_profile(path))
    }
}

impl DeviceFile {
    fn into_profile(self, path: &str) -> Profile {
        let mut profile = self.base;
        profile.device.name = self.name.unwrap_or_else(|| format!("sim:{path}"));
        profile.about = self.about.unwrap_or(profile.about);
        let memory = match (profile.memory, self.memory.layout, self.memory.page) {
            (now, None, None) => now,
            (DefaultLayout::Scattered { page, .. }, None | Some(LayoutName::Scattered), said)
            | (DefaultLayout::Contiguous { page }, Some(LayoutName::Scattered), said) => {
                DefaultLayout::Scattered {
                    page: said.unwrap_or(page),
                    seed: self.memory.seed,
                }
            }
            (
                DefaultLayout::Contiguous { page } | DefaultLayout::Scattered { page, .. },
                _,
                said,
            ) => DefaultLayout::Contiguous {
                page: said.unwrap_or(page),
            },
        };
        let overrides = Overrides {
            kernel: self.platform.kernel,
            driver: self.platform.driver,
            sg_fix: self.platform.sg_fix,
            mtt_va: self.platform.mtt_va,
            iommu: self.platform.iommu,
            unknown: self.platform.unknown,
            entries: self.limits.entries,
            entries_per_mr: self.limits.entries_per_mr,
            max_mr: self.limits.max_mr,
            max_mr_size: self.limits.max_mr_size,
            actual_entries: self.actual.entries,
            actual_max_mr_size: self.actual.max_mr_size,
            used: Some(Used {
                entries: (self.used.entries, Some(self.used.entries)),
                mrs: (self.used.mrs, Some(self.used.mrs)),
            }),
            mlx4: (self.mlx4).map(|keys| (keys.log_num_mtt, keys.log_mtts_per_seg)),
            sg_cap: self.memory.sg_cap,
            memory: Some(memory),
            strict_memory: self.memory.strict,
            memlock: self.memory.memlock,
            faults: Some(faults(&self.delay, &self.fault)),
        };
        overrides.apply(&mut profile);
        profile.device.page_size_cap =
            (self.limits.page_size_cap).unwrap_or(profile.device.page_size_cap);
        profile
    }
}

fn faults(delay: &Delay, rules: &[Fault]) -> Faults {
    let delays = Faults::default()
        .reg_delay(Duration::from_micros(delay.reg_us))
        .reg_delay_per_gib(Duration::from_micros(delay.reg_us_per_gib))
        .dereg_delay(Duration::from_micros(delay.dereg_us));
    rules.iter().fold(delays, |faults, rule| {
        faults.fail_calls(rule.verb, rule.first, rule.last, rule.errno)
    })
}

fn bad_file(text: &str, path: &str, error: &toml::de::Error) -> SimError {
    let place = hugemr_input::Place::of(text, error.span());
    SimError::BadFile {
        path: path.to_owned(),
        line: place.line,
        key: place.key,
        message: hugemr_input::plain(error.message()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugemr_core::fact::Kind;
    use hugemr_core::size::GIB;
    use hugemr_core::version::BundleVersion;
    use proptest::prelude::*;

    const EXAMPLE: &str = include_str!("../example.toml");

    /// A call that sleeps cannot be interrupted: no file makes it sleep for years.
    #[test]
    fn a_delay_has_a_bound() {
        for key in ["reg_us", "reg_us_per_gib", "dereg_us"] {
            let of = |micros: u64| {
                let text = format!("base = \"erdma\"\n[delay]\n{key} = {micros}\n");
                Profile::from_toml(&text, "slow.toml")
            };
            assert!(of(3_600_000_000).is_ok(), "{key}");
            let error = of(3_600_000_001).unwrap_err().to_string();
            assert!(error.contains("an hour"), "{error}");
        }
    }

    #[test]
    fn the_example_says_what_it_shows() {
        let profile = Profile::from_toml(EXAMPLE, "example.toml").unwrap();
        let device = &profile.device;
        assert_eq!(device.name, "my-erdma");
        assert_eq!(device.max_mr_size.known(), Some(64 * GIB));
        assert_eq!(device.max_mr.source.kind, Kind::Assumed);
        assert_eq!(
            (device.entries.certain(), device.entries.at_most()),
            (24_903_680, Some(25_165_823))
        );
        assert!(device.entries_per_mr.is_unlimited());
        assert_eq!(device.used.mrs, (3, Some(3)));
        assert_eq!(profile.actual_entries, Some(25_000_000));
        assert_eq!(
            profile.platform.kernel,
            Some(KernelVersion::new(5, 15, 148))
        );
        let driver = Driver::Vendor(Some(BundleVersion(1, 5, 6)));
        assert_eq!(profile.platform.driver, driver);
        let layout = DefaultLayout::Scattered {
            page: PageSize::M2,
            seed: 7,
        };
        assert_eq!(profile.memory, layout);
        assert_eq!(profile.sg_cap, 0xffff_f000);
        assert_eq!(profile.faults.at(Verb::RegMr, 3), Some(Errno::EIO));
        assert_eq!(profile.faults.at(Verb::RegMr, 4), None);
        assert_eq!(profile.faults.at(Verb::DeregMr, 12), Some(Errno::EBUSY));
    }

    #[test]
    fn one_key_is_enough() {
        let profile = Profile::from_toml("base = \"mooncake-304\"", "x.toml").unwrap();
        let mut named = Profile::named("mooncake-304").unwrap();
        named.device.name = "sim:x.toml".to_owned();
        assert_eq!(profile, named);
    }

    /// `place` is `line key`, `words` are in the message.
    #[track_caller]
    fn refused(text: &str, place: &str, words: &str) {
        let error = Profile::from_toml(text, "x.toml").unwrap_err();
        let SimError::BadFile {
            line, key, message, ..
        } = &error
        else {
            panic!("{error}");
        };
        let at = format!("{line} {}", key.as_deref().unwrap_or("-"));
        assert_eq!(at, place, "{error}");
        assert!(message.contains(words), "{error}");
        assert!(error.to_string().starts_with("x.toml:"), "{error}");
    }

    #[test]
    fn a_bad_file_is_refused_with_line_and_key() {
        refused(
            "base = \"erdma\"\nnmae = \"x\"",
            "2 nmae",
            "no key \"nmae\"",
        );
        refused("base = \"edrma\"", "1 base", "ecs.r8a.32xlarge");
        refused("name = \"x\"", "1 name", "the key \"base\" is missing");
        let in_limits = |line: &str| format!("base = \"erdma\"\n\n[limits]\n{line}\n");
        for (line, key, words) in [
            ("max_mr_size = \"64XiB\"", "max_mr_size", "no unit"),
            ("max_mr_size = \"64GB\"", "max_mr_size", "decimal"),
            ("max_mr = -1", "max_mr", "negative"),
            ("max_mr = true", "max_mr", "a number"),
            ("entries = { valu = 1 }", "entries", "valu"),
            ("entries = { kind = \"measured\" }", "entries", "value"),
            (
                "entries = { at_least = 2, at_most = 1 }",
                "entries",
                "at_least",
            ),
            ("entries = { value = 2, at_most = 1 }", "entries", "value"),
            (
                "entries = { value = 2, kind = \"felt\" }",
                "entries",
                "felt",
            ),
            ("page_size_cap = 0x200000", "page_size_cap", "4 KiB"),
            ("tables = 3", "tables", "no key"),
        ] {
            refused(&in_limits(line), &format!("4 limits.{key}"), words);
        }
        let text = "base = \"erdma\"\n[platform]\nkernel = \"six\"";
        refused(text, "3 platform.kernel", "version");
        let text = "base = \"erdma\"\n[platform]\ndriver = \"1.5\"";
        refused(text, "3 platform.driver", "in-tree");
        let text = "base = \"erdma\"\n[memory]\npage = \"3MiB\"";
        refused(text, "3 memory.page", "page size");
        let text = "base = \"erdma\"\n[[fault]]\ncall = \"reg_mr\"\nfirst = 0\nerrno = \"EIO\"";
        refused(text, "4 fault.first", "from 1 on");
        let text = "base = \"erdma\"\n[[fault]]\ncall = \"reg_mr\"\nfirst = 1\nerrno = \"EWHAT\"";
        refused(text, "5 fault.errno", "EWHAT");
        let text = "base = \"erdma\"\n[[fault]]\ncall = \"reg_mr\"\nfirst = 2\nlast = 1\nerrno = 5";
        refused(text, "2 fault", "before first");
        refused("base = ", "1 base", "");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(?s)[ -~\\n]{0,200}") {
            let _ = Profile::from_toml(&text, "x.toml");
        }

        #[test]
        fn a_broken_example_is_refused_or_taken(at in 0..EXAMPLE.len(), byte in "[ -~\\n]") {
            let mut text = EXAMPLE.to_owned();
            if text.is_char_boundary(at) && text.is_char_boundary(at + 1) {
                text.replace_range(at..=at, &byte);
            }
            let _ = Profile::from_toml(&text, "x.toml");
        }
    }
}
