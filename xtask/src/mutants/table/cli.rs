//! The command, and the files that it is given.

use super::{CLI, COMMAND, INPUT};
use crate::mutants::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "table-width",
        file: "crates/cli/src/render/table.rs",
        text: "text.width()",
        replacement: "text.chars().count()",
        target: COMMAND,
        test: "render::table::tests::what_is_counted_is_columns_of_a_terminal",
    },
    Mutant {
        name: "cli-unproven-strictly",
        file: "crates/cli/src/commands/register.rs",
        text: "self.command.what.strict && matches!(seen.proved, Proved::Impossible(_))",
        replacement: "self.command.what.strict && matches!(seen.proved, Proved::No(_))",
        target: CLI,
        test: "real::unproven_is_0_and_strictly_1",
    },
    Mutant {
        name: "typed-wrong-flag-kept",
        file: "crates/cli/src/typed.rs",
        text: "if replaced || left_out || !takes(flag) {",
        replacement: "if replaced || left_out || takes(\"nothing\") {",
        target: COMMAND,
        test: "typed::tests::every_value_stays_with_its_flag",
    },
    Mutant {
        name: "typed-facts-forgotten",
        file: "crates/cli/src/typed.rs",
        text: "        self.tail(STATED)",
        replacement: "        self.tail(FILES)",
        target: CLI,
        test: "printed::commands_name_files_as_a_shell_takes_them",
    },
    Mutant {
        name: "alias-without-memory",
        file: "crates/cli/src/commands/register/asked.rs",
        text: "command.alias_pages.is_some() && !mapped,",
        replacement: "command.alias_pages.is_some() && false,",
        target: CLI,
        test: "together::a_flag_without_effect_is_refused",
    },
    Mutant {
        name: "signals-no-hangup",
        file: "crates/cli/src/signals.rs",
        text: "    libc::SIGHUP,\n",
        replacement: "",
        target: CLI,
        test: "json::a_held_registration_is_two_lines",
    },
    Mutant {
        name: "input-any-kind",
        file: "crates/input/src/lib.rs",
        text: "if kind.is_file() || null {",
        replacement: "if kind.is_file() || null || !kind.is_dir() {",
        target: INPUT,
        test: "tests::what_is_no_regular_file_is_refused_at_once",
    },
];
