//! Causes in what the driver sends to the device: unanswered commands, lengths that do not arrive.

use crate::device::Family;
use crate::errno::Errno;
use crate::fact::Limit;
use crate::host::Driver;
use crate::layout::{self, Rules};
use crate::quirk::{Presence, Quirk};
use crate::size::{Bytes, Count, GIB, plural};

use super::{Case, Scale};

pub(super) fn command_timeout(case: &Case<'_>, s: &mut Scale) {
    silence(case, s, "ETIME [62]");
}

pub(super) fn command_queue_dead(case: &Case<'_>, s: &mut Scale) {
    silence(case, s, "ENODEV [19]");
    // A queue that timed out refuses each later command with ENODEV, and the device stays registered with the kernel
    // (`erdma_post_cmd_wait`, Linux drivers/infiniband/hw/erdma/erdma_cmdq.c).
    if case.errno == Some(Errno::ENODEV) {
        match case.e.device_present {
            Some(true) => s.points("the kernel still has the device"),
            Some(false) => s.weakens("the kernel has no such device any more"),
            None => s.lacks("whether the kernel still has the device"),
        }
    }
}

pub(super) fn device_gone(case: &Case<'_>, s: &mut Scale) {
    match case.e.device_present {
        // It may have come back after a reset.
        Some(true) => s.weakens("the kernel still has the device"),
        Some(false) => s.proves("the kernel has no such device any more"),
        None => s.lacks("whether the kernel still has the device"),
    }
}

/// The vendor's driver makes EIO of every failed command; the in-tree driver keeps the difference.
fn silence(case: &Case<'_>, s: &mut Scale, in_tree: &str) {
    let e = case.e;
    let erdma = e.family == Some(Family::Erdma);
    if erdma && case.errno == Some(Errno::EIO) {
        match e.platform.driver {
            Driver::InTree => {
                s.excludes(format!("the in-tree driver says {in_tree} then"));
                return;
            }
            Driver::Vendor(_) => s.allows("the vendor's driver says EIO for every failed command"),
            Driver::Unknown => s.lacks("which driver it is (in-tree or the vendor's)"),
        }
    }
    match e.said_command_timeout {
        Some(true) => s.proves("the kernel log has time-outs of the command queue"),
        // Neither erdma driver prints anything when a command times out.
        Some(false) if !e.may_be_erdma() => {
            s.weakens("no time-out of the command queue in the kernel log")
        }
        Some(false) => {}
        None if erdma => s.lacks("whether each command was answered (cmdq counters)"),
        None => s.lacks("time-outs of the command queue in the kernel log"),
    }
}

pub(super) fn command_slots(case: &Case<'_>, s: &mut Scale) {
    const SLOTS: u64 = 128;
    match case.e.threads {
        Some(threads) if threads <= SLOTS => s.excludes(format!(
            "{} cannot fill {SLOTS} slots",
            Count(threads, "thread")
        )),
        Some(threads) => s.points(format!(
            "{} registered at once; the queue has {SLOTS} slots",
            Count(threads, "thread")
        )),
        None => s.lacks("how many threads register at once"),
    }
}

pub(super) fn wrong_length(case: &Case<'_>, s: &mut Scale) {
    let e = case.e;
    if e.family.is_some_and(|family| family != Family::Erdma) {
        s.excludes("this defect is one of the erdma driver");
        return;
    }
    let Some(len) = e.length else {
        s.lacks("the length");
        return;
    };
    if len < 4 * GIB {
        s.excludes(format!("{} is less than 4 GiB", Bytes(len)));
        return;
    }
    match e.wire_length {
        Some(wire) if wire == len => return s.excludes("the whole length reached the device"),
        Some(wire) => {
            return s.proves(format!(
                "{} were registered, {} reached the device",
                Bytes(len),
                Bytes(wire)
            ));
        }
        None => s.lacks("the length that reached the device"),
    }
    let state = Quirk::WireLength.on(&e.platform, Family::Erdma);
    if !state.counts() {
        return s.excludes(state.why);
    }
    let Some(page) = e.effective_page else {
        return s.points(format!("{}: {}", state.why, Quirk::WireLength.effect()));
    };
    let start = e.iova.or(e.addr).unwrap_or(0);
    let arrives = layout::arrive(page, start, len, &Rules::of(&e.platform, Family::Erdma));
    let text = format!(
        "{}: {} at {page} pages reach the device as {}",
        state.why,
        Bytes(len),
        Bytes(arrives.wire_len)
    );
    match (arrives.wire_len == len, state.presence) {
        (true, _) => s.excludes(format!(
            "{}, but {} {} by the long form",
            state.why,
            Count(arrives.entries, "entry"),
            plural(arrives.entries, "goes", "go")
        )),
        (false, Presence::Present) if e.family.is_some() => s.proves(text),
        (false, _) => s.points(text),
    }
}

pub(super) fn truncated_mr(case: &Case<'_>, s: &mut Scale) {
    let e = case.e;
    if e.said_shrunk == Some(true) {
        s.proves("the program says that it registered only the beginning");
    }
    match (e.length, e.advertised_length) {
        (Some(len), Some(said)) if said > len => {
            s.proves(format!(
                "{} were registered, {} given out",
                Bytes(len),
                Bytes(said)
            ));
        }
        (Some(_), Some(_)) => s.excludes("no more was given out than registered"),
        (Some(len), None) if e.max_mr_size.as_ref().and_then(Limit::known) == Some(len) => {
            s.points(format!(
                "the MR is exactly as long as max_mr_size, {}",
                Bytes(len)
            ));
        }
        _ => s.lacks("the length that the program gave out"),
    }
}
