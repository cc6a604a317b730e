//! The simulated kernel: which version behaves how, and what it checks before a driver is asked.

use hugemr_core::backend::MrRequest;
use hugemr_core::errno::Errno;
use hugemr_core::host::{Driver, Platform, Presumption};
use hugemr_core::size::{PageSize, PageSizes};
use hugemr_core::version::{BundleVersion, KernelVersion};

use crate::device::Layer;
use crate::iommu;
use crate::memory::BASE_PAGE;
use crate::space::Runs;
use crate::umem::{SgEntries, best_page};

pub use crate::umem::PageRule;

/// How the simulated kernel behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// How the page size of an MR is chosen.
    pub rule: PageRule,
    /// What an access flag gives that the kernel knows but the device cannot do.
    pub unsupported: Errno,
    /// DMA translation, and whether overflowing padding is noticed; `None`: DMA addresses are physical addresses.
    pub iommu: Option<bool>,
    /// Longest scatter-gather entry, bytes.
    pub sg_cap: u64,
}

/// A range as the kernel pins it: whole base pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pinned {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Kernel {
    /// The behaviour of a platform. `erdma`: whether the vendor's driver can be the eRDMA one, whose bundles from
    /// 1.5.2 on work around the defect of the kernel.
    #[must_use]
    pub fn of(platform: &Platform, erdma: bool, sg_cap: u64) -> Self {
        let series = platform.kernel.map(KernelVersion::series);
        let newer_than_6_1 = match platform.unknown {
            _ if series.is_some() => series > Some((6, 1)),
            Presumption::Affected => false,
            Presumption::Unaffected => true,
        };
        Self {
            rule: page_rule(platform, erdma),
            // `ib_check_mr_access`: EINVAL in 6.1, EOPNOTSUPP in 6.12 and 7.3.
            unsupported: if newer_than_6_1 {
                Errno::EOPNOTSUPP
            } else {
                Errno::EINVAL
            },
            // Seen in the source of 6.12.117 and 7.3.4, not in that of 6.1.192.
            iommu: (platform.iommu == Some(true)).then_some(newer_than_6_1),
            sg_cap,
        }
    }

    /// What uverbs, the driver and the pinning code check about a request, in this order.
    pub(crate) fn check(
        &self,
        request: &MrRequest,
        max_mr_size: u64,
    ) -> Result<Pinned, (Layer, Errno, &'static str)> {
        let refuse = |why| (Layer::Kernel, Errno::EINVAL, why);
        if (request.addr ^ request.iova) & (BASE_PAGE - 1) != 0 {
            return Err(refuse("address and iova differ modulo 4 KiB"));
        }
        (self.check_access(request.access.bits()))
            .map_err(|(errno, why)| (Layer::Kernel, errno, why))?;
        let len = request.len.get();
        if len > max_mr_size {
            return Err((Layer::Driver, Errno::EINVAL, "longer than max_mr_size"));
        }
        let to = (request.addr.checked_add(len))
            .and_then(|end| end.checked_next_multiple_of(BASE_PAGE))
            .ok_or(refuse("the range ends beyond the address space"))?;
        let from = request.addr & !(BASE_PAGE - 1);
        if (to - from) / BASE_PAGE > u64::from(u32::MAX) {
            return Err(refuse("more than 2^32 - 1 pages of 4 KiB"));
        }
        Ok(Pinned { from, to })
    }

    /// Source: `ib_check_mr_access`, Linux `include/rdma/ib_verbs.h`; bits of `enum ib_uverbs_access_flags`.
    fn check_access(&self, bits: u32) -> Result<(), (Errno, &'static str)> {
        const LOCAL_WRITE: u32 = 1;
        const REMOTE_WRITE_OR_ATOMIC: u32 = 1 << 1 | 1 << 3;
        const ON_DEMAND: u32 = 1 << 6;
        const FLUSH: u32 = 1 << 8 | 1 << 9;
        // Bits 0 to 9 have a meaning, 20 to 29 are optional: libibverbs takes away what the kernel does not know.
        const KNOWN: u32 = 0x3ff | 0x3ff0_0000;
        if bits & REMOTE_WRITE_OR_ATOMIC != 0 && bits & LOCAL_WRITE == 0 {
            return Err((Errno::EINVAL, "remote write or atomic without local write"));
        }
        if bits & !KNOWN != 0 {
            return Err((Errno::EINVAL, "unknown access flag"));
        }
        if bits & (ON_DEMAND | FLUSH) != 0 {
            return Err((self.unsupported, "access flag that the device cannot do"));
        }
        Ok(())
    }

    /// The page size of an MR.
    pub(crate) fn page(
        &self,
        sizes: PageSizes,
        iova: u64,
        len: u64,
        runs: Runs,
    ) -> Result<PageSize, (Errno, &'static str)> {
        let entries = SgEntries::new(runs, self.sg_cap);
        let page = match self.iommu {
            None => best_page(self.rule, sizes.0, iova, len, entries),
            Some(checked) => {
                let segments = iommu::map(entries, checked)
                    .map_err(|_| (Errno::EOVERFLOW, "IOMMU padding of a 4 GiB run overflows"))?;
                best_page(self.rule, sizes.0, iova, len, segments)
            }
        };
        // erdma does not check for "none"; EINVAL is what every other driver makes of it.
        page.ok_or((Errno::EINVAL, "no page size fits"))
    }
}

fn page_rule(platform: &Platform, erdma: bool) -> PageRule {
    let unaffected = platform.unknown == Presumption::Unaffected;
    let series = platform.kernel.map(KernelVersion::series);
    if series.is_some_and(|series| series < (5, 2)) {
        return PageRule::BasePages;
    }
    // A report that names an older installer means that its workaround was missing, and with it the fix.
    let old_bundle = |bundle| bundle < BundleVersion(1, 5, 2);
    let older =
        matches!(platform.driver, Driver::Vendor(Some(bundle)) if erdma && old_bundle(bundle));
    let fixed_kernel = (platform.sg_fix)
        .or(platform.kernel.and_then(is_fixed))
        .unwrap_or(unaffected && !older);
    let worked_around = erdma
        && match platform.driver {
            Driver::Vendor(Some(bundle)) => bundle >= BundleVersion(1, 5, 2),
            Driver::Vendor(None) => unaffected,
            Driver::InTree | Driver::Unknown => false,
        };
    if fixed_kernel || worked_around {
        PageRule::Discontinuities
    } else if series.is_some_and(|series| series < (5, 9)) {
        PageRule::EveryEntryByLength
    } else {
        PageRule::EveryEntry
    }
}

/// Whether a kernel has "RDMA/core: Fix best page size finding when it can cross SG entries" (commit 486055f5e09d,
/// mainline 6.15). `None`: the series took it in a stable release whose number could not be verified.
fn is_fixed(kernel: KernelVersion) -> Option<bool> {
    match kernel.series() {
        (6, 1) => Some(kernel.at_least_patch(141)),
        (6, 12) => Some(kernel.at_least_patch(31)),
        (5, 15) | (6, 6) | (6, 14) => None,
        series => Some(series >= (6, 15)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PageRule::{BasePages, Discontinuities, EveryEntry, EveryEntryByLength};
    use hugemr_core::backend::Access;
    use std::num::NonZeroU64;

    fn platform(kernel: &str, driver: Driver) -> Platform {
        Platform {
            kernel: kernel.parse().ok(),
            driver,
            ..Platform::default()
        }
    }

    #[test]
    fn the_page_rule_of_each_kernel() {
        for (kernel, rule) in [
            ("3.10", BasePages),
            ("4.19.91", BasePages),
            ("5.1", BasePages),
            ("5.2", EveryEntryByLength),
            ("5.8.18", EveryEntryByLength),
            ("5.9", EveryEntry),
            ("5.15.148", EveryEntry),
            ("6.1", EveryEntry),
            ("6.1.140", EveryEntry),
            ("6.1.141", Discontinuities),
            ("6.6.200", EveryEntry),
            ("6.8", EveryEntry),
            ("6.12.30", EveryEntry),
            ("6.12.31", Discontinuities),
            ("6.13.99", EveryEntry),
            ("6.14.5", EveryEntry),
            ("6.15", Discontinuities),
            ("7.3.4", Discontinuities),
            ("unknown", EveryEntry),
        ] {
            let own = page_rule(&platform(kernel, Driver::InTree), true);
            assert_eq!(own, rule, "{kernel}");
        }
    }

    #[test]
    fn the_vendor_driver_works_around_it_since_1_5_2() {
        let rule = |kernel, bundle, erdma| {
            let driver = Driver::Vendor(bundle);
            page_rule(&platform(kernel, driver), erdma)
        };
        assert_eq!(rule("6.8", Some(BundleVersion(1, 5, 1)), true), EveryEntry);
        assert_eq!(
            rule("6.8", Some(BundleVersion(1, 5, 2)), true),
            Discontinuities
        );
        assert_eq!(rule("6.8", Some(BundleVersion(1, 5, 2)), false), EveryEntry);
        assert_eq!(rule("6.8", None, true), EveryEntry);
        assert_eq!(rule("4.19", Some(BundleVersion(1, 5, 9)), true), BasePages);
    }

    #[test]
    fn what_is_not_known_is_presumed_and_what_is_known_counts() {
        let mut own = platform("unknown", Driver::Unknown);
        own.unknown = Presumption::Unaffected;
        assert_eq!(page_rule(&own, true), Discontinuities);
        own.sg_fix = Some(false);
        assert_eq!(page_rule(&own, true), EveryEntry);
        own.driver = Driver::Vendor(None);
        assert_eq!(page_rule(&own, true), Discontinuities);
        // Which release of 6.6 took the fix is not known; a report that names an old installer says what mattered.
        let mut own = platform("6.6.30", Driver::InTree);
        assert_eq!(page_rule(&own, true), EveryEntry);
        own.unknown = Presumption::Unaffected;
        assert_eq!(page_rule(&own, true), Discontinuities);
        own.driver = Driver::Vendor(Some(BundleVersion(1, 5, 1)));
        assert_eq!(page_rule(&own, true), EveryEntry);
        let mut own = platform("6.8", Driver::InTree);
        own.sg_fix = Some(true);
        assert_eq!(page_rule(&own, true), Discontinuities);
    }

    #[track_caller]
    fn check(kernel: &str, addr: u64, len: u64, iova: u64, access: u32, want: Result<u64, Errno>) {
        let kernel = Kernel::of(&platform(kernel, Driver::InTree), true, 0xffff_f000);
        let request = MrRequest {
            addr,
            len: NonZeroU64::new(len).expect("a length"),
            iova,
            access: Access::from_bits_retain(access),
        };
        let pinned = kernel.check(&request, 64 << 30);
        let bytes = pinned.map(|p| p.to - p.from).map_err(|refusal| refusal.1);
        assert_eq!(bytes, want, "{request:?}");
    }

    #[test]
    fn requests_are_checked_as_linux_does() {
        let invalid = Err(Errno::EINVAL);
        check("6.12", 0x1000, 1, 0x1000, 7, Ok(4096));
        check("6.12", 0x1fff, 2, 0xfff, 7, Ok(8192));
        check("6.12", 0x1000, 1, 0x1001, 7, invalid);
        check("6.12", 0, 64 << 30, 0, 7, Ok(64 << 30));
        check("6.12", 0, (64 << 30) + 1, 0, 7, invalid);
        check("6.12", u64::MAX - 4095, 4096, u64::MAX - 4095, 7, invalid);
        check("6.12", u64::MAX - 8191, 4096, u64::MAX - 8191, 7, Ok(4096));
        check("6.12", 0x1000, 1, 0x1000, 0, Ok(4096));
        // Remote write, remote atomic without local write; relaxed ordering; a bit that nobody knows.
        check("6.12", 0x1000, 1, 0x1000, 2, invalid);
        check("6.12", 0x1000, 1, 0x1000, 8, invalid);
        check("6.12", 0x1000, 1, 0x1000, 1 << 20 | 7, Ok(4096));
        check("6.12", 0x1000, 1, 0x1000, 1 << 12, invalid);
        // On demand, flush.
        for bit in [1 << 6, 1 << 8, 1 << 9] {
            check("6.1.192", 0x1000, 1, 0x1000, bit, invalid);
            check("6.12", 0x1000, 1, 0x1000, bit, Err(Errno::EOPNOTSUPP));
        }
    }
}
