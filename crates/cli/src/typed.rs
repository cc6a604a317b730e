//! The command line as it was parsed, and others like it that are printed: what to run next, and ways out.
//!
//! A line is built from what clap found, flag by flag, and quoted for a shell; so it means what was meant, also where a value
//! looks like another word. What came from the environment or the config file comes from there again.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches};

/// What was typed for one command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Typed {
    verb: String,
    given: Vec<Given>,
}

/// One argument with the values of each time it was given; a flag without value has empty lists.
#[derive(Clone, Debug)]
struct Given {
    /// Name of the flag; `None` for a positional argument.
    long: Option<String>,
    /// Whether the value must follow after `=`.
    equals: bool,
    times: Vec<Vec<OsString>>,
}

/// How another command differs from what was typed.
#[derive(Default)]
pub(crate) struct Change {
    /// Instead of the positional arguments.
    pub(crate) size: Option<String>,
    /// Flags that are set, with their values.
    pub(crate) set: Vec<(&'static str, Option<String>)>,
    /// Flags that are left out.
    pub(crate) without: Vec<&'static str>,
}

/// Flags that only one of `plan` and `register` takes, and that are not among [`ANSWERS`]. Asking clap would mean to build the
/// arguments of the other command, which takes longer than the plan; a test asks it.
const OF_ONE: &[&str] = &[
    "access",
    "alias-pages",
    "force",
    "hold",
    "interleave",
    "layout",
    "memory",
    "node",
    "prove",
    "reserve",
    "threads",
    "verify",
];

/// Flags that name files.
const FILES: &[&str] = &["config", "limits"];

/// Flags that state what the device and the host are.
const STATED: &[&str] = &[
    "config",
    "limits",
    "max-mr-size",
    "max-mr",
    "budget",
    "kernel",
    "driver",
    "memlock",
];

/// Flags that ask for another answer to the same request; they are not repeated.
const ANSWERS: &[&str] = &["json", "list", "explain", "all", "estimate", "rate"];

impl Typed {
    /// Reads it from what was parsed; `all` is the command that parsed it.
    pub(crate) fn of(all: &clap::Command, matches: &ArgMatches) -> Self {
        let Some((verb, matches)) = matches.subcommand() else {
            return Self::default();
        };
        let Some(command) = all.find_subcommand(verb) else {
            return Self::default();
        };
        let mut found: Vec<(usize, Given)> = command
            .get_arguments()
            .filter_map(|arg| given(arg, matches))
            .collect();
        found.sort_by_key(|(place, _)| *place);
        Self {
            verb: verb.to_owned(),
            given: found.into_iter().map(|(_, given)| given).collect(),
        }
    }

    /// Whether the command line has the flag.
    pub(crate) fn has(&self, flag: &str) -> bool {
        let is = |given: &Given| given.long.as_deref() == Some(flag);
        self.given.iter().any(is)
    }

    /// The end of a command line: the facts that were stated, and the files, each flag with a blank before it.
    pub(crate) fn stated(&self) -> String {
        self.tail(STATED)
    }

    /// The same of the files alone.
    pub(crate) fn files(&self) -> String {
        self.tail(FILES)
    }

    fn tail(&self, flags: &[&str]) -> String {
        let mut tail = String::new();
        for given in &self.given {
            if let Some(flag) = given.long.as_deref().filter(|flag| flags.contains(flag)) {
                given.push(flag, &mut tail);
            }
        }
        tail
    }

    /// A command line of `verb`: what was typed, as far as `verb` takes it, but for the change.
    pub(crate) fn line(&self, verb: &str, change: &Change) -> String {
        let takes = |flag: &str| verb == self.verb || !OF_ONE.contains(&flag);
        let mut line = format!("hugemr {verb}");
        match &change.size {
            Some(size) => push(&mut line, OsStr::new(size)),
            None => {
                let places = self.given.iter().filter(|given| given.long.is_none());
                for value in places.flat_map(|given| given.times.iter().flatten()) {
                    push(&mut line, value);
                }
            }
        }
        for given in &self.given {
            let Some(flag) = given.long.as_deref() else {
                continue;
            };
            let replaced = change.set.iter().any(|(name, _)| *name == flag);
            let left_out = ANSWERS.contains(&flag) || change.without.contains(&flag);
            if replaced || left_out || !takes(flag) {
                continue;
            }
            given.push(flag, &mut line);
        }
        for (flag, value) in &change.set {
            push(&mut line, OsStr::new(&format!("--{flag}")));
            if let Some(value) = value {
                push(&mut line, OsStr::new(value));
            }
        }
        line
    }
}

impl Given {
    /// Each time that the flag was given.
    fn push(&self, flag: &str, line: &mut String) {
        for values in &self.times {
            match values.as_slice() {
                [] => push(line, OsStr::new(&format!("--{flag}"))),
                [value] if self.equals || value.as_bytes().starts_with(b"-") => {
                    let mut word = OsString::from(format!("--{flag}="));
                    word.push(value);
                    push(line, &word);
                }
                values => {
                    push(line, OsStr::new(&format!("--{flag}")));
                    values.iter().for_each(|value| push(line, value));
                }
            }
        }
    }
}

fn given(arg: &Arg, matches: &ArgMatches) -> Option<(usize, Given)> {
    let id = arg.get_id().as_str();
    let action = arg.get_action();
    if matches!(
        action,
        ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
    ) || matches.value_source(id) != Some(ValueSource::CommandLine)
    {
        return None;
    }
    let times = if action.takes_values() {
        let times = matches.get_raw_occurrences(id)?;
        times
            .map(|values| values.map(OsStr::to_owned).collect())
            .collect()
    } else {
        vec![Vec::new()]
    };
    let given = Given {
        long: arg.get_long().map(str::to_owned),
        equals: arg.is_require_equals_set(),
        times,
    };
    Some((matches.index_of(id).unwrap_or(0), given))
}

fn push(line: &mut String, word: &OsStr) {
    line.push(' ');
    line.push_str(&quoted(word));
}

/// A word as a shell takes it back: as it is, in single quotes, or with what cannot be shown as `$'\xff'` (bash, zsh, ksh).
pub(crate) fn quoted(word: &OsStr) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    match word.to_str() {
        Some(text) if !text.is_empty() && text.chars().all(plain) => text.to_owned(),
        Some(text) if !text.contains(char::is_control) => {
            format!("'{}'", text.replace('\'', r"'\''"))
        }
        _ => {
            let mut text = String::from("$'");
            for byte in word.as_bytes() {
                match byte {
                    b'\'' | b'\\' => text.extend(['\\', char::from(*byte)]),
                    0x20..0x7f => text.push(char::from(*byte)),
                    _ => {
                        // Three octal digits end by themselves, whatever follows.
                        let _never = write!(text, "\\{byte:03o}");
                    }
                }
            }
            text.push('\'');
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn flags_of_one_command_are_those_that_clap_knows_of_one() {
        let mut all = Cli::command();
        all.build();
        let flags = |verb: &str| -> BTreeSet<String> {
            let command = all.find_subcommand(verb).expect("a command");
            let flags = command.get_arguments().filter_map(Arg::get_long);
            flags.map(str::to_owned).collect()
        };
        let (plan, register) = (flags("plan"), flags("register"));
        let of_one = plan.symmetric_difference(&register).map(String::as_str);
        let of_one: BTreeSet<&str> = of_one.filter(|flag| !ANSWERS.contains(flag)).collect();
        assert_eq!(of_one, OF_ONE.iter().copied().collect());
    }

    fn typed(line: &str) -> Typed {
        let words = line.split(' ').map(OsString::from);
        let mut command = Cli::command();
        let matches = command.try_get_matches_from_mut(words).unwrap();
        Typed::of(&command, &matches)
    }

    #[test]
    fn what_was_typed_stays_but_for_what_changes() {
        let typed = typed(
            "hugemr plan 896GiB --device sim:x --json --chunk=2GiB --pages 4KiB --strict --kernel 6.8",
        );
        let set = |flag, value: &str| Change {
            set: vec![(flag, Some(value.to_owned()))],
            ..Change::default()
        };
        assert_eq!(
            typed.line("plan", &set("pages", "2MiB")),
            "hugemr plan 896GiB --device sim:x --chunk 2GiB --strict --kernel 6.8 --pages 2MiB"
        );
        let smaller = Change {
            size: Some("1GiB".to_owned()),
            without: vec!["chunk"],
            ..Change::default()
        };
        assert_eq!(
            typed.line("register", &smaller),
            "hugemr register 1GiB --device sim:x --pages 4KiB --strict --kernel 6.8"
        );
    }

    /// A value that is the same word as the size, one that begins with a dash, an optional one, one given twice; and flags
    /// that the other command does not have.
    #[test]
    fn every_value_stays_with_its_flag() {
        let typed = typed(
            "hugemr --config x register 64GiB --chunk 64GiB --memlock=-1 --other 1GiB@4KiB --prove --other 2GiB@4KiB --device sim:a'b",
        );
        assert_eq!(
            typed.line("register", &Change::default()),
            r"hugemr register 64GiB --config x --chunk 64GiB --memlock=-1 --other 1GiB@4KiB --other 2GiB@4KiB --prove=auto --device 'sim:a'\''b'"
        );
        assert_eq!(
            typed.line("plan", &Change::default()),
            r"hugemr plan 64GiB --config x --chunk 64GiB --memlock=-1 --other 1GiB@4KiB --other 2GiB@4KiB --device 'sim:a'\''b'"
        );
    }

    #[test]
    fn words_are_quoted_so_that_a_shell_takes_them_back() {
        for bytes in [
            &b"plain"[..],
            b"",
            b"two words",
            b"$HOME`x`",
            b"it's",
            b"\x1b[31m\n1",
            b"\xff\\'7",
        ] {
            let shell = format!("printf %s {}", quoted(OsStr::from_bytes(bytes)));
            let out = std::process::Command::new("bash")
                .args(["-c", &shell])
                .output()
                .unwrap();
            assert_eq!(out.stdout, bytes, "{shell}");
        }
        assert!(!quoted(OsStr::from_bytes(b"\x1b")).contains('\x1b'));
    }
}
