//! `op: plan`: a request, a device and a host become what `hugemr plan` would make of them.

use std::num::NonZeroU64;

use hugemr_core::backend::Access;
use hugemr_core::device::{Device, Family};
use hugemr_core::errno::Errno;
use hugemr_core::fact::Limit;
use hugemr_core::host::{Driver, Host, HugePool, Node};
use hugemr_core::layout;
use hugemr_core::plan::{Pages, Plan, PlanRequest, Refusal, Resource, Split, Verdict, Wish};
use hugemr_core::quirk::QuirkState;
use hugemr_core::size::{Count, PageSize};
use hugemr_core::version::KernelVersion;
use serde::{Deserialize, Serialize};

use super::facts::{self, Limits, MOST_BUFFERS, OneOrMore, at_most_one, given, stated};
use super::{Answer, read};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    // the device
    #[serde(default, deserialize_with = "read::family")]
    dev: Option<Family>,
    max_mr_size: Option<u64>,
    max_mr: Option<u64>,
    entry_budget: Option<u64>,
    per_mr_entries: Option<u64>,
    used: Option<u64>,
    // the platform
    #[serde(default, deserialize_with = "read::kernel")]
    kernel: Option<KernelVersion>,
    #[serde(default, deserialize_with = "read::driver")]
    driver: Option<Driver>,
    kernel_sg_fix: Option<bool>,
    mtt_va: Option<bool>,
    iommu: Option<bool>,
    // what is asked for
    total: Option<u64>,
    pool: Option<u64>,
    buffers: Option<Buffers>,
    bytes_each: Option<u64>,
    addr: Option<u64>,
    len: Option<u64>,
    hugepages_want: Option<u64>,
    #[serde(default, deserialize_with = "read::page")]
    page: Option<PageSize>,
    block: Option<NonZeroU64>,
    chunk: Option<u64>,
    chunking: Option<bool>,
    #[serde(rename = "override")]
    over: Option<u64>,
    split: Option<NonZeroU64>,
    align_to_split: Option<NonZeroU64>,
    nics: Option<OneOrMore>,
    devices: Option<NonZeroU64>,
    copies: Option<NonZeroU64>,
    processes: Option<NonZeroU64>,
    shared_registration: Option<bool>,
    fork_init: Option<bool>,
    hugepages_safe: Option<bool>,
    #[serde(default, deserialize_with = "read::access")]
    #[expect(dead_code, reason = "checked while it is read; no plan depends on it")]
    access: Option<Access>,
    // the host
    hugepages_free: Option<u64>,
    hugepages_free_bytes: Option<u64>,
    hugepages_got: Option<u64>,
    mem_available: Option<u64>,
    memlock: Option<u64>,
    hugetlb_cgroup_limit: Option<u64>,
}

/// The length of each buffer, or their number (then with `bytes_each`).
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a list of lengths, or a number of buffers, belongs here"
)]
enum Buffers {
    Each(Vec<u64>),
    Count(u64),
}

/// The answer; `null` where a field does not apply.
#[derive(Default, Serialize)]
struct Fields {
    verdict: &'static str,
    errno: Option<String>,
    message: String,
    // what is registered, on each device
    wanted: u64,
    mapped: Option<u64>,
    register: Option<u64>,
    mrs: Option<u64>,
    chunk: Option<u64>,
    step: Option<u64>,
    entries: Option<u64>,
    entries_worst: Option<u64>,
    entries_per_mr: Option<u64>,
    entries_at_4k: Option<u64>,
    hugepages: Option<u64>,
    without_override_mrs: Option<u64>,
    // over all devices, PDs and processes
    registrations: Option<Registrations>,
    pinned: Option<u64>,
    accounted: Option<u64>,
    kernel_memory: Option<u64>,
    // what is missing
    need: Option<u64>,
    short: Option<u64>,
    short_bytes: Option<u64>,
    max_fit: Option<u64>,
    max_fit_at_most: Option<u64>,
    first_fail_mr_index: Option<u64>,
    predict: Option<String>,
    // borders
    aligned: bool,
    naive_piece: Option<u64>,
    mapping_align: Option<u64>,
    aligned_mapping: Option<u64>,
    raw_end_predicts: Option<String>,
    defects: Vec<&'static str>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Registrations {
    One(u64),
    More(Vec<Option<u64>>),
}

pub(super) fn answer(input: Input) -> Result<Answer, String> {
    let page = facts::page(input.page);
    let device = device(&input);
    let host = host(&input, page)?;
    let (devices, several) = devices(&input)?;
    let mut request = request(input, page)?;
    request.devices = devices[0];
    let made = Made::of(&request, &device, &host);
    let mut fields = made.fields(&request, page);
    if request.max_mr_size.is_some() {
        let mut plain = request.clone();
        plain.max_mr_size = None;
        fields.without_override_mrs = Made::of(&plain, &device, &host).plan().map(mrs);
    }
    if several {
        let each = devices.iter().map(|count| {
            let mut on = request.clone();
            on.devices = *count;
            Made::of(&on, &device, &host)
                .plan()
                .map(|plan| plan.registrations)
        });
        fields.registrations = Some(Registrations::More(each.collect()));
    }
    let gist = gist(&fields);
    Answer::new(&fields, gist)
}

fn device(input: &Input) -> Device {
    let limits = Limits {
        max_mr_size: input.max_mr_size,
        max_mr: input.max_mr,
        entry_budget: input.entry_budget,
        per_mr_entries: input.per_mr_entries,
        used: input.used,
    };
    facts::device(input.dev, limits)
}

fn host(input: &Input, page: PageSize) -> Result<Host, String> {
    at_most_one(&[
        ("hugepages_free", input.hugepages_free.is_some()),
        ("hugepages_free_bytes", input.hugepages_free_bytes.is_some()),
        ("hugepages_got", input.hugepages_got.is_some()),
    ])?;
    let free = input
        .hugepages_free
        .or(input.hugepages_got)
        .or(input.hugepages_free_bytes.map(|bytes| bytes / page.bytes()));
    let pool = |free| HugePool {
        page,
        total: free,
        free,
        surplus: 0,
    };
    // Memory outside of the pools is known to the host, and no plan on huge pages may depend on it.
    let node = |free| Node {
        mem_free: input.mem_available.unwrap_or(0),
        pools: vec![pool(free)],
        ..Node::default()
    };
    let cgroup = input.hugetlb_cgroup_limit.map(|limit| (page, limit));
    Ok(Host {
        platform: facts::platform(
            input.kernel,
            input.driver,
            input.kernel_sg_fix,
            (input.mtt_va, input.iommu),
        ),
        nodes: free.map(|free| vec![node(free)]),
        memlock: input.memlock.map(given),
        cgroup: cgroup.into_iter().collect(),
        ..Host::default()
    })
}

/// Numbers of devices to plan for, at least one, and whether it is a list.
fn devices(input: &Input) -> Result<(Vec<u64>, bool), String> {
    at_most_one(&[
        ("nics", input.nics.is_some()),
        ("devices", input.devices.is_some()),
    ])?;
    match &input.nics {
        Some(OneOrMore::More(list)) if list.is_empty() || list.len() > 64 => {
            Err("nics: a list has 1 to 64 numbers".to_owned())
        }
        Some(OneOrMore::More(list)) => Ok((list.iter().map(|n| n.get()).collect(), true)),
        Some(OneOrMore::One(n)) => Ok((vec![n.get()], false)),
        None => Ok((vec![input.devices.map_or(1, NonZeroU64::get)], false)),
    }
}

fn request(input: Input, page: PageSize) -> Result<PlanRequest, String> {
    at_most_one(&[
        ("split", input.split.is_some()),
        ("align_to_split", input.align_to_split.is_some()),
    ])?;
    let number = |n: Option<NonZeroU64>| n.map_or(1, NonZeroU64::get);
    let split = input.split.or(input.align_to_split).map(|pieces| Split {
        pieces: pieces.get(),
        align: input.align_to_split.is_some(),
    });
    let shared = input.shared_registration.unwrap_or(false);
    let mut request = PlanRequest {
        block: input.block.map(NonZeroU64::get),
        split,
        chunk: input.chunk,
        max_mr_size: input.over,
        single: input.chunking == Some(false),
        pds: number(input.copies),
        processes: if shared { 1 } else { number(input.processes) },
        ..PlanRequest::new(Wish::Total(0))
    };
    request.fork.init = input.fork_init.unwrap_or(false);
    request.fork.hugepages_safe = input.hugepages_safe.unwrap_or(false);
    request.wish = wish(input, page)?;
    Ok(request.pages(Pages::Only(page)))
}

/// What is asked for: exactly one of the ways to say it.
fn wish(input: Input, page: PageSize) -> Result<Wish, String> {
    let ways = [
        ("total", input.total.is_some()),
        ("pool", input.pool.is_some()),
        ("buffers", input.buffers.is_some()),
        ("addr and len", input.addr.is_some() || input.len.is_some()),
        ("hugepages_want", input.hugepages_want.is_some()),
    ];
    at_most_one(&ways)?;
    if stated(&ways).is_empty() {
        let names: Vec<&str> = ways.iter().map(|(name, _)| *name).collect();
        return Err(format!("nothing is asked for: one of {}", names.join(", ")));
    }
    if input.bytes_each.is_some() && !matches!(input.buffers, Some(Buffers::Count(_))) {
        return Err("bytes_each goes with a number of buffers".to_owned());
    }
    let many = |count: u64| format!("{count} buffers are more than {MOST_BUFFERS}");
    Ok(
        match (input.buffers, input.addr, input.len, input.hugepages_want) {
            (Some(Buffers::Each(list)), ..) if list.len() > MOST_BUFFERS => {
                return Err(many(list.len() as u64));
            }
            (Some(Buffers::Each(list)), ..) => Wish::Buffers(list),
            (Some(Buffers::Count(count)), ..) => {
                let each = input
                    .bytes_each
                    .ok_or("a number of buffers needs bytes_each")?;
                let few = usize::try_from(count).ok().filter(|n| *n <= MOST_BUFFERS);
                Wish::Buffers(vec![each; few.ok_or_else(|| many(count))?])
            }
            (None, Some(addr), Some(len), _) => Wish::Adopted { addr, len },
            (None, Some(_), None, _) | (None, None, Some(_), _) => {
                return Err("addr and len are needed together".to_owned());
            }
            (None, None, None, Some(pages)) => Wish::Total(
                pages
                    .checked_mul(page.bytes())
                    .ok_or("hugepages_want is beyond 2^64 bytes")?,
            ),
            (None, None, None, None) => Wish::Total(input.total.or(input.pool).unwrap_or(0)),
        },
    )
}

/// What the planner made.
enum Made {
    Plan(Box<Plan>),
    Refused(Box<Refusal>),
}

impl Made {
    fn of(request: &PlanRequest, device: &Device, host: &Host) -> Self {
        match hugemr_core::plan::plan(request, device, host) {
            Ok(plan) => Self::Plan(Box::new(plan)),
            Err(refusal) => Self::Refused(refusal),
        }
    }

    /// The plan, that inside of a refusal too.
    fn plan(&self) -> Option<&Plan> {
        match self {
            Self::Plan(plan) => Some(plan),
            Self::Refused(refusal) => refusal.plan.as_deref(),
        }
    }

    fn fields(&self, request: &PlanRequest, page: PageSize) -> Fields {
        let mut fields = Fields {
            wanted: request.wanted(),
            aligned: raw_ends_aligned(request, page),
            mapping_align: Some(page.bytes()),
            ..Fields::default()
        };
        match self {
            Self::Plan(plan) => {
                fields.verdict = plan.verdict.name();
                fields.message = sentence(plan);
            }
            Self::Refused(refusal) => {
                fields.verdict = refusal.code.name();
                fields.errno = refusal.errno.map(name);
                fields.message.clone_from(&refusal.text);
                fields.max_fit = refusal.max_fit.map(|fit| fit.certain);
                fields.max_fit_at_most = refusal.max_fit.and_then(|fit| fit.at_most);
            }
        }
        if let Some(plan) = self.plan() {
            fill(&mut fields, plan);
            fields.raw_end_predicts = plan.fork_hazard.map(name);
            // Memory that is adopted is registered raw, with whatever that gives.
            if matches!(request.wish, Wish::Adopted { .. }) {
                fields.predict.clone_from(&fields.raw_end_predicts);
            }
        }
        if fields.errno.is_some() {
            fields.predict.clone_from(&fields.errno);
        }
        fields
    }
}

fn fill(fields: &mut Fields, plan: &Plan) {
    let entries = plan.check(Resource::Entries).map(|check| check.need);
    let largest = plan.check(Resource::EntriesPerMr).map(|check| check.need);
    fields.mapped = Some(plan.mapped);
    fields.register = Some(plan.mapped);
    fields.mrs = Some(mrs(plan));
    fields.chunk = Some(plan.chunk);
    fields.step = Some(plan.step);
    fields.entries = entries.map(|need| need.0);
    fields.entries_worst = entries.map(|need| need.1);
    fields.entries_per_mr = largest.map(|need| need.0);
    fields.entries_at_4k = plan
        .segments
        .iter()
        .map(|s| layout::entries(PageSize::K4, s.skew % PageSize::K4.bytes(), s.len))
        .try_fold(0u64, u64::checked_add);
    fields.hugepages = Some(plan.huge_pages.iter().map(|(_, count)| count).sum());
    fields.registrations = Some(Registrations::One(plan.registrations));
    fields.pinned = Some(plan.pinned);
    fields.accounted = Some(plan.accounted);
    fields.kernel_memory = Some(plan.kernel_memory);
    fields.first_fail_mr_index = plan.first_failure.map(|(index, _)| index);
    fields.defects = plan
        .quirks
        .iter()
        .filter(|state| QuirkState::counts(state))
        .map(|state| state.quirk.code())
        .collect();
    if let Some(split) = plan.split {
        fields.aligned = split.aligned;
        fields.naive_piece = Some(split.piece);
        fields.mapping_align = Some(split.mapping_align);
        fields.aligned_mapping = Some(split.aligned_mapping);
    }
    for check in &plan.checks {
        if let Resource::HugePages(page) = check.resource {
            let free = check.limit.as_ref().and_then(Limit::known);
            let short = free.map(|free| check.need.0.saturating_sub(free));
            fields.need = Some(check.need.0);
            fields.short = short;
            fields.short_bytes = short.and_then(|short| short.checked_mul(page.bytes()));
        }
    }
}

/// MRs on one device, of all PDs.
fn mrs(plan: &Plan) -> u64 {
    plan.check(Resource::MrCount)
        .map_or(plan.mrs, |check| check.need.0)
}

/// Whether the range lies on page borders as it was asked for.
fn raw_ends_aligned(request: &PlanRequest, page: PageSize) -> bool {
    let on = |value: u64| value.is_multiple_of(page.bytes());
    match &request.wish {
        Wish::Total(len) => on(*len),
        Wish::Buffers(lens) => lens.iter().all(|len| on(*len)),
        Wish::Adopted { addr, len } => on(*addr) && on(addr.wrapping_add(*len)),
    }
}

fn sentence(plan: &Plan) -> String {
    match plan.verdict {
        Verdict::OkOverride => format!("fits above the advertised limit: {plan}"),
        Verdict::Undecided => format!("undecided: {plan}"),
        Verdict::Fits | Verdict::Refused(_) => format!("fits: {plan}"),
    }
}

fn gist(fields: &Fields) -> String {
    let mut text = fields.verdict.to_owned();
    if let Some(errno) = &fields.errno {
        text += &format!(" ({errno})");
    }
    if let Some(entries) = fields.entries {
        text += &format!(", {}", Count(entries, "entry"));
    }
    if let Some(mrs) = fields.mrs {
        text += &format!(", {}", Count(mrs, "MR"));
    }
    text
}

/// `EIO`, or the number where it has no name.
pub(super) fn name(errno: Errno) -> String {
    errno
        .name()
        .map_or_else(|| errno.0.to_string(), str::to_owned)
}
