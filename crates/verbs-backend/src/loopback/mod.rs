//! Proves keys by moving data: RDMA WRITE and READ from a device to itself, over a pair of connected QPs.

mod bounce;
mod cm;
mod gid;
mod pair;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use hugemr_core::backend::{Rkey, VerifyError};

use crate::context::Pd;
use crate::info::Transport;
use bounce::{Bounce, HALF, Half};
use pair::{Operation, Pair};

/// A connection of the device with itself, and memory of our own at its near end.
///
/// Fields in the order of their end: no QP may write into memory that is gone.
#[derive(Debug)]
pub(crate) struct Loopback {
    pair: Pair,
    bounce: Bounce,
}

/// What to prove.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote {
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) rkey: Rkey,
}

impl Remote {
    fn differs(self) -> VerifyError {
        VerifyError::Differs {
            addr: self.addr,
            len: self.len,
        }
    }

    fn failed(self, operation: Operation, status: String) -> VerifyError {
        VerifyError::Completion {
            operation: operation.name(),
            addr: self.addr,
            len: self.len,
            rkey: self.rkey,
            status,
        }
    }

    /// The range in parts of at most half the bounce memory.
    fn parts(self) -> impl Iterator<Item = Self> {
        let half = u32::try_from(HALF).unwrap_or(u32::MAX);
        (0..self.len.div_ceil(half)).map(move |index| {
            let start = index * half;
            Self {
                addr: self.addr.wrapping_add(u64::from(start)),
                len: (self.len - start).min(half),
                rkey: self.rkey,
            }
        })
    }
}

/// Writes other bytes and reads them back, part by part; each part has its former content afterwards.
pub(crate) fn round_trip(
    slot: &mut Option<Loopback>,
    pd: &Arc<Pd>,
    sys: &Path,
    remote: Remote,
) -> Result<(), VerifyError> {
    if remote.addr.checked_add(u64::from(remote.len)).is_none() {
        return Err(remote.failed(Operation::Read, "range beyond 2^64".to_owned()));
    }
    for part in remote.parts() {
        let loopback = match slot.as_mut() {
            Some(loopback) => loopback,
            None => slot.insert(Loopback::connect(pd, sys)?),
        };
        let mut written = false;
        let result = loopback.prove(part, &mut written);
        if let Err(error) = result {
            // A QP that has seen an error moves nothing more: the next proof needs a new pair.
            let saved = written.then(|| loopback.bounce.bytes(Half::Saved, part.len));
            *slot = None;
            if let Some(saved) = saved {
                restore(pd, sys, part, &saved);
            }
            return Err(error);
        }
    }
    Ok(())
}

/// Puts the former bytes back after a proof that failed between writing and restoring.
fn restore(pd: &Arc<Pd>, sys: &Path, part: Remote, saved: &[u8]) {
    let again = Loopback::connect(pd, sys).and_then(|mut loopback| {
        loopback.bounce.fill(Half::Saved, saved);
        loopback.transfer(Operation::Write, Half::Saved, part)
    });
    if let Err(error) = again {
        tracing::error!(
            addr = part.addr,
            len = part.len,
            %error,
            "the former bytes could not be written back"
        );
    }
}

/// What is written in place of a byte: another one, and not the same at each offset.
fn other(byte: u8, offset: usize) -> u8 {
    byte ^ (offset.wrapping_mul(37).to_le_bytes()[0] | 1)
}

/// The first way on which data arrives.
fn first_good<W: fmt::Display>(
    ways: &[W],
    bounce: &Bounce,
    connect: impl Fn(&W) -> Result<Pair, String>,
) -> Result<Pair, String> {
    let mut reasons = Vec::new();
    for way in ways {
        match connect(way).and_then(|pair| bounce.check(&pair).map(|()| pair)) {
            Ok(pair) => {
                tracing::debug!(%way, "loopback connected");
                return Ok(pair);
            }
            Err(why) => reasons.push(format!("{way}: {why}")),
        }
    }
    Err(reasons.join("; "))
}

impl Loopback {
    fn connect(pd: &Arc<Pd>, sys: &Path) -> Result<Self, VerifyError> {
        let no_loopback = |why: String| VerifyError::NoLoopback {
            device: pd.context().name().to_owned(),
            why,
        };
        let transport = pd.context().ibv_device().map(crate::devices::transport);
        let bounce =
            Bounce::new(pd).map_err(|errno| no_loopback(format!("ibv_reg_mr: {errno}")))?;
        let pair = match transport {
            Some(Transport::Ib) => {
                let ends = gid::ends(pd.context(), sys).map_err(no_loopback)?;
                first_good(&ends, &bounce, |end| Pair::connect(pd, end))
            }
            Some(Transport::Iwarp) => cm::addresses(pd.context(), sys)
                .and_then(|addresses| {
                    first_good(&addresses, &bounce, |address| {
                        Pair::connect_by_cm(pd, *address)
                    })
                })
                .map_err(|why| format!("by rdma_cm: {why}")),
            _ => Err("reliable connections are not known for its transport".to_owned()),
        };
        let pair = pair.map_err(no_loopback)?;
        Ok(Self { pair, bounce })
    }

    fn transfer(
        &mut self,
        operation: Operation,
        half: Half,
        remote: Remote,
    ) -> Result<(), VerifyError> {
        self.pair
            .transfer(operation, self.bounce.sge(half, remote.len), remote)
            .map_err(|status| remote.failed(operation, status))
    }

    fn prove(&mut self, part: Remote, written: &mut bool) -> Result<(), VerifyError> {
        self.transfer(Operation::Read, Half::Saved, part)?;
        let saved = self.bounce.bytes(Half::Saved, part.len);
        let pattern: Vec<u8> = (saved.iter().enumerate())
            .map(|(offset, byte)| other(*byte, offset))
            .collect();
        self.bounce.fill(Half::Seen, &pattern);
        *written = true;
        self.transfer(Operation::Write, Half::Seen, part)?;
        // So that a READ that moved nothing is seen.
        self.bounce.fill(Half::Seen, &saved);
        self.transfer(Operation::Read, Half::Seen, part)?;
        if self.bounce.bytes(Half::Seen, part.len) != pattern {
            return Err(part.differs());
        }
        self.transfer(Operation::Write, Half::Saved, part)?;
        self.transfer(Operation::Read, Half::Seen, part)?;
        if self.bounce.bytes(Half::Seen, part.len) != saved {
            return Err(part.differs());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_range_is_proved_in_parts_that_tile_it() {
        for len in [0, 1, 65_536, 65_537, 200_000, u32::MAX] {
            let remote = Remote {
                addr: 0x1000,
                len,
                rkey: Rkey(1),
            };
            let mut at = remote.addr;
            for part in remote.parts() {
                assert_eq!(part.addr, at);
                assert!(part.len > 0 && part.len as usize <= HALF);
                at += u64::from(part.len);
            }
            assert_eq!(at, remote.addr + u64::from(len));
        }
    }

    #[test]
    fn each_byte_that_is_written_differs_from_the_former_one() {
        for byte in 0..=u8::MAX {
            for offset in 0..1000 {
                assert_ne!(other(byte, offset), byte);
            }
        }
    }
}
