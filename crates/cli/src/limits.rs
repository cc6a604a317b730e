//! The limits file: where it is, what it says of a device, and what is saved in it.
//!
//! For real devices it is read and written by itself. A simulated device is what its profile says, so nothing is read
//! or saved for one unless a file is named (`--limits`, `HUGEMR_LIMITS`, or `limits` in the config file).

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use hugemr_core::device::Device;
use hugemr_core::fact::Limit;
use hugemr_core::host::Platform;
use hugemr_core::limits::{Confidence, Contradiction, Learned, Record, Seen};
use hugemr_core::size::Grouped;
use hugemr_host::limits::{self, LimitsError, Waiting};

use crate::args::{Command, LimitsArgs};
use crate::commands::{note, remark};
use crate::device::{self, Which};
use crate::exit::Failure;
use crate::typed::{Typed, quoted};

/// The file for all users of the host.
const SYSTEM: &str = "/var/lib/hugemr/limits.toml";

/// The file that is written for a device, and read first; `None` for a simulated one without a file.
pub(crate) fn place(args: &LimitsArgs, name: &str) -> Option<PathBuf> {
    match &args.limits {
        Some(path) => Some(path.clone()),
        None if name.starts_with("sim:") => None,
        None => own(),
    }
}

/// Why there is no file for a device.
pub(crate) fn no_place(name: &str) -> &'static str {
    if name.starts_with("sim:") {
        "a simulated device (with --limits FILE it is)"
    } else {
        "no place for the file, as neither XDG_STATE_HOME nor HOME is an absolute path (name one: --limits FILE)"
    }
}

fn own() -> Option<PathBuf> {
    // SAFETY: geteuid touches no memory.
    if unsafe { libc::geteuid() } == 0 {
        return Some(SYSTEM.into());
    }
    let absolute = |name| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let state = absolute("XDG_STATE_HOME");
    let state = state.or_else(|| Some(absolute("HOME")?.join(".local/state")));
    Some(state?.join("hugemr/limits.toml"))
}

/// What is known of a device: of the own file, else of the host's. What cannot be read is said.
pub(crate) fn known(args: &LimitsArgs, which: &Which) -> Option<(PathBuf, Record)> {
    let mine = place(args, &which.identity.device)?;
    let mut files = vec![mine];
    if args.limits.is_none() && files[0].as_path() != Path::new(SYSTEM) {
        files.push(SYSTEM.into());
    }
    files
        .into_iter()
        .find_map(|path| match limits::read(&path) {
            Ok(mut limits) => {
                limits.rename(&which.former, &which.identity.device);
                Some((path, limits.of(&which.identity)?.clone()))
            }
            Err(error) => {
                remark(&format!("limits not used: {}", chain(&error)));
                if let Some(way) = way_out(&error) {
                    remark(&format!("  way out    {way}"));
                }
                None
            }
        })
}

/// Notes that a file which was typed is not there, for a command that is to read it: a typing error would otherwise be another
/// answer. What the environment or the config file names may come later.
pub(crate) fn note_missing(command: &Command, typed: &Typed) {
    let args = match command {
        Command::Plan(command) => &command.what.facts.limits,
        Command::Register(command) => &command.what.facts.limits,
        Command::Doctor(command) => &command.facts.limits,
        Command::Diagnose(command) => &command.limits,
        Command::Usage(command) => &command.limits,
        _ => return,
    };
    let named = args.limits.as_ref().filter(|_| typed.has("limits"));
    if let Some(path) = named
        && let Err(error) = std::fs::metadata(path)
        && error.kind() == std::io::ErrorKind::NotFound
    {
        let file = quoted(path.as_os_str());
        note(format!(
            "--limits {file}: there is no such file, so no limits come from it"
        ));
    }
}

/// Puts what is known of the device into it, and into the platform that it was measured on. What is stale is said, and not used.
/// The way to correct what was used.
pub(crate) fn apply(
    args: &LimitsArgs,
    which: &Which,
    device: &mut Device,
    platform: &mut Platform,
) -> Option<Correction> {
    let (path, record) = known(args, which)?;
    if record.identity.changes(&which.identity).is_empty() {
        let place = quoted(path.as_os_str());
        record.apply_from(device, platform, &place);
        Some(Correction {
            name: record.identity.device,
            probe: measure(args, &which.named),
            file: path,
            place,
        })
    } else {
        note(stale(args, &record, which));
        None
    }
}

/// How to correct what a limits file says of a device.
pub(crate) struct Correction {
    /// The file, as the sources of its limits name it.
    place: String,
    pub(crate) file: PathBuf,
    /// The device's key there.
    pub(crate) name: String,
    /// The command that measures it anew.
    pub(crate) probe: String,
}

impl Correction {
    /// The way out of a limit, where the file is its source.
    pub(crate) fn of(&self, limit: &Limit) -> Option<&Self> {
        limit.source.text.contains(&self.place).then_some(self)
    }

    pub(crate) fn text(&self) -> String {
        correction(&self.file, &self.name, &self.probe)
    }
}

/// The way out of a record that is wrong: its file, its key there, and the command that measures the device.
fn correction(path: &Path, key: &str, measure: &str) -> String {
    format!(
        "if that is wrong, delete its block in {} (name = {key:?}), or probe: {measure}",
        path.display()
    )
}

/// What is stale about a record, what was measured then, and the command that measures it again.
fn stale(args: &LimitsArgs, record: &Record, which: &Which) -> String {
    let changes: Vec<String> = record
        .identity
        .changes(&which.identity)
        .into_iter()
        .map(|change| format!("{} was {}, is {}", change.what, change.then, change.now))
        .collect();
    format!(
        "{} of {}, measured on {}, are not used: {}; measure again: {}",
        entries(record.seen.entries, "table "),
        which.named,
        hugemr_core::limits::date(record.seconds),
        changes.join(", "),
        measure(args, &which.named)
    )
}

/// The command that measures a device, and saves it where it is read again.
pub(crate) fn measure(args: &LimitsArgs, named: &str) -> String {
    let file = args.quoted();
    let file = file.map_or_else(String::new, |file| format!(" --limits {file}"));
    format!("hugemr {}", measuring(named, &file, args.limits.is_some()))
}

/// The same after `hugemr`, with the flags for the files. Of a simulated device nothing is saved unless a file is named.
pub(crate) fn measuring(named: &str, files: &str, has_file: bool) -> String {
    let file = if named.starts_with("sim:") && !has_file {
        " --limits FILE"
    } else {
        ""
    };
    format!("probe --device {}{files}{file}", quoted(named.as_ref()))
}

/// What stands before a command that needs root: nothing where the device is simulated.
pub(crate) fn sudo(named: &str) -> &'static str {
    if named.starts_with("sim:") {
        ""
    } else {
        "sudo "
    }
}

/// `5 to 9 table entries`, `1 table entry`; `of` is the word before the noun, with a blank.
pub(crate) fn entries(range: hugemr_core::limits::Range, of: &str) -> String {
    let one = range == (1, Some(1));
    let noun = if one { "entry" } else { "entries" };
    format!("{} {of}{noun}", self::range(range))
}

/// `5 to 9`, `5`, `5 or more`.
pub(crate) fn range((low, high): hugemr_core::limits::Range) -> String {
    match high {
        Some(high) if high == low => Grouped(low).to_string(),
        Some(high) => format!("{} to {}", Grouped(low), Grouped(high)),
        None if low == 0 => "unknown".to_owned(),
        None => format!("{} or more", Grouped(low)),
    }
}

/// What came of saving.
pub(crate) struct Saved {
    pub(crate) path: PathBuf,
    pub(crate) learned: Learned,
    pub(crate) record: Record,
}

/// Why nothing was saved.
pub(crate) enum NotSaved {
    Contradiction(Contradicted),
    File(LimitsError),
}

/// What was told does not fit what is known.
pub(crate) struct Contradicted {
    path: PathBuf,
    error: Contradiction,
    /// Its key in the file, and the command that measures it.
    device: (String, String),
}

impl NotSaved {
    pub(crate) fn failure(&self) -> Failure {
        match self {
            Self::Contradiction(Contradicted {
                path,
                error,
                device: (key, measure),
            }) => Failure {
                exit: crate::exit::Exit::No,
                ..Failure::usage(format_args!("not saved: {error}"))
            }
            .with(format!(
                "known so far: {} ({})",
                range(error.known),
                path.display()
            ))
            .with(correction(path, key, measure)),
            Self::File(error) => refused("not saved", error),
        }
    }
}

/// The way out of a file that is not understood. One that was named, and is another program's, stays where it is.
fn way_out(error: &LimitsError) -> Option<String> {
    match error {
        LimitsError::NotUnderstood { path, .. } => Some(away(path)),
        LimitsError::Foreign { path, .. } if is_default(path) => Some(away(path)),
        LimitsError::Foreign { .. } => Some(ANOTHER.to_owned()),
        _ => None,
    }
}

const ANOTHER: &str = "another file: --limits FILE";

/// Whether it is the file that is used where none is named.
fn is_default(path: &Path) -> bool {
    path == Path::new(SYSTEM) || own().is_some_and(|own| own == path)
}

/// Moves a file away, for a shell.
fn away(path: &Path) -> String {
    let mut bad = path.as_os_str().to_owned();
    bad.push(".bad");
    format!(
        "move it away: mv {} {}",
        quoted(path.as_os_str()),
        quoted(&bad)
    )
}

/// The limits file cannot be written: something else was named, or the system refused.
fn refused(what: &str, error: &LimitsError) -> Failure {
    let text = format!("{what}: {}", chain(error));
    let failure = match error {
        LimitsError::NotRegular { .. } => Failure::usage(text),
        _ => Failure::system(text),
    };
    let way = way_out(error).unwrap_or_else(|| ANOTHER.to_owned());
    failure.with(format!("way out    {way}"))
}

/// Refuses what could not be saved in the end, before anything is tried.
pub(crate) fn check(args: &LimitsArgs, name: &str) -> Result<(), Failure> {
    match place(args, name) {
        Some(path) => limits::check(&path, &waits)
            .map_err(|error| refused("not probed, as it could not be saved", &error)),
        None => Ok(()),
    }
}

/// Says that another process has the file, and for how long it is waited for.
fn waits(waiting: &Waiting) {
    remark(&format!(
        "waiting for up to {} s more: another process has locked {}",
        waiting.left.as_secs() + 1,
        waiting.path.display()
    ));
}

/// Saves what was seen of a device; `None` where there is no file for it.
pub(crate) fn save(
    args: &LimitsArgs,
    which: &Which,
    seen: &Seen,
    confidence: Confidence,
) -> Option<Result<Saved, NotSaved>> {
    let now = &which.identity;
    let path = place(args, &now.device)?;
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs());
    let result = limits::update(&path, &waits, |limits| {
        limits.rename(&which.former, &now.device);
        let record = limits.entry(now, confidence, seconds);
        let learned = record.learn(seen, confidence, seconds);
        (learned, record.clone())
    });
    Some(match result {
        Err(error) => Err(NotSaved::File(error)),
        Ok((Err(error), _)) => Err(NotSaved::Contradiction(Contradicted {
            path,
            error,
            device: (now.device.clone(), measure(args, &which.named)),
        })),
        Ok((Ok(learned), record)) => Ok(Saved {
            path,
            learned,
            record,
        }),
    })
}

/// The error with what is behind it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    for cause in device::sources(error) {
        text = format!("{text}: {cause}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_for_no_file_is_that_of_the_device() {
        assert!(no_place("sim:erdma").contains("simulated"));
        let real = no_place("erdma_0");
        assert!(
            real.contains("HOME") && !real.contains("simulated"),
            "{real}"
        );
    }

    #[test]
    fn what_lies_in_the_own_place_is_moved_away_and_what_was_named_is_not() {
        let way = |path: &str| {
            way_out(&LimitsError::Foreign {
                path: path.into(),
                why: "line 1".to_owned(),
            })
        };
        assert!(way(SYSTEM).is_some_and(|way| way.contains("mv /var/lib/hugemr")));
        assert_eq!(way("/etc/passwd").as_deref(), Some(ANOTHER));
    }
}
