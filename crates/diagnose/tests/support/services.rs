//! Services that are asked, and what they ask of others.

use mitra_model::report::{Incident, Report};
use mitra_model::{TextSeries, lookup};

use super::support::{AFTER, HEALTHY, INCIDENT, Machine, START, is_on};

/// Seconds of a recording.
pub const N: usize = HEALTHY + INCIDENT + AFTER;

/// What is asked in a second, how long half of the answers take, and how many clients wait.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    pub rate: f64,
    pub p50: f64,
    pub p90: f64,
    pub waiting: f64,
}

impl Asked {
    /// So many a second, each answered in the same time.
    pub fn each(rate: f64, took_s: f64) -> Asked {
        Asked { rate, p50: took_s, p90: 1.5 * took_s, waiting: rate * took_s }
    }

    /// Nothing is answered, and so many wait.
    pub fn nothing(waiting: f64) -> Asked {
        Asked { rate: 0.0, p50: f64::NAN, p90: f64::NAN, waiting }
    }
}

/// A little noise in a fixed pattern.
fn noise(i: usize) -> f64 {
    1.0 + 0.03 * (((i * 7919) % 7) as f64 - 3.0) / 3.0
}

fn conversation(m: &mut Machine, side: &str, row: &str, of: impl Fn(usize) -> Asked) {
    let each = |f: &dyn Fn(Asked) -> f64| (0..N).map(|i| f(of(i)) * noise(i)).collect::<Vec<f64>>();
    m.values(&format!("{side}.requests"), row, 0, each(&|a| a.rate));
    m.values(&format!("{side}.response_time"), row, 0, each(&|a| if a.rate > 0.0 { a.waiting } else { 0.0 }));
    m.values(&format!("{side}.wait_time"), row, 0, each(&|a| a.waiting));
    m.values(&format!("{side}.open"), row, 0, (0..N).map(|i| of(i).waiting.round()).collect());
    m.values(&format!("{side}.latency_p50"), row, 0, each(&|a| a.p50));
    m.values(&format!("{side}.latency_p90"), row, 0, each(&|a| a.p90));
    m.values(&format!("{side}.latency_p99"), row, 0, each(&|a| 2.0 * a.p90));
    for metric in ["unanswered", "abandoned", "resets"] {
        m.row(&format!("{side}.{metric}"), row, 0.0, 0.0);
    }
}

fn named(m: &mut Machine, side: &str, row: &str, pid: u32, comm: &str) {
    m.values(&format!("{side}.pid"), row, 0, vec![f64::from(pid); N]);
    let text = TextSeries { changes: vec![(START, Some(comm.into()))], place: None };
    m.set.insert_text(lookup(&format!("{side}.comm")).unwrap(), row.into(), text);
}

/// A service and its process.
pub fn service(m: &mut Machine, row: &str, (pid, comm): (u32, &str), of: impl Fn(usize) -> Asked) {
    if m.set.get("task.tgid", &super::support::row(pid)).is_none() {
        m.task(pid, comm, 0).task_rate(pid, "task.cpu_time", 0.02, 0.02);
    }
    conversation(m, "service", row, &of);
    m.values("service.connections", row, 0, (0..N).map(|i| of(i).rate * noise(i)).collect());
    named(m, "service", row, pid, comm);
}

/// What a process asks of an address; connecting takes no time.
pub fn dependency(m: &mut Machine, (pid, comm): (u32, &str), address: &str, of: impl Fn(usize) -> Asked) {
    let row = format!("{pid}>{address}");
    conversation(m, "dependency", &row, &of);
    for metric in ["connecting", "connect_time", "connect_failed", "connects"] {
        m.row(&format!("dependency.{metric}"), &row, 0.0, 0.0);
    }
    named(m, "dependency", &row, pid, comm);
}

/// Attempts to connect that go on in the incident, and those that fail or come about in a second.
pub fn attempts(m: &mut Machine, row: &str, pending: f64, failed: f64, connects: (f64, f64)) {
    m.row("dependency.connecting", row, 0.0, pending).row("dependency.connect_time", row, 0.0, pending);
    m.row("dependency.connect_failed", row, 0.0, failed).row(
        "dependency.connects",
        row,
        connects.0,
        connects.1,
    );
}

/// The accept queue of a service.
pub fn queue(m: &mut Machine, row: &str, (pid, comm): (u32, &str), of: impl Fn(usize) -> f64) {
    m.values("listener.queue", row, HEALTHY, (0..INCIDENT).map(of).collect());
    m.values("listener.backlog", row, HEALTHY, vec![4096.0; INCIDENT]);
    m.values("listener.pid", row, HEALTHY, vec![f64::from(pid); INCIDENT]);
    let text = TextSeries { changes: vec![(START, Some(comm.into()))], place: None };
    m.set.insert_text(lookup("listener.comm").unwrap(), row.into(), text);
}

/// Something else in the incident.
pub fn during<T>(before: T, during: T) -> impl Fn(usize) -> T + Copy
where
    T: Copy,
{
    move |i| if is_on(i) { during } else { before }
}

/// Nothing went wrong.
pub fn is_silent(m: &Machine) {
    let report = m.explain();
    assert!(report.incidents.is_empty(), "{:#?}", report.incidents);
}

/// The only incident.
pub fn one(report: &Report) -> &Incident {
    assert_eq!(report.incidents.len(), 1, "{:#?}", report.incidents);
    &report.incidents[0]
}

/// The conditions of its chain.
pub fn links(incident: &Incident) -> Vec<&str> {
    incident.chain.iter().map(|link| link.condition.as_str()).collect()
}

/// One that answers two hundred requests a second in two milliseconds and then late.
pub fn slow() -> impl Fn(usize) -> Asked + Copy {
    during(Asked::each(200.0, 0.002), Asked::each(15.0, 1.6))
}
