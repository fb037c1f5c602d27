//! Which incidents and findings an output has sent. Explanations of two stretches may have the same one.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mitra_model::incident_id::free_id;
use mitra_model::wall_clock::{REMEMBERED_NS, WallClock, is_remembered};
use serde::{Deserialize, Serialize};

use crate::position::{read_state, replace};

const SECOND: i64 = 1_000_000_000;
/// Onsets and ends of one incident in two explanations differ by less.
const SAME_NS: i64 = 5 * SECOND;
/// So many are remembered, of which the oldest go first.
const KEPT_MAX: usize = 500;

/// An incident as it was sent, or as it is to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentIncident {
    /// The id of its records.
    pub id: String,
    /// The root cause and the culprit, by which it is told from others at the same time.
    pub cause: String,
    /// Nanoseconds.
    pub onset_ns: i64,
    /// When it ended, or until when it was seen.
    pub until_ns: i64,
    /// Whether it goes on.
    pub is_open: bool,
}

/// What a record is remembered by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Noted {
    /// An incident, and the causes of all incidents of its report.
    Incident(SentIncident, Arc<[String]>),
    /// The id of a finding, and when.
    Finding(String, i64),
}

/// What was sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sent {
    /// When the first of those incidents began that the next explanation may have: it begins there.
    pub open_ns: Option<i64>,
    incidents: Vec<SentIncident>,
    /// By id, when.
    findings: Vec<(String, i64)>,
    /// By which clock all times are, as of a position.
    #[serde(flatten)]
    clock: WallClock,
    #[serde(skip)]
    path: PathBuf,
}

impl Sent {
    /// Reads what this output has sent. What is damaged is begun anew, which is told.
    ///
    /// # Errors
    /// Where it is there and cannot be read: what it holds would be sent again.
    pub fn open(dir: &Path, name: &str) -> Result<(Sent, Option<String>), String> {
        let path = dir.join(format!("{name}.sent"));
        let (sent, why) = read_state::<Sent>(&path)?;
        Ok((Sent { path, ..sent }, why))
    }

    /// Writes it to the disk, where it was opened.
    ///
    /// # Errors
    /// Where that fails; what was there before is still there.
    pub fn save(&self) -> io::Result<()> {
        if self.path.as_os_str().is_empty() {
            return Ok(());
        }
        replace(&self.path, &serde_json::to_vec(self)?)
    }

    /// The boot that its times are of.
    #[must_use]
    pub fn boot_id(&self) -> &str {
        self.clock.boot_id()
    }

    /// From now on times are of this boot, to whose boot time so much is added. If that was another number before, all times move.
    pub fn on_clock(&mut self, boot_id: &str, offset_ns: i64) {
        let moved = self.clock.set(boot_id, offset_ns);
        let incidents = self.incidents.iter_mut().flat_map(|one| [&mut one.onset_ns, &mut one.until_ns]);
        let findings = self.findings.iter_mut().map(|(_, at)| at);
        for time in incidents.chain(findings).chain(&mut self.open_ns) {
            *time = time.saturating_add(moved);
        }
    }

    /// Notes a record that was taken, or refused for good.
    pub fn note(&mut self, noted: Noted) {
        match noted {
            Noted::Incident(now, causes) => _ = self.incident(now, &causes),
            Noted::Finding(id, at_ns) => _ = self.finding(&id, at_ns),
        }
    }

    /// Notes an incident of a report with incidents of these causes. Returns it as it is to be sent, with the id and the onset of its
    /// first record; `None` if it was sent.
    pub fn incident(&mut self, now: SentIncident, causes: &[String]) -> Option<SentIncident> {
        let is_same = |known: &SentIncident| known.cause == now.cause && known.overlaps(&now);
        // While one goes on, another cause may be found for it.
        let has_changed =
            |known: &SentIncident| known.is_open && known.overlaps(&now) && !causes.contains(&known.cause);
        let place = self.incidents.iter().position(is_same);
        let place = place.or_else(|| self.incidents.iter().position(has_changed));
        let Some(known) = place.and_then(|place| self.incidents.get_mut(place)) else {
            // Two of one report that begin with the same sample are told apart. One that is in no report any more is replaced.
            let is_beside =
                |id: &str| self.incidents.iter().any(|known| known.id == id && causes.contains(&known.cause));
            let now = SentIncident { id: free_id(&now.id, is_beside), ..now };
            self.incidents.push(now.clone());
            return Some(now);
        };
        known.cause = now.cause;
        known.until_ns = known.until_ns.max(now.until_ns);
        // It is over only now.
        let is_news = known.is_open && !now.is_open;
        known.is_open &= now.is_open;
        is_news.then(|| known.clone())
    }

    /// Notes a finding. Returns whether it is to be sent: once a day.
    pub fn finding(&mut self, id: &str, at_ns: i64) -> bool {
        let is_news = !self.findings.iter().any(|(known, _)| known == id);
        if is_news {
            self.findings.push((id.to_owned(), at_ns));
        }
        is_news
    }

    /// Forgets what is long over.
    pub fn forget(&mut self, now_ns: i64) {
        // An incident that was over so long ago is in no stretch any more.
        let limit = now_ns.saturating_sub(REMEMBERED_NS);
        self.incidents.retain(|incident| incident.until_ns > limit);
        self.findings.retain(|(_, at)| is_remembered(*at, now_ns));
        let surplus = self.incidents.len().saturating_sub(KEPT_MAX);
        self.incidents.drain(..surplus);
        let surplus = self.findings.len().saturating_sub(KEPT_MAX);
        self.findings.drain(..surplus);
    }
}

impl SentIncident {
    /// They overlap, or nearly so.
    fn overlaps(&self, other: &SentIncident) -> bool {
        let begins_within =
            |a: &SentIncident, b: &SentIncident| a.onset_ns <= b.until_ns.saturating_add(SAME_NS);
        begins_within(self, other) && begins_within(other, self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incident(cause: &str, onset_s: i64, until_s: i64, is_open: bool) -> SentIncident {
        SentIncident {
            id: format!("web1-{onset_s}"),
            cause: cause.to_owned(),
            onset_ns: onset_s * SECOND,
            until_ns: until_s * SECOND,
            is_open,
        }
    }

    #[test]
    fn an_incident_is_sent_once_and_once_more_when_it_is_over() {
        let mut sent = Sent::default();
        let mut id = |cause: &str, onset, until, is_open| {
            let causes = [cause.to_owned()];
            sent.incident(incident(cause, onset, until, is_open), &causes).map(|incident| incident.id)
        };
        assert_eq!(id("disk-hog dd", 100, 160, false).as_deref(), Some("web1-100"));
        assert_eq!(id("disk-hog dd", 102, 161, false), None, "the same, explained again");
        assert_eq!(
            id("disk-hog cp", 102, 161, false).as_deref(),
            Some("web1-102"),
            "another at the same time"
        );
        assert_eq!(id("disk-hog dd", 200, 210, false).as_deref(), Some("web1-200"), "another one");
        assert_eq!(id("swap-thrash", 300, 4_000, true).as_deref(), Some("web1-300"));
        assert_eq!(id("swap-thrash", 300, 5_000, true), None);
        // Of a long one the beginning may have been out of sight.
        assert_eq!(id("swap-thrash", 4_900, 6_000, false).as_deref(), Some("web1-300"));
        assert_eq!(id("swap-thrash", 4_900, 6_000, false), None);
    }

    #[test]
    fn one_that_goes_on_keeps_its_id_when_another_cause_is_found() {
        let mut sent = Sent::default();
        let mut id = |cause: &str, onset, until, is_open, causes: &[&str]| {
            let causes: Vec<String> = causes.iter().map(|cause| (*cause).to_owned()).collect();
            sent.incident(incident(cause, onset, until, is_open), &causes).map(|incident| incident.id)
        };
        assert_eq!(id("disk-hog dd", 100, 4_000, true, &["disk-hog dd"]).as_deref(), Some("web1-100"));
        assert_eq!(id("disk-hog cp", 101, 4_060, true, &["disk-hog cp"]), None);
        let both = ["disk-hog cp", "swap-thrash"];
        assert_eq!(
            id("swap-thrash", 4_000, 4_100, false, &both).as_deref(),
            Some("web1-4000"),
            "what the report has besides is another one"
        );
        assert_eq!(id("disk-hog cat", 102, 4_200, false, &["disk-hog cat"]).as_deref(), Some("web1-100"));
        assert_eq!(id("disk-hog cat", 102, 4_200, false, &["disk-hog cat"]), None);
        let later = id("disk-hog dd", 4_203, 4_300, false, &["disk-hog dd"]);
        assert_eq!(later.as_deref(), Some("web1-4203"), "what is over keeps its cause");
    }

    #[test]
    fn two_that_begin_with_the_same_sample_have_two_ids() {
        let mut sent = Sent::default();
        let causes = ["disk-hog", "swap-thrash", "oom"].map(str::to_owned);
        let mut id = |cause: &str, causes: &[String]| {
            let now = SentIncident { id: "web1-T".to_owned(), ..incident(cause, 100, 160, false) };
            sent.incident(now, causes).map(|incident| incident.id)
        };
        assert_eq!(id("disk-hog", &causes).as_deref(), Some("web1-T"));
        assert_eq!(id("swap-thrash", &causes).as_deref(), Some("web1-T-2"));
        assert_eq!(id("oom", &causes).as_deref(), Some("web1-T-3"));
        assert_eq!(id("swap-thrash", &causes), None);
        // Another explanation of the first one replaces it.
        assert_eq!(id("disk-slow", &["disk-slow".to_owned()]).as_deref(), Some("web1-T"));
    }

    #[test]
    fn one_that_is_new_has_the_id_of_none_that_is_beside_it() {
        let mut sent = Sent::default();
        let mut id = |cause: &str, causes: &[&str]| {
            let causes: Vec<String> = causes.iter().map(|cause| (*cause).to_owned()).collect();
            let now = SentIncident { id: "web1-T".to_owned(), ..incident(cause, 100, 160, false) };
            sent.incident(now, &causes).map(|incident| incident.id)
        };
        assert_eq!(id("disk-hog", &["disk-hog", "swap-thrash"]).as_deref(), Some("web1-T"));
        assert_eq!(id("swap-thrash", &["disk-hog", "swap-thrash"]).as_deref(), Some("web1-T-2"));
        // The first one is gone.
        assert_eq!(id("oom", &["swap-thrash", "oom"]).as_deref(), Some("web1-T"));
        assert_eq!(id("cpu-hog", &["swap-thrash", "oom", "cpu-hog"]).as_deref(), Some("web1-T-3"));
    }

    #[test]
    fn times_move_with_the_clock() {
        let mut sent = Sent::default();
        sent.on_clock("boot", 100 * SECOND);
        sent.incident(incident("disk-hog", 1_000, 1_060, false), &[]);
        sent.finding("fd-growth", 1_000 * SECOND);
        sent.open_ns = Some(1_000 * SECOND);
        sent.on_clock("boot", 7_300 * SECOND);
        assert_eq!(sent.open_ns, Some(8_200 * SECOND));
        assert_eq!(sent.incident(incident("disk-hog", 8_200, 8_260, false), &[]), None);
        // The offset of another boot says nothing of these times.
        sent.on_clock("other boot", 5 * SECOND);
        assert_eq!(sent.open_ns, Some(8_200 * SECOND));
        sent.forget(4_600 * SECOND);
        assert!(!sent.finding("fd-growth", 0));
        sent.forget(4_600 * SECOND - 1);
        assert!(sent.finding("fd-growth", 0), "the clock was set back");
    }

    #[test]
    fn a_finding_is_sent_once_a_day_and_memory_is_bounded() {
        let mut sent = Sent::default();
        assert_eq!((sent.finding("fd-growth", 0), sent.finding("fd-growth", 5)), (true, false));
        sent.forget(REMEMBERED_NS + 1);
        assert!(sent.finding("fd-growth", REMEMBERED_NS + 1));
        for i in 0..2_000 {
            sent.finding(&i.to_string(), REMEMBERED_NS);
            sent.incident(incident(&i.to_string(), 86_000, 86_001, false), &[]);
        }
        sent.forget(REMEMBERED_NS + 1);
        assert_eq!((sent.incidents.len(), sent.findings.len()), (KEPT_MAX, KEPT_MAX));
        assert!(!sent.finding("1999", REMEMBERED_NS), "the latest stay");
    }

    #[test]
    fn it_survives_and_what_is_damaged_is_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        let (mut sent, trouble) = Sent::open(dir.path(), "logs").unwrap();
        assert_eq!(trouble, None);
        sent.incident(incident("disk-hog", 1, 2, false), &[]);
        sent.on_clock("boot", 5);
        sent.open_ns = Some(7);
        sent.save().unwrap();
        assert_eq!(Sent::open(dir.path(), "logs").unwrap(), (sent, None));
        // It is no position.
        assert!(crate::position::Position::all(dir.path()).is_empty());
        std::fs::write(dir.path().join("logs.sent"), "{").unwrap();
        let (sent, trouble) = Sent::open(dir.path(), "logs").unwrap();
        assert!(sent.incidents.is_empty() && trouble.unwrap().contains("begun anew"));
        Sent::default().save().unwrap();
    }
}
