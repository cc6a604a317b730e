//! Registering and releasing in parallel, on a simulated device that takes its time.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use hugemr_core::backend::{Access, NoMemory, RegBackend};
use hugemr_core::chunks::Segment;
use hugemr_core::registrar::{Options, Registration};
use hugemr_core::size::{GIB, PageSize};
use hugemr_sim::{Faults, Overrides};

use crate::bench::Bench;
use crate::report::{Section, Target};
use crate::sample::{Way, alternate};

const MRS: u64 = 64;
const WORKERS: [usize; 3] = [1, 2, 8];

pub(crate) fn run(bench: &Bench) -> Result<Section> {
    let delay = Duration::from_millis(bench.pick(10, 2));
    let mut section = Section::new(
        "Registration in parallel",
        format!(
            "{MRS} MRs of 1 GiB without memory, on a simulated device that sleeps {} ms for each GiB registered and for each MR \
             released.",
            delay.as_millis()
        ),
    );
    let device = hugemr_sim::open("sim:verbs", &Overrides::default())?;
    device.set_faults(
        Faults::default()
            .reg_delay_per_gib(delay)
            .dereg_delay(delay),
    );
    let device: Arc<dyn RegBackend> = Arc::new(device);
    let segment = Segment {
        offset: 0,
        len: MRS * GIB,
        page: PageSize::M2,
        chunk: GIB,
        skew: 0,
        first_index: 0,
    };
    let memory = NoMemory {
        base: 0x7e00_0000_0000,
        len: MRS * GIB,
        page: PageSize::M2,
    };
    let both = |workers: usize| -> Result<[Duration; 2]> {
        let options = Options::new().workers(NonZeroUsize::new(workers).expect("not 0"));
        let segments = std::slice::from_ref(&segment);
        let start = Instant::now();
        let held = Registration::new(
            Arc::clone(&device),
            memory,
            segments,
            Access::REMOTE_RW,
            &options,
        )
        .map_err(|error| anyhow!("{error}"))?;
        let registered = start.elapsed();
        let start = Instant::now();
        held.close().map_err(|error| anyhow!("{error}"))?;
        Ok([registered, start.elapsed()])
    };
    for (which, what) in ["registering", "releasing"].into_iter().enumerate() {
        let name = |workers: usize| format!("{what} with {workers}");
        let ways = WORKERS.map(|workers| {
            let both = &both;
            Way::new(name(workers), move || Ok(both(workers)?[which]))
        });
        let measured = alternate(&bench.effort(7), Vec::from(ways))?;
        for workers in &WORKERS[1..] {
            let row = section.ratio(
                format!("{}: times as fast as with 1", name(*workers)),
                &measured,
                measured.ratio(&name(1), &name(*workers)),
                Target::AtLeast(0.9 * *workers as f64),
            );
            if *workers == 8 {
                row.at_a_glance();
            }
        }
        for name in measured.names() {
            section.figure(name, format!("{} s", measured.seconds(name)));
        }
    }
    Ok(section)
}
