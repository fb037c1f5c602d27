//! What is kept of a process so that its addresses have names, also after it ended.

use std::fs;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::maps::{self, Mapping};
use crate::perfmap::PerfMap;

/// A maps file of more is cut off.
const MAPS_BYTES_MAX: u64 = 16 << 20;
/// A perf map of more is cut off.
const PERF_MAP_BYTES_MAX: u64 = 32 << 20;
/// Perf maps of all processes together: any user can write one of any size.
const PERF_MAPS_BYTES_MAX: u64 = 256 << 20;
/// Mappings of all processes together: any user can make tens of thousands, of files with long names.
const MAPPINGS_BYTES_MAX: u64 = 128 << 20;

/// Memory that what processes say of themselves may take.
#[derive(Debug)]
pub(crate) struct Budget {
    perf_maps: u64,
    mappings: u64,
    /// Whether something was left out for it.
    pub(crate) is_spent: bool,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { perf_maps: PERF_MAPS_BYTES_MAX, mappings: MAPPINGS_BYTES_MAX, is_spent: false }
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

    /// A perf map, if there is room for it.
    fn perf_map(&mut self, map: PerfMap) -> PerfMap {
        match self.perf_maps.checked_sub(map.bytes()) {
            Some(left) => {
                self.perf_maps = left;
                map
            }
            None => {
                self.is_spent = true;
                PerfMap::default()
            }
        }
    }
}

/// The directory that a process sees as `/`.
enum Root {
    /// The same that we see.
    Ours,
    /// Another one. An open directory outlives the process, so that its files can be read then still.
    Other(OwnedFd),
    /// Another one that could not be opened.
    Unknown,
}

/// A process, or rather one program that it ran.
pub(crate) struct Process {
    pid: u32,
    root: Root,
    /// Its id in its own PID namespace, by which a JIT names its file.
    own_pid: u32,
    /// Who runs it; what others say of it is not believed.
    user: Option<u32>,
    pub(crate) mappings: Vec<Mapping>,
    perf_map: Option<PerfMap>,
}

impl Process {
    /// Reads what can be read of it. `may_hold_root` allows one open file.
    pub(crate) fn read(pid: u32, may_hold_root: bool, budget: &mut Budget) -> Process {
        Process {
            pid,
            root: root(pid, may_hold_root),
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

    /// Whether it holds a file open.
    pub(crate) fn holds_root(&self) -> bool {
        matches!(self.root, Root::Other(_))
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

    /// The path by which we reach a file that the process sees under `path`.
    fn reach(&self, path: &str) -> Option<PathBuf> {
        match &self.root {
            Root::Ours => Some(PathBuf::from(path)),
            Root::Other(dir) => Some(format!("/proc/self/fd/{}{path}", dir.as_raw_fd()).into()),
            Root::Unknown => None,
        }
    }

    /// The file behind a mapping, if it is still the one that was mapped.
    pub(crate) fn file(&self, mapping: &Mapping) -> Option<PathBuf> {
        if !mapping.is_file() {
            return None;
        }
        let is_it = |path: &PathBuf| fs::metadata(path).is_ok_and(|meta| meta.ino() == mapping.inode);
        let named = if mapping.is_deleted { None } else { self.reach(&mapping.path) };
        if let Some(path) = named.filter(is_it) {
            return Some(path);
        }
        // The kernel holds on to it as long as it is mapped, whatever its name.
        let held = format!("/proc/{}/map_files/{:x}-{:x}", self.pid, mapping.start, mapping.end);
        Some(PathBuf::from(held)).filter(is_it)
    }

    /// The name of a function that was compiled while the process ran.
    pub(crate) fn compiled(&mut self, address: u64, budget: &mut Budget) -> Option<&str> {
        if self.perf_map.is_none() {
            let map = self.read_perf_map(budget).unwrap_or_default();
            self.perf_map = Some(budget.perf_map(map));
        }
        self.perf_map.as_ref()?.name(address)
    }

    /// Whether its runtime writes names of compiled functions at all.
    pub(crate) fn writes_perf_map(&mut self, budget: &mut Budget) -> bool {
        _ = self.compiled(0, budget);
        self.perf_map.as_ref().is_some_and(|map| !map.is_empty())
    }

    fn read_perf_map(&self, budget: &mut Budget) -> Option<PerfMap> {
        let path = format!("tmp/perf-{}.map", self.own_pid);
        // Neither a symbolic link nor, below, another name of a file somewhere else: whoever can write to this directory
        // could show a file that only we can read.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = match &self.root {
            Root::Ours => rustix::fs::open(format!("/{path}"), flags, Mode::empty()),
            // A link in a container leads to what the container sees there, not to our files.
            Root::Other(dir) => {
                rustix::fs::openat2(dir, path.as_str(), flags, Mode::empty(), ResolveFlags::IN_ROOT)
            }
            Root::Unknown => return None,
        };
        let file = fs::File::from(file.ok()?);
        let meta = file.metadata().ok()?;
        let is_its_own = meta.uid() == 0 || Some(meta.uid()) == self.user;
        if !is_its_own || !meta.is_file() || meta.nlink() != 1 {
            return None;
        }
        if budget.perf_maps == 0 {
            budget.is_spent = true;
            return None;
        }
        Some(PerfMap::parse(&text(file, PERF_MAP_BYTES_MAX.min(budget.perf_maps))?))
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

fn root(pid: u32, may_hold: bool) -> Root {
    // Of a directory the name alone says little: what was detached from the tree is `/` too.
    let of = |of: &str, what: &str| {
        let path = format!("/proc/{of}/{what}");
        let meta = fs::metadata(&path).ok()?;
        Some((fs::read_link(&path).ok()?, meta.dev(), meta.ino()))
    };
    let its = pid.to_string();
    let (Some(ours), Some(mounts)) = (of("self", "ns/mnt"), of(&its, "ns/mnt")) else { return Root::Unknown };
    let root = of(&its, "root");
    if ours == mounts && root.is_some() && root == of("self", "root") {
        return Root::Ours;
    }
    if !may_hold {
        return Root::Unknown;
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::open(format!("/proc/{pid}/root"), flags, Mode::empty()) {
        Ok(dir) => Root::Other(dir),
        Err(_) => Root::Unknown,
    }
}

/// The last number of the line `NSpid:` of its status.
fn own_pid(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_processes_say_of_themselves_takes_no_more_than_there_is_for_it() {
        let map = |names: usize| PerfMap::parse(&"1000 10 name\n".repeat(names));
        let mut budget = Budget { perf_maps: map(5).bytes(), ..Budget::default() };
        assert!(budget.perf_map(map(6)).is_empty() && budget.is_spent);
        budget.is_spent = false;
        assert!(!budget.perf_map(map(3)).is_empty() && !budget.is_spent);
        assert!(budget.perf_map(map(3)).is_empty() && budget.is_spent);

        let own = mappings(std::process::id());
        let mut budget = Budget { mappings: maps::bytes(&own) + 1, ..Budget::default() };
        let first = budget.mappings(&[], own.clone());
        assert_eq!(first, own);
        // Of another process there is no room; in place of the first ones there is.
        assert!(budget.mappings(&[], own.clone()).is_empty() && budget.is_spent);
        assert_eq!(budget.mappings(&first, own.clone()), own);
    }
}
