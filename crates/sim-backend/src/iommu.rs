//! DMA mapping through an IOMMU: the device sees addresses of a block of its own, not physical ones.
//!
//! `iommu_dma_map_sg` takes one naturally aligned block of I/O addresses for the whole MR and pads an entry where the
//! next one would cross a multiple of 4 GiB; `__finalise_sg` then joins neighbours up to `UINT_MAX` bytes, but
//! never across such a multiple. Source: Linux `drivers/iommu/dma-iommu.c` 6.1 and 6.12. What a real device does with
//! a mapping whose padded length has wrapped (6.1) was not observed; only the addresses that Linux computes are
//! modelled.

use hugemr_core::layout::PhysRun;

/// Distance of the borders that a DMA segment must not cross, bytes: the PCI core's default, kept by erdma.
const SEGMENT: u64 = 1 << 32;

/// A padded entry became longer than a `u32` can say: EOVERFLOW.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PaddingOverflow;

/// Scatter-gather entries, each with the space it takes in the block of I/O addresses.
#[derive(Clone, Debug)]
struct Padded<I: Iterator<Item = PhysRun>> {
    entries: std::iter::Peekable<I>,
    /// I/O addresses handed out before the next entry.
    used: u64,
}

impl<I: Iterator<Item = PhysRun>> Iterator for Padded<I> {
    /// Length of the entry, and of the entry with its padding.
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        let entry = self.entries.next()?;
        self.used += entry.len;
        let mut padded = entry.len;
        if let Some(next) = self.entries.peek() {
            let pad = self.used.next_multiple_of(SEGMENT) - self.used;
            if pad != 0 && pad < next.len - 1 {
                padded += pad;
                self.used += pad;
            }
        }
        Some((entry.len, padded))
    }
}

/// The DMA segments that the device sees. `checked`: the kernel notices when padding overflows; otherwise the padded
/// length silently wraps at 32 bits.
pub(crate) fn map<I>(
    entries: I,
    checked: bool,
) -> Result<impl Iterator<Item = PhysRun>, PaddingOverflow>
where
    I: Iterator<Item = PhysRun> + Clone,
{
    let padded = Padded {
        entries: entries.peekable(),
        used: 0,
    };
    let mut total = 0u64;
    for (_, len) in padded.clone() {
        if checked && len > u64::from(u32::MAX) {
            return Err(PaddingOverflow);
        }
        total = total.saturating_add(len);
    }
    // One block, aligned to its size.
    let base = total.checked_next_power_of_two().unwrap_or(1 << 63);
    Ok(Segments {
        padded,
        next: base,
        open: None,
        closed: false,
    })
}

/// Entries joined to segments.
struct Segments<I: Iterator<Item = PhysRun>> {
    padded: Padded<I>,
    /// I/O address of the next entry.
    next: u64,
    open: Option<PhysRun>,
    /// Whether padding follows the open segment, so that nothing can join it.
    closed: bool,
}

impl<I: Iterator<Item = PhysRun>> Iterator for Segments<I> {
    type Item = PhysRun;

    fn next(&mut self) -> Option<PhysRun> {
        loop {
            let Some((len, padded)) = self.padded.next() else {
                return self.open.take();
            };
            let at = self.next;
            let taken = padded % SEGMENT;
            self.next = at.wrapping_add(taken);
            let joinable = !self.closed && !at.is_multiple_of(SEGMENT);
            self.closed = len < taken;
            if let Some(open) = &mut self.open
                && joinable
                && u64::from(u32::MAX) - open.len >= len
            {
                open.len += len;
                continue;
            }
            if let Some(done) = self.open.replace(PhysRun { phys: at, len }) {
                return Some(done);
            }
        }
    }
}
