//! What is kept of a process so that its addresses have names, also after it ended.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::files::{self, Kind, Opening, Taken};
use crate::maps::{self, Mapping};
use crate::opened::{self, Opened};
use crate::target;

/// A maps file of more is cut off.
const MAPS_BYTES_MAX: u64 = 16 << 20;
/// Other directories that are seen as `/`, each of which is held open.
const ROOTS_MAX: usize = 128;
/// Mappings of all processes together: any user can make tens of thousands, of files with long names.
const MAPPINGS_BYTES_MAX: u64 = 128 << 20;

/// Memory that what processes say of themselves may take.
#[derive(Debug)]
pub(crate) struct Budget {
    mappings: u64,
    /// Whether something was left out for it.
    pub(crate) is_spent: bool,
    /// Directories that processes see as `/`, each once: in a service all of the machine's see another one than we.
    roots: HashMap<Seen, Arc<OwnedFd>>,
}

/// Which directory: the mount namespace, and device and inode. Of the latter alone two can have the same, with other things
/// mounted below.
type Seen = (PathBuf, u64, u64);

impl Default for Budget {
    fn default() -> Self {
        Budget { mappings: MAPPINGS_BYTES_MAX, is_spent: false, roots: HashMap::new() }
    }
}

impl Budget {
    /// Mappings, if there is room for them in place of those before.
    fn mappings(&mut self, before: &[Mapping], now: Vec<Mapping>) -> Vec<Mapping> {
        self.mappings += maps::bytes(before);
        match self.mappings.checked_sub(maps::bytes(&now)) {
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

/// The directory that a process sees as `/`.
enum Root {
    /// The same that we see.
    Ours,
    /// Another one. An open directory outlives the process, so that its files can be read then still.
    Other(Arc<OwnedFd>),
    /// Another one that could not be opened.
    Unknown,
}

/// A process, or rather one program that it ran.
pub(crate) struct Process {
    pid: u32,
    /// When it began: its id may be another's one day.
    start_ticks: Option<u64>,
    root: Root,
    /// Its id in its own PID namespace, by which a JIT names its file.
    own_pid: u32,
    /// Who runs it; what others say of it is not believed.
    user: Option<u32>,
    pub(crate) mappings: Vec<Mapping>,
    /// What its compiler wrote, once somebody asked.
    perf_map: Option<Option<Taken>>,
}

impl Process {
    /// Reads what can be read of it.
    pub(crate) fn read(pid: u32, budget: &mut Budget) -> Process {
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

    /// Its id in its own PID namespace.
    pub(crate) fn own_pid(&self) -> u32 {
        self.own_pid
    }

    /// Whether it sees the files that we see, under the same paths.
    pub(crate) fn sees_our_files(&self) -> bool {
        matches!(self.root, Root::Ours)
    }

    /// Takes in what was mapped since, unless the process has ended or runs another program now.
    pub(crate) fn refresh(&mut self, budget: &mut Budget) {
        let now = mappings(self.pid);
        let is_same = match (self.mappings.first(), now.first()) {
            // The lowest code is the program's own, at another address each time that one starts.
            (Some(before), Some(now)) => (before.start, before.inode) == (now.start, now.inode),
            (None, Some(_)) => true,
            _ => false,
        };
        if is_same {
            self.mappings = budget.mappings(&self.mappings, now);
        }
    }

    /// The file behind a mapping, if it is still the one that was mapped.
    pub(crate) fn open(&self, mapping: &Mapping) -> Option<Opened> {
        if !mapping.is_file() {
            return None;
        }
        let of = |handle: OwnedFd| Opened::of(&handle, mapping, self.sees_our_files());
        self.held(mapping).and_then(of).or_else(|| self.named(mapping).and_then(of))
    }

    /// The kernel holds on to a file as long as it is mapped, whatever its name.
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
                opened::handle(rustix::fs::open("/", flags, Mode::empty()).ok()?, &mapping.path)
            }
            Root::Other(dir) => opened::handle(dir.as_ref(), &mapping.path),
            Root::Unknown => None,
        }
    }

    /// The name of a function that was compiled while the process ran.
    pub(crate) fn compiled(&mut self, address: u64, budget: &mut Budget) -> Option<String> {
        self.perf_map(budget)?.name(address)
    }

    /// Whether its runtime writes names of compiled functions at all.
    pub(crate) fn writes_perf_map(&mut self, budget: &mut Budget) -> bool {
        self.perf_map(budget).is_some()
    }

    fn perf_map(&mut self, budget: &mut Budget) -> Option<&Taken> {
        if self.perf_map.is_none() {
            self.perf_map = Some(self.read_perf_map(budget));
        }
        self.perf_map.as_ref()?.as_ref()
    }

    fn read_perf_map(&self, budget: &mut Budget) -> Option<Taken> {
        let path = format!("tmp/perf-{}.map", self.own_pid);
        // Neither a symbolic link nor, below, another name of a file somewhere else: whoever can write to this directory
        // could show a file that only we can read.
        let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let handle = match &self.root {
            Root::Ours => rustix::fs::open(format!("/{path}"), flags, Mode::empty()),
            // A link in a container leads to what the container sees there, not to our files.
            Root::Other(dir) => {
                let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
                rustix::fs::openat2(dir.as_ref(), path.as_str(), flags, Mode::empty(), resolve)
            }
            Root::Unknown => return None,
        };
        let (file, _) = opened::plain(&handle.ok()?)?;
        let meta = file.metadata().ok()?;
        let is_its_own = meta.uid() == 0 || Some(meta.uid()) == self.user;
        if !is_its_own || meta.nlink() != 1 {
            return None;
        }
        match files::take(Kind::PerfMap, &file) {
            Opening::Taken(file) => Some(file),
            Opening::Nothing => None,
            Opening::NoRoom => {
                budget.is_spent = true;
                None
            }
        }
    }
}

fn mappings(pid: u32) -> Vec<Mapping> {
    let file = fs::File::open(format!("/proc/{pid}/maps")).ok();
    file.and_then(|file| text(file, MAPS_BYTES_MAX)).map(|text| maps::parse(&text)).unwrap_or_default()
}

/// A plain file, up to a bound: a pipe in its place would be waited for.
fn text(file: fs::File, bytes_max: u64) -> Option<String> {
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes).ok()?;
    // What is not text is copied, with three bytes for one that makes no sense; what is, which is all but always, is not.
    Some(
        String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
    )
}

fn root(pid: u32, budget: &mut Budget) -> Root {
    let seen = |of: &str| -> Option<Seen> {
        let mounts = fs::read_link(format!("/proc/{of}/ns/mnt")).ok()?;
        // Of a directory the name alone says little: what was detached from the tree is `/` too.
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
        let mut budget = Budget { mappings: maps::bytes(&own) + 1, ..Budget::default() };
        let first = budget.mappings(&[], own.clone());
        assert_eq!(first, own);
        // Of another process there is no room; in place of the first ones there is.
        assert!(budget.mappings(&[], own.clone()).is_empty() && budget.is_spent);
        assert_eq!(budget.mappings(&first, own.clone()), own);
    }
}
