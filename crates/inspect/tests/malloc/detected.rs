//! Allocators that are not walked, and glibc without a name.

use std::path::Path;
use std::process::Command;

use mitra_inspect::malloc::Allocator;

use crate::support::{Running, compile};

fn jemalloc() -> Option<&'static str> {
    let path = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";
    if !Path::new(path).exists() {
        println!("skipped: there is no {path}");
        return None;
    }
    Some(path)
}

#[test]
fn jemalloc_in_place_of_the_c_librarys() {
    let (Some(library), Some(program)) = (jemalloc(), compile("cc", "waits.c", "jemalloc", &[])) else {
        return;
    };
    let Some(running) = Running::start(Command::new(program).env("LD_PRELOAD", library)) else { return };
    let (detection, heap) = running.walk_heap();
    assert_eq!(heap.allocator, Allocator::Jemalloc);
    assert!(heap.version.is_some_and(|version| version.starts_with("5.")));
    assert!(detection.others.iter().any(|other| other.allocator == Allocator::Glibc), "{detection:?}");
    assert!(heap.arenas.is_empty() && heap.why_not.unwrap().contains("jemalloc"));
    assert_eq!(detection.glibc, None);
}

#[test]
fn musl_shared_and_static() {
    for flags in [&[][..], &["-static"], &["-static", "-s"]] {
        let Some(program) = compile("musl-gcc", "waits.c", "musl", flags) else { return };
        let Some(running) = Running::start(&mut Command::new(program)) else { return };
        let (detection, heap) = running.walk_heap();
        // A small stripped program has nothing that identifies its allocator.
        let is_nameless = flags.contains(&"-s") && heap.allocator == Allocator::Unknown;
        assert!(heap.allocator == Allocator::Musl || is_nameless, "{flags:?}: {detection:?}");
        assert!(heap.why_not.unwrap().contains(if is_nameless { "no allocator" } else { "musl" }));
    }
}

#[test]
fn a_library_that_was_replaced_while_it_is_used() {
    let Some(program) = compile("cc", "waits.c", "replaced", &["-static", "-s"]) else { return };
    let Some(running) = Running::start(&mut Command::new(&program)) else { return };
    std::fs::remove_file(program).unwrap();
    let (detection, heap) = running.walk_heap();
    assert_eq!(heap.allocator, Allocator::Glibc, "{detection:?}");
    assert!(heap.in_use().chunks > 1000);
}

#[test]
fn programs_as_they_are() {
    let script =
        "x = [str(i) * 3 for i in range(200000)]; print('ready', flush=True); import time; time.sleep(600)";
    let Some(running) = Running::start(Command::new("python3").args(["-c", script])) else { return };
    let (_, heap) = running.walk_heap();
    assert_eq!(heap.allocator, Allocator::Glibc);
    let system: u64 = heap.arenas.iter().map(|arena| arena.system_bytes).sum();
    let all: u64 = heap
        .arenas
        .iter()
        .map(|arena| arena.in_use.bytes + arena.free.all().bytes + arena.top_bytes + arena.overhead_bytes)
        .sum();
    assert!(all.abs_diff(system) <= system / 100, "{all} of {system}: {:?}", heap.doubts);
}

#[test]
fn a_32_bit_program_is_refused() {
    let Some(program) = compile("cc", "waits.c", "narrow", &["-m32"]) else { return };
    let Some(running) = Running::start(&mut Command::new(program)) else { return };
    let error = mitra_inspect::malloc::find(&running.target()).unwrap_err();
    assert!(error.to_string().contains("32-bit"), "{error}");
}
