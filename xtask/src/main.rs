//! Developer and CI tasks of hugemr: `cargo xtask TASK`. One module a task.
use std::process::ExitCode;

mod bench;
mod ci;
mod fuzz;
mod mutants;
mod tidy;
mod tree;
mod vm;

/// name, what it is for, entry point
type Task = (
    &'static str,
    &'static str,
    fn(&[String]) -> anyhow::Result<()>,
);

const TASKS: &[Task] = &[
    (
        "ci",
        "everything that must hold before a merge: ci [--list] [--only STEP] [--skip STEP]",
        ci::run,
    ),
    (
        "tidy",
        "the house rules, each as a failing check",
        tidy::run,
    ),
    (
        "mutants",
        "one-line changes that a named test must notice: mutants [--list] [NAME]",
        mutants::run,
    ),
    (
        "soak",
        "all tests again and again, each round with another seed: soak [--minutes N] [FILTER]",
        ci::soak,
    ),
    (
        "fuzz",
        "random input until something breaks: fuzz TARGET [--minutes N]",
        fuzz::run,
    ),
    (
        "bench",
        "hugemr beside what users do by hand: bench [--quick] [SUBJECT...] | --criterion [FILTER]",
        bench::run,
    ),
    (
        "vm",
        "tests in a virtual machine with a real verbs stack: vm rxe | erdma | all",
        vm::run,
    ),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((name, rest)) = args.split_first() else {
        return usage();
    };
    let Some((_, _, run)) = TASKS.iter().find(|task| task.0 == name) else {
        return usage();
    };
    match run(rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: cargo xtask TASK");
    for (name, what, _) in TASKS {
        eprintln!("  {name:10} {what}");
    }
    ExitCode::from(2)
}
