//! Large pages, and the longest MR.

use std::sync::Mutex;

use crate::*;

/// What could not be freed is on the table: nothing is said of large pages then, nor of a bound that is too low for them.
#[test]
fn large_pages_need_room_that_is_proved() {
    for busy in [1, 3, 7] {
        for up_to in [None, Some(40_111)] {
            let table = Arc::new(Table {
                busy: Mutex::new(busy),
                ..Table::new(Family::Erdma, 40_000)
            });
            let options = Options {
                up_to,
                ..Options::default()
            };
            let found = probe(&table, &small(4096), Some(&large(GIB)), &options);
            assert_eq!((found.large_pages, found.left), (None, busy));
            assert_eq!(found.large_pages_over, None, "{busy} {up_to:?}");
        }
    }
    // A refusal in passing, at whichever call: never a wrong word.
    for call in 1..60 {
        for errno in [Errno::EIO, Errno::EINVAL, Errno::ENOMEM] {
            let table = Arc::new(Table {
                faults: vec![(call, call, errno)],
                ..Table::new(Family::Erdma, 40_000)
            });
            let found = probe(&table, &small(4096), Some(&large(GIB)), &Options::default());
            let used = found.large_pages.map(|large| large.used);
            assert_ne!(used, Some(false), "{call}: {errno}");
        }
    }
}

#[test]
fn large_pages_are_proved_by_room_alone() {
    for used in [true, false] {
        let mut table = Table {
            large: used,
            ..Table::new(Family::Erdma, 100_000)
        };
        table.device.max_mr_size = Limit::exact(4 * GIB, Source::new(Kind::Documented, "test"));
        let table = Arc::new(table);
        let found = probe(
            &table,
            &small(4096),
            Some(&large(8 * GIB)),
            &Options::default(),
        );
        assert_eq!(found.exact(), Some(100_000));
        assert_eq!(found.large_pages.map(|large| large.used), Some(used));
        let longest = found.longest.expect("there was memory");
        assert_eq!(longest.len, 4 * GIB);
        assert_eq!(
            longest.refused.is_some(),
            !used,
            "4 GiB are 1,048,576 entries of 4 KiB"
        );
        assert_eq!(table.live(), 0);
    }
}

#[test]
fn a_stated_length_that_is_refused_gives_way_to_what_works() {
    let stated = |longest, pages| {
        let mut table = Table {
            longest,
            ..Table::new(Family::Erdma, 33_554_431)
        };
        let source = Source::new(Kind::Documented, "test");
        table.device.max_mr_size = Limit::exact(64 * GIB, source);
        let memory = large(65 * GIB);
        let found = probe(
            &Arc::new(table),
            &small(pages),
            Some(&memory),
            &Options::default(),
        );
        found.longest.expect("there was memory")
    };
    let page = PageSize::M2.bytes();
    let longest = stated(32 * GIB, 1 << 24);
    assert_eq!(longest.refused, Some(Errno::EINVAL));
    assert_eq!(longest.within, Some((32 * GIB, 32 * GIB + 4096)));
    // Short MRs fill the table: then those on large pages tell.
    let longest = stated(32 * GIB, 1 << 18);
    assert_eq!(longest.within, Some((32 * GIB, 32 * GIB + page)));
    assert_eq!(stated(64 * GIB, 1 << 24).within, None);
}

/// Whatever is looked for, and whatever is stuck: no more entries than allowed are held at any time.
#[test]
fn a_bound_is_kept_by_every_registration() {
    for up_to in [
        1,
        2,
        511,
        600,
        9_999,
        99_999,
        100_000,
        100_512,
        101_000,
        1 << 20,
        1 << 21,
    ] {
        for (used, stuck, count) in [
            (true, None, None),
            (false, None, Some(700)),
            (true, Some(Errno::EIO), Some(700)),
        ] {
            let mut table = Table {
                large: used,
                stuck,
                ..Table::new(Family::Erdma, 100_000)
            };
            table.device.max_mr_size = Limit::exact(4 * GIB, Source::new(Kind::Documented, "test"));
            let table = Arc::new(table);
            let options = Options {
                up_to: Some(up_to),
                count,
                ..Options::default()
            };
            let found = probe(&table, &small(4096), Some(&large(8 * GIB)), &options);
            let most = *table.most.lock().unwrap();
            assert!(most <= up_to, "{most} > {up_to}: {found:?}");
            assert_eq!(found.left_errno, stuck);
            if stuck.is_some() {
                continue;
            }
            assert_eq!(found.longest.is_none(), found.longest_over.is_some());
            if up_to < 4096 {
                assert_eq!(found.longest_over, Some(1 << 20));
            }
            if up_to >= 100_512 {
                assert_eq!(
                    found.large_pages.map(|large| large.used),
                    Some(used),
                    "{up_to}"
                );
            }
        }
    }
}
