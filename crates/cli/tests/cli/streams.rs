//! Long output, readers that go away, and memory.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{ARTICLE, hugemr, terminal};

/// 536,870,912 MRs.
const PEBIBYTE: &str = "1PiB --pages 2MiB --chunk 2MiB --max-mr 1000000000";
const MOST_KIB: u64 = 16 * 1024;

/// Waits for the end, not for ever.
fn code(mut child: Child) -> i32 {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(status) = child.try_wait().expect("a child") {
            return status.code().expect("it ended by itself");
        }
        if Instant::now() > deadline {
            child.kill().expect("it can be ended");
            panic!("still running");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Three lines of 512 Mi are read, and then the reader goes.
#[test]
fn a_list_is_streamed_and_ends_with_its_reader() {
    let mut child = hugemr(&format!("plan {PEBIBYTE} --device sim:verbs --list"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    for index in 0..3 {
        let line = lines.next().expect("a line").expect("text");
        assert!(line.starts_with(&format!("{index}\t")), "{line}");
    }
    // It waits in a full pipe now, and has made the whole plan.
    let peak = peak_kib(child.id());
    drop(lines);
    assert_eq!(code(child), 0);
    assert!(peak < MOST_KIB, "{peak} KiB");
}

/// The most memory that a process has had resident, KiB.
fn peak_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it still runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|n| n.parse().ok()).expect("a number")
}

/// The same where it is refused, which looks for the largest size that fits and for ways out: the kernel grants it no
/// more than 16 MiB.
#[test]
fn a_pebibyte_is_refused_in_little_memory() {
    let line =
        format!("ulimit -d {MOST_KIB} && exec \"$0\" plan {PEBIBYTE} --device {ARTICLE} --json");
    let output = Command::new("sh")
        .args(["-c", &line, env!("CARGO_BIN_EXE_hugemr")])
        .output()
        .expect("a shell");
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(out.contains("over_budget"), "{out}");
}

/// A disk that is full is a failure of the system, for help and version too.
#[test]
fn nothing_can_be_written() {
    for line in ["--help", "--version", "plan 1GiB --device sim:erdma"] {
        let full = std::fs::File::create("/dev/full").expect("the device");
        let child = hugemr(line)
            .stdout(full)
            .stderr(Stdio::null())
            .spawn()
            .expect("the command starts");
        assert_eq!(code(child), 3, "{line}");
    }
}

/// A reader that has gone before the first byte is no failure.
#[test]
fn nobody_reads() {
    let cases = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/vectors/cases.jsonl"
    );
    for line in [
        "--help",
        "man",
        "completions zsh",
        "devices --simulated",
        "devices --json",
        "diagnose --errno EIO",
        "plan 1GiB --device sim:erdma",
        "plan 1GiB --device sim:erdma --json",
        "plan 1TiB --device sim:verbs --pages 4KiB --chunk 4KiB --list",
        "register 1GiB --device sim:erdma",
        "register 1GiB --device sim:erdma --json",
        &format!("replay {cases}"),
        &format!("replay {cases} --json"),
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let child = hugemr(line)
            .stdout(writer)
            .stderr(Stdio::null())
            .spawn()
            .expect("the command starts");
        assert_eq!(code(child), 0, "{line}");
    }
}

/// What is shown on a terminal until it is closed, and how the command ended.
fn on_terminal(line: &str, term: &str) -> (String, i32) {
    let (mut shown, written) = terminal();
    let mut command = hugemr(line);
    let child = command
        .env("TERM", term)
        .stdout(Stdio::null())
        .stderr(written)
        .spawn()
        .expect("the command starts");
    // It holds the end that is written to.
    drop(command);
    let mut bytes = Vec::new();
    // The last one to close it ends the reading with EIO.
    let _closed = shown.read_to_end(&mut bytes);
    (String::from_utf8_lossy(&bytes).into_owned(), code(child))
}

/// The lines of the steps stand on every terminal; bars only where a line can be drawn anew.
#[test]
fn a_terminal_without_bars_has_the_lines() {
    let line = "register 64MiB --pages 4KiB --memory real --device sim:erdma";
    let (plain, ended) = on_terminal(line, "dumb");
    assert_eq!(ended, 0, "{plain}");
    assert!(!plain.contains('\x1b'), "{plain:?}");
    let has = |step: &str| plain.lines().any(|line| line.starts_with(step));
    assert!(has("populate  "), "{plain:?}");
    let (drawn, ended) = on_terminal(line, "xterm");
    assert_eq!(ended, 0, "{drawn}");
    assert!(drawn.contains("\x1b["), "{drawn:?}");
}
