//! What fits can be registered, with the entries that the plan says.

use std::cell::Cell;

use hugemr::core::layout::{Layout, Rules, WireLength, predict};
use hugemr::core::plan::{Verdict, plan};
use hugemr::core::size::GIB;
use hugemr_sim::SimDevice;
use proptest::prelude::*;

use crate::common::{Lie, case, check, register};

/// A plan that fits is carried out by the simulated device without a refusal, and:
///
/// - the device then holds as many MRs as planned and **at most** the entries planned (at worst). On scattered memory,
///   on pages that the device offers, it holds exactly the entries planned (at best and at worst are the same there).
///   It can hold fewer where pages lie behind each other by luck, and the kernel makes larger ones of them.
/// - every MR reaches the device with its whole length, **but where luck makes the table small**: a driver that sends
///   32 bits of the length of tables of up to 512 entries does so too with an MR of 4 GiB and more on pages of 2 MiB
///   that merged to 8 MiB and more. No plan can know; `predict`, which a pool asks before each registration, does,
///   and finds exactly those MRs.
///
/// Red with a segment cap of 4 GiB instead of one page less (mutant `agree-segment-cap`), and with the last of two chunks
/// forgotten (`agree-last-chunk`).
#[test]
fn what_fits_registers_with_the_entries_planned() {
    let (fits, exactly, lucky) = (Cell::new(0), Cell::new(0), Cell::new(0));
    check(1500, case(), |case| {
        let Ok(plan) = plan(&case.request, &case.device, &case.host) else {
            return Ok(());
        };
        // Who ignores the defects and meets one has been told so.
        if plan.verdict == Verdict::Undecided || !plan.hit.is_empty() {
            return Ok(());
        }
        fits.set(fits.get() + 1);
        let device = case.sim(&plan, case.lie);
        let rules = Rules::of(&case.host.platform, case.device.family);
        let iommu = rules.iommu == Some(true);
        let mut held = Vec::new();
        for _ in 0..case.request.pds {
            match register(&device, &plan, case.base) {
                Ok(registration) => held.push(registration),
                Err(error) => {
                    return Err(TestCaseError::fail(format!(
                        "{error}: {:?}",
                        error.failure()
                    )));
                }
            }
        }
        let state = device.state();
        prop_assert_eq!(state.mrs, plan.mrs * case.request.pds);
        prop_assert!(state.entries <= plan.entries.1 * case.request.pds);
        if case.lie == Lie::Scattered && case.offers(&plan) && !iommu {
            exactly.set(exactly.get() + 1);
            prop_assert_eq!(plan.entries.0, plan.entries.1);
            prop_assert_eq!(state.entries, plan.entries.0 * case.request.pds);
        }
        for (live, chunk) in device.mrs().iter().zip(plan.chunks()) {
            if case.request.pds == 1 && !iommu {
                let (addr, len) = (live.request.addr, live.request.len.get());
                let layout = layout(&device, addr, len);
                let cap = case.device.page_size_cap;
                let predicted =
                    predict(&layout, addr, len, addr, cap, &rules).expect("a prediction");
                let arrival = live.arrival;
                prop_assert_eq!(
                    (
                        predicted.page,
                        predicted.entries,
                        predicted.level,
                        predicted.wire_len
                    ),
                    (
                        arrival.page,
                        arrival.entries,
                        arrival.level,
                        arrival.wire_len
                    )
                );
                prop_assert_eq!(predicted.refused, None);
            }
            if !live.usable() {
                lucky.set(lucky.get() + 1);
                prop_assert_eq!(rules.wire_length, WireLength::ShortForm);
                prop_assert!(chunk.len >= 4 * GIB && live.arrival.entries <= 512);
                prop_assert!(
                    live.arrival.page > chunk.page && live.arrival.page.bytes() >= 8 << 20
                );
            }
        }
        drop(held);
        let state = device.state();
        prop_assert_eq!((state.mrs, state.entries, state.pinned), (0, 0, 0));
        Ok(())
    });
    let counts = (fits.get(), exactly.get(), lucky.get());
    assert!(
        counts.0 > 300 && counts.1 > 60 && counts.2 > 0,
        "too few cases: {counts:?}"
    );
}

/// The runs behind a range, as a pagemap would show them.
fn layout(device: &SimDevice, addr: u64, len: u64) -> Layout {
    let from = addr & !4095;
    let to = (addr + len).next_multiple_of(4096);
    Layout::new(from, device.runs(from, to - from).expect("it is backed"))
}
