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
mod progress;
mod render;
mod request;
mod signals;
#[cfg(debug_assertions)]
mod test_at;
mod waiting;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;

use args::{Cli, Command};
use exit::{Ended, Exit, Failure};

fn main() -> ExitCode {
    let mut cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers; clap knows which stream and which of them are failures.
            let failed = error.use_stderr();
            if failed && std::env::args().any(|word| word == "--json") {
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
            return if failed { Exit::Usage } else { Exit::Yes }.into();
        }
    };
    let json = wants_json(&cli.command);
    let ended =
        config::apply(cli.config.as_deref(), &mut cli.command).and_then(|()| run(cli.command));
    match ended {
        Ok(exit) => exit.into(),
        Err(failure) => {
            report(&failure, json);
            failure.exit.into()
        }
    }
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
        Command::Man => commands::generate::man(),
        Command::Completions { shell } => commands::generate::completions(shell),
    }
}

fn wants_json(command: &Command) -> bool {
    match command {
        Command::Plan(command) => command.what.json,
        Command::Register(command) => command.what.json,
        Command::Reserve(command) => command.json,
        Command::Release(command) => command.json,
        Command::Devices(command) => command.json,
        Command::Diagnose(command) => command.json,
        Command::Doctor(command) => command.json,
        Command::Inspect(command) => command.json,
        Command::Probe(command) => command.json,
        Command::Learn(command) => command.json,
        Command::Usage(command) => command.json,
        Command::Replay(command) => command.json,
        Command::Man | Command::Completions { .. } => false,
    }
}

fn report(failure: &Failure, json: bool) {
    if failure.told {
        return;
    }
    if json {
        let _broken_pipe = json::write(&json::FailureDocument::new(failure));
    }
    let mut err = std::io::stderr().lock();
    let _broken_pipe = writeln!(err, "hugemr: {}", failure.what);
    for line in &failure.more {
        let _broken_pipe = writeln!(err, "  {line}");
    }
}
