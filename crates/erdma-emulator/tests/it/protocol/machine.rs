//! A machine, as QEMU has it.

use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use erdma_emulator::mem::{GuestMemory, MemError};

use super::*;
use crate::support::{Driver, KERNELS, Kernel, Link, MEMORY, Mr};

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
