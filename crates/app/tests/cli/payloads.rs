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
    spawn(Command::new(program).args(args), dir)
}

fn spawn(command: &mut Command, dir: &Path) -> Option<Server> {
    command
        .env("PLANTED", SECRET)
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    match command.spawn() {
        Ok(child) => Some(Server(child)),
        Err(error) => {
            println!("left out: {}: {error}", command.get_program().display());
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

/// A memcached.
fn memcached(dir: &Path) -> Option<(Server, u16)> {
    let port = free_port();
    let args = ["-l", "127.0.0.1", "-p", &port.to_string(), "-u", "nobody"];
    let server = start("memcached", &args, dir)?;
    wait_until("memcached", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    Some((server, port))
}

/// Starts with `serve`, a server of methods; else it calls one again and again.
const GRPC: &str = "
import os, sys, time
from concurrent import futures
import grpc
mode, port, secret = sys.argv[1], sys.argv[2], os.environ['PLANTED']
if mode == 'serve':
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    def get(request, context):
        context.set_trailing_metadata((('x-token', secret),))
        return request
    handlers = {secret: grpc.unary_unary_rpc_method_handler(get)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler('test.' + secret, handlers),))
    server.add_insecure_port('127.0.0.1:' + port)
    server.start()
    server.wait_for_termination()
with grpc.insecure_channel('127.0.0.1:' + port) as channel:
    call = channel.unary_unary('/test.%s/%s' % (secret, secret))
    for _ in range(600):
        try:
            call(secret.encode(), metadata=(('authorization', 'Bearer ' + secret),), timeout=5)
        except grpc.RpcError:
            pass
        time.sleep(0.02)
";

/// Publishes, reads what was published, and is refused: the broker writes into its log who that was.
const AMQP: &str = "
import os, sys, time
import pika
port, secret = int(sys.argv[1]), os.environ['PLANTED']
good = pika.BlockingConnection(pika.ConnectionParameters('127.0.0.1', port)).channel()
good.queue_declare(secret)
for turn in range(200):
    good.basic_publish('', secret, secret.encode(), pika.BasicProperties(headers={secret: secret}))
    good.basic_get(secret, auto_ack=True)
    if turn % 20 == 0:
        try:
            who = pika.PlainCredentials(secret, secret)
            pika.BlockingConnection(pika.ConnectionParameters('127.0.0.1', port, credentials=who))
        except pika.exceptions.AMQPError:
            pass
    time.sleep(0.05)
";

/// A program of Python, with words.
fn python(dir: &Path, program: &str, words: &[&str]) -> Option<Server> {
    start("/usr/bin/python3", &[&["-c", program][..], words].concat(), dir)
}

/// A node of RabbitMQ, all of it in a directory.
fn rabbitmq(dir: &Path) -> Option<(Vec<Server>, u16)> {
    let [port, epmd, distribution] = [free_port(), free_port(), free_port()];
    let home = dir.join("rabbit");
    std::fs::create_dir(&home).unwrap();
    std::fs::write(home.join("plugins"), "[].\n").unwrap();
    let names = start("epmd", &["-address", "127.0.0.1", "-port", &epmd.to_string()], dir)?;
    let mut command = Command::new("/usr/lib/rabbitmq/bin/rabbitmq-server");
    let at = |name: &str| home.join(name).display().to_string();
    command.envs([
        ("HOME", home.display().to_string()),
        ("ERL_EPMD_PORT", epmd.to_string()),
        ("ERL_EPMD_ADDRESS", "127.0.0.1".into()),
        ("RABBITMQ_DIST_PORT", distribution.to_string()),
        ("RABBITMQ_NODENAME", "planted@localhost".into()),
        ("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1".into()),
        ("RABBITMQ_NODE_PORT", port.to_string()),
        ("RABBITMQ_MNESIA_BASE", at("mnesia")),
        ("RABBITMQ_LOG_BASE", at("log")),
        ("RABBITMQ_ENABLED_PLUGINS_FILE", at("plugins")),
        ("RABBITMQ_CONF_ENV_FILE", at("none")),
        ("RABBITMQ_CONFIG_FILE", at("rabbitmq")),
    ]);
    let server = spawn(&mut command, dir)?;
    wait_until("rabbitmq", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    Some((vec![server, names], port))
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

/// A command of redis that takes its time, with something secret in it.
fn busy(turns: u64) -> String {
    format!("EVAL \"local v = '{SECRET}' for i = 1, {turns} do v = 'x' end return v\" 1 {SECRET}\r\n")
}

/// As many turns of its loop keep redis for 800 ms on this machine: a client waits, and the recorder's questions are answered.
fn turns_of_most_of_a_second(store: u16) -> u64 {
    const TRIED: u64 = 10_000_000;
    let began = std::time::Instant::now();
    ask_redis(store, &busy(TRIED));
    let took_us = u64::try_from(began.elapsed().as_micros()).unwrap().max(1);
    TRIED * 800_000 / took_us
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
    let turns = turns_of_most_of_a_second(store);
    for round in 0..12 {
        kept.extend((0..10).filter_map(|_| ask_http(web)));
        ask_redis(store, &format!("AUTH {SECRET}\r\nSET {SECRET} {SECRET}\r\nGET {SECRET}\r\n"));
        ask_redis(store, &busy(turns));
        let mut client = std::os::unix::net::UnixStream::connect(dir.path().join("app.sock")).unwrap();
        let (mut server, _) = socket.accept().unwrap();
        client.write_all(SECRET.as_bytes()).unwrap();
        _ = server.read(&mut [0; 64]).unwrap();
        server.write_all(SECRET.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(if round < 8 { 500 } else { 100 }));
    }
    let (status, err) = recorder.end(Signal::TERM);
    assert!(status.success(), "{err}");
    let web = format!("127.0.0.1:{web}");
    let store = format!("127.0.0.1:{store}");
    let values = assert_nowhere(&archive, &err, &["nginx:worker_connections", &web, &store, "app.sock"]);
    assert!(values.contains("command.calls"), "redis was not asked");
    assert!(std::fs::read(dir.path().join("error.log")).is_ok_and(|log| has_secret(&log)));
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn what_grpc_amqp_and_memcached_carry_stands_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let grpc = free_port();
    let (Some((_memcached, store)), Some((_broker, broker)), Some(_grpc)) = (
        memcached(dir.path()),
        rabbitmq(dir.path()),
        python(dir.path(), GRPC, &["serve", &grpc.to_string()]),
    ) else {
        return;
    };
    wait_until("gRPC", || TcpStream::connect(("127.0.0.1", grpc)).is_ok());
    let archive = dir.path().join("archive").display().to_string();
    let mut recorder =
        Running::start(&mut command(&["record", "--interval", "250ms", "--archive", &archive]));
    assert!(recorder.line().starts_with("recording "));
    wait_for_frames(&archive, 6);
    let clients = [
        python(dir.path(), GRPC, &["ask", &grpc.to_string()]),
        python(dir.path(), AMQP, &[&broker.to_string()]),
    ];
    let mut cache = TcpStream::connect(("127.0.0.1", store)).unwrap();
    for _ in 0..100 {
        let text = format!("set {SECRET} 0 0 {}\r\n{SECRET}\r\nget {SECRET}\r\n", SECRET.len());
        cache.write_all(text.as_bytes()).unwrap();
        assert_ne!(cache.read(&mut [0; 256]).unwrap(), 0);
        std::thread::sleep(Duration::from_millis(80));
    }
    let (status, err) = recorder.end(Signal::TERM);
    drop(clients);
    assert!(status.success(), "{err}");
    let seen = [store, broker, grpc].map(|port| format!("127.0.0.1:{port}"));
    assert_nowhere(&archive, &err, &seen.each_ref().map(String::as_str));
    let mut logs = Vec::new();
    files(&dir.path().join("rabbit/log"), &mut logs);
    assert!(logs.iter().any(|log| has_secret(&std::fs::read(log).unwrap())), "nobody was refused");
}

/// Neither in an archive nor in what is said of it, and these were seen. Returns all values.
fn assert_nowhere(archive: &str, err: &str, seen: &[&str]) -> String {
    let values = good(&["dump", "--archive", archive, "--since", "-10m", "--format", "csv"]);
    // It looked where secrets are.
    for what in seen {
        assert!(values.contains(what), "{what} was not seen");
    }
    let mut outputs = vec![values.clone(), err.to_owned()];
    for args in [
        &["explain", "--archive", archive][..],
        &["explain", "--json", "--archive", archive],
        &["services", "--archive", archive, "--since", "-10m"],
        &["services", "--json", "--map", "--archive", archive, "--since", "-10m"],
        &["status", "--json", "--archive", archive],
    ] {
        outputs.push(crate::harness::run(args).out);
    }
    for output in &outputs {
        assert!(!has_secret(output.as_bytes()), "{output}");
    }
    let mut all = Vec::new();
    files(Path::new(archive), &mut all);
    for file in &all {
        assert!(!has_secret(&std::fs::read(file).unwrap()), "{}", file.display());
    }
    assert!(!all.is_empty());
    values
}
