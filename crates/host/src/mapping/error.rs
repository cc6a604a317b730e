//! Why memory could not be mapped, and what would help.

use hugemr_core::errno::Errno;
use hugemr_core::size::{Bytes, Count, Grouped, PageSize};

use super::{Failure, Part, Placement};
use crate::facts::{Cgroup, Memory, Overcommit, Process, ProcessId};
use crate::pools::{Pools, pool_dir};
use crate::root::Root;

/// Why memory could not be mapped. Nothing is mapped then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// A part is empty or no multiple of its page size.
    #[error("{} is not a positive multiple of the page size {page}", Bytes(*len))]
    Length {
        /// Bytes asked for.
        len: u64,
        /// Page size of the part.
        page: PageSize,
    },
    /// A part would not start on a border of its page size.
    #[error("the part of {page} pages would start at {} of the range: put larger pages first", Bytes(*offset))]
    Order {
        /// Offset of the part.
        offset: u64,
        /// Its page size.
        page: PageSize,
    },
    /// The parts together are longer than any address space.
    #[error("the parts together are longer than any address space")]
    TooLong,
    /// The alignment is no power of two, or beyond 64 TiB.
    #[error("{align} is no alignment (a power of two of at most 64 TiB)")]
    Alignment {
        /// Bytes asked for.
        align: u64,
    },
    /// The kernel has no huge pages of that size.
    #[error("this kernel has no pool of {page} pages{}", list(sizes))]
    NoSuchPage {
        /// Page size asked for.
        page: PageSize,
        /// Page sizes for which it has pools.
        sizes: Vec<PageSize>,
    },
    /// Too few huge pages are free.
    #[error(
        "{} of {page} short{}: {} needed, {} available; {way_out}",
        Count(*short, "huge page"), place(nodes), Grouped(*need), Grouped(*available)
    )]
    HugePagesShort {
        /// Page size.
        page: PageSize,
        /// Pages asked for.
        need: u64,
        /// Pages that a mapping can have: free, and not promised to another.
        available: u64,
        /// Pages missing.
        short: u64,
        /// The nodes asked for; empty: the whole host.
        nodes: Vec<u32>,
        /// A command that adds the missing pages; where the host cannot spare the memory for all of them, for how many it can.
        way_out: String,
    },
    /// A cgroup above this process does not allow that many huge pages.
    #[error(
        "the cgroup allows {} of {page} pages and has {} left: {} needed; raise {file}",
        Bytes(*max), Bytes(*left), Bytes(*need)
    )]
    CgroupLimit {
        /// Page size.
        page: PageSize,
        /// Bytes needed.
        need: u64,
        /// Bytes that the limit leaves.
        left: u64,
        /// The limit, bytes.
        max: u64,
        /// The file that sets it.
        file: String,
    },
    /// RLIMIT_AS.
    #[error(
        "the process may use {} of address space (RLIMIT_AS) and uses {}: {} more needed; ulimit -v unlimited",
        Bytes(*limit), Bytes(*used), Bytes(*need)
    )]
    AddressSpace {
        /// Bytes needed.
        need: u64,
        /// Bytes in use.
        used: u64,
        /// The limit, bytes.
        limit: u64,
    },
    /// vm.max_map_count.
    #[error(
        "the process may have {} and has {used}: {need} more needed; \
         sudo sysctl vm.max_map_count={}", Count(*limit, "mapping"), used.saturating_add(*need).saturating_add(1000)
    )]
    MapCount {
        /// Mappings needed.
        need: u64,
        /// Mappings that it has.
        used: u64,
        /// The limit.
        limit: u64,
    },
    /// The kernel does not promise that much ordinary memory.
    #[error(
        "the kernel does not promise {} of memory (vm.overcommit_memory={mode}, {} available); \
         {}", Bytes(*need), available.map_or_else(|| "unknown".to_owned(), |a| Bytes(a).to_string()), less(*mode, *need, *available)
    )]
    Overcommit {
        /// Bytes needed.
        need: u64,
        /// Bytes that it would promise or has available.
        available: Option<u64>,
        /// vm.overcommit_memory.
        mode: u8,
    },
    /// Transparent huge pages are switched off, or the kernel has none.
    #[error("transparent huge pages are {mode}; {way_out}")]
    ThpOff {
        /// The mode of the host, or `not in this kernel`.
        mode: String,
        /// What would help.
        way_out: String,
    },
    /// The kernel refuses to take memory from these nodes.
    #[error(
        "cannot take memory from NUMA node {}: {errno} (nodes with memory: /sys/devices/system/node/has_memory)",
        numbers(nodes)
    )]
    Nodes {
        /// Nodes asked for.
        nodes: Vec<u32>,
        /// What mbind left in errno.
        errno: Errno,
    },
    /// Anything else.
    #[error("{call} of {} failed: {errno}", Bytes(*len))]
    System {
        /// The system call.
        call: &'static str,
        /// Bytes.
        len: u64,
        /// What it left in errno.
        errno: Errno,
    },
}

impl MapError {
    /// The errno behind it, or the one that the kernel gives for such a lack.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::Length { .. }
            | Self::Order { .. }
            | Self::Alignment { .. }
            | Self::NoSuchPage { .. }
            | Self::ThpOff { .. } => Errno::EINVAL,
            Self::TooLong
            | Self::HugePagesShort { .. }
            | Self::CgroupLimit { .. }
            | Self::AddressSpace { .. }
            | Self::MapCount { .. }
            | Self::Overcommit { .. } => Errno::ENOMEM,
            Self::Nodes { errno, .. } | Self::System { errno, .. } => *errno,
        }
    }
}

/// What helps where the kernel does not promise: huge pages are memory, too, where that is what is short.
fn less(mode: u8, need: u64, available: Option<u64>) -> &'static str {
    if mode == 0 && available.is_some_and(|available| available < need) {
        "map less"
    } else {
        "map less, or use huge pages"
    }
}

fn list(sizes: &[PageSize]) -> String {
    if sizes.is_empty() {
        return String::new();
    }
    let names: Vec<String> = sizes.iter().map(ToString::to_string).collect();
    format!(" (it has {})", names.join(", "))
}

fn numbers(nodes: &[u32]) -> String {
    let names: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    names.join(",")
}

fn place(nodes: &[u32]) -> String {
    if nodes.is_empty() {
        String::new()
    } else {
        format!(" on node {}", numbers(nodes))
    }
}

/// The size of a transparent huge page here.
pub(super) fn thp_page(root: &Root) -> Result<PageSize, MapError> {
    let memory = Memory::read(root);
    let off = |mode: &str, way_out: &str| MapError::ThpOff {
        mode: mode.to_owned(),
        way_out: way_out.to_owned(),
    };
    match (memory.thp_enabled.as_deref(), memory.thp_page) {
        (Some("never"), _) => Err(off(
            "never",
            "sudo sh -c 'echo madvise > /sys/kernel/mm/transparent_hugepage/enabled'",
        )),
        (Some(_), Some(page)) => Ok(page),
        // Before Linux 4.15 the size is not said; it was 2 MiB everywhere but on arm64 with large base pages.
        (Some(_), None) => Ok(PageSize::M2),
        (None, _) => Err(off("not in this kernel", "use huge pages of a pool")),
    }
}

/// What a whole request takes from the host.
#[derive(Debug)]
pub(super) struct Need {
    /// Pages of each pool, by nodes (empty: any).
    huge: Vec<(PageSize, Vec<u32>, u64)>,
    /// Mappings.
    maps: u64,
    /// Bytes of ordinary memory.
    ordinary: u64,
}

impl Need {
    pub(super) fn of(parts: &[Part]) -> Self {
        let mut need = Self {
            huge: Vec::new(),
            maps: 0,
            ordinary: 0,
        };
        for part in parts {
            need.maps += part.maps();
            if !part.is_hugetlb() {
                need.ordinary = need.ordinary.saturating_add(part.memory());
                continue;
            }
            let mut nodes = match &part.placement {
                Placement::Bind(nodes) => nodes.clone(),
                // Interleave takes from another node where the next one in turn has nothing free.
                Placement::Anywhere | Placement::Interleave(_) => Vec::new(),
            };
            nodes.sort_unstable();
            nodes.dedup();
            let pages = part.memory() / part.page.bytes();
            let same =
                |(page, on, _): &&mut (PageSize, Vec<u32>, u64)| *page == part.page && *on == nodes;
            match need.huge.iter_mut().find(same) {
                Some((_, _, count)) => *count += pages,
                None => need.huge.push((part.page, nodes, pages)),
            }
        }
        need
    }

    /// Bytes of pool pages of one size.
    fn huge_bytes(&self, page: PageSize) -> u64 {
        self.huge_pages(page).saturating_mul(page.bytes())
    }

    fn huge_pages(&self, page: PageSize) -> u64 {
        let of = self.huge.iter().filter(|(size, ..)| *size == page);
        of.map(|(_, _, pages)| pages).sum()
    }

    /// Limits that the kernel would let show only at the first touch, and those that cost much to run into.
    pub(super) fn check(&self, root: &Root) -> Result<(), MapError> {
        if !self.huge.is_empty() {
            let pools = Pools::read(root);
            let cgroup = Cgroup::read(root, ProcessId::Own);
            for (page, nodes, pages) in &self.huge {
                if !pools.global.is_empty() && pools.of(*page).is_none() {
                    return Err(no_such_page(&pools, *page));
                }
                // A promise is made for the host, not for a node: too few pages there would be a SIGBUS.
                if pools.per_node && !nodes.is_empty() {
                    check_nodes(root, &pools, *page, nodes, *pages)?;
                }
                check_cgroup(&cgroup, *page, self.huge_bytes(*page))?;
            }
        }
        if self.maps > 64 {
            self.check_map_count(root)?;
        }
        Ok(())
    }

    fn check_map_count(&self, root: &Root) -> Result<(), MapError> {
        let used = Process::read(root, ProcessId::Own).maps;
        let limit = Memory::read(root).max_map_count;
        match (used, limit) {
            (Some(used), Some(limit)) if used.saturating_add(self.maps) > limit => {
                Err(MapError::MapCount {
                    need: self.maps,
                    used,
                    limit,
                })
            }
            _ => Ok(()),
        }
    }
}

fn no_such_page(pools: &Pools, page: PageSize) -> MapError {
    MapError::NoSuchPage {
        page,
        sizes: pools.sizes(),
    }
}

fn check_nodes(
    root: &Root,
    pools: &Pools,
    page: PageSize,
    nodes: &[u32],
    need: u64,
) -> Result<(), MapError> {
    let on = |node: &u32| pools.on_node(*node, page);
    let free: u64 = nodes.iter().filter_map(|n| on(n).map(|p| p.free)).sum();
    if free >= need {
        return Ok(());
    }
    let short = need - free;
    let way_out = nodes.first().map_or_else(String::new, |node| {
        let total = on(node).map_or(0, |pool| pool.total.saturating_sub(pool.surplus));
        way_out(root, page, Some(*node), total, short)
    });
    Err(MapError::HugePagesShort {
        page,
        need,
        available: free,
        short,
        nodes: nodes.to_vec(),
        way_out,
    })
}

/// Whether `need` bytes of huge pages of `page` are within the limits of the cgroups above a process.
///
/// # Errors
/// [`MapError::CgroupLimit`], with the first limit that leaves less.
pub fn check_cgroup(cgroup: &Cgroup, page: PageSize, need: u64) -> Result<(), MapError> {
    let over = cgroup.hugetlb(page).find(|limit| need > limit.left());
    over.map_or(Ok(()), |limit| {
        Err(MapError::CgroupLimit {
            page,
            need,
            left: limit.left(),
            max: limit.max,
            file: limit.file.clone(),
        })
    })
}

/// The command that adds the missing pages to a pool of `now`, as long as it leaves the host its margin.
fn way_out(root: &Root, page: PageSize, node: Option<u32>, now: u64, short: u64) -> String {
    match Memory::read(root).spare() {
        Some(spare) if short.saturating_mul(page.bytes()) > spare => format!(
            "the host can spare memory for {} of them",
            Grouped(spare / page.bytes())
        ),
        _ => format!(
            "sudo sh -c 'echo {} > {}/nr_hugepages'",
            now.saturating_add(short),
            pool_dir(page, node)
        ),
    }
}

/// Finds the limit behind an errno.
pub(super) fn explain(root: &Root, need: &Need, len: u64, failure: Failure) -> MapError {
    let Failure { call, errno, part } = failure;
    let len = part.as_ref().map_or(len, |part| part.len);
    let plain = MapError::System { call, len, errno };
    if call == "mbind"
        && let Some(Part {
            placement: Placement::Bind(nodes) | Placement::Interleave(nodes),
            ..
        }) = part
    {
        return MapError::Nodes { nodes, errno };
    }
    let huge = part.as_ref().filter(|part| part.is_hugetlb());
    match (errno, huge) {
        (Errno::EINVAL | Errno::ENODEV | Errno::ENOENT, Some(part)) => {
            let pools = Pools::read(root);
            if pools.of(part.page).is_none() {
                return no_such_page(&pools, part.page);
            }
            plain
        }
        (Errno::EINVAL, None) if call == "madvise(MADV_HUGEPAGE)" => MapError::ThpOff {
            mode: "not in this kernel".to_owned(),
            way_out: "use huge pages of a pool".to_owned(),
        },
        (Errno::ENOMEM, Some(part)) => short_pool(root, need, part.page)
            .or_else(|| process_limit(root, need, len))
            .unwrap_or(plain),
        // A place in the reservation that was not given up, because the process has too many mappings.
        (Errno(libc::EEXIST), _) => process_limit(root, need, len).unwrap_or(plain),
        (Errno::ENOMEM, None) => process_limit(root, need, len)
            .or_else(|| overcommit(root, need))
            .unwrap_or(plain),
        _ => plain,
    }
}

fn short_pool(root: &Root, need: &Need, page: PageSize) -> Option<MapError> {
    let pools = Pools::read(root);
    let pool = pools.of(page)?;
    let available = pool.available()?;
    let pages = need.huge_pages(page);
    let short = pages.checked_sub(available).filter(|short| *short > 0)?;
    Some(MapError::HugePagesShort {
        page,
        need: pages,
        available,
        short,
        nodes: Vec::new(),
        way_out: way_out(root, page, None, pool.persistent()?, short),
    })
}

fn process_limit(root: &Root, need: &Need, len: u64) -> Option<MapError> {
    let process = Process::read(root, ProcessId::Own);
    let used = process.virtual_size.unwrap_or(0);
    if let Some(limit) = process.address_space.and_then(|limit| limit.soft)
        && used.saturating_add(len) > limit
    {
        return Some(MapError::AddressSpace {
            need: len,
            used,
            limit,
        });
    }
    need.check_map_count(root).err()
}

fn overcommit(root: &Root, need: &Need) -> Option<MapError> {
    let memory = Memory::read(root);
    let (mode, available) = match memory.overcommit? {
        Overcommit::Heuristic => (0, memory.available),
        Overcommit::Never => (
            2,
            memory
                .commit_limit
                .zip(memory.committed)
                .map(|(limit, used)| limit.saturating_sub(used)),
        ),
        Overcommit::Always => return None,
    };
    (need.ordinary > 0).then_some(MapError::Overcommit {
        need: need.ordinary,
        available,
        mode,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_no_way_out_of_a_want_of_memory() {
        let text = |mode, available| {
            let need = 100 << 30;
            MapError::Overcommit {
                need,
                available,
                mode,
            }
            .to_string()
        };
        let little = Some(24 << 30);
        assert!(text(0, little).ends_with("; map less"));
        for other in [text(0, Some(200 << 30)), text(0, None), text(2, little)] {
            assert!(other.ends_with("or use huge pages"), "{other}");
        }
    }
}
