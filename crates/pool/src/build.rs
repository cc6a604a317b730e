//! The transaction: from a plan to a registered pool, and back.

use std::convert::Infallible;
use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;
use std::time::Instant;

use hugemr_core::backend::{Access, Backing, RegBackend, VerifyBackend};
use hugemr_core::chunks::{Chunk, Segment};
use hugemr_core::host::Platform;
use hugemr_core::key_table::KeyTable;
use hugemr_core::layout::{PhysRun, Rules};
use hugemr_core::place::{Nodes, Place, Stretch, place};
use hugemr_core::plan::{Pages, Plan};
use hugemr_core::prove::How;
use hugemr_core::registrar::{CancelToken, Mr, Registration};
use hugemr_core::size::PageSize;
use hugemr_host::mapping::{Kind, MapRequest, Mapping, Placement};
use hugemr_host::pools::Pools;
use hugemr_host::populate::{Road, usable_cpus};
use hugemr_host::reserve::{Effort, Spread};
use hugemr_host::root::Root;

use crate::error::{BuildError, Cause};
use crate::pipeline::{self, Job, Registered};
use crate::prove;
use crate::report::Report;
use crate::reserve::{Reserved, Wish};
use crate::step::{Event, Step, timed};
use crate::verify::{Proof, ProofError, verify};

/// Told before a chunk is registered, with its address and its physical runs (none where they were not read). An error
/// stops everything.
pub(crate) type Hook<'a> = dyn Fn(&Chunk, u64, &[PhysRun]) -> Result<(), String> + Sync + 'a;

fn cpus(root: &Root) -> NonZeroUsize {
    NonZeroUsize::new(usable_cpus(root)).unwrap_or(NonZeroUsize::MIN)
}

/// How a plan is carried out on memory of this host.
pub struct Build<'a> {
    plan: &'a Plan,
    platform: Option<&'a Platform>,
    root: Root,
    access: Access,
    threads: Option<NonZeroUsize>,
    cancel: CancelToken,
    progress: Option<&'a (dyn Fn(Event) + Sync)>,
    before: Option<&'a Hook<'a>>,
    road: Road,
    checked: bool,
    alias: Option<u64>,
    reserve: Option<Spread>,
    effort: Effort,
    prove: Option<&'a [How]>,
    nodes: Nodes,
}

impl<'a> Build<'a> {
    /// With the default access (local write, remote read, remote write), on as many threads as the process has CPUs.
    #[must_use]
    pub fn new(plan: &'a Plan) -> Self {
        Self {
            plan,
            platform: None,
            root: Root::real(),
            access: Access::REMOTE_RW,
            threads: None,
            cancel: CancelToken::new(),
            progress: None,
            before: None,
            road: Road::Best,
            checked: true,
            alias: None,
            reserve: None,
            effort: Effort::default(),
            prove: None,
            nodes: Nodes::Any,
        }
    }

    /// What the MRs allow.
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Threads that populate, and as many that register meanwhile. Without it as many as the process has CPUs: those of its
    /// affinity mask, and no more than the quota of its cgroup pays for.
    #[must_use]
    pub fn threads(mut self, threads: NonZeroUsize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Stops between two chunks, and within 64 MiB of populating. The pinning of an MR cannot be interrupted.
    #[must_use]
    pub fn cancel(mut self, token: &CancelToken) -> Self {
        self.cancel = token.clone();
        self
    }

    /// Told of every step.
    #[must_use]
    pub fn progress(mut self, progress: &'a (dyn Fn(Event) + Sync)) -> Self {
        self.progress = Some(progress);
        self
    }

    /// Told before each chunk is registered, from several threads.
    #[must_use]
    pub fn before_each(mut self, hook: &'a Hook<'a>) -> Self {
        self.before = Some(hook);
        self
    }

    /// Kernel and driver of the device, by whose rules each MR is predicted before it is registered. Without it nothing
    /// is predicted.
    #[must_use]
    pub fn predict_for(mut self, platform: &'a Platform) -> Self {
        self.platform = Some(platform);
        self
    }

    /// Registers even what is predicted to go wrong.
    #[must_use]
    pub fn unchecked(mut self) -> Self {
        self.checked = false;
        self
    }

    /// How pages are made real.
    #[must_use]
    pub fn road(mut self, road: Road) -> Self {
        self.road = road;
        self
    }

    /// Where pools and limits are read.
    #[must_use]
    pub fn root(mut self, root: Root) -> Self {
        self.root = root;
        self
    }

    /// For tests of large ranges on small machines: the whole range shows the same `pages` huge pages again and again.
    #[must_use]
    pub fn alias(mut self, pages: u64) -> Self {
        self.alias = Some(pages);
        self
    }

    /// Raises the pools of this host by the huge pages that are missing, and lowers them by exactly those when the memory
    /// is unmapped: at the end, after a failure, and when unwinding. Needs root where pages are missing. Without it no pool
    /// is touched.
    #[must_use]
    pub fn reserve(mut self, spread: Spread) -> Self {
        self.reserve = Some(spread);
        self
    }

    /// What [`reserve`](Self::reserve) may do where the kernel gives too few pages.
    #[must_use]
    pub fn effort(mut self, effort: Effort) -> Self {
        self.effort = effort;
        self
    }

    /// Watches the kernel while MRs are registered, by the first of these ways that can be had: [`Report::pages`] tells for
    /// each MR what it was seen to become. Needs root; where it cannot be had, the report says why, and nothing fails. The
    /// probe or the debug lines that it takes are switched off again. By [`How::DebugLines`] one thread registers.
    #[must_use]
    pub fn prove(mut self, ways: &'a [How]) -> Self {
        self.prove = Some(ways);
        self
    }

    /// On which NUMA nodes the memory lies, where it comes from pools of huge pages. Pages are bound to their nodes before any
    /// is there, and cleared by threads of the same node. Nodes that have too few free pages are an error before anything is
    /// mapped; where others are faster, populating fails, and no program is ever killed for it.
    #[must_use]
    pub fn nodes(mut self, nodes: Nodes) -> Self {
        self.nodes = nodes;
        self
    }

    /// The whole transaction: [`build`](Self::build), the use of the pool, [`Pool::close`]. All of it is told to the same
    /// callback. A panic of `using` takes the same way back.
    ///
    /// # Errors
    /// As `build` and `close`.
    pub fn run<B: RegBackend, T>(
        self,
        backend: B,
        using: impl FnOnce(&Pool<B>) -> T,
    ) -> Result<T, BuildError> {
        let progress = self.progress;
        let pool = self.build(backend)?;
        let value = using(&pool);
        pool.close_with(&|event| {
            if let Some(progress) = progress {
                progress(event);
            }
        })?;
        Ok(value)
    }

    /// Reserves where that was asked for, maps, populates, reads the layout, registers.
    ///
    /// # Errors
    /// The step that failed and why; everything before it was undone, or the error says what is left.
    pub fn build<B: RegBackend>(self, backend: B) -> Result<Pool<B>, BuildError> {
        let tell = |event| {
            if let Some(progress) = self.progress {
                progress(event);
            }
        };
        let start = Instant::now();
        let reserved = self.reserved(&tell)?;
        let took = self.reserve.map(|_| start.elapsed());
        match self.on_memory(backend, &reserved, &tell) {
            Ok((registration, mut report)) => {
                report.reserved = reserved.added();
                report.reserve = took;
                Ok(Pool {
                    registration,
                    report,
                    reserved,
                })
            }
            Err(error) => Err(error.rolled_back(reserved, &tell)),
        }
    }

    fn reserved(&self, tell: &dyn Fn(Event)) -> Result<Reserved, BuildError> {
        let Some(spread) = self.reserve else {
            return Ok(Reserved::default());
        };
        let need = self.huge_pages().into_iter();
        let wish = Wish {
            root: &self.root,
            need: need
                .map(|(page, pages)| (page, pages, self.spread(spread, page)))
                .collect(),
            effort: self.effort,
            cancel: &self.cancel,
        };
        wish.fulfil(tell)
    }

    /// Everything between reserving and giving back. The memory is gone when this returns an error, unless an MR stayed
    /// on it.
    fn on_memory<B: RegBackend>(
        &self,
        backend: B,
        reserved: &Reserved,
        tell: &(dyn Fn(Event) + Sync),
    ) -> Result<Registered<B>, BuildError> {
        let pools = Pools::read(&self.root);
        let mapped = timed(tell, Step::Map, || {
            let places = self.places(&pools)?;
            let cancelled = || self.cancel.is_cancelled();
            let memory =
                reserved.mapping(&cancelled, || self.map_request(&places).map(&self.root))??;
            Ok::<_, Cause>((memory, places))
        });
        let (memory, places) = mapped.map_err(|cause| BuildError::new(Step::Map, cause))?;
        let family = backend.device().family;
        let begin = |ways| prove::begin(&self.root, ways, &backend.device().name, &self.cancel);
        let watch = self.prove.map(begin);
        let job = Job {
            plan: self.plan,
            memory: Arc::new(memory),
            root: &self.root,
            access: self.access,
            threads: self.threads.unwrap_or_else(|| cpus(&self.root)),
            cancel: &self.cancel,
            tell,
            before: self.before,
            road: self.road,
            rules: self.platform.map(|platform| Rules::of(platform, family)),
            page_cap: backend.device().page_size_cap,
            checked: self.checked,
            places: &places,
            nodes: &pools.nodes,
            watch: watch.as_ref().and_then(|asked| asked.as_ref().ok()),
        };
        let base = job.memory.base();
        let (registration, mut report) = pipeline::run(&job, backend)?;
        report.pages = watch.map(|asked| prove::end(asked, self.plan, base, &report.mrs));
        report.places = places;
        Ok((registration, report))
    }

    /// Where the chunks of the plan go. Only pools have nodes whose free pages are known.
    fn places(&self, pools: &Pools) -> Result<Vec<Stretch>, Cause> {
        let from_pools = self.alias.is_none() && self.plan.pages != Pages::Thp;
        let huge = |s: &Segment| s.page > PageSize::K64;
        let segments = &self.plan.segments;
        let wish = if pools.per_node && from_pools && segments.iter().all(huge) {
            self.nodes
        } else if let (Nodes::Only(node), None) = (self.nodes, self.alias) {
            let on = |s: &Segment| Stretch {
                offset: s.offset,
                len: s.len,
                page: s.page,
                place: Place::On(node),
            };
            return Ok(segments.iter().map(on).collect());
        } else {
            Nodes::Any
        };
        Ok(place(segments, &pools.nodes, wish)?)
    }

    /// Pages that the mapping takes from pools, by size.
    fn huge_pages(&self) -> Vec<(PageSize, u64)> {
        match self.alias {
            Some(pages) => {
                let mut list: Vec<(PageSize, u64)> = Vec::new();
                for segment in &self.plan.segments {
                    let pages = pages.min(segment.page.pages_for(segment.len));
                    match list.iter_mut().find(|(page, _)| *page == segment.page) {
                        Some((_, sum)) => *sum += pages,
                        None => list.push((segment.page, pages)),
                    }
                }
                list
            }
            None => self.plan.huge_pages.clone(),
        }
    }

    /// An even spread in whole chunks, where no chunk may straddle.
    fn spread(&self, asked: Spread, page: PageSize) -> Spread {
        let of_page = |s: &&Segment| s.page == page;
        let chunk = self.plan.segments.iter().find(of_page).map(|s| s.chunk);
        let pages = chunk.and_then(|chunk| NonZeroU64::new(page.pages_for(chunk)));
        match (asked, self.nodes, pages) {
            (Spread::Even, Nodes::Whole(_), Some(pages)) => Spread::Pieces(pages),
            (Spread::Even, Nodes::Only(node), _) => Spread::Only(node),
            _ => asked,
        }
    }

    fn map_request(&self, places: &[Stretch]) -> MapRequest {
        let mut request: Option<MapRequest> = None;
        for stretch in places {
            let kind = match (self.alias, self.plan.pages) {
                (Some(pages), _) => Kind::Alias {
                    page: stretch.page,
                    pages,
                },
                (None, Pages::Thp) => Kind::Thp,
                (None, _) if stretch.page > PageSize::K64 => Kind::HugeTlb(stretch.page),
                (None, _) => Kind::Base,
            };
            let placement = match &stretch.place {
                Place::Any => Placement::Anywhere,
                Place::On(node) => Placement::Bind(vec![*node]),
                Place::Interleaved(nodes) => Placement::Interleave(nodes.clone()),
            };
            let with = match request {
                None => MapRequest::new(kind, stretch.len),
                Some(request) => request.then(kind, stretch.len),
            };
            request = Some(with.on(placement));
        }
        // A plan has one segment at least; an empty request is refused by `map`.
        request
            .unwrap_or_else(|| MapRequest::new(Kind::Base, 0))
            .align(PageSize::G1.bytes())
    }
}

/// Registered memory of this host, and what was found while it was made. Dropping it deregisters, unmaps, and gives
/// reserved pages back.
#[derive(Debug)]
pub struct Pool<B: RegBackend> {
    // The order of the fields is the order in which they are dropped.
    registration: Registration<B, Arc<Mapping>>,
    report: Report,
    reserved: Reserved,
}

impl<B: RegBackend> Pool<B> {
    /// Address of the first byte.
    #[must_use]
    pub fn base(&self) -> u64 {
        self.registration.memory().base()
    }

    /// Registered bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.registration.bytes()
    }

    /// The keys of every MR.
    #[must_use]
    pub fn keys(&self) -> KeyTable {
        self.registration.keys()
    }

    /// The MRs, in the order of addresses.
    pub fn mrs(&self) -> impl Iterator<Item = Mr> + '_ {
        self.registration.mrs()
    }

    /// What was found while the pool was built.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// The mapping, for its parts and descriptors.
    #[must_use]
    pub fn memory(&self) -> &Mapping {
        self.registration.memory()
    }

    /// The backend.
    #[must_use]
    pub fn backend(&self) -> &B {
        self.registration.backend()
    }

    /// Proves every MR by moving data, and tells of it as [`Step::Verify`].
    ///
    /// # Errors
    /// As [`verify`].
    pub fn verify(
        &self,
        backend: &dyn VerifyBackend,
        progress: &dyn Fn(Event),
    ) -> Result<Proof, ProofError> {
        timed(progress, Step::Verify, || {
            verify(backend, &self.keys(), |_| ())
        })
    }

    /// Tells of the use of the pool as [`Step::Hold`].
    pub fn hold<T>(&self, progress: &dyn Fn(Event), using: impl FnOnce() -> T) -> T {
        progress(Event::Begin(Step::Hold));
        let start = Instant::now();
        let value = using();
        progress(Event::End(Step::Hold, start.elapsed()));
        value
    }

    /// Deregisters, unmaps, gives reserved pages back.
    ///
    /// # Errors
    /// The MRs that could not be taken back; the memory stays mapped then. Reserved pages are given back all the same: those
    /// still in use go when they are freed, at the latest with the process.
    pub fn close(self) -> Result<(), BuildError> {
        self.close_with(&|_| ())
    }

    /// [`close`](Self::close), and tells of each step.
    ///
    /// # Errors
    /// As `close`.
    pub fn close_with(self, progress: &dyn Fn(Event)) -> Result<(), BuildError> {
        // Dropped last, where a callback panics.
        let mut reserved = self.reserved;
        let registration = self.registration;
        match timed(progress, Step::Deregister, || registration.close()) {
            Ok(memory) => {
                reserved.keep_from_others();
                let unmapped = timed(progress, Step::Unmap, || {
                    drop(memory);
                    Ok::<(), Infallible>(())
                });
                let Ok(()) = unmapped;
                let back = reserved.give_back(progress);
                back.map_err(|error| BuildError::new(Step::GiveBack, error))
            }
            Err(error) => {
                Err(BuildError::new(Step::Deregister, error).rolled_back(reserved, progress))
            }
        }
    }
}
