//! Faults, cancellations and panics anywhere.

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_fault_anywhere_leaves_nothing_or_says_what(
        chunks in 1usize..40,
        n in 1usize..6,
        reg in prop::collection::btree_set(0usize..40, 0..3),
        dereg in prop::collection::btree_set(0usize..40, 0..4),
        close in any::<bool>(),
    ) {
        let faults = Faults { reg: reg.clone(), dereg: dereg.clone(), ..Faults::default() };
        let scene = Scene::new(chunks, faults);
        let fails = reg.first().is_some_and(|call| *call < chunks);
        match scene.register(&Options::new().workers(workers(n))) {
            Ok(registration) => {
                prop_assert!(!fails);
                let mrs = registration.len();
                prop_assert_eq!(mrs, chunks);
                let left = dereg.iter().filter(|call| **call < mrs).count();
                if close {
                    match registration.close() {
                        Ok(memory) => {
                            prop_assert_eq!((left, scene.freed()), (0, 0));
                            drop(memory);
                        }
                        Err(error) => {
                            let mut named: Vec<u64> =
                                error.left().iter().map(|left| left.span.addr).collect();
                            named.reverse();
                            prop_assert_eq!(named, scene.device.live());
                            prop_assert_eq!(error.closed(), mrs - left);
                        }
                    }
                } else {
                    drop(registration);
                }
                prop_assert_eq!(scene.device.live().len(), left);
                prop_assert_eq!(scene.freed(), usize::from(left == 0));
            }
            Err(error) => {
                prop_assert!(fails);
                prop_assert_eq!(error.failure().errno(), Some(Errno::EIO));
                let stood = error.failure().stood();
                let left = dereg.iter().filter(|call| (**call as u64) < stood).count();
                prop_assert_eq!(error.failure().rollback().left().len(), left);
                prop_assert!(stood < chunks as u64);
                if n == 1 {
                    prop_assert_eq!(Some(stood), reg.first().map(|call| *call as u64));
                }
                scene.accounts_for(error)?;
            }
        }
    }

    #[test]
    fn cancelling_anywhere_leaves_nothing(
        chunks in 1usize..40,
        n in 1usize..6,
        at in 0u64..45,
        dereg in prop::collection::btree_set(0usize..40, 0..2),
        in_gate in any::<bool>(),
    ) {
        let scene = Scene::new(chunks, Faults { dereg, ..Faults::default() });
        let token = CancelToken::new();
        let progress = |p: &Progress| if !in_gate && p.mrs >= at { token.cancel() };
        let gate = |chunk: &Chunk| {
            if in_gate && chunk.index >= at {
                token.cancel();
            }
            Ok(())
        };
        let mut options = Options::new().workers(workers(n)).progress(&progress).cancel(&token);
        if in_gate {
            options = options.gate(&gate);
        }
        match scene.register(&options) {
            Ok(registration) => {
                // The token may come too late.
                prop_assert!(at + n as u64 >= chunks as u64);
                prop_assert_eq!(registration.len(), chunks);
                prop_assert!(!in_gate || at >= chunks as u64);
            }
            Err(error) => {
                prop_assert!(matches!(error.failure().cause(), RegisterCause::Cancelled));
                prop_assert_eq!(error.failure().errno(), None);
                scene.accounts_for(error)?;
            }
        }
    }

    #[test]
    fn a_panic_in_a_callback_leaves_nothing(
        chunks in 1usize..20,
        n in 1usize..5,
        at in 0u64..20,
        in_gate in any::<bool>(),
        dereg in prop::collection::btree_set(0usize..20, 0..2),
    ) {
        let scene = Scene::new(chunks, Faults { dereg, ..Faults::default() });
        let progress = |p: &Progress| assert!(in_gate || p.mrs != at + 1, "a planned panic");
        let gate = |chunk: &Chunk| {
            assert!(!in_gate || chunk.index != at, "a planned panic");
            Ok(())
        };
        let options = Options::new().workers(workers(n)).progress(&progress).gate(&gate);
        let made = catch_unwind(AssertUnwindSafe(|| scene.register(&options)));
        prop_assert_eq!(made.is_err(), at < chunks as u64);
        drop(made);
        let clean = scene.device.live().is_empty();
        prop_assert_eq!(scene.freed(), usize::from(clean));
        // What is left is what the device refused to take back.
        let calls = scene.device.calls.lock().unwrap();
        let refused = scene.device.faults.dereg.iter().filter(|call| **call < calls.dereg);
        prop_assert_eq!(calls.live.len(), refused.count());
    }
}
