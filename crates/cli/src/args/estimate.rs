//! `--estimate` and `--rate`.

use clap::Args;
use hugemr_core::size::{Bytes, GIB};

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

fn parse_rate(text: &str) -> Result<Rate, String> {
    let wrong = || format!("{text:?} is no STEP=SPEED like populate=10GiB/s or reserve=300000/s");
    let (step, speed) = text.split_once('=').ok_or_else(wrong)?;
    let amount = speed.strip_suffix("/s").ok_or_else(wrong)?;
    let of = match step {
        "reserve" => RateOf::Reserve,
        "populate" => RateOf::Populate,
        "pin" => RateOf::Pin,
        "mr" => RateOf::Mr,
        _ => return Err(format!("{step:?} is none of reserve, populate, pin, mr")),
    };
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
