//! `/proc/PID/maps`: the mappings of a process.
//!
//! ```text
//! 7f52c0a28000-7f52c0b9d000 r-xp 00028000 08:01 1847  /usr/lib/x86_64-linux-gnu/libc.so.6
//! 7f52c0d00000-7f52c0d21000 rwxp 00000000 00:00 0
//! ```
//!
//! See `proc_pid_maps(5)` and `show_map_vma` in `fs/proc/task_mmu.c`.

/// Upper bound for executable mappings. No program has as many.
const EXECUTABLE_MAX: usize = 8192;
/// Upper bound for mappings. The kernel's own bound, `vm.max_map_count`, is 65,530 by default.
const MAPPINGS_MAX: usize = 1 << 20;
/// The kernel appends this to the path of a file that was removed.
const DELETED: &str = " (deleted)";

/// The permissions of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// `PROT_READ`.
    pub read: bool,
    /// `PROT_WRITE`.
    pub write: bool,
    /// `PROT_EXEC`.
    pub execute: bool,
    /// `MAP_SHARED`; a private mapping otherwise.
    pub shared: bool,
}

/// One mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// The permissions.
    pub access: Access,
    /// The offset in the file, in bytes.
    pub offset: u64,
    /// The device of the file as `st_dev` has it; 0 without a file.
    pub device: u64,
    /// The inode of the file; 0 without a file.
    pub inode: u64,
    /// The path of the file in the mount namespace of the process; `[heap]`, `[vdso]` and the like; empty for anonymous
    /// memory without a name.
    pub path: String,
    /// Whether the file was removed or replaced.
    pub is_deleted: bool,
}

impl Mapping {
    /// The size of the address range. Not all of it need be resident.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Whether a file is mapped.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.path.starts_with('/') && self.inode != 0
    }

    /// Whether no permission is set: reserved address space, such as the rest of a malloc arena.
    #[must_use]
    pub fn is_reserved(&self) -> bool {
        !(self.access.read || self.access.write || self.access.execute)
    }

    /// Whether the program filled the memory itself, as JIT compilers do. Such memory may have a name (since Linux 5.17) or
    /// the path of a file that is not on a disk: Erlang and .NET map the same pages twice, to write and to execute them.
    #[must_use]
    pub fn is_memory(&self) -> bool {
        let of_memory = ["[anon:", "[anon_shmem:", "/memfd:", "/dev/zero"];
        self.path.is_empty()
            || of_memory.iter().any(|start| self.path.starts_with(start))
            || (self.is_deleted && self.path.starts_with("/dev/shm/"))
    }

    /// The name in a stack frame: the last part of the path.
    #[must_use]
    pub fn module(&self) -> &str {
        if self.path.is_empty() {
            return "anon";
        }
        let name = self.path.rsplit('/').next().unwrap_or(&self.path);
        name.trim_start_matches('[').trim_end_matches(']')
    }
}

/// The executable mappings, by address. Damaged lines are skipped.
#[must_use]
pub fn executable_mappings(input: &[u8]) -> Vec<Mapping> {
    let list = complete_lines(input).filter_map(mapping).filter(|mapping| mapping.access.execute);
    by_address(list.take(EXECUTABLE_MAX).collect())
}

/// All mappings by address, none overlapping. Damaged lines are skipped.
#[must_use]
pub fn mappings(input: &[u8]) -> Vec<Mapping> {
    let mut mappings = by_address(complete_lines(input).filter_map(mapping).take(MAPPINGS_MAX).collect());
    // The kernel writes the file piece by piece while the process maps and unmaps: of an overlap the first is kept.
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

fn by_address(mut mappings: Vec<Mapping>) -> Vec<Mapping> {
    mappings.sort_by_key(|mapping| mapping.start);
    mappings
}

/// Without a last line that was cut off, whose path may be the beginning of another.
fn complete_lines(input: &[u8]) -> impl Iterator<Item = &[u8]> {
    input.split_inclusive(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\n"))
}

/// Reads one line. It is also the header of a mapping in `smaps`.
pub(crate) fn mapping(line: &[u8]) -> Option<Mapping> {
    let line = String::from_utf8_lossy(line);
    let mut words = line.splitn(5, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let access = words.next()?.as_bytes().first_chunk::<4>().copied()?;
    let offset = words.next()?;
    let (major, minor) = words.next()?.split_once(':')?;
    let rest = words.next()?;
    let (inode, path) = rest.split_once(' ').unwrap_or((rest, ""));
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let device = |text: &str| u32::from_str_radix(text, 16).ok();
    let path = path.trim_start();
    let is_deleted = path.ends_with(DELETED);
    Some(Mapping {
        start: number(start)?,
        end: number(end)?,
        access: Access {
            read: access[0] == b'r',
            write: access[1] == b'w',
            execute: access[2] == b'x',
            shared: access[3] == b's',
        },
        offset: number(offset)?,
        device: makedev(device(major)?, device(minor)?),
        inode: inode.parse().ok()?,
        path: path.strip_suffix(DELETED).unwrap_or(path).to_owned(),
        is_deleted,
    })
}

/// `makedev(3)` of glibc, by which `st_dev` is made.
fn makedev(major: u32, minor: u32) -> u64 {
    let (major, minor) = (u64::from(major), u64::from(minor));
    (major & 0xffff_f000) << 32 | (major & 0xfff) << 8 | (minor & 0xffff_ff00) << 12 | minor & 0xff
}

/// The mapping that holds an address, of mappings by address.
#[must_use]
pub fn find_mapping(mappings: &[Mapping], address: u64) -> Option<&Mapping> {
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
        let maps = executable_mappings(MAPS.as_bytes());
        assert_eq!(maps.len(), 6);
        let at = |address| find_mapping(&maps, address).map(|m| (m.module(), m.is_file(), m.is_deleted));
        assert_eq!(at(0x55d0_0000_1fff), Some(("a b", true, false)));
        assert_eq!(at(0x7f00_0000_0010), Some(("anon", false, false)));
        assert_eq!(at(0x7f10_0000_0010), Some(("lib.so", true, true)));
        assert_eq!(at(0x7ffd_0000_0010), Some(("vdso", false, false)));
        assert_eq!(at(0x55d0_0000_0000), None, "no code there");
        assert_eq!(at(0x55d0_0000_3000), None, "behind the end");
        assert_eq!(at(0), None);
    }

    #[test]
    fn devices_are_numbered_as_stat_does() {
        let device = |text: &str| mapping(text.as_bytes()).map(|mapping| mapping.device);
        assert_eq!(device("1-2 r--p 0 08:01 77 /a"), Some(0x801));
        assert_eq!(device("1-2 r--p 0 103:10001 77 /a"), Some(0x1001_0301));
        assert_eq!(device("1-2 r--p 0 0801 77 /a"), None);
    }

    #[test]
    fn all_mappings_are_there_when_asked_for() {
        let all = mappings(MAPS.as_bytes());
        assert_eq!(all.len(), 7);
        assert!(all[0].access.read && !all[0].access.write && !all[0].access.execute);
        assert!(all.iter().all(|m| m.access.shared == m.path.contains("memfd")));
        assert!(!all.iter().any(Mapping::is_reserved));
        // Read while it changed: the second overlaps the first.
        let torn = mappings(b"1000-3000 rw-p 0 0:0 0\n2000-4000 rw-p 0 0:0 0\n4000-4000 rw-p 0 0:0 0\n");
        assert_eq!(torn.iter().map(|m| (m.start, m.end)).collect::<Vec<_>>(), [(0x1000, 0x3000)]);
    }

    #[test]
    fn a_line_that_was_cut_off_is_skipped() {
        assert_eq!(mappings(MAPS.trim_end().as_bytes()).len(), 6);
        for end in 0..MAPS.len() {
            assert!(mappings(&MAPS.as_bytes()[..end]).len() <= 7);
        }
    }

    #[test]
    fn memory_that_a_program_fills_is_told_from_files() {
        let all = executable_mappings(MAPS.as_bytes());
        let names: Vec<&str> = all.iter().filter(|m| m.is_memory()).map(Mapping::module).collect();
        assert_eq!(names, ["anon", "memfd:vmem", "anon:v8"]);
    }
}
