//! What each kind costs: run by hand, `cargo test -p mitra-collect --release --test capture_kinds -- --ignored cost
//! --nocapture`, on a machine that has nothing else to do. The figures stand in the kinds' own descriptions.

use mitra_collect::capture::Request;

use crate::{arm, thread};

const ROUNDS: usize = 7;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// CPU time of one turn of a loop, of this process with all its threads, so that other work of the machine matters
/// little.
fn turn_ns(turns: u32, work: fn(u32)) -> f64 {
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
    let lib = std::fs::File::open("/usr/lib").unwrap();
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
    let file = std::fs::File::open("/etc/passwd").unwrap();
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

fn wakes(turns: u32) {
    let word = 0_u32;
    for _ in 0..turns {
        // SAFETY: wakes nobody at a word that lives.
        unsafe { libc::syscall(libc::SYS_futex, &raw const word, libc::FUTEX_WAKE, 1) };
    }
}

/// Name, turns, what a turn does, and the kinds that it is measured with.
type Load = (&'static str, u32, fn(u32), &'static [&'static str]);

#[test]
#[ignore = "takes a minute and wants a machine that is quiet"]
fn cost_of_each_kind() {
    let loads: [Load; 10] = [
        ("getppid", 400_000, getppid, &["lookups", "errors", "syscalls", "locks", "fork", "cache", "trace"]),
        ("first calls of getppid", 4_000, getppid, &["trace"]),
        ("failing access", 100_000, missing, &["lookups", "errors", "syscalls"]),
        ("failing access, relative", 100_000, missing_here, &["lookups"]),
        ("failing access, in a directory", 100_000, missing_below, &["lookups"]),
        ("failing close", 300_000, bad_close, &["errors", "lookups", "syscalls"]),
        ("pread of a cached page", 200_000, pread, &["cache", "syscalls"]),
        ("pipe there and back", 20_000, pipes, &["runqlat"]),
        ("fork, exit, wait", 1_000, forks, &["fork"]),
        ("futex wake", 300_000, wakes, &["locks"]),
    ];
    for (load, turns, work, kinds) in loads {
        for kind in kinds {
            let mut without = Vec::new();
            let mut with = Vec::new();
            let mut each = Vec::new();
            for _ in 0..ROUNDS {
                without.push(turn_ns(turns, work));
                let mut request = Request {
                    pid: Some(std::process::id()),
                    cost_budget: 1.0,
                    ..Request::new(kind, 60.0, "cost")
                };
                if *kind == "trace" {
                    request.options.insert("calls".to_owned(), "20000".to_owned());
                }
                let Some(mut armed) = arm(&request) else { return };
                with.push(turn_ns(turns, work));
                armed.poll();
                let raw = armed.finish();
                let ns = raw.captured.cost_kernel_ns.unwrap_or(0) as f64;
                each.push(ns / f64::from(turns));
            }
            let (without, with) = (median(without), median(with));
            println!(
                "{kind:9} {load:24} {without:9.0} ns without, {with:9.0} ns with, {:+7.0} ns; programs {:.0} ns a turn",
                with - without,
                median(each)
            );
        }
    }
}
