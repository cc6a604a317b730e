//! Macros and attributes that must not appear.

use super::{Complaints, complain, is_test_file, rust_below};
use crate::tree::Tree;

const ALL: &[&str] = &[
    "crates/",
    "xtask/",
    "benches/",
    "examples/",
    "fuzz/",
    "tests/",
];

/// What an ignored test may need. `cargo xtask ci` knows each of them and runs what the machine allows.
pub(crate) const NEEDS: &[&str] = &[
    "needs huge pages",
    "needs root",
    "needs huge pages and root",
    "needs a real verbs device",
    "needs a guest",
];

/// Which need a reason names; details may follow: `needs a real verbs device: rxe will do`.
pub(crate) fn need(reason: &str) -> Option<&'static str> {
    let names = |need: &&&str| {
        reason
            .strip_prefix(**need)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(": "))
    };
    NEEDS.iter().find(names).copied()
}

fn macros<'a>(
    source: &'a super::Source,
    names: &'a [&str],
) -> impl Iterator<Item = (usize, &'a str)> {
    source.idents().filter(move |(at, word)| {
        let behind = &source.code[at + word.len()..];
        names.contains(word) && behind.starts_with('!') && !behind.starts_with("!=")
    })
}

pub(super) fn stubs(tree: &Tree, out: &mut Complaints) {
    for (path, source) in rust_below(tree, ALL) {
        for (at, word) in macros(source, &["todo", "unimplemented", "dbg"]) {
            complain(out, path, source.line(at), format!("{word}! is left in"));
        }
    }
}

pub(super) fn prints(tree: &Tree, out: &mut Complaints) {
    for (path, source) in rust_below(tree, &["crates/"]) {
        let prints_by_trade = path.starts_with("crates/cli/")
            || path.ends_with("/src/main.rs")
            || path.contains("/src/bin/")
            || path.contains("/examples/")
            || path.ends_with("/build.rs")
            || is_test_file(path);
        if prints_by_trade {
            continue;
        }
        for (at, word) in macros(source, &["print", "println", "eprint", "eprintln"]) {
            if !source.in_test(at) {
                complain(out, path, source.line(at), format!("{word}! in a library"));
            }
        }
    }
}

pub(super) fn ignores(tree: &Tree, out: &mut Complaints) {
    for (path, source) in rust_below(tree, ALL) {
        for (at, word) in source.idents().filter(|(_, word)| *word == "ignore") {
            let before = source.code[..at].trim_end();
            // As an attribute, or as the second part of `cfg_attr(..., ignore)`.
            let line_start = source.code[..at].rfind('\n').map_or(0, |n| n + 1);
            let conditional = source.code[line_start..at].contains("cfg_attr");
            if !before.ends_with("#[") && !conditional {
                continue;
            }
            let end = source.code[at..]
                .find(']')
                .map_or(source.code.len(), |n| at + n);
            let said = source.raw[at + word.len()..end].split('"').nth(1);
            match said {
                Some(reason) if need(reason).is_some() => {}
                Some(reason) => {
                    complain(
                        out,
                        path,
                        source.line(at),
                        format!("{reason:?} is none of {NEEDS:?}"),
                    );
                }
                None => complain(
                    out,
                    path,
                    source.line(at),
                    "a test is ignored without a reason",
                ),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::expect;
    use super::*;

    const HOST: &str = "crates/host/src/map.rs";

    #[test]
    fn stubs_are_found() {
        expect(
            stubs,
            [(
                HOST,
                "// todo!()\nfn todo() {}\nlet s = \"dbg!(x)\";\nif dbg != 1 {}\n",
            )],
            [],
        );
        let bad = [(
            HOST,
            "fn f() { todo!() }\n#[cfg(test)]\nmod tests { fn g() { dbg!(1); unimplemented!() } }\n",
        )];
        expect(stubs, bad, [(HOST, 1), (HOST, 3), (HOST, 3)]);
    }

    #[test]
    fn libraries_do_not_print() {
        let code = "fn f() { println!(\"x\"); }\n";
        expect(
            prints,
            [
                ("crates/cli/src/show.rs", code),
                ("crates/a/src/main.rs", code),
            ],
            [],
        );
        expect(prints, [(HOST, code)], [(HOST, 1)]);
        expect(
            prints,
            [(
                HOST,
                "#[cfg(test)]\nmod tests { fn f() { eprintln!(\"x\"); } }\n",
            )],
            [],
        );
    }

    #[test]
    fn details_may_follow() {
        assert_eq!(need("needs root: to read pagemap"), Some("needs root"));
        assert_eq!(need("needs rootbeer"), None);
    }

    #[test]
    fn ignored_tests_say_what_they_need() {
        let good =
            "#[test]\n#[ignore = \"needs huge pages and root\"]\nfn a() {}\nfn ignore() {}\n";
        expect(ignores, [(HOST, good)], []);
        let bad = "#[ignore]\nfn a() {}\n#[ignore = \"flaky\"]\nfn b() {}\n#[cfg_attr(x, ignore)]\nfn c() {}\n";
        expect(ignores, [(HOST, bad)], [(HOST, 1), (HOST, 3), (HOST, 5)]);
    }
}
