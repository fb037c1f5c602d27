//! Text of the strings census.

use mitra_inspect::census::Census;

use super::{NAME, bytes, count};
use crate::render::inspect::memory::more;
use crate::render::page::Page;
use crate::render::style::{Ink, Style};
use crate::render::table::{Align, Table};
use crate::render::units;

/// Strings of a group that a line names.
const MEMBERS: usize = 4;

pub(super) fn strings(census: &Census, has_contents: bool, rows: usize, style: &Style) -> String {
    let mut page = Page::new(style);
    page.heading("Strings in anonymous memory");
    let error = if census.error_bound == 0 {
        "counts are exact".to_owned()
    } else {
        format!("counts are too high by at most {}", count(census.error_bound))
    };
    page.paragraph(
        2,
        4,
        None,
        &format!(
            "{} strings of {} characters or more, {}, about {} different ones, in {} that were read; {error}",
            count(census.strings),
            census.min_chars,
            bytes(census.string_bytes),
            units::number(census.distinct_estimate as f64),
            bytes(census.bytes_scanned)
        ),
    );
    let is_hidden = census.entries.iter().all(|entry| entry.text.is_empty());
    if is_hidden && !has_contents {
        page.paragraph(
            2,
            4,
            Some(Ink::Faint),
            "what they say is not shown; --strings shows it, without secrets",
        );
    }
    let mut out = page.finish();
    let named = |text: &str, id: &str| {
        if text.is_empty() {
            format!("#{}", id.get(..8).unwrap_or(id))
        } else {
            format!("\"{}\"", shortened_end(text))
        }
    };
    let mut table = Table::new(&[
        ("COPIES", Align::Right),
        ("BYTES", Align::Right),
        ("LENGTH", Align::Right),
        ("STRING", Align::Left),
    ]);
    for entry in census.entries.iter().take(rows) {
        let unsure = if entry.error > 0 { "≤ " } else { "" };
        table.row([
            format!("{unsure}{}", count(entry.count)),
            bytes(entry.bytes),
            count(entry.length_bytes),
            named(&entry.text, &entry.id),
        ]);
    }
    out.push_str(&table.render(style));
    out.push_str(&more(census.entries.len(), rows, style));
    if !census.groups.is_empty() {
        let heads = [
            ("COPIES OF EACH", Align::Right),
            ("STRINGS", Align::Right),
            ("BYTES", Align::Right),
            ("EQUALLY OFTEN: PARTS OF THE SAME OBJECT", Align::Left),
        ];
        let mut table = Table::new(&heads);
        for group in census.groups.iter().take(rows / 2) {
            let names: Vec<String> =
                group.members.iter().take(MEMBERS).map(|member| named(&member.text, &member.id)).collect();
            table.row([count(group.count), count(group.strings), bytes(group.bytes), names.join(", ")]);
        }
        out.push('\n');
        out.push_str(&table.render(style));
    }
    if !census.patterns.is_empty() {
        let mut table = Table::new(&[
            ("ABOUT", Align::Right),
            ("BYTES", Align::Right),
            ("STRINGS LIKE, WITH NUMBERS FOR #", Align::Left),
        ]);
        for pattern in census.patterns.iter().take(rows / 2) {
            table.row([count(pattern.count), bytes(pattern.bytes), named(&pattern.text, &pattern.id)]);
        }
        out.push('\n');
        out.push_str(&table.render(style));
    }
    out
}

/// The beginning of a long text.
fn shortened_end(text: &str) -> String {
    if text.chars().count() <= NAME {
        return text.to_owned();
    }
    text.chars().take(NAME - 1).chain(['…']).collect()
}
