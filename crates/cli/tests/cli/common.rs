//! Running the command.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// The article's set-up.
pub(crate) const ARTICLE: &str = "sim:ecs.r8a.32xlarge";

/// The command with arguments, separated by blanks.
pub(crate) fn hugemr(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hugemr"));
    command.args(line.split_whitespace()).stdin(Stdio::null());
    command
}

/// How a run ended.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let ran = Self {
            code: output.status.code().expect("it ended by itself"),
            out: String::from_utf8(output.stdout).expect("text"),
            err: String::from_utf8(output.stderr).expect("text"),
        };
        assert_eq!(one_of_many(&format!("{}\n{}", ran.out, ran.err)), None);
        ran
    }
}

/// A number 1 with a word for many: whatever is printed in these tests is looked through.
fn one_of_many(text: &str) -> Option<String> {
    const MANY: [&str; 16] = [
        "MRs",
        "entries",
        "pages",
        "threads",
        "borders",
        "buffers",
        "registrations",
        "processes",
        "devices",
        "vCPUs",
        "lines",
        "failures",
        "mappings",
        "checks",
        "bytes",
        "chunks",
    ];
    let between = |c: char| matches!(c, ' ' | '\n' | '(' | ')' | ';' | ':');
    let words: Vec<&str> = text
        .split(between)
        .map(|w| w.trim_end_matches(','))
        .collect();
    // `1 MTT entries`, too; a page size is no count.
    let adjective = ["MTT", "table", "more", "huge", "free"];
    words.iter().enumerate().find_map(|(i, word)| {
        let noun = (i + 1..words.len()).find(|at| !adjective.contains(&words[*at]))?;
        // `2^32 - 1 pages`
        let alone = i == 0 || words[i - 1] != "-";
        (alone && *word == "1" && MANY.contains(&words[noun])).then(|| words[i..=noun].join(" "))
    })
}

#[test]
fn a_wrong_plural_is_seen() {
    for (text, seen) in [
        ("needs 1 MTT entries", true),
        ("(1 pages)", true),
        ("1 MR, 1 entry", false),
        ("on 1 GiB pages, 11 MRs", false),
        ("more than 2^32 - 1 pages", false),
    ] {
        assert_eq!(one_of_many(text).is_some(), seen, "{text}");
    }
}

pub(crate) fn run(line: &str) -> Ran {
    hugemr(line).output().expect("the command starts").into()
}

/// A terminal of 100 columns: the end to read what is shown, and the one to write to.
pub(crate) fn terminal() -> (File, OwnedFd) {
    let size = libc::winsize {
        ws_row: 24,
        ws_col: 100,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let (mut shown, mut written) = (-1, -1);
    let null = std::ptr::null_mut();
    // SAFETY: both numbers and the size live as long as the call; the others may be null (openpty(3)).
    let opened = unsafe {
        libc::openpty(
            &raw mut shown,
            &raw mut written,
            null,
            null.cast(),
            &raw const size,
        )
    };
    assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the call has opened it, and nobody else has it.
    let shown = unsafe { File::from_raw_fd(shown) };
    // SAFETY: as above.
    let written = unsafe { OwnedFd::from_raw_fd(written) };
    (shown, written)
}

/// With these bytes on standard input.
pub(crate) fn run_with(line: &str, input: &[u8]) -> Ran {
    let mut child = hugemr(line)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let ran = child.wait_with_output().expect("it ends").into();
    // A command that gave up early has closed the pipe.
    let _closed = writer.join().expect("the writer ends");
    ran
}

impl Ran {
    /// Asserts the exit code.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "out: {}\nerr: {}", self.out, self.err);
        self
    }

    /// Asserts that standard output has a text.
    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(self.out.contains(text), "no {text:?} in: {}", self.out);
        self
    }

    /// Standard output as one document.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {}", self.out))
    }
}
