//! `hugemr doctor`.

use std::path::Path;

use hugemr_core::doctor::{
    Answer, Case, Commands, Facts, Finding, Verbs, examine, fill_platform, from_file, nameless,
};
use hugemr_core::plan::PlanRequest;
use hugemr_host::facts::{ProcessId, doctor};
use hugemr_host::root::Root;

use super::{remark, say};
use crate::args::DoctorCommand;
use crate::device::doctor as devices;
use crate::exit::{Ended, Exit, Failure};
use crate::typed::{Change, quoted};
use crate::{json, limits, render, request};

pub(crate) fn run(command: &DoctorCommand) -> Ended {
    if command.facts_file.is_some() && command.pid.is_some() {
        return Err(Failure::usage(
            "--facts: the file tells of the process that it was taken of, and not of --pid; take it with --pid on the node",
        ));
    }
    if let Some(note) = command.size.as_ref().and_then(request::decimal_note) {
        remark(&format!("note: {note}"));
    }
    let (facts, about_file) = facts(command)?;
    let elsewhere = about_file.iter().any(|f| f.code == "facts_of_another_boot");
    let wish = command.size.as_ref().map(|size| size.bytes);
    let name = command.device.as_deref();
    let simulated = name.is_some_and(|name| name.starts_with("sim:"));
    let mut asked = if elsewhere && !simulated {
        devices::not_asked(name)
    } else {
        devices::ask(name, &command.facts, wish.is_some())?
    };
    let mut host = facts.host();
    if let Some(profile) = &asked.profile {
        asked.verbs = Verbs::Simulated(fill_platform(&mut host.platform, profile));
    }
    if let Some(which) = &asked.which {
        let limits = &command.facts.limits;
        limits::apply(limits, which, &mut asked.device, &mut host.platform);
    }
    request::apply_facts(&command.facts, &mut asked.device, &mut host);
    let mut plan_request = wish.map(|bytes| PlanRequest::total(bytes).pages(command.pages));
    if let Some(request) = &mut plan_request {
        request.max_mr_size = command.facts.max_mr_size.as_ref().map(|size| size.bytes);
        request.max_mr_size_from = Some(command.facts.source("--max-mr-size"));
    }
    let mut report = examine(&Case {
        facts: &facts,
        verbs: &asked.verbs,
        host: &host,
        device: &asked.device,
        wish: plan_request.as_ref(),
        commands: &commands(command, &asked),
    });
    report.add(about_file);
    if let Some(path) = &command.save {
        save(path, &facts)?;
    }
    if command.json {
        json::write(&json::doctor(
            &report,
            &asked.device.name,
            wish,
            &facts.taken,
            &host,
        ))?;
    } else {
        say(&render::doctor(&report, wish, command.all))?;
    }
    Ok(match report.answer {
        Answer::Yes => Exit::Yes,
        Answer::Undecided if !command.strict => Exit::Yes,
        Answer::Undecided | Answer::No => Exit::No,
    })
}

/// The device as it was named, or found; and what was stated with it.
fn commands(command: &DoctorCommand, asked: &devices::Asked) -> Commands {
    let typed = &command.typed;
    let which = asked.which.as_ref().map(|which| &which.named);
    let found = Some(&asked.device.name).filter(|_| asked.device != nameless());
    let device = match which.or(command.device.as_ref()).or(found) {
        Some(name) => quoted(name.as_ref()),
        None => "DEVICE".to_owned(),
    };
    Commands {
        plan: format!(" --device {device}{}", typed.stated()),
        probe: format!(" --device {device}{}", typed.files()),
        again: typed.line("doctor", &Change::default()),
    }
}

/// Facts of here, or of a file; with what is to be said of the file.
fn facts(command: &DoctorCommand) -> Result<(Facts, Vec<Finding>), Failure> {
    let root = match &command.host_root {
        Some(dir) if !dir.is_dir() => {
            return Err(Failure::usage(format_args!(
                "--host-root {}: no such folder",
                dir.display()
            )));
        }
        Some(dir) => Root::at(dir),
        None => Root::real(),
    };
    let id = command.pid.map_or(ProcessId::Own, ProcessId::Pid);
    if let Some(pid) = command.pid
        && !root.exists(&format!("/proc/{pid}"))
    {
        return Err(Failure::system(format_args!("there is no process {pid}")));
    }
    let here = doctor::gather(&root, id);
    match &command.facts_file {
        Some(path) => Ok(from_file(read(path)?, here)),
        None => Ok((here, Vec::new())),
    }
}

fn read(path: &Path) -> Result<Facts, Failure> {
    let bad = |why: &dyn std::fmt::Display| {
        Failure::usage(format_args!(
            "cannot read the facts in {}: {why}",
            path.display()
        ))
        .with("take them on the node: hugemr doctor --save FILE")
    };
    let text = hugemr_input::text(path, hugemr_input::FACTS).map_err(|error| bad(&error))?;
    let document = serde_json::from_str(&text)
        .map_err(|error| bad(&hugemr_input::plain(&error.to_string())))?;
    json::read_facts(document).map_err(|error| bad(&error))
}

fn save(path: &Path, facts: &Facts) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::system(format_args!(
            "cannot save the facts in {}: {error}",
            path.display()
        ))
    };
    let mut text =
        serde_json::to_string_pretty(&json::facts(facts)).map_err(|error| failed(&error))?;
    text.push('\n');
    std::fs::write(path, text).map_err(|error| failed(&error))?;
    remark(&format!("facts saved in {}", path.display()));
    Ok(())
}
