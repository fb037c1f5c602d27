//! What a program gets that is started beside this one, between fork and exec.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{
    Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit, setsid,
};
use rustix::thread::CapabilitySet;

use crate::groups::Group;
use crate::privileges;

/// The kernel's out-of-memory killer takes it before most others, and long before whoever started it.
const OOM_SCORE_ADJ: i32 = 500;
const OOM_SCORE_ADJ_TEXT: &[u8] = b"500";
/// What a process has by default; whoever started it may have raised its own.
const FILES: u64 = 1024;

/// What it keeps of the capabilities of whoever starts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privileges {
    /// Those it would have anyway.
    Kept,
    /// None. `no_new_privs` holds too, so that no program gives it any back.
    None,
}

/// How a program is started.
#[derive(Debug)]
pub struct Child<'a> {
    /// What it may do.
    pub privileges: Privileges,
    /// Bytes of memory that it may have for itself, where no control group counts them.
    pub memory_bytes: u64,
    /// Its own control group, where there are such.
    pub group: Option<&'a Group>,
}

/// Prepares a command: a session of its own, so that it has no terminal and its group of processes can be ended; it ends
/// with the thread that started it; no program gives it more privileges; no file is inherited but its three; no core dumps.
///
/// The thread that starts it has to live until it ends. What the kernel refuses of the limits it goes without; that it
/// cannot be held by its parent or keeps its privileges is an error.
pub fn prepare(command: &mut Command, child: &Child<'_>) -> io::Result<()> {
    let has_group = child.group.is_some();
    let group: Option<OwnedFd> = child.group.map(Group::procs).transpose()?;
    let (privileges, memory_bytes) = (child.privileges, child.memory_bytes);
    // SAFETY: between fork and exec only system calls are made, which allocate nothing: strings are constants, the
    // descriptor was opened before.
    unsafe {
        command.pre_exec(move || {
            // Whoever leads a group already has a session that the others are ended by as well.
            _ = setsid();
            set_parent_process_death_signal(Some(Signal::KILL))?;
            if let Some(group) = &group {
                rustix::io::write(group, b"0")?;
            }
            be_the_first_to_go();
            limit(if has_group { None } else { Some(memory_bytes) });
            if privileges == Privileges::None {
                match privileges::drop_of_thread(CapabilitySet::empty()) {
                    // Who is not root loses them by exec, for which it is enough that none is ambient. The service manager
                    // lets the service make no call that sets them.
                    Err(_) if !rustix::process::geteuid().is_root() && !privileges::any_is_ambient() => {}
                    dropped => dropped?,
                }
            }
            rustix::thread::set_no_new_privs(true)?;
            // What has no close-on-exec of its own gets it; a kernel before 5.11 refuses.
            _ = libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
            Ok(())
        });
    }
    Ok(())
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

fn limit(memory_bytes: Option<u64>) {
    let at_most = |resource, bytes: u64| {
        let now = getrlimit(resource);
        let maximum = now.maximum.map_or(bytes, |maximum| maximum.min(bytes));
        _ = setrlimit(resource, Rlimit { current: Some(maximum), maximum: Some(maximum) });
    };
    at_most(Resource::Core, 0);
    if let Some(bytes) = memory_bytes {
        at_most(Resource::Data, bytes);
    }
    let files = getrlimit(Resource::Nofile);
    let current = files.maximum.map_or(FILES, |maximum| maximum.min(FILES));
    _ = setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: files.maximum });
}
