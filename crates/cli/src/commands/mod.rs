//! One module a command.

pub(crate) mod devices;
pub(crate) mod diagnose;
pub(crate) mod doctor;
pub(crate) mod generate;
pub(crate) mod inspect;
pub(crate) mod learn;
pub(crate) mod plan;
pub(crate) mod probe;
pub(crate) mod register;
pub(crate) mod release;
pub(crate) mod replay;
pub(crate) mod reserve;
pub(crate) mod usage;

use std::io::Write as _;

use clap::CommandFactory as _;

use crate::args::{Cli, WhatArgs};
use crate::exit::Failure;
use crate::render::words;

/// Writes an answer.
pub(crate) fn say(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(())
}

/// Writes a remark to standard error.
pub(crate) fn remark(text: &str) {
    let _gone = writeln!(std::io::stderr().lock(), "{text}");
}

/// A command line for the same thing, with another size or more flags; what was typed otherwise stays.
pub(crate) fn again(verb: &str, what: &WhatArgs, size: Option<u64>, flags: &str) -> String {
    let typed: Vec<String> = std::env::args().skip(2).collect();
    let sizes: Vec<&str> = what.sizes.iter().map(|s| s.text.as_str()).collect();
    let command = Cli::command();
    let knows = |flag: &str| {
        let verb = command.find_subcommand(verb);
        verb.is_some_and(|verb| {
            let mut names = verb.get_arguments().filter_map(clap::Arg::get_long);
            names.any(|name| Some(name) == flag.strip_prefix("--"))
        })
    };
    again_from(&typed, verb, &knows, &sizes, size, flags)
}

/// Flags that ask for another answer to the same request; they are not repeated.
const ANSWERS: &[&str] = &[
    "--json",
    "--list",
    "--explain",
    "--all",
    "--estimate",
    "--rate",
];

fn again_from(
    typed: &[String],
    verb: &str,
    knows: &dyn Fn(&str) -> bool,
    sizes: &[&str],
    size: Option<u64>,
    flags: &str,
) -> String {
    let size = size.map_or_else(|| sizes.join(" "), words::size_flag);
    let mut line = format!("hugemr {verb} {size}");
    let mut typed = typed
        .iter()
        .filter(|word| !sizes.contains(&word.as_str()))
        .peekable();
    while let Some(word) = typed.next() {
        let name = word.split('=').next().unwrap_or(word);
        // A value follows where the next word is no flag and the flag holds none itself.
        let value = typed.next_if(|next| !next.starts_with("--") && !word.contains('='));
        let replaced = flags.split(' ').any(|flag| match flag {
            // Shorter MRs are not one MR.
            "--chunk" => name == flag || name == "--one-mr",
            _ => name == flag,
        });
        if ANSWERS.contains(&name) || replaced || !knows(name) {
            continue;
        }
        line = format!("{line} {word}");
        if let Some(value) = value {
            line = format!("{line} {value}");
        }
    }
    if !flags.is_empty() {
        line = format!("{line} {flags}");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_typed_stays_but_for_what_changes() {
        let typed: Vec<String> =
            "896GiB --device sim:x --json --chunk=2GiB --pages 4KiB --strict --kernel 6.8"
                .split(' ')
                .map(str::to_owned)
                .collect();
        assert_eq!(
            again_from(&typed, "plan", &|_| true, &["896GiB"], None, "--pages 2MiB"),
            "hugemr plan 896GiB --device sim:x --chunk=2GiB --strict --kernel 6.8 --pages 2MiB"
        );
        assert_eq!(
            again_from(
                &typed,
                "register",
                &|_| true,
                &["896GiB"],
                Some(1 << 30),
                "--chunk 1GiB"
            ),
            "hugemr register 1GiB --device sim:x --pages 4KiB --strict --kernel 6.8 --chunk 1GiB"
        );
    }
}
