//! `op: diagnose`: an errno or log lines, and what else is known, become ranked causes.

use hugemr_core::device::Family;
use hugemr_core::diagnose::logs::Log;
use hugemr_core::diagnose::{BackingPages, Evidence, MemoryKind, Operation, Standing, diagnose};
use hugemr_core::errno::Errno;
use hugemr_core::fact::Limit;
use hugemr_core::host::{Driver, Platform};
use hugemr_core::size::PageSize;
use hugemr_core::version::KernelVersion;
use serde::{Deserialize, Serialize};

use super::facts::{self, given};
use super::{Answer, read};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    #[serde(default, deserialize_with = "read::family")]
    dev: Option<Family>,
    operation: Option<String>,
    #[serde(default, deserialize_with = "read::errno")]
    errno: Option<Errno>,
    /// Lines of a log, as they were printed.
    #[serde(default)]
    log: Vec<String>,
    #[serde(default, deserialize_with = "read::kernel")]
    kernel: Option<KernelVersion>,
    #[serde(default, deserialize_with = "read::driver")]
    driver: Option<Driver>,
    kernel_sg_fix: Option<bool>,
    mtt_va: Option<bool>,
    iommu: Option<bool>,
    length: Option<u64>,
    addr: Option<u64>,
    #[serde(default, deserialize_with = "read::page")]
    effective_page: Option<PageSize>,
    page: Option<Pages>,
    memory: Option<Memory>,
    max_mr_size: Option<u64>,
    max_mr: Option<u64>,
    mrs_live: Option<u64>,
    entry_budget: Option<u64>,
    per_mr_entries: Option<u64>,
    used: Option<u64>,
    memlock: Option<u64>,
    pinned: Option<u64>,
    copies: Option<u64>,
    hugepages_free: Option<u64>,
    container: Option<bool>,
    hugetlb_cgroup_limit: Option<u64>,
    fork_init: Option<bool>,
    hugepages_safe: Option<bool>,
    dmesg_out_of_mr_size: Option<bool>,
}

/// Size of the pages of the mapping, or `"huge"`.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a page size in bytes, or \"huge\", belongs here"
)]
enum Pages {
    Bytes(u64),
    Word(Huge),
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Huge {
    Huge,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Memory {
    Host,
    Gpu,
    File,
}

#[derive(Serialize)]
struct Fields {
    /// The first one that is not ruled out.
    cause: Option<&'static str>,
    standing: Option<String>,
    causes: Vec<Cause>,
    errno: Option<String>,
    family: Option<&'static str>,
    message: String,
    cannot_tell: bool,
    /// Several causes, and nothing but the errno, or equal evidence, speaks for the first.
    undecided: bool,
    entries: Option<u64>,
    entries_4k: Option<u64>,
    entries_64k: Option<u64>,
    entries_2m: Option<u64>,
    entries_1g: Option<u64>,
    unknown: Vec<&'static str>,
}

#[derive(Serialize)]
struct Cause {
    cause: &'static str,
    standing: String,
}

pub(super) fn answer(input: &Input) -> Result<Answer, String> {
    let diagnosis = diagnose(&evidence(input)?);
    let first = diagnosis.first();
    let numbers = diagnosis.arithmetic;
    let gist = match first {
        Some(first) => format!("{} ({})", first.cause, first.standing),
        None => "cannot tell".to_owned(),
    };
    let fields = Fields {
        cause: first.map(|first| first.cause.name()),
        standing: first.map(|first| first.standing.to_string()),
        causes: diagnosis
            .causes
            .iter()
            .map(|ranked| Cause {
                cause: ranked.cause.name(),
                standing: ranked.standing.to_string(),
            })
            .collect(),
        errno: diagnosis.errno.map(super::plan::name),
        family: diagnosis.family.map(Family::name),
        message: diagnosis.to_string(),
        cannot_tell: diagnosis.cannot_tell(),
        undecided: diagnosis.undecided(),
        entries: numbers.and_then(|n| n.effective).map(|(_, n)| n),
        entries_4k: numbers.map(|n| n.entries_4k),
        entries_64k: numbers.map(|n| n.entries_64k),
        entries_2m: numbers.map(|n| n.entries_2m),
        entries_1g: numbers.map(|n| n.entries_1g),
        unknown: diagnosis.unknown,
    };
    Answer::new(&fields, gist)
}

/// The name of a cause that is ruled out, as in the answer.
pub(super) fn ruled_out() -> String {
    Standing::RuledOut.to_string()
}

fn evidence(input: &Input) -> Result<Evidence, String> {
    let mut evidence = from_log(&input.log)?;
    if let Some(name) = &input.operation {
        let operation =
            Operation::parse(name).ok_or_else(|| format!("operation: {name:?} is none"))?;
        evidence.operation = Some(operation);
    }
    // What is stated stands above what a log line says.
    let backing = match &input.page {
        None => None,
        Some(Pages::Word(Huge::Huge)) => Some(BackingPages::Huge),
        Some(Pages::Bytes(bytes)) => {
            let page = PageSize::new(*bytes).map_err(|error| format!("page: {error}"))?;
            Some(BackingPages::Of(page))
        }
    };
    let memory = input.memory.map(|memory| match memory {
        Memory::Host => MemoryKind::Host,
        Memory::Gpu => MemoryKind::Gpu,
        Memory::File => MemoryKind::File,
    });
    let log = evidence.platform.driver;
    let logged = Some(log).filter(|driver| *driver != Driver::Unknown);
    evidence.platform = Platform {
        driver: input.driver.or(logged).unwrap_or_default(),
        ..facts::platform(
            input.kernel,
            None,
            input.kernel_sg_fix,
            (input.mtt_va, input.iommu),
        )
    };
    let limit = |stated: Option<u64>, logged: Option<Limit>| stated.map(given).or(logged);
    evidence.family = input.dev.or(evidence.family);
    evidence.errno = input.errno.or(evidence.errno);
    evidence.length = input.length.or(evidence.length);
    evidence.addr = input.addr.or(evidence.addr);
    evidence.effective_page = input.effective_page.or(evidence.effective_page);
    evidence.backing = backing.or(evidence.backing);
    evidence.memory = memory.or(evidence.memory);
    evidence.max_mr_size = limit(input.max_mr_size, evidence.max_mr_size);
    evidence.max_mr = limit(input.max_mr, evidence.max_mr);
    evidence.mrs_live = input.mrs_live.or(evidence.mrs_live);
    evidence.entries_budget = limit(input.entry_budget, evidence.entries_budget);
    evidence.entries_per_mr = limit(input.per_mr_entries, evidence.entries_per_mr);
    let used = input.used.map(|used| (used, Some(used)));
    evidence.entries_used = used.or(evidence.entries_used);
    evidence.memlock = limit(input.memlock, evidence.memlock);
    evidence.pinned = input.pinned.or(evidence.pinned);
    evidence.copies = input.copies.or(evidence.copies);
    evidence.hugepages_free = input.hugepages_free.or(evidence.hugepages_free);
    evidence.container = input.container.or(evidence.container);
    evidence.hugetlb_cgroup_limit = input.hugetlb_cgroup_limit.or(evidence.hugetlb_cgroup_limit);
    evidence.fork_init = input.fork_init.or(evidence.fork_init);
    evidence.hugepages_safe = input.hugepages_safe.or(evidence.hugepages_safe);
    evidence.said_out_of_mr_size = input.dmesg_out_of_mr_size.or(evidence.said_out_of_mr_size);
    Ok(evidence)
}

/// What the first failure of the log tells.
fn from_log(lines: &[String]) -> Result<Evidence, String> {
    if lines.is_empty() {
        return Ok(Evidence::default());
    }
    let mut log = Log::default();
    for line in lines.iter().flat_map(|line| line.lines()) {
        log.read(line);
    }
    match log.failures().into_iter().next() {
        Some(failure) => Ok(failure.evidence),
        None => Err("log: no line tells of a failed registration".to_owned()),
    }
}
