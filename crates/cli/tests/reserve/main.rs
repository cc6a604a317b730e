//! `hugemr reserve`, `hugemr release` and `hugemr register --reserve` on the pools of this machine. Others may use them at the
//! same time, so what is compared are changes; and where a count must come back, others are waited for.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it left out"
)]

mod denied;
mod folder;
mod pool;
mod signals;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hugemr_core::size::PageSize;
use hugemr_host::ledger;
use hugemr_host::pools::Pools;
use hugemr_host::root::Root;
use serde_json::Value;

const SIM: [&str; 4] = ["--memory", "real", "--device", "sim:erdma"];
const FILE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// Held by each test here: they watch the same pools.
fn lock() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

fn hugemr(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hugemr"));
    command.args(words).stdin(Stdio::null());
    command
}

fn output(command: &mut Command) -> Output {
    command.output().unwrap()
}

fn text(out: &Output) -> String {
    let both = [&out.stdout[..], &out.stderr[..]].concat();
    String::from_utf8(both).unwrap()
}

/// Standard output as JSON, of a command that ended with `code`.
fn json(words: &[&str], code: i32) -> Value {
    let out = output(&mut hugemr(words));
    assert_eq!(out.status.code(), Some(code), "{words:?}: {}", text(&out));
    serde_json::from_slice(&out.stdout).unwrap()
}

fn persistent() -> u64 {
    let pool = *Pools::read(&Root::real()).of(PageSize::M2).unwrap();
    pool.persistent().unwrap()
}

fn available() -> u64 {
    let pool = *Pools::read(&Root::real()).of(PageSize::M2).unwrap();
    pool.available().unwrap()
}

/// A size of which `more` pages are missing.
fn beyond_the_pool(more: u64) -> String {
    let pages = available() + more;
    assert!(pages < 1024, "too many free huge pages for a test: {pages}");
    format!("{}MiB", pages * 2)
}

fn is_as_before(before: u64, what: &str) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while persistent() != before {
        let now = persistent();
        assert!(
            Instant::now() < deadline,
            "{what}: {before} pages before, {now} after"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Somebody else changes the pool, as `echo` does.
fn outside(change: i64) {
    let now = std::fs::read_to_string(FILE).unwrap();
    let now: u64 = now.trim().parse().unwrap();
    std::fs::write(FILE, now.saturating_add_signed(change).to_string()).unwrap();
}

/// Pages that the changes of a document add up to.
fn pages(changes: &Value) -> u64 {
    let one = |change: &Value| {
        let count = |name: &str| change[name].as_u64().unwrap();
        count("before").abs_diff(count("after"))
    };
    changes.as_array().unwrap().iter().map(one).sum()
}

/// Pages in the ledger that a process has added.
fn added_by(pid: u32) -> u64 {
    let entries = ledger::look(&Root::real()).unwrap();
    let own = entries
        .iter()
        .filter(|e| e.owner.is_some_and(|owner| owner.pid == pid));
    own.map(|e| e.added).sum()
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    let status = Command::new("kill")
        .args(["-s", name, &pid])
        .status()
        .unwrap();
    assert!(status.success());
}

/// `register --reserve --hold`, when it holds.
fn holding(more: u64) -> Child {
    let size = beyond_the_pool(more);
    let mut child = hugemr(&["register", &size, "--reserve", "--hold"])
        .args(SIM)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = Vec::new();
    while !said.iter().any(|line: &String| line.starts_with("held")) {
        said.push(lines.next().unwrap_or_else(|| panic!("{said:?}")).unwrap());
    }
    // Its last words have somewhere to go.
    std::thread::spawn(move || lines.for_each(drop));
    child
}
