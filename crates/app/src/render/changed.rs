//! What changed before an incident.

use mitra_model::Change;
use mitra_model::report::{Incident, Moment};

use crate::render::html::escape;
use crate::render::html::sections::enclosed;
use crate::render::page::Page;
use crate::render::style::{Ink, Style};
use crate::render::units;

/// `--json` has more.
const SHOWN_MAX: usize = 8;
/// Lines of a diff that are shown.
const DIFF_MAX: usize = 12;

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
    page.more(incident.changes.len(), SHOWN_MAX);
}

pub fn html(incident: &Incident, style: &Style) -> String {
    let item = |change: &Change| {
        let lines = diff(change).collect::<Vec<_>>().join("\n");
        let diff = enclosed("<pre>", [escape(&lines).into_owned()], "</pre>");
        let when = when(change, incident.onset, style);
        format!("<dt>{}</dt><dd>{}{diff}</dd>\n", escape(&when), escape(&what(change)))
    };
    let changes = incident.changes.iter().map(item);
    enclosed("<dl>\n", changes, "</dl>\n")
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
