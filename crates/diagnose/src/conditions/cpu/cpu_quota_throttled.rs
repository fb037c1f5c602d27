//! A cgroup has used up its CPU quota and its tasks stand still until the next period.
//!
//! The kernel counts their standing still as run-queue delay, so it looks like a busy machine; but CPUs idle. The
//! group's own counters of throttled periods and time tell.

use crate::deaths;
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "cpu-quota-throttled",
    title: "a cgroup is throttled by its CPU quota",
    may_be_harmless: true,
    area: "cpu",
    needs: &[
        "cgroup.throttled_time",
        "cgroup.nr_throttled",
        "cgroup.nr_periods",
        "cgroup.cpu_quota",
        "cgroup.cpu_period",
        "cgroup.cpu_usage",
        "cgroup.cpu_shares",
        "cgroup.psi_cpu_full",
        "task.run_delay",
        "task.cpu_time",
        "exited.cpu_time",
    ],
    triggers: &[each_above(&["cgroup.throttled_time"], 0.05)],
    observe,
    causes: &[
        effect("runqueue-wait", "a throttled task is runnable and may not run"),
        effect("lock-queue", "the lock holder is throttled"),
        asked("listen-overflow", "a server that is throttled does not accept"),
        within("socket-buffer-overflow", "a program that is throttled does not read"),
        effect("service-slow", "a server that is throttled answers in the next period"),
    ],
    cgroup_limit: Some("cpu."),
    remedies: &[Advice {
        action: "raise or remove the CPU quota of {cgroup:the cgroup}; a weight (cpu.weight) limits it only when \
                 others want the CPU",
        command: "echo max > /sys/fs/cgroup{cgroup:/GROUP}/cpu.max   (version 1: echo -1 > cpu/…/cpu.cfs_quota_us)",
        verify: "nr_throttled in its cpu.stat stops growing",
        risk: "it may take CPU from others",
    }],
    next_of: next,
    source: include_str!("cpu_quota_throttled.rs"),
    ..Condition::ROOT
};

/// Of all that the tasks of a group use: the others together use no more.
const MOST: f64 = 0.5;
/// Tasks of the group stand still for a tenth of the time: a request that needs several periods takes a tenth longer
/// at the least, and the unlucky ones wait for most of a period.
const THROTTLED: f64 = 0.1;
const NEED_S: f64 = 3.0;

fn observe(view: &View<'_>) -> Observation {
    if !view.has("cgroup.throttled_time") {
        if view.has("cgroup.cpu_usage") {
            return Observation::inactive("no cgroup has a CPU quota");
        }
        return match waited_beside_idle(view) {
            Some(text) => Observation::cannot_tell(format!(
                "throttled_time in the cpu.stat of the cgroup, as {text}: cat /sys/fs/cgroup/GROUP/cpu.stat"
            )),
            None => Observation::needs_as(
                "cgroup.throttled_time (the cpu controller)",
                &["cgroup.throttled_time"],
            ),
        };
    }
    let mut best: Option<(&str, High)> = None;
    for (name, series) in view.each("cgroup.throttled_time") {
        let signal = Signal::of(series, view.window);
        let threshold = view.threshold(THROTTLED, &view.base_values("cgroup.throttled_time", name));
        let Some(high) =
            view.high_signal(&signal, threshold, NEED_S, view.before("cgroup.throttled_time", name))
        else {
            continue;
        };
        if best.as_ref().is_none_or(|(_, most)| high.during * high.run.high_s > most.during * most.run.high_s)
        {
            best = Some((name, high));
        }
    }
    let Some((name, high)) = best else {
        return Observation::inactive("no cgroup was throttled for a tenth of the time");
    };
    let span = high.run.span();
    let mean = |metric: &str| view.set.get(metric, name).and_then(|s| s.mean(span));
    let periods = mean("cgroup.nr_throttled")
        .zip(mean("cgroup.nr_periods").filter(|p| *p > 0.0))
        .map(|(throttled, periods)| throttled / periods);
    // It may have been lowered in that moment.
    let last = |metric: &str| view.set.get(metric, name).and_then(|s| s.last(span));
    let quota =
        last("cgroup.cpu_quota").zip(last("cgroup.cpu_period").filter(|p| *p > 0.0)).map(|(q, p)| q / p);
    let mut finding = view.finding(&high.run);
    finding.culprit.cgroup = Some(name.to_owned());
    let inside = |metric: &'static str| {
        process::ranking(view.processes(), span, move |p| {
            if process::is_inside(p.cgroup, name) { p.total(view.set, metric, span) } else { 0.0 }
        })
    };
    let (waits, uses) = (inside("task.run_delay"), inside("task.cpu_time"));
    if let Some(top) = waits.first() {
        finding.evidence.push(view.task_evidence("task.run_delay", &top.lead, None, top.rate, span));
    }
    // Who uses most of the quota takes it from who waits for it.
    let most = uses.first().filter(|top| top.share >= MOST);
    if let Some(top) = most.or(waits.first()) {
        finding.blame_pid(top.comm, top.pid());
    }
    let used = uses.iter().map(|top| top.total).sum::<f64>();
    let short = ended(view, name, span);
    let short = short.filter(|short| short.used_s >= MOST * (used + short.used_s));
    if let Some(short) = &short {
        finding.blame_pid(short.parent.comm, short.parent.pid);
        finding.remarks.push(format!(
            "{}, started again and again by {} ({}), uses {} of the CPU time of the group",
            short.comm,
            short.parent.comm,
            short.parent.pid,
            words::percent(short.used_s / (used + short.used_s))
        ));
    } else if let Some((top, waits)) = most.zip(waits.first()).filter(|(top, waits)| top.comm != waits.comm) {
        finding.remarks.push(format!(
            "{} uses {} of the CPU time of the group, and {} waits",
            top.comm,
            words::percent(top.share),
            waits.comm
        ));
    }
    finding.statement = format!(
        "{} may use {} and was throttled in {} of its periods: its tasks stood still for {} s each second ({} before)",
        view.group(name),
        quota.map_or_else(|| "a quota of CPU".to_owned(), |q| format!("{} of a CPU", words::percent(q))),
        periods.map_or_else(|| "some".to_owned(), words::percent),
        format_args!("{:.2}", high.during),
        format_args!("{:.2}", high.before.unwrap_or(0.0)),
    );
    finding.prove(
        view,
        &[
            "cgroup.throttled_time",
            "cgroup.nr_throttled",
            "cgroup.nr_periods",
            "cgroup.cpu_quota",
            "cgroup.psi_cpu_full",
        ],
        name,
        span,
    );
    finding.loss_s = Some((high.during - high.before.unwrap_or(0.0)).max(0.0) * high.run.seconds());
    finding.confidence = 0.7 + 0.3 * periods.unwrap_or(0.0).min(1.0);
    if short.is_none() && are_new(view, name, &high.run) {
        // Nobody has seen them do it faster: a batch that shall take no more than that.
        finding.is_harmless = true;
        finding.governs = Some(&[]);
        finding.remarks.push(
            "all of them began when this did: a quota is often meant to hold such work back".to_owned(),
        );
    }
    finding.active()
}

/// Samples: who is born between two is throttled in the next.
const BORN: f64 = 2.0;
/// Of what all tasks of the group wait: who waits for less has little to do.
const LITTLE: f64 = 0.1;

/// Of the time for which a group stands still.
const AS_LONG: f64 = 0.8;

/// Whether all that wait for the quota of a group were started when the waiting began, and not when the recording did.
fn are_new(view: &View<'_>, group: &str, run: &Run) -> bool {
    let began = view.set.span().map_or(i64::MIN, |span| span.since);
    if words::between(began, run.onset) < NEED_S + BORN * run.step_s {
        return false;
    }
    let waits_s = |process: &Process<'_>| process.total(view.set, "task.run_delay", run.span());
    let inside = |process: &&Process<'_>| process::is_inside(process.cgroup, group);
    let mut members: Vec<&Process<'_>> = view.processes().iter().filter(inside).collect();
    if members.is_empty() && view.set.get("cgroup.cpu_shares", group).is_some() {
        // Of version 1 a task may be in another group for its CPU than for the rest: who waits for as long as the group stands still is in it.
        let still = view.set.get("cgroup.throttled_time", group).and_then(|series| series.total(run.span()));
        let is_meant = |process: &&Process<'_>| {
            !process.kthread && waits_s(process) >= AS_LONG * still.unwrap_or(f64::MAX)
        };
        members = view.processes().iter().filter(is_meant).collect();
    }
    let all: f64 = members.iter().map(|process| waits_s(process)).sum();
    let mut waiting = members.into_iter().filter(|process| waits_s(process) >= LITTLE * all).peekable();
    let is_new = |process: &Process<'_>| {
        process.first_seen(view.set).is_some_and(|born| words::between(born, run.onset) <= BORN * run.step_s)
    };
    all > 0.0 && waiting.peek().is_some() && waiting.all(is_new)
}

/// Programs of one name that come and go inside of a group.
struct Short<'v, 'a> {
    comm: &'a str,
    parent: &'v Process<'a>,
    used_s: f64,
}

/// Those that used most CPU time, of which no sample sees the larger part.
fn ended<'v, 'a>(view: &'v View<'a>, group: &str, span: Span) -> Option<Short<'v, 'a>> {
    let of = |(row, series): (&'a str, &Series)| {
        let (pid, comm) = deaths::family(row)?;
        let parent = view.process(pid).filter(|parent| process::is_inside(parent.cgroup, group))?;
        Some(Short { comm, parent, used_s: series.total(span)? })
    };
    view.each("exited.cpu_time").filter_map(of).max_by(|a, b| a.used_s.total_cmp(&b.used_s))
}

/// What is to be seen of a quota without the counters of its group: a task that waits although a CPU is idle.
fn waited_beside_idle(view: &View<'_>) -> Option<String> {
    let idle = view.idle()?;
    let waits = view
        .processes()
        .iter()
        .filter(|p| !p.kthread)
        .filter_map(|p| Some((p, p.signal(view.set, "task.run_delay", view.window)?)))
        .filter(|(_, wait)| wait.max().is_some_and(|most| most >= THROTTLED));
    let (process, high) = waits
        .filter_map(|(p, wait)| {
            let lost = wait.zip(&idle, |wait, idle| if idle >= 1.0 { wait } else { 0.0 });
            Some((p, view.high_signal(&lost, THROTTLED, 3.0, None)?))
        })
        .max_by(|a, b| (a.1.during * a.1.run.high_s).total_cmp(&(b.1.during * b.1.run.high_s)))?;
    Some(format!(
        "{} ({}) waited for {} of the time while a CPU was idle",
        process.comm,
        process.pid,
        words::percent(high.during)
    ))
}

fn next(finding: &Finding) -> Vec<Next> {
    let group = finding.culprit.cgroup.as_deref().unwrap_or("");
    vec![to_measure(
        "what set the quota: a unit file or a container limit".to_owned(),
        format!(
            "systemctl show -p CPUQuotaPerSecUSec {}",
            words::shell(group.rsplit('/').next().unwrap_or_default())
        ),
    )]
}
