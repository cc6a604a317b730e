//! The program `erdma-emu`.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use vfio_user::Client;

fn emulator(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_erdma-emu"));
    command
        .current_dir(dir)
        .args(["--socket", "s", "--events", "events"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts it and waits for its line.
fn start(command: &mut Command) -> Child {
    let mut child = command.spawn().expect("spawn");
    let out = child.stdout.as_mut().expect("stdout");
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line).expect("line");
    assert_eq!(line, "erdma-emu: listening on s\n");
    child
}

fn end(child: Child) -> Output {
    let output = child.wait_with_output().expect("wait");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "",
        "one line and no more"
    );
    output
}

fn last_event(dir: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(dir.join("events")).expect("events");
    serde_json::from_str(text.lines().last().expect("a line")).expect("json")
}

fn signal(child: &Child, name: &str) {
    let kill = Command::new("sh")
        .args(["-c", &format!("kill -{name} {}", child.id())])
        .status();
    assert!(kill.expect("kill").success());
}

#[test]
fn bad_usage_is_2() {
    let dir = tempfile::tempdir().expect("dir");
    std::fs::write(dir.path().join("bad.toml"), "entires = 1").expect("write");
    for (args, says) in [
        (&["--mac", "1:2"][..], "MAC address"),
        (&["--fault", "fly@1"], "ACTION@WHEN"),
        (&["--flags", "zz"], "hexadecimal"),
        (&["--flags", "100"], "8 bits"),
        (&["--mr-shift", "64"], "mr_shift 64"),
        (&["--qp-blocks", "0"], "qp_blocks 0"),
        (&["--stamp-stride", "100"], "stride"),
        (&["--config", "bad.toml"], "entires"),
        (&["--config", "none.toml"], "none.toml"),
        (&["--unknown"], "--unknown"),
    ] {
        let output = emulator(dir.path()).args(args).output().expect("run");
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {err}");
        assert!(err.contains(says), "{args:?}: {err}");
        assert!(output.stdout.is_empty());
    }
    let output = Command::new(env!("CARGO_BIN_EXE_erdma-emu"))
        .output()
        .expect("run");
    assert_eq!(output.status.code(), Some(2), "no socket");
}

#[test]
fn what_cannot_be_had_is_3() {
    let dir = tempfile::tempdir().expect("dir");
    std::fs::write(dir.path().join("s"), "mine").expect("write");
    let output = emulator(dir.path()).output().expect("run");
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("s exists and is no socket"));
    let output = emulator(dir.path())
        .args(["--events", "no/such"])
        .output()
        .expect("run");
    assert_eq!(output.status.code(), Some(2), "twice the same flag");
    let mut command = Command::new(env!("CARGO_BIN_EXE_erdma-emu"));
    command
        .current_dir(dir.path())
        .args(["--socket", "t", "--events", "no/such"]);
    let output = command.output().expect("run");
    assert_eq!(output.status.code(), Some(3));
    assert!(!dir.path().join("t").exists(), "nothing is left behind");
}

#[test]
fn a_signal_ends_it_with_totals() {
    for name in ["TERM", "INT"] {
        let dir = tempfile::tempdir().expect("dir");
        let child = start(emulator(dir.path()).args(["--entries", "77"]));
        let client = Client::new(&dir.path().join("s")).expect("connect");
        signal(&child, name);
        let output = end(child);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let totals = last_event(dir.path());
        assert_eq!(
            (&totals["event"], &totals["budget"]),
            (&"totals".into(), &77.into())
        );
        assert!(!dir.path().join("s").exists());
        drop(client);
    }
}

#[test]
fn the_machine_goes_and_so_does_it() {
    let dir = tempfile::tempdir().expect("dir");
    std::fs::write(
        dir.path().join("device.toml"),
        "entries = 5\nmr_shift = 30\nfaults = [\"refuse@1\"]\n",
    )
    .expect("write");
    let args = [
        "--config",
        "device.toml",
        "--entries",
        "6",
        "--fault",
        "drop@2",
        "--stamp",
    ];
    let child = start(emulator(dir.path()).args(args));
    drop(Client::new(&dir.path().join("s")).expect("connect"));
    assert_eq!(end(child).status.code(), Some(0));
    let text = std::fs::read_to_string(dir.path().join("events")).expect("events");
    let first: serde_json::Value =
        serde_json::from_str(text.lines().next().expect("a line")).expect("json");
    assert_eq!(first["budget"], 6, "flags win");
    assert_eq!(first["max_mr_size"], 1 << 30);
    assert_eq!(first["faults"], serde_json::json!(["refuse@1", "drop@2"]));
    assert_eq!(first["stamp"], true);
}

#[test]
fn sockets_live_and_stale() {
    let dir = tempfile::tempdir().expect("dir");
    let first = start(&mut emulator(dir.path()));
    let second = emulator(dir.path()).output().expect("run");
    assert_eq!(second.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&second.stderr).contains("in use"));
    signal(&first, "KILL");
    end(first);
    assert!(dir.path().join("s").exists(), "killed: a stale file stays");
    let third = start(emulator(dir.path()).args(["--control", "c"]));
    let mut control = UnixStream::connect(dir.path().join("c")).expect("control");
    control.write_all(b"quit\n").expect("write");
    let mut reply = String::new();
    control.read_to_string(&mut reply).expect("read");
    assert_eq!(reply, "{\"ok\":true}\n");
    assert_eq!(end(third).status.code(), Some(0));
    assert!(!dir.path().join("s").exists() && !dir.path().join("c").exists());
}
