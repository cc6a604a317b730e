//! The stamp check: the device reads registered memory through the table it was given.
//!
//! There is no data path, so nothing would notice a table that leads to the wrong memory. Instead the guest
//! writes into a block its own virtual address and then [`MAGIC`], each 8 bytes, little endian; the device looks
//! at the place where its table says that the block is, and must find the same address there.

use serde::{Deserialize, Serialize};

use crate::cmd::RegMr;
use crate::mem::GuestMemory;
use crate::mtt::Table;

/// Second word of a stamped block: in memory the eight bytes `hugemrST`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"hugemrST");

/// How to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StampConfig {
    /// Distance of blocks in bytes: a power of two, 16 to 1 GiB.
    pub stride: u64,
    /// Most blocks looked at; where a region has more, a sample spread evenly over it.
    pub limit: u64,
    /// For memory that is mapped again and again: a stamp may differ from the block's address by multiples of
    /// this. 0 for memory mapped once.
    pub period: u64,
}

impl Default for StampConfig {
    fn default() -> Self {
        Self {
            stride: 4096,
            limit: 1 << 20,
            period: 0,
        }
    }
}

impl StampConfig {
    /// Whether the stride is possible and the limit not zero.
    ///
    /// # Errors
    /// With a sentence.
    pub fn validate(&self) -> Result<(), String> {
        if !self.stride.is_power_of_two() || !(16..=1 << 30).contains(&self.stride) {
            return Err(format!(
                "stamp stride {} is no power of two from 16 to 2^30",
                self.stride
            ));
        }
        if self.limit == 0 {
            return Err("a stamp limit of 0 checks nothing".into());
        }
        Ok(())
    }
}

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StampReport {
    /// Blocks of the region.
    pub blocks: u64,
    /// Blocks looked at.
    pub checked: u64,
    /// Blocks with a stamp.
    pub stamped: u64,
    /// Stamps with the right address.
    pub ok: u64,
    /// Stamps with another address.
    pub bad: u64,
    /// Blocks that could not be read.
    pub unreadable: u64,
    /// Whether blocks were left out for the limit.
    pub truncated: bool,
    /// The first block with another address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_bad: Option<BadStamp>,
}

/// A block with the stamp of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BadStamp {
    /// Address of the block in the program.
    pub va: u64,
    /// Where the table says that it is.
    pub bus: u64,
    /// The address found there.
    pub found: u64,
}

/// Checks the blocks of a region. Only whole blocks of the region are looked at.
#[must_use]
pub fn check(mr: &RegMr, mem: &dyn GuestMemory, config: &StampConfig) -> StampReport {
    let page = 1u64 << mr.page_shift.min(63);
    let table_base = mr.va - mr.va % page;
    let bytes = mr
        .length_verdict()
        .bytes()
        .unwrap_or_else(|| mr.mapped_bytes());
    let end = mr.va.saturating_add(bytes);
    let mut report = StampReport::default();
    let Some(first) = mr.va.checked_next_multiple_of(config.stride.max(1)) else {
        return report;
    };
    report.blocks = end.saturating_sub(first) / config.stride.max(1);
    let step = report.blocks.div_ceil(config.limit.max(1)).max(1);
    report.truncated = step > 1;
    let mut reader = Table::reader(&mr.table, mem);
    let mut block = 0;
    while block < report.blocks {
        let va = first + block * config.stride;
        report.checked += 1;
        let into = va - table_base;
        let found = reader.entry(into / page).ok().and_then(|entry| {
            let bus = entry.checked_add(into % page)?;
            let mut words = [0; 2];
            mem.read_words(bus, &mut words).ok()?;
            Some((bus, words))
        });
        match found {
            None => report.unreadable += 1,
            Some((bus, [found, MAGIC])) => {
                report.stamped += 1;
                let off = va.abs_diff(found);
                if off == 0 || (config.period != 0 && off.is_multiple_of(config.period)) {
                    report.ok += 1;
                } else {
                    report.bad += 1;
                    report.first_bad.get_or_insert(BadStamp { va, bus, found });
                }
            }
            Some(_) => {}
        }
        block += step;
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::{Command, decode};
    use crate::mem::RamMemory;
    use crate::mtt::Root;

    const VA: u64 = 0x7f00_0000_0000;

    fn region(va: u64, length: u64, entries: [u64; 4], n: u64) -> RegMr {
        let mut sqe = [0u8; 64];
        sqe[2] = 8;
        let Command::RegMr(mr) = decode(&sqe).expect("decode").1 else {
            panic!()
        };
        let table = Table {
            entries: n,
            level: 0,
            table_shift: 12,
            root: Root::Inline(entries),
        };
        RegMr {
            va,
            length,
            page_shift: 14,
            table,
            ..mr
        }
    }

    fn stamp(mem: &RamMemory, bus: u64, va: u64) {
        mem.write(bus, &va.to_le_bytes()).expect("write");
        mem.write(bus + 8, &MAGIC.to_le_bytes()).expect("write");
    }

    #[test]
    fn blocks_are_found_through_the_table() {
        let mem = RamMemory::new(0, 1 << 20);
        let mr = region(VA, 2 << 14, [0x8000, 0x4000, 0, 0], 2);
        for i in 0..4 {
            stamp(&mem, 0x8000 + i * 4096, VA + i * 4096);
        }
        stamp(&mem, 0x4000, VA + 0x4000);
        stamp(&mem, 0x5000, VA);
        let r = check(&mr, &mem, &StampConfig::default());
        assert_eq!(
            (r.blocks, r.checked, r.stamped, r.ok, r.bad),
            (8, 8, 6, 5, 1)
        );
        assert_eq!(
            r.first_bad,
            Some(BadStamp {
                va: VA + 0x5000,
                bus: 0x5000,
                found: VA
            })
        );
        assert!(!r.truncated);
        // mapped twice, 20 KiB apart
        let r = check(
            &mr,
            &mem,
            &StampConfig {
                period: 0x5000,
                ..StampConfig::default()
            },
        );
        assert_eq!((r.ok, r.bad), (6, 0));
    }

    #[test]
    fn an_unaligned_region_counts_whole_blocks() {
        let mem = RamMemory::new(0, 1 << 20);
        let mr = region(VA + 0x3ff0, 0x2000, [0x8000, 0x4000, 0, 0], 2);
        stamp(&mem, 0x4000, VA + 0x4000);
        let r = check(&mr, &mem, &StampConfig::default());
        assert_eq!((r.blocks, r.stamped, r.ok), (1, 1, 1));
    }

    #[test]
    fn the_limit_gives_a_sample_of_all() {
        let mem = RamMemory::new(0, 1 << 16);
        let mr = region(VA, 4 << 14, [0, 1 << 14, 2 << 14, 3 << 14], 4);
        stamp(&mem, 15 << 12, VA + (15 << 12));
        stamp(&mem, 12 << 12, VA + (12 << 12));
        let r = check(
            &mr,
            &mem,
            &StampConfig {
                limit: 4,
                ..StampConfig::default()
            },
        );
        assert_eq!((r.blocks, r.checked, r.truncated, r.ok), (16, 4, true, 1));
    }

    #[test]
    fn hostile_regions_end() {
        let mem = RamMemory::new(0, 1 << 16);
        let config = StampConfig {
            limit: 100,
            ..StampConfig::default()
        };
        for (va, length) in [
            (u64::MAX, u64::MAX),
            (0, u64::MAX),
            (u64::MAX - 5, 3),
            (5, 0),
        ] {
            let mut mr = region(va, length, [u64::MAX; 4], 4);
            assert!(check(&mr, &mem, &config).checked <= 100);
            mr.page_shift = 31;
            mr.table.entries = u64::MAX;
            assert!(check(&mr, &mem, &config).checked <= 100);
        }
    }

    #[test]
    fn odd_configurations() {
        let ok = StampConfig::default();
        assert!(ok.validate().is_ok());
        assert!(StampConfig { stride: 4095, ..ok }.validate().is_err());
        assert!(StampConfig { stride: 8, ..ok }.validate().is_err());
        assert!(StampConfig { limit: 0, ..ok }.validate().is_err());
    }
}
