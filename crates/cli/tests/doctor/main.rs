//! `hugemr doctor` and `hugemr inspect`, on made-up hosts and on this machine.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod doctor;
mod inspect;
mod tree;

use std::process::{Command, Output};

fn hugemr<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hugemr"))
        .args(arguments)
        .output()
        .unwrap()
}

/// Standard output, of a run that ended with that code.
#[track_caller]
fn text(out: &Output, code: i32) -> String {
    let err = String::from_utf8_lossy(&out.stderr);
    let text = String::from_utf8(out.stdout.clone()).unwrap();
    assert_eq!(out.status.code(), Some(code), "{text}{err}");
    text
}

#[track_caller]
fn document(out: &Output, code: i32) -> serde_json::Value {
    serde_json::from_str(&text(out, code)).unwrap()
}

/// The names of an object's fields.
fn keys(value: &serde_json::Value) -> Vec<&str> {
    let object = value.as_object().unwrap();
    object.keys().map(String::as_str).collect()
}
