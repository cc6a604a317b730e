//! Backends, the emulated device, and who judges it from outside of a guest.

use super::{EMULATOR, SIM, VERBS, XTASK};
use crate::mutants::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "sim-dialect",
        file: "crates/sim-backend/src/device.rs",
        text: "return Err((self.dialect.over_budget, \"table of all MRs full\"));",
        replacement: "return Err((self.dialect.over_per_mr, \"table of all MRs full\"));",
        target: SIM,
        test: "article::base_pages_do_not",
    },
    Mutant {
        name: "sim-budget-by-one",
        file: "crates/sim-backend/src/device.rs",
        text: "if entries > self.capacity.entries.saturating_sub(used) {",
        replacement: "if entries >= self.capacity.entries.saturating_sub(used) {",
        target: SIM,
        test: "tables::a_budget_is_used_up_to_the_last_entry",
    },
    Mutant {
        name: "sim-entries-not-given-back",
        file: "crates/sim-backend/src/device.rs",
        text: "now.entries -= live.mr.arrival.entries;",
        replacement: "now.entries -= live.mr.arrival.entries / 2;",
        target: SIM,
        test: "article::huge_pages_hold_896_gib",
    },
    Mutant {
        name: "verbs-errno-of-nothing",
        file: "crates/verbs-backend/src/backend.rs",
        text: "NonNull::new(mr).ok_or(errno)",
        replacement: "NonNull::new(mr).ok_or(errno).map_err(|_| Errno::EIO)",
        target: VERBS,
        test: "registration::errno_is_the_one_of_the_call",
    },
    Mutant {
        name: "verbs-dereg-forgets",
        file: "crates/verbs-backend/src/backend.rs",
        text: "self.mrs().insert(handle, mr);",
        replacement: "let _ = mr;",
        target: VERBS,
        test: "registration::a_failed_dereg_keeps_the_mr",
    },
    Mutant {
        name: "verbs-drop-leaves-one",
        file: "crates/verbs-backend/src/backend.rs",
        text: "if mrs.is_empty() {",
        replacement: "if mrs.len() < 2 {",
        target: VERBS,
        test: "from_raw::the_users_own_device_and_pd_stay_usable",
    },
    Mutant {
        name: "emulator-nobody-waits",
        file: "crates/erdma-emulator/src/device/mod.rs",
        text: "        self.held.len()\n",
        replacement: "        0 * self.held.len()\n",
        target: EMULATOR,
        test: "faults::each_line_tells_how_many_answers_are_owed",
    },
    Mutant {
        name: "vm-cut-lengths",
        file: "xtask/src/vm/defects.rs",
        text: "if mapped(mr).saturating_sub(mr.len) >= 4 * GIB {",
        replacement: "if mapped(mr).saturating_sub(mr.len) > 4 * GIB {",
        target: XTASK,
        test: "vm::defects::tests::cut_lengths_are_found",
    },
    Mutant {
        name: "vm-gapless-last",
        file: "xtask/src/vm/layouts.rs",
        text: "Event::DeregMr(mr) => empty |= mr.used == 0,",
        replacement: "Event::DeregMr(mr) => empty |= mr.used == 1,",
        target: XTASK,
        test: "vm::layouts::tests::the_last_program_is_gapless_whatever_the_first_one_did",
    },
    Mutant {
        name: "overlap-fewer-at-once",
        file: "xtask/src/vm/overlap.rs",
        text: "waiting + 1 == threads",
        replacement: "waiting < threads",
        target: XTASK,
        test: "vm::overlap::tests::too_few_and_too_many_are_found",
    },
];
