//! `diagnose`, and the diagnosis of a registration that failed.

use crate::common::{ARTICLE, run, run_with};

/// A device of the vendor's driver whose first registration fails with EIO.
fn failing() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("failing.toml");
    let text = "base = \"ecs.r8a.32xlarge\"\nname = \"failing\"\n[[fault]]\ncall = \"reg_mr\"\nfirst = 1\nerrno = \"EIO\"\n";
    std::fs::write(&path, text).expect("a file");
    let device = format!("sim:{}", path.display());
    (dir, device)
}

/// What has no errno that can be read is named with its lines, and counted.
#[test]
fn no_failure_of_a_log_is_lost() {
    let log = b"ibv_reg_mr failed: Erreur inconnue\nibv_reg_mr failed: Input/output error\nibv_reg_mr failed: Zu viele\n";
    let text = run_with("diagnose -", log).exits(0).out;
    assert!(
        text.contains("2 more failures (lines 1, 3): errno not readable"),
        "{text}"
    );
    assert!(text.contains("LC_ALL=C"), "{text}");
    let document = run_with("diagnose - --json", log).exits(0).json();
    let number = |name: &str| document[name].as_u64().expect("a number");
    let without = &document["without_errno"];
    assert_eq!(without["lines"], serde_json::json!([1, 3]));
    let list = document["failures"].as_array().expect("a list");
    let counts: u64 = list.iter().filter_map(|one| one["count"].as_u64()).sum();
    let silent = without["count"].as_u64().expect("a number");
    assert_eq!(
        number("understood"),
        number("facts") + counts + silent + number("dropped")
    );
}

/// Where several causes have the same evidence, all of them are named, and no fix of one.
#[test]
fn equal_causes_of_a_failed_registration_are_all_named() {
    let (_dir, device) = failing();
    let line = format!("register 1GiB --device {device} --driver 1.5.1");
    let ran = run(&line).exits(3);
    for name in [
        "cannot tell which of",
        "device_refusal",
        "command_timeout",
        "command_queue_dead",
    ] {
        assert!(ran.err.contains(name), "{name}: {}", ran.err);
    }
    assert!(!ran.err.contains("reload the driver"), "{}", ran.err);
    // Nothing on this host tells of a simulated device.
    for text in ["dmesg", "/sys/class", "rdma resource"] {
        assert!(!ran.err.contains(text), "{text}: {}", ran.err);
    }
    let document = run(&format!("{line} --json")).exits(3).json();
    assert_eq!(document["diagnosis"]["undecided"], true, "{document}");
}

/// An errno as the kernel prints it, negative, is the same errno.
#[test]
fn a_negative_errno_is_the_errno() {
    let want = run("diagnose --errno 5").exits(0).out;
    for line in [
        "diagnose --errno -5",
        "diagnose --errno=-5",
        "diagnose --errno=-EIO",
    ] {
        assert_eq!(run(line).exits(0).out, want, "{line}");
    }
    for line in [
        "diagnose --errno=--5",
        "diagnose --errno -0",
        "diagnose --errno --json",
    ] {
        run(line).exits(2);
    }
}

/// Without anything to explain, both ways to say it are named.
#[test]
fn nothing_to_diagnose_names_both_ways() {
    let ran = run("diagnose").exits(2);
    assert!(
        ran.err.contains("--errno") && ran.err.contains("LOG"),
        "{}",
        ran.err
    );
}

/// The commands that a diagnosis names have the limits file that was named.
#[test]
fn commands_of_a_diagnosis_have_the_limits_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("limits.toml");
    let limits = format!("--limits {}", file.display());
    let text = run(&format!(
        "diagnose --errno EIO --length 64GiB {limits} --device erdma_7"
    ))
    .exits(0)
    .out;
    let want = format!("hugemr plan 64GiB --device erdma_7 {limits} --pages 2MiB");
    assert!(text.contains(&want), "{text}");
    let ran = run(&format!(
        "register 896GiB --device {ARTICLE} --pages 4KiB --force {limits}"
    ))
    .exits(3);
    let want = format!("hugemr plan 64GiB --device {ARTICLE} {limits} --pages 2MiB");
    assert!(ran.err.contains(&want), "{}", ran.err);
}

/// A budget that is stated is what the need is held against.
#[test]
fn a_stated_budget_is_what_counts() {
    let line = "diagnose --errno 5 --length 64GiB --page 4KiB --budget";
    let text = run(&format!("{line} 100000000000")).exits(0).out;
    assert!(
        text.contains("0.017 % of 100,000,000,000, --budget"),
        "{text}"
    );
    assert!(!text.contains("24,903,680"), "{text}");
    let text = run(&format!("{line} 33554431")).exits(0).out;
    assert!(text.contains("50.0 % of 33,554,431"), "{text}");
}

/// The family, and what is known besides, are those of the device that was named.
#[test]
fn the_device_tells_its_family() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("none.toml");
    std::fs::write(&path, "").expect("a file");
    let limits = format!("--limits {}", path.display());
    for (device, errno, family) in [
        ("sim:efa", "ENOMEM", "efa"),
        ("sim:mlx4", "EIO", "mlx4"),
        ("sim:ionic", "EINVAL", "ionic"),
        (ARTICLE, "EIO", "erdma"),
        ("erdma_7", "EIO", "erdma"),
        ("mlx5_7", "EINVAL", "verbs"),
    ] {
        let line = format!("diagnose --errno {errno} --device {device} {limits} --json");
        let ran = run(&line);
        assert!(ran.err.is_empty(), "{line}: {}", ran.err);
        assert_eq!(ran.json()["family"], family, "{line}");
    }
    let text = run("diagnose --errno ENOMEM --device sim:efa").exits(0).out;
    assert!(text.contains("1  possible   table_full"), "{text}");
    // A name that no driver gives tells no family.
    let line = format!("diagnose --errno ENOMEM --device rocep0s5 {limits} --json");
    let document = run(&line).json();
    assert!(document["family"].is_null(), "{document}");
    // The limit of the profile is the one that was passed.
    let text = run(&format!(
        "diagnose --errno EINVAL --length 65GiB --device {ARTICLE}"
    ))
    .exits(0)
    .out;
    assert!(text.contains("2 MRs of at most 64 GiB"), "{text}");
}

/// A flag stands above the device, and the device above the log; that they differ is said.
#[test]
fn families_that_differ_are_said() {
    let ran = run("diagnose --errno ENOMEM --device sim:efa --family erdma --json").exits(0);
    assert_eq!(ran.json()["family"], "erdma");
    assert!(
        ran.err
            .contains("sim:efa is of the family efa, and --family erdma is taken"),
        "{}",
        ran.err
    );
    let log = b"ionic_0: ibv_reg_mr failed: Cannot allocate memory\n";
    let ran = run_with("diagnose - --device sim:efa --json", log).exits(0);
    assert_eq!(ran.json()["failures"][0]["diagnosis"]["family"], "efa");
    assert!(
        ran.err
            .contains("line 1 is of the family ionic, and efa is taken"),
        "{}",
        ran.err
    );
}

/// A record of one long line is read; where a line is longer than what is read, that is said.
#[test]
fn long_lines_are_read_or_said_to_be_cut() {
    let fails = "ibv_reg_mr failed: Input/output error";
    let log = format!(
        "{{\"context\":\"{}\",\"message\":\"{fails}\"}}\n",
        "c".repeat(5000)
    );
    let ran = run_with("diagnose -", log.as_bytes()).exits(0);
    assert!(ran.out.contains("EIO from ibv_reg_mr"), "{}", ran.out);
    assert!(!ran.out.contains("was read"), "{}", ran.out);
    let log = format!("x\n{}{fails}\n{fails}\n", " ".repeat(1 << 20));
    let ran = run_with("diagnose -", log.as_bytes()).exits(0);
    assert!(ran.out.contains("line 3\n"), "{}", ran.out);
    let cut = "line 2: longer than 1 MiB, and only the beginning was read";
    assert!(ran.out.contains(cut), "{}", ran.out);
    let document = run_with("diagnose - --json", log.as_bytes())
        .exits(0)
        .json();
    assert_eq!(document["cut"]["lines"], serde_json::json!([2]));
}

/// Where the limit is not known, the fix asks for MRs that are shorter than the one that was refused.
#[test]
fn a_fix_does_not_repeat_what_failed() {
    for (length, shorter) in [("64GiB", "32GiB"), ("65GiB", "64GiB"), ("4097", "4KiB")] {
        let line = format!("diagnose --errno EINVAL --length {length}");
        let text = run(&line).exits(0).out;
        let want = format!("--device DEVICE --max-mr-size {shorter};");
        assert!(text.contains(&want), "{line}: {text}");
    }
}

/// The commonest devices have no family of their own: which one counts is said wherever one is named.
#[test]
fn a_driver_without_a_family_is_told_which_one_counts() {
    for line in [
        "diagnose --errno EIO --family mlx5",
        "plan 1GiB --device sim:mlx5_0",
    ] {
        let ran = run(line).exits(2);
        assert!(ran.err.contains("it is verbs"), "{line}: {}", ran.err);
    }
    let vector = br#"{"id":"x","op":"diagnose","in":{"dev":"bnxt_re","errno":"EIO"},"want":{},"src":"example"}"#;
    let ran = run_with("replay -", vector);
    assert!(
        format!("{}{}", ran.out, ran.err).contains("for bnxt_re it is verbs"),
        "{}{}",
        ran.out,
        ran.err
    );
}

/// `sim:` is a prefix in any case; the bare name of a simulated device is one of a real device, which is asked about.
#[test]
fn a_simulated_device_is_found_by_a_name_that_is_nearly_its_own() {
    for line in ["plan 1GiB", "doctor", "diagnose --errno ENOMEM"] {
        let ran = run(&format!("{line} --device SIM:efa"));
        let exact = run(&format!("{line} --device sim:efa"));
        assert_eq!(ran.code, exact.code, "{line}: {}", ran.err);
        assert_eq!(ran.err, exact.err, "{line}");
        for name in ["efa", "EFA"] {
            let ran = run(&format!("{line} --device {name}"));
            let asked = format!("no device {name}; did you mean the simulated sim:efa?");
            assert!(ran.err.contains(&asked), "{line}: {}", ran.err);
        }
    }
    let ran = run("diagnose --errno ENOMEM --device erdma_0").exits(0);
    assert!(!ran.err.contains("did you mean"), "{}", ran.err);
}
