//! Memory whose pages lie in a chosen physical order.

use std::os::fd::AsRawFd as _;
use std::sync::Arc;

use hugemr_core::backend::Backing;
use hugemr_core::size::{MIB, PageSize};
use hugemr_host::facts::ProcessId;
use hugemr_host::layout::{PageMap, Stride};
use hugemr_host::mapping::{Kind, MapRequest, Mapping};
use hugemr_host::populate::Populate;
use hugemr_host::root::Root;

use super::{Random, Result};

/// A part of a region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) addr: u64,
    pub(crate) len: u64,
}

/// In which physical order huge pages are mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    /// As the pool hands them out.
    AsGiven,
    /// At random.
    Shuffled(u64),
    /// Ascending.
    Sorted,
}

/// Populated memory.
pub(crate) struct Region {
    base: u64,
    len: u64,
    page: PageSize,
    _keep: Arc<Keep>,
}

/// What keeps it mapped, in the order in which it is let go.
struct Keep {
    view: Option<(u64, usize)>,
    _mapping: Mapping,
}

impl Drop for Keep {
    fn drop(&mut self) {
        if let Some((base, len)) = self.view {
            // SAFETY: our own reservation of `len` bytes, with nothing registered on it: a view of it keeps us alive.
            let failed = unsafe { libc::munmap(base as *mut libc::c_void, len) };
            assert_eq!(failed, 0, "the view was ours");
        }
    }
}

impl Region {
    /// Huge pages in an order.
    pub(crate) fn huge(page: PageSize, pages: u64, order: Order) -> Result<Self> {
        let len = pages * page.bytes();
        let mapping = MapRequest::new(Kind::Memfd(page), len).map(&Root::real())?;
        Populate::new().all(&mapping)?;
        let mut list: Vec<u64> = (0..pages).collect();
        match order {
            Order::AsGiven => return Ok(Self::of(mapping, None, page)),
            Order::Shuffled(seed) => shuffle(&mut list, seed),
            Order::Sorted => {
                let map = PageMap::open(&Root::real(), ProcessId::Own)?;
                let mut frames = Vec::new();
                for i in &list {
                    let at = mapping.base() + i * page.bytes();
                    frames.push(map.runs(at, page.bytes(), Stride::Huge(page), 1)?[0].phys);
                }
                list.sort_by_key(|i| frames[usize::try_from(*i).unwrap_or(0)]);
            }
        }
        let view = view(&mapping, page, &list)?;
        let region = Self::of(mapping, Some(view), page);
        // The pages are there; the second mapping must still be told where.
        let whole = region.view(Range {
            addr: region.base,
            len: region.len,
        });
        Populate::new().page(page).all(&whole)?;
        Ok(region)
    }

    /// Base pages, touched in random order so that neighbours are none.
    pub(crate) fn base(pages: u64, seed: u64) -> Result<Self> {
        let mapping = MapRequest::new(Kind::Base, pages * 4096).map(&Root::real())?;
        touch_at_random(&mapping, 0, pages, seed)?;
        Ok(Self::of(mapping, None, PageSize::K4))
    }

    /// Transparent huge pages, if the kernel has them.
    pub(crate) fn transparent(pages: u64) -> Result<Self> {
        let mapping = MapRequest::new(Kind::Thp, pages * 2 * MIB).map(&Root::real())?;
        Populate::new().page(PageSize::K4).all(&mapping)?;
        Ok(Self::of(mapping, None, PageSize::K4))
    }

    /// Huge pages and base pages behind them.
    pub(crate) fn mixed(huge: u64, base: u64, seed: u64) -> Result<Self> {
        let first = huge * PageSize::M2.bytes();
        let mapping = MapRequest::new(Kind::HugeTlb(PageSize::M2), first)
            .then(Kind::Base, base * 4096)
            .map(&Root::real())?;
        Populate::new()
            .page(PageSize::M2)
            .range(&mapping, 0, first)?;
        touch_at_random(&mapping, first, base, seed)?;
        Ok(Self::of(mapping, None, PageSize::K4))
    }

    fn of(mapping: Mapping, view: Option<(u64, usize)>, page: PageSize) -> Self {
        let (base, len) = (view.map_or(mapping.base(), |view| view.0), mapping.len());
        Self {
            base,
            len,
            page,
            _keep: Arc::new(Keep {
                view,
                _mapping: mapping,
            }),
        }
    }

    pub(crate) fn base_addr(&self) -> u64 {
        self.base
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn page(&self) -> PageSize {
        self.page
    }

    /// A part of it, to be registered.
    pub(crate) fn view(&self, range: Range) -> View {
        View {
            range,
            _keep: Arc::clone(&self._keep),
        }
    }
}

/// A part of a region that keeps it mapped.
pub(crate) struct View {
    range: Range,
    _keep: Arc<Keep>,
}

// SAFETY: the range lies inside the region, which stays mapped and writable as long as `_keep` lives, leaked or not.
unsafe impl Backing for View {
    fn base(&self) -> u64 {
        self.range.addr
    }
    fn len(&self) -> u64 {
        self.range.len
    }
    fn page(&self) -> PageSize {
        PageSize::K4
    }
}

fn shuffle(list: &mut [u64], seed: u64) {
    let mut random = Random(seed);
    for i in (1..list.len()).rev() {
        let j = usize::try_from(random.between(0, i as u64)).unwrap_or(0);
        list.swap(i, j);
    }
}

fn touch_at_random(mapping: &Mapping, offset: u64, pages: u64, seed: u64) -> Result<()> {
    let mut list: Vec<u64> = (0..pages).collect();
    shuffle(&mut list, seed);
    for i in list {
        Populate::new()
            .page(PageSize::K4)
            .range(mapping, offset + i * 4096, 4096)?;
    }
    Ok(())
}

/// The pages of a memfd mapped a second time, in another order, at an address as aligned as 1 GiB.
fn view(mapping: &Mapping, page: PageSize, order: &[u64]) -> Result<(u64, usize)> {
    let fd = mapping.fd(0).ok_or("a memfd has a descriptor")?.as_raw_fd();
    let size = usize::try_from(page.bytes())?;
    let align = usize::try_from(PageSize::G1.bytes())?;
    let len = size * order.len() + 2 * align;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new reservation, at an address of the kernel's choice.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error().into());
    }
    let base = (at as usize).next_multiple_of(align);
    for (i, from) in order.iter().enumerate() {
        let to = (base + i * size) as *mut libc::c_void;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let offset = libc::off_t::try_from(from * page.bytes())?;
        // SAFETY: inside our own reservation, whose pages nobody uses yet.
        let mapped = unsafe { libc::mmap(to, size, protection, flags, fd, offset) };
        if mapped == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().into());
        }
    }
    Ok((base as u64, size * order.len()))
}
