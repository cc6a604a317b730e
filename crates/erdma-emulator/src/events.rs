//! What the device saw, one line of JSON each.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;

use crate::mtt::Survey;
use crate::stamp::StampReport;

/// Version of the lines; it changes when a field changes its meaning or goes.
pub const SCHEMA: u32 = 1;

/// Something that happened.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The emulator began: what the device is made of.
    Start(Start),
    /// A virtual machine came.
    Connect,
    /// It went.
    Disconnect {
        /// Why.
        reason: String,
    },
    /// The driver started the command queue.
    Init {
        /// Units of the command queue: 256 from 6.1, 512 from later drivers.
        depth: u32,
    },
    /// The driver tried to, with values that cannot be right.
    InitFailed {
        /// What is wrong.
        reason: String,
    },
    /// All state was dropped.
    Reset {
        /// `control` (the driver's register), `init` (a second start) or `bus` (the machine's reset).
        by: &'static str,
        /// Regions that stood.
        mrs: usize,
        /// Entries that came back.
        entries: u64,
    },
    /// REG_MR.
    RegMr(Box<RegMrSeen>),
    /// DEREG_MR.
    DeregMr(DeregMrSeen),
    /// The budget was changed.
    Budget {
        /// From.
        old: u64,
        /// To.
        budget: u64,
        /// Entries lent now.
        used: u64,
    },
    /// A stamp check that was asked for.
    Stamp {
        /// The region.
        key: u32,
        /// What was found.
        #[serde(flatten)]
        report: StampReport,
    },
    /// A command that this device does not have. Only the first few are written.
    UnknownCommand {
        /// Module of the header.
        module: u8,
        /// Opcode of the header.
        opcode: u8,
    },
    /// Something that no driver does. Only the first few are written.
    Odd {
        /// What.
        what: String,
    },
    /// An answer that was held back has been given.
    LateAnswer {
        /// Opcode of the command.
        opcode: u8,
        /// Whether it still reached the queue it was asked on.
        given: bool,
    },
    /// The end.
    Totals(Totals),
}

/// What the device is made of.
#[derive(Clone, Debug, Serialize)]
pub struct Start {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Page-table entries.
    pub budget: u64,
    /// Largest region, as the driver is told.
    pub max_mr_size: u64,
    /// Most regions.
    pub max_mr: u32,
    /// Capability flags.
    pub flags: u8,
    /// MAC address.
    pub mac: String,
    /// Whether wrong lengths are refused.
    pub refuse_wrong_length: bool,
    /// Whether stamps are checked.
    pub stamp: bool,
    /// Faults from the start.
    pub faults: Vec<String>,
}

/// A REG_MR as it arrived, and what became of it.
#[derive(Clone, Debug, Serialize)]
pub struct RegMrSeen {
    /// Its number among the REG_MRs.
    pub n: u64,
    /// lkey and rkey that the program gets.
    pub key: u32,
    /// `user`, `fast_reg`, `dma` or `reserved`.
    pub kind: &'static str,
    /// First address.
    pub va: u64,
    /// Length on the wire.
    pub len: u64,
    /// Entries times page size.
    pub est_bytes: u64,
    /// `exact`, `truncated` or `wrong`: whether length and entries agree.
    pub length: &'static str,
    /// The length that fits the entries, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fitting_len: Option<u64>,
    /// log2 of the page size.
    pub page_shift: u8,
    /// Levels of the table.
    pub level: u8,
    /// Version of the command.
    pub version: u8,
    /// Entries claimed.
    pub entries: u64,
    /// Protection domain.
    pub pd: u32,
    /// Rights.
    pub rights: Vec<&'static str>,
    /// Entries lent after it.
    pub used: u64,
    /// Entries that may be lent.
    pub budget: u64,
    /// `ok`, or why not.
    pub result: &'static str,
    /// The byte in the answer.
    pub syndrome: u8,
    /// `sent`, `late` or `dropped`.
    pub answer: &'static str,
    /// Commands taken before this one whose answers were held back and still owed when it arrived: how many others the
    /// driver had under way, where every answer is late. Answers that are dropped do not count.
    pub waiting: usize,
    /// The table, if it was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<Survey>,
    /// What was wrong with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table_error: Option<String>,
    /// The stamp check, if it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stamp: Option<StampReport>,
}

/// A DEREG_MR and what became of it.
#[derive(Clone, Debug, Serialize)]
pub struct DeregMrSeen {
    /// lkey of the region.
    pub key: u32,
    /// Entries that came back.
    pub entries: u64,
    /// Entries lent after it.
    pub used: u64,
    /// Entries that may be lent.
    pub budget: u64,
    /// `ok`, or why not.
    pub result: &'static str,
    /// `sent`, `late` or `dropped`.
    pub answer: &'static str,
    /// Commands taken before this one whose answers were held back and still owed when it arrived: how many others the
    /// driver had under way, where every answer is late. Answers that are dropped do not count.
    pub waiting: usize,
}

/// Counts since the start, resets included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Commands taken from the queue.
    pub commands: u64,
    /// REG_MRs as faults count them: from the device's start, resets included.
    pub reg_mrs: u64,
    /// REG_MRs done.
    pub reg_ok: u64,
    /// REG_MRs refused, by reason.
    pub reg_refused: BTreeMap<&'static str, u64>,
    /// DEREG_MRs done.
    pub dereg_ok: u64,
    /// DEREG_MRs refused.
    pub dereg_refused: u64,
    /// Entries lent in all.
    pub entries_lent: u64,
    /// REG_MRs of programs whose length lost its upper half.
    pub truncated_lengths: u64,
    /// REG_MRs of programs whose length disagrees with the entries otherwise.
    pub wrong_lengths: u64,
    /// Blocks whose stamp was right.
    pub stamps_ok: u64,
    /// Blocks with the stamp of another.
    pub stamps_bad: u64,
    /// Regions that stand.
    pub live: u64,
    /// Entries lent now.
    pub used: u64,
    /// Most entries ever lent at once.
    pub peak: u64,
    /// Entries that may be lent.
    pub budget: u64,
    /// Starts of the command queue.
    pub inits: u64,
    /// Resets that dropped state or were asked for.
    pub resets: u64,
    /// Faults that came true.
    pub faults: u64,
    /// Commands that this device does not have.
    pub unknown_commands: u64,
    /// Things that no driver does.
    pub odd: u64,
    /// Interrupts raised.
    pub interrupts: u64,
}

/// Where the lines go.
pub struct EventLog {
    out: Box<dyn Write>,
    failed: Option<io::Error>,
}

#[derive(Serialize)]
struct Line<'a> {
    t_ms: u64,
    #[serde(flatten)]
    event: &'a Event,
}

impl EventLog {
    /// Lines into `out`, each flushed at once.
    #[must_use]
    pub fn new(out: Box<dyn Write>) -> Self {
        Self { out, failed: None }
    }

    /// No lines.
    #[must_use]
    pub fn none() -> Self {
        Self::new(Box::new(io::sink()))
    }

    /// Writes one line. After a failure nothing more is written; [`finish`](Self::finish) tells.
    pub fn write(&mut self, now: Duration, event: &Event) {
        if self.failed.is_some() {
            return;
        }
        let t_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let line = serde_json::to_string(&Line { t_ms, event }).map_err(io::Error::other);
        let written = line.and_then(|mut line| {
            line.push('\n');
            self.out.write_all(line.as_bytes())?;
            self.out.flush()
        });
        self.failed = written.err();
    }

    /// The first failure.
    ///
    /// # Errors
    /// When a line could not be written.
    pub fn finish(self) -> io::Result<()> {
        self.failed.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    #[derive(Clone, Default)]
    struct Shared(Rc<RefCell<Vec<u8>>>);
    impl Write for Shared {
        fn write(&mut self, b: &[u8]) -> io::Result<usize> {
            self.0.borrow_mut().extend_from_slice(b);
            Ok(b.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn one_flat_line_each() {
        let out = Shared::default();
        let mut log = EventLog::new(Box::new(out.clone()));
        log.write(Duration::from_millis(7), &Event::Connect);
        let report = StampReport {
            ok: 3,
            ..StampReport::default()
        };
        log.write(Duration::from_secs(1), &Event::Stamp { key: 0x100, report });
        log.write(Duration::ZERO, &Event::Totals(Totals::default()));
        assert!(log.finish().is_ok());
        let text = String::from_utf8(out.0.borrow().clone()).expect("utf-8");
        let lines: Vec<serde_json::Value> = text
            .lines()
            .map(|l| serde_json::from_str(l).expect("json"))
            .collect();
        assert_eq!(lines[0], serde_json::json!({"t_ms": 7, "event": "connect"}));
        assert_eq!(
            (&lines[1]["key"], &lines[1]["ok"]),
            (&256.into(), &3.into())
        );
        assert_eq!(lines[2]["event"], "totals");
    }

    #[test]
    fn the_first_failure_is_kept() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut log = EventLog::new(Box::new(Full));
        log.write(Duration::ZERO, &Event::Connect);
        log.write(Duration::ZERO, &Event::Connect);
        assert_eq!(
            log.finish().map_err(|e| e.kind()),
            Err(io::ErrorKind::StorageFull)
        );
    }
}
