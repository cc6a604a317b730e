//! A driver's debug lines about MRs, switched on and off by dynamic debug.
//!
//! Linux `Documentation/admin-guide/dynamic-debug-howto.rst`. Each line is switched by its file and number, and only where it
//! was off: flags that somebody else has set stay as they are. Where two hugemr processes watch, the line stays on until the
//! last of them ends.

use std::io;
use std::sync::{Mutex, PoisonError};

use hugemr_core::prove::Sign;
use hugemr_core::prove::debug_line;

use super::held::{Held, Notes, Place};
use super::kmsg::Log;
use super::{TraceError, Watched};
use crate::ledger::Owner;
use crate::root::Root;

/// Where dynamic debug is controlled: in debugfs, or without it (Linux 5.7).
const PLACES: [&str; 2] = [
    "/sys/kernel/debug/dynamic_debug/control",
    "/proc/dynamic_debug/control",
];
/// The driver, and how the lines begin that tell of MRs (its own texts, with conversions of printf).
const MODULE: &str = "erdma";
const LINES: [&str; 4] = [
    "create_mtt, size:",
    "create_pbl, size:",
    "start:0x",
    "page_size:%",
];

/// Debug lines being watched.
#[derive(Debug)]
pub(super) struct DebugLines {
    root: Root,
    device: String,
    on: Vec<Place>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    log: Log,
    watched: Watched,
    off: bool,
}

impl DebugLines {
    pub(super) fn on(
        root: &Root,
        device: &str,
        cancel: &dyn Fn() -> bool,
    ) -> Result<Self, TraceError> {
        let (path, control) = control(root)?;
        let lines = lines(&control);
        if lines.is_empty() {
            return Err(TraceError::Missing {
                what: format!(
                    "the driver {MODULE} has no debug lines about MRs (the one in Linux 6.1 has none), or is not loaded"
                ),
            });
        }
        let log = Log::open(root)?;
        let mut notes = Notes::lock(root, cancel)?;
        let owner = Owner::own(root);
        let mut own = Self {
            root: root.clone(),
            device: device.to_owned(),
            on: Vec::new(),
            state: Mutex::new(State {
                log,
                watched: Watched::default(),
                off: false,
            }),
        };
        for (place, is_on) in lines {
            let held = Held::Line(place.clone());
            // On, and not by one of us: somebody wants it so.
            if is_on && !notes.has(&held) {
                continue;
            }
            notes.add(owner, held)?;
            own.on.push(place.clone());
            if !is_on && let Err(error) = switch(root, path, &place, "+p") {
                // Dropping it would wait for the lock.
                own.state
                    .get_mut()
                    .unwrap_or_else(PoisonError::into_inner)
                    .off = true;
                for place in &own.on {
                    take_back(root, &mut notes, owner, place)?;
                }
                return Err(error);
            }
        }
        Ok(own)
    }

    pub(super) fn begin(&self) {
        let mut state = self.lock();
        // What came before is about somebody else.
        let _before = state.lines();
    }

    pub(super) fn end(&self, mr: u64) {
        let mut state = self.lock();
        for text in state.lines() {
            let Some((device, said)) = debug_line(&text) else {
                continue;
            };
            if device.is_none_or(|device| device == self.device) {
                state
                    .watched
                    .signs
                    .entry(mr)
                    .or_default()
                    .push(Sign::Line(said));
            }
        }
    }

    pub(super) fn finish(self) -> Watched {
        let left = self.end_it().err();
        let mut watched = std::mem::take(&mut self.lock().watched);
        watched.left = left;
        watched
    }

    fn end_it(&self) -> Result<(), TraceError> {
        if std::mem::replace(&mut self.lock().off, true) {
            return Ok(());
        }
        let mut notes = Notes::lock(&self.root, &|| false)?;
        let owner = Owner::own(&self.root);
        let mut first = Ok(());
        for place in &self.on {
            first = first.and(take_back(&self.root, &mut notes, owner, place));
        }
        first
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DebugLines {
    fn drop(&mut self) {
        if let Err(error) = self.end_it() {
            tracing::warn!(%error, "debug lines not switched off");
        }
    }
}

impl State {
    fn lines(&mut self) -> Vec<String> {
        match self.log.read() {
            Ok((lines, lost)) => {
                self.watched.lost += lost;
                lines
            }
            Err(error) => {
                self.watched
                    .trouble
                    .get_or_insert(format!("/dev/kmsg: {error}"));
                Vec::new()
            }
        }
    }
}

fn take_back(
    root: &Root,
    notes: &mut Notes<'_>,
    owner: Owner,
    place: &Place,
) -> Result<(), TraceError> {
    let held = Held::Line(place.clone());
    off(root, place, notes.wanted_by_another(owner, &held))?;
    notes.remove(owner, &held)?;
    Ok(())
}

/// Switches a line off, unless it is wanted.
pub(super) fn off(root: &Root, place: &Place, wanted: bool) -> Result<(), TraceError> {
    if wanted {
        return Ok(());
    }
    let (path, control) = control(root)?;
    // The driver may have been unloaded meanwhile.
    let on = |(other, on): &(Place, bool)| other == place && *on;
    if lines(&control).iter().any(on) {
        switch(root, path, place, "-p")?;
    }
    Ok(())
}

fn switch(root: &Root, path: &str, place: &Place, flag: &str) -> Result<(), TraceError> {
    let Place { file, line } = place;
    let query = format!("module {MODULE} file \"{file}\" line {line} {flag}\n");
    root.append(path, &query).map_err(TraceError::refused(path))
}

/// The control file and its path.
fn control(root: &Root) -> Result<(&'static str, String), TraceError> {
    for path in PLACES {
        match root.read(path) {
            Ok(text) => return Ok((path, text)),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(TraceError::NotAllowed {
                    path: path.to_owned(),
                });
            }
            Err(_) => {}
        }
    }
    Err(TraceError::Missing {
        what: "this kernel has no dynamic debug, or debugfs is not mounted: sudo mount -t debugfs none /sys/kernel/debug".to_owned(),
    })
}

/// The driver's lines about MRs, and whether each is on.
fn lines(control: &str) -> Vec<(Place, bool)> {
    control.lines().filter_map(line).collect()
}

/// `FILE:LINE [MODULE]FUNCTION =FLAGS "TEXT"`, where no flag is written as `_`.
fn line(text: &str) -> Option<(Place, bool)> {
    let (place, rest) = text.split_once(" [")?;
    let (module, rest) = rest.split_once(']')?;
    let (_, rest) = rest.split_once(" =")?;
    let (flags, said) = rest.split_once(" \"")?;
    let about_mrs = LINES.iter().any(|head| said.starts_with(head));
    if module != MODULE || !about_mrs {
        return None;
    }
    let (file, line) = place.rsplit_once(':')?;
    let place = Place {
        file: file.to_owned(),
        line: line.parse().ok()?,
    };
    // A class may stand behind the flags (Linux 6.1).
    let flags = flags.split(' ').next()?;
    Some((place, flags.contains('p')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_about_mrs_are_found() {
        let control = "# filename:lineno [module]function flags format\n\
            init/main.c:1179 [main]initcall_blacklist =p \"blacklisting initcall %s\\012\"\n\
            drivers/infiniband/hw/erdma/erdma_verbs.c:735 [erdma]erdma_create_mtt =_ \"create_mtt, size:%lu, force cont:%d\\012\"\n\
            /root/drv/erdma verbs.c:912 [erdma]reg =pmf class:X \"start:0x%llx, len:%llu, virt:0x%llx, access:0x%x\\012\"\n\
            x.c:1 [erdma]get =_ \"page_size:%u, page_offset:%u, mtt_nents:%u\\012\"\n\
            x.c:2 [erdma]get =_ \"top mtt: level:%d\\012\"\n\
            x.c:3 [other]get =_ \"create_mtt, size:%lu\\012\"\n";
        let place = |file: &str, line| Place {
            file: file.to_owned(),
            line,
        };
        let expected = vec![
            (
                place("drivers/infiniband/hw/erdma/erdma_verbs.c", 735),
                false,
            ),
            (place("/root/drv/erdma verbs.c", 912), true),
            (place("x.c", 1), false),
        ];
        assert_eq!(lines(control), expected);
    }
}
