//! `hugemr reserve`: so much free in the pools, by adding exactly what is missing.

use std::io::Write as _;
use std::time::{Duration, Instant};

use hugemr_core::size::{Bytes, Count, Grouped, PageSize, plural};
use hugemr_host::facts::Memory;
use hugemr_host::ledger::{self, LedgerError};
use hugemr_host::pools::Pools as HostPools;
use hugemr_host::reserve::{
    Change, Effort, Reserve, ReserveError, ReserveRequest, Spread, Step as PoolStep, check, plan,
};
use hugemr_host::root::Root;

use super::{remark, say};
use crate::args::ReserveCommand;
use crate::exit::{Ended, Exit, Failure};
use crate::progress::Pools;
use crate::render::reserve::{self as render, Persist};
use crate::signals::Watch;
use crate::typed::quoted;
use crate::waiting::Waiting;
use crate::{json, request};

/// What was done, or would be.
pub(crate) struct Reserved {
    pub(crate) changed: bool,
    pub(crate) dry_run: bool,
    pub(crate) page: PageSize,
    /// Pages asked for.
    pub(crate) pages: u64,
    /// Pages that a new mapping can have, afterwards.
    pub(crate) available: Option<u64>,
    pub(crate) pools: Vec<Change>,
    /// Pages of this size that processes have added that are gone: there, and not to stay.
    pub(crate) stale: u64,
    /// Of what was asked for.
    pub(crate) risk: Option<String>,
    pub(crate) took: Option<Duration>,
    pub(crate) persist: Option<Persist>,
}

pub(crate) fn run(command: &ReserveCommand) -> Ended {
    let root = Root::real();
    let request = asked(command)?;
    let ReserveRequest { page, pages, .. } = request;
    let before = HostPools::read(&root);
    let changes = plan(&root, &request).map_err(|error| failed(command, &error))?;
    check_memory(&root, &changes).map_err(|error| failed(command, &error))?;
    if !command.dry_run && !changes.is_empty() {
        check(&root, &changes).map_err(|error| failed(command, &error))?;
    }
    let mut reserved = Reserved {
        changed: false,
        dry_run: command.dry_run,
        page,
        pages,
        available: available(&before, page),
        pools: changes.clone(),
        stale: stale(&root, page),
        risk: Memory::read(&root).risk(bytes(&changes)),
        took: None,
        persist: command.persist.then(|| persist(command, &before, &changes)),
    };
    if !command.json {
        announce(&reserved)?;
    }
    if !command.dry_run && !changes.is_empty() {
        let start = Instant::now();
        let pools = raise(command, &root, request)?;
        reserved.took = Some(start.elapsed());
        reserved.pools = pools.raised().copied().collect();
        reserved.changed = !reserved.pools.is_empty();
        reserved.available = available(&HostPools::read(&root), page);
    }
    if command.json {
        json::write(&json::reserve(&reserved))?;
    } else {
        if reserved.took.is_some() && !reserved.changed {
            say(&format!(
                "nothing was left to do: others have added meanwhile what was missing, {} are free and promised to nobody",
                known(reserved.available)
            ))?;
        }
        finish(&reserved, &before, &root)?;
    }
    Ok(Exit::Yes)
}

/// Pages of the dead.
fn stale(root: &Root, page: PageSize) -> u64 {
    let stale = ledger::left_by_the_dead(root).unwrap_or_default();
    let of = stale.iter().find(|(of, _)| *of == page);
    of.map_or(0, |(_, pages)| *pages)
}

/// What changes add.
fn bytes(changes: &[Change]) -> u64 {
    let one = |change: &Change| (change.to - change.from).saturating_mul(change.page.bytes());
    changes.iter().map(one).fold(0, u64::saturating_add)
}

fn known(count: Option<u64>) -> String {
    count.map_or_else(|| "unknown".to_owned(), |n| Grouped(n).to_string())
}

fn asked(command: &ReserveCommand) -> Result<ReserveRequest, Failure> {
    let page = command.pages;
    if let Some(note) = request::decimal_note(&command.size) {
        remark(&format!("note: {note}"));
    }
    let pages = command.size.bytes.div_ceil(page.bytes());
    if pages == 0 {
        return Err(Failure::usage("a reservation has at least one page"));
    }
    Ok(ReserveRequest {
        page,
        pages,
        spread: command.node.map_or(Spread::Even, Spread::Only),
    })
}

/// What the reservation would refuse, said before a change is announced.
fn check_memory(root: &Root, changes: &[Change]) -> Result<(), ReserveError> {
    let need = bytes(changes);
    match Memory::read(root).available {
        Some(available) if need > available => Err(ReserveError::Memory {
            need: Bytes(need),
            available: Bytes(available),
        }),
        _ => Ok(()),
    }
}

/// The exact change, before it is made.
fn announce(reserved: &Reserved) -> Result<(), Failure> {
    let asked = render::pages(reserved.pages, reserved.page);
    let available = known(reserved.available);
    let stale = (reserved.stale > 0).then(|| {
        format!(
            "  {} of the pool {} added by a hugemr that is gone, and {} not to stay: sudo hugemr release --stale takes {} away",
            Count(reserved.stale, "page"),
            plural(reserved.stale, "was", "were"),
            plural(reserved.stale, "is", "are"),
            plural(reserved.stale, "it", "them")
        )
    });
    if reserved.pools.is_empty() {
        let nothing = format!(
            "nothing to do: {asked} asked for, {available} are free and promised to nobody"
        );
        let lines: Vec<String> = std::iter::once(nothing).chain(stale).collect();
        return say(&lines.join("\n"));
    }
    let verb = if reserved.dry_run {
        "would change"
    } else {
        "changing"
    };
    let mut lines = vec![format!(
        "{verb}, for {asked} free and promised to nobody (now {available}):"
    )];
    lines.extend(reserved.pools.iter().map(render::change));
    lines.extend(stale);
    lines.extend(reserved.risk.iter().map(|risk| format!("  risk: {risk}")));
    say(&lines.join("\n"))?;
    // Before the change, also where the output is a file.
    std::io::stdout().flush()?;
    Ok(())
}

fn raise(command: &ReserveCommand, root: &Root, request: ReserveRequest) -> Result<Pools, Failure> {
    let watch = Watch::start()?;
    watch.comes_to(hugemr::Step::Reserve);
    let mut pools = Pools::default();
    let mut told = |step: PoolStep| {
        #[cfg(debug_assertions)]
        crate::test_at::event(&hugemr::Event::Pool(step), &watch);
        pools.note(&step);
        if let Some(text) = render::step(&step).filter(|_| !command.json) {
            remark(&format!("reserve    {text}"));
        }
    };
    let bars = (!command.json && std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .then(indicatif::MultiProgress::new);
    let waiting = (!command.json).then(|| Waiting::start(bars.as_ref()));
    let cancelled = || watch.is_stopped();
    let made = Reserve::new(root, request)
        .keep()
        .effort(Effort {
            drop_caches: command.drop_caches,
            ..Effort::default()
        })
        .on_step(&mut told)
        .cancel(&cancelled)
        .run();
    drop(waiting);
    match made {
        // It is kept: nothing happens when the value goes.
        Ok(reservation) => drop(reservation),
        Err(error) => {
            let mut failure = failed(command, &error);
            failure
                .more
                .extend(watch.seen().map(|signal| format!("stopped by {signal}")));
            return Err(failure);
        }
    }
    Ok(pools)
}

fn finish(reserved: &Reserved, before: &HostPools, root: &Root) -> Result<(), Failure> {
    if let (Some(took), true) = (reserved.took, reserved.changed) {
        let pools = Pools {
            raised: reserved.pools.clone(),
            ..Pools::default()
        };
        say(&format!(
            "reserved: {}  {}",
            render::raised(&pools),
            crate::render::register::seconds(took)
        ))?;
        say(&render::nodes(
            before,
            &HostPools::read(root),
            reserved.page,
        ))?;
        say("give back: sudo hugemr release")?;
    }
    if let Some(kept) = &reserved.persist {
        say(&kept.text(reserved.page, kept.boot_line.contains(':')))?;
    }
    Ok(())
}

fn available(pools: &HostPools, page: PageSize) -> Option<u64> {
    pools.of(page)?.available()
}

/// Over a reboot the pool is to be as it is after this command.
fn persist(command: &ReserveCommand, before: &HostPools, changes: &[Change]) -> Persist {
    let page = command.pages;
    let added: u64 = changes.iter().map(|change| change.to - change.from).sum();
    let total = match command.node {
        Some(node) => before
            .on_node(node, page)
            .map_or(0, |pool| pool.total.saturating_sub(pool.surplus)),
        None => before
            .of(page)
            .and_then(hugemr_host::pools::GlobalPool::persistent)
            .unwrap_or(0),
    };
    let program = std::env::current_exe().map_or_else(
        |_| "/usr/local/bin/hugemr".to_owned(),
        // A unit takes the single quotes of a shell, too (systemd.service(5)).
        |path| quoted(path.as_os_str()),
    );
    let line = format!("{program} {}", arguments(command));
    Persist::new(page, total.saturating_add(added), command.node, &line)
}

/// The command line that does the same, without what is only said.
fn arguments(command: &ReserveCommand) -> String {
    let mut line = format!("reserve {}", command.size.text.replace(' ', ""));
    if command.pages != PageSize::M2 {
        line = format!("{line} --pages {}", Bytes(command.pages.bytes()).argument());
    }
    if let Some(node) = command.node {
        line = format!("{line} --node {node}");
    }
    if command.drop_caches {
        line.push_str(" --drop-caches");
    }
    line
}

/// A failure with its way out.
fn failed(command: &ReserveCommand, error: &ReserveError) -> Failure {
    let again = format!("sudo hugemr {}", arguments(command));
    failure(error, &again)
}

/// What a failed change of a pool says. `again` is the command to be run with the rights that were missing.
pub(crate) fn failure(error: &ReserveError, again: &str) -> Failure {
    let mut failure = without_ways(error, again);
    ways(error, &mut failure);
    failure
}

/// The way out of a ledger that is not understood, and of pages that stay in the pools.
pub(crate) fn ways(error: &ReserveError, failure: &mut Failure) {
    failure
        .more
        .extend(error.ledger().into_iter().flat_map(away));
    let stays = error.stays();
    if stays.is_empty() {
        return;
    }
    let noted = |kept| {
        let any = stays.iter().any(|s| s.by_hand.is_none() && s.kept == kept);
        any.then(|| format!("sudo hugemr release{}", if kept { "" } else { " --stale" }))
    };
    let mut commands: Vec<String> = [noted(false), noted(true)].into_iter().flatten().collect();
    commands.extend(stays.iter().filter_map(|stays| stays.by_hand.clone()));
    let mut sizes: Vec<PageSize> = stays.iter().map(|stays| stays.page).collect();
    sizes.sort_unstable();
    sizes.dedup();
    for page in sizes {
        let of = stays.iter().filter(|stays| stays.page == page);
        let pages = of.map(|stays| stays.pages).sum();
        failure.more.push(format!(
            "{} {} in the pools",
            render::pages(pages, page),
            plural(pages, "stays", "stay")
        ));
    }
    failure.more.extend(
        commands
            .iter()
            .map(|command| format!("get back   {command}")),
    );
    failure.pools_left = Some(Box::new(json::stays(stays, &commands)));
}

/// The way out of a file below `/run/hugemr` that is not understood.
pub(crate) fn away(error: &LedgerError) -> Vec<String> {
    let LedgerError::Line { path, .. } = error else {
        return Vec::new();
    };
    let lost = if error.is_of_pools() {
        "no pages of before are given back by hugemr then: lower nr_hugepages by hand"
    } else {
        "probes and debug lines of before stay on then, until the next boot"
    };
    vec![
        format!("way out    move it away: sudo mv {path} {path}.bad"),
        format!("           {lost} ({path}.bad says what there was)"),
    ]
}

fn without_ways(error: &ReserveError, again: &str) -> Failure {
    match error {
        ReserveError::NoSuchPage { sizes, .. } => {
            let names: Vec<String> = sizes
                .iter()
                .map(|size| Bytes(size.bytes()).argument())
                .collect();
            let names = if names.is_empty() {
                "none: it has no hugetlb".to_owned()
            } else {
                names.join(", ")
            };
            Failure::usage(error).with(format!("sizes of this kernel: {names}"))
        }
        ReserveError::NoSuchNode { nodes, .. } => {
            let names: Vec<String> = nodes.iter().map(u32::to_string).collect();
            Failure::usage(error).with(format!("nodes: {}", names.join(", ")))
        }
        ReserveError::NotAllowed { commands } => {
            let mut failure = Failure::system("changing the pools needs root")
                .with(format!("run        {again}"));
            for command in commands {
                failure = failure.with(format!("by hand    {command}"));
            }
            failure
        }
        ReserveError::Cancelled { back } => match back.iter().map(|(_, pages)| pages).sum() {
            0u64 => Failure::system("cancelled; no page had been added"),
            pages => Failure::system(format_args!(
                "cancelled; {} that had come {} given back",
                Count(pages, "page"),
                plural(pages, "was", "were")
            )),
        },
        ReserveError::Ledger(LedgerError::File { denied: true, .. }) => {
            Failure::system(error).with(format!("run        {again}"))
        }
        other => {
            let mut failure = Failure::system(other);
            failure.more.extend(
                crate::device::sources(other)
                    .into_iter()
                    .map(|cause| format!("because {cause}")),
            );
            if is_read_only(other) {
                failure = failure.with(
                    "way out    on the host itself: a container often has /sys and /run read-only",
                );
            }
            failure
        }
    }
}

/// Whether a file system that cannot be written stands behind it.
fn is_read_only(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let system = error.downcast_ref::<std::io::Error>();
        if system.is_some_and(|e| e.kind() == std::io::ErrorKind::ReadOnlyFilesystem) {
            return true;
        }
        next = error.source();
    }
    false
}
