//! The largest size that fits is the largest.

use hugemr::core::fact::{Kind, Limit, Source};
use hugemr::core::host::{HugePool, Node};
use hugemr::core::plan::{Pages, PlanRequest, Verdict, Wish, max_fit, plan};
use hugemr::core::size::{GIB, PageSize};
use proptest::prelude::*;
use proptest::sample::select;

use crate::common::{case, check, exact};

/// Kinds of pages, and the unit of sizes on them.
fn pages() -> impl Strategy<Value = (Pages, u64)> {
    let only = [
        PageSize::K4,
        PageSize::K64,
        PageSize::M2,
        PageSize::M512,
        PageSize::G1,
    ]
    .map(|page| (Pages::Only(page), page.bytes()));
    let others = [Pages::Thp, Pages::Mixed].map(|pages| (pages, PageSize::M2.bytes()));
    select([only.as_slice(), others.as_slice()].concat())
}

/// The largest size that certainly fits does, and one unit (a page; of adopted memory, a byte) more does not; the same
/// for the size above which nothing fits, where the budget is an interval. Nothing beyond fits either.
///
/// A chunk that the request insists on can meet the defect of short lengths at one size and not at a larger one. No
/// largest size is sought there.
///
/// Red with a search that ends one unit early (mutant `agree-max-fit-end`).
#[test]
fn max_fit_is_maximal() {
    let more = (
        pages(),
        1u64..1 << 30,
        1u64..1 << 20,
        prop::bool::weighted(0.2),
        0u64..64,
    );
    check(
        400,
        (case(), more),
        |(mut case, ((pages, unit), high, beyond, memlock, giant))| {
            let adopted = match case.request.wish {
                Wish::Adopted { addr, .. } => Some(addr),
                _ => None,
            };
            if adopted.is_some() && !matches!(pages, Pages::Only(_)) {
                return Ok(());
            }
            let unit = if adopted.is_some() { 1 } else { unit };
            case.request.pages = pages;
            if case.request.chunk.is_some() {
                // A multiple of every step.
                case.request.chunk = Some(3 * GIB);
                case.request.block = case.request.block.filter(|block| block.is_power_of_two());
                case.request.ignore_quirks = true;
            }
            if case.device.entries.known().is_none() && !case.device.entries.is_unlimited() {
                let low = case.device.entries.certain();
                case.device.entries =
                    Limit::interval(low, Some(low + high), Source::new(Kind::Measured, "test"));
            }
            if memlock {
                case.host.memlock = Some(exact(high << 12));
            }
            if pages == Pages::Mixed {
                let pool = HugePool {
                    page: PageSize::G1,
                    total: giant,
                    free: giant,
                    surplus: 0,
                };
                case.host.nodes = (giant > 0).then(|| {
                    vec![Node {
                        pools: vec![pool],
                        ..Node::default()
                    }]
                });
            }
            let fit = max_fit(&case.request, pages, &case.device, &case.host);
            let verdict = |len: u64| {
                let wish = adopted.map_or(Wish::Total(len), |addr| Wish::Adopted { addr, len });
                let request = PlanRequest {
                    wish,
                    ..case.request.clone()
                };
                plan(&request, &case.device, &case.host).map_or_else(
                    |refusal| Verdict::Refused(refusal.code),
                    |plan| plan.verdict,
                )
            };
            let fits = |len| matches!(verdict(len), Verdict::Fits | Verdict::OkOverride);
            let possible = |len| verdict(len).refused().is_none();
            prop_assert!(fit.at_most.is_none_or(|most| fit.certain <= most));
            if fit.certain > 0 {
                prop_assert!(fits(fit.certain), "{:?} does not fit", fit);
            }
            if fit.certain < u64::MAX / 4 {
                prop_assert!(!fits(fit.certain + unit), "a unit more than {:?} fits", fit);
                prop_assert!(!fits(fit.certain + beyond * unit));
            }
            if let Some(most) = fit.at_most {
                prop_assert!(most == 0 || possible(most), "{:?} is refused", fit);
                prop_assert!(
                    !possible(most + unit),
                    "a unit more than {:?} is not refused",
                    fit
                );
                prop_assert!(!possible(most + beyond * unit));
            }
            Ok(())
        },
    );
}
