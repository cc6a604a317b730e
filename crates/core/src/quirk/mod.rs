//! Known defects of kernels and drivers: which versions, what they do to an MR, and the cap that avoids them.
//!
//! Each defect is keyed by the kind of driver: the in-tree one is as old as the kernel, the vendor's is counted in
//! bundle versions. On a host an unknown version counts as affected ([`Presumption`](crate::host::Presumption)), and
//! the state says which fact would lift it.

mod versions;

use std::fmt;

use crate::device::Family;
use crate::host::Platform;
use crate::size::{GIB, PageSize};

pub use versions::kernel_has_scatter_fix;
use versions::{absent, contiguous_table, iommu_padding, no_large_pages, scatter, wire_length};

/// Longest segment that a driver with `max_segment_size` `UINT_MAX` gets, bytes: 4 GiB less one page.
/// Linux `lib/scatterlist.c` aligns the maximum down to a page; erdma sets `UINT_MAX` (`erdma_main.c`, 6.1 to 7.3).
pub const SEGMENT_CAP: u64 = 4 * GIB - 4096;

/// Entries that fit a contiguous table of 4 MiB, the largest block of the page allocator: `erdma_verbs.c`, 6.1.
pub const CONTIGUOUS_ENTRIES: u64 = 524_288;

/// Up to this many entries the driver uses a one-level table, and the short form of the command (erdma, 6.6 to 7.3).
pub const ONE_LEVEL_ENTRIES: u64 = 512;

/// A known defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Quirk {
    /// `ib_umem_find_best_pgsz` falls back to 4 KiB where 4 GiB or more are physically contiguous.
    ScatterBoundary,
    /// The driver sends only the low 32 bits of the length of an MR of 4 GiB or more.
    WireLength,
    /// The kernel has no choice of page size: always 4 KiB.
    NoLargePages,
    /// The driver's table must be one contiguous block: 524,288 entries for one MR.
    ContiguousTable,
    /// The advertised `max_mr_size` is really a number of entries times 4 KiB: larger pages allow longer MRs.
    DisguisedSize,
    /// With an IOMMU, a contiguous run of 4 GiB and more needs padding that overflows 32 bits.
    IommuPadding,
}

/// Whether a defect is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The versions are known and affected.
    Present,
    /// A version is not known, and so it counts as affected.
    Presumed,
    /// Not affected.
    Absent,
}

/// A defect on one platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuirkState {
    /// Which.
    pub quirk: Quirk,
    /// Whether it is there.
    pub presence: Presence,
    /// The versions that decide it, for a person.
    pub why: String,
    /// The flag or fact that would lift it; empty where it is absent.
    pub lifted_by: &'static str,
    /// Whether it is there only where an MR has at most this many entries.
    pub only_up_to_entries: Option<u64>,
}

impl Quirk {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::ScatterBoundary,
        Self::WireLength,
        Self::NoLargePages,
        Self::ContiguousTable,
        Self::DisguisedSize,
        Self::IommuPadding,
    ];

    /// A few words for a table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ScatterBoundary => "scatter at 4 GiB",
            Self::WireLength => "32-bit length",
            Self::NoLargePages => "no large pages",
            Self::ContiguousTable => "contiguous table",
            Self::DisguisedSize => "size is a count",
            Self::IommuPadding => "IOMMU padding",
        }
    }

    /// The code of a refusal that this defect causes.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::ScatterBoundary => "kernel_bug_scatter",
            Self::WireLength => "driver_bug_length",
            Self::NoLargePages => "no_large_pages",
            Self::ContiguousTable => "contiguous_table",
            Self::DisguisedSize => "disguised_size",
            Self::IommuPadding => "iommu_padding",
        }
    }

    /// What it does, in one sentence.
    #[must_use]
    pub const fn effect(self) -> &'static str {
        match self {
            Self::ScatterBoundary => {
                "an MR with 4 GiB or more in one physical run gets 4 KiB pages: 262,144 entries a GiB"
            }
            Self::WireLength => {
                "an MR of 4 GiB or more reaches the device with its length modulo 4 GiB, and the call succeeds"
            }
            Self::NoLargePages => "every MR gets 4 KiB pages, whatever backs it",
            Self::ContiguousTable => "an MR of more than 524,288 entries fails with ENOMEM",
            Self::DisguisedSize => {
                "with pages above 4 KiB longer MRs than max_mr_size work (--max-mr-size)"
            }
            Self::IommuPadding => {
                "an MR with 4 GiB or more in one physical run fails with EOVERFLOW, or is mapped short"
            }
        }
    }

    /// Public source of the knowledge.
    #[must_use]
    pub const fn source(self) -> &'static str {
        match self {
            Self::ScatterBoundary => {
                "Linux 486055f5e09d (6.15, 6.12.31, 6.1.141); erdma_installer 1.5.2"
            }
            Self::WireLength => {
                "Linux erdma_verbs.c 6.1 to 7.3; erdma_installer 1.5.7 release note"
            }
            Self::NoLargePages => "Linux 5.2 introduced ib_umem_find_best_pgsz",
            Self::ContiguousTable => "Linux erdma_verbs.c 6.1; later without capability MTT_VA",
            Self::DisguisedSize => "kvcache-ai/Mooncake#4168, ofiwg/libfabric#10402",
            Self::IommuPadding => "Linux drivers/iommu/dma-iommu.c 6.1, 6.12, 7.3",
        }
    }

    /// State of the defect on a platform, for a family of devices.
    #[must_use]
    pub fn on(self, platform: &Platform, family: Family) -> QuirkState {
        let (presence, why, lifted_by, only_up_to_entries) = match self {
            Self::ScatterBoundary => scatter(platform, family),
            Self::WireLength if family == Family::Erdma => wire_length(platform),
            Self::ContiguousTable if family == Family::Erdma => contiguous_table(platform),
            Self::WireLength | Self::ContiguousTable => absent("not this family"),
            Self::NoLargePages => no_large_pages(platform),
            Self::DisguisedSize => match family {
                Family::Efa | Family::Ionic => (
                    Presence::Present,
                    family.name().to_owned(),
                    "--max-mr-size",
                    None,
                ),
                _ => absent("not this family"),
            },
            Self::IommuPadding => iommu_padding(platform),
        };
        QuirkState {
            quirk: self,
            presence,
            why,
            lifted_by,
            only_up_to_entries,
        }
    }
}

impl QuirkState {
    /// Whether the defect must be reckoned with.
    #[must_use]
    pub const fn counts(&self) -> bool {
        !matches!(self.presence, Presence::Absent)
    }

    /// Whether an MR of `len` bytes with `entries` entries, on pages of `page`, can meet the defect.
    #[must_use]
    pub fn can_hit(&self, len: u64, page: PageSize, entries: u64) -> bool {
        self.counts()
            && match self.quirk {
                Quirk::ScatterBoundary => len > SEGMENT_CAP && page > PageSize::K4,
                Quirk::IommuPadding => len > SEGMENT_CAP,
                Quirk::WireLength => {
                    len >= 4 * GIB && self.only_up_to_entries.is_none_or(|most| entries <= most)
                }
                Quirk::NoLargePages => page > PageSize::K4,
                Quirk::ContiguousTable => entries > CONTIGUOUS_ENTRIES,
                Quirk::DisguisedSize => false,
            }
    }

    /// The longest MR on pages of `page` (as the device sees them) that can never meet the defect, bytes.
    /// `None`: no cap needed, or none helps.
    #[must_use]
    pub fn cap(&self, page: PageSize) -> Option<u64> {
        if !self.counts() {
            return None;
        }
        match self.quirk {
            Quirk::ScatterBoundary => (page > PageSize::K4).then_some(SEGMENT_CAP),
            Quirk::IommuPadding => Some(SEGMENT_CAP),
            // A chunk of exactly 4 GiB has 4 GiB / page entries: with pages of 8 MiB and more a chunk, if only
            // the last one, can fall into the short form.
            Quirk::WireLength => {
                let reachable = self
                    .only_up_to_entries
                    .is_none_or(|most| 4 * GIB / page.bytes().min(4 * GIB) <= most);
                reachable.then_some(4 * GIB - 1)
            }
            Quirk::ContiguousTable => page.bytes().checked_mul(CONTIGUOUS_ENTRIES),
            Quirk::NoLargePages | Quirk::DisguisedSize => None,
        }
    }
}

impl fmt::Display for Quirk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// All defects of a platform, present or not.
#[must_use]
pub fn states(platform: &Platform, family: Family) -> Vec<QuirkState> {
    Quirk::ALL
        .iter()
        .map(|quirk| quirk.on(platform, family))
        .collect()
}

#[cfg(test)]
mod tests;
