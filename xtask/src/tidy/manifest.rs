//! The little of Cargo.toml that the rules ask for, with line numbers.

/// One `key = value` of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Section without brackets: `dependencies`.
    pub(crate) section: String,
    /// Key up to the first dot: `libc` of `libc.workspace = true`.
    pub(crate) key: String,
    /// The rest, with what stands on following lines of the same value.
    pub(crate) value: String,
    /// Line number, from 1.
    pub(crate) line: usize,
}

impl Entry {
    /// Whether it declares a dependency of the package itself (not one for tests).
    pub(crate) fn is_dependency(&self) -> bool {
        self.section == "dependencies" || self.section == "build-dependencies" || {
            self.section.starts_with("target.") && !self.section.ends_with("dev-dependencies")
        }
    }

    /// Whether it declares a dependency of any kind.
    pub(crate) fn is_any_dependency(&self) -> bool {
        self.is_dependency() || self.section.ends_with("dev-dependencies")
    }
}

pub(crate) fn entries(text: &str) -> Vec<Entry> {
    let mut found: Vec<Entry> = Vec::new();
    let (mut section, mut depth) = (String::new(), 0);
    for (number, line) in text.lines().enumerate() {
        let code = line.split_once(" #").map_or(line, |(code, _)| code).trim();
        let brackets = |c: char| code.matches(c).count();
        if depth > 0 {
            depth = (depth + brackets('[')).saturating_sub(brackets(']'));
            if let Some(last) = found.last_mut() {
                last.value.push_str(code);
            }
        } else if code.is_empty() || code.starts_with('#') {
        } else if let Some(head) = code.strip_prefix('[') {
            section = head.trim_matches(['[', ']']).to_owned();
            // `[dependencies.libc]` declares as well as `libc = ...` does.
            if let Some((kind, name)) = section.rsplit_once("dependencies.") {
                let (kind, name) = (format!("{kind}dependencies"), name.to_owned());
                found.push(Entry {
                    section: kind,
                    key: name,
                    value: String::new(),
                    line: number + 1,
                });
            }
        } else if let Some((key, value)) = code.split_once('=') {
            depth = brackets('[').saturating_sub(brackets(']'));
            let (key, tail) = key.trim().split_once('.').unwrap_or((key.trim(), ""));
            found.push(Entry {
                section: section.clone(),
                key: key.trim_matches('"').to_owned(),
                value: format!("{tail} {}", value.trim()).trim().to_owned(),
                line: number + 1,
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_keys_and_lines() {
        let text = "[package]\nname = \"x\"\n\n[dependencies]\nlibc.workspace = true\na = { b = 1, features = [\n  \"c\",\n] }\n[dev-dependencies.toml]\nversion = \"1\"\n[target.'cfg(unix)'.dependencies]\nd = \"1\"\n";
        let found = entries(text);
        let keys: Vec<(&str, usize)> = found
            .iter()
            .filter(|e| e.is_dependency())
            .map(|e| (e.key.as_str(), e.line))
            .collect();
        assert_eq!(keys, [("libc", 5), ("a", 6), ("d", 12)]);
        assert!(
            found
                .iter()
                .any(|e| e.key == "a" && e.value.contains("\"c\""))
        );
        assert!(
            found
                .iter()
                .any(|e| e.key == "toml" && e.is_any_dependency() && !e.is_dependency())
        );
    }
}
