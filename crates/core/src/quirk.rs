//! Known defects of kernels and drivers: which versions, what they do to an MR, and the cap that avoids them.
//!
//! Each defect is keyed by the kind of driver: the in-tree one is as old as the kernel, the vendor's is counted in
//! bundle versions. On a host an unknown version counts as affected ([`Presumption`]), and the state says which fact
//! would lift it.

use std::fmt;

use crate::device::Family;
use crate::host::{Driver, Platform, Presumption, Tried};
use crate::size::{GIB, PageSize};
use crate::version::{BundleVersion, KernelVersion};

/// Longest segment that a driver with `max_segment_size` `UINT_MAX` gets, bytes: 4 GiB less one page.
/// Linux `lib/scatterlist.c` aligns the maximum down to a page; erdma sets `UINT_MAX` (`erdma_main.c`, 6.1 to 7.3).
pub const SEGMENT_CAP: u64 = 4 * GIB - 4096;

/// Entries that fit a contiguous table of 4 MiB, the largest block of the page allocator: `erdma_verbs.c`, 6.1.
pub const CONTIGUOUS_ENTRIES: u64 = 524_288;

/// Up to this many entries the driver uses a one-level table, and the short form of the command (erdma, 6.6 to 7.3).
pub const ONE_LEVEL_ENTRIES: u64 = 512;

/// A known defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Quirk {
    /// `ib_umem_find_best_pgsz` falls back to 4 KiB where 4 GiB or more are physically contiguous.
    ScatterBoundary,
    /// The driver sends only the low 32 bits of the length of an MR of 4 GiB or more.
    WireLength,
    /// The kernel has no choice of page size: always 4 KiB.
    NoLargePages,
    /// The driver's table must be one contiguous block: 524,288 entries for one MR.
    ContiguousTable,
    /// The advertised `max_mr_size` is really a number of entries times 4 KiB: larger pages allow longer MRs.
    DisguisedSize,
    /// With an IOMMU, a contiguous run of 4 GiB and more needs padding that overflows 32 bits.
    IommuPadding,
}

/// Whether a defect is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The versions are known and affected.
    Present,
    /// A version is not known, and so it counts as affected.
    Presumed,
    /// Not affected.
    Absent,
}

/// A defect on one platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuirkState {
    /// Which.
    pub quirk: Quirk,
    /// Whether it is there.
    pub presence: Presence,
    /// The versions that decide it, for a person.
    pub why: String,
    /// The flag or fact that would lift it; empty where it is absent.
    pub lifted_by: &'static str,
    /// Whether it is there only where an MR has at most this many entries.
    pub only_up_to_entries: Option<u64>,
}

impl Quirk {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::ScatterBoundary,
        Self::WireLength,
        Self::NoLargePages,
        Self::ContiguousTable,
        Self::DisguisedSize,
        Self::IommuPadding,
    ];

    /// A few words for a table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ScatterBoundary => "scatter at 4 GiB",
            Self::WireLength => "32-bit length",
            Self::NoLargePages => "no large pages",
            Self::ContiguousTable => "contiguous table",
            Self::DisguisedSize => "size is a count",
            Self::IommuPadding => "IOMMU padding",
        }
    }

    /// The code of a refusal that this defect causes.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::ScatterBoundary => "kernel_bug_scatter",
            Self::WireLength => "driver_bug_length",
            Self::NoLargePages => "no_large_pages",
            Self::ContiguousTable => "contiguous_table",
            Self::DisguisedSize => "disguised_size",
            Self::IommuPadding => "iommu_padding",
        }
    }

    /// What it does, in one sentence.
    #[must_use]
    pub const fn effect(self) -> &'static str {
        match self {
            Self::ScatterBoundary => {
                "an MR with 4 GiB or more in one physical run gets 4 KiB pages: 262,144 entries a GiB"
            }
            Self::WireLength => {
                "an MR of 4 GiB or more reaches the device with its length modulo 4 GiB, and the call succeeds"
            }
            Self::NoLargePages => "every MR gets 4 KiB pages, whatever backs it",
            Self::ContiguousTable => "an MR of more than 524,288 entries fails with ENOMEM",
            Self::DisguisedSize => {
                "with pages above 4 KiB longer MRs than max_mr_size work (--max-mr-size)"
            }
            Self::IommuPadding => {
                "an MR with 4 GiB or more in one physical run fails with EOVERFLOW, or is mapped short"
            }
        }
    }

    /// Public source of the knowledge.
    #[must_use]
    pub const fn source(self) -> &'static str {
        match self {
            Self::ScatterBoundary => {
                "Linux 486055f5e09d (6.15, 6.12.31, 6.1.141); erdma_installer 1.5.2"
            }
            Self::WireLength => {
                "Linux erdma_verbs.c 6.1 to 7.3; erdma_installer 1.5.7 release note"
            }
            Self::NoLargePages => "Linux 5.2 introduced ib_umem_find_best_pgsz",
            Self::ContiguousTable => "Linux erdma_verbs.c 6.1; later without capability MTT_VA",
            Self::DisguisedSize => "kvcache-ai/Mooncake#4168, ofiwg/libfabric#10402",
            Self::IommuPadding => "Linux drivers/iommu/dma-iommu.c 6.1, 6.12, 7.3",
        }
    }

    /// State of the defect on a platform, for a family of devices.
    #[must_use]
    pub fn on(self, platform: &Platform, family: Family) -> QuirkState {
        let (presence, why, lifted_by, only_up_to_entries) = match self {
            Self::ScatterBoundary => scatter(platform, family),
            Self::WireLength if family == Family::Erdma => wire_length(platform),
            Self::ContiguousTable if family == Family::Erdma => contiguous_table(platform),
            Self::WireLength | Self::ContiguousTable => absent("not this family"),
            Self::NoLargePages => no_large_pages(platform),
            Self::DisguisedSize => match family {
                Family::Efa | Family::Ionic => (
                    Presence::Present,
                    family.name().to_owned(),
                    "--max-mr-size",
                    None,
                ),
                _ => absent("not this family"),
            },
            Self::IommuPadding => iommu_padding(platform),
        };
        QuirkState {
            quirk: self,
            presence,
            why,
            lifted_by,
            only_up_to_entries,
        }
    }
}

impl QuirkState {
    /// Whether the defect must be reckoned with.
    #[must_use]
    pub const fn counts(&self) -> bool {
        !matches!(self.presence, Presence::Absent)
    }

    /// Whether an MR of `len` bytes with `entries` entries, on pages of `page`, can meet the defect.
    #[must_use]
    pub fn can_hit(&self, len: u64, page: PageSize, entries: u64) -> bool {
        self.counts()
            && match self.quirk {
                Quirk::ScatterBoundary => len > SEGMENT_CAP && page > PageSize::K4,
                Quirk::IommuPadding => len > SEGMENT_CAP,
                Quirk::WireLength => {
                    len >= 4 * GIB && self.only_up_to_entries.is_none_or(|most| entries <= most)
                }
                Quirk::NoLargePages => page > PageSize::K4,
                Quirk::ContiguousTable => entries > CONTIGUOUS_ENTRIES,
                Quirk::DisguisedSize => false,
            }
    }

    /// The longest MR on pages of `page` (as the device sees them) that can never meet the defect, bytes.
    /// `None`: no cap needed, or none helps.
    #[must_use]
    pub fn cap(&self, page: PageSize) -> Option<u64> {
        if !self.counts() {
            return None;
        }
        match self.quirk {
            Quirk::ScatterBoundary => (page > PageSize::K4).then_some(SEGMENT_CAP),
            Quirk::IommuPadding => Some(SEGMENT_CAP),
            // A chunk of exactly 4 GiB has 4 GiB / page entries: with pages of 8 MiB and more a chunk, if only
            // the last one, can fall into the short form.
            Quirk::WireLength => {
                let reachable = self
                    .only_up_to_entries
                    .is_none_or(|most| 4 * GIB / page.bytes().min(4 * GIB) <= most);
                reachable.then_some(4 * GIB - 1)
            }
            Quirk::ContiguousTable => page.bytes().checked_mul(CONTIGUOUS_ENTRIES),
            Quirk::NoLargePages | Quirk::DisguisedSize => None,
        }
    }
}

impl fmt::Display for Quirk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// All defects of a platform, present or not.
#[must_use]
pub fn states(platform: &Platform, family: Family) -> Vec<QuirkState> {
    Quirk::ALL
        .iter()
        .map(|quirk| quirk.on(platform, family))
        .collect()
}

type State = (Presence, String, &'static str, Option<u64>);

fn absent(why: &str) -> State {
    (Presence::Absent, why.to_owned(), "", None)
}

fn presumed(platform: &Platform) -> Presence {
    match platform.unknown {
        Presumption::Affected => Presence::Presumed,
        Presumption::Unaffected => Presence::Absent,
    }
}

/// First vendor bundle with the workaround for the scatter boundary.
const SCATTER_BUNDLE: BundleVersion = BundleVersion(1, 5, 2);
/// First vendor bundle that sends the right length.
const LENGTH_BUNDLE: BundleVersion = BundleVersion(1, 5, 7);

/// Whether the kernel has the fix of the page-size helper; `None` where that is not established.
#[must_use]
pub fn kernel_has_scatter_fix(kernel: KernelVersion) -> Option<bool> {
    match kernel.series() {
        series if series >= (6, 15) => Some(true),
        (6, 12) => Some(kernel.at_least_patch(31)),
        (6, 1) => Some(kernel.at_least_patch(141)),
        // The same round of stable releases took the fix; which release of these series is not established.
        (6, 14) | (6, 6) | (5, 15) => None,
        _ => Some(false),
    }
}

fn scatter(platform: &Platform, family: Family) -> State {
    const LIFT: &str = "--driver 1.5.2 or later, or a kernel with the fix (6.15, 6.12.31, 6.1.141)";
    if platform.kernel.is_some_and(|k| k.series() < (5, 2)) {
        return absent("kernel before 5.2 has no page-size helper");
    }
    // The vendor's driver is one for erdma: for another family there is nothing but the kernel.
    let installer = match platform.driver {
        Driver::Vendor(bundle) if family == Family::Erdma => Some(bundle),
        _ => None,
    };
    match installer {
        Some(Some(bundle)) if bundle >= SCATTER_BUNDLE => {
            return absent(&format!("avoided by installer {bundle} >= 1.5.2"));
        }
        Some(None) if platform.unknown == Presumption::Unaffected => {
            return absent("installer version not stated");
        }
        _ => {}
    }
    let kernel = kernel_name(platform);
    match platform
        .sg_fix
        .or_else(|| platform.kernel.and_then(kernel_has_scatter_fix))
    {
        Some(true) => absent(&format!("{kernel} has the fix")),
        Some(false) => (
            Presence::Present,
            format!("{kernel} has no fix"),
            LIFT,
            None,
        ),
        None => match installer {
            Some(Some(bundle)) => {
                let why = format!("installer {bundle} < 1.5.2, {kernel} not known to be fixed");
                (Presence::Present, why, LIFT, None)
            }
            _ => (
                presumed(platform),
                format!("{kernel} not known to be fixed"),
                LIFT,
                None,
            ),
        },
    }
}

fn wire_length(platform: &Platform) -> State {
    const LIFT: &str = "--driver 1.5.7 or later";
    const LIFT_IN_TREE: &str = "pages of 2 MiB on kernel 6.6 or later, or --driver 1.5.7 or later";
    let kernel = kernel_name(platform);
    let early = platform.kernel.map(|k| k.series() < (6, 6));
    // Without MTT_VA every table has one level.
    let one_level = platform.mtt_va == Some(false);
    let short_form = (!one_level).then_some(ONE_LEVEL_ENTRIES);
    match platform.driver {
        Driver::Vendor(Some(bundle)) if bundle >= LENGTH_BUNDLE => {
            absent(&format!("installer {bundle} >= 1.5.7"))
        }
        Driver::Vendor(Some(bundle)) => (
            Presence::Present,
            format!("installer {bundle} < 1.5.7"),
            LIFT,
            short_form,
        ),
        Driver::Vendor(None) => (
            presumed(platform),
            "installer version unknown".to_owned(),
            LIFT,
            short_form,
        ),
        Driver::InTree => match (early, one_level) {
            (Some(true), false) => (
                Presence::Present,
                format!("in-tree driver of {kernel}"),
                LIFT_IN_TREE,
                None,
            ),
            (_, true) => {
                let why = "in-tree driver, device without MTT_VA".to_owned();
                (Presence::Present, why, LIFT_IN_TREE, None)
            }
            (Some(false), false) => (
                Presence::Present,
                format!("in-tree driver of {kernel}"),
                LIFT,
                short_form,
            ),
            (None, false) => (
                presumed(platform),
                "in-tree driver of an unknown kernel".to_owned(),
                LIFT_IN_TREE,
                None,
            ),
        },
        Driver::Unknown => match early {
            Some(false) => (
                presumed(platform),
                "driver unknown".to_owned(),
                LIFT,
                short_form,
            ),
            _ => (
                presumed(platform),
                format!("driver unknown, {kernel}"),
                LIFT_IN_TREE,
                None,
            ),
        },
    }
}

fn no_large_pages(platform: &Platform) -> State {
    const LIFT: &str = "--kernel 5.2 or later";
    const LIFT_MEASURED: &str = "a kernel and a driver that use large pages; then hugemr probe";
    // What was tried under the same software stands above the number of its version: distributions bring newer code
    // into old kernels, and a driver can leave unused what the kernel has.
    if let Some(Tried { worked, source }) = &platform.large_pages {
        return if *worked {
            absent(&source.text)
        } else {
            let why = source.text.clone().into_owned();
            (Presence::Present, why, LIFT_MEASURED, None)
        };
    }
    match platform.kernel {
        Some(kernel) if kernel.series() < (5, 2) => (
            Presence::Present,
            format!("kernel {kernel} < 5.2"),
            LIFT,
            None,
        ),
        Some(kernel) => absent(&format!("kernel {kernel} >= 5.2")),
        // An unknown kernel is not presumed to be older than 2019: nothing would be left of any plan, and the
        // layout check after registration proves what happened.
        None => absent("kernel unknown; before 5.2 is not presumed"),
    }
}

fn contiguous_table(platform: &Platform) -> State {
    const LIFT: &str = "kernel 6.6 or later, or the vendor's driver";
    let early = platform.kernel.map(|k| k.series() < (6, 6));
    match (platform.driver, early, platform.mtt_va) {
        (_, _, Some(false)) => (
            Presence::Present,
            "device without MTT_VA".to_owned(),
            "",
            None,
        ),
        (Driver::Vendor(_), ..) => absent("vendor's driver scatters its tables"),
        (Driver::InTree, Some(true), _) => (
            Presence::Present,
            format!("in-tree driver of {}", kernel_name(platform)),
            LIFT,
            None,
        ),
        (_, Some(false), _) => absent("in-tree driver of 6.6 or later scatters its tables"),
        (_, _, _) => (
            presumed(platform),
            "driver or kernel unknown".to_owned(),
            LIFT,
            None,
        ),
    }
}

fn iommu_padding(platform: &Platform) -> State {
    const LIFT: &str = "no IOMMU translation (iommu=pt, or none in the guest)";
    match platform.iommu {
        Some(true) => (
            Presence::Present,
            "the device's DMA is translated".to_owned(),
            LIFT,
            None,
        ),
        Some(false) => absent("no IOMMU translation"),
        None => (
            presumed(platform),
            "IOMMU mode unknown".to_owned(),
            LIFT,
            None,
        ),
    }
}

fn kernel_name(platform: &Platform) -> String {
    platform
        .kernel
        .map_or_else(|| "kernel unknown".to_owned(), |k| format!("kernel {k}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::{Kind, Source};

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
}
