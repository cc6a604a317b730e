//! Diagnosis: what each errno means on each family, what each piece of evidence moves, and that nothing is claimed
//! beyond it.

use std::num::NonZeroU64;

use hugemr_core::backend::{Access, MrRequest, Verb, VerbError};
use hugemr_core::device::{Device, Family, Used};
use hugemr_core::diagnose::{
    BackingPages, Cause, Diagnosis, Evidence, MemoryKind, Operation, Standing, diagnose, given,
};
use hugemr_core::errno::Errno;
use hugemr_core::fact::{Kind, Limit, Source};
use hugemr_core::host::{Driver, Host, HugePool, Node, Platform};
use hugemr_core::size::{GIB, MIB, PageSize, TIB};
use hugemr_core::version::BundleVersion;
use proptest::prelude::*;

mod device;
mod errno;
mod fixes;
mod host;
mod properties;
mod table;

use Standing::{Likely, Possible, RuledOut};

pub(crate) fn erdma(errno: Errno) -> Evidence {
    Evidence::of_errno(errno, Family::Erdma)
}

pub(crate) fn at(operation: Operation, errno: Errno) -> Evidence {
    Evidence {
        operation: Some(operation),
        ..erdma(errno)
    }
}

pub(crate) fn platform(kernel: &str, driver: Driver) -> Platform {
    Platform {
        kernel: kernel.parse().ok(),
        driver,
        mtt_va: Some(true),
        iommu: Some(false),
        ..Platform::default()
    }
}

pub(crate) fn vendor(a: u16, b: u16, c: u16) -> Driver {
    Driver::Vendor(Some(BundleVersion(a, b, c)))
}

pub(crate) fn exact(value: u64) -> Option<Limit> {
    Some(given(value, "test"))
}

pub(crate) fn assumed(value: u64) -> Option<Limit> {
    Some(Limit::exact(value, Source::new(Kind::Assumed, "profile")))
}

pub(crate) fn unlimited() -> Option<Limit> {
    Some(Limit::unlimited(Source::new(Kind::Documented, "test")))
}

/// The cause stands as said, and has what it must have.
#[track_caller]
pub(crate) fn check(evidence: &Evidence, cause: Cause, standing: Standing) -> Diagnosis {
    let diagnosis = diagnose(evidence);
    sound(&diagnosis);
    let ranked = diagnosis
        .of(cause)
        .unwrap_or_else(|| panic!("{cause} is no candidate: {diagnosis:#?}"));
    assert_eq!(
        ranked.standing, standing,
        "{cause} for {evidence:#?}\n{ranked:#?}"
    );
    diagnosis
}

#[track_caller]
pub(crate) fn likely(evidence: &Evidence, cause: Cause) {
    let diagnosis = check(evidence, cause, Likely);
    assert_eq!(diagnosis.first().map(|r| r.cause), Some(cause));
}

/// What holds of every diagnosis.
#[track_caller]
pub(crate) fn sound(diagnosis: &Diagnosis) {
    assert!(!diagnosis.summary.is_empty());
    let mut seen: Vec<Cause> = Vec::new();
    for ranked in &diagnosis.causes {
        assert!(!seen.contains(&ranked.cause), "{} twice", ranked.cause);
        seen.push(ranked.cause);
        assert!(!ranked.fix.is_empty(), "{}", ranked.cause);
        assert!(ranked.decide.as_ref().is_none_or(|text| !text.is_empty()));
        match ranked.standing {
            RuledOut => assert!(!ranked.against.is_empty(), "{}", ranked.cause),
            Likely | Possible => assert!(!ranked.evidence_for.is_empty(), "{}", ranked.cause),
        }
        for text in ranked.evidence_for.iter().chain(&ranked.against) {
            assert!(!text.is_empty() && !text.ends_with('.'), "{text:?}");
        }
    }
    assert!(
        diagnosis.causes.is_sorted_by_key(|ranked| ranked.standing),
        "{diagnosis:#?}"
    );
    assert_eq!(
        diagnosis.cannot_tell(),
        diagnosis.causes.iter().all(|r| r.standing == RuledOut)
    );
    for i in 1..diagnosis.unknown.len() {
        assert!(!diagnosis.unknown[..i].contains(&diagnosis.unknown[i]));
    }
}
