//! From the command line to a request and to facts: the one place where flags meet each other.

use hugemr_core::device::{Device, Family};
use hugemr_core::fact::Limit;
use hugemr_core::host::{Driver, Host};
use hugemr_core::plan::{PlanRequest, Wish};
use hugemr_core::size::Bytes;

use crate::args::{Budget, FactArgs, Memlock, Size, WhatArgs};
use crate::exit::Failure;

/// The request of a command line.
pub(crate) fn request(what: &WhatArgs) -> PlanRequest {
    let wish = match what.sizes.as_slice() {
        [one] => Wish::Total(one.bytes),
        several => Wish::Buffers(several.iter().map(|size| size.bytes).collect()),
    };
    let mut request = PlanRequest::new(wish).pages(what.pages);
    request.chunk = what.shape.chunk.as_ref().map(|size| size.bytes);
    request.block = what.shape.block.as_ref().map(|size| size.bytes);
    request.max_mr_size = what.facts.max_mr_size.as_ref().map(|size| size.bytes);
    request.max_mr_size_from = Some(what.facts.source("--max-mr-size"));
    request.single = what.shape.one_mr;
    request.devices = what.shape.devices;
    request.pds = what.shape.pds;
    request.leave = what.shape.leave;
    request.others.clone_from(&what.shape.other);
    request
}

/// Sizes in decimal units, for a note: nearly always `GiB` was meant.
pub(crate) fn decimal_notes(what: &WhatArgs) -> Vec<String> {
    let shape = &what.shape;
    let optional = [&shape.chunk, &shape.block, &what.facts.max_mr_size];
    let all = what.sizes.iter().chain(optional.into_iter().flatten());
    all.filter_map(decimal_note).collect()
}

/// The note for one size; `None` for one in binary units.
pub(crate) fn decimal_note(size: &Size) -> Option<String> {
    if !size.decimal {
        return None;
    }
    let unit = size
        .text
        .trim_start_matches(|c: char| !c.is_ascii_alphabetic());
    let binary = format!("{}i{}", &unit[..1], &unit[1..]);
    Some(format!(
        "{} is taken as powers of ten: {} B; for powers of two write {}",
        size.text,
        Bytes(size.bytes).0,
        size.text.replace(unit, &binary)
    ))
}

/// Facts that cannot both be true.
pub(crate) fn consistent(facts: &FactArgs, device: &Device, host: &Host) -> Result<(), Failure> {
    let given = facts.kernel.is_some() || facts.driver.is_some();
    let in_tree = device.family == Family::Erdma && host.platform.driver == Driver::InTree;
    match host.platform.kernel {
        // Linux 6.1 is the first with drivers/infiniband/hw/erdma.
        Some(kernel) if given && in_tree && kernel.series() < (6, 1) => {
            Err(Failure::usage(format_args!(
                "--kernel {kernel}, --driver in-tree: Linux has erdma from 6.1 on; before it the driver is the vendor's"
            )))
        }
        _ => Ok(()),
    }
}

/// Puts what the user knows better over what was read.
pub(crate) fn apply_facts(facts: &FactArgs, device: &mut Device, host: &mut Host) {
    let given = |flag| facts.source(flag);
    if let Some(n) = facts.max_mr {
        device.max_mr = Limit::exact(n, given("--max-mr"));
    }
    match facts.budget {
        Some(Budget::Unknown) => device.entries = Limit::unknown(given("--budget")),
        Some(Budget::Between(low, high)) => {
            device.entries = Limit::interval(low, Some(high), given("--budget"));
        }
        None => {}
    }
    if let Some(kernel) = facts.kernel {
        host.platform.kernel = kernel.0;
        host.platform.sg_fix = None;
        // Tried under the kernel that is here, and another one is asked about.
        host.platform.large_pages = None;
    }
    if let Some(driver) = facts.driver {
        host.platform.driver = driver;
    }
    match facts.memlock {
        Some(Memlock::Unlimited) => host.memlock = Some(Limit::unlimited(given("--memlock"))),
        Some(Memlock::Bytes(n)) => host.memlock = Some(Limit::exact(n, given("--memlock"))),
        None => {}
    }
}
