//! What the conditions of the network share.
//!
//! The kernel keeps most of its network counters once for each network namespace, and a machine with containers has
//! many. Those of its own namespace are metrics of the machine (`tcpext.ListenOverflows`), those of every other one are
//! rows of `netns.*` under the same name (`netns.tcpext_ListenOverflows`). A [`Net`] is one of them, so that a condition
//! is written once for all.
//!
//! Packets that are lost are compared with the packets that they are a part of: a hundred a second are nothing on a busy
//! router and the end of a telephone call.

use std::collections::BTreeSet;

use mitra_model::report::Evidence;
use mitra_model::time::SECOND;
use mitra_model::{SeriesSet, Span, lookup};

use crate::signal::Signal;
use crate::tcp_limits;
use crate::view::{High, View};

/// The first time-out of a connection that is being set up (RFC 6298, `TCP_TIMEOUT_INIT`): whoever loses a SYN waits for
/// that long at least.
pub const SYN_WAIT_S: f64 = 1.0;
/// Of what hardly sends anything a share says nothing: one segment in two seconds that is sent again.
pub const RETRANSMITS_S: f64 = 0.5;
/// A hundredth of the segments. The Internet loses a tenth of that on an ordinary day, and TCP's own search for the
/// limit of a link about as much.
pub const RETRANSMITS_SHARE: f64 = 0.01;
/// Of the local ports: the kernel tries every second one first, and a few belong to something else.
pub const PORTS_NEARLY_ALL: f64 = 0.9;
/// Of the time of one task: a twentieth is what somebody notices.
pub const RESOLVER_WAIT: f64 = 0.05;
/// A lookup from here on is felt: a page needs several, one after the other. A server on the other side of the earth
/// hardly takes that long for a name that it knows.
pub const RESOLVER_SLOW_S: f64 = 0.1;
/// No resolver waits longer for one question: five seconds twice for each of three servers (`resolv.conf`).
const RESOLVER_REACH_S: f64 = 30.0;
/// The shortest time-out of an open connection (`TCP_RTO_MIN`); a route can set another one and hardly ever does.
pub const RTO_MIN_S: f64 = 0.2;
/// Waiting for time-outs that is felt: a tenth of a task's time, one in two seconds.
pub const TIMEOUTS_FELT: f64 = 0.1;
/// Ends of what was sent that get lost, of all segments: what a connection with a window of a hundred segments, which
/// fills a link of 1 Gbit/s over a millisecond, loses to find the limit (1.5 / 100²), were it all ends. Of what sends that
/// much, less is nobody's time.
pub const TAILS_SHARE: f64 = 1.5e-4;

/// One network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Net<'a> {
    /// Its name; `None` is the one that the recorder runs in.
    pub name: Option<&'a str>,
}

/// The name that a metric of the recorder's own namespace has in the others; `None` where it is not recorded there.
#[must_use]
pub fn elsewhere(metric: &str) -> Option<&'static str> {
    lookup(&format!("netns.{}", metric.replace('.', "_"))).map(|m| m.name)
}

/// A device's row in words: its name, and the namespace that it is in.
#[must_use]
pub fn device(row: &str) -> (&str, Net<'_>) {
    match row.split_once('@') {
        Some((device, name)) => (device, Net { name: Some(name) }),
        None => (row, Net { name: None }),
    }
}

/// Every namespace in which a metric was recorded, the recorder's own first.
#[must_use]
pub fn nets<'a>(set: &'a SeriesSet, metric: &str) -> Vec<Net<'a>> {
    let own = lookup(metric).and_then(|m| set.system(m.name)).map(|_| Net { name: None });
    let others: BTreeSet<Net<'a>> = elsewhere(metric)
        .into_iter()
        .flat_map(|m| set.each(m))
        .map(|(row, _)| Net { name: Some(row) })
        .collect();
    own.into_iter().chain(others).collect()
}

/// The namespace in which most happened of a sum of metrics, of those where it was high; and when.
#[must_use]
pub fn worst<'a>(
    view: &View<'a>,
    metrics: &[&'static str],
    floor: f64,
    need_s: f64,
) -> Option<(Net<'a>, High)> {
    let set: &'a SeriesSet = view.set;
    let all: BTreeSet<Net<'a>> = metrics.iter().flat_map(|m| nets(set, m)).collect();
    let high = all.into_iter().filter_map(|net| Some((net, net.high(view, metrics, floor, need_s)?)));
    let amount = |high: &High| high.during * high.run.high_s;
    high.max_by(|a, b| amount(&a.1).total_cmp(&amount(&b.1)))
}

/// The largest rate of a metric in any namespace; `None` where it is not recorded at all.
#[must_use]
pub fn peak(view: &View<'_>, metrics: &[&'static str]) -> Option<f64> {
    let all = metrics.iter().flat_map(|m| nets(view.set, m).into_iter().map(move |net| (net, *m)));
    all.filter_map(|(net, m)| net.sum(view.set, &[m], view.window)?.max()).max_by(f64::total_cmp)
}

impl<'a> Net<'a> {
    /// Where a metric of the machine is to be found for this namespace: the metric and the row.
    #[must_use]
    pub fn cell(self, metric: &'static str) -> Option<(&'static str, &'a str)> {
        match self.name {
            None => Some((metric, "")),
            Some(name) => Some((elsewhere(metric)?, name)),
        }
    }

    /// A sum of metrics over time; those that are not there add nothing. `None` when none is there.
    #[must_use]
    pub fn sum(self, set: &SeriesSet, metrics: &[&'static str], span: Span) -> Option<Signal> {
        let series = metrics.iter().filter_map(|m| self.cell(m)).filter_map(|(m, row)| set.get(m, row));
        Signal::sum(series, span)
    }

    /// How much a sum of metrics came to in a span: of counters, how many there were.
    #[must_use]
    pub fn total(self, view: &View<'_>, metrics: &[&'static str], span: Span) -> Option<f64> {
        self.sum(view.set, metrics, span).map(|s| s.total())
    }

    /// The stretch in which a sum of metrics was high against a physical floor and against the baseline.
    #[must_use]
    pub fn high(self, view: &View<'_>, metrics: &[&'static str], floor: f64, need_s: f64) -> Option<High> {
        let signal = self.sum(view.set, metrics, view.window)?;
        let base = view.baseline.and_then(|b| self.sum(view.base_set, metrics, b)).unwrap_or_default();
        let threshold = view.threshold(floor, &base.v);
        let mut high = view.high_signal(&signal, threshold, need_s, base.mean())?;
        if let ([metric], None) = (metrics, high.before)
            && let Some((metric, row)) = self.cell(metric)
        {
            high.before = view.before_span(metric, row, high.run.span());
        }
        Some(high)
    }

    /// A number that proves something, with its lines.
    #[must_use]
    pub fn evidence(self, view: &View<'_>, metric: &'static str, span: Span) -> Option<Evidence> {
        let (metric, row) = self.cell(metric)?;
        view.evidence(metric, row, span)
    }

    /// A level: the largest of a span.
    #[must_use]
    pub fn level(self, view: &View<'_>, metric: &'static str, span: Span) -> Option<f64> {
        let (metric, row) = self.cell(metric)?;
        view.set.get(metric, row)?.max(span)
    }

    /// The name, and nothing for the recorder's own: what a [`Finding`](crate::Finding) has.
    #[must_use]
    pub fn id(self) -> String {
        self.name.unwrap_or_default().to_owned()
    }

    /// ` in the network namespace web`, or nothing for the recorder's own.
    #[must_use]
    pub fn place(self) -> String {
        self.name.map(|name| format!(" in the network namespace {name}")).unwrap_or_default()
    }

    /// What goes before a command so that it runs in the namespace.
    #[must_use]
    pub fn enter(self) -> String {
        match self.name {
            None => String::new(),
            Some(name) if name.starts_with("net:[") => "nsenter -t PID -n ".to_owned(),
            Some(name) => format!("ip netns exec {name} "),
        }
    }
}

/// Data that TCP sent again each second. What belongs to the setting up of connections is left out: whoever does not
/// answer a SYN may be there and not accept.
#[must_use]
pub fn retransmits(set: &SeriesSet, net: Net<'_>, span: Span) -> Option<Signal> {
    let all = net.sum(set, &["tcp.RetransSegs"], span)?;
    let Some(syn) = net.sum(set, &["tcpext.TCPSynRetrans"], span) else { return Some(all) };
    Some(all.zip(&syn, |all, syn| (all - syn).max(0.0)))
}

/// Of the data that were sent again, what was lost: without what the peer says had arrived the first time (D-SACK). Those
/// were late or out of order.
#[must_use]
pub fn lost(set: &SeriesSet, net: Net<'_>, span: Span) -> Option<Signal> {
    let again = retransmits(set, net, span)?;
    let Some(in_vain) = in_vain(set, net, span) else { return Some(again) };
    Some(again.zip(&in_vain, |again, in_vain| (again - in_vain).max(0.0)))
}

/// Segments that the peers said to have twice. Kernels before 5.9 count such answers and not the segments.
fn in_vain(set: &SeriesSet, net: Net<'_>, span: Span) -> Option<Signal> {
    let of = |metric| net.sum(set, &[metric], span);
    of("tcpext.TCPDSACKRecvSegs").or_else(|| of("tcpext.TCPDSACKRecv"))
}

/// Ends of requests and answers of open connections that were lost, so that nothing came after them that would have told:
/// time-outs, and losses that a probe repaired, which is sent in place of the time-out (RFC 8985). For what fits into one
/// segment it is as late as the time-out. Those of connections that are being set up are left out.
#[must_use]
pub fn tails(set: &SeriesSet, net: Net<'_>, span: Span) -> Option<Signal> {
    let probed = net.sum(set, &["tcpext.TCPLossProbeRecovery"], span);
    let Some(all) = net.sum(set, &["tcpext.TCPTimeouts"], span) else { return probed };
    let late = match net.sum(set, &["tcpext.TCPSynRetrans"], span) {
        Some(syn) => all.zip(&syn, |all, syn| (all - syn).max(0.0)),
        None => all,
    };
    Some(match probed {
        Some(probed) => late.zip(&probed, |late, probed| late + probed),
        None => late,
    })
}

/// The first and the last of the ports from which connections of a namespace begin.
#[must_use]
pub fn port_range(set: &SeriesSet, net: Net<'_>) -> Option<(f64, f64)> {
    let (metric, row) = net.cell("sysctl.net.ipv4.ip_local_port_range")?;
    let mut numbers = set.text(metric, row)?.last()?.split_ascii_whitespace().map(str::parse::<f64>);
    let (Some(Ok(low)), Some(Ok(high))) = (numbers.next(), numbers.next()) else { return None };
    (1.0 <= low && low <= high && high <= 65_535.0).then_some((low, high))
}

/// The share of what was lost in all that was on its way: the lost and those that came through.
#[must_use]
pub fn share_of(part: f64, rest: f64) -> f64 {
    if part + rest > 0.0 { part / (part + rest) } else { 0.0 }
}

/// What [`shares`] reads.
pub const SHARES: &[&str] = &[
    "tcp.RetransSegs",
    "tcp.OutSegs",
    "tcpext.TCPSynRetrans",
    "tcpext.TCPTimeouts",
    "netns.tcpext_TCPTimeouts",
    "tcpext.TCPLossProbeRecovery",
    "netns.tcpext_TCPLossProbeRecovery",
    "tcpext.TCPDSACKRecv",
    "netns.tcpext_TCPDSACKRecv",
    "tcpext.TCPDSACKRecvSegs",
    "netns.tcpext_TCPDSACKRecvSegs",
    "netns.tcp_RetransSegs",
    "netns.tcp_OutSegs",
    "netns.tcpext_TCPSynRetrans",
    "sock.tcp_mem",
    "sysctl.net.ipv4.tcp_mem",
    "sock.tcp_tw",
    "sock.tcp_inuse",
    "sysctl.net.ipv4.ip_local_port_range",
    "netns.sock_tcp_tw",
    "netns.sock_tcp_inuse",
    "netns.sysctl_net_ipv4_ip_local_port_range",
    "resolver.wait_time",
    "resolver.queries",
    "resolver.answers",
    "resolver.unanswered",
    "nic.qdisc_backlog_bytes",
    "nic.tx_bytes",
];
/// For how long at least a share has to be high to be worth a look.
pub const SHARES_NEED_S: f64 = 3.0;

/// Signals that are one where something of the network is near its limit, or lost in a share that hurts; what that
/// limit is another number says.
#[must_use]
pub fn shares(set: &SeriesSet, window: Span) -> Vec<Signal> {
    let step = |is_high: bool| if is_high { 1.0 } else { 0.0 };
    let mut list: Vec<Signal> = tcp_limits::under_pressure(set, window).into_iter().collect();
    for net in nets(set, "tcp.RetransSegs") {
        let Some(sent) = net.sum(set, &["tcp.OutSegs"], window) else { continue };
        list.extend(lost(set, net, window).map(|lost| {
            lost.zip(&sent, |lost, sent| {
                step(lost >= RETRANSMITS_S && share_of(lost, sent) >= RETRANSMITS_SHARE)
            })
        }));
        list.extend(tails(set, net, window).map(|tails| {
            tails.zip(&sent, |n, sent| {
                step(n * RTO_MIN_S >= TIMEOUTS_FELT && share_of(n, sent) >= TAILS_SHARE)
            })
        }));
    }
    for net in nets(set, "sock.tcp_tw") {
        let Some(((low, high), used)) =
            port_range(set, net).zip(net.sum(set, &["sock.tcp_tw", "sock.tcp_inuse"], window))
        else {
            continue;
        };
        list.push(used.map(|used| step(used >= PORTS_NEARLY_ALL * (high - low + 1.0))));
    }
    let servers = set.each("resolver.wait_time");
    list.extend(servers.filter_map(|(row, _)| {
        let (waits, mean) = (resolver_waits(set, row, window)?, resolver_mean(set, row, window)?);
        Some(waits.zip(&mean, |wait, mean| step(wait >= RESOLVER_WAIT && mean >= RESOLVER_SLOW_S)))
    }));
    let queues = set.each("nic.qdisc_backlog_bytes");
    let delays = queues.filter_map(|(row, _)| queue_delay(set, row, window));
    list.extend(delays.map(|delay| delay.map(|seconds| step(seconds >= QUEUE_TARGET_S))));
    list
}

/// What a queue may hold all the time: a link needs no more to be full, and what is beyond is only waited for (`TARGET` of
/// CoDel, RFC 8289, section 4.3).
pub const QUEUE_TARGET_S: f64 = 0.005;

/// How long what waits in front of a device takes to go out at the rate at which it sends.
#[must_use]
pub fn queue_delay(set: &SeriesSet, row: &str, span: Span) -> Option<Signal> {
    let waiting = Signal::of(set.get("nic.qdisc_backlog_bytes", row)?, span);
    let sent = Signal::of(set.get("nic.tx_bytes", row)?, span);
    // Of a device that sends nothing it is not known.
    Some(waiting.zip(&sent, |waiting, sent| if waiting > 0.0 { waiting / sent } else { 0.0 }))
}

/// Questions to a name server that came to an end, by an answer or by giving up. A library that asks for both kinds of
/// address at once has two answers to what it waits for once.
#[must_use]
pub fn resolver_ended(set: &SeriesSet, row: &str, span: Span) -> Option<Signal> {
    let total = |metric: &str| set.get(metric, row).and_then(|s| s.total(Span::ALL));
    let answers_each = total("resolver.queries")
        .filter(|queries| *queries > 0.0)
        .map_or(1.0, |queries| (total("resolver.answers").unwrap_or(0.0) / queries).max(1.0));
    let answered = set.get("resolver.answers", row).map(|s| Signal::of(s, span).map(|n| n / answers_each));
    let unanswered = set.get("resolver.unanswered", row).map(|s| Signal::of(s, span));
    match (answered, unanswered) {
        (Some(answered), Some(unanswered)) => Some(answered.zip(&unanswered, |a, b| a + b)),
        (one, other) => one.or(other),
    }
}

/// How long each of the questions to a name server took that came to an end in a sample, in the mean, with what was waited
/// since others did; until then what the next ones took; and at last what one that is still open has taken.
fn resolver_mean(set: &SeriesSet, row: &str, span: Span) -> Option<Signal> {
    let waited = Signal::of(set.get("resolver.wait_time", row)?, span);
    let ended = resolver_ended(set, row, span)?;
    let mut mean = waited.zip(&ended, |_, ended| ended);
    let mut open_s = 0.0;
    for i in 0..mean.v.len() {
        let in_sample = waited.t.binary_search(&mean.t[i]).map_or(0.0, |at| waited.v[at] * waited.dt[at]);
        open_s += in_sample;
        let questions = mean.v[i] * mean.dt[i];
        mean.v[i] = if questions > 0.0 { std::mem::take(&mut open_s) / questions } else { -1.0 };
    }
    let mut next_s = open_s;
    for value in mean.v.iter_mut().rev() {
        match *value {
            v if v < 0.0 => *value = next_s,
            v => next_s = v,
        }
    }
    Some(mean)
}

/// Task-seconds per second that programs waited for a name server. In older recordings the time is counted when a question
/// comes to its end, which may be many seconds after it was asked: each sample's time is laid over the seconds before, as far
/// back as its questions took in the mean.
#[must_use]
pub fn resolver_waits(set: &SeriesSet, row: &str, span: Span) -> Option<Signal> {
    let counted = Signal::of(set.get("resolver.wait_time", row)?, span);
    let ended = resolver_ended(set, row, span)?;
    let mean = counted.zip(&ended, |waited, ended| if ended > 0.0 { waited / ended } else { 0.0 });
    let mut waits = counted.clone();
    for i in 0..counted.t.len() {
        let reach_s = mean.t.binary_search(&counted.t[i]).map_or(0.0, |at| mean.v[at]).min(RESOLVER_REACH_S);
        if counted.v[i] <= 0.0 || reach_s <= counted.dt[i] {
            continue;
        }
        let since = counted.t[i] - (reach_s * SECOND as f64) as i64;
        let first = counted.t.partition_point(|t| *t <= since);
        let covered: f64 = counted.dt[first..=i].iter().sum();
        let rate = counted.v[i] * counted.dt[i] / covered.max(counted.dt[i]);
        waits.v[i] -= counted.v[i];
        for value in &mut waits.v[first..=i] {
            *value += rate;
        }
    }
    Some(waits)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mitra_model::{Axis, Series};

    use super::*;

    #[test]
    fn a_device_of_another_namespace_says_which() {
        assert_eq!(device("eth0"), ("eth0", Net { name: None }));
        assert_eq!(device("eth0@net:[4026532001]"), ("eth0", Net { name: Some("net:[4026532001]") }));
    }

    #[test]
    fn a_wait_is_laid_over_the_seconds_that_it_took() {
        let axis =
            Arc::new(Axis { t: (1..=8).map(|i| i * SECOND).collect(), dt: vec![1.0; 8], places: Vec::new() });
        let mut set = SeriesSet::default();
        for (metric, value) in [("resolver.wait_time", 5.0), ("resolver.unanswered", 1.0)] {
            let mut values = vec![0.0; 8];
            values[6] = value;
            let series = Series { axis: Arc::clone(&axis), start: 0, values };
            set.insert(lookup(metric).unwrap(), "10.0.0.1:53".into(), series);
        }
        let waits = resolver_waits(&set, "10.0.0.1:53", Span::ALL).unwrap();
        assert_eq!(waits.v, [0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0]);
        let high: f64 = shares(&set, Span::ALL).iter().map(Signal::total).sum();
        assert_eq!(high, 5.0);
    }

    #[test]
    fn a_share_is_of_all_that_was_on_its_way() {
        assert_eq!(share_of(1.0, 99.0), 0.01);
        assert_eq!(share_of(0.0, 0.0), 0.0);
    }
}
