//! What hugemr has switched on and not off again, in `/run/hugemr/traces`.
//!
//! A line an entry: process, its start time, and what it is. It is written before the thing is done, so that a killed
//! process leaves nothing that nobody knows of; to switch off what was never on does no harm.

use std::fmt;
use std::io;

use crate::ledger::{LedgerError, Lock, Owner};
use crate::records;
use crate::root::Root;

const PATH: &str = "/run/hugemr/traces";
const HEAD: &str = "hugemr-traces 1";

/// Something of the kernel's that is switched on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Held {
    /// A probe and a tracing instance of that name.
    Probe(String),
    /// A debug line of a driver.
    Line(Place),
}

/// A debug line, as dynamic debug names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Source file.
    pub file: String,
    /// Number of the line.
    pub line: u32,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Probe(name) => write!(f, "probe {name}"),
            Self::Line(place) => write!(f, "debug line {}:{}", place.file, place.line),
        }
    }
}

pub(super) type Entry = (Owner, Held);

/// What is noted, without lock: for a display.
///
/// # Errors
/// See [`LedgerError`]. No file is an empty one.
pub fn look(root: &Root) -> Result<Vec<(Owner, Held)>, LedgerError> {
    match root.read(PATH) {
        Ok(text) => parse(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(LedgerError::file(PATH)(error)),
    }
}

/// The notes, locked.
#[derive(Debug)]
pub(super) struct Notes<'a> {
    root: &'a Root,
    pub(super) entries: Vec<Entry>,
    _lock: Lock,
}

impl<'a> Notes<'a> {
    pub(super) fn lock(root: &'a Root, cancel: &dyn Fn() -> bool) -> Result<Self, LedgerError> {
        let lock = Lock::take(root, cancel)?;
        Ok(Self {
            root,
            entries: look(root)?,
            _lock: lock,
        })
    }

    pub(super) fn add(&mut self, owner: Owner, held: Held) -> Result<(), LedgerError> {
        self.entries.push((owner, held));
        self.save()
    }

    pub(super) fn remove(&mut self, owner: Owner, held: &Held) -> Result<(), LedgerError> {
        let same = |(o, h): &Entry| *o == owner && h == held;
        if let Some(at) = self.entries.iter().position(same) {
            self.entries.remove(at);
        }
        self.save()
    }

    /// Whether anybody noted it.
    pub(super) fn has(&self, held: &Held) -> bool {
        self.entries.iter().any(|(_, h)| h == held)
    }

    /// Whether a living process other than `owner` needs it, or the same process once more.
    pub(super) fn wanted_by_another(&self, owner: Owner, held: &Held) -> bool {
        let same = |(_, h): &&Entry| h == held;
        let own = |(o, _): &&Entry| *o == owner;
        let others = self.entries.iter().filter(same).filter(|e| !own(e));
        others
            .into_iter()
            .any(|(other, _)| other.is_alive(self.root))
            || self.entries.iter().filter(same).filter(own).count() > 1
    }

    fn save(&self) -> Result<(), LedgerError> {
        let line = |(owner, held): &Entry| {
            let Owner { pid, start } = owner;
            match held {
                Held::Probe(name) => format!("{pid} {start} probe {name}"),
                Held::Line(Place { file, line }) => format!("{pid} {start} line {line} {file}"),
            }
        };
        let lines: Vec<String> = self.entries.iter().map(line).collect();
        records::save(self.root, PATH, HEAD, &lines, |line| line).map_err(LedgerError::file(PATH))
    }
}

fn parse(text: &str) -> Result<Vec<Entry>, LedgerError> {
    let mut entries = Vec::new();
    for (number, line) in records::lines(text) {
        let entry = if number == 1 {
            (line == HEAD).then_some(None)
        } else {
            parse_entry(line).map(Some)
        };
        entries.extend(entry.ok_or_else(|| LedgerError::Line {
            path: PATH,
            line: number,
            text: line.to_owned(),
        })?);
    }
    Ok(entries)
}

fn parse_entry(text: &str) -> Option<Entry> {
    let mut words = text.splitn(4, ' ');
    let owner = Owner {
        pid: words.next()?.parse().ok()?,
        start: words.next()?.parse().ok()?,
    };
    let held = match (words.next()?, words.next()?) {
        ("probe", name) if is_ours(name) => Held::Probe(name.to_owned()),
        ("line", rest) => {
            let (line, file) = rest.split_once(' ')?;
            Held::Line(Place {
                file: file.to_owned(),
                line: line.parse().ok()?,
            })
        }
        _ => return None,
    };
    Some((owner, held))
}

/// Whether a name is one that hugemr gives: whatever else stands in the file, no other probe is ever taken away.
fn is_ours(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.starts_with("hugemr_") && name.chars().all(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fake::Tree;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn notes_read_back(list in proptest::collection::vec(
            (any::<u32>(), any::<u64>(), any::<u32>(), "[a-z/][a-z/_. ]{0,20}[.]c", any::<bool>()), 0..6,
        )) {
            let tree = Tree::new();
            let root = tree.root();
            let mut notes = Notes::lock(&root, &|| false).unwrap();
            for (pid, start, line, file, probe) in list {
                let held = if probe {
                    Held::Probe(format!("hugemr_{pid}_{line}"))
                } else {
                    Held::Line(Place { file, line })
                };
                notes.add(Owner { pid, start }, held).unwrap();
            }
            prop_assert_eq!(look(&root).unwrap(), notes.entries);
        }

        #[test]
        fn any_text_is_survived(text in "(hugemr-traces 1\n)?[-0-9a-z_/ \n]{0,60}") {
            let _ = parse(&text);
        }
    }

    #[test]
    fn a_probe_that_is_not_ours_is_not_taken_for_one() {
        assert!(parse_entry("1 2 probe hugemr_1_2_0").is_some());
        assert!(parse_entry("1 2 probe kprobes").is_none());
        assert!(parse_entry("1 2 probe hugemr_1/../x").is_none());
    }
}
