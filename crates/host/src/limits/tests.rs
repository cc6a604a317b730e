use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use hugemr_core::limits::{Range, Seen};

use super::file::{LARGEST, PATIENCE, beside, lock};
use super::*;
use proptest::prelude::*;

fn identity(name: &str) -> Identity {
    Identity {
        device: name.to_owned(),
        kernel: Some("6.1.0-57".into()),
        ..Identity::default()
    }
}

fn seen(low: u64, high: Option<u64>) -> Seen {
    Seen {
        entries: (low, high),
        ..Seen::default()
    }
}

fn silent(_: &Waiting) {}

fn learn(path: &Path, name: &str, new: Seen) -> Result<(), LimitsError> {
    update(path, &silent, |limits| {
        let entry = limits.entry(&identity(name), Confidence::Seen, 7);
        entry.learn(&new, Confidence::Seen, 7).unwrap();
    })
}

#[test]
fn what_is_written_reads_back_in_a_folder_that_was_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b/limits.toml");
    assert_eq!(read(&path).unwrap(), Limits::default());
    learn(&path, "erdma_0", seen(5, Some(9))).unwrap();
    learn(&path, "erdma_1", seen(6, None)).unwrap();
    let limits = read(&path).unwrap();
    assert_eq!(limits.records.len(), 2);
    assert_eq!(
        limits.of(&identity("erdma_0")).unwrap().seen.entries,
        (5, Some(9))
    );
    assert!(limits.of(&identity("erdma_2")).is_none());
    assert!(!beside(&path, "new").exists());
}

#[test]
fn other_software_gets_a_record_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    learn(&path, "erdma_0", seen(5, Some(9))).unwrap();
    let newer = Identity {
        kernel: Some("6.12".into()),
        ..identity("erdma_0")
    };
    let limits = read(&path).unwrap();
    let stale = limits.of(&newer).unwrap();
    assert_eq!(stale.identity.changes(&newer)[0].what, "kernel");
    update(&path, &silent, |limits| {
        limits.entry(&newer, Confidence::Seen, 8).seen.entries = (100, None);
    })
    .unwrap();
    let limits = read(&path).unwrap();
    assert_eq!(limits.of(&newer).unwrap().seen.entries, (100, None));
    assert_eq!(
        limits.of(&identity("erdma_0")).unwrap().seen.entries,
        (5, Some(9))
    );
}

#[test]
fn what_is_not_understood_is_said_with_its_place_and_never_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    learn(&path, "erdma_0", seen(5, Some(9))).unwrap();
    let whole = fs::read_to_string(&path).unwrap();
    let cut = whole.strip_suffix("# end\n").unwrap();
    let bad = [
        (cut, "echo '# end' >> FILE"),
        ("# Limits of RDMA devices\nversion = 2\n[[new]]\n", "later"),
        ("version = 0\n", "never written"),
        ("version = \"1\"\n", "no number"),
        ("version = 1\n[[device]]\nname = 5\n# end\n", "line 3"),
        (
            "version = 1\n[[device]]\nname = \"x\"\nchanged = 1\nconfidence = \"sure\"\n# end\n",
            "confidence",
        ),
        (
            "version = 1\n[[device]]\nname = \"x\"\nchanged = 1\nconfidence = \"seen\"\nentries = { at_least = 9, at_most = 5 }\n# end\n",
            "above at_most",
        ),
        (
            "version = 1\n[[device]]\nname = \"x\"\nchanged = -1\nconfidence = \"seen\"\n# end\n",
            "line 4",
        ),
    ];
    for (text, why) in bad {
        fs::write(&path, text).unwrap();
        let error = read(&path).unwrap_err();
        assert!(error.to_string().contains(why), "{error} / {why}");
        let error = learn(&path, "erdma_0", seen(6, None)).unwrap_err();
        assert!(matches!(error, LimitsError::NotUnderstood { .. }));
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    for text in [
        &b"\n"[..],
        &[0xff, 0xfe],
        b"version = 4\n[[package]]\n",
        b"a:b\n",
    ] {
        fs::write(&path, text).unwrap();
        let error = read(&path).unwrap_err();
        assert!(matches!(error, LimitsError::Foreign { .. }), "{error}");
    }
    fs::write(&path, vec![b'#'; usize::try_from(LARGEST + 1).unwrap()]).unwrap();
    assert!(read(&path).unwrap_err().to_string().contains("longer"));
}

/// A file of no bytes, as mktemp makes it, is one that knows nothing; one without its last line is whole again with it.
#[test]
fn an_empty_file_and_one_without_its_end_can_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    fs::write(&path, "").unwrap();
    assert_eq!(read(&path).unwrap(), Limits::default());
    learn(&path, "erdma_0", seen(5, Some(9))).unwrap();
    let whole = fs::read_to_string(&path).unwrap();
    let cut = whole.strip_suffix("# end\n").unwrap();
    fs::write(&path, format!("{cut}# end\n")).unwrap();
    let limits = read(&path).unwrap();
    assert_eq!(
        limits.of(&identity("erdma_0")).unwrap().seen.entries,
        (5, Some(9))
    );
}

#[test]
fn keys_of_others_survive_a_change() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    let text = "version = 1\nnote = \"ours\"\n[[device]]\nname = \"erdma_0\"\nkernel = \"6.1.0-57\"\nchanged = 1\nconfidence = \"seen\"\nrack = 12\n# end\n";
    fs::write(&path, text).unwrap();
    learn(&path, "erdma_0", seen(5, None)).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert!(
        text.contains("note = \"ours\"") && text.contains("rack = 12"),
        "{text}"
    );
    assert!(text.contains("at_least = 5"), "{text}");
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    // A folder in the place of the file cannot be read or replaced, by root either.
    let path = folder.path().join("limits.toml");
    fs::create_dir(&path).unwrap();
    assert!(learn(&path, "erdma_0", seen(5, None)).is_err());
    // Nor can a file be made below a file.
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    let error = learn(&file.join("limits.toml"), "erdma_0", seen(5, None)).unwrap_err();
    assert!(error.to_string().contains("cannot be"), "{error}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "x");
}

#[test]
fn writers_at_once_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let path = &path;
            scope.spawn(move || {
                for n in 0..10 {
                    learn(path, &format!("dev{writer}_{n}"), seen(1 + n, None)).unwrap();
                    assert!(read(path).is_ok(), "never half a file");
                }
            });
        }
    });
    assert_eq!(read(&path).unwrap().records.len(), 80);
}

fn text() -> impl Strategy<Value = Option<String>> {
    proptest::option::of(any::<String>())
}

fn span() -> impl Strategy<Value = Range> {
    (0u64..1 << 60, proptest::option::of(0u64..1 << 60))
        .prop_map(|(low, more)| (low, more.map(|more| low + more)))
}

fn a_record() -> impl Strategy<Value = Record> {
    let identity = (any::<String>(), text(), text(), text(), text(), text());
    let seen = (
        span(),
        span(),
        span(),
        proptest::option::of(0u64..1 << 60),
        any::<Option<bool>>(),
        proptest::option::of(0u64..1 << 60),
    );
    (identity, seen, 0u64..1 << 40, 0usize..3).prop_map(|(i, s, seconds, c)| Record {
        identity: Identity {
            device: i.0,
            guid: i.1,
            kernel: i.2,
            driver: i.3,
            firmware: i.4,
            instance: i.5,
        },
        seen: Seen {
            entries: s.0,
            per_mr: s.1,
            mrs: s.2,
            longest: s.3,
            refused: s.5,
            large_pages: s.4,
        },
        confidence: [Confidence::Probed, Confidence::Seen, Confidence::Told][c],
        seconds,
    })
}

proptest! {
    #[test]
    fn any_records_read_back(records in prop::collection::vec(a_record(), 0..5)) {
        let limits = Limits { records, ..Limits::default() };
        let back = Limits::parse(&limits.text()).unwrap();
        prop_assert_eq!(back.records, limits.records);
    }

    /// A file that was cut off anywhere is refused: a shorter number would be another number.
    #[test]
    fn a_cut_file_is_refused(records in prop::collection::vec(a_record(), 1..3), cut in any::<prop::sample::Index>()) {
        let limits = Limits { records, ..Limits::default() };
        let text = limits.text();
        let mut at = 1 + cut.index(text.len() - 2);
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        prop_assert!(Limits::parse(&text[..at]).is_err());
    }

    #[test]
    fn any_text_is_survived(text in "(version = 1\n)?[-a-z0-9_= \"\\[\\]{}\n]{0,80}") {
        let _ = Limits::parse(&text);
    }
}

#[test]
fn what_is_no_regular_file_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let socket = folder.path().join("socket");
    let _listens = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let inside = folder.path().join("folder");
    fs::create_dir(&inside).unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
    for path in [&pipe, &socket, &inside, &link] {
        for refused in [
            read(path).map(|_| ()),
            check(path, &silent),
            learn(path, "erdma_0", seen(5, None)),
        ] {
            assert!(
                matches!(refused, Err(LimitsError::NotRegular { .. })),
                "{}: {refused:?}",
                path.display()
            );
        }
        assert!(!beside(path, "lock").exists());
    }
    let null = Path::new("/dev/null");
    assert!(matches!(read(null), Err(LimitsError::NotRegular { .. })));
}

#[test]
fn a_link_stays_a_link_and_its_target_keeps_its_rights() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("shared/limits.toml");
    let link = folder.path().join("limits.toml");
    std::os::unix::fs::symlink("shared/limits.toml", &link).unwrap();
    // Not there yet: it is made where the link points.
    learn(&link, "erdma_0", seen(5, None)).unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).unwrap();
    let root = fs::metadata(&target).unwrap().uid() == 0;
    if root {
        std::os::unix::fs::chown(&target, Some(12345), Some(12346)).unwrap();
    }
    learn(&link, "erdma_0", seen(6, None)).unwrap();
    learn(&target, "erdma_1", seen(7, None)).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let metadata = fs::metadata(&target).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o7777, 0o640);
    if root {
        assert_eq!((metadata.uid(), metadata.gid()), (12345, 12346));
    }
    assert_eq!(read(&link).unwrap().records.len(), 2);
    let round = folder.path().join("round");
    std::os::unix::fs::symlink("round", &round).unwrap();
    assert!(learn(&round, "erdma_0", seen(5, None)).is_err());
}

#[test]
fn a_check_changes_nothing_and_tells_what_writing_would() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/limits.toml");
    check(&path, &silent).unwrap();
    assert!(!path.exists() && !beside(&path, "new").exists());
    learn(&path, "erdma_0", seen(5, None)).unwrap();
    let before = fs::read(&path).unwrap();
    check(&path, &silent).unwrap();
    assert_eq!(fs::read(&path).unwrap(), before);
    fs::write(&path, "version = 7\n").unwrap();
    assert!(matches!(
        check(&path, &silent),
        Err(LimitsError::NotUnderstood { .. })
    ));
    assert!(check(Path::new("/proc/no/limits.toml"), &silent).is_err());
}

#[test]
fn what_was_kept_under_former_names_is_there_under_the_one_of_now() {
    let rows = [
        ("sim:./a.toml", None, (5, Some(9))),
        ("sim:other", Some("6.1"), (1, None)),
        ("sim:mine", Some("6.1"), (7, None)),
        ("sim:./a.toml", Some("6.8"), (100, None)),
    ];
    let mut limits = Limits::default();
    for (n, (device, kernel, entries)) in (1u32..).zip(rows) {
        let now = Identity {
            device: device.to_owned(),
            kernel: kernel.map(str::to_owned),
            ..Identity::default()
        };
        let mut record = Record::new(now, Confidence::Seen, n.into());
        record.seen.entries = entries;
        let rack = (format!("rack{n}"), toml::Value::Integer(n.into()));
        limits.records.push(record);
        limits.rests.push(toml::Table::from_iter([rack]));
    }
    limits.rename(&["sim:./a.toml".to_owned()], "sim:mine");
    let of = |kernel: &str| {
        let now = Identity {
            kernel: Some(kernel.to_owned()),
            ..identity("sim:mine")
        };
        let record = limits.of(&now).unwrap();
        (record.identity.kernel.clone(), record.seen.entries)
    };
    assert_eq!(of("6.1"), (Some("6.1".to_owned()), (7, Some(9))));
    assert_eq!(of("6.8"), (Some("6.8".to_owned()), (100, None)));
    assert_eq!(limits.records.len(), 3);
    let text = limits.text();
    assert!(!text.contains("a.toml"), "{text}");
    for rack in 1..=4 {
        assert!(text.contains(&format!("rack{rack} = {rack}")), "{text}");
    }
    let before = limits.clone();
    limits.rename(&["sim:./a.toml".to_owned()], "sim:mine");
    assert_eq!(limits, before);
}

#[test]
fn a_lock_of_another_process_is_told_while_it_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    let other = RefCell::new(Some(lock(&path, PATIENCE, &silent).unwrap()));
    let told = RefCell::new(Vec::new());
    let patience = (Duration::ZERO, Duration::from_secs(3600));
    // Who is told lets the other one go.
    let waits = |waiting: &Waiting| {
        told.borrow_mut().push(waiting.clone());
        other.borrow_mut().take();
    };
    let mine = lock(&path, patience, &waits).unwrap();
    let told = told.into_inner();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].path, beside(&path, "lock"));
    assert!(told[0].left > Duration::from_secs(3000));
    let error = lock(&path, (Duration::ZERO, Duration::ZERO), &silent).unwrap_err();
    assert!(
        error.to_string().contains("locked by another process"),
        "{error}"
    );
    drop(mine);
}

/// The file is edited by hand, and clocks are set back.
#[test]
fn what_was_learned_is_found_beside_a_later_block_of_the_same_device() {
    let block = "[[device]]\nname = \"erdma_0\"\nchanged = 1796000000\nconfidence = \"probed\"\n";
    let text = format!("version = 1\n{block}{block}# end\n");
    let mut limits = Limits::parse(&text).unwrap();
    let now = Identity {
        device: "erdma_0".to_owned(),
        ..Identity::default()
    };
    let seen = Seen {
        entries: (5, None),
        ..Seen::default()
    };
    let record = limits.entry(&now, Confidence::Seen, 1);
    record.learn(&seen, Confidence::Seen, 1).unwrap();
    let again = Limits::parse(&limits.text()).unwrap();
    assert_eq!(
        again.of(&now).map(|record| record.seen.entries),
        Some((5, None))
    );
}
