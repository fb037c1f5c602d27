//! Processes that the tests need. Each ends by itself, and earlier when it is dropped.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use super::proc;

/// No process outlives its test by more.
const SECONDS_MAX: &str = "60";

/// A process group that is killed on drop.
pub struct Running {
    pid: libc::pid_t,
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.pid.unsigned_abs()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // SAFETY: only system calls on our own child, which was not waited for yet, so the
        // pid is still its own; it leads a process group.
        unsafe {
            libc::kill(-self.pid, libc::SIGKILL);
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

#[expect(clippy::zombie_processes, reason = "waited for by pid when the value is dropped")]
fn start(command: &mut Command) -> Running {
    let child = command.process_group(0).spawn().expect("a process");
    Running { pid: child.id().cast_signed() }
}

/// A shell script under a limit of CPU time.
pub fn busy(script: &str) -> Running {
    start(Command::new("/bin/sh").args(["-c", &format!("ulimit -t {SECONDS_MAX}; {script}")]))
}

/// A process that sleeps.
pub fn idle() -> Running {
    start(Command::new("/bin/sleep").arg(SECONDS_MAX))
}

/// A process whose threads come, allocate, and go while its first one sleeps.
pub fn many_threads() -> Running {
    // SAFETY: the child only ever runs this function; its threads allocate, which after a
    // fork is safe for the one thread that forked (glibc takes its locks across fork).
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::setpgid(0, 0);
            libc::alarm(60);
            loop {
                let thread = std::thread::spawn(|| {
                    std::thread::sleep(std::time::Duration::from_millis(70));
                    std::hint::black_box(vec![1_u8; 1 << 20]).len()
                });
                _ = thread.join();
            }
        }
        assert!(pid > 0, "fork");
        Running { pid }
    }
}

/// A process that runs for 60 ms without being interrupted, longer than the clocks' slack, and
/// sleeps for 250: on a CPU as a pass comes by, asleep at the next one.
pub fn bursts() -> Running {
    // SAFETY: the child makes system calls only.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::setpgid(0, 0);
            libc::alarm(60);
            let priority = libc::sched_param { sched_priority: 1 };
            libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority);
            loop {
                let end = thread_cpu_ns() + 60_000_000;
                while thread_cpu_ns() < end {}
                libc::usleep(250_000);
            }
        }
        assert!(pid > 0, "fork");
        Running { pid }
    }
}

/// The child's life: sleep, then end, touching nothing that the parent has.
fn sleep_and_exit(seconds: libc::c_uint) -> ! {
    // SAFETY: both calls may be made after a fork of a process with threads.
    unsafe {
        libc::sleep(seconds);
        libc::_exit(0)
    }
}

/// A process that waits in D until its vfork child ends.
pub fn vfork_parent() -> Running {
    let flags = libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the child makes system calls only. CLONE_VFORK without CLONE_VM suspends it and
    // shares no memory.
    unsafe {
        let pid = libc::fork();
        if pid == 0 {
            libc::setpgid(0, 0);
            libc::syscall(libc::SYS_clone, libc::c_long::from(flags), 0, 0, 0, 0);
            sleep_and_exit(10);
        }
        assert!(pid > 0, "fork");
        Running { pid }
    }
}

#[repr(C)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: *const libc::pid_t,
    set_tid_size: u64,
}

/// A process of that pid, which must be free (`clone3` with `set_tid`, since 5.5).
pub fn with_pid(pid: u32) -> Option<Running> {
    let wanted = [pid.cast_signed()];
    let args = CloneArgs {
        flags: 0,
        pidfd: 0,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: libc::SIGCHLD as u64,
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: wanted.as_ptr(),
        set_tid_size: 1,
    };
    // SAFETY: the arguments are valid during the call; the child makes system calls only.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneArgs>()) };
    if pid == 0 {
        sleep_and_exit(10);
    }
    (pid > 0).then(|| Running { pid: libc::pid_t::try_from(pid).expect("a pid") })
}

/// Reads blocks of 4 KiB all over the first 8 MiB, past the page cache.
pub fn read_direct(file: &fs::File, reads: u64) {
    #[repr(align(4096))]
    struct Block([u8; 4096]);
    let mut block = Block([0; 4096]);
    for i in 0..reads {
        let offset = (i * 997 % 2048) * 4096;
        let read = rustix::io::pread(file.as_fd(), &mut block.0, offset).expect("a read");
        assert_eq!(read, 4096);
    }
}

/// A memory cgroup of v1 that is removed on drop.
pub struct MemoryCgroup(String);

impl MemoryCgroup {
    pub fn with_limit(bytes: u64) -> Option<Self> {
        let path = format!("{}/mitra-truth-{}", proc::cgroup_mount(Some("memory"))?, std::process::id());
        fs::create_dir(&path).ok()?;
        let cgroup = Self(path);
        fs::write(format!("{}/memory.limit_in_bytes", cgroup.0), bytes.to_string()).ok()?;
        Some(cgroup)
    }

    pub fn path(&self) -> &str {
        &self.0
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        for _ in 0..50 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        eprintln!("left behind: {}", self.0);
    }
}

fn rusage(who: libc::c_int) -> libc::rusage {
    let mut usage = std::mem::MaybeUninit::uninit();
    // SAFETY: getrusage fills the struct when it returns 0.
    unsafe {
        assert_eq!(libc::getrusage(who, usage.as_mut_ptr()), 0);
        usage.assume_init()
    }
}

/// CPU time of all children that were waited for.
pub fn children_cpu_us() -> i64 {
    let usage = rusage(libc::RUSAGE_CHILDREN);
    let us = |time: libc::timeval| time.tv_sec * 1_000_000 + time.tv_usec;
    us(usage.ru_utime) + us(usage.ru_stime)
}

/// CPU time of this thread.
pub fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

fn own_status_kb(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("own status");
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect("the line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Resident memory of this process, as far as it is the same in the recorder: its own pages
/// and the rings, but not those of this executable and its debug information.
pub fn own_rss_kb() -> String {
    let [all, anon, file, shmem, peak] =
        ["VmRSS", "RssAnon", "RssFile", "RssShmem", "VmHWM"].map(own_status_kb);
    format!("{all} kB (anon {anon}, file {file}, shmem {shmem}; peak {peak})")
}
