//! What a probe finds on simulated devices, and who uses it afterwards.

use std::io::Read as _;

use crate::common::{hugemr, run};

/// A simulated device in a file, with more lines.
fn device(folder: &tempfile::TempDir, base: &str, more: &str) -> String {
    let path = folder.path().join(format!("{base}.toml"));
    std::fs::write(&path, format!("base = \"{base}\"\n{more}")).unwrap();
    format!("sim:{}", path.display())
}

#[test]
fn four_families_are_found_to_the_entry_and_released() {
    for (name, entries) in [
        ("sim:ecs.r8a.32xlarge", 33_554_431u64),
        ("sim:ionic", 1 << 20),
        ("sim:efa", 25_165_823),
        ("sim:mlx4", 8_388_608),
        ("sim:ascend", 8_388_608),
    ] {
        let ran = run(&format!("probe --device {name} --json")).exits(0);
        let json = ran.json();
        assert_eq!(json["exact"], entries, "{name}");
        assert_eq!(json["end"], "full", "{name}");
        assert_eq!(json["left"], 0, "{name}");
        assert!(json["saved"].is_null(), "{name}");
        assert_eq!(json["large_pages"]["used"], true, "{name}");
    }
}

#[test]
fn a_limit_of_one_mr_a_wrong_length_and_small_pages_are_told() {
    let ionic = run("probe --device sim:ionic --json").json();
    assert_eq!(ionic["entries_per_mr"]["worked"], 524_288);
    // One entry more is longer than what is advertised: not tried.
    assert!(ionic["entries_per_mr"]["refused"].is_null());
    assert_eq!(
        ionic["longest_mr"]["longer_refused"], false,
        "the advertised size is a disguise"
    );
    let old = "probe --device sim:ecs.r8a.32xlarge --kernel 6.1.192 --driver in-tree";
    run(old).exits(0).says("WRONG: 64 GiB arrived as 0 B");
    run("probe --device sim:ecs.r8a.32xlarge --kernel 4.19")
        .exits(0)
        .says("NOT used");
}

#[test]
fn a_plan_a_doctor_and_a_registration_use_what_was_probed() {
    let folder = tempfile::tempdir().unwrap();
    let name = device(&folder, "erdma", "[actual]\nentries = 1_000_000\n");
    let limits = folder.path().join("x/limits.toml");
    let with = format!("--device {name} --limits {}", limits.display());
    run(&format!("plan 8GiB --pages 4KiB {with}"))
        .exits(0)
        .says("undecided");
    run(&format!("probe {with}"))
        .exits(0)
        .says("1,000,000 table entries, to the entry")
        .says("saved in");
    let refused = run(&format!("plan 8GiB --pages 4KiB {with}")).exits(1);
    assert!(refused.out.contains("1,000,000"), "{}", refused.out);
    run(&format!("plan 3GiB --pages 4KiB {with}"))
        .exits(0)
        .says("probed on 20");
    run(&format!("register 8GiB --pages 4KiB {with}")).exits(1);
    let doctor = run(&format!("doctor --for 8GiB --pages 4KiB {with}")).exits(1);
    assert!(doctor.out.contains("1,000,000"), "{}", doctor.out);
    let diagnosis = run(&format!(
        "diagnose --errno EIO --length 8GiB --page 4KiB {with}"
    ))
    .exits(0);
    assert!(diagnosis.out.contains("1,000,000"), "{}", diagnosis.out);
    // Another file knows nothing, nor does none at all.
    run(&format!("plan 8GiB --pages 4KiB --device {name}"))
        .exits(0)
        .says("undecided");
}

#[test]
fn what_was_measured_under_other_software_is_said_and_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let name = device(&folder, "erdma", "[actual]\nentries = 1_000_000\n");
    let limits = folder.path().join("limits.toml");
    let with = format!("--device {name} --limits {}", limits.display());
    run(&format!("probe {with}")).exits(0);
    let ran = run(&format!("plan 8GiB --pages 4KiB {with} --kernel 6.13.1"))
        .exits(0)
        .says("undecided");
    for text in ["1,000,000", "kernel was 6.12.31, is 6.13.1", "hugemr probe"] {
        assert!(ran.err.contains(text), "{}", ran.err);
    }
}

#[test]
fn a_bound_a_deadline_and_others_give_an_interval_or_a_no() {
    let ran = run("probe --device sim:ecs.r8a.32xlarge --up-to 1000000 --json")
        .exits(0)
        .json();
    assert_eq!(
        (&ran["end"], &ran["entries"]["min"]),
        (&"up_to".into(), &1_000_000.into())
    );
    assert!(ran["entries"]["max"].is_null());
    let folder = tempfile::tempdir().unwrap();
    let slow = device(&folder, "erdma", "[delay]\nreg_us = 40000\n");
    let ran = run(&format!("probe --device {slow} --deadline 300ms --json"))
        .exits(0)
        .json();
    assert_eq!(ran["end"], "deadline");
    assert_eq!(ran["left"], 0);
    // What is held is released by then, too.
    let slow = device(
        &folder,
        "verbs",
        "[delay]\nreg_us = 20000\ndereg_us = 20000\n",
    );
    let ran = run(&format!("probe --device {slow} --deadline 1s --json"))
        .exits(0)
        .json();
    assert_eq!((&ran["end"], &ran["left"]), (&"deadline".into(), &0.into()));
    // 25 come and go in a second; 50 would come, and not go.
    assert!(ran["registrations"].as_u64().unwrap() <= 35, "{ran}");
    assert_eq!(ran["stopped"], "deadline");
    let held = device(&folder, "efa", "[used]\nentries = 5000\nmrs = 3\n");
    run(&format!("probe --device {held}"))
        .exits(1)
        .says("others hold 3 MRs")
        .says("--beside-others");
    let beside = run(&format!("probe --device {held} --beside-others --json"))
        .exits(0)
        .json();
    assert_eq!(beside["exact"], 25_165_823);
    run("probe --device sim:erdma --memlock 64MiB")
        .exits(1)
        .says("16,384 entries")
        .says("way out    hugemr probe --device sim:erdma; or: --up-to 16384")
        .says("--up-to 16384");
    run("probe --device sim:erdma --memlock 64MiB --limits /no/such.toml")
        .exits(1)
        .says("hugemr probe --device sim:erdma --limits /no/such.toml;");
    let ran = run("probe --device sim:erdma --memlock 0 --count-mrs --mr 1MiB").exits(1);
    assert!(
        ran.out
            .ends_with("way out    hugemr probe --device sim:erdma --count-mrs --mr 1MiB\n"),
        "{}",
        ran.out
    );
    run("probe --device sim:erdma --memlock 64MiB --up-to 16384").exits(0);
    run("probe --device sim:erdma --deadline soon").exits(2);
    run("probe --device sim:erdma --up-to 0").exits(2);
    for short in ["0", "1ms"] {
        let ran = run(&format!("probe --device sim:erdma --deadline {short}")).exits(2);
        assert!(ran.err.contains("too short for a probe"), "{}", ran.err);
    }
    run("probe --device sim:erdma --deadline 1h").exits(0);
}

/// A script reads one document, whatever the answer is.
#[test]
fn a_refusal_is_one_document_too() {
    let folder = tempfile::tempdir().unwrap();
    let held = device(&folder, "efa", "[used]\nentries = 5000\nmrs = 3\n");
    let limits = folder.path().join("limits.toml");
    let learn = format!("learn --device erdma_0 --limits {}", limits.display());
    run(&format!("{learn} --ok 95GiB --fail 96GiB")).exits(0);
    for (line, word) in [
        (format!("probe --device {held} --json"), "others hold 3 MRs"),
        (
            "probe --device sim:erdma --memlock 64MiB --json".to_owned(),
            "memlock 64 MiB",
        ),
        (format!("{learn} --ok 100GiB --json"), "contradict"),
    ] {
        let json = run(&line).exits(1).json();
        assert_eq!(json["schema"], "hugemr/error/1", "{line}");
        let said = json["error"].as_str().unwrap();
        assert!(said.contains(word), "{said}");
    }
    let ran = run(&format!("{learn} --ok 100GiB")).exits(1);
    let again = format!("probe --device erdma_0 --limits {}", limits.display());
    assert!(ran.err.contains(&again), "{}", ran.err);
}

/// What only a probe finds is used by every command that plans or explains.
#[test]
fn pages_and_lengths_that_a_probe_found_count_as_measured() {
    let folder = tempfile::tempdir().unwrap();
    let limits = folder.path().join("limits.toml");
    let with = format!(
        "--device sim:ecs.r8a.32xlarge --limits {}",
        limits.display()
    );
    run(&format!("probe {with}")).exits(0);
    let text = std::fs::read_to_string(&limits).unwrap();
    assert!(text.contains("large_pages = true"), "{text}");
    std::fs::write(
        &limits,
        text.replace("large_pages = true", "large_pages = false"),
    )
    .unwrap();
    for line in [
        format!("plan 896GiB {with}"),
        format!("doctor --for 896GiB {with}"),
        format!("register 896GiB {with}"),
    ] {
        let ran = run(&line).exits(1);
        for word in ["measured by probe on", "234,881,024"] {
            assert!(ran.out.contains(word), "{line}: {}", ran.out);
        }
    }
    run(&format!("plan 8GiB --explain {with}"))
        .exits(0)
        .says("present: measured by probe on");
    run(&format!("diagnose --errno EIO --length 8GiB {with}"))
        .exits(0)
        .says("measured by probe on");
    // Asked of another kernel, it says nothing.
    run(&format!("plan 896GiB {with} --kernel 6.15"))
        .exits(0)
        .says("458,752");

    let short = device(
        &folder,
        "ecs.r8a.32xlarge",
        "[actual]\nmax_mr_size = \"32GiB\"\n",
    );
    let with = format!("--device {short} --limits {}", limits.display());
    run(&format!("probe {with}"))
        .exits(0)
        .says("32 GiB worked, 32 GiB + 4 KiB refused twice");
    let json = run(&format!("probe {with} --json")).exits(0).json();
    assert_eq!(json["longest_mr"]["within"]["worked"], 32u64 << 30);
    run(&format!("plan 896GiB {with}"))
        .exits(0)
        .says("28 MRs x 32 GiB")
        .says("measured by probe on");
}

#[test]
fn deregistrations_that_failed_say_nothing_of_large_pages() {
    let folder = tempfile::tempdir().unwrap();
    let fault = "[[fault]]\ncall = \"dereg_mr\"\nfirst = 3\nlast = 9\nerrno = \"EBUSY\"\n";
    let more = format!("[actual]\nentries = 40000\n{fault}");
    let name = device(&folder, "ecs.r8a.32xlarge", &more);
    let limits = folder.path().join("limits.toml");
    run(&format!(
        "probe --device {name} --limits {}",
        limits.display()
    ))
    .exits(3);
    let text = std::fs::read_to_string(&limits).unwrap();
    assert!(!text.contains("large_pages"), "{text}");
}

#[test]
fn few_mrs_find_the_whole_table() {
    let json = run("probe --device sim:ecs.r8a.32xlarge --max-mr 12 --json")
        .exits(0)
        .json();
    assert_eq!(json["exact"], 33_554_431);
}

#[test]
fn a_registration_narrows_what_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let name = device(&folder, "erdma", "[actual]\nentries = 1_000_000\n");
    let limits = folder.path().join("limits.toml");
    let with = format!("--device {name} --limits {}", limits.display());
    let ran = run(&format!("register 1GiB --pages 4KiB {with}")).exits(0);
    assert!(ran.err.contains("262,144 or more entries"), "{}", ran.err);
    // 16 GiB of 4 KiB pages as MRs of 1 GiB: the fourth is refused.
    let ran = run(&format!("register 16GiB --chunk 1GiB --pages 4KiB {with}")).exits(3);
    assert!(
        ran.err
            .contains("now known to have 786,432 to 1,048,575 entries"),
        "{}",
        ran.err
    );
    let ran = run(&format!("register 512MiB --pages 4KiB {with}")).exits(0);
    assert!(!ran.err.contains("now known"), "{}", ran.err);
    // Without a file nothing is saved for a simulated device.
    let ran = run(&format!("register 1GiB --pages 4KiB --device {name}")).exits(0);
    assert!(ran.err.is_empty(), "{}", ran.err);
}

#[test]
fn usage_needs_a_kernel_with_rdma() {
    run("usage --device sim:erdma").exits(2);
    let ran = run("usage");
    assert!([0, 3].contains(&ran.code), "{}", ran.err);
    assert_eq!(run("usage --device no_such_device").code, 3);
}

#[test]
fn the_look_for_the_longest_mr_keeps_to_the_bound_and_says_so() {
    let line = "probe --device sim:ecs.r8a.32xlarge --up-to 1";
    let ran = run(line)
        .exits(0)
        .says("not tried: it would take up to 16,777,216 entries, more than --up-to 1");
    assert!(!ran.out.contains("arrived whole"), "{}", ran.out);
    let json = run(&format!("{line} --json")).exits(0).json();
    assert_eq!(json["over_up_to"]["longest_mr"], 16_777_216);
    assert!(json["longest_mr"].is_null());
}

#[test]
fn a_length_that_was_not_registered_did_not_arrive() {
    let folder = tempfile::tempdir().unwrap();
    for entries in [1, 100] {
        let name = device(
            &folder,
            "ecs.r8a.32xlarge",
            &format!("[actual]\nentries = {entries}\n"),
        );
        let ran = run(&format!("probe --device {name}"))
            .exits(0)
            .says("64 GiB refused")
            .says("no MR of that length was registered");
        assert!(!ran.out.contains("arrived whole"), "{}", ran.out);
        let json = run(&format!("probe --device {name} --json")).json();
        assert!(json["longest_mr"]["sent"].is_null(), "{json}");
    }
}

#[test]
fn a_probe_that_a_signal_stops_has_not_succeeded() {
    let folder = tempfile::tempdir().unwrap();
    let slow = device(&folder, "erdma", "[delay]\nreg_us = 200000\n");
    let child = hugemr(&format!(
        "probe --device {slow} --json --deadline 60s --mr 1MiB"
    ))
    .stdout(std::process::Stdio::piped())
    .spawn()
    .unwrap();
    std::thread::sleep(std::time::Duration::from_secs(1));
    let sent = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
    let ran: crate::common::Ran = child.wait_with_output().unwrap().into();
    let json = ran.exits(3).json();
    assert_eq!(
        (&json["end"], &json["left"]),
        (&"cancelled".into(), &0.into())
    );
}

/// The table is found by some fifty registrations, and then as many MRs are counted as there are: a signal meanwhile ends it as
/// in any other phase. How far it has come is seen on a terminal.
#[test]
fn a_signal_while_mrs_are_counted_is_no_success_either() {
    let folder = tempfile::tempdir().unwrap();
    let slow = device(&folder, "ecs.r8a.32xlarge", "[delay]\nreg_us = 2000\n");
    let (mut shown, written) = crate::common::terminal();
    let mut command = hugemr(&format!("probe --device {slow} --count-mrs"));
    let child = command
        .env("TERM", "xterm")
        .stdout(std::process::Stdio::piped())
        .stderr(written)
        .spawn()
        .unwrap();
    drop(command);
    let mut seen = Vec::new();
    let mut some = [0; 4096];
    let mut sent = false;
    while let Ok(n @ 1..) = shown.read(&mut some) {
        seen.extend_from_slice(&some[..n]);
        let text = String::from_utf8_lossy(&seen);
        // No more MRs than these are needed for the table.
        let held = |line: &str| line.trim().rsplit(' ').next()?.parse::<u64>().ok();
        let mut counts = text.split(" MRs held").filter_map(held);
        if !sent && counts.any(|held| held > 100) {
            sent = true;
            let kill = std::process::Command::new("kill")
                .args(["-TERM", &child.id().to_string()])
                .status();
            assert!(kill.unwrap().success());
        }
    }
    assert!(sent, "{}", String::from_utf8_lossy(&seen));
    let ran: crate::common::Ran = child.wait_with_output().unwrap().into();
    ran.exits(3)
        .says("33,554,431 table entries, to the entry")
        .says("counting ended there: stopped by a signal");
}

#[test]
fn a_probe_that_contradicts_an_earlier_one_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let limits = folder.path().join("limits.toml");
    for (entries, contradicts) in [(1_000_000, false), (1_000_000, false), (2_000_000, true)] {
        let name = device(
            &folder,
            "erdma",
            &format!("[actual]\nentries = {entries}\n"),
        );
        let ran = run(&format!(
            "probe --device {name} --limits {}",
            limits.display()
        ))
        .exits(0);
        let said = ran.out.contains("contradicts the 1,000,000 table entries");
        assert_eq!(said, contradicts, "{}", ran.out);
    }
}

#[test]
fn longer_mrs_are_spoken_of_only_where_they_are_possible() {
    let folder = tempfile::tempdir().unwrap();
    let few = device(
        &folder,
        "erdma",
        "[limits]\nmax_mr = 3\nmax_mr_size = \"1GiB\"\n",
    );
    let ran = run(&format!("probe --device {few} --mr 1MiB"))
        .exits(0)
        .says("longer ones with --mr SIZE");
    assert!(!ran.err.contains("is taken"), "{}", ran.err);
    let ran = run(&format!("probe --device {few} --mr 2GiB"))
        .exits(0)
        .says("no longer one is possible");
    assert!(ran.err.contains("1 GiB is taken"), "{}", ran.err);
}

/// A device file with this name of its own.
fn named(folder: &tempfile::TempDir, more: &str) -> String {
    let path = folder.path().join("file.toml");
    let text = format!("base = \"erdma\"\nname = \"mine\"\n{more}");
    std::fs::write(&path, text).unwrap();
    format!("sim:{}", path.display())
}

#[test]
fn a_device_of_a_file_has_one_key_and_is_named_as_it_can_be_opened() {
    let folder = tempfile::tempdir().unwrap();
    let name = named(&folder, "[actual]\nentries = 1_000_000\n");
    let limits = folder.path().join("limits.toml");
    let with = format!("--device {name} --limits {}", limits.display());
    let keys = || {
        let text = std::fs::read_to_string(&limits).unwrap();
        let keys = text.lines().filter(|line| line.starts_with("name = "));
        keys.map(str::to_owned).collect::<Vec<_>>()
    };
    // As an older hugemr has kept what it was told.
    let old = format!(
        "version = 1\n[[device]]\nname = \"{name}\"\nchanged = 1\nconfidence = \"told\"\nentries = {{ at_least = 500000 }}\n# end\n"
    );
    std::fs::write(&limits, old).unwrap();
    run(&format!("plan 1GiB --pages 4KiB {with}"))
        .exits(0)
        .says("500,000");
    run(&format!("learn --ok 2304MiB {with}"))
        .exits(0)
        .says(&format!("589,824 or more table entries of {name}"));
    assert_eq!(keys(), ["name = \"sim:mine\""]);
    run(&format!("learn --fail 8GiB {with}"))
        .exits(0)
        .says("589,824 to 2,097,151");
    let doctor = run(&format!("doctor --for 3GiB --pages 4KiB {with} --all"));
    let way = format!("hugemr register 3GiB {with};");
    assert!(doctor.out.contains(&way), "{}", doctor.out);
    run(&format!("probe {with}")).exits(0).says("saved in");
    run(&format!(
        "diagnose --errno EIO --length 8GiB --page 4KiB {with}"
    ))
    .exits(0)
    .says("1,000,000");
    assert_eq!(keys(), ["name = \"sim:mine\""]);
    let ran = run(&format!("learn --ok 8GiB {with}")).exits(1);
    for text in ["name = \"sim:mine\"", &format!("probe --device {name}")] {
        assert!(ran.err.contains(text), "{}", ran.err);
    }
    let ran = run(&format!("plan 8GiB --pages 4KiB {with} --kernel 6.13.1"))
        .exits(0)
        .says(&format!("know: hugemr probe --device {name}"));
    assert!(
        ran.err
            .contains(&format!("again: hugemr probe --device {name}")),
        "{}",
        ran.err
    );
    run(&format!(
        "learn --ok 1GiB --device sim:nothing --limits {}",
        limits.display()
    ))
    .exits(2);
}

#[test]
fn a_file_without_a_name_is_one_device_however_its_path_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let whole = device(&folder, "erdma", "[actual]\nentries = 1_000_000\n");
    for name in [whole.as_str(), "sim:./erdma.toml", "sim:erdma.toml"] {
        let ran = hugemr(&format!("learn --ok 1GiB --device {name} --limits l.toml"))
            .current_dir(folder.path())
            .output();
        let ran: crate::common::Ran = ran.unwrap().into();
        ran.exits(0);
    }
    let text = std::fs::read_to_string(folder.path().join("l.toml")).unwrap();
    assert_eq!(text.matches("[[device]]").count(), 1, "{text}");
}

#[test]
fn a_limit_that_is_to_be_found_is_refused_and_a_device_that_is_made_up_is_not_saved() {
    let folder = tempfile::tempdir().unwrap();
    let limits = folder.path().join("limits.toml");
    let with = format!("--device sim:erdma --limits {}", limits.display());
    for (flag, way) in [
        ("--max-mr-size 1GiB", "--mr SIZE"),
        ("--budget 5000-6000", "--up-to N"),
        ("--budget unknown", "--up-to N"),
    ] {
        let ran = run(&format!("probe {with} {flag}")).exits(2);
        assert!(
            ran.err.contains(flag.split(' ').next().unwrap()) && ran.err.contains(way),
            "{}",
            ran.err
        );
    }
    run(&format!("probe {with} --budget 5000"))
        .exits(0)
        .says("5,000 table entries, to the entry")
        .says("not saved: it was said what the device is (--budget)");
    let json = run(&format!("probe {with} --budget 5000 --max-mr 100 --json")).exits(0);
    let json = json.json();
    assert!(json["saved"].is_null());
    let why = json["not_saved"].as_str().unwrap();
    assert!(why.contains("--budget, --max-mr"), "{why}");
    run(&format!(
        "register 1GiB --chunk 4MiB --pages 4KiB {with} --budget 300000"
    ))
    .exits(0);
    assert!(!limits.exists());
    // A config file has facts for every command.
    let config = folder.path().join("config.toml");
    std::fs::write(
        &config,
        "[facts]\nmax_mr_size = \"1GiB\"\nbudget = \"5000-6000\"\n",
    )
    .unwrap();
    run(&format!(
        "probe {with} --up-to 100000 --config {}",
        config.display()
    ))
    .exits(0);
}

#[test]
fn a_refusal_that_proves_nothing_is_no_bound() {
    let folder = tempfile::tempdir().unwrap();
    let limits = folder.path().join("limits.toml");
    for (errno, line) in [
        ("EIO", "register 16GiB --chunk 1GiB --pages 4KiB"),
        ("EIO", "register 16GiB --chunk 1GiB --pages 2MiB"),
        ("ENOSPC", "register 16GiB --chunk 1GiB --pages 2MiB"),
    ] {
        let fault = format!("[[fault]]\ncall = \"reg_mr\"\nfirst = 4\nerrno = \"{errno}\"\n");
        let name = device(&folder, "erdma", &fault);
        let ran = run(&format!(
            "{line} --device {name} --limits {}",
            limits.display()
        ))
        .exits(3);
        assert!(!ran.err.contains("now known"), "{}", ran.err);
        assert!(!limits.exists(), "{line}: {errno}");
    }
    // As many MRs as the device has.
    let few = device(
        &folder,
        "erdma",
        "[limits]\nmax_mr = { at_least = 3, at_most = 9 }\n",
    );
    let ran = run(&format!(
        "register 16GiB --chunk 1GiB --pages 2MiB --force --device {few} --limits {}",
        limits.display()
    ))
    .exits(3);
    assert!(
        ran.err.contains("is now known to have 9 MRs"),
        "{}",
        ran.err
    );
}

#[test]
fn a_count_that_is_cut_short_says_by_what() {
    let ran = run("probe --device sim:erdma --count-mrs --up-to 100")
        .exits(0)
        .says("100 or more")
        .says("counting ended there: each takes an entry, and --up-to 100 allows no more");
    assert!(!ran.out.contains("100 or more  measured"), "{}", ran.out);
    let json = run("probe --device sim:erdma --count-mrs --up-to 100 --json").json();
    assert_eq!(
        (&json["max_mr_end"], &json["max_mr"]["min"]),
        (&"up_to".into(), &100.into())
    );
    let folder = tempfile::tempdir().unwrap();
    let few = device(&folder, "erdma", "[limits]\nmax_mr = 300\n");
    let json = run(&format!("probe --device {few} --count-mrs --json")).json();
    assert_eq!(
        (&json["max_mr_end"], &json["max_mr"]["max"]),
        (&"mr_count".into(), &300.into())
    );
    let json = run("probe --device sim:erdma --json").json();
    assert!(json["max_mr_end"].is_null());
}
