use super::*;
use crate::pools::Pools;
use crate::root::fake::Tree;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const M2: PageSize = PageSize::M2;

/// A host with two nodes whose pools behave as the kernel's do. All of its state is in the files, so that a killed
/// process leaves it as it was. Not in sysfs but beside it: how many pages each node can still give (`/sim/nodeN`), and
/// how many more it can give after compaction (`/sim/packedN`).
#[derive(Clone)]
struct Sim(Root);

const NODES: [u32; 2] = [0, 1];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Node {
    persistent: u64,
    surplus: u64,
    used: u64,
}

impl Sim {
    fn new(tree: &Tree, persistent: [u64; 2], can_give: [u64; 2]) -> Self {
        let sim = Self(tree.root());
        tree.file("/proc/meminfo", "MemAvailable: 999999999 kB\n");
        tree.file("/proc/sys/vm/compact_memory", "");
        tree.file("/proc/sys/vm/drop_caches", "");
        for node in NODES {
            for file in ["nr", "free", "surplus"] {
                tree.file(&node_file(Some(node), file), "0");
            }
            tree.file(
                &format!("/sim/node{node}"),
                &can_give[node as usize].to_string(),
            );
            tree.file(&format!("/sim/packed{node}"), "0");
        }
        for file in ["nr", "free", "surplus", "resv"] {
            tree.file(&node_file(None, file), "0");
        }
        for node in NODES {
            let persistent = persistent[node as usize];
            sim.set(
                node,
                Node {
                    persistent,
                    ..Node::default()
                },
            );
        }
        sim.process(100);
        sim
    }

    /// The root through which hugemr works: each of its writes is answered by this kernel.
    fn root(&self) -> Root {
        let sim = self.clone();
        self.0
            .clone()
            .after_write(move |path, value| sim.kernel(path, value))
    }

    fn put(&self, path: &str, value: u64) {
        std::fs::write(self.0.path(path), value.to_string()).unwrap();
    }

    fn number(&self, path: &str) -> u64 {
        self.0.number(path).unwrap()
    }

    fn get(&self, node: u32) -> Node {
        let count = |file| self.number(&node_file(Some(node), file));
        let surplus = count("surplus");
        Node {
            persistent: self.number(&format!("/sim/persistent{node}")),
            surplus,
            used: self.number(&format!("/sim/persistent{node}")) + surplus - count("free"),
        }
    }

    fn set(&self, node: u32, state: Node) {
        let Node {
            persistent,
            surplus,
            used,
        } = state;
        assert!(
            used <= persistent + surplus,
            "pages in use were taken: {state:?}"
        );
        self.put(&format!("/sim/persistent{node}"), persistent);
        self.put(&node_file(Some(node), "nr"), persistent + surplus);
        self.put(&node_file(Some(node), "free"), persistent + surplus - used);
        self.put(&node_file(Some(node), "surplus"), surplus);
        for file in ["nr", "free", "surplus"] {
            let known = |node| self.0.number(&node_file(Some(node), file)).unwrap();
            self.put(&node_file(None, file), NODES.map(known).iter().sum());
        }
    }

    /// What a write does.
    fn kernel(&self, path: &str, value: &str) {
        if path == "/proc/sys/vm/compact_memory" {
            for node in NODES {
                let packed = self.number(&format!("/sim/packed{node}"));
                let can = self.number(&format!("/sim/node{node}"));
                self.put(&format!("/sim/node{node}"), can + packed);
                self.put(&format!("/sim/packed{node}"), 0);
            }
        }
        for node in NODES {
            if path == node_file(Some(node), "nr") {
                self.set_persistent(node, value.parse().unwrap());
            }
        }
        assert_ne!(
            path,
            node_file(None, "nr"),
            "node by node where there are nodes"
        );
    }

    /// `set_max_huge_pages`: surplus pages become persistent first, then new ones come as far as there are any; going
    /// down, free pages go, and what is in use becomes surplus.
    fn set_persistent(&self, node: u32, target: u64) {
        // The file holds what was written: the old count is the one beside it.
        let old = self.number(&format!("/sim/persistent{node}"));
        let surplus = self.number(&node_file(Some(node), "surplus"));
        let used = old + surplus - self.number(&node_file(Some(node), "free"));
        let mut state = Node {
            persistent: old,
            surplus,
            used,
        };
        let mut can = self.number(&format!("/sim/node{node}"));
        if target >= old {
            let turned = (target - old).min(state.surplus);
            state.surplus -= turned;
            state.persistent += turned;
            let new = (target - state.persistent).min(can);
            can -= new;
            state.persistent += new;
        } else {
            let lower = target.max(used.saturating_sub(surplus));
            can += old - lower;
            state.surplus += lower - target;
            state.persistent = target;
        }
        self.put(&format!("/sim/node{node}"), can);
        self.set(node, state);
    }

    /// Becomes another process; the one before is gone.
    fn process(&self, pid: u32) {
        let link = self.0.path("/proc/self");
        if let Ok(old) = std::fs::read_link(&link) {
            std::fs::remove_file(&link).unwrap();
            let old = old.to_str().unwrap().to_owned();
            std::fs::remove_dir_all(self.0.path(&format!("/proc/{old}"))).unwrap();
        }
        let dir = self.0.path(&format!("/proc/{pid}"));
        std::fs::create_dir_all(&dir).unwrap();
        let fields = "S 1 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 4242 1 1";
        std::fs::write(dir.join("stat"), format!("{pid} (hugemr) {fields}\n")).unwrap();
        std::os::unix::fs::symlink(pid.to_string(), link).unwrap();
    }

    fn persistent(&self) -> [u64; 2] {
        NODES.map(|node| self.get(node).persistent)
    }
}

fn node_file(node: Option<u32>, file: &str) -> String {
    format!("{}/{file}_hugepages", pool_dir(M2, node))
}

fn request(pages: u64, spread: Spread) -> ReserveRequest {
    ReserveRequest {
        page: M2,
        pages,
        spread,
    }
}

fn reserve(sim: &Sim, pages: u64, spread: Spread) -> Result<Reservation, ReserveError> {
    Reserve::new(&sim.root(), request(pages, spread)).run()
}

#[test]
fn the_shortfall_is_added_and_taken_back() {
    let tree = Tree::new();
    let sim = Sim::new(&tree, [4, 2], [100, 100]);
    let plan = plan(&sim.root(), &request(11, Spread::Even)).unwrap();
    let changes: Vec<_> = plan.iter().map(|c| (c.node, c.from, c.to)).collect();
    assert_eq!(changes, [(Some(0), 4, 7), (Some(1), 2, 4)]);
    assert!(
        plan[0]
            .command()
            .contains("echo 7 > /sys/devices/system/node/node0/")
    );

    let reservation = reserve(&sim, 11, Spread::Even).unwrap();
    assert_eq!(reservation.added(), [(Some(0), 3), (Some(1), 2)]);
    assert_eq!(sim.persistent(), [7, 4]);
    assert_eq!(ledger::look(&sim.0).unwrap().len(), 2);
    let taken = reservation.give_back(&mut |_| ()).unwrap();
    assert_eq!(taken, [(Some(0), 3), (Some(1), 2)]);
    assert_eq!(sim.persistent(), [4, 2]);
    assert!(ledger::look(&sim.0).unwrap().is_empty());
}

#[test]
fn enough_is_left_alone() {
    let tree = Tree::new();
    let sim = Sim::new(&tree, [4, 2], [100, 100]);
    let reservation = reserve(&sim, 6, Spread::Even).unwrap();
    assert!(reservation.added().is_empty());
    assert!(plan(&sim.root(), &request(4, Spread::Only(0))).is_ok());
    drop(reservation);
    assert_eq!(sim.persistent(), [4, 2]);
}

#[test]
fn two_reservations_do_not_count_on_the_same_pages() {
    let tree = Tree::new();
    let sim = Sim::new(&tree, [0, 0], [100, 100]);
    let first = reserve(&sim, 10, Spread::Even).unwrap();
    let second = reserve(&sim, 10, Spread::Even).unwrap();
    assert_eq!(sim.persistent(), [10, 10]);
    // Mapped: the kernel keeps the pages for the first one now, by its own promise.
    sim.put(&node_file(None, "resv"), 10);
    first.mapped().unwrap();
    let third = reserve(&sim, 1, Spread::Even).unwrap();
    assert_eq!(third.added(), [(Some(0), 1)]);
    drop((first, second, third));
    assert_eq!(sim.persistent(), [0, 0]);
}

#[test]
fn what_is_kept_is_for_others_until_it_is_released() {
    let tree = Tree::new();
    let sim = Sim::new(&tree, [0, 0], [100, 100]);
    for _ in 0..2 {
        // The second time nothing is left to be done.
        drop(
            Reserve::new(&sim.root(), request(8, Spread::Even))
                .keep()
                .run()
                .unwrap(),
        );
        assert_eq!(sim.persistent(), [4, 4]);
    }
    assert_eq!(release_stale(&sim.root(), &mut |_| ()).unwrap(), []);
    let taken = release_kept(&sim.root(), &mut |_| ()).unwrap();
    assert_eq!(taken, [(Some(0), 4), (Some(1), 4)]);
    assert_eq!(sim.persistent(), [0, 0]);
    assert_eq!(release_kept(&sim.root(), &mut |_| ()).unwrap(), []);
}

#[test]
fn the_ladder_is_climbed_on_a_short_count_only() {
    let tree = Tree::new();
    let sim = Sim::new(&tree, [0, 0], [5, 8]);
    sim.put("/sim/packed0", 6);
    let mut steps = Vec::new();
    let mut told = |step| steps.push(step);
    let root = sim.root();
    let reservation = Reserve::new(&root, request(16, Spread::Even))
        .on_step(&mut told)
        .run()
        .unwrap();
    assert_eq!(reservation.added(), [(Some(0), 8), (Some(1), 8)]);
    let rungs: Vec<_> = steps
        .iter()
        .filter(|step| !matches!(step, Step::Raising(_) | Step::Came { .. }))
        .collect();
    assert_eq!(
        rungs,
        [
            // No other node has any.
            &Step::Short(3),
            &Step::Short(3),
            &Step::Compacting,
            // Half of it was asked of the node that has none.
            &Step::Short(1),
            &Step::Compacting
        ]
    );
}

#[test]
fn other_nodes_help_but_for_a_node_that_was_asked_for() {
    let tree = Tree::new();
    let sim = Sim::new(&tree, [0, 0], [5, 100]);
    for spread in [Spread::Even, Spread::First(0)] {
        let reservation = reserve(&sim, 20, spread).unwrap();
        assert_eq!(
            reservation.added(),
            [(Some(0), 5), (Some(1), 15)],
            "{spread:?}"
        );
        drop(reservation);
        assert_eq!(sim.persistent(), [0, 0]);
    }
    let error = reserve(&sim, 20, Spread::Only(0)).unwrap_err();
    let ReserveError::Short {
        missing: 15,
        came: 5,
        back,
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!(back, [(Some(0), 5)]);
    assert_eq!(sim.persistent(), [0, 0]);
    assert!(ledger::look(&sim.0).unwrap().is_empty());
}

#[test]
fn surplus_pages_of_others_become_persistent_and_surplus_again() {
    let tree = Tree::new();
    let sim = Sim::new(&tree, [2, 0], [100, 100]);
    sim.set(
        0,
        Node {
            persistent: 2,
            surplus: 5,
            used: 7,
        },
    );
    let reservation = reserve(&sim, 3, Spread::Only(0)).unwrap();
    // Five of the eight were others' surplus.
    assert_eq!(
        sim.get(0),
        Node {
            persistent: 10,
            surplus: 0,
            used: 7
        }
    );
    drop(reservation);
    assert_eq!(
        sim.get(0),
        Node {
            persistent: 2,
            surplus: 5,
            used: 7
        }
    );
}

#[test]
fn pages_in_use_stay_with_their_user() {
    let tree = Tree::new();
    let sim = Sim::new(&tree, [0, 0], [100, 100]);
    let reservation = reserve(&sim, 10, Spread::Only(1)).unwrap();
    let state = sim.get(1);
    sim.set(1, Node { used: 7, ..state });
    assert_eq!(reservation.give_back(&mut |_| ()).unwrap(), [(Some(1), 10)]);
    assert_eq!(
        sim.get(1),
        Node {
            persistent: 0,
            surplus: 7,
            used: 7
        }
    );
}

#[test]
fn who_adds_pages_during_our_write_keeps_them() {
    let tree = Tree::new();
    let sim = Sim::new(&tree, [1, 0], [100, 100]);
    let other = sim.clone();
    let root = sim.0.clone().after_write(move |path, value| {
        other.kernel(path, value);
        if path == node_file(Some(0), "nr") && value == "6" {
            other.set_persistent(0, 6 + 4);
        }
    });
    let reservation = Reserve::new(&root, request(6, Spread::Only(0)))
        .run()
        .unwrap();
    assert_eq!(reservation.added(), [(Some(0), 5)]);
    drop(reservation);
    assert_eq!(sim.persistent(), [1 + 4, 0]);
}

#[test]
fn requests_that_cannot_be_met_change_nothing() {
    let tree = Tree::new();
    let sim = Sim::new(&tree, [1, 1], [9, 9]);
    let error = reserve(&sim, 1, Spread::Only(7)).unwrap_err();
    assert!(
        matches!(error, ReserveError::NoSuchNode { node: 7, .. }),
        "{error}"
    );
    let odd = ReserveRequest {
        page: PageSize::K64,
        pages: 1,
        spread: Spread::Even,
    };
    let error = Reserve::new(&sim.root(), odd).run().unwrap_err();
    assert!(matches!(error, ReserveError::NoSuchPage { .. }), "{error}");
    let error = reserve(&sim, 1 << 40, Spread::Even).unwrap_err();
    assert!(matches!(error, ReserveError::Memory { .. }), "{error}");
    let root = sim.root();
    let error = Reserve::new(&root, request(9, Spread::Even))
        .cancel(&|| true)
        .run()
        .unwrap_err();
    assert!(matches!(error, ReserveError::Cancelled { .. }), "{error}");
    sim.put(&node_file(None, "resv"), u64::MAX - 59);
    let error = reserve(&sim, 1, Spread::Even).unwrap_err();
    assert!(matches!(error, ReserveError::Unknown { .. }), "{error}");
    assert_eq!(sim.persistent(), [1, 1]);
    assert!(ledger::look(&sim.0).unwrap().is_empty());
}

#[test]
fn without_rights_the_commands_are_said() {
    let tree = Tree::new();
    let sim = Sim::new(&tree, [1, 1], [9, 9]);
    // No folder can be made below a file: not the same errno as for a user, but root may do everything else.
    let denied = ReserveError::not_allowed(&plan(&sim.root(), &request(5, Spread::Even)).unwrap());
    assert_eq!(
        denied.to_string(),
        "changing the pools needs root; \
         sudo sh -c 'echo 3 > /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages'; \
         sudo sh -c 'echo 2 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages'"
    );
}

/// What may happen, in any order.
#[derive(Clone, Debug)]
enum Event {
    Reserve {
        pages: u64,
        spread: Spread,
        keep: bool,
    },
    /// The n-th living reservation.
    GiveBack(usize),
    Mapped(usize),
    /// The process is killed: nothing of its reservations is given back.
    Killed,
    ReleaseStale,
    ReleaseKept,
    /// An outside writer adds pages, or takes some of those that he has added.
    Raise(u32, u64),
    Lower(u32, u64),
    /// An outside program uses free pages, or frees some of its own.
    Use(u32, u64),
    Free(u32, u64),
}

fn event() -> impl Strategy<Value = Event> {
    let spread = || {
        prop_oneof![
            Just(Spread::Even),
            (0u32..2).prop_map(Spread::Only),
            (0u32..2).prop_map(Spread::First),
        ]
    };
    let count = || 1u64..12;
    let node = || 0u32..2;
    prop_oneof![
        4 => (0u64..20, spread(), any::<bool>())
            .prop_map(|(pages, spread, keep)| Event::Reserve { pages, spread, keep }),
        2 => (0usize..4).prop_map(Event::GiveBack),
        1 => (0usize..4).prop_map(Event::Mapped),
        1 => Just(Event::Killed),
        1 => Just(Event::ReleaseStale),
        1 => Just(Event::ReleaseKept),
        2 => (node(), count()).prop_map(|(n, k)| Event::Raise(n, k)),
        1 => (node(), count()).prop_map(|(n, k)| Event::Lower(n, k)),
        1 => (node(), count()).prop_map(|(n, k)| Event::Use(n, k)),
        1 => (node(), count()).prop_map(|(n, k)| Event::Free(n, k)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever hugemr processes, killed ones and outside writers do in turn: when all is given back, each pool has what
    /// it had at the start plus what the outside writers have added, and nobody has lost a page in use.
    #[test]
    fn each_takes_back_only_its_own(
        start in [0u64..6, 0u64..6], can_give in [0u64..40, 0u64..40],
        events in proptest::collection::vec(event(), 1..25),
    ) {
        let tree = Tree::new();
        let sim = Sim::new(&tree, start, can_give);
        let root = sim.root();
        let nothing = &mut |_| ();
        let mut living: Vec<Reservation> = Vec::new();
        let mut outside: BTreeMap<u32, u64> = BTreeMap::new();
        let mut pid = 100;
        for event in events {
            match event {
                Event::Reserve { pages, spread, keep } => {
                    let before = sim.persistent();
                    let mut reserve = Reserve::new(&root, request(pages, spread));
                    if keep {
                        reserve = reserve.keep();
                    }
                    match reserve.run() {
                        Ok(reservation) => {
                            let free: u64 = NODES.iter()
                                .map(|n| { let n = sim.get(*n); n.persistent + n.surplus - n.used })
                                .sum();
                            prop_assert!(free >= pages);
                            living.push(reservation);
                        }
                        Err(ReserveError::Short { .. }) => {
                            prop_assert_eq!(sim.persistent(), before);
                        }
                        Err(error) => return Err(TestCaseError::fail(error.to_string())),
                    }
                }
                Event::GiveBack(i) if i < living.len() => {
                    living.remove(i).give_back(nothing).unwrap();
                }
                Event::Mapped(i) if i < living.len() => living[i].mapped().unwrap(),
                Event::GiveBack(_) | Event::Mapped(_) => {}
                Event::Killed => {
                    living.drain(..).for_each(std::mem::forget);
                    pid += 1;
                    sim.process(pid);
                }
                Event::ReleaseStale => drop(release_stale(&root, nothing).unwrap()),
                Event::ReleaseKept => drop(release_kept(&root, nothing).unwrap()),
                Event::Raise(node, pages) => {
                    let before = sim.get(node).persistent;
                    sim.set_persistent(node, before + pages);
                    *outside.entry(node).or_default() += sim.get(node).persistent - before;
                }
                Event::Lower(node, pages) => {
                    let own = outside.entry(node).or_default();
                    let pages = pages.min(*own);
                    *own -= pages;
                    sim.set_persistent(node, sim.get(node).persistent - pages);
                }
                Event::Use(node, pages) => {
                    let state = sim.get(node);
                    let free = state.persistent + state.surplus - state.used;
                    sim.set(node, Node { used: state.used + pages.min(free), ..state });
                }
                Event::Free(node, pages) => {
                    let mut state = sim.get(node);
                    for _ in 0..pages.min(state.used) {
                        state.used -= 1;
                        state.surplus = state.surplus.saturating_sub(1);
                    }
                    sim.set(node, state);
                }
            }
        }
        drop(living);
        sim.process(pid + 1);
        release_stale(&root, nothing).unwrap();
        release_kept(&root, nothing).unwrap();
        let want = NODES.map(|n| start[n as usize] + outside.get(&n).copied().unwrap_or(0));
        prop_assert_eq!(sim.persistent(), want);
        prop_assert!(ledger::look(&root).unwrap().is_empty());
    }
}

/// Not a test by itself: the process that [`killed_at_any_write`] starts and that kills itself.
#[test]
fn child_that_is_killed() {
    let Ok(text) = std::env::var("HUGEMR_TEST_KILLED") else {
        return;
    };
    let (tree, rest) = text.split_once('|').unwrap();
    let (at, before) = rest.split_once('|').unwrap();
    let (at, before): (u64, bool) = (at.parse().unwrap(), before.parse().unwrap());
    let sim = Sim(Root::at(tree));
    let writes = Arc::new(AtomicU64::new(0));
    let root = sim.0.clone().after_write(move |path, value| {
        let now = writes.fetch_add(1, Ordering::Relaxed) == at;
        if now && before {
            // As if killed before the kernel did anything.
            for node in NODES
                .into_iter()
                .filter(|n| path == node_file(Some(*n), "nr"))
            {
                sim.put(path, sim.number(&format!("/sim/persistent{node}")));
            }
            std::process::exit(42);
        }
        sim.kernel(path, value);
        if now {
            std::process::exit(42);
        }
    });
    let reservation = Reserve::new(&root, request(13, Spread::Even))
        .run()
        .unwrap();
    reservation.mapped().unwrap();
    drop(reservation);
    std::process::exit(43);
}

#[test]
fn killed_at_any_write() {
    let run = |at: u64, before: bool| {
        let tree = Tree::new();
        let sim = Sim::new(&tree, [3, 1], [4, 90]);
        let place = sim.0.path("/");
        let code = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "reserve::tests::child_that_is_killed",
                "--nocapture",
            ])
            .env(
                "HUGEMR_TEST_KILLED",
                format!("{}|{at}|{before}", place.display()),
            )
            .stdout(std::process::Stdio::null())
            .status()
            .unwrap()
            .code();
        sim.process(200);
        release_stale(&sim.root(), &mut |_| ()).unwrap();
        assert_eq!(
            sim.persistent(),
            [3, 1],
            "killed at write {at}, before: {before}"
        );
        assert!(ledger::look(&sim.0).unwrap().is_empty());
        code
    };
    let mut at = 0;
    while run(at, false) == Some(42) {
        assert_eq!(run(at, true), Some(42));
        at += 1;
    }
    assert_eq!(run(at, true), Some(43), "the child came to its end");
    assert!(at > 10, "{at} writes only");
}

#[test]
#[ignore = "needs huge pages and root"]
fn the_pools_of_this_machine() {
    let _pools = crate::root::fake::pool_lock();
    let root = Root::real();
    let available = |root: &Root| Pools::read(root).of(M2).unwrap().available().unwrap();
    let total = |root: &Root| Pools::read(root).of(M2).unwrap().total.unwrap();
    let (pages, before) = (available(&root) + 8, total(&root));
    let reservation = Reserve::new(&root, request(pages, Spread::Even))
        .run()
        .unwrap();
    assert_eq!(total(&root), before + 8);
    // An outside writer adds two, and takes them away after us.
    let file = format!("{}/nr_hugepages", pool_dir(M2, None));
    root.write(&file, &(before + 10).to_string()).unwrap();
    assert_eq!(
        reservation
            .give_back(&mut |_| ())
            .unwrap()
            .iter()
            .map(|(_, n)| n)
            .sum::<u64>(),
        8
    );
    assert_eq!(total(&root), before + 2);
    root.write(&file, &before.to_string()).unwrap();
    assert_eq!(total(&root), before);
}

/// Whether changes may be made is found out without making one.
#[test]
fn rights_are_checked_without_a_change() {
    let tree = Tree::new();
    let sim = Sim::new(&tree, [4, 0], [100, 100]);
    let root = sim.root();
    let request = ReserveRequest {
        page: M2,
        pages: 20,
        spread: Spread::Even,
    };
    let changes = plan(&root, &request).unwrap();
    assert!(!changes.is_empty());
    check(&root, &changes).unwrap();
    assert_eq!(plan(&root, &request).unwrap(), changes);
    // A pool that cannot be opened for writing: a folder in its place, which nobody writes, not even root.
    let file = root.path(&changes[0].file());
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let error = check(&root, &changes).unwrap_err();
    assert!(matches!(error, ReserveError::Write { .. }), "{error}");
}
