//! Answers of Netdata's `/api/v1/data`, which say the chart with `options=jsonwrap`; without it the name of the file
//! may: `system.cpu.json`.
//!
//! ```text
//! {"api": 1, "id": "system.cpu", "result": {"labels": ["time", "user", "system"], "data": [[1795821001, 1.5, 0.5]]}}
//! ```

use super::wide::{Cell, KIB, MIB, Names, find, names};
use crate::text::json::{Value, each_value};
use crate::text::prelude::*;
use crate::text::snapshots::sink::Sink;

/// See the module.
pub const FORMAT: Format = Format::new(
    "Netdata answer",
    "`/api/v1/data` of charts of the machine, of disks and of interfaces, as JSON",
    starts,
    read,
);

#[rustfmt::skip]
const MACHINE: &[Names] = &[
    names(Form::Share, 0.01, pairs!(
        "system.cpu/user sys.cpu_user  system.cpu/nice sys.cpu_nice  system.cpu/system sys.cpu_system
         system.cpu/iowait sys.cpu_iowait  system.cpu/irq sys.cpu_irq  system.cpu/softirq sys.cpu_softirq
         system.cpu/steal sys.cpu_steal  system.cpu/guest sys.cpu_guest"
    )),
    names(Form::Level, 1.0, pairs!(
        "system.load/load1 sys.load1  system.load/load5 sys.load5  system.load/load15 sys.load15
         system.processes/running sys.procs_running  system.processes/blocked sys.procs_blocked"
    )),
    names(Form::Level, MIB, pairs!(
        "system.ram/free mem.free  system.ram/used mem.used  system.ram/cached mem.cached  system.ram/buffers mem.buffers
         mem.available/MemAvailable mem.available  mem.available/avail mem.available  system.swap/free mem.swap_free"
    )),
    names(Form::Rate, 1.0, pairs!(
        "system.ctxt/switches sys.ctxt  system.forks/started sys.forks  system.intr/interrupts sys.intr
         mem.pgfaults/minor vm.pgfault  mem.pgfaults/major vm.pgmajfault"
    )),
    names(Form::Rate, KIB, pairs!("system.pgpgio/in vm.pgpgin  system.pgpgio/out vm.pgpgout")),
    names(Form::Rate, 0.01, pairs!(
        "system.cpu_some_pressure/some_10 psi.cpu_some  system.io_some_pressure/some_10 psi.io_some
         system.memory_some_pressure/some_10 psi.memory_some"
    )),
];
/// Charts of a disk or an interface: what stands before the dot, and the dimension.
#[rustfmt::skip]
const OF_THINGS: &[Names] = &[
    names(Form::Rate, KIB, pairs!("disk/reads disk.read_bytes  disk/writes disk.write_bytes")),
    names(Form::Rate, 1.0, pairs!("disk_ops/reads disk.reads  disk_ops/writes disk.writes")),
    names(Form::Rate, 0.01, pairs!("disk_util/utilization disk.io_time")),
    // Kilobits.
    names(Form::Rate, 125.0, pairs!("net/received nic.rx_bytes  net/sent nic.tx_bytes")),
    names(Form::Rate, 1.0, pairs!("net_packets/received nic.rx_packets  net_packets/sent nic.tx_packets")),
];

fn starts(lines: &mut Lines<'_>, context: &Context) -> bool {
    if !lines.at(|line| line.trim_ascii_start().starts_with(b"{")) {
        return false;
    }
    let near = |lines: &mut Lines<'_>, word: &[u8]| {
        lines.at(|line| has(line, word)) || lines.soon(AHEAD_MAX, |line| has(line, word))
    };
    near(lines, b"\"labels\"")
        && near(lines, b"\"time\"")
        && (near(lines, b"\"dimension_names\"")
            || (near(lines, b"\"data\"") && chart_of(&context.file_name).is_some()))
}

/// The chart that the name of a file tells: `system.cpu.json`, `data-system.load.txt`.
fn chart_of(name: &str) -> Option<String> {
    let last = name.rsplit('/').next()?;
    let from = ["system.", "disk.", "disk_ops.", "disk_util.", "net.", "net_packets.", "mem."]
        .iter()
        .filter_map(|kind| last.find(kind))
        .min()?;
    let chart = last.get(from..)?;
    let chart = [".json", ".txt"].iter().find_map(|end| chart.strip_suffix(end)).unwrap_or(chart);
    Some(chart.to_owned())
}

fn cell(chart: &str, dimension: &str) -> Option<Cell> {
    if let Some(found) = find(MACHINE, format!("{chart}/{dimension}").as_bytes(), b"") {
        return Some(found);
    }
    let (kind, row) = chart.split_once('.')?;
    find(OF_THINGS, format!("{kind}/{dimension}").as_bytes(), row.as_bytes())
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut sink = Sink::default();
    let mut chart = chart_of(&import.context.file_name).unwrap_or_default();
    let mut labels: Vec<String> = Vec::new();
    let mut has_all = false;
    let (mut row, mut column) = (None, 0);
    each_value(lines, import, |path, value, at, import| {
        let tail: Vec<&str> = path.iter().map(String::as_str).filter(|key| *key != "result").collect();
        match (tail.as_slice(), value) {
            (["id"], Value::Text(id)) => id.clone_into(&mut chart),
            (["labels", ""], Value::Text(label)) => {
                // The list of another chart.
                if std::mem::take(&mut has_all) {
                    labels.clear();
                }
                labels.push(label.to_owned());
            }
            (["labels"], Value::End) => has_all = true,
            (["data", ""], Value::End) => (row, column) = (None, 0),
            (["data", "", ""], Value::Number(number)) => {
                if column == 0 {
                    let seconds = if number > 1e12 { number / 1e3 } else { number };
                    row = Some(seconds).filter(|s| (1e9..4e9).contains(s));
                } else if let Some((seconds, label)) = row.zip(labels.get(column))
                    // What was not collected is null, and has its place.
                    && !number.is_nan()
                    && let Some(cell) = cell(&chart, label)
                {
                    // What is drawn below the line, such as writes, is negative.
                    let when = When::At((seconds * SECOND as f64) as i64);
                    cell.put(number.abs(), when, at, &mut sink, import);
                }
                column += 1;
            }
            _ => {}
        }
    });
}
