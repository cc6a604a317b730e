//! What is added, whose it is, and what is taken back.

use super::*;

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
