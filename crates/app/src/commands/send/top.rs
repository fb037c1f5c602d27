//! The processes that use and lose most in each interval.

use std::collections::BTreeMap;

use anyhow::Result;
use mitra_archive::{Query, Reader};
use mitra_diagnose::{ledger, process};
use mitra_model::{Span, lookup};
use mitra_send::{Series, SeriesKind};

use super::stretch::Wanted;

const METRICS: &[&str] = &[
    "task.comm",
    "task.tgid",
    "task.kthread",
    "task.state",
    "task.kstack",
    "task.cpu_time",
    "task.run_delay",
    "task.rss_anon",
    "task.rss_file",
    "task.rss_shmem",
];

/// What is sent of a process: the name, the unit and the meaning.
const SENT: [(&str, &str, &str); 3] = [
    ("mitra_process_cpu_ratio", "", "CPU seconds that a process used in each second."),
    (
        "mitra_process_lost_ratio",
        "",
        "Seconds that the threads of a process waited for a CPU, storage, memory or a lock in each second.",
    ),
    ("mitra_process_resident_bytes", "bytes", "Memory of a process that is resident."),
];

/// The process ids and names, and for each its samples of [`SENT`].
type Found = BTreeMap<(u32, String), [Vec<(i64, f64)>; SENT.len()]>;

/// Of the `top` processes in each interval of a stretch.
pub fn read(reader: &Reader, part: Span, wanted: &Wanted, top: usize) -> Result<Vec<Series>> {
    let metrics = METRICS.iter().filter_map(|name| lookup(name)).collect();
    let set = reader.read(&Query::new(part, metrics))?;
    let Some(axis) = set.each("task.tgid").next().map(|(_, series)| series.axis.clone()) else {
        return Ok(Vec::new());
    };
    let page_bytes = set.host.page_bytes as f64;
    let processes = process::collect(&set);
    let mut found = Found::new();
    for times in axis.t[axis.range(part)].chunk_by(|a, b| wanted.interval(*a) == wanted.interval(*b)) {
        let (Some(first), Some(last)) = (times.first(), times.last()) else { continue };
        let span = Span { since: *first, until: last.saturating_add(1) };
        let seconds: f64 = axis.dt[axis.range(span)].iter().filter(|dt| dt.is_finite()).sum();
        if seconds <= 0.0 {
            continue;
        }
        let mut ranked: Vec<(f64, f64, &process::Process<'_>)> = processes
            .iter()
            .map(|process| {
                let cpu = process.total(&set, "task.cpu_time", span) / seconds;
                (cpu, ledger::lost_by(process, &set, span) / seconds, process)
            })
            .filter(|(cpu, lost, _)| cpu + lost > 0.0)
            .collect();
        ranked.sort_by(|a, b| (b.0 + b.1).total_cmp(&(a.0 + a.1)));
        for (cpu, lost, process) in ranked.into_iter().take(top) {
            let [of_cpu, of_lost, of_resident] =
                found.entry((process.pid, process.comm.to_owned())).or_default();
            // The id was used again in this interval: one value is enough, and two make a store refuse all.
            if of_cpu.last().is_some_and(|(t, _)| t == last) {
                continue;
            }
            of_cpu.push((*last, cpu));
            of_lost.push((*last, lost));
            let pages = ["task.rss_anon", "task.rss_file", "task.rss_shmem"].map(|metric| {
                process.series(&set, metric).filter_map(|series| series.last(span)).reduce(f64::max)
            });
            if let Some(pages) = pages.into_iter().flatten().reduce(|a, b| a + b) {
                of_resident.push((*last, pages * page_bytes));
            }
        }
    }
    Ok(series(found, wanted, &set.host.hostname))
}

/// Those of one name stand beside one another.
fn series(found: Found, wanted: &Wanted, host: &str) -> Vec<Series> {
    let mut all = Vec::new();
    for (i, (name, unit, help)) in SENT.into_iter().enumerate() {
        for ((pid, comm), samples) in &found {
            let own = [("pid", pid.to_string()), ("comm", comm.clone())];
            let own = own.each_ref().map(|(name, value)| (*name, value.as_str()));
            all.push(Series {
                name: name.into(),
                kind: SeriesKind::Gauge,
                unit,
                help,
                labels: wanted.labels(host, &own),
                samples: samples[i].clone(),
            });
        }
    }
    all
}
