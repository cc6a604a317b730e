//! Device and platform as a vector states them: what is absent does not limit, and does not affect.

use std::num::NonZeroU64;

use hugemr_core::device::{Device, Family};
use hugemr_core::fact::{Kind, Limit, Source};
use hugemr_core::host::{Driver, Platform, Presumption};
use hugemr_core::size::PageSize;
use hugemr_core::version::KernelVersion;
use serde::Deserialize;

/// Most MRs and buffers of one vector: each is worked out for itself.
pub(super) const MOST_BUFFERS: usize = 16_384;

/// A number as the vector gives it.
pub(super) fn given(value: u64) -> Limit {
    Limit::exact(value, Source::new(Kind::Given, "the vector"))
}

/// Limits of a device.
#[derive(Clone, Copy, Default)]
pub(super) struct Limits {
    pub(super) max_mr_size: Option<u64>,
    pub(super) max_mr: Option<u64>,
    pub(super) entry_budget: Option<u64>,
    pub(super) per_mr_entries: Option<u64>,
    pub(super) used: Option<u64>,
}

/// A device with these limits and no others. The family chooses its errno dialect only.
pub(super) fn device(family: Option<Family>, limits: Limits) -> Device {
    let family = family.unwrap_or(Family::Other);
    let mut device = Device::unlimited(family.name(), family);
    let set = |limit: &mut Limit, value: Option<u64>| {
        if let Some(value) = value {
            *limit = given(value);
        }
    };
    set(&mut device.max_mr_size, limits.max_mr_size);
    set(&mut device.max_mr, limits.max_mr);
    set(&mut device.entries, limits.entry_budget);
    set(&mut device.entries_per_mr, limits.per_mr_entries);
    if let Some(used) = limits.used {
        device.used.entries = (used, Some(used));
    }
    device
}

/// Kernel and driver; what is not stated does not affect.
pub(super) fn platform(
    kernel: Option<KernelVersion>,
    driver: Option<Driver>,
    sg_fix: Option<bool>,
    (mtt_va, iommu): (Option<bool>, Option<bool>),
) -> Platform {
    Platform {
        kernel,
        driver: driver.unwrap_or_default(),
        sg_fix,
        mtt_va,
        iommu,
        large_pages: None,
        unknown: Presumption::Unaffected,
    }
}

/// Without a `page`: the base page.
pub(super) fn page(page: Option<PageSize>) -> PageSize {
    page.unwrap_or(PageSize::K4)
}

/// A number or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "a whole number that is not 0, or a list of such, belongs here"
)]
pub(super) enum OneOrMore {
    One(NonZeroU64),
    More(Vec<NonZeroU64>),
}

/// A name for each value that is there.
pub(super) fn stated<'a>(list: &[(&'a str, bool)]) -> Vec<&'a str> {
    list.iter()
        .filter(|(_, there)| *there)
        .map(|(name, _)| *name)
        .collect()
}

/// Complains where more than one of several keys is there, which say the same thing.
pub(super) fn at_most_one(list: &[(&str, bool)]) -> Result<(), String> {
    match stated(list).as_slice() {
        [] | [_] => Ok(()),
        several => Err(format!("only one of {} is possible", several.join(", "))),
    }
}
