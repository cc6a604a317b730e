//! hugemr and what a user would do by hand, side by side in one run. `cargo xtask bench` builds and runs it.
//!
//! One module a subject; [`sample`] takes turns and throws disturbed rounds away, [`report`] makes the table.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that prints its results"
)]

mod bench;
mod by_hand;
mod layout;
mod lookup;
mod machine;
mod noise;
mod pipeline;
mod populate;
mod register;
mod report;
mod resident;
mod sample;
mod start;
mod stats;
mod ucx;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use bench::{Bench, Size};
use report::Section;
use sample::Stop;

type Subject = (&'static str, &'static str, fn(&Bench) -> Result<Section>);

const SUBJECTS: &[Subject] = &[
    ("populate", "making 2 MiB pages real", populate::run),
    (
        "pipeline",
        "populating and registering at once",
        pipeline::run,
    ),
    (
        "register",
        "registering and releasing in parallel",
        register::run,
    ),
    ("lookup", "from an address to keys", lookup::run),
    ("layout", "reading where 896 GiB lie", layout::run),
    ("start", "whole processes", start::run),
];

struct Args {
    size: Size,
    markdown: Option<PathBuf>,
    hugemr: Option<PathBuf>,
    subjects: Vec<&'static Subject>,
}

fn main() -> ExitCode {
    let args = match parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(error) => {
            eprintln!("{error}\n");
            eprintln!(
                "usage: side-by-side [--quick] [--hugemr PATH] [--markdown FILE] [SUBJECT...]"
            );
            for (name, what, _) in SUBJECTS {
                eprintln!("  {name:9} {what}");
            }
            return ExitCode::from(2);
        }
    };
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(3)
        }
    }
}

fn parse(args: impl Iterator<Item = String>) -> Result<Args> {
    let mut parsed = Args {
        size: Size::Full,
        markdown: None,
        hugemr: None,
        subjects: Vec::new(),
    };
    let mut args = args;
    while let Some(arg) = args.next() {
        let mut path = || args.next().map(PathBuf::from);
        match arg.as_str() {
            "--quick" => parsed.size = Size::Quick,
            "--markdown" => parsed.markdown = Some(path().context("--markdown wants a file")?),
            "--hugemr" => parsed.hugemr = Some(path().context("--hugemr wants a path")?),
            name => match SUBJECTS.iter().find(|subject| subject.0 == name) {
                Some(subject) => parsed.subjects.push(subject),
                None => bail!("{name:?} is no subject"),
            },
        }
    }
    if parsed.subjects.is_empty() {
        parsed.subjects = SUBJECTS.iter().collect();
    } else if parsed.markdown.is_some() {
        bail!("--markdown is for all subjects, so that the document is of one run");
    }
    if parsed.size == Size::Quick && parsed.markdown.is_some() {
        bail!("--quick shows that the program works; its numbers are for no document");
    }
    Ok(parsed)
}

fn run(args: &Args) -> Result<()> {
    let stop = Stop::on_signals()?;
    let machine = machine::describe();
    println!("machine: {machine}");
    let pages = bench::reserve(args.size, &stop);
    stop.check()?;
    let bench = Bench {
        size: args.size,
        stop,
        hugemr: args.hugemr.clone(),
        huge: pages.there.clone(),
    };
    if let Ok(bytes) = pages.there {
        populate::warm(bytes)?;
    }
    let mut sections = Vec::new();
    for (name, what, subject) in &args.subjects {
        eprintln!("{name}: {what} ...");
        let start = Instant::now();
        let section = subject(&bench).with_context(|| format!("{name} failed"))?;
        eprintln!("{name}: {:.0} s", start.elapsed().as_secs_f64());
        sections.push(section);
    }
    drop(pages);
    println!("{}", report::table(&sections));
    println!("{}", report::summary(&sections));
    if args.size == Size::Quick {
        println!("--quick: these numbers only show that the program works");
    }
    if let Some(path) = &args.markdown {
        let text = report::markdown(&sections, &machine, &machine::today());
        std::fs::write(path, text).with_context(|| path.display().to_string())?;
        println!("written: {}", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_of_one_whole_run() {
        let parse = |line: &str| parse(line.split_whitespace().map(str::to_owned));
        assert_eq!(parse("").unwrap().subjects.len(), SUBJECTS.len());
        assert_eq!(parse("lookup start").unwrap().subjects.len(), 2);
        assert!(parse("--markdown a.md lookup").is_err());
        assert!(parse("--markdown a.md --quick").is_err());
        assert!(parse("--markdown").is_err());
        assert!(parse("speed").is_err());
    }
}
