//! `cargo xtask tidy`: the house rules of ARCHITECTURE.md and CONTRIBUTING.md as failing checks.
//!
//! A rule is a function from the tree to complaints, each with file and line. Every rule has a test that
//! plants a breach and sees it found.

use std::fmt;

use anyhow::{Result, bail};

use crate::tree::{Tree, root};

mod docs;
mod forbidden;
mod manifest;
mod rooms;
mod source;
mod text;
mod unsafety;

pub(crate) use forbidden::{NEEDS, need};
pub(crate) use source::Source;

/// A breach of a rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Complaint {
    pub(crate) path: String,
    /// From 1; 0 for the file as a whole.
    pub(crate) line: usize,
    pub(crate) what: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line.max(1), self.what)
    }
}

/// What a rule found.
pub(crate) type Complaints = Vec<Complaint>;

pub(crate) fn complain(into: &mut Complaints, path: &str, line: usize, what: impl Into<String>) {
    into.push(Complaint {
        path: path.to_owned(),
        line,
        what: what.into(),
    });
}

/// The rule in one line, and its check.
type Rule = (&'static str, fn(&Tree, &mut Complaints));

const RULES: &[Rule] = &[
    ("the rooms are where the rules look", rooms::rooms_are_there),
    (
        "core depends on bitflags, thiserror and tracing only",
        rooms::core_dependencies,
    ),
    (
        "core does no I/O, reads no clock and names no backend",
        rooms::core_is_pure,
    ),
    (
        "the emulator shares no code with what it judges",
        rooms::emulator_stands_alone,
    ),
    (
        "the simulator does not ask core for the answer",
        rooms::simulator_judges_alone,
    ),
    (
        "in the cli, device.rs alone names a backend",
        rooms::cli_names_backends_once,
    ),
    ("linked-verbs is off by default", rooms::linked_verbs_is_off),
    (
        "rdma-sys only under linked-verbs, its broken inlines never",
        rooms::rdma_sys_is_fenced,
    ),
    ("every unsafe says why it is sound", unsafety::has_safety),
    (
        "in core, unsafe lives in registrar and backend",
        unsafety::core_unsafe_rooms,
    ),
    (
        "the registrar alone calls reg_mr",
        unsafety::one_caller_of_reg_mr,
    ),
    ("no stubs, no debug leftovers", forbidden::stubs),
    ("libraries print nothing", forbidden::prints),
    (
        "an ignored test says what it needs, in a fixed form",
        forbidden::ignores,
    ),
    (
        "both READMEs have the same sections and commands",
        docs::readmes_agree,
    ),
    (
        "every decision note is listed in ARCHITECTURE.md",
        docs::decisions_listed,
    ),
    ("white space, line ends", text::white_space),
    ("no source file over 1,000 lines", text::length),
    ("GPL only under xtask/kmod", text::gpl),
    (
        "no path of one machine, no address of a registry",
        text::places,
    ),
    (
        "the texts that the mutants change are there, once",
        crate::mutants::texts_are_there,
    ),
];

pub(crate) fn run(args: &[String]) -> Result<()> {
    if !args.is_empty() {
        bail!("tidy takes no arguments");
    }
    let rules = check(&Tree::read(&root())?)?;
    println!("tidy: {rules} rules hold");
    Ok(())
}

/// Checks all rules; how many there are, or an error after the complaints were printed.
pub(crate) fn check(tree: &Tree) -> Result<usize> {
    let mut count = 0;
    for (name, rule) in RULES {
        let mut complaints = Complaints::new();
        rule(tree, &mut complaints);
        if !complaints.is_empty() {
            eprintln!("rule: {name}");
            for complaint in &complaints {
                eprintln!("  {complaint}");
            }
            count += complaints.len();
        }
    }
    if count > 0 {
        bail!("{count} breaches of the house rules");
    }
    Ok(RULES.len())
}

/// All Rust files of the tree that lie below one of `rooms`.
fn rust_below<'a>(
    tree: &'a Tree,
    rooms: &'a [&str],
) -> impl Iterator<Item = (&'a str, &'a Source)> {
    tree.sources()
        .filter(|(path, _)| rooms.iter().any(|room| path.starts_with(room)))
}

/// Whether a whole file is test code.
fn is_test_file(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs") || path.starts_with("tests/")
}

#[cfg(test)]
#[track_caller]
fn expect<const N: usize, const M: usize>(
    rule: fn(&Tree, &mut Complaints),
    files: [(&str, &str); N],
    at: [(&str, usize); M],
) {
    let mut complaints = Complaints::new();
    rule(&Tree::from(files), &mut complaints);
    let found: Vec<(&str, usize)> = complaints
        .iter()
        .map(|c| (c.path.as_str(), c.line))
        .collect();
    assert_eq!(found, at, "{complaints:#?}");
}
