//! A return probe on the helper that chooses the page size, by tracefs.
//!
//! The helper, `ib_umem_find_best_pgsz`, is called by every driver that can use pages of several sizes, once for each MR.
//! Linux `Documentation/trace/kprobetrace.rst`. Writing to `kprobe_events` without appending would remove all probes of the
//! host: it is only ever appended to.

use std::fs::File;
use std::io::{self, Read as _};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::held::{Held, Notes};
use super::pipe::{self, EVENT, Reader};
use super::{TraceError, Watched};
use crate::ledger::Owner;
use crate::root::Root;

/// Where tracefs may be.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// The helper.
const HELPER: &str = "ib_umem_find_best_pgsz";
/// Calls between two looks into the pipe: far fewer than its buffer holds (1.4 MB by default, some 100 bytes an event).
const LOOK_EVERY: u64 = 256;

/// A probe of ours.
#[derive(Debug)]
pub(super) struct Kretprobe {
    root: Root,
    dir: &'static str,
    name: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Closed before the instance is removed.
    pipe: Option<File>,
    reader: Reader,
    calls: u64,
    trouble: Option<String>,
    off: bool,
}

impl Kretprobe {
    pub(super) fn on(root: &Root, cancel: &dyn Fn() -> bool) -> Result<Self, TraceError> {
        let dir = place(root)?;
        let mut notes = Notes::lock(root, cancel)?;
        let owner = Owner::own(root);
        let name = (0u64..)
            .map(|n| format!("hugemr_{}_{}_{n}", owner.pid, owner.start))
            .find(|name| !notes.has(&Held::Probe(name.clone())))
            // There are more numbers than entries of a file.
            .unwrap_or_default();
        let held = Held::Probe(name.clone());
        notes.add(owner, held.clone())?;
        match switch_on(root, dir, &name) {
            Ok(pipe) => Ok(Self {
                root: root.clone(),
                dir,
                name,
                state: Mutex::new(State {
                    pipe: Some(pipe),
                    ..State::default()
                }),
            }),
            Err(error) => {
                off(root, &name)?;
                notes.remove(owner, &held)?;
                Err(error)
            }
        }
    }

    pub(super) fn begin(&self, mr: u64) {
        self.mark(&pipe::begin(mr));
    }

    pub(super) fn end(&self, mr: u64) {
        self.mark(&pipe::end(mr));
        let mut state = self.lock();
        state.calls += 1;
        if state.calls.is_multiple_of(LOOK_EVERY) {
            state.look();
        }
    }

    fn mark(&self, text: &str) {
        let path = format!("{}/trace_marker", instance(self.dir, &self.name));
        if let Err(error) = self.root.append(&path, text) {
            let mut state = self.lock();
            let why = format!("{path}: {error}");
            state.trouble.get_or_insert(why);
        }
    }

    pub(super) fn finish(self) -> Watched {
        let left = self.end_it().err();
        let mut state = self.lock();
        Watched {
            signs: std::mem::take(&mut state.reader.signs),
            lost: state.reader.lost,
            trouble: state.trouble.take(),
            left,
        }
    }

    fn end_it(&self) -> Result<(), TraceError> {
        {
            let mut state = self.lock();
            if std::mem::replace(&mut state.off, true) {
                return Ok(());
            }
            state.look();
            state.pipe = None;
        }
        let mut notes = Notes::lock(&self.root, &|| false)?;
        off(&self.root, &self.name)?;
        let held = Held::Probe(self.name.clone());
        notes.remove(Owner::own(&self.root), &held)?;
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Kretprobe {
    fn drop(&mut self) {
        if let Err(error) = self.end_it() {
            tracing::warn!(%error, name = self.name, "probe not taken away");
        }
    }
}

impl State {
    /// Reads what has come.
    fn look(&mut self) {
        let mut bytes = [0u8; 16 << 10];
        let Some(pipe) = &mut self.pipe else { return };
        loop {
            match pipe.read(&mut bytes) {
                Ok(0) => return,
                Ok(n) => self.reader.read(&String::from_utf8_lossy(&bytes[..n])),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    self.trouble.get_or_insert(format!("trace_pipe: {error}"));
                    return;
                }
            }
        }
    }
}

fn instance(dir: &str, name: &str) -> String {
    format!("{dir}/instances/{name}")
}

/// Where tracefs is, with kprobe events.
fn place(root: &Root) -> Result<&'static str, TraceError> {
    let mut mounted = false;
    for dir in PLACES {
        match root.read(&format!("{dir}/kprobe_events")) {
            Ok(_) => return Ok(dir),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(TraceError::NotAllowed {
                    path: dir.to_owned(),
                });
            }
            Err(_) => mounted |= root.exists(&format!("{dir}/trace")),
        }
    }
    let what = if mounted {
        "this kernel has no kprobe events (CONFIG_KPROBE_EVENTS)"
    } else {
        "tracefs is not mounted: sudo mount -t tracefs none /sys/kernel/tracing"
    };
    Err(TraceError::Missing {
        what: what.to_owned(),
    })
}

/// Makes the probe and its instance, and opens the pipe.
fn switch_on(root: &Root, dir: &str, name: &str) -> Result<File, TraceError> {
    let events = format!("{dir}/kprobe_events");
    let probe = format!("r:{name}/{EVENT} {HELPER} page=$retval:x64\n");
    root.append(&events, &probe)
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => TraceError::Missing {
                what: format!(
                    "the kernel has no {HELPER} (before Linux 5.2, or no RDMA driver is loaded)"
                ),
            },
            _ => TraceError::refused(&events)(error),
        })?;
    let own = instance(dir, name);
    root.make_folder(&own).map_err(TraceError::refused(&own))?;
    let enable = format!("{own}/events/{name}/{EVENT}/enable");
    root.write(&enable, "1")
        .map_err(TraceError::refused(&enable))?;
    let pipe = format!("{own}/trace_pipe");
    root.open_stream(&pipe).map_err(TraceError::refused(&pipe))
}

/// Takes instance and probe away. Of what is not there nothing is to be done.
pub(super) fn off(root: &Root, name: &str) -> Result<(), TraceError> {
    let dir = place(root)?;
    let own = instance(dir, name);
    if root.exists(&own) {
        let enable = format!("{own}/events/{name}/{EVENT}/enable");
        if let Err(error) = root.write(&enable, "0") {
            tracing::debug!(%error, enable, "not written");
        }
        patiently(|| root.remove_folder(&own)).map_err(TraceError::refused(&own))?;
    }
    let events = format!("{dir}/kprobe_events");
    let is_there = || {
        let list = root.text(&events).unwrap_or_default();
        list.lines().any(|line| {
            line.split_once(':')
                .is_some_and(|(_, rest)| rest.starts_with(&format!("{name}/")))
        })
    };
    if is_there() {
        let away = format!("-:{name}/{EVENT}\n");
        patiently(|| root.append(&events, &away)).map_err(TraceError::refused(&events))?;
    }
    Ok(())
}

/// Again for a moment where the kernel is still busy with it.
fn patiently(mut work: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    const TRIES: usize = 50;
    for _ in 1..TRIES {
        match work() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                std::thread::sleep(Duration::from_millis(10));
            }
            other => return other,
        }
    }
    work()
}
