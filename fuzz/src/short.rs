//! A moment of every target, without an engine: the seeds (`tools/fuzz-seeds.sh`), and damaged copies of them. The same in every run
//! unless `FUZZ_SEED` says otherwise, for `FUZZ_SECONDS` where that is said.

use std::env;
use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;
use std::time::{Duration, Instant};

use crate::{TARGETS, Target};

/// Damaged inputs of a target, and the longest that it takes over them, unless that is said.
const TRIES: usize = 20_000;
const SECONDS: f64 = 5.0;
/// An input that takes longer hangs for all that anybody can tell.
const INPUT_TIME_MAX: Duration = Duration::from_secs(20);
/// Longer inputs are not damaged: they are slow, and shorter ones reach as far.
const DAMAGED_BYTES_MAX: usize = 64 << 10;
/// What numbers become in text, and what may stand anywhere.
const WORDS: &[&str] = &[
    "0",
    "1",
    "-1",
    "4294967295",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999",
    "1e308",
    "-1e-320",
    "nan",
    "inf",
    "0x",
    "ffffffffffffffff",
    "null",
    "true",
    "[]",
    "{}",
    "\"\"",
    "\n",
    "\0",
    " ",
    "\t",
    ":",
    "/",
    "\u{e4}",
    "\u{fffd}",
    "\\",
    "[[[[[[[[",
    "{{{{{{{{",
];

/// Numbers that are as good as random and the same every time: Marsaglia's xorshift64*.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below another.
    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() >> 1).unwrap_or(0) % n.max(1)
    }
}

/// Runs a target on its seeds for a moment.
///
/// # Panics
///
/// As [`run`].
pub fn test(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target");
    SEEDS.call_once(make_seeds);
    run(target, &corpus(name));
}

/// Runs a target for a moment.
///
/// # Panics
///
/// An input makes the target panic, or takes too long: it is then in `artifacts/`.
pub fn run(target: &Target, inputs: &[Vec<u8>]) {
    let name = target.name;
    let number = |name: &str| env::var(name).ok().and_then(|value| value.parse::<f64>().ok());
    let (seconds, tries) = number("FUZZ_SECONDS").map_or((SECONDS, TRIES), |seconds| (seconds, usize::MAX));
    let seed = number("FUZZ_SEED").unwrap_or(1.0);
    assert!(!inputs.is_empty(), "nothing in corpus/{name}: tools/fuzz-seeds.sh makes seeds");
    let began = Instant::now();
    inputs.iter().for_each(|input| try_one(target, input));
    let mut noise = Noise((seed as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let small: Vec<&Vec<u8>> = inputs.iter().filter(|input| input.len() <= DAMAGED_BYTES_MAX).collect();
    let mut tried = 0;
    while tried < tries && began.elapsed().as_secs_f64() < seconds && !small.is_empty() {
        try_one(target, &damaged(&small, &mut noise));
        tried += 1;
    }
    println!("{name}: {} inputs and {tried} damaged ones in {:.1?}", inputs.len(), began.elapsed());
}

fn folder(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(of)
}

/// Makes the seeds of all targets, once for all tests.
static SEEDS: Once = Once::new();

fn make_seeds() {
    let script = folder("../tools/fuzz-seeds.sh");
    let made = Command::new("bash").arg(script).status();
    assert!(made.is_ok_and(|status| status.success()), "tools/fuzz-seeds.sh failed");
}

/// The inputs of a target, always in the same order.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let Ok(entries) = fs::read_dir(folder("corpus").join(name)) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.iter().filter_map(|path| fs::read(path).ok()).collect()
}

/// A copy of an input with a few mistakes, as files that are cut off, mixed up or made up have them.
fn damaged(inputs: &[&Vec<u8>], noise: &mut Noise) -> Vec<u8> {
    let mut bytes = inputs[noise.below(inputs.len())].clone();
    for _ in 0..=noise.below(4) {
        let at = noise.below(bytes.len() + 1);
        let end = (at + 1 + noise.below(16)).min(bytes.len());
        match noise.below(8) {
            0 => bytes.truncate(at),
            1 if at < end => bytes[at] ^= 1 << noise.below(8),
            2 if at < end => bytes[at] = [0, 0x7f, 0x80, 0xff][noise.below(4)],
            3 => drop(bytes.drain(at..end)),
            4 => {
                let again = bytes[at..end].repeat(1 + noise.below(8));
                drop(bytes.splice(at..at, again));
            }
            5 => {
                let other = inputs[noise.below(inputs.len())];
                let from = noise.below(other.len());
                let until = (from + noise.below(64)).min(other.len());
                drop(bytes.splice(at..end, other[from..until].iter().copied()));
            }
            // The number that comes next becomes another one.
            6 => {
                let rest = &bytes[at..];
                let from = at + rest.iter().position(u8::is_ascii_digit).unwrap_or(rest.len());
                let digits = bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                let word = WORDS[noise.below(WORDS.len())];
                drop(bytes.splice(from..from + digits, word.bytes()));
            }
            _ => drop(bytes.splice(at..at, WORDS[noise.below(WORDS.len())].bytes())),
        }
    }
    bytes
}

fn try_one(target: &Target, input: &[u8]) {
    let began = Instant::now();
    let result = panic::catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    // Where it takes long on a busy machine its own time is what counts.
    if result.is_ok() && (began.elapsed() < INPUT_TIME_MAX || own_time(target, input) < INPUT_TIME_MAX) {
        return;
    }
    let what = if result.is_ok() { "takes too long" } else { "panics" };
    let kept =
        keep(target.name, input).map_or_else(|| format!("{input:?}"), |path| path.display().to_string());
    panic!("{} {what}: {kept}", target.name);
}

/// The time that an input takes on a CPU: the first number of `schedstat` (proc(5)), in nanoseconds.
fn own_time(target: &Target, input: &[u8]) -> Duration {
    let now = || {
        let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        text.split(' ').next().and_then(|word| word.parse().ok()).map_or(Duration::ZERO, Duration::from_nanos)
    };
    let before = now();
    (target.run)(input);
    now().saturating_sub(before)
}

/// Keeps an input for whoever looks into it.
fn keep(name: &str, input: &[u8]) -> Option<PathBuf> {
    let sum = input.iter().fold(5381_u64, |sum, byte| sum.wrapping_mul(33) ^ u64::from(*byte));
    let dir = folder("artifacts").join(name);
    let path = dir.join(format!("short-{sum:016x}"));
    fs::create_dir_all(dir).and_then(|()| fs::write(&path, input)).ok()?;
    Some(path)
}
