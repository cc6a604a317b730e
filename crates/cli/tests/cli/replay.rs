//! `hugemr replay`: every public case, and everything that can be wrong with a line.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use snapbox::assert_data_eq;
use snapbox::str;

use crate::common::{Ran, run, run_with};

fn workspace(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

fn cases() -> String {
    std::fs::read_to_string(workspace("tests/vectors/cases.jsonl")).expect("the cases")
}

/// Excerpts of logs: the labelled cause first, or that it cannot be told.
#[test]
fn every_log_excerpt_is_explained_or_said_not_to_be() {
    let text =
        std::fs::read_to_string(workspace("tests/vectors/logs.jsonl")).expect("the excerpts");
    replay(&text)
        .exits(0)
        .says("12 passed, 0 failed, 0 skipped");
}

/// Ten more, chosen and labelled by others; at least two for each errno, each with its link and what the label was.
#[test]
fn the_excerpts_of_a_second_reader_have_their_labels() {
    let text = std::fs::read_to_string(workspace("tests/vectors/logs-public.jsonl"))
        .expect("the excerpts");
    replay(&text)
        .exits(0)
        .says("10 passed, 0 failed, 0 skipped");
    let mut errnos = std::collections::BTreeMap::new();
    for line in text.lines() {
        let vector: Value = serde_json::from_str(line).expect("JSON");
        let (_, errno) = vector["id"]
            .as_str()
            .and_then(|id| id.split_once('-'))
            .expect("a number and an errno");
        *errnos.entry(errno.to_owned()).or_insert(0) += 1;
        let link = vector["from"].as_str().expect("text");
        assert!(link.starts_with("https://github.com/"), "{link}");
        let note = vector["want"]["note"].as_str().expect("text");
        assert!(
            note.contains("labelled") && note.contains("first run"),
            "{note}"
        );
    }
    assert!(errnos.values().all(|n| *n >= 2), "{errnos:?}");
}

/// Every file of vectors passes, a new one too.
#[test]
fn every_file_of_vectors_passes() {
    let folder = std::fs::read_dir(workspace("tests/vectors")).expect("the folder");
    let mut files = 0;
    for entry in folder {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("text");
        replay(&text).exits(0).says(", 0 failed, 0 skipped");
        files += 1;
    }
    assert!(files >= 3, "{files}");
}

/// Replays text.
fn replay(text: &str) -> Ran {
    run_with("replay -", text.as_bytes())
}

/// The answers of `replay --json`, to the byte.
fn answers(text: &str) -> Vec<String> {
    #[derive(serde::Deserialize)]
    struct Line<'a> {
        #[serde(borrow, default)]
        answer: Option<&'a RawValue>,
    }
    let ran = run_with("replay - --json", text.as_bytes());
    let mut lines: Vec<&str> = ran.out.lines().collect();
    let summary: Value = serde_json::from_str(lines.pop().expect("a closing line")).expect("JSON");
    assert!(summary["summary"].is_object(), "{summary}");
    let answer = |line: &&str| {
        let line: Line<'_> = serde_json::from_str(line).expect("JSON");
        line.answer.expect("an answer").get().to_owned()
    };
    lines.iter().map(answer).collect()
}

#[test]
fn every_public_case_passes() {
    let file = workspace("tests/vectors/cases.jsonl");
    let count = cases().lines().count();
    assert!(count >= 56);
    let ran = run(&format!("replay {}", file.display())).exits(0);
    assert_eq!(ran.out.lines().count(), count + 1);
    let last = format!("{count} passed, 0 failed, 0 skipped");
    assert_eq!(ran.out.lines().last(), Some(last.as_str()));
    assert!(ran.err.is_empty(), "{}", ran.err);
}

/// An answer is made of `in` alone: without every `want`, `src` and `from`, under other ids and in another order it is the
/// same, to the byte.
#[test]
fn answers_do_not_depend_on_what_is_wanted() {
    let cases = cases();
    let mut stripped: Vec<String> = cases
        .lines()
        .enumerate()
        .map(|(i, line)| {
            let vector: Value = serde_json::from_str(line).expect("JSON");
            json!({ "id": format!("x{}", i * 7919), "op": vector["op"], "in": vector["in"] })
                .to_string()
        })
        .collect();
    let plain = answers(&cases);
    assert_eq!(answers(&stripped.join("\n")), plain);
    stripped.reverse();
    let mut backwards = answers(&stripped.join("\n"));
    backwards.reverse();
    assert_eq!(backwards, plain);
    // Wants that are all wrong change no answer either.
    let wrong: Vec<String> = stripped
        .iter()
        .map(|line| {
            let mut vector: Value = serde_json::from_str(line).expect("JSON");
            vector["want"] = json!({ "message": "something else" });
            vector.to_string()
        })
        .collect();
    let ran = replay(&wrong.join("\n")).exits(1);
    assert!(
        ran.out
            .ends_with(&format!("0 passed, {} failed, 0 skipped\n", plain.len()))
    );
    let mut answered = answers(&wrong.join("\n"));
    answered.reverse();
    assert_eq!(answered, plain);
}

/// Every number that a case wants can be told from its neighbour: a want that is off by one fails, each by itself.
#[test]
fn a_wrong_want_fails() {
    let mut wrong = Vec::new();
    for line in cases().lines() {
        let vector: Value = serde_json::from_str(line).expect("JSON");
        for (key, want) in vector["want"].as_object().expect("an object") {
            let other = match want {
                Value::Number(n) => json!(n.as_u64().expect("a count") + 1),
                Value::Bool(yes) => json!(!yes),
                Value::Null => json!("EIO"),
                Value::String(text) if matches!(key.as_str(), "verdict" | "errno" | "cause") => {
                    json!(format!("{text}x"))
                }
                _ => continue,
            };
            let mut off = vector.clone();
            off["id"] = json!(format!("{}/{key}", vector["id"].as_str().expect("text")));
            off["want"] = json!({ key.as_str(): other });
            wrong.push(off.to_string());
        }
    }
    assert!(wrong.len() > 100, "{}", wrong.len());
    let ran = replay(&wrong.join("\n")).exits(1);
    let passed: Vec<&str> = ran
        .out
        .lines()
        .filter(|line| line.starts_with("pass"))
        .collect();
    assert!(passed.is_empty(), "{passed:#?}");
    assert!(
        ran.out
            .ends_with(&format!("0 passed, {} failed, 0 skipped\n", wrong.len()))
    );
}

#[test]
fn each_outcome_has_its_line() {
    let text = r#"{"id":"fits","op":"plan","in":{"total":4294967296,"page":2097152},"want":{"verdict":"ok","mrs":1}}

{"id":"wrong","op":"plan","in":{"total":4294967296,"page":2097152},"want":{"mrs":2,"entries":7}}
{"id":"bare","op":"calc","in":{"log_num_mtt":20,"log_mtts_per_seg":3}}
{"id":"meant","op":"calc","in":{"log_num_mtt":20,"log_mtts_per_seg":3},"want":{"note":"any"}}
{"id":"key","op":"plan","in":{"totl":1}}
{"id":"want","op":"learn","in":{"ok_bytes":[4096]},"want":{"budget":1}}
not JSON
{"id":"fits","op":"plan","in":{"total":1},"want":{"mrs":1}}
{"id":"last","op":"lookup","in":{"chunks":[[0,4096]],"addr":0,"len":1},"want":{"chunk":0}}
"#;
    let ran = replay(text).exits(2);
    assert_data_eq!(
        ran.out,
        str![[r#"
pass fits plan  fits, 2,048 entries, 1 MR
FAIL wrong plan mrs: want 2, got 1; entries: want 7, got 2048
skip bare calc: nothing is wanted  registrable: 32 GiB
skip meant calc: nothing is wanted  registrable: 32 GiB
ERROR line 6, key plan: in: there is no key "totl" here, but [..]
ERROR line 7, want learn: want: "budget" is no field of this op's answer
ERROR line 8: an object, {...}, belongs here
ERROR line 9, fits plan: the id was used on a line before
pass last lookup  ok: MR 0 holds it
2 passed, 1 failed, 2 skipped, 4 broken lines

"#]]
    );
}

/// With JSON every line is one, the broken ones too, and the last one counts.
#[test]
fn json_is_one_document_a_line() {
    let text = concat!(
        r#"{"id":"a","op":"plan","in":{"total":4096},"want":{"mrs":2}}"#,
        "\nnothing\n"
    );
    let ran = run_with("replay - --json", text.as_bytes()).exits(2);
    let lines: Vec<Value> = ran
        .out
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert!(lines.iter().all(|line| line["schema"] == "hugemr/replay/1"));
    let [failed, broken, summary] = lines.as_slice() else {
        panic!("{}", ran.out)
    };
    assert_eq!(failed["outcome"], "fail");
    assert_eq!(
        failed["mismatches"],
        json!([{ "key": "mrs", "want": 2, "got": 1 }])
    );
    assert_eq!(failed["answer"]["mrs"], 1);
    assert_eq!(
        (&broken["outcome"], &broken["line"]),
        (&json!("error"), &json!(2))
    );
    let want = json!({ "passed": 0, "failed": 1, "skipped": 0, "broken": 1 });
    assert_eq!(summary["summary"], want);
}

const GOOD: &str = r#"{"id":"good","op":"plan","in":{"total":4096},"want":{"mrs":1}}"#;

/// A broken line is named and counted, and the rest is still run.
#[test]
fn a_broken_line_stops_nothing() {
    for (line, why) in [
        (
            r#"{"id":"a","op":"plan","in":{"total":-1}}"#.as_bytes(),
            "-1",
        ),
        (br#"{"id":"a","op":"plan","in":{"total":1.5}}"#, "1.5"),
        (
            br#"{"id":"a","op":"plan","in":{"total":18446744073709551616}}"#,
            "a whole number from 0 to 2^64 - 1 belongs",
        ),
        (br#"{"id":"a","op":"plan","in":{"total":"64GiB"}}"#, "64GiB"),
        (
            br#"{"id":"a","op":"plan","in":{"total":1,"total":2}}"#,
            "the key \"total\" is given twice",
        ),
        (br#"{"id":"a","op":"plan","in":{}}"#, "nothing is asked for"),
        (
            br#"{"id":"a","op":"plan","in":{"total":1,"pool":1}}"#,
            "only one of total, pool",
        ),
        (
            br#"{"id":"a","op":"plan","in":{"total":1,"page":3000}}"#,
            "3,000 B",
        ),
        (
            br#"{"id":"a","op":"plan","in":{"total":1,"dev":"edrma"}}"#,
            "edrma",
        ),
        (
            br#"{"id":"a","op":"plan","in":{"total":1,"driver":"1.5"}}"#,
            "1.5",
        ),
        (
            br#"{"id":"a","op":"plan","in":{"total":1,"access":"all"}}"#,
            "all",
        ),
        (
            br#"{"id":"a","op":"plan","in":{"buffers":999999999999,"bytes_each":1}}"#,
            "16384",
        ),
        (
            br#"{"id":"a","op":"plan","in":{"addr":4096}}"#,
            "addr and len",
        ),
        (
            br#"{"id":"a","op":"sim","in":{"total":1152921504606846976}}"#,
            "MRs are more than 16384",
        ),
        (
            br#"{"id":"a","op":"sim","in":{"total":1099511627776,"max_mr_size":4096}}"#,
            "16384",
        ),
        (
            br#"{"id":"a","op":"sim","in":{"total":4096,"effective_page":2097152}}"#,
            "effective_page",
        ),
        (
            br#"{"id":"a","op":"lookup","in":{"chunks":[[5,5],[0,1]],"addr":0,"len":1}}"#,
            "before",
        ),
        (
            br#"{"id":"a","op":"calc","in":{"log_num_mtt":60,"log_mtts_per_seg":3}}"#,
            "beyond",
        ),
        (
            br#"{"id":"a","op":"learn","in":{"ok_bytes":[8192],"fail_bytes":[4096]}}"#,
            "no limit of the table",
        ),
        (
            br#"{"id":"a","op":"diagnose","in":{"errno":"EWHAT"}}"#,
            "EWHAT",
        ),
        (
            br#"{"id":"a","op":"diagnose","in":{"log":["all is well"]}}"#,
            "no line tells",
        ),
        (br#"{"id":"a","op":"guess","in":{}}"#, "guess"),
        (b"{\"id\":\"a\xff\"}", "UTF-8"),
        (br#"["id"]"#, "an object, {...}, belongs here"),
        (
            br#"{"id":"a","op":"lookup","in":[[[0,1]],0,1]}"#,
            "an object, {...}, belongs here",
        ),
        (b"{", "in the middle of an object"),
    ] {
        let text = [line, b"\n", GOOD.as_bytes(), b"\n"].concat();
        let ran = run_with("replay -", &text).exits(2);
        let first = ran.out.lines().next().unwrap_or("");
        let shown = String::from_utf8_lossy(line);
        assert!(first.starts_with("ERROR line 1"), "{shown}: {first}");
        assert!(first.contains(why), "{shown}: {first}");
        assert!(ran.out.contains("pass good plan"), "{shown}: {}", ran.out);
        assert!(
            ran.out
                .ends_with("1 passed, 0 failed, 0 skipped, 1 broken line\n")
        );
    }
}

#[test]
fn a_line_beyond_1_mib_is_passed_over() {
    let long = format!("{{\"id\":\"{}\"}}", "x".repeat(3 << 20));
    let ran = replay(&format!("{long}\n{GOOD}")).exits(2);
    assert!(
        ran.out
            .starts_with("ERROR line 1: the line is longer than 1 MiB\npass good plan")
    );
    // A long key is not shown whole.
    let key = format!(
        "{{\"id\":\"a\",\"op\":\"plan\",\"in\":{{\"{}\":1}}}}",
        "x".repeat(1 << 19)
    );
    let ran = replay(&key).exits(2);
    assert!(ran.out.len() < 2000, "{}", ran.out.len());
}

/// Numbers at their ends give an answer, or an error, and never a panic.
#[test]
fn extreme_numbers_are_answered() {
    let mut lines = Vec::new();
    let numbers = [0, 1, 4095, 4096, 1 << 32, 1 << 63, u64::MAX];
    for a in numbers {
        for b in numbers {
            let ins = [
                ("plan", json!({"total": a, "max_mr_size": b})),
                (
                    "plan",
                    json!({"total": a, "entry_budget": b, "used": a, "memlock": b}),
                ),
                ("plan", json!({"total": a, "chunk": b, "max_mr": a})),
                (
                    "plan",
                    json!({"total": a, "per_mr_entries": b, "override": a, "page": 2097152}),
                ),
                (
                    "plan",
                    json!({"total": a, "hugepages_free": b, "page": 1u64 << 62}),
                ),
                (
                    "plan",
                    json!({"buffers": [a, b, a], "chunking": false, "driver": "1.5.1"}),
                ),
                (
                    "plan",
                    json!({"addr": a, "len": b, "page": 2097152, "fork_init": true}),
                ),
                (
                    "plan",
                    json!({"hugepages_want": a, "hugepages_got": b, "page": 1u64 << 40}),
                ),
                (
                    "plan",
                    json!({"total": a, "hugetlb_cgroup_limit": b, "mem_available": b, "page": 2097152}),
                ),
                (
                    "plan",
                    json!({"total": a, "block": b, "split": b, "copies": b, "devices": b, "processes": b}),
                ),
                (
                    "plan",
                    json!({"total": a, "block": b, "align_to_split": b, "nics": [b, 1], "copies": 2}),
                ),
                (
                    "sim",
                    json!({"total": a, "max_mr_size": b, "page": 1u64 << 40}),
                ),
                (
                    "sim",
                    json!({"mr_bytes": [a, b], "page": 1u64 << 40, "holes_4k": a, "memlock": b}),
                ),
                (
                    "sim",
                    json!({"mr_bytes": [4096, 4097], "entry_budget": a, "used": b, "max_mr": a}),
                ),
                ("lookup", json!({"chunks": [[a, b]], "addr": b, "len": a})),
                (
                    "learn",
                    json!({"mr_bytes": a, "ok_count": b, "fail_count": a}),
                ),
                ("learn", json!({"ok_bytes": [a], "fail_bytes": [b]})),
                (
                    "diagnose",
                    json!({"errno": "EIO", "length": a, "addr": b, "effective_page": 4096, "entry_budget": b, "used": a}),
                ),
                (
                    "diagnose",
                    json!({"errno": "ENOMEM", "length": a, "memlock": b, "pinned": a, "copies": b, "page": 2097152, "hugepages_free": b}),
                ),
                (
                    "calc",
                    json!({"log_num_mtt": 10, "log_mtts_per_seg": 3, "ram": a, "factor": b}),
                ),
                ("calc", json!({"log_num_mtt": a, "log_mtts_per_seg": b})),
            ];
            for (op, input) in ins {
                let id = lines.len().to_string();
                lines.push(json!({"id": id, "op": op, "in": input}).to_string());
            }
        }
    }
    let ran = replay(&lines.join("\n"));
    assert!(matches!(ran.code, 0 | 2), "{}", ran.err);
    assert!(ran.err.is_empty(), "{}", ran.err);
    assert_eq!(ran.out.lines().count(), lines.len() + 1);
}

#[test]
fn input_that_cannot_be_read_is_2() {
    for path in ["no-such-file", "/", "/dev/null"] {
        let ran = run(&format!("replay {path}")).exits(2);
        assert!(ran.err.contains(path), "{}", ran.err);
        assert!(ran.out.is_empty(), "{}", ran.out);
    }
    replay("\n\n").exits(2);
}

fn guide() -> String {
    std::fs::read_to_string(workspace("docs/replay.md")).expect("the guide")
}

/// The examples of the guide pass.
#[test]
fn the_examples_of_the_guide_pass() {
    let guide = guide();
    let examples: Vec<&str> = guide
        .lines()
        .filter(|line| line.starts_with("{\"id\""))
        .collect();
    assert!(examples.len() >= 3);
    replay(&examples.join("\n"))
        .exits(0)
        .says(&format!("{} passed, 0 failed, 0 skipped", examples.len()));
}

/// The guide names every key of `in`, and every field that a want can be compared with.
#[test]
fn the_guide_names_every_key() {
    let guide = guide();
    let mut missing = BTreeSet::new();
    for (op, input) in [
        ("plan", json!({"total": 4096})),
        ("sim", json!({"total": 4096})),
        ("lookup", json!({"chunks": [[0, 1]], "addr": 0, "len": 1})),
        ("learn", json!({"ok_bytes": [1]})),
        ("calc", json!({"log_num_mtt": 1, "log_mtts_per_seg": 1})),
        ("diagnose", json!({"errno": "EIO"})),
    ] {
        let unknown = json!({"id": "a", "op": op, "in": {"unknown": 1}}).to_string();
        let error = replay(&unknown).exits(2).out;
        let line = error.lines().next().expect("a line");
        assert!(!line.contains("..."), "{line}");
        let keys = line.split('`').skip(3).step_by(2).map(str::to_owned);
        let good = json!({"id": "a", "op": op, "in": input}).to_string();
        let answer: Value = serde_json::from_str(&answers(&good)[0]).expect("JSON");
        let fields = answer.as_object().expect("an object").keys().cloned();
        missing.extend(
            keys.chain(fields)
                .filter(|key| !guide.contains(&format!("`{key}`")))
                .map(|key| format!("{op}: {key}")),
        );
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
