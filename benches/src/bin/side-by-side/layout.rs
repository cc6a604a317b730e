//! Reading where 896 GiB lie physically.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use anyhow::{Result, bail};
use hugemr_core::backend::Backing as _;
use hugemr_core::size::{Bytes, GIB, MIB, PageSize};
use hugemr_host::facts::ProcessId;
use hugemr_host::layout::{LayoutError, PageMap, Stride};
use hugemr_host::mapping::{Kind, MapRequest};
use hugemr_host::populate::{Populate, usable_cpus};
use hugemr_host::root::Root;

use crate::bench::Bench;
use crate::by_hand::timed;
use crate::report::{Section, Target};
use crate::sample::{Way, alternate};

const PREAD: &str = "one pread of 8 bytes for each huge page";
const PAGE: u64 = PageSize::M2.bytes();

pub(crate) fn run(bench: &Bench) -> Result<Section> {
    let mut section = Section::new("Layout", "");
    let (real, all) = bench.pick((2 * GIB, 896 * GIB), (64 * MIB, 8 * GIB));
    let real = match bench.huge(real) {
        Ok(real) => real,
        Err(why) => {
            section.missing(why);
            return Ok(section);
        }
    };
    section.about = format!(
        "The physical runs of {} of 2 MiB pages from `/proc/self/pagemap`. It is {} mapped {} times over.",
        Bytes(all),
        Bytes(real),
        all / real
    );
    let root = Root::real();
    let kind = Kind::Alias {
        page: PageSize::M2,
        pages: real / PAGE,
    };
    let memory = MapRequest::new(kind, all).map(&root)?;
    let threads = usable_cpus(&root);
    Populate::new().threads(threads).all(&memory)?;
    let map = match PageMap::open(&root, ProcessId::Own) {
        Ok(map) => map,
        Err(error @ LayoutError::NotAllowed) => {
            section.missing(error.to_string());
            return Ok(section);
        }
        Err(error) => return Err(error.into()),
    };
    let base = memory.base();
    let file = File::open("/proc/self/pagemap")?;
    // What both ways must agree on: the sum of all frames.
    let by_hand = || -> Result<u64> {
        let mut sum = 0u64;
        for page in 0..all / PAGE {
            let at = base + page * PAGE;
            let mut entry = [0; 8];
            file.read_exact_at(&mut entry, at / 4096 * 8)?;
            let entry = u64::from_ne_bytes(entry);
            if entry >> 63 == 0 {
                bail!("the page at {at:#x} is not there");
            }
            sum = sum.wrapping_add(entry & ((1 << 55) - 1));
        }
        Ok(sum)
    };
    let ours = |threads: usize| -> Result<u64> {
        let runs = map.runs(base, all, Stride::Huge(PageSize::M2), threads)?;
        let pages = runs
            .iter()
            .flat_map(|run| (0..run.len / PAGE).map(move |page| (run.phys + page * PAGE) / 4096));
        Ok(pages.fold(0u64, u64::wrapping_add))
    };
    let expected = by_hand()?;
    if expected == 0 || ours(threads)? != expected {
        bail!("the layouts that were read differ");
    }
    let name = |threads: usize| {
        format!(
            "hugemr, {threads} thread{}",
            if threads == 1 { "" } else { "s" }
        )
    };
    let mut counts = vec![1, threads];
    counts.dedup();
    let mut ways = vec![Way::new(PREAD, || timed(|| by_hand().map(drop)))];
    ways.extend(counts.iter().map(|&threads| {
        let map = &map;
        Way::new(name(threads), move || {
            timed(|| {
                let runs = map.runs(base, all, Stride::Huge(PageSize::M2), threads)?;
                std::hint::black_box(&runs);
                Ok(())
            })
        })
    }));
    let measured = alternate(&bench.effort(9), ways)?;
    for &count in &counts {
        let target = if count == threads {
            Target::AtMost(0.8)
        } else {
            Target::Told
        };
        let row = section.ratio(
            format!("time of {} over {PREAD}", name(count)),
            &measured,
            measured.ratio(&name(count), PREAD),
            target,
        );
        if target != Target::Told {
            row.at_a_glance();
        }
    }
    for way in measured.names() {
        section.figure(way, format!("{} s", measured.seconds(way)));
    }
    Ok(section)
}
