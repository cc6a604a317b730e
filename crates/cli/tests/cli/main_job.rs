//! The article's experiment.

use crate::common::{ARTICLE, run};
use serde_json::Value;

fn registered(flags: &str) -> Value {
    run(&format!(
        "register 896GiB --device {ARTICLE} --json {flags}"
    ))
    .exits(0)
    .json()
}

#[test]
fn the_article_registers_and_leaves_nothing() {
    let seen = registered("");
    let mrs = seen["mrs"].as_array().expect("a list");
    assert_eq!(mrs.len(), 14);
    assert!(mrs.iter().all(|mr| mr["len"] == 64u64 << 30));
    assert_eq!(seen["entries"]["value"], 458_752);
    assert_eq!(seen["released"]["left"]["mrs"], 0);
    assert_eq!(seen["released"]["left"]["entries"], 0);
    run(&format!("register 896GiB --device {ARTICLE}"))
        .exits(0)
        .says("14 MRs")
        .says("458,752 entries")
        .says("0 MRs and 0 entries");
}

#[test]
fn unknown_versions_make_448_mrs_and_say_what_would_lift_it() {
    let flags = "--kernel unknown --driver unknown";
    let seen = registered(flags);
    let mrs = seen["mrs"].as_array().expect("a list");
    assert_eq!(mrs.len(), 448);
    assert!(mrs.iter().all(|mr| mr["len"] == 2u64 << 30));
    assert_eq!(seen["entries"]["value"], 458_752);
    run(&format!("plan 896GiB --device {ARTICLE} {flags}"))
        .exits(0)
        .says("448 MRs")
        .says("--driver 1.5.2");
}

/// Contiguous memory, chunks of 64 GiB, a driver that does not avoid the defect.
#[test]
fn the_defect_shows_on_the_simulated_device() {
    let old = "--kernel 6.8 --driver 1.5.1";
    run(&format!("plan 896GiB --device {ARTICLE} {old}"))
        .exits(0)
        .says("448 MRs");
    let line =
        format!("register 896GiB --device {ARTICLE} {old} --chunk 64GiB --force --threads 1");
    let ran = run(&format!("{line} --layout contiguous")).exits(3);
    assert!(
        ran.err.contains("MR 1 ") && ran.err.contains("EIO"),
        "{}",
        ran.err
    );
}
