//! What a log and an errno say, and what is proved of an MR.

use super::{CORE, DIAGNOSE};
use crate::mutants::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "log-hint-far-away",
        file: "crates/core/src/diagnose/logs/mod.rs",
        text: "if at.saturating_sub(nearby.line) <= NEARBY {",
        replacement: "if nearby.line <= at {",
        target: CORE,
        test: "diagnose::logs::tests::joined::gpu_memory_on_a_line_of_its_own",
    },
    Mutant {
        name: "log-refusal-of-another",
        file: "crates/core/src/diagnose/logs/mod.rs",
        text: "self.refusals.iter().filter(|one| one.errno == e.errno)",
        replacement: "self.refusals.iter()",
        target: CORE,
        test: "diagnose::logs::tests::joined::a_refusal_with_another_errno_is_another_failure",
    },
    Mutant {
        name: "log-record-any-line",
        file: "crates/core/src/diagnose/logs/mod.rs",
        text: "let more = indent(line) > indent(text) || line.starts_with(',');",
        replacement: "let more = !line.is_empty();",
        target: CORE,
        test: "diagnose::logs::tests::joined::a_record_goes_on_in_indented_lines",
    },
    Mutant {
        name: "log-level-as-errno",
        file: "crates/core/src/diagnose/logs/text.rs",
        text: "behind.len() < next.len() && behind.starts_with(' ')",
        replacement: "behind.len() > next.len()",
        target: CORE,
        test: "diagnose::logs::text::tests::errnos_in_every_dress",
    },
    Mutant {
        name: "prove-entries-not-compared",
        file: "crates/core/src/prove/mod.rs",
        text: "if page && one.entries == predicted.entries {",
        replacement: "if page && one.entries > 0 {",
        target: CORE,
        test: "prove::tests::the_tree_s_driver_says_how_large_the_table_is",
    },
    Mutant {
        name: "prove-another-s-range",
        file: "crates/core/src/prove/mod.rs",
        text: "own = start == addr && bytes == len;",
        replacement: "own = bytes == len;",
        target: CORE,
        test: "prove::tests::the_vendor_s_driver_names_the_range",
    },
    Mutant {
        name: "diagnose-decides-for-one-of-several",
        file: "crates/core/src/diagnose/mod.rs",
        text: "ranked.cause == cause) && likely.next().is_none()",
        replacement: "ranked.cause == cause)",
        target: DIAGNOSE,
        test: "table::a_cause_is_decided_for_where_the_evidence_suffices_for_it_and_for_no_other",
    },
    Mutant {
        name: "logs-perror",
        file: "crates/core/src/diagnose/logs/line.rs",
        text: "if !text::begins_with_errno(&line[end..]) && !failed() {",
        replacement: "if !failed() {",
        target: CORE,
        test: "diagnose::logs::tests::words::a_failure_in_few_words",
    },
    Mutant {
        name: "logs-perror-of-prose",
        file: "crates/core/src/diagnose/logs/text.rs",
        text: "&& ends_a_clause(rest, word.len())",
        replacement: "&& !rest.is_empty()",
        target: CORE,
        test: "diagnose::logs::tests::words::a_failure_in_few_words",
    },
    Mutant {
        name: "family-without-hint",
        file: "crates/core/src/device.rs",
        text: "why.push_str(&Self::hint(name));",
        replacement: "why.push_str(\"\");",
        target: CORE,
        test: "device::tests::a_driver_without_a_family_is_told_which_one_counts",
    },
];
