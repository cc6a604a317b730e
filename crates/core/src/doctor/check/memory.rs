//! How the kernel manages memory: transparent pages, movable memory, mounts, mappings.

use super::rough;
use crate::doctor::{Examined, Finding};
use crate::size::{Bytes, GIB, MIB};

/// Transparent huge pages.
pub(super) fn transparent(e: &Examined<'_>, out: &mut Vec<Finding>) {
    const FILE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    out.push(match e.case.facts.memory.thp.as_deref() {
        Some("never") => Finding::risk("thp_never", "transparent huge pages are off")
            .seen(format!("[never]   {FILE}"))
            .so("memory that is not of a pool gets 4 KiB pages: 262,144 entries a GiB")
            .fix(format!("echo madvise | sudo tee {FILE}")),
        Some(mode) => Finding::fine("thp", format!("transparent huge pages: {mode}")),
        None => Finding::unknown(
            "thp_unknown",
            "the mode of transparent huge pages cannot be read",
        )
        .seen(FILE)
        .fix(format!("cat {FILE}")),
    });
}

/// CMA and movable memory, from which pages are moved away when they are pinned.
pub(super) fn movable(e: &Examined<'_>, out: &mut Vec<Finding>) {
    /// Less than that is for devices that need it, and does no harm.
    const SMALL: u64 = GIB;
    let boot = e.case.facts.kernel.boot.iter().flatten();
    let named: Vec<&str> = boot
        .filter(|option| {
            ["movablecore", "kernelcore", "movable_node", "hugetlb_cma"]
                .iter()
                .any(|name| option.starts_with(name))
        })
        .map(String::as_str)
        .collect();
    let cma = e.case.facts.memory.cma_total;
    if cma.is_some_and(|bytes| bytes > SMALL) || !named.is_empty() {
        let mut finding = Finding::risk(
            "movable_memory",
            "memory in CMA or movable zones cannot stay there when it is pinned",
        );
        if let Some(bytes) = cma.filter(|bytes| *bytes > SMALL) {
            finding = finding.seen(format!("CmaTotal {}   /proc/meminfo", Bytes(bytes)));
        }
        if !named.is_empty() {
            finding = finding.seen(format!("{}   /proc/cmdline", named.join(" ")));
        }
        out.push(
            finding
                .so("each page is moved first: registering is slow, and may fail with ENOMEM")
                .fix("take cma=, hugetlb_cma=, movablecore= out of the boot line; reserve huge pages at boot (hugepages=)"),
        );
    } else if let Some(bytes) = cma {
        out.push(Finding::fine("cma", format!("CMA: {}", Bytes(bytes))));
    }
}

/// Mappings that a process may have.
pub(super) fn max_map_count(e: &Examined<'_>, out: &mut Vec<Finding>) {
    /// `DEFAULT_MAX_MAP_COUNT` (Linux `include/linux/mm.h`).
    const DEFAULT: u64 = 65_530;
    let Some(limit) = e.case.facts.memory.max_map_count else {
        out.push(
            Finding::unknown("max_map_count_unknown", "vm.max_map_count cannot be read")
                .seen("/proc/sys/vm/max_map_count")
                .fix("sysctl vm.max_map_count"),
        );
        return;
    };
    let process = &e.case.facts.process;
    let have = process.maps.unwrap_or(0);
    if limit >= DEFAULT && have <= limit / 10 * 9 {
        out.push(Finding::fine(
            "max_map_count",
            format!("vm.max_map_count {limit}"),
        ));
        return;
    }
    out.push(
        Finding::risk(
            "max_map_count",
            format!("{} has {have} of {limit} mappings", process.who()),
        )
        .seen(format!(
            "/proc/sys/vm/max_map_count; lines of {}/maps",
            process.dir()
        ))
        .so("mmap and madvise fail with ENOMEM at the limit")
        .fix("sudo sysctl -w vm.max_map_count=262144"),
    );
}

/// `/dev/shm`.
pub(super) fn shm(e: &Examined<'_>, out: &mut Vec<Finding>) {
    /// What container engines give is 64 MiB.
    const SMALL: u64 = 256 * MIB;
    let Some(shm) = e.case.facts.process.shm else {
        return;
    };
    out.push(match shm.size {
        Some(size) if size < SMALL => {
            Finding::risk("shm_small", format!("/dev/shm holds only {}", Bytes(size)))
                .seen(format!(
                    "size= of /dev/shm   {}/mountinfo",
                    e.case.facts.process.dir()
                ))
                .so("programs that share memory there end in SIGBUS (hugemr itself uses memfd)")
                .fix("docker run --shm-size=16g, or: sudo mount -o remount,size=50% /dev/shm")
        }
        Some(size) => Finding::fine("shm", format!("/dev/shm holds {}", rough(size))),
        None => Finding::fine("shm", "/dev/shm holds half of the memory"),
    });
}

/// Mounted hugetlbfs, for programs that need a file.
pub(super) fn hugetlbfs(e: &Examined<'_>, out: &mut Vec<Finding>) {
    let Some(mounts) = &e.case.facts.process.hugetlbfs else {
        return;
    };
    if mounts.is_empty() {
        out.push(
            Finding::risk("no_hugetlbfs", "no hugetlbfs is mounted")
                .seen(format!("{}/mountinfo", e.case.facts.process.dir()))
                .so("programs that open a file on it cannot start (hugemr itself needs none)")
                .fix("sudo mkdir -p /dev/hugepages && sudo mount -t hugetlbfs none /dev/hugepages"),
        );
    }
    for mount in mounts {
        let page = mount
            .page
            .map_or_else(|| "default size".to_owned(), |page| page.to_string());
        out.push(Finding::fine(
            "hugetlbfs",
            format!("hugetlbfs at {} ({page})", mount.path),
        ));
    }
}
