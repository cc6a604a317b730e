//! Chunks tile what is planned.

use hugemr::core::plan::{Plan, Wish, plan};
use proptest::prelude::*;

use crate::common::{Case, case, check};

/// In order, without gap or overlap, on borders of the step, none longer than the limit, all equal but first and last.
fn tiles(case: &Case, plan: &Plan) -> Result<(), TestCaseError> {
    let request = &case.request;
    let wanted = request.wanted();
    let adopted = match request.wish {
        Wish::Adopted { addr, len } => {
            prop_assert_eq!(plan.mapped, len);
            Some(addr)
        }
        _ => {
            prop_assert!(plan.mapped >= wanted);
            None
        }
    };
    let (mut at, mut index) = (0u64, 0u64);
    for (number, segment) in plan.segments.iter().enumerate() {
        let page = segment.page.bytes();
        // The step again, from its definition.
        let block = request.block.unwrap_or(1);
        let step = (1..)
            .map(|k| k * page)
            .find(|step| step % block == 0)
            .unwrap_or(0);
        if number == 0 {
            prop_assert_eq!(plan.step, step);
        }
        if adopted.is_none() {
            prop_assert_eq!(segment.len % page, 0);
        }
        if let Wish::Buffers(lens) = &request.wish {
            prop_assert_eq!(segment.len, lens[number].next_multiple_of(page));
        }
        prop_assert_eq!(segment.offset, at);
        let count = segment.count();
        let origin = adopted.unwrap_or(0);
        let mut full = 0;
        for (i, chunk) in (0u64..).zip(segment.chunks()) {
            prop_assert_eq!(
                (chunk.offset, chunk.index, chunk.page),
                (at, index, segment.page)
            );
            prop_assert!(chunk.len > 0);
            if i > 0 {
                let border = origin + (at - segment.offset);
                prop_assert_eq!(
                    border % step,
                    0,
                    "border {} off the step of {}",
                    border,
                    step
                );
            }
            if i > 0 && i + 1 < count {
                prop_assert!(full == 0 || chunk.len == full);
                full = chunk.len;
            }
            at += chunk.len;
            index += 1;
        }
        if full > 0 {
            let ends = [segment.chunk(0), segment.chunk(count - 1)];
            prop_assert!(ends.iter().flatten().all(|end| end.len <= full));
        }
        prop_assert_eq!(at, segment.offset + segment.len);
        if request.single {
            prop_assert_eq!(count, 1);
        }
    }
    prop_assert_eq!((at, index), (plan.mapped, plan.mrs));
    if plan.verdict.refused().is_none() {
        let limit = request
            .max_mr_size
            .map(Some)
            .unwrap_or(case.device.max_mr_size.at_most());
        prop_assert!(
            plan.chunks()
                .all(|chunk| limit.is_none_or(|most| chunk.len <= most))
        );
        let mrs = plan.mrs * request.pds + case.device.used.mrs.0;
        let count = case.device.max_mr.at_most();
        prop_assert!(count.is_none_or(|most| mrs <= most));
    }
    Ok(())
}

/// Red with borders on the page instead of the step (mutant `agree-border-off-step`).
#[test]
fn chunks_tile_on_the_borders_of_the_step() {
    check(1500, case(), |case| {
        match plan(&case.request, &case.device, &case.host) {
            Ok(plan) => tiles(&case, &plan),
            Err(refusal) => refusal
                .plan
                .as_deref()
                .map_or(Ok(()), |plan| tiles(&case, plan)),
        }
    });
}
