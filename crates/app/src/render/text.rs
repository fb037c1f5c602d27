//! The report as text, the verdict first.

use mitra_model::Era;
use mitra_model::report::{Culprit, Finding, Incident, Moment, Remedy, Report, Unknown, Window};

use crate::render::card;
use crate::render::changed;
use crate::render::ledger;
use crate::render::page::Page;
use crate::render::proof::{self, Detail, ShownLines};
use crate::render::repeats::{self, Told};
use crate::render::sources::{self, range};
use crate::render::style::{Ink, Style, UNKNOWN, WIDTH_PIPED};
use crate::render::table::Table;
use crate::render::units;

/// The title of a condition by its id.
pub type Title<'a> = &'a dyn Fn(&str) -> Option<&'static str>;

/// Shown conditions that were ruled out, or could not be told; `-v` and `--json` have the others.
const TOLD_MAX: usize = 3;
/// Shown findings; `--json` has the others.
const FINDINGS_MAX: usize = 8;

/// What is shown of a report.
#[derive(Debug, Clone, Copy, Default)]
pub struct Shown {
    pub detail: Detail,
    /// Of several incidents only this one, from 1.
    pub incident: Option<usize>,
}

impl Shown {
    /// With all evidence.
    pub fn all() -> Self {
        Shown { detail: Detail::ALL, incident: None }
    }
}

pub fn report(report: &Report, style: &Style, title: Title<'_>, show: &Shown) -> String {
    let style = &clock_of(report, style);
    let mut page = Page::new(style);
    let mut shown = ShownLines::new(show.detail);
    if report.incidents.is_empty() {
        quiet(&mut page, report, &mut shown, title);
        return page.finish();
    }
    let told = repeats::told(report);
    // Of several the one that cost most is told whole.
    let number = show.incident.or_else(|| told.get(repeats::dearest(&told)).map(|told| told.number));
    let Some(chosen) = number.and_then(|number| repeats::one(report, number)) else { return page.finish() };
    if told.len() > 1 && show.incident.is_none() {
        table(&mut page, &told, chosen.number, report);
    }
    let again = repeats::again(&chosen, report, style);
    one(&mut page, chosen.incident, again.as_deref(), report.window.until, &mut shown, title);
    if show.detail.numbers {
        ledger::text(&mut page, &report.ledger, report.window);
    }
    if let Some(comparison) = &report.comparison {
        sources::comparison(&mut page, comparison, &mut shown);
    }
    findings(&mut page, &report.findings, &mut shown);
    unknown(&mut page, &report.unknown, told_at_most(show.detail));
    sources::files(&mut page, &report.files);
    whole(&mut page, report);
    page.finish()
}

/// The incidents in order of time. The one that is told below has a mark.
fn table(page: &mut Page<'_>, told: &[Told<'_>], chosen: usize, report: &Report) {
    let style = page.style;
    let mut table = Table::of("|>#|ONSET|>LENGTH|>COST|ROOT CAUSE|CULPRIT");
    for Told { number, incident, repeat } in told {
        let end = incident.end.unwrap_or(report.window.until);
        let length = length_between(incident.onset, end).unwrap_or_default();
        let length = if incident.end.is_none() && !length.is_empty() { format!("{length}+") } else { length };
        let times = repeat.map_or_else(String::new, |repeat| format!(" ×{}", repeat.incidents.len()));
        table.row([
            if *number == chosen { "→" } else { "" }.to_owned(),
            number.to_string(),
            style.moment(incident.onset.0),
            length,
            units::short_cost(incident).unwrap_or_default(),
            format!("{}{times}", incident.root_cause.condition),
            who(&incident.root_cause.culprit).unwrap_or_default(),
        ]);
    }
    page.lines(0, &table.render(style));
    page.paragraph(
        0,
        2,
        Some(Ink::Faint),
        "→ cost most and is told below; the others: mitra explain --incident N",
    );
    page.gap();
}

const DAY_S: f64 = 86_400.0;

/// Files seldom name a time zone, so their times are shown unchanged. What is longer than a day has dates.
pub fn clock_of(report: &Report, style: &Style) -> Style {
    let mut style = if report.source == "files" { style.as_written() } else { style.clone() };
    style.names_date = seconds(report.window.since, report.window.until) > DAY_S;
    style
}

/// One sentence: when, what and who in plain words, and the cost. `until` is the end of the window.
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
    let until = style.moment(until.0);
    let lasted = incident.end.and_then(|end| length_between(incident.onset, end));
    let cost = match (units::cost(incident), incident.end, lasted) {
        (Some(cost), Some(_), Some(length)) => format!("; it cost {cost} in {length}"),
        (Some(cost), Some(_), None) => format!("; it cost {cost}"),
        (None, Some(_), Some(length)) => format!("; it lasted {length}"),
        (None, Some(_), None) => String::new(),
        (Some(cost), None, _) if until == UNKNOWN => format!("; it had cost {cost} and was not over"),
        (Some(cost), None, _) => format!("; it had cost {cost} by {until} and was not over"),
        (None, None, _) if until == UNKNOWN => String::new(),
        (None, None, _) => format!("; it was not over by {until}"),
    };
    let onset = style.moment(incident.onset.0);
    if onset == UNKNOWN { format!("{what}{cost}.") } else { format!("{onset}  {what}{cost}.") }
}

/// The verdict without its time, which stands beside it.
pub fn headline(incident: &Incident, until: Moment, title: Title<'_>) -> String {
    let verdict = verdict(incident, until, &Style::plain(WIDTH_PIPED), title);
    verdict.split_once("  ").map_or(verdict.clone(), |(_, what)| what.to_owned())
}

/// The length of an interval whose ends are on one clock.
fn length_between(from: Moment, to: Moment) -> Option<String> {
    let same = Era::of(from.0) == Era::of(to.0) && from.is_known();
    // One moment has no length.
    (same && to.0 > from.0).then(|| units::length(seconds(from, to)))
}

fn one(
    page: &mut Page<'_>,
    incident: &Incident,
    again: Option<&str>,
    until: Moment,
    shown: &mut ShownLines,
    title: Title<'_>,
) {
    let style = page.style;
    let root = &incident.root_cause;
    let is_whole = card::first_screen(page, incident, until, title);
    if let Some(again) = again {
        page.gap();
        page.paragraph(0, 2, Some(Ink::Bad), again);
    }
    if !root.remarks.is_empty() {
        page.gap();
    }
    proof::remarks(page, 0, &root.remarks, shown);
    page.heading("How it came about");
    proof::chain(page, &incident.chain, if is_whole { &root.statement } else { "" }, shown, style, title);
    if !incident.symptoms.is_empty() {
        let named: Vec<&str> = incident.symptoms.iter().map(|id| title(id).unwrap_or(id)).collect();
        page.labelled(2, "noticed as", 10, Some(Ink::Faint), &named.join("; "));
    }
    for other in &incident.other_roots {
        let share = other.share.map_or_else(String::new, |s| format!(", {} of the loss", percent(s)));
        page.gap();
        page.labelled(
            0,
            "Also",
            8,
            Some(Ink::Strong),
            &format!("{} ({}{share})", other.statement, other.condition),
        );
        proof::remarks(page, 10, &other.remarks, shown);
    }
    if !incident.remedies.is_empty() {
        page.heading("What to do");
        remedies(page, 2, &incident.remedies);
    }
    changed::text(page, incident);
    next(page, incident);
    reasons(page, incident, shown.detail);
}

fn remedies(page: &mut Page<'_>, indent: usize, remedies: &[Remedy]) {
    for remedy in remedies {
        page.paragraph(indent, indent, None, &remedy.action);
        for command in remedy.command.lines() {
            page.verbatim(indent + 2, Ink::Command, command);
        }
        let risk = if remedy.risk.is_empty() { "none known" } else { &remedy.risk };
        for (label, text) in [("verify", remedy.verify.as_str()), ("risk", risk)] {
            if !text.is_empty() {
                page.labelled(indent + 2, label, 6, Some(Ink::Faint), text);
            }
        }
    }
}

fn next(page: &mut Page<'_>, incident: &Incident) {
    if !incident.next.is_empty() {
        page.heading("What to measure next");
    }
    for next in &incident.next {
        page.paragraph(2, 2, None, &next.measure);
        for command in next.command.lines() {
            page.verbatim(4, Ink::Command, command);
        }
    }
}

/// What nobody suffers from yet.
fn findings(page: &mut Page<'_>, list: &[Finding], shown: &mut ShownLines) {
    if !list.is_empty() {
        page.heading("Findings: nobody suffers from it yet");
    }
    for finding in list.iter().take(FINDINGS_MAX) {
        // What it becomes, where it is nothing yet.
        let then = if finding.limit_in_seconds.is_some() { "then " } else { "" };
        page.paragraph(2, 4, None, &format!("{} ({then}{})", finding.statement, finding.condition));
        for remark in &finding.remarks {
            page.paragraph(4, 6, None, &format!("- {remark}"));
        }
        proof::evidence(page, 4, &finding.evidence, shown);
        remedies(page, 4, &finding.remedies);
    }
    page.more(list.len(), FINDINGS_MAX);
}

fn reasons(page: &mut Page<'_>, incident: &Incident, detail: Detail) {
    if !incident.ruled_out.is_empty() {
        page.heading("What it is not");
    }
    let most = told_at_most(detail);
    let shown = || incident.ruled_out.iter().take(most);
    let width = shown().map(|r| r.condition.len()).max().unwrap_or(0).min(24);
    for ruled_out in shown() {
        page.labelled(2, &ruled_out.condition, width, None, &ruled_out.because);
    }
    page.more(incident.ruled_out.len(), most);
    unknown(page, &incident.unknown, most);
}

fn told_at_most(detail: Detail) -> usize {
    if detail.numbers { usize::MAX } else { TOLD_MAX }
}

fn unknown(page: &mut Page<'_>, list: &[Unknown], most: usize) {
    if !list.is_empty() {
        page.heading("What could not be told");
        for u in list.iter().take(most) {
            let command = u.command.as_ref().map(|c| format!(": {c}")).unwrap_or_default();
            page.paragraph(2, 4, None, &format!("{} needs {}{command}", u.condition, u.needs));
        }
        page.more(list.len(), most);
    }
}

/// What applies to the whole window, after the incidents.
fn whole(page: &mut Page<'_>, report: &Report) {
    let style = page.style;
    page.gap();
    if !report.healthy.is_empty() {
        page.labelled(0, "Healthy", 8, Some(Ink::Good), &report.healthy.join(", "));
    }
    if let Some(left_out) = &report.left_out {
        page.labelled(0, "Left out", 8, Some(Ink::Bad), &repeats::left_out(left_out));
    }
    sources::loads(page, report, style);
    sources::recorder(page, report, style);
    let mut looked = range(report.window, style);
    if !report.host.is_empty() {
        looked.push_str(&format!(" on {}", report.host));
    }
    if let Some(baseline) = report.baseline {
        looked.push_str(&format!(", compared with {}", range(baseline, style)));
    }
    page.labelled(0, "Window", 8, Some(Ink::Faint), &looked);
}

/// Without incidents: one sentence, findings, and what was not seen.
fn quiet(page: &mut Page<'_>, report: &Report, shown: &mut ShownLines, title: Title<'_>) {
    let style = page.style;
    if let Some(comparison) = &report.comparison {
        sources::comparison(page, comparison, shown);
        page.gap();
    }
    let ink = if report.observed.is_empty() { Ink::Good } else { Ink::Bad };
    page.paragraph(0, 2, Some(ink), &nothing_wrong(report, style));
    if !report.observed.is_empty() {
        page.heading("What was seen");
        proof::chain(page, &report.observed, "", shown, style, title);
    }
    findings(page, &report.findings, shown);
    unknown(page, &report.unknown, told_at_most(shown.detail));
    sources::files(page, &report.files);
    if let Some(left_out) = &report.left_out {
        page.labelled(0, "Left out", 8, Some(Ink::Bad), &repeats::left_out(left_out));
    }
    sources::loads(page, report, style);
    sources::recorder(page, report, style);
}

/// The sentence if conditions were active but no root cause was found.
const NO_CAUSE: &str =
    "No cause can be named by what was read: see below what was seen, and what it would take.";

/// The sentence in place of a verdict.
pub fn nothing_wrong(report: &Report, style: &Style) -> String {
    let files = report.source == "files";
    if !report.observed.is_empty() {
        return NO_CAUSE.to_owned();
    }
    if files && !report.files.is_empty() && report.files.iter().all(|f| f.formats.is_empty()) {
        let what = if report.files.len() == 1 { "The file was" } else { "None of the files was" };
        return format!(
            "{what} {}recognised: nothing can be told.",
            if report.files.len() == 1 { "not " } else { "" }
        );
    }
    // What is about to hurt comes first.
    let ahead = report.findings.iter().find(|finding| finding.limit_in_seconds.is_some());
    let mut text = ahead.map_or_else(String::new, |finding| format!("{}. ", finding.statement));
    text.push_str(if ahead.is_some() { "No incident yet" } else { "No incident" });
    if !report.host.is_empty() {
        text.push_str(&format!(" on {}", report.host));
    }
    text.push_str(&if files && !sources::is_known(report.window) {
        " in what was read".to_owned()
    } else {
        format!(" from {}", range(report.window, style))
    });
    if !report.healthy.is_empty() {
        text.push_str(&format!(" ({} fine)", report.healthy.join(", ")));
    }
    text.push_str(&ledger::sentence(&report.ledger, files));
    text.push('.');
    text
}

/// `dd (8123)`, or the first other name.
pub fn who(culprit: &Culprit) -> Option<String> {
    if let Some(process) = &culprit.process {
        return Some(culprit.pid.map_or_else(|| process.clone(), |pid| format!("{process} ({pid})")));
    }
    let names = [&culprit.device, &culprit.nic, &culprit.slab, &culprit.path, &culprit.sysctl];
    culprit.group().or_else(|| names.into_iter().flatten().next().map(String::as_str)).map(str::to_owned)
}

/// Everything that is known of the culprit.
pub fn culprit(culprit: &Culprit) -> Option<String> {
    let parts = parts(culprit);
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// The names of the culprit, each with its kind.
pub fn parts(culprit: &Culprit) -> Vec<String> {
    let mut parts = Vec::new();
    if let Some(process) = &culprit.process {
        parts.push(culprit.pid.map_or_else(|| process.clone(), |pid| format!("{process} (pid {pid})")));
    }
    match (&culprit.cgroup_name, &culprit.cgroup) {
        (Some(name), _) => parts.push(name.clone()),
        (None, Some(path)) => parts.push(format!("cgroup {path}")),
        (None, None) => {}
    }
    let named = [
        ("device", &culprit.device),
        ("network device", &culprit.nic),
        ("file", &culprit.path),
        ("slab cache", &culprit.slab),
        ("setting", &culprit.sysctl),
        ("allocator", &culprit.allocator),
        ("library", &culprit.library),
        ("address", &culprit.address),
        ("object", &culprit.object),
    ];
    parts.extend(named.into_iter().filter_map(|(what, name)| Some(format!("{what} {}", name.as_ref()?))));
    parts
}

pub fn window_length(window: Window) -> String {
    units::length(seconds(window.since, window.until))
}

fn seconds(from: Moment, to: Moment) -> f64 {
    mitra_model::series::seconds_between(from.0, to.0)
}

pub fn short_seconds(seconds: f64) -> String {
    if seconds < 10.0 { format!("{seconds:.1} s") } else { format!("{} s", units::grouped(seconds)) }
}

pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::examples;
    use mitra_model::report::Ledger;

    fn title(id: &str) -> Option<&'static str> {
        match id {
            "streaming-read-flood" => Some("somebody reads more than the cache holds"),
            "load-high" => Some("the load average is high"),
            "cpu-quota-throttled" => Some("a group has used up its CPU quota"),
            _ => None,
        }
    }

    /// On terminals of 80 and of 120 columns.
    fn wide(example: &Report, shown: &Shown) -> String {
        let at = |width| format!("[{width}]\n{}\n", report(example, &Style::plain(width), &title, shown));
        [80, 120].map(at).concat()
    }

    #[test]
    fn an_incident() {
        insta::assert_snapshot!(wide(&examples::flood(), &Shown::default()));
    }

    #[test]
    fn two_incidents_and_a_hole() {
        insta::assert_snapshot!(wide(&examples::two(), &Shown::default()));
    }

    #[test]
    fn all_the_evidence() {
        let all = Shown::all();
        insta::assert_snapshot!(wide(&examples::files(), &all));
        let one = Shown { incident: Some(2), ..all };
        let text = report(&examples::two(), &Style::plain(100), &title, &one);
        assert!(
            text.starts_with("ROOT CAUSE  a group has used up its CPU quota")
                && !text.contains("→ cost most")
        );
    }

    #[test]
    fn nothing_wrong() {
        insta::assert_snapshot!(wide(&examples::quiet(), &Shown::default()));
    }

    #[test]
    fn an_incident_from_files() {
        insta::assert_snapshot!(wide(&examples::files(), &Shown::default()));
    }

    #[test]
    fn runs_and_findings() {
        insta::assert_snapshot!(wide(&examples::runs(), &Shown::default()));
    }

    #[test]
    fn times_of_files_are_shown_as_they_stand() {
        let mut files = examples::files();
        files.window = Window { since: Moment(0), until: Moment(3_600_000_000_000) };
        let elsewhere = Style { zone: jiff::tz::TimeZone::fixed(jiff::tz::offset(7)), ..Style::plain(200) };
        let text = report(&files, &elsewhere, &title, &Shown::default());
        assert!(text.contains("1970-01-01 00:00:00 to 01:00:00\n"), "{text}");
        assert!(text.contains("\nSEEN        12:41:21 to 12:42:51 "), "{text}");
    }

    #[test]
    fn the_first_line_is_the_verdict() {
        let text = report(&examples::flood(), &Style::plain(200), &title, &Shown::default());
        assert!(text.starts_with(
            "ROOT CAUSE  somebody reads more than the cache holds (streaming-read-flood, 94 % sure)"
        ));
        let first = text.split("\n\n").next().unwrap();
        for part in ["03:42:07", "dd (8123)", "12.1 GB", "3,010 task-seconds", "not over", "iflag=direct"] {
            assert!(first.contains(part), "{first}");
        }
    }

    #[test]
    fn lines_keep_to_the_width_and_commands_stay_whole() {
        for width in [40, 60, 80, 120] {
            let text = report(&examples::flood(), &Style::plain(width), &title, &Shown::default());
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
            for example in [examples::flood(), examples::files()] {
                let text = report(&example, &style, &title, &Shown::default());
                assert!(!text.contains("\x1b[2J") && !text.contains("\x1b[31m"));
            }
        }
        assert!(!report(&examples::flood(), &Style::plain(80), &title, &Shown::default()).contains('\x1b'));
    }

    #[test]
    fn what_was_not_measured_is_not_zero() {
        let mut quiet = examples::quiet();
        quiet.ledger = Ledger::default();
        let text = report(&quiet, &Style::plain(200), &title, &Shown::default());
        assert!(
            text.contains("lost time could not be measured") && !text.contains(" 0 task-seconds"),
            "{text}"
        );
    }
}
