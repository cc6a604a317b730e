//! The folder of the ledger: full, closed, not understood, or with entries of the dead. Each in a mount namespace with a folder
//! of its own.

use crate::*;

/// Runs `script` in a mount namespace with an empty `/run/hugemr` of 64 KiB. It finds hugemr in `$HUGEMR`, and has `hold SIZE
/// FLAGS` (a registration that holds, its number in `$PID`), `fill` and `free`.
fn in_a_folder_of_its_own(script: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let head = r#"
        mkdir -p /run/hugemr && mount -t tmpfs -o size=64k none /run/hugemr || exit 99
        SIM="--memory real --device sim:erdma"
        fill() { dd if=/dev/zero of=/run/hugemr/fill bs=4k 2>/dev/null; true; }
        free() { rm /run/hugemr/fill; }
        hold() {
            "$HUGEMR" register "$@" --reserve --hold $SIM >"$DIR/out" 2>"$DIR/err" &
            PID=$!
            for i in $(seq 600); do grep -q ^held "$DIR/err" && return; sleep 0.05; done
            cat "$DIR/err"; exit 98
        }
    "#;
    Command::new("unshare")
        .args(["--mount", "bash", "-c"])
        .arg(format!("{head}\n{script}"))
        .env("DIR", folder.path())
        .env("HUGEMR", env!("CARGO_BIN_EXE_hugemr"))
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
#[ignore = "needs huge pages and root"]
fn a_full_folder_keeps_no_page() {
    let _pools = lock();
    let before = persistent();
    let size = beyond_the_pool(2);
    for signal in ["TERM", "KILL"] {
        let out = in_a_folder_of_its_own(&format!(
            r#"hold {size}; fill; kill -{signal} $PID; wait $PID; echo "ended $?"
            cat "$DIR/err"; "$HUGEMR" release --stale"#
        ));
        let said = text(&out);
        assert_eq!(out.status.code(), Some(0), "{said}");
        let back = if signal == "TERM" {
            "nothing to give back"
        } else {
            "released: 2 pages of 2 MiB"
        };
        assert!(said.contains(back), "{signal}: {said}");
        assert_eq!(said.contains("ended 0"), signal == "TERM", "{said}");
        is_as_before(before, signal);
    }
}

#[test]
#[ignore = "needs huge pages and root"]
fn a_folder_that_is_full_before_is_the_reason_that_is_said() {
    let _pools = lock();
    let before = persistent();
    let size = beyond_the_pool(2);
    // With the lock, and without.
    for lock in ["touch /run/hugemr/lock", ":"] {
        for words in ["reserve", "register --reserve $SIM"] {
            let words = words.replacen(' ', &format!(" {size} "), 1);
            let words = if words.contains(&size) {
                words
            } else {
                format!("{words} {size}")
            };
            let out = in_a_folder_of_its_own(&format!(r#"{lock}; fill; "$HUGEMR" {words}"#));
            let said = text(&out);
            assert_eq!(out.status.code(), Some(3), "{words}: {said}");
            assert!(said.contains("No space left"), "{words}: {said}");
            assert!(!said.contains("given back"), "{words}: {said}");
            assert!(!said.contains("stay"), "{words}: {said}");
        }
    }
    is_as_before(before, "full");
}

#[test]
#[ignore = "needs huge pages and root"]
fn what_stays_is_said_with_the_command_that_takes_it_back() {
    let _pools = lock();
    let before = persistent();
    let size = beyond_the_pool(2);
    for flag in ["", "--json"] {
        let out = in_a_folder_of_its_own(&format!(
            r#"hold {size} {flag}; mount -o remount,ro /run/hugemr; kill -TERM $PID; wait $PID; echo "ended $?"
            cat "$DIR/err"; tail -n 1 "$DIR/out"; mount -o remount,rw /run/hugemr; "$HUGEMR" release --stale"#
        ));
        let said = text(&out);
        assert!(said.contains("ended 3"), "{said}");
        assert!(
            said.contains("2 pages of 2 MiB (4 MiB) stay in the pools"),
            "{said}"
        );
        assert!(
            said.contains("get back   sudo hugemr release --stale"),
            "{said}"
        );
        assert!(said.contains("released: 2 pages of 2 MiB"), "{said}");
        if flag == "--json" {
            let line = said.lines().find(|line| line.contains("pools_left"));
            let document: Value = serde_json::from_str(line.unwrap()).unwrap();
            let left = &document["pools_left"];
            assert_eq!(left["pools"][0]["pages"], 2, "{document}");
            assert_eq!(left["commands"][0], "sudo hugemr release --stale");
        }
        is_as_before(before, "read-only");
    }
}

#[test]
#[ignore = "needs huge pages and root"]
fn a_ledger_that_is_not_understood_has_a_way_out() {
    let _pools = lock();
    let before = persistent();
    let size = beyond_the_pool(2);
    for words in [&format!("reserve {size}")[..], "release", "release --stale"] {
        let out = in_a_folder_of_its_own(&format!(
            r#"echo junk > /run/hugemr/ledger; "$HUGEMR" {words}; echo "ended $?"
            mv /run/hugemr/ledger /run/hugemr/ledger.bad && "$HUGEMR" {words} && "$HUGEMR" release"#
        ));
        let said = text(&out);
        assert!(said.contains("ended 3"), "{words}: {said}");
        assert!(
            said.contains("sudo mv /run/hugemr/ledger /run/hugemr/ledger.bad"),
            "{words}: {said}"
        );
        assert_eq!(out.status.code(), Some(0), "{words}: {said}");
        is_as_before(before, words);
    }
}

#[test]
#[ignore = "needs huge pages and root"]
fn pages_of_the_dead_are_no_pages_to_count_on() {
    let _pools = lock();
    let before = persistent();
    let size = beyond_the_pool(2);
    let out = in_a_folder_of_its_own(&format!(
        r#"hold {size}; kill -KILL $PID; wait $PID 2>/dev/null
        "$HUGEMR" doctor --all --device sim:erdma; "$HUGEMR" reserve {size}; "$HUGEMR" reserve {size} --json | grep stale
        "$HUGEMR" release --stale"#
    ));
    let said = text(&out);
    assert!(
        said.contains("2 pages of 2 MiB were added by a hugemr that is gone"),
        "{said}"
    );
    assert!(said.contains("nothing to do: "), "{said}");
    assert!(
        said.contains("sudo hugemr release --stale takes them away"),
        "{said}"
    );
    assert!(said.contains(r#""stale": 2"#), "{said}");
    assert!(said.contains("released: 2 pages"), "{said}");
    is_as_before(before, "the dead");
}

#[test]
#[ignore = "needs huge pages and root"]
fn pages_that_another_hand_has_taken_are_said_to_be_gone() {
    let _pools = lock();
    let before = persistent();
    let size = beyond_the_pool(2);
    let out = in_a_folder_of_its_own(&format!(
        r#""$HUGEMR" reserve {size}; echo {before} > {FILE}; "$HUGEMR" release --dry-run; "$HUGEMR" release"#
    ));
    let said = text(&out);
    if before == 0 {
        let gone = "2 pages of 2 MiB (4 MiB) gone already: the pool was lowered by another hand";
        assert_eq!(said.matches(gone).count(), 2, "{said}");
        assert!(!said.contains("released"), "{said}");
    } else {
        // What is there is another's: nobody can tell them apart.
        std::fs::write(FILE, before.to_string()).unwrap();
    }
    is_as_before(before, "gone");
}

#[test]
#[ignore = "needs huge pages and root"]
fn who_finds_nothing_left_to_do_says_so() {
    if !cfg!(debug_assertions) {
        eprintln!("a release build of hugemr has no HUGEMR_TEST_AT");
        return;
    }
    let _pools = lock();
    let before = persistent();
    let size = beyond_the_pool(4);
    let out = in_a_folder_of_its_own(&format!(
        r#"state() {{ sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null; }}
        HUGEMR_TEST_AT=raising:stop "$HUGEMR" reserve {size} >"$DIR/first" 2>&1 & FIRST=$!
        for i in $(seq 600); do [ "$(state $FIRST)" = T ] && break; sleep 0.05; done
        "$HUGEMR" reserve {size} >"$DIR/second" 2>&1 & SECOND=$!
        for i in $(seq 600); do grep -q ^changing "$DIR/second" && break; sleep 0.05; done
        kill -CONT $FIRST; wait $FIRST; wait $SECOND; echo "ended $?"; cat "$DIR/second"; "$HUGEMR" release"#
    ));
    let said = text(&out);
    assert!(said.contains("ended 0"), "{said}");
    assert!(said.contains("nothing was left to do: "), "{said}");
    assert!(said.contains("released: 4 pages"), "{said}");
    is_as_before(before, "two at once");
}

/// What one is mapping is not counted twice by the others, and what it gives back is not counted on.
#[test]
#[ignore = "needs huge pages and root"]
fn three_at_once_add_what_each_needs() {
    let _pools = lock();
    let before = persistent();
    if available() > 0 {
        eprintln!("huge pages are free already: not tried");
        return;
    }
    let out = in_a_folder_of_its_own(
        r#"for round in $(seq 12); do
            for one in 1 2 3; do "$HUGEMR" register 32MiB --reserve $SIM 2>&1 & done; wait
        done"#,
    );
    let said = text(&out);
    let added = said
        .matches("reserve    16 pages of 2 MiB (32 MiB) added")
        .count();
    assert_eq!(added, 36, "{said}");
    assert_eq!(said.matches("registered 32 MiB").count(), 36, "{said}");
    is_as_before(before, "three at once");
}
