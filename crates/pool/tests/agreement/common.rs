//! Random platforms, devices, requests and memory, and the way from a plan to the simulated device.

use std::fmt::Debug;

use hugemr::core::backend::{Access, NoMemory};
use hugemr::core::device::{Device, Family, Used};
use hugemr::core::fact::{Kind, Limit, Source};
use hugemr::core::host::{Driver, Host, Platform, Presumption};
use hugemr::core::layout::PhysRun;
use hugemr::core::plan::{Pages, Plan, PlanRequest, Wish};
use hugemr::core::registrar::{Options, RegisterError, Registration};
use hugemr::core::size::{PageSize, PageSizes};
use hugemr::core::version::{BundleVersion, KernelVersion};
use hugemr_sim::{Profile, SimDevice, SimMemory};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{TestCaseResult, TestRunner};

/// Where ranges of ours start: aligned to 2 TiB.
pub(crate) const BASE: u64 = 0x7e00_0000_0000;

/// 32 MiB: huge pages of arm64 kernels with contiguous entries; an MR of 4 GiB on them has 128 entries.
pub(crate) const M32: u64 = 32 << 20;

/// Runs a property. Nothing is kept between runs.
#[track_caller]
pub(crate) fn check<S: Strategy>(
    cases: u32,
    strategy: S,
    property: impl Fn(S::Value) -> TestCaseResult,
) where
    S::Value: Debug,
{
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        max_shrink_iters: 2_000,
        ..ProptestConfig::default()
    };
    if let Err(error) = TestRunner::new(config).run(&strategy, property) {
        panic!("{error}");
    }
}

pub(crate) fn exact(value: u64) -> Limit {
    Limit::exact(value, Source::new(Kind::Given, "test"))
}

pub(crate) fn page(bytes: u64) -> PageSize {
    PageSize::new(bytes).expect("a page")
}

/// Kernels on both sides of every version that changes something, and unknown.
pub(crate) fn kernels() -> Vec<Option<KernelVersion>> {
    let versions = [
        "3.10", "4.19.91", "5.1.21", "5.2", "5.8.18", "5.9", "5.10.134", "5.14.21", "5.15",
        "5.15.148", "5.15.190", "5.16", "6.0.19", "6.1", "6.1.140", "6.1.141", "6.1.192", "6.2",
        "6.5.13", "6.6", "6.6.93", "6.7.12", "6.8", "6.11.11", "6.12", "6.12.30", "6.12.31",
        "6.12.117", "6.13.12", "6.14", "6.14.11", "6.15", "6.15.3", "6.18.44", "7.3.4",
    ];
    let known = versions
        .iter()
        .map(|text| Some(text.parse().expect("a version")));
    known.chain([None]).collect()
}

/// The driver of the kernel's tree, the vendor's around each version that changes something, and unknown.
pub(crate) fn drivers() -> Vec<Driver> {
    let bundle = |a, b, c| Driver::Vendor(Some(BundleVersion(a, b, c)));
    vec![
        Driver::InTree,
        Driver::Unknown,
        Driver::Vendor(None),
        bundle(1, 4, 9),
        bundle(1, 5, 1),
        bundle(1, 5, 2),
        bundle(1, 5, 6),
        bundle(1, 5, 7),
        bundle(1, 6, 0),
        bundle(2, 0, 0),
    ]
}

/// A platform of which MTT_VA is known: without it core and the simulator presume differently (see `matrix`).
pub(crate) fn platform() -> impl Strategy<Value = Platform> {
    (
        select(kernels()),
        select(drivers()),
        prop_oneof![6 => Just(None), 1 => any::<bool>().prop_map(Some)],
        prop::bool::weighted(0.8),
        prop_oneof![6 => Just(Some(false)), 1 => Just(None), 1 => Just(Some(true))],
        prop_oneof![4 => Just(Presumption::Affected), 1 => Just(Presumption::Unaffected)],
    )
        .prop_map(
            |(kernel, driver, sg_fix, mtt_va, iommu, unknown)| Platform {
                kernel,
                driver,
                sg_fix,
                mtt_va: Some(mtt_va),
                iommu,
                large_pages: None,
                unknown,
            },
        )
}

pub(crate) fn family() -> impl Strategy<Value = Family> {
    prop_oneof![3 => Just(Family::Erdma), 1 => select(Family::ALL.to_vec())]
}

pub(crate) fn page_size_cap() -> impl Strategy<Value = PageSizes> {
    prop_oneof![
        4 => Just(PageSizes::ERDMA),
        1 => Just(PageSizes::ALL),
        1 => Just(PageSizes(0x1000)),
        1 => Just(PageSizes(0x20_1000)),
        1 => Just(PageSizes(0x4020_1000)),
        1 => any::<u64>().prop_map(|bits| PageSizes((bits | 0x1000) & !0xfff)),
    ]
}

/// Page sizes of Linux hosts, with a number of pages that is quickly walked.
fn backing_page() -> impl Strategy<Value = (u64, u64)> {
    select(vec![
        (4096u64, 3000u64),
        (65_536, 2000),
        (2 << 20, 6000),
        (M32, 600),
        (512 << 20, 60),
        (1 << 30, 24),
    ])
}

/// Limits in pages, as shares of what is asked for: some cut it, some refuse it.
#[derive(Clone, Copy, Debug)]
struct Shares {
    size: Option<(u64, u64)>,
    count: Option<u64>,
    budget: Option<(u64, u64)>,
    per_mr: Option<u64>,
    used: (u64, u64),
}

fn shares() -> impl Strategy<Value = Shares> {
    let share = || 1u64..=1300;
    (
        prop::option::weighted(
            0.8,
            (share(), prop_oneof![3 => Just(0u64), 1 => 0u64..1 << 30]),
        ),
        prop::option::weighted(0.4, 1u64..40),
        prop::option::weighted(
            0.6,
            (1u64..2000, prop_oneof![3 => Just(0u64), 1 => 0u64..500]),
        ),
        prop::option::weighted(0.3, share()),
        prop_oneof![3 => Just((0u64, 0u64)), 1 => (0u64..300, 0u64..4)],
    )
        .prop_map(|(size, count, budget, per_mr, used)| Shares {
            size,
            count,
            budget,
            per_mr,
            used,
        })
}

/// How the memory lies physically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// No page follows another: what a plan reckons with.
    Scattered,
    /// One run, congruent to its addresses modulo the page only.
    Contiguous,
    /// One run, congruent to its addresses modulo 1 TiB: the pages merge as far as they can.
    Lucky,
    /// Runs of so many pages on average.
    Random(u64),
}

/// Everything that one property needs.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) request: PlanRequest,
    pub(crate) device: Device,
    pub(crate) host: Host,
    /// Address of offset 0.
    pub(crate) base: u64,
    pub(crate) lie: Lie,
    pub(crate) seed: u64,
}

fn lie() -> impl Strategy<Value = Lie> {
    prop_oneof![
        3 => Just(Lie::Scattered),
        1 => Just(Lie::Contiguous),
        2 => Just(Lie::Lucky),
        3 => (1u64..300).prop_map(Lie::Random),
    ]
}

#[derive(Clone, Debug)]
enum Shape {
    Total(u64, u64),
    Buffers(Vec<(u64, u64)>),
    Adopted(u64, u64, u64),
    Mixed(u64),
}

/// Numbers of pages and bytes, scaled later.
fn shape() -> impl Strategy<Value = Shape> {
    let pages = || 1u64..=1000;
    let odd = || prop_oneof![2 => Just(0u64), 1 => 1u64..1 << 31];
    prop_oneof![
        4 => (pages(), odd()).prop_map(|(n, cut)| Shape::Total(n, cut)),
        2 => prop::collection::vec((1u64..=250, odd()), 1..6).prop_map(Shape::Buffers),
        4 => (pages(), odd(), odd()).prop_map(|(n, cut, skew)| Shape::Adopted(n, cut, skew)),
        1 => pages().prop_map(Shape::Mixed),
    ]
}

/// A request on one kind of device, kernel and memory.
pub(crate) fn case() -> impl Strategy<Value = Case> {
    let choice = (
        prop_oneof![5 => Just(0u64), 1 => 1u64..9],
        prop_oneof![5 => Just(0u64), 1 => 1u64..600],
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.1),
        prop_oneof![4 => Just(1u64), 1 => Just(2u64)],
        prop::bool::weighted(0.05),
    );
    (
        (backing_page(), shape(), shares(), choice),
        (family(), page_size_cap(), platform()),
        (0u64..64, lie(), any::<u64>()),
    )
        .prop_map(
            |((backing, shape, shares, choice), (family, cap, platform), (start, lie, seed))| {
                let (size, most) = backing;
                let scale = |thousandths: u64| (thousandths * most / 1000).max(1);
                let (block, chunk, single, ignore_quirks, pds, over) = choice;
                let cut = |n: u64, cut: u64| (scale(n) * size - cut % size).max(1);
                let (wish, pages) = match shape {
                    Shape::Total(n, odd) => (Wish::Total(cut(n, odd)), Pages::Only(page(size))),
                    Shape::Buffers(parts) => {
                        let parts = parts.into_iter().map(|(n, odd)| cut(n, odd)).collect();
                        (Wish::Buffers(parts), Pages::Only(page(size)))
                    }
                    Shape::Adopted(n, odd, skew) => {
                        let addr = BASE + start * size + skew % size;
                        (
                            Wish::Adopted {
                                addr,
                                len: cut(n, odd),
                            },
                            Pages::Only(page(size)),
                        )
                    }
                    Shape::Mixed(n) => (Wish::Total(n * (12 << 20)), Pages::Mixed),
                };
                let base = match wish {
                    Wish::Adopted { addr, .. } => addr,
                    _ => BASE + start * size.max(1 << 30),
                };
                let mut request = PlanRequest::new(wish).pages(pages);
                // Half a page, three of them, a prime number of bytes.
                request.block = [
                    None,
                    Some(size / 2),
                    Some(3 * size),
                    Some(12_288),
                    Some(7),
                    Some(5 << 20),
                ]
                .get(usize::try_from(block).unwrap_or(0))
                .copied()
                .flatten();
                request.chunk =
                    (chunk > 0).then(|| scale(chunk) * size * request.block.map_or(1, |_| 3));
                request.single = single;
                request.ignore_quirks = ignore_quirks;
                request.pds = pds;
                let mut device = Device {
                    page_size_cap: cap,
                    ..Device::unlimited("test", family)
                };
                if let Some((share, odd)) = shares.size {
                    device.max_mr_size = exact(scale(share) * size + odd % size);
                    if over {
                        request.max_mr_size = Some(scale(share) * size * 2);
                    }
                }
                if let Some(count) = shares.count {
                    device.max_mr = exact(count + shares.used.1);
                }
                if let Some((share, open)) = shares.budget {
                    let budget = scale(share) + scale(open);
                    let low = scale(share).min(budget);
                    device.entries = if open == 0 {
                        exact(low)
                    } else {
                        Limit::interval(low, Some(budget), Source::new(Kind::Measured, "test"))
                    };
                }
                if let Some(share) = shares.per_mr {
                    device.entries_per_mr = exact(scale(share));
                }
                let (entries, mrs) = shares.used;
                device.used = Used {
                    entries: (entries, Some(entries)),
                    mrs: (mrs, Some(mrs)),
                };
                let host = Host {
                    platform,
                    ..Host::default()
                };
                Case {
                    request,
                    device,
                    host,
                    base,
                    lie,
                    seed,
                }
            },
        )
}

impl Case {
    /// The simulated device, with the memory of the plan's range lying as the case says.
    pub(crate) fn sim(&self, plan: &Plan, lie: Lie) -> SimDevice {
        let mut profile = Profile::new(self.device.clone(), self.host.platform.clone());
        // A device on which the override that the request insists on works.
        profile.actual_max_mr_size = self.request.max_mr_size;
        profile.strict_memory = true;
        let device = SimDevice::new(profile);
        for segment in &plan.segments {
            let page = segment.page;
            let first = self.base + segment.offset;
            let from = first & !(page.bytes() - 1);
            let to = (first + segment.len).next_multiple_of(page.bytes());
            let memory = match lie {
                Lie::Scattered => SimMemory::Scattered {
                    page,
                    seed: self.seed,
                },
                Lie::Contiguous => SimMemory::Contiguous {
                    page,
                    phys_base: self.seed >> 24 & !4095,
                },
                Lie::Lucky => SimMemory::Runs(vec![PhysRun {
                    phys: from + (1 << 47),
                    len: to - from,
                }]),
                Lie::Random(mean) => SimMemory::random(page, from, to - from, mean, self.seed),
            };
            device.back(from, to - from, memory).expect("whole pages");
        }
        device
    }

    /// Whether each page of the plan is one that the device offers, so that scattered memory takes exactly one entry
    /// for each.
    pub(crate) fn offers(&self, plan: &Plan) -> bool {
        plan.segments
            .iter()
            .all(|segment| self.device.page_size_cap.contains(segment.page))
    }
}

/// Registers the chunks of a plan, whatever its verdict, in their order.
pub(crate) fn register<'a>(
    device: &'a SimDevice,
    plan: &Plan,
    base: u64,
) -> Result<Registration<&'a SimDevice, NoMemory>, RegisterError<NoMemory>> {
    let memory = NoMemory {
        base,
        len: plan.mapped,
        page: plan.segments[0].page,
    };
    Registration::new(
        device,
        memory,
        &plan.segments,
        Access::REMOTE_RW,
        &Options::new(),
    )
}
