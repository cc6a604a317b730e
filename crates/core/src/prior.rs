//! What can be said of an eRDMA table that was never measured: a report, and a rule of thumb, each with its mark.

use crate::device::LOWEST_FIELD_REPORT;
use crate::fact::{Kind, Limit, Source};
use crate::size::{Count, Grouped};

/// Entries for each vCPU of the instance: 1 GiB of 4 KiB pages.
///
/// Inferred, and no more: it fits ecs.r8a.32xlarge (128 vCPU, fewer than 2^25 entries by the vendor's article), the
/// article's rule of a quarter of the memory where an instance has 4 GiB a vCPU, and kvcache-ai/Mooncake#304 if that
/// instance has 96 vCPU. Nobody has confirmed it.
pub const ENTRIES_PER_VCPU: u64 = 262_144;

/// An instance type with what is public of its table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its name.
    pub name: &'static str,
    /// Virtual CPUs.
    pub vcpus: u64,
    /// Memory, bytes.
    pub memory: u64,
    /// What is public of the entries.
    pub entries: Limit,
}

/// The instance type of that name, where something is public of it.
#[must_use]
pub fn instance(name: &str) -> Option<Instance> {
    // The vendor's article: less than 128 GiB of 4 KiB pages.
    (name == "ecs.r8a.32xlarge").then(|| Instance {
        name: "ecs.r8a.32xlarge",
        vcpus: 128,
        memory: 1 << 40,
        entries: Limit::interval(
            0,
            Some((1 << 25) - 1),
            Source::new(Kind::Inferred, "upper bound of the article"),
        ),
    })
}

/// What the rule of thumb says for so many vCPUs; `None` beyond 2^64 - 1.
#[must_use]
pub fn by_vcpus(vcpus: u64) -> Option<u64> {
    vcpus.checked_mul(ENTRIES_PER_VCPU)
}

/// Both, in a few words. `vcpus`: of this instance, where known.
#[must_use]
pub fn text(vcpus: Option<u64>) -> String {
    let lowest = format!(
        "lowest field report {} entries",
        Grouped(LOWEST_FIELD_REPORT)
    );
    match vcpus.and_then(|n| Some((n, by_vcpus(n)?))) {
        Some((n, entries)) => format!(
            "{lowest}, rule of thumb {} ({} for each of {}, inferred)",
            Grouped(entries),
            Grouped(ENTRIES_PER_VCPU),
            Count(n, "vCPU")
        ),
        None => lowest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::Fit;

    #[test]
    fn the_rule_fits_what_it_was_made_from() {
        let r8a = instance("ecs.r8a.32xlarge").expect("the article's");
        let rule = by_vcpus(r8a.vcpus).expect("small");
        assert_eq!(r8a.entries.fit(rule - 1), Fit::Undecided);
        assert_eq!(r8a.entries.fit(rule), Fit::Over);
        assert_eq!(by_vcpus(96), Some(LOWEST_FIELD_REPORT + 262_144));
        assert_eq!(by_vcpus(u64::MAX), None);
        assert_eq!(instance("ecs.g7.large"), None);
    }

    #[test]
    fn the_rule_says_that_it_is_inferred() {
        assert!(text(Some(96)).contains("25,165,824 (262,144 for each of 96 vCPUs, inferred)"));
        assert_eq!(text(None), "lowest field report 24,903,680 entries");
    }
}
