//! Tasks put together to processes, and processes to those of one name.

use std::collections::{BTreeMap, BTreeSet};

use mitra_model::{Series, SeriesSet, Span, TextSeries, WaitKind, time::SECOND, wait_kind};

use crate::condition::Observation;
use crate::signal::Signal;
use crate::view::View;

/// A process with its threads.
#[derive(Debug, Clone)]
pub struct Process<'a> {
    /// Its id.
    pub pid: u32,
    /// Its name: that of its leader.
    pub comm: &'a str,
    /// Whether it is a kernel thread: a messenger, never a culprit.
    pub kthread: bool,
    /// Its cgroup.
    pub cgroup: Option<&'a str>,
    /// The id of its parent.
    pub ppid: Option<u32>,
    /// When its leader started, in nanoseconds since boot.
    pub born_boot_ns: u64,
    /// The rows of its threads.
    pub rows: Vec<&'a str>,
}

/// Splits the name of a task row into thread id and birth.
fn split_row(row: &str) -> Option<(u32, u64)> {
    let (tid, born) = row.split_once('@')?;
    Some((tid.parse().ok()?, born.parse().ok()?))
}

/// Who is moved out of its group so shortly before the end goes away with it, or is taken out for that.
const LEAVES_NS: i64 = 5 * SECOND;

/// The cgroup of a process by the end of a recording, but for a move to one above it in the last seconds.
fn group_of(text: &TextSeries, end: i64) -> Option<&str> {
    let mut known = text.changes.iter().rev().filter_map(|(t, group)| Some((*t, group.as_deref()?)));
    let (moved, last) = known.next()?;
    let is_above =
        |before: &str| last == "/" || before.strip_prefix(last).is_some_and(|rest| rest.starts_with('/'));
    let left = known.next().map(|(_, before)| before);
    let left =
        left.filter(|before| end.saturating_sub(moved) < LEAVES_NS && *before != last && is_above(before));
    left.or(Some(last))
}

/// All processes of a set, in order of their ids.
#[must_use]
pub fn collect(set: &SeriesSet) -> Vec<Process<'_>> {
    // A pid can have been used twice; threads belong to the leader that was born last before them.
    let mut leaders: BTreeMap<u32, Vec<Process<'_>>> = BTreeMap::new();
    let mut threads: Vec<(u32, u64, &str)> = Vec::new();
    let end = set.span().map_or(i64::MAX, |span| span.until);
    for (row, series) in set.each("task.tgid") {
        let Some((tid, born)) = split_row(row) else { continue };
        let Some(tgid) = series.last(Span::ALL).filter(|t| *t >= 0.0).map(|t| t as u32) else { continue };
        if tid != tgid {
            threads.push((tgid, born, row));
            continue;
        }
        let number = |metric: &str| set.get(metric, row).and_then(|s| s.last(Span::ALL));
        leaders.entry(tgid).or_default().push(Process {
            pid: tgid,
            comm: set.text("task.comm", row).and_then(|t| t.last()).unwrap_or("?"),
            kthread: number("task.kthread") == Some(1.0),
            cgroup: set.text("task.cgroup", row).and_then(|text| group_of(text, end)),
            ppid: number("task.ppid").map(|p| p as u32),
            born_boot_ns: born,
            rows: vec![row],
        });
    }
    for list in leaders.values_mut() {
        list.sort_by_key(|p| p.born_boot_ns);
    }
    for (tgid, born, row) in threads {
        let list = leaders.entry(tgid).or_default();
        let i = list.partition_point(|p| p.born_boot_ns <= born);
        match list.get_mut(i.saturating_sub(1)) {
            Some(process) => process.rows.push(row),
            // The leader has no row: the thread stands for the process.
            None => list.push(Process {
                pid: tgid,
                comm: set.text("task.comm", row).and_then(|t| t.last()).unwrap_or("?"),
                kthread: false,
                cgroup: set.text("task.cgroup", row).and_then(|text| group_of(text, end)),
                ppid: None,
                born_boot_ns: born,
                rows: vec![row],
            }),
        }
    }
    leaders.into_values().flatten().collect()
}

impl<'a> Process<'a> {
    /// The series of a metric of each of its threads.
    pub fn series<'s>(&self, set: &'s SeriesSet, metric: &str) -> impl Iterator<Item = &'s Series>
    where
        'a: 's,
    {
        self.rows.iter().filter_map(move |row| set.get(metric, row))
    }

    /// A rate of the whole process, over time.
    #[must_use]
    pub fn signal(&self, set: &SeriesSet, metric: &str, span: Span) -> Option<Signal> {
        Signal::sum(self.rows.iter().filter_map(|row| set.get(metric, row)), span)
    }

    /// How much a rate of the whole process came to inside the span.
    #[must_use]
    pub fn total(&self, set: &SeriesSet, metric: &str, span: Span) -> f64 {
        self.rows.iter().filter_map(|row| set.get(metric, row)?.total(span)).sum()
    }

    /// Whether all of its threads together use just one CPU, second after second: those that take turns under one lock do, whatever their
    /// number.
    #[must_use]
    pub fn uses_just_one_cpu(&self, set: &SeriesSet, span: Span) -> bool {
        // To an eighth; and a load that is one CPU's worth by chance varies by more than a twentieth.
        const ONE_CPU: f64 = 0.12;
        const STEADY: f64 = 0.05;
        let Some(cpu) = self.signal(set, "task.cpu_time", span) else { return false };
        // The first sample of a run lies half before it.
        let v = cpu.v.get(1..).unwrap_or_default();
        let mean = v.iter().sum::<f64>() / v.len() as f64;
        let spread = v.iter().map(|v| (v - mean).abs()).sum::<f64>() / v.len() as f64;
        (mean - 1.0).abs() <= ONE_CPU && spread <= STEADY * mean
    }

    /// When it was first seen.
    #[must_use]
    pub fn first_seen(&self, set: &SeriesSet) -> Option<i64> {
        self.series(set, "task.tgid").filter_map(|s| s.samples(Span::ALL).next()).map(|(t, ..)| t).min()
    }

    /// When it was last seen. Tools name their tasks once and say what they did again and again.
    #[must_use]
    pub fn last_seen(&self, set: &SeriesSet) -> Option<i64> {
        let last = |series: &Series| {
            series.axis.t.get((series.start + series.values.len()).checked_sub(1)?).copied()
        };
        ["task.tgid", "task.cpu_time"].iter().flat_map(|m| self.series(set, m)).filter_map(last).max()
    }

    /// Its state at a sample: that of the thread that says most. A thread that waits or runs says more than a leader that sleeps.
    #[must_use]
    pub fn state(&self, set: &SeriesSet, t: i64) -> Option<char> {
        let rank = |state: &char| match state {
            'D' => 0,
            'R' => 1,
            'S' | 'I' => 3,
            _ => 2,
        };
        self.rows.iter().filter_map(|row| thread_state(set, row, t)).min_by_key(rank)
    }

    /// The kernel stacks in which its threads in D state wait at a sample, each once.
    #[must_use]
    pub fn waits_in<'s>(&self, set: &'s SeriesSet, t: i64) -> BTreeSet<&'s str> {
        let waiting = self.rows.iter().filter(|row| thread_state(set, row, t) == Some('D'));
        waiting.filter_map(|row| set.text("task.kstack", row)?.at(t)).collect()
    }

    /// Task-seconds of it in uninterruptible sleep, or waiting for a device.
    #[must_use]
    pub fn blocked_s(&self, set: &SeriesSet, span: Span) -> f64 {
        self.uninterruptible_s(set, span).max(self.total(set, "task.blkio_delay", span))
    }

    /// Seconds inside the span for which a sample found one of its threads in D state.
    #[must_use]
    pub fn uninterruptible_s(&self, set: &SeriesSet, span: Span) -> f64 {
        self.rows
            .iter()
            .filter_map(|row| set.get("task.state", row))
            .flat_map(|series| series.samples(span))
            .filter(|(_, dt, state)| *state == f64::from(b'D') && dt.is_finite())
            .map(|(_, dt, _)| dt)
            .sum()
    }

    /// Of these seconds those in which the thread waited for I/O or was held back by a rule. D state is not disk: a lock makes
    /// it too.
    #[must_use]
    pub fn waiting_for_io_s(&self, set: &SeriesSet, span: Span) -> f64 {
        self.waiting_for_s(set, span, &[WaitKind::Io, WaitKind::Throttle])
    }

    /// Of these seconds those that count as lost: who waits for the kernel's own housekeeping may have nothing else to do.
    #[must_use]
    pub fn lost_asleep_s(&self, set: &SeriesSet, span: Span) -> f64 {
        self.waiting_for_s(set, span, &[WaitKind::Io, WaitKind::Throttle, WaitKind::Lock, WaitKind::Memory])
    }

    /// Of these seconds those in which the thread waited for one of some things, by its kernel stack; where that was not
    /// recorded, all.
    #[must_use]
    pub fn waiting_for_s(&self, set: &SeriesSet, span: Span, kinds: &[WaitKind]) -> f64 {
        self.waits(set, span, kinds).map(|(_, dt)| dt).sum()
    }

    /// The samples in which a thread waited for one of some things, with their length.
    fn waits<'s>(
        &'s self,
        set: &'s SeriesSet,
        span: Span,
        kinds: &'s [WaitKind],
    ) -> impl Iterator<Item = (i64, f64)> + 's {
        let is_meant = move |row: &str, t: i64| {
            let stack = set.text("task.kstack", row).and_then(|text| text.at(t));
            stack.is_none_or(|stack| kinds.contains(&wait_kind(stack)))
        };
        self.rows
            .iter()
            .filter_map(move |row| Some((row, set.get("task.state", row)?)))
            .flat_map(move |(row, series)| series.samples(span).map(move |sample| (row, sample)))
            .filter(move |(row, (t, dt, state))| {
                *state == f64::from(b'D') && dt.is_finite() && is_meant(row, *t)
            })
            .map(|(_, (t, dt, _))| (t, dt))
    }
}

/// The state of a thread at a sample, as ps has it.
#[must_use]
pub fn thread_state(set: &SeriesSet, row: &str, t: i64) -> Option<char> {
    let code = set.get("task.state", row)?.last(Span { since: t, until: t.saturating_add(1) })?;
    Some(char::from(code as u8)).filter(char::is_ascii_alphabetic)
}

/// Whether a cgroup is another one or lies below it.
#[must_use]
pub fn is_inside(cgroup: Option<&str>, group: &str) -> bool {
    let below = |of: &str| of.strip_prefix(group).is_some_and(|rest| rest.starts_with('/'));
    group == "/" || cgroup.is_some_and(|of| of == group || below(of))
}

/// How many tasks of a cgroup wait for some things at each moment of a signal.
#[must_use]
pub fn group_waiting(view: &View<'_>, group: &str, kinds: &[WaitKind], at: &Signal) -> Signal {
    let mut waiting = at.clone().map(|_| 0.0);
    for process in view.processes().iter().filter(|p| !p.kthread && is_inside(p.cgroup, group)) {
        for (t, _) in process.waits(view.set, view.window, kinds) {
            if let Ok(i) = waiting.t.binary_search(&t) {
                waiting.v[i] += 1.0;
            }
        }
    }
    waiting
}

/// Task-seconds that the tasks of a cgroup waited for some things in the span, beyond what they did before.
#[must_use]
pub fn group_waited_s(view: &View<'_>, group: &str, span: Span, kinds: &[WaitKind]) -> f64 {
    let waited = |set: &SeriesSet, span: Span, processes: &[Process<'_>]| -> f64 {
        let inside = processes.iter().filter(|p| !p.kthread && is_inside(p.cgroup, group));
        inside.map(|p| p.waiting_for_s(set, span, kinds)).sum()
    };
    let usual = view.baseline.map_or(0.0, |baseline| {
        waited(view.base_set, baseline, &collect(view.base_set)) / baseline.seconds().max(1e-9)
    });
    (waited(view.set, span, view.processes()) - usual * span.seconds()).max(0.0)
}

/// As much work as before, give or take.
const NO_MORE: f64 = 1.1;

/// Bystanders lose half of a task's time: one service takes twice as long.
const SEVERE: f64 = 0.5;
/// A few seconds are a burst.
const SEVERE_S: f64 = 5.0;

/// Makes what tasks wait for an incident also where nothing explains it, if bystanders lose much.
pub fn judge_by_bystanders(
    view: &View<'_>,
    mut observation: Observation,
    waited_s: impl Fn(&Process<'_>, &SeriesSet, Span) -> f64,
    work: &[&str],
) -> Observation {
    let Observation::Active(finding) = &mut observation else { return observation };
    let until = finding.end.unwrap_or(view.window.until);
    let span = Span { since: finding.onset, until: until.saturating_add(1) };
    let lost = bystanders_lose(view, span, waited_s, work).filter(|lost| *lost >= SEVERE);
    if let Some(lost) = lost.filter(|_| span.seconds() >= SEVERE_S) {
        finding.is_severe = true;
        finding.loss_s = Some(lost * span.seconds());
    }
    observation
}

/// Task-seconds per second that processes lose which were there before and do no more than they did then, beyond what they lost then.
/// Who does more waits more: that is how work is done. `None` without a baseline.
fn bystanders_lose(
    view: &View<'_>,
    span: Span,
    waited_s: impl Fn(&Process<'_>, &SeriesSet, Span) -> f64,
    work: &[&str],
) -> Option<f64> {
    let baseline = view.baseline?;
    let did = |process: &Process<'_>, set: &SeriesSet, span: Span| {
        work.iter().map(|metric| process.total(set, metric, span)).sum::<f64>() / span.seconds().max(1e-9)
    };
    let lost = |process: &Process<'_>, set: &SeriesSet, span: Span| {
        waited_s(process, set, span) / span.seconds().max(1e-9)
    };
    let was_there = |process: &Process<'_>| {
        let mut known = process.series(view.base_set, "task.tgid");
        known.any(|series| series.samples(baseline).next().is_some())
    };
    let is_bystander = |process: &&Process<'_>| {
        let usual = did(process, view.base_set, baseline);
        !process.kthread && was_there(process) && did(process, view.set, span) <= NO_MORE * usual
    };
    let all = view.processes().iter().filter(is_bystander);
    Some(all.map(|p| (lost(p, view.set, span) - lost(p, view.base_set, baseline)).max(0.0)).sum())
}

/// Task-seconds per second in D state or, where that is known, waiting for I/O of user processes other than these, in the
/// span and in the baseline.
#[must_use]
pub fn others_in_d_state(view: &View<'_>, these: &[u32], span: Span) -> (f64, f64) {
    others(view, these, span, |p, set, span| p.uninterruptible_s(set, span))
}

/// The same without those that wait for a lock or for memory, as far as their stacks are known: these may have nothing to do
/// with a device.
#[must_use]
pub fn others_waiting_for_io(view: &View<'_>, these: &[u32], span: Span) -> (f64, f64) {
    others(view, these, span, |p, set, span| p.waiting_for_io_s(set, span))
}

fn others(
    view: &View<'_>,
    these: &[u32],
    span: Span,
    of: impl Fn(&Process<'_>, &SeriesSet, Span) -> f64,
) -> (f64, f64) {
    let total = |set: &SeriesSet, span: Span, processes: &[Process<'_>]| {
        let seconds = span.seconds();
        let waited: f64 = processes
            .iter()
            .filter(|p| !p.kthread && !these.contains(&p.pid))
            .map(|p| of(p, set, span).max(p.total(set, "task.blkio_delay", span)))
            .sum();
        if seconds > 0.0 { waited / seconds } else { 0.0 }
    };
    let now = total(view.set, span, view.processes());
    let before = view.baseline.map_or(0.0, |b| total(view.base_set, b, &collect(view.base_set)));
    (now, before)
}

/// The processes of one name that did most of something.
#[derive(Debug, Clone)]
pub struct Top<'a> {
    /// Their name.
    pub comm: &'a str,
    /// What they did, in the unit of the metric.
    pub total: f64,
    /// The same per second of the span.
    pub rate: f64,
    /// Their share of what all user processes did.
    pub share: f64,
    /// How many processes.
    pub processes: usize,
    /// The one that did most.
    pub lead: Process<'a>,
    /// The share of the one that did most of what those of its name did.
    pub lead_share: f64,
    /// The ids of those that did nearly all of it: one process, or one with its siblings, or all of that name. Another
    /// program may run under the same name and be a victim.
    pub members: Vec<u32>,
}

/// What makes one process, or one family of siblings, stand for all of a name.
const NEARLY_ALL: f64 = 0.8;

/// The processes that did nearly all of what those of one name did.
fn members(list: &[(f64, &Process<'_>)], total: f64, lead: &Process<'_>, lead_share: f64) -> Vec<u32> {
    if lead_share >= NEARLY_ALL {
        return vec![lead.pid];
    }
    let siblings = || list.iter().filter(|(_, p)| p.ppid.is_some() && p.ppid == lead.ppid);
    if siblings().map(|(value, _)| value).sum::<f64>() >= NEARLY_ALL * total {
        return siblings().map(|(_, p)| p.pid).collect();
    }
    list.iter().map(|(_, p)| p.pid).collect()
}

impl Top<'_> {
    /// The id of the process that did most.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.lead.pid
    }

    /// `dd (812)`, or `4 processes named fio, 812 most of all` where none did half of it.
    #[must_use]
    pub fn words(&self) -> String {
        if self.lead_share >= 0.5 {
            return format!("{} ({})", self.comm, self.lead.pid);
        }
        format!("{} processes named {}, {} most of all,", self.processes, self.comm, self.lead.pid)
    }
}

/// How much of a span a process spent in the kernel, of those that do little else: what walks over files, looks names up or
/// makes objects of the kernel computes next to nothing itself.
#[must_use]
pub fn in_kernel_s(process: &Process<'_>, set: &SeriesSet, span: Span) -> f64 {
    let system = process.total(set, "task.system_time", span);
    if system >= KERNEL_SHARE * process.total(set, "task.cpu_time", span) { system } else { 0.0 }
}

/// More of its time in the kernel than in its own code.
const KERNEL_SHARE: f64 = 0.5;

/// The user processes by name, those that did most of `value` first. `value` gives a total over the span.
#[must_use]
pub fn ranking<'a>(
    processes: &[Process<'a>],
    span: Span,
    value: impl Fn(&Process<'a>) -> f64,
) -> Vec<Top<'a>> {
    let mut by_name: BTreeMap<&'a str, Vec<(f64, &Process<'a>)>> = BTreeMap::new();
    let mut all = 0.0;
    for process in processes.iter().filter(|p| !p.kthread) {
        let value = value(process);
        if value > 0.0 {
            all += value;
            by_name.entry(process.comm).or_default().push((value, process));
        }
    }
    let seconds = (span.until.saturating_sub(span.since) as f64 / SECOND as f64).max(1e-9);
    let mut tops: Vec<Top<'a>> = by_name
        .into_iter()
        .filter_map(|(comm, list)| {
            let total: f64 = list.iter().map(|(v, _)| v).sum();
            let (most, lead) = list.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
            let members = members(&list, total, lead, most / total);
            Some(Top {
                comm,
                total,
                rate: total / seconds,
                share: total / all,
                processes: list.len(),
                lead: (*lead).clone(),
                lead_share: most / total,
                members,
            })
        })
        .collect();
    tops.sort_by(|a, b| b.total.total_cmp(&a.total));
    tops
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leaves_its_group_at_the_end_is_of_it() {
        let of = |changes: &[(i64, &str)]| {
            let changes = changes.iter().map(|(s, group)| (s * SECOND, Some((*group).into()))).collect();
            group_of(&TextSeries { changes, place: None }, 100 * SECOND).map(str::to_owned)
        };
        assert_eq!(of(&[(0, "/db"), (98, "/")]).as_deref(), Some("/db"));
        assert_eq!(of(&[(0, "/pods/a/b"), (98, "/pods")]).as_deref(), Some("/pods/a/b"));
        assert_eq!(of(&[(0, "/db"), (50, "/")]).as_deref(), Some("/"), "it stays there");
        assert_eq!(of(&[(0, "/"), (98, "/db")]).as_deref(), Some("/db"), "it came");
        assert_eq!(of(&[(0, "/pods-b/a"), (98, "/pods")]).as_deref(), Some("/pods"), "another group");
    }
}
