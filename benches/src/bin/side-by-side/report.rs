//! One table of ratios with spread, on the terminal and as a document.

use std::fmt::Write as _;

use comfy_table::{ContentArrangement, Table, presets};

use crate::sample::Measured;
use crate::stats::Spread;

/// What a number is held against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// Told, not judged.
    Told,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Met,
    Missed,
    Told,
}

impl Target {
    fn judge(self, median: f64) -> Verdict {
        let holds = match self {
            Self::AtLeast(least) => median >= least,
            Self::AtMost(most) => median <= most,
            Self::Told => return Verdict::Told,
        };
        if holds { Verdict::Met } else { Verdict::Missed }
    }

    fn text(self) -> String {
        match self {
            Self::AtLeast(least) => format!(">= {least}"),
            Self::AtMost(most) => format!("<= {most}"),
            Self::Told => String::new(),
        }
    }
}

/// One row of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    what: String,
    value: Spread,
    unit: &'static str,
    target: Target,
    quiet: usize,
    all: usize,
    disturbed: bool,
    /// Whether who reads ten lines should see this one.
    at_a_glance: bool,
}

/// All about one subject.
#[derive(Debug, Default)]
pub(crate) struct Section {
    pub(crate) title: String,
    /// What was done, in a sentence or two.
    pub(crate) about: String,
    pub(crate) rows: Vec<Row>,
    /// The figures behind the ratios: what, how much with unit.
    pub(crate) figures: Vec<(String, String)>,
    /// What was not measured, and why.
    pub(crate) missing: Vec<String>,
}

impl Section {
    pub(crate) fn new(title: impl Into<String>, about: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            about: about.into(),
            ..Self::default()
        }
    }

    /// A ratio of two ways.
    pub(crate) fn ratio(
        &mut self,
        what: impl Into<String>,
        from: &Measured,
        value: Spread,
        target: Target,
    ) -> &mut Row {
        self.row(what, from, value, "", target)
    }

    pub(crate) fn row(
        &mut self,
        what: impl Into<String>,
        from: &Measured,
        value: Spread,
        unit: &'static str,
        target: Target,
    ) -> &mut Row {
        let row = Row {
            what: what.into(),
            value,
            unit,
            target,
            quiet: from.quiet,
            all: from.all,
            disturbed: from.is_disturbed(),
            at_a_glance: false,
        };
        let last = self.rows.len();
        self.rows.push(row);
        &mut self.rows[last]
    }

    pub(crate) fn figure(&mut self, what: impl Into<String>, value: impl std::fmt::Display) {
        self.figures.push((what.into(), value.to_string()));
    }

    pub(crate) fn missing(&mut self, why: impl Into<String>) {
        self.missing.push(why.into());
    }
}

impl Row {
    /// Puts it among the few that come first.
    pub(crate) fn at_a_glance(&mut self) {
        self.at_a_glance = true;
    }

    /// As a line of a table in the document.
    fn line(&self) -> String {
        let [what, value, target, verdict, rounds] = self.cells();
        let verdict = match verdict.as_str() {
            text if text.starts_with("MISSED") => format!("**{text}**"),
            _ => verdict,
        };
        format!("| {what} | {value} | {target} | {verdict} | {rounds} |")
    }

    fn verdict(&self) -> String {
        let text = match self.target.judge(self.value.median) {
            Verdict::Met => "met",
            Verdict::Missed => "MISSED",
            Verdict::Told => "",
        };
        match (self.disturbed, text) {
            (false, text) => text.to_owned(),
            (true, "") => "disturbed".to_owned(),
            (true, text) => format!("{text}, disturbed"),
        }
    }

    fn cells(&self) -> [String; 5] {
        [
            self.what.clone(),
            format!("{}{}", self.value, self.unit),
            self.target.text(),
            self.verdict(),
            format!("{}/{}", self.quiet, self.all),
        ]
    }
}

const HEAD: [&str; 5] = ["what", "median [p25..p75]", "target", "verdict", "rounds"];

/// How many targets were met, missed, and met or missed on a machine that was disturbed.
fn count(sections: &[Section]) -> (usize, usize, usize) {
    let rows = || sections.iter().flat_map(|section| &section.rows);
    let of = |verdict| {
        rows()
            .filter(|row| row.target.judge(row.value.median) == verdict)
            .count()
    };
    let disturbed = rows()
        .filter(|row| row.disturbed && row.target != Target::Told)
        .count();
    (of(Verdict::Met), of(Verdict::Missed), disturbed)
}

pub(crate) fn summary(sections: &[Section]) -> String {
    let (met, missed, disturbed) = count(sections);
    let mut text = format!("{met} targets met, {missed} missed");
    if disturbed > 0 {
        let _ = write!(
            text,
            "; {disturbed} of these on a machine that others used all the time: repeat them"
        );
    }
    text
}

/// For the terminal.
pub(crate) fn table(sections: &[Section]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(HEAD);
    for section in sections {
        table.add_row([section.title.to_uppercase()]);
        for row in &section.rows {
            table.add_row(row.cells());
        }
        for why in &section.missing {
            table.add_row([format!("not measured: {why}")]);
        }
    }
    table.to_string()
}

fn lines<'a>(out: &mut String, rows: impl Iterator<Item = &'a Row>) {
    let _ = writeln!(out, "| {} |\n|---|---|---|---|---|", HEAD.join(" | "));
    for row in rows {
        let _ = writeln!(out, "{}", row.line());
    }
}

/// For docs/performance.md.
pub(crate) fn markdown(sections: &[Section], machine: &str, date: &str) -> String {
    let mut out = format!(
        "# Performance\n\n\
         Written by `cargo xtask bench`; do not edit. It ran on {date} on: {machine}.\n\n\
         Each row puts hugemr beside another way to the same end, in turn, in the same run. A number is a ratio unless a unit stands\n\
         behind it: the median of the rounds, with quartiles, of ratios taken within a round. Rounds during which other processes used\n\
         the machine are thrown away (\"rounds\": kept / run; \"disturbed\": too few were quiet, so all were kept). Seconds and ns hold for\n\
         this machine only; the ratios are what to look at. \"Speed over X\" is how many times as fast as X hugemr is, and the higher\n\
         the better; \"time over X\" is how much of X's time it takes, and the lower the better.\n\n\
         **{}.**\n",
        summary(sections)
    );
    let rows = || sections.iter().flat_map(|section| &section.rows);
    let missed = |row: &&Row| row.target.judge(row.value.median) == Verdict::Missed;
    if rows().any(|row| row.at_a_glance || missed(&row)) {
        out.push_str("\n## At a glance\n\nOne row or two of each subject, and every target that was missed.\n\n");
        lines(
            &mut out,
            rows().filter(|row| row.at_a_glance || missed(row)),
        );
    }
    for section in sections {
        let _ = write!(out, "\n## {}\n\n{}\n\n", section.title, section.about);
        if !section.rows.is_empty() {
            lines(&mut out, section.rows.iter());
        }
        if !section.figures.is_empty() {
            out.push_str("\nBehind them:\n\n| way | median [p25..p75] |\n|---|---|\n");
            for (what, value) in &section.figures {
                let _ = writeln!(out, "| {what} | {value} |");
            }
        }
        for why in &section.missing {
            let _ = write!(out, "\nNot measured: {why}.\n");
        }
    }
    out.push_str(NOT_MEASURED);
    out
}

/// What no run of this program can measure.
const NOT_MEASURED: &str = "\n## Not measured at all\n\n\
- A real eRDMA device: registration on one (pinning, building the table, the device's command) was never timed. The simulator waits\n\
  as long as it is told to, so its rows show what overlaps, not how fast a device is.\n\
- The emulated device and rxe: they run in guests whose CPUs are emulated too. `cargo xtask vm erdma` and `cargo xtask vm rxe` show that\n\
  the results are right, not how long they take.\n\
- More than one NUMA node, and terabytes of real memory: 896 GiB here are 2 GiB mapped again and again.\n\
- Memory that the machine has not touched lately. It is warmed up before, and that pass does not count; a first pass can be many times\n\
  slower, above all in a virtual machine.\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_judged_by_the_median() {
        assert_eq!(Target::AtLeast(1.5).judge(1.5), Verdict::Met);
        assert_eq!(Target::AtLeast(1.5).judge(1.49), Verdict::Missed);
        assert_eq!(Target::AtMost(0.8).judge(0.81), Verdict::Missed);
        assert_eq!(Target::AtMost(0.8).judge(0.8), Verdict::Met);
        assert_eq!(Target::Told.judge(0.0), Verdict::Told);
        // What could not be measured is not met.
        assert_eq!(Target::AtMost(0.8).judge(f64::NAN), Verdict::Missed);
    }

    #[test]
    fn a_missed_target_and_a_disturbed_one_are_said() {
        let mut section = Section::new("Populate", "Pages are made real.");
        let value = Spread {
            p25: 0.9,
            median: 0.95,
            p75: 1.0,
        };
        for (disturbed, least) in [(false, 0.97), (true, 0.9)] {
            section.rows.push(Row {
                what: "ours / bare loop".to_owned(),
                value,
                unit: "",
                target: Target::AtLeast(least),
                quiet: 9,
                all: 12,
                disturbed,
                at_a_glance: false,
            });
        }
        let text = markdown(&[section], "a machine", "2026-01-02");
        assert!(
            text.contains("| ours / bare loop | 0.95 [0.90..1.00] | >= 0.97 | **MISSED** | 9/12 |")
        );
        assert!(text.contains("| met, disturbed |"));
        // What was missed stands above, what was met only where it should.
        assert_eq!(text.matches("MISSED").count(), 2);
        assert_eq!(text.matches("| met, disturbed |").count(), 1);
        assert!(text.contains("1 targets met, 1 missed; 1 of these"));
    }
}
