//! How much memory is left to the host by what is offered: ways out, fixes, what a reservation could have.
//!
//! Huge pages serve nothing else: a host whose last available page became one swaps, or kills processes. So what is offered
//! leaves a margin. Who asks for more has it, with the risk said.

use crate::size::{Bytes, MIB};

/// The margin of a host with that much memory: 1/32 of it, and 512 MiB at least.
#[must_use]
pub const fn of(total: u64) -> u64 {
    const LEAST: u64 = 512 * MIB;
    let part = total / 32;
    if part > LEAST { part } else { LEAST }
}

/// Of the available memory what may be offered. Where the whole is not known, the available memory stands for it.
#[must_use]
pub fn spare(available: u64, total: Option<u64>) -> u64 {
    available.saturating_sub(of(total.unwrap_or(available)))
}

/// What is risked where `need` bytes of the available memory become huge pages; `None`: nothing.
#[must_use]
pub fn risk(need: u64, available: u64, total: Option<u64>) -> Option<String> {
    if need == 0 || need <= spare(available, total) {
        return None;
    }
    let whole = |bytes: u64| Bytes(bytes / MIB * MIB);
    Some(format!(
        "of {} of available memory {} stay to the host, less than {}: it may swap, or kill processes",
        whole(available),
        whole(available.saturating_sub(need)),
        whole(of(total.unwrap_or(available)))
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::{GIB, TIB};

    #[test]
    fn the_larger_of_a_part_and_the_least() {
        for (total, margin) in [
            (0, 512 * MIB),
            (16 * GIB, 512 * MIB),
            (24 * GIB, 768 * MIB),
            (TIB, 32 * GIB),
        ] {
            assert_eq!(of(total), margin);
        }
        assert_eq!(spare(GIB, Some(24 * GIB)), 256 * MIB);
        assert_eq!(spare(GIB, None), 512 * MIB);
        assert_eq!(spare(MIB, Some(GIB)), 0);
    }

    #[test]
    fn a_risk_begins_where_the_margin_is_touched() {
        let available = 22 * GIB + 512 * MIB;
        let need = spare(available, Some(24 * GIB));
        assert_eq!(risk(need, available, Some(24 * GIB)), None);
        assert_eq!(risk(0, 0, Some(24 * GIB)), None);
        assert_eq!(
            risk(22 * GIB, available, Some(24 * GIB)).as_deref(),
            Some(
                "of 22.5 GiB of available memory 512 MiB stay to the host, less than 768 MiB: it may swap, or kill processes"
            )
        );
    }
}
