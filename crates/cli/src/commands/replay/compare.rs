//! The answer against what a vector wants.

use serde_json::{Map, Value};

/// Keys of `want` that are meaning for a reader: they are not compared.
pub(super) const MEANING: [&str; 6] = ["note", "fix", "advice", "report", "retry", "never"];

/// A want that the answer does not fulfil.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mismatch {
    pub(super) key: String,
    pub(super) want: Value,
    pub(super) got: Value,
}

/// What does not agree. An error is a want that cannot be compared: it is never taken as fulfilled.
pub(super) fn compare(
    want: &super::vector::Want,
    answer: &Map<String, Value>,
) -> Result<Vec<Mismatch>, String> {
    let mut list = Vec::new();
    for (key, want) in &want.0 {
        let got = match key.as_str() {
            meaning if MEANING.contains(&meaning) => continue,
            "must_mention" => unmentioned(want, answer)?,
            "not_cause" => still_a_cause(want, answer)?,
            field => {
                let got = answer
                    .get(field)
                    .ok_or_else(|| format!("{field:?} is no field of this op's answer"))?;
                (!same(field, want, got)).then(|| got.clone())
            }
        };
        if let Some(got) = got {
            list.push(Mismatch {
                key: key.clone(),
                want: want.clone(),
                got,
            });
        }
    }
    Ok(list)
}

fn same(field: &str, want: &Value, got: &Value) -> bool {
    // `ok` is the older word for `fits`.
    let fits = field == "verdict" && want == "ok" && got == "fits";
    fits || want == got
}

/// The message, where it lacks a text that it must have.
fn unmentioned(want: &Value, answer: &Map<String, Value>) -> Result<Option<Value>, String> {
    let texts = want.as_array().filter(|list| !list.is_empty());
    let texts = texts.ok_or("must_mention is a list of texts")?;
    let message = answer.get("message").and_then(Value::as_str).unwrap_or("");
    for text in texts {
        let text = text.as_str().filter(|text| !text.is_empty());
        if !message.contains(text.ok_or("must_mention is a list of texts")?) {
            return Ok(Some(message.into()));
        }
    }
    Ok(None)
}

/// How a cause stands, where it is not ruled out.
fn still_a_cause(want: &Value, answer: &Map<String, Value>) -> Result<Option<Value>, String> {
    let causes = answer.get("causes").and_then(Value::as_array);
    let causes = causes.ok_or("\"not_cause\" is no field of this op's answer")?;
    let name = want.as_str().and_then(hugemr_core::diagnose::Cause::parse);
    let name = name.ok_or_else(|| format!("not_cause: {want} is no cause"))?;
    let standing = causes
        .iter()
        .find(|cause| cause["cause"] == name.name())
        .map(|cause| &cause["standing"]);
    Ok(standing
        .filter(|standing| **standing != super::diagnose::ruled_out())
        .cloned())
}

#[cfg(test)]
mod tests {
    use super::super::vector::Want;
    use super::*;
    use serde_json::json;

    fn check(want: Value, answer: Value) -> Result<Vec<String>, String> {
        let Value::Object(want) = want else { panic!() };
        let Value::Object(answer) = answer else {
            panic!()
        };
        let list = compare(&Want(want.into_iter().collect()), &answer)?;
        Ok(list.into_iter().map(|mismatch| mismatch.key).collect())
    }

    #[test]
    fn wants_are_compared_exactly() {
        let answer =
            json!({"verdict": "fits", "mrs": 2, "errno": null, "message": "1 TiB and 2 MiB"});
        for (want, wrong) in [
            (json!({"verdict": "ok"}), false),
            (json!({"verdict": "fits"}), false),
            (json!({"verdict": "over_budget"}), true),
            (json!({"mrs": 2}), false),
            (json!({"mrs": 3}), true),
            (json!({"mrs": "2"}), true),
            (json!({"mrs": 2.0}), true),
            (json!({"errno": null}), false),
            (json!({"errno": "EIO"}), true),
            (json!({"must_mention": ["1 TiB", "2 MiB"]}), false),
            (json!({"must_mention": ["1 TiB", "3 MiB"]}), true),
            (
                json!({"note": "x", "fix": 1, "advice": [], "report": "y", "never": "z", "retry": []}),
                false,
            ),
        ] {
            let found = check(want.clone(), answer.clone()).unwrap();
            assert_eq!(!found.is_empty(), wrong, "{want}");
        }
    }

    #[test]
    fn a_want_that_cannot_be_compared_is_an_error() {
        let answer = json!({"mrs": 2, "message": ""});
        for want in [
            json!({"mr": 2}),
            json!({"must_mention": []}),
            json!({"must_mention": "text"}),
            json!({"must_mention": [""]}),
            json!({"not_cause": "memlock"}),
        ] {
            assert!(check(want.clone(), answer.clone()).is_err(), "{want}");
        }
    }

    #[test]
    fn a_cause_that_must_not_be_is_ruled_out_or_no_candidate() {
        let answer = json!({"causes": [
            {"cause": "table_full", "standing": "possible"},
            {"cause": "max_mr_size", "standing": "ruled out"},
        ]});
        let not = |cause: &str| check(json!({"not_cause": cause}), answer.clone());
        assert_eq!(not("max_mr_size"), Ok(vec![]));
        assert_eq!(not("memlock"), Ok(vec![]));
        assert_eq!(not("table_full"), Ok(vec!["not_cause".to_owned()]));
        assert!(not("table_fool").is_err());
    }
}
