//! What stands in the way of a registration on this host, in order of harm: facts in, findings out.
//!
//! Each check is a function from a [`Case`] to [`Finding`]s and knows nothing of the others. A wish is planned twice
//! where it is refused: with the host's limits, and with those of the device alone, so that every limit in the way is
//! named and not only the first.

mod check;
mod facts;
mod finding;

pub use facts::*;
pub use finding::{Finding, Harm};

use crate::device::Device;
use crate::host::Host;
use crate::plan::{Pages, Plan, PlanRequest, Refusal, Verdict, plan};
use crate::size::{Bytes, PageSize};

/// What user-space verbs answered when a device was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verbs {
    /// Nobody asked: the files of sysfs are all there is.
    #[default]
    NotAsked,
    /// The device is simulated; these facts are its profile's, because the host does not know them.
    Simulated(Vec<&'static str>),
    /// No device, or not this one, can be used.
    Unavailable {
        /// The stable word.
        code: &'static str,
        /// Why.
        text: String,
        /// What leads out.
        way_out: String,
    },
    /// These can be opened.
    Usable(Vec<String>),
}

/// What the doctor is asked.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// What was seen.
    pub facts: &'a Facts,
    /// What verbs answered.
    pub verbs: &'a Verbs,
    /// The same as the planner takes it, with what the user knows better ([`Facts::host`]).
    pub host: &'a Host,
    /// The device; [`nameless`] where there is none.
    pub device: &'a Device,
    /// Its name as `--device` takes it, quoted for a shell.
    pub named: &'a str,
    /// What is to be registered.
    pub wish: Option<&'a PlanRequest>,
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing known stands in the way.
    Yes,
    /// Something is not known on which it hangs.
    Undecided,
    /// Not as the host is now.
    No,
}

impl Answer {
    /// The stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::Undecided => "undecided",
            Self::No => "no",
        }
    }
}

/// All findings, worst first, with the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The answer.
    pub answer: Answer,
    /// The plan that would be carried out, where there is a wish and the device takes it.
    pub plan: Option<Plan>,
    /// Worst first.
    pub findings: Vec<Finding>,
}

impl Report {
    /// How many findings are that bad.
    #[must_use]
    pub fn count(&self, harm: Harm) -> usize {
        self.findings.iter().filter(|f| f.harm == harm).count()
    }

    /// Adds findings that are not the host's: of the facts' age, for example.
    pub fn add(&mut self, more: impl IntoIterator<Item = Finding>) {
        self.findings.extend(more);
        self.settle();
    }

    fn settle(&mut self) {
        self.findings.sort_by_key(|finding| finding.harm);
        let any = |test: fn(&Finding) -> bool| self.findings.iter().any(test);
        self.answer = if any(|f| f.harm == Harm::Block) {
            Answer::No
        } else if any(|f| f.harm == Harm::Unknown && f.decides) {
            Answer::Undecided
        } else {
            Answer::Yes
        };
    }
}

/// How the wish comes out.
#[derive(Debug, Default)]
struct Outcome {
    /// The plan: the one that fits, or the one that would if the host's limits were higher.
    plan: Option<Plan>,
    /// The device refuses.
    device_refuses: Option<Box<Refusal>>,
    /// Only the host's limits refuse.
    host_refuses: Option<Box<Refusal>>,
}

/// A case with what follows from its wish.
struct Examined<'a> {
    case: Case<'a>,
    outcome: Outcome,
}

impl Examined<'_> {
    fn plan(&self) -> Option<&Plan> {
        self.outcome.plan.as_ref()
    }

    fn wished(&self) -> bool {
        self.case.wish.is_some()
    }
}

/// Examines a case.
#[must_use]
pub fn examine(case: &Case<'_>) -> Report {
    let outcome = case
        .wish
        .map(|wish| outcome(case, wish))
        .unwrap_or_default();
    let examined = Examined {
        case: *case,
        outcome,
    };
    let mut findings = Vec::new();
    for check in check::ALL {
        check(&examined, &mut findings);
    }
    // Whatever the planner says must be said by a finding too.
    let outcome = examined.outcome;
    if let Some(refusal) = &outcome.host_refuses
        && !findings.iter().any(|f| f.harm == Harm::Block)
    {
        findings.push(check::refused(refusal));
    }
    let undecided = |plan: &Plan| plan.verdict == Verdict::Undecided;
    if outcome.plan.as_ref().is_some_and(undecided)
        && !findings.iter().any(|f| f.decides)
        && !findings.iter().any(|f| f.harm == Harm::Block)
    {
        findings.push(Finding::unknown("undecided", "a limit is not known").deciding(true));
    }
    let mut report = Report {
        answer: Answer::Yes,
        plan: outcome.plan.filter(|_| outcome.device_refuses.is_none()),
        findings,
    };
    report.settle();
    report
}

fn outcome(case: &Case<'_>, wish: &PlanRequest) -> Outcome {
    let refusal = match plan(wish, case.device, case.host) {
        Ok(plan) => {
            return Outcome {
                plan: Some(plan),
                ..Outcome::default()
            };
        }
        Err(refusal) => refusal,
    };
    let no_host = Host {
        platform: case.host.platform.clone(),
        ..Host::default()
    };
    let without_host = |pages: Pages| plan(&wish.clone().pages(pages), case.device, &no_host);
    let planned = match wish.pages {
        Pages::Auto => {
            // The pages of which this kernel has a pool, in the planner's order; where none is seen, the usual ones.
            let pools = &case.facts.pools;
            let giant = pools.of(PageSize::M2).is_none() && pools.of(PageSize::G1).is_some();
            let first = if giant { PageSize::G1 } else { PageSize::M2 };
            without_host(Pages::Only(first)).or_else(|refusal| {
                if giant || pools.of(PageSize::G1).is_none() {
                    return Err(refusal);
                }
                without_host(Pages::Only(PageSize::G1)).map_err(|_| refusal)
            })
        }
        pages => without_host(pages),
    };
    match planned {
        Ok(plan) => Outcome {
            plan: Some(plan),
            host_refuses: Some(refusal),
            ..Outcome::default()
        },
        Err(mut refusal) => Outcome {
            plan: refusal.plan.take().map(|plan| *plan),
            device_refuses: Some(refusal),
            ..Outcome::default()
        },
    }
}

/// Facts of the host from a file, facts of the process from here, where both are of the same boot; else all of the
/// file. With a finding where the file cannot be believed as it stands. `now` and `boot_id` are of here.
#[must_use]
pub fn from_file(file: Facts, here: Facts) -> (Facts, Vec<Finding>) {
    const DAY: u64 = 24 * 3600;
    let mut findings = Vec::new();
    let (then, now) = (&file.taken, &here.taken);
    let again = "take them again on the node: hugemr doctor --save FILE";
    let from = then
        .host
        .as_ref()
        .map_or_else(String::new, |host| format!(" of {host}"));
    let same_boot = match (&then.boot_id, &now.boot_id) {
        (Some(then), Some(now)) => Some(then == now),
        _ => None,
    };
    match same_boot {
        Some(true) => {}
        Some(false) => findings.push(
            Finding::risk(
                "facts_of_another_boot",
                format!("the facts{from} are of another boot, or of another machine"),
            )
            .seen("boot_id of the file and /proc/sys/kernel/random/boot_id differ")
            .so("everything here is of then and there, the process too")
            .fix(again),
        ),
        None => findings.push(
            Finding::unknown(
                "facts_of_unknown_boot",
                "whether the facts are of this boot cannot be told",
            )
            .seen("no boot_id in the file, or none in /proc/sys/kernel/random/boot_id")
            .fix(again),
        ),
    }
    let age = match (then.seconds, now.seconds) {
        (Some(then), Some(now)) => Some(now.saturating_sub(then)),
        _ => None,
    };
    match age {
        Some(age) if age <= DAY => {}
        Some(age) => findings.push(
            Finding::risk(
                "facts_are_old",
                format!("the facts{from} are {} h old", age / 3600),
            )
            .seen("time of the file")
            .so("pools and memory change by the minute")
            .fix(again),
        ),
        None => findings.push(
            Finding::unknown("facts_age_unknown", "the age of the facts cannot be told")
                .seen("no time in the file")
                .fix(again),
        ),
    }
    let process = if same_boot == Some(false) {
        file.process.clone()
    } else {
        here.process
    };
    (Facts { process, ..file }, findings)
}

/// A device of which nothing is known but the family, in the place of one that cannot be asked.
#[must_use]
pub fn nameless() -> Device {
    use crate::device::{Family, Used};
    use crate::fact::{Kind, Limit, Source};
    use crate::size::PageSizes;
    let unknown = || Limit::unknown(Source::new(Kind::Assumed, "no device to ask"));
    Device {
        page_size_cap: PageSizes::ERDMA,
        entries: unknown(),
        used: Used::UNKNOWN,
        ..Device::unlimited("no device", Family::Erdma)
    }
}

/// A size as a command takes it: `97GiB`, or plain bytes.
fn argument(bytes: u64) -> String {
    let text = Bytes(bytes).to_string();
    match text.split_once(' ') {
        Some((number, unit)) if unit.ends_with("iB") && !unit.contains(' ') => {
            format!("{number}{unit}")
        }
        _ => bytes.to_string(),
    }
}
