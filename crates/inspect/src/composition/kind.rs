//! What a mapping is, by its line of `/proc/PID/maps`, its neighbours and where the threads' stack pointers are.
//!
//! ```text
//! 55d000001000-55d000003000 r-xp 00001000 08:01 77   /usr/bin/a      code
//! 55d000004000-55d000005000 rw-p 00004000 08:01 77   /usr/bin/a      data
//! 55d000005000-55d000009000 rw-p 00000000 00:00 0                    data: .bss, which ld.so maps behind it
//! 55d001000000-55d001021000 rw-p 00000000 00:00 0    [heap]          heap
//! 7f0000000000-7f0000001000 ---p 00000000 00:00 0                    reserved: the guard of a stack
//! 7f0000001000-7f0000801000 rw-p 00000000 00:00 0                    thread stack
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};

use super::mounts::Mounts;
use super::stacks;
use crate::maps::Mapping;
use crate::target::Target;

/// The kinds of mappings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// `[heap]`: what the program break has.
    Heap,
    /// Private memory without a file: further arenas of malloc, large blocks, heaps of run times.
    Anonymous,
    /// The same with a name that the program gave it (`prctl(PR_SET_VMA)`, since Linux 5.17).
    NamedAnonymous,
    /// The stack of a thread.
    ThreadStack,
    /// The stack of the main thread.
    MainStack,
    /// Code of programs and libraries, and what else may be run of a file.
    Code,
    /// What is only read of a file, privately: constants, but also locales and fonts.
    ReadOnly,
    /// Variables of programs and libraries, with those that begin as zero (`.bss`), and other private, writable mappings of files.
    Data,
    /// A file that is mapped shared: its pages are in the page cache.
    SharedFile,
    /// Shared memory: tmpfs, `/dev/shm`, memfd, System V, shared anonymous mappings.
    SharedMemory,
    /// Pages of hugetlbfs. They are no part of the resident set.
    HugeTlb,
    /// Memory of a device.
    Device,
    /// What the kernel maps: `[vdso]`, `[vvar]`.
    Kernel,
    /// Addresses that may not be accessed: guards, and room for heaps to grow.
    Reserved,
}

impl Kind {
    /// In a word or two.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Kind::Heap => "heap",
            Kind::Anonymous => "anonymous",
            Kind::NamedAnonymous => "anonymous, named",
            Kind::ThreadStack => "thread stacks",
            Kind::MainStack => "main stack",
            Kind::Code => "code",
            Kind::ReadOnly => "read-only files",
            Kind::Data => "data of files",
            Kind::SharedFile => "shared files",
            Kind::SharedMemory => "shared memory",
            Kind::HugeTlb => "hugetlbfs",
            Kind::Device => "device",
            Kind::Kernel => "kernel's own",
            Kind::Reserved => "reserved",
        }
    }

    /// Whether a heap can lie in it.
    #[must_use]
    pub const fn is_heap(self) -> bool {
        matches!(self, Kind::Heap | Kind::Anonymous | Kind::NamedAnonymous)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// A stack is at least so long: `PTHREAD_STACK_MIN` of glibc.
const STACK_MIN: u64 = 16 << 10;
/// No thread has a longer one; the kernel may have merged a stack with what lies behind it.
const STACK_MAX: u64 = 256 << 20;
/// The guard below a stack is a page, or some; more is room that is reserved for a heap.
const GUARD_MAX: u64 = 128 << 10;
/// Further heaps of glibc's malloc begin at multiples of `HEAP_MAX_SIZE`, and what was reserved for the one below ends there.
const MALLOC_HEAP: u64 = 64 << 20;
/// A library's `.bss` is rarely longer. What is has been merged with memory of another origin.
const BSS_MAX: u64 = 512 << 10;

/// Tells kinds, mapping by mapping in the order of their addresses.
pub(super) struct Kinds {
    mounts: Mounts,
    /// The stack pointers of the threads that sleep, sorted.
    stacks: Vec<u64>,
    /// The end of what was told last, and what it was.
    before: Option<Before>,
}

struct Before {
    end: u64,
    bytes: u64,
    kind: Kind,
    name: Option<String>,
}

impl Kinds {
    pub(super) fn of(target: &Target) -> Self {
        Self::new(Mounts::of(target.pid()), stacks::pointers(target.pid()))
    }

    pub(super) fn new(mounts: Mounts, mut stacks: Vec<u64>) -> Self {
        stacks.sort_unstable();
        Self { mounts, stacks, before: None }
    }

    /// The kind, and the name that goes with it.
    pub(super) fn tell(&mut self, mapping: &Mapping) -> (Kind, Option<String>) {
        let (kind, name) = self.kind(mapping);
        self.before = Some(Before { end: mapping.end, bytes: mapping.bytes(), kind, name: name.clone() });
        (kind, name)
    }

    fn kind(&self, mapping: &Mapping) -> (Kind, Option<String>) {
        let access = mapping.access;
        let path = mapping.path.as_str();
        let no_access = !access.read && !access.write && !access.execute;
        match path {
            "[heap]" => return (Kind::Heap, None),
            "[stack]" => return (Kind::MainStack, None),
            _ if is_kernel(path) => return (Kind::Kernel, Some(path.to_owned())),
            _ => {}
        }
        if path.is_empty() || path == "/dev/zero" && !access.shared {
            return self.without_name(mapping, no_access);
        }
        if let Some(name) = inside(path, "[anon:") {
            // glibc names what it maps when `glibc.mem.decorate_maps` is set.
            let kind = match name.contains("pthread stack") || name.starts_with("stack") {
                _ if no_access => return (Kind::Reserved, None),
                true => return (Kind::ThreadStack, None),
                false => Kind::NamedAnonymous,
            };
            return (kind, Some(name.to_owned()));
        }
        if path.starts_with('[') {
            let name = inside(path, "[anon_shmem:").unwrap_or(path);
            let kind = if access.shared { Kind::SharedMemory } else { Kind::NamedAnonymous };
            return (kind, Some(name.to_owned()));
        }
        (self.of_file(mapping, no_access), Some(file_name(mapping)))
    }

    fn without_name(&self, mapping: &Mapping, no_access: bool) -> (Kind, Option<String>) {
        if mapping.access.shared {
            return (Kind::SharedMemory, None);
        }
        if no_access {
            return (Kind::Reserved, None);
        }
        let beside = self.before.as_ref().filter(|before| before.end == mapping.start);
        let bytes = mapping.bytes();
        if let Some(before) = beside.filter(|before| before.kind == Kind::Data && bytes <= BSS_MAX)
            && mapping.access.write
        {
            return (Kind::Data, before.name.clone());
        }
        let may_be_stack = mapping.access.write && (STACK_MIN..=STACK_MAX).contains(&bytes);
        let first = self.stacks.partition_point(|pointer| *pointer < mapping.start);
        let is_used = self.stacks.get(first).is_some_and(|pointer| *pointer < mapping.end);
        let is_guarded = beside
            .is_some_and(|before| before.kind == Kind::Reserved && before.bytes <= GUARD_MAX)
            && !mapping.start.is_multiple_of(MALLOC_HEAP);
        if may_be_stack && (is_used || is_guarded) {
            return (Kind::ThreadStack, None);
        }
        (Kind::Anonymous, None)
    }

    fn of_file(&self, mapping: &Mapping, no_access: bool) -> Kind {
        let (path, access) = (mapping.path.as_str(), mapping.access);
        let is_hugetlb = path == "/anon_hugepage" || self.mounts.is_hugetlb(path);
        let is_memory = ["/memfd:", "/SYSV", "/dev/zero", "/dev/shm/"].iter().any(|p| path.starts_with(p));
        match () {
            () if is_hugetlb => Kind::HugeTlb,
            () if no_access => Kind::Reserved,
            () if is_memory => Kind::SharedMemory,
            // Containers have a tmpfs there, with devices in it.
            () if path.starts_with("/dev/") => Kind::Device,
            () if access.shared && self.mounts.is_tmpfs(path) => Kind::SharedMemory,
            () if access.shared => Kind::SharedFile,
            () if access.execute => Kind::Code,
            () if access.write => Kind::Data,
            () => Kind::ReadOnly,
        }
    }
}

/// What the kernel maps into every process.
fn is_kernel(path: &str) -> bool {
    ["[vdso", "[vvar", "[vsyscall", "[sigpage", "[vectors", "[uprobes"]
        .iter()
        .any(|name| path.starts_with(name))
}

/// The text between `before` and the closing bracket.
fn inside<'a>(path: &'a str, before: &str) -> Option<&'a str> {
    path.strip_prefix(before).map(|rest| rest.strip_suffix(']').unwrap_or(rest).trim())
}

fn file_name(mapping: &Mapping) -> String {
    // Segments of System V and memfds are removed from the moment when they are made.
    let is_plain =
        mapping.is_deleted && !mapping.path.starts_with("/SYSV") && !mapping.path.starts_with("/memfd:");
    if is_plain { format!("{} (deleted)", mapping.path) } else { mapping.path.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::parse_all;

    const MOUNTS: &[u8] = b"\
/dev/vda1 / ext4 rw,relatime 0 0
tmpfs /run tmpfs rw,nosuid,size=1g 0 0
hugetlbfs /dev/huge\\040pages hugetlbfs rw,relatime 0 0
";

    fn told(maps: &str, stacks: &[u64]) -> Vec<(Kind, Option<String>)> {
        let mut kinds = Kinds::new(Mounts::parse(MOUNTS), stacks.to_vec());
        parse_all(maps).iter().map(|mapping| kinds.tell(mapping)).collect()
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
        let kinds = told(maps, &[0x7f00_01ff_f000, 0x7f00_017f_f000]);
        let wanted = [
            (Kind::ReadOnly, a()),
            (Kind::Code, a()),
            (Kind::Data, a()),
            (Kind::Data, a()),
            (Kind::Heap, None),
            (Kind::Reserved, None),
            (Kind::ThreadStack, None),
            (Kind::ThreadStack, None),
            (Kind::Anonymous, None),
            (Kind::Reserved, None),
            (Kind::Reserved, None),
            // It lies behind something small without access, and is a heap of malloc all the same.
            (Kind::Anonymous, None),
            (Kind::Code, Some("/opt/lib.so (deleted)".to_owned())),
            (Kind::ThreadStack, None),
            (Kind::NamedAnonymous, Some("v8".to_owned())),
            (Kind::MainStack, None),
            (Kind::Kernel, Some("[vdso]".to_owned())),
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
        let kinds: Vec<Kind> = told(maps, &[]).into_iter().map(|(kind, _)| kind).collect();
        use Kind::{Anonymous, Device, HugeTlb, ReadOnly, SharedFile, SharedMemory};
        let memory = [SharedMemory; 5];
        assert_eq!(kinds[..5], memory);
        assert_eq!(kinds[5..], [SharedFile, Device, HugeTlb, HugeTlb, ReadOnly, Anonymous]);
    }
}
