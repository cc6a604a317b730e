//! Making 2 MiB pages real.

use anyhow::Result;
use hugemr_core::size::{Bytes, GIB, MIB, PageSize};
use hugemr_host::mapping::{Kind, MapRequest};
use hugemr_host::populate::{Populate, usable_cpus};
use hugemr_host::root::Root;

use crate::bench::Bench;
use crate::by_hand::{BASE, HUGE, Memory, timed};
use crate::report::{Section, Target};
use crate::sample::{Way, alternate};

const OURS: &str = "hugemr, 2 threads";
const BARE: &str = "bare loop: MADV_POPULATE_WRITE of the end of each page, halves, 2 threads";
const HALVES: &str = "MADV_POPULATE_WRITE of halves, 2 threads";
const TOUCH: &str = "serial touch";
const MAP_POPULATE: &str = "MAP_POPULATE";
const ONE: &str = "MADV_POPULATE_WRITE, 1 thread";
const STOSB: &str = "limit: rep stosb on mapped memory, 2 threads";

/// Makes all memory warm that the run will use: memory which the machine has not used lately can be many times slower.
pub(crate) fn warm(bytes: u64) -> Result<()> {
    let memory = MapRequest::new(Kind::HugeTlb(PageSize::M2), bytes).map(&Root::real())?;
    Populate::new()
        .threads(usable_cpus(&Root::real()))
        .all(&memory)?;
    Ok(())
}

pub(crate) fn run(bench: &Bench) -> Result<Section> {
    let mut section = Section::new("Populate", "");
    let there = match &bench.huge {
        Ok(there) => (*there).min(bench.pick(4 * GIB, 64 * MIB)),
        Err(why) => {
            section.missing(why.clone());
            return Ok(section);
        }
    };
    if usable_cpus(&Root::real()) < 2 {
        section.missing("two threads need two CPUs");
        return Ok(section);
    }
    section.about = format!(
        "{} of 2 MiB pages are made real; mapping and unmapping do not count. hugemr and the bare loop ask for the end of each page, \
         which has the kernel clear it forwards (docs/decisions/0011-the-end-of-a-page-first.md); the others ask for its \
         beginning, as everybody does.",
        Bytes(there)
    );
    let len = usize::try_from(there)?;
    let mut ways = vec![
        Way::new(OURS, || {
            let memory = MapRequest::new(Kind::HugeTlb(PageSize::M2), there).map(&Root::real())?;
            timed(|| Ok(Populate::new().threads(2).all(&memory).map(drop)?))
        }),
        Way::new(BARE, || {
            let memory = Memory::map(len, 0)?;
            timed(|| {
                memory.shares(2, |from, to| {
                    for end in (from + HUGE..=to).step_by(HUGE) {
                        memory
                            .populate_write(end - BASE, end)
                            .expect("the pages are promised");
                    }
                });
                Ok(())
            })
        }),
        Way::new(HALVES, || {
            let memory = Memory::map(len, 0)?;
            timed(|| {
                memory.populate_all(2);
                Ok(())
            })
        }),
        Way::new(TOUCH, || {
            let memory = Memory::map(len, 0)?;
            timed(|| {
                memory.touch(0, len);
                Ok(())
            })
        }),
        Way::new(MAP_POPULATE, || {
            let mut memory = None;
            timed(|| {
                memory = Some(Memory::map(len, libc::MAP_POPULATE)?);
                Ok(())
            })
        }),
        Way::new(ONE, || {
            let memory = Memory::map(len, 0)?;
            timed(|| memory.populate_write(0, len))
        }),
    ];
    #[cfg(target_arch = "x86_64")]
    ways.push(Way::new(STOSB, || {
        let memory = Memory::map(len, 0)?;
        memory.populate_all(2);
        timed(|| {
            memory.shares(2, |from, to| memory.rep_stosb(from, to));
            Ok(())
        })
    }));
    let measured = alternate(&bench.effort(15), ways)?;
    // Speeds, so the other way's time is on top.
    let over = |way: &str| measured.ratio(way, OURS);
    for (way, target) in [
        (BARE, Target::AtLeast(0.97)),
        (HALVES, Target::Told),
        (TOUCH, Target::AtLeast(1.5)),
        (MAP_POPULATE, Target::Told),
        (ONE, Target::Told),
    ] {
        let row = section.ratio(format!("speed over {way}"), &measured, over(way), target);
        if [HALVES, TOUCH].contains(&way) {
            row.at_a_glance();
        }
    }
    if cfg!(target_arch = "x86_64") {
        section.ratio(
            format!("speed over {STOSB}"),
            &measured,
            over(STOSB),
            Target::AtLeast(0.80),
        );
    } else {
        section.missing("rep stosb: the kernel of this processor clears pages otherwise");
    }
    let gib = there as f64 / GIB as f64;
    for name in measured.names() {
        section.figure(name, format!("{} GiB/s", measured.seconds(name).rate(gib)));
    }
    Ok(section)
}
