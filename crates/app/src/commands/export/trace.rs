//! A trace in the format of Chrome's trace viewer, which Perfetto reads: tracks of counters, processes from their first
//! sample to their last, and incidents.
//!
//! Times are microseconds since 1970. A rate stands from the beginning of what it was measured over, a level from when it was measured.
//! What was not measured is not in the `args` of its counter; the viewer draws the value before on, also over a gap.

use std::collections::HashMap;
use std::io::Write;

use anyhow::Result;
use mitra_archive::Query;
use mitra_model::time::SECOND;
use mitra_model::{Metric, Span, TextSeries, lookup};
use mitra_parse::text::export::{Sample, metrics};
use serde_json::{Map, Value, json};

use super::Source;
use crate::diagnosis;
use crate::recording::chunks;

/// Read at a time.
const CHUNK_NS: i64 = 600 * SECOND;
const CHUNK_TASKS_NS: i64 = 60 * SECOND;
/// Processes that are drawn; that there are further ones is told.
const PROCESSES_MAX: usize = 100_000;
/// The track group of the machine: no process has this id.
const MACHINE: u32 = 0;

/// A track of the machine: its name, and its metrics by the names that they have in it. They are all rates or all levels.
type Track = (&'static str, &'static [(&'static str, &'static str)]);

#[rustfmt::skip]
const TRACKS: &[Track] = &[
    ("CPU (CPUs)", &[
        ("user", "sys.cpu_user"), ("nice", "sys.cpu_nice"), ("system", "sys.cpu_system"), ("irq", "sys.cpu_irq"),
        ("softirq", "sys.cpu_softirq"), ("steal", "sys.cpu_steal"), ("iowait", "sys.cpu_iowait"),
    ]),
    ("lost time (tasks)", &[
        ("waiting for a CPU", "tasks.run_delay"), ("block I/O", "tasks.blkio_delay"), ("swap-in", "tasks.swapin_delay"),
        ("reclaim", "tasks.reclaim_delay"), ("thrashing", "tasks.thrashing_delay"), ("compaction", "tasks.compact_delay"),
        ("kernel locks", "probe.lock_wait_time"),
    ]),
    ("tasks in D state", &[
        ("I/O", "tasks.d_io"), ("lock", "tasks.d_lock"), ("memory", "tasks.d_memory"), ("throttled", "tasks.d_throttle"),
        ("other", "tasks.d_other"),
    ]),
    ("runnable tasks", &[("running or runnable", "tasks.running")]),
    ("pressure", &[
        ("cpu some", "psi.cpu_some"), ("io some", "psi.io_some"), ("io full", "psi.io_full"),
        ("memory some", "psi.memory_some"), ("memory full", "psi.memory_full"),
    ]),
    ("memory (bytes)", &[
        ("free", "mem.free"), ("cached", "mem.cached"), ("anonymous", "mem.anon"), ("slab", "mem.slab"),
    ]),
    ("memory available (bytes)", &[("available", "mem.available")]),
    ("dirty memory (bytes)", &[("dirty", "mem.dirty"), ("writeback", "mem.writeback")]),
    ("paging (per s)", &[
        ("major faults", "vm.pgmajfault"), ("swap-in", "vm.pswpin"), ("swap-out", "vm.pswpout"),
        ("scanned directly", "vm.pgscan_direct"),
    ]),
    ("context switches (per s)", &[("switches", "sys.ctxt")]),
    ("TCP retransmits (per s)", &[("segments", "tcp.RetransSegs")]),
];
/// Tracks of each disk and each interface, with the metric that says which there are.
const TRACKS_OF_ROWS: &[(&str, Track)] = &[
    ("disk.io_time", ("busy", &[("share of the time", "disk.io_time")])),
    ("disk.io_time", ("(bytes per s)", &[("read", "disk.read_bytes"), ("written", "disk.write_bytes")])),
    ("disk.io_time", ("in flight", &[("requests", "disk.weighted_time")])),
    ("nic.rx_bytes", ("(bytes per s)", &[("received", "nic.rx_bytes"), ("sent", "nic.tx_bytes")])),
    ("nic.rx_bytes", ("drops (per s)", &[("received", "nic.rx_drop"), ("sent", "nic.tx_drop")])),
];

/// The events of a trace, one a line.
struct Events<'a> {
    out: &'a mut dyn Write,
    any: bool,
}

impl Events<'_> {
    fn push(&mut self, event: &Value) -> Result<()> {
        let between = if std::mem::replace(&mut self.any, true) { ",\n" } else { "" };
        Ok(write!(self.out, "{between}{event}")?)
    }

    fn named(&mut self, what: &str, pid: u32, name: &str) -> Result<()> {
        self.push(&json!({"ph": "M", "pid": pid, "tid": pid, "name": what, "args": {"name": name}}))
    }
}

/// Writes a trace.
pub fn write(source: &Source<'_>, out: &mut dyn Write) -> Result<u64> {
    out.write_all(b"{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n")?;
    let mut events = Events { out, any: false };
    events.named("process_name", MACHINE, &format!("machine {}", super::host_name(source.reader)))?;
    let moments = counters(source, &mut events)?;
    let left_out = processes(source, &mut events)?;
    incidents(source, &mut events)?;
    let notes = json!({"some processes are left out": left_out, "writer": concat!("mitra ", env!("CARGO_PKG_VERSION"))});
    write!(out, "\n], \"otherData\": {notes}}}\n")?;
    Ok(moments)
}

fn micros(ns: i64) -> Value {
    json!(ns as f64 / 1e3)
}

fn counters(source: &Source<'_>, events: &mut Events<'_>) -> Result<u64> {
    let of_machine = TRACKS.iter().flat_map(|(_, list)| *list);
    let of_rows = TRACKS_OF_ROWS.iter().flat_map(|(_, (_, list))| *list);
    let metrics = metrics(of_machine.chain(of_rows).map(|(_, metric)| *metric));
    let mut moments = 0;
    source.each(source.span, CHUNK_NS, &metrics, &mut |sample| {
        moments += 1;
        for track in TRACKS {
            counter(sample, track, "", events)?;
        }
        for (key, track) in TRACKS_OF_ROWS {
            for row in sample.rows(key) {
                counter(sample, track, row, events)?;
            }
        }
        Ok(())
    })?;
    Ok(moments)
}

fn counter(sample: &Sample<'_>, (name, list): &Track, row: &str, events: &mut Events<'_>) -> Result<()> {
    let values = list.iter().map(|(key, metric)| (*key, sample.value(metric, row)));
    let args: Map<String, Value> = values
        .filter(|(_, value)| value.is_finite())
        .map(|(key, value)| (key.to_owned(), json!(value)))
        .collect();
    if args.is_empty() {
        return Ok(());
    }
    let name = if row.is_empty() { (*name).to_owned() } else { format!("{row} {name}") };
    let is_rate = list.iter().any(|(_, metric)| lookup(metric).is_some_and(Metric::is_rate));
    let before = if is_rate { sample.interval_s } else { 0.0 };
    let since = sample.t.saturating_sub((before * SECOND as f64) as i64);
    events.push(&json!({"ph": "C", "pid": MACHINE, "ts": micros(since), "name": name, "args": args}))
}

/// A process while it is seen.
struct Life {
    name: String,
    parent: f64,
    first: i64,
    last: i64,
}

/// Draws each process from its first sample to its last. Returns whether some were left out.
fn processes(source: &Source<'_>, events: &mut Events<'_>) -> Result<bool> {
    let metrics: Vec<&'static Metric> = metrics(["task.tgid", "task.ppid", "task.comm"].into_iter());
    let mut lives: HashMap<String, Life> = HashMap::new();
    let mut left_out = false;
    for part in chunks(source.span, CHUNK_TASKS_NS) {
        let set = source.reader.read(&Query::new(part, metrics.clone()))?;
        for (row, series) in set.each("task.tgid") {
            let is_leader =
                |pid: f64| row.split_once('@').is_some_and(|(id, _)| id.parse() == Ok(pid as u32));
            let mut samples = series.samples(part).filter(|(_, _, pid)| is_leader(*pid)).map(|(t, ..)| t);
            let Some(first) = samples.next() else { continue };
            let last = samples.next_back().unwrap_or(first);
            let name = set.text("task.comm", row).and_then(TextSeries::last).map(str::to_owned);
            if let Some(life) = lives.get_mut(row) {
                life.last = last;
                // Of a process that runs another program.
                life.name = name.unwrap_or_else(|| std::mem::take(&mut life.name));
            } else if lives.len() < PROCESSES_MAX {
                let name = name.unwrap_or_else(|| "?".to_owned());
                let parent = set.get("task.ppid", row).and_then(|s| s.last(part)).unwrap_or(f64::NAN);
                lives.insert(row.to_owned(), Life { name, parent, first, last });
            } else {
                left_out = true;
            }
        }
    }
    let mut lives: Vec<(String, Life)> = lives.into_iter().collect();
    lives.sort_by(|a, b| (a.1.first, &a.0).cmp(&(b.1.first, &b.0)));
    for (row, life) in lives {
        let Some(pid) = row.split_once('@').and_then(|(pid, _)| pid.parse::<u32>().ok()) else { continue };
        events.named("process_name", pid, &life.name)?;
        let mut args = Map::new();
        if life.parent.is_finite() {
            args.insert("parent".to_owned(), json!(life.parent));
        }
        let length = micros(life.last.saturating_sub(life.first));
        events.push(&json!({
            "ph": "X", "cat": "process", "pid": pid, "tid": pid, "ts": micros(life.first), "dur": length,
            "name": life.name, "args": args,
        }))?;
    }
    Ok(left_out)
}

/// Draws each incident on a track of its own: they may overlap.
fn incidents(source: &Source<'_>, events: &mut Events<'_>) -> Result<()> {
    let Span { since, until } = source.span;
    let report = diagnosis::explain(source.reader, source.span, None)?;
    for (id, incident) in report.incidents.iter().enumerate() {
        let condition = &incident.root_cause.condition;
        let name = diagnosis::title(condition).unwrap_or(condition);
        let (begin, end) = (incident.onset.0.max(since), incident.end.map_or(until, |end| end.0));
        let args = json!({
            "condition": condition,
            "confidence": incident.root_cause.confidence,
            "symptoms": incident.symptoms,
            "lost task seconds": incident.lost_task_seconds,
            "goes on": incident.end.is_none(),
        });
        for (phase, t, args) in [("b", begin, args), ("e", end.max(begin), json!({}))] {
            events.push(&json!({
                "ph": phase, "cat": "incident", "id": id, "pid": MACHINE, "tid": MACHINE, "ts": micros(t),
                "name": name, "args": args,
            }))?;
        }
    }
    Ok(())
}
