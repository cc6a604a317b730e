//! What would decide a cause, and what mends it.

use crate::device::Family;
use crate::fact::Limit;
use crate::quirk::{Quirk, SEGMENT_CAP};
use crate::size::{Bytes, Count, Grouped, PageSize};

use super::Cause::{self, *};
use super::{Arithmetic, BackingPages, Evidence, MemoryKind};

/// The command that would decide whether it is this cause; `None` where nothing on a host would.
pub(super) fn decide(cause: Cause, e: &Evidence) -> Option<String> {
    let pid = e
        .pid
        .map_or_else(|| "PID".to_owned(), |pid| pid.to_string());
    let device = e.device.as_deref().unwrap_or("DEVICE");
    let smaps =
        format!("grep -E '^[0-9a-f]+-|^Size|KernelPageSize|AnonHugePages' /proc/{pid}/smaps");
    let dmesg = |what: &str| format!("dmesg | grep -iE '{what}'");
    let text = match cause {
        TableFull => smaps,
        SmallPages => format!("{} --explain, and a kretprobe on ib_umem_find_best_pgsz", plan(e)),
        LeakedMrs | MrCount => format!("rdma resource show mr dev {device}"),
        MaxMrSize => format!("ibv_devinfo -v -d {device} | grep max_mr_size"),
        LengthZero => format!("strace -f -e trace=ioctl,write -p {pid}"),
        PerMrTable => dmesg("erdma|order:|page allocation failure"),
        DeviceRefusal => dmesg("erdma|efa|ionic|mlx|hns"),
        CommandTimeout | CommandQueueDead if e.may_be_erdma() => format!(
            "grep . /sys/class/infiniband/{device}/ports/1/hw_counters/cmdq_*_cnt (vendor's driver; submitted above comp at rest: a command was not answered)"
        ),
        CommandTimeout | CommandQueueDead => dmesg("cmdq|timeout|timed out"),
        CommandSlots => format!("ls /proc/{pid}/task | wc -l"),
        DeviceGone => "rdma link; dmesg | tail -50".to_owned(),
        Memlock | MemlockZero => format!("grep 'locked memory' /proc/{pid}/limits; grep -E 'VmPin|CapEff' /proc/{pid}/status"),
        KernelTableMemory => dmesg("page allocation failure|oom"),
        HostMemory => dmesg("oom|out of memory"),
        CmaPinning => "grep -E 'Cma(Total|Free)' /proc/meminfo; grep -A1 Movable /proc/zoneinfo".to_owned(),
        HugepagePool => "grep . /sys/devices/system/node/node*/hugepages/*/free_hugepages".to_owned(),
        HugetlbCgroup => "grep . /sys/fs/cgroup/hugetlb.*.max /sys/fs/cgroup/hugetlb.*.events (inside the container)".to_owned(),
        MaxMapCount => format!("wc -l /proc/{pid}/maps; sysctl vm.max_map_count"),
        Unmapped | ReadOnly => format!("cat /proc/{pid}/maps"),
        PoisonedPage => dmesg("hardware error|memory failure|poison"),
        GpuPointer => "lsmod | grep -E 'nvidia_peermem|nv_peer_mem'".to_owned(),
        FileBacked => format!("grep -E ' rw-s | r--s ' /proc/{pid}/maps; grep dax /proc/mounts"),
        ForkAlignment => format!("tr '\\0' '\\n' < /proc/{pid}/environ | grep RDMAV; {smaps}"),
        RdmaCgroup => "grep . /sys/fs/cgroup/rdma.max /sys/fs/cgroup/rdma.current (inside the container)".to_owned(),
        IommuPadding => "cat /sys/kernel/iommu_groups/*/type".to_owned(),
        WrongLength => format!("{} --explain (shows the versions that are affected)", plan(e)),
        MissingProvider => "ibv_devices; ls /etc/libibverbs.d".to_owned(),
        DeviceFile => "ls -l /dev/infiniband".to_owned(),
        RawIoPrivilege => "uname -r; ls /sys/module/erdma/parameters (none: the in-tree driver)".to_owned(),
        FdLimit => format!("grep 'open files' /proc/{pid}/limits; ls /proc/{pid}/fd | wc -l"),
        PageSizeUnsupported => "ls /sys/kernel/mm/hugepages".to_owned(),
        PopulateUnsupported => "uname -r".to_owned(),
        ShmGroup => "sysctl vm.hugetlb_shm_group; id".to_owned(),
        // The program's own arguments and order of calls: only its code or a trace shows them.
        AccessFlags | IovaOffset | AddressOverflow | OdpUnsupported | UnsupportedOperation | TruncatedMr | MrInUse
        | StaleHandle | Interrupted => return None,
    };
    // Of a simulated device nothing on this host tells, but a plan does.
    let is_simulated = device.trim_start_matches('\'').starts_with("sim:");
    (!is_simulated || text.starts_with("hugemr ")).then_some(text)
}

/// What mends it.
pub(super) fn fix(cause: Cause, e: &Evidence, numbers: Option<&Arithmetic>) -> String {
    let text = match cause {
        TableFull => return larger_pages(e, numbers),
        SmallPages if no_large_pages(e).is_some() => {
            return no_large_pages(e).unwrap_or_default();
        }
        SmallPages => return whole_pages(e),
        LeakedMrs => {
            "end the processes that hold MRs they no longer need, or let the processes share one registration"
        }
        MaxMrSize => return split(e),
        LengthZero => "do not register empty buffers",
        MrCount => "fewer and longer MRs; free those that are not needed",
        PerMrTable => "more and shorter MRs, or larger pages: fewer entries for each MR",
        DeviceRefusal if e.said_no_shortage == Some(true) => {
            "leave out what a plain registration does without (dmabuf, on-demand paging, protection information); then it is for the vendor, with the line's syndrome and the firmware's version"
        }
        DeviceRefusal => {
            "free MRs or use larger pages, and see whether it persists; then it is for the vendor, with the kernel log"
        }
        CommandTimeout => {
            "reload the driver (all its users must stop first); if it returns, it is for the vendor, with the kernel log"
        }
        CommandQueueDead => {
            "reload the driver (all its users must stop first); nothing else brings the queue back"
        }
        CommandSlots => "at most 128 threads that register at once",
        DeviceGone => "bring the device and its driver back, then open it anew",
        Memlock | MemlockZero => {
            "raise RLIMIT_MEMLOCK to unlimited (LimitMEMLOCK=infinity in the service, --ulimit memlock=-1 for a container), or give CAP_IPC_LOCK; each device and protection domain counts anew"
        }
        KernelTableMemory => "larger pages, so that the tables are small; or shorter MRs",
        HostMemory => "free memory, or raise the limit of the cgroup or of the address space",
        CmaPinning => {
            "take the memory from outside CMA and movable zones (huge pages reserved at boot, no movablecore=, smaller cma=)"
        }
        HugepagePool => return reserve(e),
        HugetlbCgroup => {
            "raise the hugetlb limit of the cgroup or pod (for Kubernetes: resources.limits.hugepages-2Mi)"
        }
        MaxMapCount => "raise vm.max_map_count, or use fewer mappings",
        Unmapped => {
            "register only what is mapped, and after it was mapped; round up to the mapping, not beyond"
        }
        ReadOnly => "map the range readable and writable, or ask for remote read only",
        PoisonedPage => "map other memory; the page stays unusable until the machine is repaired",
        GpuPointer => {
            // CUDA driver API, CUmemAllocationProp.
            "load the peer-memory module of the GPU's driver (nvidia_peermem), or register by dmabuf; memory of cuMemCreate must have been made with gpuDirectRDMACapable besides"
        }
        FileBacked => {
            "copy into anonymous, memfd or hugetlbfs memory and register that; never cut the file while it is mapped"
        }
        ForkAlignment => {
            "align both ends of the range to the huge page, or set RDMAV_HUGEPAGES_SAFE=1; or leave ibv_fork_init out"
        }
        AccessFlags => {
            "ask for local write together with remote write or atomic, and for the remote rights that peers use"
        }
        IovaOffset => "choose an iova that equals the address modulo 4 KiB",
        AddressOverflow => "correct address and length; one MR holds less than 16 TiB",
        OdpUnsupported => "register without on-demand paging",
        UnsupportedOperation => {
            "use what the driver has: plain registration of host memory works on every device"
        }
        IommuPadding => "MRs of less than 4 GiB, or no translation for the device (iommu=pt)",
        RdmaCgroup => "raise hca_object in rdma.max of the cgroup",
        WrongLength => {
            "MRs of less than 4 GiB, or 2 MiB pages and a kernel of 6.6 or later, or the eRDMA installer 1.5.7 or later"
        }
        TruncatedMr => {
            "split a long range into several MRs, and look the key up by address; never cut the length"
        }
        MissingProvider => {
            "install the provider (ibverbs-providers or the vendor's package) where the program runs, inside the container too"
        }
        DeviceFile => {
            "give the container the device (--device /dev/infiniband) and the user the right to open it"
        }
        RawIoPrivilege => "run with CAP_SYS_RAWIO, or use the vendor's driver",
        FdLimit => "raise RLIMIT_NOFILE, or close what is not needed",
        PageSizeUnsupported => {
            "use a page size that /sys/kernel/mm/hugepages lists, and whole pages"
        }
        PopulateUnsupported => {
            "populate by touching one byte of each page, after making sure that the pool has them"
        }
        ShmGroup => {
            "mmap or memfd instead of SysV shared memory, or the group in vm.hugetlb_shm_group"
        }
        MrInUse => "take the memory windows back first",
        StaleHandle => {
            "give each MR back once, in the process that made it, before the device is closed"
        }
        Interrupted => "the process was told to end; nothing is to be mended",
    };
    text.to_owned()
}

/// Where the kernel gives every MR its base page, whatever the memory has: the kernel that does not.
fn no_large_pages(e: &Evidence) -> Option<String> {
    let state = Quirk::NoLargePages.on(&e.platform, e.family?);
    super::weigh::kernel_has_no_large_pages(e).then(|| {
        format!(
            "{} ({}); until then fewer bytes: huge pages save no entries here",
            state.lifted_by, state.why
        )
    })
}

fn larger_pages(e: &Evidence, numbers: Option<&Arithmetic>) -> String {
    if e.memory == Some(MemoryKind::Gpu) {
        let text = "a newer OFED and driver, so that GPU memory gets 64 KiB pages";
        return numbers.map_or_else(
            || text.to_owned(),
            |n| {
                let (large, small) = (Count(n.entries_64k, "entry"), Grouped(n.entries_4k));
                format!("{text}: {large} instead of {small} at 4 KiB")
            },
        );
    }
    let got = e.effective_page;
    let lies_on = match e.backing {
        Some(BackingPages::Of(page)) => Some(page),
        Some(BackingPages::Huge) => Some(PageSize::M2),
        None => got,
    };
    // Whether 2 MiB pages would be any larger: than those that the MR got, or else than those of the mapping.
    let is_huge = lies_on.is_some_and(|page| page >= PageSize::M2);
    if got.or(lies_on).is_some_and(|page| page >= PageSize::M2) {
        let largest = got.or(lies_on).is_some_and(|page| page >= PageSize::G1);
        let text = "free other MRs of the device";
        return if largest || is_within(e, PageSize::M2) {
            text.to_owned()
        } else {
            format!("{text}, or use 1 GiB pages where the driver sends whole lengths")
        };
    }
    if let Some(fix) = no_large_pages(e) {
        return fix;
    }
    if is_huge {
        return "the memory has huge pages, and the MR did not get them: see small_pages"
            .to_owned();
    }
    let small = got.or(lies_on).unwrap_or(PageSize::K4);
    let entries = |page| e.entries_at(page);
    if let (Some(large), Some(small)) = (entries(PageSize::M2), entries(small))
        && large >= small
    {
        return "free other MRs of the device: larger pages save no entries at this length"
            .to_owned();
    }
    // The smallest huge pages with which the need is within the table, where its size is known.
    let most = e.entries_budget.as_ref().and_then(Limit::at_most);
    let within = |page: &PageSize| match (entries(*page), most) {
        (Some(need), Some(most)) => need <= most,
        _ => true,
    };
    let Some(large) = [PageSize::M2, PageSize::G1].into_iter().find(within) else {
        return "fewer bytes: no huge pages are large enough for a table of that size".to_owned();
    };
    let text = format!("map the memory on {large} huge pages");
    let plan = format!("{} --pages {}", plan(e), Bytes(large.bytes()).argument());
    match (numbers.and(entries(large)), entries(small)) {
        (Some(need), Some(many)) => {
            let (need, many) = (Count(need, "entry"), Grouped(many));
            format!("{text}: {need} instead of {many} at {small} ({plan})")
        }
        _ => format!("{text} ({plan})"),
    }
}

/// Whether the length is known, and one page of that size holds it.
fn is_within(e: &Evidence, page: PageSize) -> bool {
    e.length.is_some_and(|length| length <= page.bytes())
}

/// What gives an MR the pages that its memory has. A shorter MR and a newer kernel avoid the defect at 4 GiB, which one that
/// is no longer does not meet; the installer is one of eRDMA.
fn whole_pages(e: &Evidence) -> String {
    let hole = "no 4 KiB hole in the range";
    if e.length.is_some_and(|length| length <= SEGMENT_CAP) {
        return hole.to_owned();
    }
    let huge = match e.is_huge() {
        Some(true) => "",
        _ => " on 2 MiB pages",
    };
    let installer = match e.family {
        Some(Family::Erdma) => " or the eRDMA installer 1.5.2 or later",
        None => ", on eRDMA also the installer 1.5.2 or later",
        Some(_) => "",
    };
    format!(
        "MRs of less than 4 GiB{huge} (hugemr plan cuts so), or a kernel with the fix (6.15, 6.12.31, 6.1.141){installer}; and {hole}"
    )
}

/// The length for a command, where it is known; a plan of nothing is none.
fn size(e: &Evidence) -> String {
    e.length
        .filter(|length| *length > 0)
        .map_or_else(|| "SIZE".to_owned(), |length| Bytes(length).argument())
}

/// A plan of the length on the device: `plan` has no other way to know the device where there is none or several, nor what
/// was stated of it.
fn plan(e: &Evidence) -> String {
    let device = e.device.as_deref().unwrap_or("DEVICE");
    format!("hugemr plan {} --device {device}{}", size(e), e.stated)
}

fn split(e: &Evidence) -> String {
    let limit = e.max_mr_size.as_ref().and_then(Limit::at_most);
    match (e.length, limit) {
        (Some(len), Some(limit)) if limit > 0 && len > limit => {
            format!(
                "split it into {} of at most {} ({})",
                Count(len.div_ceil(limit), "MR"),
                Bytes(limit),
                plan(e)
            )
        }
        // The same plan again would be one MR of that length again.
        (Some(len), None) if len > PageSize::K4.bytes() => {
            let shorter = 1 << (len - 1).ilog2();
            format!(
                "split it into MRs shorter than {} ({} --max-mr-size {}; ibv_devinfo -v shows the limit of the device)",
                Bytes(len),
                plan(e),
                Bytes(shorter).argument()
            )
        }
        _ => format!("split it into MRs of at most max_mr_size ({})", plan(e)),
    }
}

fn reserve(e: &Evidence) -> String {
    let page = match e.backing {
        Some(BackingPages::Of(page)) => page,
        _ => PageSize::M2,
    };
    let kib = page.bytes() / 1024;
    match (e.huge_need(), e.hugepages_free) {
        (Some(need), Some(free)) if need > free => format!(
            "reserve {} of {page} (/sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages), and read back what came",
            Count(need - free, "more page")
        ),
        _ => format!(
            "reserve more huge pages (/sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages), and read back what came"
        ),
    }
}
