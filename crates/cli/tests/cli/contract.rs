//! Exit codes, and which stream says what.

use crate::common::{ARTICLE, Ran, hugemr, run};

/// Bad usage: exit 2, a word on standard error, nothing on standard output.
#[test]
fn bad_usage_is_2() {
    for line in [
        "",
        "plam",
        "plan",
        "plan 12XB --device sim:erdma",
        "plan -1 --device sim:erdma",
        "plan 1.1KiB --device sim:erdma",
        "plan 17EiB --device sim:erdma",
        "plan 1GiB --device sim:nope",
        "plan 1GiB --device sim:./no-such-file.toml",
        "plan 1GiB --device sim:erdma --frob",
        "plan 1GiB --device sim:erdma --pages 3MiB",
        "plan 1GiB --device sim:erdma --budget 5-4",
        "plan 1GiB --device sim:erdma --budget many",
        "plan 1GiB --device sim:erdma --kernel six",
        "plan 1GiB --device sim:erdma --driver 1.5",
        "plan 1GiB --device sim:erdma --block 0",
        "plan 1GiB --device sim:erdma --leave 101%",
        "plan 1GiB --device sim:erdma --other 80GiB",
        "plan 1GiB --device sim:erdma --pds 0",
        "plan 1GiB --device sim:erdma --list --explain",
        "plan 1GiB --device sim:erdma --chunk 0",
        "inspect --pid 99999999",
        "doctor --pid 99999999",
        "man plam",
        "register 1GiB --device sim:erdma --devices 2",
        "plan 1GiB --device sim:erdma --kernel 5.15 --driver in-tree",
        "doctor --facts no-such-file.json --pid 1",
        "plan 1GiB --device sim:erdma --kernel 5.15.0-107-generic",
        "plan 1GiB --device ./device.toml",
        "register 1GiB --device sim:erdma --access remote-write",
        "register 1GiB --device sim:erdma --access everything",
        "register 1GiB --device sim:erdma --memory some",
        "register 1GiB --device sim:erdma --threads 0",
        "diagnose",
        "diagnose --errno EWHAT",
        "diagnose --errno EIO --family erdna",
        "devices 1GiB",
        "replay",
        "replay no-such-file.jsonl",
    ] {
        let ran = run(line).exits(2);
        if line.contains("--json") {
            assert!(ran.out.contains("hugemr/error/1"), "{line}: {}", ran.out);
        } else {
            assert!(ran.out.is_empty(), "{line}: {}", ran.out);
        }
        assert!(!ran.err.trim().is_empty(), "{line}");
    }
}

/// A bad value is named, with what would be right.
#[test]
fn bad_usage_names_what_is_wrong() {
    for (line, named) in [
        ("plan 12XB --device sim:erdma", "12XB"),
        ("plan 1GiB --device sim:nope", "ecs.r8a.32xlarge"),
        ("plan 1GiB --device sim:erdma --frob", "--frob"),
        ("plan 1GiB --device sim:erdma --driver 1.5", "1.5.7"),
        ("plan 1GiB --device ./x.toml", "sim:./x.toml"),
        ("plan 1GiB --device=", "is empty"),
        (
            "plan 1GiB --device sim:erdma --kernel 5.15.0-107-generic",
            "5.15.0",
        ),
        ("register 1GiB --device sim:erdma --threads 0", "at least 1"),
        ("register 1GiB --device sim:erdma --devices=-1", "below 0"),
        ("plan 1GiB --device sim:erdma --budget=-1", "LOW-HIGH"),
        ("inspect --pid abc", "no whole number"),
        ("diagnose --errno EWHAT", "EWHAT"),
        ("replay no-such-file.jsonl", "no-such-file.jsonl"),
    ] {
        let err = run(line).exits(2).err;
        assert!(err.contains(named), "{line}: {err}");
    }
}

#[test]
fn yes_is_0() {
    for line in [
        "--help",
        "--version",
        "plan --help",
        "man",
        "completions bash",
        "devices",
        "devices --simulated",
        "diagnose --errno EIO",
        "diagnose --errno 5 --family efa",
        "plan 1GiB --device sim:erdma",
        "plan 1GiB 2GiB --device sim:verbs --explain",
    ] {
        let ran = run(line).exits(0);
        assert!(!ran.out.is_empty(), "{line}");
        assert!(ran.err.is_empty(), "{line}: {}", ran.err);
    }
}

#[test]
fn undecided_is_0_and_strictly_1() {
    let line = "plan 896GiB --device sim:erdma";
    run(line).exits(0).says("undecided");
    run(&format!("{line} --strict")).exits(1);
    run("register 896GiB --device sim:erdma --strict").exits(1);
}

/// A refusal is an answer: exit 1, on standard output, with the limit, the need, the largest size and the way out.
#[test]
fn a_refusal_is_1() {
    for command in ["plan", "register"] {
        let ran = run(&format!("{command} 896GiB --device {ARTICLE} --pages 4KiB"))
            .exits(1)
            .says("234,881,024")
            .says("33,554,431")
            .says("128 GiB - 4 KiB")
            .says("2 MiB")
            .says("EIO");
        assert!(ran.err.is_empty(), "{}", ran.err);
    }
    run("plan 0 --device sim:erdma").exits(1);
    run(&format!("plan 896GiB --device {ARTICLE} --kernel 4.19"))
        .exits(1)
        .says("4.19");
}

/// A way out is a command that can be typed: the same verb with the same flags, and no wish that it would break.
#[test]
fn a_way_out_can_be_typed() {
    let ran = run("register 64TiB --one-mr --device sim:verbs --pages 1GiB --force --hold --threads 2 --memory none --access remote-read")
        .exits(3);
    assert!(ran.err.contains("EINVAL"), "{}", ran.err);
    let refused =
        run("register 64TiB --one-mr --device sim:verbs --pages 1GiB --verify --threads 2")
            .exits(1)
            .says("16 TiB - 4 KiB");
    let (_, way) = refused
        .out
        .split_once("hugemr register ")
        .expect("a way out");
    let way = way.lines().next().expect("a line");
    assert_eq!(
        way,
        "64TiB --device sim:verbs --pages 1GiB --verify --threads 2 --chunk 17591112302592"
    );
    run(&format!("register {way}")).exits(0);
}

/// The system refuses: exit 3, with the MR, the errno, what became of the rest, and a diagnosis.
#[test]
fn a_forced_registration_that_fails_is_3() {
    let ran = run(&format!(
        "register 896GiB --device {ARTICLE} --pages 4KiB --force --threads 1"
    ))
    .exits(3);
    for text in ["MR 1 ", "EIO", "rolled back", "table_full"] {
        assert!(ran.err.contains(text), "no {text:?} in {}", ran.err);
    }
    assert!(ran.out.is_empty(), "{}", ran.out);
}

/// Pages that this host cannot map are refused before anything is populated, also by force.
#[test]
fn pages_that_cannot_be_mapped_are_refused() {
    for pages in ["16KiB", "512MiB"] {
        for force in ["", " --force"] {
            let ran = run(&format!(
                "register 512MiB --device sim:verbs --memory real --pages {pages}{force}"
            ))
            .exits(1);
            assert!(
                !(ran.out + &ran.err).contains("hugemr reserve"),
                "{pages}{force}"
            );
        }
    }
}

/// What an application would have to be given in a pool that this host can never have is no way out.
#[test]
fn a_pool_beyond_the_memory_is_no_way_out() {
    let ran = run("register 8PiB --device sim:verbs --memory real --pages 2MiB --reserve").exits(1);
    assert!(!ran.out.contains("reserve 8PiB"), "{}", ran.out);
}

/// A decimal unit is taken at its word, and said so.
#[test]
fn decimal_units_are_said() {
    let ran = run("plan 64GB --device sim:verbs").exits(0);
    assert!(ran.err.contains("64000000000 B"), "{}", ran.err);
    assert!(ran.err.contains("64GiB"), "{}", ran.err);
    assert!(run("plan 64GiB --device sim:verbs").err.is_empty());
    let json = run("plan 64GB --device sim:verbs --json").exits(0);
    assert_eq!(json.json()["wanted"], 64_000_000_000u64);
}

/// Answers with the number 1 have the word for one: each run is looked through (`one_of_many`).
#[test]
fn one_is_not_many() {
    for (line, code, one) in [
        ("plan 2MiB --device sim:erdma --pages 2MiB", 0, "1 MR"),
        (
            "plan 4KiB --device sim:erdma --pages 4KiB --explain",
            0,
            "1 MR",
        ),
        ("plan 1GiB 2MiB --device sim:verbs --explain", 0, "1 MR"),
        (
            "plan 2MiB --device sim:erdma --pages 4KiB --budget 1",
            1,
            "2 MiB pages: 1 page",
        ),
        (
            "plan 4MiB --device sim:erdma --pages 2MiB --budget 1",
            1,
            "MTT entries",
        ),
        (
            "plan 2MiB --device sim:erdma --budget 1 --leave 1",
            1,
            "needs 1 MTT entry",
        ),
        ("plan 2MiB --device sim:erdma --max-mr 0", 1, "needs 1 MR"),
        (
            "register 2MiB --device sim:ecs.r8a.32xlarge",
            0,
            "1 MR, page size 2 MiB, 1 entry",
        ),
        (
            "register 4KiB --device sim:verbs --pages 4KiB --memory real --threads 1",
            0,
            "1 thread",
        ),
        (
            "register 128KiB --device sim:verbs --pages 4KiB --chunk 4KiB --force --max-mr 1",
            3,
            "1 of 32 MRs",
        ),
        (
            "diagnose --errno EIO --length 4KiB --page 4KiB",
            0,
            "1 entry at 4 KiB",
        ),
        ("learn --ok 4KiB --fail 8KiB", 0, "1 entry"),
        (
            "probe --device sim:erdma --up-to 1 --deadline 5s",
            0,
            "entr",
        ),
    ] {
        let ran = run(line).exits(code);
        let said = ran.out + &ran.err;
        assert!(said.contains(one), "{line}: {said}");
    }
}

/// One document with a schema from every command, failures too.
#[test]
fn json_has_a_schema() {
    let refused = format!("896GiB --device {ARTICLE} --pages 4KiB");
    for (line, code, schema) in [
        ("plan 1GiB --device sim:erdma", 0, "hugemr/plan/1"),
        (&format!("plan {refused}"), 1, "hugemr/plan/1"),
        ("plan 0 --device sim:erdma", 1, "hugemr/plan/1"),
        ("plan 1GiB --device sim:nope", 2, "hugemr/error/1"),
        (
            "plan 1GiB --device sim:erdma --block 0",
            2,
            "hugemr/error/1",
        ),
        (
            &format!("register 896GiB --device {ARTICLE}"),
            0,
            "hugemr/register/1",
        ),
        (&format!("register {refused}"), 1, "hugemr/plan/1"),
        (&format!("register {refused} --force"), 3, "hugemr/error/1"),
        ("register 1GiB --device sim:nope", 2, "hugemr/error/1"),
        ("devices", 0, "hugemr/devices/1"),
        ("diagnose --errno EIO", 0, "hugemr/diagnosis/1"),
        ("replay no-such-file.jsonl", 2, "hugemr/error/1"),
    ] {
        let ran = run(&format!("{line} --json")).exits(code);
        assert_eq!(ran.json()["schema"], schema, "{line}");
    }
    let simulated = run("devices --simulated --json").exits(0).json();
    assert!(simulated["schema"].is_string());
}

/// What is not for a terminal has no escape sequences.
#[test]
fn output_to_a_pipe_is_plain() {
    for line in [
        "--help",
        "plan 1GiB --device sim:erdma",
        "devices --simulated",
    ] {
        let Ran { out, err, .. } = hugemr(line).output().expect("the command starts").into();
        assert!(!(out + &err).contains('\u{1b}'), "{line}");
    }
}

/// What was asked is named, in one line, whatever was typed.
#[test]
fn what_cannot_be_is_named_with_its_flag() {
    for (line, said) in [
        (
            "plan 1GiB --device sim:efa --max-mr -1",
            "--max-mr -1: no size",
        ),
        ("plan -1GiB --device sim:efa", "-1"),
        ("learn --ok -5", "--ok -5: no size"),
    ] {
        let ran = run(line).exits(2);
        assert!(ran.err.contains(said), "{line}: {}", ran.err);
        assert!(
            !ran.err.contains("unexpected argument"),
            "{line}: {}",
            ran.err
        );
    }
    let mut command = hugemr("plan 1GiB --device");
    let ran: Ran = command
        .arg("a\nb")
        .output()
        .expect("the command starts")
        .into();
    let ran = ran.exits(2);
    assert!(ran.err.contains(r"--device $'a\012b'"), "{}", ran.err);
    let ran = run("probe --device sim:efa --deadline 5m").exits(0);
    assert!(ran.err.contains("for up to 5m:"), "{}", ran.err);
    let ran = run("learn --ok 96GiB --fail 95GiB").exits(1);
    assert!(
        ran.err.contains("25,165,824 entries fitted and 24,903,680"),
        "{}",
        ran.err
    );
}
