//! Reservations, killed processes and outside writers, in any order.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

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
