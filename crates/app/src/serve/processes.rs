//! The processes of one moment, as top would have shown them.

use mitra_archive::Query;
use mitra_diagnose::ledger;
use mitra_diagnose::process::{self, Process, thread_state};
use mitra_model::time::SECOND;
use mitra_model::{Metric, Series, SeriesSet, Span, cgroup_name, lookup};
use serde_json::{Value, json};

use super::archive::View;
use super::response::Failure;
use crate::render::style::rfc3339;

pub const SPAN_S: usize = 1;
pub const SPAN_S_MAX: usize = 600;
/// Names of ended processes that are told. A machine that runs scripts ends thousands in a second.
const ENDED_MAX: usize = 300;

const METRICS: &[&str] = &[
    "task.comm",
    "task.tgid",
    "task.ppid",
    "task.kthread",
    "task.state",
    "task.kstack",
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
    "exited.count",
    "exited.failed",
    "exited.last_pid",
    "exited.cpu_time",
    "exited.run_delay",
    "exited.read_bytes",
    "exited.write_bytes",
    "exited.majflt",
];

/// What was sampled at a moment, and in the seconds before it.
pub struct Moment {
    pub set: SeriesSet,
    /// When the last sample was taken.
    pub last: i64,
    /// What rates are means of, and its length.
    pub span: Span,
    pub seconds: f64,
}

impl Moment {
    /// The `span_s` seconds that end at `at`. One of the metrics has to be `task.tgid`.
    pub fn read(view: &View, at: i64, span_s: usize, names: &[&str]) -> Result<Moment, Failure> {
        let none = || Failure::not_found("not_recorded", "no sample was taken then");
        // A recording with a longer interval has its sample further back.
        let step_s = if view.interval_s.is_finite() { view.interval_s } else { 1.0 };
        let back = ((span_s as f64).max(1.5 * step_s) * SECOND as f64) as i64;
        let asked = Span { since: at.saturating_sub(back), until: at.saturating_add(1) };
        let metrics: Vec<&'static Metric> = names.iter().filter_map(|name| lookup(name)).collect();
        let set = view.reader.read(&Query::new(asked, metrics)).map_err(anyhow::Error::from)?;
        let axis = set.each("task.tgid").next().map(|(_, series)| series.axis.clone()).ok_or_else(none)?;
        let seen = set.each("task.tgid").filter_map(|(_, series)| series.samples(asked).next_back());
        let last = seen.map(|(t, ..)| t).max().ok_or_else(none)?;
        let step_s = Some(axis.step_s()).filter(|step_s| step_s.is_finite()).unwrap_or(step_s);
        let span = Span { since: first_of(last, span_s, step_s), until: last.saturating_add(1) };
        let seconds: f64 = axis.dt[axis.range(span)].iter().filter(|dt| dt.is_finite()).sum();
        Ok(Moment { set, last, span, seconds })
    }

    /// Whether it has a sample at the end.
    pub fn is_there(&self, series: &Series) -> bool {
        series.last(Span { since: self.last, ..self.span }).is_some()
    }

    /// The processes that are there at the end. Who ended before has no sample then.
    pub fn processes(&self) -> Vec<Process<'_>> {
        let mut all = process::collect(&self.set);
        all.retain(|process| process.series(&self.set, "task.tgid").any(|series| self.is_there(series)));
        all
    }

    /// A rate of a process; `None` where it was not measured.
    pub fn rate(&self, process: &Process<'_>, metric: &str) -> Option<f64> {
        let measured = process.series(&self.set, metric).any(|series| series.last(self.span).is_some());
        (measured && self.seconds > 0.0).then(|| process.total(&self.set, metric, self.span) / self.seconds)
    }

    /// Task-seconds per second that a process lost.
    pub fn lost(&self, process: &Process<'_>) -> Option<f64> {
        (self.seconds > 0.0).then(|| ledger::lost_by(process, &self.set, self.span) / self.seconds)
    }
}

/// Rates are means of the `span_s` seconds that end at `at`. With `pid` only that process, with its threads.
pub fn answer(view: &View, at: i64, span_s: usize, pid: Option<u32>) -> Result<Value, Failure> {
    let moment = Moment::read(view, at, span_s, METRICS)?;
    let Moment { ref set, last, span, seconds } = moment;
    let page_bytes = set.host.page_bytes as f64;
    let mut rows: Vec<(f64, Value)> = Vec::new();
    for process in moment.processes().into_iter().filter(|process| pid.is_none_or(|pid| process.pid == pid)) {
        let rate = |metric: &str| moment.rate(&process, metric);
        let level = |metric: &str| process.series(set, metric).filter_map(|s| s.last(span)).reduce(f64::max);
        let bytes = |metric: &str| level(metric).map(|pages| pages * page_bytes);
        let leader = |metric: &str| set.get(metric, process.rows.first()?)?.last(span);
        let resident = ["task.rss_anon", "task.rss_file", "task.rss_shmem"].map(bytes);
        let cpu = rate("task.cpu_time");
        let mut row = json!({
            "row": process.rows.first(),
            "pid": process.pid,
            "ppid": process.ppid,
            "comm": process.comm,
            "cgroup": process.cgroup,
            "cgroup_name": process.cgroup.and_then(|path| cgroup_name::recorded(set, path)),
            "kthread": process.kthread,
            "state": process.state(set, last),
            "waits_in": process.waits_in(set, last),
            "nice": leader("task.nice"),
            "threads": level("task.threads"),
            "cpu": cpu,
            "lost": moment.lost(&process),
            "rss": resident.into_iter().flatten().reduce(|a, b| a + b),
            "read": rate("task.read_bytes"),
            "written": rate("task.write_bytes"),
            "run_delay": rate("task.run_delay"),
            "blkio_delay": rate("task.blkio_delay"),
            "majflt": rate("task.majflt"),
        });
        if pid.is_some() {
            row["tasks"] = tasks(&process, set, span, last);
        }
        rows.push((cpu.unwrap_or(0.0), row));
    }
    let mut told = json!({ "at": rfc3339(last), "seconds": seconds, "processes": largest_first(rows) });
    if pid.is_none() {
        let mut ended = largest_first(ended(set, span, seconds));
        told["ended_left_out"] = ended.len().saturating_sub(ENDED_MAX).into();
        ended.truncate(ENDED_MAX);
        told["ended"] = ended.into();
    }
    Ok(told)
}

/// By CPU time.
pub fn largest_first(mut rows: Vec<(f64, Value)>) -> Vec<Value> {
    rows.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    rows.into_iter().map(|(_, row)| row).collect()
}

/// The threads of a process that are there at its last sample.
fn tasks(process: &Process<'_>, set: &SeriesSet, span: Span, last: i64) -> Value {
    let one = |row: &&str| {
        let state = thread_state(set, row, last)?;
        let seconds: f64 = set.get("task.state", row)?.samples(span).map(|(_, dt, _)| dt).sum();
        let rate = |metric: &str| Some(set.get(metric, row)?.total(span)? / seconds);
        let stack = set.text("task.kstack", row).and_then(|text| text.at(last));
        Some(json!({
            "row": row,
            "tid": row.split_once('@').and_then(|(tid, _)| tid.parse::<u32>().ok()),
            "comm": set.text("task.comm", row).and_then(|text| text.at(last)),
            "state": state,
            "waits_in": stack.filter(|_| state == 'D'),
            "cpu": rate("task.cpu_time"),
            "run_delay": rate("task.run_delay"),
            "blkio_delay": rate("task.blkio_delay"),
        }))
    };
    process.rows.iter().filter_map(one).collect()
}

/// Processes that ended in the span, by parent and name, with their CPU time.
fn ended(set: &SeriesSet, span: Span, seconds: f64) -> Vec<(f64, Value)> {
    let mut rows = Vec::new();
    for (key, series) in set.each("exited.count") {
        let count = series.total(span).unwrap_or(0.0).round();
        if count < 1.0 {
            continue;
        }
        let (ppid, comm) = key.split_once(':').unwrap_or(("", key));
        let total = |metric: &str| set.get(metric, key)?.total(span);
        let rate = |metric: &str| Some(total(metric)? / seconds);
        let cpu = rate("exited.cpu_time");
        let row = json!({
            "comm": comm,
            "ppid": ppid.parse::<u32>().ok(),
            "last_pid": set.get("exited.last_pid", key).and_then(|series| series.last(span)),
            "count": count,
            "failed": total("exited.failed").map(f64::round),
            "cpu": cpu,
            "run_delay": rate("exited.run_delay"),
            "read": rate("exited.read_bytes"),
            "written": rate("exited.write_bytes"),
            "majflt": rate("exited.majflt"),
        });
        rows.push((cpu.unwrap_or(0.0), row));
    }
    rows
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
