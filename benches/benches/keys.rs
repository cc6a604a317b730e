//! Address to key: the key table beside a BTreeMap, the crate rangemap and a sorted Vec, random hits.
#![allow(missing_docs, reason = "criterion's macros make public items")]

use std::collections::BTreeMap;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use hugemr_benches::Random;
use hugemr_core::backend::{Lkey, Rkey};
use hugemr_core::key_table::{Entry, KeyTable};
use hugemr_core::size::MIB;
use rangemap::RangeMap;

const BASE: u64 = 0x7e00_0000_0000;
const QUERIES: usize = 1 << 14;

/// Equal power-of-two MRs, equal MRs of another length, and irregular ones with gaps.
fn table(shape: &str, n: u64) -> Vec<(u64, u64)> {
    let mut random = Random(11);
    let mut at = BASE;
    (0..n)
        .map(|_| {
            let (gap, len) = match shape {
                "power of two" => (0, 64 * MIB),
                "equal" => (0, 66 * MIB),
                _ => (random.below(3) * 2 * MIB, (1 + random.below(64)) * 2 * MIB),
            };
            let start = at + gap;
            at = start + len;
            (start, len)
        })
        .collect()
}

fn lookups(c: &mut Criterion) {
    for shape in ["power of two", "equal", "irregular"] {
        let mut group = c.benchmark_group(format!("lookup, {shape}"));
        group.throughput(Throughput::Elements(QUERIES as u64));
        for n in [14, 448, 10_000] {
            let mrs = table(shape, n);
            let mut random = Random(13);
            let queries: Vec<u64> = (0..QUERIES)
                .map(|_| {
                    let (start, len) = mrs[usize::try_from(random.below(n)).expect("small")];
                    start + random.below(len - 64)
                })
                .collect();
            let key = |i: usize| u32::try_from(i).expect("small");
            let keys = KeyTable::new(mrs.iter().enumerate().map(|(i, &(addr, len))| Entry {
                addr,
                len,
                lkey: Lkey(key(i)),
                rkey: Rkey(key(i)),
            }))
            .expect("sorted and apart");
            group.bench_function(BenchmarkId::new("KeyTable", n), |b| {
                b.iter(|| {
                    queries.iter().fold(0u32, |sum, at| {
                        sum.wrapping_add(keys.lookup(black_box(*at), 64).map_or(0, |k| k.rkey.0))
                    })
                });
            });
            let tree: BTreeMap<u64, (u64, u32)> = mrs
                .iter()
                .enumerate()
                .map(|(i, &(at, len))| (at, (at + len, key(i))))
                .collect();
            group.bench_function(BenchmarkId::new("BTreeMap", n), |b| {
                b.iter(|| {
                    queries.iter().fold(0u32, |sum, at| {
                        let at = black_box(*at);
                        let found = tree.range(..=at).next_back();
                        let hit = found.filter(|(_, (end, _))| at + 64 <= *end);
                        sum.wrapping_add(hit.map_or(0, |(_, (_, key))| *key))
                    })
                });
            });
            let mut map = RangeMap::new();
            for (i, &(at, len)) in mrs.iter().enumerate() {
                map.insert(at..at + len, key(i));
            }
            group.bench_function(BenchmarkId::new("rangemap", n), |b| {
                b.iter(|| {
                    queries.iter().fold(0u32, |sum, at| {
                        let at = black_box(*at);
                        let hit = map.get_key_value(&at).filter(|(r, _)| at + 64 <= r.end);
                        sum.wrapping_add(hit.map_or(0, |(_, key)| *key))
                    })
                });
            });
            group.bench_function(BenchmarkId::new("sorted Vec", n), |b| {
                b.iter(|| {
                    queries.iter().fold(0u32, |sum, at| {
                        let at = black_box(*at);
                        let i = mrs.partition_point(|(start, _)| *start <= at);
                        let hit = i
                            .checked_sub(1)
                            .filter(|i| at + 64 <= mrs[*i].0 + mrs[*i].1);
                        sum.wrapping_add(hit.map_or(0, key))
                    })
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, lookups);
criterion_main!(benches);
