//! A line for each resource of the machine.

use std::sync::Arc;

use anyhow::Result;
use mitra_archive::{Query, Reader};
use mitra_diagnose::{ledger, words};
use mitra_model::{Axis, Series, SeriesSet, Span, Values};

use super::samples::axis_of;
use super::value::{Value, growth};
use super::{Panel, memory, metrics};

#[derive(Debug, Clone)]
pub struct MachineLine {
    pub label: String,
    pub items: Vec<Item>,
    /// Of the number that matters most.
    pub curve: Option<Series>,
    /// What a full bar of the curve is at least.
    pub full: f64,
}

/// A number with its label.
#[derive(Debug, Clone)]
pub struct Item {
    pub word: String,
    /// `-` was not measured.
    pub text: String,
    pub level: Level,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Level {
    #[default]
    Fine,
    Warn,
    Bad,
}

impl Level {
    /// Of a number that is bad from here on.
    pub fn of(value: f64, bad: f64) -> Level {
        match value {
            v if v >= bad => Level::Bad,
            v if v >= bad / 2.0 && bad > f64::MIN_POSITIVE => Level::Warn,
            _ => Level::Fine,
        }
    }
}

const SYSTEM: &[&str] = &[
    "sys.cpu_user",
    "sys.cpu_nice",
    "sys.cpu_system",
    "sys.cpu_idle",
    "sys.cpu_iowait",
    "sys.cpu_irq",
    "sys.cpu_softirq",
    "sys.cpu_steal",
    "sys.load1",
    "mem.total",
    "mem.available",
    "mem.cached",
    "mem.dirty",
    "mem.swap_total",
    "mem.swap_free",
    "tasks.total",
    "tasks.running",
    "tasks.uninterruptible",
    "psi.cpu_some",
    "psi.io_some",
    "psi.memory_some",
    "tcp.RetransSegs",
    "mitra.cpu_time",
    "mitra.rss",
    "mitra.written_bytes",
];
const BUSY: Value = Value::Sum(&[
    "sys.cpu_user",
    "sys.cpu_nice",
    "sys.cpu_system",
    "sys.cpu_irq",
    "sys.cpu_softirq",
    "sys.cpu_steal",
]);
/// Below a fiftieth of a task-second per second full bars would alarm for nothing.
const LOST_FULL: f64 = 0.02;
/// Causes of lost time that are named.
const CAUSES_MAX: usize = 3;

pub struct At<'a> {
    set: &'a SeriesSet,
    axis: &'a Arc<Axis>,
    i: usize,
}

impl At<'_> {
    /// Of the machine.
    pub fn of(&self, value: Value) -> f64 {
        self.one(value, "")
    }

    /// The same over time.
    pub fn over_time(&self, value: Value) -> Option<Series> {
        self.curve(|i| value.at(self.set, &[""], self.axis, i))
    }

    /// Bytes per second by which some of the machine grew in the last minute.
    pub fn growth(&self, names: &[&str]) -> f64 {
        growth(self.set, names, &[""], self.axis, self.i)
    }

    fn one(&self, value: Value, row: &str) -> f64 {
        value.at(self.set, &[row], self.axis, self.i)
    }

    pub fn sum(&self, names: &'static [&'static str]) -> f64 {
        self.of(Value::Sum(names))
    }

    fn curve(&self, of: impl Fn(usize) -> f64) -> Option<Series> {
        let values: Values = (0..self.axis.len()).map(of).collect();
        let axis = Arc::clone(self.axis);
        values.iter().any(|value| value.is_finite()).then_some(Series { axis, start: 0, values })
    }
}

pub fn item(word: &str, text: impl Fn(f64) -> String, value: f64, bad: f64) -> Item {
    let text = if value.is_finite() { text(value) } else { "-".to_owned() };
    Item { word: word.to_owned(), text, level: Level::of(value, bad) }
}

pub fn share(word: &str, value: f64, bad: f64) -> Item {
    item(word, |v| format!("{:.0} %", v * 100.0), value, bad)
}

pub fn plain(word: &str, text: impl Fn(f64) -> String, value: f64) -> Item {
    item(word, text, value, f64::INFINITY)
}

pub fn rate(bytes: f64) -> String {
    format!("{}/s", words::bytes(bytes))
}

/// The lines at a sample, the most general first.
pub fn read(reader: &Reader, panel: Panel, at: i64, span: Span) -> Result<Vec<MachineLine>> {
    if panel == Panel::Memory {
        let set = reader.read(&Query::new(span, metrics(memory::METRICS.iter().copied())))?;
        return Ok(at_sample(&set, at).map_or_else(Vec::new, |at| memory::lines(&at)));
    }
    let columns = |panel: Panel| panel.columns().iter().flat_map(|column| column.value.metrics());
    let names = SYSTEM.iter().copied().chain(ledger::METRICS.iter().copied());
    let names = names.chain(columns(Panel::Disks)).chain(columns(Panel::Network));
    let set = reader.read(&Query::new(span, metrics(names)))?;
    let Some(at) = at_sample(&set, at) else { return Ok(Vec::new()) };
    let mut lines = vec![cpu(&at), memory(&at), pressure(&at), lost(&at)];
    lines.extend(disks(&at));
    lines.extend(network(&at));
    lines.extend(recorder(&at));
    Ok(lines)
}

fn at_sample(set: &SeriesSet, at: i64) -> Option<At<'_>> {
    let axis = axis_of(set)?;
    let i = axis.t.binary_search(&at).ok()?;
    Some(At { set, axis, i })
}

fn cpu(at: &At<'_>) -> MachineLine {
    let cpus = f64::from(at.set.host.cpus.max(1));
    let items = vec![
        share("user", at.sum(&["sys.cpu_user", "sys.cpu_nice"]) / cpus, 0.95),
        share("sys", at.sum(&["sys.cpu_system", "sys.cpu_irq", "sys.cpu_softirq"]) / cpus, 0.6),
        share("iowait", at.sum(&["sys.cpu_iowait"]) / cpus, 0.4),
        share("steal", at.sum(&["sys.cpu_steal"]) / cpus, 0.1),
        plain("load", |v| format!("{v:.1}"), at.sum(&["sys.load1"])),
        plain("run", words::count, at.sum(&["tasks.running"])),
        plain("tasks", words::count, at.sum(&["tasks.total"])),
    ];
    let curve = at.curve(|i| BUSY.at(at.set, &[""], at.axis, i) / cpus);
    MachineLine { label: format!("CPU ×{}", at.set.host.cpus), items, curve, full: 1.0 }
}

fn memory(at: &At<'_>) -> MachineLine {
    let used = |i: usize| {
        let value = |names| Value::Sum(names).at(at.set, &[""], at.axis, i);
        1.0 - value(&["mem.available"]) / value(&["mem.total"])
    };
    let swap = at.sum(&["mem.swap_total"]) - at.sum(&["mem.swap_free"]);
    let items = vec![
        share("used", used(at.i), 0.95),
        plain("of", words::bytes, at.sum(&["mem.total"])),
        plain("avail", words::bytes, at.sum(&["mem.available"])),
        plain("cache", words::bytes, at.sum(&["mem.cached"])),
        plain("swap", words::bytes, swap),
        plain("dirty", words::bytes, at.sum(&["mem.dirty"])),
    ];
    MachineLine { label: "MEMORY".to_owned(), items, curve: at.curve(used), full: 1.0 }
}

fn pressure(at: &At<'_>) -> MachineLine {
    let [cpu, io, memory]: [&'static [&'static str]; 3] =
        [&["psi.cpu_some"], &["psi.io_some"], &["psi.memory_some"]];
    let items = vec![
        share("cpu", at.sum(cpu), 0.8),
        share("io", at.sum(io), 0.4),
        share("memory", at.sum(memory), 0.1),
        item("in D", words::count, at.sum(&["tasks.uninterruptible"]), 4.0),
    ];
    let most = |i: usize| {
        let values = [cpu, io, memory].map(|names| Value::Sum(names).at(at.set, &[""], at.axis, i));
        values.into_iter().filter(|value| value.is_finite()).reduce(f64::max).unwrap_or(f64::NAN)
    };
    MachineLine { label: "PRESSURE".to_owned(), items, curve: at.curve(most), full: 1.0 }
}

fn lost(at: &At<'_>) -> MachineLine {
    let t = at.axis.t.get(at.i).copied().unwrap_or_default();
    let dt = at.axis.dt.get(at.i).copied().unwrap_or(f64::NAN);
    let signal = ledger::lost(at.set, Span::ALL);
    let value = |i: usize| {
        let signal = signal.as_ref()?;
        let at = signal.t.binary_search(at.axis.t.get(i)?).ok()?;
        signal.v.get(at).copied()
    };
    let curve = at.curve(|i| value(i).unwrap_or(f64::NAN));
    let now = value(at.i).unwrap_or(f64::NAN);
    let mut items = vec![item("tasks", |v| format!("{v:.2}"), now, 2.0)];
    let causes =
        ledger::ledger(at.set, Span { since: t, until: t.saturating_add(1) }, ledger::Waited::default());
    for cause in causes.by_cause.iter().take(CAUSES_MAX) {
        items.push(plain(&cause.cause, |v| format!("{v:.2}"), cause.seconds / dt));
    }
    MachineLine { label: "LOST".to_owned(), items, curve, full: LOST_FULL }
}

/// Rows of an entity by a number, the largest first.
fn largest<'s>(at: &At<'s>, value: Value) -> Vec<(&'s str, f64)> {
    let names: std::collections::BTreeSet<&str> =
        value.metrics().flat_map(|metric| at.set.each(metric)).map(|(row, _)| row).collect();
    let mut rows: Vec<(&str, f64)> = names.into_iter().map(|row| (row, at.one(value, row))).collect();
    rows.retain(|(_, value)| value.is_finite());
    // A device comes before its partitions, which are as busy.
    rows.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.len().cmp(&b.0.len())));
    rows
}

/// The first of them, and of the others those that do something.
fn at_work(mut rows: Vec<(&str, f64)>, most: usize) -> Vec<(&str, f64)> {
    let mut at = 0;
    rows.retain(|(_, value)| {
        at += 1;
        at == 1 || *value > 0.0
    });
    rows.truncate(most);
    rows
}

fn disks(at: &At<'_>) -> Vec<MachineLine> {
    let line = |(row, _): (&str, f64)| {
        let sum = |names| at.one(Value::Sum(names), row);
        let times: &'static [&'static str] = &["disk.read_time", "disk.write_time"];
        let busy = |i: usize| Value::Sum(&["disk.io_time"]).at(at.set, &[row], at.axis, i);
        let items = vec![
            share("busy", sum(&["disk.io_time"]), 0.95),
            plain("r", rate, sum(&["disk.read_bytes"])),
            plain("w", rate, sum(&["disk.write_bytes"])),
            plain("wait", words::seconds, at.one(Value::Ratio(times, &["disk.reads", "disk.writes"]), row)),
            plain("queue", words::count, sum(&["disk.weighted_time"])),
        ];
        MachineLine { label: format!("DISK {row}"), items, curve: at.curve(busy), full: 1.0 }
    };
    at_work(largest(at, Value::Sum(&["disk.io_time"])), 3).into_iter().map(line).collect()
}

fn network(at: &At<'_>) -> Vec<MachineLine> {
    const BOTH: Value = Value::Sum(&["nic.rx_bytes", "nic.tx_bytes"]);
    let line = |(row, _): (&str, f64)| {
        let sum = |names| at.one(Value::Sum(names), row);
        let items = vec![
            plain("rx", rate, sum(&["nic.rx_bytes"])),
            plain("tx", rate, sum(&["nic.tx_bytes"])),
            item("drops", words::count, sum(&["nic.rx_drop", "nic.tx_drop"]), 1.0),
            item("errors", words::count, sum(&["nic.rx_errs", "nic.tx_errs"]), 1.0),
            plain("tcp retrans", words::count, at.sum(&["tcp.RetransSegs"])),
        ];
        let curve = at.curve(|i| BOTH.at(at.set, &[row], at.axis, i));
        MachineLine { label: format!("NET {row}"), items, curve, full: 1.0 }
    };
    let rows = largest(at, BOTH);
    let others: Vec<_> = rows.iter().copied().filter(|(row, _)| *row != "lo").collect();
    let rows = if others.is_empty() { rows } else { others };
    at_work(rows, 2).into_iter().map(line).collect()
}

fn recorder(at: &At<'_>) -> Option<MachineLine> {
    let cpu = at.sum(&["mitra.cpu_time"]);
    let items = vec![
        plain("cpu", |v| format!("{:.1} ms/s", v * 1000.0), cpu),
        plain("memory", words::bytes, at.sum(&["mitra.rss"])),
        plain("writes", rate, at.sum(&["mitra.written_bytes"])),
    ];
    let curve = at.curve(|i| Value::Sum(&["mitra.cpu_time"]).at(at.set, &[""], at.axis, i));
    cpu.is_finite().then_some(MachineLine { label: "RECORDER".to_owned(), items, curve, full: 0.01 })
}
