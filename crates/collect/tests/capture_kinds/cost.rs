//! What each kind costs: run by hand, `cargo test -p mitra-collect --release --test capture_kinds -- --ignored cost
//! --nocapture`, on a machine that has nothing else to do; KIND=faults measures one kind alone. The figures stand in the kinds' own descriptions.

use std::fs::File;
use std::hint::black_box;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command};

use mitra_collect::capture::{self, Armed, Request};

use crate::{arm, thread};

const ROUNDS: usize = 7;
const PAGE: usize = 4096;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// CPU time of one turn of a loop, of this process with all its threads, so that other work of the machine matters
/// little.
fn turn_ns(turns: u32, work: impl FnOnce(u32)) -> f64 {
    let cpu = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    };
    let began = cpu();
    work(turns);
    (cpu() - began) / f64::from(turns)
}

fn getppid(turns: u32) {
    // SAFETY: asks for a number.
    (0..turns).for_each(|_| _ = unsafe { libc::syscall(libc::SYS_getppid) });
}

fn missing(turns: u32) {
    // SAFETY: a string that ends in zero.
    (0..turns).for_each(|_| _ = unsafe { libc::access(c"/usr/lib/no-such-name".as_ptr(), libc::F_OK) });
}

fn missing_here(turns: u32) {
    // SAFETY: a string that ends in zero.
    (0..turns).for_each(|_| _ = unsafe { libc::access(c"no-such-name".as_ptr(), libc::F_OK) });
}

fn missing_below(turns: u32) {
    let lib = File::open("/usr/lib").unwrap();
    let from = std::os::fd::AsRawFd::as_raw_fd(&lib);
    // SAFETY: a string that ends in zero, and a descriptor that is open.
    (0..turns).for_each(|_| _ = unsafe { libc::faccessat(from, c"no-such-name".as_ptr(), libc::F_OK, 0) });
}

fn bad_close(turns: u32) {
    // SAFETY: closes nothing.
    (0..turns).for_each(|_| _ = unsafe { libc::close(-1) });
}

fn pread(turns: u32) {
    use std::os::unix::fs::FileExt as _;
    let file = File::open("/etc/passwd").unwrap();
    let mut buffer = [0; 512];
    (0..turns).for_each(|_| _ = file.read_at(&mut buffer, 0).unwrap());
}

fn pipes(turns: u32) {
    use std::io::{Read as _, Write as _};
    let (mut from, mut to) = std::io::pipe().unwrap();
    let (mut back_from, mut back_to) = std::io::pipe().unwrap();
    let other = thread("mitra-cost", move || {
        let mut byte = [0];
        while from.read(&mut byte).unwrap() > 0 {
            back_to.write_all(&byte).unwrap();
        }
    });
    let mut byte = [1];
    for _ in 0..turns {
        to.write_all(&byte).unwrap();
        back_from.read_exact(&mut byte).unwrap();
    }
    drop(to);
    other.join().unwrap();
}

/// A turn is a switch from one thread to another: each waits for the byte of the other on the same CPU.
fn switches(turns: u32) {
    let on_first_cpu = move || {
        let mut first = rustix::thread::CpuSet::new();
        first.set(0);
        rustix::thread::sched_setaffinity(None, &first).unwrap();
        pipes(turns / 2);
    };
    thread("mitra-cost", on_first_cpu).join().unwrap();
}

/// Maps memory, or a file that nobody changes by writing here, writes to each page, and unmaps it.
fn touch(pages: usize, file: Option<&File>) {
    let bytes = pages * PAGE;
    let flags = rustix::mm::MapFlags::PRIVATE;
    let prot = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
    // SAFETY: a new mapping that nobody else knows, used within its length and unmapped then.
    unsafe {
        let at = match file {
            Some(file) => rustix::mm::mmap(std::ptr::null_mut(), bytes, prot, flags, file, 0).unwrap(),
            None => rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, prot, flags).unwrap(),
        };
        // Huge pages would take one fault for 512.
        _ = rustix::mm::madvise(at, bytes, rustix::mm::Advice::LinuxNoHugepage);
        for page in 0..pages {
            at.cast::<u8>().add(page * PAGE).write_volatile(1);
        }
        rustix::mm::munmap(at, bytes).unwrap();
    }
}

fn fresh_memory(turns: u32) {
    touch(turns as usize, None);
}

/// Of the own program, which is in the page cache.
fn fresh_copies(turns: u32) {
    let program = File::open("/proc/self/exe").unwrap();
    let pages = program.metadata().unwrap().len() as usize / PAGE;
    let mut left = turns as usize;
    while left > 0 {
        let now = left.min(pages);
        touch(now, Some(&program));
        left -= now;
    }
}

/// A turn is some milliseconds of work on each CPU.
fn spins(turns: u32) {
    let spin = move || (0..turns).for_each(|_| (0..1_000_000).for_each(|i| _ = black_box(i)));
    let cpus = std::thread::available_parallelism().unwrap().get();
    let spinners: Vec<_> = (0..cpus).map(|_| thread("mitra-cost", spin)).collect();
    spinners.into_iter().for_each(|spinner| spinner.join().unwrap());
}

fn forks(turns: u32) {
    for _ in 0..turns {
        // SAFETY: the child ends at once and does nothing else.
        unsafe {
            match libc::fork() {
                0 => libc::_exit(0),
                pid => libc::waitpid(pid, std::ptr::null_mut(), 0),
            };
        }
    }
}

/// A turn is a NET_RX softirq: a datagram that a socket sends to itself.
fn datagrams(turns: u32) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(socket.local_addr().unwrap()).unwrap();
    let mut buffer = [0; 64];
    for _ in 0..turns {
        socket.send(&buffer).unwrap();
        socket.recv(&mut buffer).unwrap();
    }
}

fn wakes(turns: u32) {
    let word = 0_u32;
    for _ in 0..turns {
        // SAFETY: wakes nobody at a word that lives.
        unsafe { libc::syscall(libc::SYS_futex, &raw const word, libc::FUTEX_WAKE, 1) };
    }
}

/// Of a kind that watches another process, which sleeps: what all others pay.
const ELSEWHERE: &str = " elsewhere";

/// A process that sleeps until it is dropped.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("3600").spawn().unwrap())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn request(kind: &str, sleeper: &Sleeper) -> Request {
    let (kind, pid) = match kind.strip_suffix(ELSEWHERE) {
        Some(kind) => (kind, sleeper.0.id()),
        None => (kind, std::process::id()),
    };
    let is_of_pid = capture::kind(kind).is_some_and(|kind| kind.filters.contains(&"pid"));
    let pid = is_of_pid.then_some(pid);
    let mut request = Request { pid, cost_budget: 1.0, ..Request::new(kind, 60.0, "cost") };
    if kind == "trace" {
        request.options.insert("calls".to_owned(), "20000".to_owned());
    }
    request
}

/// Name, turns, what a turn does, and the kinds that it is measured with.
type Load = (&'static str, u32, fn(u32), &'static [&'static str]);

const LOADS: [Load; 15] = [
    (
        "getppid",
        400_000,
        getppid,
        &["lookups", "errors", "syscalls", "locks", "fork", "cache", "trace", "trace elsewhere"],
    ),
    ("first calls of getppid", 4_000, getppid, &["trace"]),
    ("failing access", 100_000, missing, &["lookups", "errors", "syscalls"]),
    ("failing access, relative", 100_000, missing_here, &["lookups"]),
    ("failing access, in a directory", 100_000, missing_below, &["lookups"]),
    ("failing close", 300_000, bad_close, &["errors", "lookups", "syscalls"]),
    ("pread of a cached page", 200_000, pread, &["cache", "syscalls"]),
    ("pipe there and back", 20_000, pipes, &["runqlat", "offcpu"]),
    ("switch on one CPU", 40_000, switches, &["offcpu", "offcpu elsewhere", "runqlat"]),
    (
        "first touch of memory",
        20_000,
        fresh_memory,
        &["faults", "faults elsewhere", "growth", "growth elsewhere"],
    ),
    ("first touch of a file's page", 20_000, fresh_copies, &["faults", "growth elsewhere"]),
    ("work on all CPUs", 200, spins, &["oncpu"]),
    ("fork, exit, wait", 1_000, forks, &["fork"]),
    ("futex wake", 300_000, wakes, &["locks"]),
    ("datagram to itself", 100_000, datagrams, &["interrupts"]),
];

#[test]
#[ignore = "takes some minutes and wants a machine that is quiet"]
fn by_hand_cost_of_each_kind() {
    let sleeper = Sleeper::start();
    let only = std::env::var("KIND").ok();
    let is_wanted = |kind: &str| only.as_ref().is_none_or(|only| kind.trim_end_matches(ELSEWHERE) == only);
    for (load, turns, work, kinds) in LOADS {
        for kind in kinds.iter().filter(|kind| is_wanted(kind)) {
            let (mut without, mut with) = (Vec::new(), Vec::new());
            let (mut each, mut event) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                without.push(turn_ns(turns, work));
                let Some(mut armed) = arm(&request(kind, &sleeper)) else { return };
                with.push(turn_ns(turns, work));
                armed.poll();
                let captured = armed.finish().captured;
                let ns = captured.cost_kernel_ns.unwrap_or(0) as f64;
                each.push(ns / f64::from(turns));
                event.push(ns / captured.events as f64);
            }
            let (without, with) = (median(without), median(with));
            println!(
                "{kind:16} {load:30} {without:9.0} ns without, {with:9.0} ns with, {:+7.0} ns; programs {:.0} ns a turn, \
                 {:.0} ns an event",
                with - without,
                median(each),
                median(event)
            );
        }
    }
    if is_wanted("sockets") {
        cost_of_sockets(&sleeper);
    }
}

/// What each socket and its descriptor add to a capture from beginning to end. No program runs meanwhile.
fn cost_of_sockets(sleeper: &Sleeper) {
    const PAIRS: usize = 500;
    let resource = rustix::process::Resource::Nofile;
    let limit = rustix::process::getrlimit(resource);
    let most = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    rustix::process::setrlimit(resource, most).unwrap();
    let capture = |_| _ = arm(&request("sockets", sleeper)).map(Armed::finish);
    let round = |_| turn_ns(1, capture) / 1e6;
    let without = median((0..ROUNDS).map(round).collect());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let pair = |_| (TcpStream::connect(at).unwrap(), listener.accept().unwrap());
    let pairs: Vec<_> = (0..PAIRS).map(pair).collect();
    let with = median((0..ROUNDS).map(round).collect());
    println!(
        "sockets: {without:.2} ms without, {with:.2} ms with {} sockets and descriptors, {:+.2} ms",
        2 * pairs.len(),
        with - without
    );
}
