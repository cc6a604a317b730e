//! The search: fill in coarse steps, bisect, confirm.

use std::sync::Arc;
use std::time::Duration;

use super::pace::Pace;
use super::{
    End, Found, LargePages, Longest, NoLargePages, Options, Progress, Range, Stop, entries,
};
use crate::backend::{Access, Backing, RegBackend};
use crate::chunks::Segment;
use crate::device::{Dialect, Used};
use crate::errno::Errno;
use crate::registrar::{LeftCause, Options as RegisterOptions, Registration};
use crate::size::PageSize;

/// The first MR, entries: small enough for a nearly full table, large enough to save steps on an empty one.
const FIRST: u64 = 256;
/// A failure that says "again" is tried again so often.
const AGAIN: u64 = 3;
/// After so many contradictions the table is called unsteady.
const ROUNDS: u64 = 12;

/// MRs that are held, and what was seen so far.
pub(super) struct Run<'a, B: RegBackend + Clone, M: Backing> {
    pub(super) backend: &'a B,
    small: &'a Arc<M>,
    pub(super) options: &'a Options<'a>,
    pub(super) dialect: Dialect,
    /// Entries of the longest MR that is tried.
    largest: u64,
    held: Vec<Mr<B, M>>,
    /// Entries of `held`.
    pub(super) entries: u64,
    /// How long `held` took to be registered.
    took: Duration,
    pace: Pace<'a>,
    stopped: Option<Stop>,
    most: (u64, u64),
    /// The table has so many at least.
    low: u64,
    high: Option<u64>,
    /// Entries of one MR: worked, did not.
    pub(super) single: (u64, Option<u64>),
    /// Length of one MR, bytes: worked, did not.
    pub(super) length: Option<(u64, u64)>,
    /// Whether the last MR that was too much was so for its length.
    for_length: bool,
    pub(super) tried: u64,
    disturbances: u64,
    pub(super) left: Left,
    /// What was not tried because it could have taken so many entries: the longest MR, and one on large pages.
    pub(super) over: (Option<u64>, Option<u64>),
}

/// One MR that is held.
pub(super) struct Mr<B: RegBackend + Clone, M: Backing> {
    /// The most entries that it can have.
    entries: u64,
    /// How long it took to be registered.
    took: Duration,
    registration: Registration<B, Arc<M>>,
}

/// MRs that could not be deregistered.
#[derive(Clone, Copy, Default)]
pub(super) struct Left {
    pub(super) mrs: u64,
    /// The most entries that they can have.
    pub(super) entries: u64,
    /// Why not the first.
    pub(super) errno: Option<Errno>,
}

/// An answer to one registration.
enum Said {
    Yes,
    /// The table is full, as it seems.
    Full,
    /// The MR has too many entries or is too long, whatever is in the table.
    TooMany,
}

impl<'a, B: RegBackend + Clone, M: Backing> Run<'a, B, M> {
    pub(super) fn new(backend: &'a B, small: &'a Arc<M>, options: &'a Options<'a>) -> Self {
        let device = backend.device();
        let longest = device
            .max_mr_size
            .at_most()
            .unwrap_or(u64::MAX)
            .min(small.len());
        let largest = entries(longest).min(options.per_mr.unwrap_or(u64::MAX));
        Self {
            backend,
            small,
            options,
            dialect: device.family.dialect(),
            largest: largest.max(1),
            held: Vec::new(),
            entries: 0,
            took: Duration::ZERO,
            pace: Pace::new(options.clock, options.deadline),
            stopped: None,
            most: (0, 0),
            low: 0,
            high: None,
            single: (0, None),
            length: None,
            for_length: false,
            tried: 0,
            disturbances: 0,
            left: Left::default(),
            over: (None, None),
        }
    }

    /// Fills the table and says why it stopped.
    pub(super) fn table(&mut self) -> End {
        let mut end = self.fill(FIRST.min(self.largest));
        // Where the number of MRs ends it, short ones have spent them: anew with longer ones, as long as that helps.
        while let End::MrCount(_) = end
            && self.held.iter().any(|mr| mr.entries < self.largest)
            && self.left.mrs == 0
        {
            let before = (self.low, self.single.0);
            self.release();
            let next = self.fill(self.single.0.saturating_mul(2).clamp(1, self.largest));
            if (self.low, self.single.0) == before && !matches!(next, End::Full) {
                // Neither a longer one nor more of them: the first word stands, unless it is time to stop.
                return if matches!(next, End::Stopped(_)) {
                    next
                } else {
                    end
                };
            }
            end = next;
        }
        end
    }

    fn fill(&mut self, first: u64) -> End {
        match self.try_to_fill(first) {
            Ok(end) | Err(end) => end,
        }
    }

    fn try_to_fill(&mut self, mut size: u64) -> Result<End, End> {
        for _ in 0..ROUNDS {
            let (refused, said) = self.climb(size)?;
            let mut high = self.entries.saturating_add(refused);
            let known = self.single.0;
            if refused > known && known > 0 {
                // A longer MR than ever before: the table, or a limit of one MR? Two halves tell.
                let rest = refused - known;
                let first = self.fits(known)?;
                if first && self.fits(rest.min(known))? && rest <= known {
                    self.find_largest(refused)?;
                    size = self.largest;
                    continue;
                }
                high = high.min(self.entries + if first { rest } else { known });
            }
            if matches!(said, Said::TooMany) && known == 0 {
                // Not even the first one: shorter ones, until one fits.
                if refused == 1 {
                    return Err(End::Nothing(self.dialect.over_per_mr));
                }
                self.largest = refused / 2;
                size = self.largest.max(1);
                continue;
            }
            self.bisect(high)?;
            if self.most.0 == 0 {
                return Err(End::Nothing(self.dialect.over_budget));
            }
            match self.confirm()? {
                Some(end) => return Ok(end),
                None => {
                    self.disturbances += 1;
                    size = 1;
                }
            }
        }
        Err(End::Unsteady)
    }

    /// Ever longer MRs, up to the longest, until one is refused: its entries.
    fn climb(&mut self, first: u64) -> Result<(u64, Said), End> {
        let mut size = first;
        loop {
            let allowed = self.allowed();
            if allowed == 0 {
                return Err(End::UpTo);
            }
            let now = size.min(allowed);
            match self.attempt(now)? {
                Said::Yes => {
                    size = size.saturating_mul(2).min(self.largest);
                    self.measure_release();
                }
                said => return Ok((now, said)),
            }
        }
    }

    /// Fills up what is left below `high`, in pieces that are known to work as one MR.
    fn bisect(&mut self, mut high: u64) -> Result<(), End> {
        while high > self.entries + 1 {
            let half = (high - self.entries) / 2;
            let piece = match self.single.0 {
                0 => half,
                known => half.min(known),
            };
            match self.fits(piece) {
                Ok(true) => {}
                Ok(false) => high = self.entries + piece,
                Err(End::MrCount(_)) => return self.stretch(high),
                Err(end) => return Err(end),
            }
        }
        Ok(())
    }

    /// The same where no MR is left for another piece: longer ones take the place of the last.
    fn stretch(&mut self, mut high: u64) -> Result<(), End> {
        let end = End::MrCount(self.count_held());
        while high > self.entries + 1 {
            let Some(last) = self.held.last().map(|mr| mr.entries) else {
                return Err(end);
            };
            let longer = (last + (high - self.entries) / 2).min(self.single.0);
            if longer == last {
                return Err(end);
            }
            self.pop();
            if !self.fits(longer)? {
                high = self.entries + longer;
                if !self.fits(last)? {
                    return Err(End::Unsteady);
                }
            }
        }
        Ok(())
    }

    /// Nothing more fits, as it seems. The last MR is taken back; then it must fit, with one entry more it must not, and
    /// without it must fit again. `None`: that was not so.
    fn confirm(&mut self) -> Result<Option<End>, End> {
        let Some(Mr { entries: size, .. }) = self.held.last() else {
            return Ok(None);
        };
        let size = *size;
        // One MR instead of one MR: so it is not the number of MRs that refuses.
        let one_more = size < self.largest;
        self.pop();
        if !self.fits(size)? {
            return Ok(None);
        }
        if one_more {
            self.pop();
        }
        let before = (self.options.others)();
        let said = self.attempt(if one_more { size + 1 } else { 1 })?;
        let others = most(before, (self.options.others)());
        if !matches!(said, Said::Full) {
            return Ok(None);
        }
        if !one_more {
            self.pop();
        }
        let before = (self.options.others)().entries.0;
        if !self.fits(size)? {
            return Ok(None);
        }
        let least = before.min((self.options.others)().entries.0);
        self.low = self.low.max(self.entries.saturating_add(least));
        self.high = others.and_then(|others| self.entries.checked_add(others));
        Ok(Some(End::Full))
    }

    /// Whether as many MRs are held as the device says it has. Asked where the refusals of table and count look alike.
    fn count_is_the_limit(&self) -> bool {
        let others = (self.options.others)().mrs.0;
        let held = self.count_held().saturating_add(others);
        self.backend
            .device()
            .max_mr
            .known()
            .is_some_and(|n| held >= n)
    }

    /// One MR of `known` entries works and one of `refused` does not, although the table has room for it.
    fn find_largest(&mut self, refused: u64) -> Result<(), End> {
        self.release();
        let (mut low, mut high) = (self.single.0, refused);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.fits(middle)? {
                self.pop();
                low = middle;
            } else {
                high = middle;
            }
        }
        // Once more: a limit refuses again, a failure in passing does not.
        if self.fits(high)? {
            self.pop();
            self.disturbances += 1;
        } else {
            self.largest = low;
            if self.for_length {
                let page = PageSize::K4.bytes();
                self.length = Some((low * page, high * page));
            } else {
                self.single = (low, Some(high));
            }
        }
        Ok(())
    }

    /// Entries of one MR. That the longest one is the limit is proved by one entry more on an empty table, twice.
    pub(super) fn per_mr(&mut self, end: End) -> (u64, Option<u64>) {
        if end != End::Full || self.single.1.is_some() || self.length.is_some() {
            return self.single;
        }
        let longer = self.single.0 + 1;
        let most = self.backend.device().max_mr_size.at_most();
        let memory = entries(self.small.len().min(most.unwrap_or(u64::MAX)));
        if self.most.0 < longer || memory < longer {
            return self.single;
        }
        self.release();
        let mut refuses = || Ok::<_, End>(!self.fits(longer)?);
        if refuses() == Ok(true) && self.fits(longer - 1) == Ok(true) {
            self.pop();
            if self.fits(longer) == Ok(false) {
                self.single.1 = Some(longer);
            }
        }
        self.single
    }

    /// How many MRs of one page can be held, up to `most`: at least, and at most where that was confirmed; and what ended it.
    /// On an empty table.
    pub(super) fn count(&mut self, most: u64) -> (Range, End) {
        self.release();
        let end = loop {
            if self.count_held() >= most {
                break End::Counted;
            }
            match self.attempt(1) {
                Ok(Said::Yes) => self.measure_release(),
                Ok(_) => break End::MrCount(self.count_held()),
                Err(end) => break end,
            }
        };
        let held = self.count_held();
        if !matches!(end, End::MrCount(_)) {
            return ((held, None), end);
        }
        // Where as many entries fill the table, it is the table that refuses.
        if self.entries >= self.most.0 && self.high.is_some() {
            return ((held, None), End::Full);
        }
        if self.pop() == 0 {
            return ((held, None), end);
        }
        let again = self.fits(1) == Ok(true);
        let no_more = matches!(self.attempt(1), Ok(Said::Full) | Err(End::MrCount(_)));
        let end = match self.stopped {
            _ if again && no_more => end,
            Some(stop) => End::Stopped(stop),
            None => End::Unsteady,
        };
        let others = (self.options.others)().mrs;
        let high = others.1.filter(|_| again && no_more);
        let at_most = high.and_then(|others| held.checked_add(others));
        ((held.saturating_add(others.0), at_most), end)
    }

    /// Where it is time to: releases a few of the MRs that are held, the last first, to learn how long that takes.
    fn measure_release(&mut self) {
        let Some(share) = self.pace.due(self.took) else {
            return;
        };
        let rest = self.took.saturating_sub(share);
        while self.pop() > 0 && self.took > rest {}
    }

    fn count_held(&self) -> u64 {
        self.held.len() as u64
    }

    pub(super) fn fits(&mut self, size: u64) -> Result<bool, End> {
        Ok(matches!(self.attempt(size)?, Said::Yes))
    }

    /// Registers one more MR of `size` entries and holds it.
    fn attempt(&mut self, size: u64) -> Result<Said, End> {
        let mut again = AGAIN;
        loop {
            let errno =
                match self.register(self.small, size * PageSize::K4.bytes(), PageSize::K4, size)? {
                    Ok(mr) => {
                        self.took = self.took.saturating_add(mr.took);
                        self.held.push(mr);
                        self.entries += size;
                        self.single.0 = self.single.0.max(size);
                        self.most.0 = self.most.0.max(self.entries);
                        self.most.1 = self.most.1.max(self.held.len() as u64);
                        // Others can only add to that.
                        self.low = self.low.max(self.entries);
                        self.tell();
                        return Ok(Said::Yes);
                    }
                    Err(errno) => errno,
                };
            self.tell();
            let over_count = errno == self.dialect.over_mr_count;
            if errno == self.dialect.over_budget && !(over_count && self.count_is_the_limit()) {
                return Ok(Said::Full);
            }
            if over_count {
                return Err(End::MrCount(self.count_held()));
            }
            let too_long = errno == self.dialect.too_long;
            if (errno == self.dialect.over_per_mr || too_long) && size > self.single.0 {
                self.for_length = too_long && errno != self.dialect.over_per_mr;
                return Ok(Said::TooMany);
            }
            self.disturbances += 1;
            let passing = matches!(errno, Errno::EINTR | Errno::EAGAIN | Errno::EBUSY);
            if !passing || again == 0 {
                return Err(End::Failed(errno));
            }
            again -= 1;
        }
    }

    /// How many more entries may be held. MRs that could not be deregistered are held, too.
    pub(super) fn allowed(&self) -> u64 {
        let held = self.entries.saturating_add(self.left.entries);
        self.options
            .up_to
            .map_or(u64::MAX, |most| most.saturating_sub(held))
    }

    /// One registration of at most `most` entries: an errno where the device or the kernel refuses, an end where there is no
    /// sense in going on. The only place that registers: what is not allowed to be held is not tried.
    pub(super) fn register<N: Backing>(
        &mut self,
        memory: &Arc<N>,
        len: u64,
        page: PageSize,
        most: u64,
    ) -> Result<Result<Mr<B, N>, Errno>, End> {
        if most > self.allowed() {
            return Err(End::UpTo);
        }
        let stop = if (self.options.cancelled)() {
            Some(Stop::Cancelled)
        } else {
            (!self.pace.has_time(most, self.took)).then_some(Stop::Deadline)
        };
        if let Some(stop) = stop {
            self.stopped = Some(stop);
            return Err(End::Stopped(stop));
        }
        let start = self.pace.now();
        let whole = Segment::whole(len, page);
        self.tried += 1;
        // Written by nobody: the device gets no right that it needs not to count entries. Local write is what makes
        // the kernel pin as it does for real MRs.
        let made = Registration::new(
            self.backend.clone(),
            Arc::clone(memory),
            &[whole],
            Access::LOCAL_WRITE,
            &RegisterOptions::new(),
        );
        match made {
            Ok(registration) => {
                let took = self.pace.now().saturating_sub(start);
                self.pace.registered(most, took);
                Ok(Ok(Mr {
                    entries: most,
                    took,
                    registration,
                }))
            }
            Err(error) => match error.failure().errno() {
                Some(errno) => Ok(Err(errno)),
                // The request itself: the memory is not such that this backend takes it.
                None => Err(End::Failed(Errno::EINVAL)),
            },
        }
    }

    /// Takes the last MR back and says how many entries that freed.
    pub(super) fn pop(&mut self) -> u64 {
        let Some(mr) = self.held.pop() else {
            return 0;
        };
        let size = mr.entries;
        self.entries -= size;
        self.took = self.took.saturating_sub(mr.took);
        self.close(mr);
        size
    }

    /// Takes one MR back.
    pub(super) fn close<N: Backing>(&mut self, mr: Mr<B, N>) {
        let start = self.pace.now();
        let closed = mr.registration.close();
        let took = self.pace.now().saturating_sub(start);
        self.pace.released(mr.took, took);
        if let Err(error) = closed {
            self.left.mrs += 1;
            self.left.entries = self.left.entries.saturating_add(mr.entries);
            let errno = error.left().first().and_then(|left| match &left.cause {
                LeftCause::Verb(error) => Some(error.errno),
                _ => None,
            });
            self.left.errno = self.left.errno.or(errno);
        }
    }

    /// Takes every MR back, the last first.
    pub(super) fn release(&mut self) {
        while !self.held.is_empty() {
            self.pop();
        }
    }

    fn tell(&self) {
        (self.options.progress)(Progress {
            held: self.entries,
            mrs: self.held.len() as u64,
            tried: self.tried,
        });
    }

    pub(super) fn found(
        mut self,
        end: End,
        (per_mr, counted): (Range, Option<(Range, End)>),
        longest: Option<Longest>,
        large_pages: Option<Result<LargePages, NoLargePages>>,
    ) -> Found {
        self.release();
        Found {
            end,
            // MRs that could not be taken back are in the table and not in the count of ours.
            entries: (self.low, self.high.filter(|_| self.left.mrs == 0)),
            held: self.most.0,
            mrs: self.most.1,
            per_mr: (per_mr.0, per_mr.1.filter(|_| self.disturbances == 0)),
            max_mr: counted.map(|(mrs, _)| mrs),
            max_mr_end: counted.map(|(_, end)| end),
            stopped: self.stopped,
            tried: self.tried,
            disturbances: self.disturbances,
            longest,
            large_pages: large_pages.and_then(Result::ok),
            large_pages_not: large_pages.and_then(Result::err),
            longest_over: self.over.0,
            large_pages_over: self.over.1,
            left: self.left.mrs,
            left_errno: self.left.errno,
        }
    }
}

/// The most that others held around a call, where it is known.
fn most(before: Used, after: Used) -> Option<u64> {
    Some(before.entries.1?.max(after.entries.1?))
}
