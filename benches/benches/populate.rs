//! Making pages real: ours on one thread and on all, beside touching them one after the other.
//!
//! 4 KiB pages, which every machine has. Huge pages are not compared here: a pool must be reserved for them.
#![allow(missing_docs, reason = "criterion's macros make public items")]

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use hugemr_core::backend::Backing as _;
use hugemr_core::size::MIB;
use hugemr_host::mapping::{Kind, MapRequest, Mapping};
use hugemr_host::populate::{Populate, usable_cpus};
use hugemr_host::root::Root;

const LEN: u64 = 128 * MIB;

fn fresh() -> Mapping {
    MapRequest::new(Kind::Base, LEN)
        .map(&Root::real())
        .expect("128 MiB of memory")
}

fn populate(c: &mut Criterion) {
    let mut group = c.benchmark_group("populate 4 KiB pages");
    group.throughput(Throughput::Bytes(LEN)).sample_size(10);
    // Memory that the machine has not used lately is slow the first time: use it once, uncounted.
    drop(
        Populate::new()
            .threads(usable_cpus(&Root::real()))
            .all(&fresh()),
    );
    group.bench_function("serial touch", |b| {
        b.iter_batched(
            fresh,
            |memory| {
                for at in (0..LEN).step_by(4096) {
                    let at = usize::try_from(at).expect("64-bit");
                    let byte = memory.as_ptr().wrapping_add(at);
                    // SAFETY: inside the mapping, which is writable and shared with nobody.
                    unsafe { byte.write_volatile(0) };
                }
                memory
            },
            BatchSize::PerIteration,
        );
    });
    for threads in [1, usable_cpus(&Root::real())] {
        group.bench_function(format!("Populate, {threads} threads"), |b| {
            b.iter_batched(
                fresh,
                |memory| {
                    Populate::new()
                        .threads(threads)
                        .all(&memory)
                        .expect("128 MiB of memory");
                    assert_eq!(memory.len(), LEN);
                    memory
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, populate);
criterion_main!(benches);
