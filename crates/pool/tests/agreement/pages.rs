//! Larger pages never need more entries.

use hugemr::core::plan::{Pages, Plan, PlanRequest, Wish, plan};
use hugemr::core::size::PageSize;
use proptest::prelude::*;

use crate::common::{case, check};

/// For the same memory: that of adopted memory always; memory of ours is rounded up to whole pages, and so for sizes
/// that are multiples of the larger page, or where the device offers that page and the kernel can use it.
///
/// Not with an IOMMU and a start within a page: the pages of the first MR are then as small as that start says, and
/// larger pages make longer MRs.
///
/// Red with base pages in the place of the best ones (mutant `agree-page-seen`).
#[test]
fn larger_pages_never_need_more_entries() {
    let two = (12u32..=30, 12u32..=30);
    check(
        700,
        (case(), two, any::<bool>()),
        |(case, (a, b), whole)| {
            let (small, large) = [a.min(b), a.max(b)]
                .map(|shift| PageSize::from_shift(shift).expect("a page"))
                .into();
            let planned = |pages: PageSize| -> Option<Plan> {
                let mut request =
                    PlanRequest::new(case.request.wish.clone()).pages(Pages::Only(pages));
                if whole {
                    let round = |len: u64| len.next_multiple_of(large.bytes());
                    request.wish = match request.wish {
                        Wish::Total(len) => Wish::Total(round(len)),
                        Wish::Buffers(lens) => Wish::Buffers(lens.into_iter().map(round).collect()),
                        adopted => adopted,
                    };
                }
                match plan(&request, &case.device, &case.host) {
                    Ok(plan) => Some(plan),
                    Err(refusal) => refusal.plan.map(|plan| *plan),
                }
            };
            let (Some(fine), Some(coarse)) = (planned(small), planned(large)) else {
                return Ok(());
            };
            let translated = case.host.platform.iommu == Some(true);
            let adopted = matches!(case.request.wish, Wish::Adopted { .. });
            if adopted && translated {
                return Ok(());
            }
            let old = case
                .host
                .platform
                .kernel
                .is_some_and(|kernel| kernel.series() < (5, 2));
            let usable = case.device.page_size_cap.contains(large) && !old;
            if adopted || whole || usable {
                prop_assert!(
                    coarse.entries.0 <= fine.entries.0,
                    "{:?} > {:?}",
                    coarse.entries,
                    fine.entries
                );
            }
            Ok(())
        },
    );
}
