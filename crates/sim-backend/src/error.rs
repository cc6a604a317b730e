//! Why a simulated device cannot be had as asked for.

use hugemr_core::device::Family;
use hugemr_core::layout::PhysRun;

/// A simulated device, or a part of it, cannot be had as asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// No profile and no family has this name.
    #[error("no simulated device is called {name:?}; there are {}{}", known.join(", "), Family::hint(name))]
    UnknownName {
        /// What was asked for.
        name: String,
        /// Every name.
        known: Vec<&'static str>,
    },
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        source: hugemr_input::InputError,
    },
    /// The file can be read but not understood.
    #[error("{path}:{line}: {}{message}", key.as_ref().map(|k| format!("{k}: ")).unwrap_or_default())]
    BadFile {
        /// The file.
        path: String,
        /// The line, from 1.
        line: usize,
        /// The key with its table, for example `limits.max_mr_size`, where one can be named.
        key: Option<String>,
        /// What is wrong.
        message: String,
    },
    /// The range is empty, not in units of 4 KiB, or ends beyond the address space.
    #[error("{len} bytes at {addr:#x} are no range of memory: units of 4 KiB are needed")]
    BadRange {
        /// First address.
        addr: u64,
        /// Bytes.
        len: u64,
    },
    /// A physical run is empty or not in units of 4 KiB.
    #[error("physical run of {} bytes at {:#x}: units of 4 KiB are needed", .0.len, .0.phys)]
    BadRun(PhysRun),
    /// The physical runs are more or less than the range.
    #[error("the physical runs cover {runs} bytes, the range has {len}")]
    RunsDoNotCover {
        /// Bytes of the runs.
        runs: u64,
        /// Bytes of the range.
        len: u64,
    },
}
