//! Logs as evidence: Mooncake, UCX, NCCL, libfabric, other users of verbs, drivers in the kernel.
//!
//! [`scan`] reads one line; [`Log`] puts the lines of one log together. Both take anything, keep a bounded amount, and
//! claim nothing that no line says: a length is joined to an errno only where the addresses say that they belong
//! together, a family is taken from the whole log only where it names one.

mod line;
mod text;

#[cfg(test)]
mod tests;

pub use line::{Finding, LONGEST_LINE, Teller, scan};

use super::{Evidence, MemoryKind};
use crate::device::Family;
use crate::host::Driver;

/// Kinds of failures that one log may hold; more are counted, not kept.
pub const MOST_FAILURES: usize = 64;
/// Ranges that are remembered for joining lengths to addresses.
const MOST_RANGES: usize = 4096;

/// A failure that a log reports, with what the log tells about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Number of the line that tells most of it, from 1: the first one, or that of the longest range.
    pub line: u64,
    /// Lines that report the same kind: operation, errno and family.
    pub count: u64,
    /// Who wrote it.
    pub teller: Teller,
    /// For [`diagnose`](super::diagnose).
    pub evidence: Evidence,
}

/// A log, read line by line.
#[derive(Clone, Debug, Default)]
pub struct Log {
    lines: u64,
    understood: u64,
    dropped: u64,
    failures: Vec<Failure>,
    /// Address, length and kind of memory, of lines that tell an address and one of the others.
    ranges: Vec<(u64, Option<u64>, Option<MemoryKind>)>,
    /// Named families, and whose lines alone they hold for.
    families: Vec<(Family, Option<Teller>)>,
    context: Evidence,
}

impl Log {
    /// Takes the next line.
    pub fn read(&mut self, line: &str) {
        self.lines = self.lines.saturating_add(1);
        let Some(found) = scan(line) else { return };
        self.understood += 1;
        let e = &found.evidence;
        if let Some(addr) = e.addr
            && (e.length.is_some() || e.memory.is_some())
            && self.ranges.len() < MOST_RANGES
        {
            self.ranges.push((addr, e.length, e.memory));
        }
        // What libfabric says of its own provider does not hold for another program's device.
        let of = (found.teller == Teller::Libfabric).then_some(Teller::Libfabric);
        if let Some(family) = e.family
            && !self.families.contains(&(family, of))
        {
            self.families.push((family, of));
        }
        keep_context(&mut self.context, e);
        if found.is_failure {
            self.failed(found);
        }
    }

    fn failed(&mut self, found: Finding) {
        let key = |e: &Evidence| (e.operation, e.errno, e.family, e.provider_loaded);
        let same = self
            .failures
            .iter_mut()
            .find(|f| key(&f.evidence) == key(&found.evidence));
        if let Some(same) = same {
            same.count += 1;
            // Of several ranges the longest is the one that a limit refuses. Its line is shown whole: facts of different
            // lines are not mixed.
            if found.evidence.length > same.evidence.length {
                same.line = self.lines;
                same.teller = found.teller;
                same.evidence = found.evidence;
            }
        } else if self.failures.len() < MOST_FAILURES {
            self.failures.push(Failure {
                line: self.lines,
                count: 1,
                teller: found.teller,
                evidence: found.evidence,
            });
        } else {
            self.dropped += 1;
        }
    }

    /// Lines read, lines that told something, failures that were not kept.
    #[must_use]
    pub const fn counts(&self) -> (u64, u64, u64) {
        (self.lines, self.understood, self.dropped)
    }

    /// The failures, those with an errno first, else in order of appearance. Each has what the rest of the log adds:
    /// facts of the host, the family where the log names one only, the length of the range that starts at its address.
    ///
    /// Failures without an errno are left out where others of the same operation have one: they are the same failure,
    /// told again by an upper layer.
    #[must_use]
    pub fn failures(&self) -> Vec<Failure> {
        let mut list: Vec<Failure> = self.failures.clone();
        let told: Vec<_> = list
            .iter()
            .filter(|f| f.evidence.errno.is_some())
            .map(|f| f.evidence.operation)
            .collect();
        list.retain(|f| f.evidence.errno.is_some() || !told.contains(&f.evidence.operation));
        for failure in &mut list {
            self.complete(failure.teller, &mut failure.evidence);
        }
        list.sort_by_key(|f| f.evidence.errno.is_none());
        list
    }

    fn complete(&self, teller: Teller, e: &mut Evidence) {
        if let ([(family, of)], None) = (self.families.as_slice(), e.family)
            && of.is_none_or(|of| of == teller)
        {
            e.family = Some(*family);
        }
        let context = &self.context;
        if e.device.is_none() && self.families.len() <= 1 {
            e.device.clone_from(&context.device);
        }
        e.said_command_timeout = e.said_command_timeout.or(context.said_command_timeout);
        e.said_device_refused = e.said_device_refused.or(context.said_device_refused);
        e.said_keys_exhausted = e.said_keys_exhausted.or(context.said_keys_exhausted);
        e.memlock = e.memlock.take().or_else(|| context.memlock.clone());
        e.max_mr_size = e.max_mr_size.take().or_else(|| context.max_mr_size.clone());
        if e.family == Some(Family::Erdma) && context.platform.driver != e.platform.driver {
            e.platform.driver = context.platform.driver;
        }
        // A piece of a longer range is not as long as the range: only lines on the same address belong together.
        if let Some(addr) = e.addr {
            for (_, length, memory) in self.ranges.iter().filter(|(start, ..)| *start == addr) {
                e.length = e.length.or(*length);
                e.memory = e.memory.or(*memory);
            }
        }
    }
}

/// Facts that hold for the whole log.
fn keep_context(context: &mut Evidence, e: &Evidence) {
    if context.device.is_none() {
        context.device.clone_from(&e.device);
    }
    if context.memlock.is_none() {
        context.memlock.clone_from(&e.memlock);
    }
    if context.max_mr_size.is_none() {
        context.max_mr_size.clone_from(&e.max_mr_size);
    }
    if e.platform.driver != Driver::Unknown {
        context.platform.driver = e.platform.driver;
    }
    // "Out of mr size" belongs to its own failure; only its absence could tell something about others.
    context.said_command_timeout = context.said_command_timeout.or(e.said_command_timeout);
    context.said_device_refused = context.said_device_refused.or(e.said_device_refused);
    context.said_keys_exhausted = context.said_keys_exhausted.or(e.said_keys_exhausted);
}
