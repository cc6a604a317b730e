//! How long a chunk may be, and how long it is.

use crate::device::Device;
use crate::fact::Limit;
use crate::quirk::QuirkState;
use crate::size::{Bytes, PageSize};

use super::answer::{ChunkBound, Code};
use super::request::PlanRequest;

/// The chunk length for one kind of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tiling {
    /// Borders are multiples of this.
    pub(super) step: u64,
    /// Length of a full chunk.
    pub(super) chunk: u64,
    pub(super) bound: ChunkBound,
    /// The longest MR that the limits allow, whatever the step.
    pub(super) limit: u64,
}

/// Why no tiling exists.
pub(super) struct NoTiling {
    pub(super) code: Code,
    pub(super) text: String,
}

/// Least common multiple; `None` beyond 2^64 - 1. Neither is 0.
pub(super) fn lcm(a: u64, b: u64) -> Option<u64> {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    (a / x).checked_mul(b)
}

/// The longest MR that Linux pins, bytes: 2^32 - 1 pages of 4 KiB (`ib_umem_get`, `drivers/infiniband/core/umem.c`).
pub(super) const PINNABLE: u64 = 0xffff_ffff * 4096;

/// The value up to which a limit is reckoned with: what is certain; where nothing is, what is at most possible.
pub(super) fn usable(limit: &Limit) -> u64 {
    match (limit.certain(), limit.at_most()) {
        (0, Some(high)) => high,
        (0, None) => u64::MAX,
        (certain, _) => certain,
    }
}

/// Chooses the chunk for memory of `page`, which the device sees as pages of `seen`. `too_many` tells whether too many
/// chunks would come of a step and a chunk length.
pub(super) fn tile(
    request: &PlanRequest,
    device: &Device,
    quirks: &[QuirkState],
    page: PageSize,
    seen: PageSize,
    too_many: impl Fn(u64, u64) -> bool,
) -> Result<Tiling, NoTiling> {
    let step = lcm(page.bytes(), request.block.unwrap_or(1).max(1)).ok_or_else(|| NoTiling {
        code: Code::TooBig,
        text: format!(
            "the common multiple of the page ({page}) and the block ({}) is beyond 16 EiB",
            Bytes(request.block.unwrap_or(0))
        ),
    })?;
    let (limit, bound) = limit(request, device, seen);
    if limit < page.bytes() {
        return Err(NoTiling {
            code: Code::LimitBelowPage,
            text: format!(
                "an MR may have {}, less than one page of {page}",
                Bytes(limit)
            ),
        });
    }
    if limit < step {
        return Err(NoTiling {
            code: Code::BlockAboveLimit,
            text: format!(
                "an MR may have {}, less than one step of {} (page {page}, block {})",
                Bytes(limit),
                Bytes(step),
                Bytes(request.block.unwrap_or(1))
            ),
        });
    }
    if let Some(chunk) = request.chunk {
        return asked(chunk, step, limit);
    }
    let longest = limit - limit % step;
    if request.single || request.ignore_quirks {
        return Ok(Tiling {
            step,
            chunk: longest,
            bound,
            limit,
        });
    }
    let capped = quirks
        .iter()
        .filter_map(|state| Some((state.cap(seen)?, state.quirk)))
        .min_by_key(|(cap, _)| *cap)
        .filter(|(cap, _)| *cap < longest && *cap >= step);
    let Some((cap, quirk)) = capped else {
        return Ok(Tiling {
            step,
            chunk: longest,
            bound,
            limit,
        });
    };
    let multiple = cap - cap % step;
    let power = if step.is_power_of_two() {
        1u64 << cap.ilog2()
    } else {
        multiple
    };
    let chunk = if too_many(step, power) {
        multiple
    } else {
        power
    };
    Ok(Tiling {
        step,
        chunk,
        bound: ChunkBound::Quirk(quirk),
        limit,
    })
}

/// The longest MR that may be asked for, bytes.
pub(super) fn longest_mr(request: &PlanRequest, device: &Device) -> u64 {
    let limit = request.max_mr_size;
    let limit = limit.unwrap_or_else(|| usable(&device.max_mr_size));
    limit.min(PINNABLE)
}

fn limit(request: &PlanRequest, device: &Device, seen: PageSize) -> (u64, ChunkBound) {
    let size = longest_mr(request, device);
    let by_entries = usable(&device.entries_per_mr).saturating_mul(seen.bytes());
    // A buffer that must stay one MR is judged against each limit by name, later.
    if by_entries < size && !request.single {
        (by_entries, ChunkBound::EntriesPerMr)
    } else {
        (size, ChunkBound::MaxMrSize)
    }
}

fn asked(chunk: u64, step: u64, limit: u64) -> Result<Tiling, NoTiling> {
    if chunk == 0 || !chunk.is_multiple_of(step) {
        let below = (chunk - chunk % step).max(step);
        return Err(NoTiling {
            code: Code::ChunkOffStep,
            text: format!(
                "a chunk of {} is no multiple of the step of {}; {} is",
                Bytes(chunk),
                Bytes(step),
                Bytes(below)
            ),
        });
    }
    Ok(Tiling {
        step,
        chunk,
        bound: ChunkBound::Asked,
        limit,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_common_multiples() {
        assert_eq!(lcm(2 << 20, 3 << 20), Some(6 << 20));
        assert_eq!(lcm(4096, 1), Some(4096));
        assert_eq!(lcm(u64::MAX, 2), None);
    }
}
