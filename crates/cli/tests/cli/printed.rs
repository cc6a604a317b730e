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

/// Where a command ends that stands in a text, and the commands that are complete: words in capitals are to be filled in.
fn all_commands(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines() {
        for (at, _) in line.match_indices("hugemr ") {
            let before = line[..at].trim_end_matches("sudo ");
            // In words: `see hugemr plan`; with a verb that is none: `a killed hugemr has`.
            let rest = &line[at..];
            let verb = rest.split(' ').nth(1).unwrap_or_default();
            let verb = verb.trim_end_matches([',', ';', ')']);
            if !VERBS.contains(&verb) {
                continue;
            }
            let mut end = rest.len();
            for stop in ["    ", "; ", ", ", ": "] {
                end = end.min(rest.find(stop).unwrap_or(rest.len()));
            }
            if before.ends_with('(') {
                end = end.min(rest.find(')').unwrap_or(rest.len()));
            }
            let command = rest[..end].trim_end();
            let open = |word: &str| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase());
            let complete = command.contains(" --") && !command.split(' ').any(open);
            if complete {
                found.push(command.to_owned());
            }
        }
    }
    found
}

const VERBS: [&str; 11] = [
    "plan", "register", "reserve", "release", "devices", "diagnose", "doctor", "inspect", "probe",
    "learn", "usage",
];

/// Runs a printed command so that it changes nothing: what it says is understood, and it is not refused as bad usage.
fn understood(command: &str) -> Ran {
    let dry = ["hugemr reserve", "hugemr release", "hugemr probe"];
    let dry = dry.iter().any(|head| command.starts_with(head));
    typed(&format!("{command}{}", if dry { " --dry-run" } else { "" }))
}

/// A device file, a limits file and a config file whose names a shell would take apart: whatever is printed can be copied, is
/// understood, and has the device, the files and the facts that were stated.
#[test]
fn commands_name_files_as_a_shell_takes_them() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    let known = file(
        "it's a $device.toml",
        "base = \"ecs.r8a.32xlarge\"\nname = \"x y\"\n",
    );
    let unknown = file("not known.toml", "base = \"erdma\"\nname = \"x y\"\n");
    let (known, unknown) = (format!("sim:{known}"), format!("sim:{unknown}"));
    let config = file("a config.toml", "[facts]\nmax_mr = 5000\n");
    // Of another kernel: what was measured is stale, and measuring again is advised.
    let limits = dir.path().join("the limits.toml").display().to_string();
    let learned: Ran = Command::new(env!("CARGO_BIN_EXE_hugemr"))
        .args(["probe", "--device", &known, "--limits", &limits])
        .output()
        .expect("the command starts")
        .into();
    learned.exits(0);
    let files = ["--config", &config, "--limits", &limits];
    let line = |words: &[&str], device: &str, rest: &[&str]| -> Vec<String> {
        let all = [words, &["--device", device], rest].concat();
        all.iter().map(|word| (*word).to_owned()).collect()
    };
    let stated = ["--kernel", "6.12.31", "--driver", "1.5.7"];
    for (words, least) in [
        (line(&["plan", "1GiB"], &known, &files), 1),
        (
            line(&["plan", "896GiB", "--pages", "4KiB"], &known, &files),
            1,
        ),
        (
            line(&["plan", "896GiB", "--leave", "100%"], &known, &files),
            1,
        ),
        (
            line(
                &["plan", "1GiB"],
                &unknown,
                &[&files[..2], &stated].concat(),
            ),
            // And the probe, whose limits file is to be named.
            1,
        ),
        (
            line(&["plan", "1GiB"], &known, &[&files[..], &stated].concat()),
            2,
        ),
        (
            line(
                &["register", "896GiB", "--pages", "4KiB", "--force"],
                &known,
                &[&files[..], &["--kernel", "6.12.40", "--driver", "in-tree"]].concat(),
            ),
            1,
        ),
        (
            line(
                &["doctor", "--for", "1GiB"],
                &unknown,
                &[&files[..2], &stated].concat(),
            ),
            1,
        ),
        (
            line(
                &["doctor", "--for", "1GiB"],
                &known,
                &[&files[..], &stated].concat(),
            ),
            0,
        ),
        (
            line(
                &["diagnose", "--errno", "EIO", "--length", "64GiB"],
                &known,
                &files,
            ),
            1,
        ),
        (line(&["probe", "--memlock", "64KiB"], &known, &files), 1),
    ] {
        let ran: Ran = Command::new(env!("CARGO_BIN_EXE_hugemr"))
            .args(&words)
            .output()
            .expect("the command starts")
            .into();
        let said = format!("{}\n{}", ran.out, ran.err);
        let list = all_commands(&said);
        assert!(list.len() >= least, "{words:?}: {list:?} in {said}");
        for command in list {
            let again = understood(&command);
            assert_ne!(
                again.code, 2,
                "{words:?}: {command}: {}{}",
                again.out, again.err
            );
            let of_device = !command.starts_with("hugemr reserve");
            if of_device {
                assert!(command.contains("--device 'sim:"), "{command}");
            }
            let of_plan = ["hugemr plan", "hugemr register"];
            if of_plan.iter().any(|head| command.starts_with(head)) {
                for (flag, value) in words.iter().zip(&words[1..]) {
                    if ["--kernel", "--driver", "--limits", "--config"].contains(&flag.as_str()) {
                        assert!(command.contains(flag.as_str()), "{flag} {value}: {command}");
                    }
                }
            }
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
