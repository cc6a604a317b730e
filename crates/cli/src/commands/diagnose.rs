//! `hugemr diagnose`.

use hugemr_core::diagnose::{Evidence, diagnose, given};
use hugemr_core::fact::{Kind, Limit, Source};

use super::say;
use crate::args::{Budget, DiagnoseCommand, Memlock};
use crate::exit::{Ended, Exit};
use crate::{json, render};

pub(crate) fn run(command: &DiagnoseCommand) -> Ended {
    let diagnosis = diagnose(&evidence(command));
    if command.json {
        json::write(&json::diagnosis(&diagnosis))?;
    } else {
        say(&render::diagnosis::long(&diagnosis))?;
    }
    Ok(if diagnosis.cannot_tell() {
        Exit::No
    } else {
        Exit::Yes
    })
}

fn evidence(command: &DiagnoseCommand) -> Evidence {
    let source = |flag: &'static str| Source::new(Kind::Given, flag);
    let mut evidence = Evidence::of_errno(command.errno, command.family);
    evidence.length = command.length.as_ref().map(|size| size.bytes);
    evidence.effective_page = command.page;
    evidence.max_mr_size = command
        .max_mr_size
        .as_ref()
        .map(|size| given(size.bytes, "--max-mr-size"));
    evidence.entries_budget = match command.budget {
        Some(Budget::Between(low, high)) => {
            Some(Limit::interval(low, Some(high), source("--budget")))
        }
        Some(Budget::Unknown) | None => None,
    };
    evidence.memlock = match command.memlock {
        Some(Memlock::Unlimited) => Some(Limit::unlimited(source("--memlock"))),
        Some(Memlock::Bytes(n)) => Some(given(n, "--memlock")),
        None => None,
    };
    evidence
}
