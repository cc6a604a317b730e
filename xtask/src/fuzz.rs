//! `cargo xtask fuzz TARGET [--minutes N]`: cargo-fuzz on one target of `fuzz/`, on the stable toolchain.

use anyhow::{Context, Result, bail};
use xshell::{Shell, cmd};

use crate::tree::{root, target_dir};

const VERSION: &str = "0.13.2";

pub(crate) fn run(args: &[String]) -> Result<()> {
    let (target, minutes) = parse(args)?;
    let shell = Shell::new()?;
    shell.change_dir(root());
    let known = targets(&shell.read_file("fuzz/Cargo.toml")?);
    if !known.iter().any(|name| name == target) {
        bail!("{target} is no target; there are: {}", known.join(", "));
    }
    let tools = target_dir().join("tools");
    let program = tools.join("bin/cargo-fuzz");
    if !program.is_file() {
        println!(
            "cargo-fuzz {VERSION} is not there: installing it under {}",
            tools.display()
        );
        cmd!(
            shell,
            "cargo install cargo-fuzz --locked --version {VERSION} --root {tools}"
        )
        .run()?;
    }
    // What is found is kept in the first folder, which git ignores; the second one is ours.
    let found = format!("fuzz/corpus/{target}");
    shell.create_dir(&found)?;
    let seeds = format!("fuzz/seeds/{target}");
    let seeds = shell.path_exists(&seeds).then_some(seeds);
    let seconds = (minutes * 60).to_string();
    // The sanitizer is a nightly option; the flag lets the stable compiler take it.
    let _bootstrap = shell.push_env("RUSTC_BOOTSTRAP", "1");
    // Apart from the run: what does not compile is no crash.
    cmd!(shell, "{program} fuzz build {target}").run()?;
    cmd!(
        shell,
        "{program} fuzz run {target} {found} {seeds...} -- -max_total_time={seconds} -timeout=10 -rss_limit_mb=2048"
    )
    .run()
    .context(
        "the input that did it lies under fuzz/artifacts; add it as a test before mending it",
    )?;
    println!("{target}: {minutes} minutes without a crash");
    Ok(())
}

fn parse(args: &[String]) -> Result<(&str, u64)> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [target] => Ok((target, 10)),
        [target, "--minutes", minutes] => match minutes.parse() {
            Ok(n) if n > 0 => Ok((target, n)),
            _ => bail!("{minutes:?} is no number of minutes"),
        },
        _ => bail!("usage: cargo xtask fuzz TARGET [--minutes N]"),
    }
}

/// The names of the binaries in the manifest.
fn targets(manifest: &str) -> Vec<String> {
    let bins = manifest.split("[[bin]]").skip(1);
    let names = bins.filter_map(|bin| bin.split("name = \"").nth(1)?.split('"').next());
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        let own = |args: &[&str]| args.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>();
        assert_eq!(parse(&own(&["a"])).ok(), Some(("a", 10)));
        assert_eq!(parse(&own(&["a", "--minutes", "3"])).ok(), Some(("a", 3)));
        for wrong in [&[][..], &["a", "--minutes", "0"], &["a", "b"]] {
            assert!(parse(&own(wrong)).is_err());
        }
    }

    #[test]
    fn targets_are_the_binaries() {
        let manifest = "[package]\nname = \"x\"\n[[bin]]\nname = \"a\"\npath = \"a.rs\"\n[[bin]]\nname = \"b\"\n";
        assert_eq!(targets(manifest), ["a", "b"]);
    }
}
