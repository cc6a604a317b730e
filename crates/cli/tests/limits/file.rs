//! The limits file as the commands meet it: broken, unwritable, written by several at once; and `learn`.

use std::io::{BufRead as _, BufReader};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::Stdio;

use crate::common::{hugemr, run};

fn learn(path: &Path, device: &str, more: &str) -> String {
    format!("learn {more} --device {device} --limits {}", path.display())
}

#[test]
fn a_report_becomes_an_interval_and_a_contradiction_is_refused() {
    run("learn --ok 95GiB --fail 96GiB")
        .exits(0)
        .says("24,903,680 entries fit, 25,165,824 do not");
    run("learn --ok 96GiB --fail 95GiB").exits(1);
    // Of no device it is only said, and that is said, too.
    run("learn --ok 95GiB")
        .exits(0)
        .says("not saved: no device");
    let ran = run("learn").exits(2);
    assert!(
        ran.err.contains("neither --ok SIZE nor --fail SIZE") && ran.err.contains("--fail 96GiB"),
        "{}",
        ran.err
    );
    run("learn --ok 0").exits(2);
    run("learn --ok 1GiB --device sim:erdma").exits(2);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    run(&learn(&path, "erdma_0", "--ok 95GiB --fail 97GiB"))
        .exits(0)
        .says("24,903,680 to 25,427,967");
    run(&learn(&path, "erdma_0", "--fail 96GiB"))
        .exits(0)
        .says("24,903,680 to 25,165,823");
    run(&learn(&path, "erdma_0", "--ok 1GiB"))
        .exits(0)
        .says("known already");
    let before = std::fs::read_to_string(&path).unwrap();
    let ran = run(&learn(&path, "erdma_0", "--ok 100GiB")).exits(1);
    assert!(ran.err.contains("contradict"), "{}", ran.err);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
    let json = run(&learn(&path, "erdma_0", "--ok 1GiB --json"))
        .exits(0)
        .json();
    assert_eq!(json["saved"]["record"]["entries"]["max"], 25_165_823);
    assert_eq!(json["saved"]["file"], path.to_str().unwrap());
    assert_eq!(json["schema"], "hugemr/learn/2");
}

#[test]
fn a_broken_file_is_said_with_its_line_and_never_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    for (text, why) in [
        ("version = 1\n[[device]]\nname = 5\n# end\n", "line 3"),
        ("version = 1\n[[device]]\nname = \"erdma_0\"\n", "cut off"),
        ("version = 7\n", "later hugemr"),
        ("version = 0\n", "never written"),
    ] {
        std::fs::write(&path, text).unwrap();
        let with = format!("--device sim:erdma --limits {}", path.display());
        let plan = run(&format!("plan 896GiB {with}"))
            .exits(0)
            .says("undecided");
        assert!(
            plan.err.contains(why) && plan.err.contains("mv "),
            "{}",
            plan.err
        );
        for line in [
            format!("probe {with} --up-to 100000"),
            learn(&path, "erdma_0", "--ok 1GiB"),
        ] {
            let ran = run(&line).exits(3);
            assert!(
                ran.err.contains("saved") && ran.err.contains(why),
                "{}",
                ran.err
            );
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
}

/// A file of another program is to stay where it is, unless it lies where hugemr puts its own.
#[test]
fn a_file_of_something_else_is_not_moved_away() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    for text in [
        "root:x:0:0:root:/root:/bin/bash\n",
        "\u{0}\u{1}",
        "[package]\nname = \"x\"\nversion = \"1\"\n",
        "version = 4\n\n[[package]]\nname = \"x\"\n",
        "device = \"erdma_0\"\n",
    ] {
        std::fs::write(&path, text).unwrap();
        let with = format!("--device sim:erdma --limits {}", path.display());
        for (line, code) in [
            (format!("plan 1GiB {with}"), 0),
            (format!("probe {with} --up-to 100000"), 3),
            (learn(&path, "erdma_0", "--ok 1GiB"), 3),
        ] {
            let err = run(&line).exits(code).err;
            assert!(err.contains("is no limits file: "), "{line}: {err}");
            assert!(err.contains("another file: --limits FILE"), "{line}: {err}");
            assert!(!err.contains("mv "), "{line}: {err}");
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
    let ran: crate::common::Ran = hugemr("plan 1GiB --device sim:erdma")
        .env("HUGEMR_LIMITS", &path)
        .output()
        .unwrap()
        .into();
    assert!(!ran.exits(0).err.contains("mv "));
}

#[test]
fn a_file_that_cannot_be_written_is_said_before_a_probe_and_costs_no_registration() {
    let path = Path::new("/proc/no/limits.toml");
    let ran = run(&format!(
        "probe --device sim:erdma --up-to 100000 --limits {}",
        path.display()
    ))
    .exits(3);
    assert!(ran.out.is_empty(), "nothing is probed: {}", ran.out);
    assert!(
        ran.err.contains("/proc/no") && ran.err.contains("--limits FILE"),
        "{}",
        ran.err
    );
    let ran = run(&format!(
        "register 1GiB --device sim:erdma --limits {}",
        path.display()
    ))
    .exits(0);
    assert!(ran.err.contains("not saved"), "{}", ran.err);
}

#[test]
fn processes_that_write_at_once_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    let children: Vec<_> = (0..12)
        .map(|n| {
            let line = learn(&path, &format!("erdma_{n}"), &format!("--ok {}GiB", n + 1));
            hugemr(&line)
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    for n in 0..12u64 {
        let line = learn(&path, &format!("erdma_{n}"), "--ok 4KiB --json");
        let json = run(&line).exits(0).json();
        assert_eq!(json["saved"]["record"]["entries"]["min"], (n + 1) * 262_144);
    }
}

#[test]
fn what_is_no_regular_file_is_refused_before_anything_is_probed() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let inside = folder.path().join("folder");
    std::fs::create_dir(&inside).unwrap();
    for path in [&pipe, &inside, Path::new("/dev/null")] {
        let with = format!("--device sim:erdma --limits {}", path.display());
        for line in [format!("probe {with}"), format!("learn --ok 1GiB {with}")] {
            let ran = run(&line).exits(2);
            assert!(ran.err.contains("not a regular file"), "{}", ran.err);
            assert!(
                !ran.err.contains("mv ") && !ran.err.contains("probing"),
                "{}",
                ran.err
            );
        }
        assert!(!Path::new(&format!("{}.lock", path.display())).exists());
    }
}

#[test]
fn a_printed_path_is_quoted_for_a_shell() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my limits.toml");
    std::fs::write(&path, "version = 7\n").unwrap();
    for line in [
        "plan 1GiB --device sim:erdma",
        "learn --ok 1GiB --device erdma_0",
    ] {
        let ran = hugemr(line).env("HUGEMR_LIMITS", &path).output().unwrap();
        let err = String::from_utf8(ran.stderr).unwrap();
        let text = format!("mv '{0}' '{0}.bad'", path.display());
        assert!(err.contains(&text), "{err}");
    }
}

#[test]
fn a_report_is_saved_for_what_can_be_a_device_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    for name in ["", "./dev.toml", "a/b"] {
        let mut command = hugemr("learn --ok 1GiB --device");
        let out = command.arg(name).arg("--limits").arg(&path).output();
        let ran: crate::common::Ran = out.unwrap().into();
        ran.exits(2);
        assert!(!path.exists(), "{name}");
    }
    let ran = run(&learn(&path, "no_such_device", "--ok 1GiB")).exits(0);
    assert!(ran.err.contains("no device no_such_device"), "{}", ran.err);
}

#[test]
fn an_empty_variable_names_no_file() {
    for line in ["plan 1GiB --device sim:erdma", "learn --ok 1GiB"] {
        let ran: crate::common::Ran = hugemr(line)
            .env("HUGEMR_LIMITS", "")
            .env("HUGEMR_CONFIG", "")
            .output()
            .unwrap()
            .into();
        assert!(ran.exits(0).err.is_empty(), "{line}");
    }
    let ran: crate::common::Ran = hugemr("plan 1GiB --device sim:erdma")
        .env("HUGEMR_CONFIG", "/no/such.toml")
        .output()
        .unwrap()
        .into();
    ran.exits(2);
}

/// A typing error is no silent other answer; a file that is to be made is none.
#[test]
fn a_file_that_is_typed_and_not_there_is_noted_where_it_is_only_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none.toml");
    let named = format!("--device sim:erdma --limits {}", path.display());
    let note = format!("--limits {}: there is no such file", path.display());
    for line in [
        "plan 1GiB",
        "plan 1TiB --pages 4KiB --chunk 4KiB",
        "doctor --for 1GiB",
        "diagnose --errno EIO",
        "register 1GiB",
    ] {
        // A registration makes it.
        let _none = std::fs::remove_file(&path);
        let ran = run(&format!("{line} {named}"));
        let noted = format!("note: {note}");
        assert_eq!(ran.err.matches(&noted).count(), 1, "{line}: {}", ran.err);
        let _none = std::fs::remove_file(&path);
        let json = run(&format!("{line} {named} --json")).json();
        let said = json["notes"][0].as_str().unwrap_or_default();
        assert!(said.starts_with(&note), "{line}: {json}");
        // What stands in the environment may come later.
        let _none = std::fs::remove_file(&path);
        let ran: crate::common::Ran = hugemr(&format!("{line} --device sim:erdma"))
            .env("HUGEMR_LIMITS", &path)
            .output()
            .unwrap()
            .into();
        assert!(!ran.err.contains("no such file"), "{line}: {}", ran.err);
    }
    for line in ["learn --ok 1GiB", "probe"] {
        let _none = std::fs::remove_file(&path);
        let ran = run(&format!("{line} {named}")).exits(0);
        assert!(!ran.err.contains("no such file"), "{line}: {}", ran.err);
        assert!(path.exists(), "{line}");
    }
    let ran = run(&format!("plan 1GiB {named}")).exits(0);
    assert!(ran.err.is_empty(), "{}", ran.err);
}

#[test]
fn a_lock_of_another_process_is_said_while_it_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    let lock = std::fs::File::create(folder.path().join("limits.toml.lock")).unwrap();
    // SAFETY: the descriptor is open; flock touches no memory.
    let code = unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) };
    assert_eq!(code, 0);
    let mut child = hugemr(&learn(&path, "sim:erdma", "--ok 1GiB"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut err = BufReader::new(child.stderr.take().unwrap());
    err.read_line(&mut said).unwrap();
    drop(lock);
    assert!(child.wait().unwrap().success());
    assert!(
        said.contains("waiting for up to") && said.contains("limits.toml.lock"),
        "{said}"
    );
}

/// What `learn` saved wrongly is no dead end: the refusal names the file, the date and the ways to correct it.
#[test]
fn a_refusal_by_what_was_learned_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    let device = "sim:erdma";
    run(&learn(&path, device, "--fail 16KiB")).exits(0);
    let at = path.display();
    run(&format!(
        "plan 1GiB --pages 2MiB --device {device} --limits {at}"
    ))
    .exits(1)
    .says("the limit comes from    told by learn on ")
    .says(&format!("in {at}, given"))
    .says(&format!("delete its block in {at} (name = \"{device}\")"))
    .says(&format!("hugemr probe --device {device} --limits {at}"));
    // Where another limit is met, the file has nothing to do with it.
    let ran = run(&format!(
        "plan 1GiB --pages 2MiB --device {device} --limits {at} --budget 100"
    ))
    .exits(1);
    assert!(!ran.out.contains("delete its block"), "{}", ran.out);
}

/// A table without entries is no finding, and a size that is no one MR on the device is said.
#[test]
fn a_report_that_cannot_be_is_refused_or_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    let line = format!(
        "learn --device sim:ecs.r8a.32xlarge --limits {}",
        path.display()
    );
    let ran = run(&format!("{line} --fail 4KiB")).exits(1);
    assert!(
        ran.err.contains("a table without entries is none"),
        "{}",
        ran.err
    );
    assert!(!path.exists());
    let ran = run(&format!("{line} --ok 100GiB")).exits(0);
    let part = "100GiB is no one MR on sim:ecs.r8a.32xlarge, whose max_mr_size is 64 GiB";
    assert!(ran.err.contains(part), "{}", ran.err);
    let ran = run(&format!("{line} --ok 64GiB")).exits(0);
    assert!(ran.err.is_empty(), "{}", ran.err);
}
