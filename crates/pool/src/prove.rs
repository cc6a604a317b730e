//! A proof by the kernel's own word: the page size of each MR as it was seen while it was registered, against what was
//! predicted.

use hugemr_core::layout::Prediction;
use hugemr_core::plan::Plan;
use hugemr_core::prove::{How, Verdict, judge};
use hugemr_core::registrar::CancelToken;
use hugemr_host::root::Root;
use hugemr_host::trace::{TraceError, Watch, Watched};

use crate::report::MrReport;

/// What the kernel was seen to make of the MRs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageProof {
    /// It was watched.
    Watched {
        /// By what.
        how: How,
        /// In the order of MRs.
        mrs: Vec<Verdict>,
        /// Events that the kernel dropped.
        lost: u64,
        /// Why not everything may have been seen.
        trouble: Option<String>,
        /// Why a probe or a debug line could not be switched off. It is in the ledger, for `hugemr release --stale`.
        left: Option<String>,
    },
    /// It could not be watched, and why: one line.
    Impossible(String),
}

impl PageProof {
    /// The verdict on an MR, by its place in the order of addresses.
    #[must_use]
    pub fn verdict(&self, mr: usize) -> Option<Verdict> {
        match self {
            Self::Watched { mrs, .. } => mrs.get(mr).copied(),
            Self::Impossible(_) => None,
        }
    }

    /// MRs that are as predicted.
    #[must_use]
    pub fn same(&self) -> usize {
        self.count(|verdict| matches!(verdict, Verdict::Same(_)))
    }

    /// MRs that are not as predicted.
    #[must_use]
    pub fn different(&self) -> usize {
        self.count(|verdict| matches!(verdict, Verdict::Differs(_)))
    }

    /// Whether every MR was seen, and is as predicted.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        match self {
            Self::Watched { mrs, .. } => self.same() == mrs.len(),
            Self::Impossible(_) => false,
        }
    }

    fn count(&self, which: impl Fn(&Verdict) -> bool) -> usize {
        match self {
            Self::Watched { mrs, .. } => mrs.iter().filter(|verdict| which(verdict)).count(),
            Self::Impossible(_) => 0,
        }
    }
}

/// A watch that was asked for: on, or why not.
pub(crate) type Asked = Result<Watch, String>;

/// Begins to watch, by the first of these ways that can be had. The reasons of all are given where none can.
pub(crate) fn begin(root: &Root, ways: &[How], device: &str, cancel: &CancelToken) -> Asked {
    let mut whys: Vec<String> = Vec::new();
    for how in ways {
        match Watch::on(root, *how, device, &|| cancel.is_cancelled()) {
            Ok(watch) => return Ok(watch),
            Err(error) => whys.push(format!("{}: {}", how.name(), told(&error))),
        }
    }
    Err(whys.join("; "))
}

fn told(error: &TraceError) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

/// Ends watching, and judges each MR.
pub(crate) fn end(asked: Asked, plan: &Plan, base: u64, reports: &[MrReport]) -> PageProof {
    let watch = match asked {
        Ok(watch) => watch,
        Err(why) => return PageProof::Impossible(why),
    };
    let how = watch.how();
    let Watched {
        signs,
        lost,
        trouble,
        left,
    } = watch.finish();
    let predicted = |index: u64| -> Option<Prediction> {
        let place = usize::try_from(index).ok()?;
        reports.get(place)?.predicted
    };
    let mrs = plan
        .chunks()
        .map(|chunk| {
            let seen = signs.get(&chunk.index).map_or(&[][..], Vec::as_slice);
            judge(predicted(chunk.index), seen, base + chunk.offset, chunk.len)
        })
        .collect();
    PageProof::Watched {
        how,
        mrs,
        lost,
        trouble,
        left: left.as_ref().map(told),
    }
}
