//! What every subject is given.

use std::path::PathBuf;
use std::time::Duration;

use hugemr_core::size::{Bytes, GIB, PageSize};
use hugemr_host::pools::Pools;
use hugemr_host::reserve::{Reservation, Reserve, ReserveRequest, Spread};
use hugemr_host::root::Root;

use crate::sample::{Effort, Stop};

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// For the figures.
    Full,
    /// To see that the program works.
    Quick,
}

pub(crate) struct Bench {
    pub(crate) size: Size,
    pub(crate) stop: Stop,
    /// The command `hugemr`, built for release.
    pub(crate) hugemr: Option<PathBuf>,
    /// Bytes of 2 MiB pages that may be mapped, or why there are none.
    pub(crate) huge: Result<u64, String>,
}

impl Bench {
    /// `rounds` quiet rounds, three in a quick run.
    pub(crate) fn effort(&self, rounds: usize) -> Effort {
        let (rounds, most) = match self.size {
            Size::Full => (rounds, Duration::from_secs(90)),
            Size::Quick => (3, Duration::from_secs(2)),
        };
        Effort {
            rounds,
            most,
            processes: 0,
            stop: self.stop.clone(),
        }
    }

    pub(crate) fn pick<T>(&self, full: T, quick: T) -> T {
        match self.size {
            Size::Full => full,
            Size::Quick => quick,
        }
    }

    /// `bytes` of huge pages, or why not.
    pub(crate) fn huge(&self, bytes: u64) -> Result<u64, String> {
        match &self.huge {
            Ok(there) if *there >= bytes => Ok(bytes),
            Ok(there) => Err(format!(
                "{} of 2 MiB pages needed, {} could be had",
                Bytes(bytes),
                Bytes(*there)
            )),
            Err(why) => Err(why.clone()),
        }
    }
}

/// The huge pages of this run: given back when it is dropped, at the end, after a signal, and when unwinding.
pub(crate) struct Pages {
    /// Bytes that may be mapped.
    pub(crate) there: Result<u64, String>,
    _held: Option<Reservation>,
}

/// Makes 4 GiB of 2 MiB pages available, or half of it, or a quarter: whatever this machine can spare.
pub(crate) fn reserve(size: Size, stop: &Stop) -> Pages {
    let wanted = match size {
        Size::Full => 4 * GIB,
        Size::Quick => GIB / 2,
    };
    let mut why = String::new();
    for bytes in [wanted, wanted / 2, wanted / 4] {
        let root = Root::real();
        let request = ReserveRequest {
            page: PageSize::M2,
            pages: bytes / PageSize::M2.bytes(),
            spread: Spread::Even,
        };
        let cancel = || stop.is_set();
        match Reserve::new(&root, request).cancel(&cancel).run() {
            Ok(held) => {
                return Pages {
                    there: Ok(bytes),
                    _held: Some(held),
                };
            }
            Err(error) => why = error.to_string(),
        }
        if stop.is_set() {
            break;
        }
    }
    // Without rights pages can still be there.
    let free = Pools::read(&Root::real())
        .of(PageSize::M2)
        .and_then(hugemr_host::pools::GlobalPool::available);
    let free = free.unwrap_or(0) * PageSize::M2.bytes();
    Pages {
        there: if free >= wanted / 4 {
            Ok(free.min(wanted))
        } else {
            Err(format!("no huge pages: {why}"))
        },
        _held: None,
    }
}
