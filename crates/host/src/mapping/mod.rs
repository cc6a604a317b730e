//! Memory that hugemr maps: huge pages, transparent huge pages, base pages, of one kind or mixed in one range.
//!
//! **Fork.** Huge pages and memfds are mapped *shared*, never private: since Linux 5.12 a fork copies pinned private
//! pages at once, which doubles the need and fails with ENOMEM when the pool is too small. Transparent huge pages and
//! base pages have to be private; they are kept out of children by MADV_DONTFORK. So a child shares the former
//! with its parent and does not see the latter; `fork` + `exec` is not affected at all.
//!
//! **Address.** A range that must start at a border larger than its page, or that has several parts, is reserved
//! first (PROT_NONE), and each part then takes its place in it. No mapping is ever made over an existing one: where
//! another thread is faster in the moment between, the whole attempt is given up and repeated.

mod error;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use hugemr_core::backend::Backing;
use hugemr_core::errno::Errno;
use hugemr_core::size::PageSize;

use crate::root::Root;
use crate::sys::{self, Advice, MemPolicy};
pub use error::{MapError, check_cgroup};
use error::{Need, explain};

/// What a part of a mapping is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Huge pages of a pool, shared and anonymous (MAP_HUGETLB). The pages are promised by the kernel when they are
    /// mapped, unless [`MapRequest::without_promise`] was called.
    HugeTlb(PageSize),
    /// A file in memory, shared, whose descriptor can be passed on ([`Mapping::fd`]). With the base page size
    /// it is ordinary shared memory. Its length is sealed, so that nobody can cut it off behind the mapping.
    Memfd(PageSize),
    /// Ordinary private memory at an address where transparent huge pages can be, and the wish for them
    /// (MADV_HUGEPAGE). The kernel may still give base pages: only [`crate::layout`] tells.
    Thp,
    /// Ordinary private memory of base pages, never huge ones (MADV_NOHUGEPAGE).
    Base,
    /// For tests of large ranges on small machines: a memfd of `pages` pages, mapped again and again. The range
    /// shows the same bytes in each repetition, and each repetition counts as one mapping (vm.max_map_count).
    Alias {
        /// Page size.
        page: PageSize,
        /// Pages of the memfd.
        pages: u64,
    },
}

/// From which NUMA nodes the pages of a part come. Set before any page is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// As the policy of the thread that populates it says: normally its own node first, then the others.
    #[default]
    Anywhere,
    /// From these nodes only. Where they have too few free pages the mapping is refused.
    Bind(Vec<u32>),
    /// From these nodes in turn.
    Interleave(Vec<u32>),
}

/// One part of a mapping, in the order of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// What it is made of.
    pub kind: Kind,
    /// Distance from the start of the mapping, bytes.
    pub offset: u64,
    /// Length, bytes; a multiple of its page size.
    pub len: u64,
    /// Its page size (for [`Kind::Thp`] the one that is hoped for).
    pub page: PageSize,
    /// Its nodes.
    pub placement: Placement,
}

impl Part {
    /// Whether the pages come from a pool.
    fn is_hugetlb(&self) -> bool {
        match self.kind {
            Kind::HugeTlb(_) => true,
            Kind::Memfd(page) | Kind::Alias { page, .. } => page.bytes() > sys::base_page(),
            Kind::Thp | Kind::Base => false,
        }
    }

    /// Bytes of memory that it needs.
    fn memory(&self) -> u64 {
        match self.kind {
            Kind::Alias { page, pages } => pages.saturating_mul(page.bytes()).min(self.len),
            _ => self.len,
        }
    }

    /// Mappings of the kernel that it becomes.
    fn maps(&self) -> u64 {
        match self.kind {
            Kind::Alias { .. } => self.len.div_ceil(self.memory().max(1)),
            _ => 1,
        }
    }
}

/// A request for memory.
///
/// ```no_run
/// use hugemr_core::size::{GIB, PageSize};
/// use hugemr_host::mapping::{Kind, MapRequest, Placement};
/// use hugemr_host::root::Root;
///
/// # fn main() -> Result<(), hugemr_host::mapping::MapError> {
/// // 3 GiB of 1 GiB pages and 512 MiB of 2 MiB pages behind them, all of node 0.
/// let memory = MapRequest::new(Kind::HugeTlb(PageSize::G1), 3 * GIB)
///     .on(Placement::Bind(vec![0]))
///     .then(Kind::HugeTlb(PageSize::M2), GIB / 2)
///     .on(Placement::Bind(vec![0]))
///     .map(&Root::real())?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapRequest {
    parts: Vec<(Kind, u64, Placement)>,
    align: u64,
    promise: bool,
}

impl MapRequest {
    /// `len` bytes of one kind, anywhere.
    #[must_use]
    pub fn new(kind: Kind, len: u64) -> Self {
        Self {
            parts: vec![(kind, len, Placement::Anywhere)],
            align: 0,
            promise: true,
        }
    }

    /// And behind it `len` bytes of another kind. Each part must start on a border of its page size, which is so
    /// where larger pages come first.
    #[must_use]
    pub fn then(mut self, kind: Kind, len: u64) -> Self {
        self.parts.push((kind, len, Placement::Anywhere));
        self
    }

    /// Nodes of the part named last.
    #[must_use]
    pub fn on(mut self, placement: Placement) -> Self {
        if let Some((_, _, last)) = self.parts.last_mut() {
            *last = placement;
        }
        self
    }

    /// Start at a multiple of `bytes`, a power of two, for example 1 GiB. At least the largest page size is always
    /// kept.
    #[must_use]
    pub fn align(mut self, bytes: u64) -> Self {
        self.align = bytes;
        self
    }

    /// Do not let the kernel promise the pages when they are mapped (MAP_NORESERVE): a lack of them shows when they
    /// are populated, or, for a program that touches them before, as SIGBUS.
    #[must_use]
    pub fn without_promise(mut self) -> Self {
        self.promise = false;
        self
    }

    /// Maps the memory. Nothing is populated.
    ///
    /// `root` is where pools and limits are read: before mapping (limits of the cgroup, the number of mappings, the
    /// free pages of chosen nodes), and after a failure (to say what was short).
    ///
    /// # Errors
    /// What was asked for, which limit it met, and the way out. Nothing is mapped then.
    pub fn map(&self, root: &Root) -> Result<Mapping, MapError> {
        let (parts, len) = self.parts(root)?;
        let align = self.alignment(&parts)?;
        let need = Need::of(&parts);
        need.check(root)?;
        match self.place(&parts, len, align) {
            Ok((range, fds)) => Ok(Mapping {
                page: smallest(&parts),
                parts,
                fds,
                range,
            }),
            // All that was mapped is gone again, so what is read now is what the next attempt would meet.
            Err(failure) => Err(explain(root, &need, len, failure)),
        }
    }

    /// The parts with their offsets and page sizes, checked; and the length of all.
    fn parts(&self, root: &Root) -> Result<(Vec<Part>, u64), MapError> {
        let mut parts = Vec::with_capacity(self.parts.len());
        let mut offset = 0u64;
        for (kind, len, placement) in &self.parts {
            let page = match kind {
                Kind::HugeTlb(page) | Kind::Memfd(page) | Kind::Alias { page, .. } => *page,
                Kind::Thp => error::thp_page(root)?,
                Kind::Base => base_page(),
            };
            let aliased = !matches!(kind, Kind::Alias { pages: 0, .. });
            if *len == 0 || !len.is_multiple_of(page.bytes()) || !aliased {
                return Err(MapError::Length { len: *len, page });
            }
            if !offset.is_multiple_of(page.bytes()) {
                return Err(MapError::Order { offset, page });
            }
            parts.push(Part {
                kind: *kind,
                offset,
                len: *len,
                page,
                placement: placement.clone(),
            });
            offset = offset
                .checked_add(*len)
                .filter(|end| *end < 1 << 62)
                .ok_or(MapError::TooLong)?;
        }
        Ok((parts, offset))
    }

    fn alignment(&self, parts: &[Part]) -> Result<u64, MapError> {
        let wish = self.align.max(1);
        if !wish.is_power_of_two() || wish > 1 << 46 {
            return Err(MapError::Alignment { align: self.align });
        }
        let page = parts.iter().map(|part| part.page.bytes()).max();
        Ok(wish.max(page.unwrap_or(1)))
    }

    fn place(
        &self,
        parts: &[Part],
        len: u64,
        align: u64,
    ) -> Result<(Range, Vec<Option<OwnedFd>>), Failure> {
        /// Another thread took the place that often in a row: something else is wrong.
        const ATTEMPTS: usize = 64;
        let flags = if self.promise { 0 } else { libc::MAP_NORESERVE };
        if let [part] = parts
            && part.maps() == 1
            && align <= natural_alignment(part)
        {
            let (range, fd) = place_part(part, None, flags)?;
            return Ok((range, vec![fd]));
        }
        let mut attempts = 0;
        loop {
            attempts += 1;
            match place_parts(parts, len, align, flags) {
                Err(failure) if failure.errno == Errno(libc::EEXIST) && attempts < ATTEMPTS => {}
                other => return other,
            }
        }
    }
}

/// A call that failed while a mapping was made.
#[derive(Debug)]
struct Failure {
    call: &'static str,
    errno: Errno,
    /// Page size of the part, or none for the reservation of addresses.
    part: Option<Part>,
}

/// A mapped range that nobody else knows of; unmapped when dropped.
#[derive(Debug)]
struct Range {
    base: u64,
    len: u64,
}

impl Range {
    /// Cuts off and unmaps the first `len` bytes.
    fn drop_front(&mut self, len: u64) {
        let len = len.min(self.len);
        drop(Self {
            base: self.base,
            len,
        });
        self.base += len;
        self.len -= len;
    }

    /// Cuts off and unmaps all but the first `len` bytes.
    fn keep_front(&mut self, len: u64) {
        let len = len.min(self.len);
        drop(Self {
            base: self.base + len,
            len: self.len - len,
        });
        self.len = len;
    }

    /// Takes over a range that follows this one.
    fn join(&mut self, next: Self) {
        debug_assert_eq!(self.base + self.len, next.base);
        self.len += next.len;
        std::mem::forget(next);
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        if self.len == 0 {
            return;
        }
        // SAFETY: the range was mapped by this module, is owned by this value alone, and goes with it.
        if let Err(errno) = unsafe { sys::munmap(self.base, self.len) } {
            tracing::warn!(base = self.base, len = self.len, %errno, "munmap failed");
        }
    }
}

/// Reserves addresses and puts the parts into them. EEXIST where another thread was faster.
fn place_parts(
    parts: &[Part],
    len: u64,
    align: u64,
    flags: i32,
) -> Result<(Range, Vec<Option<OwnedFd>>), Failure> {
    let nothing = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let whole = len + align;
    let reserved = sys::mmap(None, whole, libc::PROT_NONE, nothing, None);
    let base = reserved.map_err(|errno| Failure {
        call: "mmap",
        errno,
        part: None,
    })?;
    let mut rest = Range { base, len: whole };
    rest.drop_front(base.next_multiple_of(align) - base);
    rest.keep_front(len);
    let mut range = Range {
        base: rest.base,
        len: 0,
    };
    let mut fds = Vec::with_capacity(parts.len());
    for part in parts {
        let at = rest.base;
        rest.drop_front(part.len);
        let (next, fd) = place_part(part, Some(at), flags)?;
        range.join(next);
        fds.push(fd);
    }
    Ok((range, fds))
}

/// Maps one part, at exactly `at` or anywhere, with its advice and its nodes.
fn place_part(
    part: &Part,
    at: Option<u64>,
    flags: i32,
) -> Result<(Range, Option<OwnedFd>), Failure> {
    let fail = |call| {
        move |errno| Failure {
            call,
            errno,
            part: Some(part.clone()),
        }
    };
    let shift = i32::try_from(part.page.shift()).unwrap_or(0);
    let (flags, fd) = match part.kind {
        Kind::HugeTlb(_) => {
            let size = libc::MAP_HUGETLB | shift << libc::MAP_HUGE_SHIFT;
            (flags | libc::MAP_SHARED | libc::MAP_ANONYMOUS | size, None)
        }
        Kind::Memfd(_) | Kind::Alias { .. } => {
            let huge = part.is_hugetlb().then_some(part.page.shift());
            let file = sys::memfd(c"hugemr", huge).map_err(fail("memfd_create"))?;
            let file = std::fs::File::from(file);
            file.set_len(part.memory()).map_err(|error| {
                let errno = Errno(error.raw_os_error().unwrap_or(0));
                fail("ftruncate")(errno)
            })?;
            sys::seal_length(file.as_fd()).map_err(fail("fcntl(F_ADD_SEALS)"))?;
            (flags | libc::MAP_SHARED, Some(OwnedFd::from(file)))
        }
        Kind::Thp | Kind::Base => (flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, None),
    };
    let range = place_units(part, at, flags, fd.as_ref().map(AsFd::as_fd)).map_err(fail("mmap"))?;
    let advise = |advice| sys::madvise(range.base, range.len, advice);
    match part.kind {
        Kind::Thp => {
            advise(Advice::HugePage).map_err(fail("madvise(MADV_HUGEPAGE)"))?;
            advise(Advice::DontFork).map_err(fail("madvise(MADV_DONTFORK)"))?;
        }
        Kind::Base => {
            no_huge_pages(&range).map_err(fail("madvise(MADV_NOHUGEPAGE)"))?;
            advise(Advice::DontFork).map_err(fail("madvise(MADV_DONTFORK)"))?;
        }
        Kind::Memfd(_) | Kind::Alias { .. } if !part.is_hugetlb() => {
            no_huge_pages(&range).map_err(fail("madvise(MADV_NOHUGEPAGE)"))?;
        }
        Kind::HugeTlb(_) | Kind::Memfd(_) | Kind::Alias { .. } => {}
    }
    let bound = match &part.placement {
        Placement::Anywhere => Ok(()),
        Placement::Bind(nodes) => sys::mbind(range.base, range.len, MemPolicy::Bind, nodes),
        Placement::Interleave(nodes) => {
            sys::mbind(range.base, range.len, MemPolicy::Interleave, nodes)
        }
    };
    bound.map_err(fail("mbind"))?;
    Ok((range, fd))
}

/// The mmap calls of one part: one, or one for each repetition of an alias.
fn place_units(
    part: &Part,
    at: Option<u64>,
    flags: i32,
    fd: Option<BorrowedFd<'_>>,
) -> Result<Range, Errno> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let unit = part.memory();
    let base = sys::mmap(at, unit, prot, flags, fd)?;
    let mut range = Range { base, len: unit };
    while range.len < part.len {
        let next = (range.base + range.len, unit.min(part.len - range.len));
        let base = sys::mmap(Some(next.0), next.1, prot, flags, fd)?;
        range.join(Range { base, len: next.1 });
    }
    Ok(range)
}

/// A kernel without transparent huge pages answers EINVAL, and needs no advice against them.
fn no_huge_pages(range: &Range) -> Result<(), Errno> {
    match sys::madvise(range.base, range.len, Advice::NoHugePage) {
        Err(Errno::EINVAL) => Ok(()),
        other => other,
    }
}

/// The alignment that mmap gives by itself.
fn natural_alignment(part: &Part) -> u64 {
    if part.is_hugetlb() {
        part.page.bytes()
    } else {
        sys::base_page()
    }
}

fn smallest(parts: &[Part]) -> PageSize {
    let pages = parts.iter().map(|part| part.page);
    pages.min().unwrap_or_else(base_page)
}

fn base_page() -> PageSize {
    PageSize::new(sys::base_page()).unwrap_or(PageSize::K4)
}

/// Memory mapped by [`MapRequest::map`]; unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    range: Range,
    parts: Vec<Part>,
    fds: Vec<Option<OwnedFd>>,
    page: PageSize,
}

impl Mapping {
    /// The parts, in the order of addresses.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The descriptor of a part of kind [`Kind::Memfd`] or [`Kind::Alias`], to be passed to another process.
    ///
    /// Its length is sealed. Who holds it can still punch holes into it (fallocate): the pages of a hole are given
    /// back, and a device that has them registered then uses memory that no process sees any more.
    #[must_use]
    pub fn fd(&self, part: usize) -> Option<BorrowedFd<'_>> {
        self.fds.get(part)?.as_ref().map(AsFd::as_fd)
    }

    /// First byte. Reading and writing through it is the caller's business: touching a page that is not populated
    /// may be a SIGBUS where the pages were not promised.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(sys::size(self.range.base))
    }

    /// Gives the memory up without unmapping it: it stays until the process ends. For memory that a device may
    /// still hold. Returns address and length.
    #[must_use = "the address is the only way back to the memory"]
    pub fn leak(self) -> (u64, u64) {
        let Self { range, .. } = self;
        let place = (range.base, range.len);
        std::mem::forget(range);
        place
    }
}

// SAFETY: the range was mapped readable and writable by `place_part`, is owned by `range` alone, and is unmapped only
// when that is dropped with the value. No safe method changes or removes a part of it; the length of a file behind
// it is sealed.
unsafe impl Backing for Mapping {
    fn base(&self) -> u64 {
        self.range.base
    }
    fn len(&self) -> u64 {
        self.range.len
    }
    fn page(&self) -> PageSize {
        self.page
    }
}

#[cfg(test)]
mod tests;
