//! `--estimate`: how long it will take, and how that compares with what happened.

use crate::common::run;

#[test]
fn given_speeds_are_arithmetic() {
    let ran = run(
        "plan 100GiB --device sim:verbs --pages 2MiB --chunk 2GiB --estimate --json --rate populate=10GiB/s --rate pin=100GiB/s \
         --rate mr=1000/s --rate reserve=51200/s",
    )
    .exits(0);
    let estimate = &ran.json()["estimate"];
    assert_eq!(estimate["populate"]["likely"], 10.0);
    assert_eq!(estimate["populate"]["kind"], "given");
    let threads = estimate["threads"].as_u64().unwrap().min(50) as f64;
    let seconds = |step: &str| estimate[step]["likely"].as_f64().unwrap();
    assert_eq!(seconds("pin"), 1.0 / threads);
    assert_eq!(seconds("register"), 1.0 / threads + 0.05);
    let missing = estimate["missing_pages"].as_f64().unwrap();
    assert_eq!(seconds("reserve"), missing / 51_200.0);
    assert!(seconds("total") > seconds("reserve") + 10.0);
}

#[test]
fn speeds_are_measured_here() {
    run("plan 1GiB --device sim:verbs --pages 4KiB --estimate")
        .exits(0)
        .says("rounds of 64 MiB of 4 KiB pages, measured")
        .says("a simulated device pins nothing, documented")
        .says("a simulated device has no rate")
        .says("together");
    // Without it nothing is measured, and nothing said.
    let plain = run("plan 1GiB --device sim:verbs --pages 4KiB --json").exits(0);
    assert!(plain.json()["estimate"].is_null());
}

/// A sample is of memory that the hypervisor has given already.
#[test]
fn memory_that_is_new_to_a_virtual_machine_is_said_to_take_longer() {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let is_virtual = info.contains(" hypervisor ");
    let said = "note: memory that this virtual machine has not used since it was started";
    for line in [
        "plan 64MiB --device sim:verbs --pages 4KiB --estimate",
        "register 64MiB --device sim:verbs --pages 4KiB --memory real --estimate",
    ] {
        let ran = run(line).exits(0);
        assert_eq!(ran.err.contains(said), is_virtual, "{line}: {}", ran.err);
        let json = run(&format!("{line} --json")).exits(0).json();
        let note = json["notes"][0].as_str().unwrap_or_default();
        assert_eq!(note.contains("ten times"), is_virtual, "{line}: {json}");
        // Who gives the speed knows it.
        let given = run(&format!("{line} --rate populate=10GiB/s")).exits(0);
        assert!(!given.err.contains(said), "{line}: {}", given.err);
    }
}

#[test]
fn what_happened_stands_beside_it() {
    let line = "register 64MiB --device sim:verbs --pages 4KiB --memory real --estimate";
    run(line)
        .exits(0)
        .says("  estimated populate ")
        .says("; registration calls alone took ")
        .says(" (a simulated device has no rate); together ")
        .says(", took ");
    run(&format!("{line} --rate mr=1000/s"))
        .exits(0)
        .says("; registration calls alone 1 ms, took ");
    // One name, one number: the other one is from the first call to the last.
    let out = run(line).exits(0).out;
    assert_eq!(out.matches(", register ").count(), 1, "{out}");
    assert!(!out.contains("; register "), "{out}");
    let json = run(&format!("{line} --json")).exits(0).json();
    assert!(json["estimate"]["populate"]["likely"].as_f64().unwrap() > 0.0);
    assert!(json["seconds"]["populate"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_speed_without_a_question_and_a_question_without_memory_are_2() {
    run("plan 1GiB --device sim:verbs --rate mr=1000/s").exits(2);
    run("plan 1GiB --device sim:verbs --estimate --rate mr=fast").exits(2);
    let ran = run("register 1GiB --device sim:verbs --estimate").exits(2);
    assert!(ran.err.contains("--memory real"), "{}", ran.err);
}
