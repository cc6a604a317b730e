//! The vfio-user protocol on the wire: a header of 16 bytes, little endian, and a body per command.
//!
//! Source: the specification in QEMU, `docs/interop/vfio-user.rst`.

use rustix::io::Errno;

/// Bytes of a header.
pub const HEADER_LEN: usize = 16;
/// Most data in one region access; what the protocol assumes when nobody says otherwise.
pub const MAX_DATA: usize = 1 << 20;
/// Longest message taken.
pub const MAX_MESSAGE: usize = MAX_DATA + 4096;
/// Most file descriptors with one message.
pub const MAX_FDS: usize = 16;

/// Commands of the protocol that this device knows.
pub mod command {
    #![expect(missing_docs, reason = "names of the specification")]
    pub const VERSION: u16 = 1;
    pub const DMA_MAP: u16 = 2;
    pub const DMA_UNMAP: u16 = 3;
    pub const DEVICE_GET_INFO: u16 = 4;
    pub const DEVICE_GET_REGION_INFO: u16 = 5;
    pub const DEVICE_GET_IRQ_INFO: u16 = 7;
    pub const DEVICE_SET_IRQS: u16 = 8;
    pub const REGION_READ: u16 = 9;
    pub const REGION_WRITE: u16 = 10;
    pub const DEVICE_RESET: u16 = 13;
}

const TYPE_MASK: u32 = 0xf;
const TYPE_REPLY: u32 = 1;
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;

/// A message's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sender's number for it.
    pub id: u16,
    /// What it is.
    pub command: u16,
    /// Its length, header included.
    pub size: u32,
    /// Command or reply, and more.
    pub flags: u32,
}

/// A header that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Shorter than a header, or longer than any message.
    #[error("a message of {0} bytes")]
    Size(u32),
    /// A reply where only commands come.
    #[error("a reply to no question (flags {0:#x})")]
    NotACommand(u32),
    /// More file descriptors than any message has.
    #[error("more than {MAX_FDS} file descriptors in one message")]
    Descriptors,
}

impl Header {
    /// Takes a header apart.
    ///
    /// # Errors
    /// When the stream cannot be followed further.
    pub fn parse(bytes: &[u8; HEADER_LEN]) -> Result<Self, WireError> {
        let [a, b, c, d, s0, s1, s2, s3, f0, f1, f2, f3, ..] = *bytes;
        let header = Self {
            id: u16::from_le_bytes([a, b]),
            command: u16::from_le_bytes([c, d]),
            size: u32::from_le_bytes([s0, s1, s2, s3]),
            flags: u32::from_le_bytes([f0, f1, f2, f3]),
        };
        if header.flags & TYPE_MASK != 0 {
            return Err(WireError::NotACommand(header.flags));
        }
        match usize::try_from(header.size) {
            Ok(HEADER_LEN..=MAX_MESSAGE) => Ok(header),
            _ => Err(WireError::Size(header.size)),
        }
    }

    /// Whether the sender waits for a reply.
    #[must_use]
    pub const fn wants_reply(&self) -> bool {
        self.flags & NO_REPLY == 0
    }

    /// The reply: its body, or an errno.
    #[must_use]
    pub fn reply(&self, body: Result<&[u8], Errno>) -> Vec<u8> {
        let (flags, errno, body) = match body {
            Ok(body) => (TYPE_REPLY, 0, body),
            Err(errno) => (
                TYPE_REPLY | ERROR,
                errno.raw_os_error().unsigned_abs(),
                &[][..],
            ),
        };
        let size = u32::try_from(HEADER_LEN + body.len()).unwrap_or(u32::MAX);
        let mut bytes = Vec::with_capacity(HEADER_LEN + body.len());
        bytes.extend(self.id.to_le_bytes());
        bytes.extend(self.command.to_le_bytes());
        for word in [size, flags, errno] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(body);
        bytes
    }
}

/// A body, read from its front.
#[derive(Clone, Copy, Debug)]
pub struct Body<'a>(pub &'a [u8]);

impl<'a> Body<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Errno> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(Errno::INVAL)?;
        self.0 = rest;
        Ok(*head)
    }

    /// The next 4 bytes.
    ///
    /// # Errors
    /// EINVAL at the end.
    pub fn u32(&mut self) -> Result<u32, Errno> {
        self.take().map(u32::from_le_bytes)
    }

    /// The next 8 bytes.
    ///
    /// # Errors
    /// EINVAL at the end.
    pub fn u64(&mut self) -> Result<u64, Errno> {
        self.take().map(u64::from_le_bytes)
    }

    /// What is left.
    #[must_use]
    pub const fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// Words of a body, in order.
#[must_use]
pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers() {
        let mut bytes = [0u8; 16];
        bytes[..8].copy_from_slice(&[7, 0, 10, 0, 40, 0, 0, 0]);
        let h = Header::parse(&bytes).expect("header");
        assert_eq!(
            (h.id, h.command, h.size, h.wants_reply()),
            (7, 10, 40, true)
        );
        bytes[8] = 0x10;
        assert!(!Header::parse(&bytes).expect("header").wants_reply());
        bytes[8] = 1;
        assert_eq!(Header::parse(&bytes), Err(WireError::NotACommand(1)));
        bytes[8] = 0;
        for size in [0u32, 15, 1 << 21, u32::MAX] {
            bytes[4..8].copy_from_slice(&size.to_le_bytes());
            assert_eq!(Header::parse(&bytes), Err(WireError::Size(size)));
        }
    }

    #[test]
    fn replies() {
        let h = Header {
            id: 7,
            command: 2,
            size: 48,
            flags: 0,
        };
        assert_eq!(
            h.reply(Ok(&[9])),
            [7, 0, 2, 0, 17, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9]
        );
        assert_eq!(
            h.reply(Err(Errno::INVAL)),
            [7, 0, 2, 0, 16, 0, 0, 0, 0x21, 0, 0, 0, 22, 0, 0, 0]
        );
    }
}
