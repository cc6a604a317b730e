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
