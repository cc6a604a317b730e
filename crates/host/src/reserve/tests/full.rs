//! A folder of the ledger that has become full, was lost, or cannot be understood.

use super::*;

/// No second file can be made beside the ledger: a folder stands in its place, which is not written over by root either.
fn fill(sim: &Sim) {
    std::fs::create_dir_all(sim.0.path("/run/hugemr/ledger.new")).unwrap();
}

#[test]
fn what_was_reserved_is_given_back_where_the_ledger_has_no_room() {
    let tree = Tree::new();
    let sim = Sim::new(&tree, [4, 2], [100, 100]);
    let reservation = reserve(&sim, 11, Spread::Even).unwrap();
    let other = reserve(&sim, 4, Spread::Only(1)).unwrap();
    fill(&sim);
    reservation.mapped().unwrap();
    let taken = reservation.give_back(&mut |_| ()).unwrap();
    assert_eq!(taken, [(Some(0), 3), (Some(1), 2)]);
    assert_eq!(ledger::look(&sim.0).unwrap().len(), 1, "the other's");
    std::mem::forget(other);
    sim.process(200);
    release_stale(&sim.root(), &mut |_| ()).unwrap();
    assert_eq!(sim.persistent(), [4, 2]);
    assert!(ledger::look(&sim.0).unwrap().is_empty());
}

/// Where the ledger cannot be made nothing is changed, and the reason is said, not a failure to give back what never came.
#[test]
fn without_a_ledger_nothing_is_added_and_the_reason_is_said() {
    for keep in [false, true] {
        let tree = Tree::new();
        let sim = Sim::new(&tree, [4, 2], [100, 100]);
        fill(&sim);
        let root = sim.root();
        let mut asked = Reserve::new(&root, request(11, Spread::Even));
        if keep {
            asked = asked.keep();
        }
        let error = asked.run().unwrap_err();
        assert!(
            matches!(error, ReserveError::Ledger(_)),
            "keep {keep}: {error}"
        );
        assert!(std::error::Error::source(&error).is_some(), "{error}");
        assert!(error.stays().is_empty());
        assert_eq!(sim.persistent(), [4, 2]);
    }
}

/// Where enough is there nothing need be noted.
#[test]
fn what_is_there_can_be_had_without_a_ledger() {
    let tree = Tree::new();
    let sim = Sim::new(&tree, [4, 2], [100, 100]);
    fill(&sim);
    let reservation = reserve(&sim, 5, Spread::Even).unwrap();
    assert_eq!(reservation.added(), []);
    reservation.mapped().unwrap();
    assert_eq!(reservation.give_back(&mut |_| ()).unwrap(), []);
    assert_eq!(sim.persistent(), [4, 2]);
}

/// A ledger that was removed and made anew knows nothing of the pages; one in which they no longer stand has given them back.
#[test]
fn a_lost_ledger_loses_no_pages_and_what_was_taken_is_not_taken_twice() {
    let tree = Tree::new();
    let sim = Sim::new(&tree, [4, 2], [100, 100]);
    let lost = reserve(&sim, 11, Spread::Even).unwrap();
    std::fs::remove_file(sim.0.path("/run/hugemr/ledger")).unwrap();
    // Of the same number as the lost one, and of the same process.
    let later = reserve(&sim, 16, Spread::Even).unwrap();
    assert_eq!(sim.persistent(), [10, 6]);
    assert_eq!(
        lost.give_back(&mut |_| ()).unwrap(),
        [(Some(0), 3), (Some(1), 2)]
    );
    assert_eq!(ledger::look(&sim.0).unwrap().len(), 2, "the later one's");
    drop(later);
    assert_eq!(sim.persistent(), [4, 2]);

    let reservation = reserve(&sim, 11, Spread::Even).unwrap();
    // Somebody who does not see its process takes it for dead.
    let elsewhere = tree.root();
    sim.process(200);
    release_stale(&sim.root(), &mut |_| ()).unwrap();
    assert_eq!(sim.persistent(), [4, 2]);
    assert_eq!(reservation.give_back(&mut |_| ()).unwrap(), []);
    assert_eq!(sim.persistent(), [4, 2]);
    assert!(ledger::look(&elsewhere).unwrap().is_empty());
}

/// What cannot be given back is said, with the command: that of hugemr where the ledger knows the pages, else by hand.
#[test]
fn what_stays_is_said() {
    let tree = Tree::new();
    let sim = Sim::new(&tree, [4, 2], [100, 100]);
    let reservation = reserve(&sim, 11, Spread::Only(1)).unwrap();
    // The lock cannot be had: a folder stands in its place.
    let lock = sim.0.path("/run/hugemr/lock");
    std::fs::remove_file(&lock).unwrap();
    std::fs::create_dir(&lock).unwrap();
    let error = reservation.give_back(&mut |_| ()).unwrap_err();
    let stays = |noted: bool| Stays {
        page: M2,
        node: Some(1),
        pages: 9,
        kept: false,
        by_hand: (!noted).then(|| format!("sudo sh -c 'echo 2 > {}'", node_file(Some(1), "nr"))),
    };
    assert_eq!(error.stays(), [stays(true)]);
    assert_eq!(
        error.to_string(),
        "9 pages of 2 MiB (18 MiB) could not be given back"
    );
    std::fs::remove_dir(&lock).unwrap();
    let again = reserve(&sim, 22, Spread::Only(1)).unwrap();
    let ledger = sim.0.path("/run/hugemr/ledger");
    let text = std::fs::read(&ledger).unwrap();
    std::fs::write(&ledger, "something else\n").unwrap();
    let added = again.added()[0].1;
    let error = again.give_back(&mut |_| ()).unwrap_err();
    assert!(
        matches!(error.ledger(), Some(ledger::LedgerError::Line { .. })),
        "{error}"
    );
    assert_eq!(error.stays()[0].pages, added);
    let by_hand = error.stays()[0].by_hand.as_deref().unwrap();
    assert!(by_hand.contains("nr_hugepages"), "{by_hand}");
    std::fs::write(&ledger, text).unwrap();
    sim.process(200);
    release_stale(&sim.root(), &mut |_| ()).unwrap();
    assert_eq!(sim.persistent(), [4, 2]);
}

/// Pages that another hand took out of the pool are not taken again, and said.
#[test]
fn what_is_gone_already_is_said() {
    let tree = Tree::new();
    let sim = Sim::new(&tree, [0, 0], [100, 100]);
    let reservation = reserve(&sim, 16, Spread::Even).unwrap();
    sim.set_persistent(0, 0);
    sim.set_persistent(1, 5);
    let mut steps = Vec::new();
    let taken = reservation.give_back(&mut |step| steps.push(step)).unwrap();
    assert_eq!(taken, [(Some(1), 5)]);
    let gone = |node, pages| Step::Gone {
        page: M2,
        node: Some(node),
        pages,
    };
    let said: Vec<_> = steps
        .into_iter()
        .filter(|step| !matches!(step, Step::Lowering(_)))
        .collect();
    assert_eq!(said, [gone(0, 8), gone(1, 3)]);
    assert_eq!(sim.persistent(), [0, 0]);
    assert!(ledger::look(&sim.0).unwrap().is_empty());
}

/// While memory is being mapped nobody counts: the pages would be promised by the kernel and still claimed.
#[test]
fn nobody_counts_between_mapping_and_the_word_of_it() {
    let tree = Tree::new();
    let sim = Sim::new(&tree, [0, 0], [100, 100]);
    let first = reserve(&sim, 10, Spread::Even).unwrap();
    let root = sim.root();
    let list = [first];
    mapping(&list, &|| false, || {
        sim.put(&node_file(None, "resv"), 10);
        // Who comes now waits: there is no lock to be had.
        assert!(Lock::take(&root, &|| true).is_err());
    })
    .unwrap();
    let second = reserve(&sim, 10, Spread::Even).unwrap();
    assert_eq!(second.added(), [(Some(0), 5), (Some(1), 5)]);
    drop((list, second));
}

/// Pages that were unmapped and are going to be given back are for nobody else.
#[test]
fn nobody_counts_between_unmapping_and_giving_back() {
    let tree = Tree::new();
    let sim = Sim::new(&tree, [0, 0], [100, 100]);
    let first = reserve(&sim, 10, Spread::Even).unwrap();
    first.mapped().unwrap();
    let kept = first.keep_from_others().unwrap();
    assert!(Lock::take(&sim.0, &|| true).is_err());
    let taken = first.give_back_under(&kept, &mut |_| ()).unwrap();
    assert_eq!(taken, [(Some(0), 5), (Some(1), 5)]);
    drop(kept);
    assert!(Lock::take(&sim.0, &|| true).is_ok());
    assert!(ledger::look(&sim.0).unwrap().is_empty());
}

#[test]
fn the_pages_of_the_dead_are_told() {
    let tree = Tree::new();
    let sim = Sim::new(&tree, [0, 0], [100, 100]);
    std::mem::forget(reserve(&sim, 10, Spread::Even).unwrap());
    assert_eq!(ledger::left_by_the_dead(&sim.0).unwrap(), []);
    sim.process(200);
    assert_eq!(ledger::left_by_the_dead(&sim.0).unwrap(), [(M2, 10)]);
    release_stale(&sim.root(), &mut |_| ()).unwrap();
    assert_eq!(ledger::left_by_the_dead(&sim.0).unwrap(), []);
}
