//! A failure anywhere leaves no MR on the device, or the error says which.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;

use hugemr::core::backend::{Access, MrHandle, NoMemory, Verb};
use hugemr::core::chunks::Segment;
use hugemr::core::device::{Device, Family};
use hugemr::core::errno::Errno;
use hugemr::core::host::Platform;
use hugemr::core::registrar::{LeftMr, Options, Registration};
use hugemr::core::size::PageSize;
use hugemr_sim::{Faults, Profile, SimDevice};
use proptest::prelude::*;
use proptest::sample::select;

use crate::common::{BASE, check};

fn held(device: &SimDevice) -> BTreeSet<MrHandle> {
    device.mrs().iter().map(|live| live.mr.handle).collect()
}

fn named(left: &[LeftMr]) -> BTreeSet<MrHandle> {
    left.iter().map(|left| left.mr.handle).collect()
}

/// Random numbers of chunks and workers, registrations that fail (one of them with the errno after which the command
/// queue is dead), deregistrations that fail. What the device holds afterwards is what the error names, to the MR; the
/// memory comes back exactly where that is nothing.
///
/// Red with a rollback that ends at the first failure (mutant `agree-rollback-stops`).
#[test]
fn what_is_left_is_what_the_error_names() {
    let reg = prop::option::weighted(
        0.7,
        (
            1u64..30,
            select(vec![Errno::EIO, Errno::ENOMEM, Errno::ETIME]),
        ),
    );
    let dereg = prop::collection::vec((1u64..40, 0u64..6), 0..4);
    let workers = || (1usize..5).prop_map(|n| NonZeroUsize::new(n).expect("not 0"));
    let all = (1u64..30, workers(), workers(), reg, dereg, any::<bool>());
    check(
        1200,
        all,
        |(chunks, workers, closers, reg, dereg, drops)| {
            let mut faults = Faults::default();
            if let Some((nth, errno)) = reg {
                faults = faults.fail(Verb::RegMr, nth, errno);
            }
            for (first, more) in &dereg {
                faults = faults.fail_calls(Verb::DeregMr, *first, first + more, Errno::EBUSY);
            }
            let mut profile = Profile::new(
                Device::unlimited("test", Family::Erdma),
                Platform::default(),
            );
            profile.faults = faults;
            let device = SimDevice::new(profile);
            let page = PageSize::M2;
            let memory = NoMemory {
                base: BASE,
                len: chunks * page.bytes(),
                page,
            };
            let segment = Segment {
                offset: 0,
                len: memory.len,
                page,
                chunk: page.bytes(),
                skew: 0,
                first_index: 0,
            };
            let options = Options::new().workers(workers);
            let fails = reg.is_some_and(|(nth, _)| nth <= chunks);
            match Registration::new(&device, memory, &[segment], Access::REMOTE_RW, &options) {
                Ok(registration) => {
                    prop_assert!(!fails);
                    prop_assert_eq!(held(&device).len() as u64, chunks);
                    if drops {
                        drop(registration);
                        let failed = (1..=chunks).filter(|n| {
                            dereg
                                .iter()
                                .any(|(first, more)| (*first..=first + more).contains(n))
                        });
                        prop_assert_eq!(held(&device).len(), failed.count());
                        return Ok(());
                    }
                    match registration.close_with(closers) {
                        Ok(memory) => {
                            prop_assert_eq!(memory.len, chunks * page.bytes());
                            prop_assert!(held(&device).is_empty());
                        }
                        Err(error) => {
                            prop_assert!(!error.left().is_empty());
                            prop_assert_eq!(held(&device), named(error.left()));
                            prop_assert_eq!(
                                error.closed() + error.left().len(),
                                usize::try_from(chunks).unwrap_or(0)
                            );
                        }
                    }
                }
                Err(error) => {
                    prop_assert!(fails);
                    let failure = error.failure();
                    // With several workers a later one can meet the dead queue first.
                    let dead =
                        reg.is_some_and(|(_, errno)| errno == Errno::ETIME) && workers.get() > 1;
                    prop_assert!(failure.errno() == reg.map(|(_, errno)| errno) || dead);
                    prop_assert_eq!(held(&device), named(failure.rollback().left()));
                    prop_assert_eq!(error.memory().is_some(), failure.rollback().is_clean());
                    prop_assert!(failure.rollback().left().len() as u64 <= failure.stood());
                }
            }
            Ok(())
        },
    );
}
