//! Tables of text.

use crate::render::style::{Ink, Style, clean, wrap};

/// Columns that the last one needs beside the others.
const LAST_MIN: usize = 24;
/// Its indent below them.
const BELOW: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// For text.
    Left,
    /// For numbers.
    Right,
}

/// A table with a heading. Columns are as wide as their widest cell.
pub struct Table {
    heads: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(heads: &[(&str, Align)]) -> Self {
        Table::with(heads.iter().map(|(head, align)| ((*head).to_owned(), *align)))
    }

    /// The same from `NAME|>NUMBER|TEXT`, where `>` aligns a column to the right.
    pub fn of(heads: &str) -> Self {
        Table::with(heads.split('|').map(|head| match head.strip_prefix('>') {
            Some(head) => (head.to_owned(), Align::Right),
            None => (head.to_owned(), Align::Left),
        }))
    }

    pub fn with(heads: impl IntoIterator<Item = (String, Align)>) -> Self {
        let heads = heads.into_iter().map(|(head, align)| (clean(&head).into_owned(), align));
        Table { heads: heads.collect(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| clean(&cell).into_owned()).collect());
    }

    /// The text. The last column is not padded, and is wrapped if the line would be too long.
    pub fn render(&self, style: &Style) -> String {
        let mut widths: Vec<usize> = self.heads.iter().map(|(head, _)| head.chars().count()).collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let heads: Vec<String> = self.heads.iter().map(|(head, _)| head.clone()).collect();
        let mut out = style.paint(Ink::Strong, self.lay_out(&heads, &widths, usize::MAX).trim_end());
        out.push('\n');
        for row in &self.rows {
            out.push_str(&self.lay_out(row, &widths, style.width));
        }
        out
    }

    fn lay_out(&self, cells: &[String], widths: &[usize], line_max: usize) -> String {
        let mut out = String::new();
        let last = self.heads.len().saturating_sub(1);
        let mut at = 0;
        for (i, (cell, (_, align))) in cells.iter().zip(&self.heads).enumerate() {
            let width = widths.get(i).copied().unwrap_or(0);
            let fill = width.saturating_sub(cell.chars().count());
            if i > 0 {
                out.push_str("  ");
                at += 2;
            }
            match align {
                Align::Right => out.push_str(&format!("{:fill$}{cell}", "")),
                Align::Left if i == last => {
                    let room = line_max.saturating_sub(at);
                    // A narrow column of broken words cannot be read: it goes below the others.
                    let is_below = room < LAST_MIN && cell.chars().count() > room;
                    let at = if is_below { BELOW } else { at };
                    let lines = wrap(cell, line_max.saturating_sub(at));
                    let first = if is_below { format!("\n{:at$}", "") } else { String::new() };
                    out.push_str(&first);
                    out.push_str(&lines.join(&format!("\n{:at$}", "")));
                }
                Align::Left => out.push_str(&format!("{cell}{:fill$}", "")),
            }
            at += width;
        }
        let mut out = out.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
        out.push('\n');
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_the_last_one_is_broken() {
        let mut table = Table::of("NAME|>N|WHY");
        table.row(["a".into(), "7".into(), "short".into()]);
        table.row(["bcdef".into(), "1200".into(), "a reason that is longer than the line would be".into()]);
        let text = table.render(&Style::plain(40));
        assert_eq!(
            text,
            "NAME      N  WHY\n\
             a         7  short\n\
             bcdef  1200  a reason that is longer\n             than the line would be\n"
        );
        let text = table.render(&Style::plain(30));
        assert!(
            text.ends_with("bcdef  1200\n    a reason that is longer\n    than the line would be\n"),
            "{text}"
        );
    }
}
