//! One line as a vector. Unknown and doubled keys are errors, so that a misspelt one is never passed over.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// Longest id, bytes.
const LONGEST_ID: usize = 64;

/// What a vector asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Op {
    Plan,
    Sim,
    Lookup,
    Diagnose,
    Learn,
    Calc,
}

impl Op {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Sim => "sim",
            Self::Lookup => "lookup",
            Self::Diagnose => "diagnose",
            Self::Learn => "learn",
            Self::Calc => "calc",
        }
    }
}

/// A vector, taken apart.
#[derive(Debug)]
pub(super) struct Vector<'a> {
    pub(super) id: String,
    pub(super) op: Op,
    /// The text of `in`.
    pub(super) input: &'a str,
    pub(super) want: Want,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    id: String,
    op: Op,
    #[serde(borrow, rename = "in")]
    input: &'a RawValue,
    #[serde(default)]
    want: Want,
    #[serde(default, rename = "src")]
    _src: Option<Src>,
    #[serde(default, rename = "from")]
    _from: Option<String>,
}

/// Whose numbers these are; for readers of the file.
#[derive(serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Src {
    Report,
    Derived,
    Example,
}

/// Id and op, as far as they could be read.
pub(super) type Name = Option<(String, &'static str)>;

impl<'a> Vector<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self, (Name, String)> {
        let line: Line<'a> = super::read::object(text).map_err(|why| (None, why))?;
        let id = line.id;
        let bad_id = id.is_empty() || id.len() > LONGEST_ID || id.chars().any(char::is_control);
        if bad_id {
            let why = format!("id: 1 to {LONGEST_ID} bytes without control characters are needed");
            return Err((None, why));
        }
        Ok(Self {
            id,
            op: line.op,
            input: line.input.get(),
            want: line.want,
        })
    }
}

/// What the answer must contain, in the order of the line.
#[derive(Debug, Default)]
pub(super) struct Want(pub(super) Vec<(String, Value)>);

impl Want {
    /// Whether there is nothing to compare.
    pub(super) fn is_empty(&self) -> bool {
        let meaning = |key: &String| super::compare::MEANING.contains(&key.as_str());
        self.0.iter().all(|(key, _)| meaning(key))
    }
}

impl<'de> Deserialize<'de> for Want {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Want;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of what the answer must contain")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Want, A::Error> {
                let mut list: Vec<(String, Value)> = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, Value>()? {
                    if list.len() >= MOST_WANTS {
                        return Err(A::Error::custom(format!("more than {MOST_WANTS} wants")));
                    }
                    if list.iter().any(|(other, _)| *other == key) {
                        return Err(A::Error::custom(format!("duplicate field `{key}`")));
                    }
                    list.push((key, value));
                }
                Ok(Want(list))
            }
        }
        from.deserialize_map(Pairs)
    }
}

const MOST_WANTS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn why(text: &str) -> String {
        Vector::parse(text).unwrap_err().1
    }

    #[test]
    fn a_vector_is_taken_apart() {
        let text =
            r#"{"id":"a","op":"plan","in":{"total":1},"want":{"mrs":1},"src":"report","from":"x"}"#;
        let vector = Vector::parse(text).unwrap();
        assert_eq!((vector.id.as_str(), vector.op), ("a", Op::Plan));
        assert_eq!(vector.input, r#"{"total":1}"#);
        assert_eq!(vector.want.0.len(), 1);
        let bare = Vector::parse(r#"{"id":"a","op":"calc","in":{}}"#).unwrap();
        assert!(bare.want.is_empty());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, said) in [
            (r#"{"id":"a","op":"plan","in":{},"wnat":{}}"#, "\"wnat\""),
            (r#"{"id":"a","op":"plna","in":{}}"#, "\"plna\""),
            (r#"{"id":"a","op":"plan"}"#, "\"in\""),
            (r#"{"op":"plan","in":{}}"#, "\"id\""),
            (
                r#"{"id":"a","id":"b","op":"plan","in":{}}"#,
                "the key \"id\" is given twice",
            ),
            (
                r#"{"id":"a","op":"plan","in":{},"want":{"x":1,"x":2}}"#,
                "the key \"x\" is given twice",
            ),
            (r#"{"id":"a","op":"plan","in":{},"want":[]}"#, "an object"),
            (
                r#"{"id":"a","op":"plan","in":{},"src":"rumour"}"#,
                "\"rumour\"",
            ),
            (r#"{"id":"","op":"plan","in":{}}"#, "id:"),
            (r#"{"id":"\u001b[2J","op":"plan","in":{}}"#, "id:"),
            ("[]", "an object"),
            (r#"["a","plan",{}]"#, "an object"),
            ("{", "it ends"),
            (r#"{"id":"a","op":"plan","in":{}} x"#, "behind the end"),
        ] {
            assert!(why(text).contains(said), "{text}: {}", why(text));
        }
    }
}
