//! What a program that is started may take and do: less than whoever starts it.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, Signal};
use rustix::thread::{CapabilitySet, CapabilitySets};

/// More capabilities than any kernel has.
const CAPABILITIES_MAX: u32 = 64;
/// When memory is short, what was started ends before what it looks at, and before whoever started it.
const OOM_SCORE: &[u8] = b"500";

/// The bounds of a program.
///
/// There is none for the number of processes: the kernel counts all that the user runs, so that a limit would be of what
/// others do.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The user and the group that it runs as, with no other groups; `None` for ours. Only root can choose.
    pub user: Option<(u32, u32)>,
    /// The capabilities that it may have at most, a bit for each.
    pub capabilities: u64,
    /// Of CPU time.
    pub cpu_seconds: u64,
    /// Addresses that it may map.
    pub memory_bytes: u64,
    /// Files that it may hold open.
    pub files: u64,
    /// How long a file may become by what it writes.
    pub file_bytes: u64,
}

/// Has a command run within bounds: in a session of its own, so that it has no terminal that it could type into; without files but
/// its standard ones; without a way to more rights; and no longer than the thread that starts it.
///
/// Neither its environment nor its directory is set here. It must not be given a process group or a user otherwise.
pub fn limited(command: &mut Command, limits: Limits) {
    let parent = i32::try_from(std::process::id()).unwrap_or_default();
    // SAFETY: between fork and exec only system calls are made, which allocate nothing and take no lock.
    unsafe { command.pre_exec(move || apply(limits, parent)) };
}

fn apply(limits: Limits, parent: i32) -> io::Result<()> {
    rustix::process::setsid()?;
    // SAFETY: it takes numbers only. What has no close-on-exec gets it; a kernel before 5.11 does not know that, and what is
    // opened in this program has it anyway.
    _ = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    // Before the user changes: these files belong to root afterwards.
    let score =
        rustix::fs::open(c"/proc/self/oom_score_adj", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
    _ = score.and_then(|score| rustix::io::write(&score, OOM_SCORE));
    rustix::process::umask(Mode::from_raw_mode(0o077));
    for (resource, most) in [
        (Resource::Core, 0),
        (Resource::Cpu, limits.cpu_seconds),
        (Resource::As, limits.memory_bytes),
        (Resource::Nofile, limits.files),
        (Resource::Fsize, limits.file_bytes),
    ] {
        limit(resource, most)?;
    }
    // Kernels without them have none to give.
    _ = rustix::thread::clear_ambient_capability_set();
    for number in 0..CAPABILITIES_MAX {
        if limits.capabilities >> number & 1 == 0 {
            // Whoever may not take them away cannot regain them either, by what follows.
            let one = CapabilitySet::from_bits_retain(1 << number);
            _ = rustix::thread::remove_capability_from_bounding_set(one);
        }
    }
    if let Some((user, group)) = limits.user {
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
    let allowed = CapabilitySet::from_bits_retain(limits.capabilities);
    let permitted = rustix::thread::capabilities(None)?.permitted & allowed;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: permitted, permitted, inheritable: none };
    rustix::thread::set_capabilities(None, sets)?;
    rustix::thread::set_no_new_privs(true)?;
    // Last, as a change of the user takes it back.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let is_orphan = rustix::process::getppid().is_some_and(|now| now.as_raw_nonzero().get() != parent);
    if is_orphan {
        return Err(rustix::io::Errno::SRCH.into());
    }
    Ok(())
}

/// Never more than there was.
fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let now = rustix::process::getrlimit(resource);
    let most = now.maximum.map_or(most, |maximum| maximum.min(most));
    Ok(rustix::process::setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        user: None,
        capabilities: 0,
        cpu_seconds: 7,
        memory_bytes: 1 << 30,
        files: 64,
        file_bytes: 4096,
    };

    fn say(script: &str, limits: Limits) -> String {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        limited(&mut command, limits);
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn line<'t>(text: &'t str, name: &str) -> &'t str {
        text.lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or_else(|| panic!("{name}: {text}"))
            .trim()
    }

    /// A session without a terminal cannot type into one.
    #[test]
    fn it_has_no_terminal_and_a_session_of_its_own() {
        let stat = say("cat /proc/$$/stat", LIMITS);
        let (head, rest) = stat.rsplit_once(") ").unwrap();
        let fields: Vec<&str> = rest.split(' ').collect();
        let pid = head.split(' ').next().unwrap();
        assert_eq!((fields[2], fields[3], fields[4]), (pid, pid, "0"), "group, session, terminal of {stat}");
    }

    #[test]
    fn it_has_neither_capabilities_nor_a_way_to_them() {
        let status = say("cat /proc/self/status", LIMITS);
        assert_eq!(line(&status, "NoNewPrivs:"), "1");
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(line(&status, set), "0000000000000000", "{set}");
        }
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root gives capabilities up, and has any");
            return;
        }
        assert_eq!(line(&status, "CapBnd:"), "0000000000000000");
        // Root keeps those that it was left.
        let status = say("cat /proc/self/status", Limits { capabilities: 1 << 5, ..LIMITS });
        for set in ["CapPrm:", "CapEff:", "CapBnd:"] {
            assert_eq!(line(&status, set), "0000000000000020", "{set}");
        }
    }

    #[test]
    fn it_is_another_user_and_of_no_other_group() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root becomes somebody else");
            return;
        }
        let status = say("cat /proc/self/status", Limits { user: Some((65_534, 65_533)), ..LIMITS });
        assert_eq!(line(&status, "Uid:"), "65534\t65534\t65534\t65534");
        assert_eq!(line(&status, "Gid:"), "65533\t65533\t65533\t65533");
        assert_eq!(line(&status, "Groups:"), "");
    }

    #[test]
    fn it_takes_no_more_than_it_may() {
        let text = say("cat /proc/self/limits; cat /proc/self/oom_score_adj; umask", LIMITS);
        for (name, most) in [
            ("Max cpu time", "7"),
            ("Max file size", "4096"),
            ("Max core file size", "0"),
            ("Max open files", "64"),
            ("Max address space", "1073741824"),
        ] {
            let words: Vec<&str> = line(&text, name).split_whitespace().collect();
            assert_eq!(words[..2], [most, most], "{name}");
        }
        assert!(text.ends_with("500\n0077\n"), "{text}");
    }

    #[test]
    fn it_ends_with_the_thread_that_started_it() {
        let begin = || {
            let mut command = Command::new("/bin/sleep");
            command.arg("600");
            limited(&mut command, LIMITS);
            command.spawn().unwrap()
        };
        let mut child = std::thread::spawn(begin).join().unwrap();
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn files_without_close_on_exec_stay_here() {
        let leaked = std::fs::File::open("/dev/null").unwrap();
        rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
        let names = say("ls /proc/$$/fd", LIMITS);
        assert!(names.lines().all(|name| ["0", "1", "2"].contains(&name)), "{names}");
    }
}
