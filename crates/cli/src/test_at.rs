//! For the tests of this command, and not in a release build: `HUGEMR_TEST_AT=STEP:ACTION` does something to this process
//! at the beginning of a step of the transaction, so that a test need not hit the moment from outside. `STEP` is a name of
//! `hugemr::Step`, or `raising` and `lowering`: just before a pool is written. `ACTION` is `hup`, `int`, `term`, `kill`, `stop` (until
//! SIGCONT) or `panic`.

use std::time::Duration;

use hugemr::Event;
use hugemr::host::reserve::Step as PoolStep;
use signal_hook::consts::{SIGHUP, SIGINT, SIGKILL, SIGSTOP, SIGTERM};
use signal_hook::low_level::raise;

use crate::signals::Watch;

/// Does what the variable says, if this is the moment.
pub(crate) fn event(event: &Event, watch: &Watch) {
    let Ok(text) = std::env::var("HUGEMR_TEST_AT") else {
        return;
    };
    let Some((at, action)) = text.split_once(':') else {
        return;
    };
    let now = match event {
        Event::Begin(step) => step.name(),
        Event::Pool(PoolStep::Raising(_)) => "raising",
        Event::Pool(PoolStep::Lowering(_)) => "lowering",
        _ => return,
    };
    if now != at || watch.is_stopped() {
        return;
    }
    let signal = match action {
        "hup" => SIGHUP,
        "int" => SIGINT,
        "term" => SIGTERM,
        "kill" => SIGKILL,
        "stop" => SIGSTOP,
        _ => panic!("a planned panic at {now}"),
    };
    raise(signal).expect("a signal of its own reaches every process");
    while signal != SIGSTOP && !watch.token().is_cancelled() {
        std::thread::sleep(Duration::from_millis(1));
    }
}
