//! `hugemr reserve`, `hugemr release` and `hugemr register --reserve` on the pools of this machine. Others may use them at the
//! same time, so what is compared are changes; and where a count must come back, others are waited for.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it left out"
)]

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hugemr::Step;
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

#[test]
fn bad_usage_is_said() {
    for (words, said) in [
        (&["reserve", "0"][..], "at least one page"),
        (
            &["reserve", "1GiB", "--node", "0", "--spread"],
            "cannot be used with",
        ),
        (&["reserve"], "SIZE"),
        (
            &["register", "1GiB", "--device", "sim:erdma", "--reserve"],
            "--memory real",
        ),
    ] {
        let out = output(&mut hugemr(words));
        assert_eq!(out.status.code(), Some(2), "{words:?}");
        assert!(text(&out).contains(said), "{words:?}: {}", text(&out));
    }
}

/// More than any memory: what could be reserved is said, and the size for which that is enough.
#[test]
fn what_cannot_be_reserved_names_the_size_that_could() {
    let words = "register 60TiB --device sim:ecs.r8a.32xlarge --memory real --reserve --pages 2MiB";
    let words: Vec<&str> = words.split(' ').collect();
    let out = output(&mut hugemr(&words));
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(
        said.contains("huge pages of 2 MiB at most, free ones among them ("),
        "{said}"
    );
    let none = said.contains(" 0 huge pages of 2 MiB at most");
    let way = said.contains(" would fit: hugemr register ") && said.contains(" --reserve");
    assert!(none != way, "{said}");
}

#[test]
#[ignore = "needs huge pages and root"]
fn the_pool_is_raised_used_and_lowered_by_exactly_what_was_added() {
    let _pools = lock();
    let before = persistent();
    let size = beyond_the_pool(32);
    let words = [&["register", &size, "--reserve", "--json"][..], &SIM].concat();
    let document = json(&words, 0);
    assert_eq!(pages(&document["reserved"]), 32, "{document}");
    assert_eq!(
        document["reserved"],
        swapped(&document["released"]["given_back"])
    );
    assert_eq!(document["as_planned"], true);
    assert_eq!(document["entries"]["value"], available() + 32);
    is_as_before(before, "register --reserve");

    let out = output(hugemr(&["register", &size, "--reserve"]).args(SIM));
    let said = text(&out);
    assert!(
        said.contains("reserve    32 pages of 2 MiB (64 MiB) added: node0 "),
        "{said}"
    );
    assert!(
        said.contains("pools: 32 pages of 2 MiB (64 MiB) given back: node0 "),
        "{said}"
    );
    is_as_before(before, "register --reserve");

    // Without the flag nothing is touched, and the answer is no.
    let out = output(hugemr(&["register", &size]).args(SIM));
    assert_eq!(out.status.code(), Some(1));
    assert!(
        text(&out).contains("sudo hugemr reserve "),
        "{}",
        text(&out)
    );
    is_as_before(before, "register");
}

/// The same changes, there and back.
fn swapped(changes: &Value) -> Value {
    let mut changes = changes.clone();
    for change in changes.as_array_mut().unwrap() {
        let (before, after) = (change["before"].clone(), change["after"].clone());
        (change["before"], change["after"]) = (after, before);
    }
    changes
}

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

#[test]
#[ignore = "needs huge pages and root"]
fn reserve_is_idempotent_and_release_gives_back_the_same() {
    let _pools = lock();
    // What is kept already belongs to somebody.
    let kept = json(&["release", "--dry-run", "--json"], 0);
    assert_eq!(
        pages(&kept["pools"]),
        0,
        "hugemr reserve was used here: {kept}"
    );
    let before = persistent();
    let size = beyond_the_pool(8);
    let dry = json(&["reserve", &size, "--dry-run", "--persist", "--json"], 0);
    assert_eq!(
        (&dry["changed"], pages(&dry["pools"])),
        (&Value::Bool(false), 8)
    );
    let line = dry["persist"]["boot_line"].as_str().unwrap();
    assert_eq!(line, format!("hugepagesz=2M hugepages={}", before + 8));
    assert_eq!(persistent(), before, "a dry run changes nothing");

    let first = json(&["reserve", &size, "--json"], 0);
    assert_eq!(
        (&first["changed"], pages(&first["pools"])),
        (&Value::Bool(true), 8)
    );
    assert_eq!(first["available"], first["pages"]);
    assert_eq!(persistent(), before + 8);
    let second = json(&["reserve", &size, "--json"], 0);
    assert_eq!(
        (&second["changed"], pages(&second["pools"])),
        (&Value::Bool(false), 0)
    );
    assert_eq!(persistent(), before + 8);
    let out = output(&mut hugemr(&["reserve", &size]));
    assert!(text(&out).starts_with("nothing to do: "), "{}", text(&out));

    let dry = json(&["release", "--dry-run", "--json"], 0);
    assert_eq!(pages(&dry["pools"]), 8);
    assert_eq!(persistent(), before + 8);
    let back = json(&["release", "--json"], 0);
    assert_eq!(
        (&back["changed"], pages(&back["pools"])),
        (&Value::Bool(true), 8)
    );
    is_as_before(before, "release");
    let again = json(&["release", "--json"], 0);
    assert_eq!(
        (&again["changed"], pages(&again["pools"])),
        (&Value::Bool(false), 0)
    );

    let out = output(&mut hugemr(&["reserve", &size]));
    let said = text(&out);
    assert!(said.starts_with("changing, for "), "{said}");
    let change = said.find("/nr_hugepages").unwrap();
    assert!(
        change < said.find("\nreserved: 8 pages").unwrap(),
        "the change first: {said}"
    );
    assert!(said.contains("give back: sudo hugemr release"), "{said}");
    assert!(text(&output(&mut hugemr(&["release"]))).starts_with("released: 8 pages"));
    is_as_before(before, "release");
}

#[test]
#[ignore = "needs huge pages and root"]
fn pages_in_use_stay_with_their_user() {
    let _pools = lock();
    let before = persistent();
    let size = beyond_the_pool(16);
    json(&["reserve", &size, "--json"], 0);
    // Enough is there: it adds nothing, and maps all of it.
    let mut user = holding(0);
    assert_eq!(added_by(user.id()), 0);
    let back = json(&["release", "--json"], 0);
    assert_eq!(
        (pages(&back["pools"]), &back["in_use"]),
        (16, &Value::from(16))
    );
    is_as_before(before, "release");
    let total = || {
        let pool = *Pools::read(&Root::real()).of(PageSize::M2).unwrap();
        pool.total.unwrap()
    };
    assert_eq!(total(), before + 16, "the user has its pages");
    signal(&user, "INT");
    assert!(user.wait().unwrap().success());
    assert_eq!(
        total(),
        before,
        "and the kernel took them when they were free"
    );
}

#[test]
#[ignore = "needs huge pages and root"]
fn two_processes_and_an_outside_writer_in_any_order() {
    let _pools = lock();
    let before = persistent();
    // Who ends when: the holder of 8, that of 16, and the outside writer; each by another way.
    for order in [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ] {
        outside(3);
        let first = holding(8);
        outside(2);
        let second = holding(16);
        assert_eq!((added_by(first.id()), added_by(second.id())), (8, 16));
        assert_eq!(persistent(), before + 5 + 8 + 16);
        let mut left = before + 5 + 8 + 16;
        let mut children = [first, second];
        for who in order {
            match who {
                0 => {
                    signal(&children[0], "INT");
                    assert!(children[0].wait().unwrap().success());
                    left -= 8;
                }
                1 => {
                    signal(&children[1], "KILL");
                    children[1].wait().unwrap();
                    let stale = json(&["release", "--stale", "--json"], 0);
                    assert_eq!(pages(&stale["pools"]), 16);
                    left -= 16;
                }
                _ => {
                    outside(-5);
                    left -= 5;
                }
            }
            is_as_before(left, &format!("{order:?}, after {who}"));
        }
        is_as_before(before, &format!("{order:?}"));
    }
}

#[test]
#[ignore = "needs huge pages and root"]
fn a_user_without_rights_registers_what_is_ready_and_is_told_what_needs_root() {
    let _pools = lock();
    let before = persistent();
    // Where everybody may run it.
    let folder = tempfile::tempdir().unwrap();
    let program: PathBuf = folder.path().join("hugemr");
    std::fs::copy(env!("CARGO_BIN_EXE_hugemr"), &program).unwrap();
    for path in [folder.path(), &program] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let nobody = |words: &[&str]| {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .arg(&program)
            .args(words)
            .current_dir("/");
        output(&mut command)
    };

    let size = beyond_the_pool(16);
    let out = nobody(&["reserve", &size]);
    let said = text(&out);
    assert_eq!(out.status.code(), Some(3), "{said}");
    assert!(said.contains("changing the pools needs root"), "{said}");
    assert!(!said.contains("changing, for"), "{said}");
    assert!(
        said.contains(&format!("sudo hugemr reserve {size}")),
        "{said}"
    );
    assert!(said.contains("sudo sh -c 'echo "), "{said}");
    let out = nobody(&[&["register", &size, "--reserve"][..], &SIM].concat());
    let said = text(&out);
    assert_eq!(out.status.code(), Some(3), "{said}");
    assert!(
        said.contains(&format!("sudo hugemr register {size} --reserve")),
        "{said}"
    );
    is_as_before(before, "nobody");

    // Made ready by root.
    assert_eq!(
        output(&mut hugemr(&["reserve", &size])).status.code(),
        Some(0)
    );
    for flag in [&[][..], &["--reserve"]] {
        let out = nobody(&[&["register", &size][..], flag, &SIM].concat());
        let said = text(&out);
        assert_eq!(out.status.code(), Some(0), "{flag:?}: {said}");
        assert!(said.contains("registered "), "{said}");
        assert!(said.contains("page size not proved: "), "{said}");
    }
    let out = nobody(&["release"]);
    let said = text(&out);
    assert_eq!(out.status.code(), Some(3), "{said}");
    assert!(said.contains("sudo hugemr release"), "{said}");
    assert_eq!(output(&mut hugemr(&["release"])).status.code(), Some(0));
    is_as_before(before, "nobody");
}

/// Runs `script` in a mount namespace of its own. It finds a cgroup in `$CG` with the limit of 2 MiB pages in the file
/// `$MAX`, and hugemr in `$HUGEMR`; `enter` puts a process into the cgroup. `None` where this machine has no hugetlb
/// controller that can be had.
fn in_a_cgroup(script: &str) -> Option<Output> {
    let folder = tempfile::tempdir().unwrap();
    let head = r#"
        cd "$DIR" || exit 77
        if mount -t cgroup -o hugetlb none . 2>/dev/null; then FILE=hugetlb.2MB.limit_in_bytes
        else
            mount -t cgroup2 none . 2>/dev/null || exit 77
            cd "$DIR"
            echo +hugetlb > cgroup.subtree_control 2>/dev/null || exit 77
            FILE=hugetlb.2MB.max
        fi
        cd "$DIR"
        mkdir "hugemr-test-$$" && CG="$DIR/hugemr-test-$$" || exit 77
        MAX="$CG/$FILE"
        enter() { echo 0 > "$CG/cgroup.procs"; }
        state() { sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null; }
    "#;
    let tail = r#"
        cd /
        for i in 1 2 3 4 5 6 7 8 9; do rmdir "$CG" 2>/dev/null && break; sleep 0.1; done
        exit $RC
    "#;
    let out = Command::new("unshare")
        .args(["--mount", "bash", "-c"])
        .arg(format!("{head}\n{script}\n{tail}"))
        .env("DIR", folder.path())
        .env("HUGEMR", env!("CARGO_BIN_EXE_hugemr"))
        .output()
        .unwrap();
    if out.status.code() == Some(77) {
        eprintln!("no hugetlb controller can be mounted here: not tried");
        return None;
    }
    Some(out)
}

#[test]
#[ignore = "needs huge pages and root"]
fn a_cgroup_limit_below_the_need_is_an_error_before_anything_is_touched() {
    let _pools = lock();
    let before = persistent();
    let size = beyond_the_pool(16);
    let limit = available() * (2 << 20) + (16 << 20);
    let run = |flags: &str| {
        in_a_cgroup(&format!(
            "echo {limit} > \"$MAX\"; (enter; exec \"$HUGEMR\" register {size} --reserve --memory real \
             --device sim:erdma {flags}); RC=$?"
        ))
    };
    let Some(out) = run("") else { return };
    let said = text(&out);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.starts_with("does not fit: "), "{said}");
    assert!(said.contains("cgroup"), "{said}");
    assert!(!said.contains("pages of 2 MiB (32 MiB) added"), "{said}");
    // The plan's refusal ignored, the transaction finds it by itself.
    let Some(out) = run("--force") else { return };
    let said = text(&out);
    assert_eq!(out.status.code(), Some(3), "{said}");
    assert!(said.contains("reserve failed: the cgroup allows"), "{said}");
    assert!(!said.contains("pages of 2 MiB (32 MiB) added"), "{said}");
    is_as_before(before, "cgroup");
}

#[test]
#[ignore = "needs huge pages and root"]
fn a_cgroup_limit_lowered_after_mapping_is_an_error_and_no_sigbus() {
    if !cfg!(debug_assertions) {
        eprintln!("a release build of hugemr has no HUGEMR_TEST_AT");
        return;
    }
    let _pools = lock();
    let before = persistent();
    let size = beyond_the_pool(16);
    let script = format!(
        "(enter; exec env HUGEMR_TEST_AT=populate:stop \"$HUGEMR\" register {size} --reserve --memory real \
         --device sim:erdma) & PID=$!; \
         for i in $(seq 600); do [ \"$(state $PID)\" = T ] && break; sleep 0.05; done; \
         [ \"$(state $PID)\" = T ] || echo \"it did not stop\"; \
         echo {} > \"$MAX\"; kill -CONT $PID; wait $PID; RC=$?",
        4 << 20
    );
    let Some(out) = in_a_cgroup(&script) else {
        return;
    };
    let said = text(&out);
    assert_eq!(out.status.code(), Some(3), "{said}");
    assert!(said.contains("populate failed: "), "{said}");
    assert!(said.contains("hugetlb.2MB"), "the file is named: {said}");
    assert!(said.contains("given back"), "{said}");
    is_as_before(before, "cgroup");
}
