//! What an errno means by itself, on each family.

use crate::*;

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
