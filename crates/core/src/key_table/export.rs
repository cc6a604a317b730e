//! The form in which a table travels to a peer.
//!
//! All numbers are little-endian, whatever the host is. Layout, offsets in bytes:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic: the ASCII text `hugemrKT` |
//! | 8 | 4 | version of the format: 1 |
//! | 12 | 4 | reserved: 0 |
//! | 16 | 8 | `n`, number of MRs, at least 1 |
//! | 24 | 20 `n` | for each MR, sorted by address: address (8), length in bytes (8), rkey (4) |
//! | 24 + 20 `n` | 4 | CRC-32 of all bytes before it (IEEE 802.3, as zlib's `crc32`) |
//!
//! The lkeys are left out: they mean nothing to a peer, and one that cannot see them cannot use them by mistake.
//! The rkeys are capabilities: who has the bytes may use the memory as far as its access allows.
//!
//! The checksum finds accidents, not forgery. [`KeyTable::import`] takes any bytes: it never panics, needs memory in
//! proportion to their number, and accepts only what [`KeyTable::export`] could have written.

use super::{Entry, ImportError, KeyTable, NoLkey, PeerKeyTable};
use crate::backend::Rkey;

/// The first eight bytes of an exported table.
pub const MAGIC: [u8; 8] = *b"hugemrKT";
/// The version of the format that is written and read.
pub const FORMAT_VERSION: u32 = 1;

const HEADER: usize = 24;
const ENTRY: usize = 20;
const CHECKSUM: usize = 4;

impl<L: Copy> KeyTable<L> {
    /// The table for a peer: addresses, lengths and rkeys.
    #[must_use]
    pub fn export(&self) -> Vec<u8> {
        let n = self.len();
        let mut bytes = Vec::with_capacity(HEADER + n * ENTRY + CHECKSUM);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&0u32.to_le_bytes());
        bytes.extend_from_slice(&(n as u64).to_le_bytes());
        for mr in self.iter() {
            bytes.extend_from_slice(&mr.addr.to_le_bytes());
            bytes.extend_from_slice(&mr.len.to_le_bytes());
            bytes.extend_from_slice(&mr.rkey.0.to_le_bytes());
        }
        let checksum = crc32(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }
}

impl KeyTable<NoLkey> {
    /// Reads what [`export`](KeyTable::export) wrote, here or elsewhere.
    ///
    /// # Errors
    /// Anything else; see [`ImportError`].
    pub fn import(bytes: &[u8]) -> Result<PeerKeyTable, ImportError> {
        let truncated = ImportError::Truncated(bytes.len());
        if !bytes.starts_with(&MAGIC) {
            return Err(ImportError::NotATable);
        }
        let (body, checksum) = bytes.split_last_chunk().ok_or(truncated.clone())?;
        let (header, entries) = body.split_at_checked(HEADER).ok_or(truncated.clone())?;
        let mut header = Reader(&header[MAGIC.len()..]);
        let (Some(version), Some(reserved), Some(mrs)) = (header.u32(), header.u32(), header.u64())
        else {
            return Err(truncated);
        };
        if version != FORMAT_VERSION {
            return Err(ImportError::Version(version));
        }
        if u128::from(mrs) * (ENTRY as u128) != entries.len() as u128 {
            let len = bytes.len();
            return Err(ImportError::Length { mrs, len });
        }
        let (found, computed) = (u32::from_le_bytes(*checksum), crc32(body));
        if found != computed {
            return Err(ImportError::Checksum { found, computed });
        }
        if reserved != 0 {
            return Err(ImportError::Reserved(reserved));
        }
        let (entries, _) = entries.as_chunks::<ENTRY>();
        let entries: Option<Vec<_>> = entries.iter().map(read_entry).collect();
        Ok(Self::build(entries.ok_or(truncated)?)?)
    }
}

fn read_entry(bytes: &[u8; ENTRY]) -> Option<Entry<NoLkey>> {
    let mut reader = Reader(bytes);
    Some(Entry {
        addr: reader.u64()?,
        len: reader.u64()?,
        lkey: NoLkey,
        rkey: Rkey(reader.u32()?),
    })
}

/// Little-endian numbers from the front of some bytes.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

/// The CRC-32 of IEEE 802.3 (reflected, polynomial 0xEDB88320), byte by byte.
fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = crc32_table();
    let step = |crc: u32, byte: &u8| {
        let [low, ..] = crc.to_le_bytes();
        TABLE[usize::from(low ^ byte)] ^ (crc >> 8)
    };
    !bytes.iter().fold(!0, step)
}

const fn crc32_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256u32 {
        let mut crc = byte;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Lkey;
    use crate::key_table::TableError;
    use proptest::prelude::*;

    fn table(ranges: &[(u64, u64, u32)]) -> KeyTable {
        let entries = ranges.iter().map(|(addr, len, key)| Entry {
            addr: *addr,
            len: *len,
            lkey: Lkey(!key),
            rkey: Rkey(*key),
        });
        KeyTable::new(entries).unwrap()
    }

    /// With the checksum made good.
    fn signed(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.truncate(bytes.len() - CHECKSUM);
        bytes.extend_from_slice(&crc32(&bytes).to_le_bytes());
        bytes
    }

    /// Written down by hand from the layout, the checksum by another program: the format cannot change unseen.
    #[test]
    fn the_layout_is_fixed() {
        let bytes = table(&[(0x1122_3344_5566_7788, 0x1000, 0xaabb_ccdd)]).export();
        let want = [
            &b"hugemrKT"[..],
            &[1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
            &[0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11],
            &[0, 0x10, 0, 0, 0, 0, 0, 0, 0xdd, 0xcc, 0xbb, 0xaa],
            &0x1b68_9083u32.to_le_bytes(),
        ];
        assert_eq!(bytes, want.concat());
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn each_damage_has_its_name() {
        let good = table(&[(0, 8, 1), (8, 8, 2)]).export();
        let error = |bytes: &[u8]| KeyTable::import(bytes).unwrap_err();
        assert_eq!(error(b""), ImportError::NotATable);
        assert_eq!(error(b"hugemrKT"), ImportError::Truncated(8));
        assert_eq!(error(&good[..27]), ImportError::Truncated(27));
        let with = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[at] = value;
            signed(bytes)
        };
        assert_eq!(error(&with(0, b'H')), ImportError::NotATable);
        assert_eq!(error(&with(8, 2)), ImportError::Version(2));
        assert_eq!(error(&with(12, 7)), ImportError::Reserved(7));
        let length = |mrs, len| ImportError::Length { mrs, len };
        assert_eq!(error(&with(16, 3)), length(3, 68));
        assert_eq!(error(&with(23, 0xff)), length((0xff << 56) + 2, good.len()));
        assert_eq!(error(&[&good[..], &[0]].concat()), length(2, 69));
        let overlap = TableError::Overlap {
            first: 0,
            second: 1,
        };
        assert_eq!(error(&with(44, 7)), ImportError::Table(overlap));
        let empty = signed([&good[..16], &[0; 8], &[0; 4]].concat());
        assert_eq!(error(&empty), ImportError::Table(TableError::NoMr));
        let mut damaged = good.clone();
        damaged[24] ^= 1;
        assert!(matches!(error(&damaged), ImportError::Checksum { .. }));
    }

    proptest! {
        #[test]
        fn a_peer_reads_what_was_exported(
            gaps in prop::collection::vec((0u64..3, 1u64..1 << 40, any::<u32>()), 1..60),
        ) {
            let mut at = 0;
            let ranges: Vec<_> = gaps.into_iter().map(|(gap, len, key)| {
                let addr = at + gap;
                at = addr + len;
                (addr, len, key)
            }).collect();
            let own = table(&ranges);
            let bytes = own.export();
            let peer = KeyTable::import(&bytes).unwrap();
            let listed: Vec<_> = peer.iter().map(|mr| (mr.addr, mr.len, mr.rkey.0)).collect();
            prop_assert_eq!(listed, ranges);
            prop_assert_eq!(peer.export(), bytes);
        }

        #[test]
        fn any_bytes_are_a_table_or_an_error(
            ranges in 1u64..20,
            changes in prop::collection::vec((any::<usize>(), any::<u8>()), 0..6),
            cut in any::<usize>(),
            more in prop::collection::vec(any::<u8>(), 0..40),
            signs in any::<bool>(),
            random in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let ranges: Vec<_> = (0..ranges).map(|i| (i << 12, 4096, 7)).collect();
            let mut bytes = table(&ranges).export();
            for (at, value) in changes {
                let at = at % bytes.len();
                bytes[at] = value;
            }
            let len = if cut % 3 == 0 { cut % bytes.len() } else { bytes.len() };
            bytes.truncate(len);
            if cut % 5 == 0 {
                bytes.extend(more);
            }
            if signs && bytes.len() >= CHECKSUM {
                bytes = signed(bytes);
            }
            // Whatever is accepted is exactly what would be written.
            if let Ok(peer) = KeyTable::import(&bytes) {
                prop_assert_eq!(peer.export(), bytes);
            }
            prop_assert!(KeyTable::import(&random).is_err());
            let _ = KeyTable::import(&[&MAGIC[..], &random].concat());
        }
    }
}
