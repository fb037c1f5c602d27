//! What became of the requests of a run, or of several together.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Distribution, Error};

/// The schema of a result.
pub const SCHEMA: &str = "mitra.load/1";

/// How requests go without an answer, and what that means.
pub const ERROR_KINDS: &[(&str, &str)] = &[
    ("refused", "nobody listens there"),
    ("reset", "the connection was reset"),
    ("closed", "the server closed the connection before the answer was complete"),
    ("timeout", "no complete answer within --timeout after it was sent"),
    ("unsent", "due, and never sent: all connections were taken until the run was over"),
    ("unreachable", "the network has no way there"),
    ("tls", "no agreement on encryption, or a certificate that is not trusted"),
    ("protocol", "the answer is no HTTP"),
    ("body", "the body could not be read"),
    ("local", "this machine has no port or no descriptor left"),
];

/// The rate counts as kept from this share on. Of a run of ten seconds, what is under way at the end is half a percent
/// where an answer takes 50 ms.
pub const KEPT: f64 = 0.995;
/// Above this share of a latency, most of it is the generator's own.
const LATE_SHARE_MAX: f64 = 0.5;
/// Bytes of the text of an error.
const TEXT_MAX: usize = 200;

/// Requests without an answer, of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// How many.
    pub count: u64,
    /// What the first of them said.
    pub first: String,
}

/// The first and the last of some moments, in seconds since 1970 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// The first.
    pub first: f64,
    /// The last.
    pub last: f64,
}

impl Times {
    fn with(span: Option<Times>, other: Option<Times>) -> Option<Times> {
        match (span, other) {
            (Some(a), Some(b)) => Some(Times { first: a.first.min(b.first), last: a.last.max(b.last) }),
            (one, other) => one.or(other),
        }
    }

    pub(crate) fn add(span: &mut Option<Times>, at: f64) {
        *span = Times::with(*span, Some(Times { first: at, last: at }));
    }

    /// How many a second, of `n` that lie evenly between the first and the last.
    fn rate(span: Option<Times>, n: u64) -> Option<f64> {
        let seconds = span.map(|span| span.last - span.first).filter(|seconds| *seconds > 0.0)?;
        (n > 1).then(|| (n - 1) as f64 / seconds)
    }
}

/// What became of each request. Times are in seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// [`SCHEMA`].
    pub schema: String,
    /// Hosts and ports that were asked.
    pub target: String,
    /// The load in words: `500/s for 60s`.
    pub load: String,
    /// `HTTP/1.1` or `HTTP/2`.
    pub protocol: String,
    /// Results that are added up in this one; 1 of a single run.
    pub runs: u64,
    /// Whether it was stopped before its end.
    pub is_interrupted: bool,
    /// Requests that were due.
    pub requests: u64,
    /// When they were due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<Times>,
    /// Requests that were answered completely, whatever the status.
    pub answered: u64,
    /// When the answers were complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<Times>,
    /// Requests that were under way or waiting when the run was interrupted.
    pub unfinished: u64,
    /// Requests that were due while all connections were taken.
    pub queued: u64,
    /// How many of them waited at a time, at most.
    pub queued_max: u64,
    /// Connections that were opened.
    pub connections: u64,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Requests without an answer, by kind: see [`ERROR_KINDS`].
    pub errors: BTreeMap<String, Failed>,
    /// Bytes of bodies that were sent.
    pub sent_bytes: u64,
    /// Bytes of bodies that were received.
    pub received_bytes: u64,
    /// Lines of a replayed log that are no requests.
    #[serde(default)]
    pub unread_lines: u64,
    /// Requests of a replayed log that have a body, which the log does not have.
    #[serde(default)]
    pub left_out: u64,
    /// From when a request was due until its answer was complete. Those that were given up are in it with the time
    /// after which they were.
    pub latency: Distribution,
    /// From when it was sent, with the time to connect where a connection was opened for it.
    pub service: Distribution,
    /// By how much the generator itself handed requests out too late.
    pub lateness: Distribution,
}

impl Outcome {
    /// Requests that were due each second.
    #[must_use]
    pub fn offered_rate(&self) -> Option<f64> {
        Times::rate(self.due, self.requests)
    }

    /// Answers each second.
    #[must_use]
    pub fn achieved_rate(&self) -> Option<f64> {
        Times::rate(self.done, self.answered)
    }

    /// Answers that tell of overload: 429 and those of the server's errors.
    #[must_use]
    pub fn overloaded(&self) -> u64 {
        let all = self.statuses.iter().filter(|(status, _)| **status == 429 || **status >= 500);
        all.fold(0, |sum, (_, n)| sum.saturating_add(*n))
    }

    /// Requests without an answer.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.errors.values().fold(0, |sum, failed| sum.saturating_add(failed.count))
    }

    /// Both together.
    #[must_use]
    pub fn bad(&self) -> u64 {
        self.failed().saturating_add(self.overloaded())
    }

    /// Whether the server kept up: as many good answers as requests, at the rate at which these were due.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        let good = self.answered.saturating_sub(self.overloaded());
        let is_answered = good as f64 >= KEPT * self.requests.saturating_sub(self.unfinished) as f64;
        let is_fast = match (self.offered_rate(), self.achieved_rate()) {
            (Some(offered), Some(achieved)) => achieved >= KEPT * offered,
            _ => true,
        };
        self.answered > 0 && is_answered && is_fast
    }

    /// Whether latencies are those of the server: at the median and at the 99th percentile, less than half of them is
    /// that the generator itself was late. Service times do not have that error.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        [0.5, 0.99].into_iter().all(|q| match (self.lateness.quantile(q), self.latency.quantile(q)) {
            (Some(late), Some(latency)) => late <= LATE_SHARE_MAX * latency,
            _ => true,
        })
    }

    pub(crate) fn fail(&mut self, kind: &str, text: &str, count: u64) {
        let failed = self.errors.entry(kind.to_owned()).or_default();
        if failed.count == 0 {
            failed.first = text.get(..text.floor_char_boundary(TEXT_MAX)).unwrap_or_default().to_owned();
        }
        failed.count = failed.count.saturating_add(count);
    }

    /// Adds another run, exactly: counts and histograms are sums.
    ///
    /// # Errors
    /// If the result is of another schema.
    pub fn merge(&mut self, other: &Outcome) -> Result<(), Error> {
        for one in [&*self, other] {
            if one.schema != SCHEMA {
                return Err(Error::Merge(format!("no result of mitra load (want the schema {SCHEMA})")));
            }
        }
        for (ours, theirs) in [
            (&mut self.target, &other.target),
            (&mut self.load, &other.load),
            (&mut self.protocol, &other.protocol),
        ] {
            if !ours.split("; ").any(|part| part == theirs) && ours.len() < 10 * TEXT_MAX {
                ours.push_str("; ");
                ours.push_str(theirs);
            }
        }
        self.is_interrupted |= other.is_interrupted;
        self.due = Times::with(self.due, other.due);
        self.done = Times::with(self.done, other.done);
        for (ours, theirs) in [
            (&mut self.runs, other.runs),
            (&mut self.requests, other.requests),
            (&mut self.answered, other.answered),
            (&mut self.unfinished, other.unfinished),
            (&mut self.queued, other.queued),
            // They may have waited at the same time.
            (&mut self.queued_max, other.queued_max),
            (&mut self.connections, other.connections),
            (&mut self.sent_bytes, other.sent_bytes),
            (&mut self.received_bytes, other.received_bytes),
            (&mut self.unread_lines, other.unread_lines),
            (&mut self.left_out, other.left_out),
        ] {
            *ours = ours.saturating_add(theirs);
        }
        for (status, n) in &other.statuses {
            let ours = self.statuses.entry(*status).or_default();
            *ours = ours.saturating_add(*n);
        }
        for (kind, failed) in &other.errors {
            self.fail(kind, &failed.first, failed.count);
        }
        self.latency.add(&other.latency);
        self.service.add(&other.service);
        self.lateness.add(&other.lateness);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn run(first_ms: u64, n: u64) -> Outcome {
        let at = |i: u64| (first_ms + 10 * i) as f64 / 1e3;
        let mut latency = Distribution::default();
        (0..n).for_each(|i| latency.record(Duration::from_millis(i + 1)));
        Outcome {
            schema: SCHEMA.to_owned(),
            load: "100/s for 1s".to_owned(),
            target: format!("host:{first_ms}"),
            runs: 1,
            requests: n,
            due: Some(Times { first: at(0), last: at(n - 1) }),
            answered: n,
            done: Some(Times { first: at(0), last: at(n - 1) }),
            statuses: BTreeMap::from([(200, n)]),
            latency,
            ..Outcome::default()
        }
    }

    #[test]
    fn the_page_has_each_kind_of_error() {
        let page = include_str!("../../../docs/load.md");
        for (kind, meaning) in ERROR_KINDS {
            let words = meaning.replace("--timeout", "`--timeout`");
            assert!(page.contains(&format!("| `{kind}` | {words} |")), "{kind}");
        }
    }

    #[test]
    fn results_add_up_exactly() {
        let (mut both, second) = (run(0, 101), run(5, 101));
        assert_eq!(both.offered_rate(), Some(100.0));
        both.merge(&second).unwrap();
        assert_eq!((both.requests, both.runs, both.statuses[&200]), (202, 2, 202));
        assert!((both.offered_rate().unwrap() - 200.0).abs() < 0.1, "{both:?}");
        assert_eq!((both.target.as_str(), both.load.as_str()), ("host:0; host:5", "100/s for 1s"));
        let mut wanted = run(0, 101).latency;
        wanted.add(&second.latency);
        assert_eq!(both.latency, wanted);
        let text = serde_json::to_string(&both).unwrap();
        assert_eq!(serde_json::from_str::<Outcome>(&text).unwrap(), both);
        assert!(both.merge(&Outcome::default()).is_err());
    }

    #[test]
    fn a_rate_is_kept_by_good_answers() {
        assert!(run(0, 100).is_kept());
        let mut bad = run(0, 100);
        bad.statuses = BTreeMap::from([(200, 90), (503, 10)]);
        assert!(!bad.is_kept());
        let mut slow = run(0, 100);
        slow.done = Some(Times { first: 0.0, last: 2.0 });
        assert!(!slow.is_kept());
        assert!(!Outcome::default().is_kept());
    }

    #[test]
    fn a_late_generator_is_not_trusted() {
        let mut late = run(0, 100);
        (0..100).for_each(|i| late.lateness.record(Duration::from_micros(100 * i + 1)));
        assert!(late.is_trusted());
        (0..100).for_each(|_| late.lateness.record(Duration::from_millis(90)));
        assert!(!late.is_trusted());
    }
}
