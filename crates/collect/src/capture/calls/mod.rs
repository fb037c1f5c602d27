//! What the captures of system calls and files have in common: names, paths, and rows that become tables.

mod names;
mod rows;
mod table;
mod times;

pub(super) use names::{Mounts, Names, split_dev, text};
pub(super) use rows::{COMM, Column, PID, Rows, Who, sort_by_weight, table};
pub(super) use table::{call_name, calls, error_name};
pub(super) use times::{Histogram, LONGEST, MEDIAN, P99, Times, histograms, time_cells};

use super::AnyError;
use super::loader::Loader;
use crate::bpf::sys::{MapReader, Plain};

/// `CALLS_MAX` of bpf/calls.h. As a call's number it stands for all that no table has.
const CALLS_MAX: usize = 512;

/// `struct call_classes` of bpf/calls.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct Classes([u8; CALLS_MAX]);
// SAFETY: bytes.
unsafe impl Plain for Classes {}

/// Tells the programs which calls they care for, by name: numbers differ between machines. To be done before anything
/// is attached.
pub(super) fn set_classes(loader: &mut Loader<'_>, class: impl Fn(&str) -> u8) -> Result<(), AnyError> {
    let map: MapReader<u32, Classes> = loader.map("call_classes")?;
    let mut classes = Classes([0; CALLS_MAX]);
    for (to, name) in classes.0.iter_mut().zip(calls()) {
        *to = class(name);
    }
    Ok(map.store(&0, &classes)?)
}

/// Of a class that part which says where the path is: `PATH_ARG` of bpf/calls.h.
pub(super) const PATH_MASK: u8 = 0x0f;
/// The path is the first argument.
pub(super) const PATH_FIRST: u8 = 1;
/// The path is the second argument.
pub(super) const PATH_SECOND: u8 = 2;
/// `DIR_FIRST` of bpf/calls.h: the first argument is the directory that the path starts from.
pub(super) const DIR_FIRST: u8 = 0x10;

/// Where a call has its path, for those that look one up. Of two paths the first.
pub(super) fn path_class(name: &str) -> u8 {
    match name {
        "open" | "creat" | "access" | "stat" | "lstat" | "readlink" | "execve" | "chdir" | "chroot"
        | "unlink" | "rmdir" | "mkdir" | "mknod" | "rename" | "link" | "truncate" | "statfs" | "chmod"
        | "chown" | "lchown" | "utime" | "utimes" | "getxattr" | "lgetxattr" | "setxattr" | "lsetxattr"
        | "listxattr" | "llistxattr" | "removexattr" | "lremovexattr" | "umount2" | "swapon" | "swapoff" => {
            PATH_FIRST
        }
        "symlink" | "inotify_add_watch" => PATH_SECOND,
        "openat" | "openat2" | "faccessat" | "faccessat2" | "newfstatat" | "statx" | "readlinkat"
        | "execveat" | "unlinkat" | "mkdirat" | "mknodat" | "renameat" | "renameat2" | "linkat"
        | "fchmodat" | "fchmodat2" | "fchownat" | "utimensat" | "futimesat" | "name_to_handle_at"
        | "open_tree" => PATH_SECOND | DIR_FIRST,
        _ => 0,
    }
}

/// Calls that wait for somebody else by their nature: a long time in them is no work and no trouble.
pub(super) fn waits_by_nature(name: &str) -> bool {
    matches!(
        name,
        "accept"
            | "accept4"
            | "clock_nanosleep"
            | "epoll_pwait"
            | "epoll_pwait2"
            | "epoll_wait"
            | "futex"
            | "futex_wait"
            | "futex_waitv"
            | "io_getevents"
            | "io_pgetevents"
            | "io_uring_enter"
            | "mq_timedreceive"
            | "msgrcv"
            | "nanosleep"
            | "pause"
            | "poll"
            | "ppoll"
            | "pselect6"
            | "rt_sigsuspend"
            | "rt_sigtimedwait"
            | "select"
            | "semop"
            | "semtimedop"
            | "wait4"
            | "waitid"
    )
}

/// How many arguments a call has; six where this table has none for it, because that is how many registers there are.
pub(super) fn argument_count(name: &str) -> usize {
    match name {
        "getpid" | "gettid" | "getppid" | "getuid" | "geteuid" | "getgid" | "getegid" | "sched_yield"
        | "fork" | "vfork" | "pause" | "sync" | "rt_sigreturn" | "munlockall" => 0,
        "close" | "brk" | "exit" | "exit_group" | "fsync" | "fdatasync" | "dup" | "epoll_create1"
        | "unlink" | "rmdir" | "chdir" | "fchdir" | "pipe" | "umask" | "syncfs" | "sysinfo" | "uname"
        | "times" => 1,
        "open" => 3,
        "stat" | "lstat" | "fstat" | "access" | "munmap" | "kill" | "nanosleep" | "clock_gettime"
        | "rename" | "link" | "symlink" | "mkdir" | "creat" | "truncate" | "ftruncate" | "dup2" | "pipe2"
        | "listen" | "shutdown" | "statfs" | "fstatfs" | "getrlimit" | "setrlimit" | "gettimeofday"
        | "eventfd2" | "sigaltstack" | "set_robust_list" | "timerfd_create" | "clock_getres" => 2,
        "read" | "write" | "lseek" | "ioctl" | "readv" | "writev" | "mprotect" | "poll" | "fcntl"
        | "execve" | "getdents64" | "socket" | "connect" | "accept" | "bind" | "sendmsg" | "recvmsg"
        | "madvise" | "mincore" | "msync" | "readlink" | "unlinkat" | "mkdirat" | "faccessat" | "tgkill"
        | "dup3" | "futex_wake" | "getrandom" | "inotify_add_watch" | "getsockname" | "getpeername"
        | "sched_setaffinity" | "sched_getaffinity" => 3,
        "openat" | "openat2" | "newfstatat" | "pread64" | "pwrite64" | "readlinkat" | "rt_sigaction"
        | "rt_sigprocmask" | "epoll_ctl" | "epoll_wait" | "accept4" | "sendfile" | "wait4"
        | "clock_nanosleep" | "utimensat" | "prlimit64" | "renameat" | "faccessat2" | "fallocate"
        | "timerfd_settime" | "rseq" | "socketpair" | "rt_sigtimedwait" | "fadvise64" => 4,
        "statx" | "setsockopt" | "getsockopt" | "mremap" | "clone" | "ppoll" | "execveat" | "renameat2"
        | "waitid" | "prctl" | "select" | "preadv" | "pwritev" | "recvmmsg" | "linkat" => 5,
        "clone3" => 2,
        _ => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_with_a_path_is_one_of_a_machine() {
        // A name that no table has would never be looked for.
        let here = calls().iter().filter(|name| path_class(name) != 0).count();
        assert!(here > 25, "{here}");
        assert_eq!(path_class("openat"), PATH_SECOND | DIR_FIRST);
        assert_eq!(path_class("read"), 0);
        assert!(calls().len() <= CALLS_MAX);
    }
}
