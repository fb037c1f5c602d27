//! A sample allocates nothing once it has seen the machine: neither for each task nor for each file.
//!
//! One test alone in its program, because the counter counts the whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use mitra_collect::{Config, Sampler};
use mitra_model::{Entity, Frame};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

fn count() {
    // The thread may be on its way out, with its variables gone.
    let _gone = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
}

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract, and this passes it on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract, and this passes it on.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract, and this passes it on.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// So many idle processes are added for the second count.
const ADDED: usize = 300;

struct Idle(Vec<Child>);

impl Idle {
    fn start(count: usize) -> Self {
        let sleep = |_| Command::new("sleep").arg("120").stdin(Stdio::null()).spawn().expect("sleep");
        Idle((0..count).map(sleep).collect())
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        // They may have ended by themselves.
        self.0.iter_mut().for_each(|child| drop(child.kill()));
        self.0.iter_mut().for_each(|child| drop(child.wait()));
    }
}

/// How often a sample allocated; of several the least, because the machine beside may start a process any time.
fn least_allocations(sampler: &mut Sampler, frame: &mut Frame) -> u64 {
    let mut least = u64::MAX;
    for _ in 0..8 {
        std::thread::sleep(Duration::from_millis(100));
        let before = ALLOCATIONS.with(Cell::get);
        sampler.sample(frame).expect("a sample");
        least = least.min(ALLOCATIONS.with(Cell::get) - before);
    }
    least
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_steady_sample_allocates_nothing_whatever_the_number_of_tasks() {
    for use_bpf in [true, false] {
        let mut sampler = Sampler::open(Config { use_bpf, ..Config::default() }).expect("a sampler");
        let mut frame = Frame::new();
        sampler.sample(&mut frame).expect("a sample");
        let few = least_allocations(&mut sampler, &mut frame);
        let rows = frame.table(Entity::Task).len();
        let idle = Idle::start(ADDED);
        // The new tasks are taken in once; after that they are known.
        std::thread::sleep(Duration::from_millis(300));
        for _ in 0..3 {
            sampler.sample(&mut frame).expect("a sample");
            std::thread::sleep(Duration::from_millis(50));
        }
        let many = least_allocations(&mut sampler, &mut frame);
        assert!(frame.table(Entity::Task).len() >= rows + ADDED * 9 / 10);
        drop(idle);
        println!("bpf {use_bpf}: {few} allocations in a sample of {rows} tasks, {many} with {ADDED} more");
        // None at all on a quiet machine; a process that is born meanwhile is one more task to remember.
        assert!(few.max(many) < ADDED as u64 / 10, "with BPF: {use_bpf}: {few} and {many} allocations");
    }
}
