//! The HTTP API of Prometheus over a recording, beside a real Prometheus that has the same samples.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::good;
use crate::serve::{Server, recording};

const API: &str = "/prometheus/api/v1";

fn coded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn instant(query: &str, at: f64) -> String {
    format!("/api/v1/query?query={}&time={at:.3}", coded(query))
}

/// The data of an answer that has to be good.
fn data(server: &Server, path: &str) -> Value {
    let answer = server.json(&format!("/prometheus{path}"));
    assert_eq!(answer["status"], "success", "{path}: {answer}");
    answer["data"].clone()
}

/// When the recording ends, in whole seconds.
fn end(server: &Server) -> f64 {
    let now = data(server, "/api/v1/query?query=time()");
    now["result"][1].as_str().unwrap().parse::<f64>().unwrap().floor()
}

/// A real Prometheus, which is ended when dropped.
struct Prometheus {
    child: Child,
    address: String,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl Prometheus {
    /// With the samples of a file of OpenMetrics. A sample holds as long as in the recording of each second.
    fn start(dir: &Path, openmetrics: &str) -> Option<Prometheus> {
        let file = dir.join("samples.om");
        std::fs::write(&file, openmetrics).unwrap();
        let data = dir.join("data");
        let made = Command::new("promtool")
            .args(["tsdb", "create-blocks-from", "openmetrics"])
            .args([&file, &data])
            .output()
            .ok()?;
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let config = dir.join("prometheus.yml");
        std::fs::write(&config, "global: {}\n").unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg(format!("--web.listen-address={address}"))
            .args([
                "--query.lookback-delta=1500ms",
                "--storage.tsdb.retention.time=100y",
                "--log.level=error",
            ])
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let prometheus = Prometheus { child, address };
        let start = Instant::now();
        while prometheus.get("/-/ready").is_none_or(|(status, _)| status != 200) {
            assert!(start.elapsed() < Duration::from_secs(60), "it does not start");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(prometheus)
    }

    fn get(&self, path: &str) -> Option<(u16, String)> {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(&self.address).ok()?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    fn data(&self, path: &str) -> Value {
        let (status, body) = self.get(path).unwrap();
        let answer: Value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"));
        assert_eq!(status, 200, "{path}: {answer}");
        answer["data"].clone()
    }
}

/// All samples of the machine, its disks and its network as OpenMetrics.
fn openmetrics(server: &Server, end: f64) -> (String, usize) {
    let metadata = data(server, "/api/v1/metadata");
    let metadata = metadata.as_object().unwrap();
    let query = "{__name__=~\"mitra_(sys|mem|vm|psi|tasks|disk|nic|cpu)_.*\"}[1d]";
    let found = data(server, &instant(query, end));
    let mut families: BTreeMap<String, String> = BTreeMap::new();
    let mut count = 0;
    for series in found["result"].as_array().unwrap() {
        let labels = series["metric"].as_object().unwrap();
        let name = labels["__name__"].as_str().unwrap();
        let kind = metadata[name][0]["type"].as_str().unwrap();
        let family = if kind == "counter" { name.strip_suffix("_total").unwrap() } else { name };
        let text = families.entry(family.to_owned()).or_insert_with(|| format!("# TYPE {family} {kind}\n"));
        let pairs: Vec<String> = labels
            .iter()
            .filter(|(label, _)| *label != "__name__")
            .map(|(label, value)| format!("{label}={value}"))
            .collect();
        for sample in series["values"].as_array().unwrap() {
            let value = sample[1].as_str().unwrap();
            text.push_str(&format!(
                "{name}{{{}}} {value} {:.3}\n",
                pairs.join(","),
                sample[0].as_f64().unwrap()
            ));
            count += 1;
        }
    }
    (families.into_values().collect::<String>() + "# EOF\n", count)
}

/// Each has an answer with values at a moment in the second half of the recording.
const QUERIES: &[&str] = &[
    "mitra_mem_available_bytes",
    "mitra_disk_write_bytes_total{disk=\"vda\"}",
    "mitra_disk_write_bytes_total{disk!~\"loop.*|ram.*\"}",
    "mitra_mem_dirty_bytes offset 3s",
    "mitra_mem_dirty_bytes @ END",
    "rate(mitra_disk_write_bytes_total[5s])",
    "irate(mitra_disk_write_bytes_total[5s])",
    "increase(mitra_sys_ctxt_total[7s])",
    "delta(mitra_mem_free_bytes[6s])",
    "idelta(mitra_mem_free_bytes[6s])",
    "avg_over_time(mitra_mem_free_bytes[6s])",
    "min_over_time(mitra_mem_free_bytes[6s])",
    "max_over_time(mitra_mem_free_bytes[6s])",
    "sum_over_time(mitra_tasks_running[6s])",
    "count_over_time(mitra_tasks_running[6s])",
    "last_over_time(mitra_tasks_running[6s])",
    "stddev_over_time(mitra_mem_free_bytes[6s])",
    "quantile_over_time(0.3, mitra_mem_free_bytes[6s])",
    "changes(mitra_mem_free_bytes[6s])",
    "resets(mitra_mem_free_bytes[6s])",
    "sum(rate(mitra_disk_write_bytes_total[5s]))",
    "avg by (disk) (rate(mitra_disk_write_bytes_total[5s]))",
    "count without (disk) (mitra_disk_writes_total)",
    "min(mitra_cpu_user_seconds_total)",
    "max(mitra_cpu_user_seconds_total)",
    "stddev(mitra_cpu_user_seconds_total)",
    "quantile(0.25, mitra_cpu_user_seconds_total)",
    "topk(1, mitra_cpu_user_seconds_total)",
    "bottomk(1, mitra_cpu_idle_seconds_total)",
    "sum by (__name__) ({__name__=~\"mitra_psi_.*\"})",
    "1 - mitra_mem_available_bytes / mitra_mem_total_bytes",
    "rate(mitra_disk_write_time_seconds_total[5s]) / on(disk) rate(mitra_disk_writes_total[5s]) > 0",
    "mitra_disk_writes_total / ignoring(disk) group_left sum(mitra_disk_writes_total)",
    "mitra_cpu_user_seconds_total > bool 1",
    "mitra_cpu_user_seconds_total > on(cpu) mitra_cpu_nice_seconds_total",
    "mitra_mem_free_bytes and mitra_mem_total_bytes",
    "mitra_mem_free_bytes unless mitra_mem_total_bytes or vector(7)",
    "abs(-mitra_tasks_running) ^ 2 % 7",
    "ceil(mitra_sys_load1) + floor(mitra_sys_load1) * round(mitra_sys_load1, 0.05)",
    "clamp(mitra_sys_load1, 0, 0.5) + clamp_min(mitra_sys_load1, 9) + clamp_max(mitra_sys_load1, 0.1)",
    "label_replace(mitra_disk_writes_total, \"kind\", \"$1-x\", \"disk\", \"(v).*\")",
    "sort_desc(mitra_cpu_user_seconds_total)",
    "timestamp(mitra_mem_free_bytes) - time()",
    "scalar(mitra_mem_total_bytes) * 2",
    "absent(mitra_mem_total_bytes{disk=\"none\"})",
];

/// Labels, and values by time.
type Rows = BTreeMap<String, Vec<(f64, f64)>>;

fn rows(data: &Value) -> Rows {
    let number = |text: &Value| match text.as_str().unwrap() {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        text => text.parse().unwrap(),
    };
    let point = |point: &Value| (point[0].as_f64().unwrap(), number(&point[1]));
    match data["resultType"].as_str().unwrap() {
        "scalar" => Rows::from([(String::new(), vec![point(&data["result"])])]),
        _ => {
            let one = |series: &Value| {
                let values = match series.get("values") {
                    Some(values) => values.as_array().unwrap().iter().map(point).collect(),
                    None => vec![point(&series["value"])],
                };
                (series["metric"].to_string(), values)
            };
            data["result"].as_array().unwrap().iter().map(one).collect()
        }
    }
}

fn assert_same(query: &str, ours: &Value, theirs: &Value) {
    let (ours, theirs) = (rows(ours), rows(theirs));
    assert!(ours.keys().eq(theirs.keys()), "{query}: {:?} {:?}", ours.keys(), theirs.keys());
    for (labels, values) in &ours {
        let others = &theirs[labels];
        assert_eq!(values.len(), others.len(), "{query} {labels}: {values:?} {others:?}");
        for ((t, a), (at, b)) in values.iter().zip(others) {
            let is_same = a == b
                || (a.is_nan() && b.is_nan())
                || (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1e-6);
            assert!((t - at).abs() < 0.002 && is_same, "{query} {labels} at {t}: {a} and {b}");
        }
    }
}

#[test]
fn a_real_prometheus_answers_the_same() {
    let server = Server::of_recording();
    let end = end(&server);
    let (text, count) = openmetrics(&server, end);
    assert!(count > 5000, "{count} samples");
    let dir = tempfile::tempdir().unwrap();
    let is_here = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !is_here("promtool") || !is_here("prometheus") {
        println!("skipped: promtool or prometheus (package prometheus) is not here");
        return;
    }
    let prometheus = Prometheus::start(dir.path(), &text).expect("it was there");
    // Samples are taken every whole second and a tenth. No border of a range falls on one of them, where versions differ.
    let at = end - 1.0 + 0.55;
    for query in QUERIES {
        let query = &query.replace("END", &format!("{at:.3}"));
        let path = instant(query, at);
        let ours = data(&server, &path);
        assert!(!rows(&ours).is_empty(), "{query}: nothing");
        assert_same(query, &ours, &prometheus.data(&path));
        let range =
            format!("/api/v1/query_range?query={}&start={:.3}&end={at:.3}&step=2", coded(query), at - 16.0);
        assert_same(query, &data(&server, &range), &prometheus.data(&range));
    }
    println!("{} queries over {count} samples", QUERIES.len());
}

#[test]
fn samples_are_those_of_the_recording() {
    let server = Server::of_recording();
    let end = end(&server);
    let found = data(&server, &instant("mitra_mem_available_bytes[1d]", end));
    let ours: Vec<f64> = rows(&found).values().flatten().map(|(_, value)| *value).collect();
    let dumped =
        good(&["dump", "--json", "--metric", "mem.available", "--archive", &recording(), "--since", "@0"]);
    let theirs: Vec<f64> = dumped
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["value"].as_f64().unwrap())
        .collect();
    // The last one may be of the second that has just begun.
    assert!(
        ours.len() > 20 && theirs.starts_with(&ours) && theirs.len() - ours.len() <= 1,
        "{ours:?} {theirs:?}"
    );
    // Nothing is invented where nothing was recorded.
    for at in [end - 86_400.0, end + 3.0] {
        let none = data(&server, &instant("mitra_mem_available_bytes", at));
        assert_eq!(none["result"], serde_json::json!([]), "{at}");
    }
}

#[test]
fn what_is_not_known_is_named_and_bounds_are_kept() {
    let server = Server::of_recording();
    let end = end(&server);
    let deep = format!("{}1{}", "(".repeat(200), ")".repeat(200));
    let chain = vec!["1"; 300].join("+");
    for (query, status, wanted) in [
        ("", 400, ""),
        ("up{", 400, ""),
        ("rate(mitra_mem_free_bytes)", 400, ""),
        ("{}", 400, ""),
        ("x{a=~\"(\"}", 400, ""),
        (&deep, 400, "expressions in each other"),
        (&chain, 400, "expressions in each other"),
        ("max_over_time(mitra_mem_free_bytes[5m:1s])", 422, "a subquery is not supported"),
        ("histogram_quantile(0.9, mitra_mem_free_bytes)", 422, "histogram_quantile() is not supported"),
        ("count_values(\"x\", mitra_mem_free_bytes)", 422, "count_values"),
        ("mitra_cpu_user_seconds_total + on() mitra_cpu_user_seconds_total", 422, "several series"),
        ("{__name__=~\"mitra_psi_.*\"} * 2", 422, "same labels"),
    ] {
        let answer = server.get(&format!("/prometheus{}", instant(query, end)));
        let told = answer.json();
        assert_eq!((answer.status, &told["status"]), (status, &Value::from("error")), "{query}: {told}");
        assert!(told["error"].as_str().unwrap().contains(wanted), "{query}: {told}");
    }
    let range = |start: f64, step: &str| {
        let path =
            format!("{API}/query_range?query=mitra_mem_free_bytes&start={start}&end={end}&step={step}");
        server.get(&path)
    };
    assert_eq!(range(end - 11_001.0, "1").status, 400);
    assert_eq!(range(end - 10_000.0, "1s").status, 200);
    for step in ["0", "-1", "x", "NaN", "1e300", "99999999999999999y"] {
        assert_eq!(range(end - 10.0, step).status, 400, "{step}");
    }
    assert_eq!(server.get(&format!("{API}/query_range?query=1&start={end}&end=0&step=1")).status, 400);
    assert_eq!(server.get(&format!("{API}/query?query=1&time=1e400")).status, 400);
    assert_eq!(server.get(&format!("{API}/query?query=1&nothing=1")).status, 400);
    let many = "mitra_task_cpu_time_seconds_total * ".repeat(20) + "1";
    let path = format!("{API}/query_range?query={}&start={}&end={end}&step=0.02", coded(&many), end - 100.0);
    let answer = server.get(&path);
    assert!(matches!(answer.status, 200 | 422), "{}", answer.text());
}

#[test]
fn grafana_finds_names_and_asks_with_forms() {
    let server = Server::of_recording();
    let end = end(&server);
    let list = |path: &str| -> Vec<String> {
        let list = data(&server, path);
        list.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    let names = list("/api/v1/label/__name__/values");
    assert!(names.len() > 100 && names.contains(&"mitra_disk_read_bytes_total".to_owned()), "{names:?}");
    // The names of both ways are the same.
    let scraped = server.get("/metrics").text();
    for line in scraped.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let is_own = ["mitra_sample_", "mitra_recorder_up", "mitra_build_", "mitra_incident_"];
        assert!(
            names.iter().any(|known| known == name) || is_own.iter().any(|own| name.starts_with(own)),
            "{name}"
        );
    }
    assert!(list("/api/v1/labels").contains(&"disk".to_owned()));
    let disks = list("/api/v1/label/disk/values?match[]=mitra_disk_reads_total");
    assert!(disks.contains(&"vda".to_owned()), "{disks:?}");
    let series = data(
        &server,
        &format!("/api/v1/series?match%5B%5D={}", coded("mitra_disk_reads_total{disk=\"vda\"}")),
    );
    assert_eq!(series, serde_json::json!([{ "__name__": "mitra_disk_reads_total", "disk": "vda" }]));
    let about = data(&server, "/api/v1/metadata?metric=mitra_disk_read_bytes_total");
    assert_eq!(about["mitra_disk_read_bytes_total"][0]["type"], "counter");
    assert!(data(&server, "/api/v1/status/buildinfo")["revision"].as_str().unwrap().starts_with("mitra "));

    let form = format!("query={}&time={end}", coded("1 + 1"));
    let post = |kind: &str| {
        server.raw(&format!(
            "POST {API}/query HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{form}",
            server.address,
            form.len()
        ))
    };
    let answer = post("application/x-www-form-urlencoded");
    assert_eq!(
        (answer.status, &answer.json()["data"]["result"][1]),
        (200, &Value::from("2")),
        "{}",
        answer.text()
    );
    assert_eq!(post("text/plain").status, 415);
    assert_eq!(
        server
            .raw(&format!(
                "PUT {API}/query HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
                server.address
            ))
            .status,
        405
    );
}

#[test]
fn the_dashboard_has_values() {
    let server = Server::of_recording();
    let end = end(&server);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/grafana/mitra.json");
    let dashboard: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let mut count = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            // What Grafana puts there for a scrape interval of a second.
            let query = target["expr"].as_str().unwrap().replace("$__rate_interval", "4s");
            let path =
                format!("/api/v1/query_range?query={}&start={}&end={end}&step=1", coded(&query), end - 15.0);
            let found = rows(&data(&server, &path));
            assert!(found.values().any(|values| values.len() > 5), "{query}: {found:?}");
            count += 1;
        }
    }
    assert!(count > 20, "{count} queries");
}
