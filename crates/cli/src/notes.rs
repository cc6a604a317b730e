//! What hugemr's own processes hold: one small file each, while they hold it, so that `usage` can tell entries exactly.
//!
//! Under `/run/hugemr/mrs` for root, `$XDG_RUNTIME_DIR/hugemr/mrs` for others; a file is believed only while its process
//! lives. Without such a folder nothing is noted, and `usage` shows an interval.

use std::path::PathBuf;

use hugemr_host::ledger::Owner;
use hugemr_host::root::Root;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
pub(crate) struct Note {
    pub(crate) pid: u32,
    /// Start of the process, in clock ticks after boot.
    start: u64,
    pub(crate) device: String,
    pub(crate) mrs: u64,
    pub(crate) entries: u64,
}

/// A note that is there until this is dropped.
pub(crate) struct Noted(Option<PathBuf>);

impl Drop for Noted {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _gone = std::fs::remove_file(path);
        }
    }
}

const SYSTEM: &str = "/run/hugemr/mrs";

fn own() -> Option<PathBuf> {
    // SAFETY: geteuid touches no memory.
    if unsafe { libc::geteuid() } == 0 {
        return Some(SYSTEM.into());
    }
    let folder = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR")?);
    folder.is_absolute().then(|| folder.join("hugemr/mrs"))
}

/// Notes what this process holds. A note that cannot be written is none: it is a help, and no part of the registration.
pub(crate) fn write(device: &str, mrs: u64, entries: u64) -> Noted {
    let owner = Owner::own(&Root::real());
    let note = Note {
        pid: owner.pid,
        start: owner.start,
        device: device.to_owned(),
        mrs,
        entries,
    };
    let put = || {
        let folder = own()?;
        std::fs::create_dir_all(&folder).ok()?;
        let path = folder.join(format!("{}.json", owner.pid));
        std::fs::write(&path, serde_json::to_vec(&note).ok()?).ok()?;
        Some(path)
    };
    Noted(put())
}

/// The notes of processes that live.
pub(crate) fn all() -> Vec<Note> {
    let root = Root::real();
    let mut folders = vec![PathBuf::from(SYSTEM)];
    folders.extend(own().filter(|own| own != &folders[0]));
    let files = folders
        .into_iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flatten()
        .flatten();
    files
        .filter_map(|file| {
            let note: Note = serde_json::from_slice(&std::fs::read(file.path()).ok()?).ok()?;
            let owner = Owner {
                pid: note.pid,
                start: note.start,
            };
            owner.is_alive(&root).then_some(note)
        })
        .collect()
}
