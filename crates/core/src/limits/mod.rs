//! What was measured of a device, kept beyond the process that measured it: which device, which software, which limits.
//!
//! A record narrows with everything that is seen: what fitted raises the lower end, what the device refused lowers the
//! upper one. Software that has changed since makes a record stale: it is shown, and not used.

mod date;
mod identity;

pub use date::date;
pub use identity::{Change, Identity};

use crate::device::Device;
use crate::fact::{Kind, Limit, Source};
use crate::host::{Platform, Tried};
use crate::size::Grouped;

/// At least, and at most (`None`: not known).
pub type Range = (u64, Option<u64>);

/// Nothing is known.
pub const UNKNOWN: Range = (0, None);

/// How a record came about, the surest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// A probe, which confirmed both ends.
    Probed,
    /// Registrations that succeeded or failed.
    Seen,
    /// Told by hand, from a report.
    Told,
}

impl Confidence {
    /// The stable word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Probed => "probed",
            Self::Seen => "seen",
            Self::Told => "told",
        }
    }

    /// The confidence of that word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Probed, Self::Seen, Self::Told]
            .into_iter()
            .find(|c| c.name() == word)
    }
}

/// Limits of one device, as far as they were seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Entries of all MRs together.
    pub entries: Range,
    /// Entries of one MR.
    pub per_mr: Range,
    /// Number of MRs.
    pub mrs: Range,
    /// The longest MR that was registered, bytes.
    pub longest: Option<u64>,
    /// The shortest that was refused for its length, bytes.
    pub refused: Option<u64>,
    /// Whether the device was given large pages.
    pub large_pages: Option<bool>,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Of which device, under which software.
    pub identity: Identity,
    /// What was seen.
    pub seen: Seen,
    /// How.
    pub confidence: Confidence,
    /// When it was last changed, seconds since 1970.
    pub seconds: u64,
}

/// What something new has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learned {
    /// It was known already.
    Nothing,
    /// An interval is narrower now, or something is known that was not.
    Narrowed,
    /// It contradicts what was known of the entries, which is gone: these were the ends.
    Replaced(Range),
}

/// What was told by hand contradicts what was measured here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at least {} entries and fewer than {} contradict each other", Grouped(told.0.max(known.0)), Grouped(told.1.into_iter().chain(known.1).min().map_or(u64::MAX, |most| most.saturating_add(1))))]
pub struct Contradiction {
    /// What was told.
    pub told: Range,
    /// What is known.
    pub known: Range,
}

impl Record {
    /// A record of which nothing is known yet.
    #[must_use]
    pub fn new(identity: Identity, confidence: Confidence, seconds: u64) -> Self {
        Self {
            identity,
            seen: Seen::default(),
            confidence,
            seconds,
        }
    }

    /// Adds what was seen. What is measured wins over what was known; what is told does not.
    ///
    /// # Errors
    /// Something told that cannot be, by what is known. The record is as before then.
    pub fn learn(
        &mut self,
        new: &Seen,
        confidence: Confidence,
        seconds: u64,
    ) -> Result<Learned, Contradiction> {
        let known = self.seen.entries;
        let entries = both(known, new.entries);
        if entries.is_none() && confidence == Confidence::Told {
            let told = new.entries;
            return Err(Contradiction { told, known });
        }
        let longest = self.seen.longest.max(new.longest);
        let refused = [self.seen.refused, new.refused];
        let refused = refused.into_iter().flatten().min();
        let contradicted = refused.is_some_and(|refused| longest.is_some_and(|len| refused <= len));
        let (longest, refused) = if contradicted {
            (new.longest, new.refused)
        } else {
            (longest, refused)
        };
        let seen = Seen {
            entries: entries.unwrap_or(new.entries),
            per_mr: both(self.seen.per_mr, new.per_mr).unwrap_or(new.per_mr),
            mrs: both(self.seen.mrs, new.mrs).unwrap_or(new.mrs),
            longest,
            refused,
            large_pages: new.large_pages.or(self.seen.large_pages),
        };
        if seen == self.seen {
            return Ok(Learned::Nothing);
        }
        self.confidence = if self.seen.entries == seen.entries {
            self.confidence
        } else if new.entries == seen.entries || known == UNKNOWN {
            confidence
        } else {
            // One end from each: as sure as the less sure of the two.
            self.confidence.max(confidence)
        };
        // A clock that was set back does not make the record older than others of the device, which would then hide it.
        (self.seen, self.seconds) = (seen, seconds.max(self.seconds));
        Ok(if entries.is_some() {
            Learned::Narrowed
        } else {
            Learned::Replaced(known)
        })
    }

    /// One of two records of the same device and software: the later one is learned on top of the earlier one.
    #[must_use]
    pub fn joined(self, other: Self) -> Self {
        let (mut record, later) = if self.seconds <= other.seconds {
            (self, other)
        } else {
            (other, self)
        };
        record.identity.fill(&later.identity);
        // What was told and contradicts what was measured is left out, as it would have been at the time.
        let _left_out = record.learn(&later.seen, later.confidence, later.seconds);
        record
    }

    /// Puts what is known into device and platform, as [`apply_from`](Self::apply_from) does, without a place.
    pub fn apply(&self, device: &mut Device, platform: &mut Platform) {
        self.apply_from(device, platform, "");
    }

    /// Puts what is known into the device: what was found narrows what the device says of itself, and replaces it where
    /// they contradict each other. What only a probe finds goes into the device and the platform as measured by it. `place` is
    /// where the record stands, for the source of a limit.
    pub fn apply_from(&self, device: &mut Device, platform: &mut Platform, place: &str) {
        let mut date = date(self.seconds);
        if !place.is_empty() {
            date = format!("{date}, in {place}");
        }
        let by_probe = Source::new(Kind::Measured, format!("measured by probe on {date}"));
        if let Some(worked) = self.seen.large_pages {
            platform.large_pages = Some(Tried {
                worked,
                source: by_probe.clone(),
            });
        }
        // A longer one than the device states is not taken from what once worked.
        if let Some(refused) = self.seen.refused
            && (device.max_mr_size.at_most()).is_none_or(|most| refused <= most)
        {
            let (low, high) = (self.seen.longest.unwrap_or(0), refused.saturating_sub(1));
            device.max_mr_size = Limit::interval(low.min(high), Some(high), by_probe);
        }
        let text = match self.confidence {
            Confidence::Probed => format!("probed on {date}"),
            Confidence::Seen => format!("seen on {date}"),
            Confidence::Told => format!("told by learn on {date}"),
        };
        let kind = match self.confidence {
            Confidence::Told => Kind::Given,
            Confidence::Probed | Confidence::Seen => Kind::Measured,
        };
        let put = |to: &mut Limit, found: Range| {
            let before = (to.certain(), to.at_most());
            let joined = both(before, found).filter(|_| !to.is_unlimited());
            if found == UNKNOWN || joined == Some(before) {
                return;
            }
            let (low, high) = joined.unwrap_or(found);
            let source = match joined {
                // One end from each: as sure as the less sure of the two.
                Some(range) if range != found => {
                    let kind = match to.source.kind {
                        weak @ (Kind::Inferred | Kind::Assumed) => weak,
                        Kind::Documented | Kind::Measured | Kind::Given => kind,
                    };
                    Source::new(kind, format!("{text}; {}", to.source.text))
                }
                _ => Source::new(kind, text.clone()),
            };
            *to = Limit::interval(low, high, source);
        };
        put(&mut device.entries, self.seen.entries);
        if self.seen.per_mr.1.is_some() {
            put(&mut device.entries_per_mr, self.seen.per_mr);
        }
        if self.seen.mrs.1.is_some() {
            put(&mut device.max_mr, self.seen.mrs);
        }
    }
}

/// What both allow; `None` where they contradict each other.
fn both(a: Range, b: Range) -> Option<Range> {
    let low = a.0.max(b.0);
    let high = match (a.1, b.1) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    high.is_none_or(|high| low <= high).then_some((low, high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Family;
    use proptest::prelude::*;

    fn record(entries: Range) -> Record {
        let mut record = Record::new(Identity::default(), Confidence::Probed, 1);
        record.seen.entries = entries;
        record
    }

    fn seen(entries: Range) -> Seen {
        Seen {
            entries,
            ..Seen::default()
        }
    }

    #[test]
    fn intervals_narrow_and_measured_contradictions_replace() {
        let mut known = record((100, Some(200)));
        assert_eq!(
            known.learn(&seen((50, None)), Confidence::Seen, 2),
            Ok(Learned::Nothing)
        );
        assert_eq!((known.confidence, known.seconds), (Confidence::Probed, 1));
        assert_eq!(
            known.learn(&seen((150, None)), Confidence::Seen, 3),
            Ok(Learned::Narrowed)
        );
        assert_eq!(
            (known.seen.entries, known.confidence),
            ((150, Some(200)), Confidence::Seen)
        );
        let told = known.learn(&seen((300, None)), Confidence::Told, 4);
        assert_eq!(
            told,
            Err(Contradiction {
                told: (300, None),
                known: (150, Some(200))
            })
        );
        assert_eq!(known.seen.entries, (150, Some(200)));
        let replaced = known.learn(&seen((300, None)), Confidence::Seen, 5);
        assert_eq!(replaced, Ok(Learned::Replaced((150, Some(200)))));
        assert_eq!(known.seen.entries, (300, None));
    }

    #[test]
    fn two_records_of_one_device_become_one_in_the_order_of_time() {
        let at = |entries, confidence, seconds| {
            let mut record = record(entries);
            (record.confidence, record.seconds) = (confidence, seconds);
            record
        };
        let told = at((100, None), Confidence::Told, 5);
        let probed = at((200, Some(200)), Confidence::Probed, 7);
        let joined = probed.clone().joined(told.clone());
        assert_eq!(joined, told.joined(probed.clone()));
        assert_eq!(joined, probed);
        let wrong = at((300, None), Confidence::Told, 9);
        assert_eq!(
            wrong.joined(probed.clone()),
            probed,
            "told, and contradicted"
        );
        let seen = at((300, None), Confidence::Seen, 9);
        assert_eq!(
            probed.joined(seen.clone()).seen,
            seen.seen,
            "measured later"
        );
    }

    #[test]
    fn a_record_becomes_a_limit_with_its_date() {
        let mut device = Device::unlimited("d", Family::Erdma);
        record((5, Some(9))).apply(&mut device, &mut Platform::default());
        assert_eq!(
            (device.entries.certain(), device.entries.at_most()),
            (5, Some(9))
        );
        assert_eq!(
            device.entries.source.to_string(),
            "probed on 1970-01-01, measured"
        );
        assert!(device.entries_per_mr.is_unlimited());
    }

    #[test]
    fn what_a_probe_found_of_lengths_and_pages_is_applied_as_measured() {
        let mut found = record(UNKNOWN);
        let new = Seen {
            longest: Some(32),
            refused: Some(64),
            large_pages: Some(false),
            ..Seen::default()
        };
        assert_eq!(
            found.learn(&new, Confidence::Probed, 1),
            Ok(Learned::Narrowed)
        );
        let (mut device, mut platform) =
            (Device::unlimited("d", Family::Erdma), Platform::default());
        found.apply(&mut device, &mut platform);
        let limit = &device.max_mr_size;
        assert_eq!((limit.certain(), limit.at_most()), (32, Some(63)));
        let tried = platform.large_pages.as_ref().expect("it was tried");
        assert!(!tried.worked);
        let by = "measured by probe on 1970-01-01, measured";
        assert_eq!(tried.source.to_string(), by);
        // Longer than the device states: no news.
        device.max_mr_size = Limit::exact(48, Source::new(Kind::Documented, "test"));
        found.apply(&mut device, &mut platform);
        assert_eq!(device.max_mr_size.known(), Some(48));
        // What is refused now and worked then is as it is now, and the other way round.
        let new = Seen {
            longest: Some(70),
            ..Seen::default()
        };
        assert!(found.learn(&new, Confidence::Probed, 2).is_ok());
        assert_eq!((found.seen.longest, found.seen.refused), (Some(70), None));
    }

    /// A weak finding does not widen what is known.
    #[test]
    fn a_record_narrows_what_a_device_says_of_itself() {
        let with = |low, high, found| {
            let mut device = Device::unlimited("d", Family::Erdma);
            device.entries = Limit::interval(low, high, Source::new(Kind::Assumed, "profile"));
            record(found).apply(&mut device, &mut Platform::default());
            let limit = device.entries;
            (limit.certain(), limit.at_most(), limit.source.to_string())
        };
        let profile = "profile, assumed".to_owned();
        let probed = "probed on 1970-01-01, measured".to_owned();
        let joined = "probed on 1970-01-01; profile, assumed".to_owned();
        assert_eq!(with(7, Some(7), (5, None)), (7, Some(7), profile));
        assert_eq!(with(0, None, (5, None)), (5, None, probed.clone()));
        assert_eq!(with(0, Some(9), (5, None)), (5, Some(9), joined));
        assert_eq!(with(3, Some(9), (5, Some(6))), (5, Some(6), probed.clone()));
        assert_eq!(
            with(7, Some(7), (8, None)),
            (8, None, probed),
            "contradicted"
        );
    }

    proptest! {
        /// Whatever true observations come, in whatever order, the truth stays inside.
        #[test]
        fn the_truth_stays_inside(truth in 1u64..1 << 40, tries in prop::collection::vec(1u64..1 << 40, 0..30)) {
            let mut known = record(UNKNOWN);
            for n in tries {
                let new = if n <= truth { (n, None) } else { (0, Some(n - 1)) };
                prop_assert!(known.learn(&seen(new), Confidence::Seen, 1).is_ok());
                let (low, high) = known.seen.entries;
                prop_assert!(low <= truth && high.is_none_or(|high| high >= truth));
            }
        }
    }
}
