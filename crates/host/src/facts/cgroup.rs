//! Limits of the cgroups above a process: huge pages, memory, CPU time. Versions 1 and 2, and both at once.
//!
//! A limit of any ancestor holds, so the lowest one is what counts. Sources: Linux
//! `Documentation/admin-guide/cgroup-v1/hugetlb.rst`, `Documentation/admin-guide/cgroup-v2.rst`.

use hugemr_core::process::HugetlbLimit;
use hugemr_core::size::PageSize;

use crate::facts::process::ProcessId;
use crate::root::Root;

/// What the cgroups above a process allow. Absent limits are not listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroup {
    /// For each page size and kind (promised or touched), the limit with the least left.
    pub hugetlb: Vec<HugetlbLimit>,
    /// The lowest memory limit, bytes. Huge pages do not count in it unless the cgroup file system is mounted with
    /// `memory_hugetlb_accounting` (Linux 6.7).
    pub memory_max: Option<u64>,
    /// CPUs' worth of time that the process may use, in thousandths.
    pub cpu_millis: Option<u64>,
}

/// Values from here on mean "no limit" in version 1 (`PAGE_COUNTER_MAX` pages, rounded down).
const V1_NONE: u64 = 1 << 62;

impl Cgroup {
    /// Reads the cgroups above a process.
    #[must_use]
    pub fn read(root: &Root, id: ProcessId) -> Self {
        let own = root.read(&id.file("cgroup")).unwrap_or_default();
        let mounts = root.read(&id.file("mountinfo")).unwrap_or_default();
        let mut found = Self::default();
        for line in own.lines() {
            let mut parts = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) =
                (parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            for dir in ancestors(&mounts, controllers, path) {
                if controllers.is_empty() {
                    found.look_v2(root, &dir);
                } else {
                    found.look_v1(root, &dir, controllers);
                }
            }
        }
        found.hugetlb.sort_by_key(|l| (l.page, l.at_mmap));
        found
    }

    /// The limits on a page size.
    pub fn hugetlb(&self, page: PageSize) -> impl Iterator<Item = &HugetlbLimit> {
        self.hugetlb.iter().filter(move |limit| limit.page == page)
    }

    /// The least that is left under a limit of each page size, bytes, as [`hugemr_core::host::Host::cgroup`] wants it.
    #[must_use]
    pub fn lowest(&self) -> Vec<(PageSize, u64)> {
        let mut lowest: Vec<(PageSize, u64)> =
            self.hugetlb.iter().map(|l| (l.page, l.left())).collect();
        lowest.sort_unstable();
        lowest.dedup_by_key(|(page, _)| *page);
        lowest
    }

    fn look_v2(&mut self, root: &Root, dir: &str) {
        self.look_hugetlb(root, dir, ".max", ".current");
        self.lower_memory(root.number(&format!("{dir}/memory.max")));
        if let Some(text) = root.text(&format!("{dir}/cpu.max")) {
            let mut words = text.split_whitespace().map(str::parse::<u64>);
            if let (Some(Ok(quota)), Some(Ok(period))) = (words.next(), words.next()) {
                self.lower_cpu(quota, period);
            }
        }
    }

    fn look_v1(&mut self, root: &Root, dir: &str, controllers: &str) {
        for controller in controllers.split(',') {
            match controller {
                "hugetlb" => {
                    self.look_hugetlb(root, dir, ".limit_in_bytes", ".usage_in_bytes");
                }
                "memory" => {
                    self.lower_memory(root.number(&format!("{dir}/memory.limit_in_bytes")));
                }
                "cpu" => {
                    let number = |name| root.number(&format!("{dir}/cpu.cfs_{name}_us"));
                    if let (Some(quota), Some(period)) = (number("quota"), number("period")) {
                        self.lower_cpu(quota, period);
                    }
                }
                _ => {}
            }
        }
    }

    fn look_hugetlb(&mut self, root: &Root, dir: &str, limit: &str, usage: &str) {
        for name in root.names(dir) {
            let Some(stem) = name.strip_suffix(limit) else {
                continue;
            };
            let Some(size) = stem.strip_prefix("hugetlb.") else {
                continue;
            };
            let (size, at_mmap) = size
                .strip_suffix(".rsvd")
                .map_or((size, false), |size| (size, true));
            let Some(page) = page_of(size) else { continue };
            let file = format!("{dir}/{name}");
            // "max" is no number, and so no limit.
            let Some(max) = root.number(&file).filter(|max| *max < V1_NONE) else {
                continue;
            };
            let used = root.number(&format!("{dir}/{stem}{usage}"));
            self.lower_hugetlb(HugetlbLimit {
                page,
                max,
                used,
                at_mmap,
                file,
            });
        }
    }

    fn lower_hugetlb(&mut self, new: HugetlbLimit) {
        let same = |old: &&mut HugetlbLimit| old.page == new.page && old.at_mmap == new.at_mmap;
        match self.hugetlb.iter_mut().find(same) {
            Some(old) if old.left() <= new.left() => {}
            Some(old) => *old = new,
            None => self.hugetlb.push(new),
        }
    }

    fn lower_memory(&mut self, limit: Option<u64>) {
        if let Some(limit) = limit.filter(|limit| *limit < V1_NONE) {
            self.memory_max = Some(self.memory_max.map_or(limit, |old| old.min(limit)));
        }
    }

    fn lower_cpu(&mut self, quota: u64, period: u64) {
        if let Some(millis) = quota.saturating_mul(1000).checked_div(period) {
            self.cpu_millis = Some(self.cpu_millis.map_or(millis, |old| old.min(millis)));
        }
    }
}

/// The size in a hugetlb file's name: `2MB`, `1GB`, `64KB` (powers of two).
fn page_of(text: &str) -> Option<PageSize> {
    let split = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(split);
    let shift = match unit {
        "KB" => 10,
        "MB" => 20,
        "GB" => 30,
        _ => return None,
    };
    let bytes = number.parse::<u64>().ok()?.checked_mul(1 << shift)?;
    PageSize::new(bytes).ok()
}

/// Folders of a cgroup and of its ancestors up to the mount, by mountinfo.
///
/// A container sees only a part of the tree: the mount shows the sub-tree below its own root field, and the path in
/// `/proc/self/cgroup` is counted from the root of the cgroup namespace (`/` inside most containers).
fn ancestors(mounts: &str, controllers: &str, path: &str) -> Vec<String> {
    let Some((mount_root, mount_point)) = mounts
        .lines()
        .find_map(|line| cgroup_mount(line, controllers))
    else {
        return Vec::new();
    };
    let below = path
        .strip_prefix(mount_root.trim_end_matches('/'))
        .filter(|rest| rest.is_empty() || rest.starts_with('/'))
        // The path lies outside what is mounted: the mount itself is the best that can be seen.
        .unwrap_or("");
    let mount = mount_point.trim_end_matches('/');
    let mut dirs = vec![mount.to_owned()];
    let mut dir = mount.to_owned();
    for part in below.split('/').filter(|part| !part.is_empty()) {
        if part == ".." {
            break;
        }
        dir = format!("{dir}/{part}");
        dirs.push(dir.clone());
    }
    dirs
}

/// Root and mount point of a line of mountinfo that mounts these controllers (empty: version 2).
fn cgroup_mount<'a>(line: &'a str, controllers: &str) -> Option<(&'a str, &'a str)> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(3);
    let (root, point) = (left.next()?, left.next()?);
    let mut right = right.split(' ');
    let kind = right.next()?;
    let options = right.nth(1).unwrap_or_default();
    let fits = if controllers.is_empty() {
        kind == "cgroup2"
    } else {
        let has = |name: &str| options.split(',').any(|option| option == name);
        kind == "cgroup" && controllers.split(',').all(has)
    };
    fits.then_some((root, point))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fake::Tree;

    #[test]
    fn version_2_lowest_ancestor_counts() {
        let tree = Tree::new();
        tree.file("/proc/self/cgroup", "0::/a.slice/b.scope\n");
        tree.file(
            "/proc/self/mountinfo",
            "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
        );
        let dir = "/sys/fs/cgroup/a.slice";
        tree.file(&format!("{dir}/hugetlb.2MB.max"), "4194304\n");
        tree.file(&format!("{dir}/hugetlb.2MB.current"), "2097152\n");
        tree.file(&format!("{dir}/hugetlb.1GB.max"), "max\n");
        tree.file(&format!("{dir}/memory.max"), "max\n");
        tree.file(&format!("{dir}/cpu.max"), "max 100000\n");
        tree.file(&format!("{dir}/b.scope/hugetlb.2MB.max"), "3145728\n");
        tree.file(&format!("{dir}/b.scope/hugetlb.2MB.current"), "0\n");
        tree.file(&format!("{dir}/b.scope/hugetlb.2MB.rsvd.max"), "2097152\n");
        tree.file(&format!("{dir}/b.scope/memory.max"), "1000\n");
        tree.file(&format!("{dir}/b.scope/cpu.max"), "150000 100000\n");

        let found = Cgroup::read(&tree.root(), ProcessId::Own);
        assert_eq!(found.hugetlb.len(), 2);
        assert_eq!(found.hugetlb[0].left(), 2 << 20);
        assert_eq!(found.hugetlb[0].max, 4 << 20);
        assert!(found.hugetlb[1].at_mmap);
        assert_eq!(found.memory_max, Some(1000));
        assert_eq!(found.cpu_millis, Some(1500));
    }

    #[test]
    fn version_1_and_containers() {
        let tree = Tree::new();
        tree.file(
            "/proc/self/cgroup",
            "9:hugetlb:/docker/abc\n4:memory:/x\n1:cpu,cpuacct:/docker/abc\n0::/\n",
        );
        tree.file(
            "/proc/self/mountinfo",
            "30 23 0:26 /docker/abc /sys/fs/cgroup/hugetlb ro - cgroup cgroup rw,hugetlb\n\
             31 23 0:27 / /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n\
             32 23 0:28 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n",
        );
        let dir = "/sys/fs/cgroup";
        tree.file(
            &format!("{dir}/hugetlb/hugetlb.2MB.limit_in_bytes"),
            "2097152",
        );
        tree.file(
            &format!("{dir}/hugetlb/hugetlb.1GB.limit_in_bytes"),
            "9223372035781033984",
        );
        tree.file(&format!("{dir}/memory/x/memory.limit_in_bytes"), "77");
        tree.file(&format!("{dir}/cpu,cpuacct/cpu.cfs_quota_us"), "-1");
        tree.file(&format!("{dir}/cpu,cpuacct/cpu.cfs_period_us"), "100000");
        let found = Cgroup::read(&tree.root(), ProcessId::Own);
        assert_eq!(found.hugetlb.len(), 1);
        assert_eq!(found.hugetlb(PageSize::M2).next().unwrap().max, 2 << 20);
        assert_eq!(found.memory_max, Some(77));
        assert_eq!(found.cpu_millis, None);
    }

    #[test]
    fn page_names() {
        assert_eq!(page_of("2MB"), Some(PageSize::M2));
        assert_eq!(page_of("64KB"), Some(PageSize::K64));
        for text in ["", "MB", "2", "2TB", "3MB", "99999999999999999999GB"] {
            assert_eq!(page_of(text), None, "{text}");
        }
    }

    #[test]
    fn lines_that_are_no_mounts_are_skipped() {
        for line in [
            "",
            " - ",
            "1 2 3 4 - cgroup2",
            "1 2 3 / /m - cgroup2",
            "a - b - c",
        ] {
            let _ = ancestors(line, "", "/x");
            let _ = ancestors(line, "hugetlb", "/../x");
        }
    }
}
