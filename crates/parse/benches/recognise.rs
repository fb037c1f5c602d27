//! What it costs to ask each format whether a line is its own: nanoseconds per line.
//!
//! `cargo bench -p mitra-parse --bench recognise` asks every format about every line of a log that none of them knows,
//! and of the saved outputs of other tools. The sums say how fast a file is passed over that nothing recognises;
//! `whole` is what a reading of the same lines takes, with what is remembered of lines of the same shape.
//! `-- kernel` prints the formats only whose name has that in it.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads its fixtures")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use mitra_parse::text::{self, Context, FAMILIES, Import, Lines, context};

const LINES: usize = 20_000;
const PASSES: usize = 5;

fn main() {
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let inputs = [("unknown log", unknown_log()), ("plain words", plain_words()), ("other tools", outputs())];
    print!("{:<26}", "ns per line");
    for (name, _) in &inputs {
        print!("{name:>14}");
    }
    println!();
    let base: Vec<f64> =
        inputs.iter().map(|(_, input)| pass(input, |lines| lines.peek().is_some())).collect();
    let mut sums = vec![0.0; inputs.len()];
    for format in FAMILIES.iter().flat_map(|family| family.formats) {
        let context = Context::default();
        let costs = inputs.iter().zip(&base);
        let costs: Vec<f64> =
            costs.map(|((_, i), base)| pass(i, |lines| (format.starts)(lines, &context)) - base).collect();
        sums.iter_mut().zip(&costs).for_each(|(sum, cost)| *sum += cost);
        if format.name.contains(&wanted) {
            row(format.name, &costs);
        }
    }
    row("all formats", &sums);
    let mut import = Import::new(None);
    let mut take = |lines: &mut Lines<'_>| lines.peek().is_some_and(|line| context::take(line, &mut import));
    let costs: Vec<f64> = inputs.iter().zip(&base).map(|((_, i), base)| pass(i, &mut take) - base).collect();
    row("prompts and times", &costs);
    let costs: Vec<f64> = inputs.iter().map(|(_, input)| whole(input)).collect();
    row("whole", &costs);
}

fn row(name: &str, costs: &[f64]) {
    print!("{name:<26}");
    for cost in costs {
        print!("{cost:>14.1}");
    }
    println!();
}

/// The best of some passes over all lines.
fn pass(input: &[u8], mut ask: impl FnMut(&mut Lines<'_>) -> bool) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..PASSES {
        let mut rest = input;
        let mut lines = Lines::new(&mut rest);
        let start = Instant::now();
        while lines.peek().is_some() {
            black_box(ask(&mut lines));
            lines.advance();
        }
        best = best.min(start.elapsed().as_secs_f64() / f64::from(lines.number()));
    }
    best * 1e9
}

fn whole(input: &[u8]) -> f64 {
    let lines = input.split(|b| *b == b'\n').count();
    let mut best = f64::MAX;
    for _ in 0..PASSES {
        let mut import = Import::new(None);
        let start = Instant::now();
        text::read(&mut black_box(input), "unknown", &mut import).expect("reading memory does not fail");
        best = best.min(start.elapsed().as_secs_f64() / lines as f64);
    }
    best * 1e9
}

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Lines of an application whose times are in no form that a log has.
fn unknown_log() -> Vec<u8> {
    let mut dice = Dice(1);
    let mut out = String::new();
    for i in 0..LINES {
        let (a, b) = (dice.below(100_000), dice.below(1000));
        let _ = match dice.below(6) {
            0 => writeln!(
                out,
                "I1121 {b:06} worker-{b} handled request id={a:x} status=200 took={b}us bytes={a}"
            ),
            1 => writeln!(
                out,
                "level=info component=store msg=\"compacted {a} keys\" shard={b} duration={b}ms"
            ),
            2 => writeln!(out, "WARN com.example.orders.Queue$Worker - retry {b} of order {a}, customer {i}"),
            3 => {
                writeln!(out, "\tat com.example.orders.Handler.call(Handler.java:{b}) ~[orders-1.{b}.jar:?]")
            }
            4 => writeln!(out, "{a} {b} GET /api/v1/items/{i}?page={b} 200 {a} \"curl/8.5.0\" - {b} 0.0{b}"),
            _ => writeln!(
                out,
                "#{i} T{b} E: connection to 10.0.{}.{}:{a} refused (attempt {b})",
                b % 256,
                a % 256
            ),
        };
    }
    out.into_bytes()
}

/// Prose, some of it with colons and brackets.
fn plain_words() -> Vec<u8> {
    const WORDS: [&str; 12] = [
        "the",
        "cache",
        "Index:",
        "was",
        "[main]",
        "rebuilt",
        "after",
        "42",
        "(none)",
        "path/to/x",
        "ok,",
        "=>",
    ];
    let mut dice = Dice(2);
    let mut out = String::new();
    for _ in 0..LINES {
        for _ in 0..5 + dice.below(12) {
            let word = WORDS.get(dice.below(12) as usize).copied().unwrap_or_default();
            let _ = write!(out, "{word} ");
        }
        out.push('\n');
    }
    out.into_bytes()
}

/// Some lines of each file below `tests/outputs`.
fn outputs() -> Vec<u8> {
    let mut files = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/outputs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the fixtures are there").flatten() {
            let path = entry.path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    let mut out = Vec::new();
    for input in files.iter().filter_map(|file| std::fs::read(file).ok()) {
        let lines: Vec<&[u8]> = input.split(|b| *b == b'\n').collect();
        let per_file = (LINES / files.len().max(1)).max(1);
        for line in lines.iter().step_by((lines.len() / per_file).max(1)) {
            out.extend_from_slice(line);
            out.push(b'\n');
        }
    }
    out
}
