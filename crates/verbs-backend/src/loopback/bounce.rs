//! Memory of our own at the near end of the connection.

use std::num::NonZeroU64;
use std::ptr::NonNull;
use std::sync::Arc;

use hugemr_core::backend::{Access, MrRequest, Rkey};
use hugemr_core::errno::Errno;
use libc::c_void;

use super::Remote;
use super::pair::{Operation, Pair};
use crate::context::Pd;
use crate::errno;
use crate::sys::{ibv_mr, ibv_sge};

/// Bytes of each half.
pub(super) const HALF: usize = 64 * 1024;
const LEN: usize = 2 * HALF;

/// Which half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Half {
    /// The former bytes of the proved range.
    Saved,
    /// What is written to it and read from it.
    Seen,
}

impl Half {
    const fn offset(self) -> usize {
        match self {
            Self::Saved => 0,
            Self::Seen => HALF,
        }
    }
}

/// Pages of our own (a neighbour on a heap page would lose it in a child of fork where `ibv_fork_init` marks the
/// pages of MRs), registered. The device writes them, so no reference into them is ever made.
#[derive(Debug)]
pub(super) struct Bounce {
    pd: Arc<Pd>,
    memory: NonNull<u8>,
    mr: NonNull<ibv_mr>,
}

// SAFETY: owned pages and an MR, which any thread may use; access needs `&mut self` or happens between completions.
unsafe impl Send for Bounce {}

impl Bounce {
    pub(super) fn new(pd: &Arc<Pd>) -> Result<Self, Errno> {
        // SAFETY: a new anonymous mapping at an address of the kernel's choice.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                LEN,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(errno::last());
        }
        let memory = NonNull::new(memory.cast::<u8>()).ok_or(Errno::ENOMEM)?;
        let addr = memory.as_ptr().expose_provenance() as u64;
        let request = MrRequest {
            addr,
            len: NonZeroU64::new(LEN as u64).ok_or(Errno::EINVAL)?,
            iova: addr,
            // Remote write: an iWARP READ arrives as a write. Remote read: for the check of the connection.
            access: Access::REMOTE_RW,
        };
        // SAFETY: the mapping above, unmapped only after the MR is gone.
        match unsafe { crate::backend::reg_mr(pd, &request) } {
            Ok(mr) => Ok(Self {
                pd: Arc::clone(pd),
                memory,
                mr,
            }),
            Err(errno) => {
                unmap(memory);
                Err(errno)
            }
        }
    }

    fn at(&self, half: Half) -> *mut u8 {
        // SAFETY: an offset inside the mapping.
        unsafe { self.memory.as_ptr().add(half.offset()) }
    }

    fn mr(&self) -> &ibv_mr {
        // SAFETY: registered by us, alive as long as `self`.
        unsafe { self.mr.as_ref() }
    }

    pub(super) fn sge(&self, half: Half, len: u32) -> ibv_sge {
        ibv_sge {
            addr: self.at(half).expose_provenance() as u64,
            length: len,
            lkey: self.mr().lkey,
        }
    }

    pub(super) fn bytes(&self, half: Half, len: u32) -> Vec<u8> {
        let mut bytes = vec![0; (len as usize).min(HALF)];
        // SAFETY: both are at least that long, and the vector is new. No transfer is under way.
        unsafe { std::ptr::copy_nonoverlapping(self.at(half), bytes.as_mut_ptr(), bytes.len()) };
        bytes
    }

    pub(super) fn fill(&mut self, half: Half, bytes: &[u8]) {
        let len = bytes.len().min(HALF);
        // SAFETY: both are at least that long and distinct. No transfer is under way.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(half), len) };
    }

    /// Proves the connection by itself, so that a later failure is one of the range that is to be proved.
    pub(super) fn check(&self, pair: &Pair) -> Result<(), String> {
        let far = Remote {
            addr: self.at(Half::Saved).expose_provenance() as u64,
            len: 8,
            rkey: Rkey(self.mr().rkey),
        };
        for operation in [Operation::Write, Operation::Read] {
            pair.transfer(operation, self.sge(Half::Seen, far.len), far)
                .map_err(|status| format!("{} to itself: {status}", operation.name()))?;
        }
        Ok(())
    }
}

impl Drop for Bounce {
    fn drop(&mut self) {
        // SAFETY: registered by us, taken back once; the QPs that could reach it are destroyed before.
        let status =
            unsafe { (self.pd.context().library().table().ibv_dereg_mr)(self.mr.as_ptr()) };
        match errno::of_status(status) {
            None => unmap(self.memory),
            Some(errno) => tracing::error!(%errno, "ibv_dereg_mr failed: its pages stay mapped"),
        }
    }
}

fn unmap(memory: NonNull<u8>) {
    // SAFETY: mapped by us with this length; nobody has a pointer into it any more.
    let status = unsafe { libc::munmap(memory.as_ptr().cast::<c_void>(), LEN) };
    if status != 0 {
        tracing::error!(errno = %errno::last(), "munmap failed");
    }
}
