//! The three rings of the command path: one is read, two are written.
//!
//! An entry that the device writes carries an owner bit: 1 in the first lap of its ring, 0 in the second, and so
//! on. The word with that bit is published last, so the driver never sees a half-written entry.

use crate::cmd::{Header, UNIT};
use crate::mem::{GuestMemory, MemError};

/// Deepest command queue the device takes. The driver asks for 256 (6.1) or 512 units.
pub const MAX_DEPTH: u32 = 4096;

/// Why a ring could not be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The depth is not a power of two, or too small or too large.
    #[error("depth {0} is no power of two between 2 and {MAX_DEPTH}")]
    Depth(u32),
    /// The ring begins at address 0 or at an odd place.
    #[error("ring address {0:#x} is null or not aligned to 8")]
    Address(u64),
    /// The doorbell announced more than fits.
    #[error("the doorbell announces {pending} units in a ring of {depth}")]
    Overrun {
        /// Units between the device's index and the driver's.
        pending: u16,
        /// Units in the ring.
        depth: u32,
    },
    /// A request is longer than what the doorbell announced.
    #[error("a request of {units} units, {pending} announced")]
    Torn {
        /// Units the header claims.
        units: u8,
        /// Units announced and not yet read.
        pending: u16,
    },
    /// The ring is not in guest memory.
    #[error(transparent)]
    Memory(#[from] MemError),
}

fn check(base: u64, depth: u32) -> Result<(), RingError> {
    if !depth.is_power_of_two() || !(2..=MAX_DEPTH).contains(&depth) {
        return Err(RingError::Depth(depth));
    }
    if base == 0 || !base.is_multiple_of(8) {
        return Err(RingError::Address(base));
    }
    Ok(())
}

/// One request taken from the submission queue.
#[derive(Clone, Debug)]
pub struct Slot {
    /// Unit index of its start: what the answer names.
    pub start: u16,
    bytes: [u8; 8 * UNIT],
    len: usize,
}

impl Slot {
    /// The request as the driver wrote it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// The command submission queue, read by the device.
#[derive(Clone, Debug)]
pub struct SubmissionQueue {
    base: u64,
    depth: u32,
    next: u16,
}

impl SubmissionQueue {
    /// A queue of `depth` units at `base`.
    ///
    /// # Errors
    /// On a depth or an address that cannot be right.
    pub fn new(base: u64, depth: u32) -> Result<Self, RingError> {
        check(base, depth)?;
        Ok(Self {
            base,
            depth,
            next: 0,
        })
    }

    /// The next request before `producer`, or none. After an error everything announced is skipped.
    ///
    /// # Errors
    /// When the doorbell or the request's own length cannot be right, or the ring is not in memory.
    pub fn take(
        &mut self,
        producer: u16,
        mem: &dyn GuestMemory,
    ) -> Result<Option<Slot>, RingError> {
        let pending = producer.wrapping_sub(self.next);
        if pending == 0 {
            return Ok(None);
        }
        let slot = self.fetch(pending, mem);
        match &slot {
            // At most 8 units, checked to be no more than `pending`.
            Ok(slot) => {
                let units = u16::try_from(slot.len / UNIT).unwrap_or(pending);
                self.next = self.next.wrapping_add(units);
            }
            Err(_) => self.next = producer,
        }
        slot.map(Some)
    }

    fn fetch(&self, pending: u16, mem: &dyn GuestMemory) -> Result<Slot, RingError> {
        if u32::from(pending) > self.depth {
            return Err(RingError::Overrun {
                pending,
                depth: self.depth,
            });
        }
        let mut slot = Slot {
            start: self.next,
            bytes: [0; 8 * UNIT],
            len: UNIT,
        };
        let (first, rest) = slot.bytes.split_at_mut(UNIT);
        mem.read(self.unit_address(0), first)?;
        let header = Header::from_bits(u64::from_le_bytes(
            first.first_chunk().copied().unwrap_or_default(),
        ));
        if u16::from(header.units) > pending {
            return Err(RingError::Torn {
                units: header.units,
                pending,
            });
        }
        for (i, unit) in (1..u16::from(header.units)).zip(rest.chunks_exact_mut(UNIT)) {
            mem.read(self.unit_address(i), unit)?;
        }
        slot.len = usize::from(header.units) * UNIT;
        Ok(slot)
    }

    fn unit_address(&self, ahead: u16) -> u64 {
        let index = u32::from(self.next.wrapping_add(ahead)) & (self.depth - 1);
        self.base.wrapping_add(u64::from(index) * UNIT as u64)
    }
}

/// A ring that the device fills: `SIZE` bytes an entry, the owner bit on top of byte `OWNER` of its first word.
#[derive(Clone, Debug)]
pub struct Producer<const SIZE: usize, const OWNER: usize> {
    base: u64,
    depth: u32,
    produced: u32,
}

/// Completions: 32 bytes, big-endian words.
pub type CompletionQueue = Producer<32, 0>;
/// Events: 16 bytes, little-endian words.
pub type EventQueue = Producer<16, 3>;

impl<const SIZE: usize, const OWNER: usize> Producer<SIZE, OWNER> {
    /// A ring of `depth` entries at `base`.
    ///
    /// # Errors
    /// On a depth or an address that cannot be right.
    pub fn new(base: u64, depth: u32) -> Result<Self, RingError> {
        check(base, depth)?;
        Ok(Self {
            base,
            depth,
            produced: 0,
        })
    }

    /// Entries written so far; 24 bits of it, as doorbells carry.
    #[must_use]
    pub const fn produced(&self) -> u32 {
        self.produced & 0x00ff_ffff
    }

    /// Writes one entry: its body first, then the word with the owner bit.
    ///
    /// # Errors
    /// When the ring is not in guest memory. The entry then counts as written: a driver that waits for it waits
    /// in vain, as with a device whose write was lost on the bus.
    pub fn push(&mut self, mut entry: [u8; SIZE], mem: &dyn GuestMemory) -> Result<(), MemError> {
        let index = self.produced & (self.depth - 1);
        let first_lap_or_odd = self.produced & self.depth == 0;
        self.produced = self.produced.wrapping_add(1);
        if let Some(byte) = entry.get_mut(OWNER) {
            *byte = *byte & 0x7f | u8::from(first_lap_or_odd) << 7;
        }
        let addr = self.base.wrapping_add(u64::from(index) * SIZE as u64);
        let (word, body) = entry
            .split_first_chunk::<4>()
            .ok_or(MemError { addr, len: 0 })?;
        mem.write(addr.wrapping_add(4), body)?;
        mem.publish(addr, *word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::RamMemory;

    const BASE: u64 = 0x4000;

    fn header(next: u16, units: u8) -> [u8; 8] {
        (u64::from(next) | u64::from(units - 1) << 52).to_le_bytes()
    }

    #[test]
    fn owner_bit_turns_with_each_lap() {
        let mem = RamMemory::new(BASE, 8 * 32);
        let mut cq = CompletionQueue::new(BASE, 4).expect("ring");
        let mut eq = EventQueue::new(BASE + 128, 4).expect("ring");
        for i in 0..16u32 {
            cq.push([0xff; 32], &mem).expect("push");
            eq.push([0; 16], &mem).expect("push");
            let mut b = [0; 4];
            mem.read(BASE + u64::from(i % 4) * 32, &mut b)
                .expect("read");
            assert_eq!(b[0] >> 7 == 1, i / 4 % 2 == 0, "completion {i}");
            mem.read(BASE + 128 + u64::from(i % 4) * 16, &mut b)
                .expect("read");
            assert_eq!(b[3] >> 7 == 1, i / 4 % 2 == 0, "event {i}");
        }
        assert_eq!(cq.produced(), 16);
    }

    #[test]
    fn body_is_written_before_the_owner_word() {
        use std::cell::RefCell;
        struct Trace(RefCell<Vec<(u64, usize, bool)>>);
        impl GuestMemory for Trace {
            fn read(&self, _: u64, _: &mut [u8]) -> Result<(), MemError> {
                Ok(())
            }
            fn write(&self, addr: u64, bytes: &[u8]) -> Result<(), MemError> {
                self.0.borrow_mut().push((addr, bytes.len(), false));
                Ok(())
            }
            fn publish(&self, addr: u64, _: [u8; 4]) -> Result<(), MemError> {
                self.0.borrow_mut().push((addr, 4, true));
                Ok(())
            }
        }
        let mem = Trace(RefCell::default());
        CompletionQueue::new(BASE, 4)
            .expect("ring")
            .push([0; 32], &mem)
            .expect("push");
        assert_eq!(*mem.0.borrow(), [(BASE + 4, 28, false), (BASE, 4, true)]);
    }

    #[test]
    fn requests_run_over_the_index_and_the_ring_end() {
        let mem = RamMemory::new(BASE, 8 * UNIT);
        let mut sq = SubmissionQueue::new(BASE, 8).expect("ring");
        let mut producer = 0u16;
        for _ in 0..40_000u32 {
            let at = BASE + u64::from(producer % 8) * UNIT as u64;
            producer = producer.wrapping_add(2);
            mem.write(at, &header(producer, 2)).expect("write");
            let slot = sq.take(producer, &mem).expect("take").expect("one");
            assert_eq!(slot.start, producer.wrapping_sub(2));
            assert_eq!(slot.bytes().len(), 64);
            assert!(sq.take(producer, &mem).expect("take").is_none());
        }
        // an odd request that wraps in the middle
        let mut sq = SubmissionQueue {
            base: BASE,
            depth: 8,
            next: 7,
        };
        mem.write(BASE + 7 * 32, &header(9, 2)).expect("write");
        mem.write(BASE, &[0xab; 32]).expect("write");
        let slot = sq.take(9, &mem).expect("take").expect("one");
        assert_eq!(slot.bytes()[32..], [0xab; 32]);
    }

    #[test]
    fn lies_are_refused_and_skipped() {
        let mem = RamMemory::new(BASE, 8 * UNIT);
        let mut sq = SubmissionQueue::new(BASE, 8).expect("ring");
        assert_eq!(
            sq.take(9, &mem).err(),
            Some(RingError::Overrun {
                pending: 9,
                depth: 8
            })
        );
        assert!(sq.take(9, &mem).expect("skipped").is_none());
        mem.write(BASE + 32, &header(0, 4)).expect("write");
        assert_eq!(
            sq.take(11, &mem).err(),
            Some(RingError::Torn {
                units: 4,
                pending: 2
            })
        );
        let mut sq = SubmissionQueue::new(0x10_0000, 8).expect("ring");
        assert!(matches!(sq.take(2, &mem), Err(RingError::Memory(_))));
    }

    #[test]
    fn odd_rings() {
        for depth in [0, 1, 3, 8192, u32::MAX] {
            assert_eq!(
                SubmissionQueue::new(BASE, depth).err(),
                Some(RingError::Depth(depth))
            );
        }
        assert_eq!(EventQueue::new(0, 4).err(), Some(RingError::Address(0)));
        assert_eq!(EventQueue::new(4, 4).err(), Some(RingError::Address(4)));
    }
}
