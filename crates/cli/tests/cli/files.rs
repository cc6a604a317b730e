//! Files that a user names: whatever they are, the answer comes at once, in bounded memory, with a clear sentence.

use std::os::unix::ffi::OsStrExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::Ran;

/// Every way to name a file that is read.
fn ways(file: &str) -> Vec<Vec<String>> {
    let words = |line: &str| line.split(' ').map(|w| w.replace("FILE", file)).collect();
    [
        "plan 1GiB --device sim:FILE",
        "register 1GiB --device sim:FILE",
        "plan 1GiB --device sim:erdma --config FILE",
        "plan 1GiB --device sim:erdma --limits FILE",
        "doctor --facts FILE",
        "diagnose FILE",
        "replay FILE",
    ]
    .iter()
    .map(|line| words(line))
    .collect()
}

/// With 256 MiB of address space for data, and 20 seconds.
fn bounded(words: &[String]) -> Ran {
    let mut child = Command::new("sh")
        .args([
            "-c",
            "ulimit -d 262144 && exec \"$0\" \"$@\"",
            env!("CARGO_BIN_EXE_hugemr"),
        ])
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a shell");
    let deadline = Instant::now() + Duration::from_secs(20);
    while child.try_wait().expect("a child").is_none() {
        if Instant::now() > deadline {
            child.kill().expect("it can be ended");
            child.wait().expect("it ends");
            panic!("{words:?}: still running");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("it ended").into()
}

#[test]
fn what_is_no_regular_file_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let pipe = dir.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    let pipe = pipe.to_str().expect("text");
    for (file, kind) in [
        ("/dev/zero", "a device"),
        (pipe, "a pipe"),
        ("/tmp", "a folder"),
    ] {
        for words in ways(file) {
            let ran = bounded(&words);
            // What was measured is a help: a plan goes on without it, and says so.
            let code = if words.contains(&"--limits".to_owned()) {
                ran.code
            } else {
                2
            };
            let ran = ran.exits(code);
            assert!(ran.err.contains(kind), "{words:?}: {}", ran.err);
        }
    }
}

/// A comment of 300 MiB in a device file, or the same as facts: the limit is named.
#[test]
fn a_text_that_is_too_long_is_refused_with_the_limit() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("long.toml");
    let file = std::fs::File::create(&path).expect("a file");
    file.set_len(300 << 20).expect("a length");
    let path = path.to_str().expect("text");
    for words in ways(path).into_iter().take(5) {
        let ran = bounded(&words);
        assert!(ran.err.contains("longer than"), "{words:?}: {}", ran.err);
    }
}

/// An argument of other bytes than UTF-8 is bad usage, and no panic.
#[test]
fn arguments_that_are_no_text() {
    for words in [
        vec![&b"\xff"[..]],
        vec![b"plan", b"\xff"],
        vec![b"plan", b"1GiB", b"--device", b"sim:\xff"],
        vec![b"plan", b"1GiB", b"--device", b"sim:\xff", b"--json"],
        vec![
            b"plan",
            b"1GiB",
            b"--json",
            b"--config",
            b"\xff",
            b"--device",
            b"sim:erdma",
        ],
        vec![b"replay", b"\xff"],
        vec![b"diagnose", b"\xff"],
        vec![b"doctor", b"--facts", b"\xff"],
    ] {
        let args = words.iter().map(|word| std::ffi::OsStr::from_bytes(word));
        let out = Command::new(env!("CARGO_BIN_EXE_hugemr"))
            .args(args)
            .output()
            .expect("the command starts");
        let err = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{words:?}: {err}");
        assert!(!err.contains("panicked"), "{err}");
    }
}

/// Text of something else, words in any order, and no text at all: it is said that nothing was understood, status 1.
#[test]
fn a_log_of_something_else_is_not_understood() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("log");
    let mut state = 1u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let bytes: Vec<u8> = (0..1 << 18)
        .flat_map(|_| random().to_le_bytes()[..4].to_vec())
        .collect();
    let vocabulary: Vec<&str> =
        "memory register table fail error failed region bad address device cannot pool key ibv of"
            .split(' ')
            .collect();
    let mut words = String::new();
    for i in 0..40_000 {
        let at = usize::try_from(random() % vocabulary.len() as u64).expect("small");
        words.push_str(vocabulary[at]);
        words.push(if i % 9 == 8 { '\n' } else { ' ' });
    }
    let requests: String = (0..5_000)
        .map(|i| match i % 50 {
            0 => format!("2024/05/01 12:00:01 [error] {i}#{i}: *{i} connect() failed (111: Connection refused), request: \"GET /register?id={i} HTTP/1.1\"\n"),
            _ => format!("10.0.0.{} - - [01/May/2024:12:00:00 +0000] \"GET /register/memory/{i} HTTP/1.1\" 200 {i}\n", i % 256),
        })
        .collect();
    let one_line = "a line without an end ".repeat(1 << 19);
    for (what, log) in [
        ("bytes", bytes),
        ("words", words.into_bytes()),
        ("requests", requests.into_bytes()),
        ("one line", one_line.into_bytes()),
        ("nothing", Vec::new()),
    ] {
        std::fs::write(&path, log).expect("a file");
        let words = ["diagnose", path.to_str().expect("text")].map(str::to_owned);
        let ran = bounded(&words);
        assert_eq!(ran.code, 1, "{what}: {} {}", ran.out, ran.err);
        assert!(
            ran.out.starts_with("nothing understood"),
            "{what}: {}",
            ran.out
        );
        assert!(ran.err.is_empty(), "{what}: {}", ran.err);
    }
}

/// A name from outside moves no cursor.
#[test]
fn no_escape_sequence_reaches_the_terminal() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("a.toml");
    std::fs::write(
        &path,
        "base = \"ecs.r8a.32xlarge\"\nname = \"\\u001b[31mred\"\n",
    )
    .expect("a file");
    let file = format!("sim:{}", path.display());
    for words in [
        vec!["plan", "1GiB", "--device", "sim:\x1b[31mred"],
        vec!["plan", "1GiB", "--device", "\x1b[31mred"],
        vec!["register", "1GiB", "--device", &file],
        vec!["plan", "1GiB", "--budget", "unknown", "--device", &file],
    ] {
        let ran: Ran = Command::new(env!("CARGO_BIN_EXE_hugemr"))
            .args(&words)
            .output()
            .expect("the command starts")
            .into();
        assert!(!(ran.out + &ran.err).contains('\x1b'), "{words:?}");
    }
}

/// Some editors write a byte order mark before a text: every file is read as without it.
#[test]
fn a_byte_order_mark_is_no_part_of_a_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let at = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    let run = crate::common::run;
    let (limits, facts) = (at("limits"), at("facts"));
    run(&format!(
        "learn --ok 1GiB --fail 2GiB --device sim:verbs --limits {limits}"
    ))
    .exits(0);
    run(&format!("doctor --save {facts}"));
    for (name, text) in [
        ("box.toml", "base = \"erdma\"\nname = \"my-box\"\n"),
        ("config", "device = \"sim:erdma\"\n"),
        ("log", "E1: ibv_reg_mr failed: Bad address\n"),
        (
            "vectors",
            "{\"id\":\"x\",\"op\":\"diagnose\",\"in\":{\"errno\":\"EIO\"},\"want\":{},\"src\":\"example\"}\n",
        ),
    ] {
        std::fs::write(at(name), text).expect("a file");
    }
    let lines = [
        (
            "box.toml",
            format!("plan 1GiB --device sim:{}", at("box.toml")),
        ),
        ("config", format!("plan 1GiB --config {}", at("config"))),
        (
            "limits",
            format!("plan 4GiB --pages 4KiB --device sim:verbs --limits {limits}"),
        ),
        ("facts", format!("doctor --facts {facts}")),
        ("log", format!("diagnose {}", at("log"))),
        ("vectors", format!("replay {}", at("vectors"))),
    ];
    for (name, line) in lines {
        let plain = run(&line);
        let text = std::fs::read_to_string(at(name)).expect("it is there");
        std::fs::write(at(name), format!("\u{feff}{text}")).expect("a file");
        let marked = run(&line);
        assert!(plain.code < 2, "{line}: {}", plain.err);
        assert_eq!(
            (marked.code, marked.out, marked.err),
            (plain.code, plain.out, plain.err),
            "{line}"
        );
    }
}
