//! Files that a user names: read in bounded memory, and never waited for.
//!
//! A device file, a config file, facts, limits, a log, vectors: each name can be mistyped, and then it can be `/dev/zero`, a
//! pipe that nobody writes to, or a disk. Only regular files are opened, and a text has a largest length.

mod plain;

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

pub use plain::{Place, plain};

/// Longest text of settings (a device file, a config file, limits), bytes: such files have some thousand.
pub const SETTINGS: u64 = 1 << 20;

/// Longest text of facts of a host, bytes: hosts with hundreds of nodes and devices have some hundred thousand.
pub const FACTS: u64 = 16 << 20;

/// Why a file is not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// It cannot be opened or read.
    #[error(transparent)]
    System(#[from] io::Error),
    /// It is no regular file.
    #[error("it is {0}, and only a regular file is read")]
    NotRegular(&'static str),
    /// Longer than such a file is.
    #[error("it is longer than {most} B, the most that is read of such a file")]
    TooLong {
        /// The most that is read, bytes.
        most: u64,
    },
    /// Other bytes than UTF-8.
    #[error("it is no text: byte {byte} is not UTF-8")]
    NotText {
        /// The first byte that is not, counted from 1.
        byte: usize,
    },
}

impl InputError {
    /// Whether there is no such file.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::System(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

/// Opens a regular file, or /dev/null, for reading, without waiting for anybody (`O_NONBLOCK`: a pipe without a writer opens at once, and is
/// refused then; open(2)).
///
/// # Errors
/// [`InputError::NotRegular`], or what the system says.
pub fn open(path: &Path) -> Result<File, InputError> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK);
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    let kind = metadata.file_type();
    // The null device is an empty file to everybody who names it.
    let null = kind.is_char_device() && metadata.rdev() == libc::makedev(1, 3);
    if kind.is_file() || null {
        return Ok(file);
    }
    Err(InputError::NotRegular(if kind.is_dir() {
        "a folder"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_char_device() || kind.is_block_device() {
        "a device"
    } else {
        "no file of bytes"
    }))
}

/// What some editors write at the beginning of a text to say that it is UTF-8 (the byte order mark, U+FEFF).
const MARK: &[u8] = "\u{feff}".as_bytes();

/// The beginning of a text without a byte order mark: it is no part of the text.
#[must_use]
pub fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(MARK).unwrap_or(bytes)
}

/// The whole text of a regular file of at most `most` bytes, [without a mark](without_mark).
///
/// # Errors
/// See [`InputError`].
pub fn text(path: &Path, most: u64) -> Result<String, InputError> {
    let file = open(path)?;
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(InputError::TooLong { most });
    }
    let mut text = String::from_utf8(bytes).map_err(|error| InputError::NotText {
        byte: error.utf8_error().valid_up_to() + 1,
    })?;
    let mark = text.len() - without_mark(text.as_bytes()).len();
    text.drain(..mark);
    Ok(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_the_most_is_read_and_a_longer_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for (len, read) in [(0, true), (9, true), (10, true), (11, false), (1000, false)] {
            std::fs::write(&path, "x".repeat(len)).unwrap();
            match text(&path, 10) {
                Ok(text) => assert!(read && text.len() == len, "{len}"),
                Err(InputError::TooLong { most: 10 }) => assert!(!read, "{len}"),
                Err(error) => panic!("{len}: {error}"),
            }
        }
        for (bytes, said) in [
            ("\u{feff}a\u{feff}", "a\u{feff}"),
            ("\u{feff}", ""),
            ("a\u{feff}", "a\u{feff}"),
        ] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(text(&path, 10).unwrap(), said);
        }
        std::fs::write(&path, b"ab\xff").unwrap();
        let error = text(&path, 10).unwrap_err();
        assert!(matches!(error, InputError::NotText { byte: 3 }), "{error}");
        assert!(
            text(&dir.path().join("none"), 10)
                .unwrap_err()
                .is_not_found()
        );
    }

    /// None of these ends by itself, or is read without end.
    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap();
        assert!(made.success());
        assert_eq!(text(Path::new("/dev/null"), 10).unwrap(), "");
        let cases = [
            (pipe.as_path(), "a pipe"),
            (Path::new("/dev/zero"), "a device"),
            (dir.path(), "a folder"),
        ];
        for (path, kind) in cases {
            match text(path, 10) {
                Err(InputError::NotRegular(said)) => assert_eq!(said, kind),
                other => panic!("{}: {other:?}", path.display()),
            }
        }
    }
}
