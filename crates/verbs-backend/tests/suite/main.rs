//! The real backend, run against fake-verbs: a libibverbs look-alike over the simulator.
//!
//! - `conformance`: what every backend must do, for the simulator, fake-verbs and a real device, by the same names
//! - `availability`: each answer to "why is there no device"
//! - `registration`: errno, leftovers, the user's own device, rollback
//! - `loopback`: proofs by moving data, and what they catch
//! - `manners`: what the library must not do
//!
//! Tests that need a real device take the one that `$HUGEMR_TEST_DEVICE` names, which must be up:
//! `HUGEMR_TEST_DEVICE=rxe0 cargo test -p hugemr-verbs -- --ignored real_device`.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking, and counts small things"
)]

mod availability;
#[macro_use]
#[path = "../conformance/mod.rs"]
mod conformance;
mod fake;
mod loopback;
#[cfg(not(feature = "linked-verbs"))]
mod manners;
mod memory;
mod registration;
mod rigs;
