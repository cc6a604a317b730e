//! Weighing: what the evidence says for and against each candidate.

mod command;
mod device;
mod host;
mod memory;

use crate::errno::Errno;
use crate::fact::{Kind, Limit};
use crate::quirk::{Presence, Quirk};

use super::Cause::{self, *};
use super::{Evidence, Operation, Standing};

/// One failure: the evidence, with the operation settled.
pub(super) struct Case<'a> {
    pub(super) e: &'a Evidence,
    pub(super) op: Operation,
    pub(super) errno: Option<Errno>,
}

/// What speaks for and against one cause. A proof makes it likely, an exclusion rules it out; the rest only moves it
/// among the possible ones.
#[derive(Default)]
pub(super) struct Scale {
    pub(super) evidence_for: Vec<String>,
    pub(super) against: Vec<String>,
    pub(super) lacks: Vec<&'static str>,
    proofs: u32,
    points: i32,
    has_point: bool,
    excluded: bool,
}

impl Scale {
    /// Known to be so, and enough to fail.
    fn proves(&mut self, text: impl Into<String>) {
        self.evidence_for.push(text.into());
        self.has_point = true;
        self.proofs += 1;
    }

    /// Fits, without being enough.
    fn points(&mut self, text: impl Into<String>) {
        self.evidence_for.push(text.into());
        self.has_point = true;
        self.points += 1;
    }

    /// Says why it can be, and speaks no more for it than for others.
    fn allows(&mut self, text: impl Into<String>) {
        self.evidence_for.push(text.into());
    }

    /// Does not fit well.
    fn weakens(&mut self, text: impl Into<String>) {
        self.against.push(text.into());
        self.points -= 1;
    }

    /// Cannot be.
    pub(super) fn excludes(&mut self, text: impl Into<String>) {
        self.against.push(text.into());
        self.excluded = true;
    }

    /// Would decide, or nearly, and is not known.
    fn lacks(&mut self, what: &'static str) {
        self.lacks.push(what);
    }

    /// Likely for a reason that lies outside the evidence functions.
    pub(super) fn settle(&mut self, text: String) {
        self.proves(text);
    }

    pub(super) fn standing(&self) -> Standing {
        if self.excluded {
            Standing::RuledOut
        } else if self.proofs > 0 {
            Standing::Likely
        } else {
            Standing::Possible
        }
    }

    /// Whether anything that is known points to it.
    pub(super) const fn has_point(&self) -> bool {
        self.has_point
    }

    /// For ranking within a standing: larger first.
    pub(super) fn score(&self) -> (u32, i32) {
        (self.proofs, self.points)
    }
}

/// Whether huge pages are behind the MR, and the kernel is known to give every MR its base page.
pub(super) fn kernel_has_no_large_pages(e: &Evidence) -> bool {
    let on = |family| Quirk::NoLargePages.on(&e.platform, family).presence;
    e.is_huge() == Some(true) && e.family.map(on) == Some(Presence::Present)
}

/// Weighs one candidate.
pub(super) fn weigh(cause: Cause, case: &Case<'_>) -> Scale {
    let mut scale = Scale::default();
    let s = &mut scale;
    if case.e.said_device_refused == Some(true) && case.op == Operation::RegMr {
        match cause {
            // A status that is no shortage: what it means in full only the vendor knows, by the syndrome.
            DeviceRefusal if case.e.said_no_shortage == Some(true) => {
                s.proves("the kernel log says that the device itself refused, for no shortage")
            }
            TableFull | MrCount | PerMrTable if case.e.said_no_shortage == Some(true) => {
                s.weakens("the status that the device gave is no shortage")
            }
            TableFull | MrCount | PerMrTable | DeviceRefusal => {
                s.points("the kernel log says that the device itself refused")
            }
            Memlock | MemlockZero | KernelTableMemory | HostMemory | CmaPinning | MaxMapCount
            | CommandSlots | Unmapped | ReadOnly | HugepagePool | HugetlbCgroup | ForkAlignment
            | AddressOverflow => {
                s.excludes("the kernel log says that the device itself refused: the host's part had worked");
            }
            _ => {}
        }
    }
    match cause {
        TableFull => device::table_full(case, s),
        SmallPages => device::small_pages(case, s),
        LeakedMrs => device::leaked_mrs(case, s),
        MaxMrSize => device::max_mr_size(case, s),
        MrCount => device::mr_count(case, s),
        PerMrTable => device::per_mr_table(case, s),
        CommandTimeout => command::command_timeout(case, s),
        CommandQueueDead => command::command_queue_dead(case, s),
        DeviceGone => command::device_gone(case, s),
        CommandSlots => command::command_slots(case, s),
        WrongLength => command::wrong_length(case, s),
        TruncatedMr => command::truncated_mr(case, s),
        LengthZero => memory::length_zero(case, s),
        Unmapped => memory::unmapped(case, s),
        ReadOnly => memory::read_only(case, s),
        GpuPointer => memory::gpu_pointer(case, s),
        FileBacked => memory::file_backed(case, s),
        ForkAlignment => memory::fork_alignment(case, s),
        AccessFlags => memory::access_flags(case, s),
        OdpUnsupported => memory::odp(case, s),
        IovaOffset => memory::iova_offset(case, s),
        AddressOverflow => memory::address_overflow(case, s),
        IommuPadding => memory::iommu_padding(case, s),
        CmaPinning => memory::cma_pinning(case, s),
        Memlock => host::memlock(case, s),
        MemlockZero => host::memlock_zero(case, s),
        HugepagePool => host::hugepage_pool(case, s),
        HugetlbCgroup => host::hugetlb_cgroup(case, s),
        MaxMapCount => host::max_map_count(case, s),
        KernelTableMemory => host::kernel_table_memory(case, s),
        HostMemory => host::host_memory(case, s),
        RdmaCgroup => host::rdma_cgroup(case, s),
        MissingProvider => host::missing_provider(case, s),
        DeviceFile => host::device_file(case, s),
        RawIoPrivilege => host::raw_io(case, s),
        PageSizeUnsupported => host::page_size(case, s),
        PopulateUnsupported => host::populate(case, s),
        UnsupportedOperation => memory::unsupported(case, s),
        // Nothing that could be known beforehand decides these; the errno alone speaks for them.
        DeviceRefusal | PoisonedPage | FdLimit | ShmGroup | MrInUse | StaleHandle | Interrupted => {
        }
    }
    scale
}

/// Whether the number of a limit can carry an exclusion: it was read, measured or stated, not guessed.
fn is_solid(limit: &Limit) -> bool {
    matches!(
        limit.source.kind,
        Kind::Documented | Kind::Measured | Kind::Given
    )
}
