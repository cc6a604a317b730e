//! `cargo xtask soak [--minutes N] [FILTER]`: all tests again and again, each round with another seed of their random
//! input. `cargo xtask ci` uses one seed, so that a commit passes or does not; here the rare case is looked for.

use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};

use super::libtest::{SEED, binaries};

pub(crate) fn run(args: &[String]) -> Result<()> {
    let (minutes, filter) = parse(args)?;
    let binaries = binaries()?;
    let until = Instant::now() + Duration::from_secs(minutes * 60);
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let (mut seed, mut rounds, mut failed) = (now.as_secs(), 0u64, Vec::new());
    while Instant::now() < until {
        for binary in &binaries {
            let mut command = binary.command();
            let output = command
                .args(filter)
                .env(SEED, seed.to_string())
                .stdin(Stdio::null())
                .output()?;
            if !output.status.success() {
                println!("{}", String::from_utf8_lossy(&output.stdout));
                println!("FAILED {} with {SEED}={seed}", binary.name);
                failed.push(format!("{} {SEED}={seed}", binary.name));
            }
        }
        rounds += 1;
        println!(
            "round {rounds} with {SEED}={seed}: {} failed so far",
            failed.len()
        );
        seed += 1;
    }
    if !failed.is_empty() {
        bail!("of {rounds} rounds failed: {}", failed.join(", "));
    }
    println!("{rounds} rounds without a failure");
    Ok(())
}

fn parse(args: &[String]) -> Result<(u64, &[String])> {
    let (minutes, filter) = match args {
        [flag, minutes, filter @ ..] if flag == "--minutes" => (minutes.parse().ok(), filter),
        _ => (Some(10), args),
    };
    match minutes {
        Some(minutes) if minutes > 0 && filter.len() < 2 && !is_flag(filter) => {
            Ok((minutes, filter))
        }
        _ => bail!("usage: cargo xtask soak [--minutes N] [FILTER]"),
    }
}

fn is_flag(filter: &[String]) -> bool {
    filter.first().is_some_and(|filter| filter.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        let own = |args: &[&str]| args.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>();
        let minutes = |args: &[&str]| {
            let args = own(args);
            parse(&args)
                .ok()
                .map(|(minutes, filter)| (minutes, filter.to_vec()))
        };
        assert_eq!(minutes(&[]), Some((10, vec![])));
        assert_eq!(minutes(&["fits"]), Some((10, own(&["fits"]))));
        assert_eq!(
            minutes(&["--minutes", "3", "fits"]),
            Some((3, own(&["fits"])))
        );
        for bad in [
            &["--minutes"][..],
            &["--minutes", "0"],
            &["a", "b"],
            &["--other"],
        ] {
            assert_eq!(minutes(bad), None, "{bad:?}");
        }
    }
}
