//! Which room may know which other.

use super::source::below;
use super::{Complaints, complain, is_test_file, manifest, rust_below};
use crate::tree::Tree;

const CORE_DEPENDENCIES: &[&str] = &["bitflags", "thiserror", "tracing"];
/// What core must not touch: the outside world, and clocks.
const OUTSIDE: &[&str] = &[
    "std::fs",
    "std::net",
    "std::process",
    "std::env",
    "std::os",
    "std::time::Instant",
    "std::time::SystemTime",
    "std::time::*",
    "std::*",
    "Instant",
    "SystemTime",
    "libc",
];
/// The packages above core, as code names them. `hugemr` is the library in crates/pool.
const ABOVE_CORE: &[&str] = &[
    "hugemr",
    "hugemr_host",
    "hugemr_sim",
    "hugemr_verbs",
    "fake_verbs",
    "erdma_emulator",
    "rdma_sys",
];

fn is_ours(package: &str) -> bool {
    package == "hugemr" || package.starts_with("hugemr-") || package == "fake-verbs"
}

/// A rule about a room that was moved would hold for ever: each room must be where the rules look.
pub(super) fn rooms_are_there(tree: &Tree, out: &mut Complaints) {
    for room in [
        "core",
        "input",
        "host",
        "verbs-backend",
        "sim-backend",
        "pool",
        "cli",
        "erdma-emulator",
    ] {
        let path = format!("crates/{room}/Cargo.toml");
        if tree.get(&path).is_none() {
            complain(out, &path, 0, "the room is not where the rules look for it");
        }
    }
}

pub(super) fn core_dependencies(tree: &Tree, out: &mut Complaints) {
    let path = "crates/core/Cargo.toml";
    for entry in manifest::entries(tree.get(path).unwrap_or_default()) {
        if entry.is_dependency() && !CORE_DEPENDENCIES.contains(&entry.key.as_str()) {
            complain(
                out,
                path,
                entry.line,
                format!("core depends on {}", entry.key),
            );
        } else if entry.is_any_dependency() && is_ours(&entry.key) {
            complain(
                out,
                path,
                entry.line,
                format!("core's tests depend on {}", entry.key),
            );
        }
    }
}

pub(super) fn core_is_pure(tree: &Tree, out: &mut Complaints) {
    for (path, source) in rust_below(tree, &["crates/core/src/"]) {
        for (at, used) in source.paths() {
            let clock = |word| used.split("::").any(|part| part == word);
            if source.in_test(at) || is_test_file(path) {
                continue;
            } else if OUTSIDE.iter().any(|outside| below(&used, outside))
                || clock("Instant")
                || clock("SystemTime")
            {
                complain(out, path, source.line(at), format!("core uses {used}"));
            } else if ABOVE_CORE.iter().any(|room| below(&used, room)) {
                complain(out, path, source.line(at), format!("core names {used}"));
            }
        }
    }
}

pub(super) fn emulator_stands_alone(tree: &Tree, out: &mut Complaints) {
    let path = "crates/erdma-emulator/Cargo.toml";
    for entry in manifest::entries(tree.get(path).unwrap_or_default()) {
        if entry.is_any_dependency() && is_ours(&entry.key) {
            complain(
                out,
                path,
                entry.line,
                format!("the emulator depends on {}", entry.key),
            );
        }
    }
    for (path, source) in rust_below(tree, &["crates/erdma-emulator/"]) {
        for (at, used) in source.paths() {
            if used == "hugemr" || used.starts_with("hugemr_") || used.starts_with("fake_verbs") {
                complain(
                    out,
                    path,
                    source.line(at),
                    format!("the emulator names {used}"),
                );
            }
        }
    }
}

pub(super) fn simulator_judges_alone(tree: &Tree, out: &mut Complaints) {
    const ANSWERS: &[&str] = &[
        "hugemr_core::quirk",
        "hugemr_core::plan",
        "hugemr_core::layout",
    ];
    for (path, source) in rust_below(tree, &["crates/sim-backend/src/"]) {
        for (at, used) in source.paths() {
            let asks =
                ANSWERS.iter().any(|answer| below(&used, answer)) || used == "hugemr_core::*";
            let plain_data = used == "hugemr_core::layout::PhysRun";
            if asks && !plain_data && !source.in_test(at) && !is_test_file(path) {
                complain(
                    out,
                    path,
                    source.line(at),
                    format!("the simulator uses {used}"),
                );
            }
        }
    }
}

pub(super) fn cli_names_backends_once(tree: &Tree, out: &mut Complaints) {
    for (path, source) in rust_below(tree, &["crates/cli/src/"]) {
        if path == "crates/cli/src/device.rs" || path.starts_with("crates/cli/src/device/") {
            continue;
        }
        for (at, used) in source.paths() {
            let backend = below(&used, "hugemr_sim") || below(&used, "hugemr_verbs");
            if backend && !source.in_test(at) {
                complain(
                    out,
                    path,
                    source.line(at),
                    format!("{used} is named outside device.rs"),
                );
            }
        }
    }
}

pub(super) fn linked_verbs_is_off(tree: &Tree, out: &mut Complaints) {
    for (path, text) in tree
        .files()
        .filter(|(path, _)| path.ends_with("Cargo.toml"))
    {
        for entry in manifest::entries(text) {
            let default = entry.section == "features" && entry.key == "default";
            let dependency = entry.section.ends_with("dependencies");
            if (default || dependency) && entry.value.contains("linked-verbs") {
                complain(
                    out,
                    path,
                    entry.line,
                    "linked-verbs is enabled without being asked for",
                );
            }
        }
    }
    // Every feature at once would link libibverbs. Written in two parts, or this file would break the rule.
    let flag = concat!("--all", "-features");
    for (path, text) in tree.files() {
        for (number, line) in text.lines().enumerate() {
            let says_never = path.ends_with(".md") && line.contains("never");
            if line.contains(flag) && !says_never {
                complain(
                    out,
                    path,
                    number + 1,
                    format!("{flag} enables linked-verbs"),
                );
            }
        }
    }
}

pub(super) fn rdma_sys_is_fenced(tree: &Tree, out: &mut Complaints) {
    let home = "crates/verbs-backend/";
    for (path, text) in tree
        .files()
        .filter(|(path, _)| path.ends_with("Cargo.toml"))
    {
        for entry in manifest::entries(text) {
            let fenced = path.starts_with(home) && entry.value.contains("optional = true");
            if entry.key == "rdma-sys" && entry.is_any_dependency() && !fenced {
                complain(
                    out,
                    path,
                    entry.line,
                    "rdma-sys is an optional dependency of verbs-backend only",
                );
            }
        }
    }
    let fenced = [
        "crates/verbs-backend/src/linked",
        "crates/verbs-backend/tests/oracle",
    ];
    for (path, source) in rust_below(
        tree,
        &["crates/", "xtask/", "benches/", "fuzz/", "examples/"],
    ) {
        let names: Vec<_> = source
            .paths()
            .into_iter()
            .filter(|(_, p)| below(p, "rdma_sys"))
            .collect();
        if !fenced.iter().any(|fence| path.starts_with(fence)) {
            for (at, used) in &names {
                complain(
                    out,
                    path,
                    source.line(*at),
                    format!("{used} outside of linked-verbs"),
                );
            }
        } else if !names.is_empty() {
            for (at, word) in source.idents().filter(|(_, word)| is_broken_inline(word)) {
                let what = format!(
                    "{word} of rdma-sys 0.3 is broken on 64 bit (it compares abi_compat with u32::MAX)"
                );
                complain(out, path, source.line(at), what);
            }
        }
    }
}

/// The inline functions that go through `verbs_get_ctx`, which in rdma-sys 0.3 fails on every 64-bit host.
fn is_broken_inline(word: &str) -> bool {
    const BY_NAME: &[&str] = &[
        "verbs_get_ctx",
        "verbs_get_ctx_op",
        "ibv_advise_mr",
        "___ibv_query_port",
        "ibv_alloc_dm",
        "ibv_free_dm",
        "ibv_reg_dm_mr",
        "ibv_open_qp",
        "ibv_open_xrcd",
        "ibv_create_flow",
        "ibv_alloc_mw",
        "ibv_query_rt_values_ex",
    ];
    const TYPES: &[&str] = &["ibv_qp_ex", "ibv_cq_ex"];
    let extended = word.starts_with("ibv_") && word.ends_with("_ex");
    BY_NAME.contains(&word) || (extended && !word.contains("_attr") && !TYPES.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::super::expect;
    use super::*;

    #[test]
    fn a_missing_room_is_seen() {
        let rooms = [
            "core",
            "input",
            "host",
            "verbs-backend",
            "sim-backend",
            "pool",
            "cli",
        ]
        .map(|room| format!("crates/{room}/Cargo.toml"));
        let all = rooms.each_ref().map(|path| (path.as_str(), ""));
        expect(
            rooms_are_there,
            all,
            [("crates/erdma-emulator/Cargo.toml", 0)],
        );
    }

    #[test]
    fn core_dependencies_are_few() {
        let path = "crates/core/Cargo.toml";
        let good =
            "[dependencies]\ntracing.workspace = true\n[dev-dependencies]\nproptest = \"1\"\n";
        expect(core_dependencies, [(path, good)], []);
        let bad = "[dependencies]\nlibc.workspace = true\n[dev-dependencies]\nhugemr-sim = \"1\"\n";
        expect(core_dependencies, [(path, bad)], [(path, 2), (path, 4)]);
    }

    #[test]
    fn core_stays_pure() {
        let path = "crates/core/src/plan.rs";
        let good = "use std::{fmt, time::Duration};\n// std::fs\n#[cfg(test)]\nmod tests { use std::fs; }\n";
        expect(core_is_pure, [(path, good)], []);
        let bad = "use std::{fmt, fs::File};\nfn a() { std::process::exit(1) }\nuse std::time;\nlet t = time::Instant::now();\nuse hugemr_sim::Sim;\nfn b() { libc::getpid() }\n";
        let lines = [(path, 1), (path, 2), (path, 4), (path, 5), (path, 6)];
        expect(core_is_pure, [(path, bad)], lines);
        expect(core_is_pure, [("crates/host/src/lib.rs", bad)], []);
    }

    #[test]
    fn the_emulator_is_alone() {
        let toml = "crates/erdma-emulator/Cargo.toml";
        let code = "crates/erdma-emulator/src/lib.rs";
        expect(
            emulator_stands_alone,
            [
                (toml, "[dependencies]\nlibc = \"1\"\n"),
                (code, "//! hugemr_core\n"),
            ],
            [],
        );
        let bad = [
            (toml, "[dev-dependencies]\nhugemr-core = \"1\"\n"),
            (code, "use hugemr_core::size;\n"),
        ];
        expect(emulator_stands_alone, bad, [(toml, 2), (code, 1)]);
    }

    #[test]
    fn the_simulator_is_independent() {
        let path = "crates/sim-backend/src/kernel.rs";
        let good = "use hugemr_core::{layout::PhysRun, size::PageSize};\n#[cfg(test)]\nmod tests { use hugemr_core::plan; }\n";
        expect(simulator_judges_alone, [(path, good)], []);
        let bad = "use hugemr_core::layout;\nuse hugemr_core::{quirk::QUIRKS, layout::{PhysRun, entries}};\nuse hugemr_core::*;\n";
        let lines = [(path, 1), (path, 2), (path, 2), (path, 3)];
        expect(simulator_judges_alone, [(path, bad)], lines);
    }

    #[test]
    fn the_cli_has_one_door() {
        let code = "fn f() { hugemr_sim::open() }\n";
        expect(
            cli_names_backends_once,
            [("crates/cli/src/device.rs", code)],
            [],
        );
        let path = "crates/cli/src/register.rs";
        expect(cli_names_backends_once, [(path, code)], [(path, 1)]);
    }

    #[test]
    fn linked_verbs_must_be_asked_for() {
        let path = "crates/verbs-backend/Cargo.toml";
        let good = "[features]\nlinked-verbs = [\"dep:rdma-sys\"]\n";
        expect(linked_verbs_is_off, [(path, good)], []);
        let default = "[features]\ndefault = [\n  \"linked-verbs\",\n]\n";
        expect(linked_verbs_is_off, [(path, default)], [(path, 2)]);
        let cli = "crates/cli/Cargo.toml";
        let wired =
            "[dependencies]\nhugemr-verbs = { path = \"x\", features = [\"linked-verbs\"] }\n";
        expect(linked_verbs_is_off, [(cli, wired)], [(cli, 2)]);
        let script = concat!("cargo test --all", "-features\n");
        expect(linked_verbs_is_off, [(".ci/run", script)], [(".ci/run", 1)]);
    }

    #[test]
    fn rdma_sys_stays_behind_its_fence() {
        let toml = "crates/verbs-backend/Cargo.toml";
        let linked = "crates/verbs-backend/src/linked.rs";
        let good = [
            (
                toml,
                "[dependencies]\nrdma-sys = { workspace = true, optional = true }\n",
            ),
            (linked, "use rdma_sys::{ibv_reg_mr, ibv_device_attr_ex};\n"),
        ];
        expect(rdma_sys_is_fenced, good, []);
        let other = "crates/verbs-backend/src/sys.rs";
        let bad = [
            (toml, "[dependencies]\nrdma-sys.workspace = true\n"),
            (
                linked,
                "use rdma_sys::*;\nfn f() { ibv_query_device_ex() }\n",
            ),
            (other, "fn f() { rdma_sys::ibv_reg_mr() }\n"),
        ];
        expect(
            rdma_sys_is_fenced,
            bad,
            [(toml, 2), (linked, 2), (other, 1)],
        );
    }
}
