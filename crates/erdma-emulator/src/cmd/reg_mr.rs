//! REG_MR: the one command that this device exists for.

use super::{DecodeError, Fields};
use crate::bits::{field, join, low8};
use crate::mtt::{Root, Table};

/// The name of a memory region in the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MrKey {
    /// Index, 20 bits.
    pub index: u32,
    /// The key byte.
    pub tag: u8,
}

impl MrKey {
    /// From the word that REG_MR and DEREG_MR carry.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self {
            index: field(bits, 0, 20),
            tag: low8(field(bits, 20, 8)),
        }
    }

    /// The number that programs know as lkey and rkey.
    #[must_use]
    pub const fn lkey(self) -> u32 {
        self.index << 8 | self.tag as u32
    }

    /// The key with this lkey.
    #[must_use]
    pub const fn from_lkey(lkey: u32) -> Self {
        Self {
            index: field(lkey, 8, 20),
            tag: low8(lkey),
        }
    }
}

/// Who asks for the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MrKind {
    /// A program, by `ibv_reg_mr`.
    User,
    /// The kernel, for later fast registration: the table is reserved and filled later.
    FastReg,
    /// The kernel, all of memory: no table at all.
    Dma,
    /// The fourth value of the field, which no driver sends.
    Reserved,
}

/// Rights of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights(u8);

impl Rights {
    /// Their names, in the order of their bits.
    #[must_use]
    pub fn names(self) -> Vec<&'static str> {
        [
            "atomic",
            "local_read",
            "local_write",
            "remote_read",
            "remote_write",
        ]
        .into_iter()
        .zip(0..)
        .filter_map(|(name, bit)| (self.0 >> bit & 1 == 1).then_some(name))
        .collect()
    }
}

/// Fields of REG_MR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegMr {
    /// Whether the region is usable at once.
    pub valid: bool,
    /// 0: 32-bit length, 20-bit count. 1 (6.6 and later, tables of two levels and more): 64 and 52 bits.
    pub version: u8,
    /// Name of the region.
    pub key: MrKey,
    /// Protection domain.
    pub pd: u32,
    /// Who asks.
    pub kind: MrKind,
    /// What is allowed.
    pub rights: Rights,
    /// First address of the region, as the program names it.
    pub va: u64,
    /// Length as it came over the wire.
    pub length: u64,
    /// log2 of the page size.
    pub page_shift: u8,
    /// The page table.
    pub table: Table,
}

impl RegMr {
    pub(crate) fn decode(sqe: Fields<'_>) -> Result<Self, DecodeError> {
        let (cfg0, cfg1, cfg2) = (sqe.u32(0x08)?, sqe.u32(0x0c)?, sqe.u32(0x1c)?);
        let version = low8(field(cfg0, 28, 3));
        let kind = match field(cfg1, 6, 2) {
            0 => MrKind::User,
            1 => MrKind::FastReg,
            2 => MrKind::Dma,
            _ => MrKind::Reserved,
        };
        let level = low8(field(cfg2, 20, 2));
        let (mut length, mut entries) = (u64::from(sqe.u32(0x18)?), u64::from(field(cfg2, 0, 20)));
        let mut table_shift = 12;
        if version >= 1 {
            length = join(sqe.u32(0x18)?, sqe.u32(0x28)?);
            entries |= u64::from(sqe.u32(0x2c)?) << 20;
            table_shift += low8(field(cfg2, 24, 3));
        }
        let root = if level == 0 {
            Root::Inline([
                sqe.u64(0x20)?,
                sqe.u64(0x28)?,
                sqe.u64(0x30)?,
                sqe.u64(0x38)?,
            ])
        } else {
            Root::At(sqe.u64(0x20)?)
        };
        Ok(Self {
            valid: field(cfg0, 31, 1) == 1,
            version,
            key: MrKey::from_bits(cfg0),
            pd: field(cfg1, 12, 20),
            kind,
            rights: Rights(low8(field(cfg1, 1, 5))),
            va: sqe.u64(0x10)?,
            length,
            page_shift: low8(field(cfg2, 27, 5)),
            table: Table {
                entries,
                level,
                table_shift,
                root,
            },
        })
    }

    /// Entries times page size: what the table can translate.
    #[must_use]
    pub fn mapped_bytes(&self) -> u64 {
        self.table.entries.saturating_mul(1 << self.page_shift)
    }

    /// Compares the length on the wire with the table's count of entries.
    #[must_use]
    pub fn length_verdict(&self) -> Length {
        let page = 1u128 << self.page_shift;
        let into_page = u128::from(self.va) % page;
        let (length, entries) = (u128::from(self.length), u128::from(self.table.entries));
        if length > 0 && (into_page + length).div_ceil(page) == entries {
            return Length::Exact { bytes: self.length };
        }
        // Lengths for which the count is right: the last byte is in the last page.
        let most = (entries * page).saturating_sub(into_page);
        let least = most.saturating_sub(page) + 1;
        if self.version == 0 && most > length {
            let cut = (most - length) >> 32 << 32;
            if cut > 0 && length + cut >= least {
                return u64::try_from(length + cut)
                    .map_or(Length::Wrong, |bytes| Length::Truncated { bytes });
            }
        }
        Length::Wrong
    }
}

/// How the length on the wire and the count of entries agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// They do.
    Exact {
        /// The length.
        bytes: u64,
    },
    /// The length lost its upper half: with it the count is right.
    Truncated {
        /// The length that fits the count.
        bytes: u64,
    },
    /// They do not, and no lost upper half explains it.
    Wrong,
}

impl Length {
    /// The name used in events.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exact { .. } => "exact",
            Self::Truncated { .. } => "truncated",
            Self::Wrong => "wrong",
        }
    }

    /// The length that fits the count, where there is one.
    #[must_use]
    pub const fn bytes(self) -> Option<u64> {
        match self {
            Self::Exact { bytes } | Self::Truncated { bytes } => Some(bytes),
            Self::Wrong => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::{Command, Header, decode, header_bits};

    const GIB: u64 = 1 << 30;

    fn reg_mr(set: impl FnOnce(&mut [u8; 64])) -> RegMr {
        let mut sqe = [0u8; 64];
        let header = Header {
            index: 2,
            opcode: 8,
            module: 0,
            cookie: 0,
            units: 2,
        };
        sqe[..8].copy_from_slice(&header_bits(header).to_le_bytes());
        set(&mut sqe);
        match decode(&sqe).expect("decode") {
            (_, Command::RegMr(mr)) => mr,
            (_, other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn version_0_inline() {
        let mr = reg_mr(|s| {
            s[0x08..0x0c].copy_from_slice(&0x8050_0005u32.to_le_bytes());
            s[0x0c..0x10].copy_from_slice(&0x0000_701eu32.to_le_bytes());
            s[0x10..0x18].copy_from_slice(&0x7f00_0000_0123u64.to_le_bytes());
            s[0x18..0x1c].copy_from_slice(&0x1000u32.to_le_bytes());
            s[0x1c..0x20].copy_from_slice(&(12u32 << 27 | 2).to_le_bytes());
            s[0x20..0x28].copy_from_slice(&0x5000u64.to_le_bytes());
            s[0x28..0x30].copy_from_slice(&0x9000u64.to_le_bytes());
        });
        assert!(mr.valid);
        assert_eq!(mr.key, MrKey { index: 5, tag: 5 });
        assert_eq!(mr.key.lkey(), 0x505);
        assert_eq!(
            (mr.pd, mr.kind, mr.version, mr.page_shift),
            (7, MrKind::User, 0, 12)
        );
        assert_eq!(
            mr.rights.names(),
            ["atomic", "local_read", "local_write", "remote_read"]
        );
        assert_eq!(mr.table.entries, 2);
        assert_eq!(mr.table.root, Root::Inline([0x5000, 0x9000, 0, 0]));
        assert_eq!(mr.length_verdict(), Length::Exact { bytes: 0x1000 });
    }

    #[test]
    fn version_1_has_long_fields() {
        let mr = reg_mr(|s| {
            s[0x08..0x0c].copy_from_slice(&0x9000_0001u32.to_le_bytes());
            s[0x1c..0x20].copy_from_slice(&(12u32 << 27 | 4 << 24 | 3 << 20 | 3).to_le_bytes());
            s[0x20..0x28].copy_from_slice(&0xa000u64.to_le_bytes());
            s[0x28..0x2c].copy_from_slice(&1u32.to_le_bytes());
            s[0x2c..0x30].copy_from_slice(&2u32.to_le_bytes());
        });
        assert_eq!(mr.version, 1);
        assert_eq!(mr.length, 4 * GIB);
        assert_eq!(
            mr.table,
            Table {
                entries: 2 << 20 | 3,
                level: 3,
                table_shift: 16,
                root: Root::At(0xa000)
            }
        );
    }

    #[test]
    fn lost_upper_halves_are_found() {
        let mr = |va, length, page_shift, entries, version| {
            let mut mr = reg_mr(|_| ());
            (mr.va, mr.length, mr.page_shift, mr.version) = (va, length, page_shift, version);
            mr.table.entries = entries;
            mr.length_verdict()
        };
        // 1 GiB pages, 4 and 5 GiB
        assert_eq!(mr(0, 0, 30, 4, 0), Length::Truncated { bytes: 4 * GIB });
        assert_eq!(mr(0, GIB, 30, 5, 0), Length::Truncated { bytes: 5 * GIB });
        assert_eq!(mr(0, GIB, 30, 1, 0), Length::Exact { bytes: GIB });
        // 6.1: 64 GiB on 2 MiB pages
        assert_eq!(
            mr(1 << 40, 0, 21, 32768, 0),
            Length::Truncated { bytes: 64 * GIB }
        );
        // the same in version 1 is a lie, since its length has 64 bits
        assert_eq!(mr(1 << 40, 0, 21, 32768, 1), Length::Wrong);
        // an unaligned start needs one page more
        assert_eq!(mr(GIB - 1, 2, 30, 2, 0), Length::Exact { bytes: 2 });
        assert_eq!(mr(GIB - 1, 2, 30, 1, 0), Length::Wrong);
        assert_eq!(mr(0, 0, 12, 0, 0), Length::Wrong);
        assert_eq!(mr(u64::MAX, u64::MAX, 31, u64::MAX, 0), Length::Wrong);
    }

    #[test]
    fn lkey_round_trip() {
        let key = MrKey {
            index: 0xf_ffff,
            tag: 0x5a,
        };
        assert_eq!(MrKey::from_lkey(key.lkey()), key);
        assert_eq!(MrKey::from_bits(0x0010_0001), MrKey { index: 1, tag: 1 });
    }
}
