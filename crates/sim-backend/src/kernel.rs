//! The simulated kernel: which version behaves how, and what it checks before a driver is asked.

use hugemr_core::backend::MrRequest;
use hugemr_core::errno::Errno;
use hugemr_core::host::{Driver, Platform, Presumption};
use hugemr_core::size::{PageSize, PageSizes};
use hugemr_core::version::{BundleVersion, KernelVersion};

use crate::device::Layer;
use crate::iommu;
use crate::memory::{BASE_PAGE, Runs};
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
    let fixed_kernel = platform.sg_fix.unwrap_or(match platform.kernel {
        Some(kernel) => is_fixed(kernel),
        None => unaffected,
    });
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
/// mainline 6.15). Stable releases whose number could not be verified count as unfixed.
fn is_fixed(kernel: KernelVersion) -> bool {
    match kernel.series() {
        (6, 1) => kernel.at_least_patch(141),
        (6, 12) => kernel.at_least_patch(31),
        series => series >= (6, 15),
    }
}
