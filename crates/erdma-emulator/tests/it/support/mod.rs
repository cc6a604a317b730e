//! A driver in a few hundred lines: enough of each generation to start the device, ask it, register memory
//! and follow its rings. Written from the documented behaviour of the Linux driver, for tests only.

use std::cell::Cell;

use erdma_emulator::cmd::{Header, header_bits};
use erdma_emulator::device::{Device, Interrupts};
use erdma_emulator::mem::{GuestMemory, RamMemory};

/// Where the rings are.
const SQ: u64 = 0x10_0000;
const CQ: u64 = 0x11_0000;
const EQ: u64 = 0x12_0000;
/// Where tables and other things are allocated.
const HEAP: u64 = 0x20_0000;
/// End of guest memory.
pub(crate) const MEMORY: u64 = 0x400_0000;

/// Kernel generations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    V6_1,
    V6_12,
    V7_3,
}

pub(crate) const KERNELS: [Kernel; 3] = [Kernel::V6_1, Kernel::V6_12, Kernel::V7_3];

impl Kernel {
    fn units(self) -> u8 {
        if self == Self::V6_1 { 2 } else { 4 }
    }

    fn depth(self) -> u32 {
        if self == Self::V6_1 { 256 } else { 512 }
    }
}

/// What carries a driver's accesses to a device: the device itself, or a socket.
pub(crate) trait Link {
    fn read32(&mut self, offset: u64) -> u32;
    fn write(&mut self, offset: u64, data: &[u8]);
    /// Interrupts on vector 0 since the last call.
    fn interrupts(&mut self) -> u64;
    fn memory(&self) -> &dyn GuestMemory;
}

/// A device in the same process.
pub(crate) struct Direct {
    pub(crate) device: Device,
    pub(crate) memory: RamMemory,
    pub(crate) raised: Vec<u16>,
}

impl Direct {
    pub(crate) fn new(config: erdma_emulator::config::Config) -> Self {
        let memory = RamMemory::new(0, usize::try_from(MEMORY).expect("small"));
        Self {
            device: Device::new(config),
            memory,
            raised: Vec::new(),
        }
    }

    pub(crate) fn advance(&mut self, now: std::time::Duration) {
        self.device.advance(now, &self.memory, &mut self.raised);
    }
}

impl Link for Direct {
    fn read32(&mut self, offset: u64) -> u32 {
        let mut b = [0; 4];
        self.device.read(offset, &mut b);
        u32::from_le_bytes(b)
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        let irq: &mut dyn Interrupts = &mut self.raised;
        self.device.write(offset, data, &self.memory, irq);
    }

    fn interrupts(&mut self) -> u64 {
        assert!(
            self.raised.iter().all(|v| *v == 0),
            "only vector 0 is ever raised"
        );
        std::mem::take(&mut self.raised).len() as u64
    }

    fn memory(&self) -> &dyn GuestMemory {
        &self.memory
    }
}

/// A completion as the driver reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cqe {
    pub(crate) opcode: u8,
    pub(crate) start: u32,
    pub(crate) syndrome: u8,
    pub(crate) results: [u64; 2],
}

/// A region to register.
#[derive(Clone, Debug)]
pub(crate) struct Mr {
    pub(crate) index: u32,
    pub(crate) va: u64,
    pub(crate) length: u64,
    pub(crate) page_shift: u32,
    pub(crate) entries: Vec<u64>,
}

impl Mr {
    /// A region of `n` pages, not next to each other, whose length fits.
    pub(crate) fn pages(index: u32, n: u64, page_shift: u32) -> Self {
        Self {
            index,
            va: 0x7f00_0000_0000,
            length: n << page_shift,
            page_shift,
            entries: (1..=n).map(|i| (2 * i) << page_shift).collect(),
        }
    }
}

/// The driver.
pub(crate) struct Driver<L> {
    pub(crate) kernel: Kernel,
    pub(crate) link: L,
    pub(crate) flags: u8,
    sq_producer: u16,
    cq_consumer: u32,
    eq_consumer: u32,
    polling: bool,
    cookie: u16,
    heap: Cell<u64>,
}

impl<L: Link> Driver<L> {
    pub(crate) fn new(kernel: Kernel, link: L, flags: u8) -> Self {
        Self {
            kernel,
            link,
            flags,
            sq_producer: 0,
            cq_consumer: 0,
            eq_consumer: 0,
            polling: true,
            cookie: 0,
            heap: Cell::new(HEAP),
        }
    }

    pub(crate) fn alloc(&self, len: u64, align: u64) -> u64 {
        let at = self.heap.get().next_multiple_of(align);
        self.heap.set(at + len);
        assert!(at + len <= MEMORY, "guest memory is full");
        at
    }

    /// Forgets all allocations.
    pub(crate) fn free_all(&self) {
        self.heap.set(HEAP);
    }

    pub(crate) fn write32(&mut self, offset: u64, value: u32) {
        self.link.write(offset, &value.to_le_bytes());
    }

    pub(crate) fn write64(&mut self, offset: u64, value: u64) {
        self.link.write(offset, &value.to_le_bytes());
    }

    /// Addresses go high word first.
    fn write_address(&mut self, low_at: u64, address: u64) {
        self.write32(low_at + 4, u32::try_from(address >> 32).expect("half"));
        self.write32(low_at, u32::try_from(address & 0xffff_ffff).expect("half"));
    }

    /// Registers and rings, up to the answer of the device. A kernel clears the rings it allocates.
    pub(crate) fn start_queues(&mut self) {
        assert_ne!(self.link.read32(0x00), 0, "a version");
        if self.kernel == Kernel::V6_1 {
            assert_eq!(self.link.read32(0x4c), 0, "no direct work queue entries");
        } else {
            assert_eq!(self.link.read32(0x0c), 0, "iWARP");
        }
        for (ring, len) in [(SQ, 0x4000), (CQ, 0x4000), (EQ, 0x800)] {
            self.link.memory().write(ring, &vec![0; len]).expect("ring");
        }
        self.write_address(0x40, 0x13_0000);
        self.write32(0x48, 4096);
        self.write_address(0x20, SQ);
        self.write32(0x30, self.kernel.depth());
        self.write64(0x60, 0x14_0000);
        self.write_address(0x28, CQ);
        self.write64(0x68, 0x14_0008);
        self.write_address(0x38, EQ);
        self.write32(0x34, 128);
        self.write64(0x70, 0x14_0010);
        self.write32(0x10, 2);
        (self.sq_producer, self.cq_consumer, self.eq_consumer) = (0, 0, 0);
        self.polling = true;
    }

    /// The whole probe. Returns the answers of QUERY_DEVICE and QUERY_FW_INFO.
    pub(crate) fn probe(&mut self) -> ([u64; 2], u64) {
        self.start_queues();
        assert_eq!(self.link.read32(0x14) & 2, 2, "initialisation done");
        for eqn in 1..=2 {
            let done = self.command(1, 0, |sqe| {
                sqe[0x08..0x10].copy_from_slice(&0x15_0000u64.to_le_bytes());
                sqe[0x10..0x14].copy_from_slice(&[eqn, eqn, 12, 1]);
            });
            assert_eq!(done.syndrome, 0, "CREATE_EQ");
        }
        assert_eq!(self.link.interrupts(), 0, "polled: no interrupt");
        self.arm();
        self.polling = false;
        let device = self.command(0, 0, |_| ()).results;
        let firmware = self.command(1, 2, |_| ()).results[0];
        if self.extend_db() {
            let done = self.command(1, 5, |sqe| {
                sqe[0x08..0x0c].copy_from_slice(&0x8000_000cu32.to_le_bytes());
            });
            assert_eq!(done.syndrome, 0, "CONF_DEVICE");
        }
        if self.kernel != Kernel::V6_1 {
            self.stats();
        }
        (device, firmware)
    }

    pub(crate) fn extend_db(&self) -> bool {
        self.kernel != Kernel::V6_1 && self.flags & 0x08 != 0
    }

    /// GET_STATS, as port set-up does; an error there would end the registration of the device.
    pub(crate) fn stats(&mut self) {
        let buffer = self.alloc(256, 4096);
        let done = self.command(1, 4, |sqe| {
            sqe[0x0c..0x10].copy_from_slice(&7u32.to_le_bytes());
            sqe[0x10..0x18].copy_from_slice(&buffer.to_le_bytes());
            sqe[0x18..0x1c].copy_from_slice(&256u32.to_le_bytes());
        });
        assert_eq!(done.syndrome, 0, "GET_STATS");
        let mut head = [0; 8];
        self.link.memory().read(buffer, &mut head).expect("answer");
        assert_eq!(head, [0x66, 0x55, 0, 88, 7, 0, 0, 0]);
    }

    /// The end of the module.
    pub(crate) fn remove(&mut self) {
        for eqn in 1..=2 {
            let done = self.command(1, 1, |sqe| {
                sqe[0x10..0x14].copy_from_slice(&[eqn, eqn, 0, 1])
            });
            assert_eq!(done.syndrome, 0, "DESTROY_EQ");
        }
        self.write32(0x10, 1);
        assert_eq!(self.link.read32(0x14), 1, "reset done");
    }

    /// Writes a request into its slot without telling the device.
    pub(crate) fn post(&mut self, module: u8, opcode: u8, fill: impl FnOnce(&mut [u8])) -> u16 {
        let units = self.kernel.units();
        let start = self.sq_producer;
        self.sq_producer = start.wrapping_add(units.into());
        self.cookie = self.cookie.wrapping_add(1) & 127;
        // What the kernel's stack held before: nothing may depend on it.
        let mut sqe = vec![0xa5u8; usize::from(units) * 32];
        fill(&mut sqe);
        let header = Header {
            index: self.sq_producer,
            opcode,
            module,
            cookie: self.cookie,
            units,
        };
        sqe[..8].copy_from_slice(&header_bits(header).to_le_bytes());
        let at = SQ + u64::from(u32::from(start) % self.kernel.depth()) * 32;
        self.link.memory().write(at, &sqe).expect("slot");
        start
    }

    pub(crate) fn ring_sq(&mut self) {
        self.write64(0x200, self.sq_producer.into());
    }

    /// Arms the completion queue with what has been read of it.
    pub(crate) fn arm(&mut self) {
        self.write64(0x300, u64::from(self.cq_consumer & 0xff_ffff) | 1 << 31);
    }

    /// The next completion, if the owner bit says that there is one.
    pub(crate) fn next_cqe(&mut self) -> Option<Cqe> {
        let depth = self.kernel.depth();
        let mut b = [0; 32];
        let at = CQ + u64::from(self.cq_consumer % depth) * 32;
        self.link.memory().read(at, &mut b).expect("completion");
        let words: Vec<u32> = b
            .as_chunks::<4>()
            .0
            .iter()
            .map(|w| u32::from_be_bytes(*w))
            .collect();
        if (words[0] >> 31 == 1) == (self.cq_consumer & depth != 0) {
            return None;
        }
        assert_eq!(b[2], 2, "a completion of the command queue");
        self.cq_consumer += 1;
        let result = |low: usize| u64::from(words[low]) | u64::from(words[low + 1]) << 32;
        Some(Cqe {
            opcode: b[1],
            start: words[1],
            syndrome: b[3],
            results: [result(2), result(4)],
        })
    }

    /// The interrupt handler: reads events, then completions, then arms again. Never called for nothing.
    pub(crate) fn interrupt(&mut self) -> Vec<Cqe> {
        let mut events = 0;
        loop {
            let mut b = [0; 4];
            let at = EQ + u64::from(self.eq_consumer % 128) * 16;
            self.link.memory().read(at, &mut b).expect("event");
            let word = u32::from_le_bytes(b);
            if (word >> 31 == 1) == (self.eq_consumer & 128 != 0) {
                break;
            }
            assert_eq!(word & 0xf_ffff, 0, "the command queue's number");
            self.eq_consumer += 1;
            events += 1;
        }
        assert!(events > 0, "an interrupt without an event");
        let mut done = Vec::new();
        while let Some(cqe) = self.next_cqe() {
            done.push(cqe);
        }
        assert!(
            !done.is_empty(),
            "an event without a completion: 6.1 would never arm again"
        );
        self.arm();
        self.write64(0x100, u64::from(self.eq_consumer) | 1 << 31);
        done
    }

    /// One command from post to answer.
    pub(crate) fn command(&mut self, module: u8, opcode: u8, fill: impl FnOnce(&mut [u8])) -> Cqe {
        let start = self.post(module, opcode, fill);
        self.ring_sq();
        let cqe = if self.polling {
            self.next_cqe().expect("an answer")
        } else {
            assert_eq!(self.link.interrupts(), 1, "one interrupt for one command");
            let done = self.interrupt();
            assert_eq!(done.len(), 1);
            done[0]
        };
        assert_eq!((cqe.opcode, cqe.start), (opcode, start.into()));
        cqe
    }

    /// Lays a table out as this kernel does: (level, version, root).
    pub(crate) fn table(&self, entries: &[u64]) -> (u32, u32, [u64; 4]) {
        let n = entries.len();
        let mut inline = [0xa5a5_a5a5_a5a5_a5a5; 4];
        if n <= 4 {
            inline[..n].copy_from_slice(entries);
            return (0, 0, inline);
        }
        if self.kernel == Kernel::V6_1 || self.flags & 0x20 == 0 {
            let bytes: Vec<u8> = entries.iter().flat_map(|e| e.to_le_bytes()).collect();
            let at = self.alloc(bytes.len() as u64, 64);
            self.link.memory().write(at, &bytes).expect("table");
            inline[0] = at;
            return (1, 0, inline);
        }
        let mut layer = entries.to_vec();
        let mut level = 0;
        while level == 0 || layer.len() > 1 {
            level += 1;
            layer = layer
                .chunks(512)
                .map(|words| {
                    let mut bytes: Vec<u8> = words.iter().flat_map(|e| e.to_le_bytes()).collect();
                    bytes.resize(4096, 0);
                    let at = self.alloc(4096, 4096);
                    self.link.memory().write(at, &bytes).expect("table");
                    at
                })
                .collect();
        }
        inline[0] = layer[0];
        (level, u32::from(level > 1), inline)
    }

    /// REG_MR of a program's region: the syndrome.
    pub(crate) fn reg_mr(&mut self, mr: &Mr) -> u8 {
        let (level, version, root) = self.table(&mr.entries);
        self.reg_mr_raw(mr, mr.entries.len() as u64, level, version, root)
    }

    /// REG_MR with any table.
    pub(crate) fn reg_mr_raw(
        &mut self,
        mr: &Mr,
        entries: u64,
        level: u32,
        version: u32,
        root: [u64; 4],
    ) -> u8 {
        let low = |v: u64| u32::try_from(v & 0xffff_ffff).expect("half");
        let mr = mr.clone();
        self.command(0, 8, move |sqe| {
            let mut put = |at: usize, v: u32| sqe[at..at + 4].copy_from_slice(&v.to_le_bytes());
            put(0x08, 1 << 31 | version << 28 | mr.index);
            put(0x0c, 3 << 12 | 0b1_1110 << 1);
            put(0x10, low(mr.va));
            put(0x14, low(mr.va >> 32));
            put(0x18, low(mr.length));
            put(
                0x1c,
                mr.page_shift << 27 | level << 20 | low(entries) & 0xf_ffff,
            );
            for (i, word) in (0..).zip(root) {
                put(0x20 + i * 8, low(word));
                put(0x24 + i * 8, low(word >> 32));
            }
            if version == 1 {
                put(0x28, low(mr.length >> 32));
                put(0x2c, low(entries >> 20));
            }
        })
        .syndrome
    }

    /// DEREG_MR: the syndrome.
    pub(crate) fn dereg_mr(&mut self, index: u32) -> u8 {
        self.command(0, 9, |sqe| {
            sqe[0x08..0x0c].copy_from_slice(&index.to_le_bytes())
        })
        .syndrome
    }
}
