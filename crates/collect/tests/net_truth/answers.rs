//! How answers of services went, told by their first bytes, against what the server meant: made-up answers of each protocol, and
//! programs that answer well and then with errors.

use std::fs::{self, File};
use std::io::{IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mitra_collect::Config;
use mitra_model::Entity;
use rustix::net::{SendAncillaryBuffer, SendFlags};
use rustix::process::{Pid, Signal, kill_process};

use super::Bench;
use super::services::{settle, settled};

/// Not known, well, an error of the client, an error of the server.
const STATUSES: [&str; 4] = ["status_unknown", "status_ok", "client_errors", "server_errors"];
const UNKNOWN: usize = 0;
const OK: usize = 1;
const CLIENT: usize = 2;
const SERVER: usize = 3;

const UNAVAILABLE: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
/// ErrorResponse of PostgreSQL, with its length.
const PG_ERROR: &[u8] = b"E\0\0\0\x1dSERROR\0VERROR\0C42P01\0Mx\0\0";

fn reading() -> Option<Bench> {
    let bench = settle(Bench::open_as(Config { read_answers: true, ..Config::default() })?)?;
    bench.has("probe.answers").then_some(bench)
}

/// Counts of answers so far by how they went; -1 is not known.
fn answers(bench: &Bench, row: &str) -> [i64; 4] {
    STATUSES.map(|metric| bench.service(row, metric))
}

fn protocol(bench: &Bench, row: &str) -> Option<String> {
    bench.text(Entity::Service, row, "service.protocol")
}

/// A connection with both of its sides, and the row of the service.
fn connection() -> (TcpStream, TcpStream, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("an address");
    let client = TcpStream::connect(address).expect("a connection");
    let (server, _) = listener.accept().expect("a connection");
    // It has to listen still when a sample looks for services.
    std::mem::forget(listener);
    (client, server, address.to_string())
}

/// One request of a byte, which is answered by `send`; the client reads so many bytes.
fn turn(client: &mut TcpStream, server: &mut TcpStream, bytes: usize, send: impl FnOnce(&mut TcpStream)) {
    client.write_all(b"?").expect("a question");
    server.read_exact(&mut [0]).expect("the question");
    send(server);
    client.read_exact(&mut vec![0; bytes]).expect("the answer");
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn the_first_bytes_tell_how_an_answer_went() {
    let Some(mut bench) = reading() else { return };
    let after = |head: &[u8]| [head, PG_ERROR].concat();
    let [parsed, bound, no_data]: [&[u8]; 3] = [b"1\0\0\0\x04", b"2\0\0\0\x04", b"n\0\0\0\x04"];
    let cases: &[(&[u8], usize, &str)] = &[
        (b"HTTP/1.1 200 OK\r\n\r\n", OK, "HTTP"),
        (b"HTTP/1.0 302 Found\r\n\r\n", OK, "HTTP"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", CLIENT, "HTTP"),
        (UNAVAILABLE, SERVER, "HTTP"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", UNKNOWN, "HTTP"),
        (b"HTTP/1.1", UNKNOWN, ""),
        (b"+OK\r\n", OK, "Redis"),
        (b"$-1\r\n", OK, "Redis"),
        (b":12\r\n", OK, "Redis"),
        (b"-ERR unknown command\r\n", SERVER, "Redis"),
        (b"-MOVED 3999 127.0.0.1:6381\r\n", CLIENT, "Redis"),
        (b"-1\r\n", UNKNOWN, ""),
        (PG_ERROR, SERVER, "PostgreSQL"),
        (&after(parsed), SERVER, "PostgreSQL"),
        (&after(&[parsed, bound].concat()), SERVER, "PostgreSQL"),
        (&after(&[parsed, bound, no_data].concat()), SERVER, "PostgreSQL"),
        (&[parsed, bound, b"T\0\0\0\x06\0\0"].concat(), OK, "PostgreSQL"),
        (b"C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I", OK, "PostgreSQL"),
        (b"Error: no such thing\n", UNKNOWN, ""),
        (b"\x17\0\0\x01\xff\x28\x04#42000You have an err", SERVER, "MySQL"),
        (b"\x07\0\0\x01\0\0\0\x02\0\0\0", OK, "MySQL"),
        (b"\x01\0\0\x01\x03\x27\0\0\x02\x03def", OK, "MySQL"),
        (b"VALUE a 0 1\r\nx\r\nEND\r\n", OK, "Memcached"),
        (b"END\r\n", OK, "Memcached"),
        (b"ERROR\r\n", CLIENT, "Memcached"),
        (b"CLIENT_ERROR bad data chunk\r\n", CLIENT, "Memcached"),
        (b"SERVER_ERROR out of memory storing object\r\n", SERVER, "Memcached"),
        // HTTP/2, TLS, lines, a length and JSON.
        (b"\0\0\x12\x04\0\0\0\0\0\0\x03\0\0\0\x64", UNKNOWN, ""),
        (b"\x17\x03\x03\0\x40\x99\xff\x01#234567890abcdef", UNKNOWN, ""),
        (b"hello\n", UNKNOWN, ""),
        (b"\x10\0\0\0\xff\x28\x04#4200012345678", UNKNOWN, ""),
    ];
    let told: Vec<_> = cases
        .iter()
        .map(|(answer, ..)| {
            let (mut client, mut server, row) = connection();
            for _ in 0..3 {
                turn(&mut client, &mut server, answer.len(), |server| {
                    server.write_all(answer).expect("an answer");
                });
            }
            row
        })
        .collect();
    bench.sample();
    for ((answer, status, name), row) in cases.iter().zip(&told) {
        let mut wanted = [0; 4];
        wanted[*status] = 3;
        let answer = answer.escape_ascii();
        assert_eq!(answers(&bench, row), wanted, "{answer}");
        assert_eq!(protocol(&bench, row).unwrap_or_default(), *name, "{answer}");
    }
}

/// Where other answers were those of Redis, an error of a script of its is one too.
#[test]
#[ignore = "needs root: make test-kernel"]
fn an_error_in_words_of_its_own_counts_where_redis_answers() {
    let Some(mut bench) = reading() else { return };
    let (mut client, mut server, row) = connection();
    for answer in [&b"-my script failed\r\n"[..], b"+OK\r\n", b"-my script failed\r\n"] {
        turn(&mut client, &mut server, answer.len(), |server| server.write_all(answer).expect("an answer"));
    }
    bench.sample();
    assert_eq!(answers(&bench, &row), [1, 1, 0, 1]);
}

/// A way to send: its name, how many answers it makes, and how.
type Send<'a> = (&'a str, usize, &'a dyn Fn(&mut TcpStream));

#[test]
#[ignore = "needs root: make test-kernel"]
fn each_call_that_sends_a_buffer_is_read_and_no_other() {
    let Some(mut bench) = reading() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("answer");
    fs::write(&path, UNAVAILABLE).expect("a file");
    let file = File::open(&path).expect("the file");
    let sends: [Send<'_>; 5] = [
        ("sendto", SERVER, &|server| server.write_all(UNAVAILABLE).expect("sent")),
        ("write", SERVER, &|server| _ = rustix::io::write(&*server, UNAVAILABLE).expect("sent")),
        ("writev", SERVER, &|server| _ = server.write_vectored(&[IoSlice::new(UNAVAILABLE)]).expect("sent")),
        ("sendmsg", SERVER, &|server| {
            let (parts, mut control) = ([IoSlice::new(UNAVAILABLE)], SendAncillaryBuffer::default());
            rustix::net::sendmsg(&*server, &parts, &mut control, SendFlags::empty()).expect("sent");
        }),
        ("sendfile", UNKNOWN, &|server| {
            let mut from = 0;
            rustix::fs::sendfile(&*server, &file, Some(&mut from), UNAVAILABLE.len()).expect("sent");
        }),
    ];
    let rows = sends.map(|(call, status, send)| {
        let (mut client, mut server, row) = connection();
        turn(&mut client, &mut server, UNAVAILABLE.len(), send);
        (call, status, row)
    });
    // What lies behind the bytes that are sent is not looked at.
    let (mut client, mut server, cut) = connection();
    turn(&mut client, &mut server, 9, |server| server.write_all(&UNAVAILABLE[..9]).expect("sent"));
    // And of an answer only the beginning.
    let (mut client, mut server, parts) = connection();
    turn(&mut client, &mut server, UNAVAILABLE.len() + 5, |server| {
        server.write_all(b"+OK\r\n").expect("sent");
        server.write_all(UNAVAILABLE).expect("sent");
    });
    bench.sample();
    for (call, status, row) in rows {
        let mut wanted = [0; 4];
        wanted[status] = 1;
        assert_eq!(answers(&bench, &row), wanted, "{call}");
    }
    assert_eq!(answers(&bench, &cut), [1, 0, 0, 0]);
    assert_eq!(answers(&bench, &parts), [0, 1, 0, 0]);
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn nothing_is_read_where_nobody_asked_for_it() {
    let Some(mut bench) = settled() else { return };
    let (mut client, mut server, row) = connection();
    turn(&mut client, &mut server, UNAVAILABLE.len(), |server| server.write_all(UNAVAILABLE).expect("sent"));
    bench.sample();
    assert_eq!(bench.service(&row, "requests"), 1);
    assert_eq!(answers(&bench, &row), [-1; 4]);
    assert_eq!(protocol(&bench, &row), None);
}

/// A program that serves; it ends with this.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        _ = kill_process(Pid::from_child(&self.0), Signal::INT);
        _ = self.0.wait();
    }
}

impl Program {
    /// `None` if it is not installed.
    fn start(command: &mut Command) -> Option<Self> {
        let program = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        if let Err(error) = &program {
            println!("skipped: {}: {error}", command.get_program().to_string_lossy());
        }
        program.ok().map(Program)
    }
}

/// A port of loopback that nobody has.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    listener.local_addr().expect("an address").port()
}

/// Connects as soon as somebody listens and `greet` is content.
fn connected(port: u16, mut greet: impl FnMut(&mut TcpStream) -> bool) -> TcpStream {
    let begun = Instant::now();
    loop {
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port))
            && greet(&mut stream)
        {
            return stream;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "nobody serves port {port}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Asks, and reads until the answer ends with this.
fn ask(stream: &mut TcpStream, question: &[u8], end: &[u8]) -> Option<Vec<u8>> {
    stream.write_all(question).ok()?;
    let (mut answer, mut part) = (Vec::new(), [0; 4096]);
    while !answer.ends_with(end) {
        match stream.read(&mut part) {
            Ok(bytes) if bytes > 0 => answer.extend_from_slice(&part[..bytes]),
            _ => return None,
        }
    }
    Some(answer)
}

/// How many more answers of each kind there are after a few questions.
fn grown(bench: &mut Bench, row: &str, mut ask: impl FnMut()) -> [i64; 4] {
    bench.sample();
    let before = answers(bench, row);
    (0..10).for_each(|_| ask());
    bench.sample();
    let mut grown = answers(bench, row);
    grown.iter_mut().zip(before).for_each(|(now, before)| *now -= before.max(0));
    grown
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn nginx_answers_well_and_then_with_errors() {
    let Some(mut bench) = reading() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (dir, port) = (folder.path().display(), free_port());
    let broken = folder.path().join("broken");
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {dir}/{kind};"))
        .concat();
    let text = format!(
        "daemon off; master_process off; pid {dir}/pid; error_log {dir}/error.log;\nevents {{}}\n\
         http {{ access_log off; {temporary} server {{ listen 127.0.0.1:{port}; location / {{\n\
         if (-f {dir}/broken) {{ return 500; }}\nreturn 200 \"well\\n\"; }} }} }}\n"
    );
    let config = folder.path().join("nginx.conf");
    fs::write(&config, text).expect("a configuration");
    let Some(_nginx) = Program::start(Command::new("nginx").arg("-c").arg(&config)) else { return };
    let mut stream = connected(port, |_| true);
    let row = format!("127.0.0.1:{port}");
    let question = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    let well = grown(&mut bench, &row, || {
        ask(&mut stream, question, b"well\n").expect("an answer");
    });
    assert_eq!(well, [0, 10, 0, 0]);
    fs::write(broken, "").expect("a file");
    let errors = grown(&mut bench, &row, || {
        ask(&mut connected(port, |_| true), question, b"</html>\r\n").expect("an answer");
    });
    assert_eq!(errors, [0, 0, 0, 10]);
    assert_eq!(protocol(&bench, &row).as_deref(), Some("HTTP"));
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn redis_answers_well_and_then_with_errors() {
    let Some(mut bench) = reading() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let port = free_port();
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--save", "", "--port"]).arg(port.to_string());
    let Some(_redis) = Program::start(command.arg("--dir").arg(folder.path())) else { return };
    let mut stream = connected(port, |_| true);
    let row = format!("127.0.0.1:{port}");
    let mut asked = |question: &[u8]| {
        grown(&mut bench, &row, || {
            ask(&mut stream, question, b"\r\n").expect("an answer");
        })
    };
    assert_eq!(asked(b"PING\r\n"), [0, 10, 0, 0]);
    assert_eq!(asked(b"NOSUCH\r\n"), [0, 0, 0, 10]);
    assert_eq!(protocol(&bench, &row).as_deref(), Some("Redis"));
}

/// PostgreSQL refuses to run as root.
const NOBODY: u32 = 65534;
/// ReadyForQuery, with which each answer ends.
const READY: &[u8] = b"Z\0\0\0\x05I";

fn as_nobody(command: &mut Command, dir: &Path) -> Option<Program> {
    Program::start(command.uid(NOBODY).gid(NOBODY).current_dir(dir))
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn postgresql_answers_well_and_then_with_errors() {
    let Some(mut bench) = reading() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    chown(folder.path(), Some(NOBODY), Some(NOBODY)).expect("its owner");
    let (data, port) = (folder.path().join("data"), free_port());
    let mut init = Command::new("initdb");
    init.args(["-U", "postgres", "-A", "trust", "--no-sync", "-D"]).arg(&data);
    let Some(mut init) = as_nobody(&mut init, folder.path()) else { return };
    assert!(init.0.wait().expect("initdb").success());
    let mut server = Command::new("postgres");
    server.arg("-D").arg(&data).args(["-h", "127.0.0.1", "-k", "", "-p"]).arg(port.to_string());
    let Some(_server) = as_nobody(&mut server, folder.path()) else { return };
    let hello = b"\0\0\0\x29\0\x03\0\0user\0postgres\0database\0postgres\0\0";
    // While it starts it answers with an error, and hangs up.
    let mut stream = connected(port, |stream| ask(stream, hello, READY).is_some());
    let row = format!("127.0.0.1:{port}");
    let mut asked = |statement: &str| {
        let length = u32::try_from(statement.len() + 5).expect("short").to_be_bytes();
        let question = [&b"Q"[..], &length, statement.as_bytes(), b"\0"].concat();
        grown(&mut bench, &row, || {
            ask(&mut stream, &question, READY).expect("an answer");
        })
    };
    assert_eq!(asked("SELECT 1"), [0, 10, 0, 0]);
    assert_eq!(asked("SELECT * FROM nosuch"), [0, 0, 0, 10]);
    assert_eq!(protocol(&bench, &row).as_deref(), Some("PostgreSQL"));
}
