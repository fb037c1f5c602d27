//! What is told of the incidents of a report, by `mitra notify`, `mitra send` and over D-Bus, and of devices.

mod devices;
mod meanings;
mod recorder;

pub use self::recorder::Watch;

use mitra_model::SeriesSet;
use mitra_model::report::{Culprit, Finding, Incident, Remedy, Report};
use mitra_notify::{Event, Facts, Message, Now, SCHEMA, Told, incident_id};

use crate::diagnosis::title;
use crate::redact;
use crate::render::style::{Style, clean, clean_lines, rfc3339};
use crate::render::{card, text};

/// Columns of the first screen in a message.
const WIDTH: usize = 100;
const ACTIONS_MAX: usize = 5;

/// What of the recording is read beside the report.
pub const METRICS: &[&str] = &[meanings::LINES, recorder::EACH_FRAME];

/// What is new. `recorded` are the events and [`METRICS`] of the time of the report: what became of devices, and what log lines mean.
pub fn step(told: &mut Told, report: &Report, recorded: &SeriesSet, with_findings: bool) -> Vec<Message> {
    let now = report.incidents.iter().map(|incident| Now {
        onset: incident.onset.0,
        end: incident.end.map(|end| end.0),
        verdict: (&incident.root_cause.condition, culprit(&incident.root_cause.culprit)),
        message: Box::new(|| message(incident, report, recorded)),
    });
    let findings = report.findings.iter().filter(|_| with_findings).map(|found| finding(found, report));
    let devices = devices::changes(&report.host, &recorded.events);
    told.step(now.collect(), findings.collect(), devices, report.window.until.0, rfc3339)
}

/// What is said of an incident by who looks at it once, with the id that it has for who sees it begin.
pub fn of_incident(incident: &Incident, report: &Report) -> Message {
    let id = incident_id(&report.host, &rfc3339(incident.onset.0));
    Message { id, ..message(incident, report, &SeriesSet::default()) }
}

fn message(incident: &Incident, report: &Report, recorded: &SeriesSet) -> Message {
    let root = &incident.root_cause;
    let until = report.window.until;
    let one = Report { incidents: vec![incident.clone()], repeats: Vec::new(), ..report.clone() };
    let whole = text::report(&one, &Style::plain(WIDTH), &title, &text::Shown::default());
    let first_screen = whole.split("\n\n").next().unwrap_or_default();
    Message {
        schema: SCHEMA.to_owned(),
        event: Event::Begun,
        id: String::new(),
        host: report.host.clone(),
        since: rfc3339(incident.onset.0),
        until: incident.end.map(|end| rfc3339(end.0)),
        headline: said(&text::headline(incident, until, &title)),
        condition: root.condition.clone(),
        title: card::words(root, &title),
        unexplained: root.unexplained,
        confidence: root.confidence,
        culprit: culprit(&root.culprit),
        cost: card::cost(incident, until),
        actions: actions(&incident.remedies),
        meanings: meanings::of_incident(incident, until.0, recorded),
        text: clean_lines(&redact::text(first_screen)),
        facts: Some(Facts {
            strength: Some(root.strength),
            cost_seconds: cost_seconds(incident),
            ..facts(&root.culprit)
        }),
        withheld: 0,
    }
}

/// What is said of a finding.
pub fn finding(found: &Finding, report: &Report) -> Message {
    let culprit = culprit(&found.culprit);
    let statement = said(&found.statement);
    Message {
        schema: SCHEMA.to_owned(),
        event: Event::Finding,
        id: format!("{}-{}-{}", report.host, found.condition, culprit.as_deref().unwrap_or("machine")),
        host: report.host.clone(),
        since: rfc3339(report.window.until.0),
        until: None,
        headline: statement.clone(),
        condition: found.condition.clone(),
        title: title(&found.condition).unwrap_or(&found.condition).to_owned(),
        unexplained: false,
        confidence: 1.0,
        culprit,
        cost: None,
        actions: actions(&found.remedies),
        meanings: Vec::new(),
        text: statement,
        facts: Some(facts(&found.culprit)),
        withheld: 0,
    }
}

fn culprit(culprit: &Culprit) -> Option<String> {
    text::culprit(culprit).map(|who| said(&who))
}

/// Whoever waited: what tasks lost, or clients if that is more.
fn cost_seconds(incident: &Incident) -> Option<f64> {
    incident.lost_task_seconds.into_iter().chain(incident.client_wait_seconds).reduce(f64::max)
}

/// The culprit by its most telling name. A process id differs on each host, so it is left out.
fn facts(culprit: &Culprit) -> Facts {
    let names = [
        ("process", culprit.process.as_deref()),
        ("device", culprit.device.as_deref()),
        ("nic", culprit.nic.as_deref()),
        ("path", culprit.path.as_deref()),
        ("sysctl", culprit.sysctl.as_deref()),
        ("slab", culprit.slab.as_deref()),
        ("allocator", culprit.allocator.as_deref()),
        ("library", culprit.library.as_deref()),
        ("address", culprit.address.as_deref()),
        ("cgroup", culprit.group()),
    ];
    let found = names.into_iter().find_map(|(kind, name)| Some((kind, name?)));
    Facts {
        culprit_kind: found.map(|(kind, _)| kind.to_owned()),
        culprit_name: found.map(|(_, name)| said(name)),
        culprit_group: culprit.group().map(said),
        ..Facts::default()
    }
}

/// One line without secrets: names of processes are whatever their users like.
fn said(text: &str) -> String {
    clean(&redact::text(text)).into_owned()
}

fn actions(remedies: &[Remedy]) -> Vec<String> {
    let one = |remedy: &Remedy| match remedy.command.lines().next() {
        Some(command) if !command.is_empty() => format!("{}: {command}", remedy.action),
        _ => remedy.action.clone(),
    };
    remedies.iter().take(ACTIONS_MAX).map(|remedy| said(&one(remedy))).collect()
}
