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
    for note in named
        .iter()
        .flat_map(|named| against(command, entries, &named.limits))
    {
        remark(&format!("note: {note}"));
    }
    let which = named.map(|named| named.which);
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
        None => Ok(Exit::Yes),
    }
}

/// What the device itself says against what was told.
fn against(command: &LearnCommand, (low, high): Range, device: &Device) -> Vec<String> {
    let longest = |size: &&Size| device.max_mr_size.fit(size.bytes) == Fit::Over;
    let tries = command.ok.iter().chain(&command.fail).filter(longest);
    let mut notes: Vec<String> = tries
        .map(|size| {
            format!(
                "{} is no one MR on {}, whose max_mr_size is {} ({}): the entries are reckoned as if it were",
                size.text,
                device.name,
                Bytes(device.max_mr_size.at_most().unwrap_or(0)),
                device.max_mr_size.source
            )
        })
        .collect();
    let table = &device.entries;
    let is_above = table.fit(low) == Fit::Over;
    if !table.is_unlimited() && (is_above || high.is_some_and(|high| high < table.certain())) {
        notes.push(format!(
            "{} itself has {} ({}), which contradicts what was told; what was told counts",
            device.name,
            limits::entries((table.certain(), table.at_most()), "table "),
            table.source
        ));
    }
    notes
}
