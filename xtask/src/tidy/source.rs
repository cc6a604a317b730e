//! Just enough of a Rust lexer: code apart from comments and strings, paths, test code.
//!
//! Everything keeps its byte offset, so that an offset in one view is an offset in all of them.

use std::ops::Range;

/// A Rust file in two views of the same length.
#[derive(Debug)]
pub(crate) struct Source {
    /// The text as it is.
    pub(crate) raw: String,
    /// The text with comments and the insides of strings blanked.
    pub(crate) code: String,
    tests: Vec<Range<usize>>,
}

impl Source {
    pub(crate) fn new(raw: &str) -> Self {
        let code = blank(raw);
        let tests = test_regions(&code);
        Self {
            raw: raw.to_owned(),
            code,
            tests,
        }
    }

    /// Whether the offset lies under `#[cfg(test)]`.
    pub(crate) fn in_test(&self, offset: usize) -> bool {
        self.tests.iter().any(|region| region.contains(&offset))
    }

    /// Line number, from 1.
    pub(crate) fn line(&self, offset: usize) -> usize {
        self.raw.as_bytes()[..offset]
            .iter()
            .filter(|b| **b == b'\n')
            .count()
            + 1
    }

    /// Identifiers and keywords of the code.
    pub(crate) fn idents(&self) -> impl Iterator<Item = (usize, &str)> {
        tokens(&self.code).filter(|(_, token)| token.starts_with(is_ident))
    }

    /// The code behind an offset, without leading white space.
    pub(crate) fn after(&self, offset: usize) -> &str {
        self.code[offset..].trim_start()
    }

    /// Every path (`a::b::c`), those of nested `use` trees written out.
    pub(crate) fn paths(&self) -> Vec<(usize, String)> {
        let tokens: Vec<_> = tokens(&self.code).collect();
        let mut found = Vec::new();
        let mut at = 0;
        while let Some((offset, token)) = tokens.get(at).copied() {
            at += 1;
            let is_use = token == "use" && tokens.get(at).is_some_and(|next| next.1 != "<");
            if is_use {
                use_tree(&tokens, &mut at, "", &mut found);
            } else if token.starts_with(is_ident) {
                let mut path = token.to_owned();
                while let (Some((_, "::")), Some((_, next))) = (tokens.get(at), tokens.get(at + 1))
                    && next.starts_with(is_ident)
                {
                    path = format!("{path}::{next}");
                    at += 2;
                }
                found.push((offset, path));
            }
        }
        found
    }

    /// What stands before the `{` of the innermost block around `offset`.
    pub(crate) fn block_head(&self, offset: usize) -> &str {
        let (mut open, mut start) = (Vec::new(), 0);
        for (at, byte) in self.code.bytes().enumerate().take(offset) {
            match byte {
                b'{' => open.push(start..at),
                b'}' => drop(open.pop()),
                b';' => {}
                _ => continue,
            }
            start = at + 1;
        }
        open.pop().map_or("", |head| &self.code[head])
    }
}

/// Whether `path` is `prefix` or lies below it.
pub(crate) fn below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn is_ident(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn use_tree(
    tokens: &[(usize, &str)],
    at: &mut usize,
    prefix: &str,
    found: &mut Vec<(usize, String)>,
) {
    let mut path = prefix.to_owned();
    let mut first = None;
    while let Some((offset, token)) = tokens.get(*at).copied() {
        match token {
            "::" => {}
            "{" => {
                *at += 1;
                while tokens.get(*at).is_some_and(|t| t.1 != "}" && t.1 != ";") {
                    use_tree(tokens, at, &path, found);
                    if tokens.get(*at).is_some_and(|t| t.1 == ",") {
                        *at += 1;
                    }
                }
                if tokens.get(*at).is_some_and(|t| t.1 == "}") {
                    *at += 1;
                }
                return;
            }
            "as" => {
                *at += 2;
                break;
            }
            "self" if !path.is_empty() => {
                first.get_or_insert(offset);
            }
            _ if token == "*" || token.starts_with(is_ident) => {
                first.get_or_insert(offset);
                path = if path.is_empty() {
                    token.to_owned()
                } else {
                    format!("{path}::{token}")
                };
            }
            _ => break,
        }
        *at += 1;
    }
    match first {
        Some(offset) => found.push((offset, path)),
        // Not a tree after all: go on behind it, whatever it is.
        None if tokens
            .get(*at)
            .is_some_and(|t| !matches!(t.1, "," | "}" | ";")) =>
        {
            *at += 1
        }
        None => {}
    }
}

/// Words, `::`, and single characters.
fn tokens(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        at += code[at..].find(|c: char| !c.is_whitespace())?;
        let rest = &code[at..];
        let word = rest.find(|c| !is_ident(c)).unwrap_or(rest.len());
        let len = match word {
            0 if rest.starts_with("::") => 2,
            0 => rest.chars().next()?.len_utf8(),
            n => n,
        };
        at += len;
        Some((at - len, &rest[..len]))
    })
}

/// What `#[cfg(test)]` applies to.
fn test_regions(code: &str) -> Vec<Range<usize>> {
    let mut regions = Vec::new();
    for marker in ["#[cfg(test)]", "#[cfg(all(test,", "#[cfg(any(test,"] {
        for (start, _) in code.match_indices(marker) {
            let body = start + marker.len();
            let open = code[body..].find(['{', ';']).map(|n| body + n);
            let end = match open {
                Some(open) if code.as_bytes()[open] == b'{' => matching_brace(code, open),
                Some(semicolon) => semicolon,
                None => code.len(),
            };
            regions.push(start..end);
        }
    }
    regions
}

fn matching_brace(code: &str, open: usize) -> usize {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => continue,
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

/// Blanks comments and what is inside string and character literals; the quotes stay.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut wipe = |range: Range<usize>| {
        for byte in &mut code[range] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
    };
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        if rest.starts_with(b"//") {
            let end = at + rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
            wipe(at..end);
            at = end;
        } else if rest.starts_with(b"/*") {
            let end = at + block_comment(rest);
            wipe(at..end);
            at = end;
        } else if rest[0] == b'"' {
            let end = at + string(rest);
            wipe(at + 1..end - usize::from(end > at + 1));
            at = end;
        } else if rest[0] == b'\'' {
            let end = at + char_or_lifetime(&text[at..]);
            wipe(at + 1..end.max(at + 2) - 1);
            at = end;
        } else if rest[0] == b'_' || rest[0].is_ascii_alphanumeric() || rest[0] >= 0x80 {
            let word = |b: &u8| *b == b'_' || b.is_ascii_alphanumeric() || *b >= 0x80;
            let len = rest.iter().position(|b| !word(b)).unwrap_or(rest.len());
            at += len;
            let hashes = bytes[at..].iter().take_while(|b| **b == b'#').count();
            let raw = matches!(&rest[..len], b"r" | b"br" | b"cr");
            if raw && bytes.get(at + hashes) == Some(&b'"') {
                let inside = at + hashes + 1;
                let closing = format!("\"{}", "#".repeat(hashes));
                let end = text[inside..]
                    .find(&closing)
                    .map_or(text.len(), |n| inside + n);
                wipe(inside..end);
                at = (end + closing.len()).min(bytes.len());
            }
        } else {
            at += 1;
        }
    }
    // Only whole characters were blanked, so it is still UTF-8.
    String::from_utf8_lossy(&code).into_owned()
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn string(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of a character literal, or of the quote alone where it begins a lifetime.
fn char_or_lifetime(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            chars.next();
            chars
                .find(|(_, c)| *c == '\'')
                .map_or(rest.len(), |(at, _)| at + 1)
        }
        Some(_) => match chars.next() {
            Some((at, '\'')) => at + 1,
            _ => 1,
        },
        None => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_blank_and_offsets_stay() {
        let raw = "let a = \"unsafe é\"; // unsafe\nlet b = r#\"dbg!(\"x\")\"#; /* a /* b */ c */ let c = '\"'; d::<'a>()";
        let source = Source::new(raw);
        assert_eq!(source.code.len(), raw.len());
        let words: Vec<&str> = source.idents().map(|(_, word)| word).collect();
        assert_eq!(words, ["let", "a", "let", "b", "r", "let", "c", "d", "a"]);
        assert!(
            Source::new("'\\'' unsafe '\\u{41}' b'x' r#type")
                .code
                .contains("unsafe")
        );
    }

    #[test]
    fn use_trees_are_written_out() {
        let source = Source::new(
            "use std::{fmt, io::{self, Read as R}, time::*}; fn f() -> impl Sized + use<> { x::y(z) }",
        );
        let paths: Vec<String> = source.paths().into_iter().map(|(_, path)| path).collect();
        for path in [
            "std::fmt",
            "std::io",
            "std::io::Read",
            "std::time::*",
            "x::y",
            "z",
        ] {
            assert!(
                paths.iter().any(|p| p == path),
                "{path} is not in {paths:?}"
            );
        }
    }

    #[test]
    fn test_code_is_known() {
        let source =
            Source::new("fn a() {}\n#[cfg(test)]\nmod tests { fn b() { c() } }\nfn d() {}");
        let of = |word| {
            source
                .idents()
                .find(|(_, w)| *w == word)
                .map(|(at, _)| source.in_test(at))
        };
        assert_eq!(
            (of("a"), of("c"), of("d")),
            (Some(false), Some(true), Some(false))
        );
    }

    #[test]
    fn the_head_of_a_block() {
        let source = Source::new("struct A; impl B for C { fn d() {} unsafe fn e() }");
        let at = source.code.find("unsafe").unwrap_or(0);
        assert_eq!(source.block_head(at).trim(), "impl B for C");
    }
}
