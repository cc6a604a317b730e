//! `hugemr reserve`: so much free in the pools, by adding exactly what is missing.

use std::io::Write as _;
use std::time::{Duration, Instant};

use hugemr_core::size::{Bytes, Count, Grouped, PageSize, plural};
use hugemr_host::facts::Memory;
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
        finish(&reserved, &before, &root)?;
    }
    Ok(Exit::Yes)
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
    let bytes = |change: &Change| (change.to - change.from).saturating_mul(change.page.bytes());
    let need = changes.iter().map(bytes).fold(0, u64::saturating_add);
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
    let available = reserved
        .available
        .map_or_else(|| "unknown".to_owned(), |n| Grouped(n).to_string());
    if reserved.pools.is_empty() {
        return say(&format!(
            "nothing to do: {asked} asked for, {available} are free and promised to nobody"
        ));
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
            lowered: Vec::new(),
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
        ReserveError::Ledger(hugemr_host::ledger::LedgerError::File { denied: true, .. }) => {
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
