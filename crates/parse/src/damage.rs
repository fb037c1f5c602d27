//! For every parser: a damaged file neither panics nor yields values that the whole file does not have.

use std::collections::BTreeMap;

use mitra_model::{Entity, Frame, Key, Strings, Unit, lookup};
use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_oneof};
use proptest::test_runner::{Config, TestRunner};

use crate::Outcome;
use crate::testing::{KERNELS, Parse, cells, fixture, fixture_paths, parser};

type Numbers = BTreeMap<(Entity, String, &'static str), i64>;

/// Places at which a file is cut, and at which it is damaged. Short files are cut and damaged at every byte.
const CUTS_MAX: usize = 1_500;
const DAMAGES_MAX: usize = 300;

/// A parser with the frame that it fills again and again.
struct Bench {
    parse: Parse,
    strings: Strings,
    frame: Frame,
    /// CPUs whose rows are there before the file is read.
    cpus: u32,
}

impl Bench {
    fn new(path: &str) -> Option<Self> {
        Some(Bench { parse: parser(path)?, strings: Strings::new(), frame: Frame::new(), cpus: 0 })
    }

    /// For a fixture whose lines are of CPUs that only `/proc/stat` names.
    fn of(kernel: &str, path: &str) -> Self {
        let is_nameless = path == "proc/net/softnet_stat" && ["3.10", "4.18"].contains(&kernel);
        Bench { cpus: if is_nameless { 4 } else { 0 }, ..Bench::new(path).unwrap() }
    }

    fn parse(&mut self, input: &[u8]) -> Outcome {
        self.frame.clear();
        for cpu in 0..self.cpus {
            let key = Key::named(self.strings.intern(&cpu.to_string()));
            self.frame.table_mut(Entity::Cpu).push(key);
        }
        (self.parse)(input, &mut self.strings, &mut self.frame)
    }

    /// The measured cells that are numbers, and how many lines were bad.
    fn numbers(&mut self, input: &[u8]) -> (Numbers, u32) {
        let outcome = self.parse(input);
        let mut numbers = cells(&self.frame, &self.strings);
        numbers.retain(|(_, _, metric), _| lookup(metric).unwrap().unit != Unit::Text);
        (numbers, outcome.bad_lines)
    }
}

/// Each fixture that a parser fills a frame from.
fn fixtures() -> Vec<(&'static str, String, &'static [u8])> {
    let mut all = Vec::new();
    for kernel in KERNELS {
        for path in fixture_paths(kernel) {
            if parser(&path).is_some() {
                let bytes = fixture(kernel, &path);
                all.push((kernel, path, bytes));
            }
        }
    }
    assert!(all.len() > 150, "only {} fixtures", all.len());
    all
}

/// Whether the file's numbers are stored as they are printed, none of them scaled, added up or counted.
fn is_verbatim(path: &str) -> bool {
    let others = ["proc/loadavg", "proc/net/softnet_stat", "proc/net/stat/nf_conntrack", "proc/interrupts"];
    !others.contains(&path) && !path.starts_with("sys/fs/cgroup")
}

/// Whether the file is a setting, which may be negative.
fn may_be_negative(path: &str) -> bool {
    path.starts_with("proc/sys/") && !path.starts_with("proc/sys/fs/")
}

/// Asserts that nothing is said beyond what the whole file says. Rows whose name was damaged are new; they are not
/// looked at.
fn assert_within(whole: &Numbers, part: &Numbers, what: &dyn Fn() -> String) {
    for (cell, value) in part {
        if let Some(expected) = whole.get(cell) {
            assert_eq!(value, expected, "{cell:?} of {}", what());
        } else {
            let has_row = whole.keys().any(|(entity, row, _)| *entity == cell.0 && *row == cell.1);
            assert!(!has_row, "{cell:?} = {value} of {}", what());
        }
    }
}

#[test]
fn every_fixture_says_something_and_is_clean() {
    for (kernel, path, bytes) in fixtures() {
        let mut bench = Bench::of(kernel, &path);
        for _ in 0..3 {
            let outcome = bench.parse(bytes);
            assert_eq!((outcome.bad_lines, outcome.unknown_keys), (0, 0), "{kernel}/{path}");
        }
        let is_unlimited = ["max\n", "-1\n", "9223372036854775807\n", "9223372036854771712\n"];
        if !is_unlimited.iter().any(|text| text.as_bytes() == bytes) {
            assert!(!cells(&bench.frame, &bench.strings).is_empty(), "{kernel}/{path}");
        }
    }
}

#[test]
fn cut_off_anywhere() {
    for (kernel, path, bytes) in fixtures() {
        if path.ends_with("io.stat") || path.ends_with("nf_conntrack") {
            // A sum over lines cannot tell that some are missing at the end.
            continue;
        }
        let mut bench = Bench::of(kernel, &path);
        let (whole, _) = bench.numbers(bytes);
        let step = bytes.len().div_ceil(CUTS_MAX).max(1);
        for end in (0..bytes.len()).step_by(step) {
            let (part, bad) = bench.numbers(&bytes[..end]);
            let what = || format!("{kernel}/{path} cut at {end}");
            assert_within(&whole, &part, &what);
            if end > 0 && bytes[end - 1] != b'\n' {
                assert!(bad > 0, "{}", what());
            }
        }
        let mut fresh = Bench::of(kernel, &path);
        assert_within(&whole, &fresh.numbers(&bytes[..bytes.len() / 2]).0, &|| format!("{kernel}/{path}"));
    }
}

#[test]
fn one_byte_is_wrong() {
    for (kernel, path, bytes) in fixtures() {
        let mut bench = Bench::of(kernel, &path);
        let (whole, _) = bench.numbers(bytes);
        let mut damaged = bytes.to_vec();
        let step = bytes.len().div_ceil(DAMAGES_MAX).max(1);
        for at in (0..bytes.len()).step_by(step) {
            for byte in [b'x', b'-', b'\r', 0, 0xff] {
                if byte == b'-' && may_be_negative(&path) {
                    continue;
                }
                damaged[at] = byte;
                let (part, _) = bench.numbers(&damaged);
                assert_within(&whole, &part, &|| format!("{kernel}/{path} with {byte:?} at {at}"));
            }
            damaged[at] = bytes[at];
        }
        // A layout learned from damaged files does not spoil a good one.
        assert_eq!(bench.numbers(bytes), (whole, 0), "{kernel}/{path}");
    }
}

#[test]
fn everything_twice() {
    for (kernel, path, bytes) in fixtures() {
        let mut bench = Bench::of(kernel, &path);
        let (whole, _) = bench.numbers(bytes);
        let (twice, bad) = bench.numbers(&[bytes, bytes].concat());
        assert_within(&whole, &twice, &|| format!("{kernel}/{path} twice"));
        assert!(bad > 0, "{kernel}/{path}");
    }
}

#[test]
fn lines_of_another_system() {
    for (kernel, path, bytes) in fixtures() {
        let mut bench = Bench::of(kernel, &path);
        let text = String::from_utf8(bytes.to_vec()).unwrap().replace('\n', "\r\n");
        let (numbers, bad) = bench.numbers(text.as_bytes());
        assert_eq!(numbers, BTreeMap::new(), "{kernel}/{path}");
        assert!(bad > 0, "{kernel}/{path}");
    }
}

#[test]
fn numbers_that_do_not_fit() {
    for (kernel, path, bytes) in fixtures() {
        let mut bench = Bench::of(kernel, &path);
        let mut huge = String::new();
        for (i, part) in
            String::from_utf8(bytes.to_vec()).unwrap().split(|c: char| c.is_ascii_digit()).enumerate()
        {
            if i > 0 && (!part.is_empty() || huge.ends_with('\n')) {
                huge.push_str("99999999999999999999");
            }
            huge.push_str(part);
        }
        let (numbers, _) = bench.numbers(huge.as_bytes());
        assert_eq!(numbers, BTreeMap::new(), "{kernel}/{path}");
    }
}

#[test]
fn negative_numbers() {
    for (kernel, path, bytes) in fixtures() {
        if !is_verbatim(&path) || may_be_negative(&path) {
            continue;
        }
        let mut negative = String::new();
        let mut before = '\n';
        for c in String::from_utf8(bytes.to_vec()).unwrap().chars() {
            if c.is_ascii_digit() && matches!(before, ' ' | '\t' | '=' | '\n') {
                negative.push('-');
            }
            negative.push(c);
            before = c;
        }
        let (numbers, bad) = Bench::of(kernel, &path).numbers(negative.as_bytes());
        assert_eq!(numbers, BTreeMap::new(), "{kernel}/{path}");
        assert!(bad > 0 || path.ends_with("enabled"), "{kernel}/{path}");
    }
}

/// A change of a file.
#[derive(Debug, Clone)]
enum Change {
    Overwrite(usize, Vec<u8>),
    Delete(usize, usize),
    Repeat(usize, usize),
    SwapLines(usize, usize),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let length = bytes.len().max(1);
        match self {
            Change::Overwrite(at, with) => {
                for (slot, byte) in bytes.iter_mut().skip(at % length).zip(with) {
                    *slot = *byte;
                }
            }
            Change::Delete(at, count) => {
                let start = (at % length).min(bytes.len());
                bytes.drain(start..(start + count).min(bytes.len()));
            }
            Change::Repeat(at, count) => {
                let start = (at % length).min(bytes.len());
                let piece = bytes[start..(start + count).min(bytes.len())].to_vec();
                bytes.splice(start..start, piece);
            }
            Change::SwapLines(a, b) => {
                let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
                if !lines.is_empty() {
                    let count = lines.len();
                    lines.swap(a % count, b % count);
                    *bytes = lines.concat();
                }
            }
        }
    }
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let at = || 0_usize..100_000;
    let change = prop_oneof![
        (at(), vec(any::<u8>(), 1..12)).prop_map(|(at, with)| Change::Overwrite(at, with)),
        (at(), 1_usize..80).prop_map(|(at, count)| Change::Delete(at, count)),
        (at(), 1_usize..200).prop_map(|(at, count)| Change::Repeat(at, count)),
        (at(), at()).prop_map(|(a, b)| Change::SwapLines(a, b)),
    ];
    vec(change, 1..8)
}

/// Asserts that each number stands in the bytes, digit for digit.
fn assert_printed(numbers: &Numbers, bytes: &[u8], path: &str) {
    for ((_, row, metric), value) in numbers {
        if *metric == "sys.cpus_online" || !is_verbatim(path) {
            continue;
        }
        let text = value.to_string();
        // Zeros before a number are not repeated.
        let is_printed = bytes.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(is_printed, "{metric} of {row} = {value} is not in {path}");
    }
}

#[test]
fn changed_files_say_nothing_new() {
    let all = fixtures();
    let mut benches: Vec<Bench> = all.iter().map(|(kernel, path, _)| Bench::of(kernel, path)).collect();
    let benches = std::cell::RefCell::new(&mut benches);
    let mut runner = TestRunner::new(Config { cases: 6_000, failure_persistence: None, ..Config::default() });
    runner
        .run(&(0..all.len(), changes()), |(which, changes)| {
            let (_, path, bytes) = &all[which];
            let mut changed = bytes.to_vec();
            changes.iter().for_each(|change| change.apply(&mut changed));
            let (numbers, _) = benches.borrow_mut()[which].numbers(&changed);
            assert_printed(&numbers, &changed, path);
            Ok(())
        })
        .unwrap();
}

#[test]
fn random_bytes_say_nothing() {
    let mut paths: Vec<String> = fixtures().into_iter().map(|(_, path, _)| path).collect();
    paths.sort_unstable();
    paths.dedup();
    let mut runner = TestRunner::new(Config { cases: 4_000, failure_persistence: None, ..Config::default() });
    let any_bytes =
        prop_oneof![vec(any::<u8>(), 0..300), "[0-9a-zA-Z:=. \t\n-]{0,300}".prop_map(String::into_bytes)];
    runner
        .run(&(0..paths.len(), any_bytes), |(which, bytes)| {
            let path = &paths[which];
            let (numbers, _) = Bench::new(path).unwrap().numbers(&bytes);
            assert_printed(&numbers, &bytes, path);
            Ok(())
        })
        .unwrap();
}

#[test]
fn files_that_fill_no_frame_survive_anything() {
    let mut runner = TestRunner::new(Config { cases: 4_000, failure_persistence: None, ..Config::default() });
    let names = ["stat", "status", "io", "schedstat", "cgroup", "stack"];
    let bytes: Vec<&[u8]> = names.iter().map(|name| fixture("6.18", &format!("proc/4242/{name}"))).collect();
    let mounts = fixture("5.15", "proc/self/mounts");
    let kmsg = b"6,339,5140900,-;NET: Registered \\x0a protocol family 10\n SUBSYSTEM=acpi\n";
    runner
        .run(&(0..bytes.len() + 2, changes()), |(which, changes)| {
            let whole = bytes.get(which).copied().unwrap_or(if which == bytes.len() { mounts } else { kmsg });
            let mut changed = whole.to_vec();
            changes.iter().for_each(|change| change.apply(&mut changed));
            let mut files = crate::task_status::TaskFiles::new(4096);
            let mut cells = crate::testing::Cells::task();
            let (strings, row) = (&mut cells.strings, &mut cells.row);
            if let Some(stat) = crate::task::task_stat(&changed) {
                files.columns().stat(&stat, true, true, strings, row);
                assert!(stat.comm.len() < changed.len());
            }
            files.status(&changed, true, row);
            files.io(&changed, row);
            files.schedstat(&changed, row);
            files.cgroup(&changed, strings, row);
            crate::stack::stack(&changed, &mut String::new());
            let _ = crate::mounts::mounts(&changed);
            let _ = crate::kmsg::record(&changed);
            Ok(())
        })
        .unwrap();
}
