//! Synthetic heaps, intact and damaged.

use proptest::prelude::*;

use super::*;
use crate::memory::budget::tests::Short;
use crate::memory::{Image, PAGE};

/// Addresses of the library's data, the main heap, and a heap of another arena.
const DATA: u64 = 0x7f12_3400_0000;
const MAIN_ARENA: u64 = DATA + 0x1c60;
const PARAMETERS: u64 = DATA + 0x200;
const BRK: u64 = 0x5555_5555_9000;
const OTHER: u64 = 0x7f00_0000_0000;

/// The layout of an arena in one glibc version.
#[derive(Clone, Copy)]
struct Version {
    bins: u64,
    counts_threads: bool,
    heap_info: u64,
    number: (u32, u32),
    is_protected: bool,
}

const NEW: Version =
    Version { bins: 112, counts_threads: true, heap_info: 48, number: (2, 36), is_protected: true };
const VERSIONS: [Version; 5] = [
    Version { bins: 104, counts_threads: false, heap_info: 32, number: (2, 17), is_protected: false },
    Version { bins: 104, counts_threads: true, heap_info: 32, number: (2, 24), is_protected: false },
    Version { bins: 112, counts_threads: true, heap_info: 32, number: (2, 28), is_protected: false },
    NEW,
    Version { bins: 24, counts_threads: true, heap_info: 48, number: (2, 43), is_protected: true },
];

impl Version {
    fn state_bytes(self) -> u64 {
        self.bins + 2032 + 16 + 16 + 16 + if self.counts_threads { 8 } else { 0 }
    }

    fn link(self, at: u64, to: u64) -> u64 {
        if self.is_protected { at >> 12 ^ to } else { to }
    }
}

/// Memory that is filled word by word.
struct Filled {
    start: u64,
    bytes: Vec<u8>,
}

impl Filled {
    fn new(start: u64, pages: u64) -> Self {
        Self { start, bytes: vec![0; (pages * PAGE) as usize] }
    }

    fn put(&mut self, at: u64, word: u64) {
        let at = (at - self.start) as usize;
        self.bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    fn state(&mut self, version: Version, at: u64, top: u64, next: u64, system: u64) {
        let bins = at + version.bins;
        for i in 0..127 {
            self.put(bins + 16 * i, bins + 16 * i - 16);
            self.put(bins + 16 * i + 8, bins + 16 * i - 16);
        }
        self.put(bins - 16, top);
        self.put(bins + 2048, next);
        let mut behind = bins + 2064;
        if version.counts_threads {
            self.put(behind, 1);
            behind += 8;
        }
        self.put(behind, system);
        self.put(behind + 8, system);
    }
}

/// Consecutive chunks.
struct Chunks {
    memory: Filled,
    at: u64,
    flags: u64,
    free: Option<u64>,
}

impl Chunks {
    fn new(memory: Filled, first: u64, flags: u64) -> Self {
        Self { memory, at: first, flags, free: None }
    }

    fn header(&mut self, field: u64) {
        let prev = self.free.take();
        self.memory.put(self.at, prev.unwrap_or(0x6161_6161));
        self.memory.put(self.at + 8, field | u64::from(prev.is_none()));
    }

    fn held(&mut self, size: u64) -> u64 {
        let at = self.at;
        self.header(size | self.flags);
        for i in 2..size / 8 {
            self.memory.put(at + 8 * i, 0x7878_7878_7878_7878);
        }
        self.at += size;
        at
    }

    fn free(&mut self, size: u64) -> u64 {
        let at = self.at;
        self.header(size);
        self.free = Some(size);
        self.at += size;
        at
    }

    fn top(mut self) -> (Filled, u64) {
        let top = self.at;
        self.header(self.memory.end() - top);
        (self.memory, top)
    }

    /// The two fencepost headers behind the last chunk, where another region follows.
    fn fence(mut self) -> Filled {
        assert_eq!(self.at + 32, self.memory.end());
        self.header(0x10);
        self.at += 16;
        self.free = None;
        self.header(0);
        self.memory
    }
}

struct Made {
    image: Image,
    detection: Detection,
    /// Chunks of the main arena, in the order of their addresses, and the top.
    chunks: Vec<u64>,
    top: u64,
}

/// A main arena with chunks of every kind, and another arena of two heaps.
fn made(version: Version) -> Made {
    let mut heap = Chunks::new(Filled::new(BRK, 64), BRK, 0);
    let mut at = Vec::new();
    // A thread's tcache, which has three chunks of 0x40.
    let cache = heap.held(0x290);
    at.push(cache);
    for _ in 0..1000 {
        at.push(heap.held(0x40));
    }
    for _ in 0..100 {
        at.push(heap.free(0x90));
        at.push(heap.held(0x30));
    }
    let unsorted = heap.free(0x500);
    at.push(unsorted);
    at.push(heap.held(0x20));
    let large = heap.free(0x3000);
    at.push(large);
    at.push(heap.held(0x20));
    let cached = [at[10], at[20], at[30]];
    for (i, chunk) in cached.iter().enumerate() {
        let next = cached.get(i + 1).map_or(0, |next| next + 16);
        heap.memory.put(chunk + 16, version.link(chunk + 16, next));
    }
    heap.memory.bytes[(cache - BRK + 16) as usize..][..640].fill(0);
    // The fourth two-byte counter, and the third entry: chunks of 0x40.
    heap.memory.put(cache + 16, 3 << 32);
    heap.memory.put(cache + 16 + 128 + 16, cached[0] + 16);
    let fast: Vec<u64> = (100..140).map(|i| at[i]).collect();
    for (i, chunk) in fast.iter().enumerate() {
        let next = fast.get(i + 1).copied().unwrap_or(0);
        heap.memory.put(chunk + 16, version.link(chunk + 16, next));
    }
    let (mut heap, top) = heap.top();

    let second = 64 << 20;
    let mut chunks = Chunks::new(Filled::new(OTHER + second, 8), OTHER + second + version.heap_info, 4);
    for _ in 0..100 {
        chunks.held(0x60);
    }
    let (mut later, other_top) = chunks.top();
    later.put(OTHER + second, OTHER + version.heap_info);
    later.put(OTHER + second + 8, OTHER);
    later.put(OTHER + second + 16, 8 * PAGE);
    let own = (version.heap_info + version.state_bytes()).next_multiple_of(16);
    let mut chunks = Chunks::new(Filled::new(OTHER, 8), OTHER + own, 4);
    for _ in 0..50 {
        chunks.held(0x60);
    }
    let rest = chunks.memory.end() - chunks.at - 32;
    chunks.free(rest);
    let mut first = chunks.fence();
    first.put(OTHER, OTHER + version.heap_info);
    first.put(OTHER + 8, 0);
    first.put(OTHER + 16, 8 * PAGE);
    first.state(version, OTHER + version.heap_info, other_top, MAIN_ARENA, 16 * PAGE);

    let mut data = Filled::new(DATA, 4);
    data.state(version, MAIN_ARENA, top, OTHER + version.heap_info, 64 * PAGE);
    let bin = MAIN_ARENA + version.bins - 16;
    data.put(bin + 16, unsorted);
    data.put(bin + 24, unsorted);
    heap.put(unsorted + 16, bin);
    heap.put(unsorted + 24, bin);
    if version.bins > 24 {
        // The list of 0x40 is the third of ten.
        data.put(bin - 80 + 16, fast[0]);
    }
    data.put(PARAMETERS, 5 | 65_536 << 32);
    data.put(PARAMETERS + 8, 9);
    data.put(PARAMETERS + 16, 5 * PAGE);
    data.put(PARAMETERS + 24, 9 * PAGE);
    data.put(PARAMETERS + 32, BRK);

    let mut image = Image::new(Word::Eight);
    image.add(BRK, &heap.bytes, "[heap]");
    image.add(OTHER, &first.bytes, "");
    image.add(OTHER + second, &later.bytes, "");
    image.add(DATA, &data.bytes, "/usr/lib/libc.so.6");
    let glibc = layout::find(&image, &[(DATA, DATA + 4 * PAGE)], Some(version.number));
    let detection = Detection { allocator: Allocator::Glibc, glibc, ..Detection::default() };
    Made { image, detection, chunks: at, top }
}

fn seen(made: &Made) -> CHeap {
    walk_heap(&made.image, &made.detection, &Options { samples: 2, ..Options::default() })
}

const fn count(chunks: u64, bytes: u64) -> Count {
    Count { chunks, bytes }
}

#[test]
fn each_version_is_found_and_walked() {
    for version in VERSIONS {
        let made = made(version);
        let glibc = made.detection.glibc.clone().unwrap();
        assert_eq!((glibc.main_arena, glibc.bins), (MAIN_ARENA, version.bins), "{:?}", version.number);
        assert_eq!(glibc.counts_threads, version.counts_threads, "{:?}", version.number);
        assert_eq!(glibc.parameters.as_ref().map(|it| it.sbrk_base), Some(PARAMETERS + 32));
        let heap = seen(&made);
        assert_eq!(heap.doubts, Doubts::default(), "{:?}", version.number);
        let fast = if version.bins > 24 { 40 } else { 0 };
        let main = &heap.arenas[0];
        assert!(main.is_main);
        assert_eq!(main.free.tcache, count(3, 3 * 0x40));
        assert_eq!(main.free.fastbin, count(fast, fast * 0x40));
        assert_eq!(main.free.unsorted, count(1, 0x500));
        assert_eq!(main.free.small, count(100, 100 * 0x90));
        assert_eq!(main.free.large, count(1, 0x3000));
        let held = 1000 - 3 - fast;
        assert_eq!(main.in_use, count(1 + held + 102, 0x290 + held * 0x40 + 100 * 0x30 + 2 * 0x20));
        assert_eq!(main.top_bytes, BRK + 64 * PAGE - made.top);
        assert_eq!((main.largest_free, main.resident_bytes), (0x3000, 64 * PAGE));
        let other = &heap.arenas[1];
        assert_eq!((other.heaps, other.in_use), (2, count(150, 150 * 0x60)));
        let all = other.in_use.bytes + other.free.all().bytes + other.top_bytes + other.overhead_bytes;
        assert_eq!(all, 16 * PAGE, "{other:?}");
        let of_0x40 = heap.sizes.iter().find(|size| size.chunk_bytes == 0x40).unwrap();
        assert_eq!((of_0x40.in_use_chunks, of_0x40.free_chunks), (held, 3 + fast));
        assert!(of_0x40.samples.iter().any(|sample| sample.text.as_deref().is_some_and(|t| t.len() < 65)));
        assert_eq!(heap.mmapped_by_its_account, Some(count(5, 5 * PAGE)));
    }
}

#[test]
fn without_being_asked_no_content_is_shown() {
    let made = made(NEW);
    let heap = walk_heap(&made.image, &made.detection, &Options::default());
    assert!(heap.sizes.iter().all(|size| size.samples.is_empty()));
    let few = walk_heap(&made.image, &made.detection, &Options { sizes_max: 2, ..Options::default() });
    assert_eq!(few.sizes.len(), 2);
    let listed: u64 = few.sizes.iter().map(|size| size.in_use_bytes).sum();
    assert_eq!(listed + few.other_sizes.in_use.bytes, heap.in_use().bytes);
}

#[test]
fn a_walk_that_is_ended_early_says_so() {
    let made = made(NEW);
    let whole = seen(&made);
    assert!(!whole.is_stopped && whole.fragmentation().is_some());
    let (mut before, mut is_whole) = (0, false);
    for steps in (1..40).map(|i| i * i * i) {
        let memory = Short::new(&made.image, steps);
        let heap = walk_heap(&memory, &made.detection, &Options::default());
        is_whole = !heap.is_stopped;
        let walked = heap.in_use().chunks + heap.free().chunks;
        assert!(walked >= before && walked <= whole.in_use().chunks + whole.free().chunks, "{steps}");
        assert!(is_whole || heap.fragmentation().is_none(), "{steps}");
        assert!(memory.reads_behind.get() < 20, "{steps}: {}", memory.reads_behind.get());
        if is_whole {
            assert_eq!(
                CHeap { took_us: 0, ..heap },
                CHeap { took_us: 0, ..walk_heap(&made.image, &made.detection, &Options::default()) }
            );
            break;
        }
        before = walked;
    }
    assert!(is_whole && before > 0);
}

#[test]
fn a_broken_header_costs_its_neighbourhood_only() {
    let mut made = made(NEW);
    let before = seen(&made).arenas[0].clone();
    for broken in [0_u64, 0x1234_5678_9abc, 0x8000_0000_0001, 0x48, u64::MAX] {
        made.image.write(made.chunks[500] + 8, &broken.to_le_bytes());
        let heap = seen(&made);
        let arena = &heap.arenas[0];
        assert_eq!(arena.doubts.bad_chunks, 1, "{broken:#x}");
        assert!((0x40..=0x80).contains(&arena.doubts.skipped_bytes), "{broken:#x}: {:?}", arena.doubts);
        assert_eq!(arena.in_use.bytes + arena.doubts.skipped_bytes, before.in_use.bytes);
        assert_eq!(arena.free, before.free);
        assert_eq!(arena.top_bytes, before.top_bytes);
    }
}

#[test]
fn a_list_without_end_is_not_followed_for_ever() {
    let mut made = made(NEW);
    let [first, last] = [made.chunks[100], made.chunks[139]];
    made.image.write(last + 16, &NEW.link(last + 16, first).to_le_bytes());
    let heap = seen(&made);
    assert_eq!((heap.doubts.torn_lists, heap.arenas[0].free.fastbin), (1, Count::default()));
    // A link that leads away.
    made.image.write(last + 16, &0x7777_7777_0000_u64.to_le_bytes());
    let heap = seen(&made);
    assert_eq!((heap.doubts.torn_lists, heap.arenas[0].free.fastbin.chunks), (1, 40));
    // The unsorted list: its only chunk points to itself.
    let unsorted = made.chunks[1201];
    made.image.write(unsorted + 16, &unsorted.to_le_bytes());
    let heap = seen(&made);
    assert_eq!((heap.doubts.torn_lists, heap.arenas[0].free.unsorted), (2, Count::default()));
    assert_eq!(heap.arenas[0].free.large.chunks, 2);
}

#[test]
fn what_is_not_in_memory_is_said() {
    let made = made(NEW);
    let mut image = Image::new(Word::Eight);
    for mapping in made.image.mappings() {
        let mut bytes = vec![0; mapping.bytes() as usize];
        made.image.exact(mapping.start, &mut bytes).unwrap();
        let (before, after) = if mapping.path == "[heap]" {
            (&bytes[..4 * PAGE as usize], &bytes[6 * PAGE as usize..])
        } else {
            (&bytes[..], &bytes[..0])
        };
        image.add(mapping.start, before, &mapping.path);
        image.add(mapping.start + 6 * PAGE, after, &mapping.path);
    }
    let whole = seen(&made);
    let heap = walk_heap(&image, &made.detection, &Options::default());
    let arena = &heap.arenas[0];
    assert_eq!(arena.resident_bytes, 62 * PAGE);
    let missing = arena.doubts.not_resident_bytes;
    assert!((2 * PAGE..2 * PAGE + 0x100).contains(&missing), "{missing}");
    let all = |arena: &Arena| arena.in_use.bytes + arena.free.all().bytes;
    assert_eq!(all(arena) + missing, all(&whole.arenas[0]));
    assert_eq!(arena.top_bytes, whole.arenas[0].top_bytes);
}

#[test]
fn there_is_a_word_for_what_is_not_walked() {
    let made = made(NEW);
    let musl = Detection { allocator: Allocator::Musl, ..Detection::default() };
    let heap = walk_heap(&made.image, &musl, &Options::default());
    assert!(heap.arenas.is_empty() && heap.why_not.unwrap().contains("musl"));
    let narrow = walk_heap(&Image::new(Word::Four), &made.detection, &Options::default());
    assert!(narrow.why_not.unwrap().contains("32-bit"));
}

fn stretch() -> impl Strategy<Value = (u64, u64)> {
    let pages = |start: u64, pages: u64| (0..pages * PAGE / 8).prop_map(move |word| start + 8 * word);
    let states = || (0..300_u64).prop_map(|word| MAIN_ARENA + 8 * word);
    let heads = || (0..300_u64).prop_map(|word| OTHER + 8 * word);
    let at = prop_oneof![pages(BRK, 12), pages(DATA, 4), states(), heads(), pages(OTHER, 8)];
    let word = prop_oneof![
        any::<u64>(),
        0..0x2000_u64,
        (0..64 * PAGE / 16).prop_map(|i| BRK + 16 * i),
        (0..300_u64).prop_map(|i| MAIN_ARENA + 8 * i),
        Just(0),
        Just(u64::MAX),
        Just(OTHER),
        Just(OTHER + 48),
    ];
    (at, word)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damage_of_any_kind_neither_panics_nor_hangs(damage in proptest::collection::vec(stretch(), 1..40)) {
        let mut made = made(NEW);
        for (at, word) in damage {
            made.image.write(at, &word.to_le_bytes());
        }
        let begun = Instant::now();
        let heap = seen(&made);
        let total: u64 = heap.arenas.iter().map(|arena| arena.resident_bytes).sum();
        prop_assert!(heap.in_use().bytes <= total);
        layout::find(&made.image, &[(DATA, DATA + 4 * PAGE)], None);
        prop_assert!(begun.elapsed().as_secs() < 20);
    }

    #[test]
    fn memory_of_noise_neither_panics_nor_hangs(words in proptest::collection::vec(any::<u64>(), 512), mask: u64) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| (word & mask).to_le_bytes()).collect();
        let mut image = Image::new(Word::Eight);
        for start in [DATA, BRK, OTHER, u64::MAX - 2 * PAGE] {
            image.add(start, &bytes, if start == BRK { "[heap]" } else { "" });
        }
        for version in VERSIONS {
            for main_arena in [DATA, u64::MAX - 100] {
                let (bins, counts_threads) = (version.bins, version.counts_threads);
                let glibc = Some(Glibc { main_arena, bins, counts_threads, parameters: None });
                walk_heap(&image, &Detection { glibc, ..Detection::default() }, &Options::default());
            }
        }
        layout::find(&image, &[(DATA, DATA + PAGE), (u64::MAX - 2 * PAGE, u64::MAX)], None);
    }
}
