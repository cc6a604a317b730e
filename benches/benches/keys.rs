//! Address to key: the key table beside a BTreeMap, the crate rangemap and a sorted Vec, random hits; and a range to its parts.
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

/// Ranges that cross several MRs, part by part, beside the same by a BTreeMap and a sorted Vec.
fn splits(c: &mut Criterion) {
    const N: u64 = 448;
    for shape in ["power of two", "equal", "irregular, touching"] {
        let mut random = Random(17);
        let mut at = BASE;
        let mrs: Vec<(u64, u64)> = (0..N)
            .map(|_| {
                let len = match shape {
                    "power of two" => 64 * MIB,
                    "equal" => 66 * MIB,
                    _ => (1 + random.below(64)) * 2 * MIB,
                };
                let start = at;
                at += len;
                (start, len)
            })
            .collect();
        let span = at - BASE;
        let mut random = Random(19);
        let queries: Vec<(u64, u64)> = (0..QUERIES)
            .map(|_| {
                let start = random.below(span - 1);
                let len = (1 + random.below(512 * MIB)).min(span - start);
                (BASE + start, len)
            })
            .collect();
        let number = |i: usize| u32::try_from(i).expect("small");
        let keys = KeyTable::new(mrs.iter().enumerate().map(|(i, &(addr, len))| Entry {
            addr,
            len,
            lkey: Lkey(number(i)),
            rkey: Rkey(number(i)),
        }))
        .expect("sorted and apart");
        let tree: BTreeMap<u64, (u64, u32)> = mrs
            .iter()
            .enumerate()
            .map(|(i, &(at, len))| (at, (at + len, number(i))))
            .collect();
        let mut group = c.benchmark_group(format!("split of up to 512 MiB, {shape}"));
        group.throughput(Throughput::Elements(QUERIES as u64));
        group.bench_function("KeyTable", |b| {
            b.iter(|| {
                queries.iter().fold(0u64, |sum, &(at, len)| {
                    let parts = keys.split(black_box(at), len).expect("no gap");
                    parts.fold(sum, |sum, part| sum ^ part.len ^ u64::from(part.rkey.0))
                })
            });
        });
        group.bench_function("BTreeMap", |b| {
            b.iter(|| {
                queries.iter().fold(0u64, |sum, &(at, len)| {
                    let (at, end) = (black_box(at), at + len);
                    let (first, _) = tree.range(..=at).next_back().expect("no gap");
                    tree.range(first..&end)
                        .fold(sum, |sum, (start, (stop, key))| {
                            let part = (*stop).min(end) - (*start).max(at);
                            sum ^ part ^ u64::from(*key)
                        })
                })
            });
        });
        group.bench_function("sorted Vec", |b| {
            b.iter(|| {
                queries.iter().fold(0u64, |sum, &(at, len)| {
                    let (at, end) = (black_box(at), at + len);
                    let first = mrs.partition_point(|(start, len)| start + len <= at);
                    let held = mrs[first..].iter().take_while(|(start, _)| *start < end);
                    held.zip(first..).fold(sum, |sum, ((start, len), i)| {
                        let part = (start + len).min(end) - (*start).max(at);
                        sum ^ part ^ u64::from(number(i))
                    })
                })
            });
        });
        group.finish();
    }
}

criterion_group!(benches, lookups, splits);
criterion_main!(benches);
