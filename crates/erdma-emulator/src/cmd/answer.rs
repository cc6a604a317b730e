//! What the device writes: completions, events, statistics.

/// The status of a completion. Zero is success; what other values mean on real firmware is not public, so the
/// numbers are this device's own. The driver turns each into EIO and tells nobody which it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Syndrome {
    /// No command of this device.
    UnknownCommand = 0x01,
    /// A field that cannot be right, or a request too short.
    Malformed = 0x02,
    /// The page-table budget would be exceeded.
    OverBudget = 0x10,
    /// No room for one more memory region.
    TooManyMrs = 0x11,
    /// The index of the new region is in use.
    IndexInUse = 0x12,
    /// No such region.
    UnknownKey = 0x13,
    /// A table that is not in guest memory.
    TableUnreadable = 0x20,
    /// An entry that is no multiple of the page size.
    TableMisaligned = 0x21,
    /// An entry of zero: the table holds fewer than the command says.
    TableShort = 0x22,
    /// More entries than the levels can hold, or none, or more than this device walks.
    TableCount = 0x23,
    /// The length disagrees with entries times page size.
    WrongLength = 0x24,
    /// A queue number in use, or unknown, or out of range.
    BadObject = 0x30,
    /// The answer could not be written to guest memory.
    BadAddress = 0x31,
    /// A fault that was asked for.
    Injected = 0x7f,
}

impl Syndrome {
    /// The byte in the completion.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The name used in events.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::UnknownCommand => "unknown_command",
            Self::Malformed => "malformed",
            Self::OverBudget => "over_budget",
            Self::TooManyMrs => "too_many_mrs",
            Self::IndexInUse => "index_in_use",
            Self::UnknownKey => "unknown_key",
            Self::TableUnreadable => "table_unreadable",
            Self::TableMisaligned => "table_misaligned",
            Self::TableShort => "table_short",
            Self::TableCount => "table_count",
            Self::WrongLength => "wrong_length",
            Self::BadObject => "bad_object",
            Self::BadAddress => "bad_address",
            Self::Injected => "injected",
        }
    }
}

/// A completion without its owner bit: eight big-endian words.
#[must_use]
pub fn completion(opcode: u8, start: u16, syndrome: u8, results: [u64; 2]) -> [u8; 32] {
    const COMMAND_QUEUE: u8 = 2;
    let mut entry = [0; 32];
    let halves = |r: u64| [crate::bits::low32(r), crate::bits::high32(r)];
    let ([a, b], [c, d]) = (halves(results[0]), halves(results[1]));
    let status = u32::from_be_bytes([0, opcode, COMMAND_QUEUE, syndrome]);
    for (to, word) in entry
        .chunks_exact_mut(4)
        .zip([status, start.into(), a, b, c, d])
    {
        to.copy_from_slice(&word.to_be_bytes());
    }
    entry
}

/// An event of the command queue without its owner bit: queue number 0 and nothing else.
#[must_use]
pub const fn event() -> [u8; 16] {
    [0; 16]
}

/// Bytes of the answer to GET_STATS: a head of 16 and eleven counters.
const STATS_LEN: usize = 16 + 11 * 8;

/// The answer to GET_STATS. There is no traffic, so every counter is zero.
#[must_use]
pub fn stats(index: u32) -> [u8; STATS_LEN] {
    const MAGIC: u16 = 0x5566;
    const COUNTER_BYTES: u8 = 88;
    let mut bytes = [0; STATS_LEN];
    bytes[..2].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[3] = COUNTER_BYTES;
    bytes[4..8].copy_from_slice(&index.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_bytes() {
        let c = completion(
            8,
            0x0102,
            0x10,
            [0x1122_3344_5566_7788, 0x99aa_bbcc_ddee_ff00],
        );
        assert_eq!(c[..8], [0, 8, 2, 0x10, 0, 0, 1, 2]);
        assert_eq!(c[8..16], [0x55, 0x66, 0x77, 0x88, 0x11, 0x22, 0x33, 0x44]);
        assert_eq!(c[16..24], [0xdd, 0xee, 0xff, 0x00, 0x99, 0xaa, 0xbb, 0xcc]);
        assert_eq!(c[24..], [0; 8]);
    }

    #[test]
    fn stats_bytes() {
        let s = stats(0x0a0b);
        assert_eq!(s[..8], [0x66, 0x55, 0, 88, 0x0b, 0x0a, 0, 0]);
        assert_eq!(s.len(), 104);
    }

    #[test]
    fn names_are_those_of_serde() {
        for s in [
            Syndrome::OverBudget,
            Syndrome::TableShort,
            Syndrome::TooManyMrs,
        ] {
            assert_eq!(serde_json::to_value(s).expect("json"), s.name());
        }
    }
}
