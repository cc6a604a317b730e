//! Whether there is time for one more MR: it is to be registered, and everything that is held to be released, before the
//! deadline.
//!
//! How long a release takes is told by the device alone, and only when something is released. So now and then, each
//! time the time that has passed has doubled, a share of what is held is released and measured; before the first of them
//! a release counts as long as the registration. What ends well before its deadline pays nothing for it.

use std::time::Duration;

/// The first measurement, as a share of the deadline.
const FIRST: u32 = 32;

/// An MR of fewer entries takes the time of a call, whatever its entries take.
const TELLING: u64 = 256;
/// Seconds that an entry counts as long as no MR has told: several times what pinning a page takes.
const ENTRY: f64 = 1e-6;
/// More than the releases so far tell: the load of a host changes.
const RESERVE: f64 = 1.0 + 1.0 / 16.0;

/// Times, as the caller's clock tells them.
pub(super) struct Pace<'a> {
    clock: &'a dyn Fn() -> Duration,
    deadline: Option<Duration>,
    /// The quickest registration: what each costs, however short.
    least: Option<Duration>,
    /// Entries of the largest MR that was registered, and how long that took.
    largest: (u64, Duration),
    /// MRs that were released: how long they took to be registered, and to be released.
    released: (Duration, Duration),
    /// The same since the last measurement began: a release can get slower with the number of MRs that are held.
    lately: (Duration, Duration),
    /// When to measure a release.
    next: Duration,
}

impl<'a> Pace<'a> {
    pub(super) fn new(clock: &'a dyn Fn() -> Duration, deadline: Option<Duration>) -> Self {
        Self {
            clock,
            deadline,
            least: None,
            largest: (0, Duration::ZERO),
            released: (Duration::ZERO, Duration::ZERO),
            lately: (Duration::ZERO, Duration::ZERO),
            next: deadline.unwrap_or(Duration::MAX) / FIRST,
        }
    }

    pub(super) fn now(&self) -> Duration {
        (self.clock)()
    }

    /// Whether an MR of at most `entries` can be registered and released in time, with those that took `held` to register.
    pub(super) fn has_time(&self, entries: u64, held: Duration) -> bool {
        let Some(deadline) = self.deadline else {
            return true;
        };
        let one = self.registering(entries);
        let releasing = RESERVE * self.ratio() * (held.as_secs_f64() + one);
        self.now().as_secs_f64() + one + releasing < deadline.as_secs_f64()
    }

    /// Seconds that the registration of so many entries takes: in proportion to the largest so far, where that is large
    /// enough to tell of entries.
    fn registering(&self, entries: u64) -> f64 {
        let (most, took) = self.largest;
        if most > 0 && most < TELLING && entries >= TELLING {
            return took.as_secs_f64() + entries as f64 * ENTRY;
        }
        let share = entries as f64 / most.max(1) as f64;
        let least = self.least.unwrap_or_default().as_secs_f64();
        (share * took.as_secs_f64()).max(least)
    }

    /// How long a release takes against the registration.
    fn ratio(&self) -> f64 {
        let ratio = |(registering, releasing): (Duration, Duration)| {
            (!registering.is_zero()).then(|| releasing.as_secs_f64() / registering.as_secs_f64())
        };
        let ratios = [ratio(self.released), ratio(self.lately)];
        ratios.into_iter().flatten().reduce(f64::max).unwrap_or(1.0)
    }

    /// An MR of at most `entries` was registered.
    pub(super) fn registered(&mut self, entries: u64, took: Duration) {
        self.least = Some(self.least.map_or(took, |least| least.min(took)));
        if entries >= self.largest.0 {
            self.largest = (entries, took);
        }
    }

    /// An MR was released that took `registering` to register.
    pub(super) fn released(&mut self, registering: Duration, releasing: Duration) {
        for sum in [&mut self.released, &mut self.lately] {
            *sum = (
                sum.0.saturating_add(registering),
                sum.1.saturating_add(releasing),
            );
        }
    }

    /// How long what is to be released now, for a measurement, took to be registered; `None`: no measurement is due.
    pub(super) fn due(&mut self, held: Duration) -> Option<Duration> {
        // A sixteenth: little to register anew, and much against one release that was disturbed.
        const SHARE: u32 = 16;
        let now = self.now();
        if self.deadline.is_none() || now < self.next {
            return None;
        }
        // Later than now, whatever the clock says.
        self.next = now.saturating_mul(2).max(Duration::from_nanos(1));
        self.lately = (Duration::ZERO, Duration::ZERO);
        Some(held / SHARE)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn time_for_one_more_is_time_for_its_release_and_that_of_the_rest() {
        let now = Cell::new(Duration::ZERO);
        let clock = || now.get();
        let mut pace = Pace::new(&clock, Some(s(100)));
        assert!(pace.has_time(1 << 40, Duration::ZERO), "nothing is known");
        pace.registered(1000, s(2));
        now.set(s(40));
        // 40 s, 2 s for a thousand more, and as long for the release of all, with a reserve.
        assert!(pace.has_time(1000, s(40)));
        assert!(pace.has_time(8000, s(25)));
        assert!(!pace.has_time(8000, s(26)));
        assert!(pace.has_time(100, s(52)), "less is quicker");
        pace.registered(100, s(1));
        assert!(
            !pace.has_time(100, s(55)),
            "but none is quicker than the quickest"
        );
        pace.released(s(10), s(30));
        assert!(pace.has_time(1000, s(16)));
        assert!(
            !pace.has_time(1000, s(17)),
            "a release takes three times as long"
        );
        assert_eq!(pace.due(s(16)), Some(s(1)));
        pace.released(s(10), s(60));
        assert!(pace.has_time(1000, s(7)));
        assert!(!pace.has_time(1000, s(8)), "lately six times as long");
        assert!(Pace::new(&clock, None).has_time(u64::MAX, Duration::MAX));
    }

    #[test]
    fn a_release_is_measured_when_the_time_that_passed_has_doubled() {
        let now = Cell::new(Duration::ZERO);
        let clock = || now.get();
        let mut pace = Pace::new(&clock, Some(s(320)));
        let mut due = Vec::new();
        for second in 0..320 {
            now.set(s(second));
            if let Some(share) = pace.due(s(16)) {
                assert_eq!(share, s(1));
                due.push(second);
            }
        }
        assert_eq!(due, [10, 20, 40, 80, 160]);
        assert_eq!(Pace::new(&clock, None).due(s(1)), None);
    }
}
