//! What became of the requests of a run, or of several together.

use std::collections::BTreeMap;
use std::time::Duration;

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
    ("unreachable", "the network has no way there, or a packet filter forbids it"),
    ("tls", "no agreement on encryption, or a certificate that is not trusted"),
    ("protocol", "the answer is no HTTP"),
    ("body", "the body could not be read"),
    ("local", "this machine has no port, no descriptor or no memory left"),
];

/// The rate counts as kept from this share on.
pub const KEPT: f64 = 0.995;
/// Above this share of a latency, most of it is the generator's own.
const LATE_SHARE_MAX: f64 = 0.5;
/// Above this share of a CPU, requests may wait for the generator's own thread.
const CPU_SHARE_MAX: f64 = 0.9;
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
    /// What went wrong, if that stopped it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
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
    /// Requests that were answered when the last one was due.
    pub answered_at_end: u64,
    /// Requests that are under way at that time if the server keeps up.
    pub usual_at_end: u64,
    /// Requests that were under way or waiting when the run was interrupted.
    pub unfinished: u64,
    /// Those of them that were older than the 99th percentile of latency.
    pub unfinished_late: u64,
    /// Requests that were due while all connections were taken.
    pub queued: u64,
    /// How many of them waited at a time, at most.
    pub queued_max: u64,
    /// The share of a CPU that the generator took until the last request was due; of several, the largest.
    pub cpu_share: f64,
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
    /// From when a request was due until its answer was complete. Those that were given up, or unfinished, are in it
    /// with the time after which they were: they took so long at the least.
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

    /// The share of answers with a status.
    #[must_use]
    pub fn share(&self, status: u16) -> f64 {
        self.statuses.get(&status).map_or(0.0, |n| *n as f64 / self.answered.max(1) as f64)
    }

    /// Whether the server kept up: as many good answers as requests, at the rate at which these were due.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        let good = self.answered.saturating_sub(self.overloaded());
        // Who stops a run does not wait for the answers that are under way, unless they should have come before.
        let excused = self.unfinished.saturating_sub(self.unfinished_late);
        let is_answered = good as f64 >= KEPT * self.requests.saturating_sub(excused) as f64;
        self.answered > 0 && is_answered && self.is_fast()
    }

    /// Whether no queue had grown when the last request was due.
    ///
    /// Little's law: where no queue grows, rate times mean latency are under way at any time. The mean is that of the
    /// requests that were answered by then. If the server answers at a share s of the rate, latency grows evenly and
    /// 1 - s of the requests are unanswered at the end. Half of them is rate times mean, so that any s below 0.99 is
    /// seen. How many are under way varies by the root of their number, and the last request has only just begun.
    #[must_use]
    pub fn is_fast(&self) -> bool {
        let usual = self.usual_at_end as f64;
        let under_way = usual + 2.0 * usual.sqrt() + 1.0;
        self.answered_at_end as f64 + under_way >= KEPT * self.requests as f64
    }

    /// Whether latencies are those of the server, and not of the generator.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        !self.is_late() && !self.is_saturated()
    }

    /// Whether at the median or at the 99th percentile, more than half of latency is that the generator was late.
    #[must_use]
    pub fn is_late(&self) -> bool {
        [0.5, 0.99].into_iter().any(|q| match (self.lateness.quantile(q), self.latency.quantile(q)) {
            (Some(late), Some(latency)) => late > LATE_SHARE_MAX * latency,
            _ => false,
        })
    }

    /// Whether requests waited while the generator had no time to read answers: connections are then taken because
    /// of itself. It hands requests out before it reads, so that it need not be late.
    #[must_use]
    pub fn is_saturated(&self) -> bool {
        self.queued > 0 && self.cpu_share > CPU_SHARE_MAX
    }

    /// Counts a request that was given up without an answer after a time.
    pub(crate) fn give_up(&mut self, kind: &str, text: &str, after: Duration) {
        self.fail(kind, text, 1);
        self.latency.record(after);
    }

    /// Counts those that had waited so long when the run was stopped.
    pub(crate) fn leave(&mut self, waits: &[Duration]) {
        let usual_s = self.latency.quantile(0.99).or(self.latency.max());
        for wait in waits {
            let is_late = usual_s.is_none_or(|usual_s| wait.as_secs_f64() > usual_s);
            self.unfinished += 1;
            self.unfinished_late += u64::from(is_late);
            self.latency.record(*wait);
        }
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
        self.broken = self.broken.take().or_else(|| other.broken.clone());
        self.cpu_share = self.cpu_share.max(other.cpu_share);
        self.due = Times::with(self.due, other.due);
        self.done = Times::with(self.done, other.done);
        for (ours, theirs) in [
            (&mut self.runs, other.runs),
            (&mut self.requests, other.requests),
            (&mut self.answered, other.answered),
            (&mut self.answered_at_end, other.answered_at_end),
            (&mut self.usual_at_end, other.usual_at_end),
            (&mut self.unfinished, other.unfinished),
            (&mut self.unfinished_late, other.unfinished_late),
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
            answered_at_end: n - 1,
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
        assert!(!Outcome::default().is_kept());
    }

    /// At 100/s, an answer takes 50 ms.
    fn healthy(n: u64) -> Outcome {
        Outcome { answered_at_end: n - 6, usual_at_end: 5, ..run(0, n) }
    }

    #[test]
    fn what_is_under_way_at_the_end_is_no_loss() {
        for n in [20, 100, 10_000] {
            assert!(healthy(n).is_kept(), "{n}");
        }
        // The last answer comes late, and is one.
        let mut slow = run(0, 100);
        slow.done = Some(Times { first: 0.0, last: 2.0 });
        assert!(slow.is_kept());
    }

    /// The server answers at a share of the rate. Latency grows evenly from nothing, so that its mean is half of its last value.
    #[test]
    fn a_queue_that_grows_is_not_kept() {
        for n in [1_000, 10_000, 1_000_000] {
            for share in [0.01, 0.2, 0.5, 0.9] {
                let answered = (n as f64 * share) as u64;
                let usual_at_end = (n - answered) / 2;
                let full = Outcome { answered_at_end: answered, usual_at_end, ..run(0, 100) };
                let full = Outcome { requests: n, answered: n, statuses: BTreeMap::from([(200, n)]), ..full };
                assert!(!full.is_kept(), "{n} {share}");
            }
        }
    }

    #[test]
    fn who_stops_a_run_is_excused_for_what_was_just_sent() {
        let mut stopped = Outcome { requests: 105, answered_at_end: 100, usual_at_end: 5, ..run(0, 100) };
        stopped.leave(&[Duration::from_millis(5); 5]);
        assert_eq!((stopped.unfinished, stopped.unfinished_late, stopped.latency.count()), (5, 0, 105));
        assert!(stopped.is_kept());
        let mut stalled = Outcome { requests: 105, answered_at_end: 100, usual_at_end: 5, ..run(0, 100) };
        stalled.leave(&[Duration::from_secs(3); 5]);
        assert_eq!((stalled.unfinished, stalled.unfinished_late), (5, 5));
        assert!(!stalled.is_kept() && stalled.latency.max() >= Some(3.0));
    }

    #[test]
    fn a_generator_without_time_is_not_trusted() {
        let busy = Outcome { cpu_share: 0.97, ..run(0, 100) };
        assert!(busy.is_trusted());
        assert!(!Outcome { queued: 1, ..busy.clone() }.is_trusted());
        assert!(Outcome { queued: 1, cpu_share: 0.5, ..busy }.is_trusted());
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
