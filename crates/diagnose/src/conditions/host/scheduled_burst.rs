//! Load comes by the clock: a timer starts jobs, and while they run everybody else waits.
//!
//! Cron, timers of systemd and schedulers inside programs start their jobs at round times, and on every machine of a fleet at
//! the same one. Between the bursts nothing is wrong, which is why it is never seen when somebody looks. The load is that of the
//! jobs (a hog, a storm, a flood, whatever they do); what is named here is who starts them and how often. Where the crontabs
//! and timers of the machine are known, a burst needs no rhythm to be one: that it came when a line was due is enough, and the
//! line is named.

use std::collections::{BTreeMap, BTreeSet};

use mitra_model::ScheduledJob;

use crate::deaths;
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "scheduled-burst",
    title: "scheduled jobs take what others need",
    area: "host",
    needs: &[
        "task.ppid",
        "task.cpu_time",
        "task.read_bytes",
        "task.write_bytes",
        "tasks.run_delay",
        "tasks.d_io",
        "tasks.cpu_time",
        "disk.read_bytes",
        "disk.write_bytes",
        "exited.count",
        "exited.cpu_time",
        "exited.lifetime",
        "exited.read_bytes",
        "exited.write_bytes",
        "exited.parent_comm",
        "mitra.pid",
    ],
    observe,
    causes: &[
        explains("dirty-writeback-stall", "the jobs are what writes"),
        explains("cpu-hog", "the jobs are what takes the CPU"),
        explains("runqueue-saturation", "the jobs are what queues"),
        explains("fork-storm", "the jobs are what is started"),
        explains("disk-hog", "the jobs are what fills the device"),
        explains("streaming-read-flood", "the jobs are what reads"),
        explains("single-thread-bottleneck", "the jobs are what runs"),
        effect("cpu-saturated", "the jobs take the CPUs"),
        effect("runqueue-wait", "others wait while the jobs run"),
        effect("pressure-io", "others wait while the jobs read and write"),
    ],
    remedies: &[Advice {
        action: "let {process:the job} run at another time, spread over the machines, and with less weight than the service",
        command: "systemd timer: RandomizedDelaySec=, CPUWeight=20, IOWeight=20; cron: nice -n 19 ionice -c 3 JOB",
        verify: "pidstat -u 1 at the next time: the %wait of the others stays low",
        risk: "the job takes longer",
    }],
    next: &[measure(
        "where it is scheduled",
        "systemctl list-timers --all; grep -r . /etc/cron* /var/spool/cron 2>/dev/null | grep -v '#'",
    )],
    source: include_str!("scheduled_burst.rs"),
    ..Condition::ROOT
};

/// Three times at equal distances are a rhythm; two are any two.
const TIMES: usize = 3;
/// A timer is exact; a job starts within a second of it, and samples are a second apart.
const JITTER_S: f64 = 1.5;
/// What comes more often is a loop, not a schedule.
const PERIOD_LEAST_S: f64 = 3.0;
/// Samples are that much late at times, or early.
const SLACK_NS: i64 = SECOND / 10;
/// Daemons whose children are scheduled whatever the rhythm.
const SCHEDULERS: &[&str] = &["cron", "crond", "CRON", "atd", "anacron", "fcron"];
/// What stands between a scheduler and the program that is meant.
const STARTERS: &[&str] = &["sh", "bash", "dash", "cron", "crond", "CRON", "run-parts"];
/// The process that starts what timers are for.
const INIT: u32 = 1;
/// More lines of crontabs are not read.
const NAMED_MAX: usize = 5;
/// Cron starts its jobs in the first seconds of a minute.
const ROUND_S: i64 = 60;
/// Between the first and the last burst a tenth of the samples at least lie in none for certain: what is not known to the
/// second, when a job began and ended, counts as burst.
const PAUSE_SHARE: f64 = 0.1;
/// A timer is exact to some milliseconds. A loop starts the next job when the last one has ended, and how long that takes varies by more than a
/// hundredth on a machine that is busy.
const EXACT: f64 = 0.01;
/// Of what the machine does during the bursts the jobs do two fifths.
const SHARE: f64 = 0.4;
/// Others lose three tenths of a task's time more than between the bursts, and three times as much.
const HARM: f64 = 0.3;
const HARM_RATIO: f64 = 3.0;

/// The jobs of one name that one process starts.
struct Jobs<'a> {
    parent_pid: u32,
    parent: String,
    child: &'a str,
    /// When they were started.
    starts: Vec<i64>,
    /// When one of them lived, at most: from after the one to the other.
    lived: Vec<Span>,
    /// Seconds between two, where there is a rhythm.
    period_s: Option<f64>,
    /// The lines of crontabs and the timers that were due at each of the starts.
    due: Vec<&'a ScheduledJob>,
}

fn observe(view: &View<'_>) -> Observation {
    if !view.has("exited.count") && !view.has("task.ppid") {
        return Observation::cannot_tell(
            "which process started which, and when: atop, pidstat, grep CRON /var/log/syslog",
        );
    }
    if view.is_case {
        return Observation::cannot_tell("the starts of processes over time");
    }
    let mut because = "no jobs were started by a timer".to_owned();
    let mut best: Option<(f64, Finding)> = None;
    for jobs in jobs(view) {
        match judge(view, &jobs) {
            Ok((loss, finding)) if best.as_ref().is_none_or(|(b, _)| loss > *b) => {
                best = Some((loss, finding))
            }
            Ok(_) => {}
            Err(reason) => because = reason,
        }
    }
    match best {
        Some((_, finding)) => finding.active(),
        None => Observation::Inactive(because),
    }
}

/// Jobs that come in a rhythm, or from a daemon that does nothing but schedule.
fn jobs<'a>(view: &View<'a>) -> Vec<Jobs<'a>> {
    let mut by_job: BTreeMap<(u32, &str), Vec<Span>> = BTreeMap::new();
    let first = view.set.span().map_or(view.window.since, |s| s.since) + 2 * SECOND;
    for process in view.processes().iter().filter(|p| !p.kthread) {
        let (Some(parent), Some(row)) = (process.ppid, process.rows.first()) else { continue };
        let Some(series) = view.set.get("task.tgid", row) else { continue };
        let mut times = series.samples(Span::ALL).map(|(t, ..)| t);
        let Some(born) = times.next().filter(|t| *t > first) else { continue };
        let last = times.next_back().unwrap_or(born);
        by_job
            .entry((parent, process.comm))
            .or_default()
            // It ended before the next sample.
            .push(Span { since: born - SECOND, until: last + SECOND });
    }
    for (row, series) in view.each("exited.count") {
        let Some((parent, child)) = deaths::family(row) else { continue };
        let lifetimes = view.set.get("exited.lifetime", row);
        for (t, dt, rate) in series.samples(Span::ALL) {
            let count = rate * dt;
            if !count.is_finite() || count < 0.5 {
                continue;
            }
            let span = Span { since: t - 1, until: t + 1 };
            let lifetime = lifetimes.and_then(|s| s.total(span)).unwrap_or(0.0) / count;
            let born = t - (lifetime.min(600.0) * SECOND as f64) as i64;
            by_job.entry((parent, child)).or_default().push(Span { since: born - SECOND, until: t });
        }
    }
    // The recorder starts probes because of trouble.
    let own = view.recorders();
    // A rhythm is seen over many bursts, of which each may be an episode of its own.
    by_job
        .into_iter()
        .filter(|((parent, _), _)| !own.contains(parent))
        .filter(|(_, lived)| lived.iter().any(|s| s.intersect(view.window).is_some()))
        .filter_map(|((pid, child), lived)| scheduled(view, pid, child, lived))
        .collect()
}

fn scheduled<'a>(view: &View<'a>, parent_pid: u32, child: &'a str, mut lived: Vec<Span>) -> Option<Jobs<'a>> {
    lived.sort_by_key(|s| s.since);
    // Several that start together are one burst.
    let mut starts: Vec<i64> = Vec::new();
    for span in &lived {
        let at = span.since + SECOND;
        if starts.last().is_none_or(|last| words::between(*last, at) > JITTER_S) {
            starts.push(at);
        }
    }
    let parent =
        view.processes().iter().find(|p| p.pid == parent_pid).map(|p| p.comm.to_owned()).or_else(|| {
            let row = format!("{parent_pid}:{child}");
            view.set.text("exited.parent_comm", &row).and_then(|t| t.last()).map(str::to_owned)
        })?;
    let period_s = period(&starts);
    let is_scheduler = SCHEDULERS.contains(&parent.as_str());
    let is_round = |t: &i64| t.div_euclid(SECOND).rem_euclid(ROUND_S) <= 3;
    let is_due = |table: &&ScheduledJob| starts.iter().all(|at| table.is_due(*at, JITTER_S));
    // Only who starts by the clock is looked up by the clock.
    let by_clock = is_scheduler || parent_pid == INIT;
    let due: Vec<&ScheduledJob> =
        if by_clock { view.history.scheduled_jobs.iter().filter(is_due).collect() } else { Vec::new() };
    let is_known = !due.is_empty() || (is_scheduler && starts.iter().all(is_round));
    if period_s.is_none() && !is_known {
        return None;
    }
    Some(Jobs { parent_pid, parent, child, starts, lived, period_s, due })
}

/// The distance of moments that lie at equal distances.
fn period(starts: &[i64]) -> Option<f64> {
    if starts.len() < TIMES {
        return None;
    }
    let mut gaps: Vec<f64> = starts.windows(2).map(|w| words::between(w[0], w[1])).collect();
    let period = crate::stats::median(&mut gaps)?;
    let is_even = gaps.iter().all(|gap| (gap - period).abs() <= JITTER_S.max(0.1 * period));
    (period >= PERIOD_LEAST_S && is_even).then_some(period)
}

/// Whether the jobs are the load of their bursts and others pay for it; the loss and the finding, or why not.
fn judge(view: &View<'_>, jobs: &Jobs<'_>) -> Result<(f64, Finding), String> {
    let name = format!("{} of {} ({})", jobs.child, jobs.parent, jobs.parent_pid);
    // A sample tells of the time before it.
    let in_burst = |t: i64| jobs.lived.iter().any(|s| s.since + SLACK_NS < t && t <= s.until + SLACK_NS);
    let waits =
        Signal::sum(["tasks.run_delay", "tasks.d_io"].iter().filter_map(|m| view.set.system(m)), Span::ALL)
            .ok_or_else(|| "how long tasks waited is not known".to_owned())?;
    if let (Some(_), Some(first), Some(last)) = (jobs.period_s, jobs.starts.first(), jobs.starts.last()) {
        // One after the other without a pause is a queue of work.
        let between = waits.within(Span { since: *first, until: *last });
        let idle = between.t.iter().filter(|t| !in_burst(**t)).count();
        let has_pause = idle as f64 >= PAUSE_SHARE * between.t.len() as f64;
        if !has_pause && pause_share(view, jobs).is_none_or(|share| share < PAUSE_SHARE) {
            return Err(format!("{name} runs one after the other"));
        }
    }
    let (during, outside) = split(&waits, in_burst);
    // What goes on between two bursts as well is not their doing, however quiet it was before the first.
    let pauses = match (jobs.starts.first(), jobs.starts.last()) {
        (Some(first), Some(last)) => split(&waits.within(Span { since: *first, until: *last }), in_burst).1,
        _ => None,
    };
    let outside = pauses.or(outside);
    let before = view.before_sum(&["tasks.run_delay", "tasks.d_io"]);
    let quiet = outside.or(before).unwrap_or(0.0);
    let during = during.ok_or_else(|| format!("{name} ran too briefly to be seen"))?;
    if during - quiet < HARM || during < HARM_RATIO * quiet {
        return Err(format!(
            "while {name} ran tasks waited {} of a task's time, and {} between",
            words::percent(during),
            words::percent(quiet)
        ));
    }
    let share = share(view, jobs, in_burst);
    if share < SHARE {
        return Err(format!("{name} did {} of the work of its bursts", words::percent(share)));
    }
    let (Some(first), Some(last)) = (jobs.starts.first(), jobs.lived.iter().map(|s| s.until).max()) else {
        return Err(String::new());
    };
    let mut finding = view.finding_at(*first);
    let gap = jobs.period_s.unwrap_or(0.0).max(3.0);
    let known = view.set.span().unwrap_or(view.window);
    finding.end = (words::between(last, known.until) > 1.5 * gap).then_some(last);
    finding.seen = Some(known);
    finding.culprit.process = Some(jobs.child.to_owned());
    // A copy that a program makes of itself is that program.
    finding.culprit.pid = if jobs.child == jobs.parent {
        Some(jobs.parent_pid)
    } else {
        let is_job = |p: &&Process<'_>| p.ppid == Some(jobs.parent_pid) && p.comm == jobs.child;
        view.processes().iter().filter(is_job).map(|p| p.pid).next_back()
    };
    let rhythm = match jobs.period_s {
        Some(period) => format!("every {}, {} times", words::seconds(period), jobs.starts.len()),
        None if jobs.due.is_empty() => "at a full minute".to_owned(),
        None => "when it is due".to_owned(),
    };
    finding.statement = format!(
        "{} ({}) starts {} {rhythm}; while it runs {} tasks wait at a time, and {} between; it does {} of the work then",
        jobs.parent,
        jobs.parent_pid,
        jobs.child,
        words::at_a_time(during),
        words::at_a_time(quiet),
        words::percent(share)
    );
    let span = Span { since: *first, until: last };
    for metric in ["tasks.run_delay", "tasks.d_io"] {
        let Some((Some(now), then)) =
            view.set.system(metric).map(|s| split(&Signal::of(s, Span::ALL), in_burst))
        else {
            continue;
        };
        finding.evidence.push(view.evidence_of(metric, "", then.or(Some(quiet)), now));
    }
    finding.evidence.extend(view.evidence("tasks.cpu_time", "", span));
    let seconds = waits.t.iter().zip(&waits.dt).filter(|(t, _)| in_burst(**t)).map(|(_, dt)| dt).sum::<f64>();
    let loss = (during - quiet) * seconds;
    finding.loss_s = Some(loss);
    finding.confidence = if jobs.period_s.is_some() { 0.85 } else { 0.75 };
    if let Some(table) = meant(view, jobs) {
        finding.culprit.path = Some(table.place.clone());
        finding.confidence = 0.9;
        finding.remarks.push(format!("{} says so: {} {}", table.place, table.calendar, table.what));
    } else if jobs.due.len() > 1 {
        let places: Vec<&str> = jobs.due.iter().map(|t| t.place.as_str()).take(NAMED_MAX).collect();
        finding.remarks.push(format!("scheduled then: {}", places.join(", ")));
    }
    Ok((loss, finding))
}

/// The share of the time from one start to the next in which no job runs, where the kernel has it exactly: they were born by the clock, and
/// how long they lived was counted. With few samples from one start to the next nothing of a pause is seen in these.
fn pause_share(view: &View<'_>, jobs: &Jobs<'_>) -> Option<f64> {
    let is_job = |p: &&Process<'_>| p.ppid == Some(jobs.parent_pid) && p.comm == jobs.child;
    let mut births: Vec<u64> = view.processes().iter().filter(is_job).map(|p| p.born_boot_ns).collect();
    births.sort_unstable();
    let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / SECOND as f64;
    births.dedup_by(|next, first| seconds(*first, *next) <= JITTER_S);
    if births.len() < TIMES {
        return None;
    }
    let mut gaps: Vec<f64> = births.windows(2).map(|w| seconds(w[0], w[1])).collect();
    let period = crate::stats::median(&mut gaps)?;
    let is_exact = gaps.iter().all(|gap| (gap - period).abs() <= EXACT * period);
    let row = format!("{}:{}", jobs.parent_pid, jobs.child);
    let total = |metric: &str| view.set.get(metric, &row)?.total(Span::ALL);
    let (ended, lived_s) = (total("exited.count")?, total("exited.lifetime")?);
    (is_exact && ended >= 1.0).then(|| 1.0 - lived_s / ended / period)
}

/// The line or timer that started the jobs: the only one that was due, or the only one of these that names one of their
/// programs.
fn meant<'j>(view: &View<'_>, jobs: &'j Jobs<'_>) -> Option<&'j ScheduledJob> {
    if let [only] = jobs.due.as_slice() {
        return Some(only);
    }
    let family = family(view.processes(), jobs);
    let alive = view.processes().iter().filter(|p| family.contains(&p.pid)).map(|p| p.comm);
    let ended = view.each("exited.count").filter_map(|(row, _)| {
        let (pid, comm) = row.split_once(':')?;
        pid.parse().is_ok_and(|pid: u32| family.contains(&pid)).then_some(comm)
    });
    let programs: BTreeSet<&str> =
        alive.chain(ended).chain([jobs.child]).filter(|comm| !STARTERS.contains(comm)).collect();
    let is_named = |table: &ScheduledJob| {
        let mut words = table.what.split(|c: char| c.is_whitespace() || "/;|&'\"()".contains(c));
        words.any(|word| programs.contains(word.trim_end_matches(".service")))
    };
    let mut named = jobs.due.iter().copied().filter(|table| is_named(table));
    let first = named.next()?;
    named.next().is_none().then_some(first)
}

/// The means of a signal inside and outside of the bursts.
fn split(signal: &Signal, in_burst: impl Fn(i64) -> bool) -> (Option<f64>, Option<f64>) {
    let mean = |wanted: bool| {
        let list = signal.t.iter().zip(&signal.v).filter(|(t, _)| in_burst(**t) == wanted).map(|(_, v)| *v);
        let values: Vec<f64> = list.collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    (mean(true), mean(false))
}

/// The larger of the jobs' shares in what the CPUs and the disks did during the bursts.
fn share(view: &View<'_>, jobs: &Jobs<'_>, in_burst: impl Fn(i64) -> bool) -> f64 {
    let family = family(view.processes(), jobs);
    let within = |series: &Series| -> f64 {
        let samples = series.samples(Span::ALL).filter(|(t, dt, _)| dt.is_finite() && in_burst(*t));
        samples.map(|(_, dt, v)| v * dt).sum()
    };
    let of_jobs = |task: &str, exited: &str| -> f64 {
        let alive = view.processes().iter().filter(|p| family.contains(&p.pid));
        let alive: f64 = alive.flat_map(|p| p.series(view.set, task)).map(within).sum();
        let ended = view.each(exited).filter(|(row, _)| {
            let Some((pid, comm)) = row.split_once(':') else { return false };
            let Ok(pid) = pid.parse::<u32>() else { return false };
            family.contains(&pid) || (pid == jobs.parent_pid && comm == jobs.child)
        });
        alive + ended.map(|(_, s)| within(s)).sum::<f64>()
    };
    let all = |metric: &str| view.each(metric).map(|(_, s)| within(s)).sum::<f64>();
    let ratio = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let cpu = ratio(of_jobs("task.cpu_time", "exited.cpu_time"), all("tasks.cpu_time"));
    let io =
        of_jobs("task.read_bytes", "exited.read_bytes") + of_jobs("task.write_bytes", "exited.write_bytes");
    let disks = all("disk.read_bytes") + all("disk.write_bytes");
    // A few megabytes are no load for a disk.
    let io = if disks >= 1e7 { ratio(io, disks) } else { 0.0 };
    cpu.max(io).min(1.0)
}

/// The jobs and everything that they started.
fn family(processes: &[Process<'_>], jobs: &Jobs<'_>) -> BTreeSet<u32> {
    let is_job = |p: &&Process<'_>| p.ppid == Some(jobs.parent_pid) && p.comm == jobs.child;
    let mut family: BTreeSet<u32> = processes.iter().filter(is_job).map(|p| p.pid).collect();
    loop {
        let more: Vec<u32> = processes
            .iter()
            .filter(|p| p.ppid.is_some_and(|pp| family.contains(&pp)) && !family.contains(&p.pid))
            .map(|p| p.pid)
            .collect();
        if more.is_empty() {
            return family;
        }
        family.extend(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rhythm_takes_three_even_gaps_of_some_seconds() {
        let at = |s: &[i64]| s.iter().map(|s| s * SECOND).collect::<Vec<_>>();
        assert_eq!(period(&at(&[0, 5, 10, 15])), Some(5.0));
        assert_eq!(period(&at(&[0, 5])), None);
        assert_eq!(period(&at(&[0, 5, 14, 16])), None);
        assert_eq!(period(&at(&[0, 1, 2, 3])), None);
    }
}
