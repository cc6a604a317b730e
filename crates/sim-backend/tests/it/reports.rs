//! Public reports of failures, replayed on the simulator.

use hugemr_core::device::Used;
use hugemr_core::errno::Errno;
use hugemr_core::fact::{Kind, Limit, Source};
use hugemr_core::host::{Driver, Presumption};
use hugemr_core::size::{GIB, MIB, PageSize};
use hugemr_core::version::BundleVersion;
use hugemr_sim::{DefaultLayout, Layer, Outcome, Overrides, SimDevice, SimMemory};

use crate::common::{BASE, reg, reg_chunks, sim};

fn exact(value: u64) -> Option<Limit> {
    Some(Limit::exact(value, Source::new(Kind::Given, "report")))
}

/// A report: what it does not mention does not limit, and versions that it does not mention are not affected.
fn report() -> Overrides {
    let unlimited = || Some(Limit::unlimited(Source::new(Kind::Given, "not mentioned")));
    Overrides {
        kernel: Some(None),
        driver: Some(Driver::Unknown),
        unknown: Some(Presumption::Unaffected),
        max_mr_size: unlimited(),
        max_mr: unlimited(),
        entries: unlimited(),
        entries_per_mr: unlimited(),
        ..Overrides::default()
    }
}

fn bundle(patch: u16) -> Option<Driver> {
    Some(Driver::Vendor(Some(BundleVersion(1, 5, patch))))
}

/// The effective page size and the entries of the latest registration, whether it succeeded or not.
fn latest(device: &SimDevice) -> (PageSize, u64) {
    let log = device.log();
    let arrival = log.last().and_then(|event| event.arrival);
    let arrival = arrival.expect("it reached the device");
    (arrival.page, arrival.entries)
}

/// The eRDMA article: driver 1.5.1 on an unfixed kernel.
#[test]
fn the_article_before_1_5_2() {
    let overrides = Overrides {
        max_mr_size: exact(68_719_476_736),
        entries: exact(33_554_431),
        sg_fix: Some(false),
        driver: bundle(1),
        memory: Some(DefaultLayout::Contiguous { page: PageSize::M2 }),
        ..report()
    };
    let device = sim("erdma", &overrides);
    let (_, failed) = reg_chunks(&device, 962_072_674_304, 68_719_476_736);
    assert_eq!(failed, Some((1, Errno::EIO)));
    assert_eq!(latest(&device), (PageSize::K4, 16_777_216));
}

/// A report that names a bundle before 1.5.2 and says nothing about the kernel: the defect is possible, as core reckons.
#[test]
fn an_old_bundle_on_an_unstated_kernel_meets_the_defect() {
    for (patch, want) in [(1, PageSize::K4), (2, PageSize::M2)] {
        let overrides = Overrides {
            driver: bundle(patch),
            memory: Some(DefaultLayout::Contiguous { page: PageSize::M2 }),
            ..report()
        };
        let device = sim("erdma", &overrides);
        reg(&device, BASE, 64 * GIB).expect("no limit");
        assert_eq!(latest(&device).0, want, "1.5.{patch}");
    }
}

/// Release note of `erdma_installer` 1.5.7.
#[test]
fn a_wrong_length_on_1_gib_pages() {
    let overrides = Overrides {
        max_mr_size: exact(68_719_476_736),
        driver: bundle(6),
        memory: Some(DefaultLayout::scattered(PageSize::G1)),
        ..report()
    };
    let device = sim("erdma", &overrides);
    let mr = reg(&device, BASE, 68_719_476_736).expect("the call succeeds");
    let live = device.mr(mr.handle).expect("a live MR");
    assert_eq!((live.arrival.entries, live.arrival.wire_len), (64, 0));
    assert!(!live.usable());
    let overrides = Overrides {
        driver: bundle(7),
        ..overrides
    };
    let device = sim("erdma", &overrides);
    let mr = reg(&device, BASE, 68_719_476_736).expect("the call succeeds");
    assert!(device.mr(mr.handle).expect("a live MR").usable());
}

/// The kernel patch of February 2025 (20250217141623.12428-1-mrgolin).
#[test]
fn contiguous_memory_before_and_after_the_fix() {
    for (fixed, want) in [
        (false, (PageSize::K4, 4_194_304)),
        (true, (PageSize::M2, 8192)),
    ] {
        let overrides = Overrides {
            sg_fix: Some(fixed),
            memory: Some(DefaultLayout::Contiguous { page: PageSize::M2 }),
            ..report()
        };
        let device = sim("verbs", &overrides);
        reg(&device, BASE, 17_179_869_184).expect("no limit");
        assert_eq!(latest(&device), want);
    }
}

/// SemiAnalysisAI/InferenceX#3330: 32,768 of 2^20 entries are held by others.
#[test]
fn ionic_says_einval_when_the_table_is_full() {
    let overrides = Overrides {
        entries: exact(1_048_576),
        used: Some(Used {
            entries: (32_768, Some(32_768)),
            ..Used::NOTHING
        }),
        memory: Some(DefaultLayout::scattered(PageSize::K4)),
        ..report()
    };
    let device = sim("ionic", &overrides);
    let (mrs, failed) = reg_chunks(&device, 4 * GIB, GIB);
    assert_eq!((mrs.len(), failed), (3, Some((3, Errno::EINVAL))));
    // The exact ceiling of the report, in steps of 64 MiB.
    let device = sim("ionic", &overrides);
    let (mrs, failed) = reg_chunks(&device, 4 * GIB, 64 * MIB);
    assert_eq!(mrs.len(), 3968 / 64);
    assert_eq!(failed, Some((62, Errno::EINVAL)));
    assert_eq!(device.state().entries, 1_015_808);
}

/// The same report: one small hole in 6 GiB of transparent huge pages.
#[test]
fn one_hole_drags_a_whole_mr_down() {
    let overrides = Overrides {
        entries_per_mr: exact(524_288),
        ..report()
    };
    let device = sim("ionic", &overrides);
    let holes = SimMemory::Holes {
        page: PageSize::M2,
        count: 1,
        seed: 0,
    };
    device.back(BASE, 6 * GIB, holes).expect("a range");
    assert_eq!(reg(&device, BASE, 6 * GIB), Err(Errno::ENOMEM));
    assert_eq!(latest(&device), (PageSize::K4, 1_572_864));
    let refused = device.log()[0].outcome;
    assert!(matches!(
        refused,
        Outcome::Refused {
            by: Layer::Device,
            ..
        }
    ));
    let found = device.not_huge(BASE, 6 * GIB, PageSize::M2);
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].start, found[0].end),
        (BASE + 3 * GIB, BASE + 3 * GIB + 2 * MIB)
    );
    // Around the hole everything is well.
    assert!(reg(&device, BASE, 3 * GIB).is_ok());
    assert_eq!(latest(&device), (PageSize::M2, 1536));
    assert!(device.not_huge(BASE, 3 * GIB, PageSize::M2).is_empty());
}

/// kvcache-ai/Mooncake#4168: ionic advertises 2 GiB, 4 GiB on 1 GiB pages work.
#[test]
fn ionic_takes_more_than_it_advertises() {
    let device = sim("ionic", &Overrides::default());
    device.set_default_layout(DefaultLayout::scattered(PageSize::G1));
    reg(&device, BASE, 4 * GIB).expect("not refused");
    assert_eq!(latest(&device), (PageSize::G1, 4));
    device.set_default_layout(DefaultLayout::scattered(PageSize::K4));
    assert!(reg(&device, BASE, 2 * GIB).is_ok());
    assert_eq!(reg(&device, BASE, 3 * GIB), Err(Errno::ENOMEM));
}

/// kvcache-ai/Mooncake#304 and ofiwg/libfabric#9739: 95 GiB of 4 KiB pages fit, 96 GiB do not.
#[test]
fn ninety_five_gib_fit_ninety_six_do_not() {
    let base_pages = Overrides {
        memory: Some(DefaultLayout::scattered(PageSize::K4)),
        ..Overrides::default()
    };
    for (buffers, fits) in [
        ([64 * GIB, 31 * GIB], true),
        ([64 * GIB, 32 * GIB], false),
        ([48 * GIB, 48 * GIB], false),
    ] {
        let device = sim("mooncake-304", &base_pages);
        assert!(reg(&device, BASE, buffers[0]).is_ok());
        let second = reg(&device, BASE + buffers[0], buffers[1]);
        assert_eq!(second.is_ok(), fits);
        assert!(fits || second == Err(Errno::EIO));
    }
    let device = sim("efa", &base_pages);
    let (mrs, failed) = reg_chunks(&device, 96 * GIB, GIB);
    assert_eq!((mrs.len(), failed), (95, Some((95, Errno::ENOMEM))));
}

/// mlx4's module parameters: 2^(20 + 3) entries hold 32 GiB of 4 KiB pages.
#[test]
fn mlx4_by_its_module_parameters() {
    let with = |mlx4| Overrides {
        mlx4,
        memory: Some(DefaultLayout::scattered(PageSize::K4)),
        ..Overrides::default()
    };
    for (mlx4, gib) in [(None, 32), (Some((23, 0)), 32), (Some((20, 1)), 8)] {
        let device = sim("mlx4", &with(mlx4));
        let (mrs, failed) = reg_chunks(&device, (gib + 1) * GIB, GIB);
        assert_eq!(
            (mrs.len() as u64, failed.map(|f| f.1)),
            (gib, Some(Errno::ENOMEM))
        );
    }
}
