//! Documents that must agree.

use super::{Complaints, complain};
use crate::tree::Tree;

const ENGLISH: &str = "README.md";
const CHINESE: &str = "README.zh-CN.md";

/// What must be the same in both: the level of each heading, and each code block.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    Heading(usize),
    Code(String),
}

fn parts(text: &str) -> Vec<(usize, Part)> {
    let mut parts = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let level = line.chars().take_while(|c| *c == '#').count();
        if let Some(info) = line.strip_prefix("```") {
            let mut code = vec![info];
            code.extend(
                lines
                    .by_ref()
                    .map(|(_, line)| line)
                    .take_while(|l| *l != "```"),
            );
            parts.push((number + 1, Part::Code(code.join("\n"))));
        } else if level > 0 && line[level..].starts_with(' ') {
            parts.push((number + 1, Part::Heading(level)));
        }
    }
    parts
}

pub(super) fn readmes_agree(tree: &Tree, out: &mut Complaints) {
    let (Some(english), Some(chinese)) = (tree.get(ENGLISH), tree.get(CHINESE)) else {
        let missing = if tree.get(ENGLISH).is_none() {
            ENGLISH
        } else {
            CHINESE
        };
        return complain(out, missing, 0, "the file is missing");
    };
    let (ours, theirs) = (parts(english), parts(chinese));
    for pair in ours.iter().zip(&theirs) {
        let ((line, a), (_, b)) = pair;
        if a != b {
            let what = match (a, b) {
                (Part::Code(_), Part::Code(_)) => {
                    format!("this code block is not that of {ENGLISH}, line {line}")
                }
                _ => format!(
                    "a heading or code block differs in kind or level from {ENGLISH}, line {line}"
                ),
            };
            // Whatever follows is shifted: one complaint is enough.
            return complain(out, CHINESE, pair.1.0, what);
        }
    }
    if ours.len() != theirs.len() {
        let what = format!(
            "{} headings and code blocks, {ENGLISH} has {}",
            theirs.len(),
            ours.len()
        );
        complain(out, CHINESE, 0, what);
    }
}

pub(super) fn decisions_listed(tree: &Tree, out: &mut Complaints) {
    let map = tree.get("ARCHITECTURE.md").unwrap_or_default();
    for (path, _) in tree.files() {
        if path.starts_with("docs/decisions/") && path.ends_with(".md") && !map.contains(path) {
            complain(out, path, 0, "ARCHITECTURE.md does not list it");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::expect;
    use super::*;

    #[test]
    fn readmes_say_the_same() {
        let english = "# a\n\ntext\n\n```sh\n# not a heading\nrun\n```\n\n## b\n";
        let good = "# 甲\n\n文\n\n```sh\n# not a heading\nrun\n```\n\n## 乙\n";
        expect(readmes_agree, [(ENGLISH, english), (CHINESE, good)], []);
        let code = good.replace("run", "walk");
        expect(
            readmes_agree,
            [(ENGLISH, english), (CHINESE, &*code)],
            [(CHINESE, 5)],
        );
        let level = good.replace("## 乙", "# 乙");
        expect(
            readmes_agree,
            [(ENGLISH, english), (CHINESE, &*level)],
            [(CHINESE, 10)],
        );
        let short = good.replace("\n## 乙\n", "");
        expect(
            readmes_agree,
            [(ENGLISH, english), (CHINESE, &*short)],
            [(CHINESE, 0)],
        );
        expect(readmes_agree, [(ENGLISH, english)], [(CHINESE, 0)]);
    }

    #[test]
    fn decisions_are_on_the_map() {
        let note = "docs/decisions/0001-x.md";
        let map = "see [x](docs/decisions/0001-x.md)\n";
        expect(
            decisions_listed,
            [(note, "x\n"), ("ARCHITECTURE.md", map)],
            [],
        );
        expect(
            decisions_listed,
            [(note, "x\n"), ("ARCHITECTURE.md", "\n")],
            [(note, 0)],
        );
    }
}
