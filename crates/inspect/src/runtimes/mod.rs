//! Runtimes that know their own heap: the Java virtual machine and Erlang's.
//!
//! Much of what they know can be read without asking them: a JVM writes its counters into memory that is meant to be read by
//! others ([`jvm::perfdata`]), and Erlang's allocators chain their carriers together ([`erlang::carriers`]). The rest they tell
//! when their own tools ask (`jcmd`, `erl_call`). That is done only where [`Options::ask_runtime`] says so, because it is work
//! that the process does, and in a JVM all threads wait for it.

pub(crate) mod detect;
pub mod erlang;
pub mod jvm;
mod tool;

use mitra_parse::task::task_stat;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::mapped_file;
use crate::memory::Memory;
use crate::target::Target;
pub use erlang::ErlangHeap;
pub use jvm::JvmHeap;

/// What a look may do, and how long it may take.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Ask the runtime itself with its own tool.
    ///
    /// A JVM counts its objects at a safepoint: **all of its threads wait** while the whole heap is walked, about a second for
    /// each gigabyte, and to be asked at all it gets the signal `SIGQUIT`, which it understands as the wish to talk. An Erlang
    /// VM goes on, and has to answer to a node that connects to it.
    pub ask_runtime: bool,
    /// For how long rates are measured. An Erlang VM's carriers are looked at again and again for so long.
    pub seconds: f64,
    /// Classes of a JVM that are kept, the largest.
    pub classes_max: usize,
    /// A tool that takes longer is ended. What it asked for is done by the runtime nevertheless.
    pub tool_seconds_max: f64,
}

impl Default for Options {
    fn default() -> Self {
        Options { ask_runtime: false, seconds: 2.0, classes_max: 1_000, tool_seconds_max: 60.0 }
    }
}

/// A runtime, and what is known of its heap.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    /// A Java virtual machine.
    Jvm(JvmHeap),
    /// Erlang's.
    Erlang(ErlangHeap),
}

/// Whether it is one of those whose heap is looked at here.
pub(crate) fn is_any(target: &Target) -> bool {
    jvm::is_jvm(target) || erlang::is_erlang(target)
}

/// Which runtime a process is, by what it has mapped, and what is known of its heap. `None` says that it is neither.
///
/// # Errors
///
/// It ended, or runs another program now.
pub fn read_heap(target: &Target, options: &Options) -> Result<Option<Runtime>, Error> {
    let found = if jvm::is_jvm(target) {
        Some(Runtime::Jvm(jvm::read_heap(target, options)))
    } else if erlang::is_erlang(target) {
        Some(Runtime::Erlang(erlang::read_heap(target, options)))
    } else {
        None
    };
    target.check()?;
    Ok(found)
}

/// A file as the process sees it, whatever it sees as `/`, up to a bound. Links lead to what they lead to there.
fn read_in_root(pid: u32, path: &str, bytes_max: u64) -> Option<String> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root: OwnedFd = rustix::fs::open(format!("/proc/{pid}/root"), flags, Mode::empty()).ok()?;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let relative = path.trim_start_matches('/');
    let handle = rustix::fs::openat2(&root, relative, flags, Mode::empty(), resolve).ok()?;
    let (file, _) = mapped_file::plain(&handle)?;
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether the process has this file mapped.
fn maps(memory: &(impl Memory + ?Sized), file: &str) -> bool {
    memory.mappings().iter().any(|mapping| mapping.is_file() && mapping.module() == file)
}

/// What a process used, as the kernel counts: `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ProcUsage {
    at: std::time::Instant,
    minor_faults: u64,
    user_ticks: u64,
    system_ticks: u64,
}

impl ProcUsage {
    fn read(pid: u32) -> Option<ProcUsage> {
        let mut bytes = [0; 2048];
        let read = File::open(format!("/proc/{pid}/stat")).ok()?.read_at(&mut bytes, 0).ok()?;
        let stat = task_stat(&bytes[..read])?;
        let count = |value: i64| u64::try_from(value).ok();
        Some(ProcUsage {
            at: std::time::Instant::now(),
            minor_faults: count(stat.minflt)?,
            user_ticks: count(stat.utime)?,
            system_ticks: count(stat.stime)?,
        })
    }
}
