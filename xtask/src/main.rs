//! Developer and CI tasks of hugemr: `cargo xtask TASK`. One module a task.
use std::process::ExitCode;

mod vm;

/// name, what it is for, entry point
type Task = (
    &'static str,
    &'static str,
    fn(&[String]) -> anyhow::Result<()>,
);

const TASKS: &[Task] = &[(
    "vm",
    "tests in a virtual machine with a real verbs stack: vm rxe | erdma | all",
    vm::run,
)];

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
