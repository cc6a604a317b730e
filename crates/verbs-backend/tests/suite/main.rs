//! The real backend, run against fake-verbs: a libibverbs look-alike over the simulator.
//!
//! - `conformance`: what every backend must do, for the simulator, fake-verbs and a real device, by the same names
//! - `availability`: each answer to "why is there no device"
//! - `registration`: errno, leftovers, rollback
//! - `from_raw`: the user's own device
//! - `loopback`: proofs by moving data, and what they catch
//! - `proof`: a whole registration proved, with right and with wrong keys and borders
//! - `manners`: what the library must not do
//!
//! Tests that need a real device take the one that `$HUGEMR_TEST_DEVICE` names, which must be up:
//! `HUGEMR_TEST_DEVICE=rxe0 cargo test -p hugemr-verbs -- --ignored real_device`.
//! `cargo xtask vm rxe` runs them in its guest, and makes a table of `conformance`.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    reason = "a test fails by panicking, counts small things, and says what it saw"
)]

mod availability;
#[macro_use]
#[path = "../conformance/mod.rs"]
mod conformance;
mod device;
mod fake;
mod from_raw;
mod loopback;
#[cfg(not(feature = "linked-verbs"))]
mod manners;
mod memory;
mod proof;
mod registration;
mod rigs;
