//! `hugemr inspect`.

use hugemr_core::device::Family;
use hugemr_core::host::Platform;
use hugemr_core::inspect::{Forecast, Mapping, Total, forecast};
use hugemr_core::layout::Rules;
use hugemr_host::facts::{Facts, Process, ProcessId};
use hugemr_host::inspect::{InspectError, NoLayout, inspect};
use hugemr_host::root::Root;

use super::say;
use crate::args::InspectCommand;
use crate::exit::{Ended, Exit, Failure};
use crate::typed::Change;
use crate::{json, render};

/// One mapping.
pub(crate) struct Row {
    pub(crate) mapping: Mapping,
    pub(crate) forecast: Forecast,
    /// Physical runs, or why they are not known.
    pub(crate) runs: Result<usize, NoLayout>,
}

/// Everything that is to be said.
pub(crate) struct Inspected {
    pub(crate) pid: u32,
    pub(crate) process: Process,
    pub(crate) platform: Platform,
    /// The longest first.
    pub(crate) rows: Vec<Row>,
    pub(crate) total: Total,
    pub(crate) others: usize,
    /// This command line, as root.
    pub(crate) as_root: String,
}

pub(crate) fn run(command: &InspectCommand) -> Ended {
    let root = Root::real();
    let mut platform = Facts::read(&root).host().platform;
    if let Some(kernel) = command.kernel {
        platform.kernel = kernel.0;
    }
    if let Some(driver) = command.driver {
        platform.driver = driver;
    }
    let rules = Rules::of(&platform, Family::Erdma);
    let as_root = format!("sudo {}", command.typed.line("inspect", &Change::default()));
    let seen =
        inspect(&root, ProcessId::Pid(command.pid)).map_err(|error| failure(&error, &as_root))?;
    let mut total = Total::default();
    let mut rows: Vec<Row> = seen
        .mappings
        .into_iter()
        .map(|seen| {
            let forecast = forecast(&seen.mapping, seen.layout.as_ref().ok(), &rules);
            total.add(&seen.mapping, &forecast);
            Row {
                forecast,
                runs: seen.layout.map(|layout| layout.run_count()),
                mapping: seen.mapping,
            }
        })
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.mapping.len));
    let inspected = Inspected {
        pid: command.pid,
        process: seen.process,
        platform,
        rows,
        total,
        others: seen.others,
        as_root,
    };
    if command.json {
        json::write(&json::inspect(&inspected))?;
    } else {
        say(&render::inspect(&inspected, command.all))?;
    }
    Ok(Exit::Yes)
}

fn failure(error: &InspectError, as_root: &str) -> Failure {
    let mut failure = Failure::system(error);
    failure.more.extend(crate::device::sources(error));
    match error {
        InspectError::NotAllowed(_) => failure.with(format!(
            "as its user, or as root with CAP_SYS_PTRACE: {as_root}"
        )),
        _ => failure,
    }
}
