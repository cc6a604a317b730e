//! Populate, look, register: one chunk is populated while those before it are registered.
//!
//! As many threads as asked for populate ([`populating`](crate::populating)); the caller's thread and as many more
//! register. A chunk passes the gate when its pages are real, its layout was read, and what it will become was
//! predicted and found to be as planned. Chunks are registered in the order in which they pass it: those of a second NUMA
//! node are populated at the same time as those of the first, and do not wait for them.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hugemr_core::backend::{Access, Backing, RegBackend};
use hugemr_core::chunks::Chunk;
use hugemr_core::host::Node;
use hugemr_core::layout::{self, Layout, PhysRun, Rules};
use hugemr_core::place::{Place, Stretch};
use hugemr_core::plan::{Pages, Plan};
use hugemr_core::registrar::{
    CancelToken, Gate, GateError, Options, Progress, RegisterCause, Registration,
};
use hugemr_core::size::{PageSize, PageSizes};
use hugemr_host::facts::ProcessId;
use hugemr_host::layout::{LayoutError, PageMap, Stride};
use hugemr_host::mapping::Mapping;
use hugemr_host::populate::{Populate, Road};
use hugemr_host::root::Root;
use hugemr_host::team::{Caller, together};
use hugemr_host::trace::Watch;

use crate::build::Hook;
use crate::error::{BuildError, Cause, CheckFailure};
use crate::populating::Pieces;
use crate::report::{LayoutProof, MrReport, Report};
use crate::step::{Event, Step};

/// Everything that carrying a plan out needs, but the backend.
pub(crate) struct Job<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) memory: Arc<Mapping>,
    pub(crate) root: &'a Root,
    pub(crate) access: Access,
    pub(crate) threads: NonZeroUsize,
    pub(crate) cancel: &'a CancelToken,
    pub(crate) tell: &'a (dyn Fn(Event) + Sync),
    pub(crate) before: Option<&'a Hook<'a>>,
    pub(crate) road: Road,
    pub(crate) rules: Option<Rules>,
    pub(crate) page_cap: PageSizes,
    pub(crate) checked: bool,
    pub(crate) watch: Option<&'a Watch>,
    /// Where the chunks lie, and the CPUs of the nodes there are.
    pub(crate) places: &'a [Stretch],
    pub(crate) nodes: &'a [Node],
}

impl Job<'_> {
    /// The node of a chunk; `None` where it may lie anywhere.
    fn node(&self, chunk: &Chunk) -> Option<&Node> {
        let has = |s: &&Stretch| (s.offset..s.offset + s.len).contains(&chunk.offset);
        let Some(Place::On(id)) = self.places.iter().find(has).map(|s| &s.place) else {
            return None;
        };
        self.nodes.iter().find(|node| node.id == *id)
    }

    /// The chunks of each node, and those that may lie anywhere, where there are any: threads populate them side by side.
    fn lanes(&self) -> Vec<impl Iterator<Item = Chunk>> {
        let mut lanes: Vec<Option<u32>> = Vec::new();
        for stretch in self.places {
            let lane = match stretch.place {
                Place::On(node) if self.nodes.iter().any(|n| n.id == node) => Some(node),
                _ => None,
            };
            if !lanes.contains(&lane) {
                lanes.push(lane);
            }
        }
        let of = |lane: Option<u32>| {
            let here = move |chunk: &Chunk| self.node(chunk).map(|node| node.id) == lane;
            self.plan.chunks().filter(here)
        };
        lanes.into_iter().map(of).collect()
    }
}

/// What the populating thread and the registering ones share.
#[derive(Default)]
struct Shared {
    /// By the number of the MR: those that may be registered.
    ready: Vec<Option<MrReport>>,
    /// Those of them that no worker has yet, in the order in which they became ready: that of addresses only where one
    /// thread populates one NUMA node.
    queue: VecDeque<u64>,
    /// Why no more will come.
    failure: Option<(Step, Cause)>,
    /// Registering has stopped: no more is wanted.
    stopped: bool,
    /// Why the layout is not read; `None`: it is.
    no_layout: Option<String>,
    road: Option<Road>,
    /// From the beginning to the end of the last piece.
    populate: Duration,
    /// Reading layouts: the sum of all threads.
    looking: Duration,
    /// Waiting of those that register: the sum of all threads.
    waiting: Duration,
}

impl Shared {
    fn make_ready(&mut self, chunk: &Chunk, report: MrReport) {
        // A plan has no more MRs than fit in memory: the registrar keeps a record of each.
        let at = usize::try_from(chunk.index).unwrap_or(usize::MAX);
        if self.ready.len() <= at {
            self.ready.resize(at + 1, None);
        }
        self.ready[at] = Some(report);
        self.queue.push_back(chunk.index);
    }
}

struct Meeting<'a> {
    shared: Mutex<Shared>,
    changed: Condvar,
    before: Option<&'a Hook<'a>>,
}

impl Meeting<'_> {
    /// A panic elsewhere leaves nothing half-written here.
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stop(&self, failure: Option<(Step, Cause)>) {
        let mut shared = self.lock();
        shared.stopped = true;
        if shared.failure.is_none() {
            shared.failure = failure;
        }
        self.changed.notify_all();
    }
}

/// The other half of the meeting tells why; this is what the registrar hears.
#[derive(Debug, thiserror::Error)]
#[error("the chunk was not made ready")]
struct NotReady;

impl Gate for Meeting<'_> {
    fn wait_ready(&self, _turn: &Chunk) -> Result<u64, GateError> {
        let start = Instant::now();
        let mut shared = self.lock();
        loop {
            if shared.failure.is_some() {
                return Err(GateError::failed(NotReady));
            }
            if shared.stopped {
                return Err(GateError::Stopped);
            }
            if let Some(number) = shared.queue.pop_front() {
                shared.waiting += start.elapsed();
                return Ok(number);
            }
            shared = self
                .changed
                .wait(shared)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn stopped(&self) {
        self.stop(None);
    }
}

pub(crate) type Registered<B> = (Registration<B, Arc<Mapping>>, Report);

/// Carries the plan out.
pub(crate) fn run<B: RegBackend>(job: &Job<'_>, backend: B) -> Result<Registered<B>, BuildError> {
    let meeting = Meeting {
        shared: Mutex::new(Shared::default()),
        changed: Condvar::new(),
        before: job.before,
    };
    let memory = Arc::clone(&job.memory);
    let total = memory.len();
    let tell = job.tell;
    let (outcome, register, workers) = thread::scope(|scope| {
        let populating = thread::Builder::new().name("hugemr-populate".to_owned());
        let meeting = &meeting;
        let spawned = populating.spawn_scoped(scope, move || {
            // A panic of the caller's callback must not leave the registrar waiting.
            let _stop = StopOnPanic(meeting);
            populate(job, meeting);
        });
        if let Err(error) = &spawned {
            // Without a thread everything is done here, one step after the other.
            tracing::debug!(%error, "no thread for populating");
            populate(job, meeting);
        }
        tell(Event::Begin(Step::Register));
        let start = Instant::now();
        let progress = |p: &Progress| {
            tell(Event::Progress {
                step: Step::Register,
                done: p.bytes,
                total,
            });
        };
        let one = job.watch.is_some_and(Watch::wants_one_thread);
        let workers = if one { NonZeroUsize::MIN } else { job.threads };
        let mut options = Options::new()
            .workers(workers)
            .cancel(job.cancel)
            .progress(&progress)
            .gate(meeting);
        if let Some(watch) = job.watch {
            options = options.witness(watch);
        }
        let _stop = StopOnPanic(meeting);
        let outcome = Registration::new(backend, memory, &job.plan.segments, job.access, &options);
        meeting.stop(None);
        (outcome, start.elapsed(), workers)
    });
    let shared = meeting
        .shared
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    match outcome {
        Ok(registration) => {
            tell(Event::End(Step::Register, register));
            // More threads than MRs are not started.
            let mrs = NonZeroUsize::new(registration.len()).unwrap_or(NonZeroUsize::MIN);
            let waited = each(shared.waiting, workers.min(mrs));
            let report = Report {
                reserved: Vec::new(),
                reserve: None,
                // All of them are registered, so all were ready.
                mrs: shared.ready.into_iter().flatten().collect(),
                layout: shared
                    .no_layout
                    .map_or(LayoutProof::Read, LayoutProof::NotRead),
                places: Vec::new(),
                pages: None,
                road: shared.road.unwrap_or(job.road),
                threads: job.threads.get(),
                populate: shared.populate,
                register,
                registering: register.saturating_sub(waited),
            };
            Ok((registration, report))
        }
        Err(error) => {
            let (memory, failure) = error.into_parts();
            drop(memory);
            let ours =
                matches!(failure.cause(), RegisterCause::Gate(_)) && failure.rollback().is_clean();
            Err(match shared.failure {
                Some((step, cause)) if ours => BuildError::new(step, cause),
                _ => BuildError::new(Step::Register, failure),
            })
        }
    }
}

/// What is each one's share of a sum of times.
fn each(sum: Duration, threads: NonZeroUsize) -> Duration {
    u32::try_from(threads.get()).map_or(Duration::ZERO, |threads| sum / threads)
}

/// Wakes the other side when this one unwinds.
struct StopOnPanic<'a, 'b>(&'a Meeting<'b>);

impl Drop for StopOnPanic<'_, '_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.stop(Some((
                Step::Populate,
                Cause::Hook("a callback panicked".to_owned()),
            )));
        }
    }
}

/// Makes every chunk ready.
fn populate(job: &Job<'_>, meeting: &Meeting<'_>) {
    let start = Instant::now();
    (job.tell)(Event::Begin(Step::Populate));
    let pagemap = match PageMap::open(job.root, ProcessId::Own) {
        Ok(map) if job.rules.is_some() || job.before.is_some() => Ok(map),
        Ok(_) => Err("no prediction was asked for".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    meeting.lock().no_layout = pagemap.as_ref().err().cloned();
    let making = Making {
        job,
        meeting,
        pagemap: pagemap.ok(),
        pieces: Pieces::new(job.lanes(), job.threads),
        start,
        looks: Once::new(),
    };
    together(
        "hugemr-populate",
        job.threads.get(),
        Caller::Works,
        |thread| {
            let _stop = StopOnPanic(meeting);
            if let Err(failure) = making.work(thread) {
                meeting.stop(Some(failure));
            }
        },
    );
    let (populate, looking) = {
        let shared = meeting.lock();
        // Not `stopped`: the registrar may have registered everything already, and be done.
        if shared.failure.is_some() || !making.pieces.are_done() {
            return;
        }
        (shared.populate, shared.looking)
    };
    (job.tell)(Event::End(Step::Populate, populate));
    (job.tell)(Event::End(Step::Layout, looking));
}

type Failure = (Step, Cause);

/// What the threads share that make chunks ready.
struct Making<'a, C> {
    job: &'a Job<'a>,
    meeting: &'a Meeting<'a>,
    /// The way to physical addresses.
    pagemap: Option<PageMap>,
    pieces: Pieces<C>,
    start: Instant,
    looks: Once,
}

impl<C: Iterator<Item = Chunk>> Making<'_, C> {
    /// Populates pieces until none is left or somebody says stop.
    fn work(&self, thread: usize) -> Result<(), Failure> {
        while !self.meeting.lock().stopped {
            let Some(piece) = self.pieces.take(thread) else {
                break;
            };
            let (job, chunk) = (self.job, &piece.chunk);
            let cancelled = || job.cancel.is_cancelled() || self.meeting.lock().stopped;
            let populated = Populate::new()
                .page(if job.plan.pages == Pages::Thp {
                    PageSize::K4
                } else {
                    chunk.page
                })
                .road(job.road)
                .cancel(&cancelled)
                .on_cpus(
                    job.node(chunk)
                        .map_or_else(Vec::new, |node| node.cpus.clone()),
                )
                .range(&*job.memory, piece.offset, piece.len)
                .map_err(|error| (Step::Populate, Cause::Populate(error)))?;
            let account = self.pieces.done(&piece);
            {
                let mut shared = self.meeting.lock();
                shared.populate = shared.populate.max(self.start.elapsed());
                shared.road = Some(populated.road);
            }
            (job.tell)(Event::Progress {
                step: Step::Populate,
                done: account.done,
                total: job.memory.len(),
            });
            if account.completes {
                self.make_ready(chunk)?;
            }
        }
        Ok(())
    }

    /// All pages of the chunk are there: looks where they lie, and lets it pass the gate.
    fn make_ready(&self, chunk: &Chunk) -> Result<(), Failure> {
        let job = self.job;
        self.looks
            .call_once_force(|_| (job.tell)(Event::Begin(Step::Layout)));
        let start = Instant::now();
        let addr = job.memory.base() + chunk.offset;
        let runs = self.read(chunk, addr)?;
        let predicted = match (&job.rules, runs.is_empty()) {
            (Some(rules), false) => {
                let layout = Layout::new(addr, runs.iter().copied());
                layout::predict(&layout, addr, chunk.len, addr, job.page_cap, rules)
            }
            _ => None,
        };
        if let Some(predicted) = predicted.filter(|_| job.checked) {
            self.check(chunk, addr, predicted)
                .map_err(|e| (Step::Layout, Cause::Check(e)))?;
        }
        if let Some(before) = self.meeting.before {
            before(chunk, addr, &runs).map_err(|why| (Step::Layout, Cause::Hook(why)))?;
        }
        let report = MrReport {
            predicted,
            runs: runs.len() as u64,
        };
        let mut shared = self.meeting.lock();
        shared.looking += start.elapsed();
        shared.make_ready(chunk, report);
        self.meeting.changed.notify_all();
        Ok(())
    }

    /// The physical runs of a chunk; none where the rights do not allow it, which is said once.
    fn read(&self, chunk: &Chunk, addr: u64) -> Result<Vec<PhysRun>, Failure> {
        let allowed = self.meeting.lock().no_layout.is_none();
        let Some(map) = self.pagemap.as_ref().filter(|_| allowed) else {
            return Ok(Vec::new());
        };
        let stride = match self.job.plan.pages {
            Pages::Thp => Stride::Every,
            _ if chunk.page > PageSize::K64 => Stride::Huge(chunk.page),
            _ => Stride::Every,
        };
        // On this thread alone: the others are busy populating.
        match map.runs(addr, chunk.len, stride, 1) {
            Ok(runs) => Ok(runs),
            Err(error @ LayoutError::NotAllowed) => {
                self.meeting.lock().no_layout = Some(error.to_string());
                Ok(Vec::new())
            }
            Err(error) => Err((Step::Layout, Cause::Layout(error))),
        }
    }

    /// Whether the MR becomes what was planned.
    fn check(
        &self,
        chunk: &Chunk,
        addr: u64,
        predicted: layout::Prediction,
    ) -> Result<(), CheckFailure> {
        let job = self.job;
        // At worst one entry for each page that was planned; transparent huge pages may be 4 KiB.
        let page = if job.plan.pages == Pages::Thp {
            PageSize::K4
        } else {
            chunk.page
        };
        let seen = job.page_cap.largest_at_most(page).unwrap_or(PageSize::K4);
        let large = job.rules.is_none_or(|rules| rules.large_pages);
        let planned = layout::entries(if large { seen } else { PageSize::K4 }, addr, chunk.len);
        let failure = against_plan(chunk, addr, predicted, planned);
        failure.map_or(Ok(()), |mut failure| {
            if let CheckFailure::Entries { hole, .. } = &mut failure {
                let small =
                    |map: &PageMap| map.first_small(addr, chunk.len, chunk.page).ok().flatten();
                *hole = self.pagemap.as_ref().and_then(small);
            }
            Err(failure)
        })
    }
}

/// What is wrong with an MR of which at most `planned` entries were planned.
fn against_plan(
    chunk: &Chunk,
    addr: u64,
    predicted: layout::Prediction,
    planned: u64,
) -> Option<CheckFailure> {
    let (mr, len) = (chunk.index, chunk.len);
    if predicted.wire_len != len {
        return Some(CheckFailure::WireLength {
            mr,
            addr,
            len,
            predicted,
        });
    }
    (predicted.entries > planned).then_some(CheckFailure::Entries {
        mr,
        addr,
        len,
        page: chunk.page,
        predicted,
        planned,
        hole: None,
    })
}

#[cfg(test)]
mod tests;
