use super::*;
use proptest::prelude::*;

fn entry(addr: u64, len: u64, number: u32) -> Entry {
    Entry {
        addr,
        len,
        lkey: Lkey(number * 2),
        rkey: Rkey(number * 2 + 1),
    }
}

fn entries(ranges: &[(u64, u64)]) -> Vec<Entry> {
    let numbered = (0..).zip(ranges);
    numbered.map(|(n, (a, l))| entry(*a, *l, n)).collect()
}

fn table(ranges: &[(u64, u64)]) -> KeyTable {
    KeyTable::new(entries(ranges)).unwrap()
}

fn missing(start: u64, end: u128) -> LookupError {
    let last = u64::try_from(end - 1).unwrap();
    LookupError::Missing(MissingRange { start, last })
}

/// What a look-up must answer, byte arithmetic in 128 bits and one entry after the other.
fn model(entries: &[Entry], addr: u64, len: u64) -> Result<Vec<usize>, LookupError> {
    if len == 0 {
        return Err(LookupError::Empty { addr });
    }
    let end = u128::from(addr) + u128::from(len);
    if end > 1 << 64 {
        return Err(LookupError::BeyondEnd { addr, len });
    }
    let start_of = |e: &Entry| u128::from(e.addr);
    let end_of = |e: &Entry| u128::from(e.addr) + u128::from(e.len);
    let mut at = u128::from(addr);
    let mut holders = Vec::new();
    while at < end {
        let Some(i) = entries
            .iter()
            .position(|e| start_of(e) <= at && at < end_of(e))
        else {
            let next = entries.iter().map(start_of).filter(|s| *s > at).min();
            let stop = next.map_or(end, |next| next.min(end));
            return Err(missing(u64::try_from(at).unwrap(), stop));
        };
        holders.push(i);
        at = end_of(&entries[i]);
    }
    Ok(holders)
}

fn agrees(entries: &[Entry], table: &KeyTable, addr: u64, len: u64) -> Result<(), TestCaseError> {
    let want = model(entries, addr, len);
    let single = match want.clone() {
        Ok(holders) if holders.len() == 1 => Ok(holders[0]),
        Ok(holders) => Err(LookupError::Crosses {
            first: holders[0],
            last: holders[holders.len() - 1],
        }),
        Err(error) => Err(error),
    };
    let got = table.lookup(addr, len);
    prop_assert_eq!(got.clone().map(|key| key.index), single);
    if let Ok(key) = got {
        prop_assert_eq!(key.lkey, entries[key.index].lkey);
        prop_assert_eq!(key.rkey, entries[key.index].rkey);
    }
    // The parts are those MRs, and they tile the range. A range of millions of parts is not walked.
    match (table.split(addr, len), want) {
        (Ok(parts), Ok(holders)) => {
            prop_assert_eq!(parts.len(), holders.len());
            let mut at = u128::from(addr);
            for (part, holder) in parts.zip(holders) {
                let mr = entries[holder];
                prop_assert_eq!(u128::from(part.addr), at);
                prop_assert_eq!(
                    (part.index, part.lkey, part.rkey),
                    (holder, mr.lkey, mr.rkey)
                );
                prop_assert!(part.len > 0 && part.addr >= mr.addr);
                at += u128::from(part.len);
                prop_assert!(at <= u128::from(mr.addr) + u128::from(mr.len));
            }
            prop_assert_eq!(at, u128::from(addr) + u128::from(len));
        }
        (Err(got), Err(want)) => prop_assert_eq!(got, want),
        (got, want) => prop_assert!(false, "{:?} instead of {:?}", got, want),
    }
    Ok(())
}

#[test]
fn a_range_lies_in_one_mr_or_crosses_or_misses_bytes() {
    let two = [(0, 2_147_483_648), (2_147_483_648, 2_147_483_648)];
    let keys = table(&two);
    assert_eq!(keys.lookup(2_147_483_648, 65_536).unwrap().index, 1);
    assert_eq!(
        keys.lookup(2_147_479_552, 8192),
        Err(LookupError::Crosses { first: 0, last: 1 })
    );
    let parts = keys.split(2_147_479_552, 8192).unwrap();
    let parts: Vec<_> = parts.map(|part| (part.index, part.len)).collect();
    assert_eq!(parts, [(0, 4096), (1, 4096)]);
    let one = table(&[(0, 1_048_576)]);
    let error = one.lookup(1_048_575, 65_537).unwrap_err();
    assert_eq!(error, missing(1_048_576, 1_114_112));
    assert_eq!(error.to_string(), "no MR holds [0x100000, 0x110000)");
    assert_eq!(one.split(1_048_575, 65_537).unwrap_err(), error);
    assert_eq!(one.lookup(3, 0), Err(LookupError::Empty { addr: 3 }));
}

#[test]
fn the_end_of_the_address_space_is_an_ordinary_border() {
    let base = u64::MAX - 8191;
    let keys = table(&[(base, 4096), (base + 4096, 4096)]);
    assert_eq!(keys.lookup(u64::MAX, 1).unwrap().index, 1);
    assert_eq!(keys.split(base, 8192).unwrap().count(), 2);
    assert_eq!(
        keys.lookup(u64::MAX, 2),
        Err(LookupError::BeyondEnd {
            addr: u64::MAX,
            len: 2
        })
    );
    let below = table(&[(0, 4096)]);
    let error = below.lookup(u64::MAX - 4, 5).unwrap_err();
    assert_eq!(error, missing(u64::MAX - 4, 1 << 64));
    assert_eq!(
        error.to_string(),
        "no MR holds [0xfffffffffffffffb, 0x10000000000000000)"
    );
}

/// So many chunks of such a length that a scale needs its bias, or units of 4 KiB.
#[test]
fn borders_of_many_equal_chunks_are_exact() {
    const MIB: u64 = 1 << 20;
    for (chunk, count) in [(64 * MIB, 10_000), (66 * MIB, 10_000), (3072 * MIB, 448)] {
        for (first, last_len) in [(chunk, chunk), (5 * MIB + 3, chunk), (chunk, 7 * MIB + 1)] {
            let base = (1 << 46) + 1;
            let mut ranges = vec![(base, first)];
            ranges.extend((0..count).map(|n| (base + first + n * chunk, chunk)));
            let end = base + first + count * chunk;
            ranges.push((end, last_len));
            let keys = table(&ranges);
            for n in [0, 1, 2, count / 2, count - 1, count] {
                let border = base + first + n * chunk;
                let n = usize::try_from(n).unwrap();
                for len in [1, 2, 4095, 4096, 4097, MIB + 1] {
                    let index = |addr| keys.lookup(addr, len).map(|key| key.index);
                    assert_eq!(index(border - len), Ok(n), "{chunk} {first} {n} {len}");
                    assert_eq!(index(border), Ok(n + 1), "{chunk} {first} {n} {len}");
                    let last = (end + last_len) - len;
                    assert_eq!(index(base), Ok(0), "{chunk} {first} {len}");
                    assert_eq!(
                        index(last).map(|n| n + 1),
                        Ok(ranges.len()),
                        "{chunk} {first} {len}"
                    );
                    for outside in [base - 1, base - len, last + 1, last + len] {
                        let answer = index(outside);
                        assert!(
                            matches!(answer, Err(LookupError::Missing(_))),
                            "{outside:#x}: {answer:?}"
                        );
                    }
                    if len > 1 {
                        let crosses = LookupError::Crosses {
                            first: n,
                            last: n + 1,
                        };
                        assert_eq!(index(border - 1), Err(crosses), "{chunk} {first} {n} {len}");
                    }
                }
            }
        }
    }
}

#[test]
fn all_addresses_can_be_registered() {
    let half = 1 << 63;
    for split in [half, half - 1, half + 1, 1, u64::MAX] {
        let list = entries(&[(0, split), (split, (u64::MAX - split) + 1)]);
        let keys = KeyTable::new(list.clone()).unwrap();
        for addr in [0, 1, split - 1, split, u64::MAX - 1, u64::MAX] {
            for len in [0, 1, 2, split, half, u64::MAX] {
                agrees(&list, &keys, addr, len).unwrap();
            }
        }
    }
}

#[test]
fn lists_that_are_no_table_are_refused() {
    let refusal = |ranges: &[(u64, u64)]| KeyTable::new(entries(ranges)).unwrap_err();
    assert_eq!(refusal(&[]), TableError::NoMr);
    assert_eq!(refusal(&[(0, 4), (4, 0)]), TableError::EmptyMr { index: 1 });
    assert_eq!(
        refusal(&[(u64::MAX, 2)]),
        TableError::BeyondEnd { index: 0 }
    );
    assert_eq!(
        refusal(&[(8, 4), (4, 4)]),
        TableError::Unsorted { index: 1 }
    );
    for second in [(11, 4), (8, 4), (4, 5), (9, 1), (0, 20)] {
        let (first, second) = (refusal(&[(0, 1), (8, 4), second]), 2);
        assert_eq!(first, TableError::Overlap { first: 1, second });
    }
}

#[test]
fn the_whole_table_is_listed() {
    for list in [
        vec![(5, 3), (8, 4), (12, 4), (16, 2)],
        vec![(5, 3), (8, 3)],
        vec![(1, 1), (7, 9)],
    ] {
        let keys = table(&list);
        let listed: Vec<_> = keys.iter().map(|mr| (mr.addr, mr.len)).collect();
        assert_eq!(listed, list);
        assert_eq!(keys.len(), list.len());
        assert_eq!(keys.get(list.len()), None);
        assert_eq!(keys.base(), list[0].0);
    }
    assert!(!table(&[(1, 1), (7, 9)]).is_contiguous());
}

#[test]
fn a_table_is_shared_between_threads() {
    fn shared<T: Send + Sync + Clone>() {}
    shared::<KeyTable>();
    shared::<PeerKeyTable>();
}

/// Lengths and gaps before them.
fn shapes() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let equal = |chunk: u64, n: usize, first: u64, last: u64| {
        let mut list = vec![(0, chunk); n];
        list[n - 1].1 = 1 + last % chunk;
        list[0].1 = 1 + first % chunk;
        list
    };
    let powers = (0u32..12, 1usize..40, any::<u64>(), any::<u64>())
        .prop_map(move |(log, n, first, last)| equal(1 << log, n, first, last));
    let strides = (1u64..5000, 1usize..40, any::<u64>(), any::<u64>())
        .prop_map(move |(chunk, n, first, last)| equal(chunk, n, first, last));
    let full = (1u64..5000, 1usize..40).prop_map(|(chunk, n)| vec![(0, chunk); n]);
    let gap = prop_oneof![3 => Just(0u64), 1 => 1u64..100, 1 => 1u64..100_000];
    let irregular = prop::collection::vec((gap, 1u64..5000), 1..40);
    // A few MRs far away from many small ones: crowded buckets.
    let far = prop_oneof![20 => 0u64..2, 1 => 1u64 << 36..1 << 37];
    let crowded = prop::collection::vec((far, 1u64..4), 20..120);
    prop_oneof![powers, strides, full, irregular, crowded]
}

/// A list of MRs: a shape, scaled, and put at the bottom, in the middle or at the very top of the address space.
fn lists() -> impl Strategy<Value = Vec<Entry>> {
    (shapes(), 0u32..28, 0u8..4, 0u64..5).prop_map(|(shape, scale, place, off)| {
        let total: u128 = shape
            .iter()
            .map(|(gap, len)| u128::from(gap + len) << scale)
            .sum();
        let scale = if total > 1 << 62 { 0 } else { scale };
        let total: u64 = shape.iter().map(|(gap, len)| (gap + len) << scale).sum();
        let mut at = match place {
            0 => off,
            1 => (1 << 47) + (off << 12),
            2 => (u64::MAX - total) + 1,
            _ => u64::MAX - total - off,
        };
        let mut list = Vec::new();
        for (number, (gap, len)) in (0..).zip(shape) {
            let start = at.wrapping_add(gap << scale);
            list.push(entry(start, len << scale, number));
            at = start.wrapping_add(len << scale);
        }
        list
    })
}

/// A range near borders, or anywhere.
fn range(
    list: &[Entry],
    (pick, to, near, far, wild): (usize, usize, i64, i64, u8),
    noise: (u64, u64),
) -> (u64, u64) {
    let border = |pick: usize| {
        let mr = list[pick / 2 % list.len()];
        mr.addr
            .wrapping_add(if pick.is_multiple_of(2) { 0 } else { mr.len })
    };
    let addr = border(pick).wrapping_add_signed(near);
    let end = border(to).wrapping_add_signed(far);
    match wild {
        0 => noise,
        1 => (addr, noise.1),
        2 => (addr, noise.1 % 5),
        3 => {
            let first = list[0].addr;
            let span = list[list.len() - 1].addr - first + 1;
            (first + noise.0 % span, noise.1 % span)
        }
        _ => (addr, end.wrapping_sub(addr)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn lookup_and_split_agree_with_the_model(
        list in lists(),
        picks in prop::collection::vec(
            (
                (any::<usize>(), any::<usize>(), -2i64..3, -2i64..3, 0u8..8),
                (any::<u64>(), any::<u64>()),
            ),
            30,
        ),
    ) {
        let table = KeyTable::new(list.clone()).unwrap();
        for (pick, noise) in picks {
            let (addr, len) = range(&list, pick, noise);
            agrees(&list, &table, addr, len)?;
        }
    }

    #[test]
    fn every_list_is_listed_as_it_was_given(list in lists()) {
        let table = KeyTable::new(list.clone()).unwrap();
        let listed: Vec<Entry> = table
            .iter()
            .map(|mr| Entry { addr: mr.addr, len: mr.len, lkey: mr.lkey, rkey: mr.rkey })
            .collect();
        prop_assert_eq!(listed, list);
    }

    #[test]
    fn overlap_is_found_wherever_it_is(list in lists(), at in any::<usize>()) {
        prop_assume!(list.len() > 1);
        let mut list = list;
        let at = at % (list.len() - 1);
        list[at].len += list[at + 1].addr - (list[at].addr + list[at].len) + 1;
        prop_assert_eq!(
            KeyTable::new(list).unwrap_err(),
            TableError::Overlap { first: at, second: at + 1 }
        );
    }
}
