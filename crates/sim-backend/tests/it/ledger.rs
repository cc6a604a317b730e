//! The device's books: budget, indices, locked memory, what others hold, the log.

use hugemr_core::backend::{MrHandle, RegBackend};
use hugemr_core::device::Used;
use hugemr_core::errno::Errno;
use hugemr_core::fact::{Kind, Limit, Source};
use hugemr_core::size::{GIB, MIB, PageSize};
use hugemr_sim::{DefaultLayout, Layer, Outcome, Overrides, SimDevice, SimError, SimMemory, open};
use proptest::prelude::*;

use crate::common::{BASE, reg, reg_request, request, sim};

fn exact(value: u64) -> Option<Limit> {
    Some(Limit::exact(value, Source::new(Kind::Given, "test")))
}

fn with(change: impl FnOnce(&mut Overrides)) -> SimDevice {
    let mut overrides = Overrides {
        memory: Some(DefaultLayout::scattered(PageSize::K4)),
        ..Overrides::default()
    };
    change(&mut overrides);
    sim("erdma", &overrides)
}

#[test]
fn indices_go_round_and_index_0_comes_last() {
    let device = with(|o| o.max_mr = exact(4));
    let keys: Vec<u32> = (0..4)
        .map(|i| {
            reg(&device, BASE + i * 4096, 4096)
                .expect("an index")
                .rkey
                .0
        })
        .collect();
    assert_eq!(keys, [0x100, 0x200, 0x300, 0]);
    assert_eq!(reg(&device, BASE, 4096), Err(Errno::ENOSPC));
    device.dereg_mr(MrHandle(2)).expect("a live MR");
    let again = reg(&device, BASE, 4096).expect("an index");
    assert_eq!((again.lkey.0, again.handle), (0x200, MrHandle(5)));
    assert_eq!(
        device.dereg_mr(MrHandle(2)).map_err(|e| e.errno),
        Err(Errno::EINVAL)
    );
    assert_eq!(device.state().mrs, 4);
}

#[test]
fn what_others_hold_is_not_ours() {
    let used = Used {
        entries: (100, Some(100)),
        mrs: (2, Some(2)),
    };
    let device = with(|o| {
        o.entries = exact(110);
        o.max_mr = exact(4);
        o.used = Some(used);
    });
    assert_eq!(device.device().used, used);
    let mr = reg(&device, BASE, 10 * 4096).expect("ten are left");
    assert_eq!(mr.rkey.0, 0x300);
    assert_eq!(reg(&device, BASE, 4096), Err(Errno::EIO));
    let state = device.state();
    assert_eq!((state.entries, state.others_entries), (10, 100));
    assert_eq!((state.mrs, state.others_mrs), (1, 2));
}

#[test]
fn refusals_are_noted_with_the_layer_that_refused() {
    let device = with(|o| {
        o.max_mr_size = exact(32 * MIB);
        o.entries = exact(3000);
        o.entries_per_mr = exact(4096);
    });
    assert_eq!(reg(&device, BASE, 33 * MIB), Err(Errno::EINVAL));
    assert_eq!(reg(&device, BASE, 32 * MIB), Err(Errno::ENOMEM));
    assert_eq!(reg(&device, BASE, 16 * MIB), Err(Errno::EIO));
    let mut shifted = request(BASE, 4096);
    shifted.iova += 8;
    assert_eq!(reg_request(&device, &shifted), Err(Errno::EINVAL));
    assert!(reg(&device, BASE, 11 * MIB).is_ok());
    let layers: Vec<(u64, Option<Layer>, bool)> = (device.log().iter())
        .map(|event| {
            let by = match event.outcome {
                Outcome::Refused { by, .. } => Some(by),
                Outcome::Registered(_) => None,
            };
            assert_eq!(event.thread, std::thread::current().id());
            (event.number, by, event.arrival.is_some())
        })
        .collect();
    assert_eq!(
        layers,
        [
            (0, Some(Layer::Driver), false),
            (1, Some(Layer::Device), true),
            (2, Some(Layer::Device), true),
            (3, Some(Layer::Kernel), false),
            (4, None, true),
        ]
    );
    let state = device.state();
    assert_eq!((state.registered, state.refused), (1, 4));
    assert_eq!(state.pinned, 11 * MIB);
}

#[test]
fn the_log_keeps_the_latest() {
    let mut profile = hugemr_sim::Profile::named("verbs").expect("a profile");
    profile.log_capacity = 2;
    let device = SimDevice::new(profile);
    for i in 0..5 {
        reg(&device, BASE + i * 4096, 4096).expect("no limit");
    }
    let numbers: Vec<u64> = device.log().iter().map(|event| event.number).collect();
    assert_eq!(numbers, [3, 4]);
}

#[test]
fn locked_memory_is_charged_and_given_back() {
    let none = with(|o| o.memlock = Some(0));
    assert_eq!(reg(&none, BASE, 4096), Err(Errno::EPERM));
    let some = with(|o| o.memlock = Some(8192));
    // Two bytes in two pages.
    let mr = reg(&some, BASE + 4095, 2).expect("two pages");
    assert_eq!(reg(&some, BASE, 1), Err(Errno::ENOMEM));
    some.dereg_mr(mr.handle).expect("a live MR");
    assert!(reg(&some, BASE, 8192).is_ok());
    let state = some.state();
    assert_eq!((state.pinned, state.refused), (8192, 1));
}

#[test]
fn strict_memory_must_have_been_backed() {
    let device = with(|o| o.strict_memory = Some(true));
    let huge = || SimMemory::scattered(PageSize::M2);
    assert_eq!(reg(&device, BASE, 4096), Err(Errno::EFAULT));
    device.back(BASE, 4 * MIB, huge()).expect("a range");
    assert!(reg(&device, BASE, 4 * MIB).is_ok());
    assert_eq!(reg(&device, BASE, 4 * MIB + 1), Err(Errno::EFAULT));
    device.unback(BASE, 2 * MIB).expect("a range");
    assert_eq!(reg(&device, BASE, 4 * MIB), Err(Errno::EFAULT));
    assert!(reg(&device, BASE + 2 * MIB, 2 * MIB).is_ok());
    assert_eq!(device.state().pinned, 6 * MIB);
}

#[test]
fn pages_of_different_sizes_side_by_side() {
    let device = sim("erdma", &Overrides::default());
    let (big, small) = (
        SimMemory::scattered(PageSize::G1),
        SimMemory::scattered(PageSize::M2),
    );
    device.back(BASE, 2 * GIB, big).expect("a range");
    device.back(BASE + 2 * GIB, GIB, small).expect("a range");
    let entries = |addr, len| {
        let mr = reg(&device, addr, len).expect("no limit");
        device.mr(mr.handle).expect("a live MR").arrival.entries
    };
    assert_eq!(entries(BASE, 2 * GIB), 2);
    assert_eq!(entries(BASE + 2 * GIB, GIB), 512);
    assert_eq!(entries(BASE, 3 * GIB), 1536);
    let addresses: Vec<u64> = device.mrs().iter().map(|live| live.request.addr).collect();
    assert_eq!(addresses, [BASE, BASE, BASE + 2 * GIB]);
}

#[test]
fn an_iommu_hides_small_pages() {
    let device = with(|o| o.iommu = Some(true));
    let mr = reg(&device, BASE, GIB).expect("no limit");
    let arrival = device.mr(mr.handle).expect("a live MR").arrival;
    assert_eq!((arrival.page, arrival.entries), (PageSize::G1, 1));
    device.set_default_layout(DefaultLayout::Contiguous { page: PageSize::M2 });
    assert_eq!(reg(&device, BASE, 8 * GIB), Err(Errno::EOVERFLOW));
    assert!(reg(&device, BASE, 2 * GIB).is_ok());
}

#[test]
fn names_are_known_or_listed() {
    for profile in hugemr_sim::profiles() {
        let device = sim(profile.name, &Overrides::default());
        assert_eq!(device.device().name, format!("sim:{}", profile.name));
        assert!(!profile.about.is_empty() && !profile.about.contains('\n'));
        assert_eq!(device.platform().iommu, Some(false));
        let mr = reg(&device, BASE, 4 * MIB).expect("not refused");
        device.dereg_mr(mr.handle).expect("a live MR");
    }
    let error = open("sim:erdna", &Overrides::default()).expect_err("no such name");
    assert!(
        error
            .to_string()
            .contains("ecs.r8a.32xlarge, mooncake-304, erdma")
    );
    let error = open("sim:./no-such.toml", &Overrides::default()).expect_err("no such file");
    assert!(matches!(error, SimError::Unreadable { .. }));
    let example = concat!("sim:", env!("CARGO_MANIFEST_DIR"), "/example.toml");
    assert_eq!(
        sim(example, &Overrides::default()).device().name,
        "my-erdma"
    );
}

proptest! {
    /// The books balance after any sequence of calls, and hold exactly what the live MRs hold.
    #[test]
    fn used_is_the_sum_of_what_lives(
        budget in 1u64..3000, max_mr in 1u64..20,
        steps in prop::collection::vec((any::<bool>(), 0u64..64, 1u64..800), 1..80),
    ) {
        let device = with(|o| {
            o.entries = exact(budget);
            o.max_mr = exact(max_mr);
        });
        let mut live: Vec<(MrHandle, u64)> = Vec::new();
        let mut peak = 0;
        for (register, slot, pages) in steps {
            let sum: u64 = live.iter().map(|mr| mr.1).sum();
            if register || live.is_empty() {
                let want = if live.len() as u64 >= max_mr {
                    Err(Errno::ENOSPC)
                } else if sum + pages > budget {
                    Err(Errno::EIO)
                } else {
                    Ok(())
                };
                let mr = reg(&device, BASE + slot * 4096, pages * 4096);
                prop_assert_eq!(mr.map(|_| ()), want);
                live.extend(mr.map(|mr| (mr.handle, pages)));
            } else {
                let at = usize::try_from(slot).expect("small") % live.len();
                let (handle, _) = live.swap_remove(at);
                prop_assert!(device.dereg_mr(handle).is_ok());
            }
            let state = device.state();
            let sum = live.iter().map(|mr| mr.1).sum();
            peak = peak.max(sum);
            prop_assert_eq!((state.entries, state.peak_entries), (sum, peak));
            prop_assert_eq!((state.mrs, state.pinned), (live.len() as u64, sum * 4096));
            let mut keys: Vec<u32> = device.mrs().iter().map(|mr| mr.mr.rkey.0).collect();
            keys.sort_unstable();
            keys.dedup();
            prop_assert_eq!(keys.len(), live.len());
        }
    }
}
