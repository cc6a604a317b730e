//! Each answer to "why is there no device".

use std::fs;
use std::path::Path;
use std::process::Command;

use hugemr_core::backend::RegBackend;
use hugemr_core::device::Family;
use hugemr_core::errno::Errno;
use hugemr_verbs::{
    AbiMismatch, ForkSafety, Library, LibrarySource, OpenOptions, Transport, Unavailable, list,
    open,
};

use crate::fake::Fake;

/// Opens `erdma_0` and lists; both must fail the same way.
#[track_caller]
fn neither(options: &OpenOptions) -> Unavailable {
    let listed = list(options).unwrap_err();
    let opened = open("erdma_0", options).unwrap_err();
    assert_eq!(listed, opened);
    listed
}

/// The reason why the only listed device cannot be opened; opening it must say the same.
#[track_caller]
fn blocked(fake: &Fake) -> Unavailable {
    let entries = list(&fake.options()).unwrap();
    let [entry] = entries.as_slice() else {
        panic!("{entries:?}")
    };
    let reason = entry.blocked.clone().unwrap();
    assert_eq!(fake.open(&entry.name).unwrap_err(), reason);
    reason
}

#[test]
fn no_library() {
    let options = OpenOptions::with_library("/nowhere/libibverbs.so.1");
    let Unavailable::NoLibrary { tried, detail } = neither(&options) else {
        panic!()
    };
    assert_eq!(tried, "/nowhere/libibverbs.so.1");
    assert!(
        detail.contains("cannot open shared object file"),
        "{detail}"
    );
}

#[test]
fn a_file_that_is_no_library() {
    let fake = Fake::new("");
    fake.write("text.so", "no library");
    let answer = neither(&OpenOptions::with_library(fake.root().join("text.so")));
    assert_eq!(answer.code(), "no_library");
    assert!(answer.to_string().contains("text.so"), "{answer}");
}

#[test]
fn a_library_without_verbs() {
    let Unavailable::NoSymbol {
        symbol, version, ..
    } = neither(&OpenOptions::with_library("libm.so.6"))
    else {
        panic!()
    };
    assert_eq!(symbol, "ibv_get_device_list");
    // libm has versions, but none of IBVERBS: dlsym was tried.
    assert_eq!(version, None);
}

#[test]
fn a_library_without_one_function() {
    let fake = Fake::without("ibv_dereg_mr");
    let Unavailable::NoSymbol {
        library, symbol, ..
    } = neither(&fake.options())
    else {
        panic!()
    };
    assert_eq!(symbol, "ibv_dereg_mr");
    assert_eq!(library, fake.library().display().to_string());
}

#[test]
fn a_library_without_newer_functions_is_enough() {
    let fake = Fake::without("ibv_is_fork_initialized");
    fake.write("libfake_verbs.so.conf", "device erdma_0");
    let backend = fake.open("erdma_0").unwrap();
    assert_eq!(backend.info().fork, ForkSafety::NotReported);
}

#[test]
fn no_kernel_support() {
    let fake = Fake::new("list = ENOSYS");
    let answer = neither(&fake.options());
    assert_eq!(answer, Unavailable::NoKernelSupport { device: None });
    assert_eq!(answer.errno(), Some(Errno::ENOSYS));
}

#[test]
fn a_kernel_that_speaks_another_version() {
    let fake = Fake::new("list = ENOSYS");
    fake.write("sys/class/infiniband_verbs/abi_version", "7\n");
    assert_eq!(
        neither(&fake.options()),
        Unavailable::AbiMismatch(AbiMismatch::Kernel { kernel: 7 })
    );
}

#[test]
fn a_list_that_fails_in_another_way() {
    let fake = Fake::new("list = EMFILE");
    assert_eq!(
        neither(&fake.options()),
        Unavailable::Verb {
            verb: "ibv_get_device_list",
            device: None,
            errno: Errno::EMFILE
        }
    );
}

#[test]
fn no_device() {
    for text in ["list = empty", ""] {
        let fake = Fake::new(text);
        assert_eq!(neither(&fake.options()), Unavailable::NoDevice);
        assert_eq!(fake.counts().lists, 0);
    }
}

#[test]
fn no_device_of_that_name() {
    let fake = Fake::new("device erdma_0; device rxe0 sim=verbs");
    let answer = fake.open("erdma_1").unwrap_err();
    assert_eq!(
        answer,
        Unavailable::NoSuchDevice {
            name: "erdma_1".to_owned(),
            present: vec!["erdma_0".to_owned(), "rxe0".to_owned()]
        }
    );
    assert_eq!(fake.counts().lists, 0);
}

#[test]
fn ib_uverbs_is_not_loaded() {
    let fake = Fake::new("list = empty");
    fake.kernel_device("erdma_0", None);
    assert_eq!(
        blocked(&fake),
        Unavailable::NoKernelSupport {
            device: Some("erdma_0".to_owned())
        }
    );
}

#[test]
fn a_container_without_the_character_device() {
    let fake = Fake::new("list = empty");
    fake.kernel_device("erdma_0", Some("uverbs0"));
    let path = fake.root().join("dev/infiniband/uverbs0");
    let answer = blocked(&fake);
    assert_eq!(
        answer,
        Unavailable::NoCharDevice {
            device: "erdma_0".to_owned(),
            path: path.clone()
        }
    );
    assert!(
        answer
            .way_out()
            .contains(&format!("--device {}", path.display()))
    );
}

#[test]
fn no_provider() {
    let fake = Fake::new("list = empty");
    fake.kernel_device("erdma_0", Some("uverbs0"));
    fake.write("dev/infiniband/uverbs0", "");
    let answer = blocked(&fake);
    assert_eq!(
        answer,
        Unavailable::NoProvider {
            device: "erdma_0".to_owned(),
            provider: "erdma".to_owned()
        }
    );
    assert!(answer.way_out().contains("ibverbs-providers"));
}

#[test]
fn a_provider_for_another_library() {
    let fake = Fake::new("list = empty");
    fake.kernel_device("erdma_0", Some("uverbs0"));
    fake.write("dev/infiniband/uverbs0", "");
    fake.write("providers/liberdma-rdmav65.so", "");
    assert_eq!(
        blocked(&fake),
        Unavailable::AbiMismatch(AbiMismatch::Provider {
            device: "erdma_0".to_owned(),
            provider: "erdma".to_owned(),
            library: 34,
            found: vec![65]
        })
    );
    // One that fits is there as well: then something else is wrong.
    fake.write("providers/liberdma-rdmav34.so", "");
    assert_eq!(blocked(&fake).code(), "no_provider");
}

#[test]
fn one_device_hidden_and_one_shown() {
    let fake = Fake::new("device rxe0 sim=verbs");
    fake.kernel_device("rxe0", Some("uverbs0"));
    fake.kernel_device("erdma_0", Some("uverbs1"));
    let entries = list(&fake.options()).unwrap();
    let seen: Vec<(&str, Option<&str>)> = entries
        .iter()
        .map(|entry| {
            (
                entry.name.as_str(),
                entry.blocked.as_ref().map(Unavailable::code),
            )
        })
        .collect();
    assert_eq!(seen, [("erdma_0", Some("no_char_device")), ("rxe0", None)]);
    assert_eq!(fake.open("erdma_0").unwrap_err().code(), "no_char_device");
    fake.open("rxe0").unwrap();
}

#[test]
fn opening_is_refused() {
    for (errno, code) in [
        ("EACCES", "no_permission"),
        ("EPERM", "no_permission"),
        ("ENOENT", "no_char_device"),
        ("ENXIO", "no_char_device"),
        ("ENODEV", "verb_failed"),
        ("EMFILE", "verb_failed"),
    ] {
        let fake = Fake::new(&format!("device erdma_0 open={errno}"));
        let answer = fake.open("erdma_0").unwrap_err();
        assert_eq!(answer.code(), code, "{errno}");
        if errno == "EACCES" {
            assert_eq!(
                answer,
                Unavailable::NoPermission {
                    device: "erdma_0".to_owned(),
                    path: fake.root().join("dev/infiniband/uverbs0"),
                    errno: Errno::EACCES
                }
            );
        }
        assert_eq!(fake.counts(), crate::fake::Counts::default());
    }
}

#[test]
fn the_list_says_that_opening_would_be_refused() {
    use std::os::unix::fs::PermissionsExt;
    let fake = Fake::new("device erdma_0");
    fake.write("dev/infiniband/uverbs0", "");
    let path = fake.root().join("dev/infiniband/uverbs0");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    let entries = list(&fake.options()).unwrap();
    // SAFETY: no precondition.
    let root = unsafe { libc::getuid() } == 0;
    let code = entries[0].blocked.as_ref().map(Unavailable::code);
    assert_eq!(code, (!root).then_some("no_permission"));
}

#[test]
fn a_failure_after_opening_closes_the_device() {
    for (text, verb) in [
        ("query=EIO", "ibv_query_device"),
        ("pd=ENOMEM", "ibv_alloc_pd"),
    ] {
        let fake = Fake::new(&format!("device erdma_0 {text}"));
        let Unavailable::Verb {
            verb: failed,
            device,
            ..
        } = fake.open("erdma_0").unwrap_err()
        else {
            panic!()
        };
        assert_eq!((failed, device.as_deref()), (verb, Some("erdma_0")));
        assert_eq!(fake.counts(), crate::fake::Counts::default());
    }
}

#[test]
fn a_device_says_what_it_is() {
    let fake = Fake::new("device erdma_0 sim=ecs.r8a.32xlarge transport=iwarp");
    fake.write("sys/class/net/eth0/address", "00:16:3e:12:34:00\n");
    let backend = fake.open("erdma_0").unwrap();
    let device = backend.device();
    assert_eq!(device.name, "erdma_0");
    assert_eq!(device.family, Family::Erdma);
    assert_eq!(device.max_mr_size.known(), Some(64 << 30));
    assert!(device.max_mr.known().is_some());
    assert_eq!(device.entries.at_most(), None);
    let info = backend.info();
    assert_eq!(
        (info.vendor_id, info.vendor_part_id, info.hw_ver),
        (0x1ded, 0x107f, 1)
    );
    assert_eq!(info.fw_ver, "0.2.34");
    assert_eq!(info.node_guid.to_string(), "0216:3eff:fe12:3400");
    assert_eq!(info.uverbs.as_deref(), Some("uverbs0"));
    assert_eq!(info.transport, Transport::Iwarp);
    assert_eq!(info.netdev.as_deref(), Some("eth0"));
    assert_eq!(info.fork, ForkSafety::Unneeded);
    assert_eq!(info.library.as_deref(), Some(fake.library().as_path()));
    let [port] = info.ports.as_slice() else {
        panic!()
    };
    assert!(port.active && port.ethernet);
}

#[test]
fn fork_safety_is_reported() {
    for (fork, safety) in [
        (0, ForkSafety::Disabled),
        (1, ForkSafety::Enabled),
        (2, ForkSafety::Unneeded),
        (9, ForkSafety::NotReported),
    ] {
        let fake = Fake::new(&format!("fork={fork}; device erdma_0"));
        assert_eq!(fake.open("erdma_0").unwrap().info().fork, safety);
    }
}

#[test]
fn fake_verbs_has_no_versions() {
    let fake = Fake::new("device erdma_0");
    let library = Library::load(&LibrarySource::Path(fake.library())).unwrap();
    assert!(!library.is_versioned());
    assert_eq!(library.provider_abi(), Some(34));
    assert_eq!(library.path(), Some(fake.library().as_path()));
}

/// Whatever this machine has: an answer, and where it is no, a way out.
#[test]
fn this_machine_gets_an_answer() {
    match Library::load(&LibrarySource::Path("libibverbs.so.1".into())) {
        Ok(library) => assert!(library.is_versioned() && library.provider_abi().is_some()),
        Err(answer) => assert_eq!(answer.code(), "no_library"),
    }
    match list(&OpenOptions::default()) {
        Ok(entries) => assert!(!entries.is_empty()),
        Err(answer) => assert!(!answer.way_out().is_empty()),
    }
}

/// For guests and containers that are made so. `$HUGEMR_TEST_EXPECT` is `NAME:CODE` (`rxe0:no_char_device`), where
/// `CODE` is `ready` for a device that can be opened; without `NAME:` it is an answer about the whole machine.
#[test]
#[ignore = "needs a guest"]
fn a_machine_made_so_gets_this_answer() {
    let expected = std::env::var("HUGEMR_TEST_EXPECT").expect("HUGEMR_TEST_EXPECT");
    let options = OpenOptions::default();
    let Some((name, code)) = expected.split_once(':') else {
        assert_eq!(neither(&options).code(), expected);
        return;
    };
    let entries = list(&options).unwrap();
    let entry = entries.iter().find(|entry| entry.name == name).unwrap();
    let listed = entry.blocked.as_ref().map_or("ready", Unavailable::code);
    assert_eq!(listed, code, "{entry:?}");
    let opened = open(name, &options);
    let opened = opened.as_ref().map_or_else(Unavailable::code, |_| "ready");
    assert_eq!(opened, code);
}

/// In a process of its own, for the environment is one of the whole process.
#[test]
fn the_environment_names_the_library() {
    let fake = Fake::new("device fake_0 sim=verbs");
    let child = |library: &Path, expected: &str| {
        let output = Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "availability::a_machine_made_so_gets_this_answer",
            ])
            .env(hugemr_verbs::LIBRARY_VARIABLE, library)
            .env("HUGEMR_TEST_EXPECT", expected)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{said}"
        );
    };
    child(&fake.library(), "fake_0:ready");
    child(Path::new("/nowhere/libibverbs.so.1"), "no_library");
}
