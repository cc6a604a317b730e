//! What is asked for: how it is cut, and what cannot be asked.

use crate::*;

#[test]
fn adopted_memory_is_cut_where_it_lies() {
    let mut request = PlanRequest::new(Wish::Adopted {
        addr: 5 * MIB,
        len: 10 * MIB,
    });
    request.pages = Pages::Only(PageSize::M2);
    request.chunk = Some(4 * MIB);
    let plan = fits(&request, &device(), &article());
    let cut: Vec<(u64, u64)> = plan.chunks().map(|c| (c.offset, c.len)).collect();
    assert_eq!(cut, [(0, 3 * MIB), (3 * MIB, 4 * MIB), (7 * MIB, 3 * MIB)]);
    assert_eq!((plan.mapped, plan.entries.0), (10 * MIB, 6));
    assert!(
        refused(
            &PlanRequest::new(Wish::Adopted {
                addr: u64::MAX,
                len: 2
            }),
            &device(),
            &article()
        )
        .text
        .contains("address space")
    );
}

#[test]
fn bad_requests_are_refused_in_words() {
    for (request, code) in [
        (PlanRequest::total(0), Code::Empty),
        (PlanRequest::new(Wish::Buffers(vec![])), Code::Empty),
        (PlanRequest::new(Wish::Buffers(vec![GIB, 0])), Code::Empty),
        (PlanRequest::total(u64::MAX), Code::TooBig),
        (
            PlanRequest {
                block: Some(u64::MAX),
                ..PlanRequest::total(GIB)
            },
            Code::TooBig,
        ),
        (
            PlanRequest {
                block: Some(65 * GIB),
                ..PlanRequest::total(GIB)
            },
            Code::BlockAboveLimit,
        ),
        (
            PlanRequest {
                chunk: Some(3 * MIB),
                ..PlanRequest::total(GIB)
            },
            Code::ChunkOffStep,
        ),
        (
            PlanRequest {
                chunk: Some(128 * GIB),
                ..PlanRequest::total(TIB)
            },
            Code::TooLong,
        ),
        (
            PlanRequest {
                single: true,
                ..PlanRequest::total(65 * GIB)
            },
            Code::TooLong,
        ),
        (
            PlanRequest {
                max_mr_size: Some(MIB),
                ..PlanRequest::total(GIB)
            },
            Code::LimitBelowPage,
        ),
    ] {
        let refusal = refused(&request, &device(), &article());
        assert_eq!(refusal.code, code, "{request:?}: {refusal}");
        assert!(refusal.text.len() > 20);
    }
}

/// The time does not grow with the square of the number: 10^10 looks would take a minute and more.
#[test]
fn many_buffers_are_planned_in_one_pass() {
    let buffers = vec![4096; 100_000];
    let request = PlanRequest::new(Wish::Buffers(buffers)).pages(Pages::Only(PageSize::M2));
    let start = std::time::Instant::now();
    let refusal = refused(&request, &device(), &host("6.8", vendor(1, 5, 1)));
    assert_eq!(refusal.code, Code::OverMrCount);
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

#[test]
fn a_pebibyte_is_planned_lazily() {
    let mut device = device();
    device.max_mr = Limit::unlimited(Source::new(Kind::Assumed, "test"));
    let mut request = on(1 << 50, PageSize::M2);
    request.chunk = Some(2 * MIB);
    let refusal = refused(&request, &device, &article());
    let plan = refusal.plan.unwrap();
    assert_eq!((plan.mrs, plan.segments.len()), (1 << 29, 1));
    assert_eq!(plan.segments[0].chunk(1 << 28).unwrap().offset, 1 << 49);
}

#[test]
fn the_largest_mr_is_one_that_there_is() {
    // Two MRs of [1, 4) and [4, 5) MiB: no MR has three pages.
    let mut request = adopted(MIB, 4 * MIB, PageSize::M2);
    request.chunk = Some(4 * MIB);
    let mut device = device();
    device.entries_per_mr = exact(2);
    let plan = fits(&request, &device, &article());
    assert_eq!((plan.mrs, plan.chunk, plan.entries.0), (2, 3 * MIB, 3));
}
