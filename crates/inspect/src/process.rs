//! Data of a process that is kept so that its addresses have names, even after it ended.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use mitra_parse::maps::{Mapping, executable_mappings};
use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::files::{self, Kind, RemoteFile, TakeResult};
use crate::mapped_file::{self, MappedFile};
use crate::target;

/// A longer maps file is cut off.
const MAPS_BYTES_MAX: u64 = 16 << 20;
/// Root directories other than ours, each held open.
const ROOTS_MAX: usize = 128;
/// Limit of the mappings of all processes: any user can make tens of thousands, of files with long
/// names.
const MAPPINGS_BYTES_MAX: u64 = 128 << 20;

/// Limits the memory for the mappings of processes.
#[derive(Debug)]
pub(crate) struct MapsBudget {
    mappings: u64,
    /// Whether something was left out.
    pub(crate) is_spent: bool,
    /// Root directories of processes, each opened once: as a service, we have another root than all
    /// of them.
    roots: HashMap<RootId, Arc<OwnedFd>>,
}

/// Mount namespace, device and inode. Two directories can have the same device and inode, with
/// different mounts below.
type RootId = (PathBuf, u64, u64);

impl Default for MapsBudget {
    fn default() -> Self {
        MapsBudget { mappings: MAPPINGS_BYTES_MAX, is_spent: false, roots: HashMap::new() }
    }
}

impl MapsBudget {
    /// The new mappings if they fit in place of those before.
    fn mappings(&mut self, before: &[Mapping], now: Vec<Mapping>) -> Vec<Mapping> {
        self.mappings += bytes_of(before);
        match self.mappings.checked_sub(bytes_of(&now)) {
            Some(left) => {
                self.mappings = left;
                now
            }
            None => {
                self.is_spent = true;
                Vec::new()
            }
        }
    }
}

/// The root directory of a process.
enum Root {
    /// The same as ours.
    Ours,
    /// Another one. The open descriptor outlives the process, so that its files can still be read.
    Other(Arc<OwnedFd>),
    Unknown,
}

/// A process, or rather one program that it ran.
pub(crate) struct Process {
    pid: u32,
    /// Start time in clock ticks after boot; ids are reused.
    start_ticks: Option<u64>,
    root: Root,
    /// Its id in its own PID namespace, which is in the name of its perf map.
    own_pid: u32,
    /// Its user. Perf maps of other users are ignored.
    user: Option<u32>,
    pub(crate) mappings: Vec<Mapping>,
    /// Read at the first request.
    perf_map: Option<Option<RemoteFile>>,
}

impl Process {
    pub(crate) fn read(pid: u32, budget: &mut MapsBudget) -> Process {
        let pid = target::living(pid);
        Process {
            pid,
            start_ticks: target::start_ticks(pid),
            root: root(pid, budget),
            own_pid: own_pid(pid).unwrap_or(pid),
            user: fs::metadata(format!("/proc/{pid}")).ok().map(|meta| meta.uid()),
            mappings: budget.mappings(&[], mappings(pid)),
            perf_map: None,
        }
    }

    pub(crate) fn own_pid(&self) -> u32 {
        self.own_pid
    }

    /// Whether it has our root directory.
    pub(crate) fn sees_our_files(&self) -> bool {
        matches!(self.root, Root::Ours)
    }

    /// Reads the mappings again, unless the process ended or runs another program.
    pub(crate) fn refresh(&mut self, budget: &mut MapsBudget) {
        let now = mappings(self.pid);
        let is_same = match (self.mappings.first(), now.first()) {
            // The lowest code is the program's, at another address each time it starts.
            (Some(before), Some(now)) => (before.start, before.inode) == (now.start, now.inode),
            (None, Some(_)) => true,
            _ => false,
        };
        if is_same {
            self.mappings = budget.mappings(&self.mappings, now);
        }
    }

    /// The mapped file, if it can still be opened.
    pub(crate) fn open(&self, mapping: &Mapping) -> Option<MappedFile> {
        if !mapping.is_file() {
            return None;
        }
        let of = |handle: OwnedFd| MappedFile::of(&handle, mapping, self.sees_our_files());
        self.held(mapping).and_then(of).or_else(|| self.named(mapping).and_then(of))
    }

    /// Opens the file through `map_files`, which works for removed files too.
    fn held(&self, mapping: &Mapping) -> Option<OwnedFd> {
        let path = format!("/proc/{}/map_files/{:x}-{:x}", self.pid, mapping.start, mapping.end);
        let handle = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        (self.start_ticks.is_some() && target::start_ticks(self.pid) == self.start_ticks).then_some(handle)
    }

    fn named(&self, mapping: &Mapping) -> Option<OwnedFd> {
        if mapping.is_deleted {
            return None;
        }
        match &self.root {
            Root::Ours => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                mapped_file::handle(rustix::fs::open("/", flags, Mode::empty()).ok()?, &mapping.path)
            }
            Root::Other(dir) => mapped_file::handle(dir.as_ref(), &mapping.path),
            Root::Unknown => None,
        }
    }

    /// The name of JIT-compiled code.
    pub(crate) fn compiled(&mut self, address: u64, budget: &mut MapsBudget) -> Option<String> {
        self.perf_map(budget)?.name(address)
    }

    /// Whether there is a perf map.
    pub(crate) fn writes_perf_map(&mut self, budget: &mut MapsBudget) -> bool {
        self.perf_map(budget).is_some()
    }

    fn perf_map(&mut self, budget: &mut MapsBudget) -> Option<&RemoteFile> {
        if self.perf_map.is_none() {
            self.perf_map = Some(self.read_perf_map(budget));
        }
        self.perf_map.as_ref()?.as_ref()
    }

    fn read_perf_map(&self, budget: &mut MapsBudget) -> Option<RemoteFile> {
        let path = format!("tmp/perf-{}.map", self.own_pid);
        // Neither symbolic nor hard links: a user who can write to /tmp could present a file that
        // only we can read.
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let handle = match &self.root {
            Root::Ours => rustix::fs::open(format!("/{path}"), flags, Mode::empty()),
            // Links are resolved in the container's root, never in ours.
            Root::Other(dir) => {
                let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
                rustix::fs::openat2(dir.as_ref(), path.as_str(), flags, Mode::empty(), resolve)
            }
            Root::Unknown => return None,
        };
        let (file, _) = mapped_file::plain(&handle.ok()?)?;
        let meta = file.metadata().ok()?;
        let is_its_own = meta.uid() == 0 || Some(meta.uid()) == self.user;
        if !is_its_own || meta.nlink() != 1 {
            return None;
        }
        match files::take(Kind::PerfMap, &file) {
            TakeResult::Taken(file) => Some(file),
            TakeResult::Nothing => None,
            TakeResult::NoRoom => {
                budget.is_spent = true;
                None
            }
        }
    }
}

/// The memory that mappings take.
fn bytes_of(mappings: &[Mapping]) -> u64 {
    mappings.iter().map(|mapping| (size_of::<Mapping>() + mapping.path.capacity()) as u64).sum()
}

fn mappings(pid: u32) -> Vec<Mapping> {
    let file = fs::File::open(format!("/proc/{pid}/maps")).ok();
    let text = file.and_then(|file| text(file, MAPS_BYTES_MAX)).unwrap_or_default();
    executable_mappings(text.as_bytes())
}

/// A regular file, up to a limit. Reading a pipe would block.
fn text(file: fs::File, bytes_max: u64) -> Option<String> {
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes).ok()?;
    // Only invalid UTF-8 is copied.
    Some(
        String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
    )
}

fn root(pid: u32, budget: &mut MapsBudget) -> Root {
    let seen = |of: &str| -> Option<RootId> {
        let mounts = fs::read_link(format!("/proc/{of}/ns/mnt")).ok()?;
        // The path says little: a detached tree is `/` too.
        let root = fs::metadata(format!("/proc/{of}/root")).ok()?;
        Some((mounts, root.dev(), root.ino()))
    };
    let (Some(ours), Some(its)) = (seen("self"), seen(&pid.to_string())) else { return Root::Unknown };
    if ours == its {
        return Root::Ours;
    }
    if let Some(dir) = budget.roots.get(&its) {
        return Root::Other(Arc::clone(dir));
    }
    if budget.roots.len() >= ROOTS_MAX {
        return Root::Unknown;
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(dir) = rustix::fs::open(format!("/proc/{pid}/root"), flags, Mode::empty()) else {
        return Root::Unknown;
    };
    let dir = Arc::new(dir);
    budget.roots.insert(its, Arc::clone(&dir));
    Root::Other(dir)
}

/// The last number of the line `NStgid:` of its status.
fn own_pid(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NStgid:"))?;
    line.split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_processes_say_of_themselves_takes_no_more_than_there_is_for_it() {
        let own = mappings(std::process::id());
        let mut budget = MapsBudget { mappings: bytes_of(&own) + 1, ..MapsBudget::default() };
        let first = budget.mappings(&[], own.clone());
        assert_eq!(first, own);
        // For another process there is no room; as a replacement of the first ones there is.
        assert!(budget.mappings(&[], own.clone()).is_empty() && budget.is_spent);
        assert_eq!(budget.mappings(&first, own.clone()), own);
    }
}
