//! The host as plain data: kernel and driver, NUMA nodes with their pools, limits of the process.
//!
//! Nothing here is read from anywhere; `hugemr-host` fills it on Linux, a simulated profile states it.

use crate::fact::{Limit, Source};
use crate::size::PageSize;
use crate::version::{BundleVersion, KernelVersion};

/// Which driver drives the device, and so in which number space its fixes are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Driver {
    /// The one in the kernel's tree: its version is the kernel's.
    InTree,
    /// The vendor's, of this installer bundle where known.
    Vendor(Option<BundleVersion>),
    /// Not known: either of them.
    #[default]
    Unknown,
}

/// What an unknown version means for a defect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Presumption {
    /// On a host: affected, until a fact lifts it.
    #[default]
    Affected,
    /// In a replayed report, which states what mattered: not affected.
    Unaffected,
}

/// Kernel and driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Platform {
    /// Upstream version of the kernel.
    pub kernel: Option<KernelVersion>,
    /// Driver of the device.
    pub driver: Driver,
    /// Whether the kernel has the page-size fix of 2025, where that is known by other means than the version.
    pub sg_fix: Option<bool>,
    /// Whether the device has the capability for scattered tables (MTT_VA).
    pub mtt_va: Option<bool>,
    /// Whether the device's DMA is translated by an IOMMU.
    pub iommu: Option<bool>,
    /// Whether MRs on huge pages get large pages, where a probe has tried it under the same software.
    pub large_pages: Option<Tried>,
    /// What an unknown version means.
    pub unknown: Presumption,
}

/// What was tried, and stands above what the versions let expect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// Whether it worked.
    pub worked: bool,
    /// When, and by what.
    pub source: Source,
}

/// The pool of huge pages of one size on one node. Counts are pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePool {
    /// Page size.
    pub page: PageSize,
    /// Pages in the pool, surplus ones included (`nr_hugepages`).
    pub total: u64,
    /// Pages not in use (`free_hugepages`).
    pub free: u64,
    /// Pages of the pool beyond `nr_hugepages` (`surplus_hugepages`).
    pub surplus: u64,
}

/// One NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Number of the node.
    pub id: u32,
    /// CPUs of the node.
    pub cpus: Vec<u32>,
    /// MemFree, bytes.
    pub mem_free: u64,
    /// Pools of this node.
    pub pools: Vec<HugePool>,
}

/// The whole host, as far as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Kernel and driver.
    pub platform: Platform,
    /// NUMA nodes; `None` where pools were not read (a simulated host, a replayed report).
    pub nodes: Option<Vec<Node>>,
    /// Huge pages reserved by mappings that have not touched them yet, of all nodes, by page size.
    pub reserved: Vec<(PageSize, u64)>,
    /// Memory that pages of no pool can have, bytes: certainly, and at most; `None`: not read.
    pub memory: Option<Limit>,
    /// Bytes that this process may pin (RLIMIT_MEMLOCK; no limit with CAP_IPC_LOCK); `None`: not read.
    pub memlock: Option<Limit>,
    /// Bytes that this process has pinned already.
    pub pinned: u64,
    /// The least that is left under the hugetlb limits of the cgroups above this process, bytes, by page size.
    pub cgroup: Vec<(PageSize, u64)>,
}

impl Host {
    /// Huge pages of that size that a new mapping can have: free and not reserved, of all nodes.
    /// `None` where the pools were not read.
    #[must_use]
    pub fn free_pages(&self, page: PageSize) -> Option<u64> {
        let nodes = self.nodes.as_ref()?;
        let free: u64 = nodes
            .iter()
            .flat_map(|n| &n.pools)
            .filter(|p| p.page == page)
            .map(|p| p.free)
            .fold(0, u64::saturating_add);
        let reserved: u64 = self
            .reserved
            .iter()
            .filter(|(size, _)| *size == page)
            .map(|(_, count)| *count)
            .fold(0, u64::saturating_add);
        Some(free.saturating_sub(reserved))
    }

    /// Whether there is a pool of such pages, empty or not; also `true` where the pools were not read.
    #[must_use]
    pub fn may_have_pool(&self, page: PageSize) -> bool {
        let mut pools = self.nodes.iter().flatten().flat_map(|node| &node.pools);
        self.nodes.is_none() || pools.any(|pool| pool.page == page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Facts come from files, too (`--facts`): no number in them may end the program.
    #[test]
    fn pools_of_any_size_add_up() {
        let pool = HugePool {
            page: PageSize::M2,
            total: u64::MAX,
            free: u64::MAX,
            surplus: 0,
        };
        let node = Node {
            pools: vec![pool, pool],
            ..Node::default()
        };
        let mut host = Host {
            nodes: Some(vec![node]),
            ..Host::default()
        };
        assert_eq!(host.free_pages(PageSize::M2), Some(u64::MAX));
        host.reserved = vec![(PageSize::M2, u64::MAX), (PageSize::M2, 2)];
        assert_eq!(host.free_pages(PageSize::M2), Some(0));
    }
}
