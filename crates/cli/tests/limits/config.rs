//! The config file: under the flags, refused with line and key where it is wrong.

use crate::common::run;

fn file(folder: &tempfile::TempDir, text: &str) -> String {
    let path = folder.path().join("config.toml");
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn it_gives_what_the_flags_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(
        &folder,
        "device = \"sim:erdma\"\n[facts]\nbudget = \"5000-6000\"\nkernel = \"6.12.40\"\n[devices.\"sim:erdma\"]\nbudget = 7000\n",
    );
    let ran = run(&format!("--config {config} plan 1TiB --pages 4KiB")).exits(1);
    assert!(
        ran.out.contains("7,000"),
        "the device's own table counts: {}",
        ran.out
    );
    run(&format!("plan 4MiB --pages 4KiB --config {config}"))
        .exits(0)
        .says("7,000")
        .says(&format!("config file {config}, given"));
    run(&format!(
        "plan 4MiB --pages 4KiB --config {config} --budget 8000"
    ))
    .exits(0)
    .says("8,000")
    .says("--budget, given");
    run(&format!(
        "plan 4MiB --pages 4KiB --config {config} --device sim:efa"
    ))
    .exits(0)
    .says("5,000 to 6,000");
}

/// A limit of the file is never called a flag that nobody typed.
#[test]
fn a_limit_of_the_file_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(&folder, "[facts]\nmax_mr_size = \"16GiB\"\n");
    let line = format!("plan 64GiB --device sim:ecs.r8a.32xlarge --config {config}");
    let ran = run(&line)
        .exits(0)
        .says(&format!("config file {config}, given"));
    assert!(!ran.out.contains("--max-mr-size, given"), "{}", ran.out);
    run(&format!("{line} --one-mr")).exits(1).says(&format!(
        "the limit comes from    config file {config}, given"
    ));
    run(&format!("{line} --max-mr-size 8GiB"))
        .exits(0)
        .says("--max-mr-size, given");
}

#[test]
fn a_bad_file_is_refused_with_line_and_key() {
    let folder = tempfile::tempdir().unwrap();
    for (text, line, key) in [
        ("[facts]\nbugdet = 5\n", "line 2", "bugdet"),
        ("[facts]\n\nbudget = \"9-5\"\n", "line 3", "budget"),
        ("[facts]\nkernel = 6.1\n", "line 2", "kernel"),
        ("device = 5\n", "line 1", "device"),
        ("[devices.x]\nmax_mr = \"many\"\n", "line 2", "max_mr"),
        ("[facts\n", "line 1", "[facts"),
        ("\nlimits = \"\"\n", "line 2", "limits"),
        ("device = \"\"\n", "line 1", "device"),
        ("[facts]\n[devices.\"\"]\nbudget = 5\n", "line 2", "devices"),
    ] {
        let config = file(&folder, text);
        let ran = run(&format!("plan 1GiB --device sim:erdma --config {config}")).exits(2);
        assert!(
            ran.err.contains(&config) && ran.err.contains(line) && ran.err.contains(key),
            "{}",
            ran.err
        );
        assert!(ran.out.is_empty());
    }
    let ran = run("plan 1GiB --device sim:erdma --config /no/such.toml").exits(2);
    assert!(ran.err.contains("/no/such.toml"), "{}", ran.err);
    run("plan 1GiB --device sim:erdma --config /no/such.toml --json").exits(2);
}

/// A file that nothing is taken of is not read: what gives something back, or prints a page, works whatever is in it.
#[test]
fn a_bad_file_is_in_nobodys_way_who_takes_nothing_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(&folder, "bugdet = 5\n");
    let cases = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/vectors/cases.jsonl"
    );
    let replay = format!("replay {cases}");
    let inspect = format!("inspect --pid {}", std::process::id());
    for line in [
        "man plan",
        "completions bash",
        "devices --simulated",
        "reserve 2MiB --dry-run",
        "release --dry-run",
        &replay,
        &inspect,
    ] {
        for config in [config.as_str(), "/no/such.toml"] {
            let bare = run(line);
            let ran = run(&format!("{line} --config {config}"));
            assert_eq!(ran.code, bare.code, "{line}: {}", ran.err);
            assert!(!ran.err.contains("config"), "{line}: {}", ran.err);
        }
    }
}

/// A simulated device of a file has a path, which is typed in many ways, and a key: a table counts by whichever it has.
#[test]
fn a_table_is_found_by_any_name_of_the_device() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("box.toml");
    std::fs::write(&path, "base = \"erdma\"\nname = \"my-box\"\n").unwrap();
    let typed = format!("sim:{}", path.display());
    let other = format!("sim:{}/./box.toml", folder.path().display());
    for table in [typed.as_str(), other.as_str(), "sim:my-box"] {
        let config = file(
            &folder,
            &format!("[facts]\nbudget = 5\n[devices.{table:?}]\nbudget = 7000\n"),
        );
        for name in [&typed, &other] {
            run(&format!(
                "plan 4MiB --pages 4KiB --config {config} --device {name}"
            ))
            .exits(0)
            .says("7,000");
        }
        run(&format!(
            "plan 4MiB --pages 4KiB --config {config} --device sim:erdma"
        ))
        .exits(1);
    }
}

/// Two tables of the device that is asked about are refused; of another one they are nobody's business.
#[test]
fn two_tables_of_one_device_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("box.toml");
    std::fs::write(&path, "base = \"erdma\"\nname = \"my-box\"\n").unwrap();
    let typed = format!("sim:{}", path.display());
    let config = file(
        &folder,
        &format!("[devices.{typed:?}]\nbudget = 7000\n[devices.\"sim:my-box\"]\nmax_mr = 9\n"),
    );
    for verb in ["plan 1GiB", "register 1GiB", "doctor", "probe --dry-run"] {
        let ran = run(&format!("{verb} --config {config} --device {typed}")).exits(2);
        for part in [
            format!("{config}: "),
            format!("[devices.{typed:?}]"),
            "[devices.\"sim:my-box\"]".to_owned(),
            "the same device, sim:my-box".to_owned(),
            "keep one of them".to_owned(),
        ] {
            assert!(ran.err.contains(&part), "{verb}: no {part} in {}", ran.err);
        }
        assert!(ran.out.is_empty(), "{}", ran.out);
    }
    run(&format!("plan 1GiB --config {config} --device sim:erdma")).exits(0);
    // A table of a device that is not there is passed over.
    let config = file(
        &folder,
        &format!("[devices.\"sim:./none.toml\"]\nbudget = 5\n[devices.{typed:?}]\nbudget = 7000\n"),
    );
    run(&format!(
        "plan 4MiB --pages 4KiB --config {config} --device {typed}"
    ))
    .exits(0)
    .says("7,000");
}
