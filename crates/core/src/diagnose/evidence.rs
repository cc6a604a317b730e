//! What is known about a failure. Everything may be unknown, and unknown is never 0.

use std::fmt;

use crate::backend::{Access, MrRequest, Verb, VerbError};
use crate::device::{Device, Family};
use crate::errno::Errno;
use crate::fact::{Kind, Limit, Source};
use crate::host::{Driver, Host, Platform};
use crate::layout;
use crate::size::PageSize;

/// The step that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Opening the device.
    Open,
    /// Reading its limits.
    QueryDevice,
    /// Mapping memory (mmap, `memfd_create`, shmget).
    Mmap,
    /// Populating a mapping (`MADV_POPULATE_WRITE`, or touching).
    Populate,
    /// `ibv_reg_mr`.
    RegMr,
    /// `ibv_dereg_mr`.
    DeregMr,
    /// A work request on a registered range that completed with a (remote or local) access error.
    Transfer,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Open,
        Self::QueryDevice,
        Self::Mmap,
        Self::Populate,
        Self::RegMr,
        Self::DeregMr,
        Self::Transfer,
    ];

    /// The stable name: `open`, `query_device`, `mmap`, `populate`, `reg_mr`, `dereg_mr`, `transfer`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::QueryDevice => "query_device",
            Self::Mmap => "mmap",
            Self::Populate => "populate",
            Self::RegMr => "reg_mr",
            Self::DeregMr => "dereg_mr",
            Self::Transfer => "transfer",
        }
    }

    /// The operation of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.name() == name)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Open => "ibv_open_device",
            Self::QueryDevice => "ibv_query_device",
            Self::Mmap => "mmap",
            Self::Populate => "populating",
            Self::RegMr => "ibv_reg_mr",
            Self::DeregMr => "ibv_dereg_mr",
            Self::Transfer => "a transfer",
        })
    }
}

/// The pages of the mapping behind a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackingPages {
    /// Huge pages of a size that is not known.
    Huge,
    /// Pages of this size (the smallest, where it is mixed).
    Of(PageSize),
}

impl BackingPages {
    /// Whether they are huge pages (larger than 64 KiB, the largest base page).
    #[must_use]
    pub fn is_huge(self) -> bool {
        match self {
            Self::Huge => true,
            Self::Of(page) => page > PageSize::K64,
        }
    }
}

/// Whose memory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    /// Anonymous memory of the host; memfd, tmpfs and hugetlbfs count as such.
    Host,
    /// Memory of a GPU or another device.
    Gpu,
    /// A shared mapping of a file on a disk's file system.
    File,
    /// Memory that the CPU addresses, of any kind: what UCX calls `host` may be a mapping of a file as well
    /// (`UCS_MEMORY_TYPE_HOST`; openucx/ucx#4924, #10085).
    NotGpu,
}

/// Everything that bears on a diagnosis. `Default` knows nothing. Lengths and addresses are bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The step that failed; unknown counts as `ibv_reg_mr`, and the summary says so.
    pub operation: Option<Operation>,
    /// What it left in errno; `None` where nothing failed visibly, or where it is not told.
    pub errno: Option<Errno>,
    /// Whether it visibly failed; an errno says so by itself.
    pub failed: Option<bool>,
    /// The family of the device.
    pub family: Option<Family>,
    /// Kernel and driver (kind and bundle version), IOMMU, MTT_VA.
    pub platform: Platform,
    /// The device's name, quoted for a shell, for commands.
    pub device: Option<String>,
    /// Flags that `hugemr plan` is to have besides the device, for commands: the facts and files that were stated, quoted for
    /// a shell, each with a blank before it.
    pub stated: String,
    /// The process, for commands.
    pub pid: Option<u32>,

    /// Length of the MR, or of the mapping.
    pub length: Option<u64>,
    /// Its address.
    pub addr: Option<u64>,
    /// Its address as the device sees it.
    pub iova: Option<u64>,
    /// Access flags; bits that [`Access`] does not name may be set (`from_bits_retain`).
    pub access: Option<Access>,
    /// The page size that the kernel chose for the MR.
    pub effective_page: Option<PageSize>,
    /// The pages of the mapping.
    pub backing: Option<BackingPages>,
    /// Whose memory it is.
    pub memory: Option<MemoryKind>,
    /// Whether all of the range is mapped.
    pub mapped: Option<bool>,
    /// Whether all of it may be read.
    pub readable: Option<bool>,
    /// Whether all of it may be written.
    pub writable: Option<bool>,
    /// The longest physically contiguous run inside it.
    pub longest_run: Option<u64>,
    /// Whether it lies in CMA or movable memory.
    pub movable: Option<bool>,

    /// `max_mr_size`.
    pub max_mr_size: Option<Limit>,
    /// `max_mr`.
    pub max_mr: Option<Limit>,
    /// MRs of the device now, of all processes.
    pub mrs_live: Option<u64>,
    /// Entries that this MR needs, where they are known better than from length and page.
    pub entries_need: Option<u64>,
    /// Entries of all MRs together.
    pub entries_budget: Option<Limit>,
    /// Entries in use before this MR: at least, and at most (`None`: not known).
    pub entries_used: Option<(u64, Option<u64>)>,
    /// Entries that one MR may have.
    pub entries_per_mr: Option<Limit>,
    /// Whether processes other than this one hold MRs of the device.
    pub others_hold_mrs: Option<bool>,
    /// Length that reached the device.
    pub wire_length: Option<u64>,
    /// Length that the program gave out to its peers.
    pub advertised_length: Option<u64>,

    /// RLIMIT_MEMLOCK, bytes.
    pub memlock: Option<Limit>,
    /// Bytes that the process had pinned before (VmPin).
    pub pinned: Option<u64>,
    /// Whether the process has CAP_IPC_LOCK.
    pub ipc_lock: Option<bool>,
    /// Registrations of the same memory: devices x protection domains.
    pub copies: Option<u64>,
    /// Free and unreserved huge pages of the size in question.
    pub hugepages_free: Option<u64>,
    /// Huge pages needed; else length and backing decide.
    pub hugepages_needed: Option<u64>,
    /// Whether the process runs in a container.
    pub container: Option<bool>,
    /// The lowest hugetlb limit of the cgroups above the process, bytes.
    pub hugetlb_cgroup_limit: Option<u64>,
    /// Mappings of the process.
    pub maps: Option<u64>,
    /// `vm.max_map_count`.
    pub max_map_count: Option<u64>,
    /// MemAvailable, bytes.
    pub mem_available: Option<u64>,
    /// Whether the rdma cgroup's `hca_object` limit is reached.
    pub rdma_cgroup_full: Option<bool>,
    /// Threads that registered at the same time.
    pub threads: Option<u64>,

    /// Whether the vendor driver's kernel line `Out of mr size` was printed.
    pub said_out_of_mr_size: Option<bool>,
    /// Whether the kernel log has lines about time-outs of the command queue. The erdma drivers that were read (in-tree
    /// 6.1 to 7.3, ANCK 5.10) print none, so `false` says nothing there.
    pub said_command_timeout: Option<bool>,
    /// Whether the driver's kernel line says that the device itself refused the registration (efa: `Failed to process
    /// command REG_MR ... comp_status`, mlx5: `CREATE_MKEY ... limits exceeded`).
    pub said_device_refused: Option<bool>,
    /// Whether the kernel log says that the device has no memory key left (mlx5: CREATE_MKEY, limits exceeded).
    pub said_keys_exhausted: Option<bool>,
    /// Whether the status in that line is no shortage (mlx5: any but `limits exceeded` and `no resources`).
    pub said_no_shortage: Option<bool>,
    /// Whether the kernel log says that pinning itself failed (`ib_umem_get: failed to get user pages`).
    pub said_pin_failed: Option<bool>,
    /// Whether a line of the kernel log near the failure says that the host or a memory cgroup ran out of memory
    /// (`Out of memory: Killed process`).
    pub said_out_of_memory: Option<bool>,
    /// Whether a line shortly before the failure says that memory of a GPU is about to be registered. It need not be
    /// about the same range.
    pub said_gpu_nearby: Option<bool>,
    /// Whether the errno is the return code of libfabric, and its provider is not named. The providers on verbs return
    /// what `ibv_reg_mr` left in errno (`prov/verbs`, `prov/efa`), others codes of their own (mercury-hpc/mercury#386).
    pub errno_of_libfabric: Option<bool>,
    /// Whether the program says that it registers less than it was asked for.
    pub said_shrunk: Option<bool>,
    /// Whether a registration by dmabuf was asked for.
    pub dmabuf: Option<bool>,
    /// Whether `ibv_fork_init` is in force (or RDMAV_FORK_SAFE).
    pub fork_init: Option<bool>,
    /// Whether RDMAV_HUGEPAGES_SAFE is set.
    pub hugepages_safe: Option<bool>,
    /// Whether the kernel can pin GPU memory (peer memory module, or dmabuf in use).
    pub peer_memory: Option<bool>,
    /// Whether libibverbs found the provider of the device.
    pub provider_loaded: Option<bool>,
    /// Whether `/dev/infiniband/uverbsN` exists and may be opened.
    pub device_file: Option<bool>,
    /// Whether the device was still there after the failure (`/sys/class/infiniband/NAME`).
    pub device_present: Option<bool>,
}

/// A limit as a user stated it.
#[must_use]
pub fn given(value: u64, what: &'static str) -> Limit {
    Limit::exact(value, Source::new(Kind::Given, what))
}

impl Evidence {
    /// An errno of `ibv_reg_mr` on a family of devices, and nothing else.
    #[must_use]
    pub fn of_errno(errno: Errno, family: Family) -> Self {
        Self {
            operation: Some(Operation::RegMr),
            errno: Some(errno),
            family: Some(family),
            ..Self::default()
        }
    }

    /// What a failed verb, its request and the device's limits tell.
    #[must_use]
    pub fn of_verb_error(error: &VerbError, request: &MrRequest, device: &Device) -> Self {
        let operation = match error.verb {
            Verb::RegMr => Operation::RegMr,
            Verb::DeregMr => Operation::DeregMr,
        };
        Self {
            operation: Some(operation),
            errno: Some(error.errno),
            length: Some(request.len.get()),
            addr: Some(request.addr),
            iova: Some(request.iova),
            access: Some(request.access),
            ..Self::default()
        }
        .on_device(device)
    }

    /// With the family and the limits of a device.
    #[must_use]
    pub fn on_device(mut self, device: &Device) -> Self {
        self.family = Some(device.family);
        self.device = Some(device.name.clone());
        self.max_mr_size = Some(device.max_mr_size.clone());
        self.max_mr = Some(device.max_mr.clone());
        self.entries_budget = Some(device.entries.clone());
        self.entries_per_mr = Some(device.entries_per_mr.clone());
        self.entries_used = Some(device.used.entries);
        self
    }

    /// With kernel, driver and the limits of the process; pools and cgroup for the pages behind the range.
    #[must_use]
    pub fn on_host(mut self, host: &Host) -> Self {
        self.platform = host.platform.clone();
        self.memlock.clone_from(&host.memlock);
        self.pinned = Some(host.pinned);
        if let Some(BackingPages::Of(page)) = self.backing {
            self.hugepages_free = host.free_pages(page).or(self.hugepages_free);
            let limit = host.cgroup.iter().find(|(size, _)| *size == page);
            self.hugetlb_cgroup_limit =
                limit.map(|(_, bytes)| *bytes).or(self.hugetlb_cgroup_limit);
        }
        self
    }

    /// Whether the driver is, or may be, the vendor's.
    pub(super) fn may_be_vendor(&self) -> bool {
        !matches!(self.platform.driver, Driver::InTree)
    }

    /// Whether it is eRDMA, or may be.
    pub(super) fn may_be_erdma(&self) -> bool {
        self.family.is_none_or(|family| family == Family::Erdma)
    }

    /// Entries that the MR needs, as far as they follow from what is known.
    pub(super) fn need(&self) -> Option<u64> {
        self.entries_need
            .or_else(|| self.entries_at(self.effective_page?))
    }

    /// Entries at a page size. Without an address the start counts as aligned.
    pub(super) fn entries_at(&self, page: PageSize) -> Option<u64> {
        let start = self.iova.or(self.addr).unwrap_or(0);
        Some(layout::entries(page, start, self.length?))
    }

    /// Huge pages needed.
    pub(super) fn huge_need(&self) -> Option<u64> {
        self.hugepages_needed.or_else(|| match self.backing? {
            BackingPages::Of(page) if page > PageSize::K64 => Some(page.pages_for(self.length?)),
            _ => None,
        })
    }

    /// Whether the mapping has huge pages.
    pub(super) fn is_huge(&self) -> Option<bool> {
        self.backing.map(BackingPages::is_huge)
    }
}
