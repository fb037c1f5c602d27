//! `interrupts`: what the kernel counts in `/proc/interrupts` and `/proc/softirqs`, and bpftrace measures.

use std::collections::HashMap;
use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::time::{Duration, Instant};

use mitra_collect::capture::{Capture, Request};
use mitra_model::capture::{CaptureTable, Cell, Ended, Raw};

use crate::armed::judge::Judge;
use crate::{arm, column, number, rows, table, text, thread};

/// Of the whole machine.
fn all() -> Request {
    Request { cost_budget: 1.0, ..Request::new("interrupts", 20.0, "test") }
}

/// Kind, number of an interrupt or name of a softirq, CPU.
type Handler = (&'static str, String, u32);
type Counts = HashMap<Handler, u64>;

/// How often each handler ran since the machine began.
fn counted() -> Counts {
    let mut counts = Counts::new();
    for (kind, path) in [("hard", "/proc/interrupts"), ("soft", "/proc/softirqs")] {
        let text = fs::read_to_string(path).unwrap();
        let mut lines = text.lines();
        let cpus = lines.next().unwrap().split_whitespace();
        let cpus: Vec<u32> = cpus.map(|cpu| cpu.trim_start_matches("CPU").parse().unwrap()).collect();
        for line in lines {
            let (name, rest) = line.trim().split_once(':').unwrap();
            // What has a name and no number has no handler (LOC, RES, ERR).
            if kind == "hard" && name.parse::<u32>().is_err() {
                continue;
            }
            for (cpu, count) in cpus.iter().zip(rest.split_whitespace()) {
                counts.insert((kind, name.to_owned(), *cpu), count.parse().unwrap());
            }
        }
    }
    counts
}

/// How often a handler ran between two readings.
fn rise(from: &Counts, to: &Counts, handler: &Handler) -> u64 {
    to.get(handler).unwrap_or(&0) - from.get(handler).unwrap_or(&0)
}

fn id(table: &CaptureTable, row: &[Cell], name: &str) -> u32 {
    number(table, row, name) as u32
}

/// Sends datagrams to itself: each makes a NET_RX softirq, or shares one with others.
fn datagrams(mut goes_on: impl FnMut() -> bool) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(socket.local_addr().unwrap()).unwrap();
    let mut buffer = [0; 64];
    while goes_on() {
        socket.send(&buffer).unwrap();
        socket.recv(&mut buffer).unwrap();
    }
}

/// Reads from a disk past the page cache: each read makes an interrupt, if it is a disk with a driver.
fn reads(mut goes_on: impl FnMut() -> bool) {
    #[repr(align(4096))]
    struct Page([u8; 4096]);
    let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::write(file.path(), [7; 4096]).unwrap();
    file.as_file().sync_all().unwrap();
    let direct = fs::File::options().read(true).custom_flags(libc::O_DIRECT).open(file.path());
    // A file system in memory may refuse it.
    let Ok(direct) = direct else { return };
    let mut page = Box::new(Page([0; 4096]));
    while goes_on() {
        direct.read_exact_at(&mut page.0, 0).unwrap();
    }
}

fn pin(cpu: usize) {
    let mut one = rustix::thread::CpuSet::new();
    one.set(cpu);
    // It may not be allowed on that CPU.
    _ = rustix::thread::sched_setaffinity(None, &one);
}

fn turns(count: usize) -> impl FnMut() -> bool {
    let mut turns = 0..count;
    move || turns.next().is_some()
}

/// Whoever has waited for a disk goes first.
fn until(end: Instant) -> impl FnMut() -> bool {
    move || {
        std::thread::yield_now();
        Instant::now() < end
    }
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn handlers_and_softirqs_ran_as_often_as_the_kernel_says() {
    const DATAGRAMS: usize = 20_000;
    let outer_before = counted();
    let Some(mut armed) = arm(&all()) else { return };
    let inner_before = counted();
    datagrams(turns(DATAGRAMS));
    reads(turns(2_000));
    let inner_after = counted();
    // The kernel counts at the beginning and the capture at the end: what was counted there has ended until then.
    std::thread::sleep(Duration::from_millis(100));
    assert!(armed.poll().is_none(), "it has ended before");
    let raw = armed.finish();
    let outer_after = counted();
    assert_eq!(raw.captured.lost, 0, "{:?}", raw.captured.notes);

    let seen = counts_of(&raw);
    for (handler, count) in &seen {
        let inner = rise(&inner_before, &inner_after, handler);
        let outer = rise(&outer_before, &outer_after, handler);
        println!("{handler:?}: {inner} <= {count} <= {outer}");
        let is_between = (least(inner)..=outer).contains(count);
        assert!(is_between, "{handler:?}: {count}, by the kernel {inner} to {outer}");
    }
    for handler in inner_after.keys().filter(|handler| !seen.contains_key(handler)) {
        let inner = rise(&inner_before, &inner_after, handler);
        assert_eq!(least(inner), 0, "{handler:?} is not seen, and ran {inner} times");
    }
    let of_datagrams = seen.iter().filter(|(handler, _)| handler.1 == "NET_RX").map(|(_, count)| count);
    assert!(of_datagrams.sum::<u64>() as usize >= DATAGRAMS / 2, "{seen:?}");
    names_are_those_of_the_kernel(&raw);
    times_are_possible(&raw);
}

/// As many of these are seen. See the comment at `BlockHist`: now and then one reaches no program at all.
fn least(inner: u64) -> u64 {
    (inner - inner / 10).saturating_sub(20)
}

/// Of a line with several handlers, each of which runs at every interrupt, one.
fn counts_of(raw: &Raw) -> Counts {
    let handlers = table(raw, "interrupts");
    let of_row = |row: &Vec<Cell>| {
        let (kind, name) = match text(handlers, row, "kind") {
            "soft" => ("soft", text(handlers, row, "name").to_owned()),
            _ => ("hard", id(handlers, row, "number").to_string()),
        };
        ((kind, name, id(handlers, row, "CPU")), number(handlers, row, "count") as u64)
    };
    handlers.rows.iter().map(of_row).collect()
}

/// `/proc/interrupts` lists the names of a line's handlers behind its counts.
fn names_are_those_of_the_kernel(raw: &Raw) {
    let interrupts = fs::read_to_string("/proc/interrupts").unwrap();
    let handlers = table(raw, "interrupts");
    for row in rows(handlers, &[("kind", "hard")]) {
        let number = format!("{}:", id(handlers, row, "number"));
        let line = interrupts.lines().find(|line| line.trim_start().starts_with(&number));
        let name = text(handlers, row, "name");
        assert!(!name.is_empty() && line.is_some_and(|line| line.contains(name)), "{row:?} in {line:?}");
    }
}

/// A CPU has no more time than there was. Each run is no longer than the longest, nor all of them than their time.
fn times_are_possible(raw: &Raw) {
    let handlers = table(raw, "interrupts");
    let mut shares: HashMap<u32, f64> = HashMap::new();
    for row in &handlers.rows {
        let [time, longest, count, share] =
            ["time", "longest", "count", "share"].map(|name| number(handlers, row, name));
        assert!(longest > 0.0 && longest <= time && time <= longest * count * (1.0 + 1e-9), "{row:?}");
        assert!((share * raw.captured.seconds - time).abs() < 1e-9, "{row:?}");
        *shares.entry(id(handlers, row, "CPU")).or_default() += share;
    }
    assert!(shares.values().all(|share| *share <= 1.0), "{shares:?}");
}

/// Softirqs on each CPU, and interrupts of a disk for two seconds.
fn interrupt_softirqs() {
    let end = Instant::now() + Duration::from_secs(2);
    let cpus = std::thread::available_parallelism().unwrap().get();
    let senders = (0..cpus).map(|cpu| {
        thread("mitra-sends", move || {
            pin(cpu);
            datagrams(until(end))
        })
    });
    let readers = (0..4 * cpus).map(|_| thread("mitra-reads", move || reads(until(end))));
    let workers: Vec<_> = senders.chain(readers).collect();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
}

/// bpftrace measures whole softirqs, and apart the handlers inside of them, which it makes longer. It begins before the
/// capture and ends after it, so that means are compared.
#[test]
#[ignore = "needs root: make test-kernel"]
fn time_of_a_softirq_is_without_the_handlers_that_interrupt_it() {
    let judge = Judge::start(
        "tracepoint:irq:softirq_entry { @s[cpu] = nsecs; } \
         tracepoint:irq:softirq_exit /@s[cpu]/ { \
             @soft = sum(nsecs - @s[cpu]); @softs = count(); delete(@s[cpu]); } \
         tracepoint:irq:irq_handler_entry { @h[cpu] = nsecs; } \
         tracepoint:irq:irq_handler_exit /@h[cpu]/ { \
             $i = 0; while ($i < 1000) { @longer = nsecs; $i++; } \
             $ns = nsecs - @h[cpu]; @inside = sum(@s[cpu] ? $ns : 0); \
             @hard = sum($ns); @hards = count(); delete(@h[cpu]); }",
    );
    let Some(judge) = judge else { return };
    let Some(mut armed) = arm(&all()) else { return };
    interrupt_softirqs();
    assert!(armed.poll().is_none(), "it has ended before");
    let raw = armed.finish();
    let [soft, softs, inside, hard, hards] = judge.values(["soft", "softs", "inside", "hard", "hards"]);
    let [soft, inside, hard] = [soft / softs, inside / softs, hard / hards].map(|ns| ns * 1e-9);
    let [own_soft, own_hard] = ["soft", "hard"].map(|kind| mean_time(&raw, kind));
    println!("a softirq: {own_soft:.2e} s here, {soft:.2e} s by bpftrace, {inside:.2e} s of it in handlers");
    println!("a handler: {own_hard:.2e} s here, {hard:.2e} s by bpftrace");
    // Each of the two measures programs of the other as well.
    let is_near = (0.8..1.2).contains(&(own_soft / (soft - inside)));
    assert!(is_near, "{own_soft:e} s for a softirq, {soft:e} - {inside:e} s by bpftrace");
    // Handlers that interrupt a program of bpftrace are the short ones, because it neither sees nor lengthens them.
    let is_near = (0.6..1.2).contains(&(own_hard / hard));
    assert!(is_near, "{own_hard:e} s for a handler, {hard:e} s by bpftrace");
    let is_told_apart = own_soft < soft - 0.5 * inside;
    assert!(
        is_told_apart || inside < 0.1 * soft,
        "{own_soft:e} s with handlers, {soft:e} - {inside:e} s by bpftrace"
    );
}

fn mean_time(raw: &Raw, kind: &str) -> f64 {
    let handlers = table(raw, "interrupts");
    let sum = |of: &str| {
        rows(handlers, &[("kind", kind)]).into_iter().map(|row| number(handlers, row, of)).sum::<f64>()
    };
    sum("time") / sum("count")
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn the_share_of_a_cpu_is_not_known_once_there_were_enough_events() {
    const EVENTS_MAX: u64 = 1_000;
    let Some(mut armed) = arm(&Request { max_events: EVENTS_MAX, ..all() }) else { return };
    datagrams(turns(5_000));
    assert_eq!(armed.poll(), Some(&Ended::Events));
    let raw = armed.finish();
    let handlers = table(&raw, "interrupts");
    let mut counts: HashMap<u32, f64> = HashMap::new();
    for row in &handlers.rows {
        assert_eq!(row[column(handlers, "share")], Cell::Unknown(()), "{row:?}");
        *counts.entry(id(handlers, row, "CPU")).or_default() += number(handlers, row, "count");
    }
    let of_datagrams = rows(handlers, &[("kind", "soft"), ("name", "NET_RX")]);
    assert!(!of_datagrams.is_empty(), "{:?}", handlers.rows);
    // A handler that interrupts the program of a softirq may be one event too many.
    assert!(counts.values().all(|count| *count <= EVENTS_MAX as f64 + 10.0), "{counts:?}");
}

#[test]
fn nobody_can_ask_for_the_interrupts_of_a_process() {
    let of_process = Request { pid: Some(std::process::id()), ..all() };
    let refused = Capture::arm(&of_process).err().unwrap().to_string();
    assert!(refused.starts_with("interrupts has no use for --pid; these have: offcpu, "), "{refused}");
}
