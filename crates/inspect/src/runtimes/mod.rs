//! Runtimes with their own heap: the Java virtual machine and Erlang's.
//!
//! Much of their data can be read without involving them: a JVM exports its counters in memory
//! ([`jvm::perfdata`]), and Erlang's allocators link their carriers ([`erlang::carriers`]). The
//! rest comes from their own tools (`jcmd`, `erl_call`). These run only if [`Options::ask_runtime`]
//! is set, because the process has to do the work, and in a JVM all threads wait for it.

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

/// Whether to ask the runtime, and time limits.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Ask the runtime with its own tool.
    ///
    /// A JVM counts its objects at a safepoint: **all of its threads wait** while the whole heap is
    /// walked, about a second for each gigabyte. Before that it gets the signal `SIGQUIT`, which
    /// starts its attach listener. An Erlang VM keeps running, and has to answer a node that
    /// connects to it.
    pub ask_runtime: bool,
    /// Duration of the measurement of rates. An Erlang VM's carriers are sampled meanwhile.
    pub seconds: f64,
    /// Classes of a JVM that are kept, the largest.
    pub classes_max: usize,
    /// A tool that takes longer is killed. The runtime finishes the request nevertheless.
    pub tool_seconds_max: f64,
}

impl Default for Options {
    fn default() -> Self {
        Options { ask_runtime: false, seconds: 2.0, classes_max: 1_000, tool_seconds_max: 60.0 }
    }
}

/// A runtime and the state of its heap.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Runtime {
    /// A Java virtual machine.
    Jvm(JvmHeap),
    /// Erlang's virtual machine.
    Erlang(ErlangHeap),
}

/// Whether its heap can be inspected.
pub(crate) fn is_any(target: &Target) -> bool {
    jvm::is_jvm(target) || erlang::is_erlang(target)
}

/// Detects the runtime of a process by its mappings, and inspects its heap. `None` if it is
/// neither.
///
/// # Errors
///
/// The process ended, or runs another program now.
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

/// A file in the root directory of the process, up to a size limit. Links are resolved there.
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

/// CPU time and faults of a process: `/proc/PID/stat`.
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
