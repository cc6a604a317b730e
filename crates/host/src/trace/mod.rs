//! What the kernel makes of each MR, watched while it is registered.
//!
//! Two ways ([`How`]): a return probe on the helper that chooses the page size (`kretprobe`), and the driver's own debug
//! lines (`dyndbg`). Both change something on the host, so both are left as found: what hugemr switches on is noted in
//! `/run/hugemr/traces` *before*, and switched off by [`Watch::finish`], when the watch is dropped, or, after a kill, by
//! [`release_stale`]. A debug line that was on already, and a probe of somebody else, are never touched.
//!
//! **Which event belongs to which MR.** Registrations run in several threads, and other programs register too. The probe is
//! read in a tracing instance of our own, into which each thread writes a mark right before and right after its call: what the
//! kernel traced of the same thread between the two belongs to that MR, and everything else to somebody else. (The thread's
//! number stands in the head of each event and of each mark alike, so this holds in containers too, where a thread knows
//! itself by another number.) Debug lines carry no thread. They are for one registering thread: what the log gains during a
//! call is about that MR, unless another program registers at that very moment on the same device; the vendor's lines name
//! the range besides. Two different answers for one MR are never taken for a proof.

mod dyndbg;
mod held;
mod kmsg;
mod kretprobe;
mod pipe;

use std::collections::BTreeMap;
use std::io;

use hugemr_core::chunks::Chunk;
pub use hugemr_core::prove::How;
use hugemr_core::prove::Sign;
use hugemr_core::registrar::Witness;

use crate::ledger::LedgerError;
use crate::root::Root;
use dyndbg::DebugLines;
pub use held::{Held, Place, look};
use kretprobe::Kretprobe;

/// Why the kernel cannot be watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// Rights are missing.
    #[error("{path} is for root only")]
    NotAllowed {
        /// What could not be used.
        path: String,
    },
    /// The file system that it takes is not there, or the kernel does not have it.
    #[error("{what}")]
    Missing {
        /// What is missing, and how to get it where there is a way.
        what: String,
    },
    /// The kernel refused.
    #[error("{path} could not be changed")]
    Refused {
        /// What was to be changed.
        path: String,
        /// What it said.
        #[source]
        source: io::Error,
    },
    /// The note under /run could not be made: nothing was switched on.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl TraceError {
    fn refused(path: &str) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.kind() {
            io::ErrorKind::PermissionDenied => Self::NotAllowed {
                path: path.to_owned(),
            },
            _ => Self::Refused {
                path: path.to_owned(),
                source,
            },
        }
    }
}

/// What was seen.
#[derive(Debug, Default)]
pub struct Watched {
    /// By number of the MR. One that is not here was not seen at all.
    pub signs: BTreeMap<u64, Vec<Sign>>,
    /// Events or lines that the kernel dropped because they came too fast.
    pub lost: u64,
    /// Why marks could not be written or events not be read, if so.
    pub trouble: Option<String>,
    /// Why something could not be switched off: it is still in the ledger.
    pub left: Option<TraceError>,
}

/// The kernel, being watched by this process. Give it to the registrar as its [`Witness`].
#[derive(Debug)]
pub struct Watch {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Probe(Kretprobe),
    Lines(DebugLines),
}

impl Watch {
    /// Begins to watch. Only the MRs of `device` are looked at where the kernel names a device.
    ///
    /// # Errors
    /// See [`TraceError`]. Everything is as it was then.
    pub fn on(
        root: &Root,
        how: How,
        device: &str,
        cancel: &dyn Fn() -> bool,
    ) -> Result<Self, TraceError> {
        let kind = match how {
            How::Kretprobe => Kind::Probe(Kretprobe::on(root, cancel)?),
            How::DebugLines => Kind::Lines(DebugLines::on(root, device, cancel)?),
        };
        Ok(Self { kind })
    }

    /// By what is watched.
    #[must_use]
    pub fn how(&self) -> How {
        match &self.kind {
            Kind::Probe(_) => How::Kretprobe,
            Kind::Lines(_) => How::DebugLines,
        }
    }

    /// Whether MRs must be registered by one thread for this.
    #[must_use]
    pub fn wants_one_thread(&self) -> bool {
        matches!(self.kind, Kind::Lines(_))
    }

    /// Ends watching, and leaves the host as it was found.
    #[must_use]
    pub fn finish(self) -> Watched {
        match self.kind {
            Kind::Probe(probe) => probe.finish(),
            Kind::Lines(lines) => lines.finish(),
        }
    }
}

impl Witness for Watch {
    fn before(&self, chunk: &Chunk) {
        match &self.kind {
            Kind::Probe(probe) => probe.begin(chunk.index),
            Kind::Lines(lines) => lines.begin(),
        }
    }

    fn after(&self, chunk: &Chunk) {
        match &self.kind {
            Kind::Probe(probe) => probe.end(chunk.index),
            Kind::Lines(lines) => lines.end(chunk.index),
        }
    }
}

/// What processes that are gone have left switched on (killed ones).
///
/// # Errors
/// See [`LedgerError`].
pub fn stale(root: &Root) -> Result<Vec<Held>, LedgerError> {
    let left = look(root)?;
    let gone = left.into_iter().filter(|(owner, _)| !owner.is_alive(root));
    Ok(gone.map(|(_, held)| held).collect())
}

/// Switches off what processes that are gone have left, and says what that was.
///
/// # Errors
/// The first that could not be switched off; the others are nevertheless.
pub fn release_stale(root: &Root) -> Result<Vec<Held>, TraceError> {
    // Without a note there is nothing to do, and no need for rights.
    if stale(root)?.is_empty() {
        return Ok(Vec::new());
    }
    let mut notes = held::Notes::lock(root, &|| false)?;
    let gone: Vec<_> = notes
        .entries
        .iter()
        .filter(|(owner, _)| !owner.is_alive(root))
        .cloned()
        .collect();
    let (mut off, mut failure) = (Vec::new(), None);
    for (owner, held) in gone {
        let done = match &held {
            Held::Probe(name) => kretprobe::off(root, name),
            Held::Line(line) => dyndbg::off(root, line, notes.wanted_by_another(owner, &held)),
        };
        match done.and_then(|()| Ok(notes.remove(owner, &held)?)) {
            Ok(()) => off.push(held),
            Err(error) => {
                failure.get_or_insert(error);
            }
        }
    }
    failure.map_or(Ok(off), Err)
}

#[cfg(test)]
mod tests;
