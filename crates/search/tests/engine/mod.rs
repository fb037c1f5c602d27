//! A real OpenSearch for a test. `tools/opensearch.sh` starts it, and it ends with the test.
//! `MITRA_OPENSEARCH_URL` names one that is already running.

#![expect(dead_code, reason = "each test uses what it needs")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mitra_search::opensearch::{Cluster, Settings, Writer};

/// The script's exit status for "not available here".
const SKIPPED: i32 = 77;

/// One or two nodes.
pub struct Engine {
    dir: tempfile::TempDir,
    /// The port of each node.
    pub ports: Vec<u16>,
    url: Option<String>,
}

impl Engine {
    /// Starts this many nodes. `None`, with a printed reason, if that is impossible.
    pub fn start(nodes: usize) -> Option<Self> {
        let dir = tempfile::Builder::new().prefix("mitra-os-").tempdir_in("/var/tmp").expect("a folder");
        if let Ok(url) = std::env::var("MITRA_OPENSEARCH_URL")
            && nodes == 1
        {
            return Some(Self { dir, ports: Vec::new(), url: Some(url) });
        }
        let ports = free_ports(nodes);
        let engine = Self { dir, ports: ports.clone(), url: None };
        engine.run_start(&ports).then_some(engine)
    }

    /// The test's directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Restarts stopped nodes.
    pub fn start_again(&self, ports: &[u16]) {
        assert!(self.run_start(ports), "a node did not come up again");
    }

    fn run_start(&self, ports: &[u16]) -> bool {
        let mut command = script();
        command.arg("start").arg(self.dir.path().join("cluster"));
        command.args(ports.iter().map(u16::to_string)).stdout(Stdio::null());
        let status = command.status().expect("the script");
        if status.code() == Some(SKIPPED) {
            eprintln!("skipped: there is no OpenSearch here; the lines above say why");
            return false;
        }
        assert!(status.success(), "OpenSearch did not start");
        true
    }

    /// Shuts a node down gracefully.
    pub fn stop(&self, port: u16) {
        let status = script().arg("stop").arg(self.dir.path().join("cluster")).arg(port.to_string()).status();
        assert!(status.expect("the script").success());
    }

    /// Kills a node, as a power failure would.
    pub fn kill(&self, port: u16) {
        let file = self.dir.path().join(format!("cluster/node-{port}/pid"));
        let pid: i32 = std::fs::read_to_string(&file).expect("a pid").trim().parse().expect("a number");
        let pid = rustix::process::Pid::from_raw(pid).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
        std::fs::remove_file(file).expect("removed");
    }

    /// Settings for its nodes and a prefix.
    pub fn settings(&self, prefix: &str) -> Settings {
        let nodes = match &self.url {
            Some(url) => vec![url.clone()],
            None => self.ports.iter().map(|p| format!("http://127.0.0.1:{p}")).collect(),
        };
        // A server that was already running may have indices of earlier runs.
        let prefix = format!("{prefix}{}_", std::process::id());
        Settings { nodes, prefix, ..Settings::default() }
    }

    /// A client.
    pub fn cluster(&self, prefix: &str) -> Cluster {
        Cluster::connect(self.settings(prefix)).expect("a client")
    }

    /// A writer with its own spool.
    pub fn writer(&self, prefix: &str, spool: &str) -> Writer {
        Writer::open(self.cluster(prefix), &self.dir.path().join(spool)).expect("a writer")
    }

    /// Sends a request unchanged, and returns the answer's body.
    pub fn raw(&self, method: &str, path: &str, body: &str) -> String {
        send(&self.address(), method, path, body)
    }

    /// The address of the first node.
    pub fn address(&self) -> String {
        match &self.url {
            Some(url) => url.trim_start_matches("http://").to_owned(),
            None => format!("127.0.0.1:{}", self.ports[0]),
        }
    }
}

/// Sends a request unchanged, and returns the answer's body.
pub fn send(address: &str, method: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time limit");
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    )
    .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_owned())
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.url.is_none() {
            let _ = script().arg("stop").arg(self.dir.path().join("cluster")).status();
        }
    }
}

/// Waits until a condition holds.
pub fn wait_until(what: &str, patience: Duration, mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < patience, "waited {patience:?} until {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn script() -> Command {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../tools/opensearch.sh"].iter().collect();
    Command::new(path)
}

/// Free ports. For each, the port a hundred above it (for traffic between nodes) is free as well.
fn free_ports(count: usize) -> Vec<u16> {
    let mut ports = Vec::new();
    let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let first = 21_000 + (std::process::id() % 20_000) as u16;
    for port in (first..first + 10_000).step_by(7) {
        if free(port) && free(port + 100) {
            ports.push(port);
        }
        if ports.len() == count {
            break;
        }
    }
    ports
}
