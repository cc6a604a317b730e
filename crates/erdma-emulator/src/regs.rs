//! The register map of BAR 0 and the words that are written to it.
//!
//! Source: Linux `drivers/infiniband/hw/erdma/erdma_hw.h`, the same in 6.1, 6.12 and 7.3 but where said.

use crate::bits::{field, low16, low32};

/// Size of BAR 0: a page of registers, then doorbell pages (the CQ page, 0x79000, is the last one used).
pub const BAR0_SIZE: u64 = 512 << 10;
/// End of the register page; beyond it are doorbells of user queues, which this device ignores.
pub const REGISTERS_END: u64 = 0x1000;

/// Version of the device; zero would end the driver's probe with ENODEV.
pub const VERSION: u64 = 0x00;
/// 0: iWARP. Read by 6.12 and later only.
pub const DEV_PROTO: u64 = 0x0c;
/// Control: [`CTRL_RESET`], [`CTRL_INIT`].
pub const DEV_CTRL: u64 = 0x10;
/// Status: [`ST_RESET_DONE`], [`ST_INIT_DONE`]. Polled by the driver.
pub const DEV_ST: u64 = 0x14;
/// Last four bytes of the net device's MAC, as a big-endian number.
pub const MAC_L: u64 = 0x18;
/// First two bytes of the net device's MAC, as a big-endian number.
pub const MAC_H: u64 = 0x1c;
/// Command submission queue, address, low word (the high word follows).
pub const CMDQ_SQ_ADDR: u64 = 0x20;
/// Command completion queue, address.
pub const CMDQ_CQ_ADDR: u64 = 0x28;
/// Depth of the command queue in units of 32 bytes, and of its completion queue in entries.
pub const CMDQ_DEPTH: u64 = 0x30;
/// Depth of the command event queue.
pub const CMDQ_EQ_DEPTH: u64 = 0x34;
/// Command event queue, address.
pub const CMDQ_EQ_ADDR: u64 = 0x38;
/// Groups of direct work queue entries: 0 turns the feature off. Read by 6.1 only.
pub const GRP_NUM: u64 = 0x4c;
/// First event queue doorbell; 8 bytes each, number 0 is the command event queue's.
pub const EQ_DB: u64 = 0x100;
/// Doorbell of the command submission queue.
pub const CMDQ_SQ_DB: u64 = 0x200;
/// Doorbell of the command completion queue.
pub const CMDQ_CQ_DB: u64 = 0x300;

/// Control bit: drop all state.
pub const CTRL_RESET: u32 = 1 << 0;
/// Control bit: take the queue addresses and start.
pub const CTRL_INIT: u32 = 1 << 1;
/// Status bit: reset done.
pub const ST_RESET_DONE: u32 = 1 << 0;
/// Status bit: initialisation done.
pub const ST_INIT_DONE: u32 = 1 << 1;

/// Capability flag in QUERY_DEVICE: page tables in levels.
pub const CAP_MTT_VA: u8 = 1 << 5;
/// Capability flag: doorbell pages are given out by ALLOC_DB.
pub const CAP_EXTEND_DB: u8 = 1 << 3;
/// Capability flag: atomic operations.
pub const CAP_ATOMIC: u8 = 1 << 7;

/// BAR 0 page that 6.1's user contexts share for send doorbells.
pub const SHARED_SQ_PAGE: u16 = 0x5f;
/// First BAR 0 page of receive doorbells.
pub const RQ_PAGE: u16 = 0x61;
/// BAR 0 page of completion queue doorbells.
pub const CQ_PAGE: u16 = 0x79;

/// A value written to the command submission queue's doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqDoorbell(pub u64);

impl SqDoorbell {
    /// The new producer index, in units of 32 bytes, running freely.
    #[must_use]
    pub const fn producer(self) -> u16 {
        low16(self.0)
    }
}

/// A value written to the doorbell of a completion or event queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArmDoorbell(pub u64);

impl ArmDoorbell {
    /// Whether the next entry shall raise an event.
    #[must_use]
    pub const fn arms(self) -> bool {
        field(low32(self.0), 31, 1) == 1
    }

    /// The consumer index, 24 bits of it.
    #[must_use]
    pub const fn consumer(self) -> u32 {
        field(low32(self.0), 0, 24)
    }
}

/// MAC address as the two registers show it: (low, high).
#[must_use]
pub const fn mac_registers(mac: [u8; 6]) -> (u32, u32) {
    (
        u32::from_be_bytes([mac[2], mac[3], mac[4], mac[5]]),
        u32::from_be_bytes([0, 0, mac[0], mac[1]]),
    )
}

/// The registers as plain storage.
#[derive(Clone, Debug)]
pub struct RegisterFile {
    words: Box<[u32; 1024]>,
}

impl RegisterFile {
    /// All zero.
    #[must_use]
    pub fn new() -> Self {
        Self {
            words: Box::new([0; 1024]),
        }
    }

    fn slot(offset: u64) -> Option<usize> {
        (offset < REGISTERS_END && offset.is_multiple_of(4))
            .then(|| usize::try_from(offset / 4).ok())
            .flatten()
    }

    /// One word; zero outside the registers.
    #[must_use]
    pub fn get(&self, offset: u64) -> u32 {
        Self::slot(offset)
            .and_then(|i| self.words.get(i))
            .copied()
            .unwrap_or(0)
    }

    /// Two words, the low one first.
    #[must_use]
    pub fn get64(&self, offset: u64) -> u64 {
        crate::bits::join(self.get(offset), self.get(offset + 4))
    }

    /// Stores one word; nothing happens outside the registers.
    pub fn set(&mut self, offset: u64, value: u32) {
        if let Some(word) = Self::slot(offset).and_then(|i| self.words.get_mut(i)) {
            *word = value;
        }
    }

    /// Reads any bytes; those beyond the register page are zero.
    pub fn read(&self, offset: u64, buf: &mut [u8]) {
        for (i, byte) in (0u64..).zip(buf) {
            let at = offset.saturating_add(i);
            let word = self.get(at & !3).to_le_bytes();
            *byte = usize::try_from(at & 3)
                .ok()
                .and_then(|b| word.get(b))
                .copied()
                .unwrap_or(0);
        }
    }
}

impl Default for RegisterFile {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doorbells() {
        assert_eq!(SqDoorbell(0x1_0004).producer(), 4);
        let db = ArmDoorbell(0xff00_0000_b012_3456);
        assert!(db.arms());
        assert_eq!(db.consumer(), 0x12_3456);
        assert!(!ArmDoorbell(0x7fff_ffff).arms());
    }

    #[test]
    fn mac_is_one_big_endian_number() {
        assert_eq!(
            mac_registers([2, 0, 0x5e, 0x10, 0, 1]),
            (0x5e10_0001, 0x0200)
        );
    }

    #[test]
    fn storage() {
        let mut r = RegisterFile::new();
        r.set(CMDQ_SQ_ADDR, 0x9abc_def0);
        r.set(CMDQ_SQ_ADDR + 4, 0x1234_5678);
        assert_eq!(r.get64(CMDQ_SQ_ADDR), 0x1234_5678_9abc_def0);
        let mut b = [0; 3];
        r.read(CMDQ_SQ_ADDR + 3, &mut b);
        assert_eq!(b, [0x9a, 0x78, 0x56]);
        r.set(REGISTERS_END, 1);
        r.set(2, 1);
        r.read(REGISTERS_END - 1, &mut b);
        assert_eq!(b, [0; 3]);
        r.read(u64::MAX - 1, &mut b);
    }
}
