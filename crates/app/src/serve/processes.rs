//! The processes of one moment, as top would have shown them.

use mitra_archive::Query;
use mitra_diagnose::{ledger, process};
use mitra_model::time::SECOND;
use mitra_model::{Metric, Span, cgroup_name, lookup};
use serde_json::{Value, json};

use super::archive::View;
use super::response::Failure;
use crate::render::style::rfc3339;

pub const SPAN_S: usize = 1;
pub const SPAN_S_MAX: usize = 600;

/// What [`ledger::lost_by`] adds up comes besides.
const METRICS: &[&str] = &[
    "task.comm",
    "task.tgid",
    "task.ppid",
    "task.kthread",
    "task.state",
    "task.cgroup",
    "cgroup.container",
    "cgroup.image",
    "cgroup.pod",
    "task.nice",
    "task.threads",
    "task.cpu_time",
    "task.run_delay",
    "task.blkio_delay",
    "task.swapin_delay",
    "task.reclaim_delay",
    "task.thrashing_delay",
    "task.majflt",
    "task.read_bytes",
    "task.write_bytes",
    "task.rss_anon",
    "task.rss_file",
    "task.rss_shmem",
];

/// Rates are means of the `span_s` seconds that end at `at`.
pub fn answer(view: &View, at: i64, span_s: usize) -> Result<Value, Failure> {
    let none = || Failure::not_found("not_recorded", "no sample was taken then");
    // A recording with a longer interval has its sample further back.
    let step_s = if view.interval_s.is_finite() { view.interval_s } else { 1.0 };
    let back = ((span_s as f64).max(1.5 * step_s) * SECOND as f64) as i64;
    let asked = Span { since: at.saturating_sub(back), until: at.saturating_add(1) };
    let metrics: Vec<&'static Metric> = METRICS.iter().filter_map(|name| lookup(name)).collect();
    let set = view.reader.read(&Query::new(asked, metrics)).map_err(anyhow::Error::from)?;
    let axis = set.each("task.tgid").next().map(|(_, series)| series.axis.clone()).ok_or_else(none)?;
    let last = axis.t.last().copied().ok_or_else(none)?;
    // The samples of the asked seconds, and at least the last one.
    let since = last.saturating_sub((span_s as i64 - 1).saturating_mul(SECOND)).saturating_sub(SECOND / 2);
    let span = Span { since, until: last.saturating_add(1) };
    let seconds: f64 = axis.dt[axis.range(span)].iter().filter(|dt| dt.is_finite()).sum();
    let page_bytes = set.host.page_bytes as f64;
    let mut rows: Vec<(f64, Value)> = Vec::new();
    for process in process::collect(&set) {
        // Who ended before has no sample at the end.
        let is_there = process.series(&set, "task.tgid").any(|series| series.last(span).is_some());
        if !is_there {
            continue;
        }
        let rate = |metric: &str| -> Option<f64> {
            let measured = process.series(&set, metric).any(|series| series.last(span).is_some());
            (measured && seconds > 0.0).then(|| process.total(&set, metric, span) / seconds)
        };
        let level = |metric: &str| process.series(&set, metric).filter_map(|s| s.last(span)).reduce(f64::max);
        let bytes = |metric: &str| level(metric).map(|pages| pages * page_bytes);
        let leader = |metric: &str| set.get(metric, process.rows.first()?)?.last(span);
        let state =
            leader("task.state").map(|state| char::from(state as u8)).filter(char::is_ascii_alphabetic);
        let resident = ["task.rss_anon", "task.rss_file", "task.rss_shmem"].map(bytes);
        let cpu = rate("task.cpu_time");
        let lost = if seconds > 0.0 { ledger::lost_by(&process, &set, span) / seconds } else { 0.0 };
        let row = json!({
            "pid": process.pid,
            "ppid": process.ppid,
            "comm": process.comm,
            "cgroup": process.cgroup,
            "cgroup_name": process.cgroup.and_then(|path| cgroup_name::recorded(&set, path)),
            "kthread": process.kthread,
            "state": state,
            "nice": leader("task.nice"),
            "threads": level("task.threads"),
            "cpu": cpu,
            "lost": lost,
            "rss": resident.into_iter().flatten().reduce(|a, b| a + b),
            "read": rate("task.read_bytes"),
            "written": rate("task.write_bytes"),
            "run_delay": rate("task.run_delay"),
            "blkio_delay": rate("task.blkio_delay"),
            "majflt": rate("task.majflt"),
        });
        rows.push((cpu.unwrap_or(0.0), row));
    }
    rows.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let rows: Vec<Value> = rows.into_iter().map(|(_, row)| row).collect();
    Ok(json!({ "at": rfc3339(last), "seconds": seconds, "processes": rows }))
}
