//! The checks of a guest script: one shell function each, with a sabotage of the same name.
use anyhow::{Result, bail, ensure};

/// Which checks run, and whether one is to be made to fail.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Only this check.
    pub(crate) only: Option<String>,
    /// The check whose sabotage runs before it.
    pub(crate) sabotage: Option<String>,
}

/// The names of all checks of a script, in the order of its functions.
pub(crate) fn list(script: &str) -> Result<Vec<String>> {
    let of = |prefix: &str| -> Vec<String> {
        let names = script.lines().filter_map(|line| {
            let name = line.strip_prefix(prefix)?.split_once("()")?.0;
            Some(name.replace('_', "-"))
        });
        names.collect()
    };
    let (checks, sabotages) = (of("check_"), of("sabotage_"));
    for name in &checks {
        ensure!(sabotages.contains(name), "check {name} has no sabotage");
    }
    for name in &sabotages {
        ensure!(checks.contains(name), "sabotage {name} has no check");
    }
    Ok(checks)
}

/// As the name of a sabotage: that of every check, one after the other.
pub(crate) const ALL: &str = "all";

impl Choice {
    /// Whether a guest with these checks has what was asked for.
    pub(crate) fn concerns(&self, all: &[String]) -> bool {
        let named = self
            .only
            .iter()
            .chain(&self.sabotage)
            .filter(|name| *name != ALL);
        named.into_iter().all(|name| all.contains(name))
    }

    /// The checks to run out of all, or an error that names those there are.
    pub(crate) fn apply(&self, all: &[String]) -> Result<Vec<String>> {
        for name in self.only.iter().chain(&self.sabotage) {
            if !all.contains(name) {
                bail!("no check {name:?}; there are: {}", all.join(", "));
            }
        }
        Ok(self
            .only
            .clone()
            .map_or_else(|| all.to_vec(), |name| vec![name]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str =
        "helper() {\n}\ncheck_two_words() {\n    ok\n}\nsabotage_two_words() {\n}\n";

    #[test]
    fn checks_are_found_by_function_name() {
        assert_eq!(list(SCRIPT).expect("a pair"), ["two-words"]);
    }

    #[test]
    fn a_check_needs_its_sabotage() {
        assert!(list("check_a() {\n").is_err());
        assert!(list("sabotage_a() {\n").is_err());
    }

    #[test]
    fn the_scripts_of_the_guests_are_complete() {
        assert!(
            !list(&super::super::rxe::script())
                .expect("complete")
                .is_empty()
        );
        assert!(
            !list(super::super::numa::SCRIPT)
                .expect("complete")
                .is_empty()
        );
        for scenario in super::super::erdma::SCENARIOS {
            assert!(!scenario.checks().expect("complete").is_empty());
        }
    }

    #[test]
    fn a_choice_is_checked_against_the_list() {
        let all = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(Choice::default().apply(&all).expect("all"), all);
        let one = Choice {
            only: Some("b".into()),
            sabotage: None,
        };
        assert_eq!(one.apply(&all).expect("one"), ["b"]);
        let error = Choice {
            only: None,
            sabotage: Some("c".into()),
        }
        .apply(&all);
        assert!(error.expect_err("unknown").to_string().contains("a, b"));
        assert!(one.concerns(&all) && !one.concerns(&all[..1]));
        assert!(
            Choice {
                only: None,
                sabotage: Some(ALL.into())
            }
            .concerns(&[])
        );
    }
}
