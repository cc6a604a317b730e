//! `hugemr replay` of several files: each is told, all are counted, and none stops the others.

use std::path::PathBuf;

use serde_json::{Value, json};
use snapbox::{assert_data_eq, str};

use crate::common::{run, run_with};

const GOOD: &str = r#"{"id":"good","op":"plan","in":{"total":4096},"want":{"mrs":1}}"#;
const WRONG: &str = r#"{"id":"wrong","op":"plan","in":{"total":4096},"want":{"mrs":2}}"#;

/// Files in a folder, and one that is not there.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in [
            ("good", GOOD.to_owned()),
            ("both", format!("{GOOD}\n{WRONG}\n")),
            ("empty", "\n".to_owned()),
            ("broken", format!("no JSON\n{GOOD}")),
        ] {
            std::fs::write(folder.path().join(name), text).expect("a file");
        }
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The command line for some of them.
    fn line(&self, names: &[&str]) -> String {
        let paths = names.iter().map(|name| match *name {
            "-" => "-".to_owned(),
            name => self.path(name).display().to_string(),
        });
        format!("replay {}", paths.collect::<Vec<_>>().join(" "))
    }
}

#[test]
fn each_file_is_told_and_all_are_counted() {
    let files = Files::new();
    let ran = run_with(
        &files.line(&["good", "none", "both", "empty", "broken", "-"]),
        GOOD.as_bytes(),
    )
    .exits(2);
    assert!(ran.err.is_empty(), "{}", ran.err);
    let folder = files.0.path().display().to_string();
    assert_data_eq!(
        ran.out.replace(&folder, "DIR"),
        str![[r#"
pass good plan  fits, 1 entry, 1 MR
DIR/good: 1 passed, 0 failed, 0 skipped
ERROR cannot read DIR/none: [..]
pass good plan  fits, 1 entry, 1 MR
FAIL wrong plan mrs: want 2, got 1
DIR/both: 1 passed, 1 failed, 0 skipped
ERROR there is no vector in DIR/empty
ERROR line 1: an object, {...}, belongs here
pass good plan  fits, 1 entry, 1 MR
DIR/broken: 1 passed, 0 failed, 0 skipped, 1 broken line
pass good plan  fits, 1 entry, 1 MR
-: 1 passed, 0 failed, 0 skipped
6 files: 4 passed, 1 failed, 0 skipped, 1 broken line, 2 files not read

"#]]
    );
}

#[test]
fn the_exit_status_is_that_of_the_worst_file() {
    let files = Files::new();
    for (names, code) in [
        (&["good", "good"][..], 0),
        (&["both", "good"], 1),
        (&["good", "both", "broken"], 2),
        (&["none", "good"], 2),
        (&["good", "empty"], 2),
        (&["none", "empty"], 2),
    ] {
        run(&files.line(names)).exits(code);
    }
    let ran = run(&files.line(&["-", "good", "-"])).exits(2);
    assert!(ran.err.contains("- is given twice"), "{}", ran.err);
    assert!(ran.out.is_empty(), "{}", ran.out);
    run("replay").exits(2);
}

/// With JSON each line names its file, and the last one counts all of them.
#[test]
fn json_names_the_file_of_each_line() {
    let files = Files::new();
    let ran = run(&format!("{} --json", files.line(&["both", "none"]))).exits(2);
    let lines: Vec<Value> = ran
        .out
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let [good, wrong, closing, none, all] = lines.as_slice() else {
        panic!("{}", ran.out)
    };
    assert!(lines.iter().all(|line| line["schema"] == "hugemr/replay/1"));
    for line in [good, wrong, closing] {
        assert_eq!(line["file"], files.path("both").to_str().expect("text"));
    }
    assert_eq!(none["file"], files.path("none").to_str().expect("text"));
    assert_eq!(none["outcome"], "error");
    let summary = json!({ "passed": 1, "failed": 1, "skipped": 0, "broken": 0 });
    assert_eq!((&closing["summary"], &all["summary"]), (&summary, &summary));
    assert_eq!(all["files"], json!({ "given": 2, "unread": 1 }));
    assert!(all["file"].is_null());
    // Of one file the last line is what it was.
    let ran = run(&format!("{} --json", files.line(&["good"]))).exits(0);
    let last: Value = serde_json::from_str(ran.out.lines().last().expect("a line")).expect("JSON");
    assert!(last["files"].is_null() && last["file"].is_null(), "{last}");
}
