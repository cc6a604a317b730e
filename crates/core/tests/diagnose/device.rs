//! The device: its table, its limits, its commands.

use crate::*;

#[test]
fn c02a_small_gpu_pages_fill_the_table() {
    let evidence = Evidence {
        length: Some(4_885_774_336),
        max_mr_size: exact(64 * GIB),
        said_out_of_mr_size: Some(false),
        memory: Some(MemoryKind::Gpu),
        effective_page: Some(PageSize::K4),
        ..erdma(Errno::EIO)
    };
    let diagnosis = check(&evidence, Cause::TableFull, Likely);
    let first = diagnosis.first().unwrap();
    assert_eq!(first.cause, Cause::TableFull);
    assert!(first.fix.contains("newer OFED") && first.fix.contains("64 KiB"));
    check(&evidence, Cause::MaxMrSize, RuledOut);
    let numbers = diagnosis.arithmetic.unwrap();
    assert_eq!(numbers.entries_4k, 1_192_816);
    assert_eq!(numbers.entries_64k, 74_551);
    assert_eq!(numbers.effective, Some((PageSize::K4, 1_192_816)));
}

/// A bound is saved of a refusal only where this holds.
#[test]
fn a_cause_is_decided_for_where_the_evidence_suffices_for_it_and_for_no_other() {
    let mr = Evidence {
        length: Some(64 * GIB),
        effective_page: Some(PageSize::K4),
        backing: Some(BackingPages::Of(PageSize::M2)),
        entries_budget: exact(1 << 20),
        entries_used: Some((0, Some(0))),
        ..erdma(Errno::EIO)
    };
    // Smaller pages are behind the full table, and no other reason.
    check(&mr, Cause::SmallPages, Likely);
    let diagnosis = check(&mr, Cause::TableFull, Likely);
    assert!(diagnosis.decides_for(Cause::TableFull));
    assert!(!diagnosis.decides_for(Cause::SmallPages));
    assert!(!diagnosis.decides_for(Cause::DeviceRefusal));
    // The log knows of another one.
    let silent = Evidence {
        said_command_timeout: Some(true),
        ..mr.clone()
    };
    let diagnosis = check(&silent, Cause::CommandTimeout, Likely);
    assert!(!diagnosis.decides_for(Cause::TableFull));
    // Nothing is known.
    let diagnosis = diagnose(&erdma(Errno::EIO));
    assert!(!diagnosis.decides_for(Cause::TableFull));
}

#[test]
fn the_table_against_its_budget() {
    let mr = |budget: Option<Limit>, used| Evidence {
        length: Some(64 * GIB),
        effective_page: Some(PageSize::M2),
        entries_budget: budget,
        entries_used: used,
        ..erdma(Errno::EIO)
    };
    let nothing = Some((0, Some(0)));
    likely(&mr(exact(32_767), nothing), Cause::TableFull);
    check(&mr(exact(32_768), nothing), Cause::TableFull, RuledOut);
    likely(&mr(exact(40_000), Some((8_000, None))), Cause::TableFull);
    check(
        &mr(exact(40_000), Some((0, None))),
        Cause::TableFull,
        Possible,
    );
    // A budget that a profile assumes rules nothing out.
    check(
        &mr(assumed(40_000_000), nothing),
        Cause::TableFull,
        Possible,
    );
    check(&mr(unlimited(), nothing), Cause::TableFull, Possible);
    check(&mr(None, nothing), Cause::TableFull, Possible);
    // Once it is ruled out, so is what would be behind it.
    let leaked = Evidence {
        others_hold_mrs: Some(true),
        ..mr(exact(32_768), nothing)
    };
    check(&leaked, Cause::LeakedMrs, RuledOut);
}

#[test]
fn small_pages_on_a_device_that_spoke() {
    let mr = |backing, length| Evidence {
        backing: Some(BackingPages::Of(backing)),
        length,
        ..erdma(Errno::EIO)
    };
    likely(&mr(PageSize::K4, None), Cause::TableFull);
    likely(&mr(PageSize::K4, Some(97 * GIB)), Cause::TableFull);
    let fix = diagnose(&mr(PageSize::K4, Some(97 * GIB))).causes[0]
        .fix
        .clone();
    for part in ["49,664", "25,427,968", "plan 97GiB"] {
        assert!(fix.contains(part), "{fix}");
    }
    check(&mr(PageSize::K4, Some(MIB)), Cause::TableFull, Possible);
    check(&mr(PageSize::M2, None), Cause::TableFull, Possible);
    check(
        &mr(PageSize::M2, Some(97 * GIB)),
        Cause::TableFull,
        Possible,
    );
    // The same pages on a family whose errno the kernel shares decide nothing.
    let efa = Evidence {
        family: Some(Family::Efa),
        errno: Some(Errno::ENOMEM),
        ..mr(PageSize::K4, Some(97 * GIB))
    };
    check(&efa, Cause::TableFull, Possible);
}

#[test]
fn small_pages_for_a_reason() {
    let mr = |platform, backing, effective| Evidence {
        length: Some(64 * GIB),
        backing: Some(backing),
        effective_page: effective,
        platform,
        ..erdma(Errno::EIO)
    };
    let huge = BackingPages::Of(PageSize::M2);
    let old = || platform("6.8", vendor(1, 5, 1));
    check(
        &mr(old(), huge, Some(PageSize::K4)),
        Cause::SmallPages,
        Likely,
    );
    check(
        &mr(old(), BackingPages::Huge, Some(PageSize::K4)),
        Cause::SmallPages,
        Likely,
    );
    check(
        &mr(old(), huge, Some(PageSize::M2)),
        Cause::SmallPages,
        RuledOut,
    );
    check(&mr(old(), huge, None), Cause::SmallPages, Possible);
    check(
        &mr(old(), BackingPages::Of(PageSize::K4), None),
        Cause::SmallPages,
        RuledOut,
    );
    check(
        &mr(platform("4.19", Driver::InTree), huge, None),
        Cause::SmallPages,
        Likely,
    );
    let run = |longest| Evidence {
        longest_run: Some(longest),
        ..mr(old(), huge, None)
    };
    check(&run(5 * GIB), Cause::SmallPages, Likely);
    check(&run(GIB), Cause::SmallPages, Possible);
}

#[test]
fn too_long_empty_or_strange() {
    let mr = |length| Evidence {
        length: Some(length),
        max_mr_size: exact(64 * GIB),
        ..erdma(Errno::EINVAL)
    };
    likely(&mr(65 * GIB), Cause::MaxMrSize);
    assert!(
        diagnose(&mr(65 * GIB))
            .first()
            .unwrap()
            .fix
            .contains("2 MRs of at most 64 GiB")
    );
    check(&mr(64 * GIB), Cause::MaxMrSize, RuledOut);
    likely(&mr(0), Cause::LengthZero);
    check(&mr(1), Cause::LengthZero, RuledOut);
    check(&mr(17 * TIB), Cause::AddressOverflow, Likely);
    let said = |said, driver| Evidence {
        said_out_of_mr_size: Some(said),
        platform: platform("5.10.134", driver),
        ..erdma(Errno::EINVAL)
    };
    likely(&said(true, vendor(1, 5, 2)), Cause::MaxMrSize);
    check(&said(false, vendor(1, 5, 2)), Cause::MaxMrSize, RuledOut);
    check(&said(false, vendor(1, 5, 2)), Cause::LengthZero, RuledOut);
    check(&said(false, Driver::Unknown), Cause::MaxMrSize, Possible);
    check(&said(false, Driver::InTree), Cause::MaxMrSize, Possible);
}

#[test]
fn counts_and_tables() {
    let count = |live, limit| Evidence {
        mrs_live: Some(live),
        max_mr: limit,
        ..Evidence::of_errno(Errno::ENOMEM, Family::Efa)
    };
    check(&count(2048, exact(2048)), Cause::MrCount, Likely);
    check(&count(2047, exact(2048)), Cause::MrCount, RuledOut);
    check(&count(2047, assumed(2048)), Cause::MrCount, Possible);
    let table = |length, platform| Evidence {
        length: Some(length),
        effective_page: Some(PageSize::K4),
        platform,
        ..erdma(Errno::ENOMEM)
    };
    let early = || platform("6.1.192", Driver::InTree);
    check(&table(2 * GIB, early()), Cause::PerMrTable, RuledOut);
    check(&table(2 * GIB + 4096, early()), Cause::PerMrTable, Likely);
    check(
        &table(3 * GIB, platform("6.12", Driver::InTree)),
        Cause::PerMrTable,
        RuledOut,
    );
    check(
        &table(3 * GIB, Platform::default()),
        Cause::PerMrTable,
        Possible,
    );
    check(
        &table(TIB, platform("6.12", Driver::InTree)),
        Cause::PerMrTable,
        Likely,
    );
    let ionic = Evidence {
        length: Some(3 * GIB),
        effective_page: Some(PageSize::K4),
        entries_per_mr: exact(524_288),
        ..Evidence::of_errno(Errno::ENOMEM, Family::Ionic)
    };
    check(&ionic, Cause::PerMrTable, Likely);
    let threads = |n| Evidence {
        threads: Some(n),
        ..erdma(Errno::ENOMEM)
    };
    check(&threads(64), Cause::CommandSlots, RuledOut);
    check(&threads(200), Cause::CommandSlots, Possible);
}

#[test]
fn a_dead_command_queue() {
    let io = |driver, said| Evidence {
        platform: platform("6.1.192", driver),
        said_command_timeout: said,
        ..erdma(Errno::EIO)
    };
    check(&io(Driver::InTree, None), Cause::CommandTimeout, RuledOut);
    check(
        &io(Driver::InTree, Some(true)),
        Cause::CommandQueueDead,
        RuledOut,
    );
    check(&io(vendor(1, 5, 2), None), Cause::CommandTimeout, Possible);
    check(
        &io(vendor(1, 5, 2), Some(true)),
        Cause::CommandTimeout,
        Likely,
    );
    check(
        &io(vendor(1, 5, 2), Some(false)),
        Cause::CommandTimeout,
        Possible,
    );
    let gone = Evidence {
        said_command_timeout: Some(true),
        ..erdma(Errno::ENODEV)
    };
    likely(&gone, Cause::CommandQueueDead);
    let seen = |present| {
        let evidence = Evidence {
            device_present: present,
            ..erdma(Errno::ENODEV)
        };
        let diagnosis = diagnose(&evidence);
        let first = diagnosis.first().map(|first| (first.cause, first.standing));
        (first.unwrap(), diagnosis.undecided())
    };
    assert_eq!(seen(None), ((Cause::CommandQueueDead, Possible), true));
    assert_eq!(
        seen(Some(true)),
        ((Cause::CommandQueueDead, Possible), false)
    );
    assert_eq!(seen(Some(false)), ((Cause::DeviceGone, Likely), false));
    assert!(
        diagnose(&io(Driver::InTree, None))
            .summary
            .contains("EIO = the device refused; pinning had already worked")
    );
    assert!(
        diagnose(&io(vendor(1, 5, 2), None))
            .summary
            .contains("vendor")
    );
}

#[test]
fn silent_ones() {
    let mr = |length, page, platform| Evidence {
        operation: Some(Operation::RegMr),
        family: Some(Family::Erdma),
        length: Some(length),
        effective_page: Some(page),
        platform,
        ..Evidence::default()
    };
    let early = || platform("6.1.192", Driver::InTree);
    let late = || platform("6.12.117", Driver::InTree);
    likely(&mr(64 * GIB, PageSize::M2, early()), Cause::WrongLength);
    likely(&mr(64 * GIB, PageSize::G1, late()), Cause::WrongLength);
    check(
        &mr(64 * GIB, PageSize::M2, late()),
        Cause::WrongLength,
        RuledOut,
    );
    check(
        &mr(3 * GIB, PageSize::G1, late()),
        Cause::WrongLength,
        RuledOut,
    );
    check(
        &mr(64 * GIB, PageSize::G1, platform("5.15", vendor(1, 5, 7))),
        Cause::WrongLength,
        RuledOut,
    );
    check(
        &mr(64 * GIB, PageSize::G1, Platform::default()),
        Cause::WrongLength,
        Possible,
    );
    let wire = |wire| Evidence {
        wire_length: Some(wire),
        ..mr(5 * GIB, PageSize::G1, Platform::default())
    };
    likely(&wire(GIB), Cause::WrongLength);
    check(&wire(5 * GIB), Cause::WrongLength, RuledOut);
    let given_out = |said, limit| Evidence {
        operation: Some(Operation::Transfer),
        advertised_length: said,
        max_mr_size: limit,
        ..mr(2 * GIB, PageSize::M2, Platform::default())
    };
    likely(&given_out(Some(3 * GIB), None), Cause::TruncatedMr);
    check(
        &given_out(Some(2 * GIB), None),
        Cause::TruncatedMr,
        RuledOut,
    );
    check(
        &given_out(None, exact(2 * GIB)),
        Cause::TruncatedMr,
        Possible,
    );
}

#[test]
fn evidence_of_a_failed_verb() {
    let device = Device {
        max_mr_size: given(64 * GIB, "max_mr_size"),
        entries: given(1000, "budget"),
        used: Used::NOTHING,
        ..Device::unlimited("erdma_0", Family::Erdma)
    };
    let request = MrRequest {
        addr: 0x7f00_0000_0000,
        len: NonZeroU64::new(GIB).unwrap(),
        iova: 0x7f00_0000_0000,
        access: Access::REMOTE_RW,
    };
    let error = VerbError {
        verb: Verb::RegMr,
        errno: Errno::EIO,
    };
    let mut evidence = Evidence::of_verb_error(&error, &request, &device);
    evidence.effective_page = Some(PageSize::K4);
    likely(&evidence, Cause::TableFull);
    assert!(
        diagnose(&evidence)
            .first()
            .unwrap()
            .evidence_for
            .iter()
            .any(|t| t.contains("262,144"))
    );
    let dereg = VerbError {
        verb: Verb::DeregMr,
        errno: Errno::EBUSY,
    };
    check(
        &Evidence::of_verb_error(&dereg, &request, &device),
        Cause::MrInUse,
        Possible,
    );

    let pool = HugePool {
        page: PageSize::M2,
        total: 10,
        free: 3,
        surplus: 0,
    };
    let host = Host {
        nodes: Some(vec![Node {
            pools: vec![pool],
            ..Node::default()
        }]),
        cgroup: vec![(PageSize::M2, 7)],
        memlock: exact(0),
        ..Host::default()
    };
    evidence.backing = Some(BackingPages::Of(PageSize::M2));
    let evidence = evidence.on_host(&host);
    assert_eq!(evidence.hugepages_free, Some(3));
    assert_eq!(evidence.hugetlb_cgroup_limit, Some(7));
    assert_eq!(evidence.memlock, exact(0));
}

/// Evidence that speaks as much for another cause decides nothing.
#[test]
fn equal_evidence_decides_nothing() {
    let mr = |driver| Evidence {
        length: Some(GIB),
        effective_page: Some(PageSize::M2),
        platform: platform("6.8", driver),
        entries_budget: exact(33_554_431),
        entries_used: Some((0, Some(0))),
        ..erdma(Errno::EIO)
    };
    let diagnosis = diagnose(&mr(vendor(1, 5, 1)));
    assert!(diagnosis.undecided(), "{diagnosis:#?}");
    assert_eq!((diagnosis.left(), diagnosis.equals()), (3, 3));
    assert!(!diagnosis.to_string().contains("reload the driver"));
    // Evidence for each of two.
    let full = Evidence {
        others_hold_mrs: Some(true),
        mrs_live: None,
        said_device_refused: Some(true),
        entries_used: None,
        length: None,
        ..mr(vendor(1, 5, 1))
    };
    assert!(!diagnose(&full).undecided(), "more speaks for the table");
    let refused = Evidence {
        others_hold_mrs: None,
        effective_page: None,
        ..full
    };
    let diagnosis = diagnose(&refused);
    assert!(
        diagnosis.has_point() && diagnosis.equals() > 1,
        "{diagnosis:#?}"
    );
    assert!(diagnosis.undecided());
    // The in-tree driver has another errno for silence: the refusal is what is left.
    assert!(!diagnose(&mr(Driver::InTree)).undecided());
}

/// A table whose size is known is what the need is held against, and no report of another one.
#[test]
fn a_known_budget_is_what_counts() {
    let mr = |budget: Option<Limit>| Evidence {
        length: Some(64 * GIB),
        effective_page: Some(PageSize::K4),
        entries_budget: budget,
        ..erdma(Errno::EIO)
    };
    let table = |budget| {
        let diagnosis = diagnose(&mr(budget));
        diagnosis.of(Cause::TableFull).unwrap().clone()
    };
    let said = |list: &[String], text: &str| list.iter().any(|line| line.contains(text));
    let large = table(exact(100_000_000_000));
    assert_eq!(large.standing, Possible, "use by others is not known");
    assert!(
        said(&large.against, "0.017 % of 100,000,000,000"),
        "{large:#?}"
    );
    assert!(!said(&large.evidence_for, "24,903,680"), "{large:#?}");
    let half = table(exact(33_554_431));
    assert_eq!(half.standing, Possible);
    assert!(
        said(&half.evidence_for, "50.0 % of 33,554,431"),
        "{half:#?}"
    );
    let tiny = table(exact(u64::MAX));
    assert!(said(&tiny.against, "less than 0.001 %"), "{tiny:#?}");
    // By the pages of the mapping, where those of the MR are not known.
    let mapping = diagnose(&Evidence {
        effective_page: None,
        backing: Some(BackingPages::Of(PageSize::K4)),
        ..mr(exact(33_554_431))
    });
    let mapping = mapping.of(Cause::TableFull).unwrap();
    assert!(said(&mapping.evidence_for, "50.0 %"), "{mapping:#?}");
    assert_eq!(table(None).standing, Likely);
    assert_eq!(table(assumed(100_000_000_000)).standing, Likely);
}

/// No fix asks for what is there already, and none speaks of another family's software.
#[test]
fn fixes_fit_what_is_known() {
    let fix = |evidence: &Evidence, cause| {
        let diagnosis = diagnose(evidence);
        diagnosis.of(cause).unwrap().fix.clone()
    };
    let mr = |length, page| Evidence {
        length: Some(length),
        effective_page: page,
        ..erdma(Errno::EIO)
    };
    let table = |length, page| fix(&mr(length, page), Cause::TableFull);
    let huge = table(64 * GIB, Some(PageSize::M2));
    assert!(
        huge.contains("free other MRs") && huge.contains("1 GiB pages"),
        "{huge}"
    );
    let large = diagnose(&mr(64 * GIB, Some(PageSize::M2)));
    let small_pages = large.of(Cause::SmallPages).unwrap();
    assert_eq!(small_pages.against, ["the MR got 2 MiB pages"]);
    for text in [
        table(64 * GIB, Some(PageSize::G1)),
        table(MIB, Some(PageSize::M2)),
    ] {
        assert_eq!(text, "free other MRs of the device");
    }
    for length in [0, 4096] {
        let text = table(length, None);
        assert!(text.contains("save no entries"), "{text}");
        assert!(!text.contains("hugemr plan"), "{text}");
    }
    let text = table(64 * GIB, Some(PageSize::K64));
    assert!(text.contains("1,048,576 at 64 KiB"), "{text}");
    for family in Family::ALL {
        let evidence = Evidence {
            length: Some(64 * GIB),
            ..Evidence::of_errno(family.dialect().over_budget, family)
        };
        let text = fix(&evidence, Cause::SmallPages);
        assert_eq!(text.contains("eRDMA"), family == Family::Erdma, "{text}");
        let diagnosis = diagnose(&evidence);
        let place = |cause| diagnosis.causes.iter().position(|one| one.cause == cause);
        assert!(
            place(Cause::SmallPages) > place(Cause::TableFull),
            "{diagnosis:#?}"
        );
        // An MR that does not meet the defect at 4 GiB is not to be made shorter.
        let text = fix(
            &Evidence {
                length: Some(GIB),
                ..evidence
            },
            Cause::SmallPages,
        );
        assert!(!text.contains("less than 4 GiB"), "{text}");
    }
}

/// Every command of hugemr has the device and the limits file that are known.
#[test]
fn commands_have_the_device_and_the_limits() {
    for (errno, length, page) in [
        (Some(Errno::EIO), 64 * GIB, Some(PageSize::K4)),
        (Some(Errno::EIO), 64 * GIB, None),
        (Some(Errno::EINVAL), 65 * GIB, None),
        (Some(Errno::EINVAL), GIB, None),
        (None, 64 * GIB, None),
    ] {
        let evidence = Evidence {
            errno,
            length: Some(length),
            effective_page: page,
            max_mr_size: assumed(64 * GIB),
            device: Some("erdma_7".to_owned()),
            stated: " --limits /x/y.toml".to_owned(),
            ..erdma(Errno::EIO)
        };
        let diagnosis = diagnose(&evidence);
        let texts = diagnosis
            .causes
            .iter()
            .flat_map(|one| [Some(&one.fix), one.decide.as_ref()]);
        let mut found = 0;
        for text in texts
            .flatten()
            .filter(|text| text.contains("hugemr plan ") && !text.contains("hugemr plan cuts"))
        {
            found += 1;
            assert!(
                text.contains("GiB --device erdma_7 --limits /x/y.toml"),
                "{text}"
            );
        }
        assert!(found > 0, "{diagnosis:#?}");
    }
}

/// The pages that are advised are those with which the need is within the table, where its size is known.
#[test]
fn the_advised_pages_fit_the_budget() {
    for (most, advised) in [
        (
            33_554_431,
            "2 MiB huge pages: 32,768 entries instead of 16,777,216 at 4 KiB",
        ),
        (
            1000,
            "1 GiB huge pages: 64 entries instead of 16,777,216 at 4 KiB",
        ),
        (10, "fewer bytes"),
    ] {
        let evidence = Evidence {
            length: Some(64 * GIB),
            effective_page: Some(PageSize::K4),
            entries_budget: exact(most),
            entries_used: Some((most, Some(most))),
            ..erdma(Errno::EIO)
        };
        let diagnosis = diagnose(&evidence);
        let full = diagnosis
            .causes
            .iter()
            .find(|one| one.cause == Cause::TableFull);
        let fix = &full.unwrap().fix;
        assert!(fix.contains(advised), "{most}: {fix}");
    }
}
