//! The probe of core on simulated devices: the simulator's own rules judge what it finds.

use std::sync::Arc;

use hugemr_core::backend::NoMemory;
use hugemr_core::device::Used;
use hugemr_core::fact::{Kind, Limit, Source};
use hugemr_core::probe::{End, Found, Options, probe};
use hugemr_core::size::PageSize;
use hugemr_sim::{Overrides, SimDevice, SimMemory, open};
use proptest::prelude::*;

const SMALL: u64 = 0x7e00_0000_0000;

fn device(family: &str, budget: u64, used: u64) -> Arc<SimDevice> {
    let source = || Source::new(Kind::Given, "test");
    let overrides = Overrides {
        entries: Some(Limit::exact(budget, source())),
        used: Some(Used {
            entries: (used, Some(used)),
            mrs: (0, Some(0)),
        }),
        ..Overrides::default()
    };
    Arc::new(open(family, &overrides).expect("a profile"))
}

/// Probes with MRs of `pages` pages, being told the limit of one MR as the profile states it.
fn ask(device: &Arc<SimDevice>, pages: u64) -> (Found, u64) {
    let page = PageSize::K4;
    let len = pages * page.bytes();
    let back = device.back(SMALL, len, SimMemory::scattered(page));
    back.expect("a range of pages");
    let small = Arc::new(NoMemory {
        base: SMALL,
        len,
        page,
    });
    let used = device.profile().device.used;
    let per_mr = device.profile().device.entries_per_mr.known();
    let options = Options {
        per_mr,
        others: &|| used,
        ..Options::default()
    };
    let found = probe(device, &small, None::<&Arc<NoMemory>>, &options);
    (found, per_mr.unwrap_or(u64::MAX).min(pages))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// To the entry, in `2 log2(budget) + budget / largest MR` registrations, with entries of others in the table.
    #[test]
    fn four_families_are_probed_to_the_entry(
        family in prop::sample::select(vec!["erdma", "efa", "ionic", "mlx4", "ascend"]),
        budget in 128u64..1 << 26,
        used_percent in 0u64..90,
        shift in 12u32..19,
    ) {
        let pages = 1u64 << shift;
        prop_assume!(budget / pages < 1000);
        let device = device(family, budget, budget * used_percent / 100);
        let (found, largest) = ask(&device, pages);
        prop_assert_eq!((found.end, found.exact()), (End::Full, Some(budget)));
        let bound = 2.0 * (budget as f64).log2() + budget as f64 / largest as f64;
        prop_assert!(found.tried as f64 <= bound, "{} > {}", found.tried, bound);
        prop_assert_eq!(found.tried, device.state().registered + device.state().refused);
        let state = device.state();
        prop_assert_eq!((state.entries, state.mrs), (0, 0), "the device is as it was");
        prop_assert!(state.peak_entries + state.others_entries <= budget);
    }
}
