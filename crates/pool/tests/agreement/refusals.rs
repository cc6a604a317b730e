//! What is refused because it is too much fails on the device when it is forced.

use std::cell::Cell;

use hugemr::core::device::{Device, Family};
use hugemr::core::fact::{Fit, Kind, Limit, Source};
use hugemr::core::host::Host;
use hugemr::core::plan::{Code, Leave, Pages, PlanRequest, Resource, plan};
use hugemr::core::quirk::Quirk;
use hugemr::core::size::PageSize;
use hugemr_sim::{Profile, SimDevice};
use proptest::prelude::*;

use crate::common::{BASE, Lie, case, check, register};

/// The plan of a refusal is carried out by force, one protection domain after the other: it fails at the MR and with
/// the errno that the refusal foretells. On scattered memory: by luck larger pages come about, and more fits.
///
/// Red with `>=` in the comparison of a need with a limit (mutant `agree-over`), with the errno of another refusal
/// (`agree-errno-of-a-refusal`), and with the MR behind the one that fails (`agree-first-failure`).
#[test]
fn a_refusal_over_a_limit_fails_when_forced() {
    let seen = Cell::new([0; 5]);
    check(2000, (case(), 0u64..6), |(mut case, near)| {
        // In a third of the cases the budget ends at the need, or one before it.
        if near < 2 {
            case.device.entries = Device::unlimited("", case.device.family).entries;
            let entries = match plan(&case.request, &case.device, &case.host) {
                Ok(plan) => plan.entries.0,
                Err(refusal) => refusal.plan.map_or(0, |plan| plan.entries.0),
            };
            let need = entries * case.request.pds + case.device.used.entries.0;
            let source = Source::new(Kind::Given, "test");
            let most = need.saturating_sub(near);
            case.device.entries = Limit::interval(most / 2, Some(most), source);
        }
        let Err(refusal) = plan(&case.request, &case.device, &case.host) else {
            return Ok(());
        };
        let Some(forced) = refusal.plan.as_deref() else {
            return Ok(());
        };
        let device = case.sim(forced, Lie::Scattered);
        if !case.offers(forced) || case.host.platform.iommu == Some(true) {
            return Ok(());
        }
        let Some((index, errno)) = forced.first_failure else {
            prop_assert!(
                matches!(refusal.code, Code::Defect(_)),
                "{}: no failure is foretold",
                refusal.text
            );
            return Ok(());
        };
        let kind = match refusal.code {
            Code::OverBudget => 0,
            Code::OverMrCount => 1,
            Code::TooLong => 2,
            Code::OverPerMrEntries => 3,
            Code::Defect(Quirk::ContiguousTable) => 4,
            code => return Err(TestCaseError::fail(format!("{code:?}"))),
        };
        let mut counts = seen.get();
        counts[kind] += 1;
        seen.set(counts);
        // Where one limit only is exceeded, the refusal's errno is the one that the device gives.
        let over = |resource| {
            forced
                .check(resource)
                .is_some_and(|check| check.fit() == Fit::Over)
        };
        let limits = [
            Resource::MrLength,
            Resource::MrCount,
            Resource::Entries,
            Resource::EntriesPerMr,
        ];
        if forced.hit.is_empty() && limits.into_iter().filter(|limit| over(*limit)).count() == 1 {
            prop_assert_eq!(refusal.errno, Some(errno));
        }
        let mut held = Vec::new();
        for pd in 0..case.request.pds {
            match register(&device, forced, case.base) {
                Ok(registration) => held.push(registration),
                Err(error) => {
                    let failure = error.failure();
                    prop_assert_eq!(failure.errno(), Some(errno));
                    prop_assert_eq!(failure.stood() + pd * forced.mrs, index);
                    prop_assert!(failure.rollback().is_clean());
                    drop(held);
                    prop_assert_eq!(device.state().mrs, 0);
                    return Ok(());
                }
            }
        }
        Err(TestCaseError::fail(format!(
            "refused ({}), and it fits",
            refusal.text
        )))
    });
    let counts = seen.get();
    println!("of 2,000: {counts:?}");
    assert!(
        counts[..4].iter().all(|count| *count > 3),
        "too few cases: {counts:?}"
    );
}

/// What is to be left for others is no limit of the device: nothing fails there, and no failure is foretold.
///
/// Red with the room of the plan in the place of the device's (mutant `agree-failure-for-others`).
#[test]
fn what_is_left_for_others_is_no_failure() {
    check(300, (case(), 1u64..100), |(mut case, leave)| {
        let Ok(fits) = plan(&case.request, &case.device, &case.host) else {
            return Ok(());
        };
        case.request.leave = Leave::Entries(leave.saturating_mul(1000));
        if let Err(refusal) = plan(&case.request, &case.device, &case.host) {
            let forced = refusal.plan.expect("a plan");
            prop_assert_eq!(refusal.code, Code::OverBudget);
            prop_assert_eq!(forced.entries, fits.entries);
            prop_assert_eq!(forced.first_failure, None);
        }
        Ok(())
    });
}

/// A kernel pins 2^32 - 1 pages of 4 KiB for one MR, whatever the device allows.
#[test]
fn an_mr_that_linux_does_not_pin_is_refused() {
    let device = Device::unlimited("test", Family::Other);
    let mut request = PlanRequest::total(40 << 40).pages(Pages::Only(PageSize::G1));
    request.single = true;
    let host = Host::default();
    let refusal = plan(&request, &device, &host).expect_err("it is refused");
    let forced = refusal.plan.expect("a plan");
    let device = SimDevice::new(Profile::new(device, host.platform));
    let error = register(&device, &forced, BASE).expect_err("it fails");
    assert_eq!(error.failure().errno(), refusal.errno);
    assert_eq!(forced.first_failure.map(|(_, errno)| errno), refusal.errno);
}
