//! What a caller changes about a profile: the command line's flags, a test's conditions.

use hugemr_core::device::Used;
use hugemr_core::fact::{Kind, Limit, Source};
use hugemr_core::host::{Driver, Presumption};
use hugemr_core::version::KernelVersion;

use crate::faults::Faults;
use crate::memory::DefaultLayout;
use crate::profile::Profile;

/// Changes to a profile. `None` leaves the profile's value; a limit that is changed is also what the device does.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// Kernel; `Some(None)`: unknown.
    pub kernel: Option<Option<KernelVersion>>,
    /// Driver.
    pub driver: Option<Driver>,
    /// Whether the kernel has the page-size fix of 2025, whatever its version.
    pub sg_fix: Option<bool>,
    /// Whether the device can have scattered tables (MTT_VA).
    pub mtt_va: Option<bool>,
    /// Whether DMA is translated by an IOMMU.
    pub iommu: Option<bool>,
    /// What unknown versions mean.
    pub unknown: Option<Presumption>,
    /// Entries of all MRs together.
    pub entries: Option<Limit>,
    /// Entries of one MR.
    pub entries_per_mr: Option<Limit>,
    /// Number of MRs.
    pub max_mr: Option<Limit>,
    /// Longest MR, bytes.
    pub max_mr_size: Option<Limit>,
    /// The budget that the device really has, where it differs from what it is said to have.
    pub actual_entries: Option<u64>,
    /// The longest MR that the driver really accepts, bytes, where it differs from what is advertised.
    pub actual_max_mr_size: Option<u64>,
    /// What others hold.
    pub used: Option<Used>,
    /// (`log_num_mtt`, `log_mtts_per_seg`) of mlx4: sets the budget to 2^(sum).
    pub mlx4: Option<(u32, u32)>,
    /// Longest scatter-gather entry, bytes. Tests scale it down; 0xfffff000 otherwise.
    pub sg_cap: Option<u64>,
    /// Layout of ranges that have none of their own.
    pub memory: Option<DefaultLayout>,
    /// Whether ranges without a layout of their own are not mapped (EFAULT).
    pub strict_memory: Option<bool>,
    /// Bytes that may be locked; without it there is no limit.
    pub memlock: Option<u64>,
    /// Failures and delays.
    pub faults: Option<Faults>,
}

impl Overrides {
    /// Puts the changes into a profile.
    pub fn apply(&self, profile: &mut Profile) {
        fn set<T: Clone>(to: &mut T, from: Option<&T>) {
            if let Some(value) = from {
                to.clone_from(value);
            }
        }
        let platform = &mut profile.platform;
        if let Some(kernel) = self.kernel {
            platform.kernel = kernel;
            // What was known about the former kernel says nothing about this one.
            platform.sg_fix = None;
        }
        set(&mut platform.driver, self.driver.as_ref());
        platform.sg_fix = self.sg_fix.or(platform.sg_fix);
        platform.mtt_va = self.mtt_va.or(platform.mtt_va);
        platform.iommu = self.iommu.or(platform.iommu);
        set(&mut platform.unknown, self.unknown.as_ref());
        if let Some((segments, per_segment)) = self.mlx4 {
            profile.device.entries = mlx4_entries(segments, per_segment, Kind::Given);
            profile.actual_entries = None;
        }
        if let Some(entries) = &self.entries {
            profile.device.entries = entries.clone();
            profile.actual_entries = None;
        }
        if let Some(size) = &self.max_mr_size {
            profile.device.max_mr_size = size.clone();
            profile.actual_max_mr_size = None;
        }
        let device = &mut profile.device;
        set(&mut device.entries_per_mr, self.entries_per_mr.as_ref());
        set(&mut device.max_mr, self.max_mr.as_ref());
        set(&mut device.used, self.used.as_ref());
        profile.actual_entries = self.actual_entries.or(profile.actual_entries);
        profile.actual_max_mr_size = self.actual_max_mr_size.or(profile.actual_max_mr_size);
        set(&mut profile.sg_cap, self.sg_cap.as_ref());
        set(&mut profile.memory, self.memory.as_ref());
        set(&mut profile.strict_memory, self.strict_memory.as_ref());
        profile.memlock = self.memlock.or(profile.memlock);
        set(&mut profile.faults, self.faults.as_ref());
    }
}

/// The budget of mlx4: 2^`log_num_mtt` segments of 2^`log_mtts_per_seg` entries (module parameters of `mlx4_core`).
pub(crate) fn mlx4_entries(segments: u32, per_segment: u32, kind: Kind) -> Limit {
    let source = Source::new(
        kind,
        format!("mlx4_core log_num_mtt={segments} log_mtts_per_seg={per_segment}"),
    );
    match segments
        .checked_add(per_segment)
        .and_then(|shift| 1u64.checked_shl(shift))
    {
        Some(entries) => Limit::exact(entries, source),
        None => Limit::unlimited(source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(name: &str) -> Profile {
        Profile::named(name).expect("a profile")
    }

    #[test]
    fn no_override_changes_nothing() {
        for name in crate::profiles() {
            let mut changed = profile(name.name);
            Overrides::default().apply(&mut changed);
            assert_eq!(changed, profile(name.name));
        }
    }

    #[test]
    fn a_limit_that_is_changed_is_also_what_the_device_does() {
        let exact = |value| Some(Limit::exact(value, Source::new(Kind::Given, "test")));
        let mut ionic = profile("ionic");
        ionic.actual_entries = Some(7);
        assert_eq!(ionic.actual_max_mr_size, Some(u64::MAX));
        let overrides = Overrides {
            max_mr_size: exact(4096),
            entries: exact(9),
            ..Overrides::default()
        };
        overrides.apply(&mut ionic);
        assert_eq!(
            (ionic.actual_max_mr_size, ionic.actual_entries),
            (None, None)
        );
        let overrides = Overrides {
            entries: exact(9),
            actual_entries: Some(8),
            ..Overrides::default()
        };
        overrides.apply(&mut ionic);
        assert_eq!(ionic.actual_entries, Some(8));
    }

    #[test]
    fn another_kernel_does_not_inherit_what_was_known() {
        let mut erdma = profile("erdma");
        erdma.platform.sg_fix = Some(true);
        let overrides = Overrides {
            kernel: Some(None),
            ..Overrides::default()
        };
        overrides.apply(&mut erdma);
        assert_eq!((erdma.platform.kernel, erdma.platform.sg_fix), (None, None));
    }

    #[test]
    fn mlx4_beyond_64_bits_is_no_limit() {
        assert_eq!(mlx4_entries(20, 3, Kind::Given).known(), Some(8_388_608));
        assert!(mlx4_entries(60, 4, Kind::Given).is_unlimited());
        assert!(mlx4_entries(u32::MAX, 1, Kind::Given).is_unlimited());
    }
}
