//! The limits file as the commands meet it: broken, unwritable, written by several at once; and `learn`.

use std::path::Path;

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
    run("learn").exits(2);
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
    assert_eq!(json["saved"]["entries"]["max"], 25_165_823);
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
        ("\u{0}\u{1}", "not understood"),
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
                ran.err.contains("not saved") && ran.err.contains(why),
                "{}",
                ran.err
            );
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
}

#[test]
fn a_file_that_cannot_be_written_costs_no_answer() {
    let path = Path::new("/proc/no/limits.toml");
    let ran = run(&format!(
        "probe --device sim:erdma --up-to 100000 --limits {}",
        path.display()
    ))
    .exits(3)
    .says("100,000 or more");
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
        assert_eq!(json["saved"]["entries"]["min"], (n + 1) * 262_144);
    }
}
