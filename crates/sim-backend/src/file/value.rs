//! The values of a device file, checked while they are read, so that an error knows its line.

use std::fmt;

use hugemr_core::errno::Errno;
use hugemr_core::fact::{Kind, Limit, Source};
use hugemr_core::host::{Driver, Presumption};
use hugemr_core::size::{Bytes, PageSize, PageSizes};
use hugemr_core::version::KernelVersion;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use crate::profile::Profile;

/// A size or a count: a number, or a text with a binary unit.
struct Amount(u64);

/// The value of a limit.
enum LimitValue {
    Number(u64),
    Unlimited,
    Unknown,
}

fn parse_amount<E: Error>(text: &str) -> Result<u64, E> {
    match Bytes::parse(text) {
        Ok((_, true)) => Err(E::custom(format!(
            "{text:?} has a decimal unit; write KiB, MiB, GiB or TiB, or a number of bytes"
        ))),
        Ok((bytes, false)) => Ok(bytes.0),
        Err(error) => Err(E::custom(error)),
    }
}

fn not_negative<E: Error>(value: i64) -> Result<u64, E> {
    u64::try_from(value).map_err(|_| E::custom(format!("{value} is negative")))
}

struct AmountVisitor;

impl Visitor<'_> for AmountVisitor {
    type Value = Amount;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number or a size such as \"64GiB\"")
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Amount, E> {
        not_negative(value).map(Amount)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Amount, E> {
        Ok(Amount(value))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Amount, E> {
        parse_amount(text).map(Amount)
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(AmountVisitor)
    }
}

struct LimitValueVisitor;

impl Visitor<'_> for LimitValueVisitor {
    type Value = LimitValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, a size, \"unlimited\" or \"unknown\"")
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<LimitValue, E> {
        not_negative(value).map(LimitValue::Number)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<LimitValue, E> {
        Ok(LimitValue::Number(value))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<LimitValue, E> {
        match text {
            "unlimited" => Ok(LimitValue::Unlimited),
            "unknown" => Ok(LimitValue::Unknown),
            _ => parse_amount(text).map(LimitValue::Number),
        }
    }
}

impl<'de> Deserialize<'de> for LimitValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(LimitValueVisitor)
    }
}

impl LimitValue {
    fn limit(self, source: Source) -> Limit {
        match self {
            Self::Number(value) => Limit::exact(value, source),
            Self::Unlimited => Limit::unlimited(source),
            Self::Unknown => Limit::unknown(source),
        }
    }
}

#[derive(Clone, Copy, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum KindName {
    Documented,
    Measured,
    Inferred,
    Assumed,
    Given,
}

impl From<KindName> for Kind {
    fn from(name: KindName) -> Self {
        match name {
            KindName::Documented => Self::Documented,
            KindName::Measured => Self::Measured,
            KindName::Inferred => Self::Inferred,
            KindName::Assumed => Self::Assumed,
            KindName::Given => Self::Given,
        }
    }
}

/// A limit written as a table.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitTable {
    value: Option<LimitValue>,
    at_least: Option<Amount>,
    at_most: Option<Amount>,
    kind: Option<KindName>,
    source: Option<String>,
}

impl LimitTable {
    fn limit(self) -> Result<Limit, &'static str> {
        let source = Source::new(
            self.kind.map_or(Kind::Given, Kind::from),
            self.source.unwrap_or_else(|| FROM_FILE.to_owned()),
        );
        let (least, most) = (self.at_least.map(|a| a.0), self.at_most.map(|a| a.0));
        match (self.value, least, most) {
            (Some(value), None, None) => Ok(value.limit(source)),
            (Some(_), ..) => Err("value excludes at_least and at_most"),
            (None, None, None) => Err("a value is missing: value, at_least or at_most"),
            (None, Some(least), Some(most)) if least > most => Err("at_least is above at_most"),
            (None, least, most) => Ok(Limit::interval(least.unwrap_or(0), most, source)),
        }
    }
}

const FROM_FILE: &str = "device file";

struct LimitVisitor;

impl<'de> Visitor<'de> for LimitVisitor {
    type Value = Limit;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, a size, \"unlimited\", \"unknown\", or a table with a value")
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Limit, E> {
        LimitValueVisitor.visit_i64(value).map(given)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Limit, E> {
        LimitValueVisitor.visit_u64(value).map(given)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Limit, E> {
        LimitValueVisitor.visit_str(text).map(given)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Limit, A::Error> {
        let table = LimitTable::deserialize(MapAccessDeserializer::new(map))?;
        table.limit().map_err(A::Error::custom)
    }
}

fn given(value: LimitValue) -> Limit {
    value.limit(Source::new(Kind::Given, FROM_FILE))
}

pub(super) fn limit<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Limit>, D::Error> {
    from.deserialize_any(LimitVisitor).map(Some)
}

pub(super) fn size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    Amount::deserialize(from).map(|amount| Some(amount.0))
}

pub(super) fn page<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PageSize>, D::Error> {
    let bytes = Amount::deserialize(from)?.0;
    PageSize::new(bytes).map(Some).map_err(D::Error::custom)
}

pub(super) fn page_size_cap<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<PageSizes>, D::Error> {
    let sizes = PageSizes(Amount::deserialize(from)?.0);
    if sizes.contains(PageSize::K4) {
        Ok(Some(sizes))
    } else {
        Err(D::Error::custom(
            "4 KiB (bit 12) must be in the set: Linux refuses every MR without it",
        ))
    }
}

pub(super) fn profile<'de, D: Deserializer<'de>>(from: D) -> Result<Profile, D::Error> {
    let name = String::deserialize(from)?;
    Profile::named(&name).map_err(D::Error::custom)
}

pub(super) fn kernel<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Option<KernelVersion>>, D::Error> {
    match String::deserialize(from)?.as_str() {
        "unknown" => Ok(Some(None)),
        text => text
            .parse()
            .map(|v| Some(Some(v)))
            .map_err(D::Error::custom),
    }
}

pub(super) fn driver<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Driver>, D::Error> {
    let text = String::deserialize(from)?;
    Ok(Some(match text.as_str() {
        "unknown" => Driver::Unknown,
        "in-tree" => Driver::InTree,
        "vendor" => Driver::Vendor(None),
        version => Driver::Vendor(Some(version.parse().map_err(|_| {
            D::Error::custom(format!(
                "{version:?} is no driver: write in-tree, vendor, unknown or a bundle version such as 1.5.7"
            ))
        })?)),
    }))
}

pub(super) fn presumption<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Presumption>, D::Error> {
    match String::deserialize(from)?.as_str() {
        "affected" => Ok(Some(Presumption::Affected)),
        "unaffected" => Ok(Some(Presumption::Unaffected)),
        other => Err(D::Error::custom(format!(
            "{other:?}: write affected or unaffected"
        ))),
    }
}

pub(super) fn errno<'de, D: Deserializer<'de>>(from: D) -> Result<Errno, D::Error> {
    let text = match toml::Value::deserialize(from)? {
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::String(name) => name,
        other => other.type_str().to_owned(),
    };
    Errno::parse(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is no errno")))
}

/// Longest delay, microseconds: an hour. A call that sleeps cannot be interrupted, as the pinning of a real MR cannot.
const LONGEST_DELAY: u64 = 3_600_000_000;

pub(super) fn delay<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    match u64::deserialize(from)? {
        micros if micros > LONGEST_DELAY => Err(D::Error::custom(format!(
            "{micros} microseconds are more than the longest delay, an hour ({LONGEST_DELAY})"
        ))),
        micros => Ok(micros),
    }
}
