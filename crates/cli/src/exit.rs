//! How a command ends: the exit codes, and failures with their text.

use std::fmt;
use std::process::ExitCode;

/// The contract of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Yes, or done.
    Yes = 0,
    /// The answer is no.
    No = 1,
    /// Bad usage or unreadable input.
    Usage = 2,
    /// The system refused.
    System = 3,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// A command that could not be carried out. Written to standard error, one fact a line.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// What failed, lower case, without a final dot.
    pub(crate) what: String,
    /// What else there is to say: causes, ways out.
    pub(crate) more: Vec<String>,
    /// What was said already on standard output, if anything.
    pub(crate) told: bool,
    /// For JSON: the diagnosis as a document.
    pub(crate) diagnosis: Option<Box<serde_json::Value>>,
    /// For JSON: which MR failed, how many stood, and what could not be taken back.
    pub(crate) failed: Option<Box<serde_json::Value>>,
    /// For JSON: pages that stay in the pools, with the commands that take them back.
    pub(crate) pools_left: Option<Box<serde_json::Value>>,
}

impl Failure {
    pub(crate) fn usage(what: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, what)
    }

    pub(crate) fn system(what: impl fmt::Display) -> Self {
        Self::new(Exit::System, what)
    }

    fn new(exit: Exit, what: impl fmt::Display) -> Self {
        Self {
            exit,
            what: what.to_string(),
            more: Vec::new(),
            told: false,
            diagnosis: None,
            failed: None,
            pools_left: None,
        }
    }

    pub(crate) fn with(mut self, line: impl Into<String>) -> Self {
        self.more.push(line.into());
        self
    }
}

impl From<std::io::Error> for Failure {
    /// Writing the answer failed. A reader that has gone is no failure.
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self {
                exit: Exit::Yes,
                what: String::new(),
                more: Vec::new(),
                told: true,
                diagnosis: None,
                failed: None,
                pools_left: None,
            };
        }
        Self::system(format_args!("cannot write the answer: {error}"))
    }
}

pub(crate) type Ended = Result<Exit, Failure>;
