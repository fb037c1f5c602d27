//! How helper programs are started, between fork and exec, and ended.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::fs::Mode;
use rustix::process::{Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit, setsid};
use rustix::thread::CapabilitySet;

pub use rustix::process::Resource;

use crate::groups::Group;
use crate::privileges;

/// The kernel's out-of-memory killer prefers it to most other processes, and to its parent above
/// all.
const OOM_SCORE_ADJ: i32 = 500;
const OOM_SCORE_ADJ_TEXT: &[u8] = b"500";
/// The default of a process; the parent may have raised its own.
const FILES: u64 = 1024;

/// What it keeps of its parent's privileges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privileges {
    /// The inherited ones.
    Kept,
    /// No capabilities.
    None,
    /// Those of another user. A refusal is an error, and the program is not started.
    Of {
        /// The user and group to change to, without supplementary groups; `None` keeps ours. Only
        /// root can choose.
        user: Option<(u32, u32)>,
        /// The upper bound of its capabilities, one bit each.
        capabilities: u64,
    },
}

/// How a program is started.
#[derive(Debug)]
pub struct Child<'a> {
    /// Its privileges.
    pub privileges: Privileges,
    /// Resource limits, never above the parent's. The number of processes is only limited for
    /// programs that start none at all, because the kernel counts all processes of the user.
    pub bounds: &'a [(Resource, u64)],
    /// Its own control group, if there are control groups.
    pub group: Option<&'a Group>,
}

/// Prepares a command: its own session, so that it has no terminal to type into and its process
/// group can be killed; it dies with the thread that started it; no program gives it more
/// privileges; no file is inherited but its standard three; no core dumps.
///
/// The thread that starts it has to live until it ends. Environment and directory are not set here,
/// and the command must not get a process group or a user otherwise. A limit that the kernel
/// refuses is left out; it is an error if it cannot be tied to its parent or keeps its privileges.
pub fn prepare(command: &mut Command, child: &Child<'_>) -> io::Result<()> {
    let group: Option<OwnedFd> = child.group.map(Group::procs).transpose()?;
    let privileges = child.privileges;
    let bounds = child.bounds.to_vec();
    let parent = rustix::process::getpid();
    // SAFETY: between fork and exec only system calls are made, which allocate nothing: strings are
    // constants, the descriptor was opened and the bounds were copied before.
    unsafe {
        command.pre_exec(move || {
            // A group leader already has a session by which the others are killed as well.
            _ = setsid();
            if let Some(group) = &group {
                rustix::io::write(group, b"0")?;
            }
            // Before the user changes, because this file belongs to root afterwards.
            be_the_first_to_go();
            give_up(privileges)?;
            // After that, because exec fails for a user with more processes than the limit.
            let has_files = bounds.iter().any(|(resource, _)| *resource == Resource::Nofile);
            bounds.iter().for_each(|(resource, most)| at_most(*resource, *most));
            at_most(Resource::Core, 0);
            if !has_files {
                let files = getrlimit(Resource::Nofile);
                let current = files.maximum.map_or(FILES, |maximum| maximum.min(FILES));
                _ = setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: files.maximum });
            }
            rustix::thread::set_no_new_privs(true)?;
            // Last, because a change of the user resets it.
            set_parent_process_death_signal(Some(Signal::KILL))?;
            if rustix::process::getppid() != Some(parent) {
                return Err(rustix::io::Errno::SRCH.into());
            }
            // Sets close-on-exec on what lacks it. Kernels before 5.11 refuse.
            _ = libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
            Ok(())
        });
    }
    Ok(())
}

fn give_up(privileges: Privileges) -> io::Result<()> {
    match privileges {
        Privileges::Kept => Ok(()),
        Privileges::None => match privileges::drop_of_thread(CapabilitySet::empty()) {
            // A user other than root loses them by exec if none is ambient. The service manager
            // does not let the service make the system calls that set them.
            Err(_) if !rustix::process::geteuid().is_root() && !privileges::any_is_ambient() => Ok(()),
            dropped => dropped,
        },
        Privileges::Of { user, capabilities } => {
            rustix::process::umask(Mode::from_raw_mode(0o077));
            // While we still have the privilege to.
            let kept = CapabilitySet::from_bits_retain(capabilities);
            privileges::bound_to(kept);
            if let Some((user, group)) = user {
                // SAFETY: numbers only; no groups are read, as there are none.
                let failed = unsafe {
                    libc::setgroups(0, std::ptr::null()) != 0
                        || libc::setresgid(group, group, group) != 0
                        || libc::setresuid(user, user, user) != 0
                };
                if failed {
                    return Err(io::Error::last_os_error());
                }
            }
            privileges::drop_of_thread(kept)
        }
    }
}

/// Everybody may raise the value; to lower it is a privilege. A higher value is kept.
fn be_the_first_to_go() {
    use rustix::fs::{Mode, OFlags, open};
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let Ok(file) = open(c"/proc/self/oom_score_adj", flags, Mode::empty()) else { return };
    let mut text = [0_u8; 8];
    let length = rustix::io::read(&file, &mut text[..]).unwrap_or(0);
    let now = text.get(..length).and_then(|text| std::str::from_utf8(text).ok());
    let is_higher = now.and_then(|text| text.trim().parse().ok()).is_some_and(|now: i32| now > OOM_SCORE_ADJ);
    if !is_higher {
        _ = rustix::io::pwrite(&file, OOM_SCORE_ADJ_TEXT, 0);
    }
}

fn at_most(resource: Resource, most: u64) {
    let maximum = getrlimit(resource).maximum.map_or(most, |maximum| maximum.min(most));
    _ = setrlimit(resource, Rlimit { current: Some(maximum), maximum: Some(maximum) });
}

/// Waits for a killed child. A child that waits in the kernel for a file system or a device that
/// does not answer cannot be killed; it is left behind, and the result is `None`.
pub fn reap(child: &mut std::process::Child, patience: Duration) -> Option<ExitStatus> {
    let began = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if began.elapsed() < patience => std::thread::sleep(Duration::from_millis(2)),
            Ok(None) | Err(_) => return None,
        }
    }
}
