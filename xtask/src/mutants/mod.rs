//! `cargo xtask mutants`: one-line changes to the code, each of which a named test must notice.
//!
//! A test that stays green whatever the code does proves nothing. Each entry of the table is applied to a copy
//! of the tree under `target/mutants`; the copy must still compile, and the named test, green before, must fail.

mod table;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::ci::with_seed;
use crate::tidy::{Complaints, complain};
use crate::tree::{Tree, cargo, root, target_dir};

/// A change, and the test that must notice it.
#[derive(Clone, Copy, Debug)]
struct Mutant {
    name: &'static str,
    /// From the root of the tree.
    file: &'static str,
    /// Stands in the file exactly once.
    text: &'static str,
    replacement: &'static str,
    /// Package and target, as cargo's arguments: `-p hugemr-core --lib`.
    target: &'static str,
    /// Full name of the test.
    test: &'static str,
}

/// A mutant may turn a loop into an endless one: the test has noticed it then, too.
const TIME_LIMIT: Duration = Duration::from_secs(180);

/// A rule of `cargo xtask tidy`: a change whose text is not there, or not there once, changes nothing known.
pub(crate) fn texts_are_there(tree: &Tree, out: &mut Complaints) {
    texts_of(table::all(), tree, out);
}

fn texts_of<'a>(mutants: impl IntoIterator<Item = &'a Mutant>, tree: &Tree, out: &mut Complaints) {
    for mutant in mutants {
        let found = tree
            .get(mutant.file)
            .map_or(0, |text| text.matches(mutant.text).count());
        if found != 1 {
            let what = format!("mutant {}: its text is found {found} times", mutant.name);
            complain(out, mutant.file, 0, what);
        }
    }
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    if args.iter().any(|arg| arg == "--list") {
        table::all().for_each(|m| println!("{:30} {:36} {}", m.name, m.file, m.test));
        return Ok(());
    }
    if let Some(unknown) = args
        .iter()
        .find(|arg| table::all().all(|m| m.name != **arg))
    {
        bail!("{unknown} is no mutant (see cargo xtask mutants --list)");
    }
    let chosen: Vec<&Mutant> = table::all()
        .filter(|m| args.is_empty() || args.iter().any(|arg| arg == m.name))
        .collect();
    let scratch = Scratch::new()?;
    println!("the tests without any change:");
    // All of them before the first change: nothing is built twice.
    let mut sound = BTreeMap::new();
    for mutant in &chosen {
        let key = (mutant.target, mutant.test);
        if let Entry::Vacant(slot) = sound.entry(key) {
            let tested = *slot.insert(scratch.test(mutant)?);
            println!("    {tested:?}: {}", mutant.test);
        }
    }
    let mut table = Vec::new();
    for (number, mutant) in chosen.iter().enumerate() {
        println!(
            "{}/{} {}: {}",
            number + 1,
            chosen.len(),
            mutant.name,
            mutant.replacement
        );
        let start = Instant::now();
        let outcome = match sound[&(mutant.target, mutant.test)] {
            Tested::Green => scratch.judge(mutant)?,
            Tested::NotThere => Outcome::NoSuchTest,
            Tested::Red | Tested::NotBuilt | Tested::Endless => Outcome::RedWithout,
        };
        println!("    {}", outcome.text());
        table.push((mutant, outcome, start.elapsed()));
    }
    println!(
        "\n{:30} {:20} {:>7}  test that must notice it",
        "mutant", "outcome", "time"
    );
    for (mutant, outcome, took) in &table {
        println!(
            "{:30} {:20} {:5.1} s  {}",
            mutant.name,
            outcome.text(),
            took.as_secs_f64(),
            mutant.test
        );
    }
    let bad = table
        .iter()
        .filter(|(_, outcome, _)| !outcome.is_good())
        .count();
    println!(
        "{} of {} mutants were noticed",
        table.len() - bad,
        table.len()
    );
    if bad > 0 {
        bail!("{bad} mutants were not noticed, or could not be tried");
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Noticed,
    Endless,
    Survived,
    TextNotThere(usize),
    DoesNotCompile,
    RedWithout,
    NoSuchTest,
}

impl Outcome {
    fn is_good(self) -> bool {
        matches!(self, Self::Noticed | Self::Endless)
    }

    fn text(self) -> String {
        match self {
            Self::Noticed => "noticed".into(),
            Self::Endless => format!("noticed: over {} s", TIME_LIMIT.as_secs()),
            Self::Survived => "SURVIVED".into(),
            Self::TextNotThere(n) => format!("TEXT FOUND {n} TIMES"),
            Self::DoesNotCompile => "DOES NOT COMPILE".into(),
            Self::RedWithout => "TEST RED WITHOUT IT".into(),
            Self::NoSuchTest => "NO SUCH TEST".into(),
        }
    }
}

/// How one test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tested {
    Green,
    Red,
    NotThere,
    NotBuilt,
    Endless,
}

/// The copy of the tree in which changes are tried.
struct Scratch {
    tree: PathBuf,
    build: PathBuf,
}

impl Scratch {
    fn new() -> Result<Self> {
        let home = target_dir().join("mutants");
        let scratch = Self {
            tree: home.join("tree"),
            build: home.join("build"),
        };
        scratch.refresh()?;
        Ok(scratch)
    }

    /// Makes the copy equal to the tree, touching only what differs, so that cargo builds only what changed.
    fn refresh(&self) -> Result<()> {
        std::fs::create_dir_all(&self.tree)?;
        let (ours, theirs) = (Tree::read(&root())?, Tree::read(&self.tree)?);
        for (path, text) in ours
            .files()
            .filter(|(path, text)| theirs.get(path) != Some(text))
        {
            let to = self.tree.join(path);
            std::fs::create_dir_all(to.parent().unwrap_or(Path::new(".")))?;
            std::fs::write(&to, text).with_context(|| to.display().to_string())?;
        }
        for (path, _) in theirs.files().filter(|(path, _)| ours.get(path).is_none()) {
            std::fs::remove_file(self.tree.join(path))?;
        }
        Ok(())
    }

    /// Tries a mutant whose test is green without it.
    fn judge(&self, mutant: &Mutant) -> Result<Outcome> {
        let file = self.tree.join(mutant.file);
        let sound = std::fs::read_to_string(&file).unwrap_or_default();
        let found = sound.matches(mutant.text).count();
        if found != 1 {
            return Ok(Outcome::TextNotThere(found));
        }
        std::fs::write(&file, sound.replacen(mutant.text, mutant.replacement, 1))?;
        let tested = self.test(mutant);
        std::fs::write(&file, sound)?;
        Ok(match tested? {
            Tested::Red => Outcome::Noticed,
            Tested::Endless => Outcome::Endless,
            Tested::Green | Tested::NotThere => Outcome::Survived,
            Tested::NotBuilt => Outcome::DoesNotCompile,
        })
    }

    fn test(&self, mutant: &Mutant) -> Result<Tested> {
        let cargo = |more: &[&str]| -> Command {
            let mut command = cargo();
            command
                .current_dir(&self.tree)
                .env("CARGO_TARGET_DIR", &self.build);
            command
                .args(["test", "--quiet"])
                .args(mutant.target.split(' '))
                .args(more);
            // A property test must not learn from the mutants that it met before.
            command.env("PROPTEST_FAILURE_PERSISTENCE", "off");
            // Nor is it luck whether one is noticed.
            with_seed(&mut command);
            command
        };
        let built = cargo(&["--no-run"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output()?;
        if !built.status.success() {
            println!("{}", String::from_utf8_lossy(&built.stderr));
            return Ok(Tested::NotBuilt);
        }
        let log = self.build.join("mutant.log");
        let output = std::fs::File::create(&log)?;
        let mut child = cargo(&["--", "--exact", mutant.test, "--include-ignored"])
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()?;
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if start.elapsed() > TIME_LIMIT {
                end_with_children(&mut child);
                return Ok(Tested::Endless);
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        Ok(verdict(
            status.success(),
            &std::fs::read_to_string(&log).unwrap_or_default(),
        ))
    }
}

/// What the log of one test says. An abort leaves no summary: that is red, too.
fn verdict(success: bool, log: &str) -> Tested {
    let ran = |what: &str| log.contains(what);
    match success {
        true if ran("1 passed; 0 failed") => Tested::Green,
        true => Tested::NotThere,
        false => Tested::Red,
    }
}

/// Ends cargo and the test that it started.
fn end_with_children(child: &mut std::process::Child) {
    let pid = child.id().to_string();
    let children = Command::new("ps")
        .args(["-o", "pid=", "--ppid", &pid])
        .output();
    let children = children.map(|out| String::from_utf8_lossy(&out.stdout).into_owned());
    for pid in children
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
    {
        // SAFETY: sends a signal; no memory is involved. The process is a child of our child, which still runs.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    // Already ended is what we want.
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_each_change_changes_something() {
        let mut names = BTreeSet::new();
        for mutant in table::all() {
            assert!(names.insert(mutant.name), "{}", mutant.name);
            assert_ne!(mutant.text, mutant.replacement, "{}", mutant.name);
            assert_eq!(
                mutant.text.lines().count(),
                1,
                "{} is no one-line change",
                mutant.name
            );
        }
    }

    #[test]
    fn a_text_must_be_there_once() {
        let mutant = Mutant {
            name: "sum",
            file: "x.rs",
            text: "a + b",
            replacement: "a - b",
            target: "",
            test: "",
        };
        let complaints = |text: &str| {
            let mut out = Complaints::new();
            texts_of([&mutant], &Tree::from([("x.rs", text)]), &mut out);
            out.len()
        };
        assert_eq!(complaints("a + b\n"), 0);
        assert_eq!(complaints("a + b; a + b\n"), 1);
        assert_eq!(complaints("a - b\n"), 1);
    }

    #[test]
    fn logs_are_judged() {
        assert_eq!(
            verdict(true, "test result: ok. 1 passed; 0 failed; 0 ignored"),
            Tested::Green
        );
        assert_eq!(
            verdict(true, "test result: ok. 0 passed; 0 failed; 0 ignored"),
            Tested::NotThere
        );
        assert_eq!(verdict(false, "signal: 6, SIGABRT"), Tested::Red);
    }
}
