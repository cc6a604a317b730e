//! Moves data between registered ranges, with the checks that a device makes.

use std::ptr;
use std::sync::atomic::Ordering;

use hugemr_core::backend::Access;

use crate::config::Wire;
use crate::objects::{Device, End, Range, lock};
use crate::types::*;

pub(crate) const WRITE: u32 = 0;
pub(crate) const READ: u32 = 4;

pub(crate) const RESET: u32 = 0;
pub(crate) const INIT: u32 = 1;
pub(crate) const RTR: u32 = 2;
pub(crate) const RTS: u32 = 3;
pub(crate) const ERR: u32 = 6;

/// Completion statuses.
pub(crate) const SUCCESS: u32 = 0;
pub(crate) const LOC_PROT_ERR: u32 = 4;
pub(crate) const WR_FLUSH_ERR: u32 = 5;
pub(crate) const REM_ACCESS_ERR: u32 = 10;
pub(crate) const RETRY_EXC_ERR: u32 = 12;

/// One work request with one element.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    pub opcode: u32,
    pub local: ibv_sge,
    pub remote_addr: u64,
    pub rkey: u32,
}

/// Does the work of the QP `number` and returns the status of its completion.
///
/// # Safety
/// Whoever registered the ranges keeps them mapped, as `ibv_reg_mr` demands.
pub(crate) unsafe fn run(device: &Device, number: u32, work: Work) -> u32 {
    let number_of_work = device.works.fetch_add(1, Ordering::SeqCst) + 1;
    let broken = device.config.break_at == Some(number_of_work);
    let planned = if broken {
        Err(RETRY_EXC_ERR)
    } else {
        plan(device, number, work)
    };
    let status = match planned {
        Ok((from, to, len)) => {
            // SAFETY: both ranges lie inside live MRs.
            unsafe { copy(device.config.wire, work.opcode, from, to, len) };
            SUCCESS
        }
        Err(status) => status,
    };
    if status != SUCCESS
        && let Some(end) = lock(&device.ends).get_mut(&number)
    {
        end.state = ERR;
    }
    status
}

/// From where to where, or why not.
fn plan(device: &Device, number: u32, work: Work) -> Result<(u64, u64, usize), u32> {
    let end = |number| -> Option<End> { lock(&device.ends).get(&number).copied() };
    let range = |key| -> Option<Range> { lock(&device.ranges).get(&key).copied() };
    let near = end(number)
        .filter(|near| near.state == RTS)
        .ok_or(WR_FLUSH_ERR)?;
    let len = u64::from(work.local.length);
    let local_needs = if work.opcode == READ {
        Access::LOCAL_WRITE
    } else {
        Access::empty()
    };
    let local = range(work.local.lkey)
        .filter(|local| local.pd == near.pd && local.access.contains(local_needs))
        .and_then(|local| local.translate(work.local.addr, len))
        .ok_or(LOC_PROT_ERR)?;
    let far = end(near.peer)
        .filter(|far| matches!(far.state, RTR | RTS) && far.peer == number)
        .filter(|_| device.config.wire != Wire::Silent)
        .ok_or(RETRY_EXC_ERR)?;
    let needs = if work.opcode == READ {
        Access::REMOTE_READ
    } else {
        Access::REMOTE_WRITE
    };
    let remote = range(work.rkey)
        .filter(|remote| remote.pd == far.pd && remote.access.contains(needs))
        .filter(|_| far.access & needs.bits() != 0)
        .and_then(|remote| remote.translate(work.remote_addr, len))
        .ok_or(REM_ACCESS_ERR)?;
    let len = usize::try_from(len).map_err(|_| REM_ACCESS_ERR)?;
    Ok(match work.opcode {
        READ => (remote, local, len),
        _ => (local, remote, len),
    })
}

/// # Safety
/// `len` bytes at `from` can be read, at `to` written; both may be changed by other threads at any time.
unsafe fn copy(wire: Wire, opcode: u32, from: u64, to: u64, len: usize) {
    if opcode == WRITE && wire == Wire::Loses {
        return;
    }
    let from = ptr::with_exposed_provenance::<u8>(address(from));
    let to = ptr::with_exposed_provenance_mut::<u8>(address(to));
    // SAFETY: says the caller. The ranges may overlap.
    unsafe { ptr::copy(from, to, len) };
    if opcode == WRITE && wire == Wire::Flips && len > 0 {
        // SAFETY: at least one byte at `to`.
        let first = unsafe { to.read() };
        // SAFETY: as above.
        unsafe { to.write(first ^ 1) };
    }
}

#[expect(clippy::cast_possible_truncation, reason = "64-bit targets only")]
const fn address(value: u64) -> usize {
    value as usize
}
