//! A client that keeps to no rule.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::*;

/// A client that says anything.
struct Raw(UnixStream);

impl Raw {
    fn connect(running: &Running) -> Self {
        let stream = UnixStream::connect(running.socket()).expect("connect");
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("timeout");
        Self(stream)
    }

    fn send(&self, command: u16, flags: u32, body: &[u8], fds: &[BorrowedFd<'_>]) {
        let size = u32::try_from(16 + body.len()).expect("small");
        let mut m = vec![9, 0];
        m.extend(command.to_le_bytes());
        for word in [size, flags, 0] {
            m.extend(word.to_le_bytes());
        }
        m.extend(body);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(fds)));
        }
        let sent = sendmsg(
            &self.0,
            &[IoSlice::new(&m)],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        );
        assert_eq!(sent.expect("send"), m.len());
    }

    /// (command, errno, body)
    fn receive(&mut self) -> (u16, u32, Vec<u8>) {
        let mut head = [0; 16];
        self.0.read_exact(&mut head).expect("reply");
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let mut body = vec![0; word(4) as usize - 16];
        self.0.read_exact(&mut body).expect("body");
        assert_eq!(word(8) & 0xf, 1, "a reply");
        assert_eq!(
            word(8) & 0x20 != 0,
            word(12) != 0,
            "an errno with an error, and only then"
        );
        (u16::from_le_bytes([head[2], head[3]]), word(12), body)
    }

    fn ask(&mut self, command: u16, body: &[u8], fds: &[BorrowedFd<'_>]) -> (u32, Vec<u8>) {
        self.send(command, 0, body, fds);
        let (answered, errno, body) = self.receive();
        assert_eq!(answered, command);
        (errno, body)
    }
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

const EINVAL: u32 = 22;
const EOPNOTSUPP: u32 = 95;

#[test]
fn errors_have_an_errno_and_the_talk_goes_on() {
    let running = Running::start(Config::default());
    let mut raw = Raw::connect(&running);
    let (errno, version) = raw.ask(1, b"\x00\x00\x01\x00{ not json", &[]);
    assert_eq!(
        (errno, &version[..4]),
        (0, &[0u8; 4][..]),
        "0.0, whatever the client says"
    );
    let json = version[4..].strip_suffix(b"\0").expect("a C string");
    let json: serde_json::Value = serde_json::from_slice(json).expect("json");
    assert_eq!(json["capabilities"]["max_data_xfer_size"], 1 << 20);
    assert_eq!(raw.ask(1, &[1, 0, 0, 0], &[]).0, EINVAL, "major 1");
    for command in [0, 6, 11, 12, 14, 99, 0xffff] {
        assert_eq!(
            raw.ask(command, &[], &[]).0,
            EOPNOTSUPP,
            "command {command}"
        );
    }
    for command in [1, 2, 3, 5, 7, 8, 9, 10] {
        assert_eq!(
            raw.ask(command, &[1], &[]).0,
            EINVAL,
            "a body too short: {command}"
        );
    }
    let access = |offset: u64, region: u64, count: u64| words(&[offset, region | count << 32]);
    assert_eq!(
        raw.ask(9, &access(0, 9, 4), &[]).0,
        EINVAL,
        "no such region"
    );
    assert_eq!(
        raw.ask(9, &access(0, 0, 1 << 21), &[]).0,
        EINVAL,
        "too much"
    );
    assert_eq!(
        raw.ask(10, &access(0, 0, 4), &[]).0,
        EINVAL,
        "less data than said"
    );
    let (errno, body) = raw.ask(9, &access(u64::MAX, 0, 1 << 20), &[]);
    assert_eq!((errno, body.len()), (0, 16 + (1 << 20)));
    assert_eq!(
        raw.ask(5, &words(&[32, 9]), &[]).0,
        EINVAL,
        "no such region"
    );
    assert_eq!(
        raw.ask(7, &words(&[16, 5]), &[]).0,
        EINVAL,
        "no such interrupt"
    );
    let irqs = |flags: u64, index: u64, start: u64, count: u64| {
        let mut b = words(&[20 | flags << 32, index | start << 32]);
        b.extend(u32::try_from(count).expect("small").to_le_bytes());
        b
    };
    let e = event();
    assert_eq!(raw.ask(8, &irqs(0x24, 2, 31, 1), &[e.as_fd()]).0, 0);
    assert_eq!(raw.ask(8, &irqs(0x24, 2, 32, 1), &[e.as_fd()]).0, EINVAL);
    assert_eq!(
        raw.ask(8, &irqs(0x24, 2, 0xffff_ffff, 0xffff_ffff), &[]).0,
        EINVAL
    );
    assert_eq!(
        raw.ask(8, &irqs(0x24, 2, 0, 3), &[e.as_fd(), e.as_fd()]).0,
        EINVAL
    );
    assert_eq!(raw.ask(8, &irqs(0x22, 2, 0, 1), &[]).0, EOPNOTSUPP);
    assert_eq!(raw.ask(8, &irqs(0x24, 5, 0, 1), &[]).0, EINVAL);
    assert_eq!(
        raw.ask(8, &irqs(0x24, 3, 0, 1), &[e.as_fd()]).0,
        0,
        "errors never come, but may be heard"
    );
    assert_eq!(raw.ask(8, &irqs(0x21, 2, 0, 0), &[]).0, 0, "all off");
    let map = |offset: u64, addr: u64, size: u64| words(&[32 | 3 << 32, offset, addr, size]);
    let file = memfd(8192);
    let fd = file.as_fd();
    assert_eq!(raw.ask(2, &map(0, 0x1000, 0x2000), &[fd]).0, 0);
    assert_eq!(raw.ask(2, &map(0, 0x2000, 0x2000), &[fd]).0, 17, "EEXIST");
    assert_eq!(
        raw.ask(2, &map(0, 0x8000, 0x3000), &[fd]).0,
        EINVAL,
        "more than the file has"
    );
    assert_eq!(
        raw.ask(2, &map(0, 0x8000, 0x1000), &[fd, fd]).0,
        EINVAL,
        "two files"
    );
    assert_eq!(
        raw.ask(2, &map(0, 0x8000, 0x1000), &[]).0,
        0,
        "a ROM without a file"
    );
    let pipe = UnixStream::pair().expect("pair").0;
    assert_ne!(
        raw.ask(2, &map(0, 0xa000, 0x1000), &[pipe.as_fd()]).0,
        0,
        "no memory at all"
    );
    let unmap = |flags: u64, addr: u64, size: u64| words(&[24 | flags << 32, addr, size]);
    assert_eq!(raw.ask(3, &unmap(0, 0x4000, 0x1000), &[]).0, 2, "ENOENT");
    assert_eq!(
        raw.ask(3, &unmap(1, 0x1000, 0x2000), &[]).0,
        EOPNOTSUPP,
        "dirty pages"
    );
    let request = unmap(0, 0x1000, 0x2000);
    assert_eq!(raw.ask(3, &request, &[]), (0, request.clone()));
    assert_eq!(raw.ask(3, &unmap(2, 0, 0), &[]).0, 0, "all");
    drop(raw);
    assert!(running.end().0.is_ok());
}

#[test]
fn posted_writes_get_no_answer_not_even_a_wrong_one() {
    let running = Running::start(Config::default());
    let mut raw = Raw::connect(&running);
    const NO_REPLY: u32 = 0x10;
    let mut write = words(&[0x10, 4 << 32]);
    write.extend(1u32.to_le_bytes());
    for _ in 0..1000 {
        raw.send(10, NO_REPLY, &write, &[]);
    }
    raw.send(10, NO_REPLY, &[1], &[]);
    raw.send(99, NO_REPLY, &[], &[]);
    // the next answer is the one to the next question
    let (errno, body) = raw.ask(9, &words(&[0x14, 4 << 32]), &[]);
    assert_eq!((errno, &body[16..]), (0, &[1, 0, 0, 0][..]), "reset done");
    drop(raw);
    assert_eq!(running.end().0.expect("served").1.resets, 1000);
}

#[test]
fn a_broken_stream_ends_with_totals() {
    for bytes in [[0xffu8; 16], [0; 16]] {
        let running = Running::start(Config::default());
        let mut raw = Raw::connect(&running);
        assert_eq!(raw.ask(4, &[], &[]).0, 0);
        raw.0.write_all(&bytes).expect("write");
        assert_eq!(raw.0.read(&mut [0]).expect("read"), 0, "hung up on");
        let (result, events) = running.end();
        assert!(matches!(result, Err(ServeError::Peer(_))));
        assert_eq!(events.last().expect("events")["event"], "totals");
    }
    // gone in the middle of a message: no fault of the device
    let running = Running::start(Config::default());
    let mut raw = Raw::connect(&running);
    assert_eq!(raw.ask(4, &[], &[]).0, 0);
    raw.0.write_all(&[1, 0, 10, 0, 99, 0]).expect("write");
    drop(raw);
    assert_eq!(running.end().0.expect("served").0, Ending::Disconnected);
}

#[test]
fn who_says_nothing_sensible_is_no_machine() {
    let running = Running::start(Config::default());
    drop(Raw::connect(&running));
    let mut raw = Raw::connect(&running);
    raw.0.write_all(&[0xff; 16]).expect("write");
    assert_eq!(raw.0.read(&mut [0]).expect("read"), 0, "hung up on");
    let raw = Raw::connect(&running);
    (&raw.0).write_all(&[1, 0]).expect("write");
    drop(raw);
    // the next comes when the last is gone
    let mut machine = None;
    wait_for(|| {
        machine = Client::new(&running.socket()).ok();
        machine.is_some()
    });
    drop(machine);
    let (result, events) = running.end();
    assert_eq!(result.expect("served").0, Ending::Disconnected);
    assert_eq!(events.iter().filter(|e| e["event"] == "connect").count(), 1);
}
