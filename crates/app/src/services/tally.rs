//! Adds up rows of services and dependencies, chunk by chunk.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use mitra_model::latency::{self, Columns};
use mitra_model::{Latency, Series, SeriesSet, Span};

use super::address::Resolver;
use super::{Address, Answers, Dependency, Processes, Service, Services, Traffic, call};

/// Recorded once a second wherever services are watched, also where there are none.
const LOST: &str = "probe.services_lost";
/// Recorded in every frame, also where services are not watched.
const ALWAYS: &str = "mem.total";
/// What is read beside the columns of services and dependencies.
pub const METRICS: &[&str] = &[LOST, ALWAYS];

/// Names of the metrics of one entity.
struct Names {
    latency: Columns,
    requests: &'static str,
    response_time: &'static str,
    wait_time: &'static str,
    open: &'static str,
    unanswered: &'static str,
    abandoned: &'static str,
    resets: &'static str,
    sent: &'static str,
    received: &'static str,
    connections: &'static str,
    watched: &'static str,
    pid: &'static str,
    comm: &'static str,
}

const SERVICE: Names = Names {
    latency: latency::SERVICE,
    requests: "service.requests",
    response_time: "service.response_time",
    wait_time: "service.wait_time",
    open: "service.open",
    unanswered: "service.unanswered",
    abandoned: "service.abandoned",
    resets: "service.resets",
    sent: "service.sent_bytes",
    received: "service.received_bytes",
    connections: "service.connections",
    watched: "service.watched",
    pid: "service.pid",
    comm: "service.comm",
};

const DEPENDENCY: Names = Names {
    latency: latency::DEPENDENCY,
    requests: "dependency.requests",
    response_time: "dependency.response_time",
    wait_time: "dependency.wait_time",
    open: "dependency.open",
    unanswered: "dependency.unanswered",
    abandoned: "dependency.abandoned",
    resets: "dependency.resets",
    sent: "dependency.sent_bytes",
    received: "dependency.received_bytes",
    connections: "dependency.connects",
    watched: "dependency.watched",
    pid: "dependency.pid",
    comm: "dependency.comm",
};

/// Only of services, and only where it is read: answers by how they went.
const ANSWERS: [&str; 4] =
    ["service.status_ok", "service.client_errors", "service.server_errors", "service.status_unknown"];
const PROTOCOL: &str = "service.protocol";
/// Only of dependencies.
const CONNECT_TIME: &str = "dependency.connect_time";
const CONNECT_FAILED: &str = "dependency.connect_failed";
const CONNECTING: &str = "dependency.connecting";

/// One row so far. Counters are totals; `None` was not measured.
#[derive(Debug, Default)]
struct Row {
    latency: Latency,
    requests: Option<f64>,
    response_time: Option<f64>,
    wait_time: Option<f64>,
    unanswered: Option<f64>,
    abandoned: Option<f64>,
    resets: Option<f64>,
    sent: Option<f64>,
    received: Option<f64>,
    connections: Option<f64>,
    connect_time: Option<f64>,
    connect_failed: Option<f64>,
    answers: [Option<f64>; ANSWERS.len()],
    protocol: Option<String>,
    /// The smallest.
    watched: Option<f64>,
    /// At the end of the span.
    open: Option<f64>,
    connecting: Option<f64>,
    pid: Option<u32>,
    pids: BTreeSet<u32>,
    comm: Option<String>,
    comms: BTreeSet<String>,
}

/// What was read so far.
#[derive(Debug, Default)]
pub struct Tally {
    seconds: f64,
    lost: Option<f64>,
    services: BTreeMap<String, Row>,
    dependencies: BTreeMap<String, Row>,
    unavailable: Vec<(String, String)>,
}

impl Tally {
    /// Adds the part of a set that lies in a span.
    pub fn add(&mut self, set: &SeriesSet, span: Span) {
        let clock = set.system(LOST).or_else(|| set.system(ALWAYS)).or_else(|| {
            set.each(SERVICE.requests).chain(set.each(DEPENDENCY.requests)).next().map(|(_, s)| s)
        });
        if let Some(clock) = clock {
            let dt = &clock.axis.dt[clock.axis.range(span)];
            self.seconds += dt.iter().filter(|dt| dt.is_finite()).sum::<f64>();
        }
        let lost = set.system(LOST).and_then(|lost| lost.total(span));
        self.lost = [self.lost, lost].into_iter().flatten().reduce(|a, b| a + b);
        for (source, why) in &set.unavailable {
            if !self.unavailable.iter().any(|(known, _)| known == source) {
                self.unavailable.push((source.clone(), why.clone()));
            }
        }
        add_rows(&mut self.services, set, span, &SERVICE);
        add_rows(&mut self.dependencies, set, span, &DEPENDENCY);
    }

    /// Every process that serves or calls.
    pub fn pids(&self) -> BTreeSet<u32> {
        let rows = self.services.values().chain(self.dependencies.values());
        rows.flat_map(|row| row.pids.iter().copied()).collect()
    }

    /// All together. `local` says which addresses this machine has, given namespaces with a process in each.
    pub fn finish(
        self,
        processes: &Processes,
        local: impl FnOnce(&[Service]) -> Vec<(Option<String>, IpAddr)>,
    ) -> Services {
        let seconds = self.seconds;
        let mut services: Vec<Service> =
            self.services.into_iter().map(|(key, row)| row.service(key, seconds, processes)).collect();
        services.sort_by(|a, b| by_waiting(&a.traffic, &b.traffic));
        let last: BTreeMap<String, u32> =
            self.dependencies.iter().filter_map(|(key, row)| Some((key.clone(), row.pid?))).collect();
        let mut dependencies: Vec<Dependency> = self
            .dependencies
            .into_iter()
            .filter_map(|(key, row)| row.dependency(key, seconds, processes))
            .collect();
        dependencies.sort_by(|a, b| by_waiting(&a.traffic, &b.traffic));
        let local = local(&services);
        let resolver = Resolver::new(services.iter().map(|service| &service.address).collect(), local);
        let targets: Vec<Option<usize>> =
            dependencies.iter().map(|dependency| resolver.find(&dependency.address)).collect();
        for (i, (dependency, to)) in dependencies.iter_mut().zip(targets).enumerate() {
            dependency.to = to;
            let pid = last.get(&dependency.key);
            dependency.of = pid.map_or_else(Vec::new, |pid| callers(&services, *pid, processes));
            // Young processes may be gone already, and then only their name tells.
            if dependency.of.is_empty() && dependency.pid.is_none() {
                dependency.of.extend(only_named(&services, &dependency.name));
            }
            // Who is only like the workers of the service that it calls is its client.
            let is_worker = |of: usize| pid.is_some_and(|pid| services[of].pids.contains(pid));
            dependency.of.retain(|of| Some(*of) != to || is_worker(*of));
            dependency.of.iter().for_each(|of| services[*of].calls.push(i));
        }
        Services { seconds, lost: self.lost, services, dependencies, unavailable: self.unavailable }
    }
}

/// The services that a process works for: those for which it answered, or else those whose workers are like it.
fn callers(services: &[Service], pid: u32, processes: &Processes) -> Vec<usize> {
    let of = |is: &dyn Fn(&Service) -> bool| (0..services.len()).filter(|i| is(&services[*i])).collect();
    let own: Vec<usize> = of(&|service| service.pids.contains(&pid));
    if !own.is_empty() {
        return own;
    }
    of(&|service| service.pids.iter().any(|worker| processes.are_alike(*worker, pid)))
}

/// The service of that name, if it is the only one.
fn only_named(services: &[Service], name: &str) -> Option<usize> {
    let mut named = (0..services.len()).filter(|i| services[*i].names.contains(name));
    named.next().filter(|_| named.next().is_none())
}

/// Those for which most wait come first, then the busiest, then by name.
fn by_waiting(a: &Traffic, b: &Traffic) -> std::cmp::Ordering {
    let number = |value: Option<f64>| value.unwrap_or(0.0);
    number(b.waiting).total_cmp(&number(a.waiting)).then(number(b.requests).total_cmp(&number(a.requests)))
}

fn add_rows(rows: &mut BTreeMap<String, Row>, set: &SeriesSet, span: Span, names: &Names) {
    let known: BTreeSet<&str> = [names.requests, names.open, names.connections]
        .iter()
        .flat_map(|m| set.each(m))
        .map(|(row, _)| row)
        .collect();
    for key in known {
        let row = rows.entry(key.to_owned()).or_default();
        row.latency.add_row(set, &names.latency, key, span);
        let total = |sum: &mut Option<f64>, metric: &str| {
            if let Some(more) = set.get(metric, key).and_then(|series| series.total(span)) {
                *sum = Some(sum.unwrap_or(0.0) + more);
            }
        };
        total(&mut row.requests, names.requests);
        total(&mut row.response_time, names.response_time);
        total(&mut row.wait_time, names.wait_time);
        total(&mut row.unanswered, names.unanswered);
        total(&mut row.abandoned, names.abandoned);
        total(&mut row.resets, names.resets);
        total(&mut row.sent, names.sent);
        total(&mut row.received, names.received);
        total(&mut row.connections, names.connections);
        let watched = set.get(names.watched, key).and_then(|series| series.mean(span));
        row.watched = [row.watched, watched].into_iter().flatten().reduce(f64::min);
        let at_end = |metric: &str| set.get(metric, key).and_then(|series| at_end(series, span));
        row.open = at_end(names.open);
        if names.pid == DEPENDENCY.pid {
            total(&mut row.connect_time, CONNECT_TIME);
            total(&mut row.connect_failed, CONNECT_FAILED);
            row.connecting = at_end(CONNECTING);
        } else {
            for (sum, metric) in row.answers.iter_mut().zip(ANSWERS) {
                total(sum, metric);
            }
            if let Some(protocol) = set.text(PROTOCOL, key).and_then(|text| text.last()) {
                row.protocol = Some(protocol.to_owned());
            }
        }
        for (_, _, pid) in set.get(names.pid, key).into_iter().flat_map(|series| series.samples(span)) {
            row.pid = Some(pid as u32).filter(|pid| *pid > 0).or(row.pid);
            row.pids.extend(row.pid);
        }
        if let Some(comm) = set.text(names.comm, key) {
            row.comm = comm.last().map(str::to_owned).or(row.comm.take());
            row.comms.extend(comm.changes.iter().filter_map(|(_, name)| name.as_deref().map(str::to_owned)));
        }
    }
}

/// The value of the last sample in the span.
fn at_end(series: &Series, span: Span) -> Option<f64> {
    let last = series.axis.range(span).last()?;
    Some(series.at(last)).filter(|value| value.is_finite())
}

impl Row {
    fn traffic(&self, seconds: f64) -> Traffic {
        let rate = |total: Option<f64>| total.map(|total| total / seconds).filter(|rate| rate.is_finite());
        let mean = self.response_time.zip(self.requests).map(|(time, requests)| time / requests);
        Traffic {
            requests: rate(self.requests),
            latency: self.latency.clone(),
            mean: mean.filter(|mean| mean.is_finite()),
            waiting: rate(self.wait_time),
            open: self.open,
            unanswered: rate(self.unanswered),
            abandoned: rate(self.abandoned),
            resets: rate(self.resets),
            sent_bytes: rate(self.sent),
            received_bytes: rate(self.received),
            watched: self.watched,
            answers: self.answers(seconds),
        }
    }

    fn answers(&self, seconds: f64) -> Option<Answers> {
        let rate = |total: Option<f64>| total.map(|total| total / seconds).filter(|rate| rate.is_finite());
        let [ok, client_errors, server_errors, unknown] = self.answers.map(rate);
        Some(Answers {
            ok: ok?,
            client_errors: client_errors?,
            server_errors: server_errors?,
            unknown: unknown?,
            protocol: self.protocol.clone(),
        })
    }

    fn service(self, key: String, seconds: f64, processes: &Processes) -> Service {
        let traffic = self.traffic(seconds);
        let process = self.pid.and_then(|pid| processes.get(pid));
        let name = process.and_then(|p| p.name.clone()).or(self.comm).unwrap_or_else(|| "?".to_owned());
        let leaders = self.pids.iter().filter_map(|pid| processes.get(*pid)?.name.clone());
        let mut names = self.comms;
        names.extend(leaders);
        names.insert(name.clone());
        Service {
            address: Address::parse(&key),
            key,
            name,
            names,
            pid: self.pid,
            cgroup: process.and_then(|p| p.cgroup.clone()),
            cgroup_name: process.and_then(|p| p.cgroup_name.clone()),
            connections: self.connections.map(|total| total / seconds).filter(|rate| rate.is_finite()),
            pids: self.pids,
            traffic,
            calls: Vec::new(),
            slower: None,
        }
    }

    /// `None` if the name of the row makes no sense.
    fn dependency(self, key: String, seconds: f64, processes: &Processes) -> Option<Dependency> {
        let (caller, called) = call(&key)?;
        let pid = caller.parse().ok();
        let process = self.pid.and_then(|pid| processes.get(pid));
        let name = process.and_then(|p| p.name.clone()).or(self.comm.clone());
        let attempts = self.connections.unwrap_or(0.0) + self.connect_failed.unwrap_or(0.0);
        let rate = |total: Option<f64>| total.map(|total| total / seconds).filter(|rate| rate.is_finite());
        Some(Dependency {
            pid,
            // The row of young processes has their name.
            name: name.filter(|_| pid.is_some()).unwrap_or_else(|| caller.to_owned()),
            cgroup: process.and_then(|p| p.cgroup.clone()),
            cgroup_name: process.and_then(|p| p.cgroup_name.clone()),
            called: called.to_owned(),
            address: Address::parse(called),
            traffic: self.traffic(seconds),
            connects: rate(self.connections),
            connect_time: self.connect_time.map(|time| time / attempts).filter(|time| time.is_finite()),
            connect_failed: rate(self.connect_failed),
            connecting: self.connecting,
            of: Vec::new(),
            to: None,
            key,
        })
    }
}
