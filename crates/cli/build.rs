//! How the release binary is linked: for a fast start (docs/decisions/0010-linked-for-start.md).
//!
//! `HUGEMR_USUAL_LINK=1` at build time leaves all of it to the defaults of Rust.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=HUGEMR_USUAL_LINK");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|is| is == value);
    let glibc = is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu");
    // Cross builds link with a compiler that is not known here.
    let native = env::var("HOST").is_ok_and(|host| is("TARGET", &host));
    if !glibc || !native || !is("PROFILE", "release") || is("HUGEMR_USUAL_LINK", "1") {
        return;
    }
    if let Some(folder) = folder_of("libgcc_eh.a") {
        println!("cargo:rustc-link-search=native={folder}");
        println!("cargo:rustc-link-lib=static=gcc_eh");
    }
    println!("cargo:rustc-link-arg-bins=-no-pie");
}

/// Where the system's C compiler has a library of its own; `None` where it has none, or there is no such compiler.
fn folder_of(library: &str) -> Option<String> {
    let asked = Command::new("cc")
        .arg(format!("-print-file-name={library}"))
        .output()
        .ok()?;
    let path = String::from_utf8(asked.stdout).ok()?;
    let path = Path::new(path.trim());
    // It answers with the bare name where it knows no such file.
    let folder = path.is_file().then(|| path.parent())??;
    folder
        .to_str()
        .filter(|folder| !folder.is_empty())
        .map(str::to_owned)
}
