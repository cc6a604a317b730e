//! Commands that are printed: what to run next, ways out, fixes. Each can be typed, and none is refused in its turn.

use std::path::Path;
use std::process::{Command, Stdio};

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::common::{ARTICLE, Ran, run};

/// Runs a line in a shell, as somebody does who copies it.
fn typed(line: &str) -> Ran {
    let program = Path::new(env!("CARGO_BIN_EXE_hugemr"));
    let folder = program.parent().expect("a folder");
    let others = std::env::var("PATH").unwrap_or_default();
    Command::new("bash")
        .args(["-c", line])
        .env("PATH", format!("{}:{others}", folder.display()))
        .stdin(Stdio::null())
        .output()
        .expect("a shell")
        .into()
}

/// The command lines of a text: from the program's name to the end of the line, a bracket, or a gap. Words in capitals are to
/// be filled in: such a line is none yet.
fn commands(text: &str) -> Vec<String> {
    let verbs = ["plan ", "register "];
    let mut found = Vec::new();
    for line in text.lines() {
        for (at, _) in line.match_indices("hugemr ") {
            let rest = &line[at..];
            if !verbs
                .iter()
                .any(|verb| rest["hugemr ".len()..].starts_with(verb))
            {
                continue;
            }
            let inside = line[..at].ends_with('(');
            let end = rest.find("    ").unwrap_or(rest.len());
            let end = if inside {
                rest[..end].find(')').unwrap_or(end)
            } else {
                end
            };
            let command = rest[..end].trim_end();
            let open = |word: &str| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase());
            if command.split(' ').any(open)
                || !command["hugemr ".len()..].contains(|c: char| c.is_ascii_digit())
            {
                continue;
            }
            found.push(command.to_owned());
        }
    }
    found
}

/// What a line says, and what becomes of each command that it prints.
fn check(line: &str) -> Result<usize, String> {
    let ran = run(line);
    if ran.code == 2 {
        return Ok(0);
    }
    let list = commands(&format!("{}\n{}", ran.out, ran.err));
    for command in &list {
        let again = typed(command);
        if again.code == 1 || again.code == 2 {
            return Err(format!(
                "{line} (exit {}) prints {command:?}, which exits {}: {}{}",
                ran.code, again.code, again.out, again.err
            ));
        }
    }
    Ok(list.len())
}

/// The cases of which each was wrong once: a value that is the same word as the size; a flag that the other command lacks; a
/// way out that is refused.
#[test]
fn each_case_that_was_wrong() {
    for (line, least) in [
        (
            format!("plan 64GiB --chunk 64GiB --kernel 6.12.31 --driver 1.5.7 --device {ARTICLE}"),
            1,
        ),
        (format!("plan 2MiB --pages 2MiB --device {ARTICLE}"), 1),
        (
            format!("plan 896GiB --memlock 896GiB --device {ARTICLE}"),
            1,
        ),
        (format!("plan 14 --max-mr 14 --device {ARTICLE}"), 1),
        (
            format!("plan 128GiB --memlock 128GiB --pages 4KiB --device {ARTICLE}"),
            1,
        ),
        (
            format!(
                "register 896GiB --pages 4KiB --layout contiguous --threads 2 --access remote-read --verify --device {ARTICLE}"
            ),
            1,
        ),
        (format!("plan 896GiB --one-mr --device {ARTICLE}"), 1),
        (format!("plan 896GiB --chunk 3MiB --device {ARTICLE}"), 1),
        (format!("plan 1PiB --pages 1GiB --device {ARTICLE}"), 1),
        (
            format!("register 64GiB --pages 4KiB --budget 1000 --force --device {ARTICLE}"),
            0,
        ),
        (
            "register 64TiB --one-mr --device sim:verbs --pages 1GiB --verify --threads 2"
                .to_owned(),
            1,
        ),
        (
            format!("plan 896GiB --pds 2 --devices 3 --device {ARTICLE}"),
            0,
        ),
        (
            format!("plan 896GiB --budget unknown --strict --device {ARTICLE}"),
            0,
        ),
        (format!("plan 10GiB 20GiB --one-mr --device {ARTICLE}"), 1),
    ] {
        match check(&line) {
            Ok(found) => assert!(found >= least, "{line}: {found} commands"),
            Err(text) => panic!("{text}"),
        }
    }
}

/// The same of the diagnosis of a registration that failed: the command has the device.
#[test]
fn the_fix_of_a_diagnosis_can_be_typed() {
    let ran = run(&format!(
        "register 896GiB --device {ARTICLE} --pages 4KiB --force"
    ))
    .exits(3);
    let list = commands(&ran.err);
    assert_eq!(list.len(), 1, "{}", ran.err);
    typed(&list[0]).exits(0);
}

/// A value that a shell would take apart comes back as it was.
#[test]
fn a_device_file_with_a_blank_in_its_name() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("it's a $device.toml");
    std::fs::write(&path, "base = \"ecs.r8a.32xlarge\"\nname = \"x y\"\n").expect("a file");
    let device = format!("sim:{}", path.display());
    for words in [
        vec!["plan", "1GiB", "--device", &device],
        vec!["plan", "896GiB", "--pages", "4KiB", "--device", &device],
        vec![
            "register", "896GiB", "--pages", "4KiB", "--force", "--device", &device,
        ],
    ] {
        let ran: Ran = Command::new(env!("CARGO_BIN_EXE_hugemr"))
            .args(&words)
            .output()
            .expect("the command starts")
            .into();
        let list = commands(&(ran.out + &ran.err));
        assert!(!list.is_empty(), "{words:?}");
        for command in list {
            typed(&command).exits(0);
        }
    }
}

fn sizes() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => (1u64..2000).prop_map(|n| format!("{n}GiB")),
        2 => (1u64..4000).prop_map(|n| format!("{n}MiB")),
        1 => (1u64..1_000_000).prop_map(|n| n.to_string()),
        1 => (1u64..2000, 1u64..300).prop_map(|(a, b)| format!("{a}GiB {b}MiB")),
    ]
}

fn flags() -> impl Strategy<Value = Vec<String>> {
    let flag = prop_oneof![
        prop::sample::select(vec!["2MiB", "1GiB", "4KiB", "thp", "mixed", "auto"])
            .prop_map(|pages| format!("--pages {pages}")),
        prop::sample::select(vec![
            "3MiB", "2GiB", "64GiB", "4GiB", "1GiB", "128GiB", "5000"
        ])
        .prop_map(|chunk| format!("--chunk {chunk}")),
        prop::sample::select(vec!["1MiB", "3MiB", "100000"]).prop_map(|b| format!("--block {b}")),
        Just("--one-mr".to_owned()),
        Just("--strict".to_owned()),
        prop::sample::select(vec!["1GiB", "32GiB", "1TiB"])
            .prop_map(|size| format!("--max-mr-size={size}")),
        (1u64..2000).prop_map(|n| format!("--max-mr {n}")),
        (1u64..60_000_000).prop_map(|n| format!("--budget {n}")),
        Just("--budget unknown".to_owned()),
        Just("--budget 400000-500000".to_owned()),
        prop::sample::select(vec!["4.19", "5.15", "6.8", "6.12.31", "unknown"])
            .prop_map(|kernel| format!("--kernel {kernel}")),
        prop::sample::select(vec!["in-tree", "vendor", "1.5.2", "1.5.7", "unknown"])
            .prop_map(|driver| format!("--driver {driver}")),
        prop::sample::select(vec!["-1", "64GiB", "896GiB"])
            .prop_map(|size| format!("--memlock={size}")),
        (0u64..100).prop_map(|p| format!("--leave {p}%")),
        Just("--other 80GiB@64KiB".to_owned()),
    ];
    prop::collection::vec(flag, 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is asked, planned or registered: a printed command is understood, and not refused.
    #[test]
    fn a_printed_command_runs(
        verb in prop::sample::select(vec!["plan", "register", "register --threads 2 --layout contiguous"]),
        size in sizes(),
        flags in flags(),
        device in prop::sample::select(vec![ARTICLE, "sim:erdma", "sim:verbs"]),
    ) {
        let line = format!("{verb} {size} {} --device {device}", flags.join(" "));
        check(&line).map_err(TestCaseError::fail)?;
    }
}
