//! Name servers, by what programs do: a server that answers late, or never, and clients of several kinds.

use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::Duration;

use mitra_model::Entity;

use super::Bench;
use super::space::{Running, Space};

/// Answers each question with an empty answer after `delay`, and none that begins with an `x`.
const SERVER: &str = r"
import socket, sys, time, threading
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 53))
print('ready', flush=True)
def late(q, a):
    time.sleep(float(sys.argv[2]))
    s.sendto(q[:2] + b'\x81\x80' + q[4:6] + b'\0\0\0\0\0\0' + q[12:], a)
while True:
    q, a = s.recvfrom(512)
    if q[13:14] != b'x':
        threading.Thread(target=late, args=(q, a)).start()
";
const QUESTION: &[u8] = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04name\x00\x00\x01\x00\x01";

struct Names {
    space: Space,
    _server: Running,
    row: String,
}

fn names(name: &str, number: u8, delay: &str) -> Option<Names> {
    let space = Space::make(name, number)?;
    let server = space.start_ready("python3", &["-c", SERVER, &space.address, delay]);
    let row = format!("{}:53", space.address);
    Some(Names { space, _server: server, row })
}

/// Fails rather than wait for ever for an answer that is lost.
fn client() -> UdpSocket {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket
}

fn count(bench: &Bench, row: &str, metric: &str) -> i64 {
    bench.cell(Entity::Resolver, row, metric).unwrap_or(0)
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn programs_that_do_not_connect() {
    let Some(mut bench) = Bench::open() else { return };
    if !bench.has("probe.resolvers") {
        return;
    }
    let Some(names) = names("dnsa", 21, "0.1") else { return };
    let to = (names.space.address.as_str(), 53);
    // As musl does: it sends and reads with an address.
    for _ in 0..3 {
        let socket = client();
        socket.send_to(QUESTION, to).unwrap();
        socket.recv_from(&mut [0; 512]).unwrap();
    }
    let socket = client();
    let mut unheard = QUESTION.to_vec();
    unheard[13] = b'x';
    socket.send_to(&unheard, to).unwrap();
    std::thread::sleep(Duration::from_millis(1_200));
    drop(socket);
    bench.sample();
    let of = |metric: &str| count(&bench, &names.row, metric);
    assert_eq!((of("resolver.queries"), of("resolver.answers"), of("resolver.unanswered")), (4, 3, 1));
    let buckets = of("resolver.latency_le_128ms") + of("resolver.latency_le_256ms");
    assert_eq!(buckets, 3);
    let wait = of("resolver.wait_time");
    assert!((1_500_000_000..2_500_000_000).contains(&wait), "{wait}");
    let who = (of("resolver.pid"), bench.text(Entity::Resolver, &names.row, "resolver.comm"));
    assert_eq!(who.0, i64::from(std::process::id()));
    // The name is that of the thread, which bears the name of the test, cut.
    assert_eq!(who.1.as_deref(), Some("names::programs"));
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn who_still_waits_is_counted_as_time_goes_by() {
    let Some(mut bench) = Bench::open() else { return };
    if !bench.has("probe.resolvers") {
        return;
    }
    let Some(names) = names("dnsd", 24, "0.0") else { return };
    let socket = client();
    let mut unheard = QUESTION.to_vec();
    unheard[13] = b'x';
    socket.send_to(&unheard, (names.space.address.as_str(), 53)).unwrap();
    let mut waits = Vec::new();
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(700));
        bench.sample();
        let of = |metric: &str| count(&bench, &names.row, metric);
        assert_eq!((of("resolver.answers"), of("resolver.unanswered")), (0, 0));
        waits.push(of("resolver.wait_time"));
        assert_eq!(of("resolver.pid"), i64::from(std::process::id()));
    }
    drop(socket);
    bench.sample();
    assert_eq!(count(&bench, &names.row, "resolver.unanswered"), 1);
    waits.push(count(&bench, &names.row, "resolver.wait_time"));
    // The end of the wait adds nothing that was not there.
    let near = |ns: i64, ms: i64| (ns - ms * 1_000_000).abs() < 250_000_000;
    assert!(near(waits[0], 700) && near(waits[1], 1_400) && near(waits[2], 1_400), "{waits:?}");
    assert!(waits[2] >= waits[1]);
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_program_that_connects_and_reads_without_an_address() {
    let Some(mut bench) = Bench::open() else { return };
    if !bench.has("probe.resolvers") {
        return;
    }
    let Some(names) = names("dnsb", 22, "0.03") else { return };
    // As Go does.
    for _ in 0..2 {
        let socket = client();
        socket.connect((names.space.address.as_str(), 53)).unwrap();
        socket.send(QUESTION).unwrap();
        socket.recv(&mut [0; 512]).unwrap();
    }
    let socket = client();
    socket.connect((names.space.address.as_str(), 53)).unwrap();
    let mut unheard = QUESTION.to_vec();
    unheard[13] = b'x';
    socket.send(&unheard).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    drop(socket);
    bench.sample();
    let of = |metric: &str| count(&bench, &names.row, metric);
    assert_eq!((of("resolver.queries"), of("resolver.answers"), of("resolver.unanswered")), (3, 2, 1));
    assert_eq!(of("resolver.latency_le_32ms") + of("resolver.latency_le_64ms"), 2);
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn the_resolver_of_the_c_library() {
    let Some(mut bench) = Bench::open() else { return };
    if !bench.has("probe.resolvers") {
        return;
    }
    let Some(names) = names("dnsc", 23, "0.2") else { return };
    // Inside the namespace /etc/netns/NAME stands for /etc.
    let etc = format!("/etc/netns/{}", names.space.name);
    let conf = format!("nameserver {}\noptions timeout:1 attempts:2\n", names.space.address);
    if std::fs::create_dir_all(&etc).is_err() || std::fs::write(format!("{etc}/resolv.conf"), conf).is_err() {
        return println!("skipped: cannot write {etc}");
    }
    let ask = |name: &str| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &names.space.name, "getent", "ahosts", name]);
        drop(command.stdin(Stdio::null()).stdout(Stdio::null()).status());
    };
    ask("slow.example.");
    bench.sample();
    let row = format!("{}@{}", names.row, names.space.name);
    let find = |bench: &Bench| {
        let all = bench.names(Entity::Resolver);
        all.into_iter().find(|name| *name == row || name.starts_with(&format!("{}@net:[", names.row)))
    };
    let Some(row) = find(&bench) else { panic!("no {row}: {:?}", bench.names(Entity::Resolver)) };
    let of = |bench: &Bench, metric: &str| count(bench, &row, metric);
    let answers = of(&bench, "resolver.answers");
    assert!(of(&bench, "resolver.queries") >= 1 && answers >= 2, "two answers to one connection: {answers}");
    assert_eq!(of(&bench, "resolver.latency_le_256ms") + of(&bench, "resolver.latency_le_512ms"), answers);
    assert_eq!(of(&bench, "resolver.unanswered"), 0);
    assert_eq!(bench.text(Entity::Resolver, &row, "resolver.comm").as_deref(), Some("getent"));
    ask("xnever.example.");
    bench.sample();
    assert!(of(&bench, "resolver.unanswered") >= 1);
    let wait = of(&bench, "resolver.wait_time");
    assert!(wait > 2_000_000_000, "two attempts of a second: {wait}");
    drop(std::fs::remove_dir_all(&etc));
}
