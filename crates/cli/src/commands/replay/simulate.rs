//! `op: sim`: raw registrations on a simulated device. MRs are cut at `max_mr_size` only: no cap avoids a defect, and no
//! planner refuses.

use hugemr_core::device::Family;
use hugemr_core::host::{Driver, Platform};
use hugemr_core::plan::{Pages, PlanRequest, plan};
use hugemr_core::size::{Count, Grouped, PageSize};
use hugemr_core::version::KernelVersion;
use serde::{Deserialize, Serialize};

use super::facts::{self, Limits, MOST_BUFFERS, at_most_one};
use super::{Answer, read};
use crate::device::stated::{self, Layout, Raw};

/// Most pages that the simulator walks for one vector, those of 4 KiB in holes among them: about a second.
const MOST_PAGES: u64 = 1 << 26;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    #[serde(default, deserialize_with = "read::family")]
    dev: Option<Family>,
    max_mr_size: Option<u64>,
    max_mr: Option<u64>,
    entry_budget: Option<u64>,
    per_mr_entries: Option<u64>,
    used: Option<u64>,
    #[serde(default, deserialize_with = "read::kernel")]
    kernel: Option<KernelVersion>,
    #[serde(default, deserialize_with = "read::driver")]
    driver: Option<Driver>,
    kernel_sg_fix: Option<bool>,
    mtt_va: Option<bool>,
    iommu: Option<bool>,
    total: Option<u64>,
    mr_bytes: Option<Vec<u64>>,
    #[serde(default, deserialize_with = "read::page")]
    page: Option<PageSize>,
    #[serde(default, deserialize_with = "read::page")]
    effective_page: Option<PageSize>,
    contiguous: Option<bool>,
    holes_4k: Option<u64>,
    memlock: Option<u64>,
}

#[derive(Serialize)]
struct Fields {
    registered_ok: bool,
    errno: Option<String>,
    first_fail_mr_index: Option<u64>,
    message: String,
    mrs: u64,
    ok: u64,
    /// Of all MRs that reached the device, one that it refused among them.
    entries: u64,
    entries_held: u64,
    effective_page: Option<u64>,
    sent_length: Option<u64>,
    usable: bool,
    verify_must_flag: bool,
    best_effective_page: Option<u64>,
    best_entries: Option<u64>,
    worst_effective_page: Option<u64>,
    worst_entries: Option<u64>,
    not_whole: Vec<(u64, u64)>,
}

/// What is registered, and how the kernel and the driver are.
struct Case {
    family: Option<Family>,
    limits: Limits,
    platform: Platform,
    memlock: Option<u64>,
    lens: Vec<u64>,
    page: PageSize,
}

impl Case {
    fn register(&self, layout: Layout) -> Result<Raw, String> {
        stated::register(
            facts::device(self.family, self.limits),
            self.platform.clone(),
            self.memlock,
            (&self.lens, self.page, layout),
        )
    }

    /// The same where nothing is ever full: what each MR would cost.
    fn unlimited(&self, layout: Layout) -> Result<Raw, String> {
        stated::register(
            facts::device(self.family, Limits::default()),
            self.platform.clone(),
            None,
            (&self.lens, self.page, layout),
        )
    }
}

pub(super) fn answer(input: Input) -> Result<Answer, String> {
    let page = facts::page(input.page);
    let layout = layout(&input)?;
    let effective = input.effective_page;
    let case = case(input, page)?;
    let both = [Layout::Scattered, Layout::Contiguous];
    let costs = [case.unlimited(both[0])?, case.unlimited(both[1])?];
    let layout = match (layout, effective) {
        (Some(layout), None) => layout,
        (None, None) => Layout::Scattered,
        // The report tells the page size and not the layout: the layout is the one that gives it.
        (None, Some(seen)) => (0..2)
            .find(|i| smallest(&costs[*i]) == Some(seen))
            .map(|i| both[i])
            .ok_or_else(|| {
                format!("effective_page: neither scattered nor contiguous pages of {page} come out as {seen} here")
            })?,
        (Some(layout), Some(seen)) => {
            let got = smallest(&case.unlimited(layout)?);
            if got != Some(seen) {
                return Err(format!("effective_page: this layout does not come out as {seen}"));
            }
            layout
        }
    };
    let raw = case.register(layout)?;
    let fields = fields(&case, raw, &costs);
    let gist = gist(&fields);
    Answer::new(&fields, gist)
}

fn layout(input: &Input) -> Result<Option<Layout>, String> {
    let contiguous = input.contiguous;
    at_most_one(&[
        ("contiguous", contiguous == Some(true)),
        ("holes_4k", input.holes_4k.is_some()),
    ])?;
    Ok(match (input.holes_4k, contiguous) {
        (Some(count), _) => Some(Layout::Holes(count)),
        (None, Some(true)) => Some(Layout::Contiguous),
        (None, Some(false)) => Some(Layout::Scattered),
        (None, None) => None,
    })
}

fn case(input: Input, page: PageSize) -> Result<Case, String> {
    let limits = Limits {
        max_mr_size: input.max_mr_size,
        max_mr: input.max_mr,
        entry_budget: input.entry_budget,
        per_mr_entries: input.per_mr_entries,
        used: input.used,
    };
    let lens = match (input.total, input.mr_bytes) {
        (Some(total), None) => cut(total, page, input.max_mr_size)?,
        (None, Some(list)) if list.is_empty() || list.contains(&0) => {
            return Err("mr_bytes: lengths that are not 0 are needed".to_owned());
        }
        (None, Some(list)) if list.len() > MOST_BUFFERS => return Err(too_many(list.len())),
        (None, Some(list)) => list,
        _ => return Err("one of total, mr_bytes is needed".to_owned()),
    };
    let small = (input.holes_4k.unwrap_or(0)).saturating_mul(PageSize::K4.pages_for(page.bytes()));
    let pages = lens
        .iter()
        .map(|len| len / page.bytes() + 1)
        .fold(small, u64::saturating_add);
    if pages > MOST_PAGES || page.bytes() > stated::LARGEST_PAGE {
        return Err(format!(
            "too large to simulate: at most {} pages, of at most 2 TiB",
            Grouped(MOST_PAGES)
        ));
    }
    Ok(Case {
        family: input.dev,
        limits,
        platform: facts::platform(
            input.kernel,
            input.driver,
            input.kernel_sg_fix,
            (input.mtt_va, input.iommu),
        ),
        memlock: input.memlock,
        lens,
        page,
    })
}

fn too_many(count: impl std::fmt::Display) -> String {
    format!("{count} MRs are more than {MOST_BUFFERS}")
}

/// Cuts the whole at `max_mr_size`, as the planner does where it reckons with no defect and no other limit.
fn cut(total: u64, page: PageSize, max_mr_size: Option<u64>) -> Result<Vec<u64>, String> {
    let mut request = PlanRequest::total(total).pages(Pages::Only(page));
    request.ignore_quirks = true;
    let only = Limits {
        max_mr_size,
        ..Limits::default()
    };
    let device = facts::device(None, only);
    let plan = plan(&request, &device, &hugemr_core::host::Host::default())
        .map_err(|refusal| refusal.text)?;
    if plan.mrs > MOST_BUFFERS as u64 {
        return Err(too_many(Grouped(plan.mrs)));
    }
    Ok(plan.chunks().map(|chunk| chunk.len).collect())
}

fn smallest(raw: &Raw) -> Option<PageSize> {
    raw.arrived.iter().map(|mr| mr.page).min()
}

fn entries(raw: &Raw) -> u64 {
    raw.arrived.iter().map(|mr| mr.entries).sum()
}

fn fields(case: &Case, raw: Raw, costs: &[Raw; 2]) -> Fields {
    let page = smallest(&raw);
    let whole = |cost: &&Raw| cost.failed.is_none();
    let both = || costs.iter().filter(whole);
    let cut = raw.arrived.iter().find(|mr| mr.wire_len != mr.len);
    let registered_ok = raw.failed.is_none();
    Fields {
        registered_ok,
        errno: raw.failed.map(|(_, errno)| super::plan::name(errno)),
        first_fail_mr_index: raw.failed.map(|(index, _)| index),
        message: match raw.failed {
            Some((index, errno)) => format!(
                "MR {index} of {} was refused: {errno}",
                Grouped(case.lens.len() as u64)
            ),
            None => format!("{} registered", Grouped(raw.ok)),
        },
        mrs: case.lens.len() as u64,
        ok: raw.ok,
        entries: entries(&raw),
        entries_held: raw.entries_held,
        effective_page: page.map(PageSize::bytes),
        sent_length: cut.or(raw.arrived.first()).map(|mr| mr.wire_len),
        usable: registered_ok && cut.is_none(),
        verify_must_flag: cut.is_some() || page.is_some_and(|page| page < case.page),
        best_effective_page: both().filter_map(smallest).max().map(PageSize::bytes),
        best_entries: both().map(entries).min(),
        worst_effective_page: both().filter_map(smallest).min().map(PageSize::bytes),
        worst_entries: both().map(entries).max(),
        not_whole: raw.not_whole.into_iter().take(MOST_SHOWN).collect(),
    }
}

/// Stretches without whole pages that an answer lists.
const MOST_SHOWN: usize = 16;

fn gist(fields: &Fields) -> String {
    let mut text = match (&fields.errno, fields.first_fail_mr_index) {
        (Some(errno), Some(index)) => format!("{errno} at MR {index}"),
        _ => format!("{} registered", Grouped(fields.ok)),
    };
    text += &format!(", {}", Count(fields.entries, "entry"));
    if let Some(page) = fields
        .effective_page
        .and_then(|page| PageSize::new(page).ok())
    {
        text += &format!(", {page} pages");
    }
    if let Some(sent) = fields
        .sent_length
        .filter(|_| fields.registered_ok && !fields.usable)
    {
        text += &format!(", length sent: {sent}");
    }
    text
}
