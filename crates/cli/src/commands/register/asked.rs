//! Before anything is done: which flags go together, what the host has, and the plan.

use hugemr_core::host::Host;
use hugemr_core::plan::{Code, Pages, Plan, Refusal, Resource, plan};
use hugemr_core::size::{Bytes, Count, PageSize};
use hugemr_host::facts::Memory;
use hugemr_host::root::Root;

use crate::args::{MemoryKind, RegisterCommand};
use crate::commands::plan::Asked;
use crate::commands::remark;
use crate::commands::ways::Reservable;
use crate::device::Opened;
use crate::exit::{Exit, Failure};
use crate::host;
use crate::typed::Change;

/// Refuses flags that would have no effect: each with what to drop or add.
pub(super) fn together(command: &RegisterCommand, memory: MemoryKind) -> Result<(), Failure> {
    let pages = command.what.pages;
    let no_pool = match pages {
        Pages::Only(page) => page <= PageSize::K64,
        Pages::Thp => true,
        Pages::Auto | Pages::Mixed => false,
    };
    let mapped = memory == MemoryKind::Real;
    let nodes = command.nodes.node.is_some() || command.nodes.interleave;
    let refused = [
        (
            command.time.estimate && !mapped,
            "--estimate: no memory is mapped that could take time; add --memory real",
        ),
        (
            nodes && !mapped,
            "--node, --interleave: no memory is mapped that could lie on a node; add --memory real",
        ),
        (
            command.reserve && !mapped,
            "--reserve: no memory is mapped that could need pages; add --memory real",
        ),
        (
            command.alias_pages.is_some() && !mapped,
            "--alias-pages: no memory is mapped that the pages could stand for; add --memory real",
        ),
        (
            command.layout.is_some() && mapped,
            "--layout: memory of this host lies as the kernel lays it; drop it, or simulate memory with --memory none",
        ),
        (
            command.reserve && no_pool,
            "--reserve: such pages come from no pool; drop it, or ask for huge pages with --pages 2MiB",
        ),
        (
            command.nodes.interleave && no_pool,
            "--interleave: only pages of a pool are laid on the nodes in turn; drop it, or ask for huge pages with --pages 2MiB",
        ),
    ];
    match refused.into_iter().find(|(refused, _)| *refused) {
        Some((_, why)) => Err(Failure::usage(why)),
        None => Ok(()),
    }
}

/// This host maps its base page and huge pages of its pools, and no others; nothing is to be populated for a size that cannot
/// come.
pub(super) fn can_be_mapped(plan: &Plan) -> Result<(), Failure> {
    let base = host::base_page();
    let huge = host::huge_page_sizes();
    let fits = |page: &PageSize| Some(*page) == base || huge.contains(page);
    let mut pages = plan.segments.iter().map(|segment| segment.page);
    let Some(page) = pages.find(|page| plan.pages != Pages::Thp && !fits(page)) else {
        return Ok(());
    };
    let there: Vec<String> = base.iter().chain(&huge).map(PageSize::to_string).collect();
    Err(Failure {
        exit: Exit::No,
        ..Failure::usage(format_args!("this host maps no pages of {page}"))
    }
    .with(format!("pages that it maps: {}", there.join(", "))))
}

/// Plans with the pools of one node, where only that one is wanted.
pub(super) fn only_node(asked: &mut Asked, node: Option<u32>) -> Result<(), Failure> {
    let (Some(wanted), Some(nodes)) = (node, &mut asked.host.nodes) else {
        return Ok(());
    };
    let there: Vec<String> = nodes.iter().map(|node| node.id.to_string()).collect();
    nodes.retain(|node| node.id == wanted);
    if nodes.is_empty() {
        return Err(Failure::usage(format_args!(
            "--node {wanted}: this host has no such NUMA node (it has {})",
            there.join(", ")
        )));
    }
    Ok(())
}

/// A plan that is refused, and what could be reserved where that is not enough.
pub(super) type Refused = (Box<Refusal>, Option<Reservable>);

/// Plans; with `--reserve` with the pages that could be added.
pub(super) fn planned(command: &RegisterCommand, asked: &Asked) -> Result<Plan, Refused> {
    let of = |host: &Host| plan(&asked.request, &asked.device, host);
    let first = match of(&asked.host) {
        Err(refusal) if command.reserve && refusal.code == Code::HugepageShort => refusal,
        other => return other.map_err(|refusal| (refusal, None)),
    };
    let memory = Memory::read(&Root::real());
    let raised_by = |bytes: Option<u64>| {
        let pages = asked.request.pages;
        of(&host::with_raised_pools(
            &asked.host,
            pages,
            bytes.unwrap_or(0),
        ))
    };
    match raised_by(memory.spare()) {
        Err(second) if second.code == Code::HugepageShort => {
            // It was asked for: what the host should keep is its own risk.
            if let Ok(plan) = raised_by(memory.available) {
                return Ok(plan);
            }
            // More than there is: the true count of the pools says more than what could be added.
            let reservable = reservable(command, &second);
            say_reservable(&reservable);
            Err((first, Some(reservable)))
        }
        other => other.map_err(|refusal| (refusal, None)),
    }
}

/// What could be reserved, and the size for which that is enough.
fn reservable(command: &RegisterCommand, refusal: &Refusal) -> Reservable {
    let limit = refusal
        .met()
        .and_then(|check| Some((check.resource, check.limit.as_ref()?.at_most()?)));
    let fit = refusal.max_fit.filter(|fit| fit.certain > 0);
    Reservable {
        pages: match limit {
            Some((Resource::HugePages(page), pages)) => Some((page, pages)),
            _ => None,
        },
        smaller: fit.map(|fit| {
            let smaller = Change {
                size: Some(Bytes(fit.certain).argument()),
                ..Change::default()
            };
            (fit.certain, command.what.typed.line("register", &smaller))
        }),
    }
}

fn say_reservable(reservable: &Reservable) {
    let could = reservable.pages.map_or_else(String::new, |(page, pages)| {
        format!(
            ": {} of {page} at most, free ones among them ({})",
            Count(pages, "huge page"),
            Bytes(pages.saturating_mul(page.bytes()))
        )
    });
    remark(&format!(
        "--reserve: not even with all the memory that the host can spare{could}"
    ));
    if let Some((bytes, line)) = &reservable.smaller {
        remark(&format!("  way out    {} would fit: {line}", Bytes(*bytes)));
    }
}

/// The plan inside a refusal.
pub(super) fn forced(refusal: Refusal) -> Result<Plan, Failure> {
    remark(&format!(
        "forced, although it does not fit: {}",
        refusal.text
    ));
    refusal.plan.map(|plan| *plan).ok_or_else(|| Failure {
        exit: Exit::No,
        ..Failure::usage(format_args!("there is nothing to force: {}", refusal.text))
    })
}

pub(super) fn memory_kind(
    command: &RegisterCommand,
    opened: &Opened,
) -> Result<MemoryKind, Failure> {
    match (command.memory, opened) {
        (Some(MemoryKind::None), Opened::Real(_)) => {
            Err(Failure::usage("--memory none: a real device needs memory"))
        }
        (Some(kind), _) => Ok(kind),
        (None, Opened::Simulated(_)) => Ok(MemoryKind::None),
        (None, Opened::Real(_)) => Ok(MemoryKind::Real),
    }
}
