//! System call filters (seccomp).
//!
//! A refused call returns EPERM and kills nothing, so that a library that tries something new goes
//! on without it.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

use crate::give_up::Needs;

/// The rules of a filter by system call number. One rule of a call has to match; no rules allow it
/// always.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Why there is no filter.
pub(crate) enum Refused {
    /// The system call numbers of this architecture are not known.
    Architecture,
    /// The kernel refused.
    Kernel(String),
}

/// What a program needs that computes and uses the descriptors that it has: memory, threads, time,
/// its own signals.
const NEEDED: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fcntl,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fadvise64,
    libc::SYS_ftruncate,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getcwd,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_membarrier,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_geteuid,
    libc::SYS_getuid,
    libc::SYS_getrusage,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_ppoll,
    // The second filter answers these: libraries can do without.
    libc::SYS_clone3,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_access,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_time,
];

/// Calls that create, write and remove files, allowed if Landlock says which files.
const WRITING: &[libc::c_long] = &[
    libc::SYS_openat,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_flock,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_copy_file_range,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    #[cfg(not(target_arch = "riscv64"))]
    libc::SYS_renameat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_link,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
];

/// Calls that wait for connections and talk on them; none makes a socket or connects one.
const ACCEPTING: &[libc::c_long] = &[
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    // Whether somebody writes what is read.
    libc::SYS_flock,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
];

/// Calls that change the machine, or inspect it in ways that Mitra does not use: the clock,
/// modules, mounts, ports, swap, kexec, keys, writing and executing other processes' memory.
const CHANGES_THE_MACHINE: &[libc::c_long] = &[
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_reboot,
    libc::SYS_kexec_load,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_userfaultfd,
    libc::SYS_process_vm_writev,
    libc::SYS_vhangup,
    libc::SYS_personality,
    libc::SYS_io_uring_setup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
    // kexec_file_load of asm-generic/unistd.h, which libc does not name for musl.
    #[cfg(target_arch = "aarch64")]
    294,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// Allows only these calls from now on, in all threads: those above, and what files and children
/// need.
pub(crate) fn only_what_is_needed(needs: Needs<'_>, has_landlock: bool) -> Result<(), Refused> {
    let always = |number: &libc::c_long| (*number, Vec::new());
    let mut rules: Rules = NEEDED.iter().map(always).collect();
    if has_landlock && !(needs.read.is_empty() && needs.write.is_empty()) {
        // Its flags are in memory, which a filter does not see.
        rules.extend([libc::SYS_openat2].iter().map(always));
    }
    if !needs.children.is_empty() {
        rules.extend([libc::SYS_wait4, libc::SYS_waitid].iter().map(always));
        let killed = needs.children.iter().map(|pid| when(&[equal(0, u64::from(*pid))?]));
        rules.insert(libc::SYS_kill, killed.collect::<Result<_, _>>()?);
    }
    if !needs.write.is_empty() {
        rules.extend(WRITING.iter().map(always));
    } else if !needs.read.is_empty() {
        rules.insert(libc::SYS_openat, only_to_read(2)?);
        #[cfg(target_arch = "x86_64")]
        rules.insert(libc::SYS_open, only_to_read(1)?);
    }
    if needs.receives {
        rules.extend([libc::SYS_recvmsg, libc::SYS_memfd_create].iter().map(always));
        // Through descriptors below /proc, which Landlock does not restrict if they are in memory.
        rules.insert(libc::SYS_openat, only_to_read(2)?);
    }
    if needs.accepts {
        rules.extend(ACCEPTING.iter().map(always));
    }
    // Threads, and no processes.
    let thread = (libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND) as u64;
    rules.insert(libc::SYS_clone, vec![when(&[masked(0, thread, thread)?])?]);
    // No code from outside of the program.
    let executable = libc::PROT_EXEC as u64;
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, vec![when(&[masked(2, executable, 0)?])?]);
    }
    // Is the descriptor a terminal, and how wide.
    #[cfg_attr(
        target_env = "gnu",
        expect(clippy::unnecessary_cast, reason = "glibc and musl have other types")
    )]
    let ioctls = [libc::TCGETS as u64, libc::TIOCGWINSZ as u64, libc::FIOCLEX as u64];
    let ioctls = ioctls.iter().map(|request| when(&[equal(1, *request)?]));
    rules.insert(libc::SYS_ioctl, ioctls.collect::<Result<_, _>>()?);
    rules.insert(libc::SYS_prctl, vec![when(&[equal(0, libc::PR_SET_NAME as u64)?])?]);
    // To abort. No other process has this number while it lives.
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, vec![when(&[equal(0, own)?])?]);
    let unknown: Rules = [(libc::SYS_clone3, Vec::new())].into();
    apply(unknown, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32))?;
    apply(rules, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)
}

/// Refuses system calls that no part of Mitra uses, for this process and its children, if no
/// service manager has done so. An error says in words why it cannot.
pub fn refuse_to_change_the_machine() -> Result<(), String> {
    let rules = CHANGES_THE_MACHINE.iter().map(|number| (*number, Vec::new())).collect();
    rustix::thread::set_no_new_privs(true).map_err(|error| error.to_string())?;
    match apply(rules, SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32)) {
        Ok(()) => Ok(()),
        Err(Refused::Architecture) => Err("not on this architecture".to_owned()),
        Err(Refused::Kernel(why)) => Err(why),
    }
}

fn apply(rules: Rules, otherwise: SeccompAction, then: SeccompAction) -> Result<(), Refused> {
    let arch: TargetArch = std::env::consts::ARCH.try_into().map_err(|_| Refused::Architecture)?;
    let kernel = |error: &dyn std::fmt::Display| Refused::Kernel(error.to_string());
    let filter = SeccompFilter::new(rules, otherwise, then, arch).map_err(|e| kernel(&e))?;
    let program: BpfProgram = filter.try_into().map_err(|e: seccompiler::BackendError| kernel(&e))?;
    seccompiler::apply_filter_all_threads(&program).map_err(|e| kernel(&e))
}

/// Flags in argument `at` that open a file without creating or changing it.
fn only_to_read(at: u8) -> Result<Vec<SeccompRule>, Refused> {
    // O_TMPFILE contains the bit of O_DIRECTORY. That is harmless, because O_TMPFILE requires a
    // write mode.
    let writing = (libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC) as u64;
    Ok(vec![when(&[masked(at, writing, libc::O_RDONLY as u64)?])?])
}

fn when(conditions: &[SeccompCondition]) -> Result<SeccompRule, Refused> {
    SeccompRule::new(conditions.to_vec()).map_err(|error| Refused::Kernel(error.to_string()))
}

fn masked(at: u8, mask: u64, value: u64) -> Result<SeccompCondition, Refused> {
    condition(at, SeccompCmpOp::MaskedEq(mask), value)
}

fn equal(at: u8, value: u64) -> Result<SeccompCondition, Refused> {
    condition(at, SeccompCmpOp::Eq, value)
}

fn condition(at: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, Refused> {
    // The kernel reads the lower half of these.
    SeccompCondition::new(at, SeccompCmpArgLen::Dword, operator, value)
        .map_err(|error| Refused::Kernel(error.to_string()))
}
