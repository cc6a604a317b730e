//! A process that ends at any of its writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

/// Not a test by itself: the process that [`killed_at_any_write`] starts and that kills itself.
#[test]
fn child_that_is_killed() {
    let Ok(text) = std::env::var("HUGEMR_TEST_KILLED") else {
        return;
    };
    let (tree, rest) = text.split_once('|').unwrap();
    let (at, rest) = rest.split_once('|').unwrap();
    let (before, full) = rest.split_once('|').unwrap();
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
    if full == "true" {
        std::fs::create_dir(root.path("/run/hugemr/ledger.new")).unwrap();
    }
    reservation.mapped().unwrap();
    drop(reservation);
    std::process::exit(43);
}

#[test]
fn killed_at_any_write() {
    for full in [false, true] {
        killed(full);
    }
}

/// `full`: from the time on when it has its pages nothing can be made in the folder of the ledger.
fn killed(full: bool) {
    let run = |at: u64, before: bool| {
        let tree = Tree::new();
        let sim = Sim::new(&tree, [3, 1], [4, 90]);
        let place = sim.0.path("/");
        let code = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "reserve::tests::killed::child_that_is_killed",
                "--nocapture",
            ])
            .env(
                "HUGEMR_TEST_KILLED",
                format!("{}|{at}|{before}|{full}", place.display()),
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
            "killed at write {at}, before: {before}, full: {full}"
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
