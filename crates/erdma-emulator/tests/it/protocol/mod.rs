//! The socket: QEMU's side of vfio-user played by the client of the crate `vfio_user`, and by hand where a
//! well-behaved client does not go.

mod machine;
mod raw;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use erdma_emulator::config::Config;
use erdma_emulator::device::Device;
use erdma_emulator::events::{EventLog, Totals};
use erdma_emulator::vfio::server::{Ending, ServeError, Server};
use erdma_emulator::vfio::socket::Listener;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use vfio_user::Client;

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
        // Here and not in the thread: between its making and listening, a socket file refuses connections.
        let control = Listener::bind(&at("c")).expect("control");
        let listener = Listener::bind(&at("s")).expect("socket");
        let events = File::create(at("events")).expect("events");
        let thread = std::thread::spawn(move || {
            let log = EventLog::new(Box::new(events));
            Server::new(listener, Some(control), Device::new(config), log).run(&stopped)
        });
        Self { dir, stop, thread }
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

fn memfd(len: u64) -> File {
    let fd = memfd_create("guest", MemfdFlags::CLOEXEC).expect("memfd");
    ftruncate(&fd, len).expect("size");
    File::from(fd)
}

fn event() -> OwnedFd {
    eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).expect("eventfd")
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
