//! A process that is stopped, panics or is killed, at every step.

use std::os::unix::process::ExitStatusExt as _;

use hugemr::Step;

use crate::*;

/// What there is at the beginning of a step, when the process dies there: pages of its own in the pools? `None`: a
/// simulated device never comes there.
fn raised_at(step: Step) -> Option<bool> {
    match step {
        Step::Reserve => Some(false),
        Step::Map
        | Step::Populate
        | Step::Layout
        | Step::Register
        | Step::Hold
        | Step::Deregister
        | Step::Unmap
        | Step::GiveBack => Some(true),
        // It moves no data.
        Step::Verify => None,
    }
}

/// How a run ends that was asked to stop at the beginning of a step: what came too late ends well.
fn exit_when_stopped_at(step: Step) -> i32 {
    match step {
        Step::Reserve | Step::Map | Step::Populate | Step::Layout | Step::Register => 3,
        Step::Verify | Step::Hold | Step::Deregister | Step::Unmap | Step::GiveBack => 0,
    }
}

#[test]
#[ignore = "needs huge pages and root"]
fn at_every_step_signals_a_panic_and_kill_9_leave_the_pool_as_it_was() {
    if !cfg!(debug_assertions) {
        eprintln!("a release build of hugemr has no HUGEMR_TEST_AT");
        return;
    }
    let _pools = lock();
    let before = persistent();
    let own = Step::ALL.map(|step| (step.name(), raised_at(step), exit_when_stopped_at(step)));
    // And in the middle of the two that change the pools, just before the write.
    let within = [("raising", Some(false), 3), ("lowering", Some(true), 0)];
    for (step, raised, stopped) in own.into_iter().chain(within) {
        for action in ["int", "term", "hup", "panic", "kill"] {
            let at = format!("{step}:{action}");
            let size = beyond_the_pool(16);
            let child = hugemr(&["register", &size, "--reserve"])
                .args(SIM)
                .env("HUGEMR_TEST_AT", &at)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let pid = child.id();
            let out = child.wait_with_output().unwrap();
            let said = text(&out);
            let Some(raised) = raised else {
                assert_eq!(out.status.code(), Some(0), "{at}: {said}");
                is_as_before(before, &at);
                continue;
            };
            match action {
                "kill" => {
                    assert_eq!(out.status.signal(), Some(9), "{at}: {said}");
                    assert_eq!(added_by(pid), if raised { 16 } else { 0 }, "{at}");
                    let stale = json(&["release", "--stale", "--json"], 0);
                    assert_eq!(pages(&stale["pools"]), if raised { 16 } else { 0 }, "{at}");
                    assert_eq!(stale["changed"], raised, "{at}");
                }
                "panic" => {
                    assert_eq!(out.status.code(), Some(101), "{at}: {said}");
                    assert!(said.contains("a planned panic"), "{at}: {said}");
                }
                _ => {
                    assert_eq!(out.status.code(), Some(stopped), "{at}: {said}");
                    let name = format!("SIG{}", action.to_uppercase());
                    assert!(step == "hold" || said.contains(&name), "{at}: {said}");
                    if step == "register" {
                        assert!(
                            said.contains("pinning of an MR cannot be interrupted"),
                            "{said}"
                        );
                    }
                }
            }
            assert_eq!(added_by(pid), 0, "{at}");
            is_as_before(before, &at);
        }
    }
}

#[test]
#[ignore = "needs huge pages and root"]
fn a_holding_process_gives_back_on_a_signal_from_outside() {
    let _pools = lock();
    let before = persistent();
    for name in [
        "INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "ALRM", "ABRT", "RTMIN+3", "KILL",
    ] {
        let mut child = holding(16);
        assert_eq!(added_by(child.id()), 16);
        assert_eq!(persistent(), before + 16);
        signal(&child, name);
        let status = child.wait().unwrap();
        if name == "KILL" {
            assert_eq!(status.signal(), Some(9));
            let would = json(&["release", "--stale", "--dry-run", "--json"], 0);
            assert_eq!(
                (pages(&would["pools"]), &would["changed"]),
                (16, &Value::Bool(false))
            );
            assert_eq!(persistent(), before + 16, "a dry run changes nothing");
            let out = output(&mut hugemr(&["release"]));
            assert!(
                text(&out).contains("sudo hugemr release --stale"),
                "{}",
                text(&out)
            );
            let out = output(&mut hugemr(&["release", "--stale"]));
            assert!(
                text(&out).contains("16 pages of 2 MiB (32 MiB) given back"),
                "{}",
                text(&out)
            );
        } else {
            assert_eq!(status.code(), Some(0));
        }
        is_as_before(before, name);
    }
}
