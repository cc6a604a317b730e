//! Columns without lines.

use unicode_width::UnicodeWidthStr as _;

/// Blanks behind a column.
const GAP: usize = 2;

/// Rows as aligned columns, indented by two, without trailing space. The first row is the head.
// A crate for tables took a sixth of all instructions of a plan.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let head = (!head.is_empty()).then(|| head.to_vec());
    let rows = rows
        .iter()
        .map(|row| row.iter().map(String::as_str).collect());
    let rows: Vec<Vec<&str>> = head.into_iter().chain(rows).collect();
    let mut widths = Vec::new();
    for row in &rows {
        widths.resize(row.len().max(widths.len()), 0);
        for (widest, cell) in widths.iter_mut().zip(row) {
            *widest = cell.lines().map(width).fold(*widest, usize::max);
        }
    }
    let lines = rows.iter().flat_map(|row| lines(row, &widths));
    lines.collect::<Vec<_>>().join("\n")
}

/// The lines of a row: as many as its highest cell has.
fn lines(row: &[&str], widths: &[usize]) -> impl Iterator<Item = String> {
    let height = row.iter().map(|cell| cell.lines().count()).max();
    (0..height.unwrap_or(0).max(1)).map(move |at| {
        let mut line = String::from("  ");
        for (cell, widest) in row.iter().zip(widths) {
            let part = cell.lines().nth(at).unwrap_or_default();
            line.push_str(part);
            line.extend(std::iter::repeat_n(' ', widest - width(part) + GAP));
        }
        let end = line.trim_end().len().max(2);
        line.truncate(end);
        line
    })
}

/// Columns of a terminal that a text takes.
fn width(text: &str) -> usize {
    if text.is_ascii() {
        text.len()
    } else {
        text.width()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(head: &[&str], rows: &[&[&str]], want: &[&str]) {
        let owned = |row: &&[&str]| row.iter().map(|cell| (*cell).to_owned()).collect();
        let rows: Vec<Vec<String>> = rows.iter().map(owned).collect();
        assert_eq!(table(head, &rows), want.join("\n"));
    }

    #[test]
    fn columns_are_aligned_and_nothing_trails() {
        check(
            &["", "need"],
            &[&["length", "1"], &["n", "10", "?"]],
            &["          need", "  length  1", "  n       10    ?"],
        );
        check(&[], &[&["a", ""], &["", ""]], &["  a", "  "]);
        check(&[], &[], &[]);
    }

    #[test]
    fn what_is_counted_is_columns_of_a_terminal() {
        check(
            &[],
            &[&["漢字", "x"], &["é", "x"], &["abcd", "x"]],
            &["  漢字  x", "  é     x", "  abcd  x"],
        );
    }

    #[test]
    fn a_cell_may_have_several_lines() {
        check(
            &["a", "b"],
            &[&["1\n22", "x"], &["3", "y\n\nz"]],
            &["  a   b", "  1   x", "  22", "  3   y", "  ", "      z"],
        );
    }
}
