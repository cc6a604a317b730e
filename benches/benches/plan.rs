//! Planning: from 1 GiB to 1 PiB, and a refusal with its largest fit and its ways out.
#![allow(missing_docs, reason = "criterion's macros make public items")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use hugemr_benches::{device, host};
use hugemr_core::plan::{Pages, PlanRequest, plan};
use hugemr_core::size::{GIB, MIB, PageSize, TIB};

fn planning(c: &mut Criterion) {
    let (device, host) = (device(), host());
    let mut group = c.benchmark_group("plan");
    for (name, bytes) in [("1GiB", GIB), ("896GiB", 896 * GIB), ("1PiB", 1024 * TIB)] {
        let mut request = PlanRequest::total(bytes).pages(Pages::Only(PageSize::M2));
        group.bench_function(name, |b| {
            b.iter(|| plan(black_box(&request), &device, &host))
        });
        request.chunk = Some(2 * MIB);
        group.bench_function(format!("{name} in chunks of 2MiB"), |b| {
            b.iter(|| plan(black_box(&request), &device, &host));
        });
    }
    let mut small = device.clone();
    small.entries = hugemr_core::fact::Limit::exact(
        33_554_431,
        hugemr_core::fact::Source::new(hugemr_core::fact::Kind::Assumed, "benchmark"),
    );
    let request = PlanRequest::total(896 * GIB).pages(Pages::Only(PageSize::K4));
    group.bench_function("refusal of 896GiB at 4KiB", |b| {
        b.iter(|| plan(black_box(&request), &small, &host));
    });
    group.finish();
}

criterion_group!(benches, planning);
criterion_main!(benches);
