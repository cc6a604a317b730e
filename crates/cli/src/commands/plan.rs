//! `hugemr plan`.

use std::io::Write as _;

use hugemr_core::device::Device;
use hugemr_core::host::Host;
use hugemr_core::plan::{Plan, PlanRequest, Refusal, Verdict, plan};
use hugemr_core::size::Bytes;

use super::ways::{self, Reservable};
use super::{remark, say};
use crate::args::{PlanCommand, WhatArgs};
use crate::exit::{Ended, Exit, Failure};
use crate::json::{self, PlanDocument, RefusalDocument, Style};
use crate::render::plan::Commands;
use crate::typed::Change;
use crate::{device, estimate, limits, render, request};

/// Everything that `plan` and `register` need alike.
pub(crate) struct Asked {
    pub(crate) request: PlanRequest,
    pub(crate) device: Device,
    pub(crate) host: Host,
    pub(crate) opened: device::Opened,
    pub(crate) which: device::Which,
    /// How to correct what the limits file says of the device, where it was used.
    pub(crate) correction: Option<limits::Correction>,
}

/// Opens the device, reads the facts, makes the request.
pub(crate) fn ask(what: &WhatArgs) -> Result<Asked, Failure> {
    for note in request::decimal_notes(what) {
        remark(&format!("note: {note}"));
    }
    let request = request::request(what);
    let (opened, mut host) = device::open(what.device.as_deref(), &what.facts)?;
    let mut device = opened.device();
    let which = opened.which();
    let correction = limits::apply(&what.facts.limits, &which, &mut device, &mut host.platform);
    request::apply_facts(&what.facts, &mut device, &mut host);
    request::consistent(&what.facts, &device, &host)?;
    Ok(Asked {
        request,
        device,
        host,
        opened,
        which,
        correction,
    })
}

pub(crate) fn run(command: &PlanCommand) -> Ended {
    command.time.consistent()?;
    let asked = ask(&command.what)?;
    match plan(&asked.request, &asked.device, &asked.host) {
        Ok(plan) => fits(command, &asked, &plan),
        Err(refusal) => {
            let style = if command.list {
                Style::Line
            } else {
                Style::Document
            };
            refused("plan", style, &command.what, &asked, (&refusal, None))
        }
    }
}

fn fits(command: &PlanCommand, asked: &Asked, plan: &Plan) -> Ended {
    let what = &command.what;
    let estimated = estimate::make(&command.time, plan, &asked.opened, None);
    if command.list {
        list(plan, what.json)?;
    } else if what.json {
        let document = PlanDocument::new(&asked.device.name, plan, &asked.host);
        json::write(&document.with_estimate(estimated.as_ref()))?;
    } else {
        let commands = Commands {
            next: next(what, plan),
            probe: format!(
                "{}hugemr {}",
                limits::sudo(&asked.which.named),
                limits::measuring(
                    &asked.which.named,
                    &what.typed.files(),
                    what.facts.limits.limits.is_some()
                )
            ),
        };
        say(&render::plan(plan, asked, &commands))?;
        if let Some(estimated) = &estimated {
            say(&render::estimate::estimate(estimated))?;
        }
        if command.explain {
            say(&render::explain(plan))?;
        }
    }
    let no = plan.verdict == Verdict::Undecided && what.strict;
    Ok(if no { Exit::No } else { Exit::Yes })
}

/// The command that carries the plan out; none where `register` would not: it registers on one device in one protection
/// domain, and `--strict` refuses what is undecided.
fn next(what: &WhatArgs, plan: &Plan) -> String {
    let strictly_no = what.strict && plan.verdict == Verdict::Undecided;
    if what.shape.devices > 1 || what.shape.pds > 1 || strictly_no {
        return String::new();
    }
    what.typed.line("register", &Change::default())
}

/// Says a refusal, and what could be reserved where that was looked for: the answer is no.
pub(crate) fn refused(
    verb: &str,
    style: Style,
    what: &WhatArgs,
    asked: &Asked,
    (refusal, reservable): (&Refusal, Option<&Reservable>),
) -> Ended {
    let ways = ways::open(verb, what, asked, refusal);
    if what.json {
        let document = RefusalDocument::new(asked, refusal, &ways, reservable);
        json::write_as(style, &document)?;
    } else {
        say(&render::refusal(refusal, &ways, asked.correction.as_ref()))?;
    }
    Ok(Exit::No)
}

/// One line an MR, as fast as the reader takes them.
fn list(plan: &Plan, json: bool) -> Result<(), Failure> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for chunk in plan.chunks() {
        if json {
            let (index, offset, len) = (chunk.index, chunk.offset, chunk.len);
            let page = chunk.page.bytes();
            writeln!(
                out,
                r#"{{"schema":"hugemr/plan-mr/1","index":{index},"offset":{offset},"len":{len},"page":{page}}}"#
            )?;
            continue;
        }
        writeln!(
            out,
            "{}\t{:#x}\t{}\t{}",
            chunk.index,
            chunk.offset,
            Bytes(chunk.len),
            chunk.page
        )?;
    }
    out.flush()?;
    Ok(())
}
