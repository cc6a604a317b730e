//! Everything that `hugemr_core::doctor` wants to know, read from files.

use std::time::{SystemTime, UNIX_EPOCH};

use hugemr_core::doctor as core;
use hugemr_core::host::Driver;

use super::memory::bracketed;
use super::{Facts, ProcessId, field, pci, rdma};
use crate::root::Root;

/// Boot options that bear on memory and DMA.
const OPTIONS: &[&str] = &[
    "cma",
    "hugetlb_cma",
    "kernelcore",
    "movablecore",
    "movable_node",
    "iommu",
    "intel_iommu",
    "amd_iommu",
    "hugepages",
    "hugepagesz",
    "default_hugepagesz",
    "transparent_hugepage",
    "lockdown",
];

/// Reads the host for a process. What cannot be read is unknown.
#[must_use]
pub fn gather(root: &Root, id: ProcessId) -> core::Facts {
    let facts = Facts::read_for(root, id);
    let mountinfo = root
        .read(&id.file("mountinfo"))
        .or_else(|_| root.read("/proc/self/mountinfo"))
        .ok();
    core::Facts {
        taken: taken(root),
        kernel: kernel(root),
        driver: driver(root, &facts),
        functions: root
            .exists("/sys/bus/pci/devices")
            .then(|| facts.pci.iter().map(function).collect()),
        devices: rdma::devices(root),
        pools: pools(root, &facts),
        memory: memory(root, &facts),
        tracing: tracing(root),
        process: process(root, id, &facts, mountinfo.as_deref()),
    }
}

fn taken(root: &Root) -> core::Taken {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    core::Taken {
        seconds: now.ok().map(|since| since.as_secs()),
        boot_id: root.text("/proc/sys/kernel/random/boot_id"),
        host: root.text("/proc/sys/kernel/hostname"),
    }
}

fn kernel(root: &Root) -> core::KernelFacts {
    let line = root.text("/proc/cmdline");
    let boot = line.map(|line| {
        let named = |option: &&str| {
            let name = option.split_once('=').map_or(*option, |(name, _)| name);
            OPTIONS.contains(&name)
        };
        let options = line.split_whitespace().filter(named);
        options.map(str::to_owned).collect()
    });
    core::KernelFacts {
        release: root.text("/proc/sys/kernel/osrelease"),
        build: root.text("/proc/sys/kernel/version"),
        signature: root.text("/proc/version_signature"),
        boot,
        lockdown: root
            .text("/sys/kernel/security/lockdown")
            .and_then(|text| bracketed(&text)),
    }
}

fn driver(root: &Root, facts: &Facts) -> core::DriverFacts {
    let driver = &facts.driver;
    core::DriverFacts {
        loaded: root.exists("/sys/module").then_some(driver.loaded),
        vendor: match driver.kind {
            Driver::Vendor(_) => Some(true),
            Driver::InTree => Some(false),
            Driver::Unknown => None,
        },
        compat_mode: driver.compat_mode,
        mtt_va: driver.mtt_va,
        candidates: driver
            .candidates
            .iter()
            .map(|candidate| core::Candidate {
                source: candidate.source.to_owned(),
                text: candidate.text.clone(),
            })
            .collect(),
    }
}

fn function(function: &pci::PciFunction) -> core::Function {
    core::Function {
        address: function.address.clone(),
        erdma: function.family == hugemr_core::device::Family::Erdma,
        node: function.node,
        driver: function.driver.clone(),
        iommu: match function.iommu {
            pci::Iommu::Absent => core::Iommu::Absent,
            pci::Iommu::Identity => core::Iommu::Identity,
            pci::Iommu::Translated => core::Iommu::Translated,
            pci::Iommu::Unknown => core::Iommu::Unknown,
        },
    }
}

fn pools(root: &Root, facts: &Facts) -> core::Pools {
    let global = facts.pools.global.iter();
    let left = crate::ledger::left_by_the_dead(root);
    core::Pools {
        visible: root.exists("/sys/kernel/mm"),
        global: global
            .map(|pool| core::PoolFacts {
                page: pool.page,
                total: pool.total,
                free: pool.free,
                reserved: pool.reserved,
            })
            .collect(),
        nodes: facts.pools.nodes.clone(),
        ledger: match &left {
            Err(error @ crate::ledger::LedgerError::Line { .. }) => Some(error.to_string()),
            // One that is for root only is told by the commands that need it.
            _ => None,
        },
        stale: left.unwrap_or_default(),
    }
}

fn memory(root: &Root, facts: &Facts) -> core::MemoryFacts {
    let memory = &facts.memory;
    let buddy = root.read("/proc/buddyinfo").unwrap_or_default();
    core::MemoryFacts {
        total: memory.total,
        free: memory.free,
        available: memory.available,
        cma_total: memory.cma_total,
        buddy: buddy.lines().filter_map(zone).collect(),
        base_page: Some(crate::sys::base_page()),
        max_map_count: memory.max_map_count,
        thp: memory.thp_enabled.clone(),
    }
}

/// `Node 0, zone   Normal   6210   8253   1735`.
fn zone(line: &str) -> Option<core::Buddy> {
    let (node, rest) = line.strip_prefix("Node ")?.split_once(", zone")?;
    let mut words = rest.split_whitespace();
    let zone = words.next()?.to_owned();
    let blocks = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
    Some(core::Buddy {
        node: node.trim().parse().ok()?,
        zone,
        blocks,
    })
}

fn tracing(root: &Root) -> core::Tracing {
    let Ok(mounts) = root.read("/proc/self/mountinfo") else {
        return core::Tracing::default();
    };
    let point = |kind: &str| {
        mounts.lines().find_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            (right.split(' ').next()? == kind).then(|| left.split(' ').nth(4))?
        })
    };
    let look = |kind: &str, file: &str, sign: &str| match point(kind) {
        None => core::Visible::NotMounted,
        Some(dir) if root.exists(&format!("{dir}/{file}")) => core::Visible::Yes,
        // A folder in which nothing is seen is closed to this process: it always has a few files.
        Some(dir) if root.exists(&format!("{dir}/{sign}")) => core::Visible::NotBuilt,
        Some(_) => core::Visible::Denied,
    };
    let control = "/proc/dynamic_debug/control";
    core::Tracing {
        kprobes: look("tracefs", "kprobe_events", "trace"),
        dynamic_debug: if root.exists(control) {
            core::Visible::Yes
        } else {
            look("debugfs", "dynamic_debug/control", "bdi")
        },
    }
}

fn process(
    root: &Root,
    id: ProcessId,
    facts: &Facts,
    mountinfo: Option<&str>,
) -> core::ProcessFacts {
    let process = &facts.process;
    let groups = root.text(&id.file("cgroup"));
    let status = root.read(&id.file("status")).unwrap_or_default();
    let parent = field(&status, "PPid")
        .filter(|pid| *pid != "0")
        .and_then(|pid| root.text(&format!("/proc/{pid}/comm")));
    core::ProcessFacts {
        pid: match id {
            ProcessId::Own => None,
            ProcessId::Pid(pid) => Some(pid.into()),
        },
        name: process.name.clone(),
        parent,
        unit: groups.as_deref().and_then(unit),
        container: groups.as_deref().map(in_container),
        memlock: process.memlock,
        address_space: process.address_space,
        cap_ipc_lock: process.cap_ipc_lock,
        initial_user_ns: process.initial_user_ns,
        pinned: process.pinned,
        virtual_size: process.virtual_size,
        maps: process.maps,
        hugetlb: facts.cgroup.hugetlb.clone(),
        memory_max: facts.cgroup.memory_max,
        memory_counts_huge: mountinfo.and_then(counts_huge),
        hugetlbfs: mountinfo.map(|text| {
            let mounts = text.lines().filter_map(super::memory::hugetlb_mount);
            mounts
                .map(|mount| core::Mount {
                    path: mount.path,
                    page: mount.page,
                })
                .collect()
        }),
        shm: mountinfo.and_then(shm),
    }
}

/// The systemd service of a path in `/proc/PID/cgroup`.
fn unit(groups: &str) -> Option<String> {
    let parts = groups.lines().rev().flat_map(|line| line.rsplit('/'));
    let mut services = parts.filter(|part| part.ends_with(".service"));
    // `user@1000.service` is everybody's own.
    services
        .find(|part| !part.starts_with("user@"))
        .map(str::to_owned)
}

fn in_container(groups: &str) -> bool {
    ["kubepods", "docker", "containerd", "libpod", "crio", "lxc"]
        .iter()
        .any(|engine| {
            groups
                .split(['/', '-', '.', ':', '\n'])
                .any(|part| part == *engine)
        })
}

/// Whether cgroup 2 is mounted so that its memory limit counts huge pages; `None` where it is not mounted.
fn counts_huge(mountinfo: &str) -> Option<bool> {
    let options = mountinfo.lines().find_map(|line| {
        let (_, right) = line.split_once(" - ")?;
        let mut words = right.split(' ');
        (words.next()? == "cgroup2").then(|| words.nth(1))?
    })?;
    Some(options.split(',').any(|o| o == "memory_hugetlb_accounting"))
}

/// `/dev/shm`: its size where the mount says one.
fn shm(mountinfo: &str) -> Option<core::Shm> {
    // The last one mounted is on top.
    let options = mountinfo.lines().rev().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        (left.split(' ').nth(4)? == "/dev/shm").then(|| right.split(' ').nth(2))?
    })?;
    let size = options.split(',').find_map(|o| o.strip_prefix("size="));
    let bytes = |text: &str| {
        let (number, scale) = match text.strip_suffix(['k', 'K']) {
            Some(number) => (number, 1024u64),
            None => (text, 1),
        };
        number.parse::<u64>().ok()?.checked_mul(scale)
    };
    Some(core::Shm {
        size: size.and_then(bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fake::Tree;

    #[test]
    fn this_machine_can_be_gathered() {
        let facts = gather(&Root::real(), ProcessId::Own);
        assert!(facts.kernel.release.is_some());
        assert!(facts.taken.seconds.is_some_and(|s| s > 1 << 30));
        assert!(facts.memory.available.is_some());
        assert!(facts.process.memlock.is_some());
        assert!(facts.process.hugetlbfs.is_some());
    }

    #[test]
    fn a_bare_tree_gives_unknowns() {
        let facts = gather(&Tree::new().root(), ProcessId::Own);
        assert!(!facts.pools.visible);
        assert_eq!((facts.functions, facts.devices), (None, None));
        assert_eq!(facts.driver.loaded, None);
        assert_eq!(facts.kernel, core::KernelFacts::default());
        assert_eq!(facts.tracing, core::Tracing::default());
        assert_eq!(facts.process.container, None);
        assert_eq!(facts.process.hugetlbfs, None);
        assert_eq!(
            facts.memory.in_blocks_of(hugemr_core::size::PageSize::M2),
            None
        );
    }

    #[test]
    fn services_and_containers() {
        assert_eq!(
            unit("0::/system.slice/store.service\n").as_deref(),
            Some("store.service")
        );
        assert_eq!(
            unit("0::/user.slice/user@0.service/app.slice/x.scope\n"),
            None
        );
        assert!(in_container(
            "0::/kubepods.slice/kubepods-burstable.slice/x\n"
        ));
        assert!(in_container("9:hugetlb:/docker/abc\n"));
        assert!(!in_container("0::/user.slice/dockerish.scope\n"));
    }

    #[test]
    fn shm_on_top_counts() {
        let text = "1 2 0:3 / /dev/shm rw - tmpfs tmpfs rw\n\
                    1 2 0:3 / /dev/shm rw - tmpfs shm rw,size=65536k\n";
        assert_eq!(
            shm(text),
            Some(core::Shm {
                size: Some(64 << 20)
            })
        );
        assert_eq!(
            shm(text.lines().next().unwrap()),
            Some(core::Shm { size: None })
        );
        assert_eq!(shm(""), None);
    }

    #[test]
    fn blocks_of_a_zone() {
        let zone = zone("Node 1, zone   Normal      1      2      3 ").unwrap();
        assert_eq!((zone.node, zone.blocks), (1, vec![1, 2, 3]));
        for line in ["", "Node x, zone A 1", "Node 0, zone", "Node 0, zone N x"] {
            assert_eq!(super::zone(line), None, "{line}");
        }
    }
}
