//! What holds of any evidence.

use crate::*;

/// Numbers near the borders that matter, and any others.
fn number() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![
        Just(None),
        prop::sample::select(vec![
            0,
            1,
            4095,
            4096,
            4 * GIB,
            64 * GIB,
            16 * TIB,
            u64::MAX
        ])
        .prop_map(Some),
        any::<u64>().prop_map(Some),
    ]
}

fn limit() -> impl Strategy<Value = Option<Limit>> {
    (
        number(),
        number(),
        prop::sample::select(vec![Kind::Documented, Kind::Assumed, Kind::Measured]),
    )
        .prop_map(|(low, high, kind)| {
            let source = Source::new(kind, "random");
            match (low, high) {
                (None, None) => None,
                (None, Some(_)) => Some(Limit::unlimited(source)),
                (Some(low), high) => Some(Limit::interval(low, high, source)),
            }
        })
}

fn page() -> impl Strategy<Value = Option<PageSize>> {
    prop::option::of((12u32..64).prop_map(|shift| PageSize::from_shift(shift).expect("12 to 63")))
}

prop_compose! {
    fn evidence()(
        (operation, errno, family) in (
            prop::option::of(prop::sample::select(Operation::ALL.to_vec())),
            prop::option::of(prop_oneof![(0i32..140).prop_map(Errno), any::<i32>().prop_map(Errno)]),
            prop::option::of(prop::sample::select(Family::ALL.to_vec())),
        ),
        (kernel, driver, iommu, mtt_va) in (
            prop::sample::select(vec!["?", "4.19", "5.10.134", "6.1.192", "6.8", "6.12.31", "7.3.4"]),
            prop::sample::select(vec![Driver::Unknown, Driver::InTree, vendor(1, 5, 1), vendor(1, 5, 7), Driver::Vendor(None)]),
            any::<Option<bool>>(), any::<Option<bool>>(),
        ),
        numbers in prop::collection::vec(number(), 18),
        limits in prop::collection::vec(limit(), 5),
        flags in prop::collection::vec(any::<Option<bool>>(), 17),
        (effective_page, backing) in (page(), page()),
        memory in prop::option::of(prop::sample::select(vec![MemoryKind::Host, MemoryKind::Gpu, MemoryKind::File, MemoryKind::NotGpu])),
        access in any::<Option<u32>>(),
        huge in any::<bool>(),
    ) -> Evidence {
        Evidence {
            operation, errno, family, failed: flags[15],
            platform: Platform { kernel: kernel.parse().ok(), driver, iommu, mtt_va, ..Platform::default() },
            length: numbers[0], addr: numbers[1], iova: numbers[2], longest_run: numbers[3], mrs_live: numbers[4],
            entries_need: numbers[5], wire_length: numbers[6], advertised_length: numbers[7], pinned: numbers[8],
            copies: numbers[9], hugepages_free: numbers[10], hugepages_needed: numbers[11], hugetlb_cgroup_limit: numbers[12],
            maps: numbers[13], max_map_count: numbers[14], mem_available: numbers[15], threads: numbers[16],
            entries_used: numbers[17].map(|low| (low, numbers[16])),
            max_mr_size: limits[0].clone(), max_mr: limits[1].clone(), entries_budget: limits[2].clone(),
            entries_per_mr: limits[3].clone(), memlock: limits[4].clone(),
            effective_page,
            backing: if huge { Some(BackingPages::Huge) } else { backing.map(BackingPages::Of) },
            memory, access: access.map(Access::from_bits_retain),
            mapped: flags[0], readable: flags[1], writable: flags[2], movable: flags[3], others_hold_mrs: flags[4],
            ipc_lock: flags[5], container: flags[6], rdma_cgroup_full: flags[7], said_out_of_mr_size: flags[8],
            said_command_timeout: flags[9], fork_init: flags[10], hugepages_safe: flags[11], peer_memory: flags[12],
            provider_loaded: flags[13], device_file: flags[14], device_present: flags[10],
            said_device_refused: flags[16], device: None, stated: String::new(), pid: None,
            said_keys_exhausted: flags[0], said_shrunk: flags[1], dmabuf: flags[2],
            said_no_shortage: flags[3], said_pin_failed: flags[4], said_gpu_nearby: flags[5], said_out_of_memory: flags[7], errno_of_libfabric: flags[6],
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn every_evidence_has_a_sound_diagnosis(evidence in evidence()) {
        let diagnosis = diagnose(&evidence);
        sound(&diagnosis);
        prop_assert_eq!(&diagnosis, &diagnose(&evidence));
        prop_assert!(!diagnosis.to_string().contains('\n'));
        prop_assert_eq!(diagnosis.arithmetic.map(|a| a.length), evidence.length);
    }

    /// Less evidence never makes a cause likely that the errno alone does not, and rules out only by the errno.
    #[test]
    fn without_evidence_nothing_is_excluded_but_by_the_errno(errno in 0i32..140, family in prop::sample::select(Family::ALL.to_vec())) {
        let diagnosis = diagnose(&Evidence::of_errno(Errno(errno), family));
        for ranked in &diagnosis.causes {
            if ranked.standing == RuledOut {
                prop_assert!(ranked.against.iter().all(|text| text.starts_with("on ")), "{ranked:?}");
            }
        }
        let likely = diagnosis.causes.iter().filter(|r| r.standing == Likely).count();
        let open = diagnosis.causes.iter().filter(|r| r.standing == Possible && r.cause.behind().is_empty()).count();
        prop_assert!(likely == 0 || (likely == 1 && open == 0), "{diagnosis:#?}");
    }
}
