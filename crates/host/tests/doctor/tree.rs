//! A tree of `/proc` and `/sys` of a healthy host: Debian's 6.12, the vendor's driver, one eRDMA function, two nodes with
//! 4 GiB of 2 MiB pages each.

use std::fs;

use hugemr_host::root::Root;

pub(crate) struct Tree(tempfile::TempDir);

pub(crate) const FUNCTION: &str = "/sys/bus/pci/devices/0000:00:07.0";
const POOLS: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

pub(crate) const MOUNTS: &str = "\
22 27 0:21 / /proc rw - proc proc rw
30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate
31 23 0:27 / /dev/shm rw - tmpfs tmpfs rw
32 23 0:28 / /dev/hugepages rw - hugetlbfs hugetlbfs rw,pagesize=2M
33 23 0:29 / /sys/kernel/tracing rw - tracefs tracefs rw
34 23 0:30 / /sys/kernel/debug rw - debugfs debugfs rw
";

impl Tree {
    pub(crate) fn empty() -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Self(folder.unwrap())
    }

    pub(crate) fn healthy() -> Self {
        let tree = Self::empty();
        tree.kernel(
            "6.12.117+deb13-amd64",
            "#1 SMP Debian 6.12.117-1 (2026-11-01)",
        );
        tree.file("/proc/cmdline", "root=/dev/vda1 quiet\n");
        tree.file("/proc/sys/kernel/random/boot_id", "5f3a\n");
        tree.file("/proc/sys/kernel/hostname", "node-a\n");
        tree.file(
            "/sys/kernel/security/lockdown",
            "[none] integrity confidentiality\n",
        );

        tree.file("/sys/module/erdma/parameters/compat_mode", "N\n");
        tree.file(
            "/var/lib/dpkg/status",
            "Package: erdma\nStatus: install ok installed\nVersion: 1.2.0-2\n",
        );
        tree.file(&format!("{FUNCTION}/vendor"), "0x1ded\n");
        tree.file(&format!("{FUNCTION}/device"), "0x107f\n");
        tree.file(&format!("{FUNCTION}/numa_node"), "0\n");
        tree.link(
            &format!("{FUNCTION}/driver"),
            "../../../bus/pci/drivers/erdma",
        );
        tree.file("/sys/class/infiniband/erdma_0/ports/1/state", "4: ACTIVE\n");
        tree.file("/sys/class/infiniband_verbs/uverbs0/ibdev", "erdma_0\n");
        tree.file("/dev/infiniband/uverbs0", "");

        tree.pool(0, 2048, 0);
        tree.pool(1, 2048, 0);
        tree.meminfo(64 << 20, 0);
        tree.file(
            "/proc/buddyinfo",
            "Node 0, zone Normal 9 9 9 9 9 9 9 9 9 99 9999\n",
        );
        tree.file("/proc/sys/vm/max_map_count", "65530\n");
        tree.thp("always [madvise] never");

        tree.file("/proc/self/mountinfo", MOUNTS);
        tree.file("/proc/self/cgroup", "0::/store\n");
        tree.file("/proc/self/maps", "a\nb\n");
        tree.file("/proc/self/uid_map", "         0          0 4294967295\n");
        tree.status("0000000000000000");
        tree.limits("unlimited", "unlimited");
        tree.file("/sys/kernel/tracing/kprobe_events", "");
        tree.file("/sys/kernel/tracing/trace", "");
        tree.file("/sys/kernel/debug/dynamic_debug/control", "");
        tree
    }

    pub(crate) fn root(&self) -> Root {
        Root::at(self.0.path())
    }

    pub(crate) fn file(&self, path: &str, text: &str) {
        let place = self.root().path(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, text).unwrap();
    }

    pub(crate) fn link(&self, path: &str, target: &str) {
        let place = self.root().path(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, place).unwrap();
    }

    /// Takes a file or a folder away.
    pub(crate) fn without(&self, path: &str) {
        let place = self.root().path(path);
        if place.is_dir() && !place.is_symlink() {
            fs::remove_dir_all(place).unwrap();
        } else {
            fs::remove_file(place).unwrap();
        }
    }

    pub(crate) fn kernel(&self, release: &str, build: &str) {
        self.file("/proc/sys/kernel/osrelease", release);
        self.file("/proc/sys/kernel/version", build);
    }

    /// The driver of the kernel's tree instead of the vendor's.
    pub(crate) fn in_tree(&self) {
        self.without("/sys/module/erdma/parameters");
        self.file("/sys/module/erdma/refcnt", "0\n");
    }

    /// A node's pool: `count` pages, all free, and of the whole host so many promised.
    pub(crate) fn pool(&self, node: u32, count: u64, reserved: u64) {
        let dir = format!("/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB");
        for (file, n) in [
            ("nr_hugepages", count),
            ("free_hugepages", count),
            ("surplus_hugepages", 0),
        ] {
            self.file(&format!("{dir}/{file}"), &n.to_string());
        }
        let total: u64 = (0..2)
            .filter_map(|node| {
                self.root().number(&format!(
                    "/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/nr_hugepages"
                ))
            })
            .sum();
        for (file, n) in [
            ("nr_hugepages", total),
            ("free_hugepages", total),
            ("resv_hugepages", reserved),
            ("surplus_hugepages", 0),
            ("nr_overcommit_hugepages", 0),
        ] {
            self.file(&format!("{POOLS}/{file}"), &n.to_string());
        }
    }

    pub(crate) fn meminfo(&self, available_kib: u64, cma_kib: u64) {
        self.file(
            "/proc/meminfo",
            &format!(
                "MemTotal: {t} kB\nMemFree: {available_kib} kB\nMemAvailable: {available_kib} kB\nCmaTotal: {cma_kib} kB\n",
                t = 128 << 20
            ),
        );
    }

    pub(crate) fn thp(&self, modes: &str) {
        self.file("/sys/kernel/mm/transparent_hugepage/enabled", modes);
    }

    /// Soft and hard memlock of this process.
    pub(crate) fn limits(&self, soft: &str, hard: &str) {
        self.limits_of("self", soft, hard, "unlimited");
    }

    pub(crate) fn limits_of(&self, pid: &str, soft: &str, hard: &str, space: &str) {
        self.file(
            &format!("/proc/{pid}/limits"),
            &format!(
                "Limit                     Soft Limit           Hard Limit           Units     \n\
                 Max locked memory         {soft:20} {hard:20} bytes     \n\
                 Max address space         {space:20} unlimited            bytes     \n"
            ),
        );
    }

    pub(crate) fn status(&self, capabilities: &str) {
        self.file(
            "/proc/self/status",
            &format!("Name:\thugemr\nVmSize:\t100 kB\nVmPin:\t0 kB\nCapEff:\t{capabilities}\n"),
        );
    }
}
