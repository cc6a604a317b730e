use super::*;
use crate::fact::{Kind, Source};
use crate::host::{Driver, Presumption, Tried};
use crate::version::BundleVersion;

fn platform(kernel: &str, driver: Driver) -> Platform {
    Platform {
        kernel: (kernel != "unknown").then(|| kernel.parse().unwrap()),
        driver,
        mtt_va: Some(true),
        iommu: Some(false),
        ..Platform::default()
    }
}

fn vendor(a: u16, b: u16, c: u16) -> Driver {
    Driver::Vendor(Some(BundleVersion(a, b, c)))
}

#[track_caller]
fn check(quirk: Quirk, kernel: &str, driver: Driver, want: Presence) -> QuirkState {
    let state = quirk.on(&platform(kernel, driver), Family::Erdma);
    assert_eq!(
        state.presence, want,
        "{quirk} on {kernel} {driver:?}: {}",
        state.why
    );
    state
}

#[test]
fn scatter_boundary_by_kernel_and_bundle() {
    use Presence::{Absent, Present, Presumed};
    for (kernel, want) in [
        ("6.1.140", Present),
        ("6.1.141", Absent),
        ("6.1.192", Absent),
        ("6.1", Present),
        ("6.12.30", Present),
        ("6.12.31", Absent),
        ("6.8", Present),
        ("6.13.9", Present),
        ("6.15", Absent),
        ("7.3.4", Absent),
        ("5.10.134", Present),
        ("4.19", Absent),
        ("5.15.148", Presumed),
        ("6.6.30", Presumed),
        ("unknown", Presumed),
    ] {
        check(Quirk::ScatterBoundary, kernel, Driver::InTree, want);
        check(Quirk::ScatterBoundary, kernel, vendor(1, 5, 2), Absent);
    }
    check(Quirk::ScatterBoundary, "5.15.148", vendor(1, 5, 1), Present);
    check(Quirk::ScatterBoundary, "6.8", vendor(1, 5, 1), Present);
    check(Quirk::ScatterBoundary, "6.12.31", vendor(1, 5, 1), Absent);
}

#[test]
fn wire_length_by_kernel_and_bundle() {
    use Presence::{Absent, Present, Presumed};
    assert_eq!(
        check(Quirk::WireLength, "6.1.192", Driver::InTree, Present).only_up_to_entries,
        None
    );
    assert_eq!(
        check(Quirk::WireLength, "6.5", Driver::InTree, Present).only_up_to_entries,
        None
    );
    for kernel in ["6.6", "6.12.31", "7.3.4"] {
        let state = check(Quirk::WireLength, kernel, Driver::InTree, Present);
        assert_eq!(state.only_up_to_entries, Some(512));
    }
    let state = check(Quirk::WireLength, "5.15", vendor(1, 5, 6), Present);
    assert_eq!(
        state.cap(PageSize::M2),
        None,
        "2 MiB pages never fall into the short form"
    );
    assert_eq!(state.cap(PageSize::G1), Some(4 * GIB - 1));
    check(Quirk::WireLength, "5.15", vendor(1, 5, 7), Absent);
    let unknown = check(Quirk::WireLength, "unknown", Driver::Unknown, Presumed);
    assert_eq!(unknown.cap(PageSize::M2), Some(4 * GIB - 1));
    let mut bare = platform("6.12.117", Driver::InTree);
    bare.mtt_va = Some(false);
    assert_eq!(
        Quirk::WireLength
            .on(&bare, Family::Erdma)
            .only_up_to_entries,
        None
    );
    assert!(!Quirk::WireLength.on(&bare, Family::Efa).counts());
}

#[test]
fn without_mtt_va_every_table_is_one_block_and_every_length_short() {
    for driver in [
        Driver::InTree,
        Driver::Unknown,
        Driver::Vendor(None),
        vendor(1, 5, 6),
    ] {
        let mut bare = platform("6.8", driver);
        bare.mtt_va = Some(false);
        let length = Quirk::WireLength.on(&bare, Family::Erdma);
        assert_eq!(length.cap(PageSize::M2), Some(4 * GIB - 1), "{driver:?}");
        let table = Quirk::ContiguousTable.on(&bare, Family::Erdma);
        assert_eq!(table.presence, Presence::Present, "{driver:?}");
    }
}

#[test]
fn what_was_tried_stands_above_the_version() {
    for (kernel, worked, want) in [
        ("6.12.31", false, Presence::Present),
        ("4.18", true, Presence::Absent),
    ] {
        let mut tried = platform(kernel, Driver::InTree);
        tried.large_pages = Some(Tried {
            worked,
            source: Source::new(Kind::Measured, "measured by probe on 1970-01-01"),
        });
        let state = Quirk::NoLargePages.on(&tried, Family::Erdma);
        assert_eq!(state.presence, want);
        assert_eq!(state.why, "measured by probe on 1970-01-01");
    }
}

#[test]
fn an_installer_of_erdma_mends_nothing_for_others() {
    let own = platform("6.8", vendor(1, 5, 2));
    assert!(!Quirk::ScatterBoundary.on(&own, Family::Erdma).counts());
    assert!(Quirk::ScatterBoundary.on(&own, Family::Efa).counts());
}

#[test]
fn the_others() {
    use Presence::{Absent, Present, Presumed};
    check(Quirk::NoLargePages, "4.19", Driver::Unknown, Present);
    check(Quirk::NoLargePages, "5.2", Driver::Unknown, Absent);
    check(Quirk::ContiguousTable, "6.1.192", Driver::InTree, Present);
    check(Quirk::ContiguousTable, "6.6", Driver::InTree, Absent);
    check(Quirk::ContiguousTable, "unknown", Driver::Unknown, Presumed);
    check(Quirk::IommuPadding, "6.12", Driver::InTree, Absent);
}

#[test]
fn a_replayed_report_is_not_presumed_to_be_affected() {
    let mut silent = Platform {
        unknown: Presumption::Unaffected,
        ..Platform::default()
    };
    for quirk in Quirk::ALL {
        assert!(!quirk.on(&silent, Family::Erdma).counts(), "{quirk}");
    }
    silent.driver = vendor(1, 5, 1);
    assert!(Quirk::ScatterBoundary.on(&silent, Family::Erdma).counts());
}
