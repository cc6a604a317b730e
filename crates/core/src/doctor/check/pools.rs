//! Huge-page pools against the need, and the memory from which they would grow.

use super::rough;
use crate::device::Family;
use crate::doctor::{Examined, Finding, PoolFacts};
use crate::host::Node;
use crate::plan::{Resource, reserve_command};
use crate::size::{Bytes, Count, GIB, Grouped, PageSize, plural};

const GLOBAL: &str = "/sys/kernel/mm/hugepages";

/// The pools.
pub(super) fn pools(e: &Examined<'_>, out: &mut Vec<Finding>) {
    let pools = &e.case.facts.pools;
    if !pools.visible {
        out.push(
            Finding::unknown("pools_unseen", "the huge-page pools cannot be seen")
                .seen(format!("{GLOBAL} is not there"))
                .fix("hugemr doctor --host-root DIR, or on the node: hugemr doctor --save FILE, and here --facts FILE")
                .deciding(e.wished()),
        );
        return;
    }
    for pool in &pools.global {
        if pool.available().is_none() {
            let dir = folder(pool.page);
            out.push(
                Finding::unknown(
                    "pool_uncountable",
                    format!("the pool of {} pages cannot be counted", pool.page),
                )
                .seen(format!(
                    "{dir}: free_hugepages or resv_hugepages is unreadable, or wrapped below 0"
                ))
                .fix(format!("grep . {dir}/*"))
                .deciding(needs(e).iter().any(|(page, _)| *page == pool.page)),
            );
        }
    }
    if let Some(why) = &pools.ledger {
        out.push(
            Finding::unknown("ledger", format!("which pages hugemr has added cannot be told: {why}"))
                .seen("/run/hugemr/ledger")
                .fix("sudo mv /run/hugemr/ledger /run/hugemr/ledger.bad      (hugemr gives none of them back then)"),
        );
    }
    for (page, pages) in pools.stale.iter().filter(|(_, pages)| *pages > 0) {
        out.push(stale(e, *page, *pages));
    }
    if e.wished() {
        for (page, count) in needs(e) {
            against(e, page, count, out);
        }
        return;
    }
    if pools.global.is_empty() {
        out.push(no_hugetlb(Finding::risk(
            "no_hugetlb",
            "this kernel has no huge-page pools: every MR gets small pages",
        )));
    } else if pools.global.iter().all(|pool| pool.total == Some(0)) {
        out.push(
            Finding::risk("pool_empty", "no huge page is reserved")
                .seen(format!("{GLOBAL}/*/nr_hugepages are 0"))
                .so("memory that is registered now gets 4 KiB pages: 262,144 entries a GiB")
                .fix("sudo hugemr reserve SIZE      (what a size needs: hugemr doctor --for SIZE)"),
        );
    }
    for pool in pools.global.iter().filter(|pool| pool.total > Some(0)) {
        out.push(Finding::fine("pool", counts(pool)));
    }
}

/// Pages of the dead: they are there, and not to stay.
fn stale(e: &Examined<'_>, page: PageSize, pages: u64) -> Finding {
    let need = needs(e).into_iter().find(|(of, _)| *of == page);
    let then = need.filter(|(_, count)| has_room(e, count.saturating_mul(page.bytes())));
    let then = then.map_or_else(String::new, |(_, count)| {
        format!(" && {}", reserve_command(page, count))
    });
    Finding::risk(
        "pool_stale",
        format!(
            "{} of {page} {} added by a hugemr that is gone",
            Count(pages, "page"),
            plural(pages, "was", "were")
        ),
    )
    .seen("/run/hugemr/ledger")
    .so("the next hugemr release --stale takes them out of the pool, whoever counts on them")
    .fix(format!("sudo hugemr release --stale{then}"))
}

/// Whether so many bytes may be offered as huge pages.
fn has_room(e: &Examined<'_>, bytes: u64) -> bool {
    let spare = e.case.facts.memory.spare();
    spare.is_none_or(|spare| bytes <= spare)
}

/// Bytes of the pages that are missing, by size.
fn missing(e: &Examined<'_>) -> Vec<(PageSize, u64)> {
    let of = |(page, count): (PageSize, u64)| {
        let short = short(e.case.facts.pools.of(page)?, count)?;
        (short > 0).then_some((page, short.saturating_mul(page.bytes())))
    };
    needs(e).into_iter().filter_map(of).collect()
}

fn total(missing: &[(PageSize, u64)]) -> u64 {
    let bytes = missing.iter().map(|(_, bytes)| *bytes);
    bytes.fold(0, u64::saturating_add)
}

fn needs(e: &Examined<'_>) -> Vec<(PageSize, u64)> {
    e.plan()
        .map(|plan| plan.huge_pages.clone())
        .unwrap_or_default()
}

fn no_hugetlb(finding: Finding) -> Finding {
    finding
        .seen(format!("{GLOBAL} is empty"))
        .fix("a kernel with CONFIG_HUGETLBFS, and that page size: ls /sys/kernel/mm/hugepages")
}

fn against(e: &Examined<'_>, page: PageSize, count: u64, out: &mut Vec<Finding>) {
    let Some(pool) = e.case.facts.pools.of(page) else {
        out.push(no_hugetlb(Finding::block(
            "no_hugetlb",
            format!("this kernel has no pool of {page} pages"),
        )));
        return;
    };
    let Some(short) = short(pool, count) else {
        return;
    };
    if short == 0 {
        out.push(Finding::fine(
            "pool",
            format!("{}, need {}", counts(pool), Grouped(count)),
        ));
        return;
    }
    let lacking = Bytes(short.saturating_mul(page.bytes()));
    let mut seen = Vec::new();
    let nodes = &e.case.facts.pools.nodes;
    if nodes.len() > 1 {
        for node in nodes {
            let free =
                on_node(node, page).map_or_else(|| "?".to_owned(), |n| Grouped(n).to_string());
            seen.push(format!("node{} free {free}", node.id));
        }
    } else if let Some(free) = pool.free {
        seen.push(format!("free {}", Grouped(free)));
    }
    if let Some(reserved) = pool.reserved.filter(|n| *n > 0) {
        seen.push(format!("promised to others {}", Grouped(reserved)));
    }
    seen.push(format!("need {}", Grouped(count)));
    let place = if nodes.len() > 1 {
        "/sys/devices/system/node/node*/hugepages".to_owned()
    } else {
        folder(page)
    };
    let spread = if nodes.len() > 1 { " --spread" } else { "" };
    out.push(
        Finding::block(
            "pool_short",
            format!(
                "huge pages short by {} x {page} ({lacking})",
                Grouped(short)
            ),
        )
        .seen(format!("{}   {place}", seen.join("  ")))
        .fix(if has_room(e, total(&missing(e))) {
            format!(
                "{}{spread}      (keep at boot: --persist)",
                reserve_command(page, count)
            )
        } else {
            less(e, pool)
        }),
    );
}

/// What the memory of the host is enough for, where it is not for all pages that are missing.
fn less(e: &Examined<'_>, pool: &PoolFacts) -> String {
    let page = pool.page.bytes();
    let spare = e.case.facts.memory.spare().unwrap_or(0);
    let pages = pool.available().unwrap_or(0).saturating_add(spare / page);
    if pages == 0 {
        return "memory is short, too: no page could be added that the host can spare".to_owned();
    }
    let size = Bytes(pages.saturating_mul(page));
    format!(
        "{size} would fit, if the host shall keep some memory      (--for {})",
        size.argument()
    )
}

/// Pages that are missing; `None` where it cannot be told.
fn short(pool: &PoolFacts, count: u64) -> Option<u64> {
    Some(count.saturating_sub(pool.available()?))
}

fn counts(pool: &PoolFacts) -> String {
    let number = |n: Option<u64>| n.map_or_else(|| "?".to_owned(), |n| Grouped(n).to_string());
    format!(
        "pool of {} pages: {} free of {}",
        pool.page,
        number(pool.available()),
        number(pool.total)
    )
}

fn folder(page: PageSize) -> String {
    format!("{GLOBAL}/hugepages-{}kB", page.bytes() / 1024)
}

fn on_node(node: &Node, page: PageSize) -> Option<u64> {
    node.pools
        .iter()
        .find(|pool| pool.page == page)
        .map(|pool| pool.free)
}

/// Whether the pages that are missing can be had, and how scattered free memory is.
pub(super) fn memory(e: &Examined<'_>, out: &mut Vec<Finding>) {
    let facts = &e.case.facts.memory;
    let (Some(free), Some(available)) = (facts.free, facts.available) else {
        out.push(
            Finding::unknown("memory_unknown", "free memory cannot be read")
                .seen("/proc/meminfo")
                .fix("grep -E 'MemFree|MemAvailable' /proc/meminfo"),
        );
        return;
    };
    let missing = missing(e);
    let of_no_pool = e.plan().and_then(|plan| plan.check(Resource::Memory));
    let (what, total) = match of_no_pool {
        Some(check) => ("pages of no pool need", check.need.0),
        None => ("the missing huge pages need", total(&missing)),
    };
    if total > available {
        out.push(
            Finding::block(
                "memory_short",
                format!(
                    "{what} {}, and {} can be freed",
                    Bytes(total),
                    rough(available)
                ),
            )
            .seen(format!("MemAvailable {}   /proc/meminfo", rough(available)))
            .fix("end what holds memory (ps --sort -rss -eo rss,pid,comm | head), or ask for less"),
        );
        return;
    }
    if let Some(risk) = crate::margin::risk(total, available, facts.total) {
        out.push(
            Finding::risk(
                "memory_tight",
                format!("{what} {} of memory", Bytes(total)),
            )
            .seen(format!("MemAvailable {}   /proc/meminfo", rough(available)))
            .so(risk)
            .fix("end what holds memory (ps --sort -rss -eo rss,pid,comm | head), or ask for less"),
        );
        return;
    }
    let (page, wanted) = if e.wished() {
        missing.first().copied().unwrap_or((PageSize::M2, 0))
    } else {
        // Without a wish: whether a quarter of what is free could become huge pages, where that is worth a word.
        (PageSize::M2, if free >= GIB { free / 4 } else { 0 })
    };
    match facts.in_blocks_of(page) {
        Some(whole) if whole < wanted => out.push(
            Finding::risk(
                "memory_fragmented",
                format!(
                    "free memory is scattered: {} in blocks of {page} and more, {} wanted",
                    rough(whole),
                    rough(wanted)
                ),
            )
            .seen(format!("MemFree {}   /proc/buddyinfo", rough(free)))
            .so("reserving is slow and may end short")
            .fix("echo 1 | sudo tee /proc/sys/vm/compact_memory, then reserve; surest at boot (hugemr reserve --persist)"),
        ),
        _ => out.push(Finding::fine(
            "memory",
            format!("memory: {} available, {} free", rough(available), rough(free)),
        )),
    }
}

/// Whether the node of the device has pages.
pub(super) fn node(e: &Examined<'_>, out: &mut Vec<Finding>) {
    if e.case.device.family != Family::Erdma {
        return;
    }
    let nodes = &e.case.facts.pools.nodes;
    let functions = e.case.facts.functions.iter().flatten();
    let mut homes: Vec<u32> = functions
        .filter_map(|f| f.erdma.then_some(f.node)?)
        .collect();
    homes.dedup();
    let &[home] = homes.as_slice() else {
        return;
    };
    let Some(near) = nodes.iter().find(|node| node.id == home) else {
        return;
    };
    for (page, count) in needs(e) {
        let free = on_node(near, page).unwrap_or(0);
        let elsewhere = nodes
            .iter()
            .filter(|node| node.id != home)
            .filter_map(|node| on_node(node, page))
            .any(|n| n > 0);
        if free == 0 && elsewhere && count > 0 {
            let finding = Finding::risk(
                "node_empty",
                format!("node {home}, where the device is, has no free {page} page"),
            )
            .seen(format!(
                "/sys/devices/system/node/node{home}/hugepages/hugepages-{}kB/free_hugepages is 0",
                page.bytes() / 1024
            ))
            .so("the memory comes from another node: each transfer crosses the socket link");
            let fix = format!("{} --node {home}", reserve_command(page, count));
            out.push(if has_room(e, count.saturating_mul(page.bytes())) {
                finding.fix(fix)
            } else {
                finding.fix(format!("{fix}      (once memory is free)"))
            });
        }
    }
}
