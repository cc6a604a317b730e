//! Failures and delays on demand.

use std::time::Duration;

use hugemr_core::backend::Verb;
use hugemr_core::errno::Errno;

/// Failures and delays of a simulated device. Calls are counted per verb from 1 since the device was opened, refused
/// ones included.
///
/// A registration that fails with ETIME stands for a command queue that has died: every later call fails with ENODEV,
/// as in `erdma_post_cmd_wait` (Linux `drivers/infiniband/hw/erdma/erdma_cmdq.c`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    rules: Vec<Rule>,
    reg: Duration,
    reg_per_gib: Duration,
    dereg: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    verb: Verb,
    first: u64,
    last: u64,
    errno: Errno,
}

impl Faults {
    /// Each registration takes this long.
    #[must_use]
    pub fn reg_delay(self, reg: Duration) -> Self {
        Self { reg, ..self }
    }

    /// A registration takes this long in addition for each GiB of its length.
    #[must_use]
    pub fn reg_delay_per_gib(self, reg_per_gib: Duration) -> Self {
        Self {
            reg_per_gib,
            ..self
        }
    }

    /// Each deregistration takes this long.
    #[must_use]
    pub fn dereg_delay(self, dereg: Duration) -> Self {
        Self { dereg, ..self }
    }

    /// Lets the `n`-th call (from 1) of `verb` fail.
    #[must_use]
    pub fn fail(self, verb: Verb, n: u64, errno: Errno) -> Self {
        self.fail_calls(verb, n, n, errno)
    }

    /// Lets the `n`-th call (from 1) of `verb` and all later ones fail.
    #[must_use]
    pub fn fail_from(self, verb: Verb, n: u64, errno: Errno) -> Self {
        self.fail_calls(verb, n, u64::MAX, errno)
    }

    /// Lets the calls `first` to `last` (from 1) of `verb` fail. Where rules overlap the one said first counts.
    #[must_use]
    pub fn fail_calls(mut self, verb: Verb, first: u64, last: u64, errno: Errno) -> Self {
        self.rules.push(Rule {
            verb,
            first,
            last,
            errno,
        });
        self
    }

    /// What the `n`-th call of `verb` fails with.
    pub(crate) fn at(&self, verb: Verb, n: u64) -> Option<Errno> {
        self.rules
            .iter()
            .find(|rule| rule.verb == verb && (rule.first..=rule.last).contains(&n))
            .map(|rule| rule.errno)
    }

    /// How long a registration of `len` bytes takes.
    pub(crate) fn reg_time(&self, len: u64) -> Duration {
        let per_gib = (self.reg_per_gib.as_nanos()).saturating_mul(u128::from(len)) >> 30;
        let nanos = u64::try_from(per_gib).unwrap_or(u64::MAX);
        self.reg.saturating_add(Duration::from_nanos(nanos))
    }

    /// How long a deregistration takes.
    pub(crate) fn dereg_time(&self) -> Duration {
        self.dereg
    }
}

/// Sleeps; no lock is held meanwhile, so that delays of several threads overlap.
pub(crate) fn delay(time: Duration) {
    if !time.is_zero() {
        std::thread::sleep(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_matches_counts() {
        let faults = Faults::default()
            .fail(Verb::RegMr, 2, Errno::EIO)
            .fail_from(Verb::RegMr, 2, Errno::ENOMEM)
            .fail_calls(Verb::DeregMr, 1, 2, Errno::EBUSY);
        let reg = [1, 2, 3, 1 << 40].map(|n| faults.at(Verb::RegMr, n));
        assert_eq!(
            reg,
            [
                None,
                Some(Errno::EIO),
                Some(Errno::ENOMEM),
                Some(Errno::ENOMEM)
            ]
        );
        let dereg = [1, 2, 3].map(|n| faults.at(Verb::DeregMr, n));
        assert_eq!(dereg, [Some(Errno::EBUSY), Some(Errno::EBUSY), None]);
    }

    #[test]
    fn long_registrations_take_longer() {
        let faults = Faults::default()
            .reg_delay(Duration::from_micros(10))
            .reg_delay_per_gib(Duration::from_micros(8));
        assert_eq!(faults.reg_time(1 << 29), Duration::from_micros(14));
        let longest = faults.reg_delay_per_gib(Duration::MAX).reg_time(u64::MAX);
        assert!(longest > Duration::from_secs(1 << 30));
    }
}
