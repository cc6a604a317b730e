//! Flags that cannot be used together, as clap is told: what the pair would mean, and which one to drop.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::exit::Failure;

/// Two of one command, and why not both.
const PAIRS: &[(&str, &str, &str)] = &[
    (
        "--list",
        "--explain",
        "a list has the MRs and nothing else; drop --list for the rules, or --explain for the MRs",
    ),
    (
        "--list",
        "--estimate",
        "a list has the MRs and nothing else; drop --list for the times, or --estimate for the MRs",
    ),
    (
        "--one-mr",
        "--chunk",
        "one MR is as long as its buffer; drop --chunk, or --one-mr for MRs of that length",
    ),
    (
        "--alias-pages",
        "--node",
        "the same few pages stand for all, wherever they lie; drop --node, or --alias-pages for memory on that node",
    ),
    (
        "--alias-pages",
        "--interleave",
        "the same few pages stand for all, wherever they lie; drop --interleave, or --alias-pages for memory on all nodes",
    ),
    (
        "--interleave",
        "--node",
        "memory lies on one node, or on all in turn; drop --interleave for the one, or --node for all",
    ),
    (
        "--spread",
        "--node",
        "pages come from one node, or from each as many; drop --spread for the one, or --node for all",
    ),
    (
        "LOG",
        "--errno",
        "the errno is read from the log; drop --errno, or the log to ask about that errno alone",
    ),
    (
        "--facts",
        "--save",
        "the facts of this host are saved, and those of a file are there already; drop --facts to save, or --save to use the file",
    ),
    (
        "--facts",
        "--host-root",
        "the facts are those of the file, or those of the folder; drop --facts for the folder, or --host-root for the file",
    ),
    (
        "--to",
        "COMMAND",
        "the pages of all commands are written to the folder; drop the command, or --to for that one page on standard output",
    ),
];

/// What is said of two that clap refuses together, or of one that was given twice; `None` for any other error.
pub(crate) fn refused(error: &clap::Error) -> Option<Failure> {
    if error.kind() != ErrorKind::ArgumentConflict {
        return None;
    }
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => vec![name(text)],
        Some(ContextValue::Strings(list)) => list.iter().map(|text| name(text)).collect(),
        _ => Vec::new(),
    };
    let (one, others) = (text(ContextKind::InvalidArg), text(ContextKind::PriorArg));
    let one = one.first()?;
    if others.iter().all(|other| other == one) {
        return Some(Failure::usage(format_args!(
            "{one} is given twice, and counts once; drop one of them"
        )));
    }
    others.iter().find_map(|other| {
        let (first, second, why) = pair(one, other)?;
        Some(Failure::usage(format_args!(
            "{first} cannot be used with {second}: {why}"
        )))
    })
}

fn pair(one: &str, other: &str) -> Option<(&'static str, &'static str, &'static str)> {
    let pairs = PAIRS.iter().copied();
    let mut pairs = pairs.filter(|(first, second, _)| {
        [(*first, *second), (*second, *first)].contains(&(one, other))
    });
    pairs.next()
}

/// `--chunk` of `--chunk <SIZE>`, `LOG` of `[LOG]`.
fn name(shown: &str) -> &str {
    let word = shown.split([' ', '=', '[']).find(|word| !word.is_empty());
    word.unwrap_or(shown).trim_end_matches(']')
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::*;
    use crate::args::Cli;

    /// Every pair that clap knows has its sentence, and there is none for others.
    #[test]
    fn each_pair_that_clap_refuses_is_explained() {
        let mut all = Cli::command();
        all.build();
        let mut known = BTreeSet::new();
        for command in all.get_subcommands() {
            for arg in command.get_arguments() {
                for other in command.get_arg_conflicts_with(arg) {
                    let (one, other) = (arg.to_string(), other.to_string());
                    let pair = pair(name(&one), name(&other));
                    let (first, second, _) = pair.unwrap_or_else(|| panic!("{one}, {other}"));
                    known.insert((first, second));
                }
            }
        }
        let explained = PAIRS.iter().map(|(first, second, _)| (*first, *second));
        assert_eq!(known, explained.collect());
    }

    #[test]
    fn arguments_are_called_as_they_are_typed() {
        for (shown, typed) in [
            ("--chunk <SIZE>", "--chunk"),
            ("--prove[=<HOW>]", "--prove"),
            ("--list", "--list"),
            ("[LOG]", "LOG"),
            ("[COMMAND]", "COMMAND"),
        ] {
            assert_eq!(name(shown), typed);
        }
    }
}
