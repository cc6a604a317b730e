//! `hugemr probe`: the limits of a device, found by trying, and saved.

use std::time::Instant;

use hugemr_core::device::Used;
use hugemr_core::fact::Limit;
use hugemr_core::limits::{Confidence, Learned, Seen};
use hugemr_core::probe::{End, Found, Options, Stop};
use hugemr_core::quirk::{Quirk, QuirkState};
use hugemr_core::size::{Bytes, Count, PageSize};
use hugemr_host::netlink;

use super::{remark, say};
use crate::args::{Memlock, ProbeCommand};
use crate::device::{self, Opened, Which, probe::Probed};
use crate::exit::{Ended, Exit, Failure};
use crate::limits::{self, NotSaved, Saved};
use crate::progress::Trying;
use crate::render::{probe as render, words};
use crate::signals::Watch;
use crate::typed::Change;
use crate::{json, request};

/// Entries of one MR where the driver's table must be one block (Linux erdma_verbs.c 6.1).
const CONTIGUOUS: u64 = 524_288;

/// A probe with all that is said of it.
pub(crate) struct Report {
    pub(crate) device: hugemr_core::device::Device,
    pub(crate) which: Which,
    /// Flags that say what a simulated device is.
    pub(crate) made_up: Vec<&'static str>,
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
    let start = Instant::now();
    let (opened, mut host) = device::open(command.device.as_deref(), &command.facts)?;
    no_beliefs(command, &opened)?;
    let made_up = device::made_up(&opened, &command.facts);
    let mut told = opened.device();
    let name = told.name.clone();
    request::apply_facts(&command.facts, &mut told, &mut host);
    if host.platform.iommu == Some(true) {
        let text = format!(
            "{name} cannot be probed: an IOMMU translates its DMA, so how many entries an MR takes cannot be told from here"
        );
        return no(command, &text);
    }
    let others = device::probe::others(&opened);
    if !command.beside_others && others.mrs.0 > 0 && has_users(&opened, &name) {
        let text = format!(
            "not probed: others hold {} on {name}, and their registrations could fail meanwhile\n{}\n  way out    stop them; or accept that, and an interval: --beside-others",
            Count(others.mrs.0, "MR"),
            who(&opened, &name)
        );
        return no(command, &text);
    }
    if let Some(text) = pinning(command, &opened, host.memlock.as_ref()) {
        return no(command, &text);
    }
    let mr = match &command.mr {
        Some(size) if size.bytes < PageSize::K4.bytes() => {
            return Err(Failure::usage("--mr: an MR has at least 4 KiB"));
        }
        Some(size) => size.bytes,
        None => device::probe::usual_mr(&opened),
    };
    if !command.dry_run && made_up.is_empty() {
        limits::check(&command.facts.limits, &opened.which().identity.device)?;
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
            "probing {name} for up to {}: until it ends, registrations of other programs on this device can fail",
            words::deadline(command.deadline)
        ));
    }
    let trying = Trying::start(command.json);
    let begin = Instant::now();
    let family = told.family;
    let contiguous = Quirk::ContiguousTable.on(&host.platform, family).counts();
    let options = Options {
        up_to: command.up_to,
        per_mr: told
            .entries_per_mr
            .known()
            .or(contiguous.then_some(CONTIGUOUS)),
        count: command.count_mrs.then(|| most_mrs(&told.max_mr)),
        deadline: Some(command.deadline),
        // Of the command, which has looked at device and file before.
        clock: &|| start.elapsed(),
        cancelled: &|| watch.is_stopped(),
        others: &|| device::probe::others(&opened),
        progress: &|progress| trying.tell(progress),
    };
    let Probed {
        found,
        sent,
        no_large,
    } = device::probe::run(&opened, mr, &options).map_err(Failure::system)?;
    drop(trying);
    let report = Report {
        device: told,
        which: opened.which(),
        made_up,
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
    let why_not = if command.dry_run {
        Some("--dry-run".to_owned())
    } else if nothing {
        Some("nothing was found".to_owned())
    } else if !report.made_up.is_empty() {
        Some(format!(
            "it was said what the device is ({}), so this is none of its limits",
            report.made_up.join(", ")
        ))
    } else {
        None
    };
    let saved = match why_not {
        Some(_) => None,
        None => limits::save(
            &command.facts.limits,
            &report.which,
            &seen(found),
            confidence(found),
        ),
    };
    let not_saved = match &saved {
        Some(Ok(_)) => None,
        Some(Err(why)) => Some(NotSaved::failure(why).what),
        None => Some(why_not.unwrap_or_else(|| {
            let device = &report.which.identity.device;
            limits::no_place(device).to_owned()
        })),
    };
    if command.json {
        json::write(&json::probe(report, saved.as_ref(), not_saved.as_deref()))?;
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
            None if nothing => {}
            None => say(&format!("not saved: {}", not_saved.unwrap_or_default()))?,
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
        End::Nothing(_) | End::Failed(_) => Exit::System,
        // In whatever phase it came.
        _ if found.stopped == Some(Stop::Cancelled) => Exit::System,
        _ if found.left > 0 => Exit::System,
        _ => Exit::Yes,
    })
}

/// Refuses limits that are to be found, and would be typed to no effect. A config file may have them, for other commands.
fn no_beliefs(command: &ProbeCommand, opened: &Opened) -> Result<(), Failure> {
    let facts = &command.facts;
    let typed = |flag, given| given && !facts.configured.contains(&flag);
    let made_up = device::made_up(opened, facts);
    if typed("--max-mr-size", facts.max_mr_size.is_some()) {
        return Err(Failure::usage(
            "--max-mr-size: the length that the device itself states is tried, and no other",
        )
        .with("way out    the length of the MRs that fill the table: --mr SIZE"));
    }
    if typed("--budget", facts.budget.is_some()) && !made_up.contains(&"--budget") {
        return Err(Failure::usage(
            "--budget: how many entries the table has is to be found; only what a simulated device is can be said, as one number",
        )
        .with("way out    entries that may be held at once: --up-to N"));
    }
    let counts = command.count_mrs || made_up.contains(&"--max-mr");
    if typed("--max-mr", facts.max_mr.is_some()) && !counts {
        return Err(
            Failure::usage("--max-mr: nothing is counted that it could bound")
                .with("way out    --count-mrs counts the MRs, up to one more than N"),
        );
    }
    Ok(())
}

/// An answer that is no, with what else is to be said on lines of its own.
fn no(command: &ProbeCommand, text: &str) -> Ended {
    if !command.json {
        say(text)?;
        return Ok(Exit::No);
    }
    let mut lines = text.lines().map(str::trim);
    let what = lines.next().unwrap_or_default();
    Err(Failure {
        exit: Exit::No,
        more: lines.map(str::to_owned).collect(),
        ..Failure::usage(what)
    })
}

fn seen(found: &Found) -> Seen {
    let within = found.longest.and_then(|longest| longest.within);
    let registered = found.longest.filter(|longest| longest.refused.is_none());
    let longest = registered.map(|longest| longest.len);
    let longest = longest.or(within.map(|(worked, _)| worked));
    let worked = found.per_mr.0.saturating_mul(PageSize::K4.bytes());
    Seen {
        entries: found.entries,
        per_mr: found.per_mr,
        mrs: found.max_mr.unwrap_or((found.mrs, None)),
        longest: longest.or((worked > 0).then_some(worked)),
        refused: within.map(|(_, refused)| refused),
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
    if wanted.is_some_and(|wanted| wanted <= allowed) {
        return None;
    }
    let typed = |set, without| {
        let change = Change {
            set,
            without,
            ..Change::default()
        };
        command.typed.line("probe", &change)
    };
    // The only one there is need not be typed.
    let device = match &command.device {
        Some(_) => Vec::new(),
        None => vec![("device", Some(opened.which().named))],
    };
    let mut ways = if device::probe::is_simulated(opened) {
        vec![typed(device, vec!["memlock"])]
    } else {
        let root = typed(device, vec!["memlock"]);
        vec![
            format!("as root: sudo {root}"),
            "ulimit -l unlimited".to_owned(),
        ]
    };
    if allowed > 0 {
        ways.push(format!("--up-to {allowed}"));
    }
    Some(format!(
        "not probed: memlock {} allows {} of 4 KiB, each registration is pinned anew\n  way out    {}",
        Bytes(stated),
        Count(allowed, "entry"),
        ways.join("; or: ")
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
