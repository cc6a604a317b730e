//! What the benchmarks share: the article's device, and reproducible random numbers.
//!
//! A benchmark puts hugemr and what a user would do by hand side by side in one run; only their ratio means something on
//! a shared machine. `cargo xtask bench` runs them.

use hugemr_core::device::{Device, Family};
use hugemr_core::fact::{Kind, Limit, Source};
use hugemr_core::host::{Driver, Host, Platform};
use hugemr_core::size::{GIB, PageSizes};
use hugemr_core::version::{BundleVersion, KernelVersion};

/// The device of the vendor's article: 64 GiB an MR, 2^25 - 1 entries.
#[must_use]
pub fn device() -> Device {
    let exact = |value| Limit::exact(value, Source::new(Kind::Assumed, "benchmark"));
    Device {
        max_mr_size: exact(64 * GIB),
        max_mr: exact(1 << 40),
        page_size_cap: PageSizes::ERDMA,
        entries: exact(1 << 50),
        ..Device::unlimited("benchmark", Family::Erdma)
    }
}

/// The host of the vendor's article.
#[must_use]
pub fn host() -> Host {
    let platform = Platform {
        kernel: Some(KernelVersion::new(5, 15, 0)),
        driver: Driver::Vendor(Some(BundleVersion(1, 5, 7))),
        mtt_va: Some(true),
        iommu: Some(false),
        ..Platform::default()
    };
    Host {
        platform,
        ..Host::default()
    }
}

/// Reproducible random numbers (splitmix64, public domain).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next one.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next one below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.draw() % n
    }
}
