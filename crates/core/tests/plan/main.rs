//! The planner: the article's experiment, and the rules one by one.

mod defects;
mod leave;
mod limits;
mod requests;

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

fn adopted(addr: u64, len: u64, page: PageSize) -> PlanRequest {
    PlanRequest::new(Wish::Adopted { addr, len }).pages(Pages::Only(page))
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
