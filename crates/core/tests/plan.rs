//! The planner: the article's experiment, the rules one by one, and properties over random requests.

use hugemr_core::device::{Device, Family, Used};
use hugemr_core::errno::Errno;
use hugemr_core::fact::{Kind, Limit, Source};
use hugemr_core::host::{Driver, Host, HugePool, Node, Platform};
use hugemr_core::plan::{
    ChunkBound, Code, Leave, OtherUse, Pages, Plan, PlanRequest, Refusal, Verdict, WayOut, Wish,
    max_fit, plan,
};
use hugemr_core::quirk::Quirk;
use hugemr_core::size::{GIB, MIB, PageSize, PageSizes, TIB};
use hugemr_core::version::BundleVersion;

fn exact(value: u64) -> Limit {
    Limit::exact(value, Source::new(Kind::Assumed, "test"))
}

/// The device of the article: 64 GiB an MR, 2^25 - 1 entries.
fn device() -> Device {
    Device {
        max_mr_size: exact(64 * GIB),
        max_mr: exact(32_768),
        page_size_cap: PageSizes::ERDMA,
        entries: exact(33_554_431),
        ..Device::unlimited("test", Family::Erdma)
    }
}

fn host(kernel: &str, driver: Driver) -> Host {
    let platform = Platform {
        kernel: kernel.parse().ok(),
        driver,
        mtt_va: Some(true),
        iommu: Some(false),
        ..Platform::default()
    };
    Host {
        platform,
        ..Host::default()
    }
}

fn vendor(a: u16, b: u16, c: u16) -> Driver {
    Driver::Vendor(Some(BundleVersion(a, b, c)))
}

fn article() -> Host {
    host("5.15", vendor(1, 5, 2))
}

fn on(bytes: u64, page: PageSize) -> PlanRequest {
    PlanRequest::total(bytes).pages(Pages::Only(page))
}

fn fits(request: &PlanRequest, device: &Device, host: &Host) -> Plan {
    match plan(request, device, host) {
        Ok(plan) => plan,
        Err(refusal) => panic!("refused: {refusal}"),
    }
}

fn refused(request: &PlanRequest, device: &Device, host: &Host) -> Refusal {
    match plan(request, device, host) {
        Ok(plan) => panic!("not refused: {plan:?}"),
        Err(refusal) => *refusal,
    }
}

#[test]
fn the_article_fits_on_2_mib_pages() {
    let plan = fits(&PlanRequest::total(896 * GIB), &device(), &article());
    assert_eq!(plan.verdict, Verdict::Fits);
    assert_eq!((plan.mrs, plan.entries), (14, (458_752, 458_752)));
    assert_eq!(plan.pages, Pages::Only(PageSize::M2));
    assert!(plan.chunks().all(|chunk| chunk.len == 64 * GIB));
    assert_eq!(plan.kernel_memory, 458_752 * 40);
    assert_eq!(plan.pinned, 896 * GIB);
    let giant = plan
        .alternatives
        .iter()
        .find(|a| a.pages == Pages::Only(PageSize::G1))
        .unwrap();
    assert_eq!(
        (giant.mrs, giant.chunk),
        (448, 2 * GIB),
        "the length defect caps 1 GiB pages"
    );
}

#[test]
fn the_article_is_refused_on_4_kib_pages() {
    let refusal = refused(&on(896 * GIB, PageSize::K4), &device(), &article());
    assert_eq!(
        (refusal.code, refusal.errno),
        (Code::OverBudget, Some(Errno::EIO))
    );
    assert_eq!(
        refusal.text,
        "needs 234,881,024 MTT entries, the device has 33,554,431 (7.0 x)"
    );
    assert_eq!(refusal.max_fit.unwrap().certain, 128 * GIB - 4096);
    let forced = refusal.plan.unwrap();
    assert_eq!(
        (forced.mrs, forced.first_failure),
        (14, Some((1, Errno::EIO)))
    );
    assert!(matches!(&refusal.ways_out[0], WayOut::Pages(a)
        if a.pages == Pages::Only(PageSize::M2) && a.mrs == 14 && a.huge_pages == [(PageSize::M2, 458_752)]));
}

#[test]
fn defects_cap_the_chunks_and_say_why() {
    let request = on(896 * GIB, PageSize::M2);
    let old = fits(&request, &device(), &host("6.8", vendor(1, 5, 1)));
    assert_eq!((old.mrs, old.chunk), (448, 2 * GIB));
    assert_eq!(old.bound, ChunkBound::Quirk(Quirk::ScatterBoundary));
    let unknown = fits(&request, &device(), &host("unknown", Driver::Unknown));
    assert_eq!((unknown.mrs, unknown.chunk), (448, 2 * GIB));
    assert!(
        unknown
            .quirks
            .iter()
            .any(|q| q.counts() && !q.lifted_by.is_empty())
    );
    let giant = fits(
        &on(896 * GIB, PageSize::G1),
        &device(),
        &host("6.12.31", Driver::InTree),
    );
    assert_eq!(
        (giant.mrs, giant.bound),
        (448, ChunkBound::Quirk(Quirk::WireLength))
    );
    let fixed = fits(&request, &device(), &host("6.12.31", Driver::InTree));
    assert_eq!((fixed.mrs, fixed.entries.0), (14, 458_752));
}

#[test]
fn a_chunk_that_meets_a_defect_is_refused_and_kept_for_force() {
    let mut request = on(896 * GIB, PageSize::M2);
    request.chunk = Some(64 * GIB);
    let refusal = refused(&request, &device(), &host("6.8", vendor(1, 5, 1)));
    assert_eq!(refusal.code.name(), "kernel_bug_scatter");
    let forced = refusal.plan.unwrap();
    assert_eq!(forced.mrs, 14);
    assert_eq!(forced.entries, (458_752, 234_881_024));
    assert!(refusal.ways_out.contains(&WayOut::ShorterChunks(2 * GIB)));
}

#[test]
fn without_large_pages_every_backing_costs_4_kib_entries() {
    let refusal = refused(
        &on(896 * GIB, PageSize::M2),
        &device(),
        &host("4.19", Driver::Unknown),
    );
    assert_eq!(refusal.code, Code::OverBudget);
    assert!(
        refusal
            .text
            .starts_with("large pages cannot be used here (kernel 4.19 < 5.2)")
    );
    assert_eq!(refusal.plan.unwrap().entries.0, 234_881_024);
    assert!(
        refusal
            .ways_out
            .iter()
            .any(|w| matches!(w, WayOut::Lift(Quirk::NoLargePages, _)))
    );
}

#[test]
fn budgets_that_are_intervals_or_unknown_leave_it_undecided() {
    let source = || Source::new(Kind::Measured, "test");
    let mut device = device();
    device.entries = Limit::interval(400_000, Some(500_000), source());
    let request = on(896 * GIB, PageSize::M2);
    assert_eq!(
        fits(&request, &device, &article()).verdict,
        Verdict::Undecided
    );
    let fit = max_fit(&request, Pages::Only(PageSize::M2), &device, &article());
    assert_eq!(
        (fit.certain, fit.at_most),
        (400_000 * 2 * MIB, Some(500_000 * 2 * MIB))
    );
    device.entries = Limit::unknown(source());
    assert_eq!(
        fits(&request, &device, &article()).verdict,
        Verdict::Undecided
    );
    device.entries = Limit::interval(458_752, None, source());
    assert_eq!(fits(&request, &device, &article()).verdict, Verdict::Fits);
    device.used = Used {
        entries: (1, None),
        mrs: (1, None),
    };
    assert_eq!(
        fits(&request, &device, &article()).verdict,
        Verdict::Undecided
    );
    device.entries = exact(458_752);
    assert_eq!(
        refused(&request, &device, &article()).code,
        Code::OverBudget
    );
}

#[test]
fn thp_is_undecided_where_only_the_best_case_fits() {
    let request = PlanRequest::total(256 * GIB).pages(Pages::Thp);
    let plan = fits(&request, &device(), &article());
    assert_eq!(
        (plan.verdict, plan.entries),
        (Verdict::Undecided, (131_072, 67_108_864))
    );
    assert_eq!(
        fits(
            &PlanRequest::total(GIB).pages(Pages::Thp),
            &device(),
            &article()
        )
        .verdict,
        Verdict::Fits
    );
}

#[test]
fn pools_cgroups_and_memlock_are_part_of_the_arithmetic() {
    let pool = |page, free| HugePool {
        page,
        total: free,
        free,
        surplus: 0,
    };
    let mut host = article();
    host.nodes = Some(vec![
        Node {
            id: 0,
            pools: vec![pool(PageSize::M2, 200_000)],
            ..Node::default()
        },
        Node {
            id: 1,
            pools: vec![pool(PageSize::M2, 200_000)],
            ..Node::default()
        },
    ]);
    let refusal = refused(&PlanRequest::total(896 * GIB), &device(), &host);
    assert_eq!(refusal.code, Code::HugepageShort);
    assert!(
        refusal.text.contains("short by 58,752 (114.75 GiB)"),
        "{}",
        refusal.text
    );
    assert_eq!(
        refusal.ways_out[0],
        WayOut::Reserve {
            page: PageSize::M2,
            short: 58_752,
            need: 458_752
        }
    );
    // 1 GiB pages as many as are free, 2 MiB for the rest.
    let mut rich = host.clone();
    rich.nodes.as_mut().unwrap()[0]
        .pools
        .push(pool(PageSize::G1, 200));
    let mixed = fits(&PlanRequest::total(896 * GIB), &device(), &rich);
    assert_eq!(mixed.pages, Pages::Mixed);
    assert_eq!(
        mixed.huge_pages,
        [(PageSize::G1, 200), (PageSize::M2, 696 * 512)]
    );
    assert_eq!(mixed.entries.0, 200 + 696 * 512);

    let mut small = article();
    small.memlock = Some(exact(8 * MIB));
    assert_eq!(
        refused(&on(GIB, PageSize::M2), &device(), &small).code,
        Code::Memlock
    );
    let mut caged = article();
    caged.cgroup = vec![(PageSize::M2, 512 * MIB)];
    assert_eq!(
        refused(&on(GIB, PageSize::M2), &device(), &caged).code,
        Code::HugetlbCgroup
    );
}

#[test]
fn others_and_what_is_to_be_left_come_off_the_budget() {
    let mut request = on(64 * GIB, PageSize::K4);
    fits(&request, &device(), &article());
    request.leave = Leave::PerCent(50);
    assert_eq!(
        fits(
            &request,
            &{
                let mut d = device();
                d.entries = exact(33_554_432);
                d
            },
            &article()
        )
        .verdict,
        Verdict::Fits
    );
    assert_eq!(
        refused(&request, &device(), &article()).code,
        Code::OverBudget
    );
    request.leave = Leave::Nothing;
    // 64 GiB at 4 KiB leave 16,777,215 entries; 1 TiB of GPU buffers at 64 KiB take one more.
    request.others = vec![OtherUse {
        bytes: TIB,
        page: PageSize::K64,
    }];
    assert_eq!(
        refused(&request, &device(), &article()).code,
        Code::OverBudget
    );
    request.others[0].bytes -= 65536;
    fits(&request, &device(), &article());
}

#[test]
fn adopted_memory_is_cut_where_it_lies() {
    let mut request = PlanRequest::new(Wish::Adopted {
        addr: 5 * MIB,
        len: 10 * MIB,
    });
    request.pages = Pages::Only(PageSize::M2);
    request.chunk = Some(4 * MIB);
    let plan = fits(&request, &device(), &article());
    let cut: Vec<(u64, u64)> = plan.chunks().map(|c| (c.offset, c.len)).collect();
    assert_eq!(cut, [(0, 3 * MIB), (3 * MIB, 4 * MIB), (7 * MIB, 3 * MIB)]);
    assert_eq!((plan.mapped, plan.entries.0), (10 * MIB, 6));
    assert!(
        refused(
            &PlanRequest::new(Wish::Adopted {
                addr: u64::MAX,
                len: 2
            }),
            &device(),
            &article()
        )
        .text
        .contains("address space")
    );
}

#[test]
fn bad_requests_are_refused_in_words() {
    for (request, code) in [
        (PlanRequest::total(0), Code::Empty),
        (PlanRequest::new(Wish::Buffers(vec![])), Code::Empty),
        (PlanRequest::new(Wish::Buffers(vec![GIB, 0])), Code::Empty),
        (PlanRequest::total(u64::MAX), Code::TooBig),
        (
            PlanRequest {
                block: Some(u64::MAX),
                ..PlanRequest::total(GIB)
            },
            Code::TooBig,
        ),
        (
            PlanRequest {
                block: Some(65 * GIB),
                ..PlanRequest::total(GIB)
            },
            Code::BlockAboveLimit,
        ),
        (
            PlanRequest {
                chunk: Some(3 * MIB),
                ..PlanRequest::total(GIB)
            },
            Code::ChunkOffStep,
        ),
        (
            PlanRequest {
                chunk: Some(128 * GIB),
                ..PlanRequest::total(TIB)
            },
            Code::TooLong,
        ),
        (
            PlanRequest {
                single: true,
                ..PlanRequest::total(65 * GIB)
            },
            Code::TooLong,
        ),
        (
            PlanRequest {
                max_mr_size: Some(MIB),
                ..PlanRequest::total(GIB)
            },
            Code::LimitBelowPage,
        ),
    ] {
        let refusal = refused(&request, &device(), &article());
        assert_eq!(refusal.code, code, "{request:?}: {refusal}");
        assert!(refusal.text.len() > 20);
    }
}

/// The time does not grow with the square of the number: 10^10 looks would take a minute and more.
#[test]
fn many_buffers_are_planned_in_one_pass() {
    let buffers = vec![4096; 100_000];
    let request = PlanRequest::new(Wish::Buffers(buffers)).pages(Pages::Only(PageSize::M2));
    let start = std::time::Instant::now();
    let refusal = refused(&request, &device(), &host("6.8", vendor(1, 5, 1)));
    assert_eq!(refusal.code, Code::OverMrCount);
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

#[test]
fn a_pebibyte_is_planned_lazily() {
    let mut device = device();
    device.max_mr = Limit::unlimited(Source::new(Kind::Assumed, "test"));
    let mut request = on(1 << 50, PageSize::M2);
    request.chunk = Some(2 * MIB);
    let refusal = refused(&request, &device, &article());
    let plan = refusal.plan.unwrap();
    assert_eq!((plan.mrs, plan.segments.len()), (1 << 29, 1));
    assert_eq!(plan.segments[0].chunk(1 << 28).unwrap().offset, 1 << 49);
}

fn adopted(addr: u64, len: u64, page: PageSize) -> PlanRequest {
    PlanRequest::new(Wish::Adopted { addr, len }).pages(Pages::Only(page))
}

#[test]
fn the_largest_mr_is_one_that_there_is() {
    // Two MRs of [1, 4) and [4, 5) MiB: no MR has three pages.
    let mut request = adopted(MIB, 4 * MIB, PageSize::M2);
    request.chunk = Some(4 * MIB);
    let mut device = device();
    device.entries_per_mr = exact(2);
    let plan = fits(&request, &device, &article());
    assert_eq!((plan.mrs, plan.chunk, plan.entries.0), (2, 3 * MIB, 3));
}

#[test]
fn what_an_mr_spans_meets_the_scatter_boundary_not_its_length() {
    let mut request = adopted((1 << 40) + 2048, 4 * GIB - 4096, PageSize::M2);
    request.single = true;
    let old = host("6.8", vendor(1, 5, 1));
    let refusal = refused(&request, &device(), &old);
    assert_eq!(refusal.code, Code::Defect(Quirk::ScatterBoundary));
    request.wish = Wish::Adopted {
        addr: 1 << 40,
        len: 4 * GIB - 4096,
    };
    fits(&request, &device(), &old);
}

#[test]
fn a_last_chunk_can_meet_the_length_defect_alone() {
    // 64 GiB on pages of 32 MiB have 2,048 entries, the 5 GiB behind them 160.
    let page = PageSize::new(32 * MIB).unwrap();
    let mut request = on(69 * GIB, page);
    request.chunk = Some(64 * GIB);
    let host = host("6.12.31", Driver::InTree);
    assert_eq!(
        refused(&request, &device(), &host).code,
        Code::Defect(Quirk::WireLength)
    );
    request.wish = Wish::Total(64 * GIB);
    fits(&request, &device(), &host);
}

#[test]
fn the_first_failure_is_that_of_the_device() {
    let source = || Source::new(Kind::Given, "test");
    let failure = |request: &PlanRequest, device: &Device| {
        let refusal = refused(request, device, &article());
        refusal.plan.unwrap().first_failure
    };
    let mut small = device();
    small.entries = exact(10);
    let mut buffers = PlanRequest::new(Wish::Buffers(vec![2 * MIB, 4 * MIB, 20 * MIB, 2 * MIB]));
    buffers.pages = Pages::Only(PageSize::M2);
    assert_eq!(failure(&buffers, &small), Some((2, Errno::EIO)));
    // The second protection domain has 10 - 8 entries.
    let mut twice = on(16 * MIB, PageSize::M2);
    (twice.pds, twice.chunk) = (2, Some(4 * MIB));
    assert_eq!(failure(&twice, &small), Some((5, Errno::EIO)));
    // The second MR is the one that is too long; with room for one MR only it is never reached.
    let mut long = PlanRequest::new(Wish::Buffers(vec![2 * MIB, 2 * MIB, 65 * GIB]));
    (long.pages, long.single) = (Pages::Only(PageSize::M2), true);
    assert_eq!(failure(&long, &device()), Some((2, Errno::EINVAL)));
    small.entries = Limit::unlimited(source());
    small.max_mr = exact(1);
    assert_eq!(failure(&long, &small), Some((1, Errno::ENOSPC)));
    // What others are to have is nothing that a device refuses.
    let mut leave = on(16 * MIB, PageSize::M2);
    leave.leave = Leave::Entries(33_554_430);
    assert_eq!(failure(&leave, &device()), None);
}

#[test]
fn a_start_within_the_step_counts_when_mrs_are_scarce() {
    // From 4 KiB on 2 GiB are two chunks of 2 GiB: one longer chunk is needed.
    let mut device = device();
    device.max_mr = exact(1);
    let old = host("6.8", vendor(1, 5, 1));
    let request = adopted((1 << 40) + 4096, 2 * GIB, PageSize::M2);
    assert_eq!(fits(&request, &device, &old).mrs, 1);
}

#[test]
fn the_largest_mixed_size_is_found() {
    let mut device = device();
    device.entries = exact(100);
    let request = PlanRequest::total(GIB);
    let fit = max_fit(&request, Pages::Mixed, &device, &article());
    assert_eq!((fit.certain, fit.at_most), (100 * GIB, Some(100 * GIB)));
}

#[test]
fn an_iommu_makes_small_pages_of_a_start_within_a_page() {
    let mut host = article();
    host.platform.iommu = Some(true);
    let plan = fits(
        &adopted((1 << 40) + 65536, 4 * MIB, PageSize::M2),
        &device(),
        &host,
    );
    assert_eq!(plan.entries, (64, 64));
    let plan = fits(
        &adopted((1 << 40) + 65536, 4 * MIB, PageSize::M2),
        &device(),
        &article(),
    );
    assert_eq!(plan.entries, (3, 3));
}

#[test]
fn an_iommu_aligns_an_mr_no_further_than_its_length() {
    let mut host = article();
    let entries =
        |host: &Host, len| fits(&adopted(1 << 40, len, PageSize::G1), &device(), host).entries;
    assert_eq!(entries(&host, 512 * MIB), (1, 1));
    host.platform.iommu = Some(true);
    assert_eq!(entries(&host, 512 * MIB), (1, 1));
    assert_eq!(entries(&host, GIB + 512 * MIB), (2, 2));
    let mut device = device();
    device.page_size_cap = PageSizes(0x4020_1000);
    let plan = fits(&adopted(1 << 40, 512 * MIB, PageSize::G1), &device, &host);
    assert_eq!(plan.entries, (256, 256));
}

#[test]
fn kernels_before_5_9_take_no_page_longer_than_the_mr() {
    // Half a page on both sides of a border of 8 KiB, and not of 16 KiB.
    let request = adopted(0x1_0000_1000, 8192, PageSize::M2);
    let entries = |kernel| fits(&request, &device(), &host(kernel, Driver::InTree)).entries;
    assert_eq!(entries("5.8.18"), (2, 2));
    assert_eq!(entries("5.9"), (1, 1));
}

#[test]
fn no_mr_is_longer_than_linux_pins() {
    let device = Device::unlimited("test", Family::Other);
    let fixed = host("6.15", Driver::InTree);
    let mut request = on(40 * TIB, PageSize::G1);
    let plan = fits(&request, &device, &fixed);
    assert_eq!((plan.mrs, plan.chunk), (3, 16 * TIB - GIB));
    request.single = true;
    let refusal = refused(&request, &device, &fixed);
    assert_eq!(refusal.code, Code::TooLong);
    let forced = refusal.plan.unwrap();
    assert_eq!(forced.first_failure, Some((0, Errno::EINVAL)));
}

/// Where others may hold MRs nobody knows how many are left: that alone makes no chunk longer.
#[test]
fn an_unknown_use_of_mrs_keeps_the_power_of_two() {
    let mut device = device();
    device.used = Used::UNKNOWN;
    let request = on(896 * GIB, PageSize::M2);
    let plan = fits(&request, &device, &host("6.1.192", Driver::InTree));
    assert_eq!((plan.mrs, plan.chunk), (448, 2 * GIB));
}

/// Whatever is to be left free, in numbers or per cent: where that alone is in the way, the refusal says so and how much can be
/// left, and that is taken.
#[test]
fn a_refusal_by_what_is_left_says_how_much_could_be() {
    for (bytes, leave, kept, most) in [
        (
            896 * GIB,
            Leave::PerCent(100),
            "--leave 100% keeps 33,554,431: 0 are left",
            33_095_679,
        ),
        (
            896 * GIB,
            Leave::Entries(33_554_430),
            "--leave 33554430 keeps 33,554,430: 1 is left",
            33_095_679,
        ),
        (
            60 * TIB,
            Leave::PerCent(7),
            "--leave 7% keeps 2,348,811: 31,205,620 are left",
            2_097_151,
        ),
    ] {
        let request = PlanRequest {
            leave,
            ..on(bytes, PageSize::M2)
        };
        let refusal = refused(&request, &device(), &article());
        assert_eq!(refusal.code, Code::OverBudget);
        assert!(refusal.text.contains(kept), "{refusal}");
        assert!(refusal.text.contains("has 33,554,431 free"), "{refusal}");
        assert_eq!(refusal.ways_out[0], WayOut::Leave(most));
        let request = refusal.ways_out[0].applied(&request).unwrap();
        assert_eq!(fits(&request, &device(), &article()).verdict, Verdict::Fits);
    }
    // Where the table is too small anyway, nothing that could be left leads out.
    let request = PlanRequest {
        leave: Leave::PerCent(50),
        ..on(896 * GIB, PageSize::K4)
    };
    let refusal = refused(&request, &device(), &article());
    let leave = |way: &WayOut| matches!(way, WayOut::Leave(_));
    assert!(!refusal.ways_out.iter().any(leave), "{refusal}");
}

/// With just as many entries as are needed, none is left, and the flag is dropped.
#[test]
fn nothing_can_be_left() {
    let small = Device {
        entries: exact(512),
        ..device()
    };
    let request = PlanRequest {
        leave: Leave::Entries(1),
        ..on(GIB, PageSize::M2)
    };
    let refusal = refused(&request, &small, &article());
    assert_eq!(refusal.ways_out[0], WayOut::Leave(0));
    let request = refusal.ways_out[0].applied(&request).unwrap();
    assert_eq!(request.leave, Leave::Nothing);
}
