//! What one sample costs: CPU time by `getrusage`, with so many idle processes or threads beside.
//!
//! `cargo bench -p mitra-collect --bench sample [-- [proc] TASKS…]`; `proc` reads tasks from `/proc`. The load is made of processes that sleep, up to
//! 2,000 of them, and of threads beyond; it ends with the bench.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use mitra_collect::{Clock, Config, Sampler, Ticker};
use mitra_model::{Entity, Frame};

const WARM_UP: u32 = 12;
const SAMPLES: u32 = 40;
const INTERVAL: Duration = Duration::from_millis(250);
/// What is beyond is made of threads: a process costs the machine far more memory.
const PROCESSES_MAX: usize = 2_000;
const THREADS_PER_PROCESS: usize = 500;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    match args.first().map(String::as_str) {
        Some("idle") => idle(args.get(1).and_then(|n| n.parse().ok()).unwrap_or(1)),
        Some("proc") => args.iter().filter_map(|n| n.parse().ok()).for_each(|n| bench(n, false)),
        Some(_) => args.iter().filter_map(|n| n.parse().ok()).for_each(|n| bench(n, true)),
        None => [0, 1_000, 10_000].into_iter().for_each(|n| bench(n, true)),
    }
}

/// A process with so many threads that sleeps until its standard input ends.
fn idle(threads: usize) {
    for _ in 1..threads {
        let thread = std::thread::Builder::new().stack_size(16 * 1024);
        thread.spawn(|| std::thread::sleep(Duration::from_secs(600))).expect("a thread");
    }
    println!("ready");
    let mut end = [0];
    let _end_of_input = std::io::stdin().read(&mut end);
}

struct Load(Vec<Child>);

impl Load {
    fn start(tasks: usize) -> Self {
        let processes = tasks.min(PROCESSES_MAX);
        let crowded = (tasks - processes).div_ceil(THREADS_PER_PROCESS);
        let counts = (0..crowded).map(|_| THREADS_PER_PROCESS).chain((crowded..processes).map(|_| 1));
        let own = std::env::current_exe().expect("the path of this program");
        let mut load = Load(Vec::new());
        for threads in counts {
            let mut child = Command::new(&own);
            child.args(["idle", &threads.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
            load.0.push(child.spawn().expect("an idle process"));
        }
        for child in &mut load.0 {
            let mut ready = [0; 6];
            child.stdout.take().expect("a pipe").read_exact(&mut ready).expect("the process is ready");
        }
        load
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|child| drop(child.stdin.take()));
        self.0.iter_mut().for_each(|child| drop(child.wait()));
    }
}

fn bench(tasks: usize, use_bpf: bool) {
    let load = Load::start(tasks);
    let opened = Instant::now();
    let mut sampler = Sampler::open(Config { interval: INTERVAL, use_bpf, ..Config::default() })
        .expect("a sampler of this machine");
    let open_ms = opened.elapsed().as_millis();
    let mut frame = Frame::new();
    let mut ticker = Ticker::new(INTERVAL, Clock::Real);
    let stop = AtomicBool::new(false);
    let mut costs = Vec::new();
    for i in 0..WARM_UP + SAMPLES {
        sampler.note_tick(ticker.wait(&stop));
        let (user, system) = cpu_us();
        sampler.sample(&mut frame).expect("a sample");
        let now = cpu_us();
        if i >= WARM_UP {
            costs.push((now.0 - user, now.1 - system));
        }
    }
    let mean = |f: fn(&(i64, i64)) -> i64| costs.iter().map(f).sum::<i64>() / costs.len() as i64;
    let mut sums: Vec<i64> = costs.iter().map(|(user, system)| user + system).collect();
    sums.sort_unstable();
    println!(
        "{tasks:>6} idle tasks beside: {:>6} rows, {:>5} us a sample (median {}, user {}, system {}), opened in {open_ms} ms, resident {} KiB",
        frame.table(Entity::Task).len(),
        mean(|(user, system)| user + system),
        sums[sums.len() / 2],
        mean(|(user, _)| *user),
        mean(|(_, system)| *system),
        resident_kib(),
    );
    for (source, why) in sampler.unavailable() {
        println!("       without {source}: {why}");
    }
    drop(load);
}

fn cpu_us() -> (i64, i64) {
    // SAFETY: getrusage fills the struct, of which all zeroes is a valid value.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let us = |t: libc::timeval| t.tv_sec * 1_000_000 + t.tv_usec;
    (us(usage.ru_utime), us(usage.ru_stime))
}

fn resident_kib() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    pages * page_kib()
}

fn page_kib() -> usize {
    // SAFETY: sysconf has no conditions.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096) / 1024
}
