//! What the readers of TOML and JSON say, in words for somebody who writes such a file, and where in it.

use std::fmt;
use std::ops::Range;

/// A place in a TOML text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The line, from 1.
    pub line: usize,
    /// The key with its table, for example `limits.max_mr_size`, where one can be named.
    pub key: Option<String>,
}

impl Place {
    /// Where a stretch of the text begins; `None`, as the reader tells of an absent one, is the first line.
    #[must_use]
    pub fn of(text: &str, span: Option<Range<usize>>) -> Self {
        let at = span.map_or(0, |span| span.start.min(text.len()));
        let before = &text.as_bytes()[..at];
        let line = before.iter().filter(|byte| **byte == b'\n').count();
        Self {
            line: line + 1,
            key: key_at(text, line),
        }
    }
}

/// `line 3, limits.max_mr`.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.line)?;
        match &self.key {
            Some(key) => write!(f, ", {key}"),
            None => Ok(()),
        }
    }
}

/// The key on line `line` (from 0) with the table it stands in; where the line has none, the table.
fn key_at(text: &str, line: usize) -> Option<String> {
    let lines: Vec<&str> = text.lines().take(line + 1).collect();
    let table = lines.iter().rev().find_map(|line| {
        let inner = line.trim_start().strip_prefix('[')?;
        let name = inner.trim_start_matches('[').split(']').next()?.trim();
        (!name.is_empty()).then(|| name.to_owned())
    });
    let last = lines.get(line)?;
    let key = match last.split_once('=') {
        Some((key, _)) if !last.trim_start().starts_with(['[', '#']) => Some(key.trim()),
        _ => None,
    };
    match (table, key) {
        (Some(table), Some(key)) => Some(format!("{table}.{key}")),
        (table, key) => table.or_else(|| key.map(str::to_owned)),
    }
}

/// A message of `serde`, `toml` or `serde_json` without the words of a programmer: `invalid type: map, expected u64` becomes
/// `a table of keys stands where a whole number from 0 to 2^64 - 1 belongs`. What none of them says stays as it is.
#[must_use]
pub fn plain(message: &str) -> String {
    let message = message.trim();
    // serde_json puts the place behind.
    let (head, place) = match message.rfind(" at line ") {
        Some(at) if message[at..].contains(" column ") => message.split_at(at),
        _ => (message, ""),
    };
    let words = of_serde(head)
        .or_else(|| of_json(head).map(str::to_owned))
        .or_else(|| of_toml(head));
    words.unwrap_or_else(|| head.to_owned()) + place
}

fn of_serde(message: &str) -> Option<String> {
    let after = |head: &str| message.strip_prefix(head);
    if let Some(rest) = after("invalid type: ").or_else(|| after("invalid value: ")) {
        let (found, wanted) = rest.rsplit_once(", expected ")?;
        return Some(stands_for(&value(found), wanted));
    }
    if let Some(rest) = after("invalid length ") {
        let (found, wanted) = rest.split_once(", expected ")?;
        return Some(stands_for(&format!("a list of {found}"), wanted));
    }
    if let Some(wanted) = after("wanted ") {
        return Some(format!("here belongs {}", kind(wanted)));
    }
    if let Some(rest) = after("unknown field ") {
        let (key, known) = rest.split_once(", ")?;
        let key = key.trim_matches('`');
        return Some(match known.strip_prefix("expected ") {
            Some(known) => format!("there is no key {key:?} here, but {}", names(known)),
            None => format!("there is no key {key:?} here, and no other"),
        });
    }
    if let Some(rest) = after("unknown variant ") {
        let (word, known) = rest.split_once(", expected ")?;
        let word = word.trim_matches('`');
        return Some(format!("{word:?} is none of {}", names(known)));
    }
    if let Some(key) = after("missing field ") {
        return Some(format!("the key {:?} is missing", key.trim_matches('`')));
    }
    if let Some(key) = after("duplicate field ") {
        return Some(format!(
            "the key {:?} is given twice",
            key.trim_matches('`')
        ));
    }
    after("data did not match any variant")
        .map(|_| "the value is of no kind that belongs here".to_owned())
}

fn stands_for(found: &str, wanted: &str) -> String {
    format!("{found} stands where {} belongs", kind(wanted))
}

/// `one of `a`, `b`` and `` `a` or `b` `` as a list.
fn names(known: &str) -> String {
    let known = known.strip_prefix("one of ").unwrap_or(known);
    known.replace(" or ", ", ").replace('`', "")
}

/// What was found.
fn value(found: &str) -> String {
    // A number that is too large for a u64 is told with its type.
    let found = found
        .trim_end_matches(" as u128")
        .trim_end_matches(" as i128");
    let shown = |head: &str| Some(found.strip_prefix(head)?.trim_matches('`'));
    if let Some(number) = shown("integer ").or_else(|| shown("floating point ")) {
        return format!("the number {number}");
    }
    if let Some(text) = shown("string ") {
        return format!("the text {text}");
    }
    if let Some(word) = shown("boolean ") {
        return word.to_owned();
    }
    match found {
        "sequence" => "a list",
        "map" => "a table of keys",
        "unit value" | "null" | "Option value" => "nothing",
        other => other,
    }
    .to_owned()
}

/// What belongs there.
fn kind(wanted: &str) -> String {
    let text = match wanted {
        "u64" | "usize" => "a whole number from 0 to 2^64 - 1",
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65,535",
        "u32" => "a whole number from 0 to 4,294,967,295",
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" | "boolean" => "true or false",
        "a string" | "string" | "a borrowed string" => "a text",
        "a character" => "one character",
        "a sequence" | "sequence" => "a list",
        "a map" | "map" => "a table of keys",
        "string or table" => "a word, or a table of keys",
        "unit" => "nothing",
        _ if wanted.starts_with("a nonzero u") => "a whole number from 1 on",
        _ if wanted.starts_with("a nonzero ") => "a whole number other than 0",
        _ if wanted.starts_with("struct ") => "a table of keys",
        _ if wanted.starts_with("enum ") || wanted.starts_with("variant ") => "one of a few words",
        _ => match wanted.strip_prefix("a tuple of size ") {
            Some(size) => return format!("a list of {size}"),
            None => wanted,
        },
    };
    text.to_owned()
}

/// Source: `ErrorCode`, serde_json `src/error.rs` 1.0.
fn of_json(message: &str) -> Option<&'static str> {
    Some(match message {
        "EOF while parsing a list" => "it ends in the middle of a list",
        "EOF while parsing an object" => "it ends in the middle of an object",
        "EOF while parsing a string" => "it ends in the middle of a text",
        "EOF while parsing a value" => "it ends where a value belongs",
        "expected `:`" => "a : is missing behind a key",
        "expected `,` or `]`" => "a comma, or the ] of a list, is missing",
        "expected `,` or `}`" => "a comma, or the } of an object, is missing",
        "expected ident" => "this is not true, false or null",
        "expected value" => "a value belongs here",
        "expected `\"`" => "a \" is missing",
        "invalid escape" => "a \\ stands before a letter that it cannot stand before",
        "invalid number" => "this is no number",
        "number out of range" => "this number is too large",
        "invalid unicode code point"
        | "lone leading surrogate in hex escape"
        | "unexpected end of hex escape" => "behind a \\u stands no character",
        "control character (\\u0000-\\u001F) found while parsing a string" => {
            "a text goes over the end of its line, or has another control character"
        }
        "key must be a string" => "a key must stand in quotes",
        "trailing comma" => "there is a comma too many",
        "trailing characters" => "something stands behind the end",
        "recursion limit exceeded" => "it is nested too deeply",
        _ => return None,
    })
}

/// Source: toml_parser `src/parser/document.rs` and `src/decoder` 1.1.
fn of_toml(message: &str) -> Option<String> {
    let (what, wanted) = match message.split_once(", expected ") {
        Some((what, wanted)) => (what, Some(wanted)),
        None => (message, None),
    };
    let text = match what {
        "integer number overflowed" => "this number is too large, or has no digits",
        "duplicate key" => "the key is given twice",
        "key with no value" => "behind the key, = and a value are missing",
        "missing value for key" | "missing value" => "a value is missing behind the =",
        "string values must be quoted" | "unquoted string" => {
            "no value is here that can be read, such as a number or a text in quotes"
        }
        "unexpected key or value" => "something stands behind the value",
        "unquoted keys cannot be empty" | "missing key for inline table element" => {
            "a key is missing"
        }
        "invalid key" | "invalid unquoted key" => "this is no key",
        "unclosed array" => "a list has no ] at its end",
        "unclosed table" | "unclosed array table" => "the name of a table has no ] at its end",
        "unclosed inline table" => "a table has no } at its end",
        "extra `=`" | "extra assignment between key-value pairs" => "there is a = too many",
        "extra comma in array" | "extra comma in inline table" => "there is a comma too many",
        "missing comma between array elements" | "missing comma between key-value pairs" => {
            "a comma is missing"
        }
        "cannot recurse further; max recursion depth met" => "it is nested too deeply",
        "invalid key-value pair" => "this is no line of the form key = value",
        "invalid basic string" | "invalid literal string" | "invalid string" => {
            "a text has no quote at its end"
        }
        _ => {
            let wanted = wanted?.replace("literal string", "a text in quotes");
            return Some(format!("{what}; here belongs {}", wanted.replace('`', "")));
        }
    };
    Some(text.to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::num::NonZeroU64;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read")]
    struct File {
        number: Option<u64>,
        small: Option<u32>,
        some: Option<NonZeroU64>,
        signed: Option<i64>,
        fraction: Option<f64>,
        text: Option<String>,
        flag: Option<bool>,
        list: Option<Vec<u64>>,
        pair: Option<(u64, u64)>,
        table: Option<Table>,
        word: Option<Word>,
        either: Option<Either>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read")]
    struct Table {
        key: u64,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Word {
        One,
        Two,
    }

    #[derive(Debug, Deserialize)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "only read")]
    enum Either {
        Number(u64),
        Text(String),
    }

    /// Words of a programmer, and of the readers.
    const FOREIGN: &[&str] = &[
        "expected",
        "u64",
        "u32",
        "i64",
        "f64",
        "variant",
        "struct",
        "enum",
        "field",
        "sequence",
        "map",
        "EOF",
        "invalid type",
        "invalid value",
        "ident",
        "boolean",
        "string",
        "`",
        "parsing",
        "tuple",
        "untagged",
    ];

    #[track_caller]
    fn is_plain(text: &str, words: &str, message: &str) {
        let said = plain(message);
        assert!(said.contains(words), "{text}: {message}: {said}");
        for foreign in FOREIGN {
            assert!(!said.contains(foreign), "{text}: {message}: {said}");
        }
    }

    #[test]
    fn what_toml_says_is_plain() {
        for (text, words) in [
            (
                "number = \"5\"",
                "the text \"5\" stands where a whole number from 0 to 2^64 - 1 belongs",
            ),
            ("number = -1", "the number -1 stands where"),
            ("number = 1.5", "the number 1.5 stands where"),
            ("number = true", "true stands where"),
            ("number = []", "a list stands where"),
            ("number = {}", "a table of keys stands where"),
            ("small = 5_000_000_000", "4,294,967,295"),
            ("some = 0", "a whole number from 1 on"),
            ("signed = \"x\"", "a whole number belongs"),
            ("fraction = \"x\"", "a number belongs"),
            ("text = 5", "the number 5 stands where a text belongs"),
            ("flag = 1", "true or false"),
            ("list = 1", "a list belongs"),
            ("pair = [1]", "a list of 1 stands where a list of 2 belongs"),
            ("table = 1", "a table of keys belongs"),
            ("[table]", "the key \"key\" is missing"),
            ("[table]\nkye = 1", "there is no key \"kye\" here, but key"),
            ("word = \"three\"", "\"three\" is none of one, two"),
            ("word = 5", "here belongs a word"),
            ("{\"word\": \"one\"}", "no line of the form key = value"),
            ("either = []", "of no kind that belongs here"),
            (
                "nmuber = 5",
                "there is no key \"nmuber\" here, but number, small",
            ),
            ("number = 1\nnumber = 2", "twice"),
            ("number", "= and a value are missing"),
            ("number =", "no value is here"),
            ("number = 5 6", "no value is here"),
            ("text = \"x\" y", "behind the value"),
            ("text = x", "quotes"),
            ("text = \"x", "no quote at its end"),
            ("list = [1", "no ] at its end"),
            ("list = [[] []]", "comma"),
            ("list = [1 2]", "no value is here"),
            ("[table", "no ] at its end"),
            ("= 5", "key"),
            ("number = 0x", "no digits"),
            (
                "number = 99999999999999999999",
                "the number 99999999999999999999 stands",
            ),
        ] {
            let error = toml::from_str::<File>(text).unwrap_err();
            is_plain(text, words, error.message());
        }
    }

    #[test]
    fn what_json_says_is_plain() {
        for (text, words) in [
            (
                r#"{"number":"5"}"#,
                "the text \"5\" stands where a whole number from 0 to 2^64 - 1 belongs at line 1 column",
            ),
            (r#"{"number":-1}"#, "the number -1"),
            (r#"{"number":{}}"#, "a table of keys stands where"),
            (
                r#"{"number":null,"text":null,"table":{"key":null}}"#,
                "nothing stands where",
            ),
            (r#"{"text":[]}"#, "a list stands where a text belongs"),
            (r#"{"word":"three"}"#, "\"three\" is none of one, two"),
            (r#"{"wrod":1}"#, "there is no key \"wrod\" here"),
            (
                r#"{"number":1,"number":2}"#,
                "the key \"number\" is given twice",
            ),
            (r#"{"either":true}"#, "of no kind that belongs here"),
            (r#"{"number":1"#, "it ends in the middle of an object"),
            (r#"{"list":[1"#, "it ends in the middle of a list"),
            (r#"{"text":"x"#, "it ends in the middle of a text"),
            (r#"{"number":"#, "it ends where a value belongs"),
            (r#"{"number" 1}"#, "a : is missing"),
            (r#"{"list":[1 2]}"#, "the ] of a list"),
            (r#"{"number":1 "text"}"#, "the } of an object"),
            (r#"{"flag":ture}"#, "true, false or null"),
            (r#"{"number":}"#, "a value belongs here"),
            (r#"{"number":1,}"#, "a comma too many"),
            (r#"{5:1}"#, "in quotes"),
            (r#"{} x"#, "behind the end"),
            ("{\"text\":\"a\nb\"}", "the end of its line"),
            (r#"{"text":"\q"}"#, "a \\ stands"),
            (r#"{"text":"\ud800"}"#, "no character"),
            (r#"{"number":1e999}"#, "too large"),
            (r#"{"number":01}"#, "no number"),
        ] {
            let error = serde_json::from_str::<File>(text).unwrap_err();
            is_plain(text, words, &error.to_string());
        }
    }

    #[test]
    fn other_sentences_stay() {
        for said in [
            "64XiB has no unit",
            "4 KiB (bit 12) must be in the set: Linux refuses every MR without it",
            "",
        ] {
            assert_eq!(plain(said), said);
        }
    }

    #[test]
    fn a_place_has_line_and_key() {
        let text = "base = 1\n\n[limits]\nmax_mr = x\n# a = b\n";
        let at = |byte: usize| Place::of(text, Some(byte..byte)).to_string();
        assert_eq!(at(0), "line 1, base");
        assert_eq!(at(text.find("max_mr").unwrap()), "line 4, limits.max_mr");
        assert_eq!(at(text.find('#').unwrap()), "line 5, limits");
        assert_eq!(Place::of(text, None).line, 1);
        assert_eq!(Place::of("", Some(9..9)), Place { line: 1, key: None });
    }
}
