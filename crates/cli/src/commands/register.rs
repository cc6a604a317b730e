//! `hugemr register`: plan, memory, registration, keys, release.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use hugemr_core::backend::{Backing, NoMemory, RegBackend};
use hugemr_core::plan::{Plan, Refusal, Verdict, plan};
use hugemr_core::registrar::{Options, Registration};

use super::plan::{Asked, ask, refused};
use super::say;
use crate::args::{MemoryKind, RegisterCommand, SimLayout};
use crate::device::Opened;
use crate::exit::{Ended, Exit, Failure};
use crate::render;

/// Where simulated memory begins: an address that a real mapping of that size could have.
const SIMULATED_BASE: u64 = 0x7e00_0000_0000;

pub(crate) fn run(command: &RegisterCommand) -> Ended {
    let asked = ask(&command.what)?;
    let memory = memory_kind(command, &asked.opened)?;
    let plan = match plan(&asked.request, &asked.device, &asked.host) {
        Ok(plan) => plan,
        Err(refusal) if command.force => forced(*refusal)?,
        Err(refusal) => return refused(&command.what, &asked.device.name, &refusal),
    };
    if plan.verdict == Verdict::Undecided && command.what.strict {
        return Err(Failure::usage(
            "undecided, and --strict refuses: see hugemr plan",
        ));
    }
    match memory {
        MemoryKind::None => simulated(command, &asked, &plan),
        MemoryKind::Real => Err(Failure::usage("--memory real is not wired yet")),
    }
}

/// The plan inside a refusal.
fn forced(refusal: Refusal) -> Result<Plan, Failure> {
    super::remark(&format!(
        "forced, although it does not fit: {}",
        refusal.text
    ));
    refusal
        .plan
        .map(|plan| *plan)
        .ok_or_else(|| Failure::usage(format_args!("there is nothing to force: {}", refusal.text)))
}

fn memory_kind(command: &RegisterCommand, opened: &Opened) -> Result<MemoryKind, Failure> {
    match (command.memory, opened) {
        (Some(MemoryKind::None), Opened::Real(_)) => {
            Err(Failure::usage("--memory none: a real device needs memory"))
        }
        (Some(kind), _) => Ok(kind),
        (None, Opened::Simulated(_)) => Ok(MemoryKind::None),
        (None, Opened::Real(_)) => Ok(MemoryKind::Real),
    }
}

/// Addresses without memory, on a simulated device.
fn simulated(command: &RegisterCommand, asked: &Asked, plan: &Plan) -> Ended {
    let Opened::Simulated(device) = &asked.opened else {
        return Err(Failure::usage("--memory none: a real device needs memory"));
    };
    let page = plan
        .segments
        .iter()
        .map(|s| s.page)
        .min()
        .unwrap_or(hugemr_core::size::PageSize::K4);
    let memory = NoMemory {
        base: SIMULATED_BASE,
        len: plan.mapped,
        page,
    };
    if SIMULATED_BASE.checked_add(plan.mapped).is_none() {
        return Err(Failure::usage(
            "the size is beyond the address space of a simulated process",
        ));
    }
    let contiguous = command.layout == SimLayout::Contiguous;
    crate::device::back(device, SIMULATED_BASE, &plan.segments, contiguous)?;
    register(command, asked, plan, memory)
}

/// Registers, says what came of it, releases.
fn register<M: Backing>(command: &RegisterCommand, asked: &Asked, plan: &Plan, memory: M) -> Ended {
    let backend: Arc<dyn RegBackend> = asked.opened.backend();
    let threads = command
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN));
    let start = Instant::now();
    let options = Options::new().workers(threads);
    let registration =
        match Registration::new(backend, memory, &plan.segments, command.access, &options) {
            Ok(registration) => registration,
            Err(error) => return Err(render::register::failure(asked, plan, error.failure())),
        };
    let registered = start.elapsed();
    let report = crate::device::report(&asked.opened);
    let seen =
        render::register::registered(command, asked, &registration, report.as_ref(), registered);
    say(&seen.text)?;
    let start = Instant::now();
    let count = registration.len();
    registration
        .close()
        .map_err(|error| Failure::system(format_args!("release failed: {error}")))?;
    let report = crate::device::report(&asked.opened);
    say(&render::register::released(
        count,
        report.as_ref(),
        start.elapsed(),
    ))?;
    Ok(if seen.as_planned { Exit::Yes } else { Exit::No })
}
