//! How much fits, and what ends the search.

use std::cell::{Cell, RefCell};

use crate::*;

#[test]
fn a_budget_is_found_to_the_entry() {
    let (_, found) = ask(Table::new(Family::Erdma, 33_554_431), 262_144, None);
    assert_eq!((found.end, found.exact()), (End::Full, Some(33_554_431)));
    assert!(found.tried <= bound(33_554_431, 262_144), "{}", found.tried);
    assert_eq!(found.per_mr, (262_144, None));
}

#[test]
fn a_limit_of_one_mr_is_found_too() {
    for family in [Family::Ionic, Family::Efa] {
        for told in [Some(524_288), None] {
            let table = Table {
                per_mr: 524_288,
                ..Table::new(family, 1 << 20)
            };
            let (_, found) = ask(table, 1 << 24, told);
            assert_eq!(found.exact(), Some(1 << 20), "{family:?} {told:?}");
            assert_eq!(
                found.per_mr,
                (524_288, Some(524_289)),
                "{family:?} {told:?}"
            );
        }
    }
}

#[test]
fn a_stop_a_bound_and_the_end_of_mrs_give_a_lower_end_only() {
    let table = Arc::new(Table::new(Family::Erdma, 1 << 24));
    let calls = Cell::new(0);
    let cancelled = || {
        calls.set(calls.get() + 1);
        calls.get() > 12
    };
    let options = Options {
        cancelled: &cancelled,
        ..Options::default()
    };
    let found = probe(&table, &small(1 << 16), NO_LARGE, &options);
    assert_eq!(found.end, End::Stopped(Stop::Cancelled));
    assert_eq!(found.stopped, Some(Stop::Cancelled));
    assert_eq!((found.entries.1, table.live()), (None, 0));
    assert!(found.entries.0 > 1 << 16);

    let options = Options {
        up_to: Some(1_000_000),
        ..Options::default()
    };
    let found = probe(&table, &small(1 << 16), NO_LARGE, &options);
    assert_eq!((found.end, found.entries), (End::UpTo, (1_000_000, None)));
    assert_eq!(found.held, 1_000_000);

    let few = Table {
        mrs: 20,
        ..Table::new(Family::Erdma, 1 << 24)
    };
    let (_, found) = ask(few, 1 << 16, None);
    assert_eq!((found.end, found.entries.1), (End::MrCount(20), None));
    assert_eq!(found.entries.0, 20 << 16, "all of them as long as can be");
}

/// Where there are few MRs, none is spent on a short one in the end.
#[test]
fn few_mrs_are_filled_anew_with_longer_ones() {
    let budget = 33_554_431;
    for mrs in [3, 4, 12, 17, 18, 19, 40] {
        let few = Table {
            mrs,
            ..Table::new(Family::Erdma, budget)
        };
        let (_, found) = ask(few, 1 << 24, None);
        assert_eq!(
            (found.end, found.exact()),
            (End::Full, Some(budget)),
            "{mrs}"
        );
        assert!(
            found.tried <= 2 * bound(budget, 1 << 24) + 50,
            "{mrs}: {}",
            found.tried
        );
    }
    let one = Table {
        mrs: 1,
        ..Table::new(Family::Erdma, budget)
    };
    let (_, found) = ask(one, 1 << 24, None);
    assert_eq!(
        (found.end, found.entries),
        (End::MrCount(1), (1 << 24, None))
    );
    // A refusal in passing that only looks like the end of MRs.
    let faults = vec![(5, 5, Errno::ENOSPC)];
    let passing = Table {
        faults,
        ..Table::new(Family::Erdma, budget)
    };
    let (_, found) = ask(passing, 1 << 24, None);
    assert_eq!(found.exact(), Some(budget));
}

/// Where the refusals of a full table and of one MR too many look alike, the device's own number of MRs tells them apart:
/// what is refused at that number is not taken for a full table.
#[test]
fn few_mrs_are_no_full_table_where_refusals_look_alike() {
    for family in [Family::Efa, Family::Mlx4] {
        for mrs in [1, 2, 3, 8, 20] {
            let mut few = Table {
                mrs,
                ..Table::new(family, 1 << 23)
            };
            few.device.max_mr = Limit::exact(mrs, Source::new(Kind::Documented, "test"));
            let (_, found) = ask(few, 1 << 24, None);
            assert_eq!(found.disturbances, 0, "{family:?} {mrs}");
            match mrs {
                1 => assert_eq!(
                    (found.end, found.entries),
                    (End::MrCount(1), (1 << 23, None)),
                    "{family:?}"
                ),
                _ => assert_eq!(
                    (found.end, found.exact()),
                    (End::Full, Some(1 << 23)),
                    "{family:?} {mrs}"
                ),
            }
        }
    }
}

#[test]
fn mrs_are_counted_where_asked() {
    let table = Arc::new(Table {
        mrs: 777,
        ..Table::new(Family::Erdma, 1 << 20)
    });
    let options = Options {
        count: Some(5000),
        ..Options::default()
    };
    let found = probe(&table, &small(1 << 16), NO_LARGE, &options);
    assert_eq!(
        (found.exact(), found.max_mr),
        (Some(1 << 20), Some((777, Some(777))))
    );
    assert_eq!(found.max_mr_end, Some(End::MrCount(777)));
    let counted = |table: &Arc<Table>, count, up_to| {
        let options = Options {
            count: Some(count),
            up_to,
            ..Options::default()
        };
        let found = probe(table, &small(1 << 16), NO_LARGE, &options);
        (found.max_mr.unwrap(), found.max_mr_end.unwrap())
    };
    assert_eq!(counted(&table, 700, None), ((700, None), End::Counted));
    assert_eq!(counted(&table, 5000, Some(600)), ((600, None), End::UpTo));
    // A table of fewer entries than MRs: not a limit of MRs.
    let tiny = Arc::new(Table {
        mrs: 777,
        ..Table::new(Family::Erdma, 500)
    });
    assert_eq!(counted(&tiny, 5000, None), ((500, None), End::Full));
}

#[test]
fn where_nothing_fits_nothing_is_claimed() {
    let table = Table::new(Family::Erdma, 5000);
    *table.others.lock().unwrap() = 5000;
    let (_, found) = ask(table, 1024, None);
    assert_eq!(
        (found.end, found.entries),
        (End::Nothing(Errno::EIO), (0, None))
    );
    let broken = Table {
        faults: vec![(1, u64::MAX, Errno::EPERM)],
        ..Table::new(Family::Erdma, 5000)
    };
    let (_, found) = ask(broken, 1024, None);
    assert_eq!(
        (found.end, found.entries),
        (End::Failed(Errno::EPERM), (0, None))
    );
}

#[test]
fn progress_is_told() {
    let seen = RefCell::new(Vec::new());
    let progress = |p: Progress| seen.borrow_mut().push(p);
    let options = Options {
        progress: &progress,
        ..Options::default()
    };
    let table = Arc::new(Table::new(Family::Erdma, 10_000));
    let found = probe(&table, &small(4096), NO_LARGE, &options);
    assert_eq!(seen.borrow().len() as u64, found.tried);
    assert!(seen.borrow().iter().all(|p| p.held <= 10_000));
}
