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
    let all = process::collect(&set);
    let seen = all.iter().flat_map(|process| process.series(&set, "task.tgid"));
    let last = seen.filter_map(|series| series.samples(asked).next_back()).map(|(t, ..)| t).max();
    let last = last.ok_or_else(none)?;
    let end = Span { since: last, until: last.saturating_add(1) };
    let step_s = Some(axis.step_s()).filter(|step_s| step_s.is_finite()).unwrap_or(step_s);
    let span = Span { since: first_of(last, span_s, step_s), ..end };
    let seconds: f64 = axis.dt[axis.range(span)].iter().filter(|dt| dt.is_finite()).sum();
    let page_bytes = set.host.page_bytes as f64;
    let mut rows: Vec<(f64, Value)> = Vec::new();
    for process in all {
        // Who ended before has no sample at the end.
        let is_there = process.series(&set, "task.tgid").any(|series| series.last(end).is_some());
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
        let lost = (seconds > 0.0).then(|| ledger::lost_by(&process, &set, span) / seconds);
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

/// When the samples begin that cover so many seconds up to the last one, which is always among them. They may come early or late
/// by less than half of the distance between two.
fn first_of(last: i64, span_s: usize, step_s: f64) -> i64 {
    let back_s = (span_s as f64 - step_s / 2.0).max(0.0);
    last.saturating_sub((back_s * SECOND as f64) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_samples_as_fit_into_the_seconds() {
        for (span_s, step_s, samples) in [(1, 1.0, 1), (5, 1.0, 5), (1, 0.2, 5), (1, 10.0, 1), (60, 10.0, 6)]
        {
            let last = 1000 * SECOND;
            let first = first_of(last, span_s, step_s);
            let at = |i: i64| last - (i as f64 * step_s * SECOND as f64) as i64;
            assert_eq!((0..1000).take_while(|i| at(*i) >= first).count(), samples, "{span_s} {step_s}");
        }
    }
}
