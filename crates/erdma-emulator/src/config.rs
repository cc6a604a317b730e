//! What a device is made of: limits, capabilities, checks, faults. Read from a TOML file, changed by flags.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

use crate::faults::Fault;
use crate::regs::{CAP_EXTEND_DB, CAP_MTT_VA};
use crate::stamp::StampConfig;

/// A device. Every field has a default, and a key of the same name in the file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// MAC address of the net device that the driver looks for.
    pub mac: Mac,
    /// log2 of the largest region; the driver enforces it.
    pub mr_shift: u8,
    /// Blocks of 1024 queue pairs. The driver makes of it 2048 regions a block.
    pub qp_blocks: u16,
    /// Page-table entries of all regions together.
    pub entries: u64,
    /// Capability flags, as in bits 31:24 of QUERY_DEVICE.
    pub flags: u8,
    /// Firmware version as the device reports it; 0x222 is 0.2.34.
    pub fw_version: u32,
    /// Check stamps after each REG_MR of a program.
    pub stamp: bool,
    /// How.
    pub stamps: StampConfig,
    /// Refuse a length that disagrees with the count of entries.
    pub refuse_wrong_length: bool,
    /// Most entries of one table that are read.
    pub walk_limit: u64,
    /// Faults from the start.
    #[serde(deserialize_with = "faults")]
    pub faults: Vec<Fault>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mac: Mac([0x02, 0x00, 0x5e, 0x10, 0x00, 0x01]),
            mr_shift: 36,
            qp_blocks: 128,
            entries: 1 << 25,
            flags: CAP_MTT_VA | CAP_EXTEND_DB,
            fw_version: 0x222,
            stamp: false,
            stamps: StampConfig::default(),
            refuse_wrong_length: false,
            walk_limit: crate::mtt::MAX_ENTRIES,
            faults: Vec::new(),
        }
    }
}

/// A configuration that cannot be.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("{path} is no configuration")]
    Parse {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: toml::de::Error,
    },
    /// A value out of range.
    #[error("{0}")]
    Value(String),
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or names something unknown.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let name = || path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: name(),
            source,
        })?;
        toml::from_str(&text).map_err(|source| ConfigError::Parse {
            path: name(),
            source,
        })
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// On the first value that no device could have.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let bad = |text: String| Err(ConfigError::Value(text));
        if !(12..=63).contains(&self.mr_shift) {
            return bad(format!(
                "mr_shift {} is not between 12 and 63",
                self.mr_shift
            ));
        }
        if !(1..=0xfff).contains(&self.qp_blocks) {
            return bad(format!(
                "qp_blocks {} is not between 1 and 4095",
                self.qp_blocks
            ));
        }
        if self.walk_limit == 0 || self.walk_limit > crate::mtt::MAX_ENTRIES {
            return bad(format!(
                "walk_limit {} is not between 1 and 2^27",
                self.walk_limit
            ));
        }
        if self.faults.len() > crate::faults::MAX_FAULTS {
            return bad(format!("more than {} faults", crate::faults::MAX_FAULTS));
        }
        self.stamps.validate().map_err(ConfigError::Value)
    }

    /// Regions that the driver may make: it computes the same from the blocks.
    #[must_use]
    pub fn max_mr(&self) -> u32 {
        2048 * u32::from(self.qp_blocks)
    }

    /// The two words of QUERY_DEVICE.
    #[must_use]
    pub fn query_device(&self) -> [u64; 2] {
        const MAX_CQE_SHIFT: u64 = 20;
        const MAX_RECV_WR_SHIFT: u64 = 15;
        const MAX_AH_SHIFT: u64 = 8;
        const MAX_GID_SHIFT: u64 = 4;
        const MAX_MW_SHIFT: u64 = 17;
        const LOCAL_DMA_KEY: u64 = 0x1234_5678;
        [
            u64::from(self.mr_shift)
                | MAX_AH_SHIFT << 8
                | MAX_RECV_WR_SHIFT << 16
                | u64::from(self.flags) << 24
                | MAX_CQE_SHIFT << 40
                | MAX_GID_SHIFT << 48,
            MAX_MW_SHIFT | u64::from(self.qp_blocks) << 16 | LOCAL_DMA_KEY << 32,
        ]
    }
}

fn faults<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<Fault>, D::Error> {
    Vec::<String>::deserialize(d)?
        .iter()
        .map(|s| s.parse().map_err(serde::de::Error::custom))
        .collect()
}

/// A MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

/// Why a text is no MAC address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no MAC address of a single net device: write 02:00:5e:10:00:01")]
pub struct MacError(String);

impl FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, MacError> {
        let bytes: Option<Vec<u8>> = text
            .split(':')
            .map(|part| {
                let digits = part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
                digits.then(|| u8::from_str_radix(part, 16).ok()).flatten()
            })
            .collect();
        match bytes.as_deref().and_then(|b| <[u8; 6]>::try_from(b).ok()) {
            // An odd first byte is a group, which no device has as its own address.
            Some(mac) if mac[0] & 1 == 0 && mac != [0; 6] => Ok(Self(mac)),
            _ => Err(MacError(text.into())),
        }
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl<'de> Deserialize<'de> for Mac {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_device_words() {
        // 64 GiB, flags 0x28, 128 blocks
        assert_eq!(
            Config::default().query_device(),
            [0x0004_1400_280f_0824, 0x1234_5678_0080_0011]
        );
        assert_eq!(Config::default().max_mr(), 262_144);
    }

    #[test]
    fn files() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("device.toml");
        let read = |text: &str| {
            std::fs::write(&path, text).expect("write");
            Config::from_file(&path)
        };
        assert_eq!(read("").expect("empty"), Config::default());
        let c = read(concat!(
            "mac = \"02:00:5e:10:00:02\"\nmr_shift = 25\nqp_blocks = 16\nentries = 3000\nflags = 0\n",
            "stamp = true\nrefuse_wrong_length = true\nfaults = [\"refuse@3\", \"late=20s@4\"]\n",
            "[stamps]\nlimit = 100\nperiod = 65011712\n"
        ))
        .expect("config");
        assert!(c.validate().is_ok());
        assert_eq!(
            (c.entries, c.flags, c.faults.len(), c.stamps.limit),
            (3000, 0, 2, 100)
        );
        assert_eq!(c.stamps.stride, 4096);
        assert_eq!(c.mac.to_string(), "02:00:5e:10:00:02");
        for text in [
            "entires = 3",
            "mac = \"1:2\"",
            "faults = [\"x\"]",
            "qp_blocks = -1",
        ] {
            assert!(
                matches!(read(text), Err(ConfigError::Parse { .. })),
                "{text}"
            );
        }
        assert!(matches!(
            Config::from_file(&dir.path().join("none")),
            Err(ConfigError::Read { .. })
        ));
        for text in [
            "mr_shift = 11",
            "qp_blocks = 0",
            "qp_blocks = 4096",
            "walk_limit = 0",
        ] {
            assert!(read(text).expect("parses").validate().is_err(), "{text}");
        }
    }

    #[test]
    fn macs() {
        for text in [
            "",
            "02:00:5e:10:00",
            "02:00:5e:10:00:01:02",
            "2:0:5e:10:0:1",
            "01:00:5e:10:00:01",
            "+2:00:5e:10:00:01",
            "00:00:00:00:00:00",
        ] {
            assert!(text.parse::<Mac>().is_err(), "{text}");
        }
    }
}
