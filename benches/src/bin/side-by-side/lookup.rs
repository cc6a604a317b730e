//! From an address to keys.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use hugemr_benches::Random;
use hugemr_core::backend::{Lkey, Rkey};
use hugemr_core::key_table::{Entry, KeyTable};
use hugemr_core::size::{GIB, MIB};
use rangemap::RangeMap;

use crate::bench::Bench;
use crate::report::{Row, Section, Target};
use crate::sample::{Measured, Way, alternate};
use crate::stats::Spread;
use crate::ucx::PageTable;

const BASE: u64 = 0x7e00_0000_0000;
const CHUNK: u64 = 64 * MIB;
/// No power of two.
const ODD_CHUNK: u64 = 66 * MIB;
/// No power of two, and too long for more than five of them to be told apart to the byte by one multiplication.
const LONG_CHUNK: u64 = 3 * GIB;
/// Bytes that are looked up.
const LEN: u64 = 64;
const COUNTS: [u64; 3] = [14, 448, 10_000];
/// Different addresses: 256 KiB of them, so that fetching the questions from memory is not what is measured, and too many
/// for a branch predictor to learn them by heart.
const ADDRESSES: usize = 1 << 15;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    PowerOfTwo,
    Equal,
    Long,
    /// First and last shorter, as where a size is no multiple of the chunk.
    Ends,
    Irregular,
}

impl Shape {
    const ALL: [Self; 5] = [
        Self::PowerOfTwo,
        Self::Equal,
        Self::Long,
        Self::Ends,
        Self::Irregular,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::PowerOfTwo => "equal, 64 MiB",
            Self::Equal => "equal, 66 MiB",
            Self::Long => "equal, 3 GiB",
            Self::Ends => "64 MiB, both ends shorter",
            Self::Irregular => "irregular",
        }
    }

    fn mrs(self, n: u64) -> Vec<(u64, u64)> {
        let mut random = Random(11);
        let mut at = BASE;
        let next = |number: u64| {
            let (gap, len) = match self {
                Self::Ends if number == 0 => (0, 10 * MIB),
                Self::Ends if number + 1 == n => (0, 36 * MIB),
                Self::Ends => (0, CHUNK),
                Self::PowerOfTwo => (0, CHUNK),
                Self::Equal => (0, ODD_CHUNK),
                Self::Long => (0, LONG_CHUNK),
                Self::Irregular => (random.below(3) * 2 * MIB, (1 + random.below(64)) * 2 * MIB),
            };
            let start = at + gap;
            at = start + len;
            (start, len)
        };
        (0..n).map(next).collect()
    }
}

/// Whether a look-up waits for the one before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chain {
    Independent,
    Dependent,
}

impl Chain {
    fn name(self, who: &str) -> String {
        match self {
            Self::Independent => who.to_owned(),
            Self::Dependent => format!("{who}, dependent"),
        }
    }
}

/// The key of the MR that holds `[at, at + LEN)`; `NONE` where there is none. All of them are made part of the loop, as a
/// user's compiler would on a hot path.
trait Find: Copy {
    fn find(self, at: u64) -> u64;
}

const NONE: u64 = u64::MAX;

#[derive(Clone, Copy)]
struct Ours<'a>(&'a KeyTable);

impl Find for Ours<'_> {
    #[inline(always)]
    fn find(self, at: u64) -> u64 {
        self.0.lookup(at, LEN).map_or(NONE, |key| key.rkey.0.into())
    }
}

/// What the loop costs with the least that a table of equal chunks can do: the number of the chunk, which here the compiler
/// knows how to divide by, and one load. No address is checked.
#[derive(Clone, Copy)]
struct Bare<'a, const CHUNK: u64>(&'a [(u32, u32); PLACES]);

/// More than MRs, and a power of two: cutting a number down to it takes no branch.
const PLACES: usize = 1 << 14;

impl<const CHUNK: u64> Find for Bare<'_, CHUNK> {
    #[inline(always)]
    fn find(self, at: u64) -> u64 {
        let number = (at - BASE) / CHUNK % PLACES as u64;
        self.0[usize::try_from(number).unwrap_or_default()].1.into()
    }
}

/// By start: end (exclusive) and key.
#[derive(Clone, Copy)]
struct Tree<'a>(&'a BTreeMap<u64, (u64, u32)>);

impl Find for Tree<'_> {
    #[inline(always)]
    fn find(self, at: u64) -> u64 {
        let found = self.0.range(..=at).next_back();
        let hit = found.filter(|(_, (end, _))| at + LEN <= *end);
        hit.map_or(NONE, |(_, (_, key))| (*key).into())
    }
}

#[derive(Clone, Copy)]
struct Ranges<'a>(&'a RangeMap<u64, u32>);

impl Find for Ranges<'_> {
    #[inline(always)]
    fn find(self, at: u64) -> u64 {
        let found = self.0.get_key_value(&at);
        let hit = found.filter(|(range, _)| at + LEN <= range.end);
        hit.map_or(NONE, |(_, key)| (*key).into())
    }
}

/// Start, end (exclusive), key.
#[derive(Clone, Copy)]
struct Sorted<'a>(&'a [(u64, u64, u32)]);

impl Find for Sorted<'_> {
    #[inline(always)]
    fn find(self, at: u64) -> u64 {
        let behind = self.0.partition_point(|mr| mr.0 <= at);
        let found = behind.checked_sub(1).and_then(|i| self.0.get(i));
        let hit = found.filter(|mr| at + LEN <= mr.1);
        hit.map_or(NONE, |mr| mr.2.into())
    }
}

#[derive(Clone, Copy)]
struct Ucx<'a>(&'a PageTable);

impl Find for Ucx<'_> {
    #[inline(always)]
    fn find(self, at: u64) -> u64 {
        self.0.key(at, LEN).map_or(NONE, u64::from)
    }
}

const OURS: &str = "KeyTable";
const BARE: &str = "bare loop without any check";
const TREE: &str = "BTreeMap";
const RANGE: &str = "rangemap";
const SORTED: &str = "sorted Vec";
const UCX: &str = "UCX ucs_pgtable_lookup";

pub(crate) fn run(bench: &Bench) -> Result<Section> {
    let passes = bench.pick(32, 4);
    let mut section = Section::new(
        "Look-up",
        format!(
            "{passes} times {ADDRESSES} random hits of {LEN} bytes in tables of n MRs, after one pass that does not count. \"Dependent\": each address is known only when \
             the look-up before it is done. \"Irregular\": lengths of 1 to 64 and gaps of 0 to 2 units of 2 MiB. UCX is called through its library, as \
             its users do, without the lock of its registration cache. Built by `cargo xtask bench`, all loops begin at a cache line: \
             short ones that cross one take up to 1.4 times as long."
        ),
    );
    for shape in Shape::ALL {
        for n in COUNTS {
            one(bench, &mut section, shape, n, passes)?;
        }
    }
    Ok(section)
}

fn one(bench: &Bench, section: &mut Section, shape: Shape, n: u64, passes: u32) -> Result<()> {
    let mrs = shape.mrs(n);
    let mut random = Random(13);
    let addresses: Vec<u64> = (0..ADDRESSES)
        .map(|_| {
            let which = usize::try_from(random.below(n)).expect("below the number of MRs");
            let (start, len) = mrs[which];
            start + random.below(len - LEN)
        })
        .collect();
    let numbered = || mrs.iter().copied().zip(0u32..);
    let keys = KeyTable::new(numbered().map(|((addr, len), key)| Entry {
        addr,
        len,
        lkey: Lkey(key),
        rkey: Rkey(key),
    }))?;
    let tree: BTreeMap<u64, (u64, u32)> = numbered()
        .map(|((start, len), key)| (start, (start + len, key)))
        .collect();
    let mut range = RangeMap::new();
    for ((start, len), key) in numbered() {
        range.insert(start..start + len, key);
    }
    let sorted: Vec<(u64, u64, u32)> = numbered()
        .map(|((start, len), key)| (start, start + len, key))
        .collect();
    let mut bare = Box::new([(0, 0); PLACES]);
    for (place, (_, key)) in bare.iter_mut().zip(numbered()) {
        *place = (key, key);
    }
    let ucx = PageTable::new(&mrs);
    let queries = Queries {
        sum: independent(&addresses, &Ours(&keys)),
        addresses: &addresses,
        passes,
    };
    let mut ways = Vec::new();
    pair(&mut ways, OURS, queries, Ours(&keys));
    match shape {
        Shape::PowerOfTwo => pair(&mut ways, BARE, queries, Bare::<CHUNK>(&bare)),
        Shape::Equal => pair(&mut ways, BARE, queries, Bare::<ODD_CHUNK>(&bare)),
        Shape::Long => pair(&mut ways, BARE, queries, Bare::<LONG_CHUNK>(&bare)),
        Shape::Ends | Shape::Irregular => {}
    }
    pair(&mut ways, TREE, queries, Tree(&tree));
    pair(&mut ways, RANGE, queries, Ranges(&range));
    pair(&mut ways, SORTED, queries, Sorted(&sorted));
    if let Ok(ucx) = &ucx {
        pair(&mut ways, UCX, queries, Ucx(ucx));
    }
    let measured = alternate(&bench.effort(9), ways)?;
    let asked = Asked {
        shape,
        n,
        queries: ADDRESSES * passes as usize,
        measured: &measured,
    };
    asked.judge(section, ucx.as_ref().err());
    for name in measured.names() {
        let ns = asked.ns(name);
        section.figure(format!("{} {name}", asked.name()), format!("{ns} ns"));
    }
    Ok(())
}

/// What is asked, how often, and what the keys of one pass sum up to.
#[derive(Clone, Copy)]
struct Queries<'a> {
    addresses: &'a [u64],
    passes: u32,
    sum: u64,
}

impl Queries<'_> {
    fn timed(&self, pass: impl Fn(&[u64]) -> u64) -> Result<Duration> {
        // The others have left their own tables in the caches.
        let first = pass(self.addresses);
        if first != self.sum {
            return Err(anyhow!(
                "keys sum up to {first}, and should to {}",
                self.sum
            ));
        }
        let start = Instant::now();
        let got: u64 = (0..self.passes).map(|_| pass(self.addresses)).sum();
        let took = start.elapsed();
        let wanted = self.sum * u64::from(self.passes);
        if got == wanted {
            Ok(took)
        } else {
            Err(anyhow!("keys sum up to {got}, and should to {wanted}"))
        }
    }
}

/// Adds both chains of one way. What is found is checked against the sum of all keys.
fn pair<'a>(ways: &mut Vec<Way<'a>>, who: &str, queries: Queries<'a>, find: impl Find + 'a) {
    ways.push(Way::new(Chain::Independent.name(who), move || {
        queries.timed(|addresses| independent(addresses, &find))
    }));
    ways.push(Way::new(Chain::Dependent.name(who), move || {
        queries.timed(|addresses| dependent(addresses, &find))
    }));
}

#[inline(never)]
fn independent(queries: &[u64], table: &impl Find) -> u64 {
    queries.iter().map(|at| table.find(*at)).sum()
}

/// The compiler does not know that `nothing` is 0, so each address needs the key before.
#[inline(never)]
fn dependent(queries: &[u64], table: &impl Find) -> u64 {
    let nothing = black_box(0u64);
    let (mut key, mut sum) = (0u64, 0u64);
    for at in queries {
        key = table.find(at + (key & nothing));
        sum += key;
    }
    sum
}

/// What was measured of one table.
struct Asked<'a> {
    shape: Shape,
    n: u64,
    queries: usize,
    measured: &'a Measured,
}

impl Asked<'_> {
    fn name(&self) -> String {
        format!("{}, n = {}:", self.shape.name(), self.n)
    }

    fn ns(&self, way: &str) -> Spread {
        self.measured.seconds(way).times(1e9 / self.queries as f64)
    }

    fn ratio<'s>(
        &self,
        section: &'s mut Section,
        over: &str,
        chain: Chain,
        target: Target,
    ) -> &'s mut Row {
        let (ours, over) = (chain.name(OURS), chain.name(over));
        let ratio = self.measured.ratio(&ours, &over);
        let what = format!("{} time over {over}", self.name());
        section.ratio(what, self.measured, ratio, target)
    }

    fn judge(&self, section: &mut Section, no_ucx: Option<&String>) {
        use Chain::{Dependent, Independent};
        // The targets name 448 and 10,000 irregular MRs.
        let judged = self.n >= 448;
        let (tree, range, ucx, ucx_chained) = match (self.shape, judged) {
            (Shape::Irregular, true) => (
                Target::Told,
                Target::AtMost(0.25),
                Target::AtMost(0.6),
                Target::AtMost(1.0),
            ),
            (Shape::Irregular, false) => (Target::Told, Target::Told, Target::Told, Target::Told),
            (_, _) => (
                Target::AtMost(0.2),
                Target::AtMost(0.2),
                Target::Told,
                Target::Told,
            ),
        };
        if self.shape != Shape::Irregular {
            // The time itself is the target here, not a ratio.
            let what = format!("{} one look-up", self.name());
            let most = Target::AtMost(2.0);
            let row = section.row(what, self.measured, self.ns(OURS), " ns", most);
            if self.n == 448 {
                row.at_a_glance();
            }
            if self.shape != Shape::Ends {
                self.ratio(section, BARE, Independent, Target::Told);
            }
        }
        self.ratio(section, TREE, Independent, tree);
        self.ratio(section, RANGE, Independent, range);
        self.ratio(section, SORTED, Independent, Target::Told);
        match no_ucx {
            Some(why) => section.missing(format!("{} {UCX}: {why}", self.name())),
            None => {
                let row = self.ratio(section, UCX, Independent, ucx);
                if self.n == 448 {
                    row.at_a_glance();
                }
                self.ratio(section, UCX, Dependent, ucx_chained);
            }
        }
    }
}
