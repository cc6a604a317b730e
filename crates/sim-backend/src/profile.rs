//! Simulated devices by name: the families, and set-ups known from public reports.
//!
//! Each number says where it comes from and what it is worth; see [`Source`].

use std::path::PathBuf;

use hugemr_core::device::{Device, Family};
use hugemr_core::fact::{Kind, Limit, Source};
use hugemr_core::host::{Driver, Platform, Presumption};
use hugemr_core::size::{GIB, PageSize, PageSizes};
use hugemr_core::version::{BundleVersion, KernelVersion};

use crate::error::SimError;
use crate::faults::Faults;
use crate::memory::DefaultLayout;
use crate::overrides::mlx4_entries;
use crate::umem::DEFAULT_SG_CAP;

/// A simulated device with its kernel and driver, before it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// What it is, in one line.
    pub about: String,
    /// The device file that it was read from, as it was named.
    pub file: Option<PathBuf>,
    /// What the device says about itself, and what others hold.
    pub device: Device,
    /// Kernel and driver.
    pub platform: Platform,
    /// The budget that the device really has, where it differs from what is said or where that is an interval.
    /// Without it: the upper end, or no limit where nothing is known.
    pub actual_entries: Option<u64>,
    /// The longest MR that the driver really accepts, bytes, where it differs from what is advertised.
    pub actual_max_mr_size: Option<u64>,
    /// Longest scatter-gather entry, bytes.
    pub sg_cap: u64,
    /// Layout of ranges that have none of their own.
    pub memory: DefaultLayout,
    /// Whether ranges without a layout of their own are not mapped (EFAULT).
    pub strict_memory: bool,
    /// Bytes that may be locked; `None`: no limit.
    pub memlock: Option<u64>,
    /// Registrations that the log keeps.
    pub log_capacity: usize,
    /// Failures and delays.
    pub faults: Faults,
}

/// The name of a profile, for lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileName {
    /// As [`open`](crate::open) takes it behind `sim:`.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: String,
}

/// Name, what it is, and how to make it.
type Entry = (
    &'static str,
    &'static str,
    fn() -> (Device, Platform, Actual),
);

/// What the device really does where that differs from what it says.
#[derive(Default)]
struct Actual {
    entries: Option<u64>,
    max_mr_size: Option<u64>,
}

const PROFILES: [Entry; 8] = [
    (
        "ecs.r8a.32xlarge",
        "Alibaba Cloud eRDMA, 1 TiB, Ubuntu 22.04, erdma_installer 1.5.2: the set-up of the vendor's article",
        ecs_r8a_32xlarge,
    ),
    (
        "mooncake-304",
        "Alibaba Cloud eRDMA as reported in kvcache-ai/Mooncake#304: 95 GiB of 4 KiB pages fit, 96 GiB do not",
        mooncake_304,
    ),
    (
        "erdma",
        "Alibaba Cloud eRDMA, driver of the kernel's tree (6.12.31), budget not known",
        erdma,
    ),
    (
        "efa",
        "AWS Elastic Fabric Adapter, budget of about 24 Mi entries (ofiwg/libfabric#9739, Mooncake#1912)",
        efa,
    ),
    (
        "ionic",
        "AMD Pensando ionic, 2^20 entries, 2^19 for one MR (SemiAnalysisAI/InferenceX#3330)",
        ionic,
    ),
    (
        "mlx4",
        "NVIDIA ConnectX-3 with log_num_mtt=20 log_mtts_per_seg=3: 8,388,608 entries",
        mlx4,
    ),
    (
        "ascend",
        "Huawei Ascend NIC, 8,388,608 entries (kvcache-ai/Mooncake#3791)",
        ascend,
    ),
    (
        "verbs",
        "any other verbs device, without limits (like rdma_rxe)",
        verbs,
    ),
];

/// Every profile, the main one first.
#[must_use]
pub fn profiles() -> Vec<ProfileName> {
    PROFILES
        .iter()
        .map(|(name, about, _)| ProfileName {
            name,
            about: (*about).to_owned(),
        })
        .collect()
}

impl Profile {
    /// The profile of that name, without `sim:`.
    ///
    /// # Errors
    /// [`SimError::UnknownName`] with all names.
    pub fn named(name: &str) -> Result<Self, SimError> {
        let (known, about, make) = PROFILES
            .iter()
            .find(|(known, ..)| known.eq_ignore_ascii_case(name))
            .ok_or_else(|| SimError::UnknownName {
                name: name.to_owned(),
                known: PROFILES.iter().map(|(known, ..)| *known).collect(),
            })?;
        let (mut device, platform, actual) = make();
        device.name = format!("sim:{known}");
        Ok(Self {
            about: (*about).to_owned(),
            actual_entries: actual.entries,
            actual_max_mr_size: actual.max_mr_size,
            ..Self::new(device, platform)
        })
    }

    /// A profile of this device on this platform: scattered 2 MiB pages, no faults.
    #[must_use]
    pub fn new(device: Device, platform: Platform) -> Self {
        Self {
            about: String::new(),
            file: None,
            device,
            platform,
            actual_entries: None,
            actual_max_mr_size: None,
            sg_cap: DEFAULT_SG_CAP,
            memory: DefaultLayout::scattered(PageSize::M2),
            strict_memory: false,
            memlock: None,
            log_capacity: 16_384,
            faults: Faults::default(),
        }
    }
}

fn platform(kernel: KernelVersion, driver: Driver) -> Platform {
    Platform {
        kernel: Some(kernel),
        driver,
        sg_fix: None,
        mtt_va: Some(true),
        iommu: Some(false),
        large_pages: None,
        unknown: Presumption::Affected,
    }
}

/// What all eRDMA devices share.
fn erdma_device() -> Device {
    Device {
        max_mr_size: Limit::exact(64 * GIB, Source::new(Kind::Documented, "max_mr_size")),
        max_mr: Limit::exact(
            32_768,
            Source::new(
                Kind::Assumed,
                "max_mr of the profile (2,048 for each 1,024 queue pairs)",
            ),
        ),
        page_size_cap: PageSizes::ERDMA,
        ..Device::unlimited("", Family::Erdma)
    }
}

fn ecs_r8a_32xlarge() -> (Device, Platform, Actual) {
    let device = Device {
        max_mr: Limit::exact(32_768, Source::new(Kind::Assumed, "max_mr of the profile")),
        entries: Limit::exact(
            33_554_431,
            Source::new(Kind::Inferred, "simulated; upper bound of the article"),
        ),
        ..erdma_device()
    };
    let kernel = KernelVersion {
        major: 5,
        minor: 15,
        patch: None,
    };
    let driver = Driver::Vendor(Some(BundleVersion(1, 5, 2)));
    (device, platform(kernel, driver), Actual::default())
}

fn mooncake_304() -> (Device, Platform, Actual) {
    let device = Device {
        entries: Limit::interval(
            24_903_680,
            Some(25_165_823),
            Source::new(
                Kind::Measured,
                "kvcache-ai/Mooncake#304: 95 GiB fit, 96 GiB do not",
            ),
        ),
        ..erdma_device()
    };
    let (_, platform, _) = ecs_r8a_32xlarge();
    (device, platform, Actual::default())
}

fn erdma() -> (Device, Platform, Actual) {
    let device = Device {
        entries: Limit::unknown(Source::new(Kind::Assumed, "published nowhere")),
        ..erdma_device()
    };
    let platform = platform(KernelVersion::new(6, 12, 31), Driver::InTree);
    (device, platform, Actual::default())
}

fn efa() -> (Device, Platform, Actual) {
    let device = Device {
        max_mr_size: Limit::exact(
            192 * GIB,
            Source::new(Kind::Documented, "max_mr_size in kvcache-ai/Mooncake#1912"),
        ),
        entries: Limit::interval(
            24_903_680,
            Some(25_165_823),
            Source::new(
                Kind::Measured,
                "ofiwg/libfabric#9739: 95 GiB fit, 96 GiB do not",
            ),
        ),
        entries_per_mr: Limit::exact(
            1 << 20,
            Source::new(
                Kind::Documented,
                "ofiwg/libfabric#10402, an MR with remote write",
            ),
        ),
        page_size_cap: PageSizes::ERDMA,
        ..Device::unlimited("", Family::Efa)
    };
    let platform = platform(KernelVersion::new(6, 15, 0), Driver::InTree);
    (device, platform, Actual::default())
}

fn ionic() -> (Device, Platform, Actual) {
    let device = Device {
        max_mr_size: Limit::exact(
            2 * GIB,
            Source::new(Kind::Documented, "max_mr_size in kvcache-ai/Mooncake#4168"),
        ),
        entries: Limit::exact(
            1 << 20,
            Source::new(
                Kind::Inferred,
                "SemiAnalysisAI/InferenceX#3330: 1,015,808 fit beside what others hold",
            ),
        ),
        entries_per_mr: Limit::exact(
            1 << 19,
            Source::new(
                Kind::Inferred,
                "SemiAnalysisAI/InferenceX#3330: 2 GiB of 4 KiB pages fit, 3 GiB do not",
            ),
        ),
        page_size_cap: PageSizes::ERDMA,
        ..Device::unlimited("", Family::Ionic)
    };
    let platform = platform(KernelVersion::new(6, 15, 0), Driver::InTree);
    let actual = Actual {
        // The advertised size is the entries of one MR times 4 KiB: 4 GiB on 1 GiB pages works (Mooncake#4168).
        max_mr_size: Some(u64::MAX),
        ..Actual::default()
    };
    (device, platform, actual)
}

fn mlx4() -> (Device, Platform, Actual) {
    let device = Device {
        entries: mlx4_entries(20, 3, Kind::Assumed),
        ..Device::unlimited("", Family::Mlx4)
    };
    let platform = platform(KernelVersion::new(6, 15, 0), Driver::InTree);
    (device, platform, Actual::default())
}

fn ascend() -> (Device, Platform, Actual) {
    let device = Device {
        entries: Limit::exact(
            8_388_608,
            Source::new(
                Kind::Inferred,
                "kvcache-ai/Mooncake#3791: 32 GiB of 4 KiB pages",
            ),
        ),
        ..Device::unlimited("", Family::Ascend)
    };
    let platform = platform(KernelVersion::new(6, 15, 0), Driver::InTree);
    (device, platform, Actual::default())
}

fn verbs() -> (Device, Platform, Actual) {
    let platform = platform(KernelVersion::new(6, 15, 0), Driver::InTree);
    (
        Device::unlimited("", Family::Other),
        platform,
        Actual::default(),
    )
}
