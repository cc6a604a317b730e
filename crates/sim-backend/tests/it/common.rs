//! Opening, registering and taking back.

use std::num::NonZeroU64;

use hugemr_core::backend::{Access, MrRequest, RegBackend, RegisteredMr};
use hugemr_core::errno::Errno;
use hugemr_sim::{Overrides, SimDevice, open};

/// Where simulated ranges start: aligned to 1 TiB.
pub(crate) const BASE: u64 = 0x7e00_0000_0000;

pub(crate) fn sim(name: &str, overrides: &Overrides) -> SimDevice {
    open(name, overrides).expect("a profile of that name")
}

pub(crate) fn request(addr: u64, len: u64) -> MrRequest {
    MrRequest {
        addr,
        len: NonZeroU64::new(len).expect("a length"),
        iova: addr,
        access: Access::REMOTE_RW,
    }
}

pub(crate) fn reg_request(device: &SimDevice, request: &MrRequest) -> Result<RegisteredMr, Errno> {
    assert!(!device.needs_memory());
    // SAFETY: the device needs no memory.
    unsafe { device.reg_mr(request) }.map_err(|error| error.errno)
}

pub(crate) fn reg(device: &SimDevice, addr: u64, len: u64) -> Result<RegisteredMr, Errno> {
    reg_request(device, &request(addr, len))
}

/// Registers `total` bytes from [`BASE`] in chunks until one fails; the MRs, and where it failed with what.
pub(crate) fn reg_chunks(
    device: &SimDevice,
    total: u64,
    chunk: u64,
) -> (Vec<RegisteredMr>, Option<(usize, Errno)>) {
    let mut mrs = Vec::new();
    let mut at = 0;
    while at < total {
        match reg(device, BASE + at, chunk.min(total - at)) {
            Ok(mr) => mrs.push(mr),
            Err(errno) => {
                let failed = mrs.len();
                return (mrs, Some((failed, errno)));
            }
        }
        at += chunk;
    }
    (mrs, None)
}
