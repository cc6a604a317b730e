//! `hugemr learn`: a report becomes bounds of a device's table.

use std::num::NonZeroU64;

use hugemr_core::device::Device;
use hugemr_core::fact::Fit;
use hugemr_core::learn::{LearnError, Tried, budget};
use hugemr_core::limits::{Confidence, Learned, Range, Seen};
use hugemr_core::size::Bytes;
use serde_json::json;

use super::{remark, say};
use crate::args::{LearnCommand, Size};
use crate::device::{Named, Which};
use crate::exit::{Ended, Exit, Failure};
use crate::limits::{self, NotSaved, Saved};
use crate::{device, json, request};

pub(crate) fn run(command: &LearnCommand) -> Ended {
    for note in command
        .ok
        .iter()
        .chain(&command.fail)
        .filter_map(request::decimal_note)
    {
        remark(&format!("note: {note}"));
    }
    if command.ok.is_empty() && command.fail.is_empty() {
        return Err(Failure::usage(
            "neither --ok SIZE nor --fail SIZE was given: there is nothing to learn",
        )
        .with("what fitted and what was refused: hugemr learn --ok 95GiB --fail 96GiB"));
    }
    let named = command.device.as_deref().map(device::named).transpose()?;
    if let Some(name) = command.device.as_deref()
        && !name.starts_with("sim:")
        && !device::is_present(name)
    {
        remark(&format!("note: this host has no device {name} now"));
    }
    let tried = |sizes: &[Size]| -> Result<Vec<Tried>, Failure> {
        let one = |size: &Size| {
            let bytes = NonZeroU64::new(size.bytes);
            let bytes = bytes
                .ok_or_else(|| Failure::usage("an MR of 0 bytes says nothing about the table"))?;
            Ok(Tried::one(bytes, command.page))
        };
        sizes.iter().map(one).collect()
    };
    let learned = match budget(tried(&command.ok)?, tried(&command.fail)?) {
        Ok(learned) => learned,
        Err(error @ (LearnError::Contradiction { .. } | LearnError::NoTable)) => {
            return Err(Failure {
                exit: Exit::No,
                ..Failure::usage(error)
            });
        }
        Err(error) => return Err(Failure::usage(error)),
    };
    let entries = (learned.low, learned.high_excl.map(|high| high - 1));
    let stated = named.as_ref().map(|named| &named.limits);
    let notes = stated.map_or_else(Vec::new, |device| too_long(command, device));
    for note in &notes {
        remark(&format!("note: {note}"));
    }
    let contradicted = named
        .as_ref()
        .and_then(|named| contradicted(command, entries, named));
    let which = named.map(|named| named.which);
    if let (Some(which), Some(text)) = (&which, contradicted) {
        if !command.json {
            say(&learned.to_string())?;
        }
        return Err(contradiction(command, which, &text));
    }
    let saved = which.as_ref().map(|which| {
        let seen = Seen {
            entries,
            ..Seen::default()
        };
        limits::save(&command.limits, which, &seen, Confidence::Told)
    });
    let saved = match saved {
        Some(None) => {
            let name = command.device.as_deref().unwrap_or_default();
            return Err(Failure::usage(format_args!(
                "not saved: {}",
                limits::no_place(name)
            )));
        }
        Some(saved) => saved,
        None => None,
    };
    // What was not saved is told as a failure, and that is the one document then.
    if command.json && !matches!(saved, Some(Err(_))) {
        json::write(&json!({
            "schema": "hugemr/learn/2",
            "entries": { "min": entries.0, "max": entries.1 },
            "notes": notes,
            "saved": json::saved(saved.as_ref()),
        }))?;
    } else if !command.json {
        say(&learned.to_string())?;
    }
    match saved {
        Some(Err(why)) => {
            let failure = NotSaved::failure(&why);
            Err(Failure {
                told: false,
                ..failure
            })
        }
        Some(Ok(Saved {
            path,
            learned,
            record,
        })) => {
            if !command.json {
                let named = which.map_or(record.identity.device, |which| which.named);
                let what = match learned {
                    Learned::Nothing => "known already",
                    Learned::Narrowed | Learned::Replaced(_) => "saved",
                };
                say(&format!(
                    "{what} in {}: {} of {}",
                    path.display(),
                    limits::entries(record.seen.entries, "table "),
                    named
                ))?;
            }
            Ok(Exit::Yes)
        }
        None => {
            if !command.json {
                say("not saved: no device was named (--device NAME)")?;
            }
            Ok(Exit::Yes)
        }
    }
}

/// Sizes that are no one MR on the device: the report is then of another cut.
fn too_long(command: &LearnCommand, device: &Device) -> Vec<String> {
    let longest = |size: &&Size| device.max_mr_size.fit(size.bytes) == Fit::Over;
    let tries = command.ok.iter().chain(&command.fail).filter(longest);
    tries
        .map(|size| {
            format!(
                "{} is no one MR on {}, whose max_mr_size is {} ({}): the entries are reckoned as if it were",
                size.text,
                device.name,
                Bytes(device.max_mr_size.at_most().unwrap_or(0)),
                device.max_mr_size.source
            )
        })
        .collect()
}

/// What refutes the report, where it is to be saved: what the device says of itself, unless something else was measured.
fn contradicted(command: &LearnCommand, entries: Range, named: &Named) -> Option<String> {
    let (which, mut device) = (&named.which, named.limits.clone());
    limits::place(&command.limits, &which.identity.device)?;
    against(entries, &device)?;
    let known = limits::known(&command.limits, which);
    if let Some((_, record)) = known
        && record.identity.changes(&which.identity).is_empty()
    {
        record.apply_from(&mut device, &mut named.platform.clone(), "");
    }
    against(entries, &device)
}

/// What the device itself says of its table, where what was told cannot be true of it.
fn against((low, high): Range, device: &Device) -> Option<String> {
    let table = &device.entries;
    let is_above = table.fit(low) == Fit::Over;
    let is_below = high.is_some_and(|high| high < table.certain());
    (!table.is_unlimited() && (is_above || is_below)).then(|| {
        format!(
            "{} itself has {} ({}), which contradicts what was told",
            device.name,
            limits::entries((table.certain(), table.at_most()), "table "),
            table.source
        )
    })
}

/// Refused as what contradicts a measurement is: only one that is made here stands above what a device says of itself.
fn contradiction(command: &LearnCommand, which: &Which, text: &str) -> Failure {
    Failure {
        exit: Exit::No,
        ..Failure::usage(format_args!("not saved: {text}"))
    }
    .with("if the report is of another device, name that one with --device, or none: then it is only said")
    .with(format!(
        "way out    what it really has: {}",
        limits::measure(&command.limits, &which.named)
    ))
}
