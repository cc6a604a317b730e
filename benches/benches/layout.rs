//! Closed form against the walk that the simulated kernel makes, over the same physical runs.
#![allow(missing_docs, reason = "criterion's macros make public items")]

use std::hint::black_box;
use std::num::NonZeroU64;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use hugemr_benches::{Random, host};
use hugemr_core::backend::{Access, MrRequest, RegBackend};
use hugemr_core::device::Family;
use hugemr_core::layout::{Layout, PhysRun, Rules, predict};
use hugemr_core::size::{GIB, PageSize, PageSizes};
use hugemr_sim::{Overrides, SimMemory};

const BASE: u64 = 0x7e00_0000_0000;

/// Huge pages in random order, each a run of its own or two together.
fn runs(len: u64) -> Vec<PhysRun> {
    let mut random = Random(7);
    let page = PageSize::M2.bytes();
    let mut left = len / page;
    let mut list = Vec::new();
    while left > 0 {
        let pages = (1 + random.below(2)).min(left);
        list.push(PhysRun {
            phys: random.below(1 << 28) * 4 * page,
            len: pages * page,
        });
        left -= pages;
    }
    list
}

fn closed_form_and_walk(c: &mut Criterion) {
    let mut group = c.benchmark_group("layout");
    let rules = Rules::of(&host().platform, Family::Erdma);
    for len in [GIB, 64 * GIB] {
        let runs = runs(len);
        let layout = Layout::new(BASE, runs.iter().copied());
        let name = format!("{} runs", layout.run_count());
        group.bench_function(BenchmarkId::new("closed form", &name), |b| {
            b.iter(|| {
                predict(
                    black_box(&layout),
                    BASE,
                    len,
                    BASE,
                    PageSizes::ERDMA,
                    &rules,
                )
            });
        });
        let device = hugemr_sim::open("sim:ecs.r8a.32xlarge", &Overrides::default())
            .expect("the profile is built in");
        device
            .back(BASE, len, SimMemory::Runs(runs))
            .expect("the runs cover the range");
        let request = MrRequest {
            addr: BASE,
            len: NonZeroU64::new(len).expect("not 0"),
            iova: BASE,
            access: Access::REMOTE_RW,
        };
        group.bench_function(BenchmarkId::new("simulated registration", &name), |b| {
            b.iter(|| {
                // SAFETY: a simulated device needs no memory.
                let mr = unsafe { device.reg_mr(black_box(&request)) }.expect("there is room");
                device.dereg_mr(mr.handle).expect("it is registered");
            });
        });
    }
    group.finish();
}

criterion_group!(benches, closed_form_and_walk);
criterion_main!(benches);
