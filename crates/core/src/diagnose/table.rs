//! Which causes an errno can have: by step, errno and family. Everything else is weighing.
//!
//! Sources: Linux `drivers/infiniband/core/umem.c`, `uverbs_cmd.c`, `hw/erdma/erdma_verbs.c` and `erdma_cmdq.c`
//! (6.1, 6.12, 7.3), the vendor's ANCK tree, mmap(2), madvise(2), and measurements on rxe, siw and an emulated eRDMA
//! device. How a family says that its own limits are reached is its [`Dialect`](crate::device::Dialect).

use crate::device::Family;
use crate::errno::Errno;

use super::Cause::{self, *};
use super::Operation::{self, DeregMr, Mmap, Open, Populate, QueryDevice, RegMr, Transfer};

/// For which families a row holds.
#[derive(Clone, Copy)]
enum Who {
    /// All: the code is in the kernel's core, or in libibverbs.
    All,
    /// One.
    Only(Family),
    /// All but one.
    Not(Family),
}

use Who::{All, Not, Only};

const ERDMA: Family = Family::Erdma;

/// Causes that do not depend on the family's dialect.
const TABLE: &[(Operation, Errno, Who, &[Cause])] = &[
    (
        RegMr,
        Errno::EINVAL,
        All,
        &[
            AccessFlags,
            ForkAlignment,
            IovaOffset,
            AddressOverflow,
            OdpUnsupported,
        ],
    ),
    (
        RegMr,
        Errno::EOPNOTSUPP,
        All,
        // Each of the three public reports on plain registrations was labelled file-system DAX (tests/vectors).
        &[FileBacked, OdpUnsupported, UnsupportedOperation, GpuPointer],
    ),
    // mlx5 (cmd_status_to_err), mlx4 (mlx4_status_to_errno) and efa (efa_com_comp_status_to_errno) make EINVAL of a
    // parameter that the device refuses; erdma makes EIO of it.
    (RegMr, Errno::EINVAL, Not(ERDMA), &[DeviceRefusal]),
    (RegMr, Errno::ENOSYS, All, &[UnsupportedOperation]),
    (RegMr, Errno::EPERM, All, &[MemlockZero]),
    (
        RegMr,
        Errno::ENOMEM,
        All,
        &[
            Memlock,
            KernelTableMemory,
            HostMemory,
            CmaPinning,
            MaxMapCount,
        ],
    ),
    (RegMr, Errno::ENOMEM, Only(ERDMA), &[CommandSlots]),
    (
        RegMr,
        Errno::EFAULT,
        All,
        &[
            Unmapped,
            ReadOnly,
            HugepagePool,
            HugetlbCgroup,
            GpuPointer,
            FileBacked,
            PoisonedPage,
        ],
    ),
    (RegMr, Errno::EHWPOISON, All, &[PoisonedPage]),
    (RegMr, Errno::EIO, All, &[DeviceRefusal, CommandTimeout]),
    (RegMr, Errno::EIO, Only(ERDMA), &[CommandQueueDead]),
    (RegMr, Errno::ETIME, Only(ERDMA), &[CommandTimeout]),
    (RegMr, Errno::ETIMEDOUT, Not(ERDMA), &[CommandTimeout]),
    (RegMr, Errno::ENODEV, Only(ERDMA), &[CommandQueueDead]),
    (RegMr, Errno::ENODEV, All, &[DeviceGone]),
    // mlx5 without a free key: kvcache-ai/Mooncake#1765.
    (RegMr, Errno::EAGAIN, Only(Family::Other), &[MrCount]),
    (RegMr, Errno::EAGAIN, All, &[RdmaCgroup]),
    (RegMr, Errno::EOVERFLOW, All, &[IommuPadding]),
    (RegMr, Errno::EINTR, All, &[Interrupted]),
    (DeregMr, Errno::EIO, All, &[DeviceRefusal, CommandTimeout]),
    (DeregMr, Errno::EIO, Only(ERDMA), &[CommandQueueDead]),
    (DeregMr, Errno::ETIME, Only(ERDMA), &[CommandTimeout]),
    (DeregMr, Errno::ETIMEDOUT, Not(ERDMA), &[CommandTimeout]),
    (DeregMr, Errno::ENODEV, Only(ERDMA), &[CommandQueueDead]),
    (DeregMr, Errno::ENODEV, All, &[DeviceGone]),
    (DeregMr, Errno::EBUSY, All, &[MrInUse]),
    (DeregMr, Errno::EINVAL, All, &[StaleHandle]),
    (DeregMr, Errno::ENOENT, All, &[StaleHandle]),
    (DeregMr, Errno::ENOMEM, Only(ERDMA), &[CommandSlots]),
    (
        Mmap,
        Errno::ENOMEM,
        All,
        &[HugepagePool, HugetlbCgroup, MaxMapCount, HostMemory],
    ),
    (Mmap, Errno::EINVAL, All, &[PageSizeUnsupported, LengthZero]),
    (Mmap, Errno::ENODEV, All, &[PageSizeUnsupported]),
    (Mmap, Errno::EPERM, All, &[ShmGroup]),
    (Mmap, Errno::EAGAIN, All, &[Memlock]),
    (Mmap, Errno::EMFILE, All, &[FdLimit]),
    (
        Populate,
        Errno::EFAULT,
        All,
        &[HugepagePool, HugetlbCgroup, FileBacked, PoisonedPage],
    ),
    (Populate, Errno::EHWPOISON, All, &[PoisonedPage]),
    (Populate, Errno::ENOMEM, All, &[HostMemory, Unmapped]),
    (
        Populate,
        Errno::EINVAL,
        All,
        &[PopulateUnsupported, ReadOnly],
    ),
    (Populate, Errno::EINTR, All, &[Interrupted]),
    (Open, Errno::EACCES, All, &[DeviceFile]),
    (Open, Errno::ENOENT, All, &[DeviceFile, MissingProvider]),
    (
        Open,
        Errno::ENODEV,
        All,
        &[DeviceGone, MissingProvider, DeviceFile],
    ),
    (Open, Errno::ENXIO, All, &[DeviceGone]),
    (Open, Errno::ENOSYS, All, &[MissingProvider, DeviceFile]),
    (Open, Errno::EPERM, Only(ERDMA), &[RawIoPrivilege]),
    (Open, Errno::EPERM, All, &[DeviceFile]),
    (Open, Errno::EMFILE, All, &[FdLimit]),
    (Open, Errno::EAGAIN, All, &[RdmaCgroup]),
    (Open, Errno::ENOMEM, All, &[HostMemory]),
    (Open, Errno::EIO, All, &[DeviceRefusal, CommandTimeout]),
    (Open, Errno::ETIME, Only(ERDMA), &[CommandTimeout]),
    (QueryDevice, Errno::ENODEV, All, &[DeviceGone]),
    (QueryDevice, Errno::EIO, All, &[DeviceRefusal, DeviceGone]),
];

/// What can be wrong although the call succeeded.
const SILENT: &[(Operation, &[Cause])] = &[
    (RegMr, &[WrongLength]),
    (Transfer, &[WrongLength, TruncatedMr, AccessFlags]),
    (Open, &[MissingProvider, DeviceFile]),
];

/// The families that may be meant.
pub(super) fn families(family: Option<Family>) -> &'static [Family] {
    const EACH: [&[Family]; 6] = [
        &[Family::Erdma],
        &[Family::Efa],
        &[Family::Ionic],
        &[Family::Mlx4],
        &[Family::Ascend],
        &Family::ALL,
    ];
    match family {
        Some(Family::Erdma) => EACH[0],
        Some(Family::Efa) => EACH[1],
        Some(Family::Ionic) => EACH[2],
        Some(Family::Mlx4) => EACH[3],
        Some(Family::Ascend) => EACH[4],
        // The dialect of a driver that nobody read may be any.
        Some(Family::Other) | None => EACH[5],
    }
}

/// The causes that `errno` of `op` can have, in order of how often each is seen; each once.
pub(super) fn candidates(
    op: Operation,
    errno: Option<Errno>,
    family: Option<Family>,
) -> Vec<Cause> {
    let mut list: Vec<Cause> = Vec::new();
    let mut add = |causes: &[Cause]| {
        for cause in causes {
            if !list.contains(cause) {
                list.push(*cause);
            }
        }
    };
    let Some(errno) = errno else {
        SILENT
            .iter()
            .filter(|(at, _)| *at == op)
            .for_each(|(_, causes)| add(causes));
        return list;
    };
    if op == Transfer {
        SILENT
            .iter()
            .filter(|(at, _)| *at == op)
            .for_each(|(_, causes)| add(causes));
    }
    let dialects = || families(family).iter().map(|f| f.dialect());
    if op == RegMr {
        // ib_umem_get checks RLIMIT_MEMLOCK for every driver; a full table is ENOMEM on some. Where the family is known to
        // say so, the table comes first.
        if errno == Errno::ENOMEM && family.is_none_or(|f| f == Family::Other) {
            add(&[Memlock]);
        }
        if dialects().any(|d| d.over_budget == errno) {
            add(&[TableFull]);
        }
        if dialects().any(|d| d.too_long == errno) {
            add(&[MaxMrSize, LengthZero]);
        }
        if dialects().any(|d| d.over_mr_count == errno) && errno != Errno::ENOMEM {
            add(&[MrCount]);
        }
    }
    for (at, with, who, causes) in TABLE {
        if *at == op && *with == errno && holds(*who, family) {
            add(causes);
        }
    }
    if op == RegMr {
        if dialects().any(|d| d.over_per_mr == errno) {
            add(&[PerMrTable]);
        }
        if dialects().any(|d| d.over_mr_count == errno) {
            add(&[MrCount]);
        }
        for cause in [SmallPages, LeakedMrs] {
            if cause.behind().iter().any(|parent| list.contains(parent)) {
                list.push(cause);
            }
        }
    }
    list
}

fn holds(who: Who, family: Option<Family>) -> bool {
    match who {
        All => true,
        Only(one) => families(family).contains(&one),
        Not(one) => families(family).iter().any(|f| *f != one),
    }
}

/// The errnos with which a family says `cause` at `ibv_reg_mr`, for ruling it out by errno.
pub(super) fn errnos_of(cause: Cause, family: Family) -> Option<Errno> {
    let dialect = family.dialect();
    match cause {
        TableFull => Some(dialect.over_budget),
        MaxMrSize => Some(dialect.too_long),
        MrCount => Some(dialect.over_mr_count),
        Memlock => Some(Errno::ENOMEM),
        _ => None,
    }
}

/// Whether the list of causes is complete, as far as sources were read: then the last one standing is likely.
pub(super) fn complete(op: Operation, errno: Errno, family: Option<Family>) -> bool {
    match (op, errno) {
        // How a full rdma cgroup shows was not tried.
        (RegMr | Open, Errno::EAGAIN) => false,
        (RegMr | Populate, Errno::EINTR | Errno::EHWPOISON) => true,
        (Open | Mmap, Errno::EMFILE) => true,
        (RegMr, _) => family == Some(ERDMA),
        (DeregMr, Errno::ETIME) => family == Some(ERDMA),
        _ => false,
    }
}

/// One sentence on what the errno means here, without a final dot; `None` where it is not known.
pub(super) fn meaning(
    op: Operation,
    errno: Errno,
    family: Option<Family>,
    vendor: bool,
) -> Option<String> {
    let erdma = family == Some(ERDMA);
    let over = family.filter(|f| *f != Family::Other && f.dialect().over_budget == errno && !erdma);
    let text = match (op, errno) {
        (RegMr, _) if over.is_some() => {
            let name = over.map_or("", Family::name);
            let also = if errno == Errno::EINVAL { "refuses a bad argument" } else { "lacks memory or a right to pin it" };
            format!("the device's table is full, or the kernel {also}: {name} says both alike")
        }
        (RegMr, Errno::EIO) if erdma && vendor => {
            "the device refused, or with the vendor's driver any command failed; pinning had already worked".to_owned()
        }
        (RegMr, Errno::EIO) if erdma => "the device refused; pinning had already worked".to_owned(),
        (RegMr, Errno::EIO) => "the device or its driver refused; pinning had most likely worked".to_owned(),
        (RegMr, Errno::EINVAL) if erdma => "an argument was refused before the device was asked".to_owned(),
        (RegMr, Errno::EINVAL) => "an argument was refused, by the kernel, the driver or the device".to_owned(),
        (RegMr, Errno::ENOMEM) if erdma => "the kernel said no before the device was asked: no right to pin, or no memory for tables".to_owned(),
        (RegMr, Errno::ENOMEM) => "no memory, no right to pin it, or no room in the device".to_owned(),
        (RegMr, Errno::EPERM) => "the process may not pin memory at all".to_owned(),
        (RegMr, Errno::EFAULT) => "the kernel could not pin a page of the range; the device was not asked".to_owned(),
        (RegMr, Errno::ENOSPC) if erdma => "the driver has no MR index left; the device was not asked".to_owned(),
        (RegMr, Errno::ENOSPC) => "something of the device is used up, most likely MR indices".to_owned(),
        (RegMr | DeregMr | Open, Errno::ETIME) if erdma => "the device did not answer in 15 s; its command queue is dead from now on".to_owned(),
        (RegMr | DeregMr, Errno::ETIMEDOUT) => "the device did not answer in time".to_owned(),
        (RegMr | DeregMr, Errno::ENODEV) if erdma => "the command queue is shut down since an earlier time-out, or the device is gone".to_owned(),
        (RegMr | DeregMr | Open | QueryDevice, Errno::ENODEV | Errno::ENXIO) => "the device is not there".to_owned(),
        (RegMr, Errno::EOPNOTSUPP) => "the driver does not do what was asked for, or the kernel does not pin such memory for long".to_owned(),
        (RegMr, Errno::ENOSYS) => "the driver does not do what was asked for".to_owned(),
        (RegMr, Errno::EAGAIN) => "a limit on the number of objects was met".to_owned(),
        (RegMr, Errno::EOVERFLOW) => "the IOMMU mapping did not fit into 32 bits; the device was not asked".to_owned(),
        (RegMr | Populate, Errno::EHWPOISON) => "a page of the range has a hardware error".to_owned(),
        (RegMr | Populate, Errno::EINTR) => "a signal ended the call".to_owned(),
        (DeregMr, Errno::EIO) => "the device did not take the MR back: it may still hold the memory, which must stay mapped".to_owned(),
        (DeregMr, Errno::ENOMEM) => "no slot was free for the command; the MR still stands".to_owned(),
        (DeregMr, Errno::EBUSY) => "the MR is still in use".to_owned(),
        (DeregMr, Errno::EINVAL | Errno::ENOENT) => "the handle names no MR of this process".to_owned(),
        (Mmap, Errno::ENOMEM) => "no memory could be promised for the mapping: pool, cgroup, number of mappings or address space".to_owned(),
        (Mmap, Errno::EINVAL | Errno::ENODEV) => "the kernel does not make such a mapping".to_owned(),
        (Mmap, Errno::EPERM) => "the process lacks the right to such a mapping".to_owned(),
        (Mmap, Errno::EAGAIN) => "the process may not lock that much memory".to_owned(),
        (Mmap | Open, Errno::EMFILE) => "the process has no file descriptor left".to_owned(),
        (Populate, Errno::EFAULT) => "a page could not be had where touching it would have killed the process (SIGBUS)".to_owned(),
        (Populate, Errno::ENOMEM) => "no memory, or a hole in the range".to_owned(),
        (Populate, Errno::EINVAL) => "this kernel or this mapping cannot be populated by madvise".to_owned(),
        (Open, Errno::EACCES | Errno::EPERM) => "the process may not open the device".to_owned(),
        (Open, Errno::ENOENT | Errno::ENOSYS) => "the device file or the provider library is missing".to_owned(),
        (Open, Errno::EAGAIN) => "a limit on the number of objects was met".to_owned(),
        (Open, Errno::ENOMEM) => "no memory for the context".to_owned(),
        (Open | QueryDevice, Errno::EIO) => "the device did not answer as it should".to_owned(),
        _ => return None,
    };
    Some(text)
}
