//! What a prediction says, and how it compares with what then happened.

use std::time::Duration;

use hugemr_core::estimate::{Cost, Seconds};
use hugemr_core::size::{Count, plural};

use super::table;
use super::words;
use crate::estimate::Estimated;

/// Of registering on a simulated device.
const NO_RATE: &str = "a simulated device has no rate";

/// The table of a prediction.
pub(crate) fn estimate(of: &Estimated) -> String {
    let known = |cost: &Option<Cost>| {
        let source = cost.as_ref().map(|cost| cost.source.to_string());
        source.unwrap_or_else(|| "not known".to_owned())
    };
    let missing = of.way.missing_pages;
    let reserve = match missing {
        0 => "no page is missing".to_owned(),
        _ => format!(
            "{} {} missing; {}",
            Count(missing, "page"),
            plural(missing, "is", "are"),
            known(&of.costs.reserve)
        ),
    };
    let threads = Count(of.way.threads, "thread");
    let times = &of.times;
    let rows = [
        ("reserve", times.reserve, reserve),
        ("populate", times.populate, known(&of.costs.populate)),
        ("pin", times.pin, known(&of.costs.pin)),
        (
            "register",
            times.register,
            if of.without_rate {
                NO_RATE
            } else {
                "pinning and the device"
            }
            .to_owned(),
        ),
        (
            "together",
            times.total,
            "populating and registering overlap".to_owned(),
        ),
    ];
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|(step, time, how)| {
            let [likely, best, worst] = cells(time);
            vec![step.to_owned(), likely, best, worst, how]
        })
        .collect();
    let head = [
        "estimate",
        "likely",
        "at best",
        "at worst",
        "how it is known",
    ];
    let mut text = format!("time on this host, {threads}\n{}", table(&head, &rows));
    for why in &of.not_known {
        text.push_str(&format!("\n  not known: {why}"));
    }
    text
}

fn cells(time: Option<Seconds>) -> [String; 3] {
    let Some(time) = time else {
        return ["not known"; 3].map(str::to_owned);
    };
    let show = |of: f64| words::time(Duration::try_from_secs_f64(of).unwrap_or(Duration::MAX));
    let worst = time.worst.map_or_else(|| "not known".to_owned(), show);
    [show(time.likely), show(time.best), worst]
}

/// One step of a prediction beside what it took: `populate 0.42 s, took 0.45 s`.
fn beside(step: &str, predicted: Option<Seconds>, took: Duration) -> Option<String> {
    let predicted = predicted?;
    let actual = took.as_secs_f64();
    let verdict = if predicted.has(actual) {
        ""
    } else if actual < predicted.best {
        " (faster than at best)"
    } else {
        " (slower than at worst)"
    };
    let [likely, ..] = cells(Some(predicted));
    Some(format!(
        "{step} {likely}, took {}{verdict}",
        words::time(took)
    ))
}

/// The step `register` here: the time in the calls alone. The line above has another one, from the first call to the last, with
/// the waiting for memory in between.
pub(crate) const CALLS: &str = "registration calls alone";

/// What was predicted and what happened. Times of steps that were not taken are `None`.
pub(crate) fn compared(of: &Estimated, took: &[(&str, Option<Duration>)]) -> String {
    let predicted = |step: &str| match step {
        "reserve" => of.times.reserve,
        "populate" => of.times.populate,
        CALLS => of.times.register,
        _ => of.times.total,
    };
    let parts: Vec<String> = took
        .iter()
        .filter_map(|(step, took)| {
            let took = (*took)?;
            if of.without_rate && *step == CALLS {
                return Some(format!("{step} took {} ({NO_RATE})", words::time(took)));
            }
            beside(step, predicted(step), took)
        })
        .collect();
    format!("  estimated {}", parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_outside_of_the_prediction_is_said() {
        let predicted = Some(Seconds {
            best: 1.0,
            likely: 2.0,
            worst: Some(4.0),
        });
        let of = |millis| beside("populate", predicted, Duration::from_millis(millis)).unwrap();
        assert_eq!(of(2500), "populate 2.00 s, took 2.50 s");
        assert_eq!(
            of(900),
            "populate 2.00 s, took 900 ms (faster than at best)"
        );
        assert_eq!(
            of(4100),
            "populate 2.00 s, took 4.10 s (slower than at worst)"
        );
        assert_eq!(beside("populate", None, Duration::ZERO), None);
    }
}
