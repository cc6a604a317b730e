//! The probe on a table of a few lines: it shares no code with the simulator, whose own devices are probed in its tests.
#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test"
)]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hugemr_core::backend::{
    Lkey, MrHandle, MrRequest, NoMemory, RegBackend, RegisteredMr, Rkey, Verb, VerbError,
};
use hugemr_core::device::{Device, Family, Used};
use hugemr_core::errno::Errno;
use hugemr_core::fact::{Kind, Limit, Source};
use hugemr_core::probe::{End, Found, Options, Progress, Stop, probe};
use hugemr_core::size::{GIB, PageSize};
use proptest::prelude::*;

const BASE: u64 = 1 << 44;

/// A table, and nothing else: entries by 4 KiB, or by the page behind [`LARGE`].
#[derive(Debug)]
struct Table {
    device: Device,
    budget: u64,
    per_mr: u64,
    mrs: u64,
    /// Whether large pages count as one entry.
    large: bool,
    others: Mutex<u64>,
    /// Calls (from 1) that fail, first to last, with an errno.
    faults: Vec<(u64, u64, Errno)>,
    /// After so many calls others hold this much.
    allocations: Vec<(u64, u64)>,
    /// The most entries that were ever held, by small pages.
    most: Mutex<u64>,
    /// Deregistrations fail with this.
    stuck: Option<Errno>,
    /// What a registration takes, for each call and for each entry, and what percentage of that a deregistration takes.
    takes: (Duration, Duration, u32),
    /// A deregistration takes its time for each so many MRs that are held; 0: whatever is held.
    crowd: u64,
    /// The first of so many deregistrations fail.
    busy: Mutex<u64>,
    /// The longest MR, bytes.
    longest: u64,
    /// The time.
    now: Mutex<Duration>,
    /// Entries held, by which call, and how many calls there were.
    state: Mutex<(u64, BTreeMap<u64, u64>, u64)>,
}

const LARGE: u64 = 1 << 45;

impl Table {
    fn new(family: Family, budget: u64) -> Self {
        Self {
            device: Device::unlimited("table", family),
            budget,
            per_mr: u64::MAX,
            mrs: u64::MAX,
            large: true,
            others: Mutex::new(0),
            faults: Vec::new(),
            allocations: Vec::new(),
            most: Mutex::default(),
            stuck: None,
            takes: (Duration::ZERO, Duration::ZERO, 0),
            crowd: 0,
            busy: Mutex::default(),
            longest: u64::MAX,
            now: Mutex::default(),
            state: Mutex::default(),
        }
    }

    fn others(&self) -> Used {
        let n = *self.others.lock().unwrap();
        Used {
            entries: (n, Some(n)),
            mrs: (0, Some(0)),
        }
    }

    fn live(&self) -> usize {
        self.state.lock().unwrap().1.len()
    }

    /// How long an MR takes to be registered.
    fn time(&self, entries: u64) -> Duration {
        let (call, entry, _) = self.takes;
        call + entry * entries.try_into().unwrap_or(u32::MAX)
    }

    fn spend(&self, time: Duration) {
        *self.now.lock().unwrap() += time;
    }

    fn now(&self) -> Duration {
        *self.now.lock().unwrap()
    }
}

impl RegBackend for Table {
    fn device(&self) -> &Device {
        &self.device
    }

    unsafe fn reg_mr(&self, request: &MrRequest) -> Result<RegisteredMr, VerbError> {
        let fail = |errno| {
            Err(VerbError {
                verb: Verb::RegMr,
                errno,
            })
        };
        let mut state = self.state.lock().unwrap();
        state.2 += 1;
        let call = state.2;
        let mut others = self.others.lock().unwrap();
        for (at, hold) in &self.allocations {
            if *at == call {
                *others = (*hold).min(self.budget.saturating_sub(state.0));
            }
        }
        let hit = |(first, last, _): &&(u64, u64, Errno)| (*first..=*last).contains(&call);
        if let Some((.., errno)) = self.faults.iter().find(hit) {
            return fail(*errno);
        }
        let dialect = self.device.family.dialect();
        let page = if request.addr >= LARGE && self.large {
            PageSize::M2
        } else {
            PageSize::K4
        };
        let need = page.pages_for(request.len.get());
        self.spend(self.time(need));
        if request.len.get() > self.longest {
            return fail(dialect.too_long);
        }
        if need > self.per_mr {
            return fail(dialect.over_per_mr);
        }
        let held = state.0;
        if state.1.len() as u64 >= self.mrs {
            return fail(dialect.over_mr_count);
        }
        if held + *others + need > self.budget {
            return fail(dialect.over_budget);
        }
        state.1.insert(call, need);
        state.0 += need;
        let mut most = self.most.lock().unwrap();
        *most = (*most).max(held + need);
        let key = u32::try_from(call).unwrap();
        Ok(RegisteredMr {
            handle: MrHandle(call),
            lkey: Lkey(key),
            rkey: Rkey(key),
        })
    }

    fn dereg_mr(&self, mr: MrHandle) -> Result<(), VerbError> {
        if let Some(errno) = self.stuck {
            return Err(VerbError {
                verb: Verb::DeregMr,
                errno,
            });
        }
        let mut busy = self.busy.lock().unwrap();
        if *busy > 0 {
            *busy -= 1;
            return Err(VerbError {
                verb: Verb::DeregMr,
                errno: Errno::EBUSY,
            });
        }
        let mut state = self.state.lock().unwrap();
        let crowd = (state.1.len() as u64).checked_div(self.crowd).unwrap_or(1);
        let entries = state.1.remove(&mr.0).expect("a handle of ours");
        state.0 -= entries;
        let crowd = u32::try_from(crowd).unwrap();
        self.spend(self.time(entries) * self.takes.2 * crowd / 100);
        Ok(())
    }

    fn needs_memory(&self) -> bool {
        false
    }
}

fn small(pages: u64) -> Arc<NoMemory> {
    let page = PageSize::K4;
    Arc::new(NoMemory {
        base: BASE,
        len: pages * page.bytes(),
        page,
    })
}

fn large(len: u64) -> Arc<NoMemory> {
    Arc::new(NoMemory {
        base: LARGE,
        len,
        page: PageSize::M2,
    })
}

const NO_LARGE: Option<&Arc<NoMemory>> = None;

/// Probes, with what others hold told truly.
fn ask(table: Table, pages: u64, per_mr: Option<u64>) -> (Arc<Table>, Found) {
    let table = Arc::new(table);
    let others = || table.others();
    let options = Options {
        per_mr,
        others: &others,
        ..Options::default()
    };
    let found = probe(&table, &small(pages), NO_LARGE, &options);
    assert_eq!((table.live(), found.left), (0, 0), "everything is released");
    (table, found)
}

/// `2 log2(budget) + budget / largest`.
fn bound(budget: u64, largest: u64) -> u64 {
    let log = (budget as f64).log2();
    (2.0 * log + budget as f64 / largest as f64).floor() as u64
}

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

/// Probes until a deadline, and says when everything was released.
fn until(table: Table, pages: u64, deadline: Duration, count: Option<u64>) -> (Found, Duration) {
    let table = Arc::new(table);
    let clock = || table.now();
    let others = || table.others();
    let options = Options {
        deadline: Some(deadline),
        clock: &clock,
        others: &others,
        count,
        ..Options::default()
    };
    let found = probe(&table, &small(pages), NO_LARGE, &options);
    assert_eq!((table.live(), found.left), (0, 0), "everything is released");
    (found, table.now())
}

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

/// What could not be freed is on the table: nothing is said of large pages then.
#[test]
fn large_pages_need_room_that_is_proved() {
    for busy in [1, 3, 7] {
        let table = Arc::new(Table {
            busy: Mutex::new(busy),
            ..Table::new(Family::Erdma, 40_000)
        });
        let found = probe(&table, &small(4096), Some(&large(GIB)), &Options::default());
        assert_eq!((found.large_pages, found.left), (None, busy));
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

fn family() -> impl Strategy<Value = Family> {
    prop::sample::select(vec![
        Family::Erdma,
        Family::Ionic,
        Family::Efa,
        Family::Mlx4,
    ])
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
