//! The command `hugemr`: arguments in, tables or JSON out, no reasoning of its own.
//!
//! The way of a command: `args` (as typed) -> `request` (what it means) -> `device` (which backend) -> `commands` (do it)
//! -> `render` or `json` (say it) -> `exit` (the code).

mod args;
mod commands;
mod config;
mod device;
mod estimate;
mod exit;
mod host;
mod json;
mod learned;
mod limits;
mod notes;
mod pairs;
mod progress;
mod render;
mod request;
mod signals;
#[cfg(debug_assertions)]
mod test_at;
mod typed;
mod waiting;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};

use args::{Cli, Command};
use exit::{Ended, Exit, Failure};
use render::words;
use typed::Typed;

fn main() -> ExitCode {
    let (mut cli, typed) = match parse() {
        Ok(parsed) => parsed,
        Err(error) => return not_parsed(&error),
    };
    let style = style(&cli.command);
    let ended = config::apply(cli.everywhere.config().as_deref(), &mut cli.command)
        .and_then(|()| args::alone::check(&cli.command, &typed))
        .inspect(|()| limits::note_missing(&cli.command, &typed))
        .inspect(|()| device::note_meant(cli.command.device()))
        .and_then(|()| run(cli.command));
    match ended {
        Ok(exit) => exit.into(),
        Err(failure) => {
            report(&failure, style);
            failure.exit.into()
        }
    }
}

/// The command line, with what was typed kept for the lines that are printed.
fn parse() -> Result<(Cli, Typed), clap::Error> {
    let mut command = Cli::command();
    let mut matches = command.try_get_matches_from_mut(std::env::args_os())?;
    let typed = Typed::of(&command, &matches);
    // Taking hundreds of small pieces apart takes longer than the end of the process, which gives them back at once.
    std::mem::forget(command);
    let mut cli = Cli::from_arg_matches_mut(&mut matches)?;
    match &mut cli.command {
        Command::Plan(command) => command.what.typed = typed.clone(),
        Command::Register(command) => command.what.typed = typed.clone(),
        Command::Doctor(command) => command.typed = typed.clone(),
        Command::Diagnose(command) => command.typed = typed.clone(),
        Command::Inspect(command) => command.typed = typed.clone(),
        Command::Probe(command) => command.typed = typed.clone(),
        _ => {}
    }
    Ok((cli, typed))
}

/// Help and version are answers; clap knows which stream and which of them are failures.
fn not_parsed(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return match error.print().map_err(Failure::from) {
            Err(failure) => {
                report(&failure, None);
                failure.exit.into()
            }
            Ok(()) => Exit::Yes.into(),
        };
    }
    let json = std::env::args_os().any(|word| word == "--json");
    if let Some(failure) = below_zero(error).or_else(|| pairs::refused(error)) {
        report(&failure, json.then_some(json::Style::Document));
        return failure.exit.into();
    }
    if json {
        let text = error.to_string();
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let what = lines
            .next()
            .unwrap_or_default()
            .trim_start_matches("error: ");
        let mut failure = Failure::usage(what);
        failure.more.extend(lines.map(str::to_owned));
        let _broken_pipe = json::write(&json::FailureDocument::new(&failure));
    }
    let _broken_pipe = error.print();
    Exit::Usage.into()
}

/// A number below 0, which clap takes for a flag: said with the flag before it.
fn below_zero(error: &clap::Error) -> Option<Failure> {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    let ContextValue::String(word) = error.get(ContextKind::InvalidArg)? else {
        return None;
    };
    let is_number = word
        .strip_prefix('-')?
        .starts_with(|c: char| c.is_ascii_digit());
    if error.kind() != ErrorKind::UnknownArgument || !is_number {
        return None;
    }
    let words: Vec<String> = std::env::args_os()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let at = words
        .iter()
        .position(|other| other.starts_with(word.as_str()))?;
    let of = words[..at].last().filter(|before| before.starts_with("--"));
    let of = of.map_or_else(String::new, |flag| format!("{flag} "));
    // clap tells the first letter of what it took for flags.
    let typed = &words[at];
    Some(
        Failure::usage(format_args!("{of}{typed}: no size and no count is below 0"))
            .with("what is taken: --help"),
    )
}

fn run(command: Command) -> Ended {
    match command {
        Command::Plan(command) => commands::plan::run(&command),
        Command::Register(command) => commands::register::run(&command),
        Command::Reserve(command) => commands::reserve::run(&command),
        Command::Release(command) => commands::release::run(&command),
        Command::Devices(command) => commands::devices::run(&command),
        Command::Diagnose(command) => commands::diagnose::run(&command),
        Command::Doctor(command) => commands::doctor::run(&command),
        Command::Inspect(command) => commands::inspect::run(&command),
        Command::Probe(command) => commands::probe::run(&command),
        Command::Learn(command) => commands::learn::run(&command),
        Command::Usage(command) => commands::usage::run(&command),
        Command::Replay(command) => commands::replay::run(&command),
        Command::Man(command) => commands::generate::man(&command),
        Command::Completions(command) => commands::generate::completions(command.shell),
    }
}

/// How the answer is written as JSON; `None` where it is not.
fn style(command: &Command) -> Option<json::Style> {
    let (json, lines) = match command {
        Command::Plan(command) => (command.what.json, command.list),
        // One when it is held, one when it is released.
        Command::Register(command) => (command.what.json, command.hold),
        Command::Reserve(command) => (command.json, false),
        Command::Release(command) => (command.json, false),
        Command::Devices(command) => (command.json, false),
        Command::Diagnose(command) => (command.json, false),
        Command::Doctor(command) => (command.json, false),
        Command::Inspect(command) => (command.json, false),
        Command::Probe(command) => (command.json, false),
        Command::Learn(command) => (command.json, false),
        Command::Usage(command) => (command.json, false),
        Command::Replay(command) => (command.json, true),
        Command::Man(_) | Command::Completions(_) => (false, false),
    };
    json.then_some(if lines {
        json::Style::Line
    } else {
        json::Style::Document
    })
}

fn report(failure: &Failure, style: Option<json::Style>) {
    if failure.told {
        return;
    }
    if let Some(style) = style {
        let _broken_pipe = json::write_as(style, &json::FailureDocument::new(failure));
    }
    let mut err = std::io::stderr().lock();
    let _broken_pipe = writeln!(err, "hugemr: {}", words::shown(&failure.what));
    for line in &failure.more {
        let _broken_pipe = writeln!(err, "  {}", words::shown(line));
    }
}
