//! The device: its limits, its commands, and what it says.

use crate::*;

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
