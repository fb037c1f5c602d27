//! Compares with smaps of real processes.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use super::*;
use crate::memory::Pagemap;

/// A Python program that prints `ready` and then stays idle.
struct Program {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Program {
    /// `None`, with a message, if there is no Python.
    fn start(script: &str) -> Option<Self> {
        let script = format!(
            "import mmap, os, sys, threading, ctypes\n{script}\nprint('ready', flush=True)\nsys.stdin.read()\n"
        );
        let spawned = Command::new("/usr/bin/python3")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = spawned else {
            println!("skipped: there is no /usr/bin/python3");
            return None;
        };
        let mut out = BufReader::new(child.stdout.take()?);
        let mut line = String::new();
        out.read_line(&mut line).ok()?;
        assert_eq!(line.trim(), "ready");
        Some(Self { child, out })
    }

    fn target(&self) -> Target {
        Target::open(self.child.id()).unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        _ = self.child.wait();
        _ = self.out.read_to_string(&mut String::new());
    }
}

fn part<'a>(composition: &'a Composition, kind: MappingKind, name: &str) -> &'a MemorySizes {
    let found = composition
        .parts
        .iter()
        .find(|part| part.kind == kind && part.name.as_deref().unwrap_or("").contains(name));
    &found.unwrap_or_else(|| panic!("no {kind:?} {name:?} in {:?}", composition.parts)).sizes
}

/// Both methods agree on an idle process.
fn same(cheap: &Composition, smaps: &Composition) {
    assert_eq!(cheap.mappings, smaps.mappings);
    for (a, b) in cheap.kinds().iter().zip(
        cheap
            .kinds()
            .iter()
            .map(|part| smaps.kinds().into_iter().find(|other| other.kind == part.kind).unwrap()),
    ) {
        assert_eq!((a.mappings, a.sizes.virtual_bytes), (b.mappings, b.sizes.virtual_bytes), "{:?}", a.kind);
        // The methods count kernel mappings differently, by a page or two.
        if a.kind == MappingKind::Kernel {
            continue;
        }
        let near = |a: Option<u64>, b: Option<u64>| {
            a.zip(b).is_none_or(|(a, b)| a.abs_diff(b) <= b / 100 + (16 << 10))
        };
        assert!(near(a.sizes.resident_bytes, b.sizes.resident_bytes), "{a:?} {b:?}");
        assert!(near(a.sizes.anonymous_bytes, b.sizes.anonymous_bytes), "{a:?} {b:?}");
        assert!(near(a.sizes.swapped_bytes, b.sizes.swapped_bytes), "{a:?} {b:?}");
        assert!(near(a.sizes.huge_bytes, b.sizes.huge_bytes), "{a:?} {b:?}");
    }
    // The counters of the whole process lag behind by some pages on each CPU.
    let rss = cheap.totals.rss_bytes.unwrap();
    let sum = cheap.sum().resident_bytes.unwrap();
    assert!(sum.abs_diff(rss) <= rss / 50 + (4 << 20), "{sum} {rss}");
}

fn both(target: &Target) -> Option<(Composition, Composition)> {
    let cheap = measure(target, &Options::default()).unwrap();
    if cheap.how == CountMethod::Nothing {
        println!("skipped: /proc/PID/pagemap cannot be opened");
        return None;
    }
    Some((cheap, measure_with_smaps(target, &Options::default()).unwrap()))
}

#[test]
fn a_heap_shared_memory_huge_pages_and_stacks() {
    let script = "
keep = [bytes(200) for _ in range(400000)]
shared = mmap.mmap(-1, 8 << 20)
for i in range(0, 8 << 20, 4096): shared[i] = 1
memfd = os.memfd_create('pool')
os.ftruncate(memfd, 4 << 20)
pool = mmap.mmap(memfd, 4 << 20)
for i in range(0, 4 << 20, 4096): pool[i] = 1
huge = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
if hasattr(huge, 'madvise'): huge.madvise(14)
for i in range(0, 64 << 20, 4096): huge[i] = 1
for _ in range(8): threading.Thread(target=threading.Event().wait, daemon=True).start()
";
    let Some(program) = Program::start(script) else { return };
    let target = program.target();
    let Some((cheap, smaps)) = both(&target) else { return };
    same(&cheap, &smaps);
    assert_eq!(cheap.uncounted, 0);
    assert_eq!(part(&cheap, MappingKind::SharedMemory, "memfd:pool").resident_bytes, Some(4 << 20));
    assert_eq!(part(&cheap, MappingKind::SharedMemory, "zero").resident_bytes, Some(8 << 20));
    let stacks = cheap.kinds().into_iter().find(|part| part.kind == MappingKind::ThreadStack).unwrap();
    assert_eq!(stacks.mappings, 8, "{stacks:?}");
    // 400,000 objects of 233 bytes lie in arenas of the interpreter.
    assert!(part(&cheap, MappingKind::Anonymous, "").resident_bytes >= Some(90 << 20));
    assert!(cheap.anonymous_bytes() >= Some(150 << 20));
    assert!(part(&cheap, MappingKind::Code, "libc.so").resident_bytes > Some(0));
    assert!(smaps.sum().private_dirty_bytes >= Some(150 << 20) && cheap.sum().private_dirty_bytes.is_none());
    assert!(smaps.sum().pss_bytes <= smaps.sum().resident_bytes);
    let largest = &cheap.biggest[0];
    assert!(largest.sizes.resident_bytes >= Some(64 << 20) && largest.access == "rw-p", "{largest:?}");
    assert_eq!(cheap.biggest[0].start, smaps.biggest[0].start);
    assert!(cheap.smaps.estimated_s.unwrap() > 0.0 && smaps.smaps.took_s.unwrap() > 0.0);
}

#[test]
fn pagemap_says_the_same_as_the_newer_call() {
    let script = "
keep = [bytes(1000) for _ in range(100000)]
private = mmap.mmap(-1, 32 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for i in range(0, 32 << 20, 8192): private[i] = 1
";
    let Some(program) = Program::start(script) else { return };
    let target = program.target();
    let soon = Instant::now() + Duration::from_secs(60);
    let pagemap = || std::fs::File::open(format!("/proc/{}/pagemap", target.pid())).map(Pagemap::new);
    let (Ok(new), Ok(old)) = (pagemap(), pagemap().map(Pagemap::without_scan)) else {
        println!("skipped: /proc/PID/pagemap cannot be opened");
        return;
    };
    let mut new = PageCounter::new(&target, &new, soon);
    let mut old = PageCounter::new(&target, &old, soon);
    for mapping in target.mappings().iter().filter(|mapping| !mapping.path.starts_with("[v")) {
        let a = new.count(mapping.start, mapping.end).unwrap();
        let b = old.count(mapping.start, mapping.end).unwrap();
        assert_eq!((a.swapped, b.huge), (b.swapped, None));
        // The zero page counts as present in pagemap.
        let near = |a: u64, b: u64| a.abs_diff(b) <= 16 << 10;
        assert!(near(a.resident, b.resident) && near(a.anonymous, b.anonymous), "{mapping:?}: {a:?} {b:?}");
    }
    assert_eq!(old.how(), CountMethod::Pagemap);
}

#[test]
fn thousands_of_mappings_are_counted_and_few_are_kept() {
    // The kernel does not merge neighbours with different access rights.
    let script = "
keep = []
for i in range(6000):
    prot = mmap.PROT_READ | (mmap.PROT_WRITE if i % 2 else 0)
    keep.append(mmap.mmap(-1, 8192, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=prot))
    if i % 2: keep[-1][0] = 1
";
    let Some(program) = Program::start(script) else { return };
    let target = program.target();
    let Some((cheap, smaps)) = both(&target) else { return };
    same(&cheap, &smaps);
    assert!(cheap.mappings > 6000 && cheap.biggest.len() == Options::default().biggest);
    println!("{} mappings: {:.4} s, smaps {:?} {:?}", cheap.mappings, cheap.wall_s, cheap.smaps, smaps.smaps);
}

#[test]
fn addresses_that_are_only_reserved_cost_nothing() {
    // Four terabytes, as runtimes with sanitizers or garbage collectors reserve them.
    let script = "
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
at = libc.mmap(None, ctypes.c_size_t(4 << 40), 3, 0x4022, -1, 0)
assert at not in (None, ctypes.c_void_p(-1).value)
ctypes.memset(at + (1 << 40), 1, 1 << 20)
";
    let Some(program) = Program::start(script) else { return };
    let target = program.target();
    let cheap =
        measure(&target, &Options { time_max: Duration::from_secs(3), ..Options::default() }).unwrap();
    if cheap.how != CountMethod::Scan {
        // Without PAGEMAP_SCAN there are eight gigabytes of pagemap to read: the time limit ends
        // it, and the result says so.
        assert!(cheap.uncounted > 0 || cheap.how == CountMethod::Nothing);
        println!("skipped: no PAGEMAP_SCAN before Linux 6.7");
        return;
    }
    assert_eq!(cheap.uncounted, 0);
    let reserved = cheap.biggest.iter().find(|piece| piece.sizes.virtual_bytes >= 4 << 40).unwrap();
    assert!(reserved.sizes.resident_bytes >= Some(1 << 20), "{reserved:?}");
    assert!(cheap.wall_s < 3.0, "{}", cheap.wall_s);
}

#[test]
fn what_is_in_swap_is_counted_there() {
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    if swaps.lines().count() < 2 {
        println!("skipped: no swap is on");
        return;
    }
    let script = "
private = mmap.mmap(-1, 32 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
import random
for i in range(0, 32 << 20, 4096): private[i:i + 64] = random.randbytes(64)
MADV_PAGEOUT = 21
private.madvise(MADV_PAGEOUT)
";
    let Some(program) = Program::start(script) else { return };
    let target = program.target();
    let Some((cheap, smaps)) = both(&target) else { return };
    same(&cheap, &smaps);
    let swapped = cheap.sum().swapped_bytes.unwrap();
    assert!(swapped > 16 << 20 && cheap.totals.swap_bytes.unwrap() > 16 << 20, "{swapped}");
}

#[test]
fn the_time_is_bounded_and_what_was_left_out_is_said() {
    let target = Target::open(std::process::id()).unwrap();
    let cheap = measure(&target, &Options { time_max: Duration::ZERO, biggest: 3 }).unwrap();
    assert!(cheap.uncounted > 0 && cheap.biggest.len() == 3);
    assert_eq!(cheap.sum().resident_bytes.unwrap_or(0), 0);
    assert!(cheap.sum().virtual_bytes > 0);
}

#[test]
fn a_composition_is_saved_and_read() {
    let target = Target::open(std::process::id()).unwrap();
    let mut cheap = measure(&target, &Options::default()).unwrap();
    // With other numbers of seconds, JSON may lose the last digits.
    cheap.wall_s = 0.25;
    cheap.smaps = SmapsTime { estimated_s: Some(0.5), longest_s: Some(0.125), took_s: None };
    let text = serde_json::to_string(&cheap).unwrap();
    assert_eq!(serde_json::from_str::<Composition>(&text).unwrap(), cheap);
}
