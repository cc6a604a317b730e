//! Populating and registering at the same time.

use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use hugemr::Build;
use hugemr_core::backend::{Access, MrRequest, RegBackend};
use hugemr_core::host::Host;
use hugemr_core::plan::{Pages, Plan, PlanRequest, plan};
use hugemr_core::registrar::{Options, Registration};
use hugemr_core::size::{Bytes, GIB, MIB, PageSize};
use hugemr_host::mapping::{Kind, MapRequest, Mapping};
use hugemr_host::populate::{Populate, usable_cpus};
use hugemr_host::root::Root;
use hugemr_sim::{Faults, Overrides, SimDevice};

use crate::bench::Bench;
use crate::by_hand::{Memory, timed};
use crate::report::{Section, Target};
use crate::sample::{Way, alternate};

const OURS: &str = "hugemr";
const POPULATE: &str = "populate alone";
const REGISTER: &str = "register alone";
const LONGER: &str = "the longer of populate and register";
const TWO_STEPS: &str = "populate all, then register all";
const DEMO: &str = "demo loop: map, touch, register, MR by MR";

/// MRs: enough of them that the first and the last, which nothing overlaps, hardly count.
const MRS: u64 = 64;
/// Registration time in populate times, for one thread that registers.
const DELAYS: [f64; 4] = [0.5, 1.0, 2.0, 4.0];

struct Set<'a> {
    bytes: u64,
    plan: &'a Plan,
    device: &'a Arc<SimDevice>,
    threads: NonZeroUsize,
}

pub(crate) fn run(bench: &Bench) -> Result<Section> {
    let mut section = Section::new("Pipeline", "");
    let bytes = match &bench.huge {
        Ok(there) => (*there).min(bench.pick(4 * GIB, 128 * MIB)),
        Err(why) => {
            section.missing(why.clone());
            return Ok(section);
        }
    };
    let threads = usable_cpus(&Root::real()).min(2);
    let device = Arc::new(hugemr_sim::open("sim:verbs", &Overrides::default())?);
    let mut request = PlanRequest::total(bytes).pages(Pages::Only(PageSize::M2));
    request.chunk = Some(bytes / MRS);
    let host = Host {
        platform: device.platform().clone(),
        ..Host::default()
    };
    let plan = plan(&request, RegBackend::device(&*device), &host).map_err(|r| anyhow!(r.text))?;
    let set = Set {
        bytes,
        plan: &plan,
        device: &device,
        threads: NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN),
    };
    section.about = format!(
        "{} of real 2 MiB pages in {MRS} MRs, {threads} threads that populate and as many that register, on a simulated device that \
         sleeps for each GiB: a multiple of the time that populating a GiB takes. hugemr's time has mapping and reading the layout \
         in it, the others' has not, but for the demo loop, which maps too.",
        Bytes(bytes),
    );
    let populate = (0..4)
        .map(|_| set.populate())
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .min()
        .unwrap_or_default();
    for factor in DELAYS {
        set.measure(bench, &mut section, factor, populate)?;
    }
    Ok(section)
}

impl Set<'_> {
    fn measure(
        &self,
        bench: &Bench,
        section: &mut Section,
        factor: f64,
        populate: Duration,
    ) -> Result<()> {
        let gib = self.bytes as f64 / GIB as f64;
        let delay = populate.mul_f64(factor / gib);
        self.device
            .set_faults(Faults::default().reg_delay_per_gib(delay));
        let ways = vec![
            Way::new(OURS, || self.ours()),
            Way::new(POPULATE, || self.populate()),
            Way::new(REGISTER, || {
                let memory = self.populated()?;
                self.register(memory)
            }),
            Way::new(TWO_STEPS, || {
                let memory = self.map()?;
                let start = Instant::now();
                self.fill(&memory)?;
                let before = start.elapsed();
                Ok(before + self.register(memory)?)
            }),
            Way::new(DEMO, || self.demo()),
        ];
        let mut measured = alternate(&bench.effort(9), ways)?;
        measured.add_longer(LONGER, POPULATE, REGISTER);
        let at = format!("delay of {factor} x populate:");
        let row = section.ratio(
            format!("{at} time over {LONGER}"),
            &measured,
            measured.ratio(OURS, LONGER),
            Target::AtMost(1.1),
        );
        if factor == 1.0 {
            row.at_a_glance();
        }
        for way in [TWO_STEPS, DEMO] {
            section.ratio(
                format!("{at} time over {way}"),
                &measured,
                measured.ratio(OURS, way),
                Target::Told,
            );
        }
        for name in measured.names() {
            section.figure(
                format!("{at} {name}"),
                format!("{} s", measured.seconds(name)),
            );
        }
        Ok(())
    }

    fn ours(&self) -> Result<Duration> {
        let start = Instant::now();
        let pool = Build::new(self.plan)
            .threads(self.threads)
            .predict_for(self.device.platform())
            .build(Arc::clone(self.device))
            .map_err(|error| anyhow!("{}: {}", error.step, error.cause))?;
        let took = start.elapsed();
        pool.close()
            .map_err(|error| anyhow!("{}: {}", error.step, error.cause))?;
        Ok(took)
    }

    fn map(&self) -> Result<Mapping> {
        Ok(MapRequest::new(Kind::HugeTlb(PageSize::M2), self.bytes).map(&Root::real())?)
    }

    fn fill(&self, memory: &Mapping) -> Result<()> {
        Populate::new().threads(self.threads.get()).all(memory)?;
        Ok(())
    }

    fn populated(&self) -> Result<Mapping> {
        let memory = self.map()?;
        self.fill(&memory)?;
        Ok(memory)
    }

    fn populate(&self) -> Result<Duration> {
        let memory = self.map()?;
        timed(|| self.fill(&memory))
    }

    /// Registers what is populated, with as many threads as the pipeline has.
    fn register(&self, memory: Mapping) -> Result<Duration> {
        let options = Options::new().workers(self.threads);
        let start = Instant::now();
        let held = Registration::new(
            Arc::clone(self.device),
            memory,
            &self.plan.segments,
            Access::REMOTE_RW,
            &options,
        )
        .map_err(|error| anyhow!("{error}"))?;
        let took = start.elapsed();
        held.close().map_err(|error| anyhow!("{error}"))?;
        Ok(took)
    }

    /// As short programs do it: everything for one MR, then the next.
    fn demo(&self) -> Result<Duration> {
        let len = usize::try_from(self.bytes / MRS)?;
        let mut held = Vec::new();
        let start = Instant::now();
        for _ in 0..MRS {
            let memory = Memory::map(len, 0)?;
            memory.touch(0, memory.len());
            let request = MrRequest {
                addr: memory.addr(),
                len: NonZeroU64::new(len as u64).ok_or_else(|| anyhow!("empty MRs"))?,
                iova: memory.addr(),
                access: Access::REMOTE_RW,
            };
            // SAFETY: a simulated device touches no memory.
            let mr = unsafe { self.device.reg_mr(&request)? };
            held.push((mr, memory));
        }
        let took = start.elapsed();
        for (mr, memory) in held {
            self.device.dereg_mr(mr.handle)?;
            drop(memory);
        }
        Ok(took)
    }
}
