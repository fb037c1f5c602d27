//! Real stores take what is sent by each protocol, and answer with the same samples.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use std::io::{BufRead, BufReader, Read, Write};

use mitra_send::{BATCH_SAMPLES, Channel, Config, Failure, Series, SeriesKind, batches};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);
const NAME: &str = "mitra_disk_read_bytes_total";
const DISKS: [&str; 3] = ["vda", "größe", "a,b=c d"];

/// A store that is ended when dropped.
struct Store {
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
    fn start(program: &str, arguments: &[String], port: u16, ready: &str) -> Option<Store> {
        let started =
            Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let Ok(child) = started else {
            println!("skipped: {program} is not installed");
            return None;
        };
        let store = Store { child, port };
        let start = Instant::now();
        while store.get(ready).is_none_or(|(status, _)| status != 200) {
            assert!(start.elapsed() < PATIENCE, "{program} does not start");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(store)
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

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Disks with hostile names, and samples until now.
fn series(via: &str) -> Vec<Series> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64;
    let label = |(name, value): (&str, &str)| (name.into(), value.into());
    let of_disk = |(i, disk): (usize, &&str)| Series {
        name: NAME.into(),
        kind: SeriesKind::Counter,
        unit: "bytes",
        help: "Read.",
        labels: [("disk", *disk), ("host", "web1"), ("via", via)].map(label).to_vec(),
        samples: (0..3_000_i64)
            .map(|s| (now + (s - 3_000) * 1_000_000_000, (s * 1_000 + i as i64) as f64 / 8.0))
            .collect(),
    };
    DISKS.iter().enumerate().map(of_disk).collect()
}

fn send(table: &str, all: &[Series], is_again: bool) {
    let config = Config::read(&format!("[[output]]\n{table}"), &|_, _| Ok(())).unwrap();
    let channel = Channel::open(&config.outputs[0]).unwrap();
    for (_, batch) in batches(all, 1_000_000_000, BATCH_SAMPLES) {
        match channel.send(&batch) {
            Ok(taken) => assert_eq!(taken.refused, None, "{table}"),
            // Of what it has already Prometheus says so.
            Err(Failure::Never(why)) if is_again && why.contains("out of order") => {}
            Err(failure) => panic!("{table}: {failure:?}"),
        }
    }
}

/// The samples of the disks in their order; times are milliseconds, or whole seconds as such.
fn wanted(all: &[Series], step_ms: i64) -> Vec<Vec<(i64, f64)>> {
    let ms = |t: i64| t.div_euclid(1_000_000 * step_ms) * step_ms;
    all.iter().map(|one| one.samples.iter().map(|(t, value)| (ms(*t), *value)).collect()).collect()
}

#[test]
fn prometheus_has_the_same_samples() {
    let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
    let file = dir.path().join("prometheus.yml");
    std::fs::write(&file, "global: {}\n").unwrap();
    let arguments = [
        format!("--config.file={}", file.display()),
        format!("--storage.tsdb.path={}", dir.path().join("data").display()),
        format!("--web.listen-address=127.0.0.1:{port}"),
        "--web.enable-remote-write-receiver".to_owned(),
    ];
    let Some(store) = Store::start("prometheus", &arguments, port, "/-/ready") else { return };
    let all = series("write");
    let table = format!("to = \"prometheus\"\nurl = \"http://127.0.0.1:{port}/api/v1/write\"");
    send(&table, &all, false);
    // The same again is the same.
    send(&table, &all, true);
    let (_, body) = store.get(&format!("/api/v1/query?query={NAME}%5B2h%5D")).unwrap();
    let answer: Value = serde_json::from_str(&body).unwrap();
    let result = answer["data"]["result"].as_array().unwrap();
    assert_eq!(result.len(), DISKS.len(), "{body:.300}");
    for (disk, wanted) in DISKS.iter().zip(wanted(&all, 1)) {
        let series = result.iter().find(|series| series["metric"]["disk"] == **disk).unwrap();
        assert_eq!(series["metric"]["host"], "web1");
        let got = series["values"].as_array().unwrap().iter().map(|sample| {
            let ms = (sample[0].as_f64().unwrap() * 1000.0).round() as i64;
            (ms, sample[1].as_str().unwrap().parse::<f64>().unwrap())
        });
        assert_eq!(got.collect::<Vec<_>>(), wanted, "{disk}");
    }
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

#[test]
fn victoriametrics_has_the_same_samples_by_each_protocol() {
    let (dir, ports) = (tempfile::tempdir().unwrap(), std::array::from_fn(|_| free_port()));
    let Some(store) = victoria(dir.path(), ports) else { return };
    let [http, opentsdb, put, graphite] = ports;
    let restricted = ["vda", "gr__e", "a_b_c_d"];
    let ways = [
        ("write", "prometheus", format!("http://127.0.0.1:{http}/api/v1/write"), DISKS, 1),
        ("influx", "influx", format!("http://127.0.0.1:{http}/write"), DISKS, 1),
        ("put", "opentsdb", format!("http://127.0.0.1:{put}/api/put"), restricted, 1),
        ("telnet", "opentsdb", format!("tcp://127.0.0.1:{opentsdb}"), restricted, 1_000),
        ("graphite", "graphite", format!("tcp://127.0.0.1:{graphite}"), ["vda", "größe", "a,b=c_d"], 1_000),
    ];
    let sent = ways.each_ref().map(|(via, to, url, ..)| {
        let all = series(via);
        let table = format!("to = \"{to}\"\nurl = \"{url}\"");
        send(&table, &all, false);
        send(&table, &all, true);
        all
    });
    assert_eq!(store.get("/internal/force_flush").unwrap().0, 200);
    for ((via, _, _, disks, step_ms), all) in ways.iter().zip(&sent) {
        let (_, body) = store.get(&format!("/api/v1/export?match[]={NAME}%7Bvia=%22{via}%22%7D")).unwrap();
        let lines: Vec<Value> = body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for (disk, wanted) in disks.iter().zip(wanted(all, *step_ms)) {
            let mut got: Vec<(i64, f64)> = Vec::new();
            for line in lines.iter().filter(|line| line["metric"]["disk"] == **disk) {
                assert_eq!(line["metric"]["host"], "web1");
                let times = line["timestamps"].as_array().unwrap().iter().map(|t| t.as_i64().unwrap());
                let values = line["values"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap());
                got.extend(times.zip(values));
            }
            got.sort_by_key(|(t, _)| *t);
            assert_eq!(got.len(), wanted.len(), "{via} {disk}: {body:.300}");
            assert_eq!(got, wanted, "{via} {disk}");
        }
    }
}

/// A broker that `tools/kafka.sh` starts, and ends when dropped.
struct Kafka(tempfile::TempDir);

impl Drop for Kafka {
    fn drop(&mut self) {
        self.run("stop", &[]);
    }
}

impl Kafka {
    fn start(ports: [u16; 3]) -> Option<Kafka> {
        let kafka = Kafka(tempfile::Builder::new().prefix("mitra-kafka-").tempdir_in("/var/tmp").unwrap());
        let status = kafka
            .command("start", &ports.map(|port| port.to_string()).each_ref().map(String::as_str))
            .status()
            .unwrap();
        if status.code() == Some(77) {
            println!("skipped: there is no Kafka here; the line above says why");
            return None;
        }
        assert!(status.success(), "Kafka does not start");
        Some(kafka)
    }

    fn command(&self, what: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("bash");
        command
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/kafka.sh"))
            .arg(what)
            .arg(self.0.path());
        command.args(arguments);
        command
    }

    fn run(&self, what: &str, arguments: &[&str]) -> Vec<u8> {
        self.command(what, arguments).stderr(Stdio::null()).output().unwrap().stdout
    }

    /// Keys and values of the messages of a partition.
    fn read(&self, topic: &str, count: usize, partition: &str) -> Vec<(String, String)> {
        let text = String::from_utf8(self.run("read", &[topic, &count.to_string(), partition])).unwrap();
        // A value is of lines, and each message begins with its key.
        let messages = text.split("web1\t").filter(|part| !part.is_empty());
        messages.map(|value| ("web1".to_owned(), value.to_owned())).collect()
    }
}

/// The partition of `web1` of three, by the hash of Kafka's own clients: what its console producer chooses.
const PARTITION_OF_WEB1: &str = "1";

#[test]
#[ignore = "starts a Kafka: make test-search"]
fn kafka_has_the_same_samples() {
    let ports = [free_port(), free_port(), free_port()];
    let Some(kafka) = Kafka::start(ports) else { return };
    let all = series("kafka");
    let table = format!(
        "to = \"kafka\"\nurl = \"tcp://127.0.0.1:{}\"\ntopic = \"lines\"\nformat = \"influx\"",
        ports[0]
    );
    let config = Config::read(&format!("[[output]]\n{table}"), &|_, _| Ok(())).unwrap();
    let channel = Channel::open(&config.outputs[0]).unwrap();
    let early = channel.send(&all[..1]);
    assert!(matches!(&early, Err(Failure::Later(why, _)) if why.contains("no topic lines")), "{early:?}");
    kafka.run("topic", &["lines", "3"]);
    kafka.run("topic", &["requests", "1"]);
    send(&table, &all, false);
    // Each series of a batch has more samples than a message has room for others.
    let messages = batches(&all, 1_000_000_000, BATCH_SAMPLES).len() * DISKS.len();
    let got = kafka.read("lines", messages, PARTITION_OF_WEB1);
    assert!(!got.is_empty());
    let lines: Vec<&str> =
        got.iter().flat_map(|(_, value)| value.lines()).filter(|line| !line.is_empty()).collect();
    for (disk, samples) in ["vda", "größe", "a\\,b\\=c\\ d"].iter().zip(wanted(&all, 1)) {
        let own = lines.iter().filter(|line| line.contains(&format!("disk={disk},")));
        let of_line = |line: &&str| {
            let (value, at) = line.rsplit_once('=')?.1.rsplit_once(' ')?;
            Some((at.parse::<i64>().ok()? / 1_000_000, value.parse::<f64>().ok()?))
        };
        let mut own: Vec<(i64, f64)> = own.map(|line| of_line(line).unwrap()).collect();
        own.sort_by_key(|(t, _)| *t);
        assert_eq!(own, samples, "{disk}");
    }

    // Whoever is asked for a password, in each way.
    let secret = kafka.0.path().join("password");
    std::fs::write(&secret, "sesame\n").unwrap();
    std::fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let wrong = kafka.0.path().join("wrong");
    std::fs::copy(&secret, &wrong).unwrap();
    std::fs::write(&wrong, "open\n").unwrap();
    for sasl in ["plain", "scram-sha-256", "scram-sha-512"] {
        let table = |password: &Path| {
            format!(
                "to = \"kafka\"\nurl = \"tcp://127.0.0.1:{}\"\ntopic = \"requests\"\nuser = \"mitra\"\npassword-file = \"{}\"\nsasl = \"{sasl}\"",
                ports[1],
                password.display()
            )
        };
        send(&table(&secret), &all[..1], false);
        let config = Config::read(&format!("[[output]]\n{}", table(&wrong)), &|_, _| Ok(())).unwrap();
        let refused = Channel::open(&config.outputs[0]).unwrap().send(&all[..1]);
        assert!(matches!(refused, Err(Failure::Later(..))), "{refused:?}");
    }

    // A message is a request as it goes over HTTP.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1/metrics", listener.local_addr().unwrap());
    let posted = std::thread::spawn(move || {
        let mut stream = BufReader::new(listener.accept().unwrap().0);
        let mut head = String::new();
        while stream.read_line(&mut head).unwrap() > 2 {}
        let length =
            head.to_lowercase().lines().find_map(|l| l.strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.unwrap()];
        stream.read_exact(&mut body).unwrap();
        stream.get_mut().write_all(b"HTTP/1.1 200 x\r\nContent-Length: 0\r\n\r\n").unwrap();
        body
    });
    send(&format!("to = \"otlp\"\nurl = \"{url}\""), &all[..1], false);
    assert!(kafka.run("value", &["requests"]) == posted.join().unwrap(), "another message than over HTTP");
}
