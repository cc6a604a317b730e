//! A process's memory: what backs it, and what MRs over it would cost.

use hugemr_core::inspect::LONGEST_MR;
use hugemr_core::size::{Bytes, Count, Grouped, MIB, PageSize};
use hugemr_host::inspect::NoLayout;

use super::{table, words};
use crate::commands::inspect::{Inspected, Row};

/// So many mappings are shown without `--all`, and none below [`SMALL`].
const SHOWN: usize = 12;
const SMALL: u64 = MIB;

/// The whole answer.
pub(crate) fn inspect(seen: &Inspected, all: bool) -> String {
    let name = seen.process.name.as_deref().unwrap_or("?");
    let pinned = seen
        .process
        .pinned
        .map_or_else(|| "unknown".to_owned(), |bytes| Bytes(bytes).to_string());
    let mut lines = vec![format!(
        "pid {} {name}: {} that could be MRs, {} in all; pinned now {pinned} (VmPin)",
        seen.pid,
        Count(seen.rows.len() as u64, "mapping"),
        Bytes(seen.total.bytes),
    )];
    let shown: Vec<&Row> = if all {
        seen.rows.iter().collect()
    } else {
        let long = seen.rows.iter().filter(|row| row.mapping.len >= SMALL);
        long.take(SHOWN).collect()
    };
    if !shown.is_empty() {
        let head = [
            "address",
            "length",
            "backing",
            "physical runs",
            "MR page",
            "entries",
            "what",
        ];
        let rows: Vec<Vec<String>> = shown.iter().map(|row| cells(row)).collect();
        lines.push(table(&head, &rows));
    }
    if shown.len() < seen.rows.len() {
        lines.push(format!("  {} more: --all", seen.rows.len() - shown.len()));
    }
    lines.push(format!(
        "entries of all  {} as it is now, {} at 2 MiB (MRs of at most {})",
        words::range(seen.total.entries),
        Grouped(seen.total.at_2m),
        Bytes(LONGEST_MR)
    ));
    lines.push(format!(
        "predicted for   {}",
        words::platform(&seen.platform)
    ));
    let wrong = seen
        .rows
        .iter()
        .find_map(|row| row.forecast.wrong_length.map(|wrong| (row, wrong)));
    if let Some((row, (asked, got))) = wrong {
        lines.push(format!(
            "wrong length    an MR of {} at {:#x} may reach the device as {}: hugemr plan caps it",
            Bytes(asked),
            row.mapping.start,
            Bytes(got)
        ));
    }
    if seen
        .rows
        .iter()
        .any(|row| row.runs == Err(NoLayout::NotAllowed))
    {
        lines.push(format!("physical runs need root: {}", seen.as_root));
    }
    lines.join("\n")
}

fn cells(row: &Row) -> Vec<String> {
    let (mapping, forecast) = (&row.mapping, &row.forecast);
    let page = match forecast.page {
        (best, worst) if best == worst => best.to_string(),
        (best, worst) => format!("{worst} to {best}"),
    };
    vec![
        format!("{:#x}", mapping.start),
        Bytes(mapping.len).to_string(),
        backing(row),
        match row.runs {
            Ok(runs) => Grouped(runs as u64).to_string(),
            Err(NoLayout::NotAllowed) => "hidden".to_owned(),
            Err(NoLayout::NotPopulated) => "not populated".to_owned(),
            Err(NoLayout::TooLarge) => "not read".to_owned(),
            Err(_) => "unreadable".to_owned(),
        },
        page,
        words::range(forecast.entries),
        match (mapping.name.as_str(), mapping.shared) {
            ("", true) => "shared".to_owned(),
            ("", false) => "anonymous".to_owned(),
            (name, _) => name.to_owned(),
        },
    ]
}

fn backing(row: &Row) -> String {
    let mapping = &row.mapping;
    if mapping.hugetlb {
        return format!("{} pool", mapping.page);
    }
    match mapping.backing() {
        (PageSize::M2, PageSize::M2) => "THP".to_owned(),
        _ if mapping.thp > 0 => format!(
            "THP {} %",
            u128::from(mapping.thp) * 100 / u128::from(mapping.len.max(1))
        ),
        _ => mapping.page.to_string(),
    }
}
