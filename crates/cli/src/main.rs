//! The command `hugemr`.
fn main() {}
