//! Drops the privileges of this process for good, before it reads what others wrote.

use std::io;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::thread::CapabilitySet;

use crate::privileges;
use crate::syscalls;

/// What is still needed afterwards. Descriptors that are open already may be used as before.
#[derive(Debug, Clone, Copy, Default)]
pub struct Needs<'a> {
    /// Files, and directories with all below, that are still opened for reading.
    pub read: &'a [&'a Path],
    /// Directories below which files are still created, written and removed.
    pub write: &'a [&'a Path],
    /// Running children, which may still be waited for and killed.
    pub children: &'a [u32],
    /// Whether descriptors are still received over an open socket and read, files of libraries in
    /// memory included.
    pub receives: bool,
    /// Whether connections are accepted on a socket that listens already, and answered.
    pub accepts: bool,
}

/// Why nothing, or not everything, was given up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There are other threads, which would keep their privileges.
    #[error("there are {0} threads already")]
    Threads(usize),
    /// The kernel refused.
    #[error("{what}: {why}")]
    Refused {
        /// The operation.
        what: &'static str,
        /// Its error.
        why: String,
    },
}

fn refused(what: &'static str) -> impl Fn(&dyn std::fmt::Display) -> Error {
    move |why| Error::Refused { what, why: why.to_string() }
}

/// Gives up capabilities, files other than those named, executing programs, sockets, other
/// processes, and with them most system calls. It holds for this thread and all that it starts, so
/// there must not be other threads yet.
///
/// Returns what this kernel does not support; the rest holds.
pub fn give_up(needs: Needs<'_>) -> Result<Vec<String>, Error> {
    let io = |what| move |error: io::Error| refused(what)(&error);
    let threads = privileges::threads().map_err(io("/proc/self/task"))?;
    if threads != 1 {
        return Err(Error::Threads(threads));
    }
    let mut unknown = Vec::new();
    rustix::thread::set_no_new_privs(true).map_err(|error| refused("no_new_privs")(&error))?;
    let missing = only_files(needs).map_err(|error| refused("landlock")(&error))?;
    let has_landlock = missing.is_none();
    unknown.extend(missing);
    // Root writes into directories of others by a capability, and keeps no other.
    let kept = if needs.write.is_empty() { CapabilitySet::empty() } else { CapabilitySet::DAC_OVERRIDE };
    privileges::drop_of_thread(kept).map_err(io("capabilities"))?;
    match syscalls::only_what_is_needed(needs, has_landlock) {
        Ok(()) => {}
        Err(syscalls::Refused::Architecture) => {
            unknown.push("system calls are not filtered on this architecture".to_owned());
        }
        Err(syscalls::Refused::Kernel(why)) => return Err(refused("seccomp")(&why)),
    }
    Ok(unknown)
}

/// Landlock: the rules that this kernel supports. The others are returned.
fn only_files(needs: Needs<'_>) -> Result<Option<String>, landlock::RulesetError> {
    let abi = ABI::V7;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .scope(if needs.children.is_empty() {
            Scope::from_all(abi)
        } else {
            Scope::AbstractUnixSocket.into()
        })?
        .create()?;
    let kept = |paths: &[&Path], access| {
        // A path that does not exist or is not accessible cannot be read later either.
        let opened = paths.iter().filter_map(|path| PathFd::new(path).ok()).collect::<Vec<_>>();
        opened.into_iter().map(move |file| PathBeneath::new(file, access)).collect::<Vec<_>>()
    };
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = AccessFs::from_all(abi) & !(AccessFs::Execute | AccessFs::MakeChar | AccessFs::MakeBlock);
    for rule in kept(needs.read, read).into_iter().chain(kept(needs.write, write)) {
        rules = rules.add_rule(rule)?;
    }
    Ok(match rules.restrict_self()?.ruleset {
        RulesetStatus::NotEnforced => {
            Some("this kernel has no Landlock: files are not kept from it".to_owned())
        }
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => None,
    })
}
