//! A made-up recording: nginx before two workers, whose database gets slow in the last minute of four.

use std::collections::HashMap;
use std::path::Path;

use mitra_archive::{Options, Reader, Writer};
use mitra_model::time::SECOND;
use mitra_model::{Frame, HostInfo, Key, Span, Stamp, Strings, column, lookup};

use super::{Services, add_past, read};

/// 2026-11-21T03:40:00Z.
pub const SINCE: i64 = 1_795_232_400 * SECOND;
/// Seconds of the recording, and those before the database gets slow.
pub const LENGTH: i64 = 240;
pub const FAST: i64 = 180;

/// Writes frames in which values are given in base units, and counters as rates.
pub struct Recorder {
    writer: Writer,
    frame: Frame,
    strings: Strings,
    totals: HashMap<(String, &'static str), f64>,
}

impl Recorder {
    pub fn new(dir: &Path) -> Self {
        let host = HostInfo {
            hostname: "web-17".into(),
            kernel: "6.18.44".into(),
            cpus: 2,
            page_bytes: 4096,
            ..HostInfo::default()
        };
        Recorder {
            writer: Writer::open(dir, &host, Options::default()).unwrap(),
            frame: Frame::new(),
            strings: Strings::new(),
            totals: HashMap::new(),
        }
    }

    fn cell(&mut self, row: &str, metric: &'static str) -> &mut i64 {
        let entity = lookup(metric).unwrap().entity;
        let key = match (entity, row.split_once('@')) {
            (mitra_model::Entity::System, _) => Key::SYSTEM,
            (mitra_model::Entity::Task, Some((tid, born))) => {
                Key::task(tid.parse().unwrap(), born.parse().unwrap())
            }
            _ => Key::named(self.strings.intern(row)),
        };
        let table = self.frame.table_mut(entity);
        let cells = match table.keys().iter().position(|known| *known == key) {
            Some(known) => table.row_mut(known),
            None => table.push(key),
        };
        &mut cells[column(metric).unwrap()]
    }

    pub fn level(&mut self, row: &str, metric: &'static str, value: f64) {
        let stored = (value / lookup(metric).unwrap().unit.scale()).round() as i64;
        *self.cell(row, metric) = stored;
    }

    pub fn rate(&mut self, row: &str, metric: &'static str, per_second: f64) {
        let total = self.totals.entry((row.to_owned(), metric)).or_default();
        *total += per_second;
        let total = *total;
        self.level(row, metric, total);
    }

    pub fn text(&mut self, row: &str, metric: &'static str, text: &str) {
        let id = self.strings.intern(text);
        *self.cell(row, metric) = i64::from(id);
    }

    pub fn process(&mut self, pid: u32, name: &str, cgroup: &str, parent: u32) {
        let row = format!("{pid}@{}", u64::from(pid) * 1_000_000_000);
        self.text(&row, "task.comm", name);
        self.text(&row, "task.cgroup", cgroup);
        self.level(&row, "task.tgid", f64::from(pid));
        self.level(&row, "task.ppid", f64::from(parent));
    }

    pub fn service(&mut self, row: &str, pid: u32, comm: &str, requests: f64, p50: f64) {
        self.level(row, "service.pid", f64::from(pid));
        self.text(row, "service.comm", comm);
        self.rate(row, "service.requests", requests);
        self.rate(row, "service.response_time", requests * p50 * 1.2);
        self.rate(row, "service.wait_time", requests * p50 * 1.2);
        for metric in ["service.unanswered", "service.abandoned", "service.resets"] {
            self.rate(row, metric, 0.0);
        }
        self.level(row, "service.watched", 1.0);
        self.level(row, "service.open", (requests * p50).floor());
        let times =
            ["service.latency_p50", "service.latency_p90", "service.latency_p99", "service.latency_max"];
        for (metric, factor) in times.into_iter().zip([1.0, 1.5, 4.0, 8.0]) {
            if requests > 0.0 {
                self.level(row, metric, p50 * factor);
            }
        }
    }

    pub fn dependency(&mut self, row: &str, comm: &str, requests: f64, p50: f64) {
        if let Ok(pid) = row.split('>').next().unwrap().parse() {
            self.level(row, "dependency.pid", pid);
        }
        self.text(row, "dependency.comm", comm);
        self.rate(row, "dependency.requests", requests);
        self.rate(row, "dependency.response_time", requests * p50 * 1.2);
        self.rate(row, "dependency.wait_time", requests * p50 * 1.2);
        self.rate(row, "dependency.connects", 0.0);
        self.rate(row, "dependency.connect_failed", 0.0);
        self.rate(row, "dependency.connect_time", 0.0);
        self.level(row, "dependency.open", (requests * p50).floor());
        self.level(row, "dependency.connecting", 0.0);
        let times = [
            "dependency.latency_p50",
            "dependency.latency_p90",
            "dependency.latency_p99",
            "dependency.latency_max",
        ];
        for (metric, factor) in times.into_iter().zip([1.0, 1.5, 4.0, 8.0]) {
            if requests > 0.0 {
                self.level(row, metric, p50 * factor);
            }
        }
    }

    /// Ends the frame of a second.
    pub fn take(&mut self, second: i64) {
        self.rate("", "probe.services_lost", 0.0);
        let ns = second * SECOND;
        self.frame.time = Stamp { real: SINCE + ns, mono: SECOND + ns, boot: SECOND + ns };
        self.writer.append(&self.frame, &self.strings).unwrap();
        self.frame.clear();
    }

    pub fn finish(self) {
        self.writer.finish().unwrap();
    }
}

/// One second of it.
fn second(recorder: &mut Recorder, second: i64) {
    let is_fast = second < FAST;
    let (orders, p50) = if is_fast { (60.0, 0.0025) } else { (6.0, 6.8) };
    for (pid, name, unit) in [
        (700, "nginx", "nginx.service"),
        (800, "gunicorn", "orders-api.service"),
        (801, "gunicorn", "orders-api.service"),
        (802, "gunicorn", "orders-api.service"),
        (803, "gunicorn", "orders-api.service"),
        (900, "cached", "cached.service"),
    ] {
        let parent = if name == "gunicorn" { 800 } else { 1 };
        recorder.process(pid, name, &format!("/system.slice/{unit}"), parent);
    }
    for pid in [500, 501] {
        recorder.process(pid, "ab", "/user.slice", 499);
        recorder.dependency(&format!("{pid}>127.0.0.1:80"), "ab", 10.0, 0.002 + p50);
    }
    recorder.service("0.0.0.0:80", 700, "nginx", orders + 40.0, 0.0002 + p50 / 2.0);
    recorder.rate("0.0.0.0:80", "service.abandoned", if is_fast { 0.0 } else { 1.5 });
    recorder.service("127.0.0.1:8080", 801 + (second % 2) as u32, "gunicorn", orders, p50);
    recorder.service("unix:/run/cache.sock", 900, "worker", 80.0, 0.000_08);
    recorder.dependency("700>127.0.0.1:8080", "nginx", orders, p50 + 0.0001);
    for pid in [801, 802] {
        recorder.dependency(&format!("{pid}>10.0.0.7:5432"), "gunicorn", orders / 2.0, p50 * 0.9);
    }
    recorder.dependency("801>unix:/run/cache.sock", "gunicorn", 80.0, 0.000_09);
    recorder.dependency("803>10.0.0.9:9200", "gunicorn", 0.0, 0.0);
    recorder.rate("803>10.0.0.9:9200", "dependency.connect_failed", 0.5);
    recorder.level("803>10.0.0.9:9200", "dependency.connecting", 3.0);
    // A young one of the others.
    recorder.level("gunicorn>10.0.0.7:5432", "dependency.pid", 3000.0 + second as f64);
    recorder.dependency("gunicorn>10.0.0.7:5432", "gunicorn", 0.1, p50);
    recorder.dependency("900>127.0.0.1:80", "worker", 1.0, 0.0003);
    recorder.level("curl>127.0.0.1:80", "dependency.pid", 2000.0 + second as f64);
    recorder.dependency("curl>127.0.0.1:80", "curl", 0.5, 0.001);
}

/// The recording.
pub fn archive() -> (tempfile::TempDir, Reader) {
    let dir = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::new(dir.path());
    for at in 0..=LENGTH {
        second(&mut recorder, at);
        recorder.take(at);
    }
    recorder.finish();
    let reader = Reader::open(dir.path()).unwrap();
    (dir, reader)
}

/// Its last minute, in which the database is slow.
pub fn last_minute() -> Span {
    Span { since: SINCE + (FAST + 1) * SECOND, until: SINCE + LENGTH * SECOND + 1 }
}

/// The services in the last minute, with their past.
pub fn services() -> Services {
    let (_dir, reader) = archive();
    let mut services = read(&reader, last_minute()).unwrap();
    let all: Vec<usize> = (0..services.services.len()).collect();
    add_past(&mut services, &all, &reader, last_minute()).unwrap();
    services
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_recorded_is_read() {
        let services = services();
        assert_eq!((services.seconds, services.lost), (60.0, Some(0.0)));
        let of = |key: &str| services.services.iter().find(|s| s.key == key).unwrap();
        let near = |value: Option<f64>, wanted: f64| (value.unwrap() / wanted - 1.0).abs() < 0.02;
        let orders = of("127.0.0.1:8080");
        assert_eq!((orders.name.as_str(), orders.unit()), ("gunicorn", Some("orders-api")));
        assert_eq!(orders.pids.iter().copied().collect::<Vec<_>>(), [801, 802]);
        let traffic = &orders.traffic;
        assert!(near(traffic.requests, 6.0) && near(traffic.mean, 6.8 * 1.2) && near(traffic.waiting, 48.96));
        assert!(near(traffic.latency.quantile(0.5), 6.8) && near(traffic.latency.quantile(0.99), 27.2));
        assert_eq!((traffic.open, traffic.errors()), (Some(40.0), Some(0.0)));
        let slower = orders.slower.unwrap();
        assert_eq!((slower.since, slower.before), (SINCE + FAST * SECOND, 0.0025));
        assert!(near(slower.now, 6.8));
        assert_eq!(of("unix:/run/cache.sock").slower, None);
        assert!(near(of("0.0.0.0:80").traffic.errors(), 1.5));
        // A worker that never answered belongs to the others.
        let calls: Vec<&str> = orders.calls.iter().map(|i| services.dependencies[*i].key.as_str()).collect();
        assert_eq!(
            calls,
            [
                "801>10.0.0.7:5432",
                "802>10.0.0.7:5432",
                "gunicorn>10.0.0.7:5432",
                "801>unix:/run/cache.sock",
                "803>10.0.0.9:9200"
            ]
        );
        assert_eq!(services.services[0].key, "0.0.0.0:80", "most wait for it");
    }

    #[test]
    fn a_span_in_chunks_is_as_a_whole() {
        let (_dir, reader) = archive();
        let span = Span { since: SINCE, until: SINCE + (LENGTH + 1) * SECOND };
        let services = read(&reader, span).unwrap();
        assert_eq!(services.seconds, LENGTH as f64);
        let orders = services.services.iter().find(|s| s.key == "127.0.0.1:8080").unwrap();
        let per_second = (60.0 * (FAST - 1) as f64 + 6.0 * (LENGTH - FAST + 1) as f64) / LENGTH as f64;
        assert!((orders.traffic.requests.unwrap() - per_second).abs() < 1e-6);
        let half = orders.traffic.latency.quantile(0.5).unwrap();
        assert!((0.002..0.003).contains(&half), "{half}");
    }
}
