//! Huge-page pools, of the whole host and of each NUMA node, as sysfs shows them.
//!
//! Sources: Linux `Documentation/admin-guide/mm/hugetlbpage.rst`, `mm/hugetlb_sysfs.c`. All counts are pages.
//! A count is *absurd* when it would be 2^56 bytes or more: some kernels let `resv_hugepages` wrap below 0
//! (seen on 6.12.117), and a wrapped count must not be taken for a number. An absurd count is unknown.

use hugemr_core::host::{HugePool, Node};
use hugemr_core::size::PageSize;

use crate::root::{Root, parse_list};

/// Folder of the pools of the whole host.
pub const GLOBAL: &str = "/sys/kernel/mm/hugepages";
/// Folder of the NUMA nodes.
pub const NODES: &str = "/sys/devices/system/node";

/// The pool of one page size, of the whole host. `None`: not readable, or absurd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlobalPool {
    /// Page size.
    pub page: PageSize,
    /// Pages in the pool, surplus included (`nr_hugepages`).
    pub total: Option<u64>,
    /// Pages not in use (`free_hugepages`).
    pub free: Option<u64>,
    /// Pages of the free ones that are promised to mappings (`resv_hugepages`).
    pub reserved: Option<u64>,
    /// Pages that go back to the system when they are freed (`surplus_hugepages`).
    pub surplus: Option<u64>,
    /// Surplus pages that the kernel may make on demand (`nr_overcommit_hugepages`).
    pub overcommit: Option<u64>,
}

impl GlobalPool {
    /// Pages that a new mapping can have: free and not promised. `None` where one of the two is unknown.
    #[must_use]
    pub fn available(&self) -> Option<u64> {
        Some(self.free?.saturating_sub(self.reserved?))
    }

    /// Pages that stay when they are freed: what a write to `nr_hugepages` sets.
    #[must_use]
    pub fn persistent(&self) -> Option<u64> {
        Some(self.total?.saturating_sub(self.surplus?))
    }
}

/// All pools of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pools {
    /// By page size, ascending. Empty: the kernel has no hugetlb, or its folder cannot be read.
    pub global: Vec<GlobalPool>,
    /// By node, ascending. Where sysfs has no nodes with pools: one node 0 with the global pools.
    pub nodes: Vec<Node>,
    /// Whether `nodes` were read node by node.
    pub per_node: bool,
}

impl Pools {
    /// Reads all pools.
    #[must_use]
    pub fn read(root: &Root) -> Self {
        let global: Vec<GlobalPool> = page_sizes(root, GLOBAL)
            .into_iter()
            .map(|page| read_global(root, page))
            .collect();
        let ids = node_ids(root);
        let per_node = ids
            .iter()
            .any(|id| root.exists(&format!("{}/hugepages", node_dir(*id))));
        let nodes = if per_node || global.is_empty() && !ids.is_empty() {
            ids.into_iter().map(|id| read_node(root, id)).collect()
        } else if global.is_empty() {
            Vec::new()
        } else {
            vec![whole_host(root, &global)]
        };
        Self {
            global,
            nodes,
            per_node,
        }
    }

    /// The pool of that size; `None` where the kernel has no such pool.
    #[must_use]
    pub fn of(&self, page: PageSize) -> Option<&GlobalPool> {
        self.global.iter().find(|pool| pool.page == page)
    }

    /// The pool of that size on that node.
    #[must_use]
    pub fn on_node(&self, node: u32, page: PageSize) -> Option<&HugePool> {
        let node = self.nodes.iter().find(|n| n.id == node)?;
        node.pools.iter().find(|pool| pool.page == page)
    }

    /// Huge page sizes of this kernel, ascending.
    #[must_use]
    pub fn sizes(&self) -> Vec<PageSize> {
        self.global.iter().map(|pool| pool.page).collect()
    }

    /// Promised pages by size, as [`hugemr_core::host::Host::reserved`] wants them; unknown counts are left out.
    #[must_use]
    pub fn reserved(&self) -> Vec<(PageSize, u64)> {
        self.global
            .iter()
            .filter_map(|pool| Some((pool.page, pool.reserved?)))
            .collect()
    }
}

/// Folder of one node.
#[must_use]
pub fn node_dir(node: u32) -> String {
    format!("{NODES}/node{node}")
}

/// Name of a pool's folder: `hugepages-2048kB`.
#[must_use]
pub fn pool_name(page: PageSize) -> String {
    format!("hugepages-{}kB", page.bytes() >> 10)
}

/// Folder of a pool: of the whole host, or of one node.
#[must_use]
pub fn pool_dir(page: PageSize, node: Option<u32>) -> String {
    let name = pool_name(page);
    node.map_or_else(
        || format!("{GLOBAL}/{name}"),
        |node| format!("{}/hugepages/{name}", node_dir(node)),
    )
}

/// A count of pages; `None` where it is not readable or absurd.
#[must_use]
pub fn count(root: &Root, dir: &str, file: &str, page: PageSize) -> Option<u64> {
    let pages = root.number(&format!("{dir}/{file}"))?;
    let bytes = pages.checked_mul(page.bytes())?;
    (bytes < 1 << 56).then_some(pages)
}

fn page_sizes(root: &Root, dir: &str) -> Vec<PageSize> {
    let mut sizes: Vec<PageSize> = root
        .names(dir)
        .iter()
        .filter_map(|name| {
            let kib: u64 = name
                .strip_prefix("hugepages-")?
                .strip_suffix("kB")?
                .parse()
                .ok()?;
            PageSize::new(kib.checked_mul(1024)?).ok()
        })
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn read_global(root: &Root, page: PageSize) -> GlobalPool {
    let dir = pool_dir(page, None);
    let count = |file| count(root, &dir, file, page);
    GlobalPool {
        page,
        total: count("nr_hugepages"),
        free: count("free_hugepages"),
        reserved: count("resv_hugepages"),
        surplus: count("surplus_hugepages"),
        overcommit: count("nr_overcommit_hugepages"),
    }
}

/// Numbers of the nodes, ascending.
fn node_ids(root: &Root) -> Vec<u32> {
    let mut ids: Vec<u32> = root
        .names(NODES)
        .iter()
        .filter_map(|name| name.strip_prefix("node")?.parse().ok())
        .collect();
    ids.sort_unstable();
    ids
}

fn read_node(root: &Root, id: u32) -> Node {
    let dir = node_dir(id);
    let pools = page_sizes(root, &format!("{dir}/hugepages"))
        .into_iter()
        .filter_map(|page| read_pool(root, page, id))
        .collect();
    let cpus = root.text(&format!("{dir}/cpulist"));
    let meminfo = root.text(&format!("{dir}/meminfo")).unwrap_or_default();
    Node {
        id,
        cpus: cpus.and_then(|list| parse_list(&list)).unwrap_or_default(),
        mem_free: node_mem_free(&meminfo).unwrap_or(0),
        pools,
    }
}

/// A pool whose size or free count is unknown is left out; an unknown surplus (absurd) counts as none.
fn read_pool(root: &Root, page: PageSize, node: u32) -> Option<HugePool> {
    let dir = pool_dir(page, Some(node));
    Some(HugePool {
        page,
        total: count(root, &dir, "nr_hugepages", page)?,
        free: count(root, &dir, "free_hugepages", page)?,
        surplus: count(root, &dir, "surplus_hugepages", page).unwrap_or(0),
    })
}

/// Node 0 made of the global pools.
fn whole_host(root: &Root, global: &[GlobalPool]) -> Node {
    let pools = global
        .iter()
        .filter_map(|pool| {
            Some(HugePool {
                page: pool.page,
                total: pool.total?,
                free: pool.free?,
                surplus: pool.surplus.unwrap_or(0),
            })
        })
        .collect();
    let cpus = root.text("/sys/devices/system/cpu/online");
    let meminfo = root.text("/proc/meminfo").unwrap_or_default();
    Node {
        id: 0,
        cpus: cpus.and_then(|list| parse_list(&list)).unwrap_or_default(),
        mem_free: crate::facts::kib_field(&meminfo, "MemFree").unwrap_or(0),
        pools,
    }
}

/// `Node 0 MemFree:  123 kB`, in bytes.
fn node_mem_free(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.contains(" MemFree:"))?;
    let kib: u64 = line.split_whitespace().rev().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fake::Tree;
    use proptest::prelude::*;

    fn global(tree: &Tree, page: PageSize, counts: [u64; 5]) {
        let names = [
            "nr_hugepages",
            "free_hugepages",
            "resv_hugepages",
            "surplus_hugepages",
            "nr_overcommit_hugepages",
        ];
        for (name, count) in names.iter().zip(counts) {
            tree.file(
                &format!("{}/{name}", pool_dir(page, None)),
                &count.to_string(),
            );
        }
    }

    fn node(tree: &Tree, id: u32, page: PageSize, counts: [u64; 3]) {
        let names = ["nr_hugepages", "free_hugepages", "surplus_hugepages"];
        for (name, count) in names.iter().zip(counts) {
            tree.file(
                &format!("{}/{name}", pool_dir(page, Some(id))),
                &count.to_string(),
            );
        }
    }

    #[test]
    fn two_nodes_two_sizes() {
        let tree = Tree::new();
        global(&tree, PageSize::M2, [30, 20, 5, 2, 7]);
        global(&tree, PageSize::G1, [3, 2, 0, 0, 0]);
        node(&tree, 0, PageSize::M2, [10, 8, 1]);
        node(&tree, 1, PageSize::M2, [20, 12, 1]);
        node(&tree, 1, PageSize::G1, [3, 2, 0]);
        node(&tree, 10, PageSize::M2, [0, 0, 0]);
        tree.file("/sys/devices/system/node/node1/cpulist", "4-6\n");
        tree.file(
            "/sys/devices/system/node/node1/meminfo",
            "Node 1 MemTotal:  200 kB\nNode 1 MemFree:   100 kB\n",
        );
        tree.file("/sys/devices/system/node/online", "0-1,10");

        let pools = Pools::read(&tree.root());
        assert!(pools.per_node);
        assert_eq!(pools.sizes(), [PageSize::M2, PageSize::G1]);
        assert_eq!(pools.of(PageSize::M2).unwrap().available(), Some(15));
        assert_eq!(pools.of(PageSize::M2).unwrap().persistent(), Some(28));
        let ids: Vec<u32> = pools.nodes.iter().map(|n| n.id).collect();
        assert_eq!(ids, [0, 1, 10]);
        assert_eq!(pools.nodes[1].cpus, [4, 5, 6]);
        assert_eq!(pools.nodes[1].mem_free, 102_400);
        assert_eq!(pools.on_node(1, PageSize::G1).unwrap().free, 2);
        assert_eq!(pools.on_node(0, PageSize::G1), None);
        assert_eq!(pools.reserved(), [(PageSize::M2, 5), (PageSize::G1, 0)]);
    }

    #[test]
    fn without_numa_folders_the_global_pools_are_node_0() {
        let tree = Tree::new();
        global(&tree, PageSize::M2, [30, 20, 5, 2, 7]);
        tree.file("/sys/devices/system/cpu/online", "0-1");
        tree.file("/proc/meminfo", "MemTotal: 9 kB\nMemFree:  7 kB\n");
        let pools = Pools::read(&tree.root());
        assert!(!pools.per_node);
        assert_eq!(pools.nodes.len(), 1);
        assert_eq!(pools.nodes[0].mem_free, 7168);
        assert_eq!(pools.nodes[0].pools[0].free, 20);
    }

    #[test]
    fn a_wrapped_count_is_unknown() {
        let tree = Tree::new();
        global(&tree, PageSize::M2, [30, 20, u64::MAX - 59, 0, 0]);
        let pools = Pools::read(&tree.root());
        let pool = pools.of(PageSize::M2).unwrap();
        assert_eq!((pool.reserved, pool.available()), (None, None));
        assert_eq!(pool.total, Some(30));
        assert!(pools.reserved().is_empty());
        // More memory than any host has, without wrapping.
        global(&tree, PageSize::M2, [30, 20, 1 << 35, 0, 0]);
        let pool = *Pools::read(&tree.root()).of(PageSize::M2).unwrap();
        assert_eq!(pool.reserved, None);
    }

    #[test]
    fn a_host_without_hugetlb_has_no_pools() {
        let pools = Pools::read(&Tree::new().root());
        assert_eq!(pools, Pools::default());
    }

    proptest! {
        // Each case makes a folder.
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn counts_come_out_as_they_went_in(
            nodes in proptest::collection::btree_map(0u32..40, (0u64..9999, 0u64..9999, 0u64..99), 1..5),
            shift in prop_oneof![Just(16u32), Just(21), Just(25), Just(29), Just(30)],
        ) {
            let page = PageSize::from_shift(shift).unwrap();
            let tree = Tree::new();
            let free = nodes.values().map(|(_, free, _)| free).sum();
            let total = nodes.values().map(|(total, ..)| total).sum();
            global(&tree, page, [total, free, 0, 0, 0]);
            for (id, (total, free, surplus)) in &nodes {
                node(&tree, *id, page, [*total, *free, *surplus]);
            }
            let pools = Pools::read(&tree.root());
            let read: Vec<(u32, (u64, u64, u64))> = pools.nodes.iter()
                .map(|n| (n.id, (n.pools[0].total, n.pools[0].free, n.pools[0].surplus)))
                .collect();
            prop_assert_eq!(read, nodes.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(pools.of(page).unwrap().free, Some(free));
        }

        #[test]
        fn any_text_in_any_file_is_survived(
            name in "hugepages-[0-9kMB]{0,20}", file in "(nr|free|resv)_hugepages", text in "\\PC{0,30}",
        ) {
            let tree = Tree::new();
            tree.file(&format!("{GLOBAL}/{name}/{file}"), &text);
            tree.file(&format!("{NODES}/node0/hugepages/{name}/{file}"), &text);
            for pool in Pools::read(&tree.root()).global {
                for pages in [pool.total, pool.free, pool.reserved].into_iter().flatten() {
                    prop_assert!(pages.checked_mul(pool.page.bytes()).is_some());
                }
            }
        }
    }
}
