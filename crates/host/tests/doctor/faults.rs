//! The table of faults. Each changes the healthy tree in one place.

use hugemr_core::doctor::{Harm, Report};
use hugemr_core::size::GIB;
use hugemr_host::facts::{ProcessId, doctor};

use super::tree::{FUNCTION, MOUNTS, Tree};
use super::{Bundle, report};

pub(crate) struct Fault {
    pub(crate) name: &'static str,
    plant: fn(&Tree),
    wish: Option<u64>,
    id: ProcessId,
    bundle: Bundle,
    pub(crate) harm: Harm,
    pub(crate) code: &'static str,
    /// Part of the evidence.
    pub(crate) seen: &'static str,
    /// Part of the fix.
    pub(crate) fix: &'static str,
    /// Whether the answer hangs on what is not known.
    pub(crate) undecided: bool,
}

impl Fault {
    pub(crate) fn report(&self) -> Report {
        let tree = Tree::healthy();
        (self.plant)(&tree);
        report(
            &doctor::gather(&tree.root(), self.id),
            self.wish,
            self.bundle,
        )
    }

    fn wish(mut self, bytes: u64) -> Self {
        self.wish = Some(bytes);
        self
    }

    fn pid(mut self, pid: u32) -> Self {
        self.id = ProcessId::Pid(pid);
        self
    }

    fn bundle_not_said(mut self) -> Self {
        self.bundle = Bundle::NotSaid;
        self
    }

    fn undecided(mut self) -> Self {
        self.undecided = true;
        self
    }
}

/// A fault that is seen without a wish.
fn fault(
    name: &'static str,
    plant: fn(&Tree),
    harm: Harm,
    code: &'static str,
    seen: &'static str,
    fix: &'static str,
) -> Fault {
    Fault {
        name,
        plant,
        wish: None,
        id: ProcessId::Own,
        bundle: Bundle::New,
        harm,
        code,
        seen,
        fix,
        undecided: false,
    }
}

pub(crate) fn all() -> Vec<Fault> {
    let mut faults = stack();
    faults.extend(pools());
    faults.extend(process());
    faults.extend(driver());
    faults.extend(kernel());
    faults
}

use Harm::{Block, Risk, Unknown};

#[rustfmt::skip] // a table
fn stack() -> Vec<Fault> {
    vec![
        fault("no device", |t| t.without("/sys/class/infiniband/erdma_0"), Block, "no_device", "/sys/class/infiniband", "modprobe erdma"),
        fault("no uverbs", |t| t.without("/sys/class/infiniband_verbs/uverbs0"), Block, "no_kernel_support", "infiniband_verbs", "modprobe ib_uverbs"),
        fault("no device file", |t| t.without("/dev/infiniband/uverbs0"), Block, "no_char_device", "/dev/infiniband", "--device /dev/infiniband/uverbs0"),
        fault("function without driver", |t| t.without(&format!("{FUNCTION}/driver")), Block, "function_without_driver", FUNCTION, "modprobe erdma"),
        fault("port down", |t| t.file("/sys/class/infiniband/erdma_0/ports/1/state", "1: DOWN\n"), Risk, "port_not_active", "ports/1/state", "ip link set"),
        fault("port state unreadable", |t| t.file("/sys/class/infiniband/erdma_0/ports/1/state", ""), Unknown, "port_unknown", "ports/1/state", "rdma link"),
        fault("device unseen", |t| t.without("/sys/class"), Unknown, "devices_unseen", "/sys/class", "--host-root").undecided(),
    ]
}

#[rustfmt::skip] // a table
fn pools() -> Vec<Fault> {
    vec![
        fault("pool short", |t| t.pool(1, 1000, 0), Block, "pool_short", "node0 free 2,048  node1 free 1,000  need 4,096", "sudo hugemr reserve 8GiB --spread").wish(8 * GIB),
        fault("pages promised to others", |t| t.pool(1, 2048, 96), Block, "pool_short", "promised to others 96", "sudo hugemr reserve 8GiB").wish(8 * GIB),
        fault("pages of the dead", |t| {
            t.file("/run/hugemr/ledger", "hugemr-ledger 1\n1 4294967 7 2097152 0 32 0 settled 0 0\n2 - 0 2097152 0 5 0 settled 0 0\n");
        }, Risk, "pool_stale", "/run/hugemr/ledger", "sudo hugemr release --stale && sudo hugemr reserve 1GiB").wish(GIB),
        fault("ledger not understood", |t| t.file("/run/hugemr/ledger", "hugemr-ledger 1\nhello\n"), Unknown, "ledger", "/run/hugemr/ledger", "sudo mv /run/hugemr/ledger /run/hugemr/ledger.bad"),
        fault("counter wrapped", |t| t.file("/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", "18446744073709551556"), Unknown, "pool_uncountable", "resv_hugepages", "grep").wish(GIB).undecided(),
        fault("nothing reserved", |t| { t.pool(0, 0, 0); t.pool(1, 0, 0); }, Risk, "pool_empty", "nr_hugepages", "sudo hugemr reserve"),
        fault("no huge pages in the kernel", |t| { t.without("/sys/kernel/mm/hugepages"); t.without("/sys/devices/system/node"); }, Block, "no_hugetlb", "/sys/kernel/mm/hugepages", "CONFIG_HUGETLBFS").wish(GIB),
        fault("no huge pages, no wish", |t| { t.without("/sys/kernel/mm/hugepages"); t.without("/sys/devices/system/node"); }, Risk, "no_hugetlb", "/sys/kernel/mm/hugepages", "CONFIG_HUGETLBFS"),
        fault("memory scattered", |t| t.file("/proc/buddyinfo", "Node 0, zone Normal 9999999 0 0 0 0 0 0 0 0 1 1\n"), Risk, "memory_fragmented", "/proc/buddyinfo", "compact_memory"),
        fault("meminfo unreadable", |t| t.without("/proc/meminfo"), Unknown, "memory_unknown", "/proc/meminfo", "MemAvailable"),
        fault("node of the device empty", |t| t.pool(0, 0, 0), Risk, "node_empty", "node0", "--node 0").wish(GIB),
        fault("cgroup 2 limit", |t| t.file("/sys/fs/cgroup/store/hugetlb.2MB.max", "1073741824\n"), Block, "cgroup_hugetlb", "hugetlb.2MB.max", "echo max | sudo tee /sys/fs/cgroup/store/hugetlb.2MB.max").wish(4 * GIB),
        fault("cgroup 2 limit on promises", |t| t.file("/sys/fs/cgroup/hugetlb.2MB.rsvd.max", "0\n"), Risk, "cgroup_hugetlb", "rsvd.max", "echo max"),
        fault("cgroup 1 limit", |t| {
            t.file("/proc/self/mountinfo", &format!("{MOUNTS}40 23 0:31 / /sys/fs/cgroup/hugetlb rw - cgroup cgroup rw,hugetlb\n"));
            t.file("/proc/self/cgroup", "9:hugetlb:/\n0::/store\n");
            t.file("/sys/fs/cgroup/hugetlb/hugetlb.2MB.limit_in_bytes", "2097152\n");
        }, Block, "cgroup_hugetlb", "limit 2 MiB", "echo -1 | sudo tee").wish(GIB),
        fault("limit of a pod", |t| {
            t.file("/proc/self/cgroup", "0::/kubepods/pod7\n");
            t.file("/sys/fs/cgroup/kubepods/pod7/hugetlb.2MB.max", "0\n");
        }, Block, "cgroup_hugetlb", "kubepods", "resources.limits.hugepages-2Mi").wish(GIB),
        fault("memory limit counts huge pages", |t| {
            t.file("/proc/self/mountinfo", &MOUNTS.replace("nsdelegate", "memory_hugetlb_accounting"));
            t.file("/sys/fs/cgroup/store/memory.max", "1073741824\n");
        }, Block, "cgroup_memory", "memory_hugetlb_accounting", "memory.max").wish(4 * GIB),
    ]
}

#[rustfmt::skip] // a table
fn process() -> Vec<Fault> {
    vec![
        fault("memlock low", |t| t.limits("65536", "8388608"), Block, "memlock", "CapEff lacks IPC_LOCK", "prlimit --pid $$").wish(GIB),
        fault("memlock low, hard limit high", |t| t.limits("65536", "unlimited"), Risk, "memlock", "/proc/self/limits", "ulimit -l unlimited"),
        fault("capability of a user namespace", |t| {
            t.limits("65536", "65536");
            t.status("000001ffffffffff");
            t.file("/proc/self/uid_map", "0 100000 65536\n");
        }, Block, "memlock", "user namespace of its own", "prlimit").wish(GIB),
        fault("memlock in a container", |t| { t.limits("65536", "65536"); t.file("/proc/self/cgroup", "0::/docker/abc\n"); }, Block, "memlock", "/proc/self/limits", "--ulimit memlock=-1").wish(GIB),
        fault("memlock of a service", |t| { t.limits("65536", "65536"); t.file("/proc/self/cgroup", "0::/system.slice/store.service\n"); }, Block, "memlock", "/proc/self/limits", "systemctl edit store.service").wish(GIB),
        fault("memlock of another process", |t| {
            t.limits_of("4121", "65536", "8388608", "unlimited");
            t.file("/proc/4121/status", "Name:\tmooncake_client\nPPid:\t99\nCapEff:\t0000000000000000\n");
            t.file("/proc/4121/mountinfo", MOUNTS);
            t.file("/proc/99/comm", "containerd-shim\n");
        }, Block, "memlock", "parent containerd-shim", "LimitMEMLOCK=infinity in containerd.service").wish(GIB).pid(4121),
        fault("memlock unreadable", |t| t.without("/proc/self/limits"), Unknown, "memlock_unknown", "/proc/self/limits", "locked memory").wish(GIB).undecided(),
        fault("address space limited", |t| t.limits_of("self", "unlimited", "unlimited", "1073741824"), Block, "address_space", "Max address space", "ulimit -v unlimited").wish(4 * GIB),
        fault("too few mappings allowed", |t| t.file("/proc/sys/vm/max_map_count", "1000\n"), Risk, "max_map_count", "max_map_count", "sysctl -w vm.max_map_count=262144"),
        fault("mappings nearly used up", |t| t.file("/proc/self/maps", &"x\n".repeat(60_000)), Risk, "max_map_count", "/proc/self/maps", "sysctl -w"),
        fault("small /dev/shm", |t| t.file("/proc/self/mountinfo", &MOUNTS.replace("tmpfs tmpfs rw", "tmpfs shm rw,size=65536k")), Risk, "shm_small", "/dev/shm", "--shm-size"),
        fault("no hugetlbfs", |t| t.file("/proc/self/mountinfo", &MOUNTS.replace("hugetlbfs hugetlbfs", "tmpfs x")), Risk, "no_hugetlbfs", "mountinfo", "mount -t hugetlbfs"),
    ]
}

#[rustfmt::skip] // a table
fn driver() -> Vec<Fault> {
    vec![
        fault("compat_mode", |t| t.file("/sys/module/erdma/parameters/compat_mode", "Y\n"), Risk, "compat_mode", "/sys/module/erdma/parameters/compat_mode", "compat_mode=N"),
        fault("vendor bundle not known", |_| {}, Risk, "driver_bug_length", "dpkg status 1.2.0-2", "env_setup.sh").bundle_not_said(),
        fault("in-tree driver cuts lengths", Tree::in_tree, Risk, "driver_bug_length", "in-tree driver of kernel 6.12.117", "1.5.7"),
        fault("kernel before the fix", |t| { t.in_tree(); t.kernel("6.12.30", "#1 SMP"); }, Risk, "kernel_bug_scatter", "kernel 6.12.30 has no fix", "6.12.31").wish(8 * GIB),
        fault("vendor driver on a kernel before the fix", |t| t.kernel("5.10.134-16.1.al8.x86_64", "#1 SMP"), Risk, "kernel_bug_scatter", "kernel unknown not known to be fixed: counts as affected", "env_setup.sh").wish(8 * GIB).bundle_not_said(),
        fault("DMA translated", |t| {
            t.link(&format!("{FUNCTION}/iommu_group"), "../../../kernel/iommu_groups/3");
            t.file("/sys/kernel/iommu_groups/3/type", "DMA-FQ\n");
        }, Risk, "iommu", "0000:00:07.0", "iommu=pt"),
        fault("IOMMU unreadable", |t| t.link(&format!("{FUNCTION}/iommu_group"), "../../../kernel/iommu_groups/3"), Unknown, "iommu", "no readable type", "/sys/kernel/iommu_groups"),
    ]
}

#[rustfmt::skip] // a table
fn kernel() -> Vec<Fault> {
    vec![
        fault("kernel without large pages", |t| t.kernel("4.19.300", "#1 SMP"), Risk, "no_large_pages", "kernel 4.19.300 < 5.2", "5.2 or later"),
        fault("transparent huge pages off", |t| t.thp("always madvise [never]"), Risk, "thp_never", "transparent_hugepage/enabled", "echo madvise"),
        fault("transparent huge pages unreadable", |t| t.without("/sys/kernel/mm/transparent_hugepage"), Unknown, "thp_unknown", "transparent_hugepage", "cat"),
        fault("much CMA", |t| t.meminfo(64 << 20, 8 << 20), Risk, "movable_memory", "CmaTotal 8 GiB", "cma="),
        fault("movable zone", |t| t.file("/proc/cmdline", "quiet movablecore=64G\n"), Risk, "movable_memory", "movablecore=64G", "movablecore="),
        fault("tracefs not mounted", |t| t.file("/proc/self/mountinfo", &MOUNTS.replace("tracefs tracefs", "tmpfs x")), Unknown, "kprobes", "tracefs is not mounted", "mount -t tracefs"),
        fault("tracefs closed", |t| t.without("/sys/kernel/tracing"), Unknown, "kprobes", "kprobe_events", "sudo hugemr doctor"),
        fault("kernel without kprobes", |t| t.without("/sys/kernel/tracing/kprobe_events"), Unknown, "kprobes", "kprobe_events is not there", "CONFIG_KPROBE_EVENTS"),
        fault("lockdown", |t| t.file("/sys/kernel/security/lockdown", "none integrity [confidentiality]\n"), Unknown, "kprobes", "lockdown", "lockdown=confidentiality"),
        fault("debugfs not mounted", |t| t.file("/proc/self/mountinfo", &MOUNTS.replace("debugfs debugfs", "tmpfs x")), Unknown, "dynamic_debug", "debugfs is not mounted", "mount -t debugfs"),
    ]
}
