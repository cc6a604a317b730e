//! Any table, any faults, any time.

use proptest::prelude::*;

use crate::*;

fn family() -> impl Strategy<Value = Family> {
    prop::sample::select(vec![
        Family::Erdma,
        Family::Ionic,
        Family::Efa,
        Family::Mlx4,
    ])
}

proptest! {
    #[test]
    fn budgets_are_exact_and_few_registrations_are_needed(
        family in family(),
        budget in 128u64..1 << 28,
        others in 0.0f64..0.95,
        shift in 8u32..25,
        extra in 0u64..1000,
        limited: bool,
    ) {
        let pages = (1u64 << shift) + extra;
        prop_assume!(budget / pages < 500);
        let mut table = Table::new(family, budget);
        *table.others.lock().unwrap() = (budget as f64 * others) as u64;
        let per_mr = limited.then_some(pages / 2 + 7);
        table.per_mr = per_mr.unwrap_or(u64::MAX);
        let (_, found) = ask(table, pages, per_mr);
        prop_assert_eq!((found.end, found.exact()), (End::Full, Some(budget)));
        let largest = per_mr.unwrap_or(pages).min(pages);
        prop_assert!(found.tried <= bound(budget, largest), "{} > {}", found.tried, bound(budget, largest));
    }

    #[test]
    fn a_limit_of_one_mr_that_nobody_told_costs_a_bisection_more(
        family in family(), budget in 4096u64..1 << 26, per_mr in 64u64..1 << 20,
    ) {
        prop_assume!(budget / per_mr < 500 && per_mr < budget);
        let table = Table { per_mr, ..Table::new(family, budget) };
        let (_, found) = ask(table, 1 << 21, None);
        prop_assert_eq!((found.end, found.exact()), (End::Full, Some(budget)));
        prop_assert!(found.per_mr.0 <= per_mr && found.per_mr.1.is_none_or(|refused| refused > per_mr));
        let more = (per_mr as f64).log2() as u64 + 20;
        prop_assert!(found.tried <= bound(budget, per_mr) + more, "{}", found.tried);
    }

    /// Whatever the calls take, and whatever is found before: the end is not later than one MR after the deadline.
    #[test]
    fn no_release_is_later_than_the_deadline(
        family in family(),
        budget in prop_oneof![128u64..1 << 28, Just(u64::MAX / 4)],
        shift in 8u32..17,
        call in 5u64..50,
        entry in 0u64..1000,
        percent in 0u32..2000,
        seconds in 5u64..40,
        count in prop::option::of(1u64..10_000),
    ) {
        let pages = 1u64 << shift;
        let table = Table {
            takes: (Duration::from_millis(call), Duration::from_nanos(entry), percent),
            ..Table::new(family, budget)
        };
        let one = table.time(pages) * (100 + percent) / 100;
        let deadline = Duration::from_secs(seconds);
        let (found, ended) = until(table, pages, deadline, count);
        prop_assert!(ended <= deadline + 2 * one, "{:?} + {:?}: {:?}", ended, one, found);
        prop_assert!(found.entries.0 <= budget && found.entries.1.is_none_or(|high| high >= budget));
    }

    /// One stretch of failures, of any kind, and others that come and go: the true size stays inside.
    #[test]
    fn the_interval_is_right_whatever_happens(
        family in family(),
        // A stretch of failures can leave MRs of one entry: then there are as many as the budget.
        budget in 128u64..1 << 18,
        shift in 8u32..15,
        first in 1u64..60,
        length in 0u64..40,
        errno in prop::sample::select(vec![
            Errno::EIO, Errno::ENOMEM, Errno::EINVAL, Errno::EINTR, Errno::EAGAIN, Errno::ENOSPC, Errno::ETIME,
        ]),
        allocations in prop::collection::vec((1u64..100, 0u64..1 << 17), 0..6),
        told: bool,
    ) {
        let pages = 1u64 << shift;
        prop_assume!(budget / pages < 200);
        let faults = if length == 0 { vec![] } else { vec![(first, first + length - 1, errno)] };
        let table = Arc::new(Table { faults, allocations, ..Table::new(family, budget) });
        let others = || if told { table.others() } else { Used::UNKNOWN };
        let options = Options { others: &others, ..Options::default() };
        let found = probe(&table, &small(pages), NO_LARGE, &options);
        prop_assert_eq!((table.live(), found.left), (0, 0));
        prop_assert!(found.entries.0 <= budget, "{:?}", found);
        prop_assert!(found.entries.1.is_none_or(|high| high >= budget), "{:?}", found);
        prop_assert!(told || found.entries.1.is_none());
    }
}
