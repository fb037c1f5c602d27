//! The damaged memory of a Python process: a walk ends on any content, in bounded time, and reports
//! it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Instant;

use mitra_inspect::python;
use mitra_inspect::python::holders::Graph;
use mitra_inspect::{Image, Memory, Target, Word};
use proptest::prelude::*;

/// Limit of the captured bytes of a mapping.
const BYTES_MAX: u64 = 32 << 20;
/// Time limit: a walk over some 60,000 objects takes a fraction of a second.
const SECONDS_MAX: u64 = 60;

/// The memory of an idle interpreter.
fn capture(interpreter: &Path) -> Option<Image> {
    if !interpreter.exists() {
        println!("skipped: there is no {}", interpreter.display());
        return None;
    }
    let mut child = Command::new(interpreter)
        .args(["-I", "-c", "import collections; import sys; print(flush=True); sys.stdin.read()"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line)
        .unwrap();
    let target = Target::open(child.id()).unwrap();
    let mut image = Image::new(Word::Eight);
    for mapping in target.mappings() {
        let is_wanted = mapping.access.read && !mapping.path.starts_with("[v");
        let is_of_it = mapping.path.is_empty() || mapping.path.contains("python") || mapping.path == "[heap]";
        if is_wanted && is_of_it && mapping.bytes() <= BYTES_MAX {
            let mut bytes = vec![0; mapping.bytes() as usize];
            let read = target.read(mapping.start, &mut bytes);
            image.add(mapping.start, &bytes[..read], &mapping.path);
        }
    }
    drop(child.stdin.take());
    child.wait().unwrap();
    Some(image)
}

fn captured() -> &'static Vec<Image> {
    static IMAGES: OnceLock<Vec<Image>> = OnceLock::new();
    IMAGES.get_or_init(|| {
        let versions =
            std::env::var_os("HOME").map(|home| Path::new(&home).join(".pyenv/versions")).unwrap_or_default();
        let of = |version: &str| versions.join(version).join("bin/python3");
        let all: [PathBuf; 4] = [of("3.6.15"), of("3.9.18"), of("3.11.7"), of("3.13.0")];
        all.iter().filter_map(|interpreter| capture(interpreter)).collect()
    })
}

/// Reads everything that can be read.
fn look(image: &Image) -> u64 {
    let begin = Instant::now();
    let Ok(mut heap) = python::open_memory(image) else { return 0 };
    let found = heap.walk();
    let mut references = 0_u64;
    let mut shown = 0;
    heap.each(&mut |address| {
        assert!(heap.kind(address).is_some());
        heap.references(address, &mut |target, edge| {
            references += 1;
            // Describing all of them would take long.
            if references.is_multiple_of(64) {
                shown += heap.describe(address, edge).len();
                shown += heap.text(target, 64).map_or(0, |text| text.len());
            }
        });
    });
    heap.roots(&mut |root, _| shown += format!("{root:?}").len());
    assert!(begin.elapsed().as_secs() < SECONDS_MAX, "{:?} for {} objects", begin.elapsed(), found.objects);
    assert_eq!(found.objects, found.types.iter().map(|row| row.count).sum::<u64>());
    found.objects
}

#[test]
fn a_capture_is_as_good_as_the_process() {
    for image in captured() {
        let found = look(image);
        assert!(found > 10_000, "{found} objects");
    }
}

/// How a word is damaged.
#[derive(Debug, Clone, Copy)]
enum Damage {
    Flip(u32),
    Set(u64),
    /// A copy of another word: mostly a pointer to an object of the wrong kind.
    Copy(u64),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        (0..64_u32).prop_map(Damage::Flip),
        prop_oneof![Just(0), Just(u64::MAX), Just(1 << 62), Just(0x7fff_ffff_ffff_fff8), any::<u64>()]
            .prop_map(Damage::Set),
        any::<u64>().prop_map(Damage::Copy),
    ]
}

/// The address of a writable word.
fn some_word(image: &Image, number: u64) -> u64 {
    let total: u64 = image.mappings().iter().map(|mapping| mapping.bytes() / 8).sum();
    let mut number = number % total.max(1);
    for mapping in image.mappings() {
        let words = mapping.bytes() / 8;
        if number < words {
            return mapping.start + 8 * number;
        }
        number -= words;
    }
    0
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 0, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_capture_ends_well(
        which in any::<prop::sample::Index>(),
        seed in any::<u64>(),
        kinds in prop::collection::vec(damage(), 1..64),
        count in prop_oneof![Just(50_u64), Just(5_000), Just(200_000)],
    ) {
        let images = captured();
        if images.is_empty() {
            return Ok(());
        }
        let mut image = images[which.index(images.len())].clone();
        let mut state = seed | 1;
        for i in 0..count {
            // xorshift64: the damaged words need only be spread.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = some_word(&image, state);
            let word = image.u64(at).unwrap_or(0);
            let word = match kinds[i as usize % kinds.len()] {
                Damage::Flip(bit) => word ^ 1 << bit,
                Damage::Set(word) => word,
                Damage::Copy(number) => image.u64(some_word(&image, number.wrapping_mul(i + 1))).unwrap_or(0),
            };
            image.write(at, &word.to_le_bytes());
        }
        look(&image);
    }

    #[test]
    fn noise_is_no_interpreter(bytes in prop::collection::vec(any::<u8>(), 0..4096), name in prop_oneof![Just("/usr/bin/python3.11"), Just("/lib/libpython3.6m.so.1.0"), Just("")]) {
        let mut image = Image::new(Word::Eight);
        image.add(0x5555_0000_0000, &bytes, name);
        let mut with_head = b"\x7fELF\x02\x01\x01\0".to_vec();
        with_head.extend_from_slice(&bytes);
        image.add(0x5556_0000_0000, &with_head, name);
        prop_assert!(python::open_memory(&image).is_err());
    }
}
