//! Causes in the host: limits of the process, pools, cgroups, files.

use crate::errno::Errno;
use crate::fact::Fit;
use crate::host::Driver;
use crate::size::{Bytes, Count, Grouped, PageSize};

use super::{Case, Scale};
use crate::diagnose::{BackingPages, Operation};

pub(super) fn memlock(case: &Case<'_>, s: &mut Scale) {
    let e = case.e;
    if privileged(case, s) {
        return;
    }
    match &e.memlock {
        None => return s.lacks("RLIMIT_MEMLOCK"),
        Some(limit) if limit.is_unlimited() => return s.excludes("RLIMIT_MEMLOCK is unlimited"),
        Some(limit) if limit.known() == Some(0) && case.op == Operation::RegMr => {
            return s.excludes(format!("RLIMIT_MEMLOCK is 0: that gives {}", Errno::EPERM));
        }
        Some(_) => {}
    }
    match memlock_fit(case) {
        Some((Fit::Over, text)) => s.proves(text),
        Some((Fit::Fits, text)) => s.excludes(format!("only {text}")),
        Some((Fit::Undecided, text)) => {
            s.weakens(format!("at least {text}"));
            s.lacks("what the process has pinned already (VmPin)");
        }
        None => s.lacks("the length"),
    }
}

/// Whether the memory that pinning counts is over the limit: `None` where that is not known.
fn memlock_fit(case: &Case<'_>) -> Option<(Fit, String)> {
    let e = case.e;
    let limit = e.memlock.as_ref().filter(|l| !l.is_unlimited())?;
    let len = e.length?;
    let all = len.saturating_mul(e.copies.unwrap_or(1).max(1));
    let pinned = e.pinned.unwrap_or(0);
    // What is pinned already may hold the other copies: count either them or it, whichever is more.
    let need = all.max(pinned.saturating_add(len));
    let mut text = format!("{} pinned", Bytes(need));
    if let Some(copies) = e.copies.filter(|n| *n > 1) {
        text.push_str(&format!(" ({copies} registrations)"));
    }
    text.push_str(&format!(
        ", limit {} ({})",
        Bytes(limit.certain()),
        limit.source
    ));
    match limit.fit(need) {
        // Without a word on what was pinned before, or on copies, fitting proves nothing.
        Fit::Fits if e.pinned.is_none() => Some((Fit::Undecided, text)),
        fit => Some((fit, text)),
    }
}

pub(super) fn memlock_zero(case: &Case<'_>, s: &mut Scale) {
    if privileged(case, s) {
        return;
    }
    match &case.e.memlock {
        Some(limit) if limit.known() == Some(0) => s.proves("RLIMIT_MEMLOCK is 0"),
        Some(limit) if limit.certain() > 0 => s.excludes("RLIMIT_MEMLOCK is not 0"),
        _ => s.lacks("RLIMIT_MEMLOCK"),
    }
}

/// CAP_IPC_LOCK lifts both limits, but only in the initial user namespace.
fn privileged(case: &Case<'_>, s: &mut Scale) -> bool {
    match (case.e.ipc_lock, case.e.container) {
        (Some(true), Some(true)) => {
            s.weakens("CAP_IPC_LOCK, unless the container has a user namespace of its own: there it does not count");
            false
        }
        (Some(true), _) => {
            s.excludes("the process has CAP_IPC_LOCK");
            true
        }
        (Some(false), _) => {
            s.points("the process lacks CAP_IPC_LOCK");
            false
        }
        (None, _) => {
            s.lacks("whether the process has CAP_IPC_LOCK");
            false
        }
    }
}

pub(super) fn hugepage_pool(case: &Case<'_>, s: &mut Scale) {
    let e = case.e;
    if e.is_huge() == Some(false) {
        return s.excludes("no huge pages behind the range");
    }
    match (e.huge_need(), e.hugepages_free) {
        (Some(need), Some(free)) if free < need => {
            let text = format!(
                "{} free, {} needed",
                Count(free, "huge page"),
                Grouped(need)
            );
            // Pages that were populated before are no longer free, and need not be: only at mmap nothing is taken yet.
            if case.op == Operation::Mmap {
                s.proves(text)
            } else {
                s.points(text)
            }
        }
        (Some(need), Some(free)) => {
            s.weakens(format!(
                "{} free now, {} needed",
                Count(free, "huge page"),
                Grouped(need)
            ));
        }
        (None, Some(0)) => s.points("no huge page is free"),
        (_, None) => s.lacks("the free huge pages"),
        (None, Some(_)) => s.lacks("the huge pages needed"),
    }
    if e.backing.is_none() {
        s.lacks("the page size of the mapping");
    }
}

pub(super) fn hugetlb_cgroup(case: &Case<'_>, s: &mut Scale) {
    let e = case.e;
    if e.is_huge() == Some(false) {
        return s.excludes("no huge pages behind the range");
    }
    let page = match e.backing {
        Some(BackingPages::Of(page)) => page.bytes(),
        _ => PageSize::M2.bytes(),
    };
    let need = e
        .length
        .or_else(|| e.huge_need().and_then(|n| n.checked_mul(page)));
    match (e.hugetlb_cgroup_limit, need) {
        (Some(limit), _) if limit < page => {
            s.proves(format!(
                "the cgroup allows {} of huge pages, less than one page",
                Bytes(limit)
            ));
        }
        (Some(limit), Some(need)) if limit < need => {
            s.proves(format!(
                "the cgroup allows {} of huge pages, {} are needed",
                Bytes(limit),
                Bytes(need)
            ));
        }
        (Some(limit), Some(need)) => {
            s.weakens(format!(
                "the cgroup allows {} of huge pages, {} are needed",
                Bytes(limit),
                Bytes(need)
            ));
        }
        (Some(_), None) => s.lacks("the length"),
        (None, _) => s.lacks("the hugetlb limit of the cgroup"),
    }
    match e.container {
        Some(true) => s.points("the process runs in a container"),
        Some(false) if e.hugetlb_cgroup_limit.is_none() => {
            s.weakens("the process runs in no container")
        }
        _ => {}
    }
}

pub(super) fn max_map_count(case: &Case<'_>, s: &mut Scale) {
    let e = case.e;
    if case.op == Operation::RegMr && e.fork_init == Some(false) {
        return s.excludes("fork protection is off, so ibv_reg_mr splits no mapping");
    }
    match (e.maps, e.max_map_count) {
        // mmap adds one; madvise(DONTFORK) inside ibv_reg_mr can split one mapping into three.
        (Some(maps), Some(most))
            if maps.saturating_add(if case.op == Operation::Mmap { 1 } else { 2 }) > most =>
        {
            s.proves(format!("{} of {}", Count(maps, "mapping"), Grouped(most)));
        }
        (Some(maps), Some(most)) => {
            s.excludes(format!(
                "only {} of {}",
                Count(maps, "mapping"),
                Grouped(most)
            ));
        }
        _ => s.lacks("the number of mappings"),
    }
}

pub(super) fn kernel_table_memory(case: &Case<'_>, s: &mut Scale) {
    let e = case.e;
    let Some(need) = e.need().or_else(|| e.entries_at(PageSize::K4)) else {
        return s.lacks("the length");
    };
    // 8 B for each entry, and 32 B for each physical run, of which there are at most as many (erdma_verbs.c, umem.c).
    let (table, runs) = (need.saturating_mul(8), need.saturating_mul(32));
    let text = format!(
        "its tables take up to {}, and {} for the list of runs",
        Bytes(table),
        Bytes(runs)
    );
    match e.mem_available {
        Some(free) if free < table => s.proves(format!("{text}; {} are available", Bytes(free))),
        Some(free) if free / 4 > table.saturating_add(runs) => {
            s.weakens(format!("{text}; {} are available", Bytes(free)));
        }
        Some(free) => s.points(format!("{text}; {} are available", Bytes(free))),
        None if table < 1 << 20 => s.weakens(text),
        None => s.lacks("the available memory of the host"),
    }
}

pub(super) fn host_memory(case: &Case<'_>, s: &mut Scale) {
    let e = case.e;
    if e.said_out_of_memory == Some(true) {
        s.points(
            "the kernel log says near it that memory ran out, and that a process was killed for it",
        );
    }
    if e.is_huge() == Some(true) {
        return s.weakens("huge pages come from their pool, not from free memory");
    }
    match (e.length, e.mem_available) {
        (Some(len), Some(free)) if free < len => {
            let text = format!("{} asked for, {} available", Bytes(len), Bytes(free));
            // Memory that is there already need not be had again, and mmap only promises.
            if case.op == Operation::Populate {
                s.proves(text)
            } else {
                s.points(text)
            }
        }
        (Some(len), Some(free)) => {
            s.weakens(format!(
                "{} asked for, {} available",
                Bytes(len),
                Bytes(free)
            ));
        }
        _ => s.lacks("the available memory of the host"),
    }
}

pub(super) fn rdma_cgroup(case: &Case<'_>, s: &mut Scale) {
    match (case.e.rdma_cgroup_full, case.e.container) {
        (Some(true), _) => s.proves("the hca_object limit of the rdma cgroup is reached"),
        (Some(false), _) => s.excludes("the hca_object limit of the rdma cgroup is not reached"),
        (None, Some(true)) => s.points("the process runs in a container"),
        (None, _) => s.lacks("the limits of the rdma cgroup"),
    }
}

pub(super) fn missing_provider(case: &Case<'_>, s: &mut Scale) {
    match case.e.provider_loaded {
        Some(true) => s.excludes("libibverbs has loaded the provider"),
        Some(false) => s.proves("libibverbs found no provider for the device"),
        None => s.lacks("whether libibverbs has the provider"),
    }
}

pub(super) fn device_file(case: &Case<'_>, s: &mut Scale) {
    match case.e.device_file {
        Some(true) => s.excludes("the device file is there and may be opened"),
        Some(false) => s.proves("the device file is missing or may not be opened"),
        None => s.lacks("whether /dev/infiniband/uverbsN is there and permitted"),
    }
    if case.e.container == Some(true) && case.e.device_file.is_none() {
        s.points("the process runs in a container");
    }
}

/// In-tree erdma since 6.6: a device without extended doorbells asks for CAP_SYS_RAWIO (`erdma_alloc_ucontext`).
pub(super) fn raw_io(case: &Case<'_>, s: &mut Scale) {
    let e = case.e;
    match (
        e.platform.driver,
        e.platform.kernel.map(|k| k.series() >= (6, 5)),
    ) {
        (Driver::InTree, Some(true)) => {
            s.points("the in-tree driver asks for it where the device has no extended doorbells")
        }
        (Driver::InTree, Some(false)) => {
            s.excludes("the in-tree driver before 6.5 asks for no privilege")
        }
        _ => s.lacks("which driver it is (in-tree or the vendor's)"),
    }
}

pub(super) fn page_size(case: &Case<'_>, s: &mut Scale) {
    let e = case.e;
    match e.backing {
        Some(BackingPages::Of(page)) if e.is_huge() == Some(false) => {
            s.excludes(format!("{page} pages need no support"));
        }
        Some(_) if case.errno == Some(Errno::ENODEV) => {
            s.points("memfd_create says so for a size that the kernel does not have")
        }
        Some(BackingPages::Of(page))
            if e.length
                .is_some_and(|len| !len.is_multiple_of(page.bytes())) =>
        {
            s.points(format!("the length is no multiple of {page}"));
        }
        Some(_) => {}
        None => s.lacks("the page size of the mapping"),
    }
}

pub(super) fn populate(case: &Case<'_>, s: &mut Scale) {
    match case.e.platform.kernel.map(|k| (k, k.series() >= (5, 14))) {
        Some((kernel, false)) => {
            s.proves(format!("kernel {kernel} < 5.14 has no MADV_POPULATE_WRITE"))
        }
        Some((kernel, true)) => s.weakens(format!(
            "kernel {kernel} has MADV_POPULATE_WRITE: it must be the mapping"
        )),
        None => s.lacks("the kernel's version"),
    }
}
