//! One process: what it may pin, what it has pinned, where it may run.

use std::fmt;

use hugemr_core::fact::Limit;
use hugemr_core::process::{Rlimit, memlock_limit};

use crate::root::{Root, parse_list};

/// Which process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessId {
    /// This one.
    Own,
    /// The one with that number.
    Pid(u32),
}

impl ProcessId {
    /// A file of the process under `/proc`.
    pub(crate) fn file(self, name: &str) -> String {
        format!("/proc/{self}/{name}")
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str("self"),
            Self::Pid(pid) => write!(f, "{pid}"),
        }
    }
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Which.
    pub id: ProcessId,
    /// Its name (`comm`).
    pub name: Option<String>,
    /// RLIMIT_MEMLOCK, bytes.
    pub memlock: Option<Rlimit>,
    /// RLIMIT_AS, bytes.
    pub address_space: Option<Rlimit>,
    /// Effective CAP_IPC_LOCK. It lifts memlock for RDMA only in the initial user namespace.
    pub cap_ipc_lock: Option<bool>,
    /// Effective CAP_SYS_ADMIN, without which pagemap hides physical addresses.
    pub cap_sys_admin: Option<bool>,
    /// Whether the process is in the initial user namespace.
    pub initial_user_ns: Option<bool>,
    /// Bytes pinned by the devices (VmPin).
    pub pinned: Option<u64>,
    /// Bytes of address space in use (VmSize).
    pub virtual_size: Option<u64>,
    /// CPUs on which it may run; empty where not readable.
    pub cpus: Vec<u32>,
    /// NUMA nodes from which it may take memory; empty where not readable.
    pub mems: Vec<u32>,
    /// Mappings that it has.
    pub maps: Option<u64>,
}

const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_ADMIN: u32 = 21;
/// Inode of the initial user namespace (`PROC_USER_INIT_INO`, Linux `include/linux/proc_ns.h`).
const INITIAL_USER_NS: &str = "user:[4026531837]";

impl Process {
    /// Reads a process.
    #[must_use]
    pub fn read(root: &Root, id: ProcessId) -> Self {
        let text = |name| root.read(&id.file(name)).ok();
        let limits = text("limits").unwrap_or_default();
        let status = text("status").unwrap_or_default();
        let caps = super::field(&status, "CapEff").and_then(|t| u64::from_str_radix(t, 16).ok());
        let capable = |bit: u32| caps.map(|caps| caps >> bit & 1 == 1);
        let list = |name| super::field(&status, name).and_then(parse_list);
        Self {
            id,
            name: super::field(&status, "Name").map(str::to_owned),
            memlock: rlimit(&limits, "Max locked memory"),
            address_space: rlimit(&limits, "Max address space"),
            cap_ipc_lock: capable(CAP_IPC_LOCK),
            cap_sys_admin: capable(CAP_SYS_ADMIN),
            initial_user_ns: initial_user_ns(root, id),
            pinned: super::kib_field(&status, "VmPin"),
            virtual_size: super::kib_field(&status, "VmSize"),
            cpus: list("Cpus_allowed_list").unwrap_or_default(),
            mems: list("Mems_allowed_list").unwrap_or_default(),
            maps: text("maps").map(|maps| maps.lines().count() as u64),
        }
    }

    /// Bytes that the process may pin for RDMA; see [`memlock_limit`].
    #[must_use]
    pub fn memlock_limit(&self) -> Option<Limit> {
        memlock_limit(self.memlock, self.cap_ipc_lock, self.initial_user_ns)
    }
}

/// A line of `/proc/PID/limits`: name, soft, hard, unit. `None` where it is not there or not understood.
fn rlimit(limits: &str, name: &str) -> Option<Rlimit> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    let mut words = line.split_whitespace();
    let mut value = || match words.next()? {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    };
    Some(Rlimit {
        soft: value()?,
        hard: value()?,
    })
}

/// By the map of all 2^32 - 1 ids onto themselves, and, where the link can be read, by the inode: a namespace that
/// root has made with a full map looks initial by its map alone.
fn initial_user_ns(root: &Root, id: ProcessId) -> Option<bool> {
    let map = root.text(&id.file("uid_map"))?;
    let words: Vec<&str> = map.split_whitespace().collect();
    let full = words == ["0", "0", "4294967295"];
    let named = root.link(&id.file("ns/user"));
    Some(full && named.is_none_or(|name| name == INITIAL_USER_NS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fake::Tree;

    const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units     \n\
Max processes             96000                96000                processes \n\
Max locked memory         65536                8388608              bytes     \n\
Max address space         unlimited            unlimited            bytes     \n";

    fn tree(cap_eff: &str, uid_map: &str) -> Tree {
        let tree = Tree::new();
        tree.file("/proc/self/limits", LIMITS);
        tree.file(
            "/proc/self/status",
            &format!(
                "Name:\tstore\nVmSize:\t  100 kB\nVmPin:\t       4 kB\nCapEff:\t{cap_eff}\n\
                 Cpus_allowed_list:\t0-1,4\nMems_allowed_list:\t0\n"
            ),
        );
        tree.file("/proc/self/uid_map", uid_map);
        tree.file("/proc/self/maps", "a\nb\n");
        tree
    }

    const INITIAL: &str = "         0          0 4294967295\n";

    #[test]
    fn the_limit_holds_without_the_capability() {
        let process = Process::read(&tree("0000000000000000", INITIAL).root(), ProcessId::Own);
        assert_eq!(process.memlock_limit().unwrap().known(), Some(65536));
        assert_eq!(
            process.memlock.unwrap(),
            Rlimit {
                soft: Some(65536),
                hard: Some(8 << 20)
            }
        );
        assert_eq!(process.address_space.unwrap().soft, None);
        assert_eq!(process.pinned, Some(4096));
        assert_eq!(process.cpus, [0, 1, 4]);
        assert_eq!(process.maps, Some(2));
        assert_eq!(process.name.as_deref(), Some("store"));
    }

    #[test]
    fn the_capability_counts_in_the_initial_user_namespace_only() {
        let own = tree("0000000000004000", INITIAL);
        let process = Process::read(&own.root(), ProcessId::Own);
        assert!(process.memlock_limit().unwrap().is_unlimited());
        assert_eq!(process.cap_sys_admin, Some(false));

        let container = tree("000001ffffffffff", "0 100000 65536\n");
        let process = Process::read(&container.root(), ProcessId::Own);
        assert_eq!(process.initial_user_ns, Some(false));
        assert_eq!(process.memlock_limit().unwrap().known(), Some(65536));

        own.symlink("/proc/self/ns/user", "user:[4026532999]");
        let process = Process::read(&own.root(), ProcessId::Own);
        assert_eq!(process.initial_user_ns, Some(false));
    }

    #[test]
    fn what_cannot_be_read_is_unknown() {
        let process = Process::read(&Tree::new().root(), ProcessId::Pid(7));
        assert_eq!(process.memlock_limit(), None);
        assert_eq!(process.initial_user_ns, None);
        assert_eq!(process.cap_ipc_lock, None);
    }
}
