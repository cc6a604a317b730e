//! Defects of kernels and drivers, and what lies within a page.

use crate::*;

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
fn a_start_within_the_step_counts_when_mrs_are_scarce() {
    // From 4 KiB on 2 GiB are two chunks of 2 GiB: one longer chunk is needed.
    let mut device = device();
    device.max_mr = exact(1);
    let old = host("6.8", vendor(1, 5, 1));
    let request = adopted((1 << 40) + 4096, 2 * GIB, PageSize::M2);
    assert_eq!(fits(&request, &device, &old).mrs, 1);
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
