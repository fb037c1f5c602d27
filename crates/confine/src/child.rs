//! What a program gets that is started beside this one, between fork and exec, and how it is ended.

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

/// The kernel's out-of-memory killer takes it before most others, and long before whoever started it.
const OOM_SCORE_ADJ: i32 = 500;
const OOM_SCORE_ADJ_TEXT: &[u8] = b"500";
/// What a process has by default; whoever started it may have raised its own.
const FILES: u64 = 1024;

/// What it keeps of the privileges of whoever starts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privileges {
    /// Those it would have anyway.
    Kept,
    /// No capabilities.
    None,
    /// Those of somebody else. What is refused is an error, and the program is not started.
    Of {
        /// The user and the group that it becomes, with no other groups; `None` for ours. Only root can choose.
        user: Option<(u32, u32)>,
        /// The capabilities that it has at most, a bit for each.
        capabilities: u64,
    },
}

/// How a program is started.
#[derive(Debug)]
pub struct Child<'a> {
    /// What it may do.
    pub privileges: Privileges,
    /// How much it may take, never more than whoever starts it. There is none for the number of processes unless it is to
    /// start none at all: the kernel counts all that the user runs.
    pub bounds: &'a [(Resource, u64)],
    /// Its own control group, where there are such.
    pub group: Option<&'a Group>,
}

/// Prepares a command: a session of its own, so that it has no terminal that it could type into and its group of processes can
/// be ended; it ends with the thread that started it; no program gives it more privileges; no file is inherited but its three;
/// no core dumps.
///
/// The thread that starts it has to live until it ends. Neither its environment nor its directory is set here, and it must not
/// be given a process group or a user otherwise. What the kernel refuses of the bounds it goes without; that it cannot be held
/// by its parent or keeps its privileges is an error.
pub fn prepare(command: &mut Command, child: &Child<'_>) -> io::Result<()> {
    let group: Option<OwnedFd> = child.group.map(Group::procs).transpose()?;
    let privileges = child.privileges;
    let bounds = child.bounds.to_vec();
    let parent = rustix::process::getpid();
    // SAFETY: between fork and exec only system calls are made, which allocate nothing: strings are constants, the
    // descriptor was opened and the bounds were copied before.
    unsafe {
        command.pre_exec(move || {
            // Whoever leads a group already has a session that the others are ended by as well.
            _ = setsid();
            if let Some(group) = &group {
                rustix::io::write(group, b"0")?;
            }
            // Before the user changes: this file belongs to root afterwards.
            be_the_first_to_go();
            give_up(privileges)?;
            // Behind that: who becomes a user with more processes than a limit allows cannot start a program.
            let has_files = bounds.iter().any(|(resource, _)| *resource == Resource::Nofile);
            bounds.iter().for_each(|(resource, most)| at_most(*resource, *most));
            at_most(Resource::Core, 0);
            if !has_files {
                let files = getrlimit(Resource::Nofile);
                let current = files.maximum.map_or(FILES, |maximum| maximum.min(FILES));
                _ = setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: files.maximum });
            }
            rustix::thread::set_no_new_privs(true)?;
            // Last, as a change of the user takes it back.
            set_parent_process_death_signal(Some(Signal::KILL))?;
            if rustix::process::getppid() != Some(parent) {
                return Err(rustix::io::Errno::SRCH.into());
            }
            // What has no close-on-exec of its own gets it; a kernel before 5.11 refuses.
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
            // Who is not root loses them by exec, for which it is enough that none is ambient. The service manager
            // lets the service make no call that sets them.
            Err(_) if !rustix::process::geteuid().is_root() && !privileges::any_is_ambient() => Ok(()),
            dropped => dropped,
        },
        Privileges::Of { user, capabilities } => {
            rustix::process::umask(Mode::from_raw_mode(0o077));
            // As long as we are who may.
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

/// To raise the value is allowed to everybody. Who has a higher one already keeps it: to lower it is a privilege.
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

/// Waits for a child that was killed. One that waits in the kernel for a file system or a device that does not answer cannot be
/// killed, and nobody has to wait for it with it: it is left behind, and `None` says so.
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
