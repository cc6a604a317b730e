//! Where `unsafe` may stand, and what must stand above it.

use super::{Complaints, Source, complain, is_test_file, rust_below};
use crate::tree::Tree;

const ALL: &[&str] = &[
    "crates/",
    "xtask/",
    "benches/",
    "examples/",
    "fuzz/",
    "tests/",
];

/// The library that has libibverbs's functions over the simulator.
const LOOK_ALIKE: &str = "crates/fake-verbs/";

pub(super) fn has_safety(tree: &Tree, out: &mut Complaints) {
    for (path, source) in rust_below(tree, ALL) {
        for (at, _) in source.idents().filter(|(_, word)| *word == "unsafe") {
            let behind = source.after(at + "unsafe".len());
            let what = match kind(behind) {
                Kind::Mark | Kind::FnType => continue,
                Kind::Declaration if is_trait_impl(source.block_head(at)) => continue,
                Kind::Declaration if says(source, at, "# Safety") => continue,
                // Under libibverbs's name stands libibverbs's contract.
                Kind::Declaration if path.starts_with(LOOK_ALIKE) && is_exported(source, at) => {
                    continue;
                }
                Kind::Declaration => "an unsafe declaration without `# Safety` docs",
                Kind::Use => "an unsafe block or impl without a SAFETY comment right above",
            };
            if !says(source, at, "SAFETY:") {
                complain(out, path, source.line(at), what);
            }
        }
    }
}

/// Whether `#[unsafe(no_mangle)]` stands right above.
fn is_exported(source: &Source, at: usize) -> bool {
    let before = source.code[..at]
        .trim_end()
        .trim_end_matches("(crate)")
        .trim_end_matches("pub")
        .trim_end();
    before.ends_with("#[unsafe(no_mangle)]")
}

enum Kind {
    /// `unsafe { }`, `unsafe impl`, `unsafe extern { }`: somebody vouches for something.
    Use,
    /// `unsafe fn`, `unsafe trait`: somebody is told what to vouch for.
    Declaration,
    /// The type of a function pointer.
    FnType,
    /// `unsafe(no_mangle)` and its like.
    Mark,
}

fn kind(behind: &str) -> Kind {
    let mut words = behind.split_whitespace();
    let first = words.next().unwrap_or_default();
    if first.starts_with('(') {
        return Kind::Mark;
    }
    // `extern "C"` has a blanked string: skip it and go on.
    let item = match first {
        "extern" => words.find(|word| !word.starts_with('"') && !word.ends_with('"')),
        other => Some(other),
    };
    match item.unwrap_or_default() {
        "trait" => Kind::Declaration,
        "fn" => Kind::Declaration,
        word if word.starts_with("fn(") => Kind::FnType,
        _ => Kind::Use,
    }
}

/// `impl Trait for Type`: the trait has the docs.
fn is_trait_impl(head: &str) -> bool {
    let words: Vec<&str> = head
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .collect();
    words.contains(&"impl") && words.contains(&"for")
}

/// Whether a comment with `word` stands on the line, or above it in the same statement.
fn says(source: &Source, at: usize, word: &str) -> bool {
    let raw: Vec<&str> = source.raw.lines().collect();
    let code: Vec<&str> = source.code.lines().collect();
    let mut line = source.line(at) - 1;
    // Strings are blank in `code`, so what is in `raw` beyond it is a comment (or a string: near enough).
    if raw[line].contains(word) {
        return true;
    }
    while line > 0 {
        line -= 1;
        let text = code[line].trim();
        let attribute = text.starts_with("#[") || text.starts_with("#!");
        let new_statement = text.ends_with([';', '{', '}', ',']) && !attribute;
        if new_statement || (text.is_empty() && raw[line].trim().is_empty()) {
            return false;
        }
        if raw[line].contains(word) {
            return true;
        }
    }
    false
}

pub(super) fn core_unsafe_rooms(tree: &Tree, out: &mut Complaints) {
    for (path, source) in rust_below(tree, &["crates/core/src/"]) {
        let room = path.trim_start_matches("crates/core/src/");
        if ["registrar", "backend"].iter().any(|allowed| {
            room == format!("{allowed}.rs") || room.starts_with(&format!("{allowed}/"))
        }) {
            continue;
        }
        for (at, _) in source.idents().filter(|(_, word)| *word == "unsafe") {
            complain(
                out,
                path,
                source.line(at),
                "unsafe in core, outside of registrar and backend",
            );
        }
    }
}

pub(super) fn one_caller_of_reg_mr(tree: &Tree, out: &mut Complaints) {
    /// Where `reg_mr` is passed on by an implementation of the trait, or driven by hand, and why.
    const OTHERS: &[(&str, &str)] = &[
        ("crates/core/src/registrar", "it is the caller"),
        (
            "crates/core/src/backend.rs",
            "forwards for references, Box and Arc",
        ),
        (
            "crates/erdma-emulator/",
            "cannot see the trait; its device has a command of that name",
        ),
        (
            LOOK_ALIKE,
            "a library under libibverbs's names, for tests: it is called, not asked",
        ),
    ];
    for (path, source) in rust_below(tree, &["crates/"]) {
        if OTHERS.iter().any(|(other, _)| path.starts_with(other)) || is_test_file(path) {
            continue;
        }
        for (at, _) in source.code.match_indices(".reg_mr(") {
            if !source.in_test(at) {
                complain(
                    out,
                    path,
                    source.line(at),
                    "reg_mr is called outside of the registrar",
                );
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
    fn unsafe_needs_a_reason() {
        let good = "\
fn a() {
    // SAFETY: mapped above.
    let x = unsafe { f() };
    // SAFETY: as above,
    // in two lines.
    #[allow(x)]
    g(
        unsafe { f() },
    );
}
/// # Safety
/// Mapped.
pub unsafe fn b() {}
impl<T> Backend for T {
    unsafe fn c() {}
}
// SAFETY: plain data.
unsafe impl Send for A {}
type F = unsafe extern \"C\" fn(u8);
#[unsafe(no_mangle)]
fn d() {}
";
        // The call in the middle ends in `(`, so the comment above it counts.
        expect(has_safety, [(HOST, good)], []);
        let bad = "\
// SAFETY: for one only.
fn a() {
    let x = unsafe { f() };
    // SAFETY: first.
    let y = unsafe { f() };
    let z = unsafe { f() };
}
pub unsafe fn b() {}
impl A {
    unsafe fn c() {}
}

unsafe impl Send for A {}
unsafe extern \"C\" {}
";
        let lines = [
            (HOST, 3),
            (HOST, 6),
            (HOST, 8),
            (HOST, 10),
            (HOST, 13),
            (HOST, 14),
        ];
        expect(has_safety, [(HOST, bad)], lines);
    }

    #[test]
    fn the_look_alike_exports_what_has_docs_elsewhere() {
        let code =
            "#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn ibv_x() {}\nunsafe fn own() {}\n";
        let (path, other) = ("crates/fake-verbs/src/lib.rs", HOST);
        expect(has_safety, [(path, code)], [(path, 3)]);
        expect(has_safety, [(other, code)], [(other, 2), (other, 3)]);
    }

    #[test]
    fn core_has_two_unsafe_rooms() {
        let code = "// SAFETY: none\nunsafe impl A for B {}\n#![deny(unsafe_code)]\n";
        expect(
            core_unsafe_rooms,
            [("crates/core/src/backend.rs", code), (HOST, code)],
            [],
        );
        expect(
            core_unsafe_rooms,
            [("crates/core/src/registrar/roll.rs", code)],
            [],
        );
        let path = "crates/core/src/plan.rs";
        expect(core_unsafe_rooms, [(path, code)], [(path, 2)]);
    }

    #[test]
    fn reg_mr_has_one_caller() {
        let code = "fn f() { b.reg_mr(r) }\n#[cfg(test)]\nmod tests { fn g() { b.reg_mr(r) } }\n";
        expect(
            one_caller_of_reg_mr,
            [("crates/core/src/registrar.rs", code)],
            [],
        );
        expect(
            one_caller_of_reg_mr,
            [("crates/sim-backend/tests/all.rs", code)],
            [],
        );
        let path = "crates/pool/src/lib.rs";
        expect(one_caller_of_reg_mr, [(path, code)], [(path, 1)]);
    }
}
