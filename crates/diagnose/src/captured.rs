//! What on-demand probes saw inside a view.

use mitra_model::capture::CaptureRow;
use mitra_model::time::SECOND;
use mitra_model::{Event, EventKind, Span};

use crate::condition::Finding;
use crate::view::View;
use crate::words;

/// A capture is armed on a suspicion, so it may end a little after the trouble.
const AFTER_NS: i64 = 60 * SECOND;

/// A row of a capture.
pub struct CapturedRow<'a> {
    /// The capture.
    pub event: &'a Event,
    /// Its kind.
    pub kind: &'a str,
    /// For how many seconds it was armed.
    pub seconds: f64,
    /// The row.
    pub row: &'a CaptureRow,
}

/// The rows of the captures of some kinds that belong to the window.
pub fn rows<'a>(view: &'a View<'_>, kinds: &[&str]) -> Vec<CapturedRow<'a>> {
    let until = view.window.until.saturating_add(AFTER_NS);
    let span = Span { since: view.window.since, until };
    let mut list = Vec::new();
    for event in view.set.events.iter().filter(|e| span.contains(e.real)) {
        if let EventKind::Capture { capture, seconds, tops, .. } = &event.kind
            && kinds.contains(&capture.as_str())
        {
            list.extend(tops.iter().map(|row| CapturedRow { event, kind: capture, seconds: *seconds, row }));
        }
    }
    list
}

/// Those of one process.
pub fn of_process<'a>(view: &'a View<'_>, kinds: &[&str], pid: u32, comm: &str) -> Vec<CapturedRow<'a>> {
    let mut list = rows(view, kinds);
    list.retain(|r| match r.row.pid {
        Some(of) => of == pid,
        None => r.row.comm == comm,
    });
    list
}

/// Rows of all captures of a kind that say the same, added up.
pub struct Top<'a> {
    /// The process, where it is one.
    pub pid: Option<u32>,
    /// Its name.
    pub comm: &'a str,
    /// What the rows have in common.
    pub what: &'a str,
    /// How often in a second of captures.
    pub count_s: f64,
    /// Seconds or bytes in a second of captures.
    pub amount_s: f64,
    /// Of all that the rows of the kind have of the same.
    pub share: f64,
    /// Seconds of the captures that were looked at.
    pub seconds: f64,
    /// The last of them.
    pub event: &'a Event,
}

impl Top<'_> {
    /// `dd (4242)`.
    pub fn who(&self) -> String {
        match self.pid {
            Some(pid) => format!("{} ({pid})", self.comm),
            None => self.comm.to_owned(),
        }
    }

    /// Makes its process the culprit where none is known.
    pub fn blame(&self, finding: &mut Finding) {
        if finding.culprit.process.is_none() && !self.comm.is_empty() {
            finding.culprit.process = Some(self.comm.to_owned());
            finding.culprit.pid = self.pid;
        }
    }

    /// Says in a finding that a probe saw it.
    fn tell(&self, view: &View<'_>, finding: &mut Finding, kind: &str, text: &str, during: f64, unit: &str) {
        finding.remarks.push(format!("captured ({kind}, {}): {text}", words::seconds(self.seconds)));
        finding.evidence.push(view.event_evidence("event.capture", &self.who(), during, unit, self.event));
    }
}

/// The row of a kind that there is most of. `key` says what rows have in common, and leaves out those that are not meant;
/// `by` is what counts, of a row.
pub fn top<'a>(
    view: &'a View<'_>,
    kind: &str,
    key: impl Fn(&'a CaptureRow) -> Option<&'a str>,
    by: fn(&CaptureRow) -> f64,
) -> Option<Top<'a>> {
    let rows = rows(view, &[kind]);
    let mut captures: Vec<(&Event, f64)> = rows.iter().map(|r| (r.event, r.seconds)).collect();
    captures.dedup_by(|a, b| std::ptr::eq(a.0, b.0));
    // Rows of a capture that lasted no time say nothing of a rate.
    let seconds: f64 = captures.iter().map(|(_, seconds)| seconds).sum();
    if seconds <= 0.0 {
        return None;
    }
    let (mut tops, mut sum): (Vec<(Top<'_>, f64)>, f64) = (Vec::new(), 0.0);
    for CapturedRow { event, row, .. } in rows {
        let Some(what) = key(row) else { continue };
        sum += by(row);
        let (count_s, amount_s) = (row.count / seconds, row.amount / seconds);
        let is_same = |(top, _): &&mut (Top<'_>, f64)| {
            (top.pid, top.comm, top.what) == (row.pid, row.comm.as_str(), what)
        };
        if let Some((top, weight)) = tops.iter_mut().find(is_same) {
            (top.count_s, top.amount_s) = (top.count_s + count_s, top.amount_s + amount_s);
            *weight += by(row);
        } else {
            let (pid, comm) = (row.pid, row.comm.as_str());
            tops.push((Top { pid, comm, what, count_s, amount_s, share: 0.0, seconds, event }, by(row)));
        }
    }
    let (top, weight) = tops.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    (weight > 0.0).then(|| Top { share: weight / sum, ..top })
}

/// Captures that are told of beside what a condition makes of them itself.
const TOLD_MAX: usize = 3;
/// Kinds whose rows have bytes; those of the others have seconds.
const OF_BYTES: &[&str] = &["cache", "sockets"];

/// Says what the probes saw that a suspicion of this condition armed, where the condition itself has no use for them.
pub fn add_suspected(view: &View<'_>, id: &str, finding: &mut Finding) {
    if finding.evidence.iter().any(|e| e.metric == "event.capture") {
        return;
    }
    let until = view.window.until.saturating_add(AFTER_NS);
    let span = Span { since: view.window.since, until };
    let events = || view.set.events.iter().filter(|e| span.contains(e.real));
    let suspects = |rule: &str| {
        events().any(|e| match &e.kind {
            EventKind::Suspicion { rule: of, condition: Some(condition), .. } => {
                of == rule && condition == id
            }
            _ => false,
        })
    };
    for event in events() {
        let EventKind::Capture { capture, why, seconds, file, tops, .. } = &event.kind else { continue };
        if !why.strip_prefix("rule ").is_some_and(suspects) {
            continue;
        }
        let is_culprits = |row: &CaptureRow| row.pid.is_some() && row.pid == finding.culprit.pid;
        let weight = |row: &&CaptureRow| (is_culprits(row), row.amount, row.count);
        let most = tops.iter().max_by(|a, b| {
            let (a, b) = (weight(a), weight(b));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.total_cmp(&b.2))
        });
        let Some(row) = most else { continue };
        let who = match row.pid {
            Some(pid) => format!("{} ({pid}) ", row.comm),
            None if row.comm.is_empty() => String::new(),
            None => format!("{} ", row.comm),
        };
        let (amount, unit) = match OF_BYTES.contains(&capture.as_str()) {
            true => (words::bytes(row.amount), "bytes"),
            false => (words::seconds(row.amount), "s"),
        };
        let amount = if row.amount > 0.0 { format!(", {amount} in all") } else { String::new() };
        let show = file.as_deref().map(|file| format!("; mitra capture --show {file}")).unwrap_or_default();
        finding.remarks.push(format!(
            "captured ({capture}, {}): {who}{} times {}{amount}{show}",
            words::seconds(*seconds),
            words::count(row.count),
            row.what
        ));
        let (during, unit) = if row.amount > 0.0 { (row.amount, unit) } else { (row.count, "") };
        finding.evidence.push(view.event_evidence("event.capture", who.trim_end(), during, unit, event));
        if finding.evidence.iter().filter(|e| e.metric == "event.capture").count() >= TOLD_MAX {
            return;
        }
    }
}

/// Names the file that the culprit reads most of, as a probe of the page cache saw it.
pub fn name_file(view: &View<'_>, finding: &mut Finding) {
    let (pid, process) = (finding.culprit.pid, finding.culprit.process.clone());
    let is_culprits = |row: &CaptureRow| match (pid, &process) {
        (Some(pid), _) if row.pid == Some(pid) => true,
        // Threads and children of one program have one name.
        (_, Some(process)) => row.comm == *process,
        (_, None) => true,
    };
    // What is evicted belongs to others.
    let reads =
        |row: &CaptureRow| is_culprits(row) && !row.what.is_empty() && !row.what.starts_with("evicts ");
    let Some(top) = top(view, "cache", |row| reads(row).then_some(row.what.as_str()), |row| row.amount)
    else {
        return;
    };
    let text = format!(
        "{} brought {}/s of {} into the page cache, {} of what it brought in",
        top.who(),
        words::bytes(top.amount_s),
        top.what,
        words::percent(top.share)
    );
    top.tell(view, finding, "cache", &text, top.amount_s, "bytes/s");
    if finding.culprit.path.is_none() && top.what.starts_with('/') && top.share >= 0.5 {
        finding.culprit.path = Some(top.what.to_owned());
    }
    top.blame(finding);
}

/// Names which program is started, and by whom, as a probe of forks saw it.
pub fn name_program(view: &View<'_>, finding: &mut Finding) {
    let started = top(view, "fork", |row| row.what.strip_prefix("starts "), |row| row.count);
    let Some(top) = started else { return };
    let text = format!(
        "{} started {} {} times a second, {} of what was started",
        top.who(),
        top.what,
        words::count(top.count_s),
        words::percent(top.share)
    );
    top.tell(view, finding, "fork", &text, top.count_s, "1/s");
    if top.share >= 0.5 {
        top.blame(finding);
    }
}
