//! What was seen of a host, as plain data. `None` is unknown, never 0 and never a guess.

mod host;
mod process;

pub use crate::process::{HugetlbLimit, Rlimit};
pub use host::{
    Buddy, Candidate, DriverFacts, Function, Iommu, KernelFacts, MemoryFacts, PoolFacts, Pools,
    Port, RdmaDevice, Tracing, Visible,
};
pub use process::{Mount, ProcessFacts, Shm};

use crate::host::{Driver, Host, Platform, Presumption};

/// When and where facts were taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Seconds since 1970.
    pub seconds: Option<u64>,
    /// `/proc/sys/kernel/random/boot_id`: one boot of one machine.
    pub boot_id: Option<String>,
    /// The host's name.
    pub host: Option<String>,
}

/// Everything that was seen of a host, for one of its processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// When and where.
    pub taken: Taken,
    /// The kernel.
    pub kernel: KernelFacts,
    /// The eRDMA driver.
    pub driver: DriverFacts,
    /// PCI functions of RDMA devices; `None` where the bus cannot be seen.
    pub functions: Option<Vec<Function>>,
    /// RDMA devices of the kernel; `None` where sysfs cannot be seen.
    pub devices: Option<Vec<RdmaDevice>>,
    /// Pools of huge pages.
    pub pools: Pools,
    /// Memory.
    pub memory: MemoryFacts,
    /// Ways to see what the kernel does.
    pub tracing: Tracing,
    /// The process that is to register.
    pub process: ProcessFacts,
}

impl Facts {
    /// Whether the DMA of the eRDMA functions is translated; `None` where there is none, or they differ, or it is not
    /// known.
    #[must_use]
    pub fn translated(&self) -> Option<bool> {
        let mut modes = self
            .functions
            .iter()
            .flatten()
            .filter(|function| function.erdma)
            .map(|function| match function.iommu {
                Iommu::Absent | Iommu::Identity => Some(false),
                Iommu::Translated => Some(true),
                Iommu::Unknown => None,
            });
        let first = modes.next()??;
        modes.all(|mode| mode == Some(first)).then_some(first)
    }

    /// The facts that the planner needs.
    #[must_use]
    pub fn host(&self) -> Host {
        Host {
            platform: Platform {
                kernel: self.kernel.upstream(),
                driver: self.driver.kind(),
                sg_fix: None,
                large_pages: None,
                mtt_va: self.driver.mtt_va,
                iommu: self.translated(),
                unknown: Presumption::Affected,
            },
            nodes: self.pools.visible.then(|| self.pools.nodes.clone()),
            reserved: self
                .pools
                .global
                .iter()
                .filter_map(|pool| Some((pool.page, pool.reserved?)))
                .collect(),
            // The checks of memory judge it.
            memory: None,
            memlock: self.process.memlock_limit(),
            pinned: self.process.pinned.unwrap_or(0),
            cgroup: self.process.hugetlb_left(),
        }
    }
}

/// Fills what the host does not say about kernel and driver from a simulated device's profile; the names of what was
/// filled.
pub fn fill_platform(host: &mut Platform, profile: &Platform) -> Vec<&'static str> {
    let mut filled = Vec::new();
    if host.driver == Driver::Unknown {
        host.driver = profile.driver;
        filled.push("driver");
    }
    if host.kernel.is_none() && profile.kernel.is_some() {
        host.kernel = profile.kernel;
        host.sg_fix = profile.sg_fix;
        filled.push("kernel");
    }
    if host.mtt_va.is_none() {
        host.mtt_va = profile.mtt_va;
    }
    if host.iommu.is_none() && profile.iommu.is_some() {
        host.iommu = profile.iommu;
        filled.push("IOMMU");
    }
    filled
}
