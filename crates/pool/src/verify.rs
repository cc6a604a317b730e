//! A proof by moving data: every MR at both ends, and across every border, through the published keys.

use hugemr_core::backend::{Rkey, VerifyBackend, VerifyError};
use hugemr_core::key_table::{KeyTable, LookupError};

/// Bytes that one proof moves at each place.
const PROBE: u64 = 64;

/// What was proved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// MRs whose first and last bytes were written and read back.
    pub mrs: usize,
    /// Borders between neighbouring MRs that were crossed.
    pub borders: usize,
    /// Bytes written and read back.
    pub bytes: u64,
}

/// Where the proof failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProofError {
    /// The device refused, or the data differ.
    #[error("MR {mr} is not proved")]
    Transfer {
        /// Number of the MR, in the order of addresses.
        mr: usize,
        /// What happened.
        #[source]
        source: VerifyError,
    },
    /// The table does not know a range that it should.
    #[error("the key table does not cover the range of MR {mr}")]
    Keys {
        /// Number of the MR, in the order of addresses.
        mr: usize,
        /// What it says.
        #[source]
        source: LookupError,
    },
}

/// Proves every MR of `keys` on `backend`. `progress` hears the number of MRs done.
///
/// # Errors
/// The first place that failed. [`VerifyError::NoLoopback`] means that the device cannot prove anything this way.
pub fn verify(
    backend: &dyn VerifyBackend,
    keys: &KeyTable,
    mut progress: impl FnMut(usize),
) -> Result<Proof, ProofError> {
    let mut proof = Proof::default();
    let mut round_trip = |mr: usize, addr: u64, len: u64, rkey: Rkey| {
        // `len` is at most PROBE.
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        proof.bytes += u64::from(len);
        backend
            .round_trip(addr, len, rkey)
            .map_err(|source| ProofError::Transfer { mr, source })
    };
    let mut before: Option<u64> = None;
    let mut borders = 0;
    for (mr, part) in keys.iter().enumerate() {
        let size = PROBE.min(part.len);
        let ends = [part.addr, part.addr + (part.len - size)];
        for addr in ends {
            let key = keys
                .lookup(addr, size)
                .map_err(|source| ProofError::Keys { mr, source })?;
            round_trip(mr, addr, size, key.rkey)?;
        }
        if before == Some(part.addr) {
            // An operation across the border becomes one part on each side.
            let half = PROBE / 2;
            let parts = keys
                .split(part.addr - half, half + half.min(part.len))
                .map_err(|source| ProofError::Keys { mr, source })?;
            for part in parts {
                round_trip(mr, part.addr, part.len, part.rkey)?;
            }
            borders += 1;
        }
        before = part.addr.checked_add(part.len);
        progress(mr + 1);
    }
    Ok(Proof {
        mrs: keys.len(),
        borders,
        ..proof
    })
}
