//! What the host is and what it allows, as plain data. Reading changes nothing and needs no rights; what the rights
//! do not show is `None`.

pub mod cgroup;
pub mod doctor;
pub mod kernel;
pub mod memory;
pub mod pci;
pub mod process;
pub mod rdma;

use hugemr_core::host::{Host, Platform};

use crate::pools::Pools;
use crate::root::Root;
pub use cgroup::Cgroup;
pub use hugemr_core::process::{HugetlbLimit, Rlimit};
pub use kernel::{DriverFacts, Kernel, VersionCandidate};
pub use memory::{HugetlbMount, Memory, Overcommit, ThpMode};
pub use pci::{Iommu, PciFunction};
pub use process::{Process, ProcessId};

/// Everything that was read of a host, for one of its processes.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The kernel.
    pub kernel: Kernel,
    /// The eRDMA driver.
    pub driver: DriverFacts,
    /// The process: limits, rights, pinned memory.
    pub process: Process,
    /// The cgroups above the process.
    pub cgroup: Cgroup,
    /// Memory of the host.
    pub memory: Memory,
    /// PCI functions of known RDMA families.
    pub pci: Vec<PciFunction>,
    /// Huge-page pools.
    pub pools: Pools,
}

impl Facts {
    /// Reads the host for this process.
    #[must_use]
    pub fn read(root: &Root) -> Self {
        Self::read_for(root, ProcessId::Own)
    }

    /// Reads the host for a process.
    #[must_use]
    pub fn read_for(root: &Root, id: ProcessId) -> Self {
        Self {
            kernel: Kernel::read(root),
            driver: DriverFacts::read(root),
            process: Process::read(root, id),
            cgroup: Cgroup::read(root, id),
            memory: Memory::read(root),
            pci: pci::functions(root),
            pools: Pools::read(root),
        }
    }

    /// The facts that a plan needs.
    ///
    /// `platform.iommu` is set only where all eRDMA functions of the host agree (or where no IOMMU is active);
    /// `platform.mtt_va` only where the vendor driver's debugfs could be read.
    #[must_use]
    pub fn host(&self) -> Host {
        Host {
            platform: Platform {
                kernel: self.kernel.upstream,
                driver: self.driver.kind,
                sg_fix: None,
                mtt_va: self.driver.mtt_va,
                iommu: pci::translated(&self.pci),
                large_pages: None,
                unknown: hugemr_core::host::Presumption::Affected,
            },
            nodes: Some(self.pools.nodes.clone()),
            reserved: self.pools.reserved(),
            memory: self.memory.for_pages(self.cgroup.memory_max),
            memlock: self.process.memlock_limit(),
            pinned: self.process.pinned.unwrap_or(0),
            cgroup: self.cgroup.lowest(),
        }
    }
}

/// The value of a line `NAME: 123 kB`, in bytes.
#[must_use]
pub fn kib_field(text: &str, name: &str) -> Option<u64> {
    let rest = field(text, name)?;
    let kib: u64 = rest.strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// What follows `NAME:` on its line, without white space at its ends.
#[must_use]
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?.strip_prefix(':')?;
        Some(rest.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hugemr_core::host::Driver;
    use hugemr_core::size::PageSize;

    #[test]
    fn a_bare_tree_gives_unknowns_not_zeros() {
        let tree = crate::root::fake::Tree::new();
        let facts = Facts::read(&tree.root());
        let host = facts.host();
        assert_eq!(host.platform.kernel, None);
        assert_eq!(host.platform.driver, Driver::Unknown);
        assert_eq!(host.platform.iommu, None);
        assert_eq!(host.memlock, None);
        assert_eq!(host.nodes, Some(Vec::new()));
        assert_eq!(facts.memory.available, None);
        assert!(host.cgroup.is_empty());
    }

    #[test]
    fn this_machine_can_be_read() {
        let facts = Facts::read(&Root::real());
        assert!(!facts.kernel.release.is_empty());
        assert!(facts.memory.total.is_some_and(|bytes| bytes > 1 << 20));
        assert!(facts.process.memlock.is_some());
        assert!(!facts.process.cpus.is_empty());
        assert!(facts.memory.max_map_count.is_some_and(|n| n > 1000));
        let host = facts.host();
        let nodes = host.nodes.as_ref().map_or(0, Vec::len);
        assert!(nodes > 0 || facts.pools.global.is_empty());
        assert!(host.free_pages(PageSize::M2).is_some());
    }

    #[test]
    fn fields_are_found_whole() {
        let text = "VmPinned: 1 kB\nVmPin:\t  12 kB\nMemFree: 3\n";
        assert_eq!(kib_field(text, "VmPin"), Some(12 << 10));
        assert_eq!(kib_field(text, "MemFree"), None);
        assert_eq!(kib_field(text, "Vm"), None);
        assert_eq!(kib_field("A: 18446744073709551615 kB", "A"), None);
    }
}
