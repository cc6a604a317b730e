//! What a device can do: limits, families with their errno dialect, and priors, all as data.

use crate::errno::Errno;
use crate::fact::{Kind, Limit, Source};
use crate::size::PageSizes;

/// The fewest entries at which a full table of an eRDMA device was reported: 95 GiB at 4 KiB
/// (kvcache-ai/Mooncake#304, entries inferred from the sizes).
pub const LOWEST_FIELD_REPORT: u64 = 24_903_680;

/// A family of devices: who refuses how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Family {
    /// Alibaba Cloud eRDMA (PCI 1ded:107f).
    Erdma,
    /// AWS Elastic Fabric Adapter.
    Efa,
    /// AMD Pensando ionic.
    Ionic,
    /// NVIDIA/Mellanox ConnectX-3 (mlx4), whose table is set by two module parameters.
    Mlx4,
    /// Huawei Ascend NICs (hns).
    Ascend,
    /// Any other verbs device.
    Other,
}

/// The errno that a family's driver gives for each refusal of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// The table of all MRs is full.
    pub over_budget: Errno,
    /// One MR needs more entries than one MR may have.
    pub over_per_mr: Errno,
    /// No MR index left.
    pub over_mr_count: Errno,
    /// Length 0 or above `max_mr_size`.
    pub too_long: Errno,
}

impl Family {
    /// Every family.
    pub const ALL: [Self; 6] = [
        Self::Erdma,
        Self::Efa,
        Self::Ionic,
        Self::Mlx4,
        Self::Ascend,
        Self::Other,
    ];

    /// The lower-case name: `erdma`, `efa`, `ionic`, `mlx4`, `ascend`, `verbs`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Erdma => "erdma",
            Self::Efa => "efa",
            Self::Ionic => "ionic",
            Self::Mlx4 => "mlx4",
            Self::Ascend => "ascend",
            Self::Other => "verbs",
        }
    }

    /// The family of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|family| family.name().eq_ignore_ascii_case(name))
    }

    /// The family of that name; else why it is none, with the one that counts for a driver of that name.
    ///
    /// # Errors
    /// In words for a user: the families, and, for a driver without one of its own, that it is `verbs`.
    pub fn named(name: &str) -> Result<Self, String> {
        if let Some(family) = Self::parse(name) {
            return Ok(family);
        }
        let known: Vec<&str> = Self::ALL.into_iter().map(Self::name).collect();
        let mut why = format!("{name:?} is no family ({})", known.join(", "));
        why.push_str(&Self::hint(name));
        Err(why)
    }

    /// What is to be added where no family has that name: the one that counts for a driver or a device of that name; else
    /// nothing.
    #[must_use]
    pub fn hint(name: &str) -> String {
        let family = Self::of_name(&name.to_ascii_lowercase());
        family.map_or_else(String::new, |family| {
            format!("; for {name} it is {}", family.name())
        })
    }

    /// The family of a verbs device, by its name (`erdma_0`, `mlx4_1`, ...) and PCI vendor.
    #[must_use]
    pub fn of_device(name: &str, vendor_id: u32) -> Self {
        match vendor_id {
            0x1ded => Self::Erdma,
            0x1d0f => Self::Efa,
            0x1dd8 => Self::Ionic,
            0x19e5 => Self::Ascend,
            _ => Self::of_name(name).unwrap_or(Self::Other),
        }
    }

    /// The family that a device's name alone tells; `None` for a name that no driver gives by itself, as that of a device
    /// that was renamed.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        // Names of devices, and of drivers: Linux drivers/infiniband/hw and sw; hisi_roce and i40iw of older kernels.
        const PREFIXES: [(&str, Family); 21] = [
            ("erdma", Family::Erdma),
            ("mlx4", Family::Mlx4),
            ("ionic", Family::Ionic),
            ("efa", Family::Efa),
            ("rdmap", Family::Efa),
            ("mlx5", Family::Other),
            ("hns", Family::Other),
            ("bnxt_re", Family::Other),
            ("irdma", Family::Other),
            ("rxe", Family::Other),
            ("siw", Family::Other),
            ("i40iw", Family::Other),
            ("cxgb4", Family::Other),
            ("iw_cxgb4", Family::Other),
            ("qedr", Family::Other),
            ("ocrdma", Family::Other),
            ("mana", Family::Other),
            ("mthca", Family::Other),
            ("hfi1", Family::Other),
            ("qib", Family::Other),
            ("vmw_pvrdma", Family::Other),
        ];
        let known = |(prefix, _): &&(&str, Self)| name.starts_with(prefix);
        PREFIXES.iter().find(known).map(|(_, family)| *family)
    }

    /// How the family says no.
    ///
    /// eRDMA: Linux `drivers/infiniband/hw/erdma` 6.1 to 7.3 (a command with a non-zero syndrome is EIO).
    /// EFA: ofiwg/libfabric#9739. ionic: SemiAnalysisAI/InferenceX#3330. mlx4: ENOMEM when the MTT is used up.
    #[must_use]
    pub const fn dialect(self) -> Dialect {
        let (over_budget, over_per_mr, over_mr_count) = match self {
            Self::Erdma => (Errno::EIO, Errno::ENOMEM, Errno::ENOSPC),
            Self::Ionic => (Errno::EINVAL, Errno::ENOMEM, Errno::ENOSPC),
            Self::Efa | Self::Mlx4 | Self::Ascend | Self::Other => {
                (Errno::ENOMEM, Errno::ENOMEM, Errno::ENOMEM)
            }
        };
        Dialect {
            over_budget,
            over_per_mr,
            over_mr_count,
            too_long: Errno::EINVAL,
        }
    }
}

/// What is taken on a device already, by other processes or by MRs that we did not make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Page-table entries: at least, and at most (`None`: not known).
    pub entries: (u64, Option<u64>),
    /// MRs: at least, and at most (`None`: not known).
    pub mrs: (u64, Option<u64>),
}

impl Used {
    /// Certainly nothing.
    pub const NOTHING: Self = Self {
        entries: (0, Some(0)),
        mrs: (0, Some(0)),
    };
    /// Not known.
    pub const UNKNOWN: Self = Self {
        entries: (0, None),
        mrs: (0, None),
    };
}

/// The limits of one device. Entries are entries of its translation table, one for each page of each MR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// As the user names it: `erdma_0`, `sim:ecs.r8a.32xlarge`.
    pub name: String,
    /// Who refuses how.
    pub family: Family,
    /// Largest length of one MR, bytes.
    pub max_mr_size: Limit,
    /// Number of MRs.
    pub max_mr: Limit,
    /// Page sizes that the driver offers to the kernel.
    pub page_size_cap: PageSizes,
    /// Entries of all MRs together.
    pub entries: Limit,
    /// Entries of one MR.
    pub entries_per_mr: Limit,
    /// What others hold.
    pub used: Used,
}

impl Device {
    /// A device without any limit: what is left is arithmetic.
    #[must_use]
    pub fn unlimited(name: &str, family: Family) -> Self {
        let none = || Limit::unlimited(Source::new(Kind::Assumed, "no limit stated"));
        Self {
            name: name.to_owned(),
            family,
            max_mr_size: none(),
            max_mr: none(),
            page_size_cap: PageSizes::ALL,
            entries: none(),
            entries_per_mr: none(),
            used: Used::NOTHING,
        }
    }
}

/// Bytes that mlx4 can register at `page` bytes a page: its MTT has 2^`log_num_mtt` segments of
/// 2^`log_mtts_per_seg` entries. `None` beyond 2^64 - 1.
///
/// Source: module parameters of `mlx4_core`, as explained by `Open MPI`'s and IBM Storage Scale's documentation.
#[must_use]
pub fn mlx4_registrable(log_num_mtt: u32, log_mtts_per_seg: u32, page: u64) -> Option<u64> {
    let shift = log_num_mtt.checked_add(log_mtts_per_seg)?;
    1u64.checked_shl(shift)?.checked_mul(page)
}

/// The smallest `log_num_mtt` with which mlx4 can register `factor` times `ram` bytes at `page` bytes a page.
#[must_use]
pub fn mlx4_log_num_mtt(ram: u64, factor: u64, log_mtts_per_seg: u32, page: u64) -> Option<u32> {
    let need = ram.checked_mul(factor)?;
    (0..64)
        .find(|log| mlx4_registrable(*log, log_mtts_per_seg, page).is_some_and(|can| can >= need))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mlx4_arithmetic() {
        assert_eq!(mlx4_registrable(20, 3, 4096), Some(34_359_738_368));
        assert_eq!(mlx4_registrable(23, 0, 4096), Some(34_359_738_368));
        assert_eq!(mlx4_log_num_mtt(68_656_562_176, 2, 3, 4096), Some(22));
        assert_eq!(mlx4_registrable(60, 60, 4096), None);
    }

    #[test]
    fn families_have_names_that_parse() {
        for family in Family::ALL {
            assert_eq!(Family::parse(family.name()), Some(family));
        }
        assert_eq!(Family::of_device("erdma_0", 0), Family::Erdma);
        assert_eq!(Family::of_device("rxe0", 0), Family::Other);
        assert_eq!(Family::of_name("mlx5_0"), Some(Family::Other));
        assert_eq!(Family::of_name("rocep0s5"), None);
    }

    #[test]
    fn a_driver_without_a_family_is_told_which_one_counts() {
        for name in [
            "mlx5", "MLX5_0", "irdma", "bnxt_re", "rxe", "siw", "hns", "qedr",
        ] {
            let why = Family::named(name).unwrap_err();
            assert!(why.ends_with(&format!("; for {name} it is verbs")), "{why}");
        }
        let why = Family::named("erdma_0").unwrap_err();
        assert!(why.ends_with("it is erdma"), "{why}");
        let why = Family::named("x").unwrap_err();
        assert!(why.ends_with("verbs)"), "{why}");
        assert_eq!(Family::named("Verbs"), Ok(Family::Other));
    }
}
