//! What can be wrong, each with a stable name and one sentence.

use std::fmt;

macro_rules! causes {
    ($($variant:ident = $name:literal, $meaning:literal;)*) => {
        /// A cause of a failed (or silently wrong) registration, or of a step on the way to it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Cause {
            $(#[doc = $meaning] $variant,)*
        }

        impl Cause {
            /// Every cause.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The stable name, as in the JSON output and in replay vectors.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What it is, in one sentence without a final dot.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)* }
            }
        }
    };
}

causes! {
    TableFull = "table_full",
        "the device's translation table has no room for the entries of this MR";
    SmallPages = "small_pages",
        "the kernel gave the MR smaller pages than its memory has, so it takes more entries";
    LeakedMrs = "leaked_mrs",
        "MRs of other or dead processes hold what this one needs";
    MaxMrSize = "max_mr_size",
        "the MR is longer than max_mr_size of the device";
    LengthZero = "length_zero",
        "the length is 0";
    MrCount = "mr_count",
        "the device has no MR index left";
    PerMrTable = "per_mr_table",
        "one MR needs more entries than one MR may have";
    DeviceRefusal = "device_refusal",
        "the device refused for a reason that it does not tell";
    CommandTimeout = "command_timeout",
        "the device did not answer the command in time";
    CommandQueueDead = "command_queue_dead",
        "the command queue was shut down after an earlier time-out; only a reload of the driver helps";
    CommandSlots = "command_slots",
        "more commands were on their way at once than the queue has slots";
    DeviceGone = "device_gone",
        "the device was removed or reset, or its driver was unloaded";
    Memlock = "memlock",
        "the process may not pin that much memory (RLIMIT_MEMLOCK)";
    MemlockZero = "memlock_zero",
        "the process may not pin any memory (RLIMIT_MEMLOCK is 0)";
    KernelTableMemory = "kernel_table_memory",
        "the kernel had no memory for its own tables of this MR";
    HostMemory = "host_memory",
        "the host, the memory cgroup or the address-space limit has no memory left";
    CmaPinning = "cma_pinning",
        "pages in CMA or movable memory could not be moved away for a long-term pin";
    HugepagePool = "hugepage_pool",
        "the pool of huge pages has too few free pages";
    HugetlbCgroup = "hugetlb_cgroup",
        "the hugetlb limit of the cgroup does not allow that many huge pages";
    MaxMapCount = "max_map_count",
        "the process has as many mappings as vm.max_map_count allows";
    Unmapped = "unmapped",
        "a part of the range is not mapped";
    ReadOnly = "read_only",
        "the range may not be written (or not be read), but the access asked for needs it";
    PoisonedPage = "poisoned_page",
        "a page of the range has a hardware memory error";
    GpuPointer = "gpu_pointer",
        "the address is GPU or device memory, and the kernel has no way to pin it";
    FileBacked = "file_backed",
        "the range is a mapping of a file that cannot be pinned for long";
    ForkAlignment = "fork_alignment",
        "fork protection is on and an end of the range lies inside a huge page";
    AccessFlags = "access_flags",
        "the access flags are a combination that is refused, or lack the right that is used";
    IovaOffset = "iova_offset",
        "iova and address differ modulo 4 KiB";
    AddressOverflow = "address_overflow",
        "address and length together go beyond what can be addressed or counted";
    OdpUnsupported = "odp_unsupported",
        "on-demand paging was asked for and the device has none";
    UnsupportedOperation = "unsupported_operation",
        "the driver does not have this operation or flag (dmabuf, flush, memory windows)";
    IommuPadding = "iommu_padding",
        "the IOMMU mapping of 4 GiB or more in one physical run overflows 32 bits";
    RdmaCgroup = "rdma_cgroup",
        "the rdma cgroup allows no more objects on this device";
    WrongLength = "wrong_length",
        "the call succeeds, but the device gets the length modulo 4 GiB";
    TruncatedMr = "truncated_mr",
        "the program registered less than it gave out as registered";
    MissingProvider = "missing_provider",
        "libibverbs has no provider library for this device";
    DeviceFile = "device_file",
        "the device file /dev/infiniband/uverbsN is missing or not permitted";
    RawIoPrivilege = "raw_io_privilege",
        "the driver maps doorbells for processes with CAP_SYS_RAWIO only";
    FdLimit = "fd_limit",
        "the process has no file descriptor left";
    PageSizeUnsupported = "page_size_unsupported",
        "the kernel has no huge pages of this size, or the length is no multiple of it";
    PopulateUnsupported = "populate_unsupported",
        "the kernel cannot populate this mapping by madvise";
    ShmGroup = "shm_group",
        "huge pages of SysV shared memory, or locked mappings, need a privilege that is missing";
    MrInUse = "mr_in_use",
        "something still uses the MR (a bound memory window)";
    StaleHandle = "stale_handle",
        "the MR was given back already, or belongs to another process or a closed device";
    Interrupted = "interrupted",
        "a fatal signal ended the call";
}

impl Cause {
    /// The cause of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|cause| cause.name() == name)
    }

    /// The causes that this one only explains: it is never the whole story, and falls with them.
    #[must_use]
    pub const fn behind(self) -> &'static [Self] {
        match self {
            Self::SmallPages => &[Self::TableFull, Self::PerMrTable],
            Self::LeakedMrs => &[Self::TableFull, Self::MrCount],
            _ => &[],
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
