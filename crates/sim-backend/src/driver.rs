//! The simulated driver: the page table it builds for an MR, and the command that reaches the device.
//!
//! Source: `erdma_reg_user_mr`, `erdma_create_mtt` and `regmr_cmd`, Linux
//! `drivers/infiniband/hw/erdma/erdma_verbs.c` 6.1, 6.12 and 7.3; release notes of the vendor's installer bundle.

use hugemr_core::device::Family;
use hugemr_core::errno::Errno;
use hugemr_core::host::{Driver, Platform, Presumption};
use hugemr_core::version::{BundleVersion, KernelVersion};

/// Entries that travel inside the command.
const INLINE: u64 = 4;
/// Entries of a table page of 4 KiB.
const PER_PAGE: u64 = 512;
/// Entries of the largest block the kernel hands out at once (4 MiB on x86-64).
const CONTIGUOUS: u64 = 524_288;

/// Where the table of an MR lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// In one physically contiguous block: 524,288 entries at most.
    Contiguous,
    /// In single pages under up to three levels: 512^3 entries at most. Needs the device's capability MTT_VA.
    Scattered,
    /// Not modelled: only the limits of the device count.
    Unmodelled,
}

/// How much of the length is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LengthField {
    /// Always the low 32 bits.
    Low32,
    /// The low 32 bits for tables of level 0 and 1, else 64 bits.
    Low32UpToLevel1,
    /// All of it.
    Whole,
}

/// The form of the command that registers an MR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// 32-bit length.
    Version0,
    /// 64-bit length and entry count.
    Version1,
}

/// A simulated driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverModel {
    /// Where tables lie.
    pub table: Table,
    /// How much of the length is sent.
    pub length: LengthField,
}

/// What the driver sends to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Length that reaches the device, bytes.
    pub wire_len: u64,
    /// Levels of the table above the entries: 0 (inside the command) to 3. 0 where tables are not modelled.
    pub level: u8,
    /// Form of the command.
    pub form: Form,
}

impl DriverModel {
    /// The driver of a platform. Families other than erdma have no modelled tables and send whole lengths. Before
    /// Linux 6.1 there was no erdma in the kernel's tree; an older one counts as 6.1.
    #[must_use]
    pub fn of(family: Family, platform: &Platform) -> Self {
        if family != Family::Erdma {
            return Self {
                table: Table::Unmodelled,
                length: LengthField::Whole,
            };
        }
        match platform.driver {
            Driver::InTree => in_tree(platform),
            Driver::Vendor(bundle) => vendor(bundle, platform),
            Driver::Unknown => {
                let (a, b) = (in_tree(platform), vendor(None, platform));
                let worse = platform.unknown == Presumption::Affected;
                let either = |a: bool, b: bool| if worse { a || b } else { a && b };
                Self {
                    table: if either(a.table == Table::Contiguous, b.table == Table::Contiguous) {
                        Table::Contiguous
                    } else {
                        Table::Scattered
                    },
                    length: if worse {
                        a.length.worse(b.length)
                    } else {
                        LengthField::Whole
                    },
                }
            }
        }
    }

    /// What is sent for an MR of `entries` entries.
    ///
    /// # Errors
    /// ENOMEM where the table would be too large.
    pub fn command(&self, len: u64, entries: u64) -> Result<Command, Errno> {
        let most = match self.table {
            Table::Contiguous => CONTIGUOUS,
            Table::Scattered => PER_PAGE.pow(3),
            Table::Unmodelled => u64::MAX,
        };
        if entries > most {
            return Err(Errno::ENOMEM);
        }
        let level = match (self.table, entries) {
            (Table::Unmodelled, _) | (_, 0..=INLINE) => 0,
            (Table::Contiguous, _) => 1,
            (Table::Scattered, n) if n <= PER_PAGE => 1,
            (Table::Scattered, n) if n <= PER_PAGE.pow(2) => 2,
            (Table::Scattered, _) => 3,
        };
        let form = match self.length {
            LengthField::Low32 => Form::Version0,
            LengthField::Low32UpToLevel1 if level <= 1 => Form::Version0,
            LengthField::Whole if level <= 1 && len <= u64::from(u32::MAX) => Form::Version0,
            LengthField::Low32UpToLevel1 | LengthField::Whole => Form::Version1,
        };
        let wire_len = match form {
            Form::Version0 => len & u64::from(u32::MAX),
            Form::Version1 => len,
        };
        Ok(Command {
            wire_len,
            level,
            form,
        })
    }
}

impl LengthField {
    fn worse(self, other: Self) -> Self {
        match (self, other) {
            (Self::Low32, _) | (_, Self::Low32) => Self::Low32,
            (Self::Low32UpToLevel1, _) | (_, Self::Low32UpToLevel1) => Self::Low32UpToLevel1,
            (Self::Whole, Self::Whole) => Self::Whole,
        }
    }
}

/// Whether tables can be scattered: the device's capability, or what its absence from the facts means.
fn mtt_va(platform: &Platform) -> bool {
    let unaffected = platform.unknown == Presumption::Unaffected;
    platform.mtt_va.unwrap_or(unaffected)
}

fn in_tree(platform: &Platform) -> DriverModel {
    let hierarchical = match (platform.kernel, platform.unknown) {
        (Some(kernel), _) => KernelVersion::series(kernel) >= (6, 6),
        (None, Presumption::Affected) => false,
        (None, Presumption::Unaffected) => true,
    };
    match (hierarchical, mtt_va(platform)) {
        (true, true) => DriverModel {
            table: Table::Scattered,
            length: if platform.kernel.is_none() {
                LengthField::Whole
            } else {
                LengthField::Low32UpToLevel1
            },
        },
        _ => DriverModel {
            table: Table::Contiguous,
            length: LengthField::Low32,
        },
    }
}

fn vendor(bundle: Option<BundleVersion>, platform: &Platform) -> DriverModel {
    let whole = match (bundle, platform.unknown) {
        (Some(bundle), _) => bundle >= BundleVersion(1, 5, 7),
        (None, Presumption::Affected) => false,
        (None, Presumption::Unaffected) => true,
    };
    DriverModel {
        table: if mtt_va(platform) {
            Table::Scattered
        } else {
            Table::Contiguous
        },
        length: if whole {
            LengthField::Whole
        } else {
            LengthField::Low32UpToLevel1
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Form::{Version0, Version1};

    const GIB: u64 = 1 << 30;

    fn model(kernel: &str, driver: Driver, mtt_va: Option<bool>) -> DriverModel {
        let platform = Platform {
            kernel: kernel.parse().ok(),
            driver,
            mtt_va,
            ..Platform::default()
        };
        DriverModel::of(Family::Erdma, &platform)
    }

    fn bundle(patch: u16) -> Driver {
        Driver::Vendor(Some(BundleVersion(1, 5, patch)))
    }

    /// (length that is sent, level, form), or the errno.
    fn sent(model: DriverModel, len: u64, entries: u64) -> Result<(u64, u8, Form), Errno> {
        let command = model.command(len, entries)?;
        Ok((command.wire_len, command.level, command.form))
    }

    #[test]
    fn levels_of_scattered_tables() {
        let model = model("6.12.117", Driver::InTree, Some(true));
        for (entries, level, form) in [
            (1, 0, Version0),
            (4, 0, Version0),
            (5, 1, Version0),
            (512, 1, Version0),
            (513, 2, Version1),
            (262_144, 2, Version1),
            (262_145, 3, Version1),
            (134_217_728, 3, Version1),
        ] {
            assert_eq!(
                sent(model, GIB, entries),
                Ok((GIB, level, form)),
                "{entries}"
            );
        }
        assert_eq!(sent(model, GIB, 134_217_729), Err(Errno::ENOMEM));
    }

    #[test]
    fn contiguous_tables_end_at_4_mib() {
        for model in [
            model("6.1.192", Driver::InTree, Some(true)),
            model("6.5", Driver::InTree, Some(true)),
            model("6.12.117", Driver::InTree, Some(false)),
            model("6.8", bundle(2), Some(false)),
            model("6.8", bundle(7), None),
        ] {
            assert_eq!(sent(model, 2 * GIB, 524_288), Ok((2 * GIB, 1, Version0)));
            assert_eq!(sent(model, 2 * GIB + 4096, 524_289), Err(Errno::ENOMEM));
        }
    }

    /// Lengths asked for and sent, as seen with Linux 6.1.192, 6.12.117 and 7.3.4.
    #[test]
    fn the_length_that_is_sent() {
        let old = model("6.1.192", Driver::InTree, Some(true));
        assert_eq!(sent(old, 5 * GIB, 2560), Ok((GIB, 1, Version0)));
        assert_eq!(sent(old, 64 * GIB, 32_768), Ok((0, 1, Version0)));
        for kernel in ["6.6", "6.12.117", "7.3.4"] {
            let new = model(kernel, Driver::InTree, Some(true));
            assert_eq!(sent(new, 4 * GIB, 4), Ok((0, 0, Version0)));
            assert_eq!(sent(new, 5 * GIB, 5), Ok((GIB, 1, Version0)));
            assert_eq!(sent(new, 6 * GIB, 6), Ok((2 * GIB, 1, Version0)));
            assert_eq!(sent(new, 64 * GIB, 32_768), Ok((64 * GIB, 2, Version1)));
            let plain = model(kernel, Driver::InTree, Some(false));
            assert_eq!(sent(plain, 64 * GIB, 32_768), Ok((0, 1, Version0)));
        }
    }

    #[test]
    fn the_vendor_sends_whole_lengths_since_1_5_7() {
        let old = model("5.15", bundle(6), Some(true));
        assert_eq!(sent(old, 64 * GIB, 64), Ok((0, 1, Version0)));
        assert_eq!(sent(old, 64 * GIB, 513), Ok((64 * GIB, 2, Version1)));
        let new = model("5.15", bundle(7), Some(true));
        assert_eq!(sent(new, 64 * GIB, 64), Ok((64 * GIB, 1, Version1)));
        assert_eq!(sent(new, GIB, 1), Ok((GIB, 0, Version0)));
    }

    #[test]
    fn an_unknown_driver_has_the_defects_of_both() {
        let worst = model("unknown", Driver::Unknown, Some(true));
        assert_eq!(
            (worst.table, worst.length),
            (Table::Contiguous, LengthField::Low32)
        );
        let newer = model("6.8", Driver::Unknown, Some(true));
        let want = (Table::Scattered, LengthField::Low32UpToLevel1);
        assert_eq!((newer.table, newer.length), want);
        let unaffected = Platform {
            unknown: Presumption::Unaffected,
            ..Platform::default()
        };
        let best = DriverModel::of(Family::Erdma, &unaffected);
        assert_eq!(
            (best.table, best.length),
            (Table::Scattered, LengthField::Whole)
        );
    }

    #[test]
    fn other_families_have_no_modelled_table() {
        let efa = DriverModel::of(Family::Efa, &Platform::default());
        assert_eq!(sent(efa, 64 * GIB, 64), Ok((64 * GIB, 0, Version1)));
        assert!(efa.command(1, u64::MAX).is_ok());
    }
}
