//! Tables of consoles: `docker stats`, `kubectl top pod`, and what `numactl -H` says.
//!
//! ```text
//! CONTAINER ID   NAME      CPU %     MEM USAGE / LIMIT     MEM %     NET I/O           BLOCK I/O         PIDS
//! 4ee8a1f0c2d3   web       12.50%    120.5MiB / 512MiB     23.54%    1.2MB / 3.4MB     8.19kB / 0B       12
//! ```
//! ```text
//! NAMESPACE   NAME          CPU(cores)   MEMORY(bytes)
//! shop        web-7f6c4-x   250m         1024Mi
//! ```

use mitra_model::lookup;

use super::csv::step;
use super::wide::{Cell, MIB};
use crate::text::prelude::*;
use crate::text::snapshots::sink::Sink;

/// `docker stats`.
pub const DOCKER: Format = Format::new(
    "docker stats",
    "CPU, memory, tasks and I/O of containers, also of `podman stats`",
    |lines, _| lines.peek().and_then(docker_header).is_some(),
    docker,
);
/// `kubectl top`.
pub const KUBECTL: Format = Format::new(
    "kubectl top pod",
    "CPU and memory of pods; nodes are machines of their own and have no metrics here",
    |lines, _| lines.peek().and_then(pod_header).is_some(),
    pods,
);
/// `numactl -H`.
pub const NUMACTL: Format = Format::new(
    "numactl -H",
    "size and free memory of NUMA nodes",
    |lines, _| lines.at(|line| node_line(line).is_some()) || lines.at(is_nodes_title),
    numactl,
);

/// The cells of a line between at least two blanks.
pub(super) fn cells(line: &[u8]) -> Vec<&[u8]> {
    let mut out = Vec::new();
    let mut rest = line.trim_ascii();
    while !rest.is_empty() {
        let end = memchr::memmem::find(rest, b"  ").unwrap_or(rest.len());
        let (cell, behind) = rest.split_at_checked(end).unwrap_or((rest, &[]));
        out.push(cell);
        rest = behind.trim_ascii_start();
    }
    out
}

/// The places of the columns of `docker stats` that are read.
struct Docker {
    name: usize,
    cpu: Option<usize>,
    memory: Option<usize>,
    block: Option<usize>,
    tasks: Option<usize>,
    width: usize,
}

fn docker_header(line: &[u8]) -> Option<Docker> {
    if !begins(line.trim_ascii_start(), &[b"CONTAINER", b"ID ", b"NAME "]) {
        return None;
    }
    let list = cells(line);
    let at = |name: &[u8]| list.iter().position(|cell| *cell == name);
    let memory = at(b"MEM USAGE / LIMIT").or_else(|| at(b"MEM USAGE/LIMIT"));
    memory?;
    let name =
        at(b"NAME").or_else(|| at(b"CONTAINER ID")).or_else(|| at(b"ID")).or_else(|| at(b"CONTAINER"))?;
    let tasks = at(b"PIDS").or_else(|| at(b"PROCS"));
    let block = at(b"BLOCK I/O").or_else(|| at(b"BLOCK IO"));
    Some(Docker { name, cpu: at(b"CPU %"), memory, block, tasks, width: list.len() })
}

/// `8.19kB / 0B`: two sizes.
fn two(cell: &[u8]) -> [Option<f64>; 2] {
    let at = memchr::memchr(b'/', cell).unwrap_or(cell.len());
    let (a, b) = cell.split_at_checked(at).unwrap_or((cell, &[]));
    [size(a), size(b.get(1..).unwrap_or_default())]
}

/// `120.5MiB` in powers of 1024, `8.19kB` in powers of 1000.
pub(super) fn size(word: &[u8]) -> Option<f64> {
    let (value, unit) = leading(word.trim_ascii())?;
    let unit = unit.trim_ascii();
    let base: f64 = if unit.ends_with(b"iB") || unit.ends_with(b"i") { 1024.0 } else { 1000.0 };
    let power = match unit.first() {
        None | Some(b'B' | b'b') => 0,
        Some(b'k' | b'K') => 1,
        Some(b'M') => 2,
        Some(b'G') => 3,
        Some(b'T') => 4,
        Some(_) => return None,
    };
    Some(value * base.powi(power))
}

fn docker(lines: &mut Lines<'_>, import: &mut Import) {
    let Some(mut header) = lines.peek().and_then(docker_header) else { return };
    let mut sink = Sink::default();
    // A stream without times: screens are one after the other.
    let at_screen = |import: &mut Import| import.context.stamp.unwrap_or_else(|| step(import));
    let mut when = at_screen(import);
    lines.advance();
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        if let Some(found) = docker_header(line) {
            header = found;
            when = at_screen(import);
            return Took::Yes;
        }
        let list = cells(line);
        if list.len() != header.width {
            return Took::No;
        }
        let cell = |at: Option<usize>| at.and_then(|at| list.get(at)).copied().unwrap_or_default();
        // A container that does not run has no numbers.
        if cell(header.memory).starts_with(b"--") {
            return Took::Yes;
        }
        let memory = two(cell(header.memory));
        let Some(row) = list.get(header.name).filter(|_| memory[0].is_some()) else { return Took::No };
        let [read, written] = two(cell(header.block));
        let numbers = [
            ("cgroup.cpu_usage", Form::Rate, 0.01, number(cell(header.cpu))),
            ("cgroup.memory_current", Form::Level, 1.0, memory[0]),
            ("cgroup.memory_max", Form::Level, 1.0, memory[1].filter(|max| *max > 0.0)),
            ("cgroup.pids_current", Form::Level, 1.0, number(cell(header.tasks))),
            ("cgroup.io_read_bytes", Form::Total, 1.0, read),
            ("cgroup.io_write_bytes", Form::Total, 1.0, written),
        ];
        for (metric, form, factor, value) in numbers {
            if let (Some(cell), Some(value)) = (Cell::new(metric, form, factor, row), value) {
                cell.put(value, when, at, &mut sink, import);
            }
        }
        Took::Yes
    });
}

/// Whether there are namespaces, and containers.
fn pod_header(line: &[u8]) -> Option<(bool, bool)> {
    let mut list = words(line).peekable();
    let (mut namespace, mut pod) = (false, false);
    if list.peek() == Some(&&b"NAMESPACE"[..]) {
        namespace = true;
        list.next();
    }
    if list.peek() == Some(&&b"POD"[..]) {
        pod = true;
        list.next();
    }
    list.eq([&b"NAME"[..], b"CPU(cores)", b"MEMORY(bytes)"]).then_some((namespace, pod))
}

fn pods(lines: &mut Lines<'_>, import: &mut Import) {
    let Some((namespace, pod)) = lines.peek().and_then(pod_header) else { return };
    let mut sink = Sink::default();
    let when = import.now();
    lines.advance();
    lines.each(import, |lines, at, import| {
        let list: Vec<&[u8]> = words(lines.line()).collect();
        let names = 1 + usize::from(namespace) + usize::from(pod);
        let cpu = list.get(names).and_then(|word| match word.strip_suffix(b"m") {
            Some(milli) => number(milli).map(|n| n / 1e3),
            None => number(word),
        });
        let memory = list.get(names + 1).and_then(|word| with_suffix(word));
        let (Some(cpu), Some(memory), true) = (cpu, memory, list.len() == names + 2) else { return Took::No };
        let row = list.get(..names).unwrap_or_default().join(&b'/');
        for (metric, form, value) in
            [("cgroup.cpu_usage", Form::Rate, cpu), ("cgroup.memory_current", Form::Level, memory)]
        {
            if let Some(cell) = Cell::new(metric, form, 1.0, &row) {
                cell.put(value, when, at, &mut sink, import);
            }
        }
        Took::Yes
    });
}

/// `available: 2 nodes (0-1)`.
fn is_nodes_title(line: &[u8]) -> bool {
    line.starts_with(b"available: ") && has(line, b" nodes (")
}

/// `node 0 size: 24105 MB`: the node, the metric, the bytes; a metric without a name for CPUs.
fn node_line(line: &[u8]) -> Option<(&[u8], &'static str, f64)> {
    let mut list = words(line);
    if list.next() != Some(b"node") {
        return None;
    }
    let node = list.next().filter(|n| integer(n).is_some())?;
    match list.next()? {
        b"cpus:" => Some((node, "", f64::NAN)),
        key @ (b"size:" | b"free:") => {
            let value = number(list.next()?)?;
            let metric = if key == b"size:" { "node.mem_total" } else { "node.mem_free" };
            (list.next() == Some(b"MB")).then_some((node, metric, value * MIB))
        }
        _ => None,
    }
}

fn numactl(lines: &mut Lines<'_>, import: &mut Import) {
    let mut sink = Sink::default();
    let when = import.now();
    let mut distances = false;
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        if let Some((node, metric, value)) = node_line(line) {
            if let Some(metric) = lookup(metric) {
                sink.put_as(import, metric, Form::Level, 1.0, node, when, at, value);
            }
        } else if line.starts_with(b"node distances:") {
            distances = true;
        } else if !is_nodes_title(line) {
            let is_row =
                |w: &[u8]| w == b"node" || w.strip_suffix(b":").is_some_and(|node| integer(node).is_some());
            let is_distance = distances && words(line).next().is_some_and(is_row);
            return if is_distance { Took::Yes } else { Took::No };
        }
        Took::Yes
    });
}
