//! What a system call waits for, by `/proc/PID/task/TID/syscall` (2.6.27).
//!
//! ```text
//! 0 0x3 0x7ffd29e41c10 0x1000 0x0 0x0 0x0 0x7ffd29e41b28 0x7f9dea15f2ad
//! ```
//!
//! The number of the call, six arguments, stack pointer and program counter (`fs/proc/base.c`, `proc_pid_syscall`). `running`
//! stands for a thread that runs or wants to, and `-1` for one that sleeps outside of a call. A call that was interrupted, by a stop or a
//! freezer, and goes on is `restart_syscall`, whatever it was.

use libc::c_long;

/// `include/uapi/linux/futex.h`
const FUTEX_CMD_MASK: u64 = 127;
const FUTEX_WAIT: u64 = 0;
const FUTEX_LOCK_PI: u64 = 6;
const FUTEX_WAIT_BITSET: u64 = 9;
const FUTEX_LOCK_PI2: u64 = 13;
/// What glibc waits on: the lock is taken, and somebody waits.
pub const CONTENDED: u64 = 2;
/// `idtype_t` of waitid(2).
const P_PID: u64 = 1;
const P_PIDFD: u64 = 3;
/// `F_SETLKW` and `F_OFD_SETLKW` of fcntl(2).
const SET_LOCK_AND_WAIT: [u64; 2] = [7, 38];
/// A stack below 4 GiB is that of a 32-bit program, whose calls have other numbers.
const STACK_MIN: u64 = 1 << 32;

/// What a thread waits for, as far as its call says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// It runs or wants to.
    Running,
    /// A futex that may be a mutex: its word, and whether it is one with priority inheritance.
    Mutex { word: u64, is_pi: bool },
    /// Any other futex: a condition variable, a semaphore, a thread that ends.
    Futex,
    /// To read from a descriptor.
    Read(i32),
    /// To write to a descriptor.
    Write(i32),
    /// To be connected.
    Connect(i32),
    /// For a connection or, in general, for whatever comes.
    Accept,
    /// For one of the descriptors of an array in memory.
    Poll { array: u64, count: u64 },
    /// For one of the descriptors of three sets in memory: to read, to write, and others.
    Select { count: u64, sets: [u64; 3] },
    /// For one of the descriptors of an epoll instance.
    Epoll(i32),
    /// For a child by its id, or for any.
    Child(Option<u32>),
    /// For a child by a descriptor of it.
    ChildOf(i32),
    /// For a lock of a file: flock, or else fcntl.
    FileLock { fd: i32, is_flock: bool },
    /// That a file is opened or cut off: a lease of it may have to be given back first.
    Open,
    /// For the time to pass.
    Timer,
    /// What it waited for before it was stopped or frozen: the time, a futex or a descriptor. Its arguments are not told any more.
    Again,
    /// Something else.
    Other,
}

impl Call {
    /// `None` for what is no such line.
    pub fn of(line: &str) -> Option<Call> {
        let mut words = line.split_ascii_whitespace();
        let first = words.next()?;
        if first == "running" {
            return Some(Call::Running);
        }
        let number: c_long = first.parse().ok()?;
        if number < 0 {
            return Some(Call::Other);
        }
        let mut all = [0; 8];
        for value in &mut all {
            *value = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
        }
        let [a, b, c, d, e, _, stack, _] = all;
        Some(if stack < STACK_MIN { Call::Other } else { Call::from_arguments(number, [a, b, c, d, e]) })
    }

    /// The descriptor of a file that is read or written.
    pub fn file(self) -> Option<i32> {
        match self {
            Call::Read(fd) | Call::Write(fd) => Some(fd),
            _ => None,
        }
    }

    fn from_arguments(number: c_long, [a, b, c, d, e]: [u64; 5]) -> Call {
        // A descriptor is an `int`: the upper half of the register may hold anything.
        let fd = a as u32 as i32;
        match number {
            libc::SYS_futex => futex(a, b, c),
            libc::SYS_read
            | libc::SYS_readv
            | libc::SYS_preadv
            | libc::SYS_preadv2
            | libc::SYS_recvfrom
            | libc::SYS_recvmsg
            | libc::SYS_recvmmsg
            | libc::SYS_mq_timedreceive => Call::Read(fd),
            libc::SYS_write
            | libc::SYS_writev
            | libc::SYS_pwritev
            | libc::SYS_pwritev2
            | libc::SYS_sendto
            | libc::SYS_sendmsg
            | libc::SYS_sendmmsg
            | libc::SYS_sendfile
            | libc::SYS_mq_timedsend => Call::Write(fd),
            libc::SYS_connect => Call::Connect(fd),
            libc::SYS_accept | libc::SYS_accept4 => Call::Accept,
            libc::SYS_ppoll => Call::Poll { array: a, count: b },
            libc::SYS_pselect6 => Call::Select { count: a & 0xffff_ffff, sets: [b, c, d] },
            libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => Call::Epoll(fd),
            libc::SYS_wait4 => Call::Child(u32::try_from(fd).ok().filter(|pid| *pid > 0)),
            libc::SYS_waitid => match a & 0xffff_ffff {
                P_PID => Call::Child(u32::try_from(b).ok()),
                P_PIDFD => Call::ChildOf(b as u32 as i32),
                _ => Call::Child(None),
            },
            libc::SYS_flock => Call::FileLock { fd, is_flock: true },
            libc::SYS_fcntl if SET_LOCK_AND_WAIT.contains(&(b & 0xffff_ffff)) => {
                Call::FileLock { fd, is_flock: false }
            }
            libc::SYS_openat | libc::SYS_openat2 | libc::SYS_truncate => Call::Open,
            libc::SYS_nanosleep | libc::SYS_clock_nanosleep => Call::Timer,
            libc::SYS_restart_syscall => Call::Again,
            _ => of_this_machine(number, [a, b, c, d, e]),
        }
    }
}

/// Calls that only older machines have.
#[cfg(target_arch = "x86_64")]
fn of_this_machine(number: c_long, [a, b, c, d, _]: [u64; 5]) -> Call {
    match number {
        libc::SYS_poll => Call::Poll { array: a, count: b & 0xffff_ffff },
        libc::SYS_select => Call::Select { count: a & 0xffff_ffff, sets: [b, c, d] },
        libc::SYS_open | libc::SYS_creat => Call::Open,
        libc::SYS_epoll_wait => Call::Epoll(a as u32 as i32),
        _ => Call::Other,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn of_this_machine(_: c_long, _: [u64; 5]) -> Call {
    Call::Other
}

fn futex(word: u64, operation: u64, value: u64) -> Call {
    match operation & FUTEX_CMD_MASK {
        FUTEX_LOCK_PI | FUTEX_LOCK_PI2 => Call::Mutex { word, is_pi: true },
        // With a time limit glibc takes the second one.
        FUTEX_WAIT | FUTEX_WAIT_BITSET if value & 0xffff_ffff == CONTENDED => {
            Call::Mutex { word, is_pi: false }
        }
        _ => Call::Futex,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: c_long, arguments: [u64; 3]) -> Call {
        let [a, b, c] = arguments;
        Call::of(&format!("{number} 0x{a:x} 0x{b:x} 0x{c:x} 0x0 0x0 0x0 0x7ffd29e41b28 0x7f9dea15f2ad\n"))
            .unwrap()
    }

    #[test]
    fn who_waits_for_a_mutex() {
        let futex = |operation, value| call(libc::SYS_futex, [0x7f10, operation, value]);
        assert_eq!(futex(128, 2), Call::Mutex { word: 0x7f10, is_pi: false });
        assert_eq!(futex(137, 2), Call::Mutex { word: 0x7f10, is_pi: false }, "with a time limit");
        assert_eq!(futex(134, 0), Call::Mutex { word: 0x7f10, is_pi: true });
        assert_eq!(futex(137, 0), Call::Futex, "a condition");
        assert_eq!(futex(128, 0), Call::Futex, "a semaphore");
    }

    #[test]
    fn what_each_call_waits_for() {
        assert_eq!(call(libc::SYS_read, [0xdead_0000_0003, 1, 2]), Call::Read(3));
        assert_eq!(call(libc::SYS_sendmsg, [4, 0, 0]), Call::Write(4));
        assert_eq!(call(libc::SYS_mq_timedsend, [5, 0, 1]), Call::Write(5));
        assert_eq!(call(libc::SYS_wait4, [0xffff_ffff, 0, 0]), Call::Child(None));
        assert_eq!(call(libc::SYS_wait4, [77, 0, 0]), Call::Child(Some(77)));
        assert_eq!(call(libc::SYS_waitid, [3, 9, 0]), Call::ChildOf(9));
        assert_eq!(call(libc::SYS_fcntl, [3, 7, 0]), Call::FileLock { fd: 3, is_flock: false });
        assert_eq!(call(libc::SYS_fcntl, [3, 6, 0]), Call::Other, "it does not wait");
        assert_eq!(call(libc::SYS_ppoll, [0x7f00, 2, 0]), Call::Poll { array: 0x7f00, count: 2 });
        assert_eq!(call(libc::SYS_pselect6, [5, 1, 2]), Call::Select { count: 5, sets: [1, 2, 0] });
        assert_eq!(call(libc::SYS_openat, [0xffff_ff9c, 0x7fff, 0]), Call::Open);
        assert_eq!(call(libc::SYS_clock_nanosleep, [0, 0, 0]), Call::Timer);
        assert_eq!(call(libc::SYS_restart_syscall, [0, 0, 0]), Call::Again);
        assert_eq!(call(libc::SYS_getpid, [0, 0, 0]), Call::Other);
    }

    #[test]
    fn what_is_no_call() {
        assert_eq!(Call::of("running\n"), Some(Call::Running));
        assert_eq!(Call::of("-1 0x7ffe 0x7f\n"), Some(Call::Other));
        let of_32_bits = "3 0x3 0x1 0x2 0x0 0x0 0x0 0xffffd000 0xf7fb0000";
        assert_eq!(Call::of(of_32_bits), Some(Call::Other));
        for line in ["", "202", "0 0x3", "0 3 0x1 0x2 0x0 0x0 0x0 0x7ffd29e41b28 0x7f9dea15f2ad", "0 0x 0x"] {
            assert_eq!(Call::of(line), None, "{line}");
        }
    }
}
