//! Memory of the host: sizes, transparent huge pages, overcommit, mounts.

use hugemr_core::fact::{Kind, Limit, Source};
use hugemr_core::size::PageSize;

use crate::root::Root;

/// A mode of transparent huge pages: the word in brackets.
pub type ThpMode = String;

/// How much memory the kernel promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overcommit {
    /// 0: refuses only what is obviously too much.
    Heuristic,
    /// 1: always.
    Always,
    /// 2: never beyond the commit limit.
    Never,
}

/// A mounted hugetlbfs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HugetlbMount {
    /// Where.
    pub path: String,
    /// Its page size; `None` where the options do not say.
    pub page: Option<PageSize>,
}

/// Memory of the host. `None`: not readable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// MemTotal, bytes.
    pub total: Option<u64>,
    /// MemFree, bytes.
    pub free: Option<u64>,
    /// MemAvailable, bytes.
    pub available: Option<u64>,
    /// SwapFree, bytes.
    pub swap_free: Option<u64>,
    /// CmaTotal, bytes: memory from which pinned pages must first be moved away.
    pub cma_total: Option<u64>,
    /// CommitLimit, bytes (holds in mode [`Overcommit::Never`]).
    pub commit_limit: Option<u64>,
    /// Committed_AS, bytes.
    pub committed: Option<u64>,
    /// vm.overcommit_memory.
    pub overcommit: Option<Overcommit>,
    /// vm.max_map_count: mappings that one process may have.
    pub max_map_count: Option<u64>,
    /// Mode of transparent huge pages for ordinary memory: always, madvise, never.
    pub thp_enabled: Option<ThpMode>,
    /// When the kernel works for a transparent huge page: always, defer, defer+madvise, madvise, never.
    pub thp_defrag: Option<ThpMode>,
    /// Mode for shared memory: always, within_size, advise, never, deny, force.
    pub thp_shmem: Option<ThpMode>,
    /// Size of a transparent huge page.
    pub thp_page: Option<PageSize>,
    /// Mounted hugetlbfs.
    pub hugetlbfs: Vec<HugetlbMount>,
}

const THP: &str = "/sys/kernel/mm/transparent_hugepage";

impl Memory {
    /// Memory that may be offered for huge pages, bytes ([`margin`](hugemr_core::margin)).
    #[must_use]
    pub fn spare(&self) -> Option<u64> {
        Some(hugemr_core::margin::spare(self.available?, self.total))
    }

    /// What is risked where so many bytes become huge pages; `None`: nothing that is known.
    #[must_use]
    pub fn risk(&self, need: u64) -> Option<String> {
        hugemr_core::margin::risk(need, self.available?, self.total)
    }

    /// Memory that pages of no pool can have, bytes: what is available, and at most what others could be swapped out for;
    /// less under a memory limit of a cgroup. How much of such a limit is in use is not counted: of that much can be given up.
    #[must_use]
    pub fn for_pages(&self, cgroup: Option<u64>) -> Option<Limit> {
        let available = self.available?;
        let most = available.saturating_add(self.swap_free.unwrap_or(0));
        let documented = |text| Source::new(Kind::Documented, text);
        Some(match cgroup {
            Some(limit) if limit < most => {
                let source = documented("memory limit of the cgroup");
                Limit::interval(available.min(limit), Some(limit), source)
            }
            _ if most > available => Limit::interval(
                available,
                Some(most),
                documented("MemAvailable, with SwapFree"),
            ),
            _ => Limit::exact(available, documented("MemAvailable")),
        })
    }

    /// Reads the memory of the host.
    #[must_use]
    pub fn read(root: &Root) -> Self {
        let meminfo = root.read("/proc/meminfo").unwrap_or_default();
        let kib = |name| super::kib_field(&meminfo, name);
        let mode = |file: &str| bracketed(&root.text(&format!("{THP}/{file}"))?);
        let mounts = root.read("/proc/self/mountinfo").unwrap_or_default();
        Self {
            total: kib("MemTotal"),
            free: kib("MemFree"),
            available: kib("MemAvailable"),
            swap_free: kib("SwapFree"),
            cma_total: kib("CmaTotal"),
            commit_limit: kib("CommitLimit"),
            committed: kib("Committed_AS"),
            overcommit: match root.number("/proc/sys/vm/overcommit_memory") {
                Some(0) => Some(Overcommit::Heuristic),
                Some(1) => Some(Overcommit::Always),
                Some(2) => Some(Overcommit::Never),
                _ => None,
            },
            max_map_count: root.number("/proc/sys/vm/max_map_count"),
            thp_enabled: mode("enabled"),
            thp_defrag: mode("defrag"),
            thp_shmem: mode("shmem_enabled"),
            thp_page: root
                .number(&format!("{THP}/hpage_pmd_size"))
                .and_then(|bytes| PageSize::new(bytes).ok()),
            hugetlbfs: mounts.lines().filter_map(hugetlb_mount).collect(),
        }
    }
}

/// `always [madvise] never` is `madvise`.
pub(super) fn bracketed(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    let (word, _) = rest.split_once(']')?;
    Some(word.to_owned())
}

pub(super) fn hugetlb_mount(line: &str) -> Option<HugetlbMount> {
    let (left, right) = line.split_once(" - ")?;
    let mut right = right.split(' ');
    if right.next()? != "hugetlbfs" {
        return None;
    }
    let options = right.nth(1).unwrap_or_default();
    let page = options
        .split(',')
        .find_map(|option| option.strip_prefix("pagesize="));
    Some(HugetlbMount {
        path: left.split(' ').nth(4)?.to_owned(),
        page: page.and_then(|text| text.parse().ok()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fake::Tree;

    #[test]
    fn pages_of_no_pool_have_what_is_available_and_swap_under_the_limit_of_the_cgroup() {
        let memory = |available, swap_free| Memory {
            available,
            swap_free,
            ..Memory::default()
        };
        let bounds = |memory: Memory, cgroup| {
            let limit = memory.for_pages(cgroup)?;
            Some((limit.certain(), limit.at_most(), limit.source.text))
        };
        assert_eq!(bounds(memory(None, Some(1)), Some(1)), None);
        for (swap, cgroup, certain, most, text) in [
            (None, None, 100, 100, "MemAvailable"),
            (Some(0), Some(100), 100, 100, "MemAvailable"),
            (Some(7), None, 100, 107, "MemAvailable, with SwapFree"),
            (Some(7), Some(105), 100, 105, "memory limit of the cgroup"),
            (None, Some(40), 40, 40, "memory limit of the cgroup"),
        ] {
            let found = bounds(memory(Some(100), swap), cgroup);
            assert_eq!(found, Some((certain, Some(most), text.into())));
        }
    }

    #[test]
    fn a_whole_host() {
        let tree = Tree::new();
        tree.file(
            "/proc/meminfo",
            "MemTotal:  100 kB\nMemFree: 50 kB\nMemAvailable: 60 kB\nCommitLimit: 1 kB\n",
        );
        tree.file("/proc/sys/vm/overcommit_memory", "2\n");
        tree.file("/proc/sys/vm/max_map_count", "65530\n");
        tree.file(&format!("{THP}/enabled"), "always [madvise] never\n");
        tree.file(&format!("{THP}/hpage_pmd_size"), "2097152\n");
        tree.file(
            "/proc/self/mountinfo",
            "40 1 0:30 / /dev/hugepages rw - hugetlbfs hugetlbfs rw,pagesize=2M\n\
             41 1 0:31 / /mnt/h rw - hugetlbfs none rw\n42 1 0:32 / / rw - ext4 /dev/a rw\n",
        );
        let memory = Memory::read(&tree.root());
        assert_eq!(memory.available, Some(61440));
        assert_eq!(memory.overcommit, Some(Overcommit::Never));
        assert_eq!(memory.thp_enabled.as_deref(), Some("madvise"));
        assert_eq!(memory.thp_defrag, None);
        assert_eq!(memory.thp_page, Some(PageSize::M2));
        assert_eq!(memory.hugetlbfs[0].page, Some(PageSize::M2));
        assert_eq!(memory.hugetlbfs[1].page, None);
        assert_eq!(memory.hugetlbfs.len(), 2);
    }
}
