//! Short measurements of this host: what it costs to make memory real, and to pin it.
//!
//! A few hundred MiB for a fraction of a second. Memory is mapped and freed again; no pool is changed, no device is touched.
//!
//! **Pinning** is measured without a device, by io_uring's fixed buffers (`IORING_REGISTER_BUFFERS`, Linux 5.1): they
//! are pinned by the same walk of the page tables (`pin_user_pages`, long term) as an MR. What a device's driver does
//! besides (the scatter list, the IOMMU, its table) comes on top.

use std::time::{Duration, Instant};

use hugemr_core::backend::Backing as _;
use hugemr_core::errno::Errno;
use hugemr_core::size::{GIB, MIB, PageSize};

use crate::mapping::{Kind, MapError, MapRequest, Mapping};
use crate::pools::{GlobalPool, Pools};
use crate::populate::{Populate, PopulateError};
use crate::root::Root;
use crate::sys;

/// What was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// Seconds for a GiB, one number a round, in the order of time. The first round of populating can be slower by far:
    /// memory that the machine has not used lately.
    pub per_gib: Vec<f64>,
    /// Bytes of a round.
    pub bytes: u64,
    /// Kind of memory it was measured on, which is not always the one asked for.
    pub on: Kind,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// No memory for it.
    #[error("no memory to measure on")]
    Map(#[source] MapError),
    /// It could not be populated.
    #[error("the memory to measure on could not be populated")]
    Populate(#[source] PopulateError),
    /// The kernel does not let this process pin memory by io_uring (switched off, filtered, or over the memlock limit).
    #[error("pinning cannot be measured without a device: io_uring says {0}")]
    Pin(Errno),
}

/// At most so much memory.
const MOST: u64 = 256 * MIB;
/// Less says too little: threads would not even be started.
const LEAST: u64 = 64 * MIB;
/// Rounds, and how long they may take together; there are two at least.
const ROUNDS: usize = 7;
const LONG_ENOUGH: Duration = Duration::from_millis(400);
/// Bytes pinned by one call: io_uring compares each huge page of a buffer with those before it.
const PINNED: u64 = 32 * MIB;

/// Where pages of that size can be measured now, and how much of it: pages that are free in their pool, at most half of
/// them; else memory that may become huge pages, which Linux clears by the same code.
fn sample(root: &Root, page: PageSize) -> (Kind, u64) {
    if page <= PageSize::K64 {
        return (Kind::Base, MOST / 4);
    }
    let pool = Pools::read(root).of(page).and_then(GlobalPool::available);
    let half = pool.unwrap_or(0) / 2 * page.bytes();
    if half < LEAST {
        return (Kind::Thp, MOST);
    }
    (Kind::HugeTlb(page), half.min(MOST.max(page.bytes())))
}

/// Seconds to make a GiB of pages of that size real with so many threads.
///
/// # Errors
/// See [`MeasureError`].
pub fn populate(root: &Root, page: PageSize, threads: usize) -> Result<Measured, MeasureError> {
    let (on, bytes) = sample(root, page);
    let round = || {
        let memory = map(root, on, bytes)?;
        let start = Instant::now();
        fill(&memory, threads)?;
        Ok(start.elapsed())
    };
    rounds(on, bytes, round)
}

/// Seconds to pin a GiB of pages of that size on one thread.
///
/// # Errors
/// See [`MeasureError`].
pub fn pin(root: &Root, page: PageSize) -> Result<Measured, MeasureError> {
    let (on, bytes) = sample(root, page);
    let memory = map(root, on, bytes)?;
    fill(&memory, 1)?;
    let ring = sys::Ring::new().map_err(MeasureError::Pin)?;
    let len = PINNED.min(bytes);
    let pieces = bytes / len;
    let round = || {
        let mut took = Duration::ZERO;
        for piece in 0..pieces {
            let start = Instant::now();
            ring.pin(memory.base() + piece * len, len)
                .map_err(MeasureError::Pin)?;
            took += start.elapsed();
            ring.unpin().map_err(MeasureError::Pin)?;
        }
        Ok(took)
    };
    rounds(on, pieces * len, round)
}

fn map(root: &Root, kind: Kind, bytes: u64) -> Result<Mapping, MeasureError> {
    MapRequest::new(kind, bytes)
        .map(root)
        .map_err(MeasureError::Map)
}

fn fill(memory: &Mapping, threads: usize) -> Result<(), MeasureError> {
    let filled = Populate::new().threads(threads).all(memory);
    filled.map(drop).map_err(MeasureError::Populate)
}

fn rounds(
    on: Kind,
    bytes: u64,
    mut round: impl FnMut() -> Result<Duration, MeasureError>,
) -> Result<Measured, MeasureError> {
    let begin = Instant::now();
    let mut per_gib = Vec::new();
    while per_gib.len() < 2 || (per_gib.len() < ROUNDS && begin.elapsed() < LONG_ENOUGH) {
        let seconds = round()?.as_secs_f64();
        per_gib.push(seconds * GIB as f64 / bytes as f64);
    }
    Ok(Measured { per_gib, bytes, on })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn populating_takes_time_and_leaves_nothing() {
        let measured = populate(&Root::real(), PageSize::K4, 2).unwrap();
        assert_eq!(measured.on, Kind::Base);
        assert!(measured.per_gib.len() >= 2);
        // Faster than any memory, or slower than a disk: the clock or the bytes are wrong.
        assert!(measured.per_gib.iter().all(|s| (0.001..1000.0).contains(s)));
    }

    #[test]
    fn pinning_is_measured_or_refused_in_words() {
        match pin(&Root::real(), PageSize::K4) {
            Ok(measured) => {
                assert!(measured.per_gib.iter().all(|s| (1e-6..1000.0).contains(s)));
            }
            Err(error @ MeasureError::Pin(_)) => {
                assert!(error.to_string().contains("io_uring"), "{error}");
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn half_of_what_is_free_is_measured_on_if_that_says_enough() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        assert_eq!(sample(&root, PageSize::M2), (Kind::Thp, MOST));
        let pool = root.path(&crate::pools::pool_dir(PageSize::M2, None));
        std::fs::create_dir_all(&pool).unwrap();
        for (file, count) in [("nr_hugepages", 4096), ("resv_hugepages", 0)] {
            std::fs::write(pool.join(file), count.to_string()).unwrap();
        }
        for (free, want) in [
            (10, (Kind::Thp, MOST)),
            (100, (Kind::HugeTlb(PageSize::M2), 100 * MIB)),
            (4096, (Kind::HugeTlb(PageSize::M2), MOST)),
        ] {
            std::fs::write(pool.join("free_hugepages"), free.to_string()).unwrap();
            assert_eq!(sample(&root, PageSize::M2), want, "{free}");
        }
    }
}
