//! The system calls of Linux: which names are calls, and what each of them may do to the one who calls.

use crate::text::prelude::*;

/// Whether a call may make its caller wait for someone else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// It waits for others by its nature: time in it is no pause.
    Asks,
    /// It returns at once, or as good as: what is long after it was not it.
    Never,
    /// It works, and its work may take long.
    Works,
}

/// What else of a call matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Nothing.
    Plain,
    /// Its path is looked up.
    Lookup,
    /// As [`Role::Lookup`], and the thread becomes another program.
    Exec,
    /// It returns the id of a new thread, which begins as the same program.
    Fork,
}

/// Whether it is the name of a system call: of x86 with 64 and 32 bits, or of the newer machines.
pub(super) fn is_call(name: &[u8]) -> bool {
    NAMES.binary_search(&name).is_ok() || name.starts_with(b"syscall_0x")
}

/// Calls that wait for others by their nature.
const ASKING: &[&[u8]] = list!(
    "accept accept4 clock_nanosleep clock_nanosleep_time64 connect epoll_pwait epoll_pwait2 epoll_wait
     flock futex futex_time64 futex_wait futex_waitv io_getevents io_pgetevents io_uring_enter
     mq_timedreceive mq_timedsend msgrcv msgsnd nanosleep _newselect pause poll ppoll pselect6 read readv
     recv recvfrom recvmmsg recvmsg restart_syscall rt_sigsuspend rt_sigtimedwait select semop semtimedop
     sigsuspend splice vfork wait4 waitid waitpid"
);
/// Calls that return at once. A send waits only for room in a socket that was left in blocking mode.
const IMMEDIATE: &[&[u8]] = list!(
    "send sendto sendmsg sendmmsg bind listen shutdown socket socketpair setsockopt alarm brk capget
     clock_getres clock_gettime close dup dup2 dup3 epoll_create epoll_create1 epoll_ctl eventfd eventfd2
     lseek _llseek pipe pipe2 prctl rt_sigaction rt_sigpending rt_sigprocmask rt_sigreturn sigreturn
     sched_yield set_robust_list set_tid_address setitimer sigaltstack time timer_settime timerfd_create
     timerfd_gettime timerfd_settime times kill tgkill tkill umask uname arch_prctl"
);

/// What a long time in or after a call of this name means.
pub(super) fn wait(name: &[u8]) -> Wait {
    match name {
        _ if ASKING.contains(&name) => Wait::Asks,
        _ if IMMEDIATE.contains(&name) => Wait::Never,
        _ if name.starts_with(b"get") && !name.starts_with(b"getdents") && !name.ends_with(b"xattr") => {
            Wait::Never
        }
        _ => Wait::Works,
    }
}

/// What else of the call of this name matters.
pub(super) fn role(name: &[u8]) -> Role {
    match name {
        b"access" | b"faccessat" | b"faccessat2" | b"open" | b"openat" | b"openat2" | b"stat" | b"stat64"
        | b"lstat" | b"lstat64" | b"newfstatat" | b"fstatat64" | b"statx" | b"readlink" | b"readlinkat"
        | b"chdir" | b"statfs" | b"statfs64" | b"unlink" | b"unlinkat" | b"getxattr" | b"lgetxattr"
        | b"inotify_add_watch" => Role::Lookup,
        b"execve" | b"execveat" => Role::Exec,
        b"fork" | b"vfork" | b"clone" | b"clone3" => Role::Fork,
        _ => Role::Plain,
    }
}

/// Every call, in the order of bytes.
const NAMES: &[&[u8]] = list!(
    "_llseek _newselect _sysctl accept accept4 access acct add_key adjtimex afs_syscall alarm arch_prctl
     bdflush bind bpf brk cachestat capget capset chdir chmod chown chown32 chroot clock_adjtime
     clock_adjtime64 clock_getres clock_getres_time64 clock_gettime clock_gettime64 clock_nanosleep
     clock_nanosleep_time64 clock_settime clock_settime64 clone clone3 close close_range connect
     copy_file_range creat create_module delete_module dup dup2 dup3 epoll_create epoll_create1 epoll_ctl
     epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 execve execveat
     exit exit_group faccessat faccessat2 fadvise64 fadvise64_64 fallocate fanotify_init fanotify_mark
     fchdir fchmod fchmodat fchmodat2 fchown fchown32 fchownat fcntl fcntl64 fdatasync fgetxattr
     finit_module flistxattr flock fork fremovexattr fsconfig fsetxattr fsmount fsopen fspick fstat
     fstat64 fstatat fstatat64 fstatfs fstatfs64 fsync ftime ftruncate ftruncate64 futex futex_requeue
     futex_time64 futex_wait futex_waitv futex_wake futimesat get_kernel_syms get_mempolicy
     get_robust_list get_thread_area getcpu getcwd getdents getdents64 getegid getegid32 geteuid
     geteuid32 getgid getgid32 getgroups getgroups32 getitimer getpeername getpgid getpgrp getpid getpmsg
     getppid getpriority getrandom getresgid getresgid32 getresuid getresuid32 getrlimit getrusage getsid
     getsockname getsockopt gettid gettimeofday getuid getuid32 getxattr getxattrat gtty idle init_module
     inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents
     io_pgetevents io_pgetevents_time64 io_setup io_submit io_uring_enter io_uring_register
     io_uring_setup ioctl ioperm iopl ioprio_get ioprio_set ipc kcmp kexec_file_load kexec_load keyctl
     kill landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown lchown32 lgetxattr link
     linkat listen listmount listxattr llistxattr llseek lock lookup_dcookie lremovexattr lseek lsetxattr
     lsm_get_self_attr lstat lstat64 madvise map_shadow_stack mbind membarrier memfd_create memfd_secret
     migrate_pages mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap mmap2 modify_ldt mount
     mount_setattr move_mount move_pages mprotect mpx mq_getsetattr mq_notify mq_open mq_timedreceive
     mq_timedreceive_time64 mq_timedsend mq_timedsend_time64 mq_unlink mremap mseal msgctl msgget msgrcv
     msgsnd msync munlock munlockall munmap name_to_handle_at nanosleep newfstatat nfsservctl nice
     oldfstat oldlstat oldolduname oldstat olduname open open_by_handle_at open_tree openat openat2 pause
     perf_event_open personality pidfd_getfd pidfd_open pidfd_send_signal pipe pipe2 pivot_root
     pkey_alloc pkey_free pkey_mprotect poll ppoll ppoll_time64 prctl pread pread64 preadv preadv2
     prlimit64 process_madvise process_mrelease process_vm_readv process_vm_writev prof profil pselect6
     pselect6_time64 ptrace putpmsg pwrite pwrite64 pwritev pwritev2 query_module quotactl quotactl_fd
     read readahead readdir readlink readlinkat readv reboot recv recvfrom recvmmsg recvmmsg_time64
     recvmsg remap_file_pages removexattr rename renameat renameat2 request_key restart_syscall
     riscv_hwprobe rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn
     rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo sched_get_priority_max
     sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler
     sched_rr_get_interval sched_rr_get_interval_time64 sched_setaffinity sched_setattr sched_setparam
     sched_setscheduler sched_yield seccomp security select semctl semget semop semtimedop
     semtimedop_time64 send sendfile sendfile64 sendmmsg sendmsg sendto set_mempolicy
     set_mempolicy_home_node set_robust_list set_thread_area set_tid_address setdomainname setfsgid
     setfsgid32 setfsuid setfsuid32 setgid setgid32 setgroups setgroups32 sethostname setitimer setns
     setpgid setpriority setregid setregid32 setresgid setresgid32 setresuid setresuid32 setreuid
     setreuid32 setrlimit setsid setsockopt settimeofday setuid setuid32 setxattr setxattrat sgetmask
     shmat shmctl shmdt shmget shutdown sigaction sigaltstack signal signalfd signalfd4 sigpending
     sigprocmask sigreturn sigsuspend socket socketcall socketpair splice ssetmask stat stat64 statfs
     statfs64 statmount statx stime stty swapoff swapon symlink symlinkat sync sync_file_range
     sync_file_range2 syncfs sysfs sysinfo syslog tee tgkill time timer_create timer_delete
     timer_getoverrun timer_gettime timer_gettime64 timer_settime timer_settime64 timerfd_create
     timerfd_gettime timerfd_gettime64 timerfd_settime timerfd_settime64 times tkill truncate truncate64
     tuxcall ugetrlimit ulimit umask umount umount2 uname unlink unlinkat unshare uretprobe uselib
     userfaultfd ustat utime utimensat utimensat_time64 utimes vfork vhangup vm86 vm86old vmsplice
     vserver wait4 waitid waitpid write writev"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_known() {
        assert!(NAMES.is_sorted());
        assert!(is_call(b"access") && is_call(b"statx") && is_call(b"epoll_wait") && is_call(b"_newselect"));
        assert!(!is_call(b"printf") && !is_call(b"malloc") && !is_call(b"") && !is_call(&[0xff]));
        assert_eq!((wait(b"getpid"), wait(b"getdents64")), (Wait::Never, Wait::Works));
        assert_eq!((wait(b"poll"), wait(b"fsync")), (Wait::Asks, Wait::Works));
    }
}
