//! The known defects of core, and the simulator's own table from versions to behaviour, over all versions.

use hugemr::core::device::Family;
use hugemr::core::host::{Driver, Platform, Presumption};
use hugemr::core::layout::{Rules, WireLength};
use hugemr::core::quirk::{CONTIGUOUS_ENTRIES, ONE_LEVEL_ENTRIES};
use hugemr_sim::driver::{DriverModel, LengthField, Table};
use hugemr_sim::kernel::{Kernel, PageRule};

use crate::common::{drivers, kernels};

/// (large pages at all, cuts count, no page beyond the length, most entries of one table, how much of a length).
type Behaviour = (bool, bool, bool, u64, WireLength);

fn of_core(platform: &Platform, family: Family) -> Behaviour {
    let rules = Rules::of(platform, family);
    let length = match (rules.wire_length, rules.table_entries) {
        // A table in one block has one level.
        (WireLength::ShortForm, CONTIGUOUS_ENTRIES) => WireLength::Low32,
        (length, _) => length,
    };
    (
        rules.large_pages,
        rules.old_rule,
        rules.block_by_length,
        rules.table_entries,
        length,
    )
}

fn of_simulator(platform: &Platform, family: Family) -> Behaviour {
    let kernel = Kernel::of(platform, family == Family::Erdma, 0xffff_f000);
    let driver = DriverModel::of(family, platform);
    let length = match (driver.length, driver.table) {
        (LengthField::Whole, _) => WireLength::Whole,
        (LengthField::Low32, _) | (LengthField::Low32UpToLevel1, Table::Contiguous) => {
            WireLength::Low32
        }
        (LengthField::Low32UpToLevel1, _) => WireLength::ShortForm,
    };
    let entries = match driver.table {
        Table::Contiguous => CONTIGUOUS_ENTRIES,
        Table::Scattered => ONE_LEVEL_ENTRIES.pow(3),
        Table::Unmodelled => u64::MAX,
    };
    let old = matches!(
        kernel.rule,
        PageRule::EveryEntry | PageRule::EveryEntryByLength
    );
    let by_length = kernel.rule == PageRule::EveryEntryByLength;
    (
        kernel.rule != PageRule::BasePages,
        old,
        by_length,
        entries,
        length,
    )
}

/// Every combination, with MTT_VA known. Where it is not, core takes in-tree drivers since 6.6 and the vendor's for
/// those of a device that has it (no host tells, and nobody has seen one without); the simulator, of a platform that
/// counts as affected, does not. Every profile states it.
///
/// Red with any version of a table changed (mutant `agree-fixed-kernel`).
#[test]
fn both_tables_agree_over_all_versions() {
    let mut wrong = Vec::new();
    let mut all = 0;
    for kernel in kernels() {
        for driver in drivers() {
            for mtt_va in [true, false] {
                for sg_fix in [None, Some(true), Some(false)] {
                    for unknown in [Presumption::Affected, Presumption::Unaffected] {
                        for family in Family::ALL {
                            let platform = Platform {
                                kernel,
                                driver,
                                sg_fix,
                                mtt_va: Some(mtt_va),
                                iommu: Some(false),
                                large_pages: None,
                                unknown,
                            };
                            all += 1;
                            let (core, sim) =
                                (of_core(&platform, family), of_simulator(&platform, family));
                            if core != sim {
                                wrong.push(format!(
                                    "{family:?} {platform:?}: {core:?}, simulated {sim:?}"
                                ));
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {all} differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// The series between 5.2 and 5.9 are the only ones with the third column. Red with another end of it (mutant
/// `agree-series-of-5-8`).
#[test]
fn the_series_are_told_apart() {
    let columns = |kernel: &str| {
        let platform = Platform {
            kernel: kernel.parse().ok(),
            driver: Driver::InTree,
            mtt_va: Some(true),
            ..Platform::default()
        };
        let (large, old, by_length, ..) = of_core(&platform, Family::Erdma);
        (large, old, by_length)
    };
    for (kernel, want) in [
        ("5.1.21", (false, false, false)),
        ("5.2", (true, true, true)),
        ("5.8.18", (true, true, true)),
        ("5.9", (true, true, false)),
        ("6.15", (true, false, false)),
    ] {
        assert_eq!(columns(kernel), want, "{kernel}");
    }
}
