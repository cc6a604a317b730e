//! The kernel and the driver: known defects, versions, compat_mode, IOMMU.

use crate::device::Family;
use crate::doctor::{Examined, Finding, Iommu, Verbs};
use crate::host::{Driver, Platform};
use crate::plan::Plan;
use crate::quirk::{Presence, Quirk, QuirkState, states};
use crate::size::{Bytes, GIB, PageSize};

/// How the vendor's bundle is upgraded, by the vendor's documentation. The host name is resolved inside the instance.
const UPGRADE: [&str; 2] = [
    "curl -fLO mirrors.cloud.aliyuncs.com/erdma/env_setup.sh && sudo bash env_setup.sh",
    "then, with all its users stopped: sudo rmmod erdma; sudo modprobe erdma; eadm ver",
];

/// Whether there is an eRDMA driver, or a simulated one, whose defects can be judged.
fn has_driver(e: &Examined<'_>) -> bool {
    let facts = e.case.facts;
    let function = facts.functions.iter().flatten().any(|f| f.erdma);
    let asked = matches!(e.case.verbs, Verbs::Simulated(_) | Verbs::Usable(_));
    asked || function || facts.driver.loaded == Some(true)
}

fn is_vendor(platform: &Platform) -> bool {
    matches!(platform.driver, Driver::Vendor(_))
}

/// Known defects.
pub(super) fn quirks(e: &Examined<'_>, out: &mut Vec<Finding>) {
    let mut upgrade_said = false;
    for state in states(&e.case.host.platform, e.case.device.family) {
        let of_driver = !matches!(state.quirk, Quirk::ScatterBoundary | Quirk::NoLargePages);
        if of_driver && !has_driver(e) {
            continue;
        }
        if !state.counts() {
            let text = format!("{}: {}", state.quirk.name(), state.why);
            out.push(Finding::fine(state.quirk.code(), text));
            continue;
        }
        if let Some(plan) = e.plan()
            && !concerns(&state, plan, e)
        {
            let text = format!("{}: there ({}), not met", state.quirk.name(), state.why);
            out.push(Finding::fine(state.quirk.code(), text));
            continue;
        }
        match state.quirk {
            // A way round a limit, and no harm; the other has a check of its own.
            Quirk::DisguisedSize | Quirk::IommuPadding => {}
            _ => out.push(defect(e, &state, &mut upgrade_said)),
        }
    }
}

/// Whether an MR of this wish, as long as the device allows, would meet it.
fn concerns(state: &QuirkState, plan: &Plan, e: &Examined<'_>) -> bool {
    let longest = e.case.device.max_mr_size.at_most().unwrap_or(64 * GIB);
    let len = longest.min(plan.mapped);
    let mut pages = plan.segments.iter().map(|segment| segment.page);
    pages.any(|page| state.can_hit(len, page, len.div_ceil(page.bytes())))
}

fn defect(e: &Examined<'_>, state: &QuirkState, upgrade_said: &mut bool) -> Finding {
    let platform = &e.case.host.platform;
    let head = format!("{}: {}", state.quirk.name(), state.quirk.effect());
    let sure = state.presence == Presence::Present;
    let mut finding = match state.quirk {
        Quirk::ContiguousTable if !sure => Finding::unknown(state.quirk.code(), head),
        _ => Finding::risk(state.quirk.code(), head),
    };
    finding = finding.seen(if sure {
        format!("{}   {}", state.why, state.quirk.source())
    } else {
        format!(
            "{}: counts as affected   {}",
            state.why,
            state.quirk.source()
        )
    });
    if let Some(raw) = raw(e).filter(|_| e.case.device.family == Family::Erdma) {
        finding = finding.seen(format!("driver (unverified): {raw}"));
    }
    let bundle = match state.quirk {
        Quirk::WireLength => "1.5.7",
        _ => "1.5.2",
    };
    finding = match state.quirk {
        Quirk::ScatterBoundary | Quirk::WireLength if is_vendor(platform) => {
            let finding = finding.fix(format!(
                "installer bundle {bundle} or later (it is there already: say so by --driver {bundle})"
            ));
            if std::mem::replace(upgrade_said, true) {
                finding
            } else {
                UPGRADE
                    .iter()
                    .fold(finding, |finding, line| finding.fix(*line))
            }
        }
        _ => finding.fix(state.lifted_by),
    };
    let cap = e.plan().map_or_else(
        || {
            state
                .cap(PageSize::M2)
                .map(|_| "MRs of at most 2 GiB".to_owned())
        },
        |plan| {
            Some(format!(
                "MRs of {}, as hugemr plans them",
                Bytes(plan.chunk)
            ))
        },
    );
    match cap {
        Some(cap) if state.cap(PageSize::M2).is_some() => finding.fix(format!("until then: {cap}")),
        _ => finding,
    }
}

fn raw(e: &Examined<'_>) -> Option<String> {
    let candidates = e.case.facts.driver.candidates.iter();
    let texts: Vec<String> = candidates
        .map(|candidate| format!("{} {}", candidate.source, candidate.text))
        .collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

/// Which driver, and the texts that may say its version.
pub(super) fn versions(e: &Examined<'_>, out: &mut Vec<Finding>) {
    let facts = e.case.facts;
    let kernel = match (&facts.kernel.release, facts.kernel.upstream()) {
        (Some(release), Some(version)) => format!("kernel {release} ({version})"),
        (Some(release), None) => format!("kernel {release} (upstream version hidden)"),
        (None, _) => "kernel unknown".to_owned(),
    };
    out.push(Finding::fine("kernel", kernel));
    if !has_driver(e) || e.case.device.family != Family::Erdma {
        return;
    }
    let kind = match e.case.host.platform.driver {
        Driver::InTree => "in-tree driver".to_owned(),
        Driver::Vendor(None) => "vendor's driver, bundle unknown".to_owned(),
        Driver::Vendor(Some(bundle)) => format!("vendor's driver, bundle {bundle}"),
        Driver::Unknown => "driver unknown".to_owned(),
    };
    let finding = Finding::fine("driver", kind);
    out.push(match raw(e) {
        Some(raw) => finding.seen(format!("{raw} (unverified: none is the bundle's number)")),
        None => finding,
    });
}

/// The vendor driver's compat_mode.
pub(super) fn compat_mode(e: &Examined<'_>, out: &mut Vec<Finding>) {
    const FILE: &str = "/sys/module/erdma/parameters/compat_mode";
    let driver = &e.case.facts.driver;
    match (driver.vendor, driver.compat_mode) {
        (_, Some(true)) => out.push(
            Finding::risk(
                "compat_mode",
                "compat_mode=Y: every MR is remotely writable, whatever flags you pass (vendor driver)",
            )
            .seen(format!("Y   {FILE}"))
            .so("a peer that knows an rkey can write the memory, of read-only MRs too")
            .fix("if no program needs it: options erdma compat_mode=N in /etc/modprobe.d, and reload the driver"),
        ),
        (_, Some(false)) => out.push(Finding::fine("compat_mode", "compat_mode=N")),
        (Some(true), None) => out.push(
            Finding::unknown("compat_mode", "compat_mode of the vendor driver cannot be read")
                .seen(FILE)
                .so("with Y every MR is remotely writable")
                .fix(format!("sudo cat {FILE}")),
        ),
        _ => {}
    }
}

/// Translation of the device's DMA.
pub(super) fn iommu(e: &Examined<'_>, out: &mut Vec<Finding>) {
    let state = Quirk::IommuPadding.on(&e.case.host.platform, e.case.device.family);
    let met = e.plan().is_none_or(|plan| concerns(&state, plan, e));
    if !state.counts() || !has_driver(e) || !met {
        return;
    }
    let functions = e.case.facts.functions.iter().flatten();
    let of = |mode: Iommu| -> Vec<String> {
        let of_mode = functions.clone().filter(|f| f.erdma && f.iommu == mode);
        of_mode.map(|f| f.address.clone()).collect()
    };
    out.push(if state.presence == Presence::Present {
        Finding::risk(
            "iommu",
            format!(
                "the device's DMA is translated: {}",
                Quirk::IommuPadding.effect()
            ),
        )
        .seen(format!(
            "DMA: {}   /sys/kernel/iommu_groups/*/type",
            of(Iommu::Translated).join(", ")
        ))
        .fix("iommu=pt in the boot line; until then MRs of at most 2 GiB")
    } else {
        let unknown = of(Iommu::Unknown);
        let who = if unknown.is_empty() {
            "no eRDMA function was seen on the PCI bus".to_owned()
        } else {
            format!(
                "{}: no readable type   /sys/kernel/iommu_groups/*/type",
                unknown.join(", ")
            )
        };
        Finding::unknown(
            "iommu",
            "whether the device's DMA is translated is not known",
        )
        .seen(who)
        .so("MRs are kept below 4 GiB")
        .fix("cat /sys/kernel/iommu_groups/*/type (identity, or no group: not translated)")
    });
}
