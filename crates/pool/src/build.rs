//! The transaction: from a plan to a registered pool, and back.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use hugemr_core::backend::{Access, Backing, RegBackend};
use hugemr_core::chunks::Chunk;
use hugemr_core::host::Platform;
use hugemr_core::key_table::KeyTable;
use hugemr_core::layout::{PhysRun, Rules};
use hugemr_core::plan::{Pages, Plan};
use hugemr_core::registrar::{CancelToken, Mr, Registration};
use hugemr_core::size::PageSize;
use hugemr_host::mapping::{Kind, MapRequest, Mapping};
use hugemr_host::populate::Road;
use hugemr_host::root::Root;

use crate::error::{BuildError, Cause};
use crate::pipeline::{self, Job};
use crate::report::Report;
use crate::step::{Event, Step};

/// Told before a chunk is registered, with its address and its physical runs (none where they were not read). An error
/// stops everything.
pub(crate) type Hook<'a> = dyn Fn(&Chunk, u64, &[PhysRun]) -> Result<(), String> + Sync + 'a;

/// How a plan is carried out on memory of this host.
pub struct Build<'a> {
    plan: &'a Plan,
    platform: Option<&'a Platform>,
    root: Root,
    access: Access,
    threads: NonZeroUsize,
    cancel: CancelToken,
    progress: Option<&'a (dyn Fn(Event) + Sync)>,
    before: Option<&'a Hook<'a>>,
    road: Road,
    checked: bool,
    alias: Option<u64>,
}

impl<'a> Build<'a> {
    /// With the default access (local write, remote read, remote write), on the calling thread and one more.
    #[must_use]
    pub fn new(plan: &'a Plan) -> Self {
        Self {
            plan,
            platform: None,
            root: Root::real(),
            access: Access::REMOTE_RW,
            threads: NonZeroUsize::MIN,
            cancel: CancelToken::new(),
            progress: None,
            before: None,
            road: Road::Best,
            checked: true,
            alias: None,
        }
    }

    /// What the MRs allow.
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Threads that populate, and as many that register meanwhile.
    #[must_use]
    pub fn threads(mut self, threads: NonZeroUsize) -> Self {
        self.threads = threads;
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

    /// Maps, populates, reads the layout, registers.
    ///
    /// # Errors
    /// The step that failed and why; everything before it was undone, or the cause says what is left.
    pub fn build<B: RegBackend>(self, backend: B) -> Result<Pool<B>, BuildError> {
        let tell = |event| {
            if let Some(progress) = self.progress {
                progress(event);
            }
        };
        tell(Event::Begin(Step::Map));
        let start = Instant::now();
        let memory = self.map_request().map(&self.root).map_err(|e| BuildError {
            step: Step::Map,
            cause: Cause::Map(e),
        })?;
        tell(Event::End(Step::Map, start.elapsed()));
        let family = backend.device().family;
        let job = Job {
            plan: self.plan,
            memory: Arc::new(memory),
            root: &self.root,
            access: self.access,
            threads: self.threads,
            cancel: &self.cancel,
            tell: &tell,
            before: self.before,
            road: self.road,
            rules: self.platform.map(|platform| Rules::of(platform, family)),
            page_cap: backend.device().page_size_cap,
            checked: self.checked,
        };
        let (registration, report) = pipeline::run(&job, backend)?;
        Ok(Pool {
            registration,
            report,
        })
    }

    fn map_request(&self) -> MapRequest {
        let mut request: Option<MapRequest> = None;
        for segment in &self.plan.segments {
            let kind = match (self.alias, self.plan.pages) {
                (Some(pages), _) => Kind::Alias {
                    page: segment.page,
                    pages,
                },
                (None, Pages::Thp) => Kind::Thp,
                (None, _) if segment.page > PageSize::K64 => Kind::HugeTlb(segment.page),
                (None, _) => Kind::Base,
            };
            request = Some(match request {
                None => MapRequest::new(kind, segment.len),
                Some(request) => request.then(kind, segment.len),
            });
        }
        // A plan has one segment at least; an empty request is refused by `map`.
        request
            .unwrap_or_else(|| MapRequest::new(Kind::Base, 0))
            .align(PageSize::G1.bytes())
    }
}

/// Registered memory of this host, and what was found while it was made. Dropping it deregisters and unmaps.
#[derive(Debug)]
pub struct Pool<B: RegBackend> {
    registration: Registration<B, Arc<Mapping>>,
    report: Report,
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

    /// Deregisters, then unmaps.
    ///
    /// # Errors
    /// The MRs that could not be taken back; the memory stays mapped then.
    pub fn close(self) -> Result<(), BuildError> {
        match self.registration.close() {
            Ok(memory) => {
                drop(memory);
                Ok(())
            }
            Err(error) => Err(BuildError {
                step: Step::Deregister,
                cause: Cause::Close(error),
            }),
        }
    }
}
