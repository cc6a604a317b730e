//! Flags that would have no effect beside each other, and values that say nothing: refused, and never passed over.

use std::process::Command;

use crate::common::{ARTICLE, Ran, run};

/// Runs a line in which SIM stands for 1 GiB on a simulated device.
fn on_sim(line: &str) -> Ran {
    run(&line.replace("SIM", &format!("1GiB --device {ARTICLE}")))
}

/// A command line, and words of its refusal: the flags, and what to drop or to add.
const REFUSED: &str = "
    plan SIM --one-mr --chunk 1GiB                          | --one-mr, --chunk
    register SIM --one-mr --chunk 1GiB                      | --one-mr, --chunk
    plan SIM --list --explain                               | --list, --explain
    plan SIM --list --estimate                              | --list, --estimate
    plan SIM --rate pin=1GiB/s                              | --estimate
    register SIM --rate pin=1GiB/s                          | --estimate
    register SIM --estimate                                 | --estimate, add --memory real
    register SIM --reserve                                  | --reserve, add --memory real
    register SIM --node 0                                   | --node, add --memory real
    register SIM --interleave                               | --interleave, add --memory real
    register SIM --alias-pages 2                            | --alias-pages, add --memory real
    register SIM --memory real --layout contiguous          | --layout, drop it, --memory none
    register SIM --memory real --layout scattered           | --layout, drop it, --memory none
    register SIM --memory real --reserve --pages 4KiB       | --reserve, drop it, --pages 2MiB
    register SIM --memory real --reserve --pages thp        | --reserve, drop it, --pages 2MiB
    register SIM --memory real --interleave --pages thp     | --interleave, drop it, --pages 2MiB
    register SIM --memory real --interleave --pages 4KiB    | --interleave, drop it, --pages 2MiB
    register SIM --memory real --alias-pages 2 --node 0     | --alias-pages, --node
    register SIM --memory real --alias-pages 2 --interleave | --alias-pages, --interleave
    register SIM --memory real --node 0 --interleave        | --node, --interleave
    register SIM --devices 2                                | --devices
    register SIM --pds 2                                    | --pds
    reserve 1GiB --node 0 --spread                          | --node, --spread
    doctor --budget 5                                       | --budget, add --for, drop it
    doctor --max-mr 5                                       | --max-mr, add --for, drop it
    doctor --max-mr-size 5GiB                               | --max-mr-size, add --for
    doctor --limits x                                       | --limits, add --for, drop it
    doctor --pages 2MiB                                     | --for
    doctor --facts x --save y                               | --facts, --save
    doctor --facts x --host-root /tmp                       | --facts, --host-root, drop
    doctor --facts x --pid 1                                | --facts, --pid
    diagnose --errno EIO --limits x                         | --limits, add --device, drop it
    diagnose x --errno EIO                                  | --errno, LOG
    learn --ok 1GiB --limits x                              | --limits, add --device, drop it
    man plan --to x                                         | --to
";

/// Exit 2; one sentence that names the flags, and what to drop or to add.
#[test]
fn a_flag_without_effect_is_refused() {
    let rows = REFUSED.trim().lines();
    for (line, named) in rows.map(|row| row.split_once('|').expect("two columns")) {
        let ran = on_sim(line).exits(2);
        assert!(ran.out.is_empty(), "{line}: {}", ran.out);
        for word in named.split(',').map(str::trim) {
            assert!(ran.err.contains(word), "{line}: no {word:?} in {}", ran.err);
        }
    }
}

/// What looks like such a pair and has an effect.
#[test]
fn flags_with_effect_are_taken() {
    for line in [
        "plan SIM --one-mr --block 1MiB",
        "register SIM --layout contiguous",
        "register SIM --memory none --layout scattered",
        "doctor --memlock unlimited --kernel 6.12.31",
        "diagnose --errno EIO --budget unknown",
    ] {
        let ran = on_sim(line);
        assert!(ran.code != 2, "{line}: {}", ran.err);
    }
}

/// What `--other` adds to the need stands in a row of its own.
#[test]
fn the_part_of_the_need_that_is_of_others_is_told() {
    let line = "plan 10GiB --device sim:erdma --pds 2 --other 80GiB@64KiB";
    let plain = |line: &str| {
        let out = run(line).exits(0).out;
        let rows = out
            .lines()
            .map(|row| row.split_whitespace().collect::<Vec<_>>().join(" "));
        rows.collect::<Vec<_>>()
    };
    for (more, row) in [
        ("", "of which 1,310,720 - --other"),
        (" --other 4KiB@4KiB", "of which 1,310,721 - --other"),
        // Of these pages the need is not certain, what others hold is.
        (" --pages thp", "of which 1,310,720 - --other"),
    ] {
        let rows = plain(&format!("{line}{more}"));
        assert!(rows.iter().any(|had| had == row), "{more}: {rows:?}");
    }
    let rows = plain("plan 10GiB --device sim:erdma");
    assert!(
        !rows.iter().any(|row| row.starts_with("of which")),
        "{rows:?}"
    );
}

/// An empty word, or one of separators alone.
#[test]
fn an_empty_value_is_refused() {
    let plan = ["plan", "1GiB", "--device", ARTICLE];
    let register = ["register", "1GiB", "--device", ARTICLE];
    for (command, flag, values) in [
        (&plan[..1], "", &["", " "][..]),
        (&plan[..2], "--device", &["", "sim:"]),
        (&plan, "--pages", &["", " "]),
        (&plan, "--chunk", &["", "0", "0GiB"]),
        (&plan, "--block", &["", "0"]),
        (&plan, "--devices", &["", "0"]),
        (&plan, "--pds", &["", "0"]),
        (&plan, "--leave", &["", "%", ","]),
        (&plan, "--other", &["", "@", "1GiB@", "@4KiB"]),
        (&plan, "--max-mr-size", &["", "0"]),
        (&plan, "--max-mr", &["", "_"]),
        (&plan, "--budget", &["", "-", "5-", "-5"]),
        (&plan, "--kernel", &["", "."]),
        (&plan, "--driver", &[""]),
        (&plan, "--memlock", &[""]),
        (&plan, "--limits", &[""]),
        (&plan, "--config", &[""]),
        (&register, "--access", &["", ",", " , "]),
        (&register, "--memory", &[""]),
        (&register, "--layout", &[""]),
        (&register, "--threads", &["", "0"]),
        (&register, "--prove", &[""]),
        (&["reserve"], "", &["", "0"]),
        (&["reserve", "1GiB", "--dry-run"], "--pages", &[""]),
        (&["reserve", "1GiB", "--dry-run"], "--node", &[""]),
        (&["diagnose"], "--errno", &["", "-"]),
        (&["diagnose", "--errno", "EIO"], "--family", &[""]),
        (&["diagnose", "--errno", "EIO"], "--length", &[""]),
        (&["diagnose", "--errno", "EIO"], "--page", &["", "0"]),
        (&["doctor"], "--for", &[""]),
        (&["doctor"], "--pid", &["", "0", "99999999", "4294967296"]),
        (&["doctor"], "--host-root", &[""]),
        (&["doctor"], "--facts", &[""]),
        (&["doctor"], "--save", &[""]),
        (&["inspect"], "--pid", &["", "0", "99999999"]),
        (&["probe", "--device", ARTICLE], "--deadline", &[""]),
        (&["learn"], "--ok", &[""]),
        (&["replay"], "", &[""]),
    ] {
        for value in values {
            let mut words = command.to_vec();
            let joined = format!("{flag}={value}");
            words.push(if flag.is_empty() { value } else { &joined });
            let ran: Ran = Command::new(env!("CARGO_BIN_EXE_hugemr"))
                .args(&words)
                .output()
                .expect("the command starts")
                .into();
            assert_eq!(ran.code, 2, "{words:?}: {} {}", ran.out, ran.err);
            assert!(!ran.err.trim().is_empty(), "{words:?}");
        }
    }
    let err = run("register 1GiB --device sim:erdma --access=")
        .exits(2)
        .err;
    assert!(err.contains("local-write, remote-read"), "{err}");
}

/// Two that cannot be used together: what they would mean, and which one to drop for what; with JSON as one document.
#[test]
fn two_that_exclude_each_other_say_which_to_drop() {
    let sim = format!("1GiB --device {ARTICLE}");
    for (line, said) in [
        (
            format!("plan {sim} --chunk 1GiB --one-mr"),
            "--one-mr cannot be used with --chunk: one MR is as long as its buffer; drop --chunk",
        ),
        (
            format!("plan {sim} --list --explain --estimate"),
            "--list cannot be used with --explain",
        ),
        (
            format!("register {sim} --memory real --alias-pages 2 --node 0"),
            "drop --node, or --alias-pages",
        ),
        (
            "diagnose log.txt --errno EIO".to_owned(),
            "LOG cannot be used with --errno: the errno is read from the log",
        ),
        ("man plan --to /tmp".to_owned(), "drop the command"),
        (
            format!("plan {sim} --chunk 1GiB --chunk 2GiB"),
            "--chunk is given twice, and counts once",
        ),
        (
            format!(
                "plan {sim} --estimate --rate populate=3GiB/s --rate pin=1GiB/s --rate populate=4GiB/s"
            ),
            "--rate populate is given twice, and counts once; drop one",
        ),
        (
            format!("register {sim} --memory real --estimate --rate mr=3/s --rate mr=3/s"),
            "--rate mr is given twice",
        ),
    ] {
        let ran = run(&line).exits(2);
        assert!(ran.err.contains(said), "{line}: {}", ran.err);
        assert!(ran.out.is_empty(), "{line}: {}", ran.out);
        if !line.starts_with("man") {
            let json = run(&format!("{line} --json")).exits(2).json();
            let error = json["error"].as_str().expect("text");
            assert!(error.contains(said), "{line}: {error}");
        }
    }
}

/// A number below 0 with its flag and whatever stands behind it; what is no number at all is said once.
#[test]
fn a_value_that_is_no_number_is_said_as_it_was_typed() {
    for (line, said) in [
        (
            "plan SIM --leave -1%",
            "--leave -1%: no size and no count is below 0",
        ),
        ("plan SIM --chunk -1GiB", "--chunk -1GiB: no size"),
        (
            "plan SIM --other -80GiB@64KiB",
            "--other -80GiB@64KiB: no size",
        ),
        ("register SIM --threads -1", "--threads -1: no size"),
        ("register SIM --threads=-1", "\"-1\" is below 0"),
        ("plan -1.5TiB", "-1.5TiB: no size"),
        ("plan abc", "\"abc\" does not start with a number"),
        ("plan 3foo", "\"foo\" in \"3foo\" is no unit"),
        (
            "plan SIM --estimate --rate populate=-3GiB/s",
            "\"-3GiB\" does not start with a number",
        ),
    ] {
        let ran = on_sim(line).exits(2);
        assert!(ran.err.contains(said), "{line}: {}", ran.err);
        assert!(!ran.err.contains("from 0 on"), "{line}: {}", ran.err);
    }
}
