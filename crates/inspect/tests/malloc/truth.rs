//! Compares the counts with `mallinfo2` and `malloc_info`, and with the programs' own counts.

use std::process::Command;

use mitra_inspect::malloc::{Allocator, Arena, CHeap, Detection, Options, find, walk_heap};
use mitra_inspect::{Memory, Target};

use crate::support::{Running, compile};

/// Tolerance for a quiet process.
const QUIET: f64 = 0.01;
/// Tolerance for a running one.
const BUSY: f64 = 0.05;

fn started(mode: &str, flags: &[&str]) -> Option<Running> {
    Running::start(Command::new(compile("cc", "truth.c", mode, flags)?).arg(mode))
}

fn is_near(what: &str, seen: u64, truth: u64, tolerance: f64) {
    let off = (seen as f64 - truth as f64).abs();
    println!("{what}: {seen}, truly {truth}");
    // The C library itself uses some kilobytes.
    assert!(off <= tolerance * truth as f64 || off <= 2048.0, "{what}: {seen}, truly {truth}");
}

fn sum(heap: &CHeap, of: impl Fn(&Arena) -> u64) -> u64 {
    heap.arenas.iter().map(of).sum()
}

/// What `mallinfo` counts as free: not the chunks in tcaches.
fn binned(arena: &Arena) -> u64 {
    arena.free.all().bytes - arena.free.tcache.bytes
}

fn check(running: &Running, detection: &Detection, heap: &CHeap) {
    println!("{detection:x?} {:?} {} us", heap.doubts, heap.took_us);
    assert_eq!(heap.allocator, Allocator::Glibc);
    let truth = |name| running.number(name);
    is_near("system", sum(heap, |arena| arena.system_bytes), truth("arena"), 0.0);
    is_near("free", sum(heap, |arena| binned(arena) + arena.top_bytes), truth("fordblks"), QUIET);
    is_near("fastbins", sum(heap, |arena| arena.free.fastbin.bytes), truth("fsmblks"), QUIET);
    is_near("fastbin chunks", sum(heap, |arena| arena.free.fastbin.chunks), truth("smblks"), QUIET);
    let in_bins =
        |arena: &Arena| arena.free.unsorted.chunks + arena.free.small.chunks + arena.free.large.chunks;
    let blocks = truth("ordblks");
    let seen = sum(heap, in_bins) + heap.arenas.len() as u64;
    assert!(seen.abs_diff(blocks) <= blocks / 100 + 1, "{seen} free chunks, truly {blocks}");
    // `mallinfo` counts memory that others took from `sbrk` as its own.
    let used = sum(heap, |arena| {
        arena.in_use.bytes + arena.free.tcache.bytes + arena.overhead_bytes + arena.doubts.foreign_bytes
    });
    is_near("used", used, truth("uordblks"), QUIET);
    assert_eq!((heap.mmapped.chunks, heap.mmapped.bytes), (truth("hblks"), truth("hblkhd")));
    assert_eq!(heap.mmapped_by_its_account, Some(heap.mmapped));
    let kept = running.number("kept");
    if kept > 0 {
        is_near("kept chunks", sum(heap, |arena| arena.in_use.chunks) + heap.mmapped.chunks, kept, QUIET);
    }
    by_arena(running, heap);
    // Each byte of a size class is in an arena, and vice versa.
    let listed: u64 = heap.sizes.iter().map(|size| size.in_use_bytes).sum();
    assert_eq!(listed + heap.other_sizes.in_use.bytes, heap.in_use().bytes);
    let free: u64 = heap.sizes.iter().map(|size| size.free_bytes).sum();
    assert_eq!(free + heap.other_sizes.free.bytes, heap.free().bytes);
}

/// The same for each arena, as `malloc_info` prints them in list order.
fn by_arena(running: &Running, heap: &CHeap) {
    let attribute = |line: &str, name: &str| -> u64 {
        line.split_once(&format!("{name}=\"")).unwrap().1.split('"').next().unwrap().parse().unwrap()
    };
    let text = running.said.join("\n");
    let heaps: Vec<&str> =
        text.split("<heap nr=").skip(1).map(|rest| rest.split("</heap>").next().unwrap()).collect();
    assert_eq!(heaps.len(), heap.arenas.len());
    for (arena, truth) in heap.arenas.iter().zip(heaps) {
        let line = |start: &str| truth.lines().find(|line| line.starts_with(start)).unwrap();
        let (fast, rest) = (line("<total type=\"fast\""), line("<total type=\"rest\""));
        is_near(
            "system of an arena",
            arena.system_bytes,
            attribute(line("<system type=\"current\""), "size"),
            0.0,
        );
        is_near("fast of an arena", arena.free.fastbin.bytes, attribute(fast, "size"), QUIET);
        let bins = binned(arena) - arena.free.fastbin.bytes + arena.top_bytes;
        is_near("rest of an arena", bins, attribute(rest, "size"), QUIET);
    }
}

fn quiet(mode: &str, flags: &[&str]) -> Option<(Running, CHeap)> {
    let running = started(mode, flags)?;
    let (detection, heap) = running.walk_heap();
    check(&running, &detection, &heap);
    Some((running, heap))
}

#[test]
fn one_thread() {
    let Some((_, heap)) = quiet("mixed", &[]) else { return };
    assert!(heap.version.is_some_and(|version| version.starts_with("2.")));
    assert_eq!(heap.arenas.len(), 1);
}

#[test]
fn arenas_of_threads() {
    let Some((_, heap)) = quiet("threads", &[]) else { return };
    assert!(heap.arenas.len() > 2, "{}", heap.arenas.len());
}

#[test]
fn arenas_that_threads_share() {
    let Some((_, heap)) = quiet("few-arenas", &[]) else { return };
    assert_eq!(heap.arenas.len(), 2);
}

#[test]
fn an_arena_of_several_heaps() {
    let Some((_, heap)) = quiet("heaps", &[]) else { return };
    assert!(heap.arenas[1].heaps > 2, "{}", heap.arenas[1].heaps);
}

#[test]
fn caches_of_threads() {
    let Some((_, heap)) = quiet("cached", &[]) else { return };
    // Seven of each of ten sizes in eight threads, and the remainders of their start in the main
    // one's.
    let cached = sum(&heap, |arena| arena.free.tcache.chunks);
    assert!((560..=580).contains(&cached), "{cached}");
}

#[test]
fn every_second_is_free() {
    let Some((_, heap)) = quiet("fragments", &[]) else { return };
    let fragmentation = heap.fragmentation().unwrap();
    assert!(fragmentation.is_fragmented, "{fragmentation:?}");
    // No free chunk contains a whole page.
    assert_eq!(fragmentation.trimmable_bytes, 0);
    assert!((0.45..0.52).contains(&heap.arenas[0].fragmentation.unwrap()));
}

#[test]
fn long_fastbins() {
    let Some((_, heap)) = quiet("fastbins", &[]) else { return };
    assert!(heap.arenas[0].free.fastbin.chunks > 200_000);
}

#[test]
fn all_is_free_below_one_that_stayed() {
    let Some((_, heap)) = quiet("freed", &[]) else { return };
    let fragmentation = heap.fragmentation().unwrap();
    assert!(fragmentation.is_fragmented, "{fragmentation:?}");
    assert!(fragmentation.trimmable_bytes > fragmentation.free_bytes / 10 * 9);
}

#[test]
fn chunks_with_mappings_of_their_own() {
    let Some((_, heap)) = quiet("mmapped", &[]) else { return };
    assert!(heap.mmapped.chunks >= 50);
    assert!(!heap.fragmentation().unwrap().is_fragmented);
}

#[test]
fn somebody_else_calls_sbrk() {
    let Some((_, heap)) = quiet("foreign", &[]) else { return };
    let foreign = heap.doubts.foreign_bytes;
    assert!((112_345..130_000).contains(&foreign), "{foreign}");
    assert_eq!(heap.doubts.bad_chunks, 0);
}

#[test]
fn brk_fails() {
    let Some((_, heap)) = quiet("no-brk", &[]) else { return };
    assert!(heap.arenas[0].heaps > 1);
}

#[test]
fn trimmed_pages_are_not_brought_back() {
    let Some(running) = started("trimmed", &[]) else { return };
    let target = running.target();
    // For each mapping; the sum in `statm` is not exact.
    let resident = || -> Vec<String> {
        let smaps = std::fs::read_to_string(format!("/proc/{}/smaps", target.pid())).unwrap();
        let wanted = |line: &&str| line.contains('-') || line.starts_with("Rss:");
        smaps.lines().filter(wanted).map(str::to_owned).collect()
    };
    // The program has a few steps to go after it prints that it is ready.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let before = resident();
    let detection = find(&target).unwrap();
    let heap = walk_heap(&target, &detection, &Options::default());
    check(&running, &detection, &heap);
    for (before, after) in before.windows(2).zip(resident().windows(2)) {
        assert_eq!(before, after);
    }
    let fragmentation = heap.fragmentation().unwrap();
    assert!(fragmentation.free_bytes > 40 << 20, "{fragmentation:?}");
    assert!(fragmentation.free_resident_bytes < fragmentation.free_bytes / 5, "{fragmentation:?}");
}

#[test]
fn static_programs() {
    for flags in [&["-static"][..], &["-static", "-s"], &["-static-pie"], &["-no-pie", "-s"]] {
        let Some((_, heap)) = quiet("mixed", flags) else { return };
        assert_eq!(heap.arenas.len(), 1, "{flags:?}");
        quiet("threads", flags);
    }
}

#[test]
fn while_threads_allocate_and_free() {
    let Some(running) = started("busy", &[]) else { return };
    let target = running.target();
    let detection = find(&target).unwrap();
    let words = running.said.join(" ");
    let held = words.split("held 0x").nth(1).unwrap().split_whitespace().next().unwrap();
    let held = u64::from_str_radix(held, 16).unwrap();
    let of_all = |target: &Target, offset: u64| -> u64 {
        (0..8).map(|i| target.u64(held + 128 * i + offset).unwrap()).sum()
    };
    for _ in 0..3 {
        let target = running.target();
        let before = [of_all(&target, 0), of_all(&target, 8)];
        let heap = walk_heap(&target, &detection, &Options::default());
        let after = [of_all(&target, 0), of_all(&target, 8)];
        println!("{:?} {:?} {} us", before, heap.doubts, heap.took_us);
        let in_use = heap.in_use();
        is_near("chunks", in_use.chunks + heap.mmapped.chunks, (before[0] + after[0]) / 2, BUSY);
        is_near("bytes", in_use.bytes + heap.mmapped.bytes, (before[1] + after[1]) / 2, BUSY);
        let lost = heap.doubts.skipped_bytes + heap.doubts.not_resident_bytes;
        assert!((lost as f64) < BUSY * in_use.bytes as f64, "{:?}", heap.doubts);
    }
}
