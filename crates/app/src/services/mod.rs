//! What the services of a machine did in a part of a recording, and who calls whom.

mod address;
mod filter;
mod incident;
mod local;
mod map;
mod past;
mod process;
mod read;
mod tally;

use std::collections::BTreeSet;

use mitra_model::{Latency, Metric, lookup};

pub use address::{Address, Endpoint, call};
pub use filter::Filter;
pub use incident::concerns;
pub use map::{Caller, Edge, Map};
pub use past::{BACK_NS, Slower};
pub use process::Processes;
pub use read::{add_past, read};
pub use tally::Tally;

/// The kernel that the recorder needs to see services.
pub const KERNEL: (u32, u32) = (6, 3);

/// All of them in a span.
#[derive(Debug, Clone, Default)]
pub struct Services {
    /// Seconds of the span that were recorded.
    pub seconds: f64,
    /// Services and dependencies that had no room in the recorder's table; `None` if it did not watch any.
    pub lost: Option<f64>,
    /// Those whose clients waited longest come first.
    pub services: Vec<Service>,
    /// Those for which somebody waited longest come first.
    pub dependencies: Vec<Dependency>,
    /// Sources that the recorder did not have, with the reason.
    pub unavailable: Vec<(String, String)>,
}

/// A port or Unix socket that serves.
#[derive(Debug, Clone)]
pub struct Service {
    /// The name of its row.
    pub key: String,
    pub address: Address,
    /// The name of the process that answered last.
    pub name: String,
    /// Names of its threads and processes.
    pub names: BTreeSet<String>,
    /// The process that answered last.
    pub pid: Option<u32>,
    /// All that answered at the end of a sample.
    pub pids: BTreeSet<u32>,
    pub cgroup: Option<String>,
    pub cgroup_name: Option<String>,
    pub traffic: Traffic,
    /// Connections that were opened to it, per second.
    pub connections: Option<f64>,
    /// Indices of what it asks of others, the longest waits first.
    pub calls: Vec<usize>,
    /// If it is slower than it used to be.
    pub slower: Option<Slower>,
}

/// What one process asks of one address, or the young processes of one name.
#[derive(Debug, Clone)]
pub struct Dependency {
    /// The name of its row.
    pub key: String,
    /// `None` of young ones.
    pub pid: Option<u32>,
    /// The name of the process.
    pub name: String,
    pub cgroup: Option<String>,
    pub cgroup_name: Option<String>,
    /// As in the row.
    pub called: String,
    pub address: Address,
    pub traffic: Traffic,
    /// Connections that were established, per second.
    pub connects: Option<f64>,
    /// Seconds that one attempt to connect took.
    pub connect_time: Option<f64>,
    /// Attempts that failed, per second.
    pub connect_failed: Option<f64>,
    /// Attempts that nobody has answered yet.
    pub connecting: Option<f64>,
    /// Indices of the services that the process works for.
    pub of: Vec<usize>,
    /// The index of the service that it calls, if that is of this machine.
    pub to: Option<usize>,
}

/// Requests and answers. Rates per second; `None` was not measured.
#[derive(Debug, Clone, Default)]
pub struct Traffic {
    pub requests: Option<f64>,
    pub latency: Latency,
    /// Seconds of an answer on average.
    pub mean: Option<f64>,
    /// How many wait at a time, on average.
    pub waiting: Option<f64>,
    /// Requests without an answer at the end.
    pub open: Option<f64>,
    pub unanswered: Option<f64>,
    pub abandoned: Option<f64>,
    pub resets: Option<f64>,
    pub sent_bytes: Option<f64>,
    pub received_bytes: Option<f64>,
    /// The part of the time in which requests were looked at, which stand for all.
    pub watched: Option<f64>,
    /// How answers went; `None` where that was not read, and of dependencies.
    pub answers: Option<Answers>,
}

/// Answers by how they went, per second.
#[derive(Debug, Clone)]
pub struct Answers {
    pub ok: f64,
    pub client_errors: f64,
    pub server_errors: f64,
    pub unknown: f64,
    /// What those are of which it is known.
    pub protocol: Option<String>,
}

impl Traffic {
    /// Whether nobody asked anything.
    fn is_idle(&self) -> bool {
        ![self.requests, self.waiting, self.open, self.errors()].into_iter().any(is_some)
    }

    /// Requests that got no answer, or an error of the server for one, and connections that were reset, per second.
    pub fn errors(&self) -> Option<f64> {
        let answered = self.answers.as_ref().map(|answers| answers.server_errors);
        [self.without_answer(), answered].into_iter().flatten().reduce(|a, b| a + b)
    }

    /// Requests that got no answer and connections that were reset, per second.
    pub fn without_answer(&self) -> Option<f64> {
        [self.unanswered, self.abandoned, self.resets].into_iter().flatten().reduce(|a, b| a + b)
    }
}

impl Service {
    /// `orders-api 127.0.0.1:8080`.
    pub fn title(&self) -> String {
        format!("{} {}", self.name, self.key)
    }

    /// Whether nobody asked it anything.
    pub fn is_idle(&self) -> bool {
        self.traffic.is_idle() && !is_some(self.connections)
    }

    /// The systemd unit or the last part of the path of its control group.
    pub fn unit(&self) -> Option<&str> {
        let last = self.cgroup.as_deref()?.rsplit('/').next()?;
        let name = last.strip_suffix(".service").or_else(|| last.strip_suffix(".scope")).unwrap_or(last);
        (!name.is_empty()).then_some(name)
    }
}

impl Dependency {
    /// `gunicorn (801)`.
    pub fn caller(&self) -> String {
        self.pid.map_or_else(|| self.name.clone(), |pid| format!("{} ({pid})", self.name))
    }

    /// Whether it asked nothing.
    pub fn is_idle(&self) -> bool {
        let connections = [self.connects, self.connect_failed, self.connecting];
        self.traffic.is_idle() && !connections.into_iter().any(is_some)
    }

    /// What it calls: the address, with the name of the service there if it is of this machine.
    pub fn target(&self, services: &Services) -> String {
        match self.to.and_then(|to| services.services.get(to)) {
            Some(service) => format!("{} {}", service.name, self.called),
            None => self.called.clone(),
        }
    }
}

impl Services {
    /// Why nothing of services was recorded; `None` if they were watched.
    pub fn unwatched(&self, kernel: &str) -> Option<String> {
        if self.lost.is_some() || !self.services.is_empty() || !self.dependencies.is_empty() {
            return None;
        }
        if self.seconds <= 0.0 {
            return Some("the recorder took no samples then".to_owned());
        }
        let (major, minor) = KERNEL;
        if version(kernel).is_some_and(|version| version < KERNEL) {
            return Some(format!("that needs Linux {major}.{minor}, and the machine had {kernel}"));
        }
        let missing = |source: &str| self.unavailable.iter().find(|(name, _)| name == source);
        let why = missing("probe.services").or_else(|| missing("bpf"));
        Some(match why {
            Some((source, why)) => format!("{source} was not available ({why})"),
            None => "the version of mitra that recorded it did not watch them".to_owned(),
        })
    }
}

/// `6.3` of `6.3.0-1-amd64`.
fn version(kernel: &str) -> Option<(u32, u32)> {
    let mut parts = kernel.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn metrics(names: &[&str]) -> Vec<&'static Metric> {
    names.iter().filter_map(|name| lookup(name)).collect()
}

/// Whether a value that may be unknown is above zero.
pub fn is_some(value: Option<f64>) -> bool {
    value.is_some_and(|value| value > 0.0)
}

#[cfg(test)]
pub mod example;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_there_are_none() {
        let none = |unavailable: &[(&str, &str)], kernel: &str| {
            let own = |(a, b): &(&str, &str)| ((*a).to_owned(), (*b).to_owned());
            let unavailable = unavailable.iter().map(own).collect();
            let services = Services { seconds: 60.0, unavailable, ..Services::default() };
            services.unwatched(kernel).unwrap()
        };
        assert_eq!(none(&[], "6.1.0-30-amd64"), "that needs Linux 6.3, and the machine had 6.1.0-30-amd64");
        assert_eq!(
            none(&[("bpf", "turned off by the user")], "6.18.44"),
            "bpf was not available (turned off by the user)"
        );
        assert_eq!(
            none(&[("bpf", "x"), ("probe.services", "no tracepoint")], "6.18.44"),
            "probe.services was not available (no tracepoint)"
        );
        assert!(none(&[], "6.18.44").contains("did not watch them") && none(&[], "").contains("did not"));
        assert!(Services::default().unwatched("6.18.44").unwrap().contains("took no samples"));
        let watched = Services { lost: Some(0.0), ..Services::default() };
        assert_eq!(watched.unwatched("6.18.44"), None);
    }
}
