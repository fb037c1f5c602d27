//! What a cluster answers, whatever it is: a server on this machine says it, and every question of the index is asked.
//!
//! The first byte is the question; each line that follows is an answer, of which the first byte is the status. When there is no
//! answer left everything is refused.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use mitra_search::opensearch::{Cluster, Settings, fuzzing};
use mitra_search::{Day, Query, Scope};

/// A server, and what it is going to answer.
struct Server {
    address: String,
    answers: Mutex<VecDeque<Vec<u8>>>,
}

static SERVER: LazyLock<&'static Server> = LazyLock::new(|| {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().map(|address| format!("http://{address}")).unwrap_or_default();
    let server: &'static Server = Box::leak(Box::new(Server { address, answers: Mutex::default() }));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || _ = server.serve(stream));
        }
    });
    server
});

impl Server {
    /// Answers the requests of one connection.
    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut requests = BufReader::new(stream.try_clone()?);
        while read_request(&mut requests)? {
            let answer = self.answers.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let answer = answer.unwrap_or_else(|| b"0{}".to_vec());
            let (status, body) = answer.split_first().unwrap_or((&b'0', &[]));
            let status = match status {
                b'2' => 200,
                b'4' => 404,
                b'9' => 429,
                b'3' => 413,
                b'5' => 503,
                b'6' => 401,
                // Not even HTTP.
                b'x' => {
                    stream.write_all(body)?;
                    return Ok(());
                }
                _ => 400,
            };
            let head = format!("HTTP/1.1 {status} -\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all(&[head.as_bytes(), body].concat())?;
        }
        Ok(())
    }
}

/// Reads a request to its end; false where there is none.
fn read_request(from: &mut impl BufRead) -> std::io::Result<bool> {
    let mut bytes = 0;
    loop {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return Ok(false);
        }
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(length) = line.strip_prefix("content-length:") {
            bytes = length.trim().parse().unwrap_or(0);
        }
        if line.is_empty() {
            std::io::copy(&mut from.take(bytes), &mut std::io::sink())?;
            return Ok(true);
        }
    }
}

/// Asks a question that is answered by the bytes.
pub fn run(bytes: &[u8]) {
    let Some((question, answers)) = bytes.split_first() else { return };
    let answers = answers.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    *SERVER.answers.lock().unwrap_or_else(PoisonError::into_inner) = answers;
    let second = Duration::from_secs(1);
    let nodes = vec![SERVER.address.clone()];
    let settings = Settings { nodes, connect_timeout: second, timeout: second, ..Settings::default() };
    let Ok(cluster) = Cluster::connect(settings) else { return };
    let (first, last) = (Day(20_000), Day(20_001));
    let days = Scope::Days { first, last };
    let at = Scope::At { ns: last.start_ns() + 5 };
    let changed = Scope::Changed { since_ns: first.start_ns(), until_ns: last.end_ns() };
    let all = Query::all();
    match question % 12 {
        0 => drop(cluster.days()),
        1 => drop(cluster.search(&all, days, 10)),
        2 => drop(cluster.search(&all, at, 10)),
        3 => drop(cluster.hosts(&all, changed)),
        4 => drop(cluster.values("sysctl.vm.swappiness", &all, days)),
        5 => drop(cluster.values("mtime", &all, days)),
        6 => drop(cluster.get("web1", "/etc/hosts", days)),
        7 => drop(cluster.get("web1", "/etc/hosts", at)),
        8 => drop(cluster.each(&all, changed, &mut |_, document| {
            // What is read goes to the screen and to other programs.
            std::hint::black_box((document.to_json(), document.id(), document.hash()));
            Ok(())
        })),
        9 => drop(cluster.changes(Some("web1"), &all, first.start_ns(), last.end_ns())),
        10 => drop(cluster.refresh()),
        _ => fuzzing::deliver(&cluster, last.start_ns() + 7),
    }
}
