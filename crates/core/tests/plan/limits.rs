//! What the device and the host allow.

use crate::*;

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
fn pages_of_no_pool_need_memory_of_the_host() {
    let source = || Source::new(Kind::Documented, "MemAvailable, with SwapFree");
    let mut host = article();
    let thp = |bytes| PlanRequest::total(bytes).pages(Pages::Thp);
    for request in [on(60 * GIB, PageSize::K4), thp(60 * GIB)] {
        assert_eq!(fits(&request, &device(), &host).verdict, Verdict::Fits);
        host.memory = Some(Limit::interval(60 * GIB, Some(70 * GIB), source()));
        assert_eq!(fits(&request, &device(), &host).verdict, Verdict::Fits);
        host.memory = Some(Limit::interval(60 * GIB - 1, Some(70 * GIB), source()));
        let plan = fits(&request, &device(), &host);
        assert_eq!(plan.verdict, Verdict::Undecided);
        host.memory = Some(Limit::exact(22 * GIB + 1, source()));
        let refusal = refused(&request, &device(), &host);
        assert_eq!((refusal.code, refusal.errno), (Code::MemoryShort, None));
        assert_eq!(
            refusal.text,
            "needs 60 GiB of memory, 22 GiB can be had: the kernel would kill a process for the rest"
        );
        assert_eq!(refusal.max_fit.unwrap().certain, 22 * GIB);
        // Pages that stand in pools are memory already.
        let huge = &refusal.ways_out[0];
        assert!(matches!(huge, WayOut::Pages(a) if a.pages == Pages::Only(PageSize::M2)));
        host.memory = None;
    }
    host.memory = Some(Limit::exact(GIB, source()));
    for request in [
        on(60 * GIB, PageSize::M2),
        adopted(4096, 2 * GIB, PageSize::K4),
    ] {
        let plan = fits(&request, &device(), &host);
        assert_eq!(plan.check(hugemr_core::plan::Resource::Memory), None);
    }
    let mut twice = on(GIB, PageSize::K4);
    twice.processes = 2;
    assert_eq!(refused(&twice, &device(), &host).code, Code::MemoryShort);
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
fn the_largest_mixed_size_is_found() {
    let mut device = device();
    device.entries = exact(100);
    let request = PlanRequest::total(GIB);
    let fit = max_fit(&request, Pages::Mixed, &device, &article());
    assert_eq!((fit.certain, fit.at_most), (100 * GIB, Some(100 * GIB)));
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
