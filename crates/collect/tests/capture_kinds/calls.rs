//! `lookups`, `errors`, `syscalls`, `trace` and `fork`.

use std::ffi::CString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use mitra_collect::capture::Request;

use crate::armed::judge::{Judge, agree};
use crate::{arm, number, one_row, own, rows, table, text, watch};

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_encoded_bytes()).unwrap()
}

fn access(path: &CString) -> i32 {
    // SAFETY: a string that ends in zero.
    unsafe { libc::access(path.as_ptr(), libc::F_OK) }
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn every_name_that_is_not_there_is_counted_under_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    let (probed, other) = (dir.path().join("probed"), dir.path().join("other/deeper"));
    std::fs::create_dir_all(&probed).unwrap();
    std::fs::create_dir_all(&other).unwrap();
    std::fs::write(probed.join("is-there"), "").unwrap();
    let (a, b) = (probed.clone(), other.clone());
    let raw = watch(&own("lookups", "mitra-looks"), move || {
        for i in 0..3000 {
            assert_eq!(access(&c_path(&a.join(format!("missing-{i}")))), -1);
            // What is there is no failed lookup.
            assert_eq!(access(&c_path(&a.join("is-there"))), 0);
        }
        let handle = std::fs::File::open(b.parent().unwrap()).unwrap();
        for _ in 0..500 {
            // SAFETY: strings that end in zero, and a descriptor that is open.
            let fd =
                unsafe { libc::openat(handle.as_raw_fd(), c"deeper/no-such-file".as_ptr(), libc::O_RDONLY) };
            assert_eq!(fd, -1);
        }
    });
    let Some(raw) = raw else { return };
    let lookups = table(&raw, "lookups");
    let row = one_row(lookups, &[("directory", probed.to_str().unwrap())]);
    assert_eq!(number(lookups, row, "count"), 3000.0);
    assert!(text(lookups, row, "examples").starts_with("missing-0, "), "{row:?}");
    assert!(text(lookups, row, "call").contains("access"), "{row:?}");
    let row = one_row(lookups, &[("directory", other.to_str().unwrap())]);
    assert_eq!(number(lookups, row, "count"), 500.0);
    assert_eq!(text(lookups, row, "examples"), "no-such-file");
    assert_eq!(raw.captured.tops[0].what, probed.to_str().unwrap());
}

/// Looks a name up from the working directory, or from one that is open.
fn misses(dir: Option<&std::fs::File>, times: usize) {
    let from = dir.map_or(libc::AT_FDCWD, |dir| dir.as_raw_fd());
    for _ in 0..times {
        // SAFETY: a string that ends in zero, and a descriptor that is open.
        assert_eq!(unsafe { libc::faccessat(from, c"no-such-name".as_ptr(), libc::F_OK, 0) }, -1);
    }
}

/// A working directory changes, and the number of a descriptor is soon that of another one: neither says where a relative
/// path starts.
#[test]
#[ignore = "needs root: make test-kernel"]
fn a_relative_name_is_counted_under_the_directory_that_it_started_from() {
    let dir = tempfile::tempdir().unwrap();
    let make = |name: &str| {
        let place = dir.path().join(name);
        std::fs::create_dir(&place).unwrap();
        place
    };
    let places = ["first", "second", "third", "fourth"].map(make);
    let walked = places.clone();
    let raw = watch(&own("lookups", "mitra-walks"), move || {
        let [first, second, third, fourth] = walked;
        // SAFETY: from now on the working directory is that of this thread alone.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_FS) }, 0);
        for (place, times) in [(first, 30), (second, 20), (third.clone(), 7)] {
            // SAFETY: a string that ends in zero.
            assert_eq!(unsafe { libc::chdir(c_path(&place).as_ptr()) }, 0);
            misses(None, times);
        }
        let (third, fourth) = (std::fs::File::open(third).unwrap(), std::fs::File::open(fourth).unwrap());
        misses(Some(&third), 40);
        // SAFETY: both are open, and stay so: the first number means the second directory.
        assert_eq!(unsafe { libc::dup2(fourth.as_raw_fd(), third.as_raw_fd()) }, third.as_raw_fd());
        misses(Some(&third), 10);
    });
    let Some(raw) = raw else { return };
    let lookups = table(&raw, "lookups");
    for (place, count) in places.iter().zip([30.0, 20.0, 47.0, 10.0]) {
        let row = one_row(lookups, &[("directory", place.to_str().unwrap())]);
        assert_eq!(number(lookups, row, "count"), count, "{row:?}");
        assert_eq!(text(lookups, row, "examples"), "no-such-name");
    }
}

/// The entry of a directory that is deleted is soon that of the next one, which is another directory all the same.
#[test]
#[ignore = "needs root: make test-kernel"]
fn directories_that_come_and_go_are_not_taken_for_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let place = |i: usize| dir.path().join(format!("comes-and-goes-{i}"));
    let places: Vec<_> = (0..20).map(place).collect();
    let walked = places.clone();
    let raw = watch(&own("lookups", "mitra-temps"), move || {
        for place in walked {
            std::fs::create_dir(&place).unwrap();
            misses(Some(&std::fs::File::open(&place).unwrap()), 3);
            std::fs::remove_dir(&place).unwrap();
        }
    });
    let Some(raw) = raw else { return };
    let lookups = table(&raw, "lookups");
    for place in &places {
        let row = one_row(lookups, &[("directory", place.to_str().unwrap())]);
        assert_eq!(number(lookups, row, "count"), 3.0, "{row:?}");
    }
}

/// The table has 4,096 entries; what comes beyond is counted as lost, and nothing else is.
#[test]
#[ignore = "needs root: make test-kernel"]
fn directories_beyond_the_bound_are_counted_as_lost() {
    let raw = crate::watch_with_losses(&own("lookups", "mitra-many"), || {
        for i in 0..5000 {
            access(&CString::new(format!("/proc/no-directory-{i}/name")).unwrap());
        }
    });
    let Some(raw) = raw else { return };
    let lookups = table(&raw, "lookups");
    assert_eq!(raw.captured.events, 5000);
    assert_eq!(raw.captured.lost, 5000 - 4096);
    assert_eq!(lookups.rows.len() as u64 + lookups.left_out, 4096);
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn failed_lookups_agree_with_bpftrace() {
    let script =
        "tracepoint:raw_syscalls:sys_exit /comm == \"mitra-looks2\" && args->ret == -2/ { @n = count(); }";
    let Some(judge) = Judge::start(script) else { return };
    let raw = watch(&own("lookups", "mitra-looks2"), || {
        for i in 0..20_000 {
            access(&CString::new(format!("/proc/self/no-{i}")).unwrap());
        }
    });
    let [theirs] = judge.values(["n"]);
    let ours: f64 = raw.unwrap().captured.tops.iter().map(|row| row.count).sum();
    agree("lookups", ours, theirs);
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn errors_are_counted_by_call_and_error() {
    let raw = watch(&own("errors", "mitra-errs"), || {
        let (read, _write) = std::io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&read, true).unwrap();
        for _ in 0..777 {
            // SAFETY: closes nothing.
            assert_eq!(unsafe { libc::close(-1) }, -1);
        }
        for _ in 0..500 {
            assert_eq!(rustix::io::read(&read, &mut [0; 8]), Err(rustix::io::Errno::AGAIN));
        }
    });
    let Some(raw) = raw else { return };
    let errors = table(&raw, "errors");
    for (call, error, count) in [("close", "EBADF", 777.0), ("read", "EAGAIN", 500.0)] {
        let row = one_row(errors, &[("call", call), ("error", error)]);
        assert_eq!(number(errors, row, "count"), count);
    }
    assert_eq!(raw.captured.tops[0].what, "close EBADF");
}

extern "C" fn on_signal(_: libc::c_int) {}

/// Interrupts a call that waits, a few times: it fails, and after the handler a register of the program is where the
/// result of the return from it would be.
fn is_interrupted(times: usize) {
    // SAFETY: a handler that does nothing, for a signal that nothing else here uses.
    let own = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut());
        libc::pthread_self()
    };
    for _ in 0..times {
        let interrupts = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            // SAFETY: the thread waits for this one below, so it lives.
            unsafe { libc::pthread_kill(own, libc::SIGUSR2) };
        });
        // SAFETY: waits for no descriptor.
        assert_eq!(unsafe { libc::poll(std::ptr::null_mut(), 0, 10_000) }, -1);
        interrupts.join().unwrap();
    }
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn the_return_from_a_signal_is_no_call_that_fails() {
    let Some(raw) = watch(&own("errors", "mitra-signals"), || is_interrupted(5)) else { return };
    let errors = table(&raw, "errors");
    let of_poll: Vec<_> =
        errors.rows.iter().filter(|row| text(errors, row, "call").contains("poll")).collect();
    assert_eq!(
        of_poll.iter().map(|row| number(errors, row, "count")).sum::<f64>(),
        5.0,
        "{:#?}",
        errors.rows
    );
    let nameless = |row: &&Vec<_>| {
        let call = text(errors, row, "call");
        call.starts_with("call ") || call.contains("known number")
    };
    assert_eq!(errors.rows.iter().find(nameless), None);
    let raw = watch(&own("syscalls", "mitra-signals"), || is_interrupted(5)).unwrap();
    let calls = table(&raw, "syscalls");
    let row = one_row(calls, &[("call", "rt_sigreturn")]);
    assert_eq!((number(calls, row, "count"), number(calls, row, "errors")), (5.0, 0.0));
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_number_that_no_call_has_is_counted_with_others_like_it() {
    let raw = watch(&own("errors", "mitra-odd"), || {
        for number in [600, 5000, 70_000] {
            // SAFETY: there is no such call.
            assert_eq!(unsafe { libc::syscall(number) }, -1);
        }
    });
    let Some(raw) = raw else { return };
    let errors = table(&raw, "errors");
    let row = one_row(errors, &[("call", "calls of no known number"), ("error", "ENOSYS")]);
    assert_eq!(number(errors, row, "count"), 3.0);
    // The programs ran for calls that succeed as well.
    assert!(raw.captured.runs.is_some_and(|runs| runs > raw.captured.events), "{:?}", raw.captured.runs);
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn calls_are_counted_and_timed() {
    let raw = watch(&own("syscalls", "mitra-calls"), || {
        for _ in 0..2000 {
            // SAFETY: asks for a number.
            unsafe { libc::syscall(libc::SYS_getppid) };
        }
        for _ in 0..50 {
            std::thread::sleep(Duration::from_millis(2));
        }
        for _ in 0..10 {
            // SAFETY: closes nothing.
            unsafe { libc::close(-1) };
        }
    });
    let Some(raw) = raw else { return };
    let calls = table(&raw, "syscalls");
    let row = one_row(calls, &[("call", "getppid")]);
    assert_eq!(number(calls, row, "count"), 2000.0);
    // A call that does nothing takes less than 20 µs, whatever watches it.
    assert!(number(calls, row, "median") < 20e-6, "{row:?}");
    let row = one_row(calls, &[("call", "clock_nanosleep")]);
    assert_eq!(number(calls, row, "count"), 50.0);
    let (mean, time) = (number(calls, row, "mean"), number(calls, row, "time"));
    assert!(mean >= 2e-3 && (0.1..2.0).contains(&time), "{row:?}");
    assert!(number(calls, row, "median") >= 2e-3, "{row:?}");
    let row = one_row(calls, &[("call", "close")]);
    assert!(number(calls, row, "errors") >= 10.0, "{row:?}");
    assert_ne!(raw.captured.tops[0].what, "clock_nanosleep", "to wait by nature is no trouble");
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_trace_has_the_calls_in_their_order() {
    let raw = watch(&own("trace", "mitra-traced"), || {
        _ = std::fs::metadata("/no/such/place \"quoted\"");
        let file = std::fs::File::open("/etc/passwd").unwrap();
        drop(file);
        std::thread::sleep(Duration::from_millis(20));
    });
    let Some(raw) = raw else { return };
    let calls = table(&raw, "calls");
    let all: Vec<(&str, &str, f64)> = calls
        .rows
        .iter()
        .filter(|row| text(calls, row, "result") != "does not return")
        .map(|row| (text(calls, row, "call"), text(calls, row, "result"), number(calls, row, "duration")))
        .collect();
    let at = |part: &str| all.iter().position(|(call, ..)| call.contains(part)).expect(part);
    let (stat, open, sleep) = (at("/no/such/place"), at("\"/etc/passwd\""), at("clock_nanosleep("));
    assert!(stat < open && open < sleep, "{all:?}");
    assert_eq!(all[stat].1, "-1 ENOENT");
    assert!(all[open].0.starts_with("openat(AT_FDCWD, ") && all[open].1.parse::<i32>().is_ok(), "{all:?}");
    let closed = all[open + 1..].iter().find(|(call, ..)| call.starts_with("close(")).unwrap();
    assert_eq!(closed.0, format!("close({})", all[open].1));
    assert!(all[sleep].2 >= 0.02, "{all:?}");
}

/// A program that takes the place of another is read before the memory of the first one goes, and the last call is there.
#[test]
#[ignore = "needs root: make test-kernel"]
fn a_trace_has_the_program_that_is_executed_and_the_end() {
    let script = "read x; exec /bin/true";
    let mut shell = Command::new("/bin/sh").args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap();
    let request = Request { pid: Some(shell.id()), cost_budget: 1.0, ..Request::new("trace", 20.0, "test") };
    let Some(armed) = arm(&request) else {
        shell.kill().unwrap();
        shell.wait().unwrap();
        return;
    };
    shell.stdin.take().unwrap().write_all(b"go\n").unwrap();
    shell.wait().unwrap();
    let raw = armed.finish();
    let calls = table(&raw, "calls");
    let all: Vec<(&str, &str)> =
        calls.rows.iter().map(|row| (text(calls, row, "call"), text(calls, row, "result"))).collect();
    let executed = all.iter().find(|(call, _)| call.starts_with("execve("));
    assert!(
        executed.is_some_and(|(call, result)| call.contains("\"/bin/true\"") && *result == "0"),
        "{all:?}"
    );
    assert_eq!(all.last(), Some(&("exit_group(0)", "does not return")), "{all:?}");
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_trace_ends_after_as_many_calls_as_were_asked_for_and_needs_a_process() {
    let mut request = own("trace", "mitra-traced2");
    request.options.insert("calls".to_owned(), "100".to_owned());
    let Some(mut armed) = arm(&request) else { return };
    // SAFETY: asks for a number.
    let calls = || (0..5000).for_each(|_| _ = unsafe { libc::syscall(libc::SYS_getppid) });
    crate::thread("mitra-traced2", calls).join().unwrap();
    // There is nothing left to wait for.
    assert_eq!(armed.poll(), Some(&mitra_model::capture::Ended::Events));
    let raw = armed.finish();
    assert_eq!(raw.captured.lost, 0);
    assert_eq!(table(&raw, "calls").rows.len(), 100);
    request.min = Duration::from_millis(5);
    let raw = watch(&request, || {
        // SAFETY: asks for a number.
        (0..500).for_each(|_| _ = unsafe { libc::syscall(libc::SYS_getppid) });
        std::thread::sleep(Duration::from_millis(6));
    });
    let raw = raw.unwrap();
    let calls = table(&raw, "calls");
    let returned = |row: &&Vec<_>| text(calls, row, "result") != "does not return";
    let rows: Vec<_> = calls.rows.iter().filter(returned).collect();
    let long = |row: &&Vec<_>| number(calls, row, "duration") >= 5e-3;
    assert!(!rows.is_empty() && rows.len() < 50 && rows.iter().all(long), "{rows:?}");
    let nobody = Request::new("trace", 1.0, "test");
    assert!(mitra_collect::capture::Capture::arm(&nobody).err().unwrap().to_string().contains("--pid"));
    request.options.insert("calls".to_owned(), "0".to_owned());
    assert!(mitra_collect::capture::Capture::arm(&request).is_err());
}

/// Waits for a process. Returns its CPU time, in seconds, with that of those that it waited for.
fn cpu_with_children(child: std::process::Child) -> f64 {
    let pid = libc::pid_t::try_from(child.id()).unwrap();
    // SAFETY: a struct of integers.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: waits for a child of ours, which nobody else does, and fills in the struct.
    assert_eq!(unsafe { libc::wait4(pid, std::ptr::null_mut(), 0, &raw mut used) }, pid);
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(used.ru_utime) + seconds(used.ru_stime)
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn who_starts_what_and_how_long_it_lives() {
    let script = "read x; i=0; while [ $i -lt 100 ]; do /bin/true; i=$((i+1)); done; \
                  i=0; while [ $i -lt 7 ]; do /bin/false; i=$((i+1)); done; /bin/sleep 0.3; read x";
    let mut shell = Command::new("/bin/sh").args(["-c", script]).stdin(Stdio::piped()).spawn().unwrap();
    let request = Request { pid: Some(shell.id()), cost_budget: 1.0, ..Request::new("fork", 20.0, "test") };
    let Some(armed) = arm(&request) else {
        shell.kill().unwrap();
        shell.wait().unwrap();
        return;
    };
    let mut stdin = shell.stdin.take().unwrap();
    stdin.write_all(b"go\n").unwrap();
    // The shell reads again once it is through: it is in the call then, and has no child.
    let children = format!("/proc/{0}/task/{0}/children", shell.id());
    std::thread::sleep(Duration::from_millis(600));
    crate::wait_until("the end of the loop", || {
        let asleep = std::fs::read_to_string(format!("/proc/{}/stat", shell.id())).unwrap().contains(") S ");
        asleep && std::fs::read_to_string(&children).unwrap_or_default().trim().is_empty()
    });
    let raw = armed.finish();
    let own = std::fs::read_to_string(format!("/proc/{}/schedstat", shell.id())).unwrap();
    let own: f64 = own.split(' ').next().unwrap().parse().unwrap();
    drop(stdin);
    let spent = cpu_with_children(shell) - own / 1e9;
    let programs = table(&raw, "programs");
    // The kernel charges them a little more after it told that they ended; none of them lives for a tick.
    let cpu: f64 = programs.rows.iter().map(|row| number(programs, row, "CPU")).sum();
    println!("CPU of what the shell started: {cpu} s seen, {spent} s charged");
    assert!(cpu > spent * 0.7 && cpu < spent * 1.1, "{cpu} {spent}: {:#?}", programs.rows);
    for (file, started, failed) in [("/bin/true", 100.0, 0.0), ("/bin/false", 7.0, 7.0)] {
        let row = one_row(programs, &[("file", file)]);
        assert_eq!(text(programs, row, "parent"), "sh");
        assert_eq!(number(programs, row, "started"), started);
        assert_eq!(number(programs, row, "ended"), started);
        assert_eq!(number(programs, row, "failed"), failed);
        let life = number(programs, row, "mean life");
        assert!(life > 0.0 && life < 0.5, "{row:?}");
        assert!(number(programs, row, "CPU") > 0.0, "{row:?}");
    }
    let row = one_row(programs, &[("file", "/bin/sleep")]);
    assert!(number(programs, row, "mean life") >= 0.3, "{row:?}");
    let calls = table(&raw, "calls");
    let made: f64 = calls.rows.iter().map(|row| number(calls, row, "count")).sum();
    assert_eq!(made, 108.0, "{:#?}", calls.rows);
    assert!(calls.rows.iter().all(|row| number(calls, row, "page tables") >= 4096.0));
}

/// Has so much memory and forks ten times, when it is told to.
const FORKS: &str = "import os, sys\n\
memory = b'x' * int(sys.argv[1])\n\
print('ready', flush=True)\n\
input()\n\
for _ in range(10): os.waitpid(os.fork() or os._exit(0), 0)\n\
print('done', flush=True)\n\
sys.stdin.read()\n";

/// A fork copies page tables: what has more of them takes longer, and the table says both. In a process of its own: what
/// other tests of this one hold is not its size.
#[test]
#[ignore = "needs root: make test-kernel"]
fn a_fork_of_much_memory_takes_longer() {
    let run = |bytes: usize| {
        let mut forker = Command::new("python3")
            .args(["-c", FORKS, &bytes.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(forker.stdout.take().unwrap()).lines();
        let mut stdin = forker.stdin.take().unwrap();
        assert_eq!(said.next().unwrap().unwrap(), "ready");
        let request =
            Request { pid: Some(forker.id()), cost_budget: 1.0, ..Request::new("fork", 20.0, "test") };
        let armed = arm(&request);
        stdin.write_all(b"go\n").unwrap();
        assert_eq!(said.next().unwrap().unwrap(), "done");
        let raw = armed.map(|armed| armed.finish());
        drop(stdin);
        forker.wait().unwrap();
        let raw = raw?;
        let calls = table(&raw, "calls");
        let row = rows(calls, &[("what", "fork")])[0];
        assert_eq!(number(calls, row, "count"), 10.0);
        Some((number(calls, row, "mean"), number(calls, row, "page tables"), number(calls, row, "resident")))
    };
    let Some(small) = run(16 << 12) else { return };
    let large = run(128 << 20).unwrap();
    println!("fork: {small:?} and {large:?} (mean s, page tables B, resident B)");
    assert!(large.2 - small.2 > 100e6 && large.0 > small.0, "{small:?} {large:?}");
}
