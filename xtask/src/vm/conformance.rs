//! What the conformance suite said in a guest, the backends side by side.
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// `test rigs::BACKEND::CHECK ... ok`, in the indented output of a check.
const TEST: &str = "| test rigs::";
/// Before what a test that passed has printed: `---- rigs::BACKEND::CHECK stdout ----`.
const SAID: &str = "| ---- rigs::";
/// What a check prints that needs what this backend cannot have.
const NOT_SHOWN: &str = "| not shown: ";

/// The columns, with the names of the backends' modules in the suite.
const BACKENDS: [&str; 3] = ["simulator", "fake_verbs", "real_device"];

/// How a check ended on a backend.
type Results<'a> = BTreeMap<(&'a str, &'a str), &'a str>;

/// The table, or nothing where the suite has not run.
pub(crate) fn table(log: &str) -> Option<String> {
    let results = results(log);
    let checks: BTreeSet<&str> = results.keys().map(|(check, _)| *check).collect();
    let width = checks.iter().map(|check| check.len()).max()?;
    let mut table = format!("  {:width$}", "conformance");
    for backend in BACKENDS {
        let _ = write!(table, "  {backend:11}");
    }
    for check in &checks {
        let _ = write!(table, "\n  {check:width$}");
        for backend in BACKENDS {
            let result = results.get(&(*check, backend)).unwrap_or(&"missing");
            let _ = write!(table, "  {result:11}");
        }
    }
    let lines: Vec<&str> = table.lines().map(str::trim_end).collect();
    Some(lines.join("\n"))
}

fn results(log: &str) -> Results<'_> {
    let mut results = Results::new();
    let mut speaker = None;
    for line in log.lines().map(str::trim_end) {
        if let Some((name, result)) = line
            .strip_prefix(TEST)
            .and_then(|rest| rest.split_once(" ... "))
        {
            // What an ignored test says after its name is a reason, not a result.
            let name = name.split(' ').next().unwrap_or(name);
            results.extend(place(name).map(|place| (place, result)));
        } else if let Some(rest) = line.strip_prefix(SAID) {
            speaker = rest.strip_suffix(" stdout ----").and_then(place);
        } else if let Some(place) = speaker.filter(|_| line.starts_with(NOT_SHOWN)) {
            results
                .entry(place)
                .and_modify(|result| *result = if *result == "ok" { "not shown" } else { result });
        }
    }
    results
}

/// `BACKEND::CHECK`, the other way round.
fn place(name: &str) -> Option<(&str, &str)> {
    name.split_once("::")
        .map(|(backend, check)| (check, backend))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
        | test rigs::fake_verbs::a ... ok\n\
        | test rigs::fake_verbs::b ... ok\n\
        | test rigs::real_device::a ... FAILED\n\
        | test rigs::real_device::b ... ok\n\
        | test rigs::simulator::a ... ok\n\
        | ---- rigs::real_device::b stdout ----\n\
        | not shown: a real device has the limits it has\n\
        | ---- rigs::real_device::a stdout ----\n\
        | not shown: but it failed\n\
        test rigs::simulator::b ... ok\n";

    #[test]
    fn backends_stand_side_by_side() {
        let expected = "\
            \u{20} conformance  simulator    fake_verbs   real_device\n\
            \u{20} a            ok           ok           FAILED\n\
            \u{20} b            missing      ok           not shown";
        // The width of the first column is that of the longest check, and here of none.
        let table = table(LOG).expect("ran");
        let words = |text: &str| -> Vec<String> {
            let lines = text.lines();
            lines
                .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect()
        };
        assert_eq!(words(&table), words(expected));
        assert_eq!(super::table("PASS a\n"), None);
    }
}
