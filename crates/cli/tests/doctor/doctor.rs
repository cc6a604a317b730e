//! The doctor's screen, its document, and its facts as a file.

use serde_json::{Value, json};
use snapbox::{assert_data_eq, str};

use super::tree::Tree;
use super::{document, hugemr, keys, text};

/// The question of the screen.
fn asked(flags: &[&str]) -> std::process::Output {
    let tree = Tree::new();
    let root = tree.at("");
    let words = "doctor --for 896GiB --device sim:erdma --pid 4121 --host-root";
    let mut words: Vec<&str> = words.split(' ').collect();
    words.push(&root);
    words.extend(flags);
    hugemr(words)
}

#[test]
fn the_screen() {
    let out = asked(&[]);
    assert_data_eq!(
        text(&out, 1),
        str![[r#"
NO, not as this host is now: 2 blockers, 2 risks, 1 unknown
BLOCK huge pages short by 58,752 x 2 MiB (114.75 GiB)
      seen  node0 free 200,000  node1 free 200,000  need 458,752
            /sys/devices/system/node/node*/hugepages
      fix   sudo hugemr reserve 896GiB --spread      (keep at boot: --persist)
BLOCK memlock 64 KiB (hard 8 MiB) in pid 4121 mooncake_client; need 939,524,096 KiB
      seen  /proc/4121/limits; CapEff lacks IPC_LOCK; parent containerd-shim
      fix   docker run --ulimit memlock=-1; Kubernetes: LimitMEMLOCK=infinity in containerd.service,
            then restart the pod
            at once: sudo prlimit --pid 4121 --memlock=unlimited:unlimited
RISK  scatter at 4 GiB: an MR with 4 GiB or more in one physical run gets 4 KiB pages: 262,144
      entries a GiB
      seen  kernel 5.15.148 not known to be fixed: counts as affected   Linux 486055f5e09d (6.15,
            6.12.31, 6.1.141); erdma_installer 1.5.2
            driver (unverified): dpkg status 1.2.0-1
      fix   installer bundle 1.5.2 or later (it is there already: say so by --driver 1.5.2)
            curl -fLO mirrors.cloud.aliyuncs.com/erdma/env_setup.sh && sudo bash env_setup.sh
            then, with all its users stopped: sudo rmmod erdma; sudo modprobe erdma; eadm ver
            until then: MRs of 2 GiB, as hugemr plans them
RISK  compat_mode=Y: every MR is remotely writable, whatever flags you pass (vendor driver)
      seen  Y   /sys/module/erdma/parameters/compat_mode
      so    a peer that knows an rkey can write the memory, of read-only MRs too
      fix   if no program needs it: options erdma compat_mode=N in /etc/modprobe.d, and reload the
            driver
?     MTT budget never measured here; lowest field report 24,903,680 entries (need 1.8 %)
      seen  sim:erdma: published nowhere, assumed
      know  try it: hugemr register 896GiB --device sim:erdma; or state it: --budget N
(16 checks fine: --all)

"#]]
    );
}

#[test]
fn yes_undecided_and_strict() {
    let tree = Tree::new();
    let root = tree.at("");
    let ask = |device, strict| {
        let strict = if strict { "--strict" } else { "--all" };
        hugemr([
            "doctor",
            "--for",
            "700GiB",
            "--device",
            device,
            "--host-root",
            &root,
            strict,
        ])
    };
    let known = "sim:ecs.r8a.32xlarge";
    assert!(
        text(&ask(known, true), 0)
            .starts_with("yes: 700 GiB as 350 MRs x 2 GiB on 2 MiB huge pages; 2 risks\n")
    );
    let unknown = ask("sim:erdma", false);
    assert!(text(&unknown, 0).starts_with("undecided: 700 GiB as "));
    text(&ask("sim:erdma", true), 1);
}

#[test]
fn what_the_user_knows_better_is_believed() {
    let tree = Tree::new();
    let root = tree.at("");
    let out = hugemr([
        "doctor",
        "--for",
        "700GiB",
        "--device",
        "sim:erdma",
        "--host-root",
        &root,
        "--driver",
        "1.5.7",
        "--budget",
        "33554431",
    ]);
    let text = text(&out, 0);
    assert!(
        text.starts_with("yes: 700 GiB as 10 MRs x 64 GiB and 1 of 60 GiB"),
        "{text}"
    );
    assert!(!text.contains("env_setup.sh"), "{text}");
}

#[test]
fn the_document() {
    let out = asked(&["--json"]);
    let document = document(&out, 1);
    assert_eq!(
        keys(&document),
        [
            "schema", "answer", "for", "device", "facts", "counts", "findings", "plan"
        ]
    );
    assert_eq!(document["schema"], "hugemr/doctor/1");
    assert_eq!(document["answer"], "no");
    assert_eq!(document["for"], json!(896u64 << 30));
    assert_eq!(document["facts"]["host"], "node-a");
    let findings = document["findings"].as_array().unwrap();
    for finding in findings {
        assert_eq!(
            keys(finding),
            ["code", "harm", "what", "seen", "so", "fix", "decides"]
        );
    }
    let codes = |harm: &str| -> Vec<&str> {
        let of = findings.iter().filter(|f| f["harm"] == harm);
        of.map(|f| f["code"].as_str().unwrap()).collect()
    };
    assert_eq!(codes("block"), ["pool_short", "memlock"]);
    assert_eq!(codes("risk"), ["kernel_bug_scatter", "compat_mode"]);
    assert_eq!(codes("unknown"), ["budget"]);
    assert_eq!(document["counts"]["block"], 2);
    assert_eq!(document["plan"]["schema"], "hugemr/plan/1");
}

#[test]
fn facts_are_saved_and_read_again() {
    let tree = Tree::new();
    let (root, file) = (tree.at(""), tree.at("facts.json"));
    let saved = text(
        &hugemr(["doctor", "--host-root", &root, "--save", &file]),
        1,
    );
    let document: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(document["schema"], "hugemr/facts/1");
    assert_eq!(document["pools"]["global"][0]["free"], 400_000);
    assert_eq!(document["driver"]["candidates"][0]["text"], "1.2.0-1");
    assert_eq!(document["memory"]["cma_total"], Value::Null);

    // Facts of this boot.
    let mut now = document.clone();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    now["taken"]["boot_id"] = json!(boot.trim());
    tree.file("now.json", now.to_string());
    let again = hugemr(["doctor", "--facts", &tree.at("now.json")]);
    let again = String::from_utf8(again.stdout).unwrap();
    assert!(!again.contains("another boot"), "{again}");
    let risk = "compat_mode=Y";
    assert!(saved.contains(risk) && again.contains(risk), "{again}");

    // A day and an hour ago.
    let mut old = now;
    old["taken"]["seconds"] = json!(document["taken"]["seconds"].as_u64().unwrap() - 25 * 3600);
    tree.file("old.json", old.to_string());
    let old = hugemr(["doctor", "--facts", &tree.at("old.json")]);
    let old = String::from_utf8(old.stdout).unwrap();
    assert!(
        old.contains("RISK  the facts of node-a are 25 h old"),
        "{old}"
    );

    // On this machine, which is another one: libibverbs of here says nothing about it.
    let here = text(&hugemr(["doctor", "--facts", &file]), 0);
    assert!(
        here.contains("are of another boot, or of another machine"),
        "{here}"
    );
}

#[test]
fn what_cannot_be_read_is_bad_input() {
    let tree = Tree::new();
    tree.file(
        "bad.json",
        "{\"schema\": \"hugemr/facts/1\", \"memory\": {\"free\": \"much\"}}",
    );
    let bad = hugemr(["doctor", "--facts", &tree.at("bad.json")]);
    text(&bad, 2);
    let err = String::from_utf8(bad.stderr).unwrap();
    assert!(err.contains("memory.free is not a whole number"), "{err}");
    text(&hugemr(["doctor", "--facts", &tree.at("none.json")]), 2);
    text(&hugemr(["doctor", "--host-root", &tree.at("none")]), 2);
    text(&hugemr(["doctor", "--device", "sim:none"]), 2);
    text(&hugemr(["doctor", "--pid", "4194303"]), 3);
}

#[test]
fn this_machine_is_examined() {
    for arguments in [
        ["doctor", "--json", "--all"],
        ["doctor", "--json", "--device=erdma_9"],
        ["doctor", "--json", "--for=64MiB"],
    ] {
        let out = hugemr(arguments);
        let code = out.status.code().unwrap();
        assert!(matches!(code, 0..=2), "{out:?}");
        if code == 2 {
            // Several RDMA devices, and none named.
            continue;
        }
        let document = document(&out, code);
        let no = document["answer"] == "no";
        assert_eq!(no, code == 1);
        assert_eq!(no, document["counts"]["block"] != 0);
    }
}
