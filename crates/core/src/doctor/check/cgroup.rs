//! Limits of the cgroups above the process.

use crate::doctor::{Examined, Finding, HugetlbLimit};
use crate::size::{Bytes, PageSize};

/// hugetlb limits, versions 1 and 2.
pub(super) fn hugetlb(e: &Examined<'_>, out: &mut Vec<Finding>) {
    let process = &e.case.facts.process;
    for limit in &process.hugetlb {
        let need = e.plan().map(|plan| {
            let pages = plan.huge_pages.iter();
            let of_size = pages.filter(|(page, _)| *page == limit.page);
            of_size.fold(0u64, |sum, (page, n)| {
                sum.saturating_add(n.saturating_mul(page.bytes()))
            })
        });
        let enough = match need {
            Some(need) => limit.left() >= need,
            None => limit.left() >= limit.page.bytes(),
        };
        if enough {
            out.push(Finding::fine(
                "cgroup_hugetlb",
                format!(
                    "cgroup leaves {} of {} pages",
                    Bytes(limit.left()),
                    limit.page
                ),
            ));
            continue;
        }
        let head = format!(
            "the cgroup of {} leaves {} of {} pages",
            process.who(),
            Bytes(limit.left()),
            limit.page
        );
        let finding = match need {
            Some(need) => Finding::block("cgroup_hugetlb", format!("{head}; need {}", Bytes(need))),
            None => Finding::risk("cgroup_hugetlb", head),
        };
        let used = limit
            .used
            .map_or_else(|| "unknown".to_owned(), |used| Bytes(used).to_string());
        let mut finding = finding
            .seen(format!(
                "limit {}, in use {used}   {}",
                Bytes(limit.max),
                limit.file
            ))
            .so(if limit.at_mmap {
                "mmap fails with ENOMEM"
            } else {
                "the touch ends in SIGBUS, ibv_reg_mr in EFAULT"
            });
        if process.container == Some(true) {
            finding = finding.fix(format!(
                "Kubernetes: resources.limits.{} of the pod; docker: the limit of the container's cgroup",
                kubernetes(limit.page)
            ));
        }
        out.push(finding.fix(raise(limit)));
    }
}

fn kubernetes(page: PageSize) -> &'static str {
    if page == PageSize::G1 {
        "hugepages-1Gi"
    } else {
        "hugepages-2Mi"
    }
}

/// The command that lifts a limit: version 1 writes -1, version 2 the word.
fn raise(limit: &HugetlbLimit) -> String {
    let word = if limit.file.ends_with("limit_in_bytes") {
        "-1"
    } else {
        "max"
    };
    format!("echo {word} | sudo tee {}", limit.file)
}

/// The memory limit, where it counts huge pages.
pub(super) fn memory(e: &Examined<'_>, out: &mut Vec<Finding>) {
    let process = &e.case.facts.process;
    let Some(max) = process.memory_max else {
        return;
    };
    let need = e.plan().map_or(0, |plan| plan.mapped);
    if process.memory_counts_huge != Some(true) || need <= max {
        out.push(Finding::fine(
            "cgroup_memory",
            format!(
                "memory limit of the cgroup {}: huge pages do not count in it, or fit",
                Bytes(max)
            ),
        ));
        return;
    }
    out.push(
        Finding::block(
            "cgroup_memory",
            format!(
                "the memory limit of the cgroup, {}, counts huge pages; need {}",
                Bytes(max),
                Bytes(need)
            ),
        )
        .seen(format!(
            "cgroup2 is mounted with memory_hugetlb_accounting   {}/mountinfo",
            process.dir()
        ))
        .so("the touch ends in SIGBUS, ibv_reg_mr in EFAULT")
        .fix("raise memory.max of the cgroup (Kubernetes: resources.limits.memory of the pod)"),
    );
}
