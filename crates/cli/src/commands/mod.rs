//! One module a command.

pub(crate) mod devices;
pub(crate) mod diagnose;
pub(crate) mod doctor;
pub(crate) mod generate;
pub(crate) mod inspect;
pub(crate) mod plan;
pub(crate) mod register;
pub(crate) mod replay;

use std::io::Write as _;

use crate::args::WhatArgs;
use crate::exit::Failure;
use crate::render::words;

/// Writes an answer.
pub(crate) fn say(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(())
}

/// Writes a remark to standard error.
pub(crate) fn remark(text: &str) {
    let _gone = writeln!(std::io::stderr().lock(), "{text}");
}

/// A command line for the same thing, with another size or more flags.
pub(crate) fn again(verb: &str, what: &WhatArgs, size: Option<u64>, flags: &str) -> String {
    let size = size.map_or_else(
        || {
            what.sizes
                .iter()
                .map(|s| s.text.clone())
                .collect::<Vec<_>>()
                .join(" ")
        },
        words::size_flag,
    );
    let mut line = format!("hugemr {verb} {size}");
    if let Some(device) = &what.device {
        line = format!("{line} --device {device}");
    }
    if !flags.contains("--pages") && what.pages != hugemr_core::plan::Pages::Auto {
        line = format!("{line} --pages {}", words::pages_flag(what.pages));
    }
    if !flags.is_empty() {
        line = format!("{line} {flags}");
    }
    line
}
