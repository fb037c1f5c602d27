//! The services of this directory: real interpreters with an HTTP server, with a leak on request.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A running service. Dropping it ends the service.
pub struct Service {
    child: Child,
    client: Client,
}

/// A client with one persistent connection.
pub struct Client {
    port: u16,
    stream: Option<BufReader<TcpStream>>,
}

impl Service {
    /// Starts `service.py` with a kind of work, and waits until it serves.
    pub fn start(python: &Path, arguments: &[&str]) -> Self {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        let script = workspace.join("crates/inspect/tests/services/service.py");
        let mut child = Command::new(python)
            .arg("-B")
            .arg(script)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().strip_prefix("port ").and_then(|port| port.parse().ok());
        let Some(port) = port else {
            child.kill().ok();
            child.wait().ok();
            panic!("the service did not start: {line:?}");
        };
        Self { child, client: Client { port, stream: None } }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A further client.
    pub fn client(&self) -> Client {
        Client { port: self.client.port, stream: None }
    }

    /// Requests a path.
    pub fn get(&mut self, path: &str) -> String {
        self.client.get(path).unwrap()
    }

    /// Sends this many requests for work, of `units` units each.
    pub fn work(&mut self, requests: u64, units: u64) {
        for _ in 0..requests {
            self.get(&format!("/work/{units}"));
        }
    }

    /// Its own counts.
    pub fn truth(&mut self) -> serde_json::Value {
        serde_json::from_str(&self.get("/truth")).unwrap()
    }
}

impl Client {
    /// Requests a path.
    pub fn get(&mut self, path: &str) -> io::Result<String> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => {
                let stream = TcpStream::connect(("127.0.0.1", self.port))?;
                stream.set_nodelay(true)?;
                none.insert(BufReader::new(stream))
            }
        };
        // In one write: several small writes would wait for each other's acknowledgement.
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.get_mut().write_all(request.as_bytes())?;
        let mut length = 0;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().map_err(io::Error::other)?;
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        String::from_utf8(body).map_err(io::Error::other)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
