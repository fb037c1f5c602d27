//! What is mapped where in a process: `/proc/PID/maps`.
//!
//! ```text
//! 7f52c0a28000-7f52c0b9d000 r-xp 00028000 08:01 1847  /usr/lib/x86_64-linux-gnu/libc.so.6
//! 7f52c0d00000-7f52c0d21000 rwxp 00000000 00:00 0
//! ```

/// More executable mappings than any program has.
const EXECUTABLE_MAX: usize = 8192;
/// More than any program has of all: the kernel's own bound, `vm.max_map_count`, is 65,530 unless somebody raised it.
const MAPPINGS_MAX: usize = 1 << 20;
/// What the kernel appends to the name of a file that was removed.
const DELETED: &str = " (deleted)";

/// What a process may do with a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Read it.
    pub read: bool,
    /// Write to it.
    pub write: bool,
    /// Run it.
    pub execute: bool,
    /// Whether others see what it writes.
    pub shared: bool,
}

/// A mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// Its first address.
    pub start: u64,
    /// The address behind its last.
    pub end: u64,
    /// What the process may do with it.
    pub access: Access,
    /// Where in the file it begins.
    pub offset: u64,
    /// The device that the file is on, as `stat` has such numbers; zero where there is no file.
    pub device: u64,
    /// The file's inode; zero where there is none.
    pub inode: u64,
    /// The path of the file in the process' own view; `[vdso]` and the like; empty where there is none.
    pub path: String,
    /// Whether the file has been removed, or replaced, since.
    pub is_deleted: bool,
}

impl Mapping {
    /// Its size in addresses, of which not all need be in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Whether there is a file behind it.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.path.starts_with('/') && self.inode != 0
    }

    /// Whether it is memory that the program filled itself, as JIT compilers do. Such memory may have a name (from Linux 5.17
    /// on), or the path of a file that is none: Erlang and .NET map the same pages twice, to write here and run there.
    #[must_use]
    pub fn is_memory(&self) -> bool {
        let of_memory = ["[anon:", "[anon_shmem:", "/memfd:", "/dev/zero"];
        self.path.is_empty()
            || of_memory.iter().any(|start| self.path.starts_with(start))
            || (self.is_deleted && self.path.starts_with("/dev/shm/"))
    }

    /// How a frame names it: the last part of the path.
    #[must_use]
    pub fn module(&self) -> &str {
        if self.path.is_empty() {
            return "anon";
        }
        let name = self.path.rsplit('/').next().unwrap_or(&self.path);
        name.trim_start_matches('[').trim_end_matches(']')
    }
}

/// The executable mappings, in the order of their addresses. Lines that make no sense are passed over.
pub(crate) fn parse(text: &str) -> Vec<Mapping> {
    let executable = |mapping: &Mapping| mapping.access.execute;
    let mut mappings: Vec<Mapping> =
        text.lines().filter_map(mapping).filter(executable).take(EXECUTABLE_MAX).collect();
    mappings.sort_by_key(|mapping| mapping.start);
    mappings
}

/// All mappings, in the order of their addresses, none overlapping. Lines that make no sense are passed over.
pub(crate) fn parse_all(text: &str) -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = text.lines().filter_map(mapping).take(MAPPINGS_MAX).collect();
    mappings.sort_by_key(|mapping| mapping.start);
    // The file is written piece by piece while the process maps and unmaps: the one that was read first is kept.
    let mut behind = 0;
    mappings.retain(|mapping| {
        let is_free = mapping.start >= behind && mapping.start < mapping.end;
        if is_free {
            behind = mapping.end;
        }
        is_free
    });
    mappings
}

fn mapping(line: &str) -> Option<Mapping> {
    let mut rest = line;
    let mut word = || {
        let (word, after) = rest.split_once(' ')?;
        rest = after;
        Some(word)
    };
    let (start, end) = word()?.split_once('-')?;
    let access = word()?.as_bytes().first_chunk::<4>().copied()?;
    let offset = word()?;
    let (major, minor) = word()?.split_once(':')?;
    let device = |text: &str| u32::from_str_radix(text, 16).ok();
    let (inode, path) = rest.split_once(' ').unwrap_or((rest, ""));
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let path = path.trim_start();
    let is_deleted = path.ends_with(DELETED);
    Some(Mapping {
        start: hex(start)?,
        end: hex(end)?,
        access: Access {
            read: access[0] == b'r',
            write: access[1] == b'w',
            execute: access[2] == b'x',
            shared: access[3] == b's',
        },
        offset: hex(offset)?,
        device: rustix::fs::makedev(device(major)?, device(minor)?),
        inode: inode.parse().ok()?,
        path: path.strip_suffix(DELETED).unwrap_or(path).to_owned(),
        is_deleted,
    })
}

/// The memory that mappings take.
pub(crate) fn bytes(mappings: &[Mapping]) -> u64 {
    mappings.iter().map(|mapping| (size_of::<Mapping>() + mapping.path.capacity()) as u64).sum()
}

/// The mapping that an address lies in.
pub(crate) fn find(mappings: &[Mapping], address: u64) -> Option<&Mapping> {
    let after = mappings.partition_point(|mapping| mapping.start <= address);
    mappings.get(after.checked_sub(1)?).filter(|mapping| address < mapping.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d000000000-55d000001000 r--p 00000000 08:01 77                         /usr/bin/a b
55d000001000-55d000003000 r-xp 00001000 08:01 77                         /usr/bin/a b
7f0000000000-7f0000010000 rwxp 00000000 00:00 0 
7f1000000000-7f1000010000 r-xp 00028000 08:01 99                         /opt/lib.so (deleted)
nonsense
7f2000000000-7f2000010000 r-xs 00000000 00:01 1042                       /memfd:vmem (deleted)
7f3000000000-7f3000010000 rwxp 00000000 00:00 0                          [anon:v8]
7ffd00000000-7ffd00002000 r-xp 00000000 00:00 0                          [vdso]
";

    #[test]
    fn code_is_found_by_its_address() {
        let maps = parse(MAPS);
        assert_eq!(maps.len(), 6);
        let at = |address| find(&maps, address).map(|m| (m.module(), m.is_file(), m.is_deleted));
        assert_eq!(maps.first().map(|mapping| mapping.device), Some(rustix::fs::makedev(8, 1)));
        assert_eq!(at(0x55d0_0000_1fff), Some(("a b", true, false)));
        assert_eq!(at(0x7f00_0000_0010), Some(("anon", false, false)));
        assert_eq!(at(0x7f10_0000_0010), Some(("lib.so", true, true)));
        assert_eq!(at(0x7ffd_0000_0010), Some(("vdso", false, false)));
        assert_eq!(at(0x55d0_0000_0000), None, "no code there");
        assert_eq!(at(0x55d0_0000_3000), None, "behind the end");
        assert_eq!(at(0), None);
    }

    #[test]
    fn all_mappings_are_there_when_asked_for() {
        let all = parse_all(MAPS);
        assert_eq!(all.len(), 7);
        assert!(all[0].access.read && !all[0].access.write && !all[0].access.execute);
        assert!(all.iter().all(|m| m.access.shared == m.path.contains("memfd")));
        // Read while it changed: the second overlaps the first.
        let torn = parse_all("1000-3000 rw-p 0 0:0 0\n2000-4000 rw-p 0 0:0 0\n4000-4000 rw-p 0 0:0 0\n");
        assert_eq!(torn.iter().map(|m| (m.start, m.end)).collect::<Vec<_>>(), [(0x1000, 0x3000)]);
    }

    #[test]
    fn memory_that_a_program_fills_is_told_from_files() {
        let memory: Vec<Mapping> = parse(MAPS).into_iter().filter(Mapping::is_memory).collect();
        let names: Vec<&str> = memory.iter().map(Mapping::module).collect();
        assert_eq!(names, ["anon", "memfd:vmem", "anon:v8"]);
    }
}
