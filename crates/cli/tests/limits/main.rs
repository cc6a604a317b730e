//! `probe`, `learn`, `usage`, the limits file and the config file, from outside.
#![expect(clippy::unwrap_used, reason = "a test")]

#[path = "../cli/common.rs"]
#[expect(dead_code, reason = "shared with another binary")]
mod common;
mod config;
mod file;
mod probe;
mod said;
