//! A stretch of the archive as records of a log: incidents that are over, and findings.

use std::sync::Arc;

use anyhow::Result;
use mitra_archive::Reader;
use mitra_model::Span;
use mitra_model::report::{Report, Root};
use mitra_model::time::SECOND;
use mitra_notify::{Message, incident_id};
use mitra_send::{AttributeValue, LogRecord, Noted, Sent, SentIncident, Severity};

use super::stretch::Wanted;
use crate::commands::state::incidents::SETTLED_NS;
use crate::render::style::rfc3339;
use crate::{diagnosis, messages};

/// How much is explained at the least: long enough for a cause that builds up.
const WINDOW_NS: i64 = 600 * SECOND;
/// Of an incident that lasts longer only the end is explained.
pub const WINDOW_NS_MAX: i64 = 2 * 3600 * SECOND;
/// An incident that lasts longer is sent as it is then, and again when it is over.
const LASTS_NS: i64 = 3600 * SECOND;
/// Between so many samples a state may come back.
const SETTLED_SAMPLES: i64 = 4;

/// A stretch that was not looked at yet.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    pub from: i64,
    pub until: i64,
    /// Whether nothing is recorded right after it.
    pub is_last: bool,
    /// See [`settled_ns`].
    pub settled_ns: i64,
}

/// An incident this close to the end of a recording may still go on.
pub fn settled_ns(reader: &Reader) -> i64 {
    SETTLED_NS.max(reader.interval_ns().unwrap_or(0).saturating_mul(SETTLED_SAMPLES))
}

/// Explains a stretch, with what is known of its beginning. Each record comes with what is noted once it is taken.
pub fn read(
    reader: &Reader,
    look: Look,
    wanted: &Wanted,
    with_findings: bool,
    sent: &mut Sent,
) -> Result<Vec<(LogRecord, Noted)>> {
    let report = diagnosis::explain(reader, window(look, sent.open_ns), None)?;
    Ok(records(&report, look, wanted, with_findings, sent))
}

/// All of the incidents that are looked at, so that each is explained whole.
fn window(look: Look, open_ns: Option<i64>) -> Span {
    let first = look.until.saturating_sub(WINDOW_NS).min(look.from.saturating_sub(2 * look.settled_ns));
    let since = open_ns.map_or(first, |open| open.saturating_sub(look.settled_ns).min(first));
    Span { since: since.max(look.until.saturating_sub(WINDOW_NS_MAX)), until: look.until }
}

/// What is new in a report. `sent` notes it.
fn records(
    report: &Report,
    look: Look,
    wanted: &Wanted,
    with_findings: bool,
    sent: &mut Sent,
) -> Vec<(LogRecord, Noted)> {
    let settled = if look.is_last { i64::MAX } else { look.until.saturating_sub(look.settled_ns) };
    // What ended before the last look was sent then; an end may be found a little earlier now. What went on then may have ended
    // before a gap since.
    let since = look.from.saturating_sub(2 * look.settled_ns).min(sent.open_ns.unwrap_or(i64::MAX));
    // What ends later is looked at again.
    let again = look.until.saturating_sub(2 * look.settled_ns);
    let seen = report.window.until.0.min(look.until);
    let causes: Arc<[String]> = report.incidents.iter().map(|incident| cause(&incident.root_cause)).collect();
    sent.forget(look.until);
    sent.open_ns = None;
    let mut records = Vec::new();
    for (incident, cause) in report.incidents.iter().zip(causes.iter()) {
        let onset = incident.onset.0;
        let is_over = incident.end.is_some_and(|end| end.0 < settled);
        if incident.end.is_none_or(|end| end.0 >= again) {
            sent.open_ns = Some(sent.open_ns.map_or(onset, |open| open.min(onset)));
        }
        let lasts = incident.end.is_none() && seen.saturating_sub(onset) > LASTS_NS;
        let is_before = incident.end.is_some_and(|end| end.0 < since);
        if is_before || !(is_over || lasts || look.is_last) {
            continue;
        }
        let until_ns = incident.end.map_or(seen, |end| end.0);
        let now = SentIncident {
            id: incident_id(&report.host, &rfc3339(onset)),
            cause: cause.clone(),
            onset_ns: onset,
            until_ns,
            is_open: incident.end.is_none(),
        };
        if let Some(SentIncident { id, onset_ns, .. }) = sent.incident(now.clone(), &causes) {
            let message = messages::of_incident(incident, report);
            let message = Message { id: id.clone(), since: rfc3339(onset_ns), ..message };
            let record = LogRecord { time_ns: until_ns, ..of_incident(&message, look, wanted) };
            let noted = SentIncident { id, ..now };
            records.push((record, Noted::Incident(noted, Arc::clone(&causes))));
        }
    }
    for finding in report.findings.iter().filter(|_| with_findings) {
        let message = messages::finding(finding, report);
        if sent.finding(&message.id, look.until) {
            let noted = Noted::Finding(message.id.clone(), look.until);
            records.push((of_finding(&message, look, wanted), noted));
        }
    }
    records
}

/// What two explanations of one incident have in common, and two incidents at the same time do not. Names of cgroups are left out:
/// they are looked up later than their paths.
fn cause(root: &Root) -> String {
    let culprit = &root.culprit;
    let pid = culprit.pid.map(|pid| pid.to_string());
    let fields = [
        ("process", &culprit.process),
        ("pid", &pid),
        ("cgroup", &culprit.cgroup),
        ("device", &culprit.device),
        ("nic", &culprit.nic),
        ("path", &culprit.path),
        ("slab", &culprit.slab),
        ("sysctl", &culprit.sysctl),
        ("allocator", &culprit.allocator),
        ("library", &culprit.library),
        ("address", &culprit.address),
    ];
    let fields = fields.iter().filter_map(|(field, name)| Some(format!("{field}={}", name.as_ref()?)));
    // No name has a zero byte in it.
    std::iter::once(root.condition.clone()).chain(fields).collect::<Vec<_>>().join("\0")
}

fn of_incident(message: &Message, look: Look, wanted: &Wanted) -> LogRecord {
    let mut record = record(message, look, wanted);
    let mut put = |name: &str, value: AttributeValue| record.attributes.push((name.to_owned(), value));
    put("mitra.incident.id", AttributeValue::Text(message.id.clone()));
    put("mitra.onset", AttributeValue::Text(message.since.clone()));
    if let Some(end) = &message.until {
        put("mitra.end", AttributeValue::Text(end.clone()));
    }
    put("mitra.unexplained", AttributeValue::Bool(message.unexplained));
    put("mitra.confidence", AttributeValue::Number(message.confidence));
    let facts = message.facts.as_ref();
    for (name, number) in [
        ("mitra.strength", facts.and_then(|facts| facts.strength)),
        ("mitra.cost_seconds", facts.and_then(|facts| facts.cost_seconds)),
    ] {
        if let Some(number) = number.filter(|number| number.is_finite()) {
            put(name, AttributeValue::Number(number));
        }
    }
    record.severity = Severity::Warn;
    record.event = "mitra.incident";
    record
}

fn of_finding(message: &Message, look: Look, wanted: &Wanted) -> LogRecord {
    let mut record = record(message, look, wanted);
    record.attributes.push(("mitra.finding.id".to_owned(), AttributeValue::Text(message.id.clone())));
    record
}

/// What every record has: the labels of the output, the root cause and the culprit. `mitra.culprit` is no prefix of another
/// name, which would be an object and a text at once where attributes become JSON.
fn record(message: &Message, look: Look, wanted: &Wanted) -> LogRecord {
    let (host, mut attributes) = about(&wanted.labels(&message.host, &[]));
    let facts = message.facts.clone().unwrap_or_default();
    for (name, value) in [
        ("mitra.root", Some(message.condition.clone())),
        ("mitra.culprit", message.culprit.clone()),
        ("mitra.culprit_kind", facts.culprit_kind),
        ("mitra.culprit_name", facts.culprit_name),
        ("mitra.culprit_group", facts.culprit_group),
    ] {
        if let Some(value) = value {
            attributes.push((name.to_owned(), AttributeValue::Text(value)));
        }
    }
    LogRecord {
        time_ns: look.until,
        observed_ns: look.until,
        severity: Severity::Info,
        event: "mitra.finding",
        body: message.headline.clone(),
        host,
        attributes,
    }
}

/// The host and the attributes that labels make.
pub fn about(labels: &[(Arc<str>, Arc<str>)]) -> (String, Vec<(String, AttributeValue)>) {
    let host = labels.iter().find(|(name, _)| &**name == "host").map(|(_, host)| host.to_string());
    let text =
        |(name, value): &(Arc<str>, Arc<str>)| (name.to_string(), AttributeValue::Text(value.to_string()));
    (host.unwrap_or_default(), labels.iter().map(text).collect())
}

#[cfg(test)]
mod tests {
    use mitra_model::report::{Culprit, Finding, Moment, Window};

    use super::*;
    use crate::render::examples;

    const MINUTE: i64 = 60;

    fn look(from: i64, until: i64) -> Look {
        let (from, until) = (from * SECOND, until * SECOND);
        Look { from, until, is_last: false, settled_ns: SETTLED_NS }
    }

    fn wanted() -> Wanted {
        let text =
            "[[output]]\nto = \"otlp-logs\"\nurl = \"http://[::1]/\"\nlabels = { site = \"berlin\" }\n";
        Wanted::of(&mitra_send::Config::read(text, &|_, _| Ok(())).unwrap().outputs[0])
    }

    /// A report of these incidents, with onset and end in seconds.
    fn report(incidents: &[(i64, Option<i64>, &str)], until: i64) -> Report {
        let mut report = examples::flood();
        let template = report.incidents[0].clone();
        report.window = Window { since: Moment(0), until: Moment(until * SECOND) };
        report.incidents = incidents
            .iter()
            .map(|(onset, end, condition)| {
                let mut incident = template.clone();
                incident.onset = Moment(onset * SECOND);
                incident.end = end.map(|end| Moment(end * SECOND));
                incident.root_cause.condition = (*condition).to_owned();
                incident
            })
            .collect();
        report.findings = vec![Finding {
            condition: "fd-growth".to_owned(),
            culprit: Culprit { process: Some("java".to_owned()), ..Culprit::default() },
            statement: "java opens files and closes none".to_owned(),
            remarks: Vec::new(),
            evidence: Vec::new(),
            remedies: Vec::new(),
            limit_in_seconds: None,
        }];
        report
    }

    fn text(record: &LogRecord, wanted: &str) -> Option<String> {
        let (_, value) = record.attributes.iter().find(|(name, _)| name == wanted)?;
        match value {
            AttributeValue::Text(text) => Some(text.clone()),
            other => Some(format!("{other:?}")),
        }
    }

    /// The roots of what is sent of each look, without findings, with an end or not.
    fn looked(sent: &mut Sent, from: i64, until: i64, incidents: &[(i64, Option<i64>, &str)]) -> Vec<String> {
        let found = records(&report(incidents, until), look(from, until), &wanted(), false, sent);
        let one = |(record, _): &(LogRecord, Noted)| {
            let id = text(record, "mitra.incident.id").unwrap();
            let end =
                text(record, "mitra.end").map_or_else(String::new, |end| format!(" until {}", &end[11..19]));
            format!("{} {}{end}", text(record, "mitra.root").unwrap(), &id["web-17-1970-01-01T".len()..][..8])
        };
        found.iter().map(one).collect()
    }

    #[test]
    fn an_incident_is_sent_when_it_is_over_and_stays_so() {
        let (mut sent, none) = (Sent::default(), Vec::<String>::new());
        assert_eq!(looked(&mut sent, 0, 10 * MINUTE, &[(500, None, "disk-hog")]), none);
        assert_eq!(sent.open_ns, Some(500 * SECOND));
        // It may go on.
        assert_eq!(looked(&mut sent, 10 * MINUTE, 11 * MINUTE, &[(500, Some(640), "disk-hog")]), none);
        let both = [(500, Some(640), "disk-hog"), (700, Some(715), "swap-thrash")];
        let said = looked(&mut sent, 11 * MINUTE, 12 * MINUTE, &both);
        assert_eq!(said, ["disk-hog 00:08:20 until 00:10:40"]);
        assert_eq!(sent.open_ns, Some(500 * SECOND), "the next look may see it, too");
        let said = looked(&mut sent, 12 * MINUTE, 13 * MINUTE, &both);
        assert_eq!(said, ["swap-thrash 00:11:40 until 00:11:55"], "each once");
        assert_eq!(sent.open_ns, Some(700 * SECOND));
        assert_eq!((looked(&mut sent, 13 * MINUTE, 14 * MINUTE, &both), sent.open_ns), (none, None));
    }

    #[test]
    fn two_at_the_same_time_are_sent_and_a_name_that_is_learned_late_makes_no_third() {
        let look = look(600, 800);
        let mut sent = Sent::default();
        let mut report = report(
            &[(650, Some(700), "disk-hog"), (650, Some(710), "disk-hog"), (650, Some(710), "disk-hog")],
            800,
        );
        report.incidents[1].root_cause.culprit.device = Some("vdb".to_owned());
        report.incidents[2].root_cause.culprit.sysctl = Some("vdb".to_owned());
        assert_eq!(records(&report, look, &wanted(), false, &mut sent).len(), 3);
        for incident in &mut report.incidents {
            incident.onset.0 += SECOND;
            incident.root_cause.culprit.cgroup_name = Some("backup.service".to_owned());
        }
        assert!(records(&report, look, &wanted(), false, &mut sent).is_empty());
    }

    #[test]
    fn what_was_over_before_the_first_look_is_not_sent() {
        let ended = [(500, Some(640), "disk-hog")];
        assert!(looked(&mut Sent::default(), 20 * MINUTE, 21 * MINUTE, &ended).is_empty());
    }

    #[test]
    fn what_went_on_before_a_gap_is_sent_after_it() {
        let mut sent = Sent::default();
        sent.open_ns = Some(500 * SECOND);
        let said = looked(&mut sent, 900, 1_200, &[(500, Some(600), "disk-hog")]);
        assert_eq!(said, ["disk-hog 00:08:20 until 00:10:00"]);
        assert_eq!(sent.open_ns, None);
    }

    #[test]
    fn a_long_one_is_explained_whole_as_long_as_it_is_looked_at() {
        let (mut sent, none) = (Sent::default(), Vec::<String>::new());
        let mut at = |minute: i64, one: (i64, Option<i64>, &str)| {
            let (from, until) = ((minute - 1) * MINUTE, minute * MINUTE);
            let since = window(look(from, until), sent.open_ns).since / SECOND;
            (since, looked(&mut sent, from, until, &[one]))
        };
        let whole = (600, Some(1_500), "disk-hog");
        assert_eq!(at(25, (600, None, "disk-hog")), (900, none.clone()));
        assert_eq!(at(26, whole), (540, none.clone()));
        assert_eq!(at(27, whole), (540, vec!["disk-hog 00:10:00 until 00:25:00".to_owned()]));
        assert_eq!(at(28, whole), (540, none.clone()));
        // Now only its end is seen, for which another cause may be found.
        assert_eq!(at(29, (1_140, Some(1_500), "swap-thrash")), (1_140, none));
    }

    #[test]
    fn after_a_part_of_the_records_only_the_others_are_sent() {
        let report = report(&[(500, Some(600), "disk-hog"), (500, Some(600), "swap-thrash")], 800);
        let mut sent = Sent::default();
        let found = records(&report, look(600, 800), &wanted(), true, &mut sent.clone());
        assert_eq!(found.len(), 3);
        sent.note(found[0].1.clone());
        sent.note(found[2].1.clone());
        let rest = records(&report, look(600, 800), &wanted(), true, &mut sent);
        let roots: Vec<_> = rest.iter().map(|(record, _)| text(record, "mitra.root").unwrap()).collect();
        assert_eq!(roots, ["swap-thrash"]);
    }

    #[test]
    fn a_recorder_that_looks_seldom_is_waited_for_longer() {
        let ended = report(&[(500, Some(1_000), "disk-hog")], 1_200);
        let count = |settled_s: i64| {
            let look = Look { settled_ns: settled_s * SECOND, ..look(900, 1_200) };
            records(&ended, look, &wanted(), false, &mut Sent::default()).len()
        };
        assert_eq!((count(60), count(400)), (1, 0));
        let slow = Look { settled_ns: 2_400 * SECOND, ..look(9_000, 9_300) };
        assert_eq!(window(slow, None).since, 4_200 * SECOND, "all that it looks at");
    }

    #[test]
    fn of_what_goes_on_only_what_was_recorded_counts() {
        let mut report = report(&[(0, None, "disk-hog")], 2 * 3_600);
        report.window.until = Moment(3_000 * SECOND);
        let records = |is_last: bool| {
            let look = Look { is_last, ..look(6_900, 7_200) };
            records(&report, look, &wanted(), false, &mut Sent::default())
        };
        assert!(records(false).is_empty());
        assert_eq!(records(true)[0].0.time_ns, 3_000 * SECOND);
    }

    #[test]
    fn one_that_lasts_is_sent_after_an_hour_and_at_its_end() {
        let mut sent = Sent::default();
        let mut look = |until: i64, end: Option<i64>| {
            let minutes = until * MINUTE;
            looked(&mut sent, minutes - MINUTE, minutes, &[(0, end.map(|end| end * MINUTE), "disk-hog")])
        };
        assert!(look(60, None).is_empty());
        assert_eq!(look(62, None), ["disk-hog 00:00:00"]);
        assert!(look(90, None).is_empty());
        // Its end is not settled: it is no more news that it lasts.
        assert!(look(91, Some(91)).is_empty());
        assert_eq!(look(93, Some(91)), ["disk-hog 00:00:00 until 01:31:00"]);
    }

    #[test]
    fn at_the_end_of_a_recording_nothing_is_waited_for() {
        let look = Look { is_last: true, ..look(0, 700) };
        let report = report(&[(500, Some(699), "disk-hog"), (690, None, "swap-thrash")], 700);
        let found = records(&report, look, &wanted(), true, &mut Sent::default());
        let found: Vec<LogRecord> = found.into_iter().map(|(record, _)| record).collect();
        let kinds: Vec<&str> = found.iter().map(|record| record.event).collect();
        assert_eq!(kinds, ["mitra.incident", "mitra.incident", "mitra.finding"]);
        assert_eq!((text(&found[1], "mitra.end"), found[1].time_ns), (None, 700 * SECOND));
        let one = &found[0];
        assert_eq!((one.severity, one.time_ns, one.host.as_str()), (Severity::Warn, 699 * SECOND, "web-17"));
        for (name, value) in [
            ("host", "web-17"),
            ("site", "berlin"),
            ("mitra.incident.id", "web-17-1970-01-01T00:08:20.000Z"),
            ("mitra.onset", "1970-01-01T00:08:20.000Z"),
            ("mitra.end", "1970-01-01T00:11:39.000Z"),
            ("mitra.culprit_kind", "process"),
            ("mitra.culprit_name", "dd"),
            ("mitra.unexplained", "Bool(false)"),
            ("mitra.strength", "Number(0.94)"),
            ("mitra.cost_seconds", "Number(3010.0)"),
        ] {
            assert_eq!(text(one, name).as_deref(), Some(value), "{name}");
        }
        assert_eq!(found[2].severity, Severity::Info);
        assert_eq!(text(&found[2], "mitra.finding.id").as_deref(), Some("web-17-fd-growth-java"));
        assert!(found.iter().all(|record| !record.body.is_empty() && !record.body.contains('\n')));
        // Where attributes become JSON, a name that is also a prefix is refused.
        let names: Vec<&String> = one.attributes.iter().map(|(name, _)| name).collect();
        assert!(!names.iter().any(|a| names.iter().any(|b| b.starts_with(&format!("{a}.")))), "{names:?}");
    }

    #[test]
    fn a_window_has_the_whole_of_what_is_not_over_and_a_bound() {
        let early = look(3_000, 3_060);
        let since = |open: Option<i64>| window(early, open.map(|open| open * SECOND)).since / SECOND;
        assert_eq!((since(None), since(Some(3_050)), since(Some(1_000))), (2_460, 2_460, 940));
        let late = look(90_000, 90_300);
        assert_eq!(window(late, Some(0)).since, late.until - WINDOW_NS_MAX);
    }
}
