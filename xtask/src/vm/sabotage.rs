//! Does each check notice? `--sabotage all` runs every check alone in a guest that has been
//! disturbed for it, and each must fail.
use anyhow::Result;

use super::checks::{ALL, Choice};
use super::judge::{Outcome, Report, Verdict};

/// Runs guests by `choice`. With `--sabotage all` the verdict of each check is turned round.
pub(crate) fn run(
    choice: &Choice,
    list: &[String],
    mut guest: impl FnMut(&Choice) -> Result<Report>,
) -> Result<Report> {
    if choice.sabotage.as_deref() != Some(ALL) {
        return guest(choice);
    }
    let mut report = Report::default();
    for name in list
        .iter()
        .filter(|name| choice.only.as_ref().is_none_or(|only| only == *name))
    {
        let one = Choice {
            only: Some(name.clone()),
            sabotage: Some(name.clone()),
        };
        report.verdicts.push(turned(name, &guest(&one)?));
    }
    Ok(report)
}

/// A sabotaged check that failed with a verdict of its own has noticed.
fn turned(name: &str, report: &Report) -> Verdict {
    let Some(verdict) = report.outcome(name) else {
        unreachable!("a report has a verdict for every check asked for: {name}");
    };
    let (outcome, detail) = match verdict.outcome {
        Outcome::Fail if verdict.own => (Outcome::Pass, format!("noticed: {}", verdict.detail)),
        Outcome::Fail => (
            Outcome::Fail,
            format!("the check broke: {}", verdict.detail),
        ),
        Outcome::Pass => (Outcome::Fail, format!("went unnoticed: {}", verdict.detail)),
        Outcome::Skip => (Outcome::Skip, verdict.detail.clone()),
    };
    Verdict {
        outcome,
        detail,
        ..verdict.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(log: &str, expected: Outcome) {
        let list = ["a".to_owned()];
        let all = Choice {
            only: None,
            sabotage: Some(ALL.into()),
        };
        let report = run(&all, &list, |choice| {
            assert_eq!(
                (choice.only.as_deref(), choice.sabotage.as_deref()),
                (Some("a"), Some("a"))
            );
            Ok(Report::judge(log, &list))
        });
        assert_eq!(report.expect("runs").verdicts[0].outcome, expected, "{log}");
    }

    #[test]
    fn only_a_failure_with_a_verdict_counts_as_noticed() {
        check("FAIL a seen 0, expected 4\n", Outcome::Pass);
        check("PASS a\n", Outcome::Fail);
        check("Kernel panic\n", Outcome::Fail);
        check("SKIP a no page\n", Outcome::Skip);
    }
}
