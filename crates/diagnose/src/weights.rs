//! What tasks get of the CPUs beside others while all want them: by their own priority, and by the weights of their cgroups.
//!
//! A weight counts among siblings only: what the tasks of two groups get beside each other is decided where their paths part.

use mitra_model::{SeriesSet, Span};

use crate::changes::WEIGHTS;
use crate::process::{self, Process};
use crate::view::View;
use crate::words;

/// What is read here.
pub const NEEDS: &[&str] = &[
    "cgroup.cpu_idle",
    "cgroup.cpu_weight",
    "cgroup.cpu_shares",
    "task.cpu_time",
    "task.run_delay",
    "task.nice",
    "task.policy",
];

/// The policy of tasks that run while nobody else wants the CPU.
const SCHED_IDLE: f64 = 5.0;

/// Task-seconds per second that some tasks waited for a CPU, or whatever else is counted so.
pub fn rate<'p, 'a: 'p>(
    set: &SeriesSet,
    metric: &str,
    span: Span,
    processes: impl Iterator<Item = &'p Process<'a>>,
) -> f64 {
    processes.map(|p| p.total(set, metric, span)).sum::<f64>() / span.seconds().max(1e-9)
}

/// Why a process gets little of the CPUs beside those that take most of them; `None` where it gets as much as they would.
pub fn why_little(view: &View<'_>, process: &Process<'_>, span: Span) -> Option<String> {
    let last = |metric: &str| process.series(view.set, metric).find_map(|s| s.last(span));
    if last("task.policy") == Some(SCHED_IDLE) {
        return Some("its scheduling policy is SCHED_IDLE".to_owned());
    }
    if let Some(nice) = last("task.nice").filter(|nice| *nice > 0.0) {
        return Some(format!("its nice value is {nice:.0}"));
    }
    let tops = process::ranking(view.processes(), span, |p| p.total(view.set, "task.cpu_time", span));
    let taker = tops.iter().map(|top| &top.lead).find(|p| p.pid != process.pid)?;
    less(view, process.cgroup?, taker.cgroup?, span)
}

/// Of the processes that are meant the one that waits most for a CPU, and why it gets so little.
pub fn starved<'a>(view: &View<'a>, span: Span, is_meant: impl Fn(&Process<'a>) -> bool) -> Option<String> {
    let waited = |p: &Process<'_>| p.total(view.set, "task.run_delay", span);
    let meant = view.processes().iter().filter(|p| !p.kthread && is_meant(p));
    let most = meant.max_by(|a, b| waited(a).total_cmp(&waited(b)))?;
    let why = why_little(view, most, span)?;
    Some(format!("{} ({}) waits most: {why}", most.comm, most.pid))
}

/// That a group gets less than another one, by the weights of the two siblings that they are in.
fn less(view: &View<'_>, group: &str, other: &str, span: Span) -> Option<String> {
    let (own, other) = siblings(group, other)?;
    WEIGHTS.iter().find_map(|(metric, file)| {
        let of = |group: &str| view.limit_at(metric, group, span.until);
        let (weight, others) = (of(own)?, of(other)?);
        let (name, beside) = (view.group(own), view.group(other));
        match *metric {
            IDLE if weight > others => {
                Some(format!("{file} of {name} is 1, and {beside} leaves it next to nothing"))
            }
            IDLE => None,
            _ => (weight < others).then(|| {
                format!(
                    "{file} of {name} is {weight:.0} and that of {beside} {others:.0}: while both want a CPU it gets {}",
                    words::percent(weight / (weight + others))
                )
            }),
        }
    })
}

/// Comes first: a group that is idle gets next to nothing whatever its weight was.
pub const IDLE: &str = "cgroup.cpu_idle";

/// The two groups in which the paths of two groups part. One that lies within the other has no sibling there.
fn siblings<'g>(a: &'g str, b: &'g str) -> Option<(&'g str, &'g str)> {
    let ends = |path: &'g str| path.match_indices('/').map(|(i, _)| i).skip(1).chain([path.len()]);
    let mut pairs = ends(a).zip(ends(b)).filter_map(|(i, j)| Some((a.get(..i)?, b.get(..j)?)));
    pairs.find(|(a, b)| a != b && *a != "/" && *b != "/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_counts_where_two_paths_part() {
        assert_eq!(siblings("/a/b/c", "/a/d"), Some(("/a/b", "/a/d")));
        assert_eq!(siblings("/a", "/b/c"), Some(("/a", "/b")));
        assert_eq!(siblings("/a/b", "/a"), None);
        assert_eq!(siblings("/a/b", "/a/b"), None);
        assert_eq!(siblings("/", "/a"), None);
    }
}
