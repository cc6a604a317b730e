//! The experiment of the vendor's article: 896 GiB on ecs.r8a.32xlarge.

use hugemr_core::backend::RegBackend;
use hugemr_core::errno::Errno;
use hugemr_core::host::Driver;
use hugemr_core::size::{GIB, PageSize};
use hugemr_core::version::{BundleVersion, KernelVersion};
use hugemr_sim::{DefaultLayout, Overrides};

use crate::common::{reg_chunks, sim};

const NAME: &str = "sim:ecs.r8a.32xlarge";

#[test]
fn huge_pages_hold_896_gib() {
    let device = sim(NAME, &Overrides::default());
    let (mrs, failed) = reg_chunks(&device, 896 * GIB, 64 * GIB);
    assert_eq!((mrs.len(), failed), (14, None));
    assert_eq!((mrs[0].lkey.0, mrs[13].rkey.0), (0x100, 0xe00));
    let state = device.state();
    assert_eq!((state.entries, state.mrs), (458_752, 14));
    assert_eq!(state.pinned, 896 * GIB);
    for mr in mrs {
        device.dereg_mr(mr.handle).unwrap();
    }
    let state = device.state();
    assert_eq!((state.entries, state.mrs, state.pinned), (0, 0, 0));
    assert_eq!((state.peak_entries, state.peak_mrs), (458_752, 14));
    assert_eq!((state.registered, state.deregistered), (14, 14));
}

#[test]
fn base_pages_do_not() {
    let device = sim(
        NAME,
        &Overrides {
            memory: Some(DefaultLayout::scattered(PageSize::K4)),
            ..Overrides::default()
        },
    );
    let (mrs, failed) = reg_chunks(&device, 896 * GIB, 64 * GIB);
    assert_eq!((mrs.len(), failed), (1, Some((1, Errno::EIO))));
    assert_eq!(device.state().entries, 16_777_216);
}

#[test]
fn the_old_rule_turns_contiguous_huge_pages_into_base_pages() {
    let overrides = Overrides {
        kernel: Some(Some("6.8".parse().unwrap())),
        driver: Some(Driver::Vendor(Some(BundleVersion(1, 5, 1)))),
        memory: Some(DefaultLayout::Contiguous { page: PageSize::M2 }),
        ..Overrides::default()
    };
    let device = sim(NAME, &overrides);
    let (mrs, failed) = reg_chunks(&device, 896 * GIB, 64 * GIB);
    assert_eq!((mrs.len(), failed), (1, Some((1, Errno::EIO))));
    let device = sim(NAME, &overrides);
    let (mrs, failed) = reg_chunks(&device, 896 * GIB, 2 * GIB);
    assert_eq!((mrs.len(), failed), (448, None));
    assert_eq!(device.state().entries, 458_752);
}

#[test]
fn kernels_before_5_2_know_only_base_pages() {
    let device = sim(
        NAME,
        &Overrides {
            kernel: Some(Some(KernelVersion::new(4, 19, 91))),
            ..Overrides::default()
        },
    );
    let (mrs, failed) = reg_chunks(&device, 896 * GIB, 64 * GIB);
    assert_eq!((mrs.len(), failed), (1, Some((1, Errno::EIO))));
}

#[test]
fn an_unknown_platform_still_holds_small_chunks() {
    let device = sim(
        NAME,
        &Overrides {
            kernel: Some(None),
            driver: Some(Driver::Unknown),
            ..Overrides::default()
        },
    );
    let (mrs, failed) = reg_chunks(&device, 896 * GIB, 2 * GIB);
    assert_eq!((mrs.len(), failed), (448, None));
    assert_eq!(device.state().entries, 458_752);
}

#[test]
fn in_tree_on_1_gib_pages_sends_length_0() {
    let device = sim(
        NAME,
        &Overrides {
            kernel: Some(Some(KernelVersion::new(6, 12, 31))),
            driver: Some(Driver::InTree),
            memory: Some(DefaultLayout::scattered(PageSize::G1)),
            ..Overrides::default()
        },
    );
    let (mrs, failed) = reg_chunks(&device, 64 * GIB, 64 * GIB);
    assert_eq!(failed, None);
    let live = device.mr(mrs[0].handle).unwrap();
    assert_eq!((live.arrival.wire_len, live.arrival.entries), (0, 64));
    assert!(!live.usable());
}
