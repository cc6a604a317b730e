//! `hugemr diagnose`: of an errno, or of a log.

use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;

use hugemr_core::device::Family;
use hugemr_core::diagnose::logs::{LONGEST_LINE, Log};
use hugemr_core::diagnose::{Diagnosis, Evidence, diagnose, given};
use hugemr_core::fact::{Kind, Limit, Source};
use hugemr_core::host::Driver;
use hugemr_core::size::{Count, Grouped, plural};
use hugemr_input::InputError;
use serde_json::json;

use super::{remark, say};
use crate::args::{Budget, DiagnoseCommand, Memlock};
use crate::device::{self, Named};
use crate::exit::{Ended, Exit, Failure};
use crate::typed::quoted;
use crate::{json, limits, render};

pub(crate) fn run(command: &DiagnoseCommand) -> Ended {
    if let Some(path) = &command.log {
        return log(command, path);
    }
    let Some(errno) = command.errno else {
        return Err(Failure::usage(
            "neither --errno ERRNO nor a LOG was given (- is the log on standard input); see hugemr diagnose --help",
        ));
    };
    let named = named(command)?;
    let mut evidence = Evidence {
        // Without a device it is taken for one of eRDMA.
        family: named.is_none().then_some(Family::Erdma),
        ..Evidence::of_errno(errno, Family::Erdma)
    };
    told(command, named.as_ref(), &mut evidence);
    let diagnosis = diagnose(&evidence);
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

/// The device that was named. That it is of another family than was stated is said.
fn named(command: &DiagnoseCommand) -> Result<Option<Named>, Failure> {
    let named = command.device.as_deref().map(device::named).transpose()?;
    if let Some(named) = &named
        && let (Some(stated), Some(family)) = (command.family, named.family)
        && stated != family
    {
        remark(&format!(
            "note: {} is of the family {}, and --family {} is taken",
            quoted(named.which.named.as_ref()),
            family.name(),
            stated.name()
        ));
    }
    Ok(named)
}

/// What the flags tell goes over what the log tells.
fn told(command: &DiagnoseCommand, named: Option<&Named>, evidence: &mut Evidence) {
    let source = |flag: &'static str| Source::new(Kind::Given, flag);
    if let Some(length) = &command.length {
        evidence.length = Some(length.bytes);
    }
    evidence.stated = command.typed.stated();
    evidence.effective_page = command.page.or(evidence.effective_page);
    if let Some(named) = named {
        let name = &named.which.named;
        evidence.device = Some(quoted(name.as_ref()));
        // Where it is not here, the failure can be one of another host.
        evidence.device_present = device::is_present(name).then_some(true);
        evidence.family = named.family.or(evidence.family);
        let known = &named.platform;
        if known.kernel.is_some() || known.driver != Driver::Unknown {
            evidence.platform = known.clone();
        }
        limits_of(command, named, evidence);
    }
    evidence.family = command.family.or(evidence.family);
    if let Some(size) = &command.max_mr_size {
        evidence.max_mr_size = Some(given(size.bytes, "--max-mr-size"));
    }
    match command.budget {
        Some(Budget::Between(low, high)) => {
            evidence.entries_budget = Some(Limit::interval(low, Some(high), source("--budget")));
        }
        Some(Budget::Unknown) => evidence.entries_budget = None,
        None => {}
    }
    match command.memlock {
        Some(Memlock::Unlimited) => evidence.memlock = Some(Limit::unlimited(source("--memlock"))),
        Some(Memlock::Bytes(n)) => evidence.memlock = Some(given(n, "--memlock")),
        None => {}
    }
}

/// The limits that a simulated device has, and what the limits file says of the device. A limit that nobody states says
/// nothing about a failure.
fn limits_of(command: &DiagnoseCommand, named: &Named, evidence: &mut Evidence) {
    let mut device = named.limits.clone();
    limits::apply(
        &command.limits,
        &named.which,
        &mut device,
        &mut evidence.platform,
    );
    let places = [
        (&mut evidence.max_mr_size, device.max_mr_size),
        (&mut evidence.max_mr, device.max_mr),
        (&mut evidence.entries_budget, device.entries),
        (&mut evidence.entries_per_mr, device.entries_per_mr),
    ];
    for (place, limit) in places {
        if !limit.is_unlimited() {
            *place = Some(limit);
        }
    }
}

/// Every failure that a log reports.
fn log(command: &DiagnoseCommand, path: &Path) -> Ended {
    let named = named(command)?;
    let mut log = Log::default();
    if path == Path::new("-") {
        read(&mut std::io::stdin().lock(), &mut log).map_err(InputError::from)
    } else {
        hugemr_input::open(path).and_then(|file| Ok(read(&mut BufReader::new(file), &mut log)?))
    }
    .map_err(|error| super::unreadable(path, &error))?;
    let answers: Vec<(u64, u64, Diagnosis)> = log
        .failures()
        .into_iter()
        .map(|failure| {
            let mut evidence = failure.evidence;
            let said = evidence.family;
            told(command, named.as_ref(), &mut evidence);
            differs(failure.line, said, &evidence);
            (failure.line, failure.count, diagnose(&evidence))
        })
        .collect();
    let (lines, understood, dropped) = log.counts();
    let silent = log.without_errno();
    let (cut, cut_lines) = log.cut();
    if command.json {
        json::write(&json!({
            "schema": "hugemr/diagnosis-log/1",
            "lines": lines,
            "understood": understood,
            "facts": log.facts(),
            "without_errno": { "count": silent.count, "lines": silent.lines },
            "dropped": dropped,
            "cut": { "count": cut, "lines": cut_lines },
            "failures": answers.iter().map(|(line, count, diagnosis)| json!({
                "line": line, "count": count, "diagnosis": json::diagnosis(diagnosis),
            })).collect::<Vec<_>>(),
        }))?;
    } else {
        for (line, count, diagnosis) in &answers {
            let times = match count {
                1 => String::new(),
                _ => format!(" ({} times)", Grouped(*count)),
            };
            say(&format!("line {line}{times}"))?;
            say(&render::diagnosis::long(diagnosis))?;
        }
        if silent.count > 0 {
            say(&render::diagnosis::without_errno(&silent))?;
        }
        if dropped > 0 {
            say(&format!(
                "{} of other kinds of failures {} not kept",
                Count(dropped, "more line"),
                plural(dropped, "was", "were")
            ))?;
        }
        if answers.is_empty() {
            say(&format!(
                "nothing understood as a failed registration in {}; with --errno the error itself can be given",
                Count(lines, "line")
            ))?;
        }
        if cut > 0 {
            say(&render::diagnosis::cut(cut, cut_lines))?;
        }
    }
    let told = answers
        .iter()
        .any(|(_, _, diagnosis)| !diagnosis.cannot_tell());
    Ok(if told { Exit::Yes } else { Exit::No })
}

/// Says where a flag goes over the family that the log tells.
fn differs(line: u64, said: Option<Family>, evidence: &Evidence) {
    if let (Some(said), Some(taken)) = (said, evidence.family)
        && said != taken
    {
        remark(&format!(
            "note: line {line} is of the family {}, and {} is taken, as was stated",
            said.name(),
            taken.name()
        ));
    }
}

/// Reads anything line by line, in bounded memory: of a line beyond [`LONGEST_LINE`] only the beginning counts.
fn read(from: &mut impl BufRead, log: &mut Log) -> std::io::Result<()> {
    let mut line = Vec::new();
    let mut is_first = true;
    loop {
        line.clear();
        let most = LONGEST_LINE as u64 + 1;
        if from.by_ref().take(most).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let text = if is_first {
            hugemr_input::without_mark(&line)
        } else {
            &line
        };
        is_first = false;
        log.read(String::from_utf8_lossy(text).trim_end_matches(['\n', '\r']));
        // The rest of a long line is passed over.
        while line.last() != Some(&b'\n') {
            line.clear();
            if from.by_ref().take(most).read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
        }
    }
}
