//! `hugemr plan`.

use std::io::Write as _;

use hugemr_core::device::Device;
use hugemr_core::host::Host;
use hugemr_core::limits::Identity;
use hugemr_core::plan::{Plan, PlanRequest, Refusal, Verdict, plan};
use hugemr_core::size::Bytes;

use super::{again, remark, say};
use crate::args::{PlanCommand, WhatArgs};
use crate::exit::{Ended, Exit, Failure};
use crate::json::{self, PlanDocument, RefusalDocument};
use crate::{device, estimate, limits, render, request};

/// Everything that `plan` and `register` need alike.
pub(crate) struct Asked {
    pub(crate) request: PlanRequest,
    pub(crate) device: Device,
    pub(crate) host: Host,
    pub(crate) opened: device::Opened,
    /// The device and its software, as the limits file names them.
    pub(crate) identity: Identity,
}

/// Opens the device, reads the facts, makes the request.
pub(crate) fn ask(what: &WhatArgs) -> Result<Asked, Failure> {
    for note in request::decimal_notes(what) {
        remark(&format!("note: {note}"));
    }
    let request = request::request(what)?;
    let (opened, mut host) = device::open(what.device.as_deref(), &what.facts)?;
    let mut device = opened.device();
    let identity = opened.identity();
    limits::apply(&what.facts.limits, &identity, &mut device);
    request::apply_facts(&what.facts, &mut device, &mut host);
    Ok(Asked {
        request,
        device,
        host,
        opened,
        identity,
    })
}

pub(crate) fn run(command: &PlanCommand) -> Ended {
    let asked = ask(&command.what)?;
    match plan(&asked.request, &asked.device, &asked.host) {
        Ok(plan) => fits(command, &asked, &plan),
        Err(refusal) => refused(&command.what, &asked.device.name, &refusal),
    }
}

fn fits(command: &PlanCommand, asked: &Asked, plan: &Plan) -> Ended {
    let what = &command.what;
    let estimated = estimate::make(&command.time, plan, &asked.opened, None);
    if command.list {
        list(plan)?;
    } else if what.json {
        let document = PlanDocument::new(&asked.device.name, plan);
        json::write(&document.with_estimate(estimated.as_ref()))?;
    } else {
        let next = again("register", what, None, "");
        say(&render::plan(plan, &asked.device, &asked.host, &next))?;
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

/// Says a refusal: the answer is no.
pub(crate) fn refused(what: &WhatArgs, device: &str, refusal: &Refusal) -> Ended {
    if what.json {
        json::write(&RefusalDocument::new(device, refusal))?;
    } else {
        say(&render::refusal(refusal, &|size, flags| {
            again("plan", what, size, flags)
        }))?;
    }
    Ok(Exit::No)
}

/// One line an MR, as fast as the reader takes them.
fn list(plan: &Plan) -> Result<(), Failure> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for chunk in plan.chunks() {
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
