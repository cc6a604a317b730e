//! Populate, look, register: one chunk is populated while those before it are registered.
//!
//! One thread of ours drives populating, chunk by chunk in order, with as many threads as asked for; the caller's thread
//! and as many more register. A chunk passes the gate when its pages are real, its layout was read, and what it will
//! become was predicted and found to be as planned.

use std::num::NonZeroUsize;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
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
use hugemr_host::trace::Watch;

use crate::build::Hook;
use crate::error::{BuildError, Cause, CheckFailure};
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
    /// The CPUs near a chunk; none where it may lie anywhere.
    fn cpus(&self, chunk: &Chunk) -> &[u32] {
        let has = |s: &&Stretch| (s.offset..s.offset + s.len).contains(&chunk.offset);
        let Some(Place::On(node)) = self.places.iter().find(has).map(|s| &s.place) else {
            return &[];
        };
        let node = self.nodes.iter().find(|n| n.id == *node);
        node.map_or(&[], |node| &node.cpus)
    }
}

/// What the populating thread and the registering ones share.
#[derive(Default)]
struct Shared {
    /// MRs that may be registered, in order.
    ready: Vec<MrReport>,
    /// Why no more will come.
    failure: Option<(Step, Cause)>,
    /// Registering has stopped: no more is wanted.
    stopped: bool,
    layout: Option<String>,
    road: Option<Road>,
    populate: Duration,
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
    fn wait_ready(&self, chunk: &Chunk) -> Result<(), GateError> {
        let mut shared = self.lock();
        loop {
            if shared.failure.is_some() {
                return Err(GateError::failed(NotReady));
            }
            if shared.stopped {
                return Err(GateError::Stopped);
            }
            if (shared.ready.len() as u64) > chunk.index {
                return Ok(());
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
    let (outcome, register) = thread::scope(|scope| {
        let populating = thread::Builder::new().name("hugemr-populate".to_owned());
        let meeting = &meeting;
        let spawned = populating.spawn_scoped(scope, move || {
            // A panic of the caller's callback must not leave the registrar waiting.
            let guard = StopOnPanic(meeting);
            populate(job, meeting);
            std::mem::forget(guard);
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
        (outcome, start.elapsed())
    });
    let shared = meeting
        .shared
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    match outcome {
        Ok(registration) => {
            tell(Event::End(Step::Register, register));
            let report = Report {
                reserved: Vec::new(),
                reserve: None,
                mrs: shared.ready,
                layout: shared
                    .layout
                    .map_or(LayoutProof::Read, LayoutProof::NotRead),
                places: Vec::new(),
                pages: None,
                road: shared.road.unwrap_or(job.road),
                threads: job.threads.get(),
                populate: shared.populate,
                register,
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

/// Makes every chunk ready, in order.
fn populate(job: &Job<'_>, meeting: &Meeting<'_>) {
    let total = job.memory.len();
    let start = Instant::now();
    (job.tell)(Event::Begin(Step::Populate));
    let pagemap = match PageMap::open(job.root, ProcessId::Own) {
        Ok(map) if job.rules.is_some() || job.before.is_some() => Ok(map),
        Ok(_) => Err("no prediction was asked for".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    let mut look = Look {
        pagemap: pagemap.as_ref().ok(),
        why_not: pagemap.as_ref().err().cloned(),
        took: None,
    };
    let mut done = 0;
    for chunk in job.plan.chunks() {
        if meeting.lock().stopped {
            return;
        }
        let result = one(job, meeting, &mut look, &chunk, done);
        match result {
            Ok((report, road)) => {
                done += chunk.len;
                let mut shared = meeting.lock();
                shared.ready.push(report);
                shared.road = Some(road);
                shared.populate = start.elapsed();
                shared.layout.clone_from(&look.why_not);
                meeting.changed.notify_all();
            }
            Err(failure) => return meeting.stop(Some(failure)),
        }
    }
    (job.tell)(Event::Progress {
        step: Step::Populate,
        done,
        total,
    });
    let layout = look.took.unwrap_or_default();
    (job.tell)(Event::End(
        Step::Populate,
        start.elapsed().saturating_sub(layout),
    ));
    (job.tell)(Event::End(Step::Layout, layout));
}

/// The way to physical addresses, or why there is none.
struct Look<'a> {
    pagemap: Option<&'a PageMap>,
    why_not: Option<String>,
    /// What looking has taken, of all chunks; `None` before the first.
    took: Option<Duration>,
}

fn one(
    job: &Job<'_>,
    meeting: &Meeting<'_>,
    look: &mut Look<'_>,
    chunk: &Chunk,
    done: u64,
) -> Result<(MrReport, Road), (Step, Cause)> {
    let total = job.memory.len();
    let mut progress = |bytes: u64| {
        (job.tell)(Event::Progress {
            step: Step::Populate,
            done: done + bytes,
            total,
        });
    };
    let cancelled = || job.cancel.is_cancelled() || meeting.lock().stopped;
    let populated = Populate::new()
        .threads(job.threads.get())
        .page(if job.plan.pages == Pages::Thp {
            PageSize::K4
        } else {
            chunk.page
        })
        .road(job.road)
        .progress(&mut progress)
        .cancel(&cancelled)
        .on_cpus(job.cpus(chunk).to_vec())
        .range(&*job.memory, chunk.offset, chunk.len)
        .map_err(|error| (Step::Populate, Cause::Populate(error)))?;
    if look.took.is_none() {
        (job.tell)(Event::Begin(Step::Layout));
    }
    let start = Instant::now();
    let addr = job.memory.base() + chunk.offset;
    let runs = read(job, look, chunk, addr)?;
    let predicted = match (&job.rules, runs.is_empty()) {
        (Some(rules), false) => {
            let layout = Layout::new(addr, runs.iter().copied());
            layout::predict(&layout, addr, chunk.len, addr, job.page_cap, rules)
        }
        _ => None,
    };
    if let Some(predicted) = predicted.filter(|_| job.checked) {
        check(job, look, chunk, addr, predicted).map_err(|e| (Step::Layout, Cause::Check(e)))?;
    }
    if let Some(before) = meeting.before {
        before(chunk, addr, &runs).map_err(|why| (Step::Layout, Cause::Hook(why)))?;
    }
    *look.took.get_or_insert_default() += start.elapsed();
    Ok((
        MrReport {
            predicted,
            runs: runs.len() as u64,
        },
        populated.road,
    ))
}

/// The physical runs of a chunk; none where the rights do not allow it, which is said once.
fn read(
    job: &Job<'_>,
    look: &mut Look<'_>,
    chunk: &Chunk,
    addr: u64,
) -> Result<Vec<PhysRun>, (Step, Cause)> {
    let Some(map) = look.pagemap else {
        return Ok(Vec::new());
    };
    let stride = match job.plan.pages {
        Pages::Thp => Stride::Every,
        _ if chunk.page > PageSize::K64 => Stride::Huge(chunk.page),
        _ => Stride::Every,
    };
    match map.runs(addr, chunk.len, stride, job.threads.get()) {
        Ok(runs) => Ok(runs),
        Err(error @ LayoutError::NotAllowed) => {
            look.pagemap = None;
            look.why_not = Some(error.to_string());
            Ok(Vec::new())
        }
        Err(error) => Err((Step::Layout, Cause::Layout(error))),
    }
}

/// Whether the MR becomes what was planned.
fn check(
    job: &Job<'_>,
    look: &Look<'_>,
    chunk: &Chunk,
    addr: u64,
    predicted: layout::Prediction,
) -> Result<(), CheckFailure> {
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
            let small = |map: &PageMap| map.first_small(addr, chunk.len, chunk.page).ok().flatten();
            *hole = look.pagemap.and_then(small);
        }
        Err(failure)
    })
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
mod tests {
    use super::*;
    use hugemr_core::size::GIB;

    #[test]
    fn an_mr_is_held_against_the_plan() {
        let chunk = Chunk {
            index: 3,
            offset: 0,
            len: 8 * GIB,
            page: PageSize::M2,
        };
        let check = |entries, wire_len| {
            let predicted = layout::Prediction {
                page: PageSize::M2,
                entries,
                level: 2,
                wire_len,
                refused: None,
            };
            against_plan(&chunk, 0x7e00_0000_0000, predicted, 4096)
        };
        assert_eq!(check(4096, 8 * GIB), None);
        assert_eq!(check(8, 8 * GIB), None);
        let over = check(4097, 8 * GIB);
        assert!(matches!(
            over,
            Some(CheckFailure::Entries {
                mr: 3,
                planned: 4096,
                ..
            })
        ));
        // Fewer entries than planned, and the call would succeed with a wrong length.
        assert!(matches!(
            check(8, 0),
            Some(CheckFailure::WireLength { mr: 3, .. })
        ));
    }
}
