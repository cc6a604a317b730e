//! Rules for any text: white space, length, licence, places.

use super::{Complaints, complain};
use crate::tree::Tree;

const MAX_LINES: usize = 1000;

fn is_written_by_hand(path: &str) -> bool {
    [".rs", ".toml", ".md", ".sh", ".c", ".h", "/run"]
        .iter()
        .any(|end| path.ends_with(end))
}

pub(super) fn white_space(tree: &Tree, out: &mut Complaints) {
    for (path, text) in tree.files().filter(|(path, _)| is_written_by_hand(path)) {
        for (number, line) in text.split('\n').enumerate() {
            if line.ends_with([' ', '\t', '\r']) {
                complain(out, path, number + 1, "white space at the end of the line");
            }
            if path.ends_with(".rs") && line.contains('\t') {
                complain(out, path, number + 1, "a tab");
            }
        }
        if !text.is_empty() && (!text.ends_with('\n') || text.ends_with("\n\n")) {
            complain(
                out,
                path,
                text.lines().count(),
                "the file must end with one line end",
            );
        }
    }
}

pub(super) fn length(tree: &Tree, out: &mut Complaints) {
    for (path, text) in tree.files() {
        let lines = text.lines().count();
        if path.ends_with(".rs") && path.contains("src/") && lines > MAX_LINES {
            complain(
                out,
                path,
                lines,
                format!("{lines} lines, more than {MAX_LINES}"),
            );
        }
    }
}

pub(super) fn gpl(tree: &Tree, out: &mut Complaints) {
    // In parts, or this file would break the rule.
    let marks = [
        concat!("Identifier: ", "GPL"),
        concat!("General ", "Public License"),
        concat!("MODULE_", "LICENSE"),
    ];
    for (path, text) in tree
        .files()
        .filter(|(path, _)| !path.starts_with("xtask/kmod/"))
    {
        for (number, line) in text.lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark)) {
                complain(
                    out,
                    path,
                    number + 1,
                    "GPL code may live under xtask/kmod only",
                );
            }
        }
    }
}

pub(super) fn places(tree: &Tree, out: &mut Complaints) {
    for (path, text) in tree
        .files()
        .filter(|(path, _)| !path.ends_with("Cargo.lock"))
    {
        for (number, line) in text.lines().enumerate() {
            if let Some(what) = place(line) {
                complain(out, path, number + 1, what);
            }
        }
    }
}

/// Says what is wrong with a line that names a place which only one machine, or one network, has.
fn place(line: &str) -> Option<String> {
    // In parts, or this file would break the rule.
    for folder in [concat!("/", "work/"), concat!("/", "tmp/bash")] {
        for (at, _) in line.match_indices(folder) {
            // `target/vm` + folder is a path of ours.
            let inner = |c: char| c.is_alphanumeric() || "._-}$)".contains(c);
            if !line[..at].ends_with(inner) {
                return Some(format!("{folder} is a path of one machine"));
            }
        }
    }
    for mark in [
        concat!("registry", "+"),
        concat!("sparse", "+"),
        concat!("replace", "-with"),
        concat!("--index", "-url"),
    ] {
        if line.contains(mark) {
            return Some(format!("{mark} points at a package registry"));
        }
    }
    // By the first label of a host: index.*, static.*, registry.*, a mirror.
    let labels = [
        "index",
        "static",
        "registry",
        "crates",
        "pypi",
        "mirror",
        "mirrors",
        "deb",
        "proxy",
        "artifactory",
        "nexus",
    ];
    for (at, _) in line.match_indices("://") {
        let host = line[at + 3..]
            .split(['/', ' ', ':', '"', ')', '>'])
            .next()
            .unwrap_or_default();
        // RFC 2606 keeps these for tests.
        let reserved = host.ends_with(".test") || host.ends_with(".invalid");
        if host.contains('.')
            && !reserved
            && host
                .split('.')
                .next()
                .is_some_and(|label| labels.contains(&label))
        {
            return Some(format!("{host} is the address of a package registry"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::expect;
    use super::*;

    #[test]
    fn white_space_is_clean() {
        expect(
            white_space,
            [
                ("a.rs", "fn a() {}\n"),
                ("b.jsonl", "x \t"),
                ("c.c", "\tx;\n"),
            ],
            [],
        );
        let bad = [
            ("a.rs", "fn a() {} \n\tb\n"),
            ("b.md", "x"),
            ("c.toml", "x\n\n"),
            ("d.sh", "x\r\n"),
        ];
        expect(
            white_space,
            bad,
            [
                ("a.rs", 1),
                ("a.rs", 2),
                ("b.md", 1),
                ("c.toml", 2),
                ("d.sh", 1),
            ],
        );
    }

    #[test]
    fn files_stay_short() {
        let (short, long) = ("\n".repeat(MAX_LINES), "\n".repeat(MAX_LINES + 1));
        expect(
            length,
            [("crates/a/src/b.rs", &*short), ("tests/c.rs", &*long)],
            [],
        );
        expect(
            length,
            [("crates/a/src/b.rs", &*long)],
            [("crates/a/src/b.rs", MAX_LINES + 1)],
        );
    }

    #[test]
    fn gpl_has_one_home() {
        let line = concat!("// SPDX-License-", "Identifier: ", "GPL-2.0\n");
        expect(
            gpl,
            [("xtask/kmod/a.c", line), ("a.md", "the GPL kernel\n")],
            [],
        );
        expect(gpl, [("crates/a/src/a.c", line)], [("crates/a/src/a.c", 1)]);
    }

    #[test]
    fn no_place_of_one_machine() {
        let good = concat!(
            "target/vm",
            "/",
            "work/x and net",
            "work/\nhttps://docs.kernel.org/x http://mirror.test/y\n"
        );
        expect(
            places,
            [
                ("a.md", good),
                ("Cargo.lock", concat!("registry", "+https\n")),
            ],
            [],
        );
        for bad in [
            concat!("cd /", "work/main\n"),
            concat!("source = \"registry", "+https\"\n"),
            concat!("https:/", "/index.example.org/x\n"),
        ] {
            expect(places, [("a.md", bad)], [("a.md", 1)]);
        }
    }
}
