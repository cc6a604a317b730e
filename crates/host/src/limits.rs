//! The limits file: what was measured of the devices of this host, `limits.toml`.
//!
//! Small, versioned and for people to read. Who writes holds a lock on `FILE.lock` and puts a new file in the place of
//! the old one in one step, so that two writers lose nothing and no reader ever sees half a file. A file that cannot be
//! understood, of a later version, damaged or cut off, is never written over. Keys that this version does not know are kept.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::mem::take;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hugemr_core::errno::Errno;
use hugemr_core::limits::{Confidence, Identity, Range, Record, Seen};
use hugemr_input::InputError;
use serde::{Deserialize, Serialize};

use crate::sys;

/// The version that is written.
pub const VERSION: u64 = 1;
/// The last line: a file without it was cut off.
const END: &str = "# end";
/// No more than this is read, bytes: a host has few devices.
const LARGEST: u64 = 1 << 20;
/// How long a writer waits for another one, without a word and in all.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

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
    /// It is no limits file, or a damaged one.
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

/// What a limits file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// One record a device and software.
    pub records: Vec<Record>,
    /// Keys of the file, and of each record, that this version does not know.
    rest: toml::Table,
    rests: Vec<toml::Table>,
}

/// As it is written.
#[derive(Serialize, Deserialize)]
struct Written {
    version: u64,
    #[serde(default)]
    device: Vec<WrittenRecord>,
    #[serde(flatten)]
    rest: toml::Table,
}

#[derive(Serialize, Deserialize)]
struct WrittenRecord {
    name: String,
    guid: Option<String>,
    kernel: Option<String>,
    driver: Option<String>,
    firmware: Option<String>,
    instance: Option<String>,
    /// Seconds since 1970.
    changed: u64,
    confidence: String,
    entries: Option<Span>,
    entries_per_mr: Option<Span>,
    max_mr: Option<Span>,
    longest_mr: Option<u64>,
    large_pages: Option<bool>,
    #[serde(flatten)]
    rest: toml::Table,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Span {
    at_least: u64,
    at_most: Option<u64>,
}

impl Limits {
    /// Reads a text.
    ///
    /// # Errors
    /// Where and why it is not understood.
    pub fn parse(text: &str) -> Result<Self, String> {
        // The version first: a later one may look different otherwise.
        let table: toml::Table = toml::from_str(text).map_err(|error| one_line(&error))?;
        match table.get("version").map(toml::Value::as_integer) {
            Some(Some(1)) => {}
            Some(Some(other)) if other > 1 => {
                return Err(format!(
                    "version {other} is of a later hugemr; this one knows version {VERSION}"
                ));
            }
            Some(Some(other)) => {
                return Err(format!("version {other} was never written by hugemr"));
            }
            Some(None) => return Err("version is no number".to_owned()),
            None => return Err("no version: hugemr did not write it".to_owned()),
        }
        if text.trim_end().lines().last() != Some(END) {
            // A number that was cut off would be another number.
            return Err(format!("cut off: the last line is not \"{END}\""));
        }
        let written: Written = toml::from_str(text).map_err(|error| one_line(&error))?;
        let mut limits = Self {
            rest: written.rest,
            ..Self::default()
        };
        for (number, one) in (1..).zip(written.device) {
            let name = one.name.clone();
            let bad = |why| format!("device {number} ({name:?}): {why}");
            let (record, rest) = record(one).map_err(bad)?;
            limits.records.push(record);
            limits.rests.push(rest);
        }
        Ok(limits)
    }

    /// The text that [`parse`](Self::parse) reads back.
    #[must_use]
    pub fn text(&self) -> String {
        let rests = self
            .rests
            .iter()
            .cloned()
            .chain(std::iter::repeat_with(toml::Table::new));
        let written = Written {
            version: VERSION,
            device: self
                .records
                .iter()
                .zip(rests)
                .map(|(record, rest)| write(record, rest))
                .collect(),
            rest: self.rest.clone(),
        };
        let body = toml::to_string(&written).unwrap_or_default();
        format!(
            "# Limits of RDMA devices, measured by hugemr. To forget one, delete its block.\n{body}{END}\n"
        )
    }

    /// The record of a device under the same software, else the latest of the same name.
    #[must_use]
    pub fn of(&self, now: &Identity) -> Option<&Record> {
        let place = self.place(now).or_else(|| {
            let named = self
                .records
                .iter()
                .enumerate()
                .filter(|(_, r)| r.identity.device == now.device);
            named
                .max_by_key(|(_, record)| record.seconds)
                .map(|(place, _)| place)
        });
        self.records.get(place?)
    }

    /// The record of this device under this software, made if there is none.
    pub fn entry(&mut self, now: &Identity, confidence: Confidence, seconds: u64) -> &mut Record {
        let place = self.place(now).unwrap_or_else(|| {
            self.records
                .push(Record::new(now.clone(), confidence, seconds));
            self.rests.push(toml::Table::new());
            self.records.len() - 1
        });
        let record = &mut self.records[place];
        // What was not known when the record was made may be known now.
        record.identity.fill(now);
        record
    }

    /// Gives what is recorded of a device under former names its name of now. Records of the same software become one.
    pub fn rename(&mut self, former: &[String], device: &str) {
        self.rests.resize(self.records.len(), toml::Table::new());
        let (records, rests) = (take(&mut self.records), take(&mut self.rests));
        let is_former = |record: &Record| former.contains(&record.identity.device);
        let (moved, stay): (Vec<_>, Vec<_>) = records
            .into_iter()
            .zip(rests)
            .partition(|(record, _)| is_former(record));
        (self.records, self.rests) = stay.into_iter().unzip();
        for (mut record, rest) in moved {
            device.clone_into(&mut record.identity.device);
            match self.place(&record.identity) {
                Some(place) => {
                    self.records[place] = self.records[place].clone().joined(record);
                    for (key, value) in rest {
                        self.rests[place].entry(key).or_insert(value);
                    }
                }
                None => {
                    self.records.push(record);
                    self.rests.push(rest);
                }
            }
        }
    }

    /// The latest record that fits.
    fn place(&self, now: &Identity) -> Option<usize> {
        let fits = |record: &Record| {
            record.identity.device == now.device && record.identity.changes(now).is_empty()
        };
        let all = self.records.iter().enumerate();
        all.filter(|(_, record)| fits(record))
            .max_by_key(|(_, record)| record.seconds)
            .map(|(place, _)| place)
    }
}

fn record(one: WrittenRecord) -> Result<(Record, toml::Table), String> {
    let confidence = Confidence::parse(&one.confidence).ok_or_else(|| {
        format!(
            "confidence {:?} is not probed, seen or told",
            one.confidence
        )
    })?;
    let span = |key: &str, span: Option<Span>| match span {
        None => Ok((0, None)),
        Some(Span {
            at_least,
            at_most: Some(most),
        }) if at_least > most => Err(format!(
            "{key}: at_least {at_least} is above at_most {most}"
        )),
        Some(Span { at_least, at_most }) => Ok((at_least, at_most)),
    };
    let record = Record {
        seen: Seen {
            entries: span("entries", one.entries)?,
            per_mr: span("entries_per_mr", one.entries_per_mr)?,
            mrs: span("max_mr", one.max_mr)?,
            longest: one.longest_mr,
            large_pages: one.large_pages,
        },
        identity: Identity {
            device: one.name,
            guid: one.guid,
            kernel: one.kernel,
            driver: one.driver,
            firmware: one.firmware,
            instance: one.instance,
        },
        confidence,
        seconds: one.changed,
    };
    Ok((record, one.rest))
}

fn write(record: &Record, rest: toml::Table) -> WrittenRecord {
    // TOML has 63 bits for a number: a lower end beyond is cut, an upper end beyond is none.
    const MOST: u64 = i64::MAX as u64;
    let span = |(low, high): Range| {
        let span = Span {
            at_least: low.min(MOST),
            at_most: high.filter(|high| *high <= MOST),
        };
        (low > 0 || high.is_some()).then_some(span)
    };
    let (identity, seen) = (record.identity.clone(), &record.seen);
    WrittenRecord {
        name: identity.device,
        guid: identity.guid,
        kernel: identity.kernel,
        driver: identity.driver,
        firmware: identity.firmware,
        instance: identity.instance,
        changed: record.seconds.min(MOST),
        confidence: record.confidence.name().to_owned(),
        entries: span(seen.entries),
        entries_per_mr: span(seen.per_mr),
        max_mr: span(seen.mrs),
        longest_mr: seen.longest.map(|bytes| bytes.min(MOST)),
        large_pages: seen.large_pages,
        rest,
    }
}

/// The message of a TOML error with its line, without the picture of it.
fn one_line(error: &toml::de::Error) -> String {
    let shown = error.to_string();
    let place = shown
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("TOML parse error at "));
    match place {
        Some(place) => format!("{place}: {}", error.message()),
        None => error.message().to_owned(),
    }
}

/// Reads a file. No file is an empty one.
///
/// # Errors
/// See [`LimitsError`].
pub fn read(path: &Path) -> Result<Limits, LimitsError> {
    let not_understood = |why: String| LimitsError::NotUnderstood {
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
        Err(other) => return Err(not_understood(other.to_string())),
    };
    Limits::parse(&text).map_err(not_understood)
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
pub fn check(path: &Path, waits: &dyn Fn(Waiting)) -> Result<(), LimitsError> {
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
    waits: &dyn Fn(Waiting),
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
fn lock(
    path: &Path,
    (silent, patience): (Duration, Duration),
    waits: &dyn Fn(Waiting),
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
            waits(Waiting {
                path: place.clone(),
                left: patience - waited,
            });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// `limits.toml` -> `limits.toml.lock`.
fn beside(path: &Path, more: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(more);
    name.into()
}

#[cfg(test)]
mod tests;
