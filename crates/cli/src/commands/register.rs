//! `hugemr register`: plan, memory, registration, keys, release.

mod asked;

use std::sync::Arc;
use std::time::{Duration, Instant};

use hugemr::host::reserve::Spread;
use hugemr::{Build, BuildError, Cause, Proof, ProofError};
use hugemr_core::backend::{NoMemory, RegBackend, VerifyBackend, VerifyError};
use hugemr_core::chunks::Chunk;
use hugemr_core::layout::PhysRun;
use hugemr_core::plan::{Code, Plan, Verdict};
use hugemr_core::registrar::{Options, Registration};
use hugemr_core::size::PageSize;

use asked::{can_be_mapped, forced, memory_kind, only_node, planned, together};

use super::plan::{Asked, ask, refused};
use super::{remark, say};
use crate::args::{MemoryKind, RegisterCommand, SimLayout};
use crate::device::{self, Opened};
use crate::estimate::Estimated;
use crate::exit::{Ended, Exit, Failure};
use crate::json::{PlanDocument, Style};
use crate::progress::{Pools, Steps};
use crate::render::register::{self as render, Held, Proved, Released};
use crate::signals::Watch;
use crate::typed::Change;
use crate::{estimate, host, json, learned, notes};

/// Where simulated memory begins: an address that a real mapping of that size could have.
const SIMULATED_BASE: u64 = 0x7e00_0000_0000;

pub(crate) fn run(command: &RegisterCommand) -> Ended {
    let shape = &command.what.shape;
    if shape.devices > 1 || shape.pds > 1 {
        return Err(Failure::usage(
            "--devices, --pds: register registers on one device in one protection domain; plan reckons with more",
        ));
    }
    command.time.consistent()?;
    let mut asked = ask(&command.what)?;
    let memory = memory_kind(command, &asked.opened)?;
    together(command, memory)?;
    if memory == MemoryKind::Real && asked.opened.simulated().is_some() {
        // Memory of this host on a simulated device: the pools are real, pinning is not.
        let real = host::read();
        (asked.host.nodes, asked.host.reserved) = (real.nodes, real.reserved);
        (asked.host.cgroup, asked.host.memory) = (real.cgroup, real.memory);
    }
    if command.alias_pages.is_some() {
        // A few pages stand for all: the pools do not bound the size.
        asked.host.nodes = None;
        asked.host.cgroup.clear();
        asked.host.memory = None;
    }
    if memory == MemoryKind::Real {
        only_node(&mut asked, command.nodes.node)?;
    }
    let plan = match planned(command, &asked) {
        Ok(plan) => plan,
        Err((refusal, _)) if command.force => forced(*refusal)?,
        Err((refusal, reservable)) => {
            if let (Some(node), Code::HugepageShort) = (command.nodes.node, refusal.code) {
                remark(&format!(
                    "--node {node}: only its own pages count, and only those that hugemr reserve --node {node} adds help"
                ));
            }
            let refusal = (&*refusal, reservable.as_ref());
            return refused("register", style(command), &command.what, &asked, refusal);
        }
    };
    if memory == MemoryKind::Real {
        can_be_mapped(&plan)?;
    }
    if plan.verdict == Verdict::Undecided && command.what.strict {
        if command.what.json {
            let document = PlanDocument::new(&asked.device.name, &plan, &asked.host);
            json::write_as(style(command), &document)?;
        } else {
            say(
                "undecided, and --strict takes that as no: hugemr plan shows which limit is not known",
            )?;
        }
        return Ok(Exit::No);
    }
    if command.prove.is_some() && asked.opened.simulated().is_some() {
        remark(match memory {
            MemoryKind::Real => {
                "--prove: no kernel takes part in a simulated device; what arrives there is held against what is predicted from physical addresses, where those can be read"
            }
            MemoryKind::None => "--prove: no kernel takes part in a simulated device",
        });
    }
    let risk = if command.reserve {
        host::risk_of_raising(&plan)
    } else {
        None
    };
    if let Some(risk) = &risk {
        remark(&format!("risk: {risk}"));
    }
    let estimated = estimate::make(&command.time, &plan, &asked.opened, command.threads);
    let watch = Watch::start()?;
    let run = Run {
        command,
        asked: &asked,
        plan: &plan,
        risk,
        estimated,
        watch: &watch,
    };
    match memory {
        MemoryKind::None => run.without_memory(),
        MemoryKind::Real => run.with_memory(),
    }
}

/// With `--hold` there are two answers: when it is held, and when it is released.
fn style(command: &RegisterCommand) -> Style {
    if command.hold {
        Style::Line
    } else {
        Style::Document
    }
}

/// One run of the command, after the plan.
struct Run<'a> {
    command: &'a RegisterCommand,
    asked: &'a Asked,
    plan: &'a Plan,
    /// Of raising the pools.
    risk: Option<String>,
    estimated: Option<Estimated>,
    watch: &'a Watch,
}

impl Run<'_> {
    /// Addresses without memory, on a simulated device.
    fn without_memory(&self) -> Ended {
        let Opened::Simulated(device) = &self.asked.opened else {
            return Err(Failure::usage("--memory none: a real device needs memory"));
        };
        if SIMULATED_BASE.checked_add(self.plan.mapped).is_none() {
            return Err(Failure::usage(
                "the size is beyond the address space of a simulated process",
            ));
        }
        let smallest = self.plan.segments.iter().map(|s| s.page).min();
        let page = smallest.unwrap_or(PageSize::K4);
        let memory = NoMemory {
            base: SIMULATED_BASE,
            len: self.plan.mapped,
            page,
        };
        let contiguous = self.command.layout == Some(SimLayout::Contiguous);
        device::back(device, SIMULATED_BASE, &self.plan.segments, contiguous)?;
        let steps = Steps::new(self.command.what.json, self.watch, self.plan.mapped);
        self.watch.comes_to(hugemr::Step::Register);
        let progress = |p: &hugemr_core::registrar::Progress| {
            steps.tell(hugemr::Event::Progress {
                step: hugemr::Step::Register,
                done: p.bytes,
                total: p.total_bytes,
            });
        };
        // Nothing is pinned or cleared: one thread is enough, and gives the keys in order.
        let threads = self.command.threads.unwrap_or(std::num::NonZeroUsize::MIN);
        let options = Options::new()
            .workers(threads)
            .cancel(self.watch.token())
            .progress(&progress);
        let start = Instant::now();
        let backend: Arc<dyn RegBackend> = self.asked.opened.backend();
        let made = Registration::new(
            backend,
            memory,
            &self.plan.segments,
            self.command.access,
            &options,
        );
        steps.clear();
        let registration = made.map_err(|error| {
            let cause = Cause::Register(error.into_parts().1);
            self.failed(&BuildError::new(hugemr::Step::Register, cause))
        })?;
        let took = start.elapsed();
        let keys = registration.keys();
        let held = Held {
            mrs: registration.mrs().collect(),
            report: None,
            took,
            pools: Vec::new(),
        };
        let proved = self.prove(|backend| hugemr::verify(backend, &keys, |_| ()));
        let seen = self.seen(&held, proved);
        self.watch.comes_to(hugemr::Step::Hold);
        let shown = self.show(&seen);
        let start = Instant::now();
        registration
            .close()
            .map_err(|error| self.failed(&BuildError::new(hugemr::Step::Deregister, error)))?;
        shown?;
        self.end(&held, &seen, start.elapsed(), None)
    }

    /// Memory of this host.
    fn with_memory(&self) -> Ended {
        let pools = host::free_pages();
        let steps = Steps::new(self.command.what.json, self.watch, self.plan.mapped);
        let tell = |event| steps.tell(event);
        let simulated = self.asked.opened.simulated();
        let back = |chunk: &Chunk, addr: u64, runs: &[PhysRun]| match simulated {
            Some(device) => device::back_runs(device, chunk, addr, runs),
            None => Ok(()),
        };
        let mut build = Build::new(self.plan)
            .access(self.command.access)
            .threads(self.command.threads.unwrap_or_else(host::threads))
            .cancel(self.watch.token())
            .predict_for(&self.asked.host.platform)
            .before_each(&back)
            .nodes(self.command.nodes.nodes(self.asked.opened.numa_node()))
            .progress(&tell);
        if self.command.force {
            build = build.unchecked();
        }
        if let Some(pages) = self.command.alias_pages {
            build = build.alias(pages.get());
        }
        if self.command.reserve {
            build = build.reserve(Spread::Even);
        }
        if let Some(by) = self.command.prove.filter(|_| simulated.is_none()) {
            build = build.prove(by.ways());
        }
        let reserved = || self.command.reserve.then(|| steps.pools());
        let start = Instant::now();
        let used = build.run(self.asked.opened.backend(), |pool| {
            steps.clear();
            let held = Held {
                mrs: pool.mrs().collect(),
                report: Some(pool.report().clone()),
                took: start.elapsed(),
                pools,
            };
            let proved = self.prove(|backend| pool.verify(backend, &tell));
            let mut seen = self.seen(&held, proved);
            seen.reserved = reserved();
            seen.risk.clone_from(&self.risk);
            seen.estimated.clone_from(&self.estimated);
            let shown = pool.hold(&tell, || self.show(&seen));
            (held, seen, shown, Instant::now())
        });
        steps.clear();
        let (held, seen, shown, start) = used.map_err(|error| self.failed(&error))?;
        shown?;
        self.end(&held, &seen, start.elapsed(), reserved())
    }

    fn seen(&self, held: &Held, proved: Proved) -> render::Seen {
        let inside = device::report(&self.asked.opened);
        let mut seen = render::Seen::of(
            &self.asked.device.name,
            self.plan,
            held,
            inside.as_ref(),
            proved,
        );
        if self.command.prove.is_some() && self.asked.opened.simulated().is_some() {
            seen.unproved = seen.why_unproved();
        }
        seen
    }

    /// Everything is registered: says it, and holds it if asked to.
    fn show(&self, seen: &render::Seen) -> Result<(), Failure> {
        let json = self.command.what.json;
        let entries = seen.entries.map(|(entries, _)| entries);
        let mrs = seen.rows.len() as u64;
        let learned = learned::from_success(&self.command.what.facts, self.asked, entries, mrs);
        // There while it is held: `hugemr usage` of another process reads it.
        let _note = entries
            .filter(|_| self.command.hold && self.asked.opened.simulated().is_none())
            .map(|entries| notes::write(&self.asked.device.name, mrs, entries));
        if json && self.command.hold {
            json::write_as(Style::Line, &json::register(seen, None))?;
        } else if !json {
            say(&render::registered(seen, self.command.all))?;
        }
        if let Some(text) = learned {
            remark(&text);
        }
        if self.command.hold {
            remark(
                "held until a signal (SIGINT, SIGTERM, SIGHUP, ...); the MRs live in this process and nowhere else",
            );
            let signal = self.watch.wait();
            remark(&format!("{signal}: releasing"));
        }
        Ok(())
    }

    /// Everything is released: says it.
    fn end(
        &self,
        held: &Held,
        seen: &render::Seen,
        took: Duration,
        reserved: Option<Pools>,
    ) -> Ended {
        let released = Released {
            mrs: held.mrs.len() as u64,
            took,
            inside: device::report(&self.asked.opened).map(|inside| (inside.count, inside.entries)),
            pools: pools_after(held),
            reserved,
        };
        if self.command.what.json {
            json::write_as(style(self.command), &json::register(seen, Some(&released)))?;
        } else {
            say(&render::released(&released))?;
        }
        let half = seen.page_proof().is_some_and(|proof| !proof.is_whole());
        if self.command.what.strict && (half || seen.unproved.is_some()) {
            remark("the page size of not every MR is proved, and --strict takes that as no");
            return Ok(Exit::No);
        }
        if self.command.what.strict && matches!(seen.proved, Proved::Impossible(_)) {
            remark("unproven, and --strict takes that as no");
            return Ok(Exit::No);
        }
        Ok(if seen.as_planned { Exit::Yes } else { Exit::No })
    }

    /// The proof by moving data, where it was asked for.
    fn prove(
        &self,
        verify: impl FnOnce(&dyn VerifyBackend) -> Result<Proof, ProofError>,
    ) -> Proved {
        if !self.command.verify {
            return Proved::NotAsked;
        }
        let Some(backend) = self.asked.opened.verifier() else {
            return Proved::Impossible("a simulated device moves no data".to_owned());
        };
        let start = Instant::now();
        match verify(backend) {
            Ok(proof) => Proved::Yes(proof, start.elapsed()),
            Err(ProofError::Transfer {
                source: error @ VerifyError::NoLoopback { .. },
                ..
            }) => Proved::Impossible(error.to_string()),
            Err(error) => {
                let mut text = error.to_string();
                for cause in device::sources(&error) {
                    text = format!("{text}: {cause}");
                }
                Proved::No(text)
            }
        }
    }

    fn failed(&self, error: &BuildError) -> Failure {
        let facts = &self.command.what.facts;
        let refused = match &*error.cause {
            Cause::Register(cause) => {
                let stated = self.command.what.typed.stated();
                render::diagnosed(self.asked, self.plan, stated, cause)
                    .map(|diagnosis| (cause, diagnosis))
            }
            _ => None,
        };
        let mut failure = match &*error.cause {
            Cause::Reserve(cause) => super::reserve::failure(cause, &self.as_root()),
            Cause::Place(cause) => Failure {
                exit: Exit::No,
                ..Failure::system(cause)
            },
            _ => {
                let diagnosed = refused.as_ref().map(|(_, diagnosis)| diagnosis);
                render::failure(self.asked, self.plan, diagnosed, error)
            }
        };
        if let Some((cause, diagnosis)) = &refused {
            let refused = (*cause, diagnosis);
            failure
                .more
                .extend(learned::from_failure(facts, self.asked, self.plan, refused));
        }
        if let Some(left) = &error.not_given_back {
            failure
                .more
                .push(format!("pages were added that stay: {left}"));
            let causes = device::sources(&**left).into_iter();
            failure.more.extend(causes.map(|c| format!("because {c}")));
            super::reserve::ways(left, &mut failure);
        }
        if let Some(signal) = self.watch.seen() {
            failure.more.push(format!("stopped by {signal}"));
        }
        failure
    }

    /// This command line, as root.
    fn as_root(&self) -> String {
        let line = self.command.what.typed.line("register", &Change::default());
        format!("sudo {line}")
    }
}

/// Pools whose free pages were counted before, with what is free now. A moment of grace: the kernel frees a large mapping
/// page by page, and other programs change the pools too.
fn pools_after(held: &Held) -> Vec<(PageSize, u64, u64)> {
    let deadline = Instant::now() + Duration::from_millis(200);
    loop {
        let now = host::free_pages();
        let list: Vec<_> = held
            .pools
            .iter()
            .filter_map(|(page, before)| {
                let after = now.iter().find(|(p, _)| p == page)?.1;
                Some((*page, *before, after))
            })
            .collect();
        let same = list.iter().all(|(_, before, after)| before == after);
        if same || Instant::now() > deadline {
            return list;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
