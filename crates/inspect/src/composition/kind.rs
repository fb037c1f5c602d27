//! The kind of a mapping, by its line of `/proc/PID/maps`, its neighbours, and the stack pointers
//! of threads.
//!
//! ```text
//! 55d000001000-55d000003000 r-xp 00001000 08:01 77   /usr/bin/a      code
//! 55d000004000-55d000005000 rw-p 00004000 08:01 77   /usr/bin/a      data
//! 55d000005000-55d000009000 rw-p 00000000 00:00 0                    data: .bss, behind the file's
//! 55d001000000-55d001021000 rw-p 00000000 00:00 0    [heap]          heap
//! 7f0000000000-7f0000001000 ---p 00000000 00:00 0                    reserved: a stack's guard
//! 7f0000001000-7f0000801000 rw-p 00000000 00:00 0                    thread stack
//! ```

use std::fmt;

use mitra_parse::maps::Mapping;
use serde::{Deserialize, Serialize};

use super::mounts::Mounts;
use super::stacks;
use crate::target::Target;

/// The kinds of mappings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MappingKind {
    /// `[heap]`: the program break.
    Heap,
    /// Private memory without a file: other malloc arenas, large blocks, heaps of runtimes.
    Anonymous,
    /// The same with a name from the program (`prctl(PR_SET_VMA)`, since Linux 5.17).
    NamedAnonymous,
    /// The stack of a thread other than the main one.
    ThreadStack,
    /// The stack of the main thread.
    MainStack,
    /// Executable parts of files.
    Code,
    /// Private read-only parts of files: constants, locales, fonts.
    ReadOnly,
    /// Private writable parts of files: variables, with `.bss`.
    Data,
    /// Shared mappings of files, whose pages are in the page cache.
    SharedFile,
    /// Shared memory: tmpfs, `/dev/shm`, memfd, System V, shared anonymous mappings.
    SharedMemory,
    /// Pages of hugetlbfs, which are not in the resident set.
    HugeTlb,
    /// Memory of a device.
    Device,
    /// Mapped by the kernel: `[vdso]`, `[vvar]`.
    Kernel,
    /// Without access: guard pages, and room for heaps to grow.
    Reserved,
}

impl MappingKind {
    /// Its name.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            MappingKind::Heap => "heap",
            MappingKind::Anonymous => "anonymous",
            MappingKind::NamedAnonymous => "anonymous, named",
            MappingKind::ThreadStack => "thread stacks",
            MappingKind::MainStack => "main stack",
            MappingKind::Code => "code",
            MappingKind::ReadOnly => "read-only files",
            MappingKind::Data => "data of files",
            MappingKind::SharedFile => "shared files",
            MappingKind::SharedMemory => "shared memory",
            MappingKind::HugeTlb => "hugetlbfs",
            MappingKind::Device => "device",
            MappingKind::Kernel => "kernel's own",
            MappingKind::Reserved => "reserved",
        }
    }

    /// Whether a heap can lie in it.
    #[must_use]
    pub const fn is_heap(self) -> bool {
        matches!(self, MappingKind::Heap | MappingKind::Anonymous | MappingKind::NamedAnonymous)
    }
}

impl fmt::Display for MappingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// Smallest stack: `PTHREAD_STACK_MIN` of glibc.
const STACK_MIN: u64 = 16 << 10;
/// Largest stack. The kernel may have merged a stack with what is behind it.
const STACK_MAX: u64 = 256 << 20;
/// Largest guard below a stack; more is room reserved for a heap.
const GUARD_MAX: u64 = 128 << 10;
/// Other heaps of glibc's malloc begin at multiples of `HEAP_MAX_SIZE`, where the reservation of
/// the one below ends.
const MALLOC_HEAP: u64 = 64 << 20;
/// Longer than a `.bss`: merged with other memory.
const BSS_MAX: u64 = 512 << 10;

/// Classifies mappings in the order of their addresses.
pub(super) struct Classifier {
    mounts: Mounts,
    /// Stack pointers of sleeping threads, sorted.
    stacks: Vec<u64>,
    /// The previous mapping.
    before: Option<Previous>,
}

struct Previous {
    end: u64,
    bytes: u64,
    kind: MappingKind,
    name: Option<String>,
}

impl Classifier {
    pub(super) fn of(target: &Target) -> Self {
        Self::new(Mounts::of(target.pid()), stacks::pointers(target.pid()))
    }

    pub(super) fn new(mounts: Mounts, mut stacks: Vec<u64>) -> Self {
        stacks.sort_unstable();
        Self { mounts, stacks, before: None }
    }

    pub(super) fn classify(&mut self, mapping: &Mapping) -> (MappingKind, Option<String>) {
        let (kind, name) = self.kind(mapping);
        self.before = Some(Previous { end: mapping.end, bytes: mapping.bytes(), kind, name: name.clone() });
        (kind, name)
    }

    fn kind(&self, mapping: &Mapping) -> (MappingKind, Option<String>) {
        let access = mapping.access;
        let path = mapping.path.as_str();
        let no_access = !access.read && !access.write && !access.execute;
        match path {
            "[heap]" => return (MappingKind::Heap, None),
            "[stack]" => return (MappingKind::MainStack, None),
            _ if is_kernel(path) => return (MappingKind::Kernel, Some(path.to_owned())),
            _ => {}
        }
        if path.is_empty() || path == "/dev/zero" && !access.shared {
            return self.without_name(mapping, no_access);
        }
        if let Some(name) = inside(path, "[anon:") {
            // glibc names its mappings with `glibc.mem.decorate_maps`.
            let kind = match name.contains("pthread stack") || name.starts_with("stack") {
                _ if no_access => return (MappingKind::Reserved, None),
                true => return (MappingKind::ThreadStack, None),
                false => MappingKind::NamedAnonymous,
            };
            return (kind, Some(name.to_owned()));
        }
        if path.starts_with('[') {
            let name = inside(path, "[anon_shmem:").unwrap_or(path);
            let kind = if access.shared { MappingKind::SharedMemory } else { MappingKind::NamedAnonymous };
            return (kind, Some(name.to_owned()));
        }
        (self.of_file(mapping, no_access), Some(file_name(mapping)))
    }

    fn without_name(&self, mapping: &Mapping, no_access: bool) -> (MappingKind, Option<String>) {
        if mapping.access.shared {
            return (MappingKind::SharedMemory, None);
        }
        if no_access {
            return (MappingKind::Reserved, None);
        }
        let beside = self.before.as_ref().filter(|before| before.end == mapping.start);
        let bytes = mapping.bytes();
        if let Some(before) = beside.filter(|before| before.kind == MappingKind::Data && bytes <= BSS_MAX)
            && mapping.access.write
        {
            return (MappingKind::Data, before.name.clone());
        }
        let may_be_stack = mapping.access.write && (STACK_MIN..=STACK_MAX).contains(&bytes);
        let first = self.stacks.partition_point(|pointer| *pointer < mapping.start);
        let is_used = self.stacks.get(first).is_some_and(|pointer| *pointer < mapping.end);
        let is_guarded = beside
            .is_some_and(|before| before.kind == MappingKind::Reserved && before.bytes <= GUARD_MAX)
            && !mapping.start.is_multiple_of(MALLOC_HEAP);
        if may_be_stack && (is_used || is_guarded) {
            return (MappingKind::ThreadStack, None);
        }
        (MappingKind::Anonymous, None)
    }

    fn of_file(&self, mapping: &Mapping, no_access: bool) -> MappingKind {
        let (path, access) = (mapping.path.as_str(), mapping.access);
        let is_hugetlb = path == "/anon_hugepage" || self.mounts.is_hugetlb(path);
        let is_memory = ["/memfd:", "/SYSV", "/dev/zero", "/dev/shm/"].iter().any(|p| path.starts_with(p));
        match () {
            () if is_hugetlb => MappingKind::HugeTlb,
            () if no_access => MappingKind::Reserved,
            () if is_memory => MappingKind::SharedMemory,
            // In containers that is a tmpfs with devices.
            () if path.starts_with("/dev/") => MappingKind::Device,
            () if access.shared && self.mounts.is_tmpfs(path) => MappingKind::SharedMemory,
            () if access.shared => MappingKind::SharedFile,
            () if access.execute => MappingKind::Code,
            () if access.write => MappingKind::Data,
            () => MappingKind::ReadOnly,
        }
    }
}

fn is_kernel(path: &str) -> bool {
    ["[vdso", "[vvar", "[vsyscall", "[sigpage", "[vectors", "[uprobes"]
        .iter()
        .any(|name| path.starts_with(name))
}

fn inside<'a>(path: &'a str, before: &str) -> Option<&'a str> {
    path.strip_prefix(before).map(|rest| rest.strip_suffix(']').unwrap_or(rest).trim())
}

fn file_name(mapping: &Mapping) -> String {
    // Segments of System V and memfds count as deleted from their creation.
    let is_plain =
        mapping.is_deleted && !mapping.path.starts_with("/SYSV") && !mapping.path.starts_with("/memfd:");
    if is_plain { format!("{} (deleted)", mapping.path) } else { mapping.path.clone() }
}

#[cfg(test)]
mod tests {
    use mitra_parse::maps::mappings;

    use super::*;

    const MOUNTS: &[u8] = b"\
/dev/vda1 / ext4 rw,relatime 0 0
tmpfs /run tmpfs rw,nosuid,size=1g 0 0
hugetlbfs /dev/huge\\040pages hugetlbfs rw,relatime 0 0
";

    fn classified(maps: &str, stacks: &[u64]) -> Vec<(MappingKind, Option<String>)> {
        let mut kinds = Classifier::new(Mounts::parse(MOUNTS), stacks.to_vec());
        mappings(maps.as_bytes()).iter().map(|mapping| kinds.classify(mapping)).collect()
    }

    #[test]
    fn a_program_with_its_heap_and_stacks() {
        let maps = "\
55d000000000-55d000001000 r--p 00000000 08:01 77 /usr/bin/a
55d000001000-55d000003000 r-xp 00001000 08:01 77 /usr/bin/a
55d000004000-55d000005000 rw-p 00004000 08:01 77 /usr/bin/a
55d000005000-55d000009000 rw-p 00000000 00:00 0 
55d001000000-55d001021000 rw-p 00000000 00:00 0 [heap]
7f0000000000-7f0000001000 ---p 00000000 00:00 0 
7f0000001000-7f0000801000 rw-p 00000000 00:00 0 
7f0001000000-7f0001800000 rw-p 00000000 00:00 0 
7f0004000000-7f0004021000 rw-p 00000000 00:00 0 
7f0004021000-7f0007ff0000 ---p 00000000 00:00 0 
7f0007ff0000-7f0008000000 ---p 00000000 00:00 0 
7f0008000000-7f0008021000 rw-p 00000000 00:00 0 
7f1000000000-7f1000010000 r-xp 00028000 08:01 99 /opt/lib.so (deleted)
7f2000000000-7f2000010000 rw-p 00000000 00:00 0 [anon: glibc: pthread stack: 812]
7f2000020000-7f2000030000 rw-p 00000000 00:00 0 [anon:v8]
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0 [stack]
7ffd00052000-7ffd00054000 r-xp 00000000 00:00 0 [vdso]
";
        let a = || Some("/usr/bin/a".to_owned());
        let kinds = classified(maps, &[0x7f00_01ff_f000, 0x7f00_017f_f000]);
        let wanted = [
            (MappingKind::ReadOnly, a()),
            (MappingKind::Code, a()),
            (MappingKind::Data, a()),
            (MappingKind::Data, a()),
            (MappingKind::Heap, None),
            (MappingKind::Reserved, None),
            (MappingKind::ThreadStack, None),
            (MappingKind::ThreadStack, None),
            (MappingKind::Anonymous, None),
            (MappingKind::Reserved, None),
            (MappingKind::Reserved, None),
            // Behind a small reservation, and still a heap of malloc.
            (MappingKind::Anonymous, None),
            (MappingKind::Code, Some("/opt/lib.so (deleted)".to_owned())),
            (MappingKind::ThreadStack, None),
            (MappingKind::NamedAnonymous, Some("v8".to_owned())),
            (MappingKind::MainStack, None),
            (MappingKind::Kernel, Some("[vdso]".to_owned())),
        ];
        assert_eq!(kinds, wanted);
    }

    #[test]
    fn what_is_shared_is_told_from_files() {
        let maps = "\
7f0000000000-7f0000001000 rw-s 00000000 00:01 5 /dev/shm/x
7f0000001000-7f0000002000 rw-s 00000000 00:01 5 /SYSV00000000 (deleted)
7f0000002000-7f0000003000 rw-s 00000000 00:01 5 /memfd:pool (deleted)
7f0000003000-7f0000004000 rw-s 00000000 00:01 5 /dev/zero (deleted)
7f0000004000-7f0000005000 rw-s 00000000 00:1a 5 /run/ring
7f0000005000-7f0000006000 rw-s 00000000 08:01 5 /var/db
7f0000006000-7f0000007000 rw-s 00000000 00:05 5 /dev/dri/card0
7f0000200000-7f0000400000 rw-p 00000000 00:0f 5 /anon_hugepage (deleted)
7f0000400000-7f0000600000 rw-s 00000000 00:1b 5 /dev/huge pages/pool
7f0000700000-7f0000701000 r--p 00000000 08:01 5 /usr/lib/locale/locale-archive
7f0000800000-7f0000801000 rw-p 00000000 00:05 5 /dev/zero
";
        let kinds: Vec<MappingKind> = classified(maps, &[]).into_iter().map(|(kind, _)| kind).collect();
        use MappingKind::{Anonymous, Device, HugeTlb, ReadOnly, SharedFile, SharedMemory};
        let memory = [SharedMemory; 5];
        assert_eq!(kinds[..5], memory);
        assert_eq!(kinds[5..], [SharedFile, Device, HugeTlb, HugeTlb, ReadOnly, Anonymous]);
    }
}
