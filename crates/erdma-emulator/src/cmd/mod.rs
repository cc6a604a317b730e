//! Requests of the command queue: bytes in, an enum out.
//!
//! Source: Linux `drivers/infiniband/hw/erdma/erdma_hw.h` of 6.1, 6.12 and 7.3. A driver builds requests on its
//! stack without clearing them: every field that its version does not set holds garbage, so nothing is checked
//! that a version leaves out.

mod answer;
mod reg_mr;

pub use answer::{Syndrome, completion, event, stats};
pub use reg_mr::{Length, MrKey, MrKind, RegMr, Rights};

use crate::bits::{field, high32, low8, low16, low32};

/// Bytes of one unit of the submission queue.
pub const UNIT: usize = 32;

/// The first 8 bytes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The driver's producer index after this request.
    pub index: u16,
    /// What is asked, within its module.
    pub opcode: u8,
    /// 0 RDMA, 1 common.
    pub module: u8,
    /// The driver's own number for the request.
    pub cookie: u16,
    /// Length in units, 1 to 8.
    pub units: u8,
}

impl Header {
    /// Takes the fields apart.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        let (low, high) = (low32(bits), high32(bits));
        Self {
            index: low16(bits),
            opcode: low8(field(low, 16, 8)),
            module: low8(field(low, 24, 2)),
            cookie: low16(bits >> 32),
            units: low8(field(high, 20, 3)) + 1,
        }
    }
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Limits and capabilities.
    QueryDevice,
    /// Version of the firmware.
    QueryFwInfo,
    /// A completion event queue.
    CreateEq(CreateEq),
    /// Its end.
    DestroyEq {
        /// Number of the queue.
        eqn: u8,
    },
    /// A completion queue.
    CreateCq {
        /// Number of the queue.
        cqn: u32,
    },
    /// Its end.
    DestroyCq {
        /// Number of the queue.
        cqn: u32,
    },
    /// A queue pair.
    CreateQp {
        /// Number of the pair.
        qpn: u32,
    },
    /// Its end.
    DestroyQp {
        /// Number of the pair.
        qpn: u32,
    },
    /// Another state of a queue pair.
    ModifyQp {
        /// Number of the pair.
        qpn: u32,
        /// The state asked for.
        state: u8,
    },
    /// Flush a queue pair once more (6.2 and later).
    Reflush,
    /// Register memory.
    RegMr(RegMr),
    /// Its end.
    DeregMr(MrKey),
    /// Counters, to be written to guest memory (6.8 and later).
    GetStats(GetStats),
    /// The kernel's page size (6.5 and later).
    ConfDevice {
        /// log2 of it.
        page_shift: u8,
    },
    /// Doorbell pages for one context (6.5 and later).
    AllocDb,
    /// They are given back.
    FreeDb,
    /// The MTU of the net device.
    ConfMtu {
        /// In bytes.
        mtu: u32,
    },
    /// Anything else.
    Unknown {
        /// Module of the header.
        module: u8,
        /// Opcode of the header.
        opcode: u8,
    },
}

/// Fields of CREATE_EQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateEq {
    /// Address of the ring.
    pub ring: u64,
    /// Interrupt vector.
    pub vector: u8,
    /// Number of the queue.
    pub eqn: u8,
    /// log2 of its depth.
    pub depth_shift: u8,
}

/// Fields of GET_STATS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetStats {
    /// Echoed in the answer.
    pub index: u32,
    /// Where the answer goes.
    pub address: u64,
    /// Room there.
    pub length: u32,
}

/// Why a request is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a request of {have} bytes where {need} are needed")]
pub struct DecodeError {
    /// Bytes present.
    pub have: usize,
    /// Bytes that the request's fields reach to.
    pub need: usize,
}

/// A request's bytes, read by offset.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl Fields<'_> {
    fn get<const N: usize>(self, at: usize) -> Result<[u8; N], DecodeError> {
        self.0
            .get(at..)
            .and_then(|tail| tail.first_chunk::<N>())
            .copied()
            .ok_or(DecodeError {
                have: self.0.len(),
                need: at + N,
            })
    }

    pub(crate) fn u8(self, at: usize) -> Result<u8, DecodeError> {
        self.get(at).map(u8::from_le_bytes)
    }

    pub(crate) fn u32(self, at: usize) -> Result<u32, DecodeError> {
        self.get(at).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(self, at: usize) -> Result<u64, DecodeError> {
        self.get(at).map(u64::from_le_bytes)
    }
}

/// Takes a request apart. Any bytes are allowed; those behind the request's own fields are ignored.
///
/// # Errors
/// When the bytes end inside a field of the request that its header names.
pub fn decode(sqe: &[u8]) -> Result<(Header, Command), DecodeError> {
    let sqe = Fields(sqe);
    let header = Header::from_bits(sqe.u64(0)?);
    let number = || Ok(field(sqe.u32(8)?, 0, 20));
    let command = match (header.module, header.opcode) {
        (0, 0) => Command::QueryDevice,
        (0, 1) => Command::CreateQp { qpn: number()? },
        (0, 2) => Command::DestroyQp { qpn: number()? },
        (0, 3) => Command::ModifyQp {
            qpn: number()?,
            state: low8(field(sqe.u32(8)?, 24, 8)),
        },
        (0, 4) => Command::CreateCq { cqn: number()? },
        (0, 5) => Command::DestroyCq { cqn: number()? },
        (0, 6) => Command::Reflush,
        (0, 8) => Command::RegMr(RegMr::decode(sqe)?),
        (0, 9) => Command::DeregMr(MrKey::from_bits(sqe.u32(8)?)),
        (1, 0) => Command::CreateEq(CreateEq {
            ring: sqe.u64(8)?,
            vector: sqe.u8(0x10)?,
            eqn: sqe.u8(0x11)?,
            depth_shift: sqe.u8(0x12)?,
        }),
        (1, 1) => Command::DestroyEq { eqn: sqe.u8(0x11)? },
        (1, 2) => Command::QueryFwInfo,
        (1, 3) => Command::ConfMtu { mtu: sqe.u32(8)? },
        (1, 4) => Command::GetStats(GetStats {
            index: sqe.u32(0x0c)?,
            address: sqe.u64(0x10)?,
            length: sqe.u32(0x18)?,
        }),
        (1, 5) => Command::ConfDevice {
            page_shift: low8(field(sqe.u32(8)?, 0, 5)),
        },
        (1, 8) => Command::AllocDb,
        (1, 9) => Command::FreeDb,
        (module, opcode) => Command::Unknown { module, opcode },
    };
    Ok((header, command))
}

/// Builds a header, as a driver would. For tests and corpora.
#[must_use]
pub fn header_bits(header: Header) -> u64 {
    u64::from(header.index)
        | u64::from(header.opcode) << 16
        | u64::from(header.module & 3) << 24
        | u64::from(header.cookie) << 32
        | u64::from((header.units - 1) & 7) << 52
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn header_round_trip() {
        let h = Header {
            index: 0xfffe,
            opcode: 8,
            module: 1,
            cookie: 0x1234,
            units: 4,
        };
        assert_eq!(Header::from_bits(header_bits(h)), h);
        // a request of 6.1: two units, module 0, opcode 8, index 2
        assert_eq!(
            Header::from_bits(0x0010_0007_0008_0002),
            Header {
                index: 2,
                opcode: 8,
                module: 0,
                cookie: 7,
                units: 2
            }
        );
    }

    #[test]
    fn short_requests_say_what_is_missing() {
        let mut sqe = [0u8; 32];
        sqe[2] = 8;
        assert_eq!(decode(&sqe).err(), Some(DecodeError { have: 32, need: 40 }));
        assert_eq!(decode(&[]).err(), Some(DecodeError { have: 0, need: 8 }));
    }

    #[test]
    fn garbage_behind_the_fields_is_ignored() {
        let mut sqe = [0xa5u8; 128];
        sqe[..8].copy_from_slice(
            &header_bits(Header {
                index: 4,
                opcode: 0,
                module: 0,
                cookie: 0,
                units: 4,
            })
            .to_le_bytes(),
        );
        assert_eq!(decode(&sqe).expect("decode").1, Command::QueryDevice);
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            let _ = decode(&bytes);
        }
    }
}
