//! Verdicts out of a guest's log.
//!
//! A line `PASS name detail`, `FAIL name detail` or `SKIP name reason` is the verdict of a check,
//! `TOOK name seconds` its time. A check of the list without a verdict has failed: a guest that
//! dies early must not look good.
use std::fmt::Write as _;

/// What became of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Pass,
    Fail,
    Skip,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Fail => "FAIL",
            Self::Skip => "SKIP",
        }
    }
}

/// One check and what became of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) name: String,
    pub(crate) outcome: Outcome,
    pub(crate) detail: String,
    pub(crate) seconds: Option<f64>,
    /// Said by the check itself, not concluded by the judge.
    pub(crate) own: bool,
}

/// All verdicts of a run.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Report {
    pub(crate) verdicts: Vec<Verdict>,
}

impl Report {
    /// Judges a log against the list of checks that had to run.
    pub(crate) fn judge(log: &str, expected: &[String]) -> Self {
        let mut report = Self::default();
        for name in expected {
            let mut lines = log
                .lines()
                .filter_map(parse)
                .filter(|verdict| verdict.name == *name);
            let verdict = match (lines.next(), lines.next()) {
                (Some(verdict), None) => verdict,
                (Some(_), Some(_)) => failed(name, "gave more than one verdict"),
                (None, _) => failed(name, "gave no verdict"),
            };
            report.verdicts.push(Verdict {
                seconds: took(log, name),
                ..verdict
            });
        }
        for verdict in log.lines().filter_map(parse) {
            if !report
                .verdicts
                .iter()
                .any(|known| known.name == verdict.name)
            {
                report
                    .verdicts
                    .push(failed(&verdict.name, "is not in the list of checks"));
            }
        }
        report
    }

    /// Adds a verdict found on this side of the guest.
    pub(crate) fn add(&mut self, name: &str, result: anyhow::Result<String>) {
        let (outcome, detail) = match result {
            Ok(detail) => (Outcome::Pass, detail),
            Err(error) => (Outcome::Fail, format!("{error:#}")),
        };
        let name = name.to_owned();
        self.verdicts.push(Verdict {
            name,
            outcome,
            detail,
            seconds: None,
            own: true,
        });
    }

    pub(crate) fn count(&self, outcome: Outcome) -> usize {
        self.verdicts
            .iter()
            .filter(|verdict| verdict.outcome == outcome)
            .count()
    }

    pub(crate) fn outcome(&self, name: &str) -> Option<&Verdict> {
        self.verdicts.iter().find(|verdict| verdict.name == name)
    }

    /// One check at least ran, and none failed.
    pub(crate) fn good(&self) -> bool {
        self.count(Outcome::Fail) == 0 && self.count(Outcome::Pass) > 0
    }

    /// `N passed, N failed, N skipped`
    pub(crate) fn closing_line(&self) -> String {
        let of = |outcome| self.count(outcome);
        let (pass, fail, skip) = (of(Outcome::Pass), of(Outcome::Fail), of(Outcome::Skip));
        format!("{pass} passed, {fail} failed, {skip} skipped")
    }

    /// The table and the closing line.
    pub(crate) fn table(&self) -> String {
        let width = self
            .verdicts
            .iter()
            .map(|verdict| verdict.name.len())
            .max()
            .unwrap_or(0);
        let mut table = String::new();
        for verdict in &self.verdicts {
            let seconds = verdict
                .seconds
                .map_or(String::new(), |s| format!("{s:.2} s"));
            let (word, name, detail) = (verdict.outcome.word(), &verdict.name, &verdict.detail);
            // Writing to a String cannot fail.
            let _ = writeln!(table, "  {word}  {name:width$}  {seconds:>8}  {detail}");
        }
        table + &self.closing_line()
    }
}

fn failed(name: &str, why: &str) -> Verdict {
    let outcome = Outcome::Fail;
    Verdict {
        name: name.to_owned(),
        outcome,
        detail: why.to_owned(),
        seconds: None,
        own: false,
    }
}

fn parse(line: &str) -> Option<Verdict> {
    let (word, rest) = line.trim_end().split_once(' ')?;
    let outcomes = [Outcome::Pass, Outcome::Fail, Outcome::Skip];
    let outcome = outcomes
        .into_iter()
        .find(|outcome| outcome.word() == word)?;
    let (name, detail) = rest.split_once(' ').unwrap_or((rest, ""));
    Some(Verdict {
        name: name.to_owned(),
        outcome,
        detail: detail.trim().to_owned(),
        seconds: None,
        own: true,
    })
}

fn took(log: &str, name: &str) -> Option<f64> {
    let mut times = log
        .lines()
        .filter_map(|line| line.strip_prefix("TOOK ")?.split_once(' '));
    times.find(|(of, _)| *of == name)?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn verdicts_are_read_with_detail_and_time() {
        let log = "GUEST init\n| PASS fake indented output\nPASS a 14 MRs\nTOOK a 0.25\n\
                   FAIL b errno 5\nSKIP c no 1 GiB page\n";
        let report = Report::judge(log, &names(&["a", "b", "c"]));
        assert_eq!(report.closing_line(), "1 passed, 1 failed, 1 skipped");
        let a = report.outcome("a").expect("judged");
        assert_eq!(
            (a.outcome, a.detail.as_str(), a.seconds),
            (Outcome::Pass, "14 MRs", Some(0.25))
        );
        assert_eq!(report.outcome("c").expect("judged").detail, "no 1 GiB page");
        assert!(!report.good());
    }

    #[test]
    fn silence_is_failure() {
        let report = Report::judge("PASS a\n", &names(&["a", "b"]));
        assert_eq!(
            report.outcome("b").expect("judged").detail,
            "gave no verdict"
        );
        assert_eq!(report.closing_line(), "1 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn strangers_and_repeated_verdicts_fail() {
        let report = Report::judge("PASS a\nFAIL a x\nPASS z\n", &names(&["a"]));
        assert_eq!(report.count(Outcome::Fail), 2);
        assert_eq!(
            report.outcome("z").expect("judged").detail,
            "is not in the list of checks"
        );
    }

    #[test]
    fn an_empty_or_skipped_run_is_not_good() {
        assert!(!Report::judge("", &[]).good());
        assert!(!Report::judge("SKIP a x\n", &names(&["a"])).good());
        assert!(Report::judge("PASS a\n", &names(&["a"])).good());
    }

    #[test]
    fn findings_of_the_host_are_added() {
        let mut report = Report::judge("PASS a\n", &names(&["a"]));
        report.add("events", Err(anyhow::anyhow!("none")));
        assert!(report.table().contains("FAIL  events"));
        assert!(report.table().ends_with("1 passed, 1 failed, 0 skipped"));
    }
}
