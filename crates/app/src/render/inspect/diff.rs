//! Text of the growth between snapshots, and of the verdict.

use mitra_diagnose::words;
use mitra_inspect::Diff;
use mitra_inspect::Verdict;
use mitra_inspect::diff::{Amount, DiffRow, Group, RowKind, SnapshotInfo};

use super::memory::more;
use super::{per_hour, shortened, signed};
use crate::render::page::Page;
use crate::render::style::{Ink, Style};
use crate::render::table::{Align, Table};
use crate::render::units;

/// Characters of a name that are shown.
const NAME: usize = 56;
/// Members of a group that a line names.
const MEMBERS: usize = 6;
/// The order of the kinds of rows.
const KINDS: [(RowKind, &str); 10] = [
    (RowKind::Total, "TOTAL"),
    (RowKind::Memory, "MAPPINGS"),
    (RowKind::CHeap, "C HEAP"),
    (RowKind::Chunk, "C CHUNKS OF SO MANY BYTES"),
    (RowKind::String, "STRING"),
    (RowKind::Pattern, "STRINGS LIKE, WITH NUMBERS FOR #"),
    (RowKind::Type, "PYTHON TYPE"),
    (RowKind::Pymalloc, "PYMALLOC"),
    (RowKind::Class, "CLASS"),
    (RowKind::Runtime, "RUN TIME"),
];

/// The whole report.
#[must_use]
pub fn text(diff: &Diff, verdict: &Verdict, rows: usize, style: &Style) -> String {
    let mut page = Page::new(style);
    page.heading(&headline(diff, style));
    verdict_text(verdict, &mut page);
    for doubt in &diff.doubts {
        page.labelled(2, "note", 5, Some(Ink::Warn), doubt);
    }
    let mut out = page.finish();
    out.push_str(&groups(&diff.groups, rows, style));
    for (what, head) in KINDS {
        let list: Vec<&DiffRow> = diff.of(what).collect();
        if !list.is_empty() {
            out.push('\n');
            out.push_str(&table(&list, head, rows, style));
        }
    }
    out
}

/// `worker (4242) on web-17: from 12:00:01 to 12:10:01, 10 min, in which it worked for 3.1 s`.
fn headline(diff: &Diff, style: &Style) -> String {
    let name = |side: &SnapshotInfo| format!("{} ({}) on {}", side.comm, side.pid, side.host);
    if !diff.is_same_process {
        let (before, after) = (&diff.before, &diff.after);
        let at = |side: &SnapshotInfo| {
            let age = side.age_s.map_or(String::new(), |age| format!(", {} old", units::length(age)));
            format!("{} at {}{age}", name(side), style.date_clock(side.time_ns))
        };
        return format!("{} beside {}", at(before), at(after));
    }
    let length = diff.seconds.map_or(String::new(), |s| format!(", {}", units::length(s)));
    let worked = diff
        .worked_s
        .map_or(String::new(), |s| format!(", in which it had {} of CPU time", words::seconds(s)));
    format!(
        "{}: from {} to {}{length}{worked}",
        name(&diff.after),
        style.date_clock(diff.before.time_ns),
        style.date_clock(diff.after.time_ns)
    )
}

/// The verdict and its culprit.
pub fn verdict_text(verdict: &Verdict, page: &mut Page<'_>) {
    let ink = if verdict.kind.is_leak() { Ink::Bad } else { Ink::Strong };
    let sure = match verdict.confidence {
        c if c > 0.0 => format!(", {} sure", words::percent(c)),
        _ => String::new(),
    };
    let rate = verdict.bytes_per_hour.map_or(String::new(), |rate| format!(", {}", per_hour(rate)));
    page.paragraph(2, 2, Some(ink), &format!("{}{rate}{sure}", verdict.kind));
    page.paragraph(4, 4, None, &format!("{}.", verdict.statement));
}

fn groups(groups: &[Group], rows: usize, style: &Style) -> String {
    if groups.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&[
        ("MORE OF EACH", Align::Right),
        ("BYTES", Align::Right),
        ("AN HOUR", Align::Right),
        ("GREW ALIKE: PARTS OF THE SAME OBJECT", Align::Left),
    ]);
    for group in groups.iter().take(rows) {
        let mut names: Vec<String> =
            group.members.iter().take(MEMBERS).map(|m| member(m.what, &shortened(&m.name, NAME))).collect();
        if group.members.len() > MEMBERS {
            names.push(format!("and {} more", group.members.len() - MEMBERS));
        }
        table.row([
            units::grouped(group.growth_count as f64),
            group.growth_bytes.map_or_else(|| "-".to_owned(), signed),
            group.bytes_per_hour.map_or_else(|| "-".to_owned(), per_hour),
            names.join(", "),
        ]);
    }
    format!("\n{}{}", table.render(style), more(groups.len(), rows, style))
}

fn member(what: RowKind, name: &str) -> String {
    match what {
        RowKind::Chunk => format!("chunks of {name}"),
        RowKind::String | RowKind::Pattern => format!("\"{name}\""),
        _ => name.to_owned(),
    }
}

fn table(list: &[&DiffRow], head: &str, rows: usize, style: &Style) -> String {
    let has_counts = list.iter().any(|row| row.growth_count.is_some_and(|count| count != 0));
    let mut heads = vec![
        ("GREW BY", Align::Right),
        ("AN HOUR", Align::Right),
        ("BEFORE", Align::Right),
        ("AFTER", Align::Right),
        ("RATIO", Align::Right),
    ];
    if has_counts {
        heads.push(("COUNT", Align::Right));
    }
    heads.push((head, Align::Left));
    let mut table = Table::new(&heads);
    // What grew most, then what shrank most.
    let mut shown: Vec<&DiffRow> = list.to_vec();
    if shown.len() > rows {
        let shrank = shown.split_off(shown.len() - rows / 4);
        shown.truncate(rows - shrank.len());
        shown.extend(shrank);
    }
    for row in &shown {
        table.row(cells(row, has_counts));
    }
    table.render(style) + &more(list.len(), rows, style)
}

fn cells(row: &DiffRow, has_counts: bool) -> Vec<String> {
    let unknown = || "-".to_owned();
    let bytes = |amount: Option<Amount>| super::bytes(amount.and_then(|amount| amount.bytes));
    let count = |amount: Option<Amount>| {
        amount.and_then(|amount| amount.count).map_or_else(unknown, |count| units::grouped(count as f64))
    };
    let bound = match row.growth_bytes {
        Some(growth) if row.is_bound => {
            if growth > 0 {
                "≥ "
            } else {
                "≤ "
            }
        }
        _ => "",
    };
    let mut cells = vec![
        row.growth_bytes.map_or_else(unknown, |bytes| format!("{bound}{}", signed(bytes))),
        row.bytes_per_hour.map_or_else(unknown, per_hour),
        bytes(row.before),
        bytes(row.after),
        row.ratio.map_or_else(unknown, |ratio| format!("x{ratio:.2}")),
    ];
    if has_counts {
        let (before, after) = (count(row.before), count(row.after));
        cells.push(if before == after { after } else { format!("{before} → {after}") });
    }
    cells.push(shortened(&row.name, NAME));
    cells
}
