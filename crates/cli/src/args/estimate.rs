//! `--estimate` and `--rate`.

use clap::Args;
use hugemr_core::size::{Bytes, GIB};

use crate::exit::Failure;

/// How long it will take.
#[derive(Debug, Args)]
#[command(next_help_heading = "Time")]
pub(crate) struct EstimateArgs {
    /// Predict the seconds of each step, from a short measurement on this host
    #[arg(long)]
    pub(crate) estimate: bool,
    /// A speed that you know better: populate=10GiB/s, pin=200GiB/s (one thread), reserve=300000/s (huge pages), mr=5000/s (MRs
    /// that the device takes, all threads together)
    #[arg(long, value_name = "STEP=SPEED", value_parser = parse_rate, requires = "estimate")]
    pub(crate) rate: Vec<Rate>,
}

impl EstimateArgs {
    /// Refuses two speeds of one step.
    pub(crate) fn consistent(&self) -> Result<(), Failure> {
        let twice = |at: usize| {
            self.rate[..at]
                .iter()
                .any(|rate| rate.of == self.rate[at].of)
        };
        match (0..self.rate.len()).find(|&at| twice(at)) {
            Some(at) => Err(Failure::usage(format_args!(
                "--rate {} is given twice, and counts once; drop one of them",
                self.rate[at].of.name()
            ))),
            None => Ok(()),
        }
    }
}

/// A step and the seconds of one unit of it: a GiB, a huge page, an MR.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rate {
    pub(crate) of: RateOf,
    pub(crate) seconds: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RateOf {
    Reserve,
    Populate,
    Pin,
    Mr,
}

impl RateOf {
    const ALL: [Self; 4] = [Self::Reserve, Self::Populate, Self::Pin, Self::Mr];

    const fn name(self) -> &'static str {
        match self {
            Self::Reserve => "reserve",
            Self::Populate => "populate",
            Self::Pin => "pin",
            Self::Mr => "mr",
        }
    }
}

fn parse_rate(text: &str) -> Result<Rate, String> {
    let wrong = || format!("{text:?} is no STEP=SPEED like populate=10GiB/s or reserve=300000/s");
    let (step, speed) = text.split_once('=').ok_or_else(wrong)?;
    let amount = speed.strip_suffix("/s").ok_or_else(wrong)?;
    let of = RateOf::ALL.into_iter().find(|of| of.name() == step);
    let of = of.ok_or_else(|| format!("{step:?} is none of reserve, populate, pin, mr"))?;
    let unit = match of {
        RateOf::Populate | RateOf::Pin => GIB as f64,
        RateOf::Reserve | RateOf::Mr => 1.0,
    };
    let amount = match of {
        RateOf::Populate | RateOf::Pin => {
            Bytes::parse(amount).map_err(|error| error.to_string())?.0.0
        }
        RateOf::Reserve | RateOf::Mr => super::parse_count(amount)?,
    };
    if amount == 0 {
        return Err(format!("{text:?} would never end"));
    }
    Ok(Rate {
        of,
        seconds: unit / amount as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_read_or_refused_in_words() {
        let of = |text: &str| parse_rate(text).map(|rate| (rate.of, rate.seconds));
        assert_eq!(of("populate=10GiB/s"), Ok((RateOf::Populate, 0.1)));
        assert_eq!(of("mr=5,000/s"), Ok((RateOf::Mr, 0.0002)));
        for wrong in [
            "populate",
            "populate=10GiB",
            "zero=1/s",
            "mr=0/s",
            "pin=x/s",
        ] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
