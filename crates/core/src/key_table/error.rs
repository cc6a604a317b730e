//! Why there is no table, no key, or no table from bytes.

use crate::size::Count;
use std::fmt;

/// Why a list of MRs is no table. Numbers are places in the list, from 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The list is empty.
    #[error("a key table needs one MR at least")]
    NoMr,
    /// More MRs than a table can number.
    #[error("{0} MRs are more than a key table can hold (2^30 - 1)")]
    TooMany(usize),
    /// Length 0.
    #[error("MR {index} has length 0")]
    EmptyMr {
        /// Which.
        index: usize,
    },
    /// Address and length add up to more than 2^64.
    #[error("MR {index} goes beyond the end of the address space")]
    BeyondEnd {
        /// Which.
        index: usize,
    },
    /// It lies before its predecessor.
    #[error("MR {index} lies before the MR in front of it: sort the list by address")]
    Unsorted {
        /// Which.
        index: usize,
    },
    /// Two MRs share bytes: an address would have two keys.
    #[error("MR {first} and MR {second} overlap")]
    Overlap {
        /// The one.
        first: usize,
        /// The other.
        second: usize,
    },
}

/// Bytes that no MR holds: from `start` to `last`, both included, because the end of the address space has no
/// number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingRange {
    /// Address of the first missing byte.
    pub start: u64,
    /// Address of the last of the missing bytes that follow it without a gap.
    pub last: u64,
}

impl MissingRange {
    /// The address behind the last missing byte; 2^64 where the range goes up to the end.
    #[must_use]
    pub fn end(&self) -> u128 {
        u128::from(self.last) + 1
    }
}

impl fmt::Display for MissingRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{:#x}, {:#x})", self.start, self.end())
    }
}

/// Why a range has no single key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LookupError {
    /// Length 0: no byte, no key.
    #[error("the range at {addr:#x} is empty")]
    Empty {
        /// Where.
        addr: u64,
    },
    /// Address and length add up to more than 2^64.
    #[error("{len} B at {addr:#x} go beyond the end of the address space")]
    BeyondEnd {
        /// Address.
        addr: u64,
        /// Bytes.
        len: u64,
    },
    /// Every byte is registered, but the range lies in several MRs that touch each other: split it.
    #[error("the range crosses MR borders: it lies in MRs {first} to {last}")]
    Crosses {
        /// Number of the MR that holds the first byte.
        first: usize,
        /// Number of the MR that holds the last byte.
        last: usize,
    },
    /// No MR holds these bytes: the first stretch of them.
    #[error("no MR holds {0}")]
    Missing(MissingRange),
}

impl LookupError {
    /// Number of borders between MRs inside the range; 0 where the range does not cross.
    #[must_use]
    pub fn borders(&self) -> usize {
        match self {
            Self::Crosses { first, last } => last - first,
            _ => 0,
        }
    }
}

/// Why bytes are no exported table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// They do not begin with the magic.
    #[error("not an exported key table")]
    NotATable,
    /// Written by another version of the format.
    #[error("key table of format version {0}; this version reads {ours}", ours = super::FORMAT_VERSION)]
    Version(u32),
    /// The length does not agree with the number of MRs in the header.
    #[error("an exported key table of {} does not have {}", Count(*mrs, "MR"), Count(*len as u64, "byte"))]
    Length {
        /// As the header says.
        mrs: u64,
        /// Bytes there are; those of a header are too few to say.
        len: usize,
    },
    /// Fewer bytes than a header and a checksum.
    #[error("{0} bytes are too few for an exported key table")]
    Truncated(usize),
    /// The reserved field of the header is not 0.
    #[error("the reserved field of an exported key table is {0:#x}, not 0")]
    Reserved(u32),
    /// The checksum is that of other bytes.
    #[error("the exported key table is damaged: checksum {found:#010x}, computed {computed:#010x}")]
    Checksum {
        /// In the bytes.
        found: u32,
        /// Over the bytes.
        computed: u32,
    },
    /// The MRs in it are no table.
    #[error("the exported key table is not valid")]
    Table(#[from] TableError),
}
