//! JSON is one contract: each command, whether it succeeds, refuses or fails, writes nothing but documents with a schema on
//! standard output: one, or, where `docs/json.md` says so, one a line.

use serde_json::Value;

use crate::common::{ARTICLE, run};

/// Documents of a line of JSON Lines commands; of others the only one.
fn documents(line: &str, out: &str) -> Vec<Value> {
    let lines = line.starts_with("replay") || line.contains("--hold") || line.contains("--list");
    let parse = |text: &str| -> Value {
        serde_json::from_str(text).unwrap_or_else(|e| panic!("{line}: {e} in {text:?}"))
    };
    if lines {
        out.lines().map(parse).collect()
    } else {
        vec![parse(out)]
    }
}

#[test]
fn every_answer_of_every_command_is_json() {
    let facts = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let cases = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/vectors/cases.jsonl"
    );
    let own = std::process::id();
    let docs = include_str!("../../../../docs/json.md");
    let mut schemas = std::collections::BTreeSet::new();
    for line in [
        format!("plan 896GiB --device {ARTICLE}"),
        format!("plan 896GiB --device {ARTICLE} --explain"),
        format!("plan 896GiB --device {ARTICLE} --list"),
        format!("plan 896GiB --device {ARTICLE} --pages 4KiB"),
        format!("plan 896GiB --device {ARTICLE} --pages 4KiB --list"),
        format!("plan 896GiB --device {ARTICLE} --budget unknown --strict"),
        "plan 0 --device sim:erdma".to_owned(),
        "plan 1XB --device sim:erdma".to_owned(),
        "plan 1GiB --device sim:none".to_owned(),
        "plan".to_owned(),
        format!("register 896GiB --device {ARTICLE}"),
        format!("register 896GiB --device {ARTICLE} --verify --prove"),
        format!("register 896GiB --device {ARTICLE} --pages 4KiB"),
        format!("register 896GiB --device {ARTICLE} --pages 4KiB --force"),
        format!("register 1GiB --device {ARTICLE} --budget unknown --strict"),
        format!("register 1GiB --device {ARTICLE} --devices 2 --pds 3"),
        format!("register 1GiB --device {ARTICLE} --reserve"),
        format!("register 64MiB --device {ARTICLE} --memory real --pages 16KiB --force"),
        "reserve 1KiB --dry-run".to_owned(),
        "reserve 0".to_owned(),
        "reserve 15EiB --dry-run".to_owned(),
        "reserve 2MiB --pages 3MiB".to_owned(),
        "release --dry-run".to_owned(),
        "release --stale --dry-run".to_owned(),
        "release now".to_owned(),
        "devices".to_owned(),
        "devices --simulated".to_owned(),
        "devices 1".to_owned(),
        "diagnose --errno EIO".to_owned(),
        "diagnose --errno E2BIG".to_owned(),
        "diagnose --errno EWHAT".to_owned(),
        format!("diagnose {facts}"),
        "diagnose /dev/zero".to_owned(),
        "diagnose".to_owned(),
        "doctor".to_owned(),
        format!("doctor --for 896GiB --device {ARTICLE}"),
        format!("doctor --for 896GiB --device {ARTICLE} --pages 4KiB"),
        format!("doctor --facts {facts}"),
        format!("doctor --facts {facts} --pid {own}"),
        "doctor --pid abc".to_owned(),
        format!("inspect --pid {own}"),
        "inspect --pid 4294967295".to_owned(),
        "inspect".to_owned(),
        format!("probe --device {ARTICLE} --dry-run"),
        "probe --device sim:none".to_owned(),
        "learn --ok 100GiB --fail 200GiB".to_owned(),
        "learn --ok 200GiB --fail 100GiB".to_owned(),
        "learn".to_owned(),
        "usage".to_owned(),
        "usage --device none".to_owned(),
        format!("replay {cases}"),
        format!("replay {facts}"),
        "replay /dev/zero".to_owned(),
        "nothing".to_owned(),
        "--frob".to_owned(),
    ] {
        let ran = run(&format!("{line} --json"));
        assert!((0..=3).contains(&ran.code), "{line}: {}", ran.code);
        let list = documents(&line, &ran.out);
        assert!(!list.is_empty(), "{line}");
        for document in list {
            let schema = document["schema"].as_str();
            let schema = schema.unwrap_or_else(|| panic!("{line}: no schema in {document}"));
            schemas.insert(schema.to_owned());
            if schema == "hugemr/error/1" {
                assert_eq!(document["exit"], ran.code, "{line}");
                assert!(document["error"].is_string(), "{line}");
            }
        }
    }
    for schema in schemas {
        assert!(
            docs.contains(&format!("`{schema}`")),
            "docs/json.md lacks {schema}"
        );
    }
}

/// Held and released are two documents, one a line, with the same keys.
#[test]
fn a_held_registration_is_two_lines() {
    let mut child =
        crate::common::hugemr(&format!("register 1GiB --device {ARTICLE} --hold --json"))
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("the command starts");
    let mut out = std::io::BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    let mut next = |line: &mut String| {
        line.clear();
        std::io::BufRead::read_line(&mut out, line).expect("a line");
        serde_json::from_str::<Value>(line).expect("one document a line")
    };
    let held = next(&mut line);
    assert!(held["released"].is_null());
    let hangup = std::process::Command::new("kill")
        .args(["-s", "HUP", &child.id().to_string()])
        .status()
        .expect("kill");
    assert!(hangup.success());
    let released = next(&mut line);
    assert_eq!(released["released"]["mrs"], 1);
    assert_eq!(held["mrs"], released["mrs"]);
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

/// The diagnosis of a registration that failed is data, and what stood is, too.
#[test]
fn a_failed_registration_has_its_diagnosis() {
    let ran = run(&format!(
        "register 896GiB --device {ARTICLE} --pages 4KiB --force --threads 1 --json"
    ))
    .exits(3);
    let document = ran.json();
    assert_eq!(document["diagnosis"]["schema"], "hugemr/diagnosis/1");
    assert_eq!(document["diagnosis"]["causes"][0]["cause"], "table_full");
    assert_eq!(document["failed"]["stood"], document["failed"]["mr"]);
}

/// A kernel that has no large pages: the cause, and not the table that is full because of it.
#[test]
fn a_kernel_without_large_pages_is_the_cause() {
    let ran = run(&format!(
        "register 896GiB --device {ARTICLE} --kernel 4.19 --pages 2MiB --force --json"
    ))
    .exits(3);
    let first = &ran.json()["diagnosis"]["causes"][0];
    assert_eq!(first["cause"], "small_pages", "{first}");
    assert_eq!(first["standing"], "likely");
    assert!(
        first["fix"].as_str().is_some_and(|fix| fix.contains("5.2")),
        "{first}"
    );
}

/// Kernel memory of the same runs as of the same entries: at worst each page of THP is one of both.
#[test]
fn thp_at_worst_costs_what_small_pages_cost() {
    let memory = |pages: &str| {
        let line =
            format!("plan 896GiB --device {ARTICLE} --budget 999999999 --pages {pages} --json");
        run(&line).exits(0).json()["kernel_memory"].as_u64()
    };
    assert!(memory("thp").is_some());
    assert_eq!(memory("thp"), memory("4KiB"));
}

/// What is only kept for others is refused by no device: no errno, and no MR that would fail.
#[test]
fn a_refusal_by_what_is_left_has_no_errno() {
    for (more, errno) in [
        ("--leave 33554000", Value::Null),
        ("--leave 100%", Value::Null),
        ("--other 128GiB@4KiB", Value::Null),
        ("--budget 1000", "EIO".into()),
        ("--budget 1000 --leave 10", "EIO".into()),
    ] {
        let line = format!("plan 896GiB --device {ARTICLE} --pages 2MiB --json");
        let json = run(&format!("{line} {more}")).exits(1).json();
        assert_eq!(json["verdict"], "over_budget", "{more}");
        assert_eq!(json["errno"], errno, "{more}");
        assert_eq!(json["first_failure"].is_null(), errno.is_null(), "{more}");
    }
}
