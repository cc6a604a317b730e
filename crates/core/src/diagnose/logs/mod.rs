//! Logs as evidence: Mooncake, UCX, NCCL, libfabric, other users of verbs, drivers in the kernel.
//!
//! [`scan`] reads one line; [`Log`] puts the lines of one log together. Both take anything, keep a bounded amount, and
//! claim nothing that no line says: a length is joined to an errno only where the addresses say that they belong
//! together, a family is taken from the whole log only where it names one.

mod line;
mod text;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

pub use line::{Finding, LONGEST_LINE, Teller, scan};

use super::{Evidence, MemoryKind, Operation};
use crate::device::Family;
use crate::errno::Errno;
use crate::host::Driver;

/// Kinds of failures that one log may hold; more are counted, not kept.
pub const MOST_FAILURES: usize = 64;
/// Numbers of lines that are kept for the failures without an errno; more are counted, not kept.
pub const MOST_LINES: usize = 8;
/// Ranges that are remembered for joining lengths to addresses.
const MOST_RANGES: usize = 4096;
/// A fact on a line of its own counts for a failure that comes so many lines later at most; that memory ran out, also for one
/// so many lines before.
const NEARBY: u64 = 8;

/// A failure that a log reports, with what the log tells about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Number of the line that tells most of it, from 1: the first one, or that of the longest range.
    pub line: u64,
    /// Number of the last line that reports the kind.
    last: u64,
    /// Lines that report the same kind: operation, errno and family.
    pub count: u64,
    /// Who wrote it.
    pub teller: Teller,
    /// For [`diagnose`](super::diagnose).
    pub evidence: Evidence,
}

/// Failures that [`Log::failures`] leaves out, because others of the same operation have an errno and these have none that
/// can be read: an upper layer tells one of those again, or another call failed with a text that is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WithoutErrno {
    /// Lines that report them.
    pub count: u64,
    /// Numbers of the first [`MOST_LINES`] of these lines, from 1, ascending.
    pub lines: Vec<u64>,
}

impl Failure {
    fn is_like(&self, other: &Self) -> bool {
        let key = |e: &Evidence| (e.operation, e.errno, e.family, e.provider_loaded);
        key(&self.evidence) == key(&other.evidence)
    }

    /// Counts another one of its kind. Of several ranges the longest is the one that a limit refuses. Its line is shown
    /// whole: lengths and addresses of different lines are not mixed. What the kernel says holds for the kind.
    fn absorb(&mut self, other: Self) {
        self.count += other.count;
        self.last = self.last.max(other.last);
        let (e, o) = (&mut self.evidence, &other.evidence);
        let pin_failed = e.said_pin_failed.or(o.said_pin_failed);
        let out_of_memory = e.said_out_of_memory.or(o.said_out_of_memory);
        let gpu_nearby = e.said_gpu_nearby.or(o.said_gpu_nearby);
        // A line of the kernel, or of a program that calls verbs itself, says that it is an errno of ibv_reg_mr.
        let of_libfabric = e.errno_of_libfabric.and(o.errno_of_libfabric);
        if o.length > e.length {
            self.line = other.line;
            self.teller = other.teller;
            self.evidence = other.evidence;
        }
        self.evidence.said_pin_failed = pin_failed;
        self.evidence.said_out_of_memory = out_of_memory;
        self.evidence.said_gpu_nearby = gpu_nearby;
        self.evidence.errno_of_libfabric = of_libfabric;
    }
}

/// A log, read line by line.
#[derive(Clone, Debug, Default)]
pub struct Log {
    lines: u64,
    understood: u64,
    /// Of those that are understood, lines that report no failure.
    facts: u64,
    dropped: u64,
    failures: Vec<Failure>,
    /// First lines that report a failure without an errno, by operation.
    silent: Vec<(Option<Operation>, Vec<u64>)>,
    /// Address, length and kind of memory, of lines that tell an address and one of the others.
    ranges: Vec<(u64, Option<u64>, Option<MemoryKind>)>,
    /// Named families, and whose lines alone they hold for.
    families: Vec<(Family, Option<Teller>)>,
    context: Evidence,
    /// What the last lines tell of the next registration, and where.
    nearby: Nearby,
    /// The last line that says that memory ran out.
    out_of_memory: Option<u64>,
    /// What the kernel log says of the device's refusals, each once.
    refusals: Vec<Refusal>,
    /// Lines longer than [`LONGEST_LINE`]: how many, and the first of their numbers.
    cut: (u64, Vec<u64>),
    /// A failure that may go on in the next line: where it began, its text, what it tells so far.
    open: Option<(u64, String, Finding)>,
}

/// Lines of their own that speak of a registration which has not failed yet.
#[derive(Clone, Copy, Debug, Default)]
struct Nearby {
    line: u64,
    is_gpu: bool,
    pin_failed: bool,
}

/// A refusal by the device itself: with which errno, and what its status says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refusal {
    errno: Option<Errno>,
    keys_exhausted: Option<bool>,
    no_shortage: Option<bool>,
}

impl Log {
    /// Takes the next line. Of one that is longer than [`LONGEST_LINE`] the beginning counts, and [`cut`](Self::cut) has it.
    pub fn read(&mut self, line: &str) {
        self.lines = self.lines.saturating_add(1);
        if line.len() > LONGEST_LINE {
            self.cut.0 += 1;
            if self.cut.1.len() < MOST_LINES {
                self.cut.1.push(self.lines);
            }
        }
        let found = scan(line);
        if found.is_none() && self.goes_on(line) {
            return;
        }
        self.close();
        let Some(found) = found else { return };
        self.understood += 1;
        self.facts += u64::from(!found.is_failure);
        if found.is_failure && found.evidence.errno.is_none() {
            self.open = Some((self.lines, line.to_owned(), found));
        } else {
            self.take(self.lines, found);
        }
    }

    /// Whether the line belongs to a failure before it that has told no errno yet: a record of several lines goes on in
    /// lines that are indented more than its first, or begin with a comma (Rust's `{:?}` of a struct).
    fn goes_on(&mut self, line: &str) -> bool {
        let Some((_, text, found)) = &mut self.open else {
            return false;
        };
        let indent = |text: &str| text.len() - text.trim_start_matches([' ', '\t']).len();
        let more = indent(line) > indent(text) || line.starts_with(',');
        if !more || text.len() + line.len() > line::WINDOW {
            return false;
        }
        text.push(' ');
        text.push_str(line);
        if let Some(all) = scan(text).filter(|all| all.is_failure) {
            *found = all;
        }
        true
    }

    fn close(&mut self) {
        if let Some((at, _, found)) = self.open.take() {
            self.take(at, found);
        }
    }

    fn take(&mut self, at: u64, mut found: Finding) {
        self.join_nearby(at, &mut found);
        self.join_out_of_memory(at, &mut found);
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
        if e.said_device_refused == Some(true) {
            let refusal = Refusal {
                errno: e.errno,
                keys_exhausted: e.said_keys_exhausted,
                no_shortage: e.said_no_shortage,
            };
            if !self.refusals.contains(&refusal) {
                self.refusals.push(refusal);
            }
        }
        if found.is_failure {
            self.failed(at, found);
        }
    }

    /// Gives a failure what a line shortly before tells of the next registration. Only the failure that comes next gets
    /// it, and only as a hint: in a log of several threads it can be about another range.
    fn join_nearby(&mut self, at: u64, found: &mut Finding) {
        let e = &mut found.evidence;
        if !found.is_failure {
            let begins = e.operation == Some(Operation::RegMr) || e.memory.is_some();
            if begins || e.said_pin_failed.is_some() {
                let is_old = at.saturating_sub(self.nearby.line) > NEARBY;
                if is_old || begins && e.operation.is_some() {
                    self.nearby = Nearby::default();
                }
                self.nearby.line = at;
                self.nearby.is_gpu |= e.memory == Some(MemoryKind::Gpu);
                self.nearby.pin_failed |= e.said_pin_failed == Some(true);
            }
            return;
        }
        if e.operation != Some(Operation::RegMr) {
            return;
        }
        let nearby = std::mem::take(&mut self.nearby);
        if at.saturating_sub(nearby.line) <= NEARBY {
            let hint = nearby.is_gpu && e.memory.is_none();
            e.said_gpu_nearby = hint.then_some(true);
            e.said_pin_failed = nearby.pin_failed.then_some(true);
        }
    }

    /// The kernel kills for want of memory before or after the call fails that wants it. A failure says by its errno whether
    /// memory was what it lacked.
    fn join_out_of_memory(&mut self, at: u64, found: &mut Finding) {
        let is_near = |one: u64, other: u64| one.abs_diff(other) <= NEARBY;
        if found.evidence.said_out_of_memory == Some(true) {
            self.out_of_memory = Some(at);
            for failure in self.failures.iter_mut().filter(|f| is_near(f.last, at)) {
                failure.evidence.said_out_of_memory = Some(true);
            }
        } else if found.is_failure && self.out_of_memory.is_some_and(|line| is_near(line, at)) {
            found.evidence.said_out_of_memory = Some(true);
        }
    }

    fn failed(&mut self, at: u64, found: Finding) {
        let silent = found.evidence.errno.is_none();
        let failure = Failure {
            line: at,
            last: at,
            count: 1,
            teller: found.teller,
            evidence: found.evidence,
        };
        let operation = failure.evidence.operation;
        if let Some(same) = self.failures.iter_mut().find(|f| f.is_like(&failure)) {
            same.absorb(failure);
        } else if self.failures.len() < MOST_FAILURES {
            self.failures.push(failure);
        } else {
            self.dropped += 1;
            return;
        }
        if silent {
            let known = self.silent.iter_mut().find(|(op, _)| *op == operation);
            match known {
                Some((_, lines)) if lines.len() < MOST_LINES => lines.push(at),
                Some(_) => {}
                None => self.silent.push((operation, vec![at])),
            }
        }
    }

    /// Lines read, lines that told something, failures that were not kept.
    #[must_use]
    pub fn counts(&self) -> (u64, u64, u64) {
        let log = self.closed();
        (log.lines, log.understood, log.dropped)
    }

    /// Lines that told something, and no failure. With the counts of [`failures`](Self::failures), those
    /// [`without_errno`](Self::without_errno), and those that were not kept they are all that told something.
    #[must_use]
    pub const fn facts(&self) -> u64 {
        self.facts
    }

    /// How many lines were longer than [`LONGEST_LINE`], so that only their beginning was read, and the numbers of the first
    /// [`MOST_LINES`] of them, from 1, ascending.
    #[must_use]
    pub fn cut(&self) -> (u64, &[u64]) {
        (self.cut.0, &self.cut.1)
    }

    /// Failures that [`failures`](Self::failures) leaves out.
    #[must_use]
    pub fn without_errno(&self) -> WithoutErrno {
        let log = self.closed();
        let told = log.told();
        let left_out = |f: &&Failure| is_left_out(f, &told);
        let mut lines: Vec<u64> = log
            .silent
            .iter()
            .filter(|(operation, _)| told.contains(operation))
            .flat_map(|(_, lines)| lines.iter().copied())
            .collect();
        lines.sort_unstable();
        lines.truncate(MOST_LINES);
        WithoutErrno {
            count: log.failures.iter().filter(left_out).map(|f| f.count).sum(),
            lines,
        }
    }

    /// The log as it is if no more lines come.
    fn closed(&self) -> Cow<'_, Self> {
        if self.open.is_none() {
            return Cow::Borrowed(self);
        }
        let mut log = self.clone();
        log.close();
        Cow::Owned(log)
    }

    /// Operations of which a failure has its errno.
    fn told(&self) -> Vec<Option<Operation>> {
        let with_errno = self.failures.iter().filter(|f| f.evidence.errno.is_some());
        with_errno.map(|f| f.evidence.operation).collect()
    }

    /// The failures, those with an errno first, else in order of appearance. Each has what the rest of the log adds:
    /// facts of the host, the family where the log names one only, the length of the range that starts at its address.
    ///
    /// Failures without an errno are left out where others of the same operation have one: mostly they are the same
    /// failure, told again by an upper layer. [`without_errno`](Self::without_errno) has them.
    #[must_use]
    pub fn failures(&self) -> Vec<Failure> {
        let log = self.closed();
        let told = log.told();
        let mut list: Vec<Failure> = log.failures.clone();
        list.retain(|f| !is_left_out(f, &told));
        for failure in &mut list {
            log.complete(failure.teller, &mut failure.evidence);
        }
        // With the family that the whole log names, the kernel's line and the program's can be of one kind.
        let mut list = list
            .into_iter()
            .fold(Vec::new(), |mut kinds: Vec<Failure>, next| {
                match kinds.iter_mut().find(|kind| kind.is_like(&next)) {
                    Some(same) => same.absorb(next),
                    None => kinds.push(next),
                }
                kinds
            });
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
        // A refusal with another errno is one of another registration.
        for refusal in self.refusals.iter().filter(|one| one.errno == e.errno) {
            e.said_device_refused = e.said_device_refused.or(Some(true));
            e.said_keys_exhausted = e.said_keys_exhausted.or(refusal.keys_exhausted);
            e.said_no_shortage = e.said_no_shortage.or(refusal.no_shortage);
        }
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

/// Whether a failure has no errno, and others of its operation have one.
fn is_left_out(failure: &Failure, told: &[Option<Operation>]) -> bool {
    failure.evidence.errno.is_none() && told.contains(&failure.evidence.operation)
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
}
