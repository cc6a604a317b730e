//! How many registrations a second the simulator takes, alone and from several threads: it must not be what a benchmark of
//! something else measures.
#![allow(missing_docs, reason = "criterion's macros make public items")]

use std::hint::black_box;
use std::num::NonZeroU64;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use hugemr_core::backend::{Access, MrRequest, RegBackend};
use hugemr_core::size::{GIB, MIB, PageSize};
use hugemr_sim::{Overrides, SimMemory};

const BASE: u64 = 0x7e00_0000_0000;
const MRS: u64 = 64;

fn registrations(c: &mut Criterion) {
    let mut group = c.benchmark_group("simulator, MRs registered and released");
    group.throughput(Throughput::Elements(MRS));
    for (name, len, page) in [
        ("1 MiB on 4 KiB pages", MIB, PageSize::K4),
        ("2 GiB on 2 MiB pages", 2 * GIB, PageSize::M2),
    ] {
        let device =
            hugemr_sim::open("sim:verbs", &Overrides::default()).expect("the profile is built in");
        let memory = SimMemory::Scattered { page, seed: 0 };
        device.back(BASE, MRS * len, memory).expect("whole pages");
        for threads in [1, 2] {
            group.bench_function(BenchmarkId::new(name, format!("{threads} threads")), |b| {
                b.iter(|| {
                    std::thread::scope(|scope| {
                        for thread in 0..threads {
                            let device = &device;
                            scope.spawn(move || {
                                for mr in
                                    (thread..MRS).step_by(usize::try_from(threads).expect("small"))
                                {
                                    let addr = BASE + mr * len;
                                    let request = MrRequest {
                                        addr,
                                        len: NonZeroU64::new(len).expect("not 0"),
                                        iova: addr,
                                        access: Access::REMOTE_RW,
                                    };
                                    // SAFETY: a simulated device needs no memory.
                                    let mr = unsafe { device.reg_mr(black_box(&request)) }
                                        .expect("there is room");
                                    device.dereg_mr(mr.handle).expect("it is registered");
                                }
                            });
                        }
                    });
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, registrations);
criterion_main!(benches);
