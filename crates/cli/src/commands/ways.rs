//! Ways out of a refused plan, as they are on this host and for this command, with the command lines.

use hugemr_core::plan::{PlanRequest, Refusal, Verdict, WayOut, plan, reserve_command};
use hugemr_core::size::{Bytes, PageSize};
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

/// The ways that are open: a plan that would be undecided is none where `--strict` takes that as no, and no pool is raised
/// beyond the memory that the host can spare.
pub(crate) fn open(verb: &str, what: &WhatArgs, asked: &Asked, refusal: &Refusal) -> Vec<Way> {
    let reservable = reservable(&refusal.ways_out);
    let is_open = |way: &&WayOut| match way {
        WayOut::Reserve { .. } => reservable,
        way => match way.applied(&asked.request) {
            Some(request) => passes(&request, what, asked),
            None => true,
        },
    };
    refusal
        .ways_out
        .iter()
        .filter(is_open)
        .map(|way| Way {
            commands: commands(way, verb, what),
            way: way.clone(),
        })
        .collect()
}

fn passes(request: &PlanRequest, what: &WhatArgs, asked: &Asked) -> bool {
    match plan(request, &asked.device, &asked.host) {
        Ok(plan) => plan.verdict != Verdict::Undecided || !what.strict,
        Err(_) => false,
    }
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
