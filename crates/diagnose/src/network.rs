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
use mitra_model::{SeriesSet, Span, lookup};

use crate::signal::Signal;
use crate::view::{High, View};
use crate::words;

/// The first timeout of a connection that is being set up (RFC 6298, `TCP_TIMEOUT_INIT`): whoever loses a SYN waits for
/// that long at least.
pub const SYN_WAIT_S: f64 = 1.0;
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
            Some(name) => format!("ip netns exec {} ", words::shell(name)),
        }
    }
}

/// The share of what was lost in all that was on its way: the lost and those that came through.
#[must_use]
pub fn share_of(part: f64, rest: f64) -> f64 {
    if part + rest > 0.0 { part / (part + rest) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_of_another_namespace_says_which() {
        assert_eq!(device("eth0"), ("eth0", Net { name: None }));
        assert_eq!(device("eth0@net:[4026532001]"), ("eth0", Net { name: Some("net:[4026532001]") }));
    }

    #[test]
    fn a_share_is_of_all_that_was_on_its_way() {
        assert_eq!(share_of(1.0, 99.0), 0.01);
        assert_eq!(share_of(0.0, 0.0), 0.0);
    }
}
