//! `hugemr release`: gives back the pages that hugemr has added, and no others.

use hugemr_core::size::{Count, Grouped, PageSize, plural};
use hugemr_host::ledger::{self, Entry};
use hugemr_host::pools::Pools as HostPools;
use hugemr_host::reserve::{Change, Step as PoolStep, release_kept, release_stale};
use hugemr_host::root::Root;
use hugemr_host::trace::{self, Held, TraceError};

use super::reserve::{away, failure};
use super::say;
use crate::args::ReleaseCommand;
use crate::exit::{Ended, Exit, Failure};
use crate::json;
use crate::progress::Pools;
use crate::render::reserve as render;

/// What was given back, or would be.
pub(crate) struct Released {
    pub(crate) changed: bool,
    pub(crate) dry_run: bool,
    pub(crate) stale: bool,
    pub(crate) pools: Vec<Change>,
    /// Pages of these that are in use: they go when they are freed.
    pub(crate) in_use: u64,
    /// Pages that were to be given back, and are gone already.
    pub(crate) gone: Vec<(PageSize, u64)>,
    /// Pages of the other kind that are in the ledger: left by the dead, or kept.
    pub(crate) others: u64,
    /// Probes and debug lines that were left switched on by the dead.
    pub(crate) traces: Vec<Held>,
}

pub(crate) fn run(command: &ReleaseCommand) -> Ended {
    let root = Root::real();
    let flag = if command.stale { " --stale" } else { "" };
    let again = format!("sudo hugemr release{flag}");
    let entries = ledger::look(&root).map_err(|error| failure(&error.into(), &again))?;
    let mut released = Released {
        changed: false,
        dry_run: command.dry_run,
        stale: command.stale,
        pools: Vec::new(),
        in_use: 0,
        gone: Vec::new(),
        others: entries
            .iter()
            .filter(|entry| is(entry, !command.stale, &root))
            .map(|entry| entry.added)
            .sum(),
        traces: Vec::new(),
    };
    if command.dry_run {
        let own = entries
            .iter()
            .filter(|entry| is(entry, command.stale, &root));
        let would = own.filter_map(|entry| Some((entry, would(entry, &root)?)));
        for (entry, change) in would {
            let taken = change.from - change.to;
            if taken > 0 {
                released.pools.push(change);
            }
            if taken < entry.added {
                released.gone.push((entry.page, entry.added - taken));
            }
        }
        if command.stale {
            released.traces = trace::stale(&root).map_err(|error| traces_failure(&error.into()))?;
        }
    } else {
        let mut pools = Pools::default();
        let mut told = |step: PoolStep| pools.note(&step);
        let before = HostPools::read(&root);
        let done = if command.stale {
            release_stale(&root, &mut told)
        } else {
            release_kept(&root, &mut told)
        };
        // Pages that cannot be given back don't keep a probe on, nor the other way round.
        let traces = if command.stale {
            trace::release_stale(&root)
        } else {
            Ok(Vec::new())
        };
        done.map_err(|error| failure(&error, &again))?;
        released.traces = traces.map_err(|error| traces_failure(&error))?;
        released.gone = pools.gone;
        released.pools = pools.lowered;
        released.changed = !released.pools.is_empty() || !released.traces.is_empty();
        released.in_use = in_use(&released.pools, &before, &HostPools::read(&root));
    }
    if command.json {
        json::write(&json::release(&released))?;
    } else {
        say_it(&released)?;
    }
    Ok(Exit::Yes)
}

/// Whether the entry is one of the dead, or one that is kept.
fn is(entry: &Entry, stale: bool, root: &Root) -> bool {
    match entry.owner {
        Some(owner) => stale && !owner.is_alive(root),
        None => !stale,
    }
}

fn would(entry: &Entry, root: &Root) -> Option<Change> {
    let (page, node) = (entry.page, entry.node);
    let pools = HostPools::read(root);
    let from = match node {
        Some(node) => pools
            .on_node(node, page)
            .map(|p| p.total.saturating_sub(p.surplus)),
        None => pools
            .of(page)
            .and_then(hugemr_host::pools::GlobalPool::persistent),
    }?;
    let to = from.saturating_sub(entry.added);
    Some(Change {
        page,
        node,
        from,
        to,
    })
}

/// Pages that were in use when their pool was lowered: the kernel has made them surplus.
fn in_use(changes: &[Change], before: &HostPools, after: &HostPools) -> u64 {
    let mut sizes: Vec<PageSize> = changes.iter().map(|change| change.page).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let surplus = |pools: &HostPools, page| pools.of(page).and_then(|pool| pool.surplus);
    sizes
        .into_iter()
        .filter_map(|page| Some(surplus(after, page)?.saturating_sub(surplus(before, page)?)))
        .sum()
}

fn traces_failure(error: &TraceError) -> Failure {
    let mut failure = Failure::system(format_args!(
        "what a killed hugemr has left switched on could not be switched off: {error}"
    ));
    failure.more.extend(crate::device::sources(error));
    if let TraceError::Ledger(error) = error {
        failure.more.extend(away(error));
    }
    failure
}

fn say_it(released: &Released) -> Result<(), Failure> {
    let whose = if released.stale {
        "by processes that are gone"
    } else {
        "by hugemr reserve"
    };
    if released.pools.is_empty() && !released.gone.is_empty() {
        // Said below.
    } else if released.pools.is_empty() {
        say(&format!(
            "nothing to give back: no pages were added {whose}"
        ))?;
    } else if released.dry_run {
        say(&format!("would give back what was added {whose}:"))?;
        for change in &released.pools {
            say(&render::change(change))?;
        }
    } else {
        let pools = Pools {
            lowered: released.pools.clone(),
            ..Pools::default()
        };
        say(&format!("released: {}", render::lowered(&pools)))?;
    }
    if let Some(gone) = render::gone(&released.gone) {
        say(&gone)?;
    }
    for held in &released.traces {
        let word = if released.dry_run {
            "would switch off"
        } else {
            "switched off"
        };
        say(&format!("{word}: {held}"))?;
    }
    if released.in_use > 0 {
        say(&format!(
            "  {} of them {} in use; the kernel takes what is freed",
            Grouped(released.in_use),
            plural(released.in_use, "is", "are")
        ))?;
    }
    if released.others > 0 {
        let (whose, flag) = if released.stale {
            ("kept by hugemr reserve", "")
        } else {
            ("left by processes that are gone", " --stale")
        };
        say(&format!(
            "  {} {} {whose}: sudo hugemr release{flag}",
            Count(released.others, "more page"),
            plural(released.others, "is", "are")
        ))?;
    }
    Ok(())
}
