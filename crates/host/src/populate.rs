//! Makes the pages of memory real before a device pins them: in parallel, without ever killing the process.
//!
//! Touching memory whose pages cannot be had (an emptied pool, the limit of a cgroup) is a SIGBUS. Two roads to the
//! pages end in an error instead:
//!
//! * **MADV_POPULATE_WRITE** (Linux 5.14) faults a whole range in. Pages that are there already are skipped by the
//!   kernel, which takes less than a microsecond for each, huge or not; nothing is cleared twice and no content
//!   changes.
//! * **Page by page**, for older kernels (many eRDMA hosts run 5.10): the kernel is asked for an atomic `|= 0` of
//!   one word of each page (futex(2), `FUTEX_WAKE_OP`). It faults the page in by itself, and answers EFAULT where
//!   the program would get a SIGBUS. The content stays as it is, whatever other threads, processes or devices write
//!   at that moment. (Writing zeros from a file, or reading a byte and writing it back, would lose their data.)
//!   Of a huge page one word is touched, and the rest only where mincore says that it did not come along (a
//!   transparent huge page that the kernel did not give).

mod roads;

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use hugemr_core::backend::Backing;
use hugemr_core::errno::Errno;
use hugemr_core::size::{Bytes, MIB, PageSize};

use crate::facts::{Cgroup, ProcessId};
use crate::pools::Pools;
use crate::root::Root;
use crate::smaps;
use crate::sys::{self, Advice};
use crate::team::{Caller, together};
use roads::{populate_write, touch_range};

/// How pages are made real.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Road {
    /// MADV_POPULATE_WRITE where the kernel has it, else page by page.
    #[default]
    Best,
    /// MADV_POPULATE_WRITE; EINVAL on kernels before 5.14.
    PopulateWrite,
    /// Page by page, on any kernel.
    PageByPage,
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Populated {
    /// Bytes of the range.
    pub bytes: u64,
    /// The road that was taken; never [`Road::Best`].
    pub road: Road,
    /// Threads that worked, the caller's own included.
    pub threads: usize,
}

/// Why memory was not populated. `done` is what was populated before, bytes, in no particular order; it stays.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PopulateError {
    /// No huge page could be had.
    #[error(
        "no huge page of {page} for {addr:#x}{}{}; {} populated",
        available.map_or_else(String::new, |n| format!(" ({n} available)")),
        cgroup.as_ref().map_or_else(String::new, |file| format!(", the cgroup is at its limit {file}")),
        Bytes(*done)
    )]
    OutOfPages {
        /// The first page of which that is so.
        addr: u64,
        /// Its size.
        page: PageSize,
        /// Pages of the host that are free and not promised, read after the failure. More than 0: another node's,
        /// or the limit of a cgroup.
        available: Option<u64>,
        /// The limit of a cgroup that leaves less than a page.
        cgroup: Option<String>,
        /// Bytes populated.
        done: u64,
    },
    /// Nothing is mapped there.
    #[error("nothing is mapped at {addr:#x}; {} populated", Bytes(*done))]
    NotMapped {
        /// The address.
        addr: u64,
        /// Bytes populated.
        done: u64,
    },
    /// The memory cannot be written, or is no memory (a device's registers).
    #[error("the mapping at {addr:#x} cannot be populated for writing; {} populated", Bytes(*done))]
    NotWritable {
        /// The address.
        addr: u64,
        /// Bytes populated.
        done: u64,
    },
    /// The page has a hardware error.
    #[error("the memory page at {addr:#x} has a hardware error; {} populated", Bytes(*done))]
    Poisoned {
        /// The address.
        addr: u64,
        /// Bytes populated.
        done: u64,
    },
    /// The caller's token said stop.
    #[error("cancelled; {} populated", Bytes(*done))]
    Cancelled {
        /// Bytes populated.
        done: u64,
    },
    /// The range is empty, or lies outside the memory, or there is no memory (simulated devices).
    #[error("{} at {} is no range of this memory", Bytes(*len), Bytes(*offset))]
    NoRange {
        /// Offset asked for.
        offset: u64,
        /// Bytes asked for.
        len: u64,
    },
    /// Anything else.
    #[error("populating {addr:#x} failed: {errno}; {} populated", Bytes(*done))]
    System {
        /// The address.
        addr: u64,
        /// What the call left in errno.
        errno: Errno,
        /// Bytes populated.
        done: u64,
    },
}

/// How memory is to be populated.
///
/// ```
/// use hugemr_core::size::MIB;
/// use hugemr_host::mapping::{Kind, MapRequest};
/// use hugemr_host::populate::Populate;
/// use hugemr_host::root::Root;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let memory = MapRequest::new(Kind::Base, 4 * MIB).map(&Root::real())?;
/// let mut last = 0;
/// let mut progress = |done| last = done;
/// Populate::new().progress(&mut progress).all(&memory)?;
/// assert_eq!(last, 4 * MIB);
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
pub struct Populate<'a> {
    threads: Option<NonZeroUsize>,
    cpus: Vec<u32>,
    road: Road,
    page: Option<PageSize>,
    progress: Option<&'a mut Progress<'a>>,
    cancel: Option<&'a Cancel<'a>>,
}

type Progress<'a> = dyn FnMut(u64) + Send + 'a;
type Cancel<'a> = dyn Fn() -> bool + Sync + 'a;

/// Bytes that one thread takes at a time, at most, unless a page is larger: short enough to be cancelled, long enough to
/// cost nothing.
const PIECE: u64 = 64 * MIB;

impl<'a> Populate<'a> {
    /// On the calling thread, by the best road.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// On so many threads, the calling one included; see [`usable_cpus`]. 0 counts as 1. More threads than CPUs
    /// gain nothing.
    #[must_use]
    pub fn threads(mut self, n_threads: usize) -> Self {
        self.threads = NonZeroUsize::new(n_threads);
        self
    }

    /// On threads bound to these CPUs, so that memory is cleared near where it lies. The calling thread then
    /// only waits. A CPU that this process may not use is no error: the threads run where they may.
    #[must_use]
    pub fn on_cpus(mut self, cpus: Vec<u32>) -> Self {
        self.cpus = cpus;
        self
    }

    /// By that road.
    #[must_use]
    pub fn road(mut self, road: Road) -> Self {
        self.road = road;
        self
    }

    /// Take that page size for the memory's, for a part of a mapping whose parts differ.
    #[must_use]
    pub fn page(mut self, page: PageSize) -> Self {
        self.page = Some(page);
        self
    }

    /// Calls `progress` with the bytes that are done, ever growing, from the threads that work, one at a time.
    #[must_use]
    pub fn progress(mut self, progress: &'a mut (dyn FnMut(u64) + Send + 'a)) -> Self {
        self.progress = Some(progress);
        self
    }

    /// Asks `cancel` before each piece of at most 64 MiB (or one page) whether to stop.
    #[must_use]
    pub fn cancel(mut self, cancel: &'a (dyn Fn() -> bool + Sync + 'a)) -> Self {
        self.cancel = Some(cancel);
        self
    }

    /// Populates all of it.
    ///
    /// # Errors
    /// See [`PopulateError`].
    pub fn all(self, memory: &dyn Backing) -> Result<Populated, PopulateError> {
        let len = memory.len();
        self.range(memory, 0, len)
    }

    /// Populates `len` bytes from `offset` of it; whole pages where the range ends inside one.
    ///
    /// # Errors
    /// See [`PopulateError`]. The first failure stops all threads.
    pub fn range(
        self,
        memory: &dyn Backing,
        offset: u64,
        len: u64,
    ) -> Result<Populated, PopulateError> {
        let inside = offset
            .checked_add(len)
            .is_some_and(|end| end <= memory.len());
        if !inside || len == 0 || !memory.is_mapped() {
            return Err(PopulateError::NoRange { offset, len });
        }
        let wanted = match self.threads {
            Some(threads) => threads.get(),
            None => self.cpus.len().max(1),
        };
        let page = self.page.unwrap_or_else(|| memory.page()).bytes();
        let pieces = Pieces::new(memory.base() + offset, len, page, wanted);
        let job = Job {
            pieces,
            page,
            page_by_page: match self.road {
                Road::Best => !sys::knows(Advice::PopulateWrite),
                Road::PopulateWrite => false,
                Road::PageByPage => true,
            },
            next: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            cancel: self.cancel,
            state: Mutex::new(State {
                done: 0,
                progress: self.progress,
                failure: None,
            }),
        };
        let useful = usize::try_from(pieces.count()).unwrap_or(usize::MAX);
        let threads = job.run(wanted.min(useful), &self.cpus);
        let road = if job.page_by_page {
            Road::PageByPage
        } else {
            Road::PopulateWrite
        };
        let state = job
            .state
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        match state.failure {
            None => Ok(Populated {
                bytes: len,
                road,
                threads,
            }),
            Some(failure) => Err(failure.explain(page, state.done)),
        }
    }
}

impl fmt::Debug for Populate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Populate")
            .field("threads", &self.threads)
            .field("cpus", &self.cpus)
            .field("road", &self.road)
            .field("page", &self.page)
            .finish_non_exhaustive()
    }
}

/// CPUs that this process can use at the same time: those of the calling thread's affinity mask, but no more than the
/// cgroup's quota pays for. At least 1.
#[must_use]
pub fn usable_cpus(root: &Root) -> usize {
    let allowed = sys::affinity().map_or(1, |cpus| cpus.len());
    let quota = Cgroup::read(root, ProcessId::Own).cpu_millis;
    let paid = quota.map_or(usize::MAX, |millis| sys::size(millis.div_ceil(1000)));
    allowed.min(paid).max(1)
}

/// A range of addresses cut into pieces on page borders.
#[derive(Clone, Copy, Debug)]
struct Pieces {
    /// First address, and the one behind the last.
    start: u64,
    end: u64,
    /// The page border at or below `start`.
    border: u64,
    /// Length of a full piece, a multiple of the page.
    piece: u64,
}

impl Pieces {
    fn new(start: u64, len: u64, page: u64, threads: usize) -> Self {
        let border = start - start % page;
        let end = start + len;
        // A few pieces for each thread, so that none of them waits long at the end.
        let share = (end - border).div_ceil(4 * threads.max(1) as u64);
        let piece = share.clamp(1, PIECE).next_multiple_of(page);
        Self {
            start,
            end,
            border,
            piece,
        }
    }

    fn count(&self) -> u64 {
        (self.end - self.border).div_ceil(self.piece)
    }

    fn get(&self, i: u64) -> Option<(u64, u64)> {
        let from = self.border.checked_add(i.checked_mul(self.piece)?)?;
        let to = from.saturating_add(self.piece).min(self.end);
        (from < self.end).then_some((from.max(self.start), to))
    }
}

struct Job<'a> {
    pieces: Pieces,
    page: u64,
    page_by_page: bool,
    next: AtomicU64,
    stop: AtomicBool,
    cancel: Option<&'a Cancel<'a>>,
    state: Mutex<State<'a>>,
}

struct State<'a> {
    done: u64,
    progress: Option<&'a mut Progress<'a>>,
    failure: Option<Failure>,
}

/// The first thing that went wrong.
#[derive(Clone, Copy, Debug)]
enum Failure {
    Cancelled,
    At { addr: u64, errno: Errno },
}

impl Job<'_> {
    /// Runs on `n` threads and returns how many there were: a thread that the system does not give is done without.
    fn run(&self, n: usize, cpus: &[u32]) -> usize {
        let caller = if cpus.is_empty() {
            Caller::Works
        } else {
            Caller::Waits
        };
        let me = thread::current().id();
        together("hugemr-populate", n, caller, |_| {
            // The caller's own thread stays where it may run.
            if !cpus.is_empty()
                && thread::current().id() != me
                && let Err(errno) = sys::set_affinity(cpus)
            {
                tracing::debug!(%errno, ?cpus, "threads not bound");
            }
            self.work();
        })
    }

    fn work(&self) {
        let _others_stop = StopOnPanic(&self.stop);
        while !self.stop.load(Ordering::Relaxed) {
            if self.cancel.is_some_and(|cancel| cancel()) {
                self.fail(Failure::Cancelled);
                return;
            }
            let i = self.next.fetch_add(1, Ordering::Relaxed);
            let Some((from, to)) = self.pieces.get(i) else {
                return;
            };
            match self.piece(from, to) {
                Ok(()) => self.add(to - from),
                Err((addr, errno)) => self.fail(Failure::At { addr, errno }),
            }
        }
    }

    fn piece(&self, from: u64, to: u64) -> Result<(), (u64, Errno)> {
        if self.page_by_page {
            touch_range(from, to, self.page)
        } else {
            let base = sys::base_page();
            populate_write(from - from % base, to, self.page)
        }
    }

    fn add(&self, bytes: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.done += bytes;
        let done = state.done;
        if let Some(progress) = &mut state.progress {
            progress(done);
        }
    }

    fn fail(&self, failure: Failure) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.failure.get_or_insert(failure);
        drop(state);
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Stops the other threads when the progress or cancel function panics.
struct StopOnPanic<'a>(&'a AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

impl Failure {
    fn explain(self, page: u64, done: u64) -> PopulateError {
        let Self::At { addr, errno } = self else {
            return PopulateError::Cancelled { done };
        };
        let root = Root::real();
        let vma = smaps::mapping_at(&root, addr).ok();
        match (errno, vma) {
            (Errno::EHWPOISON, _) => PopulateError::Poisoned { addr, done },
            (Errno::ENOMEM | Errno::EFAULT, Some(None)) => PopulateError::NotMapped { addr, done },
            (Errno::EINVAL | Errno::EFAULT, Some(Some(vma))) if !vma.writable => {
                PopulateError::NotWritable { addr, done }
            }
            (Errno::EFAULT | Errno::ENOMEM, _) if page > sys::base_page() => {
                out_of_pages(&root, addr, page, done)
            }
            _ => PopulateError::System { addr, errno, done },
        }
    }
}

fn out_of_pages(root: &Root, addr: u64, page: u64, done: u64) -> PopulateError {
    let page = PageSize::new(page).unwrap_or(PageSize::M2);
    let cgroup = Cgroup::read(root, ProcessId::Own);
    let at_limit = cgroup
        .hugetlb(page)
        .find(|limit| limit.left() < page.bytes());
    PopulateError::OutOfPages {
        addr,
        page,
        available: Pools::read(root)
            .of(page)
            .and_then(crate::pools::GlobalPool::available),
        cgroup: at_limit.map(|limit| limit.file.clone()),
        done,
    }
}

impl PopulateError {
    /// Bytes populated before.
    #[must_use]
    pub fn done(&self) -> u64 {
        match self {
            Self::OutOfPages { done, .. }
            | Self::NotMapped { done, .. }
            | Self::NotWritable { done, .. }
            | Self::Poisoned { done, .. }
            | Self::Cancelled { done }
            | Self::System { done, .. } => *done,
            Self::NoRange { .. } => 0,
        }
    }

    /// The address at fault; `None` where there is none.
    #[must_use]
    pub fn addr(&self) -> Option<u64> {
        match self {
            Self::OutOfPages { addr, .. }
            | Self::NotMapped { addr, .. }
            | Self::NotWritable { addr, .. }
            | Self::Poisoned { addr, .. }
            | Self::System { addr, .. } => Some(*addr),
            Self::Cancelled { .. } | Self::NoRange { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests;
