//! The limits file on the disk.
//!
//! Who writes holds a lock on `FILE.lock` and puts a new file in the place of the old one in one step, so that two writers
//! lose nothing and no reader ever sees half a file. A file that cannot be understood is never written over.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hugemr_core::errno::Errno;
use hugemr_input::InputError;

use super::Limits;
use super::text::resembles;
use crate::sys;

/// No more than this is read, bytes: a host has few devices.
pub(super) const LARGEST: u64 = 1 << 20;
/// How long a writer waits for another one, without a word and in all.
pub(super) const PATIENCE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// Why the file could not be used. It is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimitsError {
    /// The system refused.
    #[error("{} cannot be {doing}", .path.display())]
    File {
        /// Which file or folder.
        path: PathBuf,
        /// `read`, `written`, ...
        doing: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is nothing that hugemr has written: another program's file.
    #[error("{} is no limits file: {why}", .path.display())]
    Foreign {
        /// Which file.
        path: PathBuf,
        /// Where and why.
        why: String,
    },
    /// It is a damaged limits file, or one of a later version.
    #[error("{} is not understood: {why}", .path.display())]
    NotUnderstood {
        /// Which file.
        path: PathBuf,
        /// Where and why.
        why: String,
    },
    /// It is something that can be no limits file: a folder, a device, a pipe.
    #[error("{} is not a regular file: it is {kind}", .path.display())]
    NotRegular {
        /// Which one.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// Another process has had the lock for too long.
    #[error("{} has been locked by another process for {} s", .path.display(), .waited.as_secs())]
    Locked {
        /// The lock.
        path: PathBuf,
        /// How long it was waited for.
        waited: Duration,
    },
}

/// Another process has had the lock for a while: it is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The lock.
    pub path: PathBuf,
    /// How much longer it is waited for.
    pub left: Duration,
}

/// Reads a file. No file is an empty one.
///
/// # Errors
/// See [`LimitsError`].
pub fn read(path: &Path) -> Result<Limits, LimitsError> {
    let foreign = |why: String| LimitsError::Foreign {
        path: path.to_owned(),
        why,
    };
    regular(path)?;
    let text = match hugemr_input::text(path, LARGEST) {
        Ok(text) => text,
        Err(error) if error.is_not_found() => return Ok(Limits::default()),
        Err(InputError::System(source)) => {
            return Err(LimitsError::File {
                path: path.to_owned(),
                doing: "read",
                source,
            });
        }
        Err(InputError::NotRegular(kind)) => {
            return Err(LimitsError::NotRegular {
                path: path.to_owned(),
                kind,
            });
        }
        Err(other) => return Err(foreign(other.to_string())),
    };
    Limits::parse(&text).map_err(|why| match resembles(&text) {
        true => LimitsError::NotUnderstood {
            path: path.to_owned(),
            why,
        },
        false => foreign(why),
    })
}

/// Refuses what is there and no regular file, the null device too: it would take a limits file and give none back.
fn regular(path: &Path) -> Result<(), LimitsError> {
    let Ok(metadata) = fs::metadata(path) else {
        // Not there yet; or what reading says of it.
        return Ok(());
    };
    let kind = metadata.file_type();
    let kind = if kind.is_file() {
        return Ok(());
    } else if kind.is_dir() {
        "a folder"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    Err(LimitsError::NotRegular {
        path: path.to_owned(),
        kind,
    })
}

/// Where the file itself is: behind symbolic links, and where the last one points if that is not there yet.
fn target(path: &Path) -> io::Result<PathBuf> {
    // As many as the kernel follows (path_resolution(7)).
    const LINKS: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        match fs::read_link(&path) {
            Ok(next) => path = path.parent().unwrap_or(Path::new("")).join(next),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::InvalidInput | io::ErrorKind::NotFound
                ) =>
            {
                return Ok(path);
            }
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

/// Whether [`update`] could write the file: what is there is a limits file, and its folder takes another one. Nothing of
/// the file is changed.
///
/// # Errors
/// See [`LimitsError`].
pub fn check(path: &Path, waits: &dyn Fn(&Waiting)) -> Result<(), LimitsError> {
    update(path, waits, |_| ())?;
    let failed = |source| LimitsError::File {
        path: path.to_owned(),
        doing: "written",
        source,
    };
    let new = beside(&target(path).map_err(failed)?, "new");
    let made = File::create(&new).map_err(failed);
    if made.is_ok() {
        let _gone = fs::remove_file(&new);
    }
    made.map(|_| ())
}

/// Changes a file under its lock: reads it, lets `change` change what it says, and puts the new one in its place.
/// Folders that are missing are made. `waits` is told once, after a second in which another process held the lock.
///
/// # Errors
/// See [`LimitsError`]; the file is as it was then.
pub fn update<T>(
    path: &Path,
    waits: &dyn Fn(&Waiting),
    change: impl FnOnce(&mut Limits) -> T,
) -> Result<T, LimitsError> {
    let failed = |doing| {
        move |source| LimitsError::File {
            path: path.to_owned(),
            doing,
            source,
        }
    };
    regular(path)?;
    let path = target(path).map_err(failed("written"))?;
    let path = path.as_path();
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        fs::create_dir_all(folder).map_err(failed("written"))?;
    }
    let _lock = lock(path, PATIENCE, waits)?;
    let mut limits = read(path)?;
    let before = limits.clone();
    let result = change(&mut limits);
    if limits == before {
        return Ok(result);
    }
    let new = beside(path, "new");
    let put = || {
        let mut file = File::create(&new)?;
        // The new file belongs to whom the old one belonged to, with the same rights.
        if let Ok(old) = fs::metadata(path) {
            let now = file.metadata()?;
            if (old.uid(), old.gid()) != (now.uid(), now.gid()) {
                let (user, group) = (Some(old.uid()), Some(old.gid()));
                match std::os::unix::fs::fchown(&file, user, group) {
                    // Of another user, in a folder that both may write: only root can give a file away.
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                    other => other?,
                }
            }
            file.set_permissions(old.permissions())?;
        }
        file.write_all(limits.text().as_bytes())?;
        // On the disk before it takes the old one's place: after a crash there is one or the other.
        file.sync_all()?;
        fs::rename(&new, path)
    };
    put().map_err(|error| {
        let _gone = fs::remove_file(&new);
        failed("written")(error)
    })?;
    Ok(result)
}

/// Waits for the lock, without a word and in all; the kernel drops it with the process.
pub(super) fn lock(
    path: &Path,
    (silent, patience): (Duration, Duration),
    waits: &dyn Fn(&Waiting),
) -> Result<File, LimitsError> {
    let place = beside(path, "lock");
    let failed = |source| LimitsError::File {
        path: place.clone(),
        doing: "locked",
        source,
    };
    let mut options = File::options();
    let file = options
        .create(true)
        .truncate(false)
        .write(true)
        .open(&place)
        .map_err(failed)?;
    let start = Instant::now();
    let mut told = false;
    loop {
        match sys::try_lock(file.as_fd()) {
            Ok(()) => return Ok(file),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(errno) => return Err(failed(io::Error::from_raw_os_error(errno.0))),
        }
        let waited = start.elapsed();
        if waited >= patience {
            return Err(LimitsError::Locked {
                path: place,
                waited,
            });
        }
        if waited >= silent && !told {
            told = true;
            waits(&Waiting {
                path: place.clone(),
                left: patience - waited,
            });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// `limits.toml` -> `limits.toml.lock`.
pub(super) fn beside(path: &Path, more: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(more);
    name.into()
}
