//! The report for people: what a tired person reads in twenty seconds, the verdict first.

use mitra_model::report::{Culprit, Evidence, Incident, Ledger, Link, Moment, Report, Root, Window};

use crate::render::page::Page;
use crate::render::style::{Ink, Style};
use crate::render::units;

/// Finds the plain words for the id of a condition.
pub type Title<'a> = &'a dyn Fn(&str) -> Option<&'static str>;

/// How many of the things that were ruled out are worth reading; the others are in `--json`.
const RULED_OUT_MAX: usize = 6;
/// How many numbers prove one link.
const EVIDENCE_MAX: usize = 4;

/// The whole report.
#[must_use]
pub fn report(report: &Report, style: &Style, title: Title<'_>) -> String {
    let mut page = Page::new(style);
    if report.incidents.is_empty() {
        quiet(&mut page, report);
        return page.finish();
    }
    if report.incidents.len() > 1 {
        for incident in &report.incidents {
            page.paragraph(0, 2, Some(Ink::Bad), &verdict(incident, report.window.until, style, title));
        }
    }
    for (i, incident) in report.incidents.iter().enumerate() {
        if report.incidents.len() > 1 {
            page.gap();
            let rule = format!("── incident {} of {} ", i + 1, report.incidents.len());
            let fill = style.width.saturating_sub(rule.chars().count());
            page.line(style.paint(Ink::Faint, &format!("{rule}{}", "─".repeat(fill))));
        }
        one(&mut page, incident, report.window.until, style, title);
    }
    ledger(&mut page, &report.ledger, report.window);
    whole(&mut page, report, style);
    page.finish()
}

/// One sentence: when, what and who in plain words, what it cost. `until` is how far it was looked at.
#[must_use]
pub fn verdict(incident: &Incident, until: Moment, style: &Style, title: Title<'_>) -> String {
    let root = &incident.root_cause;
    let what = if root.statement.is_empty() {
        let words = title(&root.condition).unwrap_or(&root.condition);
        match who(&root.culprit) {
            Some(who) => format!("{words}: {who}"),
            None => words.to_owned(),
        }
    } else {
        root.statement.trim_end_matches('.').to_owned()
    };
    let clock = style.clock(until.0);
    let cost = match (incident.lost_task_seconds.map(units::task_seconds), incident.end) {
        (Some(cost), Some(end)) => {
            format!("it cost {cost} in {}", units::length(seconds(incident.onset, end)))
        }
        (None, Some(end)) => format!("it lasted {}", units::length(seconds(incident.onset, end))),
        (Some(cost), None) => format!("it had cost {cost} by {clock} and was not over"),
        (None, None) => format!("it was not over by {clock}"),
    };
    format!("{}  {what}; {cost}.", style.clock(incident.onset.0))
}

fn one(page: &mut Page<'_>, incident: &Incident, until: Moment, style: &Style, title: Title<'_>) {
    let root = &incident.root_cause;
    page.paragraph(0, 2, Some(Ink::Bad), &verdict(incident, until, style, title));
    page.paragraph(2, 2, Some(Ink::Faint), &about(root, title));

    page.heading("How it came about");
    for link in &incident.chain {
        chain_link(page, link, style, title);
    }
    if !incident.symptoms.is_empty() {
        let named: Vec<&str> = incident.symptoms.iter().map(|id| title(id).unwrap_or(id)).collect();
        page.labelled(2, "noticed as", 10, Some(Ink::Faint), &named.join("; "));
    }
    if let Some(culprit) = culprit(&root.culprit) {
        page.gap();
        page.labelled(0, "Culprit", 8, Some(Ink::Strong), &culprit);
    }
    for other in &incident.other_roots {
        let share = other.share.map_or_else(String::new, |s| format!(", {} of the loss", percent(s)));
        page.labelled(
            0,
            "Also",
            8,
            Some(Ink::Strong),
            &format!("{} ({}{share})", other.statement, other.condition),
        );
    }
    remedies(page, incident);
    reasons(page, incident);
}

/// The condition, and how sure it is.
fn about(root: &Root, title: Title<'_>) -> String {
    let mut parts = vec![match title(&root.condition) {
        Some(words) => format!("{}: {words}", root.condition),
        None => root.condition.clone(),
    }];
    parts.push(format!("{} sure", percent(root.confidence)));
    if let Some(share) = root.share {
        parts.push(format!("explains {} of the lost time", percent(share)));
    }
    parts.join("; ")
}

fn chain_link(page: &mut Page<'_>, link: &Link, style: &Style, title: Title<'_>) {
    let lag = if link.lag_s.abs() < 0.5 { String::new() } else { format!("{:+.0} s", link.lag_s) };
    let head = format!("{}  {lag:>6}", style.clock(link.onset.0));
    let words = title(&link.condition).map_or_else(String::new, |words| format!(": {words}"));
    page.labelled(2, &head, 16, None, &format!("{}{words}", link.condition));
    let shown = &link.evidence[..link.evidence.len().min(EVIDENCE_MAX)];
    let names: Vec<String> = shown.iter().map(evidence_name).collect();
    let width = names.iter().map(|n| n.chars().count()).max().unwrap_or(0).min(40);
    for (evidence, name) in shown.iter().zip(&names) {
        page.labelled(20, name, width, Some(Ink::Faint), &movement(evidence));
    }
}

fn evidence_name(evidence: &Evidence) -> String {
    if evidence.entity.is_empty() {
        evidence.metric.clone()
    } else {
        format!("{} {}", evidence.metric, evidence.entity)
    }
}

/// `1.2 MB/s → 710 MB/s`.
fn movement(evidence: &Evidence) -> String {
    let during = units::value(evidence.during, &evidence.unit);
    match evidence.before {
        Some(before) => format!("{} → {during}", units::value(before, &evidence.unit)),
        None => during,
    }
}

fn remedies(page: &mut Page<'_>, incident: &Incident) {
    if !incident.remedies.is_empty() {
        page.heading("What to do");
    }
    for remedy in &incident.remedies {
        page.paragraph(2, 2, None, &remedy.action);
        if !remedy.command.is_empty() {
            page.verbatim(4, Ink::Command, &remedy.command);
        }
        for (label, text) in [("verify", &remedy.verify), ("risk", &remedy.risk)] {
            if !text.is_empty() {
                page.labelled(4, label, 6, Some(Ink::Faint), text);
            }
        }
    }
    if !incident.next.is_empty() {
        page.heading("What to measure next");
    }
    for next in &incident.next {
        page.paragraph(2, 2, None, &next.measure);
        if !next.command.is_empty() {
            page.verbatim(4, Ink::Command, &next.command);
        }
    }
}

fn reasons(page: &mut Page<'_>, incident: &Incident) {
    if !incident.ruled_out.is_empty() {
        page.heading("What it is not");
    }
    let width =
        incident.ruled_out.iter().take(RULED_OUT_MAX).map(|r| r.condition.len()).max().unwrap_or(0).min(24);
    for ruled_out in incident.ruled_out.iter().take(RULED_OUT_MAX) {
        page.labelled(2, &ruled_out.condition, width, None, &ruled_out.because);
    }
    if let Some(more) = incident.ruled_out.len().checked_sub(RULED_OUT_MAX).filter(|n| *n > 0) {
        page.paragraph(2, 2, Some(Ink::Faint), &format!("and {more} more: see --json"));
    }
    if !incident.unknown.is_empty() {
        page.heading("What could not be told");
        let unknown: Vec<String> =
            incident.unknown.iter().map(|u| format!("{} (needs {})", u.condition, u.needs)).collect();
        page.paragraph(2, 2, None, &unknown.join("; "));
    }
}

/// What holds for the whole window, after the incidents.
fn whole(page: &mut Page<'_>, report: &Report, style: &Style) {
    page.gap();
    if !report.healthy.is_empty() {
        page.labelled(0, "Healthy", 8, Some(Ink::Good), &report.healthy.join(", "));
    }
    recorder(page, report, style);
    let mut looked = format!("{} on {}", range(report.window, style), report.host);
    if let Some(baseline) = report.baseline {
        looked.push_str(&format!(", compared with {}", range(baseline, style)));
    }
    page.labelled(0, "Window", 8, Some(Ink::Faint), &looked);
}

fn ledger(page: &mut Page<'_>, ledger: &Ledger, window: Window) {
    if ledger.by_cause.is_empty() && ledger.by_process.is_empty() {
        return;
    }
    let all = ledger.lost_task_seconds.map_or_else(String::new, |lost| {
        format!(": {} in {}", units::task_seconds(lost), window_length(window))
    });
    page.heading(&format!("Time lost in the whole window{all}"));
    let causes: Vec<String> =
        ledger.by_cause.iter().take(5).map(|c| format!("{} {}", c.cause, short_seconds(c.seconds))).collect();
    let processes: Vec<String> = ledger
        .by_process
        .iter()
        .take(5)
        .map(|p| format!("{} ({}) {}", p.name, p.pid, short_seconds(p.seconds)))
        .collect();
    for (label, list) in [("by cause", causes), ("by process", processes)] {
        if !list.is_empty() {
            page.labelled(2, label, 10, Some(Ink::Faint), &list.join(", "));
        }
    }
}

fn recorder(page: &mut Page<'_>, report: &Report, style: &Style) {
    let state = &report.recorder;
    if !state.gaps.is_empty() {
        let gaps: Vec<String> = state
            .gaps
            .iter()
            .take(3)
            .map(|g| {
                format!(
                    "{} for {} ({})",
                    style.clock(g.since.0),
                    units::length(seconds(g.since, g.until)),
                    g.why
                )
            })
            .collect();
        let more = state.gaps.len().saturating_sub(3);
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        page.labelled(0, "Gaps", 8, Some(Ink::Warn), &format!("{}{more}", gaps.join(", ")));
    }
    if !state.unavailable.is_empty() {
        let sources: Vec<String> =
            state.unavailable.iter().map(|u| format!("{} ({})", u.source, u.why)).collect();
        page.labelled(0, "Not seen", 8, Some(Ink::Warn), &sources.join("; "));
    }
}

/// Nothing went wrong: one sentence, and what the recorder did not see.
fn quiet(page: &mut Page<'_>, report: &Report) {
    let style = page.style;
    let mut text = format!("No incident on {} in {}", report.host, range(report.window, style));
    let fine = if report.healthy.is_empty() {
        String::new()
    } else {
        format!(" ({} fine)", report.healthy.join(", "))
    };
    text.push_str(&fine);
    let ledger = &report.ledger;
    match (ledger.lost_task_seconds, ledger.by_cause.first()) {
        (Some(lost), Some(most)) => {
            text.push_str(&format!(
                "; tasks lost {} altogether, most of it to {} ({})",
                units::task_seconds(lost),
                most.cause,
                short_seconds(most.seconds)
            ));
            if let Some(who) = ledger.by_process.first() {
                text.push_str(&format!(", {} ({}) most of all", who.name, who.pid));
            }
        }
        (Some(lost), None) => {
            text.push_str(&format!("; tasks lost {} altogether", units::task_seconds(lost)))
        }
        (None, _) => text.push_str("; lost time could not be measured"),
    }
    text.push('.');
    page.paragraph(0, 2, Some(Ink::Good), &text);
    recorder(page, report, style);
}

/// `dd (8123)`, or whatever else is named.
fn who(culprit: &Culprit) -> Option<String> {
    if let Some(process) = &culprit.process {
        return Some(culprit.pid.map_or_else(|| process.clone(), |pid| format!("{process} ({pid})")));
    }
    let names =
        [&culprit.cgroup, &culprit.device, &culprit.nic, &culprit.slab, &culprit.path, &culprit.sysctl];
    names.into_iter().flatten().next().cloned()
}

/// Everything that is known of the culprit.
fn culprit(culprit: &Culprit) -> Option<String> {
    let mut parts = Vec::new();
    if let Some(process) = &culprit.process {
        parts.push(culprit.pid.map_or_else(|| process.clone(), |pid| format!("{process} (pid {pid})")));
    }
    let named = [
        ("cgroup", &culprit.cgroup),
        ("device", &culprit.device),
        ("network device", &culprit.nic),
        ("file", &culprit.path),
        ("slab cache", &culprit.slab),
        ("setting", &culprit.sysctl),
        ("allocator", &culprit.allocator),
        ("library", &culprit.library),
        ("address", &culprit.address),
    ];
    parts.extend(named.into_iter().filter_map(|(what, name)| Some(format!("{what} {}", name.as_ref()?))));
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// `03:40:00 to 03:50:00`, with dates where the days differ.
fn range(window: Window, style: &Style) -> String {
    let (since, until) = (style.date_clock(window.since.0), style.date_clock(window.until.0));
    let same_day = since.get(..10) == until.get(..10);
    let until = if same_day { until.get(11..).unwrap_or(&until) } else { &until };
    format!("{since} to {until} {}", style.zone_name(window.until.0))
}

fn window_length(window: Window) -> String {
    units::length(seconds(window.since, window.until))
}

fn seconds(from: Moment, to: Moment) -> f64 {
    mitra_model::series::seconds_between(from.0, to.0)
}

fn short_seconds(seconds: f64) -> String {
    if seconds < 10.0 { format!("{seconds:.1} s") } else { format!("{} s", units::grouped(seconds)) }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::examples;

    fn title(id: &str) -> Option<&'static str> {
        match id {
            "streaming-read-flood" => Some("somebody reads more than the cache holds"),
            "load-high" => Some("the load average is high"),
            "cpu-quota-throttled" => Some("a group has used up its CPU quota"),
            _ => None,
        }
    }

    #[test]
    fn an_incident() {
        insta::assert_snapshot!(report(&examples::flood(), &Style::plain(80), &title));
    }

    #[test]
    fn two_incidents_and_a_hole() {
        insta::assert_snapshot!(report(&examples::two(), &Style::plain(100), &title));
    }

    #[test]
    fn nothing_wrong() {
        insta::assert_snapshot!(report(&examples::quiet(), &Style::plain(80), &title));
    }

    #[test]
    fn the_first_line_is_the_verdict() {
        let text = report(&examples::flood(), &Style::plain(200), &title);
        let first = text.lines().next().unwrap();
        for part in ["03:42:07", "dd (8123)", "12.1 GB", "3,010 task-seconds", "not over"] {
            assert!(first.contains(part), "{first}");
        }
    }

    #[test]
    fn lines_keep_to_the_width_and_commands_stay_whole() {
        for width in [40, 60, 80, 120] {
            let text = report(&examples::flood(), &Style::plain(width), &title);
            for line in text.lines().filter(|l| !l.trim_start().starts_with("dd if=")) {
                // A single word may be longer than its column.
                assert!(line.chars().count() <= width.max(60), "{width}: {line}");
            }
            assert!(text.contains("dd if=/data/big iflag=direct bs=4M of=/backup/big"));
        }
    }

    #[test]
    fn names_cannot_send_escape_sequences() {
        let coloured = Style { color: true, ..Style::plain(80) };
        for style in [Style::plain(80), coloured] {
            assert!(!report(&examples::flood(), &style, &title).contains("\x1b[2J"));
        }
        assert!(!report(&examples::flood(), &Style::plain(80), &title).contains('\x1b'));
    }

    #[test]
    fn what_was_not_measured_is_not_zero() {
        let mut quiet = examples::quiet();
        quiet.ledger = Ledger::default();
        let text = report(&quiet, &Style::plain(200), &title);
        assert!(
            text.contains("lost time could not be measured") && !text.contains(" 0 task-seconds"),
            "{text}"
        );
    }
}
