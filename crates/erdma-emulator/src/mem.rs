//! Guest memory as the device sees it: bytes at bus addresses.

use std::cell::RefCell;

/// A bus access that reached no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no guest memory for {len} bytes at {addr:#x}")]
pub struct MemError {
    /// First bus address of the access.
    pub addr: u64,
    /// Its length.
    pub len: u64,
}

/// What the device may do to the memory of its guest.
///
/// The guest runs meanwhile and may change any byte at any time: two reads of one place may differ, so the
/// device reads a thing once and decides on the copy.
pub trait GuestMemory {
    /// Reads `buf.len()` bytes at `addr`.
    ///
    /// # Errors
    /// When a byte of the range is in no readable memory. `buf` is then unspecified.
    fn read(&self, addr: u64, buf: &mut [u8]) -> Result<(), MemError>;

    /// Writes `bytes` at `addr`.
    ///
    /// # Errors
    /// When a byte of the range is in no writable memory. A prefix may have been written.
    fn write(&self, addr: u64, bytes: &[u8]) -> Result<(), MemError>;

    /// Writes one 4-byte word so that a guest that sees it also sees every write made before it.
    ///
    /// # Errors
    /// As [`write`](Self::write), and when `addr` is not a multiple of 4.
    fn publish(&self, addr: u64, word: [u8; 4]) -> Result<(), MemError>;

    /// Reads little-endian 64-bit words.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn read_words(&self, addr: u64, words: &mut [u64]) -> Result<(), MemError> {
        let len = words.len() as u64 * 8;
        if len > 0 && addr.checked_add(len - 1).is_none() {
            return Err(MemError { addr, len });
        }
        // Small, so that the two words of a stamp cost no more than they must.
        let mut bytes = [0u8; 512];
        for (i, some) in (0..).zip(words.chunks_mut(64)) {
            let bytes = bytes.get_mut(..some.len() * 8).unwrap_or_default();
            self.read(addr + i * 512, bytes)?;
            for (word, chunk) in some.iter_mut().zip(bytes.as_chunks::<8>().0) {
                *word = u64::from_le_bytes(*chunk);
            }
        }
        Ok(())
    }
}

/// Guest memory in a vector or several: for tests and fuzz targets.
#[derive(Debug, Default)]
pub struct RamMemory {
    windows: Vec<(u64, RefCell<Vec<u8>>)>,
}

impl RamMemory {
    /// One window of zeros.
    #[must_use]
    pub fn new(base: u64, len: usize) -> Self {
        Self::from_bytes(base, vec![0; len])
    }

    /// One window with this content.
    #[must_use]
    pub fn from_bytes(base: u64, bytes: Vec<u8>) -> Self {
        Self::default().with_window(base, bytes)
    }

    /// Adds a window.
    #[must_use]
    pub fn with_window(mut self, base: u64, bytes: Vec<u8>) -> Self {
        self.windows.push((base, RefCell::new(bytes)));
        self
    }

    /// Removes all memory: every later access fails.
    pub fn vanish(&mut self) {
        self.windows.clear();
    }

    fn with<R>(
        &self,
        addr: u64,
        len: usize,
        f: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, MemError> {
        for (base, bytes) in &self.windows {
            let mut bytes = bytes.borrow_mut();
            if let Some(from) = addr
                .checked_sub(*base)
                .and_then(|o| usize::try_from(o).ok())
                && let Some(slice) = from.checked_add(len).and_then(|to| bytes.get_mut(from..to))
            {
                return Ok(f(slice));
            }
        }
        Err(MemError {
            addr,
            len: len as u64,
        })
    }
}

impl GuestMemory for RamMemory {
    fn read(&self, addr: u64, buf: &mut [u8]) -> Result<(), MemError> {
        self.with(addr, buf.len(), |m| buf.copy_from_slice(m))
    }

    fn write(&self, addr: u64, bytes: &[u8]) -> Result<(), MemError> {
        self.with(addr, bytes.len(), |m| m.copy_from_slice(bytes))
    }

    fn publish(&self, addr: u64, word: [u8; 4]) -> Result<(), MemError> {
        if !addr.is_multiple_of(4) {
            return Err(MemError { addr, len: 4 });
        }
        self.write(addr, &word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn borders() {
        let m = RamMemory::new(0x1000, 16).with_window(u64::MAX - 7, vec![7; 8]);
        let mut b = [0; 8];
        assert!(m.read(0x1008, &mut b).is_ok());
        assert!(m.read(0x1009, &mut b).is_err());
        assert!(m.read(0xfff, &mut b).is_err());
        assert!(m.read(u64::MAX - 7, &mut b).is_ok());
        assert!(m.read(u64::MAX - 6, &mut b).is_err());
        assert!(m.publish(0x1002, [0; 4]).is_err());
        let mut words = [0; 3];
        assert!(m.read_words(0x1000, &mut words).is_err());
        assert!(m.read_words(0x1000, &mut words[..2]).is_ok());
        assert!(m.read_words(u64::MAX - 7, &mut words[..1]).is_ok());
        assert!(m.read_words(u64::MAX - 7, &mut words).is_err());
    }

    #[test]
    fn words_are_read_in_pieces() {
        let bytes: Vec<u8> = (0..200u64).flat_map(u64::to_le_bytes).collect();
        let m = RamMemory::from_bytes(0x1000, bytes);
        let mut words = [0; 199];
        m.read_words(0x1008, &mut words).expect("read");
        assert!(words.iter().copied().eq(1..200));
    }
}
