//! Faults on demand.
//!
//! A fault is written `ACTION@WHEN[/COMMAND]`:
//!
//! | part | forms |
//! |---|---|
//! | ACTION | `refuse`, `drop` (done, but never answered), `late=TIME` (done, answered after `50ms` or `20s`), `budget=N` (the budget becomes N just before) |
//! | WHEN | `3` the third command, `3..5` the third to the fifth, `*` every one; counted from the device's start, resets included |
//! | COMMAND | `reg_mr` (the default), `dereg_mr`, `any` |

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Most faults a device takes.
pub const MAX_FAULTS: usize = 256;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The command is refused without being looked at.
    Refuse,
    /// The command is done, but its answer never comes.
    Drop,
    /// The command is done, and answered after this time.
    Late(Duration),
    /// The budget changes before the command is looked at.
    Budget(u64),
}

/// Which commands are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// REG_MR.
    RegMr,
    /// DEREG_MR.
    DeregMr,
    /// Every command.
    Any,
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    action: Action,
    first: u64,
    last: u64,
    target: Target,
}

/// Why a text is no fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no fault: write ACTION@WHEN[/COMMAND], as refuse@3, drop@2..4, late=20s@1, budget=1000@5 or refuse@*/dereg_mr"
)]
pub struct FaultError(String);

fn parse(text: &str) -> Option<Fault> {
    let (action, when) = text.split_once('@')?;
    let (when, target) = when.split_once('/').unwrap_or((when, "reg_mr"));
    let action = match action.split_once('=') {
        None => match action {
            "refuse" => Action::Refuse,
            "drop" => Action::Drop,
            _ => return None,
        },
        Some(("late", time)) => Action::Late(match time.strip_suffix("ms") {
            Some(ms) => Duration::from_millis(ms.parse().ok()?),
            None => Duration::from_secs(time.strip_suffix('s')?.parse::<u32>().ok()?.into()),
        }),
        Some(("budget", n)) => Action::Budget(n.parse().ok()?),
        Some(_) => return None,
    };
    let (first, last) = match (when, when.split_once("..")) {
        ("*", _) => (1, u64::MAX),
        (_, Some((first, last))) => (first.parse().ok()?, last.parse().ok()?),
        (n, None) => {
            let n = n.parse().ok()?;
            (n, n)
        }
    };
    let target = match target {
        "reg_mr" => Target::RegMr,
        "dereg_mr" => Target::DeregMr,
        "any" => Target::Any,
        _ => return None,
    };
    (first >= 1 && first <= last).then_some(Fault {
        action,
        first,
        last,
        target,
    })
}

impl FromStr for Fault {
    type Err = FaultError;

    fn from_str(text: &str) -> Result<Self, FaultError> {
        parse(text).ok_or_else(|| FaultError(text.into()))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.action {
            Action::Refuse => f.write_str("refuse")?,
            Action::Drop => f.write_str("drop")?,
            Action::Late(t) => write!(f, "late={}ms", t.as_millis())?,
            Action::Budget(n) => write!(f, "budget={n}")?,
        }
        match (self.first, self.last) {
            (1, u64::MAX) => f.write_str("@*")?,
            (a, b) if a == b => write!(f, "@{a}")?,
            (a, b) => write!(f, "@{a}..{b}")?,
        }
        match self.target {
            Target::RegMr => Ok(()),
            Target::DeregMr => f.write_str("/dereg_mr"),
            Target::Any => f.write_str("/any"),
        }
    }
}

/// What happens to one command, all faults taken together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// It is refused.
    pub refuse: bool,
    /// It is not answered.
    pub drop: bool,
    /// It is answered after this time.
    pub late: Option<Duration>,
    /// The budget becomes this.
    pub budget: Option<u64>,
}

impl Verdict {
    /// Whether anything goes wrong.
    #[must_use]
    pub fn is_fault(&self) -> bool {
        *self != Self::default()
    }
}

/// The faults of a device and the commands counted so far.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    faults: Vec<Fault>,
    counts: [u64; 3],
}

impl Faults {
    /// These faults.
    #[must_use]
    pub fn new(faults: &[Fault]) -> Self {
        Self {
            faults: faults.iter().copied().take(MAX_FAULTS).collect(),
            counts: [0; 3],
        }
    }

    /// Adds one; false when there are too many.
    pub fn add(&mut self, fault: Fault) -> bool {
        let room = self.faults.len() < MAX_FAULTS;
        if room {
            self.faults.push(fault);
        }
        room
    }

    /// Removes all faults. The counts go on.
    pub fn clear(&mut self) {
        self.faults.clear();
    }

    /// REG_MR commands so far.
    #[must_use]
    pub const fn reg_mrs(&self) -> u64 {
        self.counts[0]
    }

    /// Counts a command and says what happens to it. `target` is [`Target::Any`] for all but the two.
    pub fn next(&mut self, target: Target) -> Verdict {
        let mut number = [None; 3];
        for (i, t) in [Target::RegMr, Target::DeregMr, Target::Any]
            .into_iter()
            .enumerate()
        {
            if (t == target || t == Target::Any)
                && let (Some(count), Some(number)) = (self.counts.get_mut(i), number.get_mut(i))
            {
                *count += 1;
                *number = Some(*count);
            }
        }
        let mut verdict = Verdict::default();
        for fault in &self.faults {
            let n = match fault.target {
                Target::RegMr => number[0],
                Target::DeregMr => number[1],
                Target::Any => number[2],
            };
            if !n.is_some_and(|n| (fault.first..=fault.last).contains(&n)) {
                continue;
            }
            match fault.action {
                Action::Refuse => verdict.refuse = true,
                Action::Drop => verdict.drop = true,
                Action::Late(t) => verdict.late = Some(t),
                Action::Budget(n) => verdict.budget = Some(n),
            }
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> Fault {
        text.parse().expect(text)
    }

    #[test]
    fn texts() {
        for text in [
            "refuse@3",
            "drop@2..4",
            "late=50ms@1",
            "late=20000ms@*",
            "budget=1000@5",
            "refuse@*/dereg_mr",
            "drop@7/any",
        ] {
            assert_eq!(fault(text).to_string(), text);
        }
        assert_eq!(fault("late=20s@*").to_string(), "late=20000ms@*");
        for text in [
            "",
            "refuse",
            "refuse@",
            "refuse@0",
            "refuse@4..3",
            "late@3",
            "late=5@3",
            "fly@1",
            "refuse@1/open",
            "budget=-1@1",
            "refuse=3@1",
        ] {
            assert!(text.parse::<Fault>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_nth_of_its_kind() {
        let mut f = Faults::new(&[
            fault("refuse@2"),
            fault("drop@1/dereg_mr"),
            fault("late=5ms@4/any"),
        ]);
        assert!(!f.next(Target::RegMr).is_fault());
        assert!(!f.next(Target::Any).is_fault());
        assert!(f.next(Target::DeregMr).drop);
        let v = f.next(Target::RegMr);
        assert!(v.refuse && v.late == Some(Duration::from_millis(5)));
        assert!(!f.next(Target::RegMr).is_fault());
        assert_eq!(f.reg_mrs(), 3);
        f.add(fault("budget=7@4..5"));
        assert_eq!(f.next(Target::RegMr).budget, Some(7));
        f.clear();
        assert!(!f.next(Target::RegMr).is_fault());
    }

    #[test]
    fn their_number_is_bounded() {
        let mut f = Faults::default();
        let added = (0..1000).filter(|_| f.add(fault("refuse@9"))).count();
        assert_eq!(added, MAX_FAULTS);
    }
}
