//! What is asked: a wish, and how it may be fulfilled.

use std::fmt;

use crate::fact::Source;
use crate::size::PageSize;

/// What is to be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// One range of that many bytes, mapped by hugemr.
    Total(u64),
    /// Several buffers of that many bytes each, one after another, each mapped on its own borders.
    Buffers(Vec<u64>),
    /// Memory that the caller has already: it is cut where it lies, and never rounded.
    Adopted {
        /// First address.
        addr: u64,
        /// Length, bytes.
        len: u64,
    },
}

/// Which pages are to back the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pages {
    /// The huge pages with which it fits: 2 MiB, else 1 GiB, else both.
    #[default]
    Auto,
    /// Pages of this size, and no others. 4 KiB means really 4 KiB.
    Only(PageSize),
    /// Transparent huge pages: 2 MiB where the kernel has them at hand, 4 KiB elsewhere.
    Thp,
    /// The largest huge pages first, as many as are free, then smaller ones.
    Mixed,
}

/// Entries of the device's table to leave free for others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leave {
    /// None.
    #[default]
    Nothing,
    /// So many.
    Entries(u64),
    /// So many hundredths of the budget.
    PerCent(u8),
}

/// As the flag takes it.
impl fmt::Display for Leave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("0"),
            Self::Entries(n) => n.fmt(f),
            Self::PerCent(p) => write!(f, "{p}%"),
        }
    }
}

/// Another use of the same device that will come: for example GPU buffers in pages of 64 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherUse {
    /// Bytes.
    pub bytes: u64,
    /// Page size in which the device sees them.
    pub page: PageSize,
}

/// An application that cuts the mapping itself into equal pieces, and registers each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Number of pieces.
    pub pieces: u64,
    /// Whether the mapping is to be rounded up so that each piece is a multiple of the page.
    pub align: bool,
}

/// Whether `ibv_fork_init` rules the process (erdma-independent, rdma-core's `libibverbs/memory.c`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForkSafety {
    /// `ibv_fork_init` was called, or `RDMAV_FORK_SAFE` is set.
    pub init: bool,
    /// `RDMAV_HUGEPAGES_SAFE` is set.
    pub hugepages_safe: bool,
}

/// A whole request. [`PlanRequest::new`] has the defaults; the fields are public and independent of each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRequest {
    /// What is to be registered.
    pub wish: Wish,
    /// On which pages.
    pub pages: Pages,
    /// Unit of the application that no border may cut, bytes.
    pub block: Option<u64>,
    /// How the application will cut the mapping itself.
    pub split: Option<Split>,
    /// Length of an MR, bytes, instead of the one that hugemr would choose.
    pub chunk: Option<u64>,
    /// Limit of an MR's length, bytes, instead of the advertised `max_mr_size`.
    pub max_mr_size: Option<u64>,
    /// Where that limit comes from; `None`: from the flag.
    pub max_mr_size_from: Option<Source>,
    /// One MR for each buffer: no chunks.
    pub single: bool,
    /// Reckon with no defect: chunks are bounded by limits only.
    pub ignore_quirks: bool,
    /// Devices that each register all of it.
    pub devices: u64,
    /// Protection domains that each register all of it on each device.
    pub pds: u64,
    /// Processes that each map and register all of it for themselves.
    pub processes: u64,
    /// What to leave free of the table.
    pub leave: Leave,
    /// What else will use the table.
    pub others: Vec<OtherUse>,
    /// Fork safety of the process.
    pub fork: ForkSafety,
}

impl PlanRequest {
    /// One device, one PD, one process; pages chosen; nothing left free.
    #[must_use]
    pub fn new(wish: Wish) -> Self {
        Self {
            wish,
            pages: Pages::Auto,
            block: None,
            split: None,
            chunk: None,
            max_mr_size: None,
            max_mr_size_from: None,
            single: false,
            ignore_quirks: false,
            devices: 1,
            pds: 1,
            processes: 1,
            leave: Leave::Nothing,
            others: Vec::new(),
            fork: ForkSafety::default(),
        }
    }

    /// One range of `bytes`.
    #[must_use]
    pub fn total(bytes: u64) -> Self {
        Self::new(Wish::Total(bytes))
    }

    /// The same with pages of that kind.
    #[must_use]
    pub fn pages(mut self, pages: Pages) -> Self {
        self.pages = pages;
        self
    }

    /// Bytes asked for, of all buffers of one process; saturating.
    #[must_use]
    pub fn wanted(&self) -> u64 {
        match &self.wish {
            Wish::Total(len) | Wish::Adopted { len, .. } => *len,
            Wish::Buffers(lens) => lens.iter().fold(0, |sum, len| sum.saturating_add(*len)),
        }
    }
}
