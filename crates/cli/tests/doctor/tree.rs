//! The host of the screen: 1 TiB, two nodes, the vendor's driver, a store in a container with 64 KiB of memlock.

use std::fs;
use std::path::Path;

pub(crate) struct Tree(tempfile::TempDir);

const MOUNTS: &str = "\
30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate
31 23 0:27 / /dev/shm rw - tmpfs tmpfs rw
32 23 0:28 / /dev/hugepages rw - hugetlbfs hugetlbfs rw,pagesize=2M
33 23 0:29 / /sys/kernel/tracing rw - tracefs tracefs rw
34 23 0:30 / /sys/kernel/debug rw - debugfs debugfs rw
";

impl Tree {
    pub(crate) fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        tree.kernel();
        tree.driver();
        tree.memory();
        tree.processes();
        tree
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn at(&self, path: &str) -> String {
        self.path().join(path).to_str().unwrap().to_owned()
    }

    pub(crate) fn file(&self, path: &str, text: impl AsRef<[u8]>) {
        let place = self.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, text).unwrap();
    }

    fn kernel(&self) {
        self.file("/proc/sys/kernel/osrelease", "5.15.0-105-generic\n");
        self.file("/proc/sys/kernel/version", "#115-Ubuntu SMP\n");
        self.file(
            "/proc/version_signature",
            "Ubuntu 5.15.0-105.115-generic 5.15.148\n",
        );
        self.file("/proc/sys/kernel/random/boot_id", "5f3a-11\n");
        self.file("/proc/sys/kernel/hostname", "node-a\n");
        self.file("/proc/cmdline", "quiet\n");
        self.file("/sys/kernel/tracing/kprobe_events", "");
        self.file("/sys/kernel/debug/dynamic_debug/control", "");
    }

    fn driver(&self) {
        let function = "/sys/bus/pci/devices/0000:00:07.0";
        self.file("/sys/module/erdma/parameters/compat_mode", "Y\n");
        self.file(
            "/var/lib/dpkg/status",
            "Package: erdma\nStatus: install ok installed\nVersion: 1.2.0-1\n",
        );
        self.file(&format!("{function}/vendor"), "0x1ded\n");
        self.file(&format!("{function}/device"), "0x107f\n");
        self.file(&format!("{function}/numa_node"), "0\n");
        let driver = self
            .path()
            .join(function.trim_start_matches('/'))
            .join("driver");
        std::os::unix::fs::symlink("../../../bus/pci/drivers/erdma", driver).unwrap();
        self.file("/sys/class/infiniband/erdma_0/ports/1/state", "4: ACTIVE\n");
        self.file("/sys/class/infiniband_verbs/uverbs0/ibdev", "erdma_0\n");
        self.file("/dev/infiniband/uverbs0", "");
    }

    fn memory(&self) {
        let pool = "hugepages/hugepages-2048kB";
        for node in 0..2 {
            for file in ["nr_hugepages", "free_hugepages"] {
                let dir = format!("/sys/devices/system/node/node{node}/{pool}");
                self.file(&format!("{dir}/{file}"), "200000\n");
                self.file(&format!("/sys/kernel/mm/{pool}/{file}"), "400000\n");
            }
        }
        self.file(&format!("/sys/kernel/mm/{pool}/resv_hugepages"), "0\n");
        self.file(&format!("/sys/kernel/mm/{pool}/surplus_hugepages"), "0\n");
        self.file(
            "/sys/kernel/mm/transparent_hugepage/enabled",
            "always [madvise] never\n",
        );
        let kib = 200u64 << 20;
        self.file(
            "/proc/meminfo",
            format!(
                "MemTotal: {} kB\nMemFree: {kib} kB\nMemAvailable: {kib} kB\n",
                1u64 << 30
            ),
        );
        self.file(
            "/proc/buddyinfo",
            "Node 0, zone Normal 1 1 1 1 1 1 1 1 1 1 50000\n",
        );
        self.file("/proc/sys/vm/max_map_count", "65530\n");
    }

    fn processes(&self) {
        for (pid, name, memlock) in [
            ("self", "hugemr", "unlimited"),
            ("4121", "mooncake_client", "65536"),
        ] {
            let hard = if memlock == "65536" {
                "8388608"
            } else {
                memlock
            };
            let file = |name: &str, text: &str| self.file(&format!("/proc/{pid}/{name}"), text);
            file("mountinfo", MOUNTS);
            file("cgroup", "0::/store\n");
            file("maps", "a\n");
            file("uid_map", "0 0 4294967295\n");
            file(
                "status",
                &format!("Name:\t{name}\nPPid:\t99\nVmPin:\t0 kB\nCapEff:\t0000000000000000\n"),
            );
            file(
                "limits",
                &format!(
                    "Max locked memory         {memlock:20} {hard:20} bytes\n\
                     Max address space         unlimited            unlimited            bytes\n"
                ),
            );
        }
        self.file("/proc/99/comm", "containerd-shim\n");
    }
}
