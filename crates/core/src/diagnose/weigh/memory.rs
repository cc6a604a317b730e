//! Causes in the range itself: its length, address, pages, access.

use crate::backend::Access;
use crate::errno::Errno;
use crate::host::Driver;
use crate::quirk::{Presence, Quirk, SEGMENT_CAP};
use crate::size::{Bytes, TIB};

use super::{Case, Scale};
use crate::device::Family;
use crate::diagnose::{BackingPages, MemoryKind, Operation};

/// `IBV_ACCESS_ON_DEMAND` (libibverbs `enum ibv_access_flags`).
const ON_DEMAND: u32 = 1 << 6;
/// Bits that libibverbs has names for: 0 to 9, and the optional ones 20 to 29.
const KNOWN_BITS: u32 = 0x3ff | 0x3ff0_0000;

pub(super) fn length_zero(case: &Case<'_>, s: &mut Scale) {
    match case.e.length {
        Some(0) => s.proves("the length is 0"),
        Some(len) => s.excludes(format!("the length is {}", Bytes(len))),
        None => {
            s.lacks("the length");
            let erdma = case.e.may_be_erdma() && case.op == Operation::RegMr;
            match (case.e.said_out_of_mr_size, case.e.platform.driver) {
                (Some(true), _) if erdma => {
                    s.points("the driver printed \"Out of mr size\", as for length 0 too")
                }
                (Some(false), Driver::Vendor(_)) if erdma => {
                    s.excludes("the vendor's driver prints \"Out of mr size\" then, and it is not in the kernel log");
                }
                _ => {}
            }
        }
    }
}

pub(super) fn unmapped(case: &Case<'_>, s: &mut Scale) {
    let e = case.e;
    match e.mapped {
        Some(true) => s.excludes("all of the range is mapped"),
        Some(false) => s.proves("a part of the range is not mapped"),
        None if e.addr == Some(0) => s.proves("the address is 0"),
        None => s.lacks("whether all of the range is mapped"),
    }
}

pub(super) fn read_only(case: &Case<'_>, s: &mut Scale) {
    let e = case.e;
    if e.readable == Some(false) {
        return s.proves("a part of the range may not even be read (PROT_NONE)");
    }
    let writes = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let needs_write = match e.access {
        _ if case.op == Operation::Populate => Some(true),
        Some(access) => Some(access.intersects(writes)),
        None => None,
    };
    match (e.writable, needs_write) {
        (Some(true), _) => s.excludes("all of the range may be written"),
        (Some(false), Some(true)) => {
            s.proves("a part of the range may not be written, and the access asked for writes")
        }
        (Some(false), None) => {
            s.points("a part of the range may not be written");
            s.lacks("the access flags");
        }
        (Some(false), Some(false)) => {
            let forced = e.platform.kernel.is_some_and(|k| k.series() <= (6, 1));
            let text = "the access asked for only reads";
            if forced {
                s.points(format!(
                    "{text}, but kernels up to 6.1 pin for writing all the same"
                ))
            } else {
                s.weakens(text)
            }
        }
        (None, Some(false)) => s.weakens("the access asked for only reads"),
        (None, _) => s.lacks("whether the range may be written"),
    }
}

pub(super) fn gpu_pointer(case: &Case<'_>, s: &mut Scale) {
    match (case.e.memory, case.e.peer_memory) {
        (Some(MemoryKind::Gpu), Some(false)) => {
            s.proves("GPU memory, and neither peer memory nor dmabuf")
        }
        (Some(MemoryKind::Gpu), Some(true)) => s.weakens("GPU memory, but the kernel can pin it"),
        (Some(MemoryKind::Gpu), None) => {
            s.points("the memory is that of a GPU");
            s.lacks("whether the kernel can pin GPU memory");
        }
        (Some(kind), _) => s.excludes(match kind {
            MemoryKind::File => "the memory is a mapping of a file",
            _ => "the memory is that of the host",
        }),
        (None, _) if case.e.said_gpu_nearby == Some(true) => {
            s.points("a line shortly before says that GPU memory is about to be registered");
            s.lacks("whether the kernel can pin GPU memory");
        }
        (None, _) => s.lacks("whether it is GPU memory"),
    }
}

pub(super) fn file_backed(case: &Case<'_>, s: &mut Scale) {
    // Linux 4.15 to 7.3, mm/gup.c: a long-term pin of a mapping on file-system DAX is refused with EOPNOTSUPP, and
    // nothing else of a registration's pin is.
    let dax = case.op == Operation::RegMr && case.errno == Some(Errno::EOPNOTSUPP);
    match case.e.memory {
        Some(MemoryKind::File) if dax => {
            s.points("a mapping of a file: on file-system DAX (persistent memory) the kernel does not pin it for long")
        }
        Some(MemoryKind::Host | MemoryKind::Gpu) => {
            return s.excludes("the memory is no mapping of a file");
        }
        Some(MemoryKind::NotGpu) | None => s.lacks("whether it is a mapping of a file"),
        Some(MemoryKind::File) => {}
    }
    if dax && case.e.said_pin_failed == Some(true) {
        s.proves("pinning itself gave EOPNOTSUPP, which it does for mappings on file-system DAX (persistent memory) only");
    }
    if dax || case.e.memory != Some(MemoryKind::File) {
        return;
    }
    match case.e.platform.kernel.map(|k| k.series() >= (6, 5)) {
        // "mm/gup: disallow FOLL_LONGTERM GUP-nonfast writing to file-backed mappings", Linux 6.5; seen on 6.12.
        Some(true) if case.op == Operation::RegMr => {
            s.proves("a shared mapping of a file: kernels since 6.5 refuse to pin it for writing");
        }
        Some(false) if case.op == Operation::RegMr => {
            s.weakens("a mapping of a file, which kernels before 6.5 pin")
        }
        _ => s.points("the memory is a mapping of a file (was it cut shorter meanwhile?)"),
    }
}

pub(super) fn fork_alignment(case: &Case<'_>, s: &mut Scale) {
    let e = case.e;
    match e.fork_init {
        Some(false) => return s.excludes("fork protection is off"),
        None => s.lacks("whether ibv_fork_init is in force"),
        Some(true) => {}
    }
    if e.hugepages_safe == Some(true) {
        return s.excludes("RDMAV_HUGEPAGES_SAFE is set");
    }
    // libibverbs leaves madvise alone where the kernel copies pinned pages on fork and says so (rdma-core 35, Linux 5.12).
    if e.platform.kernel.is_some_and(|k| k.series() >= (5, 12)) {
        s.weakens(
            "kernels since 5.12 copy pinned pages on fork, and libibverbs then needs no alignment",
        );
    }
    match e.backing {
        Some(BackingPages::Huge) => s.points("huge pages behind the range"),
        Some(BackingPages::Of(_)) if e.is_huge() == Some(false) => {
            s.excludes("no huge pages behind the range")
        }
        Some(BackingPages::Of(page)) => {
            let off = |value: u64| !value.is_multiple_of(page.bytes());
            match (e.addr, e.length) {
                (Some(addr), Some(len)) if off(addr) || off(addr.wrapping_add(len)) => {
                    let text = format!(
                        "an end of [{addr:#x}, {:#x}) is no multiple of {page}",
                        addr.wrapping_add(len)
                    );
                    if e.fork_init == Some(true) && e.hugepages_safe == Some(false) {
                        s.proves(text)
                    } else {
                        s.points(text)
                    }
                }
                (Some(_), Some(_)) => {
                    s.excludes(format!("both ends of the range are multiples of {page}"))
                }
                (None, Some(len)) if off(len) => {
                    s.points(format!("the length is no multiple of {page}"))
                }
                _ => s.lacks("the address and the length"),
            }
        }
        None => s.lacks("the page size of the mapping"),
    }
}

pub(super) fn access_flags(case: &Case<'_>, s: &mut Scale) {
    let Some(access) = case.e.access else {
        return s.lacks("the access flags");
    };
    if case.op == Operation::Transfer {
        if access.intersects(Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC) {
            return s.weakens("the MR allows remote access");
        }
        return s.proves("the MR allows no remote access");
    }
    let strange = access.bits() & !KNOWN_BITS;
    match access.refusal() {
        Some(why) => s.proves(why),
        None if strange != 0 => s.proves(format!("unknown access bits {strange:#x}")),
        None => s.excludes("the access flags are a combination that is allowed"),
    }
}

pub(super) fn odp(case: &Case<'_>, s: &mut Scale) {
    let e = case.e;
    if e.said_pin_failed == Some(true) {
        return s.excludes(
            "the kernel log says that pinning failed: nothing is pinned for on-demand paging",
        );
    }
    match e.access {
        Some(access) if access.bits() & ON_DEMAND == 0 => {
            s.excludes("on-demand paging was not asked for")
        }
        Some(_) if e.family == Some(Family::Erdma) => {
            s.proves("on-demand paging was asked for, and erdma has none")
        }
        Some(_) => s.points("on-demand paging was asked for"),
        None => s.lacks("the access flags"),
    }
}

pub(super) fn unsupported(case: &Case<'_>, s: &mut Scale) {
    match (case.e.dmabuf, case.e.said_pin_failed) {
        (Some(true), _) => s.points("a registration by dmabuf was asked for"),
        (_, Some(true)) => {
            s.excludes("the kernel log says that pinning failed: the driver was not asked")
        }
        _ => {}
    }
}

pub(super) fn iova_offset(case: &Case<'_>, s: &mut Scale) {
    match (case.e.addr, case.e.iova) {
        (Some(addr), Some(iova)) if addr % 4096 == iova % 4096 => {
            s.excludes("iova and address agree modulo 4 KiB")
        }
        (Some(addr), Some(iova)) => s.proves(format!(
            "address {addr:#x} and iova {iova:#x} differ modulo 4 KiB"
        )),
        _ => s.lacks("the address and the iova"),
    }
}

pub(super) fn address_overflow(case: &Case<'_>, s: &mut Scale) {
    // The kernel counts the pages of an MR in 32 bits.
    const MOST: u64 = 16 * TIB - 4096;
    match (case.e.addr, case.e.length) {
        (_, Some(len)) if len > MOST => {
            s.proves(format!("{} is more than 2^32 - 1 pages", Bytes(len)))
        }
        (Some(addr), Some(len)) if addr.checked_add(len).is_none() => {
            s.proves(format!(
                "address {addr:#x} and length {len:#x} go beyond 2^64"
            ));
        }
        (Some(_), Some(_)) => s.excludes("address and length stay within 2^64 and 16 TiB"),
        (None, Some(len)) => s.weakens(format!("{} is less than 16 TiB", Bytes(len))),
        (_, None) => s.lacks("the length"),
    }
}

pub(super) fn iommu_padding(case: &Case<'_>, s: &mut Scale) {
    let e = case.e;
    let state = Quirk::IommuPadding.on(&e.platform, e.family.unwrap_or(Family::Other));
    if !state.counts() {
        return s.excludes(state.why);
    }
    match e.length {
        Some(len) if len <= SEGMENT_CAP => {
            return s.excludes(format!("{} cannot have a run of 4 GiB", Bytes(len)));
        }
        None => s.lacks("the length"),
        _ => {}
    }
    match (e.longest_run, state.presence) {
        (Some(run), _) if run <= SEGMENT_CAP => {
            s.weakens(format!("the longest physical run is {}", Bytes(run)))
        }
        (Some(run), Presence::Present) => s.proves(format!(
            "{}, and {} in one physical run",
            state.why,
            Bytes(run)
        )),
        (_, Presence::Present) => s.points(state.why),
        _ => s.lacks("whether an IOMMU translates"),
    }
}

pub(super) fn cma_pinning(case: &Case<'_>, s: &mut Scale) {
    match case.e.movable {
        Some(true) => s.points("the range lies in CMA or movable memory"),
        Some(false) => s.excludes("the range lies neither in CMA nor in movable memory"),
        None => s.lacks("whether the range lies in CMA or movable memory"),
    }
}
