//! Signals, for the one command that holds something: the first asks everything to stop in order.

use std::sync::mpsc;

use hugemr_core::registrar::CancelToken;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit::Failure;

/// Watches SIGINT and SIGTERM for the rest of the process.
pub(crate) struct Watch {
    token: CancelToken,
    came: mpsc::Receiver<i32>,
}

impl Watch {
    pub(crate) fn start() -> Result<Self, Failure> {
        let token = CancelToken::new();
        let (tell, came) = mpsc::channel();
        let mut signals = Signals::new([SIGINT, SIGTERM])
            .map_err(|e| Failure::system(format_args!("cannot watch signals: {e}")))?;
        let cancel = token.clone();
        let watch = move || {
            for signal in signals.forever() {
                cancel.cancel();
                if tell.send(signal).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new()
            .name("hugemr-signals".to_owned())
            .spawn(watch)
            .map_err(|e| Failure::system(format_args!("cannot watch signals: {e}")))?;
        Ok(Self { token, came })
    }

    /// Cancelled by the first signal.
    pub(crate) fn token(&self) -> &CancelToken {
        &self.token
    }

    /// Whether a signal came, and which; does not wait.
    pub(crate) fn seen(&self) -> Option<&'static str> {
        self.came.try_recv().ok().map(name)
    }

    /// Waits for a signal.
    pub(crate) fn wait(&self) -> &'static str {
        self.came.recv().map_or("the end of the signal watch", name)
    }
}

fn name(signal: i32) -> &'static str {
    match signal {
        SIGINT => "SIGINT",
        SIGTERM => "SIGTERM",
        _ => "a signal",
    }
}
