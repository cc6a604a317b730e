//! PCI configuration space: identity, two BARs, one capability (MSI-X).
//!
//! The driver (`erdma_main.c`) insists on exactly the memory BARs 0 and 2 and counts an expansion ROM as a
//! BAR, so there is none.

use crate::device::VECTORS;
use crate::regs::BAR0_SIZE;

/// Size of configuration space.
pub const CONFIG_SIZE: usize = 256;
/// Size of BAR 2: the MSI-X table, and its pending bits a page further.
pub const BAR2_SIZE: u64 = 8 << 10;

const VENDOR_DEVICE: u32 = 0x107f_1ded;
const STATUS_HAS_CAPABILITIES: u32 = 1 << 20;
/// Network controller, ethernet; the revision is shown as `hw_ver`.
const CLASS_REVISION: u32 = 0x0200_0010;
const BAR_64_BIT: u32 = 0b100;
const MSIX_AT: usize = 0x40;
const MSIX_ID: u32 = 0x11;
const MSIX_BAR: u32 = 2;
const MSIX_PENDING: u32 = 0x1000;

/// Configuration space with the bits of it that can be written.
#[derive(Clone, Debug)]
pub struct ConfigSpace {
    bytes: [u8; CONFIG_SIZE],
    writable: [u8; CONFIG_SIZE],
}

impl ConfigSpace {
    /// As after power-on.
    #[must_use]
    pub fn new() -> Self {
        let mut space = Self {
            bytes: [0; CONFIG_SIZE],
            writable: [0; CONFIG_SIZE],
        };
        let msix_control = u32::from(VECTORS - 1) << 16;
        for (at, value, writable) in [
            (0x00, VENDOR_DEVICE, 0),
            // memory space, bus master, parity, SERR, no INTx
            (0x04, STATUS_HAS_CAPABILITIES, 0x0546),
            (0x08, CLASS_REVISION, 0),
            (0x0c, 0, 0x0000_00ff),
            (0x10, BAR_64_BIT, size_mask(BAR0_SIZE)),
            (0x14, 0, u32::MAX),
            (0x18, BAR_64_BIT, size_mask(BAR2_SIZE)),
            (0x1c, 0, u32::MAX),
            (0x2c, VENDOR_DEVICE, 0),
            (0x34, 0x40, 0),
            (0x3c, 0, 0x0000_00ff),
            // enable and mask all
            (MSIX_AT, MSIX_ID | msix_control, 0xc000_0000),
            (MSIX_AT + 4, MSIX_BAR, 0),
            (MSIX_AT + 8, MSIX_PENDING | MSIX_BAR, 0),
        ] {
            put(&mut space.bytes, at, value);
            put(&mut space.writable, at, writable);
        }
        space
    }

    /// Reads any bytes; zero beyond the end.
    pub fn read(&self, offset: u64, buf: &mut [u8]) {
        for (i, byte) in (0u64..).zip(buf) {
            *byte = index(offset, i)
                .and_then(|at| self.bytes.get(at))
                .copied()
                .unwrap_or(0);
        }
    }

    /// Writes any bytes; what cannot be written stays.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        for (i, new) in (0u64..).zip(data) {
            let Some(at) = index(offset, i) else { return };
            if let (Some(byte), Some(mask)) = (self.bytes.get_mut(at), self.writable.get(at)) {
                *byte = *byte & !mask | new & mask;
            }
        }
    }
}

impl Default for ConfigSpace {
    fn default() -> Self {
        Self::new()
    }
}

/// Address bits of a BAR of this size.
const fn size_mask(size: u64) -> u32 {
    !(crate::bits::low32(size) - 1)
}

fn put(bytes: &mut [u8; CONFIG_SIZE], at: usize, value: u32) {
    if let Some(to) = bytes.get_mut(at..at + 4) {
        to.copy_from_slice(&value.to_le_bytes());
    }
}

fn index(offset: u64, i: u64) -> Option<usize> {
    usize::try_from(offset.checked_add(i)?)
        .ok()
        .filter(|at| *at < CONFIG_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(space: &ConfigSpace, at: u64) -> u32 {
        let mut b = [0; 4];
        space.read(at, &mut b);
        u32::from_le_bytes(b)
    }

    #[test]
    fn identity_and_sizing() {
        let mut s = ConfigSpace::new();
        assert_eq!(word(&s, 0), 0x107f_1ded);
        for at in (0x10..0x28).step_by(4).chain([0x30]) {
            s.write(at, &[0xff; 4]);
        }
        let masks: Vec<u32> = (0x10..0x28).step_by(4).map(|at| word(&s, at)).collect();
        assert_eq!(masks, [0xfff8_0004, u32::MAX, 0xffff_e004, u32::MAX, 0, 0]);
        assert_eq!(word(&s, 0x30), 0, "no ROM");
    }

    #[test]
    fn msix_is_the_only_capability() {
        let mut s = ConfigSpace::new();
        assert_eq!(word(&s, 0x34), 0x40);
        assert_eq!(word(&s, 0x40), 0x001f_0011);
        s.write(0x42, &[0xff, 0xff]);
        assert_eq!(word(&s, 0x40), 0xc01f_0011);
        s.write(0x04, &[0xff; 4]);
        assert_eq!(word(&s, 0x04), 0x0010_0546);
    }

    #[test]
    fn the_end_and_beyond() {
        let mut s = ConfigSpace::new();
        s.write(254, &[1; 8]);
        s.write(u64::MAX, &[1; 8]);
        let mut b = [9; 8];
        s.read(u64::MAX - 2, &mut b);
        assert_eq!(b, [0; 8]);
    }
}
