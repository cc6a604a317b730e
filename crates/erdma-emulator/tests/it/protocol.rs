//! The socket: QEMU's side of vfio-user played by the client of the crate `vfio_user`, and by hand where a
//! well-behaved client does not go.

use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use erdma_emulator::config::Config;
use erdma_emulator::device::Device;
use erdma_emulator::events::{EventLog, Totals};
use erdma_emulator::mem::{GuestMemory, MemError};
use erdma_emulator::vfio::server::{Ending, ServeError, Server};
use erdma_emulator::vfio::socket::Listener;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use vfio_user::Client;

use crate::support::{Driver, KERNELS, Kernel, Link, MEMORY, Mr};

type Served = Result<(Ending, Totals), ServeError>;

/// A server in a thread of its own.
struct Running {
    dir: tempfile::TempDir,
    stop: UnixStream,
    thread: JoinHandle<Served>,
}

impl Running {
    fn start(config: Config) -> Self {
        let dir = tempfile::tempdir().expect("dir");
        let (stop, stopped) = UnixStream::pair().expect("pair");
        let at = |name: &str| dir.path().join(name);
        let (socket, control, events) = (at("s"), at("c"), at("events"));
        let thread = std::thread::spawn(move || {
            let log = EventLog::new(Box::new(File::create(events).expect("events")));
            let control = Listener::bind(&control).expect("control");
            let listener = Listener::bind(&socket).expect("socket");
            Server::new(listener, Some(control), Device::new(config), log).run(&stopped)
        });
        let running = Self { dir, stop, thread };
        wait_for(|| running.socket().exists());
        running
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    fn control(&self, line: &str) -> serde_json::Value {
        let mut stream = UnixStream::connect(self.dir.path().join("c")).expect("control");
        writeln!(stream, "{line}").expect("write");
        let mut reply = String::new();
        let mut byte = [0];
        while stream.read(&mut byte).expect("read") == 1 && byte[0] != b'\n' {
            reply.push(byte[0].into());
        }
        serde_json::from_str(&reply).expect("json")
    }

    /// Waits for the end: what the loop said, and the events.
    fn end(self) -> (Served, Vec<serde_json::Value>) {
        let result = self.thread.join().expect("no panic");
        assert!(
            !self.dir.path().join("s").exists(),
            "the socket file is gone"
        );
        assert!(
            !self.dir.path().join("c").exists(),
            "the control file is gone"
        );
        let text = std::fs::read_to_string(self.dir.path().join("events")).expect("events");
        let lines = text.lines().map(|l| serde_json::from_str(l).expect("json"));
        (result, lines.collect())
    }
}

fn wait_for(mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "waited for nothing"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Guest memory as the guest sees it: the file itself.
struct FileMemory(File);

impl GuestMemory for FileMemory {
    fn read(&self, addr: u64, buf: &mut [u8]) -> Result<(), MemError> {
        let len = buf.len() as u64;
        self.0
            .read_exact_at(buf, addr)
            .map_err(|_| MemError { addr, len })
    }

    fn write(&self, addr: u64, bytes: &[u8]) -> Result<(), MemError> {
        let len = bytes.len() as u64;
        self.0
            .write_all_at(bytes, addr)
            .map_err(|_| MemError { addr, len })
    }

    fn publish(&self, addr: u64, word: [u8; 4]) -> Result<(), MemError> {
        self.write(addr, &word)
    }
}

fn memfd(len: u64) -> File {
    let fd = memfd_create("guest", MemfdFlags::CLOEXEC).expect("memfd");
    ftruncate(&fd, len).expect("size");
    File::from(fd)
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).expect("eventfd")
}

fn count(event: &OwnedFd) -> u64 {
    let mut b = [0; 8];
    match rustix::io::read(event, &mut b) {
        Ok(_) => u64::from_ne_bytes(b),
        Err(_) => 0,
    }
}

/// A machine on the other side of the socket.
struct Machine {
    client: Client,
    memory: FileMemory,
    vectors: Vec<OwnedFd>,
}

impl Machine {
    fn connect(path: &Path) -> Self {
        let mut client = Client::new(path).expect("connect");
        let file = memfd(MEMORY);
        // two windows with a cut in the middle of a table page's worth of nothing
        let cut = 0x18_0000;
        client.dma_map(0, 0, cut, file.as_raw_fd()).expect("map");
        client
            .dma_map(cut, cut, MEMORY - cut, file.as_raw_fd())
            .expect("map");
        let vectors: Vec<OwnedFd> = (0..3).map(|_| event()).collect();
        const EVENTFD_TRIGGER: u32 = 1 << 2 | 1 << 5;
        // one by one, as the driver asks for them; before that a call without any
        client
            .set_irqs(2, EVENTFD_TRIGGER, 0, 3, &[])
            .expect("irqs");
        for (i, v) in (0..).zip(&vectors) {
            client
                .set_irqs(2, EVENTFD_TRIGGER, i, 1, &[v.as_raw_fd()])
                .expect("irqs");
        }
        Self {
            client,
            memory: FileMemory(file),
            vectors,
        }
    }
}

impl Link for Machine {
    fn read32(&mut self, offset: u64) -> u32 {
        let mut b = [0; 4];
        self.client.region_read(0, offset, &mut b).expect("read");
        u32::from_le_bytes(b)
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        self.client.region_write(0, offset, data).expect("write");
    }

    fn interrupts(&mut self) -> u64 {
        assert_eq!(count(&self.vectors[1]) + count(&self.vectors[2]), 0);
        count(&self.vectors[0])
    }

    fn memory(&self) -> &dyn GuestMemory {
        &self.memory
    }
}

#[test]
fn every_generation_over_the_socket() {
    for kernel in KERNELS {
        let running = Running::start(Config {
            entries: 1000,
            ..Config::default()
        });
        let machine = Machine::connect(&running.socket());
        let mut d = Driver::new(kernel, machine, 0x28);
        d.probe();
        assert_eq!(d.reg_mr(&Mr::pages(1, 600, 12)), 0);
        assert_ne!(d.reg_mr(&Mr::pages(2, 600, 12)), 0);
        assert_eq!(running.control("status")["totals"]["used"], 600);
        assert_eq!(running.control("budget 1200")["ok"], true);
        assert_eq!(d.reg_mr(&Mr::pages(2, 600, 12)), 0);
        assert_eq!(d.dereg_mr(1), 0);
        drop(d);
        let (result, events) = running.end();
        let (ending, totals) = result.expect("served");
        assert_eq!(ending, Ending::Disconnected);
        assert_eq!((totals.reg_ok, totals.used, totals.odd), (2, 600, 0));
        let names: Vec<&str> = events.iter().filter_map(|e| e["event"].as_str()).collect();
        assert_eq!(
            names,
            [
                "start",
                "connect",
                "init",
                "reg_mr",
                "reg_mr",
                "budget",
                "reg_mr",
                "dereg_mr",
                "disconnect",
                "totals"
            ]
        );
        assert_eq!(events[4]["result"], "over_budget");
        assert_eq!(events[9]["reg_refused"]["over_budget"], 1);
    }
}

#[test]
fn what_the_machine_is_told() {
    let running = Running::start(Config::default());
    let mut client = Client::new(&running.socket()).expect("connect");
    let sizes: Vec<u64> = (0..9)
        .map(|i| client.region(i).expect("region").size)
        .collect();
    assert_eq!(sizes, [512 << 10, 0, 8 << 10, 0, 0, 0, 0, 256, 0]);
    let irqs: Vec<u32> = (0..5)
        .map(|i| client.get_irq_info(i).expect("irq").count)
        .collect();
    assert_eq!(irqs, [0, 0, 32, 1, 0]);
    let mut id = [0; 4];
    client.region_read(7, 0, &mut id).expect("config");
    assert_eq!(id, [0xed, 0x1d, 0x7f, 0x10]);
    client.region_write(7, 0x10, &[0xff; 4]).expect("config");
    client.region_read(7, 0x10, &mut id).expect("config");
    assert_eq!(id, [0x04, 0, 0xf8, 0xff]);
    client.reset().expect("reset");
    client.region_read(7, 0x10, &mut id).expect("config");
    assert_eq!(id, [4, 0, 0, 0]);
    drop(client);
    assert!(running.end().0.is_ok());
}

#[test]
fn a_machine_reset_gives_everything_back() {
    let running = Running::start(Config {
        entries: 100,
        ..Config::default()
    });
    let mut d = Driver::new(Kernel::V6_12, Machine::connect(&running.socket()), 0x28);
    for _ in 0..2 {
        d.probe();
        assert_eq!(d.reg_mr(&Mr::pages(1, 100, 12)), 0);
        d.link.client.reset().expect("reset");
    }
    drop(d);
    let (result, events) = running.end();
    assert_eq!(result.expect("served").1.used, 0);
    let resets: Vec<_> = events.iter().filter(|e| e["event"] == "reset").collect();
    assert_eq!(resets.len(), 2);
    assert!(
        resets
            .iter()
            .all(|r| r["by"] == "bus" && r["entries"] == 100)
    );
}

#[test]
fn a_late_answer_comes_while_the_machine_is_silent() {
    let faults = vec!["late=150ms@1".parse().expect("fault")];
    let running = Running::start(Config {
        faults,
        ..Config::default()
    });
    let mut d = Driver::new(Kernel::V7_3, Machine::connect(&running.socket()), 0x28);
    d.probe();
    let begun = Instant::now();
    d.post(0, 8, |_| ());
    d.ring_sq();
    assert_eq!(d.link.interrupts(), 0);
    wait_for(|| d.link.interrupts() == 1);
    assert!(begun.elapsed() >= Duration::from_millis(150));
    assert_eq!(d.interrupt().len(), 1);
    drop(d);
    assert!(running.end().0.is_ok());
}

#[test]
fn memory_that_was_unmapped_is_not_touched() {
    let running = Running::start(Config::default());
    let mut d = Driver::new(Kernel::V6_1, Machine::connect(&running.socket()), 0x28);
    d.probe();
    d.link.client.dma_unmap(0, 0x18_0000).expect("unmap");
    d.post(1, 2, |_| ());
    d.ring_sq();
    assert_eq!(d.link.interrupts(), 0);
    assert_eq!(running.control("status")["totals"]["odd"], 1);
    drop(d);
    assert!(running.end().0.is_ok());
}

#[test]
fn stopped_from_outside_with_a_machine_on_it() {
    let running = Running::start(Config::default());
    let machine = Machine::connect(&running.socket());
    (&running.stop).write_all(b"x").expect("stop");
    let (result, events) = running.end();
    assert_eq!(result.expect("served").0, Ending::Stopped);
    assert_eq!(events[events.len() - 2]["reason"], "stopped");
    drop(machine);
    // and without one, by word
    let running = Running::start(Config::default());
    assert_eq!(running.control("quit")["ok"], true);
    assert_eq!(running.end().0.expect("served").0, Ending::Stopped);
}

#[test]
fn a_second_machine_is_hung_up_on() {
    let running = Running::start(Config::default());
    let first = Machine::connect(&running.socket());
    let mut second = UnixStream::connect(running.socket()).expect("connect");
    assert_eq!(second.read(&mut [0]).expect("read"), 0);
    let mut d = Driver::new(Kernel::V6_12, first, 0x28);
    d.probe();
    drop(d);
    assert!(running.end().0.is_ok());
}

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

#[test]
fn control_peers_come_and_go() {
    let running = Running::start(Config::default());
    let path = running.dir.path().join("c");
    let mut long = UnixStream::connect(&path).expect("connect");
    long.write_all(&vec![b'x'; 10_000]).expect("write");
    let mut b = Vec::new();
    // dropped, with or without unread bytes of ours
    let _ = long.read_to_end(&mut b);
    assert!(b.is_empty());
    let many: Vec<UnixStream> = (0..40)
        .map(|_| UnixStream::connect(&path).expect("connect"))
        .collect();
    drop(many);
    let mut two = UnixStream::connect(&path).expect("connect");
    two.write_all(b"status\nbud").expect("write");
    two.write_all(b"get 5\nquit\n").expect("write");
    let mut text = String::new();
    let _ = two.read_to_string(&mut text);
    assert_eq!(
        text.lines().filter(|l| l.contains("\"ok\":true")).count(),
        3,
        "{text}"
    );
    assert_eq!(running.end().0.expect("served").1.budget, 5);
}
