//! What fits can be registered, with the entries that the plan says.

use std::cell::Cell;
use std::iter::repeat_n;

use hugemr::core::device::{Device, Family};
use hugemr::core::host::{Driver, Platform};
use hugemr::core::layout::{Layout, Rules, WireLength, predict};
use hugemr::core::plan::{Pages, PlanRequest, Verdict, Wish, plan};
use hugemr::core::size::{GIB, PageSize};
use hugemr_sim::SimDevice;
use proptest::prelude::*;
use proptest::sample::select;

use crate::common::{BASE, Case, Lie, case, check, exact, register};

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
/// Red with the last of two chunks forgotten (mutant `agree-last-chunk`).
#[test]
fn what_fits_registers_with_the_entries_planned() {
    let seen = Cell::new(Seen::default());
    check(1500, case(), |case| {
        seen.set(seen.get().and(&carried_out(&case)?));
        Ok(())
    });
    let seen = seen.get();
    println!("of 1,500: {seen:?}");
    assert!(
        seen.fits > 300 && seen.exactly > 60,
        "too few cases: {seen:?}"
    );
}

/// The same where luck is likely: drivers with the short form of lengths, pages that merge, MRs around 4 GiB and longer,
/// with and without the fix of the scatter boundary.
///
/// Red with a segment cap of 4 GiB instead of one page less (mutant `agree-segment-cap`).
#[test]
fn luck_breaks_the_length_where_predict_says() {
    let seen = Cell::new(Seen::default());
    let platforms = select(vec![
        ("6.8", Driver::Vendor("1.5.1".parse().ok())),
        ("6.6.93", Driver::InTree),
        ("6.12.31", Driver::InTree),
        ("6.8", Driver::Vendor("1.5.2".parse().ok())),
        ("7.3.4", Driver::Vendor("1.5.6".parse().ok())),
    ]);
    let runs = prop_oneof![Just(Lie::Lucky), (500u64..4000).prop_map(Lie::Random)];
    let all = (case(), platforms, runs, 1u64..12 << 10, any::<bool>());
    check(
        250,
        all,
        |(mut case, (kernel, driver), lie, pages, skewed)| {
            let (page, len) = (PageSize::M2, pages * (2 << 20));
            case.host.platform = Platform {
                kernel: kernel.parse().ok(),
                driver,
                mtt_va: Some(true),
                iommu: Some(false),
                ..Platform::default()
            };
            case.device = Device::unlimited("test", Family::Erdma);
            case.device.max_mr_size = exact(16 * GIB);
            case.base = BASE + if skewed { case.seed % (1 << 20) } else { 0 };
            case.request = PlanRequest::new(Wish::Adopted {
                addr: case.base,
                len,
            });
            case.request.pages = Pages::Only(page);
            case.lie = lie;
            seen.set(seen.get().and(&carried_out(&case)?));
            Ok(())
        },
    );
    let seen = seen.get();
    println!("of 250: {seen:?}");
    assert!(
        seen.fits > 100 && seen.lucky > 20,
        "too few cases: {seen:?}"
    );
}

/// How many cases fitted, how many of them lay scattered, in how many an MR was told a wrong length.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    fits: u32,
    exactly: u32,
    lucky: u32,
}

impl Seen {
    fn and(self, more: &Self) -> Self {
        Self {
            fits: self.fits + more.fits,
            exactly: self.exactly + more.exactly,
            lucky: self.lucky + more.lucky,
        }
    }
}

/// Plans, registers, and compares what the device holds.
fn carried_out(case: &Case) -> Result<Seen, TestCaseError> {
    let mut seen = Seen::default();
    let Ok(plan) = plan(&case.request, &case.device, &case.host) else {
        return Ok(seen);
    };
    // Who ignores the defects and meets one has been told so.
    if plan.verdict == Verdict::Undecided || !plan.hit.is_empty() {
        return Ok(seen);
    }
    seen.fits = 1;
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
        seen.exactly = 1;
        prop_assert_eq!(plan.entries.0, plan.entries.1);
        prop_assert_eq!(state.entries, plan.entries.0 * case.request.pds);
    }
    // By address: each chunk is there once for each PD.
    let twice = usize::try_from(case.request.pds).expect("a few");
    let chunks = plan.chunks().flat_map(|chunk| repeat_n(chunk, twice));
    for (live, chunk) in device.mrs().iter().zip(chunks) {
        let (addr, len) = (live.request.addr, live.request.len.get());
        prop_assert_eq!((addr, len), (case.base + chunk.offset, chunk.len));
        if case.request.pds == 1 && !iommu {
            let layout = layout(&device, addr, len);
            let cap = case.device.page_size_cap;
            let predicted = predict(&layout, addr, len, addr, cap, &rules).expect("a prediction");
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
            seen.lucky = 1;
            prop_assert_eq!(rules.wire_length, WireLength::ShortForm);
            prop_assert!(chunk.len >= 4 * GIB && live.arrival.entries <= 512);
            prop_assert!(live.arrival.page > chunk.page && live.arrival.page.bytes() >= 8 << 20);
        }
    }
    drop(held);
    let state = device.state();
    prop_assert_eq!((state.mrs, state.entries, state.pinned), (0, 0, 0));
    Ok(seen)
}

/// The runs behind a range, as a pagemap would show them.
fn layout(device: &SimDevice, addr: u64, len: u64) -> Layout {
    let from = addr & !4095;
    let to = (addr + len).next_multiple_of(4096);
    Layout::new(from, device.runs(from, to - from).expect("it is backed"))
}
