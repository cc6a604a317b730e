//! Flags that mean nothing alone: the one that they need can come from the config file, so clap cannot tell.

use super::Command;
use crate::exit::Failure;
use crate::typed::Typed;

/// Refuses a flag that was typed and would have no effect, with what to add or to drop.
pub(crate) fn check(command: &Command, typed: &Typed) -> Result<(), Failure> {
    let (flags, why): (&[&str], &str) = match command {
        Command::Doctor(command) if command.size.is_none() => (
            &["budget", "max-mr", "max-mr-size", "limits"],
            "only a size is held against it; add --for SIZE, or drop it",
        ),
        Command::Diagnose(command) if command.device.is_none() => (
            &["limits"],
            "what was measured is of a device; add --device DEVICE, or drop it",
        ),
        Command::Learn(command) if command.device.is_none() => (
            &["limits"],
            "it is only saved for a device; add --device DEVICE, or drop it",
        ),
        _ => return Ok(()),
    };
    match flags.iter().find(|flag| typed.has(flag)) {
        Some(flag) => Err(Failure::usage(format_args!("--{flag}: {why}"))),
        None => Ok(()),
    }
}
