//! `--estimate`: what is measured on this host, what is given, and what is not known.

use hugemr_core::estimate::{Cost, Costs, Estimate, Seconds, Way};
use hugemr_core::fact::{Kind, Source};
use hugemr_core::plan::{Pages, Plan};
use hugemr_core::size::{Bytes, PageSize};
use hugemr_host::mapping::Kind as Memory;
use hugemr_host::measure::{self, MeasureError, Measured};
use hugemr_host::root::Root;

use crate::args::{EstimateArgs, RateOf};
use crate::commands::note;
use crate::device::Opened;
use crate::host;

/// A prediction, with what it was made of.
#[derive(Clone, Debug)]
pub(crate) struct Estimated {
    pub(crate) times: Estimate,
    pub(crate) costs: Costs,
    pub(crate) way: Way,
    /// The device is simulated, and nobody gave it a rate: it registers as fast as the simulator reckons.
    pub(crate) without_rate: bool,
    /// What could not be measured, and why.
    pub(crate) not_known: Vec<String>,
}

/// What is measured is memory that the hypervisor has given already. Of memory that it has still to give, 8 to 12 times the time
/// was measured.
const NEW_TO_THE_MACHINE: &str = "memory that this virtual machine has not used since it was started can take ten times as long to populate, also longer than at worst";

/// `None`: not asked for. Takes a second or so.
pub(crate) fn make(
    args: &EstimateArgs,
    plan: &Plan,
    opened: &Opened,
    threads: Option<std::num::NonZeroUsize>,
) -> Option<Estimated> {
    args.estimate.then(|| {
        let threads = threads.unwrap_or_else(host::threads).get();
        let mut not_known = Vec::new();
        let costs = costs(args, plan, opened, threads, &mut not_known);
        let way = Way {
            missing_pages: missing_pages(plan),
            threads: threads as u64,
        };
        let given = |of| args.rate.iter().any(|rate| rate.of == of);
        Estimated {
            without_rate: opened.simulated().is_some() && !given(RateOf::Pin) && !given(RateOf::Mr),
            times: Estimate::of(plan, way, &costs),
            costs,
            way,
            not_known,
        }
    })
}

/// Huge pages of the plan that are not free in the pools of this host.
fn missing_pages(plan: &Plan) -> u64 {
    let free = host::free_pages();
    let of = |page: PageSize| free.iter().find(|(p, _)| *p == page).map_or(0, |(_, n)| *n);
    let missing = plan
        .huge_pages
        .iter()
        .map(|&(page, need)| need.saturating_sub(of(page)));
    missing.sum()
}

fn costs(
    args: &EstimateArgs,
    plan: &Plan,
    opened: &Opened,
    threads: usize,
    not_known: &mut Vec<String>,
) -> Costs {
    let given = |of: RateOf| {
        let rate = args.rate.iter().find(|rate| rate.of == of)?;
        Some(Cost {
            per_unit: Seconds::exactly(rate.seconds),
            once: Seconds::ZERO,
            source: Source::new(Kind::Given, "--rate"),
        })
    };
    let nothing = |text: &'static str| Cost {
        per_unit: Seconds::ZERO,
        once: Seconds::ZERO,
        source: Source::new(Kind::Documented, text),
    };
    let simulated = opened.simulated().is_some();
    // Where pages differ, most of the memory is on the largest.
    let largest = plan.segments.iter().map(|segment| segment.page).max();
    let page = match plan.pages {
        Pages::Thp => PageSize::M2,
        _ => largest.unwrap_or(PageSize::K4),
    };
    let root = Root::real();
    let mut measured = |what: &str, result: Result<Measured, MeasureError>| match result {
        Ok(measured) => cost(&measured),
        Err(error) => {
            let mut text = format!("{what}: {error}");
            for cause in crate::device::sources(&error) {
                text = format!("{text}: {cause}");
            }
            not_known.push(text);
            None
        }
    };
    if given(RateOf::Populate).is_none() && host::is_virtual(&root) {
        note(NEW_TO_THE_MACHINE.to_owned());
    }
    let populate = given(RateOf::Populate)
        .or_else(|| measured("populate", measure::populate(&root, page, threads)));
    let pin = match given(RateOf::Pin) {
        None if simulated => Some(nothing("a simulated device pins nothing")),
        None => measured("pin", measure::pin(&root, page)),
        given => given,
    };
    let command = match given(RateOf::Mr) {
        None if simulated => Some(nothing("a simulated device answers at once")),
        given => given,
    };
    if command.is_none() {
        not_known.push(
            "the device's own time for each MR: registering takes that much longer (--rate mr=N/s)"
                .to_owned(),
        );
    }
    let reserve =
        given(RateOf::Reserve).or_else(|| (page == PageSize::M2).then(Cost::assumed_reserve));
    Costs {
        reserve,
        populate,
        pin,
        command,
    }
}

fn cost(measured: &Measured) -> Option<Cost> {
    let memory = match measured.on {
        Memory::HugeTlb(page) => Pages::Only(page).words(),
        Memory::Thp => "transparent huge pages, as no huge page is free".to_owned(),
        _ => "4 KiB pages".to_owned(),
    };
    let text = format!(
        "{} rounds of {} of {memory}",
        measured.per_gib.len(),
        Bytes(measured.bytes)
    );
    Some(Cost {
        per_unit: Seconds::of(&measured.per_gib)?,
        once: Seconds::ZERO,
        source: Source::new(Kind::Measured, text),
    })
}
