//! What the archive costs, on a simulated machine: `cargo bench -p mitra-archive`.
//!
//! Prints CPU time and memory of appending, bytes written and kept, and the time of reads over a day.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use mitra_archive::simulate::Machine;
use mitra_archive::{Options, Query, Reader, Writer};
use mitra_model::{Entity, Metric, Span, columns, lookup};

/// A line of `/proc/self/status` in KiB.
fn status_kib(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// CPU time of this process so far.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

fn append(dir: &Path, seconds: u32, tasks: usize, busy: usize) {
    let mut machine = Machine::new(tasks, busy, 1);
    machine.tick();
    // Resets the peak of resident memory.
    let _ = fs::write("/proc/self/clear_refs", "5");
    let before_kib = status_kib("VmRSS");
    let options = Options { max_bytes: u64::MAX, ..Options::default() };
    let mut writer = match Writer::open(dir, &Machine::host(), options) {
        Ok(writer) => writer,
        Err(error) => return eprintln!("{error}"),
    };
    let mut spent = Duration::ZERO;
    let mut longest = Duration::ZERO;
    for _ in 0..seconds {
        machine.tick();
        let start = cpu();
        if let Err(error) = writer.append(machine.frame(), machine.strings()) {
            return eprintln!("{error}");
        }
        let took = cpu() - start;
        spent += took;
        longest = longest.max(took);
    }
    let peak_kib = status_kib("VmHWM");
    let written = writer.written_bytes();
    if let Err(error) = writer.finish() {
        return eprintln!("{error}");
    }
    let kept: u64 = fs::read_dir(dir)
        .map(|entries| entries.flatten().filter_map(|e| e.metadata().ok()).map(|m| m.len()).sum())
        .unwrap_or(0);
    println!(
        "{tasks:>6} tasks, {busy:>4} busy: {:>5} us CPU each append, longest {:>6} us, {:>5} KiB resident; \
         {:>5} B/s kept, {:>5} B/s written",
        (spent / seconds).as_micros(),
        longest.as_micros(),
        peak_kib.saturating_sub(before_kib),
        kept / u64::from(seconds),
        written / u64::from(seconds),
    );
}

fn read(what: &str, dir: &Path, query: impl FnOnce(Span) -> Query) {
    let start = Instant::now();
    let reader = match Reader::open(dir) {
        Ok(reader) => reader,
        Err(error) => return eprintln!("{error}"),
    };
    let opened = start.elapsed();
    let Some(span) = reader.span() else { return };
    let (start, cpu_start) = (Instant::now(), cpu());
    match reader.read(&query(span)) {
        Ok(set) => {
            let series: usize = set.metrics().map(|(_, rows)| rows.len()).sum();
            let (took, used) = (start.elapsed(), cpu() - cpu_start);
            println!("{what}: open {opened:.1?}, read {took:.1?} ({used:.1?} CPU), {series} series");
        }
        Err(error) => eprintln!("{error}"),
    }
}

/// Opens an archive whose segment is about to be sealed, beside its writer.
fn open_log(dir: &Path, seconds: u32, tasks: usize, busy: usize) {
    let mut machine = Machine::new(tasks, busy, 1);
    let Ok(mut writer) = Writer::open(dir, &Machine::host(), Options::default()) else { return };
    for _ in 0..seconds {
        machine.tick();
        if let Err(error) = writer.append(machine.frame(), machine.strings()) {
            return eprintln!("{error}");
        }
    }
    let cpu_start = cpu();
    let frames = Reader::open(dir).and_then(|reader| reader.status()).map_or(0, |status| status.frames);
    println!(
        "open beside a writer, {frames} frames of {tasks} tasks in the log: {:.1?} CPU",
        cpu() - cpu_start
    );
}

fn main() {
    // `cargo test --benches` must end soon.
    let seconds = if std::env::args().any(|argument| argument == "--bench") { 86_400 } else { 60 };
    let scratch = std::env::temp_dir().join(format!("mitra-archive-bench-{}", std::process::id()));
    let dir = |name: &str| scratch.join(name);
    append(&dir("idle"), 1800.min(seconds), 1000, 0);
    append(&dir("busy"), 1800.min(seconds), 1000, 50);
    append(&dir("large"), 700.min(seconds), 10_000, 500);
    let day = dir("day");
    let start = Instant::now();
    append(&day, seconds, 1000, 50);
    println!("{seconds} s were simulated and recorded in {:.1?}", start.elapsed());

    let moving: Vec<&'static Metric> = columns(Entity::System)
        .iter()
        .filter(|metric| metric.name.starts_with("vm."))
        .take(40)
        .copied()
        .collect();
    read("40 system columns, all of it", &day, |_| Query::new(Span::ALL, moving.clone()));
    read("the same, ten minutes", &day, |span| {
        let since = span.until - 700_000_000_000;
        Query::new(Span { since, until: since + 600_000_000_000 }, moving.clone())
    });
    read("every system column, all of it", &day, |_| Query::new(Span::ALL, columns(Entity::System).to_vec()));
    let tasks: Vec<_> =
        ["task.cpu_time", "task.run_delay", "task.comm"].into_iter().filter_map(lookup).collect();
    read("three task columns, an hour", &day, |span| {
        Query::new(Span { since: span.until - 3_600_000_000_000, until: span.until }, tasks.clone())
    });
    read("the same, all of it, moving only", &day, |_| Query {
        moving_only: true,
        ..Query::new(Span::ALL, tasks.clone())
    });
    open_log(&dir("log"), 599.min(seconds), 1000, 50);
    open_log(&dir("large-log"), 299.min(seconds), 10_000, 500);
    let _ = fs::remove_dir_all(&scratch);
}
