//! Facts of the whole host.

use crate::host::{Driver, Node};
use crate::size::PageSize;
use crate::version::KernelVersion;

/// The running kernel, as it names itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelFacts {
    /// `uname -r`.
    pub release: Option<String>,
    /// `uname -v`.
    pub build: Option<String>,
    /// `/proc/version_signature` (Ubuntu).
    pub signature: Option<String>,
    /// Options of the boot line that bear on memory and DMA: `cma=`, `movablecore=`, `iommu=`, `hugepages=`, ...
    pub boot: Option<Vec<String>>,
    /// Mode of lockdown: none, integrity, confidentiality.
    pub lockdown: Option<String>,
}

impl KernelFacts {
    /// The upstream version behind it; `None` where a distribution hides it.
    #[must_use]
    pub fn upstream(&self) -> Option<KernelVersion> {
        let build = self.build.as_deref().unwrap_or_default();
        KernelVersion::upstream(self.release.as_deref()?, build, self.signature.as_deref())
    }
}

/// A text that may say which version of the driver is installed: shown raw, never believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// Where it was found, for example `dpkg status`.
    pub source: String,
    /// What is written there.
    pub text: String,
}

/// The eRDMA driver, as far as files tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverFacts {
    /// Whether the module is loaded; `None` where `/sys/module` cannot be seen.
    pub loaded: Option<bool>,
    /// Whether it is the vendor's (by its module parameters); `None`: not known.
    pub vendor: Option<bool>,
    /// `compat_mode` of the vendor driver.
    pub compat_mode: Option<bool>,
    /// Whether the device has scattered tables (MTT_VA), by the vendor driver's debugfs.
    pub mtt_va: Option<bool>,
    /// Raw version texts.
    pub candidates: Vec<Candidate>,
}

impl DriverFacts {
    /// In-tree or vendor's. The bundle is never known from files.
    #[must_use]
    pub fn kind(&self) -> Driver {
        match self.vendor {
            Some(true) => Driver::Vendor(None),
            Some(false) => Driver::InTree,
            None => Driver::Unknown,
        }
    }
}

/// How the DMA of a function is translated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Iommu {
    /// No IOMMU serves it.
    Absent,
    /// Addresses pass unchanged.
    Identity,
    /// Addresses are translated.
    Translated,
    /// In a group whose type cannot be read.
    #[default]
    Unknown,
}

impl Iommu {
    /// All of them with their stable names.
    pub const NAMES: [(Self, &'static str); 4] = [
        (Self::Absent, "absent"),
        (Self::Identity, "identity"),
        (Self::Translated, "translated"),
        (Self::Unknown, "unknown"),
    ];
}

/// A PCI function of an RDMA device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// `0000:00:07.0`.
    pub address: String,
    /// Whether it is eRDMA's (1ded:107f).
    pub erdma: bool,
    /// NUMA node; `None` where the firmware does not say.
    pub node: Option<u32>,
    /// Name of the bound driver; `None`: none.
    pub driver: Option<String>,
    /// Translation of its DMA.
    pub iommu: Iommu,
}

/// A port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Port {
    /// From 1.
    pub number: u64,
    /// `ACTIVE`, `DOWN`, `INIT`, ...; `None` where it cannot be read.
    pub state: Option<String>,
}

/// An RDMA device as the kernel shows it in sysfs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RdmaDevice {
    /// `erdma_0`.
    pub name: String,
    /// `uverbs0`; `None`: user space cannot reach it.
    pub uverbs: Option<String>,
    /// Whether `/dev/infiniband/uverbsN` is there.
    pub char_device: Option<bool>,
    /// Its ports.
    pub ports: Vec<Port>,
}

/// The pool of one page size, of the whole host. Counts are pages; `None`: not readable, or absurd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolFacts {
    /// Page size.
    pub page: PageSize,
    /// Pages in the pool.
    pub total: Option<u64>,
    /// Pages not in use.
    pub free: Option<u64>,
    /// Free pages that are promised to mappings.
    pub reserved: Option<u64>,
}

impl PoolFacts {
    /// Pages that a new mapping can have.
    #[must_use]
    pub fn available(&self) -> Option<u64> {
        Some(self.free?.saturating_sub(self.reserved?))
    }
}

/// All pools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pools {
    /// Whether `/sys/kernel/mm` could be seen at all.
    pub visible: bool,
    /// By page size, ascending.
    pub global: Vec<PoolFacts>,
    /// By node.
    pub nodes: Vec<Node>,
    /// Pages in them that hugemr processes have added that are gone, by size.
    pub stale: Vec<(PageSize, u64)>,
    /// Why the ledger of these is not understood; `None`: it is, or there is none.
    pub ledger: Option<String>,
}

impl Pools {
    /// The pool of that size.
    #[must_use]
    pub fn of(&self, page: PageSize) -> Option<&PoolFacts> {
        self.global.iter().find(|pool| pool.page == page)
    }
}

/// Free blocks of one zone (`/proc/buddyinfo`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buddy {
    /// NUMA node.
    pub node: u64,
    /// `Normal`, `Movable`, ...
    pub zone: String,
    /// Free blocks of 2^i base pages.
    pub blocks: Vec<u64>,
}

/// Memory of the host, bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryFacts {
    /// MemTotal.
    pub total: Option<u64>,
    /// MemFree.
    pub free: Option<u64>,
    /// MemAvailable.
    pub available: Option<u64>,
    /// CmaTotal.
    pub cma_total: Option<u64>,
    /// Free blocks by zone; empty where not readable.
    pub buddy: Vec<Buddy>,
    /// Bytes of a base page.
    pub base_page: Option<u64>,
    /// vm.max_map_count.
    pub max_map_count: Option<u64>,
    /// Mode of transparent huge pages.
    pub thp: Option<String>,
}

impl MemoryFacts {
    /// Memory that may be offered for huge pages, bytes ([`margin`](crate::margin)).
    #[must_use]
    pub fn spare(&self) -> Option<u64> {
        Some(crate::margin::spare(self.available?, self.total))
    }

    /// Free memory in blocks of at least `page`, bytes, as far as buddyinfo can tell.
    #[must_use]
    pub fn in_blocks_of(&self, page: PageSize) -> Option<u64> {
        let base = self.base_page?;
        let order = page.bytes().checked_div(base)?.checked_ilog2()?;
        let order = usize::try_from(order).ok()?;
        // Blocks are never as large as that (1 GiB): nothing can be said.
        let largest = self.buddy.iter().map(|zone| zone.blocks.len()).max()?;
        if order >= largest {
            return None;
        }
        let mut sum = 0u64;
        for zone in &self.buddy {
            for (i, n) in zone.blocks.iter().enumerate().skip(order) {
                let shift = u32::try_from(i).ok();
                let block = shift.and_then(|i| base.checked_shl(i)).unwrap_or(u64::MAX);
                sum = sum.saturating_add(n.saturating_mul(block));
            }
        }
        Some(sum)
    }
}

/// Whether a way to look into the kernel is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Visible {
    /// It is.
    Yes,
    /// It is mounted, but not for this process.
    Denied,
    /// It is not mounted.
    NotMounted,
    /// It is mounted, and this kernel does not have it.
    NotBuilt,
    /// Not known.
    #[default]
    Unknown,
}

impl Visible {
    /// All of them with their stable names.
    pub const NAMES: [(Self, &'static str); 5] = [
        (Self::Yes, "yes"),
        (Self::Denied, "denied"),
        (Self::NotMounted, "not_mounted"),
        (Self::NotBuilt, "not_built"),
        (Self::Unknown, "unknown"),
    ];
}

/// Ways to see what the kernel does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tracing {
    /// `kprobe_events` of tracefs: the page size of each MR.
    pub kprobes: Visible,
    /// `dynamic_debug/control` of debugfs: the driver's own lines.
    pub dynamic_debug: Visible,
}
