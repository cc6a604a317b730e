//! Why did it fail? An errno and what else is known become ranked causes, with the evidence for and against each.
//!
//! [`diagnose`] is a pure function of [`Evidence`]. A table says which causes an errno can have on a family of devices;
//! weighing says what the evidence proves, suggests or excludes. It never claims more than that: a cause is
//! [`Likely`](Standing::Likely) only where some evidence suffices for it, or where it is the only one left of a list
//! that is complete; a cause that is ruled out says by what.

mod advice;
mod cause;
mod evidence;
pub mod logs;
mod table;
mod weigh;

use std::fmt;

use crate::device::Family;
use crate::errno::Errno;
use crate::host::Driver;
use crate::size::PageSize;

pub use cause::Cause;
pub use evidence::{BackingPages, Evidence, MemoryKind, Operation, given};
use weigh::{Case, Scale};

/// How much the evidence says for a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// Something that is known suffices for it, or it is the only one left.
    Likely,
    /// It can be.
    Possible,
    /// It cannot be.
    RuledOut,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Likely => "likely",
            Self::Possible => "possible",
            Self::RuledOut => "ruled out",
        })
    }
}

/// One cause, weighed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranked {
    /// Which.
    pub cause: Cause,
    /// How it stands.
    pub standing: Standing,
    /// What speaks for it; never empty unless it is ruled out.
    pub evidence_for: Vec<String>,
    /// What speaks against it; never empty where it is ruled out.
    pub against: Vec<String>,
    /// The command that would decide, where there is one.
    pub decide: Option<String>,
    /// What mends it.
    pub fix: String,
}

/// What an MR of that length costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic {
    /// Bytes.
    pub length: u64,
    /// Entries at 4 KiB pages.
    pub entries_4k: u64,
    /// Entries at 64 KiB pages.
    pub entries_64k: u64,
    /// Entries at 2 MiB pages.
    pub entries_2m: u64,
    /// Entries at 1 GiB pages.
    pub entries_1g: u64,
    /// The page size that the MR got, and the entries it takes; `None` where not known.
    pub effective: Option<(PageSize, u64)>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    /// The step that failed.
    pub operation: Operation,
    /// What it left in errno.
    pub errno: Option<Errno>,
    /// The family of the device, where known.
    pub family: Option<Family>,
    /// What the errno means here, in one sentence.
    pub summary: String,
    /// The causes: likely ones first, then possible ones, then those that are ruled out. Empty: cannot tell.
    pub causes: Vec<Ranked>,
    /// What the length costs, where it is known.
    pub arithmetic: Option<Arithmetic>,
    /// What is not known and would help, each once.
    pub unknown: Vec<&'static str>,
    /// How many causes at the top have the same evidence.
    equals: usize,
    /// Whether something besides the errno speaks for the first cause.
    has_point: bool,
}

impl Diagnosis {
    /// The first cause that is not ruled out.
    #[must_use]
    pub fn first(&self) -> Option<&Ranked> {
        self.causes
            .first()
            .filter(|ranked| ranked.standing != Standing::RuledOut)
    }

    /// Whether nothing is left that could be the cause.
    #[must_use]
    pub fn cannot_tell(&self) -> bool {
        self.first().is_none()
    }

    /// Whether several causes are left, and which it is cannot be told: the errno alone speaks for the first of them, or
    /// nothing but evidence that speaks as much for others.
    #[must_use]
    pub fn undecided(&self) -> bool {
        let is_open = |first: &Ranked| first.standing == Standing::Possible;
        self.left() > 1 && self.first().is_some_and(is_open) && (!self.has_point || self.equals > 1)
    }

    /// Whether what is known suffices for this cause, and for no other that explains the failure by itself.
    #[must_use]
    pub fn decides_for(&self, cause: Cause) -> bool {
        let explains = |ranked: &&Ranked| {
            ranked.standing == Standing::Likely && ranked.cause.behind().is_empty()
        };
        let mut likely = self.causes.iter().filter(explains);
        likely.next().is_some_and(|ranked| ranked.cause == cause) && likely.next().is_none()
    }

    /// How many causes at the top have equal evidence, those that only explain others left out; 0 where none is left.
    #[must_use]
    pub const fn equals(&self) -> usize {
        self.equals
    }

    /// Whether something besides the errno speaks for the first cause.
    #[must_use]
    pub const fn has_point(&self) -> bool {
        self.has_point
    }

    /// How many causes are left.
    #[must_use]
    pub fn left(&self) -> usize {
        let ruled_out = |ranked: &&Ranked| ranked.standing == Standing::RuledOut;
        self.causes.len() - self.causes.iter().filter(ruled_out).count()
    }

    /// How a cause was weighed; `None` where it was no candidate.
    #[must_use]
    pub fn of(&self, cause: Cause) -> Option<&Ranked> {
        self.causes.iter().find(|ranked| ranked.cause == cause)
    }
}

/// One line: the summary, and the first cause with its fix; or the names of those that are left, where it is undecided.
impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary)?;
        if self.undecided() {
            let left = self.causes.iter().take(self.left());
            let names: Vec<&str> = left.map(|ranked| ranked.cause.name()).collect();
            let (count, names) = (names.len(), names.join(", "));
            return write!(f, "; cannot tell which of {count}: {names}");
        }
        self.first().map_or(Ok(()), |r| {
            write!(f, "; {}: {} ({})", r.standing, r.cause.meaning(), r.fix)
        })
    }
}

/// Ranks the causes that the evidence allows. Total and deterministic.
#[must_use]
pub fn diagnose(evidence: &Evidence) -> Diagnosis {
    let op = evidence.operation.unwrap_or(Operation::RegMr);
    let case = Case {
        e: evidence,
        op,
        errno: evidence.errno,
    };
    // A registration that failed for an untold reason can have any cause: only a success can be silently wrong.
    let untold =
        op == Operation::RegMr && evidence.errno.is_none() && evidence.failed == Some(true);
    let mut weighed: Vec<(Cause, Scale)> = table::candidates(op, evidence.errno, evidence.family)
        .into_iter()
        .filter(|_| !untold)
        .map(|cause| (cause, weigh::weigh(cause, &case)))
        .collect();
    drop_orphans(&mut weighed);
    settle_the_last(&mut weighed, &case);
    if !weighed.is_empty() {
        weighed.extend(suspects(&weighed, &case));
    }
    // The sort is stable: equals stay in the order of the table.
    weighed.sort_by_key(|(_, scale)| (scale.standing(), std::cmp::Reverse(scale.score())));
    put_behind(&mut weighed);
    if weigh::kernel_has_no_large_pages(evidence) {
        // The full table is what came of it; larger pages, which mend a full table, mend nothing here.
        let behind = |(cause, scale): &(Cause, Scale)| {
            *cause == Cause::SmallPages && scale.standing() == Standing::Likely
        };
        weighed.sort_by_key(|one| !behind(one));
    }
    let mut unknown = Vec::new();
    for (_, scale) in weighed
        .iter()
        .filter(|(_, scale)| scale.standing() != Standing::RuledOut)
    {
        for what in &scale.lacks {
            if !unknown.contains(what) {
                unknown.push(*what);
            }
        }
    }
    if evidence.errno_of_libfabric == Some(true) && evidence.errno.is_some() {
        unknown.push("the provider of libfabric");
    }
    let arithmetic = arithmetic(evidence);
    let top = weighed
        .first()
        .map(|(_, scale)| (scale.standing(), scale.score()))
        .filter(|(standing, _)| *standing != Standing::RuledOut);
    let is_equal = |(cause, scale): &&(Cause, Scale)| {
        cause.behind().is_empty() && Some((scale.standing(), scale.score())) == top
    };
    Diagnosis {
        equals: weighed.iter().filter(is_equal).count(),
        has_point: weighed.first().is_some_and(|(_, scale)| scale.has_point()),
        operation: op,
        errno: evidence.errno,
        family: evidence.family,
        summary: summary(&case, weighed.is_empty()),
        causes: weighed
            .into_iter()
            .map(|(cause, scale)| ranked(cause, scale, &case, arithmetic.as_ref()))
            .collect(),
        arithmetic,
        unknown,
    }
}

/// A cause that only explains others falls with them.
fn drop_orphans(weighed: &mut [(Cause, Scale)]) {
    let standing: Vec<(Cause, Standing)> = weighed
        .iter()
        .map(|(cause, scale)| (*cause, scale.standing()))
        .collect();
    for (cause, scale) in weighed
        .iter_mut()
        .filter(|(cause, _)| !cause.behind().is_empty())
    {
        let parents = || {
            standing
                .iter()
                .filter(|(parent, _)| cause.behind().contains(parent))
        };
        if parents().all(|(_, standing)| *standing == Standing::RuledOut) {
            let names: Vec<&str> = parents().map(|(parent, _)| parent.name()).collect();
            scale.excludes(format!(
                "it would be behind {}, which is ruled out",
                names.join(" or ")
            ));
        }
    }
}

/// A cause that only explains others comes after the first of them, unless it is likely: by itself it is no cause.
fn put_behind(weighed: &mut [(Cause, Scale)]) {
    let explains = |cause: Cause| !cause.behind().is_empty();
    let mut at = 0;
    while let Some(from) = (at..weighed.len()).find(|at| explains(weighed[*at].0)) {
        at = from + 1;
        let (cause, scale) = &weighed[from];
        if scale.standing() != Standing::Possible {
            continue;
        }
        let is_parent = |(other, scale): &(Cause, Scale)| {
            cause.behind().contains(other) && scale.standing() != Standing::RuledOut
        };
        let first = weighed.iter().position(is_parent);
        if let Some(to) = first.filter(|to| *to > from) {
            weighed[from..=to].rotate_left(1);
            at = from;
        }
    }
}

/// The last one standing of a complete list is likely.
fn settle_the_last(weighed: &mut [(Cause, Scale)], case: &Case<'_>) {
    let Some(errno) = case.errno else { return };
    if !table::complete(case.op, errno, case.e.family) {
        return;
    }
    let mut left = weighed.iter_mut().filter(|(cause, scale)| {
        cause.behind().is_empty() && scale.standing() != Standing::RuledOut
    });
    if let (Some((_, scale)), None) = (left.next(), left.next()) {
        scale.settle(format!(
            "it is the only known cause of {errno} here that is left"
        ));
    }
}

/// What is suspected often, and that this errno excludes.
fn suspects(weighed: &[(Cause, Scale)], case: &Case<'_>) -> Vec<(Cause, Scale)> {
    let known = case.e.family.filter(|family| *family != Family::Other);
    let (Some(family), Operation::RegMr, Some(_)) = (known, case.op, case.errno) else {
        return Vec::new();
    };
    [
        Cause::TableFull,
        Cause::MaxMrSize,
        Cause::Memlock,
        Cause::MrCount,
    ]
    .into_iter()
    .filter(|cause| weighed.iter().all(|(other, _)| other != cause))
    .filter_map(|cause| {
        let says = table::errnos_of(cause, family)?;
        let line = cause == Cause::MaxMrSize
            && family == Family::Erdma
            && matches!(case.e.platform.driver, Driver::Vendor(_));
        let and = if line {
            ", and a line in the kernel log"
        } else {
            ""
        };
        let mut scale = Scale::default();
        scale.excludes(format!("on {} that is {says}{and}", family.name()));
        Some((cause, scale))
    })
    .collect()
}

fn ranked(cause: Cause, scale: Scale, case: &Case<'_>, numbers: Option<&Arithmetic>) -> Ranked {
    let standing = scale.standing();
    let mut evidence_for = scale.evidence_for;
    if let Some(errno) = case.errno.filter(|_| standing != Standing::RuledOut) {
        evidence_for.insert(0, errno_text(cause, errno, case));
    } else if standing != Standing::RuledOut && evidence_for.is_empty() {
        evidence_for.push("nothing that is known excludes it".to_owned());
    }
    Ranked {
        cause,
        standing,
        evidence_for,
        against: scale.against,
        decide: advice::decide(cause, case.e),
        fix: advice::fix(cause, case.e, numbers),
    }
}

/// "EIO, as erdma says it", or which families say it so.
fn errno_text(cause: Cause, errno: Errno, case: &Case<'_>) -> String {
    let name = errno
        .name()
        .map_or_else(|| errno.to_string(), str::to_owned);
    match case.e.family {
        Some(family) => format!("{name} from {} on {}", case.op, family.name()),
        None => {
            let families: Vec<&str> = Family::ALL
                .into_iter()
                .filter(|family| *family != Family::Other)
                .filter(|family| {
                    table::candidates(case.op, Some(errno), Some(*family)).contains(&cause)
                })
                .map(Family::name)
                .collect();
            if families.len() + 1 == Family::ALL.len() {
                format!("{name} from {}", case.op)
            } else if families.is_empty() {
                format!(
                    "{name} from {}, if the device is of another family (mlx5)",
                    case.op
                )
            } else {
                format!(
                    "{name} from {}, if the device is of the family {}",
                    case.op,
                    families.join(" or ")
                )
            }
        }
    }
}

fn summary(case: &Case<'_>, nothing: bool) -> String {
    let e = case.e;
    let presumed = if e.operation.is_none() {
        " (taken as one of ibv_reg_mr)"
    } else if e.errno_of_libfabric == Some(true) {
        " (libfabric returned it; with a provider that is not on verbs it is no errno of ibv_reg_mr)"
    } else {
        ""
    };
    let on = e
        .family
        .map_or_else(String::new, |family| format!(" on {}", family.name()));
    match e.errno {
        None if nothing && e.failed == Some(true) => {
            format!(
                "{} failed, and the errno is not known: cannot tell",
                case.op
            )
        }
        None if nothing => {
            "no errno, and nothing that is known to go wrong silently: cannot tell".to_owned()
        }
        None if e.failed == Some(true) => format!("{} failed without an errno", case.op),
        None => format!(
            "no errno: {} can succeed and be wrong all the same",
            case.op
        ),
        Some(errno) => {
            let name = errno
                .name()
                .map_or_else(|| errno.to_string(), str::to_owned);
            let vendor = e.may_be_vendor();
            match table::meaning(case.op, errno, e.family, vendor).filter(|_| !nothing) {
                Some(text) => format!("{name} = {text}{presumed}"),
                None => format!(
                    "{name} is no errno that {}{on} is known to leave: cannot tell{presumed}",
                    case.op
                ),
            }
        }
    }
}

fn arithmetic(e: &Evidence) -> Option<Arithmetic> {
    Some(Arithmetic {
        length: e.length?,
        entries_4k: e.entries_at(PageSize::K4)?,
        entries_64k: e.entries_at(PageSize::K64)?,
        entries_2m: e.entries_at(PageSize::M2)?,
        entries_1g: e.entries_at(PageSize::G1)?,
        effective: e
            .effective_page
            .and_then(|page| Some((page, e.entries_at(page)?))),
    })
}
