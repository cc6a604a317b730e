//! `hugemr learn`: a report becomes bounds of a device's table.

use std::num::NonZeroU64;

use hugemr_core::learn::{LearnError, Tried, budget};
use hugemr_core::limits::{Confidence, Identity, Learned, Seen};
use hugemr_core::size::{Count, Grouped, plural};
use hugemr_host::facts::Facts;
use hugemr_host::root::Root;
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
    if let Some(name) = command.device.as_deref() {
        device::check_name(name)?;
        if !name.starts_with("sim:") && !device::is_present(name) {
            remark(&format!("note: this host has no device {name} now"));
        }
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
        Err(error @ LearnError::Contradiction { .. }) => {
            return Err(Failure {
                exit: Exit::No,
                ..Failure::usage(error)
            });
        }
        Err(error) => return Err(Failure::usage(error)),
    };
    let entries = (learned.low, learned.high_excl.map(|high| high - 1));
    let saved = command.device.as_deref().map(|name| {
        let kernel = Facts::read(&Root::real()).kernel.release;
        let now = Identity {
            device: name.to_owned(),
            kernel: (!name.starts_with("sim:") && !kernel.is_empty()).then_some(kernel),
            ..Identity::default()
        };
        let seen = Seen {
            entries,
            ..Seen::default()
        };
        limits::save(&command.limits, &now, &seen, Confidence::Told)
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
    if command.json {
        json::write(&json!({
            "schema": "hugemr/learn/1",
            "entries": { "min": entries.0, "max": entries.1 },
            "saved": saved.as_ref().and_then(|saved| saved.as_ref().ok()).map(|saved| json::record(&saved.record)),
        }))?;
    } else {
        say(&match learned.high_excl {
            Some(high) => format!(
                "{} {}, {} {} not",
                Count(learned.low, "entry"),
                plural(learned.low, "fits", "fit"),
                Grouped(high),
                plural(high, "does", "do")
            ),
            None => format!(
                "{} {}",
                Count(learned.low, "entry"),
                plural(learned.low, "fits", "fit")
            ),
        })?;
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
                let what = match learned {
                    Learned::Nothing => "known already",
                    Learned::Narrowed | Learned::Replaced(_) => "saved",
                };
                say(&format!(
                    "{what} in {}: {} of {}",
                    path.display(),
                    limits::entries(record.seen.entries, "table "),
                    record.identity.device
                ))?;
            }
            Ok(Exit::Yes)
        }
        None => Ok(Exit::Yes),
    }
}
