//! Limits: found by trying, and kept in a file.

use super::{CORE, HOST, PROBE};
use crate::mutants::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "probe-first-too-small",
        file: "crates/core/src/probe/run.rs",
        text: "const FIRST: u64 = 256;",
        replacement: "const FIRST: u64 = 1;",
        target: PROBE,
        test: "properties::budgets_are_exact_and_few_registrations_are_needed",
    },
    Mutant {
        name: "probe-forgets-others",
        file: "crates/core/src/probe/run.rs",
        text: "self.high = others.and_then(|others| self.entries.checked_add(others));",
        replacement: "self.high = others.map(|_| self.entries);",
        target: PROBE,
        test: "properties::the_interval_is_right_whatever_happens",
    },
    Mutant {
        name: "probe-last-mr-is-a-full-table",
        file: "crates/core/src/probe/run.rs",
        text: "errno == self.dialect.over_budget && !(over_count && self.count_is_the_limit())",
        replacement: "errno == self.dialect.over_budget && !(over_count && self.largest == 0)",
        target: PROBE,
        test: "search::few_mrs_are_no_full_table_where_refusals_look_alike",
    },
    Mutant {
        name: "probe-spends-mrs-on-short-ones",
        file: "crates/core/src/probe/run.rs",
        text: "while let End::MrCount(_) = end",
        replacement: "while let End::MrCount(0) = end",
        target: PROBE,
        test: "search::few_mrs_are_filled_anew_with_longer_ones",
    },
    Mutant {
        name: "probe-release-costs-nothing",
        file: "crates/core/src/probe/pace.rs",
        text: "let releasing = RESERVE * self.ratio() * (held.as_secs_f64() + one);",
        replacement: "let releasing = 0.0 * held.as_secs_f64() + self.ratio() * one;",
        target: PROBE,
        test: "deadline::everything_is_released_by_the_deadline",
    },
    Mutant {
        name: "probe-large-refused-once",
        file: "crates/core/src/probe/pages.rs",
        text: "if !used && fits()? {",
        replacement: "if !used && false {",
        target: PROBE,
        test: "pages::large_pages_need_room_that_is_proved",
    },
    Mutant {
        name: "limits-stale-is-fresh",
        file: "crates/core/src/limits/identity.rs",
        text: "(then != now).then_some",
        replacement: "(then.is_empty() && now.is_empty()).then_some",
        target: CORE,
        test: "limits::identity::tests::changes_are_named_where_both_sides_are_known",
    },
    Mutant {
        name: "limits-cut-file-is-read",
        file: "crates/host/src/limits/text.rs",
        text: "if text.trim_end().lines().last() != Some(END) {",
        replacement: "if text.is_empty() {",
        target: HOST,
        test: "limits::tests::a_cut_file_is_refused",
    },
    Mutant {
        name: "limits-without-lock",
        file: "crates/host/src/limits/file.rs",
        text: "let _lock = lock(path, PATIENCE, waits)?;",
        replacement: "drop(lock(path, PATIENCE, waits)?);",
        target: HOST,
        test: "limits::tests::writers_at_once_lose_nothing",
    },
    Mutant {
        name: "limits-moves-anything",
        file: "crates/cli/src/limits.rs",
        text: "LimitsError::Foreign { path, .. } if is_default(path)",
        replacement: "LimitsError::Foreign { path, .. } if path.is_absolute()",
        target: "-p hugemr-cli --test limits",
        test: "file::a_file_of_something_else_is_not_moved_away",
    },
];
