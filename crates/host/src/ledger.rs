//! What hugemr has added to the pools and not taken back yet, in `/run/hugemr/ledger`.
//!
//! The ledger survives the process that wrote it, so that a killed one leaves no page behind: who takes the lock next
//! sees what was going on. Each change of a pool is written down *before* it is made (from which count, to which
//! count) and settled afterwards; a change that was never settled is settled by comparing the pool with it.
//!
//! Each entry has its full width in the file from the beginning, so that it can be taken out where `/run` has become full.
//! The head names the file: who has made an entry tells a ledger in which it no longer stands (it was taken back) from
//! one that was made anew, and so knows nothing of it.
//!
//! The lock is flock(2) on `/run/hugemr/lock`: the kernel drops it with the process. It keeps hugemr processes
//! apart, and nobody else: writers outside see counts change under them as they always did.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hugemr_core::errno::Errno;
use hugemr_core::size::PageSize;

use crate::pools::{self, pool_dir};
use crate::records;
use crate::root::Root;
use crate::sys;

/// Folder of lock and ledger.
pub const FOLDER: &str = "/run/hugemr";
const LOCK: &str = "/run/hugemr/lock";
pub(crate) const LEDGER: &str = "/run/hugemr/ledger";
const HEAD: &str = "hugemr-ledger 1";

/// A process, told apart from a later one with the same number by its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its number.
    pub pid: u32,
    /// Clock ticks after boot (field 22 of `/proc/PID/stat`).
    pub start: u64,
}

impl Owner {
    /// This process.
    #[must_use]
    pub fn own(root: &Root) -> Self {
        // The number in the process namespace of the root's /proc, which may be the host's.
        let pid = root
            .link("/proc/self")
            .and_then(|link| link.parse().ok())
            .unwrap_or_else(std::process::id);
        let start = start_time(root, pid).unwrap_or(0);
        Self { pid, start }
    }

    /// Whether it still runs.
    #[must_use]
    pub fn is_alive(&self, root: &Root) -> bool {
        start_time(root, self.pid) == Some(self.start)
    }
}

/// Start time of a process. The name in the second field may hold blanks and brackets.
fn start_time(root: &Root, pid: u32) -> Option<u64> {
    let stat = root.text(&format!("/proc/{pid}/stat"))?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(19)?.parse().ok()
}

/// Whether a change of a pool is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Settled,
    /// From a persistent count to a higher one.
    Raising {
        before: u64,
        target: u64,
    },
    /// From a persistent count to a lower one.
    Lowering {
        before: u64,
        target: u64,
    },
}

/// What one reservation has added to one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Number of the reservation; it may have an entry for each of several pools.
    pub id: u64,
    /// The process that will take it back; `None`: kept until it is released by hand.
    pub owner: Option<Owner>,
    /// Page size of the pool.
    pub page: PageSize,
    /// Node of the pool; `None`: the pool of the whole host.
    pub node: Option<u32>,
    /// Pages that were added and not taken back.
    pub added: u64,
    /// Pages that the owner is going to map and has not mapped yet: not available to another reservation.
    pub claim: u64,
    pub(crate) state: State,
}

/// Why the ledger could not be used. Nothing was changed then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// The folder, the lock or the ledger could not be read or written.
    #[error("{path} cannot be used{}", if *.denied { " (needs root)" } else { "" })]
    File {
        /// Which.
        path: &'static str,
        /// Whether rights were missing that root has.
        denied: bool,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A line that hugemr did not write, or that a later version did.
    #[error("{path} line {line} is not understood: {text:?}")]
    Line {
        /// In which file.
        path: &'static str,
        /// Counted from 1.
        line: usize,
        /// The line.
        text: String,
    },
    /// The caller's token said stop while another process had the lock.
    #[error("cancelled while waiting for {LOCK}")]
    Cancelled,
}

impl LedgerError {
    /// Whether it is the ledger that is meant, and not the notes of what is switched on beside it.
    #[must_use]
    pub fn is_of_pools(&self) -> bool {
        matches!(self, Self::File { path, .. } | Self::Line { path, .. } if *path == LEDGER)
    }

    pub(crate) fn file(path: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File {
            path,
            denied: crate::sys::root_would_help(&source),
            source,
        }
    }
}

/// The ledger as it is, without lock and without settling anything: for a display.
///
/// # Errors
/// See [`LedgerError`]. No ledger is an empty one.
pub fn look(root: &Root) -> Result<Vec<Entry>, LedgerError> {
    /// An entry that is being changed where it stands can be read half changed: not twice in a row.
    const TRIES: usize = 3;
    let mut read = read(root);
    for _ in 1..TRIES {
        if !matches!(read, Err(LedgerError::Line { .. })) {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
        read = self::read(root);
    }
    Ok(read?.map_or_else(Vec::new, |text| text.entries))
}

/// Pages of the pools that processes have left that are gone: by size. They stay until somebody takes them back.
///
/// # Errors
/// See [`LedgerError`].
pub fn left_by_the_dead(root: &Root) -> Result<Vec<(PageSize, u64)>, LedgerError> {
    let mut left: Vec<(PageSize, u64)> = Vec::new();
    let dead = |e: &Entry| e.owner.is_some_and(|owner| !owner.is_alive(root));
    for entry in look(root)?.iter().filter(|e| e.added > 0 && dead(e)) {
        match left.iter_mut().find(|(page, _)| *page == entry.page) {
            Some((_, pages)) => *pages = pages.saturating_add(entry.added),
            None => left.push((entry.page, entry.added)),
        }
    }
    Ok(left)
}

/// `None`: there is none.
fn read(root: &Root) -> Result<Option<Text>, LedgerError> {
    match root.read(LEDGER) {
        Ok(text) => parse(&text).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(LedgerError::file(LEDGER)(error)),
    }
}

/// What stands in the file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Text {
    /// Which file it is: another word for each that is made anew.
    name: String,
    entries: Vec<Entry>,
}

/// Pages of a size that living owners are going to map, of all nodes or of one, but for the reservation `but`.
pub(crate) fn claims(
    root: &Root,
    entries: &[Entry],
    page: PageSize,
    node: Option<u32>,
    but: Option<u64>,
) -> u64 {
    entries
        .iter()
        .filter(|e| e.page == page && e.claim > 0 && Some(e.id) != but)
        .filter(|e| node.is_none() || e.node == node)
        .filter(|e| e.owner.is_some_and(|owner| owner.is_alive(root)))
        .map(|e| e.claim)
        .sum()
}

/// The lock of `/run/hugemr`: held by at most one hugemr process, until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Waits for the lock until `cancel` says stop.
    pub(crate) fn take(root: &Root, cancel: &dyn Fn() -> bool) -> Result<Self, LedgerError> {
        const POLL: Duration = Duration::from_millis(10);
        let file = Self::open(root)?;
        loop {
            match sys::try_lock(file.as_fd()) {
                Ok(()) => return Ok(Self { _file: file }),
                // Another one has it, and may wait for the kernel for minutes.
                Err(Errno::EAGAIN | Errno::EINTR) if cancel() => {
                    return Err(LedgerError::Cancelled);
                }
                Err(Errno::EAGAIN | Errno::EINTR) => std::thread::sleep(POLL),
                Err(errno) => {
                    return Err(LedgerError::file(LOCK)(io::Error::from_raw_os_error(
                        errno.0,
                    )));
                }
            }
        }
    }
}

impl Lock {
    /// The file of the lock, which is not taken yet.
    pub(crate) fn open(root: &Root) -> Result<File, LedgerError> {
        fs::create_dir_all(root.path(FOLDER)).map_err(LedgerError::file(FOLDER))?;
        File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(root.path(LOCK))
            .map_err(LedgerError::file(LOCK))
    }
}

/// The ledger, locked: no other hugemr changes a pool while this lives.
#[derive(Debug)]
pub(crate) struct Ledger<'a> {
    root: &'a Root,
    /// See [`Text`].
    pub(crate) name: String,
    pub(crate) entries: Vec<Entry>,
    /// `None`: the caller has it.
    _lock: Option<Lock>,
}

impl<'a> Ledger<'a> {
    /// Waits for the lock, reads the ledger and settles what a killed process left open.
    pub(crate) fn lock(root: &'a Root, cancel: &dyn Fn() -> bool) -> Result<Self, LedgerError> {
        let lock = Lock::take(root, cancel)?;
        Self::of_file(root, Some(lock))
    }

    /// The same under a lock that is held already: a second one of the same process would wait for ever.
    pub(crate) fn under(root: &'a Root, _held: &Lock) -> Result<Self, LedgerError> {
        Self::of_file(root, None)
    }

    fn of_file(root: &'a Root, lock: Option<Lock>) -> Result<Self, LedgerError> {
        let Text { name, entries } = read(root)?.unwrap_or_else(|| Text {
            name: new_name(),
            entries: Vec::new(),
        });
        let mut ledger = Self {
            root,
            name,
            entries,
            _lock: lock,
        };
        if ledger.settle() {
            ledger.save()?;
        }
        Ok(ledger)
    }

    pub(crate) fn root(&self) -> &'a Root {
        self.root
    }

    /// A number that no reservation has.
    pub(crate) fn next_id(&self) -> u64 {
        self.entries.iter().map(|e| e.id).max().unwrap_or(0) + 1
    }

    /// Drops entries that say nothing any more, and writes the ledger.
    pub(crate) fn save(&mut self) -> Result<(), LedgerError> {
        self.entries
            .retain(|e| e.added > 0 || e.claim > 0 || e.state != State::Settled);
        self.write()
    }

    /// Writes the ledger.
    pub(crate) fn write(&self) -> Result<(), LedgerError> {
        let lines: Vec<String> = self.entries.iter().map(format_entry).collect();
        records::save(self.root, LEDGER, &head(&self.name), &lines, key)
            .map_err(LedgerError::file(LEDGER))
    }

    /// Settles changes that were never settled, and says whether there were any. A pool that cannot be read stays open.
    fn settle(&mut self) -> bool {
        let mut any = false;
        for entry in &mut self.entries {
            if entry.state == State::Settled {
                continue;
            }
            let Some(now) = persistent(self.root, entry.page, entry.node) else {
                continue;
            };
            match entry.state {
                State::Settled => {}
                State::Raising { before, target } => {
                    let came = now.min(target).saturating_sub(before);
                    entry.added = entry.added.saturating_add(came);
                }
                State::Lowering { before, target } => {
                    let went = before.saturating_sub(now.max(target));
                    entry.added = entry.added.saturating_sub(went);
                }
            }
            entry.state = State::Settled;
            any = true;
        }
        any
    }
}

/// Pages of a pool that a write to `nr_hugepages` counts: all but the surplus.
pub(crate) fn persistent(root: &Root, page: PageSize, node: Option<u32>) -> Option<u64> {
    let dir = pool_dir(page, node);
    let total = pools::count(root, &dir, "nr_hugepages", page)?;
    let surplus = pools::count(root, &dir, "surplus_hugepages", page).unwrap_or(0);
    Some(total.saturating_sub(surplus))
}

/// No two ledgers of one host are made at the same time, under its lock.
fn new_name() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    format!("{:x}", now.map_or(0, |since| since.as_nanos()))
}

fn head(name: &str) -> String {
    if name.is_empty() {
        return HEAD.to_owned();
    }
    format!("{HEAD} {name}")
}

/// One line an entry: id, pid, start time, page size, node, added, claim, state, and its two counts; `-` for none.
fn format_entry(entry: &Entry) -> String {
    let (pid, start) = entry.owner.map_or(("-".to_owned(), 0), |owner| {
        (owner.pid.to_string(), owner.start)
    });
    let node = entry.node.map_or("-".to_owned(), |node| node.to_string());
    let (state, before, target) = match entry.state {
        State::Settled => ("settled", 0, 0),
        State::Raising { before, target } => ("raising", before, target),
        State::Lowering { before, target } => ("lowering", before, target),
    };
    format!(
        "{} {pid} {start} {} {node} {} {} {state} {before} {target}",
        entry.id,
        entry.page.bytes(),
        entry.added,
        entry.claim
    )
}

/// What stays of an entry's line while it is changed: id, process, page size and node.
fn key(line: &str) -> &str {
    let end = line.match_indices(' ').nth(4).map(|(at, _)| at);
    &line[..end.unwrap_or(line.len())]
}

fn parse(text: &str) -> Result<Text, LedgerError> {
    let mut parsed = Text::default();
    for (number, line) in records::lines(text) {
        let not_understood = || LedgerError::Line {
            path: LEDGER,
            line: number,
            text: line.to_owned(),
        };
        if number == 1 {
            let rest = line.strip_prefix(HEAD).ok_or_else(not_understood)?;
            let name = rest.strip_prefix(' ').unwrap_or(rest);
            if rest.len() == name.len() && !rest.is_empty() || name.contains(' ') {
                return Err(not_understood());
            }
            name.clone_into(&mut parsed.name);
        } else {
            let entry = parse_entry(line).ok_or_else(not_understood)?;
            parsed.entries.push(entry);
        }
    }
    Ok(parsed)
}

fn parse_entry(line: &str) -> Option<Entry> {
    let words: Vec<&str> = line.split(' ').collect();
    let &[
        id,
        pid,
        start,
        page,
        node,
        added,
        claim,
        state,
        before,
        target,
    ] = words.as_slice()
    else {
        return None;
    };
    let number = |word: &str| word.parse::<u64>().ok();
    let optional = |word: &str| match word {
        "-" => Some(None),
        number => number.parse::<u32>().ok().map(Some),
    };
    let (before, target) = (number(before)?, number(target)?);
    let start = number(start)?;
    Some(Entry {
        id: number(id)?,
        owner: optional(pid)?.map(|pid| Owner { pid, start }),
        page: PageSize::new(number(page)?).ok()?,
        node: optional(node)?,
        added: number(added)?,
        claim: number(claim)?,
        state: match state {
            "settled" => State::Settled,
            "raising" => State::Raising { before, target },
            "lowering" => State::Lowering { before, target },
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fake::Tree;
    use proptest::prelude::*;

    fn entry() -> impl Strategy<Value = Entry> {
        let state = prop_oneof![
            Just(State::Settled),
            (any::<u64>(), any::<u64>())
                .prop_map(|(before, target)| State::Raising { before, target }),
            (any::<u64>(), any::<u64>())
                .prop_map(|(before, target)| State::Lowering { before, target }),
        ];
        let owner = proptest::option::of(
            (any::<u32>(), any::<u64>()).prop_map(|(pid, start)| Owner { pid, start }),
        );
        let counts = (any::<u64>(), any::<u64>(), any::<u64>());
        (
            counts,
            owner,
            12u32..40,
            proptest::option::of(any::<u32>()),
            state,
        )
            .prop_map(|((id, added, claim), owner, shift, node, state)| Entry {
                id,
                owner,
                page: PageSize::from_shift(shift).unwrap(),
                node,
                added,
                claim,
                state,
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_ledger_reads_back(entries in proptest::collection::vec(entry(), 0..6)) {
            let tree = Tree::new();
            let root = tree.root();
            let mut ledger = Ledger::lock(&root, &|| false).unwrap();
            ledger.entries = entries;
            ledger.write().unwrap();
            let read = read(&root).unwrap().unwrap();
            prop_assert_eq!(&read.name, &ledger.name);
            prop_assert_eq!(&read.entries, &ledger.entries);
        }

        #[test]
        fn any_text_is_survived(text in "(hugemr-ledger 1\n)?[-0-9a-z \n]{0,60}") {
            let _ = parse(&text);
        }
    }

    #[test]
    fn a_line_of_another_hand_is_refused_and_kept() {
        let tree = Tree::new();
        tree.file(
            LEDGER,
            "hugemr-ledger 1\n1 - 0 2097152 - 5 0 settled 0 0\nhello\n",
        );
        let error = Ledger::lock(&tree.root(), &|| false).unwrap_err();
        assert!(
            matches!(error, LedgerError::Line { line: 3, .. }),
            "{error}"
        );
        assert!(tree.root().text(LEDGER).unwrap().ends_with("hello"));
        tree.file(LEDGER, "hugemr-ledger 2\n");
        assert!(look(&tree.root()).is_err());
    }

    #[test]
    fn the_lock_is_exclusive_and_waiting_can_be_cancelled() {
        let tree = Tree::new();
        let root = tree.root();
        let held = Ledger::lock(&root, &|| false).unwrap();
        let error = Ledger::lock(&root, &|| true).unwrap_err();
        assert!(matches!(error, LedgerError::Cancelled));
        drop(held);
        assert!(Ledger::lock(&root, &|| true).is_ok());
    }

    #[test]
    fn open_changes_are_settled_by_the_pool() {
        let settle = |state, now: u64, added| {
            let tree = Tree::new();
            let dir = pool_dir(PageSize::M2, Some(1));
            tree.file(&format!("{dir}/nr_hugepages"), &(now + 2).to_string());
            tree.file(&format!("{dir}/surplus_hugepages"), "2");
            let entry = Entry {
                id: 1,
                owner: None,
                page: PageSize::M2,
                node: Some(1),
                added,
                claim: 0,
                state,
            };
            tree.file(LEDGER, &format!("{HEAD}\n{}\n", format_entry(&entry)));
            let root = tree.root();
            let ledger = Ledger::lock(&root, &|| false).unwrap();
            ledger.entries.first().map_or(0, |entry| entry.added)
        };
        let raising = State::Raising {
            before: 10,
            target: 15,
        };
        assert_eq!(
            [8, 10, 12, 15, 20].map(|now| settle(raising, now, 1)),
            [1, 1, 3, 6, 6]
        );
        let lowering = State::Lowering {
            before: 15,
            target: 10,
        };
        assert_eq!(
            [8, 10, 12, 15, 20].map(|now| settle(lowering, now, 5)),
            [0, 0, 2, 5, 5]
        );
    }

    #[test]
    fn owners_are_told_apart_by_their_start() {
        let tree = Tree::new();
        let fields = "S 1 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 4242 1 1";
        tree.file("/proc/7/stat", &format!("7 (a) b) {fields}\n"));
        let alive = |pid, start| Owner { pid, start }.is_alive(&tree.root());
        assert!(alive(7, 4242));
        assert!(!alive(7, 4241));
        assert!(!alive(8, 4242));
        assert!(Owner::own(&Root::real()).is_alive(&Root::real()));
    }
}
