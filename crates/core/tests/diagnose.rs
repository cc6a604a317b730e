//! Diagnosis: what each errno means on each family, what each piece of evidence moves, and that nothing is claimed
//! beyond it.

use std::num::NonZeroU64;

use hugemr_core::backend::{Access, MrRequest, Verb, VerbError};
use hugemr_core::device::{Device, Family, Used};
use hugemr_core::diagnose::{
    BackingPages, Cause, Diagnosis, Evidence, MemoryKind, Operation, Standing, diagnose, given,
};
use hugemr_core::errno::Errno;
use hugemr_core::fact::{Kind, Limit, Source};
use hugemr_core::host::{Driver, Host, HugePool, Node, Platform};
use hugemr_core::size::{GIB, MIB, PageSize, TIB};
use hugemr_core::version::BundleVersion;
use proptest::prelude::*;

use Standing::{Likely, Possible, RuledOut};

fn erdma(errno: Errno) -> Evidence {
    Evidence::of_errno(errno, Family::Erdma)
}

fn at(operation: Operation, errno: Errno) -> Evidence {
    Evidence {
        operation: Some(operation),
        ..erdma(errno)
    }
}

fn platform(kernel: &str, driver: Driver) -> Platform {
    Platform {
        kernel: kernel.parse().ok(),
        driver,
        mtt_va: Some(true),
        iommu: Some(false),
        ..Platform::default()
    }
}

fn vendor(a: u16, b: u16, c: u16) -> Driver {
    Driver::Vendor(Some(BundleVersion(a, b, c)))
}

fn exact(value: u64) -> Option<Limit> {
    Some(given(value, "test"))
}

fn assumed(value: u64) -> Option<Limit> {
    Some(Limit::exact(value, Source::new(Kind::Assumed, "profile")))
}

fn unlimited() -> Option<Limit> {
    Some(Limit::unlimited(Source::new(Kind::Documented, "test")))
}

/// The cause stands as said, and has what it must have.
#[track_caller]
fn check(evidence: &Evidence, cause: Cause, standing: Standing) -> Diagnosis {
    let diagnosis = diagnose(evidence);
    sound(&diagnosis);
    let ranked = diagnosis
        .of(cause)
        .unwrap_or_else(|| panic!("{cause} is no candidate: {diagnosis:#?}"));
    assert_eq!(
        ranked.standing, standing,
        "{cause} for {evidence:#?}\n{ranked:#?}"
    );
    diagnosis
}

#[track_caller]
fn likely(evidence: &Evidence, cause: Cause) {
    let diagnosis = check(evidence, cause, Likely);
    assert_eq!(diagnosis.first().map(|r| r.cause), Some(cause));
}

/// What holds of every diagnosis.
#[track_caller]
fn sound(diagnosis: &Diagnosis) {
    assert!(!diagnosis.summary.is_empty());
    let mut seen: Vec<Cause> = Vec::new();
    for ranked in &diagnosis.causes {
        assert!(!seen.contains(&ranked.cause), "{} twice", ranked.cause);
        seen.push(ranked.cause);
        assert!(!ranked.fix.is_empty(), "{}", ranked.cause);
        assert!(ranked.decide.as_ref().is_none_or(|text| !text.is_empty()));
        match ranked.standing {
            RuledOut => assert!(!ranked.against.is_empty(), "{}", ranked.cause),
            Likely | Possible => assert!(!ranked.evidence_for.is_empty(), "{}", ranked.cause),
        }
        for text in ranked.evidence_for.iter().chain(&ranked.against) {
            assert!(!text.is_empty() && !text.ends_with('.'), "{text:?}");
        }
    }
    assert!(
        diagnosis.causes.is_sorted_by_key(|ranked| ranked.standing),
        "{diagnosis:#?}"
    );
    assert_eq!(
        diagnosis.cannot_tell(),
        diagnosis.causes.iter().all(|r| r.standing == RuledOut)
    );
    for i in 1..diagnosis.unknown.len() {
        assert!(!diagnosis.unknown[..i].contains(&diagnosis.unknown[i]));
    }
}

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

#[test]
fn c36_a_container_without_huge_pages() {
    let evidence = Evidence {
        errno: Some(Errno::EFAULT),
        backing: Some(BackingPages::Huge),
        container: Some(true),
        hugetlb_cgroup_limit: Some(0),
        ..Evidence::default()
    };
    likely(&evidence, Cause::HugetlbCgroup);
}

/// An errno alone: what it means, the candidates, and nothing likely where there are several.
#[test]
fn an_errno_alone_claims_little() {
    let cases: &[(Family, Errno, &[Cause], &str)] = &[
        (
            Family::Erdma,
            Errno::EIO,
            &[
                Cause::TableFull,
                Cause::DeviceRefusal,
                Cause::CommandTimeout,
                Cause::CommandQueueDead,
            ],
            "the device refused",
        ),
        (
            Family::Erdma,
            Errno::EINVAL,
            &[
                Cause::MaxMrSize,
                Cause::LengthZero,
                Cause::AccessFlags,
                Cause::ForkAlignment,
                Cause::IovaOffset,
                Cause::OdpUnsupported,
            ],
            "before the device was asked",
        ),
        (
            Family::Erdma,
            Errno::ENOMEM,
            &[
                Cause::Memlock,
                Cause::KernelTableMemory,
                Cause::PerMrTable,
                Cause::CmaPinning,
                Cause::CommandSlots,
            ],
            "the kernel said no",
        ),
        (
            Family::Erdma,
            Errno::EFAULT,
            &[
                Cause::Unmapped,
                Cause::ReadOnly,
                Cause::HugepagePool,
                Cause::HugetlbCgroup,
                Cause::GpuPointer,
                Cause::FileBacked,
            ],
            "could not pin",
        ),
        (
            Family::Erdma,
            Errno::ENODEV,
            &[Cause::CommandQueueDead, Cause::DeviceGone],
            "shut down",
        ),
        (
            Family::Erdma,
            Errno::EOPNOTSUPP,
            &[Cause::OdpUnsupported, Cause::UnsupportedOperation],
            "does not do",
        ),
        (
            Family::Erdma,
            Errno::EAGAIN,
            &[Cause::RdmaCgroup],
            "number of objects",
        ),
        (
            Family::Ionic,
            Errno::EINVAL,
            &[
                Cause::TableFull,
                Cause::MaxMrSize,
                Cause::LengthZero,
                Cause::AccessFlags,
            ],
            "ionic says both alike",
        ),
        (
            Family::Ionic,
            Errno::ENOMEM,
            &[Cause::Memlock, Cause::PerMrTable],
            "no memory",
        ),
        (
            Family::Efa,
            Errno::ENOMEM,
            &[
                Cause::TableFull,
                Cause::Memlock,
                Cause::MrCount,
                Cause::PerMrTable,
            ],
            "efa says both alike",
        ),
        (
            Family::Mlx4,
            Errno::ENOMEM,
            &[Cause::TableFull, Cause::Memlock],
            "mlx4 says both alike",
        ),
        (
            Family::Ascend,
            Errno::ENOMEM,
            &[Cause::TableFull, Cause::Memlock],
            "ascend says both alike",
        ),
        (
            Family::Efa,
            Errno::EINVAL,
            &[Cause::MaxMrSize, Cause::LengthZero],
            "an argument was refused",
        ),
        (
            Family::Efa,
            Errno::EIO,
            &[Cause::DeviceRefusal, Cause::CommandTimeout],
            "refused",
        ),
        (
            Family::Other,
            Errno::EIO,
            &[Cause::TableFull, Cause::DeviceRefusal],
            "refused",
        ),
        (
            Family::Other,
            Errno::EINVAL,
            &[Cause::TableFull, Cause::MaxMrSize],
            "refused",
        ),
        (
            Family::Other,
            Errno::ENOMEM,
            &[Cause::TableFull, Cause::Memlock],
            "no memory",
        ),
        (
            Family::Efa,
            Errno::EPERM,
            &[Cause::MemlockZero],
            "may not pin",
        ),
    ];
    for (family, errno, causes, means) in cases {
        let diagnosis = diagnose(&Evidence::of_errno(*errno, *family));
        sound(&diagnosis);
        assert!(
            diagnosis.summary.contains(means),
            "{family:?} {errno}: {}",
            diagnosis.summary
        );
        for cause in *causes {
            let ranked = diagnosis
                .of(*cause)
                .unwrap_or_else(|| panic!("{family:?} {errno} {cause}"));
            assert_eq!(ranked.standing, Possible, "{family:?} {errno} {cause}");
        }
    }
}

#[test]
fn an_errno_with_one_cause_is_enough() {
    for (errno, cause) in [
        (Errno::EPERM, Cause::MemlockZero),
        (Errno::ENOSPC, Cause::MrCount),
        (Errno::ETIME, Cause::CommandTimeout),
        (Errno::EOVERFLOW, Cause::IommuPadding),
        (Errno::EINTR, Cause::Interrupted),
        (Errno::EHWPOISON, Cause::PoisonedPage),
    ] {
        likely(&erdma(errno), cause);
    }
    check(&erdma(Errno::ENOSPC), Cause::LeakedMrs, Possible);
    likely(
        &at(Operation::Populate, Errno::EHWPOISON),
        Cause::PoisonedPage,
    );
    likely(&at(Operation::Open, Errno::EMFILE), Cause::FdLimit);
    likely(&at(Operation::DeregMr, Errno::ETIME), Cause::CommandTimeout);
}

#[test]
fn nothing_known_is_cannot_tell() {
    for evidence in [
        Evidence::default(),
        erdma(Errno(77)),
        Evidence::of_errno(Errno::ENOSPC, Family::Efa),
        Evidence::of_errno(Errno::EBUSY, Family::Other),
        at(Operation::QueryDevice, Errno::EFAULT),
    ] {
        let diagnosis = diagnose(&evidence);
        sound(&diagnosis);
        if evidence.errno.is_some() {
            assert!(diagnosis.cannot_tell(), "{diagnosis:#?}");
            assert!(
                diagnosis.summary.contains("cannot tell"),
                "{}",
                diagnosis.summary
            );
        }
    }
    let nothing = diagnose(&Evidence::default());
    assert!(nothing.causes.iter().all(|r| r.standing != Likely));
}

#[test]
fn an_unknown_family_is_said() {
    let evidence = Evidence {
        errno: Some(Errno::EIO),
        ..Evidence::default()
    };
    let diagnosis = check(&evidence, Cause::TableFull, Possible);
    assert!(diagnosis.summary.contains("taken as one of ibv_reg_mr"));
    let why = &diagnosis.of(Cause::TableFull).unwrap().evidence_for[0];
    assert!(why.contains("family erdma"), "{why}");
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
fn each_family_says_a_full_table_in_its_own_way() {
    for (family, errno) in [
        (Family::Erdma, Errno::EIO),
        (Family::Ionic, Errno::EINVAL),
        (Family::Efa, Errno::ENOMEM),
        (Family::Mlx4, Errno::ENOMEM),
        (Family::Ascend, Errno::ENOMEM),
        (Family::Other, Errno::ENOMEM),
    ] {
        let evidence = |errno| Evidence {
            length: Some(GIB),
            effective_page: Some(PageSize::K4),
            entries_budget: exact(1 << 20),
            entries_used: Some((1 << 20, Some(1 << 20))),
            ..Evidence::of_errno(errno, family)
        };
        check(&evidence(errno), Cause::TableFull, Likely);
        if family != Family::Other {
            check(&evidence(Errno::EFAULT), Cause::TableFull, RuledOut);
        }
    }
}

#[test]
fn a_refusal_of_the_device_clears_the_host() {
    let said = |said| Evidence {
        said_device_refused: said,
        memlock: exact(MIB),
        length: Some(GIB),
        ..Evidence::of_errno(Errno::ENOMEM, Family::Efa)
    };
    check(&said(None), Cause::Memlock, Likely);
    let diagnosis = check(&said(Some(true)), Cause::Memlock, RuledOut);
    assert_eq!(diagnosis.first().map(|r| r.cause), Some(Cause::TableFull));
    check(&said(Some(true)), Cause::TableFull, Possible);
    check(&said(Some(true)), Cause::MrCount, Possible);
}

/// A status of the device that is no shortage is a refusal for an untold reason, and no full table.
#[test]
fn a_status_that_is_no_shortage() {
    let said = |family| Evidence {
        said_device_refused: Some(true),
        said_no_shortage: Some(true),
        ..Evidence::of_errno(Errno::EINVAL, family)
    };
    likely(&said(Family::Other), Cause::DeviceRefusal);
    let diagnosis = check(&said(Family::Other), Cause::ForkAlignment, RuledOut);
    assert!(
        diagnosis
            .first()
            .is_some_and(|first| first.fix.contains("syndrome"))
    );
    let diagnosis = check(&said(Family::Ionic), Cause::TableFull, Possible);
    assert!(
        diagnosis
            .of(Cause::TableFull)
            .is_some_and(|r| !r.against.is_empty())
    );
    // Without such a line the refusal is one of many.
    let bare = Evidence::of_errno(Errno::EINVAL, Family::Other);
    assert!(check(&bare, Cause::DeviceRefusal, Possible).undecided());
    assert!(
        diagnose(&erdma(Errno::EINVAL))
            .of(Cause::DeviceRefusal)
            .is_none()
    );
}

/// EOPNOTSUPP of the pin itself is file-system DAX; without the kernel's line nothing decides.
#[test]
fn a_pin_that_is_not_supported() {
    let said = |pin_failed| Evidence {
        said_pin_failed: pin_failed,
        ..Evidence::of_errno(Errno::EOPNOTSUPP, Family::Other)
    };
    likely(&said(Some(true)), Cause::FileBacked);
    check(&said(Some(true)), Cause::UnsupportedOperation, RuledOut);
    check(&said(Some(true)), Cause::OdpUnsupported, RuledOut);
    let bare = check(&said(None), Cause::FileBacked, Possible);
    assert!(bare.undecided());
    assert_eq!(bare.first().map(|r| r.cause), Some(Cause::FileBacked));
    // Another errno of the pin says nothing about DAX.
    let fault = Evidence {
        said_pin_failed: Some(true),
        ..Evidence::of_errno(Errno::EFAULT, Family::Other)
    };
    assert!(check(&fault, Cause::FileBacked, Possible).undecided());
}

/// A hint from another line ranks, and rules nothing out.
#[test]
fn gpu_memory_on_a_line_before() {
    let hinted = Evidence {
        said_gpu_nearby: Some(true),
        ..Evidence::of_errno(Errno::EFAULT, Family::Other)
    };
    let diagnosis = check(&hinted, Cause::GpuPointer, Possible);
    assert_eq!(diagnosis.first().map(|r| r.cause), Some(Cause::GpuPointer));
    check(&hinted, Cause::FileBacked, Possible);
    let host = Evidence {
        memory: Some(MemoryKind::NotGpu),
        ..hinted
    };
    check(&host, Cause::GpuPointer, RuledOut);
    check(&host, Cause::FileBacked, Possible);
}

#[test]
fn a_return_code_of_libfabric_is_said_to_be_one() {
    let evidence = Evidence {
        errno_of_libfabric: Some(true),
        family: None,
        ..erdma(Errno::EIO)
    };
    let diagnosis = diagnose(&evidence);
    assert!(
        diagnosis.summary.contains("libfabric"),
        "{}",
        diagnosis.summary
    );
    assert!(diagnosis.unknown.contains(&"the provider of libfabric"));
    assert!(diagnosis.undecided());
}

/// Every driver's pin is under RLIMIT_MEMLOCK; a full table is ENOMEM where the family is known to say so.
#[test]
fn enomem_where_the_family_is_not_known() {
    let first = |family| {
        let evidence = Evidence {
            family,
            ..erdma(Errno::ENOMEM)
        };
        diagnose(&evidence).first().map(|r| r.cause)
    };
    assert_eq!(first(None), Some(Cause::Memlock));
    assert_eq!(first(Some(Family::Other)), Some(Cause::Memlock));
    assert_eq!(first(Some(Family::Efa)), Some(Cause::TableFull));
}

/// A cause that no family of its own name has is not ascribed to an empty list of families.
#[test]
fn an_errno_of_other_families_says_so() {
    let evidence = Evidence {
        family: None,
        ..erdma(Errno::EAGAIN)
    };
    for ranked in diagnose(&evidence).causes {
        for text in ranked.evidence_for {
            assert!(!text.ends_with("family "), "{text}");
        }
    }
}

#[test]
fn a_failure_without_an_errno_is_not_silent() {
    let evidence = Evidence {
        failed: Some(true),
        length: Some(64 * GIB),
        family: Some(Family::Erdma),
        ..Evidence::default()
    };
    let diagnosis = diagnose(&evidence);
    assert!(diagnosis.cannot_tell() && diagnosis.summary.contains("the errno is not known"));
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
fn addresses_and_access() {
    let mr = |addr, iova, access| Evidence {
        length: Some(MIB),
        addr: Some(addr),
        iova: Some(iova),
        access: Some(access),
        ..erdma(Errno::EINVAL)
    };
    likely(&mr(0x1000, 0x800, Access::REMOTE_RW), Cause::IovaOffset);
    check(
        &mr(0x1000, 0x2000, Access::REMOTE_RW),
        Cause::IovaOffset,
        RuledOut,
    );
    likely(
        &mr(0x1000, 0x1000, Access::REMOTE_WRITE),
        Cause::AccessFlags,
    );
    likely(
        &mr(0x1000, 0x1000, Access::from_bits_retain(1 << 19)),
        Cause::AccessFlags,
    );
    check(
        &mr(0x1000, 0x1000, Access::REMOTE_RW),
        Cause::AccessFlags,
        RuledOut,
    );
    likely(
        &mr(u64::MAX - 10, u64::MAX - 10, Access::REMOTE_RW),
        Cause::AddressOverflow,
    );
    let odp = Access::REMOTE_RW | Access::from_bits_retain(1 << 6);
    likely(&mr(0x1000, 0x1000, odp), Cause::OdpUnsupported);
    check(
        &mr(0x1000, 0x1000, Access::REMOTE_RW),
        Cause::OdpUnsupported,
        RuledOut,
    );
    let transfer = |access| Evidence {
        operation: Some(Operation::Transfer),
        access: Some(access),
        ..Evidence::default()
    };
    check(&transfer(Access::LOCAL_WRITE), Cause::AccessFlags, Likely);
    check(&transfer(Access::REMOTE_RW), Cause::AccessFlags, Possible);
}

#[test]
fn fork_and_huge_pages() {
    // openucx/ucx#6985: 10 MiB on 512 MiB pages.
    let mr = |init, safe| Evidence {
        addr: Some(70_369_383_809_024),
        length: Some(10 * MIB),
        backing: Some(BackingPages::Of(PageSize::M512)),
        fork_init: init,
        hugepages_safe: safe,
        ..erdma(Errno::EINVAL)
    };
    likely(&mr(Some(true), Some(false)), Cause::ForkAlignment);
    check(&mr(None, None), Cause::ForkAlignment, Possible);
    check(&mr(Some(false), None), Cause::ForkAlignment, RuledOut);
    check(&mr(Some(true), Some(true)), Cause::ForkAlignment, RuledOut);
    let aligned = Evidence {
        addr: Some(0),
        length: Some(GIB),
        ..mr(Some(true), Some(false))
    };
    check(&aligned, Cause::ForkAlignment, RuledOut);
}

#[test]
fn memlock() {
    let mr = |limit: Option<Limit>, pinned| Evidence {
        length: Some(GIB),
        memlock: limit,
        pinned,
        ..erdma(Errno::ENOMEM)
    };
    likely(&mr(exact(8 * MIB), None), Cause::Memlock);
    likely(&mr(exact(2 * GIB), Some(2 * GIB)), Cause::Memlock);
    check(&mr(exact(2 * GIB), Some(GIB)), Cause::Memlock, RuledOut);
    check(&mr(exact(2 * GIB), None), Cause::Memlock, Possible);
    check(&mr(unlimited(), None), Cause::Memlock, RuledOut);
    check(&mr(exact(0), None), Cause::Memlock, RuledOut);
    check(&mr(None, None), Cause::Memlock, Possible);
    let copies = Evidence {
        copies: Some(2),
        ..mr(exact(3 * GIB / 2), None)
    };
    likely(&copies, Cause::Memlock);
    let capable = |container| Evidence {
        ipc_lock: Some(true),
        container: Some(container),
        ..mr(exact(8 * MIB), None)
    };
    check(&capable(false), Cause::Memlock, RuledOut);
    check(&capable(true), Cause::Memlock, Likely);
    let zero = |family| Evidence {
        memlock: exact(0),
        ..Evidence::of_errno(Errno::EPERM, family)
    };
    likely(&zero(Family::Efa), Cause::MemlockZero);
    let some = Evidence {
        memlock: exact(1),
        ..zero(Family::Efa)
    };
    check(&some, Cause::MemlockZero, RuledOut);
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
fn the_kernels_memory() {
    let mr = |available| Evidence {
        length: Some(64 * GIB),
        effective_page: Some(PageSize::K4),
        mem_available: Some(available),
        ..erdma(Errno::ENOMEM)
    };
    check(&mr(64 * MIB), Cause::KernelTableMemory, Likely);
    check(&mr(64 * GIB), Cause::KernelTableMemory, Possible);
    let maps = |maps, fork| Evidence {
        maps: Some(maps),
        max_map_count: Some(65_530),
        fork_init: fork,
        ..erdma(Errno::ENOMEM)
    };
    check(&maps(65_530, None), Cause::MaxMapCount, Likely);
    check(&maps(100, None), Cause::MaxMapCount, RuledOut);
    check(&maps(65_530, Some(false)), Cause::MaxMapCount, RuledOut);
    let movable = |movable| Evidence {
        movable: Some(movable),
        ..erdma(Errno::ENOMEM)
    };
    check(&movable(true), Cause::CmaPinning, Possible);
    check(&movable(false), Cause::CmaPinning, RuledOut);
}

#[test]
fn bad_addresses() {
    let mr = || erdma(Errno::EFAULT);
    likely(
        &Evidence {
            mapped: Some(false),
            ..mr()
        },
        Cause::Unmapped,
    );
    likely(
        &Evidence {
            addr: Some(0),
            ..mr()
        },
        Cause::Unmapped,
    );
    check(
        &Evidence {
            mapped: Some(true),
            ..mr()
        },
        Cause::Unmapped,
        RuledOut,
    );
    let written = |access| Evidence {
        writable: Some(false),
        access,
        ..mr()
    };
    likely(&written(Some(Access::REMOTE_RW)), Cause::ReadOnly);
    check(
        &written(Some(Access::REMOTE_READ)),
        Cause::ReadOnly,
        Possible,
    );
    check(&written(None), Cause::ReadOnly, Possible);
    check(
        &Evidence {
            writable: Some(true),
            ..mr()
        },
        Cause::ReadOnly,
        RuledOut,
    );
    likely(
        &Evidence {
            readable: Some(false),
            ..mr()
        },
        Cause::ReadOnly,
    );
    let gpu = |peer| Evidence {
        memory: Some(MemoryKind::Gpu),
        peer_memory: peer,
        ..mr()
    };
    likely(&gpu(Some(false)), Cause::GpuPointer);
    check(&gpu(None), Cause::GpuPointer, Possible);
    check(&gpu(Some(true)), Cause::GpuPointer, Possible);
    check(
        &Evidence {
            memory: Some(MemoryKind::Host),
            ..mr()
        },
        Cause::GpuPointer,
        RuledOut,
    );
    let file = |kernel| Evidence {
        memory: Some(MemoryKind::File),
        platform: platform(kernel, Driver::InTree),
        ..mr()
    };
    likely(&file("6.12.117"), Cause::FileBacked);
    check(&file("6.1.192"), Cause::FileBacked, Possible);
}

#[test]
fn huge_page_pools_and_cgroups() {
    let pool = |operation, errno, free| Evidence {
        length: Some(GIB),
        backing: Some(BackingPages::Of(PageSize::M2)),
        hugepages_free: Some(free),
        ..at(operation, errno)
    };
    likely(
        &pool(Operation::Mmap, Errno::ENOMEM, 511),
        Cause::HugepagePool,
    );
    check(
        &pool(Operation::Mmap, Errno::ENOMEM, 512),
        Cause::HugepagePool,
        Possible,
    );
    check(
        &pool(Operation::Populate, Errno::EFAULT, 0),
        Cause::HugepagePool,
        Possible,
    );
    check(
        &pool(Operation::RegMr, Errno::EFAULT, 3),
        Cause::HugepagePool,
        Possible,
    );
    let fix = &diagnose(&pool(Operation::Mmap, Errno::ENOMEM, 500)).causes[0].fix;
    assert!(fix.contains("12 more pages of 2 MiB"), "{fix}");
    let base = Evidence {
        backing: Some(BackingPages::Of(PageSize::K4)),
        ..erdma(Errno::EFAULT)
    };
    check(&base, Cause::HugepagePool, RuledOut);
    check(&base, Cause::HugetlbCgroup, RuledOut);
    let cgroup = |limit| Evidence {
        hugetlb_cgroup_limit: limit,
        container: Some(true),
        ..pool(Operation::Mmap, Errno::ENOMEM, 1000)
    };
    likely(&cgroup(Some(GIB - 1)), Cause::HugetlbCgroup);
    check(&cgroup(Some(GIB)), Cause::HugetlbCgroup, Possible);
    check(&cgroup(None), Cause::HugetlbCgroup, Possible);
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
fn iommu_and_cgroup() {
    let mr = |length, run, iommu| Evidence {
        length: Some(length),
        longest_run: run,
        platform: Platform {
            iommu,
            ..Platform::default()
        },
        ..Evidence::of_errno(Errno::EOVERFLOW, Family::Efa)
    };
    likely(&mr(8 * GIB, Some(5 * GIB), Some(true)), Cause::IommuPadding);
    check(&mr(8 * GIB, None, None), Cause::IommuPadding, Possible);
    check(&mr(GIB, None, Some(true)), Cause::IommuPadding, RuledOut);
    check(
        &mr(8 * GIB, None, Some(false)),
        Cause::IommuPadding,
        RuledOut,
    );
    let cgroup = |full| Evidence {
        rdma_cgroup_full: Some(full),
        ..erdma(Errno::EAGAIN)
    };
    likely(&cgroup(true), Cause::RdmaCgroup);
    check(&cgroup(false), Cause::RdmaCgroup, RuledOut);
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
fn opening_and_mapping() {
    let open = |errno| at(Operation::Open, errno);
    likely(
        &Evidence {
            provider_loaded: Some(false),
            ..open(Errno::ENOSYS)
        },
        Cause::MissingProvider,
    );
    check(
        &Evidence {
            provider_loaded: Some(true),
            ..open(Errno::ENOSYS)
        },
        Cause::MissingProvider,
        RuledOut,
    );
    likely(
        &Evidence {
            device_file: Some(false),
            ..open(Errno::ENOENT)
        },
        Cause::DeviceFile,
    );
    check(
        &Evidence {
            device_file: Some(true),
            ..open(Errno::EACCES)
        },
        Cause::DeviceFile,
        RuledOut,
    );
    check(
        &Evidence {
            platform: platform("6.12", Driver::InTree),
            ..open(Errno::EPERM)
        },
        Cause::RawIoPrivilege,
        Possible,
    );
    check(
        &Evidence {
            platform: platform("6.1", Driver::InTree),
            ..open(Errno::EPERM)
        },
        Cause::RawIoPrivilege,
        RuledOut,
    );
    check(
        &at(Operation::Mmap, Errno::ENODEV),
        Cause::PageSizeUnsupported,
        Possible,
    );
    check(
        &at(Operation::Mmap, Errno::EPERM),
        Cause::ShmGroup,
        Possible,
    );
    let populate = |kernel| Evidence {
        platform: platform(kernel, Driver::Unknown),
        ..at(Operation::Populate, Errno::EINVAL)
    };
    likely(&populate("5.10.134"), Cause::PopulateUnsupported);
    check(&populate("6.1"), Cause::PopulateUnsupported, Possible);
    let memory = Evidence {
        length: Some(2 * GIB),
        mem_available: Some(GIB),
        ..at(Operation::Populate, Errno::ENOMEM)
    };
    likely(&memory, Cause::HostMemory);
    check(
        &at(Operation::DeregMr, Errno::EBUSY),
        Cause::MrInUse,
        Possible,
    );
    check(
        &at(Operation::DeregMr, Errno::EINVAL),
        Cause::StaleHandle,
        Possible,
    );
    check(
        &at(Operation::QueryDevice, Errno::ENODEV),
        Cause::DeviceGone,
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

#[test]
fn names_are_stable_and_every_cause_can_be_reached() {
    let mut reached = Vec::new();
    for operation in Operation::ALL {
        assert_eq!(Operation::parse(operation.name()), Some(operation));
        for errno in (0..200).map(Errno).map(Some).chain([None]) {
            for family in Family::ALL.into_iter().map(Some).chain([None]) {
                let evidence = Evidence {
                    operation: Some(operation),
                    errno,
                    family,
                    ..Evidence::default()
                };
                let diagnosis = diagnose(&evidence);
                sound(&diagnosis);
                reached.extend(
                    diagnosis
                        .causes
                        .iter()
                        .filter(|r| r.standing != RuledOut)
                        .map(|r| r.cause),
                );
            }
        }
    }
    for cause in Cause::ALL {
        assert!(reached.contains(cause), "{cause} cannot be reached");
        assert_eq!(Cause::parse(cause.name()), Some(*cause));
        assert!(!cause.meaning().is_empty() && !cause.meaning().ends_with('.'));
        assert!(
            cause
                .name()
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b == b'_')
        );
    }
    for name in [
        "table_full",
        "max_mr_size",
        "length_zero",
        "mr_count",
        "per_mr_table",
        "memlock",
        "hugepage_pool",
        "hugetlb_cgroup",
        "unmapped",
        "read_only",
        "fork_alignment",
        "gpu_pointer",
        "file_backed",
        "cma_pinning",
        "max_map_count",
        "command_queue_dead",
        "command_timeout",
        "leaked_mrs",
        "kernel_table_memory",
        "wrong_length",
        "truncated_mr",
        "missing_provider",
    ] {
        assert!(Cause::parse(name).is_some(), "{name}");
    }
}

/// Numbers near the borders that matter, and any others.
fn number() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![
        Just(None),
        prop::sample::select(vec![
            0,
            1,
            4095,
            4096,
            4 * GIB,
            64 * GIB,
            16 * TIB,
            u64::MAX
        ])
        .prop_map(Some),
        any::<u64>().prop_map(Some),
    ]
}

fn limit() -> impl Strategy<Value = Option<Limit>> {
    (
        number(),
        number(),
        prop::sample::select(vec![Kind::Documented, Kind::Assumed, Kind::Measured]),
    )
        .prop_map(|(low, high, kind)| {
            let source = Source::new(kind, "random");
            match (low, high) {
                (None, None) => None,
                (None, Some(_)) => Some(Limit::unlimited(source)),
                (Some(low), high) => Some(Limit::interval(low, high, source)),
            }
        })
}

fn page() -> impl Strategy<Value = Option<PageSize>> {
    prop::option::of((12u32..64).prop_map(|shift| PageSize::from_shift(shift).expect("12 to 63")))
}

prop_compose! {
    fn evidence()(
        (operation, errno, family) in (
            prop::option::of(prop::sample::select(Operation::ALL.to_vec())),
            prop::option::of(prop_oneof![(0i32..140).prop_map(Errno), any::<i32>().prop_map(Errno)]),
            prop::option::of(prop::sample::select(Family::ALL.to_vec())),
        ),
        (kernel, driver, iommu, mtt_va) in (
            prop::sample::select(vec!["?", "4.19", "5.10.134", "6.1.192", "6.8", "6.12.31", "7.3.4"]),
            prop::sample::select(vec![Driver::Unknown, Driver::InTree, vendor(1, 5, 1), vendor(1, 5, 7), Driver::Vendor(None)]),
            any::<Option<bool>>(), any::<Option<bool>>(),
        ),
        numbers in prop::collection::vec(number(), 18),
        limits in prop::collection::vec(limit(), 5),
        flags in prop::collection::vec(any::<Option<bool>>(), 17),
        (effective_page, backing) in (page(), page()),
        memory in prop::option::of(prop::sample::select(vec![MemoryKind::Host, MemoryKind::Gpu, MemoryKind::File, MemoryKind::NotGpu])),
        access in any::<Option<u32>>(),
        huge in any::<bool>(),
    ) -> Evidence {
        Evidence {
            operation, errno, family, failed: flags[15],
            platform: Platform { kernel: kernel.parse().ok(), driver, iommu, mtt_va, ..Platform::default() },
            length: numbers[0], addr: numbers[1], iova: numbers[2], longest_run: numbers[3], mrs_live: numbers[4],
            entries_need: numbers[5], wire_length: numbers[6], advertised_length: numbers[7], pinned: numbers[8],
            copies: numbers[9], hugepages_free: numbers[10], hugepages_needed: numbers[11], hugetlb_cgroup_limit: numbers[12],
            maps: numbers[13], max_map_count: numbers[14], mem_available: numbers[15], threads: numbers[16],
            entries_used: numbers[17].map(|low| (low, numbers[16])),
            max_mr_size: limits[0].clone(), max_mr: limits[1].clone(), entries_budget: limits[2].clone(),
            entries_per_mr: limits[3].clone(), memlock: limits[4].clone(),
            effective_page,
            backing: if huge { Some(BackingPages::Huge) } else { backing.map(BackingPages::Of) },
            memory, access: access.map(Access::from_bits_retain),
            mapped: flags[0], readable: flags[1], writable: flags[2], movable: flags[3], others_hold_mrs: flags[4],
            ipc_lock: flags[5], container: flags[6], rdma_cgroup_full: flags[7], said_out_of_mr_size: flags[8],
            said_command_timeout: flags[9], fork_init: flags[10], hugepages_safe: flags[11], peer_memory: flags[12],
            provider_loaded: flags[13], device_file: flags[14],
            said_device_refused: flags[16], device: None, pid: None,
            said_keys_exhausted: flags[0], said_shrunk: flags[1], dmabuf: flags[2],
            said_no_shortage: flags[3], said_pin_failed: flags[4], said_gpu_nearby: flags[5], errno_of_libfabric: flags[6],
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_evidence_has_a_sound_diagnosis(evidence in evidence()) {
        let diagnosis = diagnose(&evidence);
        sound(&diagnosis);
        prop_assert_eq!(&diagnosis, &diagnose(&evidence));
        prop_assert!(!diagnosis.to_string().contains('\n'));
        prop_assert_eq!(diagnosis.arithmetic.map(|a| a.length), evidence.length);
    }

    /// Less evidence never makes a cause likely that the errno alone does not, and rules out only by the errno.
    #[test]
    fn without_evidence_nothing_is_excluded_but_by_the_errno(errno in 0i32..140, family in prop::sample::select(Family::ALL.to_vec())) {
        let diagnosis = diagnose(&Evidence::of_errno(Errno(errno), family));
        for ranked in &diagnosis.causes {
            if ranked.standing == RuledOut {
                prop_assert!(ranked.against.iter().all(|text| text.starts_with("on ")), "{ranked:?}");
            }
        }
        let likely = diagnosis.causes.iter().filter(|r| r.standing == Likely).count();
        let open = diagnosis.causes.iter().filter(|r| r.standing == Possible && r.cause.behind().is_empty()).count();
        prop_assert!(likely == 0 || (likely == 1 && open == 0), "{diagnosis:#?}");
    }
}
