//! The probe on a table of a few lines: it shares no code with the simulator, whose own devices are probed in its tests.
#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test"
)]

mod deadline;
mod pages;
mod properties;
mod search;
mod table;

use std::sync::Arc;
use std::time::Duration;

use hugemr_core::backend::NoMemory;
use hugemr_core::device::{Family, Used};
use hugemr_core::errno::Errno;
use hugemr_core::fact::{Kind, Limit, Source};
use hugemr_core::probe::{End, Found, Options, Progress, Stop, probe};
use hugemr_core::size::{GIB, PageSize};

use table::{LARGE, Table};

const BASE: u64 = 1 << 44;

fn small(pages: u64) -> Arc<NoMemory> {
    let page = PageSize::K4;
    Arc::new(NoMemory {
        base: BASE,
        len: pages * page.bytes(),
        page,
    })
}

fn large(len: u64) -> Arc<NoMemory> {
    Arc::new(NoMemory {
        base: LARGE,
        len,
        page: PageSize::M2,
    })
}

const NO_LARGE: Option<&Arc<NoMemory>> = None;

/// Probes, with what others hold told truly.
fn ask(table: Table, pages: u64, per_mr: Option<u64>) -> (Arc<Table>, Found) {
    let table = Arc::new(table);
    let others = || table.others();
    let options = Options {
        per_mr,
        others: &others,
        ..Options::default()
    };
    let found = probe(&table, &small(pages), NO_LARGE, &options);
    assert_eq!((table.live(), found.left), (0, 0), "everything is released");
    (table, found)
}

/// Probes until a deadline, and says when everything was released.
fn until(table: Table, pages: u64, deadline: Duration, count: Option<u64>) -> (Found, Duration) {
    let table = Arc::new(table);
    let clock = || table.now();
    let others = || table.others();
    let options = Options {
        deadline: Some(deadline),
        clock: &clock,
        others: &others,
        count,
        ..Options::default()
    };
    let found = probe(&table, &small(pages), NO_LARGE, &options);
    assert_eq!((table.live(), found.left), (0, 0), "everything is released");
    (found, table.now())
}

/// `2 log2(budget) + budget / largest`.
fn bound(budget: u64, largest: u64) -> u64 {
    let log = (budget as f64).log2();
    (2.0 * log + budget as f64 / largest as f64).floor() as u64
}
