//! The account of page-table entries: what is lent, to whom, and how much is left.

use std::collections::BTreeMap;

use crate::cmd::{MrKey, RegMr, Syndrome};

/// A region that stands.
#[derive(Clone, Debug)]
pub struct Live {
    /// The command that made it.
    pub request: RegMr,
    /// Entries it holds.
    pub entries: u64,
}

/// Entries lent and left.
#[derive(Clone, Debug)]
pub struct Ledger {
    budget: u64,
    max_mr: u32,
    used: u64,
    peak: u64,
    live: BTreeMap<u32, Live>,
}

impl Ledger {
    /// An empty account.
    #[must_use]
    pub const fn new(budget: u64, max_mr: u32) -> Self {
        Self {
            budget,
            max_mr,
            used: 0,
            peak: 0,
            live: BTreeMap::new(),
        }
    }

    /// Entries that may be lent in all.
    #[must_use]
    pub const fn budget(&self) -> u64 {
        self.budget
    }

    /// Entries lent now.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.used
    }

    /// Most entries ever lent at once.
    #[must_use]
    pub const fn peak(&self) -> u64 {
        self.peak
    }

    /// Regions that stand, by index.
    #[must_use]
    pub const fn live(&self) -> &BTreeMap<u32, Live> {
        &self.live
    }

    /// Another budget. What is lent stays lent, even above it.
    pub const fn set_budget(&mut self, budget: u64) {
        self.budget = budget;
    }

    /// Whether `entries` could be lent to a region with this key.
    ///
    /// # Errors
    /// With what stands against it.
    pub fn check(&self, key: MrKey, entries: u64) -> Result<(), Syndrome> {
        if self.live.contains_key(&key.index) {
            return Err(Syndrome::IndexInUse);
        }
        // Indices are 0 to max_mr - 1, so this bounds the number of regions too.
        if key.index >= self.max_mr {
            return Err(Syndrome::TooManyMrs);
        }
        match self.used.checked_add(entries) {
            Some(sum) if sum <= self.budget => Ok(()),
            // A region without a table needs none of a budget that was cut below what is lent.
            _ if entries == 0 => Ok(()),
            _ => Err(Syndrome::OverBudget),
        }
    }

    /// Lends `entries` to the region of `request`.
    ///
    /// # Errors
    /// As [`check`](Self::check); nothing has changed then.
    pub fn lend(&mut self, request: RegMr, entries: u64) -> Result<(), Syndrome> {
        self.check(request.key, entries)?;
        self.used += entries;
        self.peak = self.peak.max(self.used);
        self.live
            .insert(request.key.index, Live { request, entries });
        Ok(())
    }

    /// Takes back what the region holds.
    ///
    /// # Errors
    /// When no region has this key.
    pub fn give_back(&mut self, key: MrKey) -> Result<Live, Syndrome> {
        match self.live.get(&key.index) {
            Some(live) if live.request.key == key => {}
            _ => return Err(Syndrome::UnknownKey),
        }
        let live = self.live.remove(&key.index).ok_or(Syndrome::UnknownKey)?;
        self.used -= live.entries;
        Ok(live)
    }

    /// Takes everything back; returns the regions and entries that were lent.
    pub fn clear(&mut self) -> (usize, u64) {
        let lent = (self.live.len(), self.used);
        self.live.clear();
        self.used = 0;
        lent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::{Command, decode};
    use proptest::prelude::*;

    fn request(index: u32, tag: u8) -> RegMr {
        let mut sqe = [0u8; 64];
        sqe[2] = 8;
        match decode(&sqe).expect("decode").1 {
            Command::RegMr(mr) => RegMr {
                key: MrKey { index, tag },
                ..mr
            },
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn to_the_exact_entry() {
        let mut l = Ledger::new(10, 8);
        assert_eq!(l.lend(request(1, 0), 10), Ok(()));
        assert_eq!(l.lend(request(2, 0), 1), Err(Syndrome::OverBudget));
        assert_eq!(l.lend(request(1, 0), 0), Err(Syndrome::IndexInUse));
        assert_eq!(l.lend(request(8, 0), 0), Err(Syndrome::TooManyMrs));
        assert_eq!(
            l.give_back(MrKey { index: 1, tag: 1 }).err(),
            Some(Syndrome::UnknownKey)
        );
        assert_eq!(
            l.give_back(MrKey { index: 1, tag: 0 })
                .expect("live")
                .entries,
            10
        );
        assert_eq!(l.lend(request(2, 0), 11), Err(Syndrome::OverBudget));
        assert_eq!(l.lend(request(2, 0), u64::MAX), Err(Syndrome::OverBudget));
        assert_eq!((l.used(), l.peak()), (0, 10));
    }

    #[derive(Clone, Debug)]
    enum Op {
        Lend(u32, u64),
        Back(u32, u8),
        Clear,
        Budget(u64),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            8 => (0u32..40, prop_oneof![0u64..300, Just(u64::MAX)]).prop_map(|(i, n)| Op::Lend(i, n)),
            4 => (0u32..40, 0u8..2).prop_map(|(i, t)| Op::Back(i, t)),
            1 => Just(Op::Clear),
            1 => (0u64..2000).prop_map(Op::Budget),
        ]
    }

    proptest! {
        #[test]
        fn used_is_the_sum_and_never_grows_above_the_budget(ops in prop::collection::vec(op(), 0..200)) {
            let mut l = Ledger::new(1000, 32);
            let mut highest = 0;
            for op in ops {
                let before = l.used();
                match op {
                    Op::Lend(i, n) => {
                        let fits = before.checked_add(n).is_some_and(|s| s <= l.budget());
                        let free = i < 32 && !l.live().contains_key(&i);
                        let done = l.lend(request(i, 0), n).is_ok();
                        prop_assert_eq!(done, free && (fits || n == 0));
                        prop_assert!(l.used() == before || l.used() <= l.budget());
                    }
                    Op::Back(i, tag) => {
                        let there = tag == 0 && l.live().contains_key(&i);
                        prop_assert_eq!(l.give_back(MrKey { index: i, tag }).is_ok(), there);
                    }
                    Op::Clear => prop_assert_eq!(l.clear().1, before),
                    Op::Budget(n) => l.set_budget(n),
                }
                highest = highest.max(l.used());
                prop_assert_eq!(l.used(), l.live().values().map(|m| m.entries).sum::<u64>());
                prop_assert_eq!(l.peak(), highest);
                prop_assert!(l.live().len() <= 32);
            }
        }
    }
}
