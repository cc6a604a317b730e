//! Facts of one process: what it may pin and map.

use crate::fact::Limit;
use crate::process::{HugetlbLimit, Rlimit, memlock_limit};
use crate::size::PageSize;

/// A mounted hugetlbfs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mount {
    /// Where.
    pub path: String,
    /// Its page size; `None` where the options do not say.
    pub page: Option<PageSize>,
}

/// `/dev/shm`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shm {
    /// Bytes, where the mount says so; else half of the memory.
    pub size: Option<u64>,
}

/// One process. `None`: not readable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessFacts {
    /// Its number; `None`: this process.
    pub pid: Option<u64>,
    /// Its name (`comm`).
    pub name: Option<String>,
    /// Name of its parent.
    pub parent: Option<String>,
    /// The systemd service in whose cgroup it is: `store.service`.
    pub unit: Option<String>,
    /// Whether its cgroup is one of a container engine's.
    pub container: Option<bool>,
    /// RLIMIT_MEMLOCK, bytes.
    pub memlock: Option<Rlimit>,
    /// RLIMIT_AS, bytes.
    pub address_space: Option<Rlimit>,
    /// Effective CAP_IPC_LOCK.
    pub cap_ipc_lock: Option<bool>,
    /// Whether it is in the initial user namespace.
    pub initial_user_ns: Option<bool>,
    /// Bytes pinned (VmPin).
    pub pinned: Option<u64>,
    /// Bytes of address space in use (VmSize).
    pub virtual_size: Option<u64>,
    /// Mappings that it has.
    pub maps: Option<u64>,
    /// Limits on huge pages.
    pub hugetlb: Vec<HugetlbLimit>,
    /// The lowest memory limit of its cgroups, bytes; `None`: none was seen.
    pub memory_max: Option<u64>,
    /// Whether the memory limit counts huge pages (`memory_hugetlb_accounting`).
    pub memory_counts_huge: Option<bool>,
    /// Mounted hugetlbfs; `None` where the mounts cannot be read.
    pub hugetlbfs: Option<Vec<Mount>>,
    /// `/dev/shm`; `None` where it is not mounted or cannot be seen.
    pub shm: Option<Shm>,
}

impl ProcessFacts {
    /// `pid 4121 mooncake_client`, `this process`.
    #[must_use]
    pub fn who(&self) -> String {
        match (self.pid, &self.name) {
            (None, _) => "this process".to_owned(),
            (Some(pid), Some(name)) => format!("pid {pid} {name}"),
            (Some(pid), None) => format!("pid {pid}"),
        }
    }

    /// Its folder: `/proc/4121`.
    #[must_use]
    pub fn dir(&self) -> String {
        self.pid
            .map_or_else(|| "/proc/self".to_owned(), |pid| format!("/proc/{pid}"))
    }

    /// Bytes that it may pin for RDMA; see [`memlock_limit`].
    #[must_use]
    pub fn memlock_limit(&self) -> Option<Limit> {
        memlock_limit(self.memlock, self.cap_ipc_lock, self.initial_user_ns)
    }

    /// The least that is left under the limits of each page size, bytes.
    #[must_use]
    pub fn hugetlb_left(&self) -> Vec<(PageSize, u64)> {
        let limits = self.hugetlb.iter();
        let mut lowest: Vec<(PageSize, u64)> =
            limits.map(|limit| (limit.page, limit.left())).collect();
        lowest.sort_unstable();
        lowest.dedup_by_key(|(page, _)| *page);
        lowest
    }
}
