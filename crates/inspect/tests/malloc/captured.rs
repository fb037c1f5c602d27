//! The damaged memory of a real program: a walk ends on any content, and counts no more than there
//! is.

use std::process::Command;
use std::time::Instant;

use mitra_inspect::malloc::{Detection, Options, find, walk_heap};
use mitra_inspect::{Image, Memory, Target};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::support::{Running, compile};

/// The resident writable memory of a program.
fn captured(target: &Target) -> Image {
    let mut image = Image::new(target.word());
    for mapping in target.mappings().iter().filter(|mapping| mapping.access.write && !mapping.access.shared) {
        target.resident(mapping.start, mapping.end, &mut |from, to| {
            let mut bytes = vec![0; (to - from) as usize];
            let read = target.read(from, &mut bytes);
            image.add(from, &bytes[..read], &mapping.path);
            true
        });
    }
    image
}

/// A random word and its replacement: noise, a small number, or a word from elsewhere in the same
/// memory.
fn damage(image: &Image, detection: &Detection) -> impl Strategy<Value = (u64, u64)> + use<> {
    let arena = detection.glibc.as_ref().unwrap().main_arena;
    let stretches: Vec<(u64, u64)> = image.mappings().iter().map(|m| (m.start, m.bytes() / 8)).collect();
    let of_heap = stretches.clone();
    let somewhere = move |stretches: &[(u64, u64)], which: usize, word: u64| {
        let (start, words) = stretches[which % stretches.len()];
        start + 8 * (word % words)
    };
    let at = prop_oneof![
        (any::<usize>(), any::<u64>()).prop_map(move |(which, word)| somewhere(&of_heap, which, word)),
        (0..300_u64).prop_map(move |word| arena + 8 * word),
    ];
    let elsewhere =
        (any::<usize>(), any::<u64>()).prop_map(move |(which, word)| somewhere(&stretches, which, word));
    let word = prop_oneof![any::<u64>(), 0..0x2000_u64, elsewhere.clone(), elsewhere.prop_map(|at| at & !15)];
    (at, word)
}

#[test]
fn damaged_memory_of_a_program() {
    let Some(program) = compile("cc", "truth.c", "captured", &[]) else { return };
    let Some(running) = Running::start(Command::new(program).arg("cached")) else { return };
    let target = running.target();
    let detection = find(&target).unwrap();
    let image = captured(&target);
    let options = Options { samples: 2, ..Options::default() };
    let whole = walk_heap(&image, &detection, &options);
    assert_eq!(whole.in_use(), walk_heap(&target, &detection, &options).in_use());
    let image_bytes: u64 = image.mappings().iter().map(|mapping| mapping.bytes()).sum();
    let mut runner = TestRunner::new(Config { cases: 300, failure_persistence: None, ..Config::default() });
    let damages = proptest::collection::vec(damage(&image, &detection), 1..60);
    let ended = runner.run(&damages, |damages| {
        let mut image = image.clone();
        for (at, word) in damages {
            image.write(at, &word.to_le_bytes());
        }
        let begun = Instant::now();
        let heap = walk_heap(&image, &detection, &options);
        prop_assert!(begun.elapsed().as_secs() < 20);
        prop_assert!(heap.in_use().bytes + heap.free().bytes <= image_bytes);
        Ok(())
    });
    ended.unwrap();
}
