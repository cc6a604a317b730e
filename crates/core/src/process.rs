//! Limits of a process, as plain data: what it may pin, and what its cgroups leave it of huge pages.

use crate::fact::{Kind, Limit, Source};
use crate::size::PageSize;

/// A resource limit. `None`: unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rlimit {
    /// The limit that holds.
    pub soft: Option<u64>,
    /// What the process may raise it to by itself.
    pub hard: Option<u64>,
}

/// A limit on huge pages of one size, of a cgroup above the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HugetlbLimit {
    /// Page size.
    pub page: PageSize,
    /// Bytes.
    pub max: u64,
    /// Bytes in use in that cgroup.
    pub used: Option<u64>,
    /// Whether it counts promised pages: then mmap fails with ENOMEM, else the touch (SIGBUS, or EFAULT inside the
    /// kernel).
    pub at_mmap: bool,
    /// The file that sets it, as a path on the host.
    pub file: String,
}

impl HugetlbLimit {
    /// Bytes that still fit under the limit.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.max.saturating_sub(self.used.unwrap_or(0))
    }
}

/// Bytes that a process may pin for RDMA, `None` where it could not be read.
///
/// The kernel compares all that is pinned with RLIMIT_MEMLOCK unless the process has CAP_IPC_LOCK in the *initial* user
/// namespace (`__ib_umem_get`: `capable(CAP_IPC_LOCK)`), so the capability of a container's own namespace does not count.
#[must_use]
pub fn memlock_limit(
    memlock: Option<Rlimit>,
    cap_ipc_lock: Option<bool>,
    initial_user_ns: Option<bool>,
) -> Option<Limit> {
    let source = |text| Source::new(Kind::Documented, text);
    if cap_ipc_lock == Some(true) && initial_user_ns == Some(true) {
        return Some(Limit::unlimited(source("CAP_IPC_LOCK")));
    }
    Some(match memlock?.soft {
        None => Limit::unlimited(source("RLIMIT_MEMLOCK unlimited")),
        Some(bytes) => Limit::exact(bytes, source("RLIMIT_MEMLOCK")),
    })
}
