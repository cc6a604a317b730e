//! Pools that are raised and lowered.

use hugemr_core::host::HugePool;
use hugemr_core::size::{Bytes, Count, Grouped, PageSize};
use hugemr_host::pools::Pools as HostPools;
use hugemr_host::reserve::{Change, Step as PoolStep};

use super::table;
use crate::progress::Pools;

/// `128 pages of 2 MiB (256 MiB)`.
pub(crate) fn pages(count: u64, page: PageSize) -> String {
    format!(
        "{} of {page} ({})",
        Count(count, "page"),
        Bytes(count.saturating_mul(page.bytes()))
    )
}

/// `node0`, or `host` where the kernel has no pools of nodes.
pub(crate) fn place(node: Option<u32>) -> String {
    node.map_or_else(|| "host".to_owned(), |node| format!("node{node}"))
}

/// A change that is going to be made, and the command that would do the same.
pub(crate) fn change(change: &Change) -> String {
    let count = change.to.abs_diff(change.from);
    let sign = if change.to >= change.from { '+' } else { '-' };
    format!(
        "  {}  {} pages {} -> {} ({sign}{})   echo {} > {}",
        place(change.node),
        change.page,
        Grouped(change.from),
        Grouped(change.to),
        Bytes(count.saturating_mul(change.page.bytes())),
        change.to,
        change.file()
    )
}

/// What there is to say of a step before it is over.
pub(crate) fn step(step: &PoolStep) -> Option<String> {
    match step {
        PoolStep::Short(pages) => Some(format!(
            "{} short after a plain write, which succeeds all the same",
            Count(*pages, "page")
        )),
        PoolStep::Compacting => {
            Some("compacting memory (vm.compact_memory), then again".to_owned())
        }
        PoolStep::DroppingCaches => {
            Some("dropping clean page cache (vm.drop_caches), then again".to_owned())
        }
        PoolStep::Raising(_)
        | PoolStep::Came { .. }
        | PoolStep::Lowering(_)
        | PoolStep::Gone { .. } => None,
    }
}

/// `32 pages of 2 MiB (64 MiB) added: node0 0 -> 32`, as one line.
pub(crate) fn raised(pools: &Pools) -> String {
    let raised: Vec<Change> = pools.raised().copied().collect();
    if raised.is_empty() {
        return "nothing added: enough huge pages are free".to_owned();
    }
    summary(&raised, "added")
}

/// The same of what was given back.
pub(crate) fn lowered(pools: &Pools) -> String {
    let gone = gone(&pools.gone);
    if pools.lowered.is_empty() {
        return gone.unwrap_or_else(|| "nothing was added, nothing goes back".to_owned());
    }
    let mut text = summary(&pools.lowered, "given back");
    if let Some(gone) = gone {
        text.push_str(&format!("; {gone}"));
    }
    text
}

/// Pages that somebody else took out of the pools before they could be given back.
pub(crate) fn gone(gone: &[(PageSize, u64)]) -> Option<String> {
    let mut sizes: Vec<PageSize> = gone.iter().map(|(page, _)| *page).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let one = |page: PageSize| {
        let sum = gone
            .iter()
            .filter(|(of, _)| *of == page)
            .map(|(_, n)| n)
            .sum();
        format!(
            "{} gone already: the pool was lowered by another hand",
            pages(sum, page)
        )
    };
    (!sizes.is_empty()).then(|| sizes.into_iter().map(one).collect::<Vec<_>>().join("; "))
}

fn summary(changes: &[Change], what: &str) -> String {
    let mut sizes: Vec<PageSize> = changes.iter().map(|change| change.page).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let one = |page: PageSize| {
        let of = || changes.iter().filter(move |change| change.page == page);
        let sum = of().map(|c| c.to.abs_diff(c.from)).sum();
        let places: Vec<String> = of()
            .map(|c| {
                let (from, to) = (Grouped(c.from), Grouped(c.to));
                format!("{} {from} -> {to}", place(c.node))
            })
            .collect();
        format!("{} {what}: {}", pages(sum, page), places.join(", "))
    };
    sizes.into_iter().map(one).collect::<Vec<_>>().join("; ")
}

/// Each node's pool before and after.
pub(crate) fn nodes(before: &HostPools, after: &HostPools, page: PageSize) -> String {
    let rows: Vec<Vec<String>> = after
        .nodes
        .iter()
        .filter_map(|node| {
            let now = after.on_node(node.id, page)?;
            let was = before.on_node(node.id, page).map_or(0, persistent);
            Some(vec![
                place(after.per_node.then_some(node.id)),
                Grouped(was).to_string(),
                Grouped(persistent(now)).to_string(),
                Grouped(now.free).to_string(),
            ])
        })
        .collect();
    table(&["pool", "before", "now", "free"], &rows)
}

fn persistent(pool: &HugePool) -> u64 {
    pool.total.saturating_sub(pool.surplus)
}

/// What keeps pages over a reboot.
pub(crate) struct Persist {
    pub(crate) boot_line: String,
    pub(crate) unit_file: String,
    pub(crate) unit: String,
}

impl Persist {
    /// `pages` by node where they are to come from one, else of the host; `command` is run at boot by the unit.
    pub(crate) fn new(page: PageSize, pages: u64, node: Option<u32>, command: &str) -> Self {
        let size = format!("{page}").replace(" MiB", "M").replace(" GiB", "G");
        let count = node.map_or_else(|| pages.to_string(), |node| format!("{node}:{pages}"));
        let name = format!("hugemr-reserve-{size}");
        let unit = format!(
            "[Unit]\n\
             Description=Huge pages of {page} (hugemr)\n\
             DefaultDependencies=no\n\
             After=local-fs.target\n\
             Before=sysinit.target shutdown.target\n\
             Conflicts=shutdown.target\n\
             \n\
             [Service]\n\
             Type=oneshot\n\
             RemainAfterExit=yes\n\
             ExecStart={command}\n\
             \n\
             [Install]\n\
             WantedBy=sysinit.target"
        );
        Self {
            boot_line: format!("hugepagesz={size} hugepages={count}"),
            unit_file: format!("/etc/systemd/system/{name}.service"),
            unit,
        }
    }

    pub(crate) fn text(&self, page: PageSize, by_node: bool) -> String {
        let mut lines = vec![
            "to keep them over a reboot (nothing of this is installed), either on the kernel's command line:"
                .to_owned(),
            format!("  {}", self.boot_line),
        ];
        if by_node {
            lines.push("  (a number for one node needs Linux 5.16)".to_owned());
        }
        if page >= PageSize::G1 {
            lines.push(
                "  for pages of that size it is the only sure way: later memory is too fragmented"
                    .to_owned(),
            );
        }
        lines.push(format!("or as {}:", self.unit_file));
        lines.extend(
            self.unit
                .lines()
                .map(|line| format!("  {line}").trim_end().to_owned()),
        );
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raising(node: u32, from: u64, to: u64) -> PoolStep {
        PoolStep::Raising(Change {
            page: PageSize::M2,
            node: Some(node),
            from,
            to,
        })
    }

    #[test]
    fn pools_are_summed_up_in_one_line() {
        let mut pools = Pools::default();
        assert_eq!(raised(&pools), "nothing added: enough huge pages are free");
        let came = |node, pages| PoolStep::Came {
            node: Some(node),
            pages,
        };
        // Node 0 gives less than asked for, and nothing more the second time.
        for step in [
            raising(0, 4, 1004),
            came(0, 700),
            raising(1, 0, 324),
            came(1, 324),
            raising(0, 704, 1004),
            came(0, 0),
            raising(2, 0, 9),
            came(2, 0),
        ] {
            pools.note(&step);
        }
        assert_eq!(
            raised(&pools),
            "1,024 pages of 2 MiB (2 GiB) added: node0 4 -> 704, node1 0 -> 324"
        );
        assert_eq!(lowered(&pools), "nothing was added, nothing goes back");
        pools.note(&PoolStep::Lowering(Change {
            page: PageSize::M2,
            node: None,
            from: 3,
            to: 2,
        }));
        assert_eq!(
            lowered(&pools),
            "1 page of 2 MiB (2 MiB) given back: host 3 -> 2"
        );
    }

    #[test]
    fn a_change_is_said_with_its_command() {
        let PoolStep::Raising(one) = raising(1, 0, 1024) else {
            unreachable!()
        };
        assert_eq!(
            change(&one),
            "  node1  2 MiB pages 0 -> 1,024 (+2 GiB)   echo 1024 > /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages"
        );
    }

    #[test]
    fn what_is_kept_over_a_reboot() {
        let kept = Persist::new(PageSize::G1, 8, Some(1), "/usr/bin/hugemr reserve 8GiB");
        assert_eq!(kept.boot_line, "hugepagesz=1G hugepages=1:8");
        assert!(
            kept.unit
                .contains("\nExecStart=/usr/bin/hugemr reserve 8GiB\n")
        );
        let text = kept.text(PageSize::G1, true);
        assert!(
            text.contains("only sure way") && text.contains("5.16"),
            "{text}"
        );
        let kept = Persist::new(PageSize::M2, 8, None, "x");
        assert_eq!(kept.boot_line, "hugepagesz=2M hugepages=8");
        assert_eq!(
            kept.unit_file,
            "/etc/systemd/system/hugemr-reserve-2M.service"
        );
    }
}
