//! `mitra send` and stores: Prometheus, VictoriaMetrics, and servers that write down what they get. What a store answers is what
//! the archive holds, sample by sample.

#[path = "send_hours.rs"]
mod hours;
#[path = "send_missed.rs"]
mod missed;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use mitra_archive::simulate::Machine;
use mitra_archive::{Options, Query, Reader, Writer};
use mitra_model::time::SECOND;
use mitra_model::{Span, lookup};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{Output, Running, command, python, run, wait_until};

/// Samples that are compared one by one: the metric, and what stores call it.
const COMPARED: [(&str, &str); 8] = [
    ("sys.ctxt", "mitra_sys_ctxt_total"),
    ("sys.cpu_user", "mitra_sys_cpu_user_seconds_total"),
    ("sys.load1", "mitra_sys_load1"),
    ("mem.free", "mitra_mem_free_bytes"),
    ("disk.read_bytes", "mitra_disk_read_bytes_total"),
    ("disk.io_time", "mitra_disk_io_time_seconds_total"),
    ("nic.rx_bytes", "mitra_nic_rx_bytes_total"),
    ("fs.avail_bytes", "mitra_fs_avail_bytes"),
];

/// By name and row, milliseconds and values.
type Samples = BTreeMap<(String, String), Vec<(i64, f64)>>;

fn now_ns() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

/// A simulated machine whose recording is written.
struct Recorder {
    machine: Machine,
    writer: Writer,
    shift_ns: i64,
}

impl Recorder {
    /// One that has so many seconds until now.
    fn start(dir: &Path, seconds: i64) -> Self {
        Recorder::until(dir, now_ns(), seconds)
    }

    /// One that has so many seconds until then.
    fn until(dir: &Path, end_ns: i64, seconds: i64) -> Self {
        let machine = Machine::new(20, 5, 1);
        let options = Options { segment_frames: 150, ..Options::default() };
        let writer = Writer::open(dir, &Machine::host(), options).unwrap();
        let begun = machine.frame().time.real.max(1_790_000_000 * SECOND);
        let shift_ns = (end_ns - begun) / SECOND * SECOND - seconds * SECOND;
        let mut recorder = Recorder { machine, writer, shift_ns };
        (0..seconds).for_each(|_| recorder.tick());
        recorder
    }

    fn tick(&mut self) {
        self.machine.tick();
        let mut frame = self.machine.frame().clone();
        frame.time.real += self.shift_ns;
        self.writer.append(&frame, self.machine.strings()).unwrap();
    }
}

/// What of an archive is compared.
fn held(dir: &Path) -> Samples {
    let reader = Reader::open(dir).unwrap();
    let metrics = COMPARED.iter().map(|(name, _)| lookup(name).unwrap()).collect();
    let set = reader.read(&Query { raw: true, ..Query::new(Span::ALL, metrics) }).unwrap();
    let mut held = Samples::new();
    for (metric, name) in COMPARED {
        let scale = lookup(metric).unwrap().unit.scale();
        for (row, series) in set.each(metric) {
            let samples =
                series.samples(Span::ALL).map(|(t, _, value)| (t.div_euclid(1_000_000), value * scale));
            held.insert((name.to_owned(), row.to_owned()), samples.collect());
        }
    }
    assert_eq!(held.len(), 4 + 3 + 3 + 2 + 4, "{:?}", held.keys());
    held
}

/// A configuration, an archive and positions.
pub struct Place {
    dir: TempDir,
}

impl Place {
    pub fn new(config: &str) -> Place {
        let place = Place { dir: tempfile::tempdir().unwrap() };
        place.configure(config);
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn configure(&self, config: &str) {
        std::fs::write(self.path("mitra.toml"), config).unwrap();
    }

    pub fn recorded(self, seconds: i64) -> Place {
        Recorder::start(&self.path("archive"), seconds).writer.finish().unwrap();
        self
    }

    fn arguments(&self, more: &[&str]) -> Vec<String> {
        let path = |name: &str| self.path(name).to_str().unwrap().to_owned();
        let own = [
            "send",
            "--archive",
            &path("archive"),
            "--config",
            &path("mitra.toml"),
            "--state",
            &path("state"),
        ];
        own.iter().chain(more).map(|word| (*word).to_owned()).collect()
    }

    pub fn send(&self, more: &[&str]) -> Output {
        let arguments = self.arguments(more);
        run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    pub fn started(&self, more: &[&str]) -> Running {
        let arguments = self.arguments(more);
        Running::start(&mut command(&arguments.iter().map(String::as_str).collect::<Vec<_>>()))
    }

    /// A number of the position of an output; 0 where it is not there yet.
    fn position(&self, output: &str, pointer: &str) -> Value {
        let text = std::fs::read(self.path("state").join(format!("{output}.json"))).unwrap_or_default();
        let position: Value = serde_json::from_slice(&text).unwrap_or_default();
        position.pointer(pointer).cloned().unwrap_or_default()
    }

    /// Says how far an output has come.
    fn has_come(&self, output: &str, until_ns: i64) {
        std::fs::create_dir_all(self.path("state")).unwrap();
        let position = format!("{{\"until_ns\": {until_ns}}}");
        std::fs::write(self.path("state").join(format!("{output}.json")), position).unwrap();
    }

    fn span(&self) -> Span {
        Reader::open(&self.path("archive")).unwrap().span().unwrap()
    }

    pub fn tally(&self, output: &str, what: &str) -> u64 {
        self.position(output, &format!("/tally/{what}")).as_u64().unwrap_or(0)
    }
}

/// Writes down the bodies and answers with these statuses, one after the other and the last for ever.
pub fn http(statuses: &'static [u16]) -> (String, Arc<Mutex<Vec<Vec<u8>>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let got = Arc::new(Mutex::new(Vec::new()));
    let written = Arc::clone(&got);
    std::thread::spawn(move || {
        for (i, stream) in listener.incoming().enumerate() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut head = String::new();
            while stream.read_line(&mut head).unwrap() > 2 {}
            let head = head.to_lowercase();
            let length =
                head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
            let mut body = vec![0; length.unwrap_or(0)];
            stream.read_exact(&mut body).unwrap();
            written.lock().unwrap().push(body);
            let status = statuses[i.min(statuses.len() - 1)];
            let answer = format!("HTTP/1.1 {status} x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
        }
    });
    (format!("http://{address}/w"), got)
}

/// All lines that come over connections.
fn tcp() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let got = Arc::new(Mutex::new(Vec::new()));
    let written = Arc::clone(&got);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let lines: Vec<String> = BufReader::new(stream.unwrap()).lines().map(Result::unwrap).collect();
            written.lock().unwrap().extend(lines);
        }
    });
    (format!("tcp://{address}"), got)
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A store that is ended when dropped.
pub struct Store {
    child: Child,
    port: u16,
}

impl Drop for Store {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl Store {
    pub fn start(program: &str, arguments: &[String], port: u16, ready: &str) -> Option<Store> {
        let started =
            Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let Ok(child) = started else {
            println!("skipped: {program} is not installed");
            return None;
        };
        let store = Store { child, port };
        wait_until("the store is ready", || store.get(ready).is_some_and(|(status, _)| status == 200));
        Some(store)
    }

    fn prometheus(dir: &Path, port: u16) -> Option<Store> {
        std::fs::write(dir.join("prometheus.yml"), "global: {}\n").unwrap();
        let arguments = [
            format!("--config.file={}", dir.join("prometheus.yml").display()),
            format!("--storage.tsdb.path={}", dir.join("data").display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
            "--web.enable-remote-write-receiver".to_owned(),
        ];
        Store::start("prometheus", &arguments, port, "/-/ready")
    }

    fn victoria(dir: &Path, [port, opentsdb, put, graphite]: [u16; 4]) -> Option<Store> {
        let arguments = [
            format!("-storageDataPath={}", dir.join("data").display()),
            format!("-httpListenAddr=127.0.0.1:{port}"),
            format!("-opentsdbListenAddr=127.0.0.1:{opentsdb}"),
            format!("-opentsdbHTTPListenAddr=127.0.0.1:{put}"),
            format!("-graphiteListenAddr=127.0.0.1:{graphite}"),
            // The same sample twice is one.
            "-dedup.minScrapeInterval=1ms".to_owned(),
            "-memory.allowedBytes=128MB".to_owned(),
        ];
        Store::start("victoria-metrics", &arguments, port, "/health")
    }

    /// Ends it with a signal, and waits until it has ended.
    pub fn end(mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.child.wait().unwrap();
    }

    fn get(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }
}

/// The row of a series, which has to be of the simulated machine.
fn row(labels: &Value) -> String {
    let labels = labels.as_object().unwrap();
    assert_eq!(labels["host"], "simulated", "{labels:?}");
    let own = ["disk", "nic", "filesystem"].into_iter().find_map(|name| labels.get(name)?.as_str());
    own.unwrap_or_default().to_owned()
}

/// What a Prometheus has of it.
fn of_prometheus(store: &Store) -> Samples {
    let mut found = Samples::new();
    for (_, name) in COMPARED {
        let (status, body) = store.get(&format!("/api/v1/query?query={name}%5B1d%5D")).unwrap();
        assert_eq!(status, 200, "{body}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        for series in answer["data"]["result"].as_array().unwrap() {
            let samples = series["values"].as_array().unwrap().iter().map(|sample| {
                let ms = (sample[0].as_f64().unwrap() * 1000.0).round() as i64;
                (ms, sample[1].as_str().unwrap().parse().unwrap())
            });
            found.insert((name.to_owned(), row(&series["metric"])), samples.collect());
        }
    }
    found
}

/// What a VictoriaMetrics has of what came by one way.
fn of_victoria(store: &Store, via: &str) -> Samples {
    let mut found = Samples::new();
    for (_, name) in COMPARED {
        let selector = format!("/api/v1/export?match[]={name}%7Bvia=%22{via}%22%7D");
        let (status, body) = store.get(&selector).unwrap();
        assert_eq!(status, 200, "{body}");
        for line in body.lines() {
            let series: Value = serde_json::from_str(line).unwrap();
            let times = series["timestamps"].as_array().unwrap().iter().map(|t| t.as_i64().unwrap());
            let values = series["values"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap());
            // A series may come in several parts.
            let list = found.entry((name.to_owned(), row(&series["metric"]))).or_default();
            list.extend(times.zip(values));
            list.sort_by_key(|(t, _)| *t);
        }
    }
    found
}

/// Compares what a store has with what the archive holds. Stores keep 15 digits at least.
fn same(got: &Samples, held: &Samples, of: &str) {
    let names: Vec<_> = held.keys().collect();
    assert_eq!(got.keys().collect::<Vec<_>>(), names, "{of}");
    for (key, held) in held {
        let got = &got[key];
        let times = |list: &[(i64, f64)]| list.iter().map(|(t, _)| *t).collect::<Vec<_>>();
        assert_eq!(times(got), times(held), "{of}: {key:?}");
        for ((t, got), (_, held)) in got.iter().zip(held) {
            assert!((got - held).abs() <= held.abs() * 1e-14, "{of}: {key:?} at {t}: {got}, held {held}");
        }
    }
}

#[test]
fn prometheus_is_killed_in_the_middle_and_has_every_sample_once() {
    let port = free_port();
    let place = Place::new(&format!(
        "[[output]]\nname = \"prom\"\nto = \"prometheus\"\nurl = \"http://127.0.0.1:{port}/api/v1/write\"\nevery = \"1s\"\n"
    ));
    let Some(store) = Store::prometheus(place.dir.path(), port) else { return };
    let place = place.recorded(900);
    let sending = place.started(&["--once"]);
    wait_until("some samples are sent", || place.tally("prom", "sent") > 2_000);
    store.end(Signal::KILL);
    wait_until("it is noticed", || place.position("prom", "/last_error").is_string());
    let store = Store::prometheus(place.dir.path(), port).unwrap();
    let (status, err) = sending.wait();
    assert!(status.success() && err.contains("takes samples again"), "{err}");
    same(&of_prometheus(&store), &held(&place.path("archive")), "prometheus");
    assert_eq!(place.tally("prom", "dropped_s"), 0, "{err}");
    // What was sent is not sent again.
    let sent = place.tally("prom", "sent");
    let again = place.send(&["--once"]);
    assert!(again.code == 0 && place.tally("prom", "sent") == sent, "{}{}", again.out, again.err);
    assert!(place.send(&["--test"]).out.contains("prom  taken: HTTP 204"));
}

#[test]
fn victoriametrics_gets_the_same_by_each_protocol_and_loses_nothing_when_it_restarts() {
    let ports = std::array::from_fn(|_| free_port());
    let [http, opentsdb, put, graphite] = ports;
    let ways = [
        ("write", "prometheus", format!("http://127.0.0.1:{http}/api/v1/write")),
        ("influx", "influx", format!("http://127.0.0.1:{http}/write")),
        ("put", "opentsdb", format!("http://127.0.0.1:{put}/api/put")),
        ("telnet", "opentsdb", format!("tcp://127.0.0.1:{opentsdb}")),
        ("graphite", "graphite", format!("tcp://127.0.0.1:{graphite}")),
    ];
    let tables = ways.each_ref().map(|(name, to, url)| {
        format!("[[output]]\nname = \"{name}\"\nto = \"{to}\"\nurl = \"{url}\"\nevery = \"1s\"\nlabels = {{ via = \"{name}\" }}\n")
    });
    let place = Place::new(&tables.concat());
    let Some(store) = Store::victoria(place.dir.path(), ports) else { return };
    let place = place.recorded(600);
    let sending = place.started(&["--once"]);
    wait_until("some samples are sent", || ways.iter().any(|(name, ..)| place.tally(name, "sent") > 2_000));
    store.end(Signal::TERM);
    wait_until("it is noticed", || {
        ways.iter().all(|(name, ..)| place.position(name, "/last_error").is_string())
    });
    let store = Store::victoria(place.dir.path(), ports).unwrap();
    let (status, err) = sending.wait();
    assert!(status.success(), "{err}");
    // What came last is in no index yet.
    assert_eq!(store.get("/internal/force_flush").unwrap().0, 200);
    let held = held(&place.path("archive"));
    for (name, ..) in &ways {
        let mut held = held.clone();
        if ["graphite", "telnet"].contains(name) {
            // Whole seconds.
            held.values_mut().flatten().for_each(|(t, _)| *t = t.div_euclid(1000) * 1000);
        }
        same(&of_victoria(&store, name), &held, name);
    }
}

/// Prints the points of a request with OpenTelemetry's own messages.
const DECODED: &str = "
import json, sys
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
request = ExportMetricsServiceRequest.FromString(sys.stdin.buffer.read())
points = []
for resource in request.resource_metrics:
    assert {a.key: a.value.string_value for a in resource.resource.attributes} == {'service.name': 'mitra', 'host.name': 'simulated'}
    for scope in resource.scope_metrics:
        for metric in scope.metrics:
            kind = metric.WhichOneof('data')
            if kind == 'sum':
                assert metric.sum.is_monotonic and metric.sum.aggregation_temporality == 2
            for point in getattr(metric, kind).data_points:
                labels = {a.key: a.value.string_value for a in point.attributes}
                points.append([metric.name, kind, metric.unit, labels, point.time_unix_nano // 10**6, point.as_double])
print(json.dumps(points))
";

#[test]
fn opentelemetrys_own_messages_read_the_same_samples() {
    let Some(python) = python("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2") else {
        return println!("skipped: Python has no opentelemetry-proto");
    };
    let (url, got) = http(&[200]);
    let names = COMPARED.map(|(name, _)| format!("\"{name}\"")).join(", ");
    let table = format!("[[output]]\nto = \"otlp\"\nurl = \"{url}\"\nevery = \"1s\"\nmetrics = [{names}]\n");
    let place = Place::new(&table).recorded(40);
    let said = place.send(&["--once"]);
    assert_eq!(said.code, 0, "{}", said.err);
    let mut found = Samples::new();
    for body in got.lock().unwrap().iter() {
        let mut decoding = Command::new(&python)
            .args(["-c", DECODED])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        decoding.stdin.take().unwrap().write_all(body).unwrap();
        let output = decoding.wait_with_output().unwrap();
        let points: Vec<(String, String, String, Value, i64, f64)> =
            serde_json::from_slice(&output.stdout).unwrap();
        for (name, kind, unit, labels, ms, value) in points {
            assert_eq!(kind, if name.ends_with("_total") { "sum" } else { "gauge" }, "{name}");
            assert_eq!(unit == "By", name.contains("_bytes"), "{name}: {unit}");
            found.entry((name, row(&labels))).or_default().push((ms, value));
        }
    }
    same(&found, &held(&place.path("archive")), "otlp");
}

#[test]
fn the_processes_with_most_are_sent_and_no_other() {
    let (url, got) = tcp();
    let table =
        format!("[[output]]\nto = \"graphite\"\nurl = \"{url}\"\nmetrics = [\"sys.ctxt\"]\ntop = 3\n");
    let place = Place::new(&table).recorded(40);
    let said = place.send(&["--once"]);
    assert_eq!(said.code, 0, "{}", said.err);
    let lines = got.lock().unwrap();
    let of = |name: &str| -> BTreeMap<String, Vec<f64>> {
        let mut by_time: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for line in lines.iter().filter(|line| line.starts_with(name)) {
            assert!(line.contains(";comm=worker/") && line.contains(";pid="), "{line}");
            let [_, value, time] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            by_time.entry(time.to_owned()).or_default().push(value.parse().unwrap());
        }
        by_time
    };
    let cpu = of("mitra_process_cpu_ratio;");
    assert!((3..=5).contains(&cpu.len()), "{cpu:?}");
    // Five of twenty work, each with about 15 ms in a second.
    assert!(
        cpu.values().all(|all| all.len() == 3 && all.iter().all(|cpu| (0.005..0.03).contains(cpu))),
        "{cpu:?}"
    );
    assert_eq!(of("mitra_process_lost_ratio;").len(), cpu.len());
}

#[test]
fn wrong_configurations_and_stores_that_are_away_are_named() {
    let place = Place::new("").recorded(25);
    let said = place.send(&["--test"]);
    assert!(said.code == 2 && said.err.contains("no table [[output]]"), "{}", said.err);
    place
        .configure("\n[[output]]\nto = \"influx\"\nurl = \"http://127.0.0.1:1/\"\nmetrics = [\"mem.fre\"]\n");
    let said = place.send(&["--once"]);
    assert!(
        said.code == 2 && said.err.contains("mitra.toml:5") && said.err.contains("mem.free"),
        "{}",
        said.err
    );
    place.configure("[[output]]\nto = \"influx\"\nurl = \"http://127.0.0.1:1/\"\nevery = \"1s\"\n");
    let said = place.send(&["--test"]);
    assert!(said.code != 0 && said.out.contains("influx  not taken, would be tried again"), "{}", said.out);
    let said = place.send(&["--dry-run"]);
    assert!(said.code == 0 && !place.path("state").exists(), "{}", said.err);
    assert!(said.out.contains("\nmitra_sys,host=simulated load1="), "{}", said.out);
    assert!(said.out.contains("\nmitra_disk,disk=disk0,host=simulated read_bytes_total="), "{}", said.out);
    let checked = run(&["rules", "check", place.path("mitra.toml").to_str().unwrap()]);
    assert!(
        checked.code == 0 && checked.out.contains("; 1 output of samples"),
        "{}{}",
        checked.out,
        checked.err
    );
}
