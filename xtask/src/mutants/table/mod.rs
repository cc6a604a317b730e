//! The changes, a file for a room or two.

mod agreement;
mod cli;
mod devices;
mod diagnose;
mod host;
mod layout;
mod limits;
mod plan;
mod registrar;
mod values;

use super::Mutant;

const CORE: &str = "-p hugemr-core --lib";
const PLAN: &str = "-p hugemr-core --test plan";
const DIAGNOSE: &str = "-p hugemr-core --test diagnose";
const PROBE: &str = "-p hugemr-core --test probe";
const INPUT: &str = "-p hugemr-input --lib";
const HOST: &str = "-p hugemr-host --lib";
const POOL: &str = "-p hugemr --lib";
const PIPELINE: &str = "-p hugemr --test pipeline";
/// The properties that hold core against the simulator.
const AGREEMENT: &str = "-p hugemr --test agreement";
const SIM: &str = "-p hugemr-sim --test it";
const VERBS: &str = "-p hugemr-verbs --test suite";
const EMULATOR: &str = "-p erdma-emulator --test it";
/// The command from inside.
const COMMAND: &str = "-p hugemr-cli --bin hugemr";
/// The command from outside.
const CLI: &str = "-p hugemr-cli --test cli";
const XTASK: &str = "-p xtask --bin xtask";

/// In the order of the rooms.
const ROOMS: &[&[Mutant]] = &[
    values::MUTANTS,
    layout::MUTANTS,
    plan::MUTANTS,
    agreement::MUTANTS,
    registrar::MUTANTS,
    diagnose::MUTANTS,
    limits::MUTANTS,
    host::MUTANTS,
    devices::MUTANTS,
    cli::MUTANTS,
];

/// All of them.
pub(super) fn all() -> impl Iterator<Item = &'static Mutant> {
    ROOMS.iter().copied().flatten()
}
