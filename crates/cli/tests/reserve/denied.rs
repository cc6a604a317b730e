//! What a user has no right to, and what a cgroup does not allow.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use crate::*;

#[test]
#[ignore = "needs huge pages and root"]
fn a_user_without_rights_registers_what_is_ready_and_is_told_what_needs_root() {
    let _pools = lock();
    let before = persistent();
    // Where everybody may run it.
    let folder = tempfile::tempdir().unwrap();
    let program: PathBuf = folder.path().join("hugemr");
    std::fs::copy(env!("CARGO_BIN_EXE_hugemr"), &program).unwrap();
    for path in [folder.path(), &program] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let nobody = |words: &[&str]| {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .arg(&program)
            .args(words)
            .current_dir("/");
        output(&mut command)
    };

    let size = beyond_the_pool(16);
    let out = nobody(&["reserve", &size]);
    let said = text(&out);
    assert_eq!(out.status.code(), Some(3), "{said}");
    assert!(said.contains("changing the pools needs root"), "{said}");
    assert!(!said.contains("changing, for"), "{said}");
    assert!(
        said.contains(&format!("sudo hugemr reserve {size}")),
        "{said}"
    );
    assert!(said.contains("sudo sh -c 'echo "), "{said}");
    let out = nobody(&[&["register", &size, "--reserve"][..], &SIM].concat());
    let said = text(&out);
    assert_eq!(out.status.code(), Some(3), "{said}");
    assert!(
        said.contains(&format!("sudo hugemr register {size} --reserve")),
        "{said}"
    );
    is_as_before(before, "nobody");

    // Made ready by root.
    assert_eq!(
        output(&mut hugemr(&["reserve", &size])).status.code(),
        Some(0)
    );
    for flag in [&[][..], &["--reserve"]] {
        let out = nobody(&[&["register", &size][..], flag, &SIM].concat());
        let said = text(&out);
        assert_eq!(out.status.code(), Some(0), "{flag:?}: {said}");
        assert!(said.contains("registered "), "{said}");
        assert!(said.contains("page size not proved: "), "{said}");
    }
    let out = nobody(&["release"]);
    let said = text(&out);
    assert_eq!(out.status.code(), Some(3), "{said}");
    assert!(said.contains("sudo hugemr release"), "{said}");
    assert_eq!(output(&mut hugemr(&["release"])).status.code(), Some(0));
    is_as_before(before, "nobody");
}

/// What `--prove` asks for and hidden addresses deny is said, and strictly no.
#[test]
#[ignore = "needs root"]
fn hidden_addresses_prove_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let program: PathBuf = folder.path().join("hugemr");
    std::fs::copy(env!("CARGO_BIN_EXE_hugemr"), &program).unwrap();
    for path in [folder.path(), &program] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let line =
        "register 1MiB --device sim:verbs --memory real --pages 4KiB --memlock unlimited --prove";
    let run = |flag: &[&str]| {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .arg(&program)
            .args(line.split(' '))
            .args(flag)
            .current_dir("/");
        let out = output(&mut command);
        (out.status.code(), text(&out))
    };
    let (code, said) = run(&[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("page size not proved: physical addresses are hidden"),
        "{said}"
    );
    let (code, said) = run(&["--json"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("\"how\": null"), "{said}");
    let (code, said) = run(&["--strict"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("--strict takes that as no"), "{said}");
}

/// Runs `script` in a mount namespace of its own. It finds a cgroup in `$CG` with the limit of 2 MiB pages in the file
/// `$MAX`, and hugemr in `$HUGEMR`; `enter` puts a process into the cgroup. `None` where this machine has no hugetlb
/// controller that can be had.
fn in_a_cgroup(script: &str) -> Option<Output> {
    let folder = tempfile::tempdir().unwrap();
    let head = r#"
        cd "$DIR" || exit 77
        if mount -t cgroup -o hugetlb none . 2>/dev/null; then FILE=hugetlb.2MB.limit_in_bytes
        else
            mount -t cgroup2 none . 2>/dev/null || exit 77
            cd "$DIR"
            echo +hugetlb > cgroup.subtree_control 2>/dev/null || exit 77
            FILE=hugetlb.2MB.max
        fi
        cd "$DIR"
        mkdir "hugemr-test-$$" && CG="$DIR/hugemr-test-$$" || exit 77
        MAX="$CG/$FILE"
        enter() { echo 0 > "$CG/cgroup.procs"; }
        state() { sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null; }
    "#;
    let tail = r#"
        cd /
        for i in 1 2 3 4 5 6 7 8 9; do rmdir "$CG" 2>/dev/null && break; sleep 0.1; done
        exit $RC
    "#;
    let out = Command::new("unshare")
        .args(["--mount", "bash", "-c"])
        .arg(format!("{head}\n{script}\n{tail}"))
        .env("DIR", folder.path())
        .env("HUGEMR", env!("CARGO_BIN_EXE_hugemr"))
        .output()
        .unwrap();
    if out.status.code() == Some(77) {
        eprintln!("no hugetlb controller can be mounted here: not tried");
        return None;
    }
    Some(out)
}

#[test]
#[ignore = "needs huge pages and root"]
fn a_cgroup_limit_below_the_need_is_an_error_before_anything_is_touched() {
    let _pools = lock();
    let before = persistent();
    let size = beyond_the_pool(16);
    let limit = available() * (2 << 20) + (16 << 20);
    let run = |flags: &str| {
        in_a_cgroup(&format!(
            "echo {limit} > \"$MAX\"; (enter; exec \"$HUGEMR\" register {size} --reserve --memory real \
             --device sim:erdma {flags}); RC=$?"
        ))
    };
    let Some(out) = run("") else { return };
    let said = text(&out);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.starts_with("does not fit: "), "{said}");
    assert!(said.contains("cgroup"), "{said}");
    assert!(!said.contains("pages of 2 MiB (32 MiB) added"), "{said}");
    // The plan's refusal ignored, the transaction finds it by itself.
    let Some(out) = run("--force") else { return };
    let said = text(&out);
    assert_eq!(out.status.code(), Some(3), "{said}");
    assert!(said.contains("reserve failed: the cgroup allows"), "{said}");
    assert!(!said.contains("pages of 2 MiB (32 MiB) added"), "{said}");
    is_as_before(before, "cgroup");
}

#[test]
#[ignore = "needs huge pages and root"]
fn a_cgroup_limit_lowered_after_mapping_is_an_error_and_no_sigbus() {
    if !cfg!(debug_assertions) {
        eprintln!("a release build of hugemr has no HUGEMR_TEST_AT");
        return;
    }
    let _pools = lock();
    let before = persistent();
    let size = beyond_the_pool(16);
    let script = format!(
        "(enter; exec env HUGEMR_TEST_AT=populate:stop \"$HUGEMR\" register {size} --reserve --memory real \
         --device sim:erdma) & PID=$!; \
         for i in $(seq 600); do [ \"$(state $PID)\" = T ] && break; sleep 0.05; done; \
         [ \"$(state $PID)\" = T ] || echo \"it did not stop\"; \
         echo {} > \"$MAX\"; kill -CONT $PID; wait $PID; RC=$?",
        4 << 20
    );
    let Some(out) = in_a_cgroup(&script) else {
        return;
    };
    let said = text(&out);
    assert_eq!(out.status.code(), Some(3), "{said}");
    assert!(said.contains("populate failed: "), "{said}");
    assert!(said.contains("hugetlb.2MB"), "the file is named: {said}");
    assert!(said.contains("given back"), "{said}");
    is_as_before(before, "cgroup");
}
