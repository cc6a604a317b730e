//! Which versions have which defect.

use super::{ONE_LEVEL_ENTRIES, Presence};
use crate::device::Family;
use crate::host::{Driver, Platform, Presumption, Tried};
use crate::version::{BundleVersion, KernelVersion};

type State = (Presence, String, &'static str, Option<u64>);

pub(super) fn absent(why: &str) -> State {
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

pub(super) fn scatter(platform: &Platform, family: Family) -> State {
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

pub(super) fn wire_length(platform: &Platform) -> State {
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

pub(super) fn no_large_pages(platform: &Platform) -> State {
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

pub(super) fn contiguous_table(platform: &Platform) -> State {
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

pub(super) fn iommu_padding(platform: &Platform) -> State {
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
