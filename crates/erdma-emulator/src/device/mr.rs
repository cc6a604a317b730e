//! REG_MR and DEREG_MR: the account, the table, the stamps.

use super::Device;
use crate::cmd::{Length, MrKey, MrKind, RegMr, Syndrome};
use crate::events::{DeregMrSeen, Event, RegMrSeen};
use crate::faults::Verdict;
use crate::mem::GuestMemory;
use crate::mtt::{self, Survey, TableError};
use crate::stamp;

/// What the device found out about a table.
#[derive(Default)]
struct Findings {
    survey: Option<Survey>,
    error: Option<TableError>,
}

impl Device {
    pub(super) fn reg_mr(
        &mut self,
        request: RegMr,
        verdict: &Verdict,
        mem: &dyn GuestMemory,
    ) -> Result<[u64; 2], Syndrome> {
        let mut found = Findings::default();
        let length = request.length_verdict();
        let result = if verdict.refuse {
            Err(Syndrome::Injected)
        } else {
            self.judge(&request, length, mem, &mut found)
                .and_then(|entries| self.ledger.lend(request, entries).map(|()| entries))
        };
        let user = request.kind == MrKind::User;
        let stamp = (result.is_ok() && user && self.config.stamp)
            .then(|| stamp::check(&request, mem, &self.config.stamps));
        if let Some(report) = &stamp {
            self.count_stamps(report);
        }
        match result {
            Ok(entries) => {
                self.totals.reg_ok += 1;
                self.totals.entries_lent += entries;
            }
            Err(syndrome) => {
                *self.totals.reg_refused.entry(syndrome.name()).or_default() += 1;
            }
        }
        match length {
            Length::Truncated { .. } if user => self.totals.truncated_lengths += 1,
            Length::Wrong if user => self.totals.wrong_lengths += 1,
            _ => {}
        }
        self.events.push(Event::RegMr(Box::new(RegMrSeen {
            n: self.faults.reg_mrs(),
            key: request.key.lkey(),
            kind: match request.kind {
                MrKind::User => "user",
                MrKind::FastReg => "fast_reg",
                MrKind::Dma => "dma",
                MrKind::Reserved => "reserved",
            },
            va: request.va,
            len: request.length,
            est_bytes: request.mapped_bytes(),
            length: length.name(),
            fitting_len: length.bytes(),
            page_shift: request.page_shift,
            level: request.table.level,
            version: request.version,
            entries: request.table.entries,
            pd: request.pd,
            rights: request.rights.names(),
            used: self.ledger.used(),
            budget: self.ledger.budget(),
            result: result.map_or_else(Syndrome::name, |_| "ok"),
            syndrome: result.map_or_else(Syndrome::code, |_| 0),
            answer: Self::answer_name(verdict),
            waiting: self.waiting(),
            table: found.survey,
            table_error: found.error.map(|e| e.to_string()),
            stamp,
        })));
        result.map(|_| [0; 2])
    }

    /// Whether the region may be, and the entries that it needs.
    fn judge(
        &self,
        request: &RegMr,
        length: Length,
        mem: &dyn GuestMemory,
        found: &mut Findings,
    ) -> Result<u64, Syndrome> {
        let table = &request.table;
        match request.kind {
            MrKind::Reserved => return Err(Syndrome::Malformed),
            // All of memory, untranslated: the fields on the table are not set.
            MrKind::Dma => return self.ledger.check(request.key, 0).map(|()| 0),
            // The table is filled by later work requests, so its content is not looked at.
            MrKind::FastReg => {
                self.ledger.check(request.key, table.entries)?;
                return Ok(table.entries);
            }
            MrKind::User => {}
        }
        let inline_length = request.version == 1 && table.level == 0;
        if !request.valid || request.version > 1 || request.page_shift < 12 || inline_length {
            return Err(Syndrome::Malformed);
        }
        let refused = |error: TableError, found: &mut Findings| {
            found.error = Some(error);
            match error {
                TableError::Count { .. } | TableError::Limit { .. } => Syndrome::TableCount,
                TableError::Unaligned(_) => Syndrome::TableMisaligned,
                TableError::Memory(_) => Syndrome::TableUnreadable,
            }
        };
        table
            .check(mtt::MAX_ENTRIES)
            .map_err(|e| refused(e, found))?;
        // Before the table is read: what does not fit is refused at no cost.
        self.ledger.check(request.key, table.entries)?;
        let survey = mtt::survey(table, request.page_shift, mem, self.config.walk_limit)
            .map_err(|e| refused(e, found))?;
        found.survey = Some(survey);
        if survey.zero > 0 {
            return Err(Syndrome::TableShort);
        }
        if survey.misaligned > 0 {
            return Err(Syndrome::TableMisaligned);
        }
        let exact = matches!(length, Length::Exact { .. });
        if self.config.refuse_wrong_length && !exact {
            return Err(Syndrome::WrongLength);
        }
        Ok(table.entries)
    }

    pub(super) fn dereg_mr(&mut self, key: MrKey, verdict: &Verdict) -> Result<[u64; 2], Syndrome> {
        let result = if verdict.refuse {
            Err(Syndrome::Injected)
        } else {
            self.ledger.give_back(key).map(|live| live.entries)
        };
        if result.is_ok() {
            self.totals.dereg_ok += 1;
        } else {
            self.totals.dereg_refused += 1;
        }
        self.events.push(Event::DeregMr(DeregMrSeen {
            key: key.lkey(),
            entries: result.unwrap_or(0),
            used: self.ledger.used(),
            budget: self.ledger.budget(),
            result: result.map_or_else(Syndrome::name, |_| "ok"),
            answer: Self::answer_name(verdict),
            waiting: self.waiting(),
        }));
        result.map(|_| [0; 2])
    }
}
