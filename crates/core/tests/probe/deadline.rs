//! The deadline, which the release keeps too.

use crate::*;

/// A table that is never full, with deregistrations that take a tenth of the registrations, as long, three times and ten times
/// as long: the release ends by the deadline, and not long before it.
#[test]
fn everything_is_released_by_the_deadline() {
    let deadline = Duration::from_secs(60);
    for percent in [0, 10, 100, 300, 1000] {
        for count in [None, Some(1 << 20)] {
            let table = Table {
                takes: (Duration::from_millis(1), Duration::from_micros(1), percent),
                ..Table::new(Family::Erdma, u64::MAX / 4)
            };
            let (found, ended) = until(table, 1 << 16, deadline, count);
            assert_eq!(found.end, End::Stopped(Stop::Deadline), "{percent} %");
            assert_eq!(found.max_mr_end, count.map(|_| found.end));
            assert!(ended <= deadline, "{percent} %: {ended:?}");
            assert!(ended > deadline * 9 / 10, "{percent} %: {ended:?}");
        }
    }
}

/// Releases that get slower with the number of MRs that are held: the later ones tell more of what is to come.
#[test]
fn a_release_that_gets_slower_ends_by_the_deadline_too() {
    let deadline = Duration::from_secs(60);
    for (crowd, percent) in [(1, 1), (10, 10), (100, 10), (100, 100), (1000, 100)] {
        for pages in [1, 64, 1 << 16] {
            let table = Table {
                takes: (Duration::from_millis(1), Duration::from_micros(1), percent),
                crowd,
                ..Table::new(Family::Erdma, u64::MAX / 4)
            };
            let (_, ended) = until(table, pages, deadline, None);
            assert!(
                ended <= deadline * 11 / 10,
                "{crowd} {percent} {pages}: {ended:?}"
            );
            assert!(ended > deadline / 3, "{crowd} {percent} {pages}: {ended:?}");
        }
    }
}

/// MRs of one page tell how long a call takes, and nothing of what entries take.
#[test]
fn a_short_mr_does_not_make_a_long_one_too_slow_to_be_tried() {
    for pages in [1, 2] {
        let mut table = Table {
            takes: (Duration::from_micros(50), Duration::ZERO, 100),
            mrs: 4000,
            ..Table::new(Family::Erdma, 33_554_431)
        };
        let stated = Source::new(Kind::Documented, "test");
        table.device.max_mr_size = Limit::exact(64 * GIB, stated);
        let table = Arc::new(table);
        let clock = || table.now();
        let options = Options {
            deadline: Some(Duration::from_secs(60)),
            clock: &clock,
            ..Options::default()
        };
        let memory = large(65 * GIB);
        let found = probe(&table, &small(pages), Some(&memory), &options);
        assert_eq!(found.longest.map(|longest| longest.len), Some(64 * GIB));
        assert_eq!(found.stopped, None);
    }
}

/// A device that is quick pays nothing for a deadline that is far away.
#[test]
fn a_deadline_that_is_far_away_costs_no_registration() {
    let tried = |deadline: u64| {
        let table = Table {
            takes: (Duration::from_millis(1), Duration::ZERO, 100),
            ..Table::new(Family::Erdma, 33_554_431)
        };
        let (found, _) = until(table, 1 << 18, Duration::from_secs(deadline), None);
        assert_eq!(found.exact(), Some(33_554_431));
        found.tried
    };
    assert_eq!(tried(60), tried(3600));
    assert!(tried(60) <= bound(33_554_431, 1 << 18));
}
