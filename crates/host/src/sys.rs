//! System calls, as thin as they can be: the only place where the kernel is called directly.
//!
//! Each function reads errno right after its call. Addresses are numbers here. A function is safe to call where no
//! argument whatever can change or remove memory that somebody else relies on.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use hugemr_core::errno::Errno;

pub(crate) type Result<T> = std::result::Result<T, Errno>;

/// The errno of the call that has just failed.
fn last() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

fn done(code: libc::c_int) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(last()) }
}

/// `u64` to `usize`: the same on the 64-bit machines for which this crate compiles.
#[expect(
    clippy::cast_possible_truncation,
    reason = "usize has 64 bits: lib.rs refuses any other target"
)]
pub(crate) const fn size(value: u64) -> usize {
    value as usize
}

fn pointer(addr: u64) -> *mut libc::c_void {
    std::ptr::with_exposed_provenance_mut(size(addr))
}

/// Bytes of a base page (4 KiB on x86-64; 4, 16 or 64 KiB on arm64).
pub(crate) fn base_page() -> u64 {
    // SAFETY: sysconf takes a number and touches no memory of ours.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}

/// Whether root could do what failed so: this process is not root, and the system says that rights are missing. A read-only
/// file system (a container's /sys) refuses root as well.
pub(crate) fn root_would_help(error: &std::io::Error) -> bool {
    // SAFETY: geteuid touches no memory.
    let root = unsafe { libc::geteuid() } == 0;
    !root && error.kind() == std::io::ErrorKind::PermissionDenied
}

/// New memory, at an address that the kernel picks, or at exactly `at` if nothing is mapped there.
///
/// Never replaces a mapping. With `at`, EEXIST if the place is taken.
pub(crate) fn mmap(
    at: Option<u64>,
    len: u64,
    prot: libc::c_int,
    flags: libc::c_int,
    fd: Option<BorrowedFd<'_>>,
) -> Result<u64> {
    debug_assert_eq!(flags & libc::MAP_FIXED, 0);
    let hint = pointer(at.unwrap_or(0));
    let flags = flags | at.map_or(0, |_| libc::MAP_FIXED_NOREPLACE);
    let fd = fd.map_or(-1, |fd| fd.as_raw_fd());
    // SAFETY: without MAP_FIXED the kernel never replaces an existing mapping, so no memory that anybody
    // relies on changes.
    let got = unsafe { libc::mmap(hint, size(len), prot, flags, fd, 0) };
    if got == libc::MAP_FAILED {
        return Err(last());
    }
    let got = got.expose_provenance() as u64;
    if at.is_some_and(|at| at != got) {
        // A kernel before 4.17 takes MAP_FIXED_NOREPLACE for a hint.
        // SAFETY: the mapping was made just now and nobody knows of it.
        let _ = unsafe { munmap(got, len) };
        return Err(Errno(libc::EEXIST));
    }
    Ok(got)
}

/// Removes a mapping.
///
/// # Safety
/// The range is the caller's own, and nobody uses it any more.
pub(crate) unsafe fn munmap(addr: u64, len: u64) -> Result<()> {
    // SAFETY: the caller owns the range.
    done(unsafe { libc::munmap(pointer(addr), size(len)) })
}

/// The advices that leave the content of memory as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Advice {
    HugePage = libc::MADV_HUGEPAGE,
    NoHugePage = libc::MADV_NOHUGEPAGE,
    DontFork = libc::MADV_DONTFORK,
    /// Linux 5.14.
    PopulateWrite = libc::MADV_POPULATE_WRITE,
    /// Linux 6.1.
    Collapse = libc::MADV_COLLAPSE,
}

pub(crate) fn madvise(addr: u64, len: u64, advice: Advice) -> Result<()> {
    // SAFETY: none of the advices in the enum changes the content of memory or unmaps it in this process.
    done(unsafe { libc::madvise(pointer(addr), size(len), advice as i32) })
}

/// Whether the kernel knows the advice: length 0 is a success for a known one and EINVAL for an unknown one.
pub(crate) fn knows(advice: Advice) -> bool {
    madvise(0, 0, advice).is_ok()
}

/// Whether each base page of a range is there; `addr` on a page border. ENOMEM where nothing is mapped.
///
/// Of a file's or shared memory's page it says whether the file has it, not whether this process has mapped it.
pub(crate) fn resident(addr: u64, pages: &mut [u8]) -> Result<()> {
    let len = pages.len() * size(base_page());
    // SAFETY: the kernel writes one byte for each page of the range, and so does the slice have them.
    done(unsafe { libc::mincore(pointer(addr), len, pages.as_mut_ptr()) })
}

/// Where the pages of a range may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum MemPolicy {
    Bind = libc::MPOL_BIND,
    Interleave = libc::MPOL_INTERLEAVE,
}

/// Sets the memory policy of a range, for pages that are not there yet.
pub(crate) fn mbind(addr: u64, len: u64, policy: MemPolicy, nodes: &[u32]) -> Result<()> {
    let words = nodes
        .iter()
        .max()
        .map_or(1, |high| size(u64::from(high / 64) + 1));
    let mut mask = vec![0u64; words];
    for node in nodes {
        mask[size(u64::from(node / 64))] |= 1 << (node % 64);
    }
    // The kernel looks at maxnode - 1 bits (get_nodes, mm/mempolicy.c).
    let max_node = mask.len() * 64 + 1;
    // SAFETY: the mask is read only, and holds maxnode - 1 bits; a policy does not change content.
    let code = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            pointer(addr),
            size(len),
            policy as i32,
            mask.as_ptr(),
            max_node,
            0,
        )
    };
    if code == 0 { Ok(()) } else { Err(last()) }
}

/// A file in memory, that may be sealed. `huge` is log2 of the huge page size.
pub(crate) fn memfd(name: &CStr, huge: Option<u32>) -> Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC
        | libc::MFD_ALLOW_SEALING
        | huge.map_or(0, |shift| libc::MFD_HUGETLB | shift << libc::MFD_HUGE_SHIFT);
    // SAFETY: the name is a C string that lives through the call.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    if fd < 0 {
        return Err(last());
    }
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Forbids for ever that the file changes its length.
pub(crate) fn seal_length(fd: BorrowedFd<'_>) -> Result<()> {
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: the descriptor is open; F_ADD_SEALS takes a number.
    done(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) })
}

/// Takes the lock of an open file, exclusively; EAGAIN where another one has it.
pub(crate) fn try_lock(fd: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: the descriptor is open; flock touches no memory.
    done(unsafe { libc::flock(fd.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) })
}

/// CPUs on which the calling thread may run.
pub(crate) fn affinity() -> Result<Vec<u32>> {
    // EINVAL means that the kernel's mask is wider than ours.
    for words in [16usize, 128, 1024] {
        let mut mask = vec![0u64; words];
        // SAFETY: the buffer has words * 8 bytes and the kernel writes at most that.
        let code = unsafe { libc::sched_getaffinity(0, words * 8, mask.as_mut_ptr().cast()) };
        if code == 0 {
            let bit = |cpu: &u32| mask[size(u64::from(cpu / 64))] >> (cpu % 64) & 1 == 1;
            let cpus = u32::try_from(words * 64).unwrap_or(u32::MAX);
            return Ok((0..cpus).filter(bit).collect());
        }
        let errno = last();
        if errno != Errno::EINVAL {
            return Err(errno);
        }
    }
    Err(Errno::EINVAL)
}

/// Binds the calling thread to these CPUs.
pub(crate) fn set_affinity(cpus: &[u32]) -> Result<()> {
    let words = cpus
        .iter()
        .max()
        .map_or(1, |high| size(u64::from(high / 64) + 1));
    let mut mask = vec![0u64; words];
    for cpu in cpus {
        mask[size(u64::from(cpu / 64))] |= 1 << (cpu % 64);
    }
    // SAFETY: the mask is read only and has words * 8 bytes.
    done(unsafe { libc::sched_setaffinity(0, words * 8, mask.as_ptr().cast()) })
}

/// Makes the page at `addr` (a multiple of 4) present and writable without changing its content, by letting the
/// kernel do an atomic `*addr |= 0` (`FUTEX_WAKE_OP`, Linux 2.6.14).
///
/// The kernel faults the page in by itself (`fault_in_user_writeable`) and answers EFAULT where a fault of the
/// program would be a SIGBUS or SIGSEGV. The operation is atomic against every other access to the word, and no
/// thread sleeps on the private key of our own word, so nobody else is woken on it; on `addr` nobody is woken
/// either unless the word is below -2048, which a futex must expect anyway.
pub(crate) fn or_zero(addr: u64) -> Result<()> {
    const OP_OR: i32 = 2;
    const CMP_LT: i32 = 2;
    let own = 0u32;
    let operation = OP_OR << 28 | CMP_LT << 24 | 0x800;
    // SAFETY: `own` lives through the call and is only used as a key; the kernel checks `addr` and changes no bit
    // of what is there.
    let code = unsafe {
        libc::syscall(
            libc::SYS_futex,
            &raw const own,
            libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG,
            0,
            0usize,
            pointer(addr),
            operation,
        )
    };
    if code >= 0 { Ok(()) } else { Err(last()) }
}

/// An io_uring of one entry that never does I/O: it pins memory as its fixed buffer (Linux 5.1).
#[derive(Debug)]
pub(crate) struct Ring(OwnedFd);

/// `IORING_REGISTER_BUFFERS` and `IORING_UNREGISTER_BUFFERS` of Linux `include/uapi/linux/io_uring.h`.
const REGISTER_BUFFERS: u32 = 0;
const UNREGISTER_BUFFERS: u32 = 1;

impl Ring {
    pub(crate) fn new() -> Result<Self> {
        // `struct io_uring_params`, 120 bytes, all zero: no options.
        let mut params = [0u32; 30];
        // SAFETY: the kernel reads and writes the 120 bytes of the structure.
        let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, params.as_mut_ptr()) };
        let fd = i32::try_from(fd).map_err(|_| Errno::EINVAL)?;
        if fd < 0 {
            return Err(last());
        }
        // SAFETY: the kernel has just made this descriptor for us.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Pins a range. No I/O is ever asked for, so nothing reads or writes it.
    pub(crate) fn pin(&self, addr: u64, len: u64) -> Result<()> {
        let buffer = libc::iovec {
            iov_base: pointer(addr),
            iov_len: size(len),
        };
        self.register(REGISTER_BUFFERS, &raw const buffer, 1)
    }

    pub(crate) fn unpin(&self) -> Result<()> {
        self.register(UNREGISTER_BUFFERS, std::ptr::null(), 0)
    }

    fn register(&self, what: u32, buffers: *const libc::iovec, count: u32) -> Result<()> {
        // SAFETY: the descriptor is open; the kernel reads `count` buffers. Pinning changes no content, and memory that is
        // unmapped meanwhile stays with the kernel until it is unpinned.
        let code = unsafe {
            libc::syscall(
                libc::SYS_io_uring_register,
                self.0.as_raw_fd(),
                what,
                buffers,
                count,
            )
        };
        if code == 0 { Ok(()) } else { Err(last()) }
    }
}

/// A netlink socket of that protocol. Nothing is sent or changed.
pub(crate) fn netlink(protocol: libc::c_int) -> Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: socket takes numbers and touches no memory of ours.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, protocol) };
    if fd < 0 {
        return Err(last());
    }
    // SAFETY: the descriptor has just been opened and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends bytes to the kernel's end of a socket.
pub(crate) fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<()> {
    // SAFETY: the kernel reads bytes.len() bytes of a slice that is borrowed for the call.
    let sent = unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
    if sent < 0 { Err(last()) } else { Ok(()) }
}

/// Receives one datagram; what does not fit in is cut off.
pub(crate) fn receive(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize> {
    loop {
        // SAFETY: the kernel writes at most buffer.len() bytes into a slice that is borrowed for the call.
        let got =
            unsafe { libc::recv(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        match usize::try_from(got) {
            Ok(got) => return Ok(got),
            Err(_) if last() == Errno::EINTR => {}
            Err(_) => return Err(last()),
        }
    }
}
