//! Messages out of a stream socket, with the file descriptors that came along.
//!
//! No more is ever read than the message at hand needs, so a descriptor always belongs to the message whose
//! bytes it came with.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};

use super::wire::{HEADER_LEN, Header, MAX_FDS, WireError};

/// A whole message.
#[derive(Debug)]
pub struct Message {
    /// Its header.
    pub header: Header,
    /// What follows it.
    pub body: Vec<u8>,
    /// File descriptors that came with it.
    pub fds: Vec<OwnedFd>,
}

/// What one look at the socket gave.
#[derive(Debug)]
pub enum Received {
    /// A message is whole.
    Message(Message),
    /// Not yet.
    Pending,
    /// The peer is gone.
    Closed,
}

/// Why no further message can be read.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The peer does not speak the protocol.
    #[error("the peer broke the protocol")]
    Wire(#[from] WireError),
    /// The socket failed.
    #[error("cannot read from the peer")]
    Socket(#[source] Errno),
}

/// A message in the making.
#[derive(Debug, Default)]
pub struct Inbox {
    header: Option<Header>,
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

impl Inbox {
    /// Reads once, without waiting.
    ///
    /// # Errors
    /// When the stream cannot be followed further.
    pub fn receive(&mut self, socket: impl AsFd) -> Result<Received, ReceiveError> {
        let want = match &self.header {
            None => HEADER_LEN,
            Some(header) => usize::try_from(header.size)
                .unwrap_or(0)
                .saturating_sub(HEADER_LEN),
        };
        let have = self.bytes.len();
        // A body grows with what has come, not with what was announced.
        let step = (want - have).min(64 << 10);
        self.bytes.resize(have + step, 0);
        let result = self.read(socket, have);
        self.bytes.truncate(have + *result.as_ref().unwrap_or(&0));
        match result {
            Ok(0) if step > 0 => return Ok(Received::Closed),
            Ok(_) => {}
            Err(ReceiveError::Socket(Errno::CONNRESET)) => return Ok(Received::Closed),
            Err(ReceiveError::Socket(Errno::AGAIN | Errno::INTR)) => return Ok(Received::Pending),
            Err(error) => return Err(error),
        }
        if self.header.is_none()
            && let Some(bytes) = self.bytes.first_chunk::<HEADER_LEN>()
        {
            self.header = Some(Header::parse(bytes)?);
            self.bytes.clear();
        }
        match self.header {
            Some(header) if self.bytes.len() + HEADER_LEN == header.size as usize => {
                let Self {
                    bytes: body, fds, ..
                } = std::mem::take(self);
                Ok(Received::Message(Message { header, body, fds }))
            }
            _ => Ok(Received::Pending),
        }
    }

    fn read(&mut self, socket: impl AsFd, from: usize) -> Result<usize, ReceiveError> {
        // Room for more than allowed, so that too many are seen rather than cut.
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS + 1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let buf = self.bytes.get_mut(from..).unwrap_or_default();
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let got = recvmsg(socket, &mut [IoSliceMut::new(buf)], &mut ancillary, flags)
            .map_err(ReceiveError::Socket)?;
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                self.fds.extend(fds);
            }
        }
        if self.fds.len() > MAX_FDS || got.flags.contains(ReturnFlags::CTRUNC) {
            return Err(WireError::Descriptors.into());
        }
        Ok(got.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    use std::io::{IoSlice, Write};
    use std::os::unix::net::UnixStream;

    fn message(command: u16, body: &[u8]) -> Vec<u8> {
        let size = u32::try_from(16 + body.len()).expect("small");
        let mut m = vec![1, 0];
        m.extend(command.to_le_bytes());
        m.extend(size.to_le_bytes());
        m.extend([0; 8]);
        m.extend(body);
        m
    }

    fn send(socket: &UnixStream, bytes: &[u8], n_fds: usize) {
        let fds = vec![socket.as_fd(); n_fds];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS + 1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if n_fds > 0 {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
        }
        sendmsg(
            socket,
            &[IoSlice::new(bytes)],
            &mut ancillary,
            SendFlags::empty(),
        )
        .expect("send");
    }

    fn next(inbox: &mut Inbox, socket: &UnixStream) -> Message {
        for _ in 0..10_000 {
            if let Received::Message(m) = inbox.receive(socket).expect("receive") {
                return m;
            }
        }
        panic!("no message")
    }

    #[test]
    fn a_message_byte_by_byte() {
        let (a, b) = UnixStream::pair().expect("pair");
        let mut inbox = Inbox::default();
        let m = message(9, b"hello");
        for byte in &m[..m.len() - 1] {
            (&a).write_all(&[*byte]).expect("write");
            assert!(matches!(
                inbox.receive(&b).expect("receive"),
                Received::Pending
            ));
        }
        assert!(matches!(
            inbox.receive(&b).expect("receive"),
            Received::Pending
        ));
        (&a).write_all(&m[m.len() - 1..]).expect("write");
        assert_eq!(next(&mut inbox, &b).body, b"hello");
        drop(a);
        assert!(matches!(
            inbox.receive(&b).expect("receive"),
            Received::Closed
        ));
    }

    #[test]
    fn descriptors_stay_with_their_message() {
        let (a, b) = UnixStream::pair().expect("pair");
        (&a).write_all(&message(13, b"")).expect("write");
        send(&a, &message(2, &[0; 32]), 1);
        (&a).write_all(&message(13, b"x")).expect("write");
        send(&a, &message(8, &[0; 20]), MAX_FDS);
        let mut inbox = Inbox::default();
        let got: Vec<(u16, usize)> = (0..4)
            .map(|_| next(&mut inbox, &b))
            .map(|m| (m.header.command, m.fds.len()))
            .collect();
        assert_eq!(got, [(13, 0), (2, 1), (13, 0), (8, MAX_FDS)]);
    }

    #[test]
    fn too_much_of_anything_ends_it() {
        let (a, b) = UnixStream::pair().expect("pair");
        send(&a, &message(8, b""), MAX_FDS + 1);
        assert!(matches!(
            Inbox::default().receive(&b),
            Err(ReceiveError::Wire(WireError::Descriptors))
        ));
        let (a, b) = UnixStream::pair().expect("pair");
        (&a).write_all(&[0xff; 16]).expect("write");
        assert!(matches!(
            Inbox::default().receive(&b),
            Err(ReceiveError::Wire(_))
        ));
    }

    #[test]
    fn a_long_message_comes_in_pieces() {
        let (a, b) = UnixStream::pair().expect("pair");
        let body = vec![7; 300_000];
        let m = message(10, &body);
        let writer = std::thread::spawn(move || (&a).write_all(&m).expect("write"));
        let mut inbox = Inbox::default();
        let got = loop {
            if let Received::Message(m) = inbox.receive(&b).expect("receive") {
                break m;
            }
        };
        writer.join().expect("writer");
        assert_eq!(got.body, body);
    }
}
