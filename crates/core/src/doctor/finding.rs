//! One thing that the doctor has to say.

/// How bad it is, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Harm {
    /// It cannot work.
    Block,
    /// It can go wrong.
    Risk,
    /// Nobody knows.
    Unknown,
    /// It is as it should be.
    Fine,
}

impl Harm {
    /// All, worst first.
    pub const ALL: [Self; 4] = [Self::Block, Self::Risk, Self::Unknown, Self::Fine];

    /// The stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Risk => "risk",
            Self::Unknown => "unknown",
            Self::Fine => "fine",
        }
    }
}

/// A finding: what, where it was seen, what comes of it, and what mends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The stable name.
    pub code: &'static str,
    /// How bad it is.
    pub harm: Harm,
    /// In one line, lower case, without a final dot.
    pub what: String,
    /// Evidence, with the place where it was read.
    pub seen: Vec<String>,
    /// What comes of it; empty where the line above says it.
    pub so: String,
    /// What mends it (of an unknown: what would make it known), as commands where there are any.
    pub fix: Vec<String>,
    /// Of an unknown: whether the answer hangs on it.
    pub decides: bool,
}

impl Finding {
    fn new(harm: Harm, code: &'static str, what: impl Into<String>) -> Self {
        Self {
            code,
            harm,
            what: what.into(),
            seen: Vec::new(),
            so: String::new(),
            fix: Vec::new(),
            decides: false,
        }
    }

    /// It cannot work.
    pub(super) fn block(code: &'static str, what: impl Into<String>) -> Self {
        Self::new(Harm::Block, code, what)
    }

    /// It can go wrong.
    pub(super) fn risk(code: &'static str, what: impl Into<String>) -> Self {
        Self::new(Harm::Risk, code, what)
    }

    /// Nobody knows.
    pub(super) fn unknown(code: &'static str, what: impl Into<String>) -> Self {
        Self::new(Harm::Unknown, code, what)
    }

    /// It is as it should be.
    pub(super) fn fine(code: &'static str, what: impl Into<String>) -> Self {
        Self::new(Harm::Fine, code, what)
    }

    pub(super) fn seen(mut self, text: impl Into<String>) -> Self {
        self.seen.push(text.into());
        self
    }

    pub(super) fn so(mut self, text: impl Into<String>) -> Self {
        self.so = text.into();
        self
    }

    pub(super) fn fix(mut self, text: impl Into<String>) -> Self {
        self.fix.push(text.into());
        self
    }

    /// The answer to a wish hangs on it.
    pub(super) fn deciding(mut self, decides: bool) -> Self {
        self.decides = decides;
        self
    }
}
