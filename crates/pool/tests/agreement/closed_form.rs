//! The closed form of core gives what the walk of the simulator gives.

use std::cell::Cell;
use std::num::NonZeroU64;

use hugemr::core::backend::{Access, MrRequest, RegBackend};
use hugemr::core::device::{Device, Family};
use hugemr::core::host::{Driver, Platform};
use hugemr::core::layout::{Layout, PhysRun, Rules, predict};
use hugemr::core::size::{GIB, PageSize, PageSizes};
use hugemr_sim::{Profile, SimDevice, SimMemory};
use proptest::prelude::*;
use proptest::sample::select;

use crate::common::{BASE, check, page_size_cap};

/// One MR on random runs.
#[derive(Clone, Debug)]
struct Mr {
    platform: Platform,
    family: Family,
    cap: PageSizes,
    segment_cap: u64,
    /// What is backed, from `base`.
    base: u64,
    runs: Vec<PhysRun>,
    addr: u64,
    len: u64,
    iova: u64,
}

/// Each rule and each driver: 5.2 to 5.8, before the fix, after it; one block, short form, whole length.
fn platform() -> impl Strategy<Value = Platform> {
    let kernels = select(vec![
        "4.19", "5.4", "5.10.134", "6.1.140", "6.1.141", "6.8", "6.12.30", "6.12.31", "7.3.4",
    ]);
    let drivers = select(vec![
        Driver::InTree,
        Driver::Vendor("1.5.1".parse().ok()),
        Driver::Vendor("1.5.7".parse().ok()),
    ]);
    (kernels, drivers, prop::bool::weighted(0.8)).prop_map(|(kernel, driver, mtt_va)| Platform {
        kernel: kernel.parse().ok(),
        driver,
        mtt_va: Some(mtt_va),
        iommu: Some(false),
        ..Platform::default()
    })
}

/// Runs of pages of one size (or of several, one after the other), an MR somewhere in them, and an iova that is the
/// address, or congruent to it modulo a page, a huge page, or more, or to the physical address of the start.
fn mr(segment_cap: u64, shifts: Vec<u32>, most_pages: u64, mean: u64) -> impl Strategy<Value = Mr> {
    let place = (
        select(shifts.clone()),
        select(shifts),
        1..=most_pages,
        0..=mean,
        any::<u64>(),
        0u64..1024,
    );
    let inside = (
        any::<u64>(),
        any::<u64>(),
        prop::bool::weighted(0.3),
        0u8..6,
    );
    let device = (
        page_size_cap(),
        prop_oneof![4 => Just(Family::Erdma), 1 => Just(Family::Efa)],
    );
    (place, inside, platform(), device).prop_map(move |(place, inside, platform, (cap, family))| {
        let (shift, second, pages, mean, seed, start) = place;
        let (skip, shorten, whole, which) = inside;
        let base = BASE + (start << 21.min(shift.max(second)));
        let base = base & !((1u64 << shift.max(second)) - 1);
        let mut runs = Vec::new();
        let mut at = base;
        for (shift, seed) in [(shift, seed), (second, !seed)] {
            let size = PageSize::from_shift(shift).expect("a page");
            let len = pages * size.bytes() / if runs.is_empty() { 1 } else { 2 };
            let len = len.next_multiple_of(size.bytes());
            let SimMemory::Runs(more) = SimMemory::random(size, at, len, mean, seed) else {
                continue;
            };
            runs.extend(more);
            at = (at + len).next_multiple_of(1 << second);
            // The second kind of pages begins on its own border.
            let gap = at - runs.iter().map(|run| run.len).sum::<u64>() - base;
            if gap > 0 {
                runs.push(PhysRun {
                    phys: seed >> 20 & !4095,
                    len: gap,
                });
            }
        }
        let backed = at - base;
        let (mut skip, mut len) = (skip % backed, backed);
        if whole {
            skip = 0;
        }
        len -= skip;
        len -= if whole { 0 } else { shorten % len };
        let addr = base + skip;
        let first = Layout::new(base, runs.iter().copied())
            .slice(addr & !4095, (addr & !4095) + 4096)
            .and_then(|mut runs| runs.next())
            .map_or(0, |(_, phys, _)| phys);
        let iova = match which {
            0 | 1 => addr,
            2 => addr & 4095,
            3 => addr & ((1 << 21) - 1),
            4 => (first | (addr & 4095)) & (u64::MAX >> 8),
            _ => addr ^ (seed & 0xfff_ffff_f000),
        };
        Mr {
            platform,
            family,
            cap,
            segment_cap,
            base,
            runs,
            addr,
            len,
            iova,
        }
    })
}

/// What both say; whether a run was longer than the segment cap; and whether larger pages than 4 KiB came about.
fn compare(mr: &Mr) -> Result<(bool, bool), TestCaseError> {
    let rules = Rules {
        segment_cap: mr.segment_cap,
        ..Rules::of(&mr.platform, mr.family)
    };
    let layout = Layout::new(mr.base, mr.runs.iter().copied());
    let predicted = predict(&layout, mr.addr, mr.len, mr.iova, mr.cap, &rules);

    let device = Device {
        page_size_cap: mr.cap,
        ..Device::unlimited("test", mr.family)
    };
    let mut profile = Profile::new(device, mr.platform.clone());
    profile.sg_cap = mr.segment_cap;
    let device = SimDevice::new(profile);
    device
        .back(mr.base, layout.len(), SimMemory::Runs(mr.runs.clone()))
        .expect("runs that cover the range");
    let request = MrRequest {
        addr: mr.addr,
        len: NonZeroU64::new(mr.len).expect("a length"),
        iova: mr.iova,
        access: Access::REMOTE_RW,
    };
    // SAFETY: the simulated device needs no memory.
    match unsafe { device.reg_mr(&request) } {
        Ok(registered) => {
            let arrival = device.mr(registered.handle).expect("it is live").arrival;
            let predicted = predicted.ok_or_else(|| TestCaseError::fail("nothing is predicted"))?;
            prop_assert_eq!(
                (
                    predicted.page,
                    predicted.entries,
                    predicted.level,
                    predicted.wire_len,
                    predicted.refused
                ),
                (
                    arrival.page,
                    arrival.entries,
                    arrival.level,
                    arrival.wire_len,
                    None
                )
            );
        }
        // No page size at all is EINVAL; there is no prediction then.
        Err(error) => match predicted {
            Some(predicted) => prop_assert_eq!(predicted.refused, Some(error.errno)),
            None => prop_assert_eq!(error.errno.name(), Some("EINVAL")),
        },
    }
    let large = predicted.is_some_and(|predicted| predicted.page > PageSize::K4);
    let (from, to) = (mr.addr & !4095, (mr.addr + mr.len).next_multiple_of(4096));
    let mut runs = layout.slice(from, to).into_iter().flatten();
    Ok((runs.any(|(_, _, len)| len > mr.segment_cap), large))
}

/// Compares so many cases; how many had a run beyond the cap, and how many larger pages.
fn compare_all(cases: u32, mrs: impl Strategy<Value = Mr>) -> (u32, u32) {
    let (cut, large) = (Cell::new(0), Cell::new(0));
    check(cases, mrs, |mr| {
        let (is_cut, is_large) = compare(&mr)?;
        cut.set(cut.get() + u32::from(is_cut));
        large.set(large.get() + u32::from(is_large));
        Ok(())
    });
    (cut.get(), large.get())
}

/// With segments of at most 64 pages most cases have a run that is cut.
///
/// Red with a run of which only the first cut counts (mutant `agree-second-cut`), and with levels in a table that is one
/// block (`agree-level`).
#[test]
fn ten_thousand_random_layouts() {
    let small = mr(64 * 4096, vec![12, 13, 16, 18], 400, 60);
    let (cut, large) = compare_all(10_000, small);
    println!("of 10,000: {cut} with a run beyond the cap, {large} with large pages");
    assert!(cut > 5_000 && large > 2_000, "{cut} cut, {large} large");
}

/// The same with real segments of 4 GiB less a page.
///
/// Red with single cuts that are not seen (mutant `agree-cut-at-real-size`).
#[test]
fn fifty_random_layouts_of_real_size() {
    let (cut, large) = compare_all(50, mr(4 * GIB - 4096, vec![21, 30, 30, 30], 24, 16));
    println!("of 50: {cut} with a run beyond the cap, {large} with large pages");
    assert!(cut > 5 && large > 5, "{cut} cut, {large} large");
}
