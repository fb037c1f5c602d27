//! A name server answers late or not at all, and programs wait for their names.
//!
//! Programs look names up before they can do anything else, and most of them do nothing meanwhile. A server near by
//! answers in a millisecond; one that gives no answer to a question costs five seconds for each attempt (`resolv.conf`:
//! `timeout`, `attempts`). Not every question has to be slow: often it is just those for IPv6 addresses (AAAA) that a
//! firewall loses, or those for a search domain that does not exist. No counter of the kernel shows any of it, and the
//! machine looks idle.
//!
//! Where packets of the machine itself are lost (`qdisc-drops`, `conntrack-full`, `socket-buffer-overflow`) that is the
//! root, and the server is not to blame.

use mitra_model::Span;
use mitra_model::report::{Next, Remedy};

use crate::condition::{Condition, Finding, Observation, Role};
use crate::network::{self, RESOLVER_SLOW_S, RESOLVER_WAIT};
use crate::view::{High, View};
use crate::words;

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "resolver-slow",
    title: "a name server answers late or not at all",
    role: Role::Root,
    area: "network",
    needs: &[
        "resolver.queries",
        "resolver.answers",
        "resolver.unanswered",
        "resolver.wait_time",
        "resolver.pid",
        "resolver.comm",
    ],
    observe,
    remedies,
    next,
    source: include_str!("resolver_slow.rs"),
};

/// Times slower than before: what was always far away did not change.
const GROWTH: f64 = 3.0;
/// One question in twenty that is never answered.
const UNANSWERED: f64 = 0.05;
/// In how many seconds at least.
const NEED_S: f64 = 2.0;

/// What programs had of one server.
struct Served<'a> {
    row: &'a str,
    high: High,
    waited_s: f64,
    queries: f64,
    unanswered: f64,
    before: Option<Usual>,
}

/// What they had of it before.
struct Usual {
    mean_s: f64,
    unanswered: f64,
    wait: f64,
}

impl Served<'_> {
    /// How many were answered or given up.
    fn ended(&self, view: &View<'_>) -> f64 {
        let ended = network::resolver_ended(view.set, self.row, self.high.run.span());
        ended.map_or(0.0, |signal| signal.total()).max(1.0)
    }

    fn mean_s(&self, view: &View<'_>) -> f64 {
        self.waited_s / self.ended(view)
    }

    fn unanswered_share(&self, view: &View<'_>) -> f64 {
        self.unanswered / self.ended(view)
    }
}

fn observe(view: &View<'_>) -> Observation {
    let mut any = false;
    let mut all: Vec<Served<'_>> = Vec::new();
    for (row, _) in view.each("resolver.wait_time") {
        any = true;
        all.extend(served(view, row));
    }
    let Some(worst) = all.iter().max_by(|a, b| a.waited_s.total_cmp(&b.waited_s)) else {
        return if any {
            Observation::Inactive("programs hardly waited for name servers".to_owned())
        } else {
            Observation::CannotTell("times of DNS questions: tcpdump -ni any port 53".to_owned())
        };
    };
    let (mean, unanswered) = (worst.mean_s(view), worst.unanswered_share(view));
    let before = worst.before.as_ref();
    let is_late = mean >= RESOLVER_SLOW_S && before.is_none_or(|b| mean >= GROWTH * b.mean_s);
    let is_silent = unanswered >= UNANSWERED && before.is_none_or(|b| unanswered >= GROWTH * b.unanswered);
    if !is_late && !is_silent {
        return Observation::Inactive(format!(
            "{} answered in {} in the mean{}, {} of the questions had no answer",
            worst.row,
            words::seconds(mean),
            before.map(|b| format!(" ({} before)", words::seconds(b.mean_s))).unwrap_or_default(),
            words::percent(unanswered)
        ));
    }
    Observation::Active(Box::new(finding(view, worst)))
}

fn served<'a>(view: &View<'_>, row: &'a str) -> Option<Served<'a>> {
    let signal = network::resolver_waits(view.set, row, view.window)?;
    let base = view.baseline.and_then(|b| network::resolver_waits(view.base_set, row, b)).unwrap_or_default();
    let high = view.high_signal(&signal, view.threshold(RESOLVER_WAIT, &base.v), NEED_S, base.mean())?;
    let span = high.run.span();
    let total = |metric: &str| view.set.get(metric, row).and_then(|s| s.total(span)).unwrap_or(0.0);
    let waited_s = total("resolver.wait_time");
    Some(Served {
        row,
        waited_s,
        queries: total("resolver.queries"),
        unanswered: total("resolver.unanswered"),
        before: usual(view, row),
        high,
    })
}

fn usual(view: &View<'_>, row: &str) -> Option<Usual> {
    let baseline: Span = view.baseline?;
    let total = |metric: &str| view.base_set.get(metric, row).and_then(|s| s.total(baseline));
    let unanswered = total("resolver.unanswered").unwrap_or(0.0);
    let ended = network::resolver_ended(view.base_set, row, baseline)?.total();
    if ended < 1.0 {
        return None;
    }
    let waited = total("resolver.wait_time")?;
    Some(Usual {
        mean_s: waited / ended,
        unanswered: unanswered / ended,
        wait: waited / baseline.seconds().max(1.0),
    })
}

fn finding(view: &View<'_>, worst: &Served<'_>) -> Finding {
    let (row, span) = (worst.row, worst.high.run.span());
    let (address, net) = network::device(row);
    let mut finding = view.finding(&worst.high.run);
    finding.culprit.address = Some(address.to_owned());
    let before =
        worst.before.as_ref().map(|b| format!(" ({} before)", words::seconds(b.mean_s))).unwrap_or_default();
    let silence = if worst.unanswered >= 1.0 {
        format!(
            "; {} of {} questions had no answer",
            words::count(worst.unanswered),
            words::count(worst.queries.max(worst.unanswered))
        )
    } else {
        String::new()
    };
    finding.statement = format!(
        "programs waited {} for the name server {address}{}: {} for each question in the mean{before}{silence}",
        words::seconds(worst.waited_s),
        net.place(),
        words::seconds(worst.mean_s(view))
    );
    for metric in ["resolver.wait_time", "resolver.queries", "resolver.answers", "resolver.unanswered"] {
        finding.evidence.extend(view.evidence(metric, row, span).filter(|e| e.during > 0.0));
    }
    let usual = worst.before.as_ref().map_or(0.0, |b| b.wait);
    finding.loss_s = Some((worst.waited_s - usual * worst.high.run.high_s).max(0.0));
    let who = view.set.text("resolver.comm", row).and_then(|t| t.at(worst.high.run.end).or_else(|| t.last()));
    if let Some(who) = who {
        let pid = view.set.get("resolver.pid", row).and_then(|s| s.last(span)).filter(|p| *p >= 1.0);
        let pid = pid.map(|p| format!(" ({p:.0})")).unwrap_or_default();
        finding.remarks.push(format!("{who}{pid} waited most; it is a victim"));
    }
    finding.confidence = if worst.before.is_some() { 0.95 } else { 0.8 };
    finding
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let address = finding.culprit.address.as_deref().unwrap_or("SERVER");
    let server = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let verify = "getent ahosts NAME: as fast as before".to_owned();
    vec![
        Remedy {
            action: "see which questions are slow: A, AAAA or those with a search domain appended".to_owned(),
            command: format!("dig @{server} NAME A; dig @{server} NAME AAAA; dig @{server} NAME.SEARCHDOMAIN A"),
            verify: verify.clone(),
            risk: String::new(),
        },
        Remedy {
            action: "until the server is well: another one first, a shorter time-out, no search domain".to_owned(),
            command: "in /etc/resolv.conf: options timeout:1 attempts:2 rotate single-request; or nscd, systemd-resolved"
                .to_owned(),
            verify,
            risk: "programs read the file when they start; without a search domain short names are not found".to_owned(),
        },
    ]
}

fn next(finding: &Finding) -> Vec<Next> {
    let address = finding.culprit.address.as_deref().unwrap_or("SERVER");
    let server = address.rsplit_once(':').map_or(address, |(host, _)| host);
    vec![Next {
        measure: "each question and its answer".to_owned(),
        command: format!("tcpdump -ni any host {server} and port 53"),
    }]
}
