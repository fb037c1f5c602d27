//! A DNS server answers late or not at all, and programs wait for name resolution.
//!
//! Programs look names up before they can do anything else, and most of them do nothing meanwhile. A server near by
//! answers in a millisecond; one that gives no answer to a question costs five seconds for each attempt (`resolv.conf`:
//! `timeout`, `attempts`). Not every question has to be slow: often it is just those for IPv6 addresses (AAAA) that a
//! firewall loses, or those for a search domain that does not exist. No counter of the kernel shows any of it, and the
//! machine looks idle. Whoever asks again on the same socket has its answer in the end: a question that was lost is then seen
//! as one that was answered a timeout later.
//!
//! Where packets of the machine itself are lost (`qdisc-drops`, `conntrack-full`, `socket-buffer-overflow`) that is the
//! root, and the server is not to blame.
//!
//! A program that looks names up for others asks servers all over the world, and some of them are always slow or gone: the
//! servers that it asks are not judged, nor are those that carried no share of the questions before.

mod times;

use self::times::{
    AGAIN, LATE, NEEDS, RESOLVER_SLOW_S, RESOLVER_WAIT, are_slow, resolver_ended, resolver_mean,
    resolver_waits,
};
use crate::network;
use crate::prelude::*;
use crate::services::{self, Address};

pub const CONDITION: Condition = Condition {
    id: "resolver-slow",
    title: "DNS is slow or does not answer",
    area: "network",
    needs: NEEDS,
    needs_of: &[services::NEEDS],
    triggers: &[signals(
        &[
            "resolver.wait_time",
            "resolver.queries",
            "resolver.answers",
            "resolver.unanswered",
            "resolver.latency_le_1s",
            "resolver.latency_le_2s",
            "resolver.latency_le_4s",
            "resolver.latency_le_8s",
            "resolver.latency_inf",
        ],
        are_slow,
    )],
    observe,
    causes: &[explains("service-slow", "a server that resolves a name waits for DNS before it answers")],
    remedies_of: remedies,
    next_of: next,
    suspicions: &[Suspicion {
        rank: 170,
        name: "resolver-waits",
        when: "sum(resolver.wait_time) > 50% or sum(resolver.unanswered) > 1/s for 2s",
        arm: &["offcpu min=200ms"],
        seconds: 5.0,
        cool_down_s: 120.0,
        why: "A name server in the same network answers in a millisecond. Half of a task's time spent waiting for answers is \
              hundreds of queries, or one that times out.",
        ..Suspicion::NONE
    }],
    source: include_str!("resolver_slow.rs"),
    ..Condition::ROOT
};

/// Times slower than before: what was always far away did not change.
const GROWTH: f64 = 3.0;
/// One question in twenty that is never answered, or only when it was asked again.
const UNANSWERED: f64 = 0.05;
/// In how many seconds at least.
const NEED_S: f64 = 2.0;
/// One datagram is lost now and then, and a second one with it where both kinds of address are asked for at once.
const LEAST: f64 = 3.0;
/// A program asks again after five seconds unless it is told otherwise, and has its answer within one more.
const AGAIN_S: f64 = 5.0;
const SILENT_S: f64 = 6.0;
/// Answers that were to be expected in that time: by chance there is none in one case of twenty.
const EXPECTED: f64 = 3.0;
/// Of the questions of a namespace before: one in twenty is a server that programs rely on.
const CARRIED: f64 = 0.05;
/// Of fewer questions a share says nothing.
const QUESTIONS: f64 = 20.0;
/// Where name servers answer.
const DNS_PORT: &str = ":53";

/// What programs had of one server.
struct Served<'a> {
    row: &'a str,
    high: High,
    waited_s: f64,
    queries: f64,
    unanswered: f64,
    again: f64,
    before: Option<Usual>,
}

/// What they had of it before.
struct Usual {
    mean_s: f64,
    unanswered: f64,
    lost: f64,
    wait: f64,
}

impl Served<'_> {
    /// How many were answered or given up.
    fn ended(&self, view: &View<'_>) -> f64 {
        let ended = resolver_ended(view.set, self.row, self.high.run.span());
        ended.map_or(0.0, |signal| signal.total()).max(1.0)
    }

    fn mean_s(&self, view: &View<'_>) -> f64 {
        self.waited_s / self.ended(view)
    }

    fn unanswered_share(&self, view: &View<'_>) -> f64 {
        self.unanswered / self.ended(view)
    }

    /// The questions without an answer, and those that had one only when they were asked again.
    fn lost_share(&self, view: &View<'_>) -> f64 {
        (self.unanswered + self.again) / self.ended(view)
    }
}

fn observe(view: &View<'_>) -> Observation {
    let mut any = false;
    let mut because = "programs hardly waited for name servers".to_owned();
    let mut best: Option<Served<'_>> = None;
    for (row, _) in view.each("resolver.wait_time") {
        any = true;
        let Some(one) = served(view, row) else { continue };
        match fault(view, &one) {
            Ok(()) if best.as_ref().is_none_or(|b| one.waited_s > b.waited_s) => best = Some(one),
            Ok(()) => {}
            Err(reason) => because = reason,
        }
    }
    match best {
        Some(worst) => {
            let mut finding = finding(view, &worst);
            blame_the_next(view, &worst, &mut finding);
            finding.active()
        }
        None if any => Observation::Inactive(because),
        None => Observation::cannot_tell("DNS query times: tcpdump -ni any port 53"),
    }
}

/// Programs that answer questions by asking another name server.
const FORWARDERS: &[&str] = &[
    "dnsmasq",
    "unbound",
    "named",
    "systemd-resolve",
    "coredns",
    "pdns_recursor",
    "kresd",
    "smartdns",
    "stubby",
];

/// Who forwards what it is asked asks about as often; a cache saves some of it, and both kinds of address are two questions.
const AS_OFTEN: f64 = 2.5;

/// Names the server that a forwarder asks in turn, where that has become as slow. Who answers at an address is known by its listening socket,
/// or else by how often it asks itself.
fn blame_the_next(view: &View<'_>, worst: &Served<'_>, finding: &mut Finding) {
    let next = view.each("resolver.wait_time").map(|(row, _)| row).filter(|row| *row != worst.row);
    let next = next.filter_map(|row| {
        let comm = view.set.text("resolver.comm", row)?.last().filter(|comm| FORWARDERS.contains(comm))?;
        let one = served(view, row)?;
        let (mean, before) = (one.mean_s(view), one.before.as_ref()?.mean_s);
        // Whoever waits for the forwarder waits for this one at most.
        let is_late = mean >= RESOLVER_SLOW_S.min(worst.mean_s(view)) && mean >= GROWTH * before;
        let is_then = one.high.run.span().intersect(worst.high.run.span()).is_some();
        (is_late && is_then && forwards(view, worst.row, row)).then_some((comm, one, mean, before))
    });
    let Some((comm, one, mean, before)) = next.max_by(|a, b| a.1.waited_s.total_cmp(&b.1.waited_s)) else {
        return;
    };
    let (address, net) = network::device(one.row);
    let pid =
        view.set.get("resolver.pid", one.row).and_then(|pid| pid.last(Span::ALL)).filter(|pid| *pid >= 1.0);
    let pid = pid.map(|pid| format!(" ({pid:.0})")).unwrap_or_default();
    finding.statement.push_str(&format!(
        "; {comm}{pid}, which most likely answers there, waits for {address}{} in turn, which takes {} ({} before)",
        net.place(),
        words::seconds(mean),
        words::seconds(before)
    ));
    finding.prove_nonzero(view, &["resolver.wait_time", "resolver.queries"], one.row, one.high.run.span());
    finding.culprit.address = Some(address.to_owned());
    finding.culprit.process = None;
    finding.culprit.pid = None;
    finding.infer_culprit();
}

/// Whether who asks the name server of a row most likely answers at that of another one.
fn forwards(view: &View<'_>, asked: &str, next: &str) -> bool {
    let (address, _) = network::device(asked);
    let bare = |row: &str| network::device(row).0.trim_end_matches("/udp") == address;
    let listener =
        view.each("listener.pid").find(|(row, _)| bare(row)).and_then(|(_, pid)| pid.last(Span::ALL));
    let asker = view.set.get("resolver.pid", next).and_then(|pid| pid.last(Span::ALL));
    if let Some(listener) = listener {
        return asker == Some(listener);
    }
    let before = |row: &str| {
        let baseline = view.baseline?;
        resolver_ended(view.base_set, row, baseline)?.mean().filter(|ended| *ended > 0.0)
    };
    let (Some(asked), Some(next)) = (before(asked), before(next)) else { return false };
    asked <= AS_OFTEN * next && next <= AS_OFTEN * asked
}

/// Whether it is the fault of a server that programs waited for it; an error is the reason why it is not.
fn fault(view: &View<'_>, one: &Served<'_>) -> Result<(), String> {
    let (mean, unanswered) = (one.mean_s(view), one.unanswered_share(view));
    let before = one.before.as_ref();
    let is_late = mean >= RESOLVER_SLOW_S && before.is_none_or(|b| mean >= GROWTH * b.mean_s);
    let is_silent = unanswered >= UNANSWERED && before.is_none_or(|b| unanswered >= GROWTH * b.unanswered);
    // Names that a server has to ask others for take as long at any time: what is usual has to be known.
    let lost = one.lost_share(view);
    let is_lossy = lost >= UNANSWERED && before.is_some_and(|b| lost >= GROWTH * b.lost);
    if !is_late && !is_silent && !is_lossy {
        return Err(format!(
            "{} answered in {} on average{}, {} of the queries had no answer",
            one.row,
            words::seconds(mean),
            before.map(|b| format!(" ({} before)", words::seconds(b.mean_s))).unwrap_or_default(),
            words::percent(unanswered)
        ));
    }
    let hurt = one.unanswered + late(view, one);
    if hurt < LEAST && !fell_silent(view, one) {
        return Err(format!("{:.0} queries to {} were late or had no answer", hurt.ceil(), one.row));
    }
    if !carried(view, one.row) {
        return Err(format!("{} had hardly been asked before, and others had", one.row));
    }
    if asks_for_others(view, one) {
        return Err(format!("{} is asked by a program that looks names up for others", one.row));
    }
    Ok(())
}

/// Whether a server that used to answer has not for longer than a program waits until it asks again, and one did ask again:
/// a datagram that is lost makes one wait, and its second question is answered.
fn fell_silent(view: &View<'_>, one: &Served<'_>) -> bool {
    let Some(baseline) = view.baseline else { return false };
    let usual = resolver_ended(view.base_set, one.row, baseline).and_then(|s| s.mean()).unwrap_or(0.0);
    let of = |metric: &str| view.set.get(metric, one.row).map(|s| Signal::of(s, view.window));
    let (Some(ended), Some(unanswered), Some(waits)) =
        (resolver_ended(view.set, one.row, view.window), of("resolver.unanswered"), of("resolver.wait_time"))
    else {
        return false;
    };
    let answered = ended.zip(&unanswered, |ended, unanswered| ended - unanswered);
    let (mut since, mut waited_s) = (view.window.since, 0.0);
    for (i, t) in waits.t.iter().enumerate() {
        let is_any = |ends: &Signal| ends.t.binary_search(t).is_ok_and(|at| ends.v[at] > 1e-6);
        waited_s += waits.v[i] * waits.dt[i];
        let silent_s = words::between(since, *t);
        // Who gives up may ask for another name and be answered in the same second.
        let is_silent = !is_any(&answered) || is_any(&unanswered);
        if is_silent && silent_s >= SILENT_S && waited_s >= AGAIN_S && usual * silent_s >= EXPECTED {
            return true;
        }
        if is_any(&answered) {
            (since, waited_s) = (*t, 0.0);
        }
    }
    false
}

/// How many answers came late. Where only the mean is known it may have been all of them.
fn late(view: &View<'_>, one: &Served<'_>) -> f64 {
    let span = one.high.run.span();
    answers_of(view.set, LATE, one.row, span).unwrap_or_else(|| one.ended(view) - one.unanswered)
}

/// Answers in some steps of the histogram; `None` where there is none.
fn answers_of(set: &SeriesSet, steps: &[&str], row: &str, span: Span) -> Option<f64> {
    steps.iter().filter_map(|metric| set.get(metric, row)?.total(span)).reduce(|a, b| a + b)
}

/// Whether a server had its share of the questions of its namespace before, as far as there were any.
fn carried(view: &View<'_>, row: &str) -> bool {
    let Some(baseline) = view.baseline else { return true };
    let (_, net) = network::device(row);
    let (mut own, mut all) = (0.0, 0.0);
    for (other, series) in view.base_set.each("resolver.queries") {
        if network::device(other).1 == net {
            let asked = series.total(baseline).unwrap_or(0.0);
            all += asked;
            own += if other == row { asked } else { 0.0 };
        }
    }
    all < QUESTIONS || own >= CARRIED * all
}

/// Whether the program that waits for a server is itself one that others ask: it answers at the port of name servers.
fn asks_for_others(view: &View<'_>, one: &Served<'_>) -> bool {
    let span = one.high.run.span();
    let Some(asker) = view.set.get("resolver.pid", one.row).and_then(|s| s.last(span)) else { return false };
    view.each("listener.pid").any(|(row, series)| {
        let (address, _) = network::device(row);
        address.strip_suffix("/udp").unwrap_or(address).ends_with(DNS_PORT)
            && series.last(Span::ALL) == Some(asker)
    })
}

fn served<'a>(view: &View<'_>, row: &'a str) -> Option<Served<'a>> {
    let signal = resolver_waits(view.set, row, view.window)?;
    let base = view.baseline.and_then(|b| resolver_waits(view.base_set, row, b)).unwrap_or_default();
    let threshold = view.threshold(RESOLVER_WAIT, &base.v);
    let before = usual(view, row);
    let of_all = view.high_signal(&signal, threshold, NEED_S, base.mean())?;
    // Many questions that are answered as ever wait as long as a few that are not.
    let of_late = before.as_ref().and_then(|before| {
        let mean = resolver_mean(view.set, row, view.window)?;
        let late = signal.zip(&mean, |waits, mean| if mean >= GROWTH * before.mean_s { waits } else { 0.0 });
        view.high_signal(&late, threshold, NEED_S, base.mean())
    });
    let high = of_late.unwrap_or(of_all);
    let span = high.run.span();
    let total = |metric: &str| view.set.get(metric, row).and_then(|s| s.total(span)).unwrap_or(0.0);
    let waited_s = total("resolver.wait_time");
    Some(Served {
        row,
        waited_s,
        queries: total("resolver.queries"),
        unanswered: total("resolver.unanswered"),
        again: answers_of(view.set, AGAIN, row, span).unwrap_or(0.0),
        before,
        high,
    })
}

fn usual(view: &View<'_>, row: &str) -> Option<Usual> {
    let baseline: Span = view.baseline?;
    let total = |metric: &str| view.base_set.get(metric, row).and_then(|s| s.total(baseline));
    let unanswered = total("resolver.unanswered").unwrap_or(0.0);
    let ended = resolver_ended(view.base_set, row, baseline)?.total();
    if ended < 1.0 {
        return None;
    }
    let waited = total("resolver.wait_time")?;
    let again = answers_of(view.base_set, AGAIN, row, baseline).unwrap_or(0.0);
    Some(Usual {
        mean_s: waited / ended,
        unanswered: unanswered / ended,
        lost: (unanswered + again) / ended,
        wait: waited / baseline.seconds().max(1.0),
    })
}

fn finding(view: &View<'_>, worst: &Served<'_>) -> Finding {
    let (row, span) = (worst.row, worst.high.run.span());
    let (address, net) = network::device(row);
    let mut finding = view.finding(&worst.high.run);
    finding.netns = Some(net.id());
    finding.culprit.address = Some(address.to_owned());
    let before =
        worst.before.as_ref().map(|b| format!(" ({} before)", words::seconds(b.mean_s))).unwrap_or_default();
    let of_queries = words::count(worst.queries.max(worst.unanswered));
    let mut silence = String::new();
    if worst.unanswered >= 1.0 {
        silence
            .push_str(&format!("; {} of {of_queries} queries had no answer", words::count(worst.unanswered)));
    }
    if worst.again >= 1.0 {
        silence.push_str(&format!("; {} had one after half a second or more", words::count(worst.again)));
    }
    let is_any_ended = resolver_ended(view.set, row, span).is_some_and(|ended| ended.total() > 0.0);
    let each = if is_any_ended {
        format!("{} for each query on average{before}{silence}", words::seconds(worst.mean_s(view)))
    } else {
        format!("no answer has come{before}")
    };
    finding.statement = format!(
        "programs waited {} for the name server {address}{}: {each}",
        words::seconds(worst.waited_s),
        net.place()
    );
    finding.prove_nonzero(
        view,
        &["resolver.wait_time", "resolver.queries", "resolver.answers", "resolver.unanswered"],
        row,
        span,
    );
    if let Some((name, pid)) = answers_here(view, Address { text: address, net }) {
        finding.remarks.push(format!("{name} answers there on this machine"));
        finding.culprit.process = Some(name.to_owned());
        finding.culprit.pid = pid;
    } else if is_of_this_machine(address)
        && let Some(stopped) = services::stopped_meanwhile(view, span)
    {
        finding.remarks.push(format!(
            "{}: the name server, or one that it asks in turn",
            services::says_stopped(stopped)
        ));
        finding.blame(stopped);
        finding.infer_culprit();
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

/// Whether an address is one of the loopback device.
fn is_of_this_machine(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_matches(['[', ']']).parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

/// The program of this machine that is the name server at an address: who listens there for connections answers datagrams as well.
/// One that asks other name servers itself may only wait for those.
fn answers_here<'a>(view: &View<'a>, address: Address<'_>) -> Option<(&'a str, Option<u32>)> {
    let set: &'a SeriesSet = view.set;
    let service = services::local_service(set, &address)?;
    // The thread that listens may have a name of its own.
    let pid_of = |metric: &str| set.get(metric, service).and_then(|pid| pid.last(Span::ALL));
    let pid = pid_of("service.pid").or_else(|| pid_of("listener.pid")).map(|pid| pid as u32);
    let comm_of = |metric: &str| set.text(metric, service).and_then(|text| text.last());
    let leader = pid.and_then(|pid| view.process(pid)).map(|process| process.comm);
    let comm = leader.or_else(|| comm_of("service.comm")).or_else(|| comm_of("listener.comm"))?;
    let asks = set.each_text("resolver.comm").any(|(_, text)| text.last() == Some(comm));
    (!asks).then_some((comm, pid))
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let address = finding.culprit.address.as_deref().unwrap_or("SERVER");
    let server = words::shell(address.rsplit_once(':').map_or(address, |(host, _)| host));
    let verify = "getent ahosts NAME: as fast as before".to_owned();
    vec![
        Remedy {
            action: "see which queries are slow: A, AAAA or those with a search domain appended".to_owned(),
            command: format!("dig @{server} NAME A; dig @{server} NAME AAAA; dig @{server} NAME.SEARCHDOMAIN A"),
            verify: verify.clone(),
            risk: String::new(),
        },
        Remedy {
            action: "until the server recovers: another one first, a shorter timeout, no search domain".to_owned(),
            command: "in /etc/resolv.conf: options timeout:1 attempts:2 rotate single-request; or nscd, systemd-resolved"
                .to_owned(),
            verify,
            risk: "programs read the file when they start; without a search domain short names do not resolve".to_owned(),
        },
    ]
}

fn next(finding: &Finding) -> Vec<Next> {
    let address = finding.culprit.address.as_deref().unwrap_or("SERVER");
    let server = words::shell(address.rsplit_once(':').map_or(address, |(host, _)| host));
    vec![to_measure(
        "each query and its answer".to_owned(),
        format!("tcpdump -ni any host {server} and port 53"),
    )]
}
