//! `hugemr probe`: the limits of a device, found by trying, and saved.

use std::time::Instant;

use hugemr_core::device::Used;
use hugemr_core::fact::Limit;
use hugemr_core::limits::{Confidence, Identity, Learned, Seen};
use hugemr_core::probe::{End, Found, Options, Stop};
use hugemr_core::quirk::{Quirk, QuirkState};
use hugemr_core::size::{Bytes, Count, PageSize};
use hugemr_host::netlink;

use super::{remark, say};
use crate::args::{Memlock, ProbeCommand};
use crate::device::{self, Opened, probe::Probed};
use crate::exit::{Ended, Exit, Failure};
use crate::limits::{self, NotSaved, Saved};
use crate::render::probe as render;
use crate::signals::Watch;
use crate::{json, request};

/// Entries of one MR where the driver's table must be one block (Linux erdma_verbs.c 6.1).
const CONTIGUOUS: u64 = 524_288;

/// A probe with all that is said of it.
pub(crate) struct Report {
    pub(crate) device: hugemr_core::device::Device,
    pub(crate) identity: Identity,
    pub(crate) found: Found,
    /// The length that the device got for the longest MR.
    pub(crate) sent: Option<u64>,
    /// As `--up-to` allows.
    pub(crate) up_to: Option<u64>,
    /// Whether longer MRs than those that filled the table are possible.
    pub(crate) longer: bool,
    pub(crate) no_large: Option<String>,
    /// The defect by which wrong lengths are sent, as the versions tell it.
    pub(crate) wire_length: QuirkState,
    /// What others held when it began.
    pub(crate) others: Used,
    pub(crate) seconds: f64,
    /// MRs and entries that a simulated device holds afterwards.
    pub(crate) left: Option<(u64, u64)>,
}

pub(crate) fn run(command: &ProbeCommand) -> Ended {
    let (opened, mut host) = device::open(command.device.as_deref(), &command.facts)?;
    let mut told = opened.device();
    let name = told.name.clone();
    request::apply_facts(&command.facts, &mut told, &mut host);
    if host.platform.iommu == Some(true) {
        return no(&format!(
            "{name} cannot be probed: an IOMMU translates its DMA, so how many entries an MR takes cannot be told from here"
        ));
    }
    let others = device::probe::others(&opened);
    if !command.beside_others && others.mrs.0 > 0 && has_users(&opened, &name) {
        return no(&format!(
            "not probed: others hold {} on {name}, and their registrations could fail meanwhile\n{}\n  way out    stop them; or accept that, and an interval: --beside-others",
            Count(others.mrs.0, "MR"),
            who(&opened, &name)
        ));
    }
    if let Some(text) = pinning(command, &opened, host.memlock.as_ref()) {
        return no(&text);
    }
    let mr = match &command.mr {
        Some(size) if size.bytes < PageSize::K4.bytes() => {
            return Err(Failure::usage("--mr: an MR has at least 4 KiB"));
        }
        Some(size) => size.bytes,
        None => device::probe::usual_mr(&opened),
    };
    if !command.dry_run {
        limits::check(&command.facts.limits, &opened.identity().device)?;
    }
    let longest = told.max_mr_size.at_most();
    if let Some(longest) = longest.filter(|longest| mr > *longest) {
        remark(&format!(
            "note: --mr {} is longer than an MR of {name} may be: {} is taken",
            Bytes(mr),
            Bytes(longest)
        ));
    }
    let watch = Watch::start()?;
    if !command.json {
        remark(&format!(
            "probing {name} for up to {:?}: until it ends, registrations of other programs on this device can fail",
            command.deadline
        ));
    }
    let begin = Instant::now();
    let stop = || {
        if watch.is_stopped() {
            Some(Stop::Cancelled)
        } else if begin.elapsed() >= command.deadline {
            Some(Stop::Deadline)
        } else {
            None
        }
    };
    let family = told.family;
    let contiguous = Quirk::ContiguousTable.on(&host.platform, family).counts();
    let options = Options {
        up_to: command.up_to,
        per_mr: told
            .entries_per_mr
            .known()
            .or(contiguous.then_some(CONTIGUOUS)),
        count: command.count_mrs.then(|| most_mrs(&told.max_mr)),
        stop: &stop,
        others: &|| device::probe::others(&opened),
        progress: &|_| {},
    };
    let Probed {
        found,
        sent,
        no_large,
    } = device::probe::run(&opened, mr, &options).map_err(Failure::system)?;
    let report = Report {
        device: told,
        identity: opened.identity(),
        found,
        sent,
        up_to: command.up_to,
        longer: longest.is_none_or(|longest| mr < longest),
        no_large,
        wire_length: Quirk::WireLength.on(&host.platform, family),
        others,
        seconds: begin.elapsed().as_secs_f64(),
        left: device::probe::left(&opened),
    };
    finish(command, &report)
}

fn finish(command: &ProbeCommand, report: &Report) -> Ended {
    let found = &report.found;
    let nothing = matches!(found.end, End::Nothing(_)) || found.entries.0 == 0;
    let saved = if command.dry_run || nothing {
        None
    } else {
        limits::save(
            &command.facts.limits,
            &report.identity,
            &seen(found),
            confidence(found),
        )
    };
    if command.json {
        json::write(&json::probe(report, saved.as_ref()))?;
    } else {
        say(&render::text(report))?;
        match &saved {
            Some(Ok(Saved {
                path,
                record,
                learned,
            })) => {
                if let Learned::Replaced(old) = learned {
                    say(&format!(
                        "this contradicts the {} known before, which it replaces",
                        limits::entries(*old, "table ")
                    ))?;
                }
                say(&format!(
                    "saved in {}: {}",
                    path.display(),
                    limits::entries(record.seen.entries, "table ")
                ))?;
            }
            Some(Err(_)) => {}
            None if command.dry_run => say("not saved (--dry-run)")?,
            None if nothing => {}
            None => say(&format!(
                "not saved: {}",
                limits::no_place(&report.identity.device)
            ))?,
        }
    }
    if let Some(Err(why)) = &saved {
        let failure = NotSaved::failure(why);
        return Err(Failure {
            told: command.json,
            ..failure
        });
    }
    Ok(match found.end {
        End::Nothing(_) | End::Failed(_) | End::Stopped(Stop::Cancelled) => Exit::System,
        _ if found.left > 0 => Exit::System,
        _ => Exit::Yes,
    })
}

/// An answer that is no.
fn no(text: &str) -> Ended {
    say(text)?;
    Ok(Exit::No)
}

fn seen(found: &Found) -> Seen {
    Seen {
        entries: found.entries,
        per_mr: found.per_mr,
        mrs: found.max_mr.unwrap_or((found.mrs, None)),
        longest: found
            .longest
            .filter(|longest| longest.refused.is_none())
            .map(|longest| longest.len),
        large_pages: found.large_pages.map(|large| large.used),
    }
}

/// A bound that was confirmed is probed; the rest was only seen.
fn confidence(found: &Found) -> Confidence {
    if found.end == End::Full {
        Confidence::Probed
    } else {
        Confidence::Seen
    }
}

/// The most MRs to count: one more than there should be.
fn most_mrs(limit: &Limit) -> u64 {
    const MANY: u64 = 1 << 20;
    limit
        .at_most()
        .map_or(MANY, |n| n.saturating_add(1))
        .min(MANY)
}

/// Each registration is pinned anew: memlock must allow all of them together.
fn pinning(command: &ProbeCommand, opened: &Opened, limit: Option<&Limit>) -> Option<String> {
    let stated = match command.facts.memlock {
        Some(Memlock::Bytes(bytes)) => Some(bytes),
        Some(Memlock::Unlimited) => return None,
        None if device::probe::is_simulated(opened) => None,
        None => limit
            .filter(|limit| !limit.is_unlimited())
            .map(Limit::certain),
    }?;
    let allowed = stated / PageSize::K4.bytes();
    let wanted = command.up_to;
    let limits = command.facts.limits.quoted();
    let limits = limits.map_or_else(String::new, |file| format!(" --limits {file}"));
    let told = opened.device().name;
    let name = command.device.as_ref().unwrap_or(&told);
    if wanted.is_some_and(|wanted| wanted <= allowed) {
        return None;
    }
    Some(format!(
        "not probed: memlock {} allows {} of 4 KiB, each registration is pinned anew\n  way out    as root: sudo hugemr probe --device {}{limits}; or: ulimit -l unlimited; or: --up-to {allowed}",
        Bytes(stated),
        Count(allowed, "entry"),
        crate::typed::quoted(name.as_ref())
    ))
}

/// Whether a process, and not only the kernel, holds MRs. The kernel's own are few, and stay.
fn has_users(opened: &Opened, name: &str) -> bool {
    if device::probe::is_simulated(opened) {
        return true;
    }
    let own = std::process::id();
    netlink::mrs(name).is_ok_and(|mrs| {
        mrs.iter()
            .any(|mr| mr.kernel.is_none() && mr.pid != Some(own))
    })
}

fn who(opened: &Opened, name: &str) -> String {
    if device::probe::is_simulated(opened) {
        return "  held       as its profile says".to_owned();
    }
    let rows = super::usage::processes(name);
    let rows = rows.unwrap_or_default();
    let lines: Vec<String> = rows
        .iter()
        .filter(|row| row.pid != Some(std::process::id()))
        .map(|row| {
            format!(
                "  held       {}, {} by {}",
                Count(row.mrs, "MR"),
                Bytes(row.bytes),
                row.name()
            )
        })
        .collect();
    lines.join("\n")
}
