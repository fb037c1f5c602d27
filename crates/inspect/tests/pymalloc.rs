//! Compares the small objects of real interpreters with `sys._debugmallocstats`.

#[path = "services/pythons.rs"]
mod pythons;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use mitra_inspect::Target;
use mitra_inspect::python::pymalloc::Pymalloc;
use pythons::pythons;

/// Fills pools of many sizes, empties some of them, and prints the allocator's counts for each
/// input line.
const PROGRAM: &str = "
import sys, gc
held = [bytes(i % 480) for i in range(200000)] + [str(i) * 3 for i in range(100000)]
del held[1::3]
lists = [[i, i + 1] for i in range(50000)]
gc.collect()
print('ready', flush=True)
sys.stdin.readline()
sys._debugmallocstats()
sys.stderr.flush()
print('said', flush=True)
sys.stdin.readline()
";

/// Its output: by class (blocks, pools, blocks in use, free), and all arenas.
struct Truth {
    classes: BTreeMap<u64, [u64; 3]>,
    arenas: u64,
    arena_bytes: u64,
    unused_pools: u64,
}

fn parse(text: &str) -> Truth {
    let mut truth = Truth { classes: BTreeMap::new(), arenas: 0, arena_bytes: 0, unused_pools: 0 };
    let mut is_table = false;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let numbers: Vec<u64> = words.iter().filter_map(|word| word.replace(',', "").parse().ok()).collect();
        if line.starts_with("-----") {
            is_table = true;
        } else if words.is_empty() {
            is_table &= truth.classes.is_empty();
        } else if is_table && numbers.len() == 5 && words.len() == 5 {
            truth.classes.insert(numbers[1], [numbers[2], numbers[3], numbers[4]]);
        } else if words.get(1..3) == Some(&["arenas", "*"]) {
            truth.arenas = numbers[0];
            truth.arena_bytes = *numbers.last().unwrap();
        } else if words.get(1..3) == Some(&["unused", "pools"]) {
            truth.unused_pools = numbers[0];
        }
    }
    truth
}

#[test]
fn arenas_pools_and_blocks_are_those_that_the_interpreter_counts() {
    for (version, python) in pythons(&[]) {
        let mut child = Command::new(&python)
            .args(["-c", PROGRAM])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "ready");
        let target = Target::open(child.id()).unwrap();
        let before = std::time::Instant::now();
        let found = Pymalloc::read(&target).unwrap_or_else(|| panic!("{version}: no arenas"));
        let took = before.elapsed();
        stdin.write_all(b"say\n").unwrap();
        stdout.read_line(&mut line).unwrap();
        drop(stdin);
        let text = child.wait_with_output().unwrap().stderr;
        let truth = parse(&String::from_utf8_lossy(&text));
        println!(
            "{version}: {} arenas, {} pools, {} bytes in use, {} free in pools, {took:?}",
            found.arenas, found.pools_used, found.bytes_in_use, found.bytes_free_in_pools
        );
        assert!(!found.is_estimate, "{version}");
        assert_eq!(found.doubts, Default::default(), "{version}");
        assert_eq!((found.arenas, found.arena_bytes), (truth.arenas, truth.arena_bytes), "{version}");
        assert!(found.pools_free.abs_diff(truth.unused_pools) <= 2, "{version}");
        // The interpreter itself takes and frees some blocks while it answers.
        let near = |ours: u64, theirs: u64| ours.abs_diff(theirs) <= 20 + theirs / 100;
        for class in &found.classes {
            let theirs = truth.classes.get(&class.class_bytes).copied().unwrap_or_default();
            let ours = [class.pools, class.blocks_in_use, class.blocks_free];
            let is_near = near(ours[0], theirs[0]) && near(ours[1], theirs[1]);
            assert!(is_near, "{version}, {} bytes: {ours:?} are {theirs:?}", class.class_bytes);
        }
        let theirs: u64 = truth.classes.iter().map(|(bytes, [_, in_use, _])| bytes * in_use).sum();
        assert!(
            theirs > 20_000_000 && found.bytes_in_use.abs_diff(theirs) * 100 <= theirs,
            "{version}: {theirs}"
        );
        assert!(found.resident_bytes <= found.arena_bytes && found.resident_bytes >= found.bytes_in_use);
    }
}

#[test]
fn an_interpreter_with_another_allocator_has_no_arenas() {
    let Some((version, python)) = pythons(&[]).pop() else { return };
    let mut child = Command::new(python)
        .args(["-c", "print('ready', flush=True); input()"])
        .env("PYTHONMALLOC", "malloc")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let found = Pymalloc::read(&Target::open(child.id()).unwrap());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(found, None, "{version}");
}
