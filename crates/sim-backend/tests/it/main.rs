//! Behaviour of simulated devices as a caller sees it.

mod article;
mod common;
mod faults;
mod ledger;
mod probe;
mod reports;
mod tables;
