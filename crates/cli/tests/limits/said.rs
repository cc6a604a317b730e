//! What is said in words is a field of the JSON too, and what is refused says why.

use crate::common::run;

/// A simulated device in a file.
fn device(folder: &tempfile::TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(format!("{name}.toml"));
    std::fs::write(&path, text).unwrap();
    format!("sim:{}", path.display())
}

/// Where an IOMMU translates, a probe is refused: one document, and the same words as without `--json`.
#[test]
fn a_probe_behind_an_iommu_is_refused_as_one_document() {
    let folder = tempfile::tempdir().unwrap();
    let text = "base = \"erdma\"\n[platform]\niommu = true\n";
    let line = format!("probe --device {}", device(&folder, "iommu", text));
    let said = run(&line).exits(1);
    let ran = run(&format!("{line} --json")).exits(1);
    let json = ran.json();
    assert_eq!(json["schema"], "hugemr/error/1");
    assert_eq!(json["exit"], 1);
    let error = json["error"].as_str().unwrap();
    assert!(
        error.contains("cannot be probed: an IOMMU translates its DMA"),
        "{error}"
    );
    assert_eq!(said.out.trim_end(), error);
    assert!(
        !ran.err.contains("probing"),
        "nothing is tried: {}",
        ran.err
    );
}

/// As many MRs as just fill the table, or not even that: why large pages were not tried is said.
#[test]
fn large_pages_for_which_no_mr_is_left_have_their_reason() {
    let device = "probe --device sim:ecs.r8a.32xlarge";
    for (mrs, end, code, why) in [
        (1, "mr_count", "not_full", "needs a full table"),
        (
            2,
            "full",
            "mr_count",
            "no MR is left for it: 2 MRs fill the table",
        ),
        (
            12,
            "full",
            "mr_count",
            "no MR is left for it: 12 MRs fill the table",
        ),
    ] {
        let line = format!("{device} --max-mr {mrs}");
        run(&line)
            .exits(0)
            .says(&format!("large pages  not tried: {why}\n"));
        let json = run(&format!("{line} --json")).exits(0).json();
        assert_eq!(
            (&json["end"], &json["large_pages_not"]),
            (&end.into(), &code.into())
        );
        assert!(json["large_pages"].is_null());
    }
    let json = run(&format!("{device} --json")).exits(0).json();
    assert!(json["large_pages_not"].is_null());
}

/// A file of 0 bytes knows nothing, and is written like one that is not there yet.
#[test]
fn a_limits_file_of_no_bytes_knows_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    std::fs::write(&path, "").unwrap();
    let with = format!("--device sim:erdma --limits {}", path.display());
    let plan = run(&format!("plan 896GiB {with}")).exits(0);
    assert!(plan.err.is_empty(), "{}", plan.err);
    let file = format!(" --limits {}", path.display());
    let without = run("plan 896GiB --device sim:erdma").exits(0).out;
    assert_eq!(
        plan.out.replace(&file, ""),
        without.replace(" --limits FILE", "")
    );
    run(&format!("learn --ok 1GiB {with}"))
        .exits(0)
        .says("saved in");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        text.contains("version = 1\n") && text.ends_with("# end\n"),
        "{text}"
    );
    assert!(
        include_str!("../../../../docs/limits.md").contains("0 bytes"),
        "the guide says it"
    );
}

/// What the device itself says is no less than what was measured here: a report that contradicts it is not saved.
#[test]
fn a_report_against_the_device_itself_is_not_saved() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    let name = "sim:ecs.r8a.32xlarge";
    let line = format!("learn --device {name} --limits {}", path.display());
    for report in ["--ok 900GiB", "--fail 16KiB"] {
        let ran = run(&format!("{line} {report}")).exits(1);
        for part in [
            "not saved: sim:ecs.r8a.32xlarge itself has 33,554,431 table entries",
            "which contradicts what was told",
            "way out    what it really has: hugemr probe --device sim:ecs.r8a.32xlarge --limits ",
        ] {
            assert!(ran.err.contains(part), "{part}: {}", ran.err);
        }
        assert!(!path.exists(), "{report}");
        let json = run(&format!("{line} {report} --json")).exits(1).json();
        assert_eq!(json["schema"], "hugemr/error/1");
        assert!(
            json["error"].as_str().unwrap().contains("not saved"),
            "{json}"
        );
        // Without the device it is only said.
        run(&format!("learn {report}")).exits(0);
    }
    // A size that is no one MR refutes nothing.
    let json = run(&format!("{line} --ok 100GiB --json")).exits(0).json();
    assert!(
        json["notes"][0]
            .as_str()
            .unwrap()
            .contains("100GiB is no one MR"),
        "{json}"
    );
    let json = run(&format!("{line} --ok 1GiB --json")).exits(0).json();
    assert_eq!(json["notes"], serde_json::json!([]));
}

/// What was measured stands above what the device says of itself, for a report too; and a probe says what it replaced.
#[test]
fn a_measurement_stands_above_what_the_device_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    let text = "base = \"erdma\"\n[limits]\nentries = 1000000\n[actual]\nentries = 500000\n";
    let name = device(&folder, "boast", text);
    let with = format!("--device {name} --limits {}", path.display());
    run(&format!("learn {with} --fail 3GiB")).exits(1);
    let json = run(&format!("probe {with} --json")).exits(0).json();
    assert_eq!(json["exact"], 500_000);
    assert!(json["saved"]["replaced"].is_null(), "{json}");
    run(&format!("learn {with} --fail 3GiB"))
        .exits(0)
        .says("known already");
    // The device has changed, and its software has not.
    let text = text.replace("500000", "400000");
    std::fs::write(folder.path().join("boast.toml"), text).unwrap();
    let json = run(&format!("probe {with} --json")).exits(0).json();
    assert_eq!(json["saved"]["replaced"]["min"], 500_000, "{json}");
}

/// How to correct the limits file is a field where the limit that was met comes from it, and null elsewhere.
#[test]
fn how_to_correct_the_limits_file_is_a_field() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    let with = format!("--device sim:erdma --limits {}", path.display());
    run(&format!("learn {with} --fail 16KiB")).exits(0);
    for verb in ["plan", "register"] {
        let line = format!("{verb} 1GiB --pages 2MiB {with}");
        let json = run(&format!("{line} --json")).exits(1).json();
        let correction = &json["correction"];
        assert_eq!(correction["file"], path.to_str().unwrap());
        assert_eq!(correction["name"], "sim:erdma");
        let command = correction["command"].as_str().unwrap();
        assert!(
            command.starts_with("hugemr probe --device sim:erdma --limits"),
            "{command}"
        );
        run(&line).exits(1).says(command);
        let json = run(&format!("{line} --budget 100 --json")).exits(1).json();
        assert!(json["correction"].is_null(), "{json}");
    }
}

/// Pages of no pool are memory of the host: with overcommitment nothing would refuse them but the OOM killer.
#[test]
fn more_than_the_memory_of_the_host_is_refused_before_anything_is_mapped() {
    for pages in ["thp", "4KiB"] {
        let line = format!("register 256TiB --device sim:verbs --memory real --pages {pages}");
        let json = run(&format!("{line} --json")).exits(1).json();
        assert_eq!(json["verdict"], "memory_short");
        assert!(json["errno"].is_null(), "{json}");
        let [way] = &json["ways_out"].as_array().unwrap()[..] else {
            panic!("{json}");
        };
        assert_eq!(way["way"], "smaller");
        let fits = way["bytes"].as_u64().unwrap();
        let most = json["max_fit"]["certain"].as_u64().unwrap();
        assert!((1..most).contains(&fits), "{json}");
        let command = way["commands"][0].as_str().unwrap();
        assert!(
            command.ends_with(&format!("--device sim:verbs --memory real --pages {pages}")),
            "{command}"
        );
    }
}

/// What `--reserve` could reserve is a field, with the size that fits and its command.
#[test]
fn what_could_be_reserved_is_a_field() {
    // Where the kernel shows no pool, nothing is known of one.
    let pool = "/sys/devices/system/node/node0/hugepages/hugepages-2048kB";
    if !std::path::Path::new(pool).exists() {
        return;
    }
    let line = "register 256TiB --device sim:verbs --memory real --pages 2MiB";
    let json = run(&format!("{line} --reserve --json")).exits(1).json();
    assert_eq!(json["verdict"], "hugepage_short");
    let reservable = &json["reservable"];
    assert_eq!(reservable["pages"]["page"], 2 << 20);
    let (count, fits) = (&reservable["pages"]["count"], &reservable["fits"]);
    let most = count.as_u64().unwrap() * (2 << 20);
    assert!(
        (1..=most).contains(&fits["bytes"].as_u64().unwrap()),
        "{json}"
    );
    let command = fits["command"].as_str().unwrap();
    assert!(
        command.starts_with("hugemr register ") && command.contains("--reserve"),
        "{command}"
    );
    let json = run(&format!("{line} --json")).exits(1).json();
    assert!(json["reservable"].is_null(), "{json}");
}
