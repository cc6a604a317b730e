//! The answer to a request: a plan with its own arithmetic, or a refusal that says the way out.

use std::fmt;

use crate::chunks::{Chunk, Segment};
use crate::device::Device;
use crate::errno::Errno;
use crate::fact::{Fit, Limit};
use crate::quirk::{Quirk, QuirkState};
use crate::size::{Bytes, Count, Grouped, MIB, PageSize, plural};

use super::request::{Leave, Pages, PlanRequest, Wish};

/// Whether the plan can be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Within every known limit.
    Fits,
    /// Within every known limit but the advertised `max_mr_size`, which the request overrides.
    OkOverride,
    /// Between what certainly fits and what certainly does not.
    Undecided,
    /// It does not fit.
    Refused(Code),
}

/// Why a plan is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// Nothing is asked for.
    Empty,
    /// More than an address space, or a product beyond 2^64 - 1.
    TooBig,
    /// An MR would be longer than the limit.
    TooLong,
    /// The limit is below one page.
    LimitBelowPage,
    /// The limit is below one step (page and application block together).
    BlockAboveLimit,
    /// The chunk asked for is no multiple of the step.
    ChunkOffStep,
    /// The device offers no page size that this memory has.
    PageUnsupported,
    /// The chunk asked for meets a defect.
    Defect(Quirk),
    /// One MR would need more entries than one MR may have.
    OverPerMrEntries,
    /// More MRs than the device has.
    OverMrCount,
    /// More entries than the device has.
    OverBudget,
    /// Fewer huge pages are free than are needed.
    HugepageShort,
    /// The cgroup allows fewer bytes of huge pages.
    HugetlbCgroup,
    /// Pages of no pool need more memory than is available.
    MemoryShort,
    /// The process may not pin that much.
    Memlock,
}

impl Code {
    /// The stable name, as in the JSON output and in replay vectors.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::TooBig => "too_big",
            Self::TooLong => "too_long",
            Self::LimitBelowPage => "limit_below_page",
            Self::BlockAboveLimit => "block_above_limit",
            Self::ChunkOffStep => "chunk_off_step",
            Self::PageUnsupported => "page_unsupported",
            Self::Defect(quirk) => quirk.code(),
            Self::OverPerMrEntries => "over_per_mr_entries",
            Self::OverMrCount => "over_mr_count",
            Self::OverBudget => "over_budget",
            Self::HugepageShort => "hugepage_short",
            Self::HugetlbCgroup => "hugetlb_cgroup",
            Self::MemoryShort => "memory_short",
            Self::Memlock => "memlock",
        }
    }

    /// What `ibv_reg_mr` (or mmap) would leave in errno; `None` where it would succeed and be wrong, or where there
    /// is nothing to call.
    #[must_use]
    pub fn errno(self, device: &Device) -> Option<Errno> {
        let dialect = device.family.dialect();
        match self {
            Self::Empty | Self::TooLong | Self::LimitBelowPage | Self::PageUnsupported => {
                Some(dialect.too_long)
            }
            Self::OverPerMrEntries => Some(dialect.over_per_mr),
            Self::OverMrCount => Some(dialect.over_mr_count),
            Self::OverBudget => Some(dialect.over_budget),
            Self::HugepageShort | Self::HugetlbCgroup | Self::Memlock => Some(Errno::ENOMEM),
            Self::Defect(Quirk::ScatterBoundary) => Some(dialect.over_budget),
            Self::Defect(Quirk::ContiguousTable) => Some(Errno::ENOMEM),
            Self::Defect(Quirk::IommuPadding) => Some(Errno::EOVERFLOW),
            Self::TooBig | Self::BlockAboveLimit | Self::ChunkOffStep | Self::Defect(_) => None,
            // Populating does not fail: the kernel kills a process instead.
            Self::MemoryShort => None,
        }
    }
}

impl Verdict {
    /// The stable name: `fits`, `ok_override`, `undecided`, or that of the refusal's code.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fits => "fits",
            Self::OkOverride => "ok_override",
            Self::Undecided => "undecided",
            Self::Refused(code) => code.name(),
        }
    }

    /// The code of a refusal.
    #[must_use]
    pub const fn refused(self) -> Option<Code> {
        match self {
            Self::Refused(code) => Some(code),
            _ => None,
        }
    }
}

/// Something of which there is only so much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Bytes of the longest MR.
    MrLength,
    /// MRs of the device.
    MrCount,
    /// Entries of the device's table.
    Entries,
    /// Entries of the largest MR.
    EntriesPerMr,
    /// Free huge pages of that size.
    HugePages(PageSize),
    /// Bytes of huge pages of that size under the cgroup's limit.
    Cgroup(PageSize),
    /// Bytes of memory for pages of no pool.
    Memory,
    /// Bytes that the process pins.
    Memlock,
}

/// One line of the plan's arithmetic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Of what.
    pub resource: Resource,
    /// How much, at best and at worst. They differ where the page size is not certain.
    pub need: (u64, u64),
    /// What is available; `None`: not read.
    pub limit: Option<Limit>,
}

impl Check {
    /// Whether it fits; what was not read is not judged.
    #[must_use]
    pub fn fit(&self) -> Fit {
        let Some(limit) = &self.limit else {
            return Fit::Fits;
        };
        match (limit.fit(self.need.0), limit.fit(self.need.1)) {
            (Fit::Over, _) => Fit::Over,
            (_, Fit::Fits) => Fit::Fits,
            _ => Fit::Undecided,
        }
    }
}

/// What bounds the chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkBound {
    /// The request says so.
    Asked,
    /// `max_mr_size`, or its override.
    MaxMrSize,
    /// Entries of one MR.
    EntriesPerMr,
    /// A defect that longer MRs would meet.
    Quirk(Quirk),
    /// Nothing: each buffer is one MR.
    Nothing,
}

/// Another kind of pages that was considered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alternative {
    /// Which pages.
    pub pages: Pages,
    /// What would have come of it.
    pub verdict: Verdict,
    /// MRs, entries at best and at worst.
    pub mrs: u64,
    /// Entries at best and at worst.
    pub entries: (u64, u64),
    /// Length of a full chunk, bytes.
    pub chunk: u64,
    /// Pages of pools, by size.
    pub huge_pages: Vec<(PageSize, u64)>,
}

/// How the pieces of an application that cuts the mapping itself come out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitReport {
    /// Length of a piece of the mapping as rounded to whole pages, bytes (rounded down).
    pub piece: u64,
    /// Whether each piece is a whole number of pages.
    pub aligned: bool,
    /// The smallest mapping of which each piece is a whole number of pages, bytes.
    pub aligned_mapping: u64,
    /// What that mapping is a multiple of, bytes.
    pub mapping_align: u64,
}

/// A plan: how the range is cut, and the arithmetic that says whether it can be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Whether it can be carried out.
    pub verdict: Verdict,
    /// Which pages, as decided.
    pub pages: Pages,
    /// Bytes asked for.
    pub wanted: u64,
    /// Bytes that are mapped and registered: `wanted` rounded up to whole pages (adopted memory: as it is).
    pub mapped: u64,
    /// The range, cut; one segment for each buffer and page size.
    pub segments: Vec<Segment>,
    /// Borders are multiples of this, bytes (of the first segment).
    pub step: u64,
    /// Length of a full chunk of the first segment, bytes.
    pub chunk: u64,
    /// What bounds the chunks.
    pub bound: ChunkBound,
    /// MRs on one device in one PD.
    pub mrs: u64,
    /// Entries on one device in one PD, at best and at worst.
    pub entries: (u64, u64),
    /// Pages of pools, by size; none for transparent huge pages, which are of no pool.
    pub huge_pages: Vec<(PageSize, u64)>,
    /// Bytes pinned, of all devices and PDs, as RLIMIT_MEMLOCK counts them.
    pub pinned: u64,
    /// Registrations of all devices and PDs.
    pub registrations: u64,
    /// Bytes mapped by all processes together.
    pub accounted: u64,
    /// Kernel memory for the tables of all devices and PDs, bytes: 8 for each entry, 32 for each physical run.
    pub kernel_memory: u64,
    /// The arithmetic.
    pub checks: Vec<Check>,
    /// Known defects of the platform, present or not.
    pub quirks: Vec<QuirkState>,
    /// Defects that an MR of this plan can meet (only where the request insists).
    pub hit: Vec<Quirk>,
    /// Where it does not fit: the first MR that would fail, counted from 0, and its errno.
    pub first_failure: Option<(u64, Errno)>,
    /// Other kinds of pages that were considered, with what would have come of them.
    pub alternatives: Vec<Alternative>,
    /// How the application's own pieces come out.
    pub split: Option<SplitReport>,
    /// What registering the raw range (not rounded) would give under `ibv_fork_init`: `madvise` refuses parts of
    /// huge pages.
    pub fork_hazard: Option<Errno>,
}

impl Plan {
    /// All MRs in order, lazily.
    pub fn chunks(&self) -> impl Iterator<Item = Chunk> + '_ {
        self.segments.iter().flat_map(Segment::chunks)
    }

    /// What is mapped besides pages of pools, bytes of one process: memory that is taken when it is populated.
    #[must_use]
    pub fn of_no_pool(&self) -> u64 {
        let pools = self.huge_pages.iter();
        let pooled = pools.map(|(page, count)| page.bytes().saturating_mul(*count));
        self.mapped
            .saturating_sub(pooled.fold(0, u64::saturating_add))
    }

    /// The line of the arithmetic for a resource.
    #[must_use]
    pub fn check(&self, resource: Resource) -> Option<&Check> {
        self.checks.iter().find(|check| check.resource == resource)
    }
}

/// The largest size that would fit, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxFit {
    /// Certainly fits; 0 where nothing certainly does.
    pub certain: u64,
    /// Above it nothing fits; `None`: no bound is known.
    pub at_most: Option<u64>,
}

/// A way out of a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WayOut {
    /// Other pages, with what comes of them.
    Pages(Alternative),
    /// So many more huge pages.
    Reserve {
        /// Of this size.
        page: PageSize,
        /// Missing.
        short: u64,
        /// Needed in all.
        need: u64,
    },
    /// At most so many bytes.
    Smaller(u64),
    /// Chunks of at least so many bytes.
    LongerChunks(u64),
    /// Chunks of at most so many bytes.
    ShorterChunks(u64),
    /// Neither a chunk nor a single MR asked for: the planner's own chunks, of so many bytes.
    OwnChunks(u64),
    /// A limit of at least so many bytes for each MR, where the device allows it (`--max-mr-size`).
    Override(u64),
    /// A limit of at least so many pinned bytes.
    Memlock(u64),
    /// At most so many entries left free for others (`--leave`).
    Leave(u64),
    /// A version that lifts the defect.
    Lift(Quirk, &'static str),
}

impl WayOut {
    /// The request with what this way changes in it; `None` where something else is to be changed: the host, the device,
    /// or what is known of them.
    #[must_use]
    pub fn applied(&self, request: &PlanRequest) -> Option<PlanRequest> {
        let mut changed = request.clone();
        match *self {
            Self::Pages(ref other) => changed.pages = other.pages,
            Self::Smaller(len) => {
                changed.wish = match request.wish {
                    Wish::Adopted { addr, .. } => Wish::Adopted { addr, len },
                    Wish::Total(_) | Wish::Buffers(_) => Wish::Total(len),
                }
            }
            Self::LongerChunks(len) | Self::ShorterChunks(len) => {
                (changed.chunk, changed.single) = (Some(len), false);
            }
            Self::OwnChunks(_) => (changed.chunk, changed.single) = (None, false),
            Self::Override(len) => changed.max_mr_size = Some(len),
            Self::Leave(0) => changed.leave = Leave::Nothing,
            Self::Leave(entries) => changed.leave = Leave::Entries(entries),
            Self::Reserve { .. } | Self::Memlock(_) | Self::Lift(..) => return None,
        }
        Some(changed)
    }
}

/// The command after which so many huge pages are free.
#[must_use]
pub fn reserve_command(page: PageSize, pages: u64) -> String {
    let size = Bytes(pages.saturating_mul(page.bytes())).argument();
    let pages = match page {
        PageSize::M2 => String::new(),
        page => format!(" --pages {}", Bytes(page.bytes()).argument()),
    };
    format!("sudo hugemr reserve {size}{pages}")
}

/// A plan that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub code: Code,
    /// The limit, the need and what is available, in one sentence.
    pub text: String,
    /// What the device or the kernel would answer; `None` where neither would refuse, as for what is only kept for others.
    pub errno: Option<Errno>,
    /// The largest size that would fit with the same pages; `None` where no size would.
    pub max_fit: Option<MaxFit>,
    /// Shortest first.
    pub ways_out: Vec<WayOut>,
    /// The plan that would be carried out by force; `None` where no tiling exists.
    pub plan: Option<Box<Plan>>,
}

impl Refusal {
    /// The check that the plan does not pass, with the limit that it meets; `None` where no limit refused it.
    #[must_use]
    pub fn met(&self) -> Option<&Check> {
        let is_of_code = |resource| match resource {
            Resource::MrLength => self.code == Code::TooLong,
            Resource::MrCount => self.code == Code::OverMrCount,
            Resource::Entries => self.code == Code::OverBudget,
            Resource::EntriesPerMr => self.code == Code::OverPerMrEntries,
            Resource::HugePages(_) => self.code == Code::HugepageShort,
            Resource::Cgroup(_) => self.code == Code::HugetlbCgroup,
            Resource::Memory => self.code == Code::MemoryShort,
            Resource::Memlock => self.code == Code::Memlock,
        };
        let checks = &self.plan.as_ref()?.checks;
        checks
            .iter()
            .find(|check| is_of_code(check.resource) && check.fit() == Fit::Over)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Refusal {}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Only(page) => page.fmt(f),
            Self::Thp => f.write_str("THP"),
            Self::Mixed => f.write_str("mixed"),
        }
    }
}

/// The sentence of a check that does not fit.
pub(super) fn shortage(check: &Check) -> String {
    let need = check.need.0;
    let have = check.limit.as_ref().and_then(Limit::at_most).unwrap_or(0);
    let h = Grouped(have);
    match check.resource {
        Resource::MrLength => {
            format!(
                "an MR of {} is longer than the limit of {}",
                Bytes(need),
                Bytes(have)
            )
        }
        Resource::MrCount => format!("needs {}, the device has {h}", Count(need, "MR")),
        Resource::Entries => format!(
            "needs {}, the device has {h} ({})",
            Count(need, "MTT entry"),
            Ratio(need, have)
        ),
        Resource::EntriesPerMr => format!(
            "an MR of {} is above the {h} that one MR may have",
            Count(need, "entry")
        ),
        Resource::HugePages(page) => {
            let short = need.saturating_sub(have);
            format!(
                "needs {} of {page}, {h} {} free: short by {} ({})",
                Count(need, "huge page"),
                plural(have, "is", "are"),
                Grouped(short),
                Bytes(short.saturating_mul(page.bytes()))
            )
        }
        Resource::Cgroup(page) => format!(
            "needs {} of {page} huge pages, the cgroup allows {}",
            Bytes(need),
            Bytes(have)
        ),
        Resource::Memory => format!(
            "needs {} of memory, {} can be had: the kernel would kill a process for the rest",
            Bytes(need),
            Bytes(have / MIB * MIB),
        ),
        Resource::Memlock => format!(
            "pins {} KiB, RLIMIT_MEMLOCK leaves {} KiB",
            Grouped(need.div_ceil(1024)),
            Grouped(have / 1024)
        ),
    }
}

/// `need / have` with one decimal, rounded: `7.0 x`.
struct Ratio(u64, u64);

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.1 == 0 {
            return f.write_str("nothing is left");
        }
        let have = u128::from(self.1);
        let tenths = (u128::from(self.0) * 10 + have / 2) / have;
        let whole = u64::try_from(tenths / 10).unwrap_or(u64::MAX);
        write!(f, "{}.{} x", Grouped(whole), tenths % 10)
    }
}
