//! Ways out of a refused plan, as they are on this host and for this command, with the command lines.

use hugemr_core::plan::{
    Code, Pages, PlanRequest, Refusal, Verdict, WayOut, plan, reserve_command,
};
use hugemr_core::size::{Bytes, GIB, MIB, PageSize};
use hugemr_host::facts::Memory;
use hugemr_host::pools::Pools;
use hugemr_host::root::Root;

use super::plan::Asked;
use crate::args::WhatArgs;
use crate::render::words;
use crate::typed::Change;

/// One way out.
pub(crate) struct Way {
    pub(crate) way: WayOut,
    /// Complete command lines, each of which goes this way; none where it is no command.
    pub(crate) commands: Vec<String>,
}

/// What `--reserve` could add to the pools where that is not enough.
pub(crate) struct Reservable {
    /// Pages that there would be at most, free ones among them; `None` where something else is in the way.
    pub(crate) pages: Option<(PageSize, u64)>,
    /// The size for which they are enough, bytes, and its command; `None`: none.
    pub(crate) smaller: Option<(u64, String)>,
}

/// The ways that are open: a plan that would be undecided is none where `--strict` takes that as no; none takes more memory than
/// the host that it is to be mapped on can spare, for pools or without. Where none is left for the whole size, the most that
/// would fit.
pub(crate) fn open(verb: &str, what: &WhatArgs, asked: &Asked, refusal: &Refusal) -> Vec<Way> {
    let reservable = reservable(&refusal.ways_out);
    let there = there(asked);
    let is_open = |way: &&WayOut| match way {
        WayOut::Reserve { .. } => reservable,
        way => match way.applied(&asked.request) {
            Some(request) => passes(&request, what, asked, there),
            None => true,
        },
    };
    let open = refusal.ways_out.iter().filter(is_open);
    let mut open: Vec<Way> = open
        .map(|way| Way {
            commands: commands(way, verb, what),
            way: way.clone(),
        })
        .collect();
    let fits = there.and_then(|there| in_memory(verb, what, asked, refusal, there));
    if let Some((bytes, way)) = fits {
        let is_less = |way: &Way| matches!(way.way, WayOut::Smaller(less) if less < bytes);
        if open.iter().all(is_less) {
            open.push(way);
        }
    }
    open
}

/// What this host can spare for pages of no pool; `None` where the plan is for another host, or that is not known.
fn there(asked: &Asked) -> Option<u64> {
    asked.host.nodes.as_ref()?;
    Memory::read(&Root::real()).spare()
}

fn passes(request: &PlanRequest, what: &WhatArgs, asked: &Asked, there: Option<u64>) -> bool {
    match plan(request, &asked.device, &asked.host) {
        Ok(plan) => {
            let is_there = there.is_none_or(|there| plan.of_no_pool() <= there);
            is_there && (plan.verdict != Verdict::Undecided || !what.strict)
        }
        Err(_) => false,
    }
}

/// The size that the memory of this host is enough for, on the first pages of no pool for which nothing else is in the way.
fn in_memory(
    verb: &str,
    what: &WhatArgs,
    asked: &Asked,
    refusal: &Refusal,
    there: u64,
) -> Option<(u64, Way)> {
    let unit = if there >= 4 * GIB { GIB } else { MIB };
    let bytes = there / unit * unit;
    let way = WayOut::Smaller(bytes);
    if !matches!(refusal.code, Code::HugepageShort | Code::MemoryShort) {
        return None;
    }
    let mut roomy = asked.host.clone();
    roomy.memory = None;
    let own = asked.request.pages;
    let pages = [own, Pages::Thp, Pages::Only(PageSize::K4)];
    pages.into_iter().find_map(|pages| {
        let mut request = asked.request.clone();
        request.pages = pages;
        let whole = plan(&request, &asked.device, &roomy).ok()?;
        if whole.of_no_pool() <= there {
            return None;
        }
        let request = way.applied(&request)?;
        passes(&request, what, asked, Some(there)).then(|| {
            let set = (pages != own).then(|| ("pages", Some(words::pages_flag(pages))));
            let change = Change {
                size: Some(Bytes(bytes).argument()),
                set: set.into_iter().collect(),
                ..Change::default()
            };
            let commands = vec![what.typed.line(verb, &change)];
            let way = way.clone();
            (bytes, Way { way, commands })
        })
    })
}

/// Whether the memory that this host can spare is enough for all pages that are missing.
fn reservable(ways: &[WayOut]) -> bool {
    let root = Root::real();
    let sizes = Pools::read(&root).sizes();
    let missing = |way: &WayOut| match way {
        WayOut::Reserve { page, short, .. } => Some((*page, *short)),
        _ => None,
    };
    let all: Vec<(PageSize, u64)> = ways.iter().filter_map(missing).collect();
    let bytes = all
        .iter()
        .map(|(page, short)| page.bytes().saturating_mul(*short))
        .fold(0, u64::saturating_add);
    let there = Memory::read(&root).spare();
    all.iter().all(|(page, _)| sizes.contains(page)) && there.is_none_or(|there| bytes <= there)
}

fn commands(way: &WayOut, verb: &str, what: &WhatArgs) -> Vec<String> {
    let again = |change: Change| what.typed.line(verb, &change);
    let with = |flag, value| Change {
        set: vec![(flag, Some(value))],
        ..Change::default()
    };
    match way {
        WayOut::Pages(other) => vec![again(with("pages", words::pages_flag(other.pages)))],
        WayOut::Smaller(bytes) => vec![again(Change {
            size: Some(Bytes(*bytes).argument()),
            ..Change::default()
        })],
        WayOut::LongerChunks(bytes) | WayOut::ShorterChunks(bytes) => vec![again(Change {
            // Shorter MRs are not one MR.
            without: vec!["one-mr"],
            ..with("chunk", Bytes(*bytes).argument())
        })],
        WayOut::OwnChunks(_) => vec![again(Change {
            without: vec!["one-mr", "chunk"],
            ..Change::default()
        })],
        WayOut::Leave(0) => vec![again(Change {
            without: vec!["leave"],
            ..Change::default()
        })],
        WayOut::Leave(entries) => vec![again(with("leave", entries.to_string()))],
        WayOut::Reserve { page, need, .. } => {
            let raised = Change {
                set: vec![("reserve", None)],
                ..Change::default()
            };
            let mut commands = vec![reserve_command(*page, *need)];
            if what.shape.devices == 1 && what.shape.pds == 1 {
                commands.push(what.typed.line("register", &raised));
            }
            commands
        }
        _ => Vec::new(),
    }
}
