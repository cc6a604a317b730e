//! Commands other than those on memory regions.

use super::{Device, MAX_ODD_EVENTS, VECTORS};
use crate::cmd::{self, Command, CreateEq, GetStats, Syndrome};
use crate::events::Event;
use crate::faults::{Target, Verdict};
use crate::mem::GuestMemory;
use crate::regs;

/// How faults count a command.
pub(super) const fn target(module: u8, opcode: u8) -> Target {
    match (module, opcode) {
        (0, 8) => Target::RegMr,
        (0, 9) => Target::DeregMr,
        _ => Target::Any,
    }
}

/// The outcome of something that a set either allowed or not.
const fn object(done: bool) -> Result<[u64; 2], Syndrome> {
    if done {
        Ok([0; 2])
    } else {
        Err(Syndrome::BadObject)
    }
}

impl Device {
    pub(super) fn execute(
        &mut self,
        command: Command,
        verdict: &Verdict,
        mem: &dyn GuestMemory,
    ) -> Result<[u64; 2], Syndrome> {
        // These two write an event of their own, refused or not.
        match command {
            Command::RegMr(request) => return self.reg_mr(request, verdict, mem),
            Command::DeregMr(key) => return self.dereg_mr(key, verdict),
            _ if verdict.refuse => return Err(Syndrome::Injected),
            _ => {}
        }
        let objects = &mut self.objects;
        match command {
            Command::QueryDevice => Ok(self.config.query_device()),
            Command::QueryFwInfo => Ok([self.config.fw_version.into(), 0]),
            Command::CreateEq(eq) => object(plausible(eq) && objects.event_queues.insert(eq.eqn)),
            Command::DestroyEq { eqn } => object(objects.event_queues.remove(&eqn)),
            Command::CreateCq { cqn } => object(objects.completion_queues.insert(cqn)),
            Command::DestroyCq { cqn } => object(objects.completion_queues.remove(&cqn)),
            Command::CreateQp { qpn } => {
                // The first result is a number that the connection manager would use.
                object(objects.queue_pairs.insert(qpn)).map(|_| [qpn.into(), 0])
            }
            Command::DestroyQp { qpn } => object(objects.queue_pairs.remove(&qpn)),
            Command::ModifyQp { qpn, .. } => object(objects.queue_pairs.contains(&qpn)),
            Command::Reflush | Command::ConfMtu { .. } | Command::ConfDevice { .. } => Ok([0; 2]),
            Command::GetStats(stats) => get_stats(stats, mem),
            Command::AllocDb if self.config.flags & regs::CAP_EXTEND_DB != 0 => {
                objects.contexts += 1;
                // All contexts share the pages: nothing listens to these doorbells.
                let page = |n: u16, at: u32| u64::from(n) << at;
                Ok([
                    page(regs::SHARED_SQ_PAGE, 0)
                        | page(regs::CQ_PAGE, 32)
                        | page(regs::RQ_PAGE, 48),
                    0,
                ])
            }
            Command::FreeDb => {
                let open = objects.contexts;
                objects.contexts = open.saturating_sub(1);
                object(open > 0)
            }
            Command::AllocDb | Command::RegMr(_) | Command::DeregMr(_) => {
                Err(Syndrome::UnknownCommand)
            }
            Command::Unknown { module, opcode } => {
                self.totals.unknown_commands += 1;
                if self.totals.unknown_commands <= MAX_ODD_EVENTS {
                    self.events.push(Event::UnknownCommand { module, opcode });
                }
                Err(Syndrome::UnknownCommand)
            }
        }
    }
}

/// Whether a completion event queue can be right: a vector of its own and a ring somewhere.
fn plausible(eq: CreateEq) -> bool {
    let vectors = 1..VECTORS;
    vectors.contains(&eq.eqn.into())
        && vectors.contains(&eq.vector.into())
        && eq.ring != 0
        && eq.depth_shift <= 16
}

fn get_stats(stats: GetStats, mem: &dyn GuestMemory) -> Result<[u64; 2], Syndrome> {
    let bytes = cmd::stats(stats.index);
    if (stats.length as usize) < bytes.len() {
        return Err(Syndrome::Malformed);
    }
    mem.write(stats.address, &bytes)
        .map_err(|_| Syndrome::BadAddress)?;
    Ok([0; 2])
}
