//! Registers random layouts on a real device, and writes down for each what hugemr predicted before, and what the simulator
//! computed. Whoever sees what arrives at the device (an emulator) holds the three against each other.
//!
//!     agree DEVICE SEED SEGMENT_CAP old|new KIND=COUNT...
//!
//!     agree DEVICE collapse BYTES
//!
//! KIND: `2m`, `4k`, `thp`, `mixed`, `unaligned`, `shuffled`, `1g`, `long` (1 GiB pages in physical order, MRs above 4 GiB).
//! `SEGMENT_CAP` and `old` say how the kernel under test has been changed, if it has. One line `AGREE {...}` a layout; exit
//! status 0 when every layout was tried. `collapse`: see there.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for a guest: printing is what it does"
)]

mod collapse;
mod memory;

use std::io::Write as _;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Arc;

use hugemr_core::backend::{Access, Backing, NoMemory};
use hugemr_core::chunks::Segment;
use hugemr_core::device::{Device, Family};
use hugemr_core::fact::{Kind, Limit, Source};
use hugemr_core::host::{Driver, Platform};
use hugemr_core::layout::{Layout, PhysRun, Prediction, Rules, predict};
use hugemr_core::registrar::{Options, Registration};
use hugemr_core::size::{GIB, MIB, PageSize};
use hugemr_host::facts::{Facts, ProcessId};
use hugemr_host::layout::{PageMap, Stride};
use hugemr_host::root::Root;
use hugemr_sim::{Overrides, SimDevice, SimMemory};
use hugemr_verbs::{OpenOptions, VerbsBackend};
use memory::{Order, Range, Region};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("agree: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Reproducible random numbers (splitmix64, public domain).
struct Random(u64);

impl Random {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From `low` to `high`, both included.
    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.draw() % (high - low + 1)
    }
}

struct Judges {
    real: Arc<VerbsBackend>,
    simulated: Arc<SimDevice>,
    rules: Rules,
    pagemap: PageMap,
}

fn run() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [device, word, len] = args.as_slice()
        && word == "collapse"
    {
        let judges = judges(device, hugemr_core::quirk::SEGMENT_CAP, false)?;
        return collapse::run(&judges, len.parse()?);
    }
    let [device, seed, cap, rule, kinds @ ..] = args.as_slice() else {
        return Err("usage: agree DEVICE SEED SEGMENT_CAP old|new KIND=COUNT...".into());
    };
    let (seed, cap, old) = (seed.parse()?, cap.parse()?, rule == "old");
    let judges = judges(device, cap, old)?;
    println!("AGREE-SEED {seed} cap {cap} rule {rule}");
    let mut random = Random(seed);
    for kind in kinds {
        let (kind, count) = kind.split_once('=').ok_or("KIND=COUNT")?;
        // 1 GiB pages are few and slow to clear: one region serves all ranges.
        let mut kept: Option<Region> = None;
        for number in 0..count.parse::<u64>()? {
            let region = match kept.take() {
                Some(region) => region,
                None => region(kind, &mut random)?,
            };
            let range = range(kind, &region, &mut random);
            layout(&judges, kind, number, &region, range)?;
            if matches!(kind, "1g" | "long") {
                kept = Some(region);
            }
        }
    }
    Ok(())
}

fn judges(device: &str, cap: u64, old: bool) -> Result<Judges> {
    let real = hugemr_verbs::open(device, &OpenOptions::default())?;
    let facts = Facts::read(&Root::real());
    let platform = Platform {
        driver: Driver::InTree,
        sg_fix: Some(!old),
        mtt_va: Some(true),
        iommu: Some(false),
        ..facts.host().platform
    };
    let unlimited = || Some(Limit::unlimited(Source::new(Kind::Given, "agreement test")));
    let overrides = Overrides {
        kernel: Some(platform.kernel),
        driver: Some(platform.driver),
        sg_fix: platform.sg_fix,
        mtt_va: platform.mtt_va,
        iommu: platform.iommu,
        entries: unlimited(),
        max_mr: unlimited(),
        sg_cap: Some(cap),
        ..Overrides::default()
    };
    let rules = Rules {
        segment_cap: cap,
        ..Rules::of(&platform, Family::Erdma)
    };
    Ok(Judges {
        real: Arc::new(real),
        simulated: Arc::new(hugemr_sim::open("sim:erdma", &overrides)?),
        rules,
        pagemap: PageMap::open(&Root::real(), ProcessId::Own)?,
    })
}

/// Memory of a kind, populated.
fn region(kind: &str, random: &mut Random) -> Result<Region> {
    let pages = random.between(1, 24);
    Ok(match kind {
        "2m" => Region::huge(PageSize::M2, pages, Order::AsGiven)?,
        "shuffled" => Region::huge(PageSize::M2, pages, Order::Shuffled(random.draw()))?,
        "4k" => Region::base(random.between(1, 2048), random.draw())?,
        "thp" => Region::transparent(random.between(1, 8))?,
        "mixed" => Region::mixed(random.between(1, 6), random.between(1, 700), random.draw())?,
        "unaligned" if random.draw().is_multiple_of(2) => {
            Region::huge(PageSize::M2, pages, Order::Sorted)?
        }
        "unaligned" => Region::base(random.between(2, 2048), random.draw())?,
        "sorted" => Region::huge(PageSize::M2, random.between(4, 30), Order::Sorted)?,
        "1g" => Region::huge(PageSize::G1, 2, Order::AsGiven)?,
        "long" => Region::huge(PageSize::G1, 5, Order::Sorted)?,
        _ => return Err(format!("no kind {kind}").into()),
    })
}

/// A part of it, to be one MR.
fn range(kind: &str, region: &Region, random: &mut Random) -> Range {
    let whole = Range {
        addr: region.base_addr(),
        len: region.len(),
    };
    let page = region.page().bytes();
    match kind {
        // From any byte to any byte.
        "unaligned" => {
            let start = random.between(0, region.len() - 1);
            Range {
                addr: region.base_addr() + start,
                len: random.between(1, region.len() - start),
            }
        }
        // Above 4 GiB, on borders of 2 MiB or of 4 KiB.
        "long" => {
            let unit = if random.draw().is_multiple_of(2) {
                2 * MIB
            } else {
                4096
            };
            let start = random.between(0, (region.len() - 4 * GIB - 1) / unit) * unit;
            let most = (region.len() - start) / unit;
            let least = (4 * GIB) / unit;
            Range {
                addr: region.base_addr() + start,
                len: random.between(least, most) * unit,
            }
        }
        "1g" => {
            let start = random.between(0, region.len() / (2 * MIB) - 1) * 2 * MIB;
            let most = (region.len() - start) / (2 * MIB);
            Range {
                addr: region.base_addr() + start,
                len: random.between(1, most) * 2 * MIB,
            }
        }
        "mixed" | "thp" => whole,
        _ => {
            let first = random.between(0, region.len() / page - 1);
            let pages = random.between(1, region.len() / page - first);
            Range {
                addr: region.base_addr() + first * page,
                len: pages * page,
            }
        }
    }
}

/// Predicts, asks the simulator, registers; says all three.
fn layout(judges: &Judges, kind: &str, number: u64, region: &Region, range: Range) -> Result<()> {
    let stride = match region.page() {
        page if page > PageSize::K64 && kind != "thp" && kind != "mixed" => Stride::Huge(page),
        _ => Stride::Every,
    };
    let start = range.addr & !0xfff;
    let len = (range.addr + range.len).next_multiple_of(4096) - start;
    let runs = judges.pagemap.runs(start, len, stride, 1)?;
    let layout = Layout::new(start, runs.iter().copied());
    let device: &Device = hugemr_core::backend::RegBackend::device(&*judges.real);
    let core = predict(
        &layout,
        range.addr,
        range.len,
        range.addr,
        device.page_size_cap,
        &judges.rules,
    );
    let longest = runs.iter().map(|run| run.len).max().unwrap_or(0);
    // Written down before anything is registered.
    print!(
        "AGREE {{\"kind\":\"{kind}\",\"number\":{number},\"va\":{},\"len\":{},\"runs\":{},\"longest\":{longest},\"core\":{}",
        range.addr,
        range.len,
        layout.run_count(),
        said(core)
    );
    std::io::stdout().flush()?;
    let simulated = simulate(judges, start, len, &runs, range)?;
    print!(",\"sim\":{simulated}");
    let real = register(Arc::clone(&judges.real), region.view(range), range);
    println!(",\"real\":{real}}}");
    Ok(())
}

fn said(prediction: Option<Prediction>) -> String {
    prediction.map_or_else(
        || "null".to_owned(),
        |p| match p.refused {
            Some(errno) => format!("{{\"errno\":{}}}", errno.0),
            None => format!(
                "{{\"shift\":{},\"entries\":{},\"level\":{},\"wire\":{}}}",
                p.page.shift(),
                p.entries,
                p.level,
                p.wire_len
            ),
        },
    )
}

fn simulate(
    judges: &Judges,
    start: u64,
    len: u64,
    runs: &[PhysRun],
    range: Range,
) -> Result<String> {
    let device = &judges.simulated;
    device.back(start, len, SimMemory::Runs(runs.to_vec()))?;
    let memory = NoMemory {
        base: range.addr,
        len: range.len,
        page: PageSize::K4,
    };
    let answer = match one(Arc::clone(device), memory, range) {
        Err(errno) => format!("{{\"errno\":{errno}}}"),
        Ok(registration) => {
            let live = device.mrs();
            let arrived = live.first().ok_or("the simulator lost the MR")?.arrival;
            drop(registration);
            format!(
                "{{\"shift\":{},\"entries\":{},\"level\":{},\"wire\":{}}}",
                arrived.page.shift(),
                arrived.entries,
                arrived.level,
                arrived.wire_len
            )
        }
    };
    device.unback(start, len)?;
    Ok(answer)
}

fn register<M: Backing>(device: Arc<VerbsBackend>, memory: M, range: Range) -> String {
    match one(device, memory, range) {
        Err(errno) => format!("{{\"errno\":{errno}}}"),
        Ok(registration) => {
            let key = registration.mrs().next().map_or(0, |mr| mr.mr.lkey.0);
            match registration.close() {
                Ok(_) => format!("{{\"lkey\":{key}}}"),
                Err(_) => format!("{{\"lkey\":{key},\"left\":true}}"),
            }
        }
    }
}

/// One MR over the whole range; the errno of a failure.
fn one<B: hugemr_core::backend::RegBackend, M: Backing>(
    backend: Arc<B>,
    memory: M,
    range: Range,
) -> std::result::Result<Registration<Arc<B>, M>, i32> {
    let whole = Segment::whole(range.len, PageSize::K4);
    let options = Options::new().workers(NonZeroUsize::MIN);
    Registration::new(backend, memory, &[whole], Access::REMOTE_RW, &options)
        .map_err(|error| error.failure().errno().map_or(-1, |errno| errno.0))
}
