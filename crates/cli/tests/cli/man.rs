//! Man pages, as a package installs them.

use crate::common::run;

const COMMANDS: [&str; 14] = [
    "plan",
    "register",
    "reserve",
    "release",
    "devices",
    "diagnose",
    "doctor",
    "inspect",
    "probe",
    "learn",
    "usage",
    "replay",
    "man",
    "completions",
];

/// Each page by its name, with what man(1) and whatis(1) look for.
#[test]
fn every_command_has_a_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().join("share/man/man1");
    run(&format!("man --to {}", folder.display()))
        .exits(0)
        .says("15 pages");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect("a page");
    assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 15);
    let top = read("hugemr.1");
    assert!(top.contains(".TH hugemr 1"), "{top}");
    for command in COMMANDS {
        let page = read(&format!("hugemr-{command}.1"));
        assert!(page.contains(&format!(".TH hugemr-{command} 1")), "{page}");
        assert!(page.contains(&format!("hugemr\\-{command} \\- ")), "{page}");
        assert!(page.contains(env!("CARGO_PKG_VERSION")), "{page}");
        let shown = run(&format!("man {command}")).exits(0).out;
        assert_eq!(shown.trim_end(), page.trim_end());
    }
    assert!(read("hugemr-plan.1").contains("\\-\\-leave"));
    assert_eq!(run("man").exits(0).out.trim_end(), top.trim_end());
    assert_eq!(run("man hugemr-plan").exits(0).out, run("man plan").out);
}

#[test]
fn other_pages_are_refused() {
    let err = run("man plam").exits(2).err;
    assert!(err.contains("plam") && err.contains("plan"), "{err}");
    run("man plan --to /tmp").exits(2);
    run("man --to /dev/null/x").exits(3);
}

/// The help lists every command, those for packagers last.
#[test]
fn the_help_lists_every_command() {
    let help = run("--help").exits(0).out;
    let at = |command: &str| {
        let line = format!("\n  {command} ");
        help.find(&line)
            .unwrap_or_else(|| panic!("no {command} in {help}"))
    };
    assert!(COMMANDS.map(at).is_sorted(), "{help}");
}
