//! What clients and services send each other stands nowhere: not in the archive, not in any output.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::{Running, command, good, wait_for_frames, wait_until};

/// In lower case, as names of commands are kept.
const SECRET: &str = "hunter2planted";

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // A master takes its workers along.
        let pid = rustix::process::Pid::from_child(&self.0);
        _ = rustix::process::kill_process(pid, Signal::TERM);
        _ = self.0.wait();
    }
}

fn start(program: &str, args: &[&str], dir: &Path) -> Option<Server> {
    let mut command = Command::new(program);
    command.args(args).current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.spawn() {
        Ok(child) => Some(Server(child)),
        Err(error) => {
            println!("left out: {program}: {error}");
            None
        }
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// An nginx whose few connections go to somebody who never answers: it writes the requests that it turns away into its log.
fn nginx(dir: &Path, behind: u16) -> Option<(Server, u16)> {
    let port = free_port();
    let config = format!(
        "daemon off; master_process on; worker_processes 1; pid {0}/pid; error_log {0}/error.log;\n\
         events {{ worker_connections 17; }}\nhttp {{ access_log {0}/access.log; client_body_temp_path {0}/b; \
         proxy_temp_path {0}/p; fastcgi_temp_path {0}/f; uwsgi_temp_path {0}/u; scgi_temp_path {0}/s;\n\
         server {{ listen 127.0.0.1:{port}; location /ok {{ return 200; }} location / {{ proxy_pass http://127.0.0.1:{behind}; }} \
         }} }}\n",
        dir.display()
    );
    std::fs::write(dir.join("nginx.conf"), config).unwrap();
    let conf = dir.join("nginx.conf").display().to_string();
    let server = start("nginx", &["-p", &dir.display().to_string(), "-c", &conf], dir)?;
    wait_until("nginx", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    Some((server, port))
}

/// A redis that a client keeps busy.
fn redis(dir: &Path) -> Option<(Server, u16)> {
    let port = free_port();
    let socket = dir.join("redis.sock").display().to_string();
    let number = port.to_string();
    let args = ["--port", &number, "--bind", "127.0.0.1", "--save", "", "--unixsocket", &socket];
    let server = start("redis-server", &[&args[..], &["--slowlog-log-slower-than", "1000"]].concat(), dir)?;
    wait_until("redis", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    Some((server, port))
}

/// Is answered: until then nobody knows whose service it is.
fn ask_well(port: u16) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET /ok HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// Asks for something secret in each part of a request, and does not wait for the answer.
fn ask_http(port: u16) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let request = format!(
        "POST /{SECRET}?password={SECRET} HTTP/1.1\r\nHost: {SECRET}\r\nAuthorization: Bearer {SECRET}\r\n\
         Cookie: session={SECRET}\r\nContent-Length: {}\r\n\r\n{SECRET}",
        SECRET.len()
    );
    stream.write_all(request.as_bytes()).ok()?;
    Some(stream)
}

/// Sends commands of redis, and reads what comes within the time limit.
fn ask_redis(port: u16, commands: &str) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(1500))).unwrap();
    stream.write_all(commands.as_bytes()).unwrap();
    _ = stream.read(&mut [0; 4096]);
}

fn has_secret(bytes: &[u8]) -> bool {
    bytes.windows(SECRET.len()).any(|part| part.eq_ignore_ascii_case(SECRET.as_bytes()))
}

fn files(dir: &Path, all: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files(&entry.path(), all),
            _ => all.push(entry.path()),
        }
    }
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn what_is_sent_to_services_stands_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (Some((_nginx, web)), Some((_redis, store))) =
        (nginx(dir.path(), silent.local_addr().unwrap().port()), redis(dir.path()))
    else {
        return;
    };
    let socket = UnixListener::bind(dir.path().join("app.sock")).unwrap();
    let archive = dir.path().join("archive").display().to_string();
    let mut recorder =
        Running::start(&mut command(&["record", "--interval", "250ms", "--archive", &archive]));
    assert!(recorder.line().starts_with("recording "));
    wait_for_frames(&archive, 6);
    ask_well(web);
    let mut kept = Vec::new();
    for round in 0..12 {
        kept.extend((0..10).filter_map(|_| ask_http(web)));
        ask_redis(store, &format!("AUTH {SECRET}\r\nSET {SECRET} {SECRET}\r\nGET {SECRET}\r\n"));
        let busy = format!(
            "EVAL \"local v = '{SECRET}' for i = 1, 300000000 do v = 'x' end return v\" 1 {SECRET}\r\n"
        );
        ask_redis(store, &busy);
        let mut client = std::os::unix::net::UnixStream::connect(dir.path().join("app.sock")).unwrap();
        let (mut server, _) = socket.accept().unwrap();
        client.write_all(SECRET.as_bytes()).unwrap();
        _ = server.read(&mut [0; 64]).unwrap();
        server.write_all(SECRET.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(if round < 8 { 500 } else { 100 }));
    }
    let (status, err) = recorder.end(Signal::TERM);
    assert!(status.success(), "{err}");

    let values = good(&["dump", "--archive", &archive, "--since", "-10m", "--format", "csv"]);
    // It looked where secrets are.
    for seen in
        ["nginx:worker_connections", &format!("127.0.0.1:{web}"), &format!("127.0.0.1:{store}"), "app.sock"]
    {
        assert!(values.contains(seen), "{seen} was not seen");
    }
    assert!(values.contains("command.calls"), "redis was not asked");
    let mut outputs = vec![values];
    for args in [
        &["explain", "--archive", &archive][..],
        &["explain", "--json", "--archive", &archive],
        &["services", "--archive", &archive, "--since", "-10m"],
        &["services", "--json", "--map", "--archive", &archive, "--since", "-10m"],
        &["status", "--json", "--archive", &archive],
    ] {
        outputs.push(crate::harness::run(args).out);
    }
    for output in &outputs {
        assert!(!has_secret(output.as_bytes()), "{output}");
    }
    assert!(!has_secret(err.as_bytes()), "{err}");
    let mut all = Vec::new();
    files(Path::new(&archive), &mut all);
    for file in &all {
        assert!(!has_secret(&std::fs::read(file).unwrap()), "{}", file.display());
    }
    assert!(!all.is_empty() && std::fs::read(dir.path().join("error.log")).is_ok_and(|log| has_secret(&log)));
}
