//! What was changed before an incident, for people.

use mitra_model::Change;
use mitra_model::report::{Incident, Moment};

use crate::render::html::escape;
use crate::render::page::Page;
use crate::render::style::{Ink, Style};
use crate::render::units;

/// More is in `--json`.
const SHOWN_MAX: usize = 8;
/// Lines of a difference that are worth reading at once.
const DIFF_MAX: usize = 12;

/// The section of the report in text.
pub fn text(page: &mut Page<'_>, incident: &Incident) {
    if incident.changes.is_empty() {
        return;
    }
    page.heading("What was changed before");
    for change in incident.changes.iter().take(SHOWN_MAX) {
        let line = format!("{}  {}", when(change, incident.onset, page.style), what(change));
        page.paragraph(2, 4, None, &line);
        for line in diff(change) {
            page.verbatim(6, Ink::Faint, line);
        }
    }
    if let Some(more) = incident.changes.len().checked_sub(SHOWN_MAX).filter(|n| *n > 0) {
        page.paragraph(2, 2, Some(Ink::Faint), &format!("and {more} more: see --json"));
    }
}

/// The section of the page.
pub fn html(incident: &Incident, style: &Style) -> String {
    if incident.changes.is_empty() {
        return String::new();
    }
    let mut html = "<h2>What was changed before</h2>\n<dl>\n".to_owned();
    for change in &incident.changes {
        let when = when(change, incident.onset, style);
        html.push_str(&format!("<dt>{}</dt><dd>{}", escape(&when), escape(&what(change))));
        let lines: Vec<&str> = diff(change).collect();
        if !lines.is_empty() {
            html.push_str(&format!("<pre>{}</pre>", escape(&lines.join("\n"))));
        }
        html.push_str("</dd>\n");
    }
    html.push_str("</dl>\n");
    html
}

fn what(change: &Change) -> String {
    format!("{} {}", change.kind.name(), change.words())
}

/// `14:03:11 (5 min before)`.
fn when(change: &Change, onset: Moment, style: &Style) -> String {
    let ago = onset.0.saturating_sub(change.at.0);
    let clock = style.clock(change.at.0);
    let far = units::length(ago.max(0) as f64 / 1e9);
    if ago < 1_000_000_000 { format!("{clock} (as it began)") } else { format!("{clock} ({far} before)") }
}

fn diff(change: &Change) -> impl Iterator<Item = &str> {
    change.diff.iter().flat_map(|diff| diff.lines()).take(DIFF_MAX)
}
