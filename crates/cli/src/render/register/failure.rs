//! A registration that did not come about.

use hugemr::{BuildError, Cause};
use hugemr_core::diagnose::{BackingPages, Diagnosis, Evidence, diagnose};
use hugemr_core::errno::Errno;
use hugemr_core::plan::{Plan, Resource, mrs};
use hugemr_core::registrar::{RegisterCause, RegisterFailure};

use crate::commands::plan::Asked;
use crate::exit::Failure;
use crate::render::diagnosis;
use crate::typed::quoted;

/// A registration that failed and was rolled back, with its diagnosis.
pub(crate) fn failure(
    asked: &Asked,
    plan: &Plan,
    diagnosed: Option<&Diagnosis>,
    error: &BuildError,
) -> Failure {
    let mut out = match &*error.cause {
        Cause::Register(failure) => {
            Failure::system(format_args!("on {}: {failure}", asked.device.name))
        }
        cause => Failure::system(format_args!("{} failed: {cause}", error.step)),
    };
    match &*error.cause {
        Cause::Register(failure) => {
            out.more.extend(
                crate::device::sources(failure)
                    .into_iter()
                    .map(|c| format!("because {c}")),
            );
            out.more.push(format!("planned: {}", mrs(&plan.segments)));
            if let Some(diagnosed) = diagnosed {
                let said = diagnosis::short(diagnosed);
                out.more.extend(said.lines().map(str::to_owned));
                out.diagnosis = Some(Box::new(crate::json::diagnosis(diagnosed)));
            }
            out.failed = Some(Box::new(crate::json::failed(failure)));
        }
        cause => {
            if let Cause::Close(error) = cause {
                out.failed = Some(Box::new(crate::json::not_closed(error)));
            }
            out.more.extend(
                crate::device::sources(cause)
                    .into_iter()
                    .map(|c| format!("because {c}")),
            );
        }
    }
    out
}

/// Why a registration failed; `None` where no verb did. What was stated is for commands, as a shell takes it.
pub(crate) fn diagnosed(
    asked: &Asked,
    plan: &Plan,
    stated: String,
    failure: &RegisterFailure,
) -> Option<Diagnosis> {
    let evidence = evidence(asked, plan, failure)?;
    Some(diagnose(&Evidence { stated, ..evidence }))
}

/// What a failed `ibv_reg_mr` tells, with what the plan knows.
fn evidence(asked: &Asked, plan: &Plan, failure: &RegisterFailure) -> Option<Evidence> {
    let RegisterCause::Verb(error) = failure.cause() else {
        return None;
    };
    let mut evidence = Evidence::of_errno(error.errno, asked.device.family)
        .on_device(&asked.device)
        .on_host(&asked.host);
    evidence.device = Some(quoted(asked.which.named.as_ref()));
    let (others, most) = asked.device.used.mrs;
    evidence.mrs_live = (most == Some(others)).then(|| others.saturating_add(failure.stood()));
    evidence.length = failure.span().map(|span| span.len);
    let planned = failure.span().map(|span| span.page);
    evidence.backing = planned.map(BackingPages::Of);
    if let Some((best, worst)) = plan.check(Resource::EntriesPerMr).map(|check| check.need) {
        let stood = failure.stood();
        let (low, high) = asked.device.used.entries;
        evidence.entries_used = Some((low + best * stood, high.map(|high| high + worst * stood)));
        if best == worst {
            evidence.effective_page = planned.filter(|page| {
                evidence
                    .length
                    .is_some_and(|len| page.pages_for(len) == best)
            });
        }
    }
    if let Some(page) = crate::device::refused_page(&asked.opened) {
        evidence.effective_page = Some(page);
    }
    if asked.opened.simulated().is_none() {
        evidence.device_present = Some(crate::device::is_present(&asked.device.name));
    } else if error.errno != Errno::ENOMEM {
        // A simulated device counts nothing but what it is told: its process pins nothing.
        evidence.memlock = None;
    }
    Some(evidence)
}
