#![allow(clippy::unwrap_used, reason = "a test")]
//! The sessions in both READMEs are what the command prints. `HUGEMR_BLESS=1 cargo test -p hugemr-cli --test readme` writes
//! them anew. Durations differ from run to run and are not compared.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What a terminal would show: standard output, then standard error, then the exit status where it is not 0.
fn run(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().skip(1).collect();
    let out = Command::new(env!("CARGO_BIN_EXE_hugemr"))
        .args(words)
        .output()
        .unwrap();
    let mut text = String::from_utf8(out.stdout).unwrap();
    text.push_str(&String::from_utf8(out.stderr).unwrap());
    if let Some(code @ 1..) = out.status.code() {
        writeln!(text, "(exit status {code})").unwrap();
    }
    text
}

/// Output by command line: both files get the same.
type Sessions = BTreeMap<String, String>;

/// The text with every session replaced by a fresh one.
fn fresh(text: &str, known: &mut Sessions) -> (String, usize) {
    let (mut out, mut sessions) = (String::new(), 0);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        writeln!(out, "{line}").unwrap();
        if line != "```console" {
            continue;
        }
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        for command in body.iter().filter_map(|line| line.strip_prefix("$ ")) {
            sessions += 1;
            let said = known
                .entry(command.to_owned())
                .or_insert_with(|| run(command));
            write!(out, "$ {command}\n{said}").unwrap();
        }
        out.push_str("```\n");
    }
    (out, sessions)
}

/// The text with every duration replaced.
fn without_durations(text: &str) -> String {
    let words = text.split_inclusive([' ', '\n']);
    let mut out: Vec<String> = Vec::new();
    for word in words {
        let unit = word.trim_end_matches([' ', '\n', ',', ';', ')']);
        if matches!(unit, "us" | "ms" | "s")
            && out.last().is_some_and(|n| n.trim().parse::<f64>().is_ok())
        {
            out.pop();
            out.push(word.replacen(unit, "TIME", 1));
        } else {
            out.push(word.to_owned());
        }
    }
    out.concat()
}

fn check(file: &str, known: &mut Sessions) {
    let path = root().join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    let (fresh, sessions) = fresh(&text, known);
    assert!(sessions >= 6, "{file} has only {sessions} sessions");
    if std::env::var_os("HUGEMR_BLESS").is_some() {
        std::fs::write(&path, fresh).unwrap();
    } else {
        assert_eq!(
            without_durations(&text),
            without_durations(&fresh),
            "{file} is not what the command prints; HUGEMR_BLESS=1 writes it anew"
        );
    }
}

#[test]
fn readmes_show_what_the_command_prints() {
    let mut known = Sessions::new();
    check("README.md", &mut known);
    check("README.zh-CN.md", &mut known);
}

#[test]
fn durations_are_the_only_thing_left_out() {
    assert_eq!(
        without_durations("took 23 ms; 14 MRs in 1 s"),
        "took TIME; 14 MRs in TIME"
    );
    assert_eq!(without_durations("64 GiB, 5 us"), "64 GiB, TIME");
}
