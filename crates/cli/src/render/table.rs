//! Columns without lines.

use comfy_table::{Cell, ContentArrangement, Table, presets};

/// Rows as aligned columns, indented by two, without trailing space. The first row is the head.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    if !head.is_empty() {
        table.set_header(head.iter().map(Cell::new).collect::<Vec<_>>());
    }
    for row in rows {
        table.add_row(row.iter().map(Cell::new).collect::<Vec<_>>());
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let text = table.to_string();
    text.lines()
        .map(|line| format!("  {}", line.trim_end()))
        .collect::<Vec<_>>()
        .join("\n")
}
