//! The release binary, and the first command of README with it.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{Ci, Outcome, must, output, seconds};
use crate::tree::{cargo, root, target_dir};

/// What the first command must have said: MRs, and entries as the device counts them.
const MUST_SAY: &[&str] = &["14 MRs", "458,752"];
const MAX_TIME: Duration = Duration::from_secs(1);

pub(super) fn binary(_: &mut Ci) -> Result<Outcome> {
    must(cargo().args(["build", "--release", "--package", "hugemr-cli"]))?;
    let path = target_dir().join("release/hugemr");
    let dynamic = output(
        Command::new("readelf")
            .arg("-d")
            .arg(&path)
            .env("LC_ALL", "C"),
    )?;
    let needed = needed(&dynamic);
    if needed.is_empty() {
        bail!(
            "readelf shows no library at all: is {} the program?",
            path.display()
        );
    }
    match needed
        .iter()
        .find(|library| library.contains("ibverbs") || library.contains("rdmacm"))
    {
        Some(library) => bail!("the default build is linked against {library}"),
        None => Ok(Outcome::Done(format!("needs {}", needed.join(", ")))),
    }
}

/// The libraries of `readelf -d`: `0x1 (NEEDED)  Shared library: [libc.so.6]`.
fn needed(dynamic: &str) -> Vec<&str> {
    let lines = dynamic.lines().filter(|line| line.contains("(NEEDED)"));
    lines
        .filter_map(|line| line.split_once('[')?.1.strip_suffix(']'))
        .collect()
}

pub(super) fn main_job(_: &mut Ci) -> Result<Outcome> {
    let readme = std::fs::read_to_string(root().join("README.md")).context("README.md")?;
    let command = first_command(&readme).context("README.md has no code block with `cargo run`")?;
    println!("$ {command}");
    let said = output(Command::new("sh").args(["-c", command]).current_dir(root()))?;
    print!("{said}");
    if let Some(missing) = MUST_SAY.iter().find(|words| !said.contains(**words)) {
        bail!("the first command of README does not say {missing:?}");
    }
    // The time of the program itself, without cargo; the best of three, since the machine may be busy.
    let (_, args) = command
        .split_once(" -- ")
        .context("the first command has no ` -- `")?;
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let start = Instant::now();
        output(Command::new(target_dir().join("release/hugemr")).args(args.split_whitespace()))?;
        best = best.min(start.elapsed());
    }
    if best > MAX_TIME {
        bail!("takes {}, more than {}", seconds(best), seconds(MAX_TIME));
    }
    Ok(Outcome::Done(format!(
        "{:.0} ms",
        best.as_secs_f64() * 1000.0
    )))
}

/// The first line of a code block that runs hugemr by cargo.
fn first_command(readme: &str) -> Option<&str> {
    let mut inside = false;
    for line in readme.lines() {
        if line.starts_with("```") {
            inside = !inside;
        } else if inside {
            let command = line.strip_prefix("$ ").unwrap_or(line);
            if command.starts_with("cargo run") {
                return Some(command.trim());
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read() {
        let text = " 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]\n 0x000000000000000c (INIT)               0x1000\n";
        assert_eq!(needed(text), ["libc.so.6"]);
    }

    #[test]
    fn the_first_command_is_found() {
        let readme =
            "# a\ncargo run is not it\n```sh\ncd x\n$ cargo run --release -- register 1GiB\n```\n";
        assert_eq!(
            first_command(readme),
            Some("cargo run --release -- register 1GiB")
        );
        assert_eq!(first_command("none"), None);
    }
}
