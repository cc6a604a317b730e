//! The only door to a device.
//!
//! A backend is an **opened device with its protection domain**. It adds no policy: the caller validates, the
//! backend reports only what nobody could know beforehand, the errno. Implementing [`RegBackend`] over one's own
//! `ibv_reg_mr` and `ibv_dereg_mr` takes a dozen lines; `examples/own-backend` shows it.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use crate::device::Device;
use crate::errno::Errno;
use crate::size::PageSize;

bitflags::bitflags! {
    /// What an MR allows. Bits as in `enum ibv_access_flags` (libibverbs, ibv_reg_mr(3)). Local read is always allowed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// The device may write the memory for its own process (receive, RDMA read).
        const LOCAL_WRITE = 1;
        /// A peer that has the rkey may write.
        const REMOTE_WRITE = 1 << 1;
        /// A peer that has the rkey may read.
        const REMOTE_READ = 1 << 2;
        /// A peer that has the rkey may do atomic operations.
        const REMOTE_ATOMIC = 1 << 3;
        /// Transfers may be reordered (optional: older kernels ignore it).
        const RELAXED_ORDERING = 1 << 20;
    }
}

impl Access {
    /// Local write, remote read, remote write: the vendor's example and hugemr's default.
    pub const REMOTE_RW: Self = Self::LOCAL_WRITE
        .union(Self::REMOTE_READ)
        .union(Self::REMOTE_WRITE);

    /// Why the kernel would refuse this combination with EINVAL; `None` where it would not.
    ///
    /// Source: `ib_check_mr_access`, Linux `include/rdma/ib_verbs.h`.
    #[must_use]
    pub fn refusal(self) -> Option<&'static str> {
        let needs_local = self.intersects(Self::REMOTE_WRITE | Self::REMOTE_ATOMIC);
        (needs_local && !self.contains(Self::LOCAL_WRITE))
            .then_some("remote write and remote atomic need local write")
    }
}

/// The key by which the own process names an MR in its work requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lkey(pub u32);

/// The key by which a peer names an MR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rkey(pub u32);

/// What the backend calls its MR: a pointer or an index. Means nothing to anybody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MrHandle(pub u64);

/// A request to register one MR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrRequest {
    /// Start of the memory, address in this process.
    pub addr: u64,
    /// Length, bytes.
    pub len: NonZeroU64,
    /// Start as the device names it; `addr` unless chosen otherwise. Equal to `addr` modulo 4 KiB.
    pub iova: u64,
    /// What the MR allows.
    pub access: Access,
}

/// A registered MR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisteredMr {
    /// For [`RegBackend::dereg_mr`].
    pub handle: MrHandle,
    /// Local key.
    pub lkey: Lkey,
    /// Remote key.
    pub rkey: Rkey,
}

/// The operation of a backend that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `ibv_reg_mr` or `ibv_reg_mr_iova2`.
    RegMr,
    /// `ibv_dereg_mr`.
    DeregMr,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RegMr => "ibv_reg_mr",
            Self::DeregMr => "ibv_dereg_mr",
        })
    }
}

/// A verb that failed, with the errno read right after the call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{verb} failed: {errno}")]
pub struct VerbError {
    /// Which verb.
    pub verb: Verb,
    /// What it left in errno.
    pub errno: Errno,
}

/// An opened device with its protection domain. Called from several threads at once.
pub trait RegBackend: fmt::Debug + Send + Sync {
    /// The device's limits, read once when it was opened.
    fn device(&self) -> &Device;

    /// Registers one MR.
    ///
    /// # Safety
    /// `[addr, addr + len)` is mapped memory that stays mapped, and is not given away to another owner, until
    /// [`dereg_mr`](Self::dereg_mr) of the returned handle has **succeeded**. The device reads and writes it
    /// meanwhile, behind the compiler's back, as far as `access` allows. A backend for which
    /// [`needs_memory`](Self::needs_memory) is false never touches the range, and so it need not be mapped.
    ///
    /// # Errors
    /// The errno of the verb. Nothing is registered then.
    unsafe fn reg_mr(&self, request: &MrRequest) -> Result<RegisteredMr, VerbError>;

    /// Takes an MR back. Each handle is given back once.
    ///
    /// # Errors
    /// The errno of the verb. The device may still hold the memory then: it must stay mapped.
    fn dereg_mr(&self, mr: MrHandle) -> Result<(), VerbError>;

    /// Whether registered ranges must be mapped memory. False for simulators only.
    fn needs_memory(&self) -> bool {
        true
    }
}

/// A backend that can move data, to prove that keys work.
pub trait VerifyBackend: RegBackend {
    /// Writes and reads back through the device, by RDMA over a loopback connection, the bytes at `addr` under
    /// `rkey`; the former content is restored.
    ///
    /// # Errors
    /// What did not work, in words that name the address and the key.
    fn round_trip(&self, addr: u64, len: u32, rkey: Rkey) -> Result<(), VerifyError>;
}

/// Why a proof by moving data failed, or could not be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The device (or its driver, or this container) cannot connect to itself.
    #[error("no loopback connection on {device}: {why}")]
    NoLoopback {
        /// The device.
        device: String,
        /// The step that failed.
        why: String,
    },
    /// The work completed with an error.
    #[error("{operation} of {len} B at {addr:#x} with rkey {:#x} completed with status {status}", rkey.0)]
    Completion {
        /// RDMA WRITE or RDMA READ.
        operation: &'static str,
        /// Remote address.
        addr: u64,
        /// Bytes.
        len: u32,
        /// Remote key.
        rkey: Rkey,
        /// Name of the completion status.
        status: String,
    },
    /// The bytes that came back are not those that were written.
    #[error("{len} B at {addr:#x}: the data read back differs from the data written")]
    Differs {
        /// Remote address.
        addr: u64,
        /// Bytes.
        len: u32,
    },
}

/// Memory that can be registered: it keeps a range mapped for as long as it lives.
///
/// # Safety
/// An implementor promises that `[base, base + len)` is mapped, readable and writable memory (as far as the access
/// that is asked for needs it) until the value is dropped, whatever safe code does, and forever if it is leaked; or that
/// [`is_mapped`](Self::is_mapped) is false.
pub unsafe trait Backing: Send + Sync {
    /// Address of the first byte.
    fn base(&self) -> u64;
    /// Length, bytes.
    fn len(&self) -> u64;
    /// Page size behind it, as far as it is known (the smallest, where it is mixed).
    fn page(&self) -> PageSize;
    /// Whether there is memory at all.
    fn is_mapped(&self) -> bool {
        true
    }
    /// Whether the range has no byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A range without memory: for simulated devices, which only count. A backend that needs memory refuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory {
    /// First address; any number that leaves room for `len`.
    pub base: u64,
    /// Length, bytes.
    pub len: u64,
    /// Page size to pretend.
    pub page: PageSize,
}

// SAFETY: `is_mapped` is false, so nothing is promised about memory.
unsafe impl Backing for NoMemory {
    fn base(&self) -> u64 {
        self.base
    }
    fn len(&self) -> u64 {
        self.len
    }
    fn page(&self) -> PageSize {
        self.page
    }
    fn is_mapped(&self) -> bool {
        false
    }
}

// SAFETY: the shared value outlives each clone of the Arc, and so does its promise.
unsafe impl<M: Backing + ?Sized> Backing for Arc<M> {
    fn base(&self) -> u64 {
        (**self).base()
    }
    fn len(&self) -> u64 {
        (**self).len()
    }
    fn page(&self) -> PageSize {
        (**self).page()
    }
    fn is_mapped(&self) -> bool {
        (**self).is_mapped()
    }
}

macro_rules! forward_backend {
    ($($pointer:ty),*) => {$(
        impl<B: RegBackend + ?Sized> RegBackend for $pointer {
            fn device(&self) -> &Device {
                (**self).device()
            }
            unsafe fn reg_mr(&self, request: &MrRequest) -> Result<RegisteredMr, VerbError> {
                // SAFETY: the caller keeps the same promise towards us.
                unsafe { (**self).reg_mr(request) }
            }
            fn dereg_mr(&self, mr: MrHandle) -> Result<(), VerbError> {
                (**self).dereg_mr(mr)
            }
            fn needs_memory(&self) -> bool {
                (**self).needs_memory()
            }
        }

        impl<B: VerifyBackend + ?Sized> VerifyBackend for $pointer {
            fn round_trip(&self, addr: u64, len: u32, rkey: Rkey) -> Result<(), VerifyError> {
                (**self).round_trip(addr, len, rkey)
            }
        }
    )*};
}

forward_backend!(&B, Box<B>, Arc<B>);
