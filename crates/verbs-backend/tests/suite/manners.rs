//! What the library must not do.

use std::process::Command;

/// The default build needs no libibverbs to start: this test binary contains all of it.
#[test]
fn nothing_needs_libibverbs_to_start() {
    let test = std::env::current_exe().unwrap();
    let Ok(output) = Command::new("readelf").arg("-d").arg(&test).output() else {
        return; // no binutils here
    };
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("libc.so.6"), "{text}");
    assert!(
        !text.contains("ibverbs") && !text.contains("rdmacm"),
        "{text}"
    );
}
