//! A program dies as soon as it runs, and is started again and again.
//!
//! Its supervisor does what it was told, so the service is "active" most of the time and answers nobody. Each life ends the same
//! way: by a signal, or with a status that is not zero. A script whose commands fail looks alike; it starts many different
//! programs, and did so before; a script that waits for something asks for it with a command that fails at once. A program that crashes once, or here and there, is `process-crash`.

use std::collections::{BTreeMap, BTreeSet};

use mitra_model::report::{Next, Remedy};
use mitra_model::{Event, EventKind, Span};

use crate::condition::{Condition, Finding, Observation, Role};
use crate::signal::Signal;
use crate::view::View;
use crate::words;

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "crash-loop",
    title: "a program dies and is started again and again",
    role: Role::Root,
    area: "process",
    needs: &[
        "exited.failed",
        "exited.count",
        "exited.lifetime",
        "exited.cpu_time",
        "exited.parent_comm",
        "task.ppid",
    ],
    observe,
    remedies,
    next,
    source: include_str!("crash_loop.rs"),
};

/// Once is a crash, twice may be an accident.
const TIMES: f64 = 3.0;
/// Nearly all of its lives end so.
const FAILED_SHARE: f64 = 0.9;
/// Beside the program a supervisor starts little else: a `sleep`, or a check. A script starts many.
const OTHER_PROGRAMS: usize = 2;
/// Processes that fail as fast are a storm of commands, not a service that comes up.
const TOO_FAST_S: f64 = 20.0;

/// One program of one parent that fails.
struct Loop<'a> {
    row: &'a str,
    parent_pid: u32,
    child: &'a str,
    failed: f64,
    lifetime_s: f64,
    onset: i64,
    end: i64,
    last: bool,
}

fn observe(view: &View<'_>) -> Observation {
    if view.each("exited.failed").next().is_none() {
        if view.is_case
            || view.each("exited.count").next().is_none() && view.each("task.comm").next().is_none()
        {
            return Observation::CannotTell(
                "which processes ended with a failure, and who started them: journalctl -u UNIT, systemctl list-units --failed"
                    .to_owned(),
            );
        }
        return Observation::Inactive("no process ended with a failure".to_owned());
    }
    let mut because = "no program failed again and again".to_owned();
    let mut best: Option<Loop<'_>> = None;
    for (row, _) in view.each("exited.failed") {
        match failing(view, row) {
            Ok(Some(one)) if best.as_ref().is_none_or(|b| one.failed > b.failed) => best = Some(one),
            Ok(_) => {}
            Err(reason) => because = reason,
        }
    }
    match best {
        Some(one) => Observation::Active(Box::new(finding(view, &one))),
        None => Observation::Inactive(because),
    }
}

/// Whether a program of a parent is in a loop; an error is a reason why one that fails often is not.
fn failing<'a>(view: &'a View<'_>, row: &'a str) -> Result<Option<Loop<'a>>, String> {
    let Some((pid, child)) = row.split_once(':') else { return Ok(None) };
    let Ok(parent_pid) = pid.parse::<u32>() else { return Ok(None) };
    let Some(failed) = view.of("exited.failed", row) else { return Ok(None) };
    let deaths = failed.total();
    if deaths < TIMES {
        return Ok(None);
    }
    let times: Vec<usize> = (0..failed.t.len()).filter(|i| failed.v[*i] * failed.dt[*i] > 0.5).collect();
    let (Some(first), Some(last)) = (times.first().copied(), times.last().copied()) else { return Ok(None) };
    let onset = failed.t[first] - (failed.dt[first] * 1e9) as i64;
    let end = failed.t[last];
    let span = Span { since: onset, until: end + 1 };
    let name = format!("{child} of process {parent_pid}");
    // Three deaths within one second are one event with several processes.
    if times.len() < TIMES as usize {
        return Ok(None);
    }
    let seconds = words::between(onset, end).max(1e-9);
    if deaths / seconds > TOO_FAST_S {
        return Err(format!(
            "{name} fails {} times a second: commands, not a service",
            words::count(deaths / seconds)
        ));
    }
    let total = |metric: &str| view.set.get(metric, row).map_or(0.0, |s| Signal::of(s, span).total());
    if deaths < FAILED_SHARE * total("exited.count") {
        return Err(format!("{name} fails now and then"));
    }
    let siblings: BTreeSet<&str> = view
        .each("exited.count")
        .filter(|(r, s)| {
            r.split_once(':').is_some_and(|(p, c)| p == pid && c != child)
                && s.total(span).unwrap_or(0.0) > 0.5
        })
        .map(|(r, _)| r)
        .collect();
    if siblings.len() > OTHER_PROGRAMS {
        return Err(format!("the parent of {name} starts many programs: a script"));
    }
    let rate_before = view.before("exited.failed", row).unwrap_or(0.0);
    if rate_before > 0.3 * deaths / seconds {
        return Err(format!("{name} failed as often before"));
    }
    // Nobody knows how it was before, and it is so for as long as anything is known.
    let known = view.set.span().map_or(view.window.since, |s| s.since);
    let count = total("exited.count").max(1.0);
    let is_service = parent_pid == INIT || was_up(view, child, parent_pid, onset);
    let works = total("exited.cpu_time") / count >= STARTS_CPU_S;
    if !is_service && !works && !by_signal(view, child) {
        return Err(format!(
            "{name} fails at once, and had not run before: a command that asks for something"
        ));
    }
    let since_ever = words::between(known, onset) < 2.0 * seconds / deaths;
    if since_ever && !by_signal(view, child) {
        return Err(format!("{name} has failed for as long as it is known"));
    }
    if is_asked_to(view, child, parent_pid) {
        return Err(format!("{name} was made to end, by a signal that somebody sent"));
    }
    Ok(Some(Loop {
        row,
        parent_pid,
        child,
        failed: deaths,
        lifetime_s: total("exited.lifetime") / count,
        onset,
        end,
        last: last + 3 >= failed.t.len(),
    }))
}

/// Whether most of the ends that are known were asked for: a signal that a process sends to another one to end it. Whom the
/// kernel kills for lack of memory is the matter of `oom-kill`.
fn is_asked_to(view: &View<'_>, child: &str, parent_pid: u32) -> bool {
    const ASKED: &[i32] = &[1, 2, 9, 13, 15];
    let (mut asked, mut all) = (0, 0);
    for event in view.set.events.iter().filter(|e| view.window.contains(e.real)) {
        let signal = match &event.kind {
            EventKind::Exit { comm, parent_pid: of, status, .. } if comm == child && *of == parent_pid => {
                status & 0x7f
            }
            EventKind::FatalSignal { comm, signal, .. } if comm == child => *signal,
            _ => continue,
        };
        all += 1;
        asked += usize::from(ASKED.contains(&signal));
    }
    2 * asked > all
}

/// Whether one of the ends was by a signal that says that something is broken.
fn by_signal(view: &View<'_>, child: &str) -> bool {
    const BROKEN: &[i32] = &[4, 5, 6, 7, 8, 11, 31];
    view.set.events.iter().any(|e| match &e.kind {
        EventKind::Exit { comm, status, .. } => comm == child && BROKEN.contains(&(status & 0x7f)),
        EventKind::FatalSignal { comm, signal, .. } => comm == child && BROKEN.contains(signal),
        EventKind::Crash { comm, .. } => comm == child,
        _ => false,
    })
}

fn finding(view: &View<'_>, one: &Loop<'_>) -> Finding {
    let mut finding = view.finding_at(one.onset);
    // Between two starts a supervisor waits for longer than the last of them.
    finding.end = (!one.last).then_some(one.end);
    finding.seen = Some(view.window);
    let parent = view.set.text("exited.parent_comm", one.row).and_then(|t| t.last()).unwrap_or("?");
    finding.culprit.process = Some(one.child.to_owned());
    finding.culprit.pid =
        view.set.get("exited.last_pid", one.row).and_then(|s| s.last(view.window)).map(|p| p as u32);
    let ends = ends(view, one);
    let how = ends.first().map(|(how, _)| format!(", {how}")).unwrap_or_default();
    finding.statement = format!(
        "{} died {} times in {}{how}, after {} each, and {parent} ({}) started it again",
        one.child,
        words::count(one.failed),
        words::seconds(words::between(one.onset, one.end)),
        words::seconds(one.lifetime_s),
        one.parent_pid
    );
    let span = Span { since: one.onset + 1, until: one.end + 1 };
    for metric in ["exited.failed", "exited.count", "exited.lifetime"] {
        finding.evidence.extend(view.evidence(metric, one.row, span));
    }
    for (_, event) in ends.iter().take(4) {
        let EventKind::Exit { status, .. } = event.kind else { continue };
        finding.evidence.push(view.event_evidence(
            "event.exit",
            one.child,
            f64::from(status),
            "wait status",
            event,
        ));
    }
    // It ran well before: then it is a service that broke, and what changed is worth asking.
    let was_up = was_up(view, one.child, one.parent_pid, one.onset);
    if was_up {
        finding.remarks.push(format!(
            "{} ran until then: what was changed at that time is the first thing to look at",
            one.child
        ));
    }
    finding.confidence = 0.7 + if was_up { 0.15 } else { 0.0 } + if ends.is_empty() { 0.0 } else { 0.1 };
    finding
}

/// Whether the same parent had the program running before it began to die.
fn was_up(view: &View<'_>, child: &str, parent_pid: u32, onset: i64) -> bool {
    let before = Span { since: i64::MIN, until: onset };
    view.set.each_text("task.comm").any(|(row, comm)| {
        comm.last() == Some(child)
            && view.set.get("task.ppid", row).and_then(|s| s.last(Span::ALL)) == Some(f64::from(parent_pid))
            && view.set.get("task.tgid", row).is_some_and(|s| s.samples(before).count() >= UP_SAMPLES)
    })
}

/// A program that was seen at as many samples ran.
const UP_SAMPLES: usize = 4;
/// What a service does until it fails costs more than a command that asks whether something is there yet.
const STARTS_CPU_S: f64 = 0.02;
/// The first process, which keeps services.
const INIT: u32 = 1;

/// How its lives ended, as far as single ends were recorded.
fn ends<'a>(view: &'a View<'_>, one: &Loop<'_>) -> Vec<(String, &'a Event)> {
    let mut by_how: BTreeMap<String, Vec<&Event>> = BTreeMap::new();
    for event in view.set.events.iter().filter(|e| view.window.contains(e.real)) {
        match &event.kind {
            EventKind::Exit { comm, parent_pid, status, .. }
                if comm == one.child && *parent_pid == one.parent_pid =>
            {
                by_how.entry(how(*status)).or_default().push(event);
            }
            EventKind::FatalSignal { comm, signal, .. } if comm == one.child => {
                by_how.entry(how(*signal & 0x7f)).or_default().push(event);
            }
            _ => {}
        }
    }
    let mut list: Vec<(String, Vec<&Event>)> = by_how.into_iter().collect();
    list.sort_by_key(|(_, events)| std::cmp::Reverse(events.len()));
    list.into_iter().flat_map(|(how, events)| events.into_iter().map(move |e| (how.clone(), e))).collect()
}

/// A wait status in words.
fn how(status: i32) -> String {
    const NAMES: &[(i32, &str)] = &[
        (4, "SIGILL"),
        (5, "SIGTRAP"),
        (6, "SIGABRT"),
        (7, "SIGBUS"),
        (8, "SIGFPE"),
        (9, "SIGKILL"),
        (11, "SIGSEGV"),
        (15, "SIGTERM"),
        (31, "SIGSYS"),
    ];
    match status & 0x7f {
        0 => format!("with status {}", (status >> 8) & 0xff),
        signal => {
            let name = NAMES.iter().find(|(n, _)| *n == signal).map_or("", |(_, name)| name);
            format!("by signal {signal} {name}").trim_end().to_owned()
        }
    }
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let name = finding.culprit.process.as_deref().unwrap_or("the program");
    vec![Remedy {
        action: format!(
            "read what {name} says before it dies; go back to the version or the configuration that ran"
        ),
        command: format!("journalctl -u {name} -n 50; coredumpctl info {name}"),
        verify: format!("{name} stays up: ps -o etime= -C {name}"),
        risk: "a longer delay between restarts hides the trouble and does not end it".to_owned(),
    }]
}

fn next(finding: &Finding) -> Vec<Next> {
    let name = finding.culprit.process.as_deref().unwrap_or("PROGRAM");
    vec![Next {
        measure: "its last system calls".to_owned(),
        command: format!("strace -f -o /tmp/last.txt {name} …; tail -40 /tmp/last.txt"),
    }]
}
