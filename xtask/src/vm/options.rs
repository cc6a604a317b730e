//! The command line of `cargo xtask vm`.
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use super::checks::Choice;
use super::kernel::Version;

pub(crate) const USAGE: &str = "\
usage: cargo xtask vm rxe   [--kernel 6.1|6.12|7.3] [--hugemr PATH] [--only CHECK]
                            [--sabotage CHECK|all]
       cargo xtask vm numa  [--kernel 6.1|6.12|7.3] [--hugemr PATH] [--only CHECK]
                            [--sabotage CHECK|all]
       cargo xtask vm erdma [--kernel 6.1|6.12|7.3] [--hugemr PATH] [--emulator PATH]
                            [--scenario NAME]... [--only CHECK] [--sabotage CHECK|all]
       cargo xtask vm all   [--hugemr PATH] [--emulator PATH]
       cargo xtask vm fetch          get and build everything the guests need, run none
       cargo xtask vm clean          remove what earlier runs keep in target/vm
Without --kernel: rxe and numa on 6.1; erdma on 6.1, 6.12 and 7.3. Without --scenario: erdma runs those that
fit into a quarter of an hour, all runs every one. HUGEMR_VM_CACHE names another cache.
--hugemr none: no command under test, its checks are skipped.
--sabotage CHECK disturbs what that check looks at: it has to fail, and so has the run.
--sabotage all does so for each check in a guest of its own, and succeeds where each has noticed.
Exit status: 0 all passed, 1 a check failed, 2 bad usage, 3 packages or QEMU cannot be had.";

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    Rxe,
    Numa,
    Erdma,
    All,
    Fetch,
    Clean,
}

/// A parsed command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) task: Task,
    pub(crate) kernels: Vec<Version>,
    pub(crate) hugemr: Option<PathBuf>,
    /// None: those of the usual run.
    pub(crate) scenarios: Vec<String>,
    pub(crate) emulator: Option<PathBuf>,
    pub(crate) choice: Choice,
}

impl Options {
    /// Whether scenarios outside of the usual run are looked at too: for `all`, and in search of a check.
    pub(crate) fn everywhere(&self) -> bool {
        self.task == Task::All || self.choice != Choice::default()
    }

    /// Whether the command under test is left out (`--hugemr none`).
    pub(crate) fn without_hugemr(&self) -> bool {
        self.hugemr
            .as_ref()
            .is_some_and(|path| path.as_os_str() == "none")
    }

    pub(crate) fn parse(args: &[String]) -> Result<Self> {
        let mut args = args.iter();
        let task = match args.next().map(String::as_str) {
            Some("rxe") => Task::Rxe,
            Some("numa") => Task::Numa,
            Some("erdma") => Task::Erdma,
            Some("all") => Task::All,
            Some("fetch") => Task::Fetch,
            Some("clean") => Task::Clean,
            other => bail!("unknown task {:?}", other.unwrap_or_default()),
        };
        let (mut kernels, mut hugemr, mut emulator) = (Vec::new(), None, None);
        let mut scenarios = Vec::new();
        let mut choice = Choice::default();
        while let Some(flag) = args.next() {
            let value = args
                .next()
                .with_context(|| format!("{flag} needs a value"))?;
            match (flag.as_str(), task) {
                ("--kernel", Task::Rxe | Task::Numa | Task::Erdma) => {
                    kernels.push(Version::parse(value)?)
                }
                ("--hugemr", Task::Rxe | Task::Numa | Task::Erdma | Task::All) => {
                    hugemr = Some(value.into());
                }
                ("--emulator", Task::Erdma | Task::All) => emulator = Some(value.into()),
                ("--scenario", Task::Erdma) => scenarios.push(value.clone()),
                ("--only", Task::Rxe | Task::Numa | Task::Erdma) => {
                    choice.only = Some(value.clone());
                }
                ("--sabotage", Task::Rxe | Task::Numa | Task::Erdma) => {
                    choice.sabotage = Some(value.clone());
                }
                _ => bail!("unknown option {flag} for this task"),
            }
        }
        if kernels.is_empty() {
            let all = || Version::ALL.to_vec();
            kernels = if matches!(task, Task::Rxe | Task::Numa) {
                vec![Version::V6_1]
            } else {
                all()
            };
        }
        Ok(Self {
            task,
            kernels,
            hugemr,
            scenarios,
            emulator,
            choice,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&args)
    }

    #[test]
    fn defaults_and_options() {
        assert_eq!(parse("rxe").expect("fine").kernels, [Version::V6_1]);
        assert_eq!(parse("erdma").expect("fine").kernels, Version::ALL);
        let options = parse("erdma --kernel 7.3 --emulator e --sabotage bind").expect("fine");
        assert_eq!(options.kernels, [Version::V7_3]);
        assert_eq!(options.emulator, Some("e".into()));
        assert_eq!(options.choice.sabotage.as_deref(), Some("bind"));
        let options = parse("erdma --scenario a --scenario b").expect("fine");
        assert_eq!(options.scenarios, ["a", "b"]);
        let options = parse("erdma --only bind").expect("fine");
        assert!(options.everywhere() && parse("all").expect("fine").everywhere());
        assert!(!parse("erdma --kernel 6.1").expect("fine").everywhere());
    }

    #[test]
    fn mistakes_are_named() {
        for (line, word) in [
            ("", "unknown task"),
            ("rxe --kernel", "needs a value"),
            ("rxe --kernel 5.10", "5.10"),
            ("rxe --emulator x", "--emulator"),
            ("all --only x", "--only"),
        ] {
            let error = parse(line).expect_err(line);
            assert!(format!("{error:#}").contains(word), "{line}: {error:#}");
        }
    }
}
