//! The command on real devices: those of fake-verbs, a libibverbs look-alike, and none at all.

use std::process::Command;

use crate::common::{ARTICLE, Ran, hugemr, run};

/// The command with fake-verbs instead of libibverbs. Cargo puts it beside the tests.
fn on(devices: &str, line: &str) -> Ran {
    let test = std::env::current_exe().expect("this test is a file");
    let library = test.with_file_name("libfake_verbs.so");
    assert!(library.exists(), "{} is not built", library.display());
    ran(hugemr(line)
        .env("HUGEMR_VERBS_LIB", library)
        .env("FAKE_VERBS", devices))
}

/// The command on a machine without libibverbs.
fn without_rdma(line: &str) -> Ran {
    ran(hugemr(line).env("HUGEMR_VERBS_LIB", "/nowhere/libibverbs.so.1"))
}

fn ran(command: &mut Command) -> Ran {
    command.output().expect("the command starts").into()
}

/// Small enough for any memlock.
const REGISTER: &str = "register 64KiB --device rxe0 --pages 4KiB --max-mr-size 16KiB";

/// To look and find none is an answer; to need one is not.
#[test]
fn a_machine_without_rdma_says_why_and_the_way_out() {
    let looked = without_rdma("devices").exits(0);
    for said in [
        "no RDMA device can be used here",
        "way out",
        "libibverbs1",
        "hugemr devices --simulated",
    ] {
        assert!(looked.out.contains(said), "no {said:?} in {}", looked.out);
    }
    let json = without_rdma("devices --json").exits(0).json();
    assert_eq!(json["devices"].as_array().map(Vec::len), Some(0));
    assert!(json["way_out"].as_str().is_some_and(|way| !way.is_empty()));

    for command in ["register", "plan"] {
        let needed = without_rdma(&format!("{command} 1GiB --device erdma_0")).exits(3);
        for said in [
            "cannot open erdma_0",
            "libibverbs1",
            "hugemr devices --simulated",
        ] {
            assert!(needed.err.contains(said), "no {said:?} in {}", needed.err);
        }
        assert!(needed.out.is_empty(), "{}", needed.out);
    }
}

/// What stands in the way of a device is said by each command, with its own way out.
#[test]
fn each_obstacle_reaches_the_user() {
    for (devices, said) in [
        ("list = ENOSYS", "no user-space verbs"),
        ("list = empty", "there is no RDMA device"),
        ("list = EMFILE", "ibv_get_device_list failed: EMFILE"),
        (
            "device erdma_0",
            "there is no RDMA device rxe0; there is erdma_0",
        ),
        (
            "device rxe0 sim=verbs open=EACCES",
            "may not be opened: EACCES",
        ),
        (
            "device rxe0 sim=verbs query=EIO",
            "ibv_query_device failed on rxe0: EIO",
        ),
        (
            "device rxe0 sim=verbs pd=ENOMEM",
            "ibv_alloc_pd failed on rxe0: ENOMEM",
        ),
    ] {
        let ran = on(devices, REGISTER).exits(3);
        assert!(ran.err.contains(said), "{devices}: {}", ran.err);
    }
}

#[test]
fn a_proof_is_said_and_is_0() {
    let json = on(
        "device rxe0 sim=verbs",
        &format!("{REGISTER} --verify --json"),
    )
    .exits(0)
    .json();
    assert_eq!(json["verified"], "proven");
    assert_eq!(
        (&json["proof"]["mrs"], &json["proof"]["borders"]),
        (&4.into(), &3.into())
    );
    let not_asked = on("device rxe0 sim=verbs", &format!("{REGISTER} --json"));
    assert!(not_asked.exits(0).json()["verified"].is_null());
}

/// A page size that was to be proved and could not be: one line, and no failure unless `--strict` makes it one.
#[test]
fn an_unproved_page_size_is_0_and_strictly_1() {
    let line = format!("register 1GiB --device {ARTICLE} --prove --budget 99999999");
    run(&line)
        .exits(0)
        .says("page size not proved: without memory");
    let json = run(&format!("{line} --json")).exits(0).json();
    assert!(json["page_proof"]["how"].is_null());
    let why = json["page_proof"]["why"].as_str();
    assert!(why.is_some_and(|why| why.contains("--memory real")));
    let strictly = run(&format!("{line} --strict")).exits(1);
    assert!(
        strictly.err.contains("and --strict takes that as no"),
        "{}",
        strictly.err
    );
    let asked_for_nothing = line.replace("--prove", "--strict");
    assert!(!run(&asked_for_nothing).exits(0).out.contains("not proved"));
}

/// A device that cannot reach itself: one line, and no failure unless `--strict` makes it one.
#[test]
fn unproven_is_0_and_strictly_1() {
    for device in [
        "device rxe0 sim=verbs wire=refuses",
        "device rxe0 sim=verbs wire=silent",
        "device rxe0 sim=verbs transport=iwarp",
        "device rxe0 sim=verbs qp=ENOMEM",
    ] {
        let ran = on(device, &format!("{REGISTER} --verify")).exits(0);
        let lines = ran
            .out
            .lines()
            .filter(|line| line.starts_with("unproven: "));
        assert_eq!(lines.count(), 1, "{device}: {}", ran.out);
        let json = on(device, &format!("{REGISTER} --verify --json"))
            .exits(0)
            .json();
        assert_eq!(json["verified"], "unproven");
        let why = json["proof"]["why"].as_str().unwrap_or_default();
        assert!(why.contains("no loopback connection on rxe0"), "{why}");
    }
    // `--strict` wants a plan without a doubt, so that only the proof is in doubt: one of known limits.
    let known = format!("register 1GiB --device {ARTICLE} --strict");
    run(&known).exits(0);
    let strictly = run(&format!("{known} --verify")).exits(1);
    assert!(
        strictly.err.contains("unproven, and --strict"),
        "{}",
        strictly.err
    );
}

/// Data that does not arrive is not the same as no way to send it.
#[test]
fn a_failed_proof_is_1() {
    for wire in ["loses", "flips"] {
        let device = format!("device rxe0 sim=verbs wire={wire}");
        on(&device, &format!("{REGISTER} --verify"))
            .exits(1)
            .says("PROOF FAILED");
        let json = on(&device, &format!("{REGISTER} --verify --json"))
            .exits(1)
            .json();
        assert_eq!(json["verified"], "failed");
    }
}

/// The only device that is there has its table, named or not; another's is not its.
#[test]
fn the_only_device_has_its_table_of_the_config_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("config.toml");
    std::fs::write(&config, "[devices.rxe0]\nbudget = 7000\n").expect("a file");
    let line = format!("plan 4MiB --pages 4KiB --config {}", config.display());
    for more in ["", " --device rxe0"] {
        on("device rxe0 sim=verbs", &format!("{line}{more}"))
            .exits(0)
            .says("7,000");
    }
    let ran = on("device rxe1 sim=verbs", &line).exits(0);
    assert!(!ran.out.contains("7,000"), "{}", ran.out);
}

/// Bytes of a line of /proc/meminfo.
fn meminfo(key: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").expect("Linux");
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let words = line.and_then(|line| line.split_whitespace().nth(1));
    words.and_then(|n| n.parse::<u64>().ok()).expect("a number") * 1024
}

/// More than the memory of this host on pages of any kind: what fits in the memory is offered, and nothing that does not.
#[test]
fn no_way_out_takes_more_memory_than_there_is() {
    let all = meminfo("MemTotal");
    let gib = (all >> 30) * 2 + 2;
    let what = format!("{gib}GiB --device sim:verbs --memory real");
    let json = run(&format!("register {what} --json")).exits(1).json();
    let ways = json["ways_out"].as_array().expect("a list");
    assert!(!ways.is_empty(), "{json}");
    for way in ways {
        assert_eq!(way["way"], "smaller", "{json}");
        let bytes = way["bytes"].as_u64().expect("a number");
        assert!(0 < bytes && bytes < all, "{json}");
        let command = way["commands"][0].as_str().expect("a command");
        assert!(!command.contains(&format!("{gib}GiB")), "{command}");
    }
    let in_memory = ways.iter().rfind(|way| {
        let command = way["commands"][0].as_str();
        command.is_some_and(|command| command.contains("--pages "))
    });
    let bytes = in_memory.map(|way| way["bytes"].as_u64());
    let pools = ways[0]["bytes"].as_u64();
    assert!(
        bytes.is_some() || pools > Some(meminfo("MemAvailable")),
        "{json}"
    );
    // A plan for a simulated host is not about the memory of this one.
    let json = run(&format!(
        "plan {gib}GiB --device sim:verbs --chunk 4KiB --max-mr 5 --json"
    ));
    let json = json.exits(1).json();
    let ways = json["ways_out"].as_array().expect("a list");
    assert!(ways.iter().any(|way| way["way"] != "smaller"), "{json}");
}
