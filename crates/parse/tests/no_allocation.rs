//! A pass over a file whose layout is known allocates nothing: a recorder makes one each second for years.
#![expect(clippy::disallowed_methods, reason = "fixtures are files; the parsers themselves read none")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;

use mitra_model::{Entity, Frame, Key, NA, Strings, columns};
use mitra_parse::cgroup::{Cgroup, FILES, Hierarchy};
use mitra_parse::task::task_stat;
use mitra_parse::task_status::TaskFiles;
use mitra_parse::{SOURCES, sysctl};

/// The allocator of the system, which counts for each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.with(|count| count.set(count.get() + 1));
}

// SAFETY: everything is handed on to the allocator of the system.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `System` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the pointer came from `System` with this layout.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of the third pass.
fn allocations(mut pass: impl FnMut()) -> u64 {
    pass();
    pass();
    let before = ALLOCATIONS.with(Cell::get);
    pass();
    ALLOCATIONS.with(Cell::get) - before
}

fn fixture(path: &str) -> Option<Vec<u8>> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/6.18").join(path)).ok()
}

#[test]
fn files_of_the_machine() {
    let mut strings = Strings::new();
    let mut frame = Frame::new();
    let mut read = 0;
    for source in SOURCES {
        let Some(input) = fixture(source.path) else { continue };
        let mut parse = (source.parser)();
        let count = allocations(|| {
            frame.clear();
            assert!(parse(&input, &mut strings, &mut frame).is_clean());
        });
        assert_eq!(count, 0, "{}", source.path);
        read += 1;
    }
    assert!(read > 15);
    for mut setting in sysctl::settings() {
        let Some(input) = fixture(setting.path) else { continue };
        assert_eq!(allocations(|| assert!(setting.parse(&input, &mut strings, &mut frame).is_clean())), 0);
    }
}

#[test]
fn files_of_groups_and_tasks() {
    let mut cgroup = Cgroup::default();
    let mut row = vec![NA; columns(Entity::Cgroup).len()];
    let mut read = 0;
    for file in FILES {
        let tree = if let Hierarchy::V1(controller) = file.hierarchy { controller } else { "unified" };
        let Some(input) = fixture(&format!("sys/fs/cgroup/{tree}/{}", file.name)) else { continue };
        assert_eq!(
            allocations(|| assert!((file.parse)(&mut cgroup, &input, &mut row).is_clean())),
            0,
            "{}",
            file.name
        );
        read += 1;
    }
    assert!(read > 8);
    let mut strings = Strings::new();
    let mut files = TaskFiles::new(4096);
    let mut frame = Frame::new();
    let inputs = ["stat", "status", "io", "schedstat", "cgroup"]
        .map(|name| fixture(&format!("proc/4242/{name}")).unwrap());
    let [stat, status, io, schedstat, group] = &inputs;
    let count = allocations(|| {
        frame.clear();
        let row = frame.table_mut(Entity::Task).push(Key::task(4242, 1));
        files.columns().stat(&task_stat(stat).unwrap(), true, false, &mut strings, row);
        assert!(files.status(status, true, row).is_clean());
        assert!(files.io(io, row).is_clean());
        assert!(files.schedstat(schedstat, row).is_clean());
        assert!(files.cgroup(group, &mut strings, row).is_clean());
    });
    assert_eq!(count, 0);
}
