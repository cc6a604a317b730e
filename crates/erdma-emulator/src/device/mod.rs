//! The device: registers, command queue and what stands behind them, as a state machine without any I/O.
//!
//! It has no clock and no memory of its own: who drives it says what time it is
//! ([`advance`](Device::advance)) and hands in guest memory and interrupts with each write.

mod execute;
mod mr;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::cmd::{self, Header, Syndrome};
use crate::config::Config;
use crate::events::{Event, Start, Totals};
use crate::faults::{Fault, Faults, Verdict};
use crate::ledger::Ledger;
use crate::mem::GuestMemory;
use crate::regs::{self, ArmDoorbell, RegisterFile, SqDoorbell};
use crate::ring::{CompletionQueue, EventQueue, RingError, Slot, SubmissionQueue};
use crate::stamp::{self, StampReport};

/// Vectors of the device: 0 for commands, the others for completions, which never come.
pub const VECTORS: u16 = 32;

/// Answers held back at once. The driver has at most 128 commands under way.
const MAX_HELD: usize = 1024;
/// Events of a kind that only a broken driver causes, after which they are counted only.
const MAX_ODD_EVENTS: u64 = 32;

/// Where interrupts go.
pub trait Interrupts {
    /// Raises vector `vector`.
    fn raise(&mut self, vector: u16);
}

/// Collects the vectors raised: for tests.
impl Interrupts for Vec<u16> {
    fn raise(&mut self, vector: u16) {
        self.push(vector);
    }
}

/// What a write of the driver reaches beyond the device.
struct Bus<'a> {
    mem: &'a dyn GuestMemory,
    irq: &'a mut dyn Interrupts,
}

/// The running command queue.
struct Queues {
    requests: SubmissionQueue,
    completions: CompletionQueue,
    events: EventQueue,
    /// The next completion raises an event.
    armed: bool,
}

/// Things that a driver made, by number.
#[derive(Default)]
struct Objects {
    event_queues: BTreeSet<u8>,
    completion_queues: BTreeSet<u32>,
    queue_pairs: BTreeSet<u32>,
    contexts: u64,
}

/// An answer.
#[derive(Clone, Copy, Debug)]
struct Answer {
    opcode: u8,
    start: u16,
    outcome: Result<[u64; 2], Syndrome>,
}

/// An emulated eRDMA device.
pub struct Device {
    config: Config,
    regs: RegisterFile,
    queues: Option<Queues>,
    objects: Objects,
    ledger: Ledger,
    faults: Faults,
    held: BTreeMap<(Duration, u64), Answer>,
    now: Duration,
    totals: Totals,
    events: Vec<Event>,
}

impl Device {
    /// A device as after power-on.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let mut device = Self {
            regs: RegisterFile::new(),
            queues: None,
            objects: Objects::default(),
            ledger: Ledger::new(config.entries, config.max_mr()),
            faults: Faults::new(&config.faults),
            held: BTreeMap::new(),
            now: Duration::ZERO,
            totals: Totals::default(),
            events: Vec::new(),
            config,
        };
        device.power_on_registers();
        let config = &device.config;
        device.events.push(Event::Start(Start {
            schema: crate::events::SCHEMA,
            budget: config.entries,
            max_mr_size: 1u64.checked_shl(config.mr_shift.into()).unwrap_or(u64::MAX),
            max_mr: config.max_mr(),
            flags: config.flags,
            mac: config.mac.to_string(),
            refuse_wrong_length: config.refuse_wrong_length,
            stamp: config.stamp,
            faults: config.faults.iter().map(Fault::to_string).collect(),
        }));
        device
    }

    fn power_on_registers(&mut self) {
        const DEVICE_VERSION: u32 = 0x10;
        self.regs = RegisterFile::new();
        let (low, high) = regs::mac_registers(self.config.mac.0);
        self.regs.set(regs::VERSION, DEVICE_VERSION);
        self.regs.set(regs::MAC_L, low);
        self.regs.set(regs::MAC_H, high);
    }

    /// The driver reads BAR 0. Any place and length; what is no register reads as zero.
    pub fn read(&self, offset: u64, buf: &mut [u8]) {
        self.regs.read(offset, buf);
    }

    /// The driver writes BAR 0. Any place and length; what means nothing is ignored.
    pub fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        mem: &dyn GuestMemory,
        irq: &mut dyn Interrupts,
    ) {
        if offset >= regs::REGISTERS_END {
            return; // doorbells of user queues: there is no data path
        }
        let (words, rest) = data.as_chunks::<4>();
        if !offset.is_multiple_of(4) || !rest.is_empty() || words.len() > 2 {
            self.odd(|| format!("write of {} bytes at {offset:#x}", data.len()));
            return;
        }
        let mut bus = Bus { mem, irq };
        for (i, word) in (0..).zip(words) {
            self.write_word(offset + i * 4, u32::from_le_bytes(*word), &mut bus);
        }
    }

    fn write_word(&mut self, offset: u64, value: u32, bus: &mut Bus<'_>) {
        match offset {
            regs::DEV_CTRL => {
                if value & regs::CTRL_RESET != 0 {
                    self.reset("control");
                    self.regs.set(regs::DEV_ST, regs::ST_RESET_DONE);
                }
                if value & regs::CTRL_INIT != 0 {
                    self.init();
                }
            }
            regs::CMDQ_SQ_DB => self.run(SqDoorbell(value.into()).producer(), bus),
            regs::CMDQ_CQ_DB => self.completion_doorbell(ArmDoorbell(value.into()), bus),
            regs::CMDQ_SQ_ADDR..regs::GRP_NUM => self.regs.set(offset, value),
            // The rest is read-only, or a hint that an emulator has no use for: event doorbells (which
            // tell how far the driver has read), the asynchronous event queue, doorbell records.
            _ => {}
        }
    }

    /// Drops all state; every entry comes back. The bus does this, and the driver by its register.
    pub fn reset(&mut self, by: &'static str) {
        let (mrs, entries) = self.ledger.clear();
        for (_, answer) in std::mem::take(&mut self.held) {
            self.events.push(Event::LateAnswer {
                opcode: answer.opcode,
                given: false,
            });
        }
        self.queues = None;
        self.objects = Objects::default();
        self.power_on_registers();
        self.totals.resets += 1;
        self.events.push(Event::Reset { by, mrs, entries });
    }

    fn init(&mut self) {
        let running = self.queues.is_some() || !self.ledger.live().is_empty();
        let depth = self.regs.get(regs::CMDQ_DEPTH);
        let queues = self.latch(depth);
        if running {
            self.reset("init");
        }
        match queues {
            Ok(queues) => {
                self.queues = Some(queues);
                self.regs.set(regs::DEV_ST, regs::ST_INIT_DONE);
                self.totals.inits += 1;
                self.events.push(Event::Init { depth });
            }
            Err(error) => {
                self.regs.set(regs::DEV_ST, 0);
                self.odd_event(|| Event::InitFailed {
                    reason: error.to_string(),
                });
            }
        }
    }

    fn latch(&self, depth: u32) -> Result<Queues, RingError> {
        let regs = &self.regs;
        Ok(Queues {
            requests: SubmissionQueue::new(regs.get64(regs::CMDQ_SQ_ADDR), depth)?,
            completions: CompletionQueue::new(regs.get64(regs::CMDQ_CQ_ADDR), depth)?,
            events: EventQueue::new(
                regs.get64(regs::CMDQ_EQ_ADDR),
                regs.get(regs::CMDQ_EQ_DEPTH),
            )?,
            armed: false,
        })
    }

    /// Runs every command before `producer`.
    fn run(&mut self, producer: u16, bus: &mut Bus<'_>) {
        loop {
            let Some(queues) = &mut self.queues else {
                self.odd(|| "command doorbell before the queue was started".into());
                return;
            };
            match queues.requests.take(producer, bus.mem) {
                Ok(Some(slot)) => self.command(&slot, bus),
                Ok(None) => return,
                Err(error) => {
                    self.odd(|| error.to_string());
                    return;
                }
            }
        }
    }

    fn command(&mut self, slot: &Slot, bus: &mut Bus<'_>) {
        self.totals.commands += 1;
        let decoded = cmd::decode(slot.bytes());
        let bits = slot.bytes().first_chunk().copied().unwrap_or_default();
        let Header { module, opcode, .. } = Header::from_bits(u64::from_le_bytes(bits));
        let verdict = self.faults.next(execute::target(module, opcode));
        self.totals.faults += u64::from(verdict.is_fault());
        if let Some(budget) = verdict.budget {
            self.set_budget(budget);
        }
        let outcome = match decoded {
            Ok((_, command)) => self.execute(command, &verdict, bus.mem),
            Err(error) => {
                self.odd(|| error.to_string());
                Err(Syndrome::Malformed)
            }
        };
        let answer = Answer {
            opcode,
            start: slot.start,
            outcome,
        };
        match (verdict.drop, verdict.late) {
            (true, _) => {}
            (false, None) => self.answer(answer, bus),
            (false, Some(_)) if self.held.len() >= MAX_HELD => {
                self.odd(|| "too many answers held back".into());
            }
            (false, Some(wait)) => {
                let due = self.now.saturating_add(wait);
                self.held.insert((due, self.totals.commands), answer);
            }
        }
    }

    fn answer(&mut self, answer: Answer, bus: &mut Bus<'_>) {
        let Some(queues) = &mut self.queues else {
            return;
        };
        let (syndrome, results) = match answer.outcome {
            Ok(results) => (0, results),
            Err(syndrome) => (syndrome.code(), [0; 2]),
        };
        let entry = cmd::completion(answer.opcode, answer.start, syndrome, results);
        if let Err(error) = queues.completions.push(entry, bus.mem) {
            self.odd(|| format!("completion queue: {error}"));
            return;
        }
        if queues.armed {
            self.notify(bus);
        }
    }

    /// One event, and the interrupt: what an armed completion queue owes its driver, once.
    fn notify(&mut self, bus: &mut Bus<'_>) {
        let Some(queues) = &mut self.queues else {
            return;
        };
        queues.armed = false;
        if let Err(error) = queues.events.push(cmd::event(), bus.mem) {
            self.odd(|| format!("event queue: {error}"));
            return;
        }
        self.totals.interrupts += 1;
        bus.irq.raise(0);
    }

    /// A driver that arms with completions it has not seen would wait for ever: it is told at once. It never
    /// gets an event without one, since 6.1 arms again only if it found a completion.
    fn completion_doorbell(&mut self, doorbell: ArmDoorbell, bus: &mut Bus<'_>) {
        let Some(queues) = &mut self.queues else {
            self.odd(|| "completion doorbell before the queue was started".into());
            return;
        };
        if doorbell.arms() {
            queues.armed = true;
            if queues.completions.produced() != doorbell.consumer() {
                self.notify(bus);
            }
        }
    }

    /// Tells the time, since the device was made. Answers that are due are given.
    pub fn advance(&mut self, now: Duration, mem: &dyn GuestMemory, irq: &mut dyn Interrupts) {
        self.now = self.now.max(now);
        let mut bus = Bus { mem, irq };
        while let Some(first) = self.held.first_entry()
            && first.key().0 <= self.now
        {
            let answer = first.remove();
            self.answer(answer, &mut bus);
            self.events.push(Event::LateAnswer {
                opcode: answer.opcode,
                given: true,
            });
        }
    }

    /// When [`advance`](Self::advance) has something to do next.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        self.held.first_key_value().map(|((due, _), _)| *due)
    }

    /// The events since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Counts since the start.
    #[must_use]
    pub fn totals(&self) -> Totals {
        Totals {
            reg_mrs: self.faults.reg_mrs(),
            live: self.ledger.live().len() as u64,
            used: self.ledger.used(),
            peak: self.ledger.peak(),
            budget: self.ledger.budget(),
            ..self.totals.clone()
        }
    }

    /// The account of entries.
    #[must_use]
    pub const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Changes the budget. What is lent stays lent.
    pub fn set_budget(&mut self, budget: u64) {
        let old = self.ledger.budget();
        self.ledger.set_budget(budget);
        let used = self.ledger.used();
        self.events.push(Event::Budget { old, budget, used });
    }

    /// Adds a fault; false when there are too many.
    pub fn add_fault(&mut self, fault: Fault) -> bool {
        self.faults.add(fault)
    }

    /// Removes all faults.
    pub fn clear_faults(&mut self) {
        self.faults.clear();
    }

    /// Checks the stamps of a region that stands; `period` as in
    /// [`StampConfig`](crate::stamp::StampConfig), else the configured one. None if there is no such region,
    /// or it is none of a program's.
    pub fn check_stamps(
        &mut self,
        lkey: u32,
        period: Option<u64>,
        mem: &dyn GuestMemory,
    ) -> Option<StampReport> {
        let key = cmd::MrKey::from_lkey(lkey);
        let mut config = self.config.stamps;
        config.period = period.unwrap_or(config.period);
        let live = self.ledger.live().get(&key.index)?;
        if live.request.key != key || live.request.kind != cmd::MrKind::User {
            return None;
        }
        let report = stamp::check(&live.request, mem, &config);
        self.count_stamps(&report);
        self.events.push(Event::Stamp { key: lkey, report });
        Some(report)
    }

    const fn count_stamps(&mut self, report: &StampReport) {
        self.totals.stamps_ok += report.ok;
        self.totals.stamps_bad += report.bad;
    }

    /// Something that no driver does: counted, and told the first few times.
    fn odd(&mut self, what: impl FnOnce() -> String) {
        self.odd_event(|| Event::Odd { what: what() });
    }

    fn odd_event(&mut self, event: impl FnOnce() -> Event) {
        self.totals.odd += 1;
        if self.totals.odd <= MAX_ODD_EVENTS {
            self.events.push(event());
        }
    }

    /// Answers owed to earlier commands. The answer to the one that is being executed is held back after it, if at all.
    fn waiting(&self) -> usize {
        self.held.len()
    }

    fn answer_name(verdict: &Verdict) -> &'static str {
        match (verdict.drop, verdict.late) {
            (true, _) => "dropped",
            (false, Some(_)) => "late",
            (false, None) => "sent",
        }
    }
}
