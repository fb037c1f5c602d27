//! What is counted of services and of what processes ask of others, against what both sides of the connections know.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mitra_model::Entity;

use super::Bench;

/// The first frames only learn which ports are listened on.
pub const SETTLE: usize = 4;

pub fn settled() -> Option<Bench> {
    settle(Bench::open()?)
}

pub fn settle(mut bench: Bench) -> Option<Bench> {
    if !bench.has("probe.services") {
        assert!(!has_iterators(), "this kernel has all that is needed");
        return None;
    }
    for _ in 0..SETTLE {
        bench.sample();
        std::thread::sleep(Duration::from_millis(20));
    }
    Some(bench)
}

/// Whether this kernel lets a program go over the state of sockets and release slots: since 6.3.
fn has_iterators() -> bool {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(3))
}

/// What a server does with each message of one byte.
#[derive(Clone, Copy)]
pub enum Act {
    /// Answers after so many milliseconds, from the moment on at which it has read it.
    Answer(u64),
    /// Waits so long before it reads, and answers at once.
    ReadLate(u64),
    Ignore,
    HangUp,
    /// Answers and ends the connection, as HTTP/1.0 does.
    AnswerAndHangUp,
    /// Computes for so many milliseconds of its CPU time, and answers.
    Compute(u64),
}

/// Serves one connection until it ends.
fn serve(mut stream: impl Read + Write, act: Act) {
    let mut byte = [0];
    loop {
        if let Act::ReadLate(ms) = act {
            std::thread::sleep(Duration::from_millis(ms));
        }
        if stream.read_exact(&mut byte).is_err() {
            return;
        }
        match act {
            Act::Answer(ms) => std::thread::sleep(Duration::from_millis(ms)),
            Act::ReadLate(_) => {}
            Act::Compute(ms) => compute(Duration::from_millis(ms)),
            Act::Ignore => continue,
            Act::HangUp => return,
            Act::AnswerAndHangUp => {
                stream.write_all(&byte).expect("an answer");
                return;
            }
        }
        if stream.write_all(&byte).is_err() {
            return;
        }
    }
}

/// Takes so much CPU time of this thread.
fn compute(time: Duration) {
    let used = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let since = |from: rustix::time::Timespec| {
        let now = used();
        Duration::new((now.tv_sec - from.tv_sec) as u64, 0) + Duration::from_nanos(now.tv_nsec as u64)
            - Duration::from_nanos(from.tv_nsec as u64)
    };
    let from = used();
    while since(from) < time {}
}

/// A server of so many connections on a port of loopback.
pub fn start(act: Act, connections: usize) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("an address");
    let accept = move || {
        let (stream, _) = listener.accept().expect("a connection");
        stream.set_nodelay(true).expect("no delay");
        stream
    };
    (address, serve_all(accept, act, connections))
}

/// Serves so many connections, each in a thread of its own.
fn serve_all<S: Read + Write + Send + 'static>(
    accept: impl Fn() -> S + Send + 'static,
    act: Act,
    connections: usize,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let workers: Vec<_> = (0..connections)
            .map(|_| accept())
            .map(|stream| std::thread::spawn(move || serve(stream, act)))
            .collect();
        workers.into_iter().for_each(|worker| worker.join().expect("a worker"));
    })
}

/// Asks, and returns what it took.
pub fn ask(stream: &mut (impl Read + Write)) -> Duration {
    let mut byte = [7];
    let begun = Instant::now();
    stream.write_all(&byte).expect("a question");
    stream.read_exact(&mut byte).expect("an answer");
    begun.elapsed()
}

impl Bench {
    pub fn service(&self, row: &str, metric: &str) -> i64 {
        self.cell(Entity::Service, row, &format!("service.{metric}")).unwrap_or(-1)
    }

    /// Of what this process calls; it is young, so that its row has its name.
    pub fn called(&self, address: &str, metric: &str) -> i64 {
        let all = self.names(Entity::Dependency);
        let rows = all.iter().filter(|row| row.ends_with(&format!(">{address}")));
        rows.filter_map(|row| self.cell(Entity::Dependency, row, &format!("dependency.{metric}"))).sum()
    }

    pub fn print(&self, row: &str) {
        let metrics = mitra_model::columns(Entity::Service).iter().map(|m| m.name);
        for metric in metrics {
            print!("{}={:?} ", &metric[8..], self.cell(Entity::Service, row, metric));
        }
        println!();
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_nanos() as f64
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn requests_are_counted_and_their_time_is_what_the_client_saw() {
    let Some(mut bench) = settled() else { return };
    let (address, server) = start(Act::Answer(8), 2);
    let row = address.to_string();
    let mut streams = [(); 2].map(|()| TcpStream::connect(address).expect("a connection"));
    let mut times = Vec::new();
    for _ in 0..25 {
        times.extend(streams.each_mut().map(ask));
    }
    bench.sample();
    bench.print(&row);
    assert_eq!(bench.service(&row, "requests"), 50);
    assert_eq!(bench.called(&row, "requests"), 50);
    assert_eq!((bench.service(&row, "connections"), bench.called(&row, "connects")), (2, 2));
    assert_eq!((bench.service(&row, "open"), bench.service(&row, "unanswered")), (0, 0));
    let median = median(times);
    for seen in [bench.service(&row, "latency_p50"), bench.called(&row, "latency_p50")] {
        assert!((seen as f64 - median).abs() < 0.08 * median, "{seen} of {median}");
    }
    assert_eq!(bench.service(&row, "pid"), i64::from(std::process::id()));
    bench.sample();
    assert_eq!(bench.service(&row, "latency_p50"), -1, "nothing was answered since");
    drop(streams);
    server.join().expect("the server");
    bench.sample();
    assert_eq!((bench.service(&row, "sent_bytes"), bench.service(&row, "received_bytes")), (50, 50));
}

/// Asks with short pauses on some connections until it is told to stop, and says how often it has asked by now.
struct Crowd {
    asked: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Crowd {
    fn start(address: SocketAddr, connections: usize) -> Self {
        Self::of((0..connections).map(|_| {
            let stream = TcpStream::connect(address).expect("a connection");
            stream.set_nodelay(true).expect("no delay");
            stream
        }))
    }

    fn of(streams: impl Iterator<Item = impl Read + Write + Send + 'static>) -> Self {
        let (asked, ends) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let threads = streams.enumerate().map(|(nth, mut stream)| {
            let (asked, ends) = (Arc::clone(&asked), Arc::clone(&ends));
            std::thread::spawn(move || {
                // Not all at the same time.
                std::thread::sleep(Duration::from_millis(75) * u32::try_from(nth).expect("few"));
                while !ends.load(Relaxed) {
                    ask(&mut stream);
                    asked.fetch_add(1, Relaxed);
                    // Some ask less often than others.
                    std::thread::sleep(Duration::from_millis(if nth.is_multiple_of(4) { 2 } else { 1 }));
                }
            })
        });
        let threads = threads.collect();
        Crowd { asked, ends, threads }
    }

    fn asked(&self) -> i64 {
        i64::try_from(self.asked.load(Relaxed)).expect("a count")
    }

    fn end(self) {
        self.ends.store(true, Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().expect("a client"));
    }
}

/// Where very much is asked, the recorder looks at windows of each three seconds. Beside such a service are one of a Unix socket, one
/// that answers late, one that does not answer and whose clients give up, and one that nobody asks for a while.
#[test]
#[ignore = "needs root: make test-kernel"]
fn what_is_seen_in_windows_stands_for_all() {
    const SECONDS: u32 = 12;
    const LATE_MS: u64 = 300;
    const LOCAL: usize = 6;
    let Some(mut bench) = settled() else { return };
    let (busy, busy_server) = start(Act::Answer(0), 12);
    let (late, late_server) = start(Act::Answer(LATE_MS), 4);
    let (idle, idle_server) = start(Act::Answer(1), 1);
    let (mute, mute_server) = start(Act::Ignore, SECONDS as usize);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("app.sock");
    let listener = UnixListener::bind(&path).expect("a listener");
    let local_server = serve_all(move || listener.accept().expect("a connection").0, Act::Answer(0), LOCAL);
    let local = format!("unix:{}", path.display());
    let mut idle_stream = TcpStream::connect(idle).expect("a connection");
    ask(&mut idle_stream);
    bench.sample();
    let (many, few) = (Crowd::start(busy, 12), Crowd::start(late, 4));
    let near = Crowd::of((0..LOCAL).map(|_| UnixStream::connect(&path).expect("a connection")));
    let mut second = || {
        std::thread::sleep(Duration::from_secs(1));
        bench.sample();
    };
    // What begins on a busy machine is found in the next window.
    (0..6).for_each(|_| second());
    let row = |address: SocketAddr| address.to_string();
    let values =
        |bench: &Bench, metric: &str| [busy, late].map(|address| bench.service(&row(address), metric));
    if bench.service(&row(busy), "watched") > 900_000 {
        println!("skipped: this machine does not ask often enough");
        return;
    }
    let counts =
        |bench: &Bench| [values(bench, "requests"), [many.asked(), few.asked()], values(bench, "wait_time")];
    let of_local = |bench: &Bench| [bench.service(&local, "requests"), near.asked()];
    let local_before = of_local(&bench);
    let before = counts(&bench);
    let mut open = Vec::new();
    let mut latency = Vec::new();
    for _ in 0..SECONDS {
        let mut gives_up = TcpStream::connect(mute).expect("a connection");
        gives_up.write_all(&[1]).expect("a question");
        std::thread::sleep(Duration::from_secs(1));
        bench.sample();
        drop(gives_up);
        open.push(bench.service(&row(late), "open"));
        latency.extend(Some(bench.service(&row(late), "latency_p50")).filter(|value| *value > 0));
        assert_eq!(bench.service(&row(idle), "open"), 0, "nobody waits there");
    }
    let after = counts(&bench);
    let local_after = of_local(&bench);
    let grown = |of: usize, which: usize| after[of][which] - before[of][which];
    println!("seen {}, asked {:?}", bench.service(&row(busy), "watched"), (grown(1, 0), grown(1, 1)));
    println!("counted {:?}, open {open:?}, median {latency:?}", (grown(0, 0), grown(0, 1)));
    for which in [0, 1] {
        let (counted, asked) = (grown(0, which), grown(1, which));
        assert!((counted - asked).abs() * 50 < asked + 200, "{counted} of {asked}");
    }
    let [counted, asked] = [0, 1].map(|which| local_after[which] - local_before[which]);
    println!("of the Unix socket counted {counted}, asked {asked}");
    assert!((counted - asked).abs() * 50 < asked, "{counted} of {asked}");
    // What has just begun is not seen.
    assert!(open.iter().sum::<i64>() * 2 > 7 * i64::from(SECONDS), "{open:?}");
    let late_ns = (LATE_MS * 1_000_000) as f64;
    assert!(!latency.is_empty(), "some answers are seen");
    assert!(latency.iter().all(|ns| (*ns as f64 / late_ns - 1.0).abs() < 0.1), "{latency:?}");
    let waited_s = grown(2, 1) as f64 / 1e9 / f64::from(SECONDS);
    assert!((3.2..4.8).contains(&waited_s), "four clients wait all the time: {waited_s}");
    bench.sample();
    assert_eq!(bench.service(&row(mute), "abandoned"), i64::from(SECONDS));
    [many, few, near].into_iter().for_each(Crowd::end);
    drop(idle_stream);
    [busy_server, late_server, idle_server, mute_server, local_server]
        .into_iter()
        .for_each(|server| server.join().expect("a server"));
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn connections_that_were_there_before_the_recorder_are_told_apart() {
    let (address, server) = start(Act::Answer(1), 1);
    let row = address.to_string();
    let mut stream = TcpStream::connect(address).expect("a connection");
    ask(&mut stream);
    let Some(mut bench) = settled() else { return };
    ask(&mut stream);
    ask(&mut stream);
    bench.sample();
    assert_eq!((bench.service(&row, "requests"), bench.called(&row, "requests")), (2, 2));
    drop(stream);
    server.join().expect("the server");
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn time_before_the_program_reads_counts_and_so_does_an_answer_that_has_not_come() {
    let Some(mut bench) = settled() else { return };
    let (address, server) = start(Act::ReadLate(300), 1);
    let row = address.to_string();
    let mut stream = TcpStream::connect(address).expect("a connection");
    let took = ask(&mut stream);
    bench.sample();
    let seen = bench.service(&row, "latency_max");
    assert!(
        (seen as f64 - took.as_nanos() as f64).abs() < 0.05 * took.as_nanos() as f64,
        "{seen} of {took:?}"
    );
    // Now one that is open while it is looked at, twice.
    stream.write_all(&[1]).expect("a question");
    std::thread::sleep(Duration::from_millis(100));
    bench.sample();
    assert_eq!((bench.service(&row, "open"), bench.called(&row, "open")), (1, 1));
    let first = bench.service(&row, "wait_time");
    std::thread::sleep(Duration::from_millis(100));
    bench.sample();
    let grown = bench.service(&row, "wait_time") - first;
    assert!((80_000_000..400_000_000).contains(&grown), "{grown}");
    stream.read_exact(&mut [0]).expect("an answer");
    bench.sample();
    assert_eq!((bench.service(&row, "open"), bench.service(&row, "requests")), (0, 2));
    drop(stream);
    server.join().expect("the server");
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn what_waits_to_be_accepted_is_open() {
    let Some(mut bench) = settled() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let row = address.to_string();
    (0..SETTLE).for_each(|_| bench.sample());
    let answer = || {
        let (mut served, _) = listener.accept().expect("a connection");
        served.read_exact(&mut [0]).expect("a question");
        served.write_all(&[1]).expect("an answer is sent");
        served
    };
    let mut first = TcpStream::connect(address).expect("a connection");
    first.write_all(&[1]).expect("a question");
    let _first = answer();
    first.read_exact(&mut [0]).expect("an answer");
    bench.sample();
    assert_eq!((bench.service(&row, "open"), bench.service(&row, "requests")), (0, 1));
    let mut second = TcpStream::connect(address).expect("a connection");
    second.write_all(&[1]).expect("a question");
    let _silent = TcpStream::connect(address).expect("a connection");
    std::thread::sleep(Duration::from_millis(50));
    bench.sample();
    assert_eq!((bench.service(&row, "open"), bench.service(&row, "established")), (1, 3));
    let _second = answer();
    second.read_exact(&mut [0]).expect("an answer");
    bench.sample();
    assert_eq!((bench.service(&row, "open"), bench.service(&row, "established")), (0, 3));
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn unix_sockets_serve_too() {
    let Some(mut bench) = settled() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("app.sock");
    let listener = UnixListener::bind(&path).expect("a listener");
    let server =
        std::thread::spawn(move || serve(listener.accept().expect("a connection").0, Act::Answer(5)));
    let mut stream = UnixStream::connect(&path).expect("a connection");
    let times: Vec<_> = (0..20).map(|_| ask(&mut stream)).collect();
    bench.sample();
    let row = format!("unix:{}", path.display());
    bench.print(&row);
    assert_eq!((bench.service(&row, "requests"), bench.called(&row, "requests")), (20, 20));
    assert_eq!(bench.service(&row, "open"), 0);
    let (seen, median) = (bench.service(&row, "latency_p50") as f64, median(times));
    assert!((seen - median).abs() < 0.08 * median, "{seen} of {median}");
    drop(stream);
    server.join().expect("the server");
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn what_the_recorder_asks_itself_is_left_out() {
    let config = mitra_collect::Config { ask_databases: true, ..mitra_collect::Config::default() };
    let Some(mut bench) = Bench::open_as(config).and_then(settle) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("app.sock");
    let listener = UnixListener::bind(&path).expect("a listener");
    let server = std::thread::spawn(move || {
        for stream in listener.incoming().take(2) {
            serve(stream.expect("a connection"), Act::Answer(0));
        }
    });
    let mut stream = UnixStream::connect(&path).expect("a connection");
    for _ in 0..20 {
        ask(&mut stream);
    }
    drop(stream);
    // Another process is counted.
    let script = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.send(b'x'); s.recv(1)";
    let other = std::process::Command::new("/usr/bin/python3").args(["-c", script]).arg(&path).status();
    if !other.is_ok_and(|status| status.success()) {
        println!("skipped: python3 is not installed");
        _ = UnixStream::connect(&path);
        return server.join().expect("the server");
    }
    bench.sample();
    let row = format!("unix:{}", path.display());
    assert_eq!(bench.service(&row, "requests"), 1);
    let own = format!("{}>{row}", std::process::id());
    assert!(!bench.names(Entity::Dependency).contains(&own), "{:?}", bench.names(Entity::Dependency));
    server.join().expect("the server");
}

/// What is seen of this machine for half a minute: to be run beside load generators.
#[test]
#[ignore = "a measurement"]
fn by_hand_what_is_seen_of_this_machine() {
    let Some(mut bench) = settled() else { return };
    for _ in 0..std::env::var("SECONDS").map_or(30, |s| s.parse().expect("a number")) {
        std::thread::sleep(Duration::from_secs(1));
        bench.sample();
    }
    for row in bench.names(Entity::Service) {
        print!("{row}: ");
        bench.print(&row);
    }
    println!("{:?}", bench.names(Entity::Dependency));
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn how_long_the_thread_that_answers_ran_at_a_stretch() {
    let Some(mut bench) = settled() else { return };
    let mut longest = |act: Act, times: usize| {
        let (address, server) = start(act, 1);
        let mut stream = TcpStream::connect(address).expect("a connection");
        (0..times).for_each(|_| {
            ask(&mut stream);
        });
        bench.sample();
        let row = address.to_string();
        let seen = bench.service(&row, "oncpu_max");
        drop(stream);
        server.join().expect("the server");
        seen as f64 / 1e6
    };
    // Whatever else runs on the machine may take the CPU away, and the thread has not slept meanwhile.
    let is_over = AtomicBool::new(false);
    let others = std::thread::available_parallelism().map_or(2, |n| 2 * n.get());
    let computed = std::thread::scope(|scope| {
        for _ in 0..others {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    std::hint::spin_loop()
                }
            });
        }
        let computed = longest(Act::Compute(120), 5);
        is_over.store(true, Relaxed);
        computed
    });
    assert!((100.0..150.0).contains(&computed), "{computed} ms of 120");
    let slept = longest(Act::Answer(120), 3);
    assert!((0.0..20.0).contains(&slept), "who sleeps runs for a moment: {slept} ms");
    let often = longest(Act::Compute(2), 60);
    assert!((0.0..40.0).contains(&often), "answers in between are no stretch: {often} ms");
}
