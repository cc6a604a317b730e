//! A simulated device of stated figures, and raw registrations on it: what `replay` needs of the simulator.

use std::sync::Arc;

use hugemr_core::backend::{Access, NoMemory};
use hugemr_core::chunks::Segment;
use hugemr_core::device::Device;
use hugemr_core::errno::Errno;
use hugemr_core::host::Platform;
use hugemr_core::registrar::{Options, Registration};
use hugemr_core::size::PageSize;
use hugemr_sim::{Profile, SimDevice, SimMemory};

use super::{Arrived, CONTIGUOUS_BASE};

/// Where the memory begins: a multiple of every page size that is simulated.
const BASE: u64 = 0x7e00_0000_0000;
/// The largest page that [`BASE`] is a multiple of, bytes.
pub(crate) const LARGEST_PAGE: u64 = 1 << 41;

/// How the memory lies physically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// No page continues its neighbour.
    Scattered,
    /// One ascending run.
    Contiguous,
    /// Scattered, and so many pages are really 4 KiB ones.
    Holes(u64),
}

/// What was registered, and how it ended.
pub(crate) struct Raw {
    /// MRs that stood at the end.
    pub(crate) ok: u64,
    /// The first MR that was refused, counted from 0, and with what.
    pub(crate) failed: Option<(u64, Errno)>,
    /// The MRs that reached the device, a refused one among them.
    pub(crate) arrived: Vec<Arrived>,
    /// Entries that the device held at the end.
    pub(crate) entries_held: u64,
    /// Stretches that are not backed by whole pages, as distances from the start.
    pub(crate) not_whole: Vec<(u64, u64)>,
}

/// Registers MRs of these lengths, one after another, each from a page border on, until one is refused. Then everything is
/// released.
pub(crate) fn register(
    device: Device,
    platform: Platform,
    memlock: Option<u64>,
    (lens, page, layout): (&[u64], PageSize, Layout),
) -> Result<Raw, String> {
    let mut profile = Profile::new(device, platform);
    profile.memlock = memlock;
    profile.log_capacity = lens.len();
    let device = Arc::new(SimDevice::new(profile));
    let too_long = || "more than the address space of a simulated process".to_owned();
    let spans = spans(lens, page).ok_or_else(too_long)?;
    let end = spans.last().map_or(BASE, |(_, end)| *end);
    let memory = match layout {
        Layout::Scattered => SimMemory::scattered(page),
        Layout::Contiguous => SimMemory::Contiguous {
            page,
            phys_base: CONTIGUOUS_BASE,
        },
        Layout::Holes(count) => SimMemory::Holes {
            page,
            count,
            seed: 0,
        },
    };
    device
        .back(BASE, end - BASE, memory)
        .map_err(|error| error.to_string())?;
    let mut held = Vec::new();
    let mut failed = None;
    for (index, (&len, &(base, _))) in (0u64..).zip(lens.iter().zip(&spans)) {
        match one(&device, base, len, page) {
            Ok(registration) => held.push(registration),
            Err(Refused::Errno(errno)) => {
                failed = Some((index, errno));
                break;
            }
            Err(Refused::Request(why)) => return Err(format!("MR {index}: {why}")),
        }
    }
    let arrived = device
        .log()
        .iter()
        .filter_map(|event| {
            let arrival = event.arrival?;
            Some(Arrived {
                page: arrival.page,
                entries: arrival.entries,
                len: event.request.len.get(),
                wire_len: arrival.wire_len,
            })
        })
        .collect();
    let not_whole = match layout {
        Layout::Holes(_) => device.not_huge(BASE, end - BASE, page),
        Layout::Scattered | Layout::Contiguous => Vec::new(),
    };
    Ok(Raw {
        ok: held.len() as u64,
        failed,
        arrived,
        entries_held: device.state().entries,
        not_whole: not_whole
            .into_iter()
            .map(|range| (range.start - BASE, range.end - BASE))
            .collect(),
    })
}

/// First and end address of each MR's memory, rounded to whole pages; `None` beyond 2^64.
fn spans(lens: &[u64], page: PageSize) -> Option<Vec<(u64, u64)>> {
    let mut at = BASE;
    lens.iter()
        .map(|len| {
            let end = at.checked_add(len.checked_next_multiple_of(page.bytes())?)?;
            Some((std::mem::replace(&mut at, end), end))
        })
        .collect()
}

enum Refused {
    Errno(Errno),
    Request(String),
}

fn one(
    device: &Arc<SimDevice>,
    base: u64,
    len: u64,
    page: PageSize,
) -> Result<Registration<Arc<SimDevice>, NoMemory>, Refused> {
    let whole = Segment::whole(len, page);
    let memory = NoMemory { base, len, page };
    let device = Arc::clone(device);
    Registration::new(device, memory, &[whole], Access::REMOTE_RW, &Options::new()).map_err(
        |error| match error.failure().errno() {
            Some(errno) => Refused::Errno(errno),
            None => Refused::Request(error.to_string()),
        },
    )
}
