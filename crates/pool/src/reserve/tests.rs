use std::cell::Cell;
use std::path::Path;

use hugemr_host::ledger;
use hugemr_host::reserve::release_stale;
use proptest::prelude::*;

use super::*;

const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

/// A host with one pool of 2 MiB pages, whose counts are files. It gives what is asked for, up to `most` pages.
struct Host {
    folder: tempfile::TempDir,
    root: Root,
}

impl Host {
    fn new(pages: u64, most: u64) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .unwrap();
        let base = folder.path().to_owned();
        let fields = "S 1 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 4242 1 1";
        for (path, text) in [
            ("/proc/meminfo", "MemAvailable: 999999999 kB\n".to_owned()),
            ("/proc/sys/vm/compact_memory", String::new()),
            ("/proc/100/stat", format!("100 (hugemr) {fields}\n")),
            (&format!("{POOL}/nr_hugepages"), pages.to_string()),
            (&format!("{POOL}/free_hugepages"), pages.to_string()),
            (&format!("{POOL}/resv_hugepages"), "0".to_owned()),
            (&format!("{POOL}/surplus_hugepages"), "0".to_owned()),
        ] {
            put(&base, path, &text);
        }
        std::os::unix::fs::symlink("100", base.join("proc/self")).unwrap();
        let root = Root::at(&base).after_write(move |path, value| {
            if path == format!("{POOL}/nr_hugepages") {
                let got = value.parse::<u64>().unwrap().min(most).to_string();
                put(&base, path, &got);
                put(&base, &format!("{POOL}/free_hugepages"), &got);
            }
        });
        Self { folder, root }
    }

    fn pages(&self) -> u64 {
        self.root.number(&format!("{POOL}/nr_hugepages")).unwrap()
    }

    /// Somebody else adds pages, or takes some of those that he has added.
    fn outside(&self, change: i64) {
        let now = self.pages().saturating_add_signed(change).to_string();
        put(self.folder.path(), &format!("{POOL}/nr_hugepages"), &now);
        put(self.folder.path(), &format!("{POOL}/free_hugepages"), &now);
    }

    fn wish<'a>(&'a self, pages: u64, cancel: &'a CancelToken) -> Wish<'a> {
        Wish {
            root: &self.root,
            need: vec![(PageSize::M2, pages, Spread::Even)],
            effort: Effort::default(),
            cancel,
        }
    }
}

fn put(base: &Path, path: &str, text: &str) {
    let place = base.join(path.trim_start_matches('/'));
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    std::fs::write(place, text).unwrap();
}

/// What a callback does at an event.
#[derive(Clone, Copy, Debug)]
enum Act {
    Nothing,
    Cancel,
    Panic,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![Just(Act::Nothing), Just(Act::Cancel), Just(Act::Panic)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Two transactions, one inside of the other or beside it, an outside writer between any two of their steps, and a callback that
    /// cancels or panics at any: in the end the pool has what it had, and what the outside writer has added.
    #[test]
    fn each_takes_back_only_its_own(
        start in 0u64..6,
        most in 8u64..60,
        wants in [0u64..20, 0u64..20],
        acts in [(act(), 0usize..9), (act(), 0usize..9)],
        outside in proptest::collection::vec(0i64..3, 24),
        second_ends_first in any::<bool>(),
    ) {
        let host = Host::new(start, most + 100);
        let event = Cell::new(0);
        let added = Cell::new(0);
        let mut standing: Vec<Option<Reserved>> = Vec::new();
        let tokens = [CancelToken::new(), CancelToken::new()];
        // Between two writes of ours, never inside of one: the kernel knows no relative write.
        let writer = || {
            let change = outside.get(event.get()).copied().unwrap_or(0);
            event.set(event.get() + 1);
            host.outside(change);
            added.set(added.get() + change);
        };
        for ((want, (act, at)), token) in wants.into_iter().zip(acts).zip(&tokens) {
            let seen = Cell::new(0);
            let tell = |_: Event| {
                let now = seen.replace(seen.get() + 1) == at;
                match act {
                    Act::Cancel if now => token.cancel(),
                    Act::Panic if now => panic!("a planned panic"),
                    _ => {}
                }
            };
            writer();
            let wish = host.wish(want, token);
            let made = catch_unwind(AssertUnwindSafe(|| wish.fulfil(&tell)));
            let before = host.pages();
            standing.push(match made {
                Ok(Ok(reserved)) => Some(reserved),
                Ok(Err(error)) => {
                    prop_assert!(matches!(act, Act::Cancel), "{}", error.cause);
                    prop_assert!(error.not_given_back.is_none());
                    None
                }
                Err(_) => {
                    prop_assert!(matches!(act, Act::Panic));
                    None
                }
            });
            if standing.last().unwrap().is_none() {
                prop_assert_eq!(before, host.pages());
            }
            writer();
        }
        if second_ends_first {
            standing.reverse();
        }
        for (one, (act, at)) in standing.into_iter().zip(acts).filter_map(|(s, a)| Some((s?, a))) {
            writer();
            let seen = Cell::new(0);
            let tell = |_: Event| {
                let now = seen.replace(seen.get() + 1) == at % 3;
                assert!(!(now && matches!(act, Act::Panic)), "a planned panic");
            };
            match catch_unwind(AssertUnwindSafe(|| one.give_back(&tell))) {
                Ok(back) => back.unwrap(),
                Err(_) => prop_assert!(matches!(act, Act::Panic)),
            }
        }
        prop_assert_eq!(host.pages(), start + u64::try_from(added.get()).unwrap());
        prop_assert!(ledger::look(&host.root).unwrap().is_empty());
    }
}

#[test]
fn a_short_count_is_an_error_and_everything_goes_back() {
    let host = Host::new(3, 10);
    let token = CancelToken::new();
    let error = host.wish(20, &token).fulfil(&|_| ()).unwrap_err();
    assert_eq!(error.step, Step::Reserve);
    assert!(
        matches!(&*error.cause, Cause::Reserve(e) if matches!(e, ReserveError::Short { missing: 10, came: 7, .. })),
        "{}",
        error.cause
    );
    assert_eq!(host.pages(), 3);
}

#[test]
fn sizes_are_reserved_together_or_not_at_all() {
    let host = Host::new(3, 100);
    let token = CancelToken::new();
    let mut wish = host.wish(20, &token);
    wish.need.push((PageSize::G1, 1, Spread::Even));
    let steps = RefCell::new(Vec::new());
    let error = wish
        .fulfil(&|event| steps.borrow_mut().push(event))
        .unwrap_err();
    assert!(
        matches!(&*error.cause, Cause::Reserve(e) if matches!(e, ReserveError::NoSuchPage { .. })),
        "{}",
        error.cause
    );
    assert_eq!(host.pages(), 3);
    let told = steps.into_inner();
    assert!(
        matches!(told.last(), Some(Event::End(Step::GiveBack, _))),
        "{told:?}"
    );
}

#[test]
fn a_cgroup_limit_is_found_before_a_pool_is_touched() {
    let host = Host::new(3, 100);
    let base = host.folder.path();
    put(base, "/proc/self/cgroup", "0::/pod\n");
    put(
        base,
        "/proc/self/mountinfo",
        "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    );
    put(base, "/sys/fs/cgroup/pod/hugetlb.2MB.max", "20971520\n");
    put(base, "/sys/fs/cgroup/pod/hugetlb.2MB.current", "4194304\n");
    let token = CancelToken::new();
    let never = |event: Event| assert!(!matches!(event, Event::Pool(_)), "{event:?}");
    let error = host.wish(9, &token).fulfil(&never).unwrap_err();
    assert!(
        error.cause.to_string().contains("hugetlb.2MB.max"),
        "{}",
        error.cause
    );
    assert!(host.wish(8, &token).fulfil(&|_| ()).is_ok());
    assert_eq!(host.pages(), 3);
}

#[test]
fn without_a_wish_nothing_is_told() {
    let never = |event: Event| panic!("{event:?}");
    Reserved::default().give_back(&never).unwrap();
}

#[test]
fn what_a_killed_process_leaves_is_stale() {
    let host = Host::new(3, 100);
    let token = CancelToken::new();
    let reserved = host.wish(20, &token).fulfil(&|_| ()).unwrap();
    assert_eq!(host.pages(), 20);
    assert_eq!(reserved.added(), [(PageSize::M2, None, 17)]);
    std::mem::forget(reserved);
    std::fs::remove_dir_all(host.folder.path().join("proc/100")).unwrap();
    assert_eq!(
        release_stale(&host.root, &mut |_| ()).unwrap(),
        [(None, 17)]
    );
    assert_eq!(host.pages(), 3);
}
