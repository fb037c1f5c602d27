//! A program dies as soon as it runs, and is started again and again.
//!
//! Its supervisor does what it was told, so the service is "active" most of the time and answers nobody. Each life ends the same
//! way: by a signal, or with a status that is not zero. A script whose commands fail looks alike; it starts many different
//! programs, and did so before; a script that waits for something asks for it with a command that fails at once. A program that
//! crashes once, or here and there, is `process-crash`.
//!
//! A supervisor of containers starts each life under a new parent, and one that waits for minutes between two starts has few
//! deaths to show: then it is the rhythm that tells, and that what died had run before or was broken.

use std::collections::{BTreeMap, BTreeSet};

use crate::deaths::{self, Deaths, INIT};
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "crash-loop",
    title: "a program fails and is restarted in a loop",
    area: "process",
    needs: &[
        "exited.failed",
        "exited.count",
        "exited.lifetime",
        "exited.cpu_time",
        "exited.parent_comm",
        "exited.last_pid",
        "task.ppid",
    ],
    triggers: &[Trigger::Stretches { metrics: &[deaths::METRIC, deaths::PARENT], find: deaths::stretches }],
    observe,
    causes: &[
        within("dirty-writeback-stall", "it writes with each start or crash, such as a core dump"),
        within("disk-hog", "it writes with each start or crash, such as a core dump"),
        explains("process-crash", "the crash is the one that comes with each start"),
        explains("fork-storm", "the processes are the ones that are started again"),
        explains("cpu-hog", "the CPU goes into starting it"),
        within("dependency-unreachable", "nothing serves until it is up again"),
        within("service-failing", "its connections end each time"),
    ],
    remedies: &[Advice {
        action: "read what {process:the program} logs before it fails; roll back to the version or the configuration \
                 that worked",
        command: "journalctl -u {process:the program} -n 50; coredumpctl info {process:the program}",
        verify: "{process:the program} stays up: ps -o etime= -C {process:the program}",
        risk: "a longer delay between restarts hides the problem and does not fix it",
    }],
    next: &[measure(
        "its last system calls",
        "strace -f -o /tmp/last.txt {process:PROGRAM} …; tail -40 /tmp/last.txt",
    )],
    source: include_str!("crash_loop.rs"),
    ..Condition::ROOT
};

/// Lives are short beside the time that a supervisor waits: half of the distance of two deaths.
const SHORT: f64 = 0.5;
/// Nearly all of its lives end so.
const FAILED_SHARE: f64 = 0.9;
/// Beside the program a supervisor starts little else: a `sleep`, or a check. A script starts many.
const OTHER_PROGRAMS: usize = 2;
/// Processes that fail as fast are a storm of commands, not a service that comes up.
const TOO_FAST_S: f64 = 20.0;

/// One program that fails again and again.
struct Loop<'a> {
    group: Deaths<'a>,
    failed: f64,
    lifetime_s: f64,
    onset: i64,
    end: i64,
    lasts: bool,
    /// Where to look for single ends and for the last process.
    known: Span,
}

fn observe(view: &View<'_>) -> Observation {
    if !view.has("exited.failed") {
        if view.is_case || !view.has("exited.count") && !view.has("task.comm") {
            return Observation::cannot_tell(
                "which processes ended with a failure, and who started them: journalctl -u UNIT, systemctl list-units --failed",
            );
        }
        return Observation::inactive("no process ended with a failure");
    }
    let mut because = "no program failed again and again".to_owned();
    let mut best: Option<Loop<'_>> = None;
    let known = Span { since: i64::MIN, until: view.window.until };
    for group in deaths::all(view.set, known) {
        match failing(view, group, known) {
            Ok(Some(one)) if best.as_ref().is_none_or(|b| one.failed > b.failed) => best = Some(one),
            Ok(_) => {}
            Err(reason) => because = reason,
        }
    }
    match best {
        Some(one) => finding(view, &one).active(),
        None => Observation::Inactive(because),
    }
}

/// Whether a program is in a loop; an error is a reason why one that fails often is not.
fn failing<'a>(view: &'a View<'_>, group: Deaths<'a>, known: Span) -> Result<Option<Loop<'a>>, String> {
    let count = |span: Span| group.total(view.set, deaths::METRIC, span);
    let Some(all) = group.signal(view.set, deaths::METRIC, known) else { return Ok(None) };
    let near = deaths::times(&all.within(view.window));
    // Three deaths within one second are one event with several processes.
    let is_near = near.len() >= deaths::LEAST && !group.has_many_parents();
    let times = if is_near { near } else { deaths::in_rhythm(&deaths::times(&all)).to_vec() };
    let (Some(first), Some(last)) = (times.first().copied(), times.last().copied()) else { return Ok(None) };
    if times.len() < deaths::LEAST || last < view.window.since {
        return Ok(None);
    }
    let step_ns = (all.step_s() * 1e9) as i64;
    let (onset, end) = (first - step_ns, last);
    let span = Span { since: onset + 1, until: end + 1 };
    let (failed, seconds) = (count(span), words::between(onset, end).max(1e-9));
    let name = match group.parents.as_slice() {
        [parent] => format!("{} of process {parent}", group.child),
        parents => format!("{} of {} processes", group.child, parents.len()),
    };
    if failed / seconds > TOO_FAST_S {
        return Err(format!(
            "{name} fails {} times a second: commands, not a service",
            words::count(failed / seconds)
        ));
    }
    let total = |metric: &str| group.total(view.set, metric, span);
    if failed < FAILED_SHARE * total("exited.count") {
        return Err(format!("{name} fails now and then"));
    }
    let siblings: BTreeSet<&str> = view
        .each("exited.count")
        .filter_map(|(row, series)| Some((row.split_once(':')?, series)))
        .filter(|((parent, child), series)| {
            *child != group.child
                && parent.parse::<u32>().is_ok_and(|parent| group.parents.contains(&parent))
                && series.total(span).unwrap_or(0.0) > 0.5
        })
        .map(|((_, child), _)| child)
        .collect();
    if siblings.len() > OTHER_PROGRAMS {
        return Err(format!("the parent of {name} starts many programs: a script"));
    }
    let before = || group.rows.iter().filter_map(|row| view.before(deaths::METRIC, row)).sum::<f64>();
    if is_near && before() > 0.3 * failed / seconds {
        return Err(format!("{name} failed as often before"));
    }
    let lives = total("exited.count").max(1.0);
    let lifetime_s = total("exited.lifetime") / lives;
    if !is_near && lifetime_s > SHORT * seconds / failed {
        return Err(format!("{name} ran for {} each time", words::seconds(lifetime_s)));
    }
    let is_service = group.parents == [INIT] || was_up(view, &group, onset);
    // What has another parent each time may be the command of a script that is started again.
    let works = total("exited.cpu_time") / lives >= STARTS_CPU_S && !group.has_many_parents();
    let by_signal = by_signal(view, group.child);
    if !is_service && !works && !by_signal {
        return Err(format!(
            "{name} fails at once, and had not run before: a command that asks for something"
        ));
    }
    // Nobody knows how it was before, and it is so for as long as anything is known.
    let since = view.set.span().map_or(view.window.since, |s| s.since);
    let since_ever = words::between(since, onset) < 2.0 * seconds / failed;
    if since_ever && !by_signal {
        return Err(format!("{name} has failed for as long as it is known"));
    }
    let looked_at = if is_near { view.window } else { Span { since: onset, ..known } };
    if is_asked_to(view, &group, looked_at) {
        return Err(format!("{name} was ended by a signal sent to it"));
    }
    // Between two starts a supervisor waits for longer than the last of them.
    let rest_s = words::between(end, view.window.until);
    let lasts = if is_near { rest_s <= 3.0 * all.step_s() } else { rest_s <= 2.0 * seconds / failed };
    Ok(Some(Loop { group, failed, lifetime_s, onset, end, lasts, known: looked_at }))
}

/// Whether most of the ends that are known were asked for: a signal that a process sends to another one to end it. Whom the
/// kernel kills for lack of memory is the matter of `oom-kill`.
fn is_asked_to(view: &View<'_>, group: &Deaths<'_>, span: Span) -> bool {
    // No fault raises SIGUSR1 or SIGUSR2.
    const ASKED: &[i32] = &[1, 2, 9, 10, 12, 13, 15];
    let (mut asked, mut all) = (0, 0);
    for event in view.set.events.iter().filter(|e| span.contains(e.real)) {
        let signal = match &event.kind {
            EventKind::Exit { comm, parent_pid, status, .. }
                if comm == group.child && group.parents.contains(parent_pid) =>
            {
                status & 0x7f
            }
            EventKind::FatalSignal { comm, signal, .. } if comm == group.child => *signal,
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
    let group = &one.group;
    finding.end = (!one.lasts).then_some(one.end);
    finding.seen = Some(Span { since: view.window.since.min(one.onset), ..view.window });
    let parent = group.parent_comm(view.set).unwrap_or("?");
    finding.culprit.process = Some(group.child.to_owned());
    let last = |row: &&str| view.set.get("exited.last_pid", row)?.last(one.known);
    finding.culprit.pid = group.rows.iter().rev().find_map(last).map(|p| p as u32);
    let ends = ends(view, one);
    let how = ends.first().map(|(how, _)| format!(", {how}")).unwrap_or_default();
    let who = match group.parents.as_slice() {
        [pid] => format!("{parent} ({pid}) started it again"),
        parents => format!("it was started again, by {} processes named {parent}", parents.len()),
    };
    finding.statement = format!(
        "{} died {} times in {}{how}, after {} each, and {who}",
        group.child,
        words::count(one.failed),
        words::seconds(words::between(one.onset, one.end)),
        words::seconds(one.lifetime_s),
    );
    let span = Span { since: one.onset + 1, until: one.end + 1 };
    for row in group.rows.iter().take(2) {
        finding.prove(view, &["exited.failed", "exited.count", "exited.lifetime"], row, span);
    }
    for (_, event) in ends.iter().take(4) {
        let EventKind::Exit { status, .. } = event.kind else { continue };
        let status = f64::from(status);
        finding.evidence.push(view.event_evidence("event.exit", group.child, status, "wait status", event));
    }
    // It ran well before: then it is a service that broke, and what changed is worth asking.
    let was_up = was_up(view, group, one.onset);
    if was_up {
        finding.remarks.push(format!(
            "{} ran until then: what was changed at that time is the first thing to look at",
            group.child
        ));
    }
    finding.confidence = 0.7 + if was_up { 0.15 } else { 0.0 } + if ends.is_empty() { 0.0 } else { 0.1 };
    finding
}

/// Whether the same parent had the program running before it began to die, or another one of its name where each had its
/// own.
fn was_up(view: &View<'_>, group: &Deaths<'_>, onset: i64) -> bool {
    let before = Span { since: i64::MIN, until: onset };
    let parent_comm = group.parent_comm(view.set).filter(|_| group.has_many_parents());
    let is_parent = |pid: u32| {
        group.parents.contains(&pid)
            || parent_comm.is_some_and(|comm| view.processes().iter().any(|p| p.pid == pid && p.comm == comm))
    };
    view.set.each_text("task.comm").any(|(row, comm)| {
        comm.last() == Some(group.child)
            && view
                .set
                .get("task.ppid", row)
                .and_then(|s| s.last(Span::ALL))
                .is_some_and(|p| is_parent(p as u32))
            && view.set.get("task.tgid", row).is_some_and(|s| s.samples(before).count() >= UP_SAMPLES)
    })
}

/// A program that was seen at as many samples ran.
const UP_SAMPLES: usize = 4;
/// What a service does until it fails costs more than a command that asks whether something is there yet.
const STARTS_CPU_S: f64 = 0.02;

/// How its lives ended, as far as single ends were recorded.
fn ends<'a>(view: &'a View<'_>, one: &Loop<'_>) -> Vec<(String, &'a Event)> {
    let mut by_how: BTreeMap<String, Vec<&Event>> = BTreeMap::new();
    for event in view.set.events.iter().filter(|e| one.known.contains(e.real)) {
        match &event.kind {
            EventKind::Exit { comm, parent_pid, status, .. }
                if comm == one.group.child && one.group.parents.contains(parent_pid) =>
            {
                by_how.entry(how(*status)).or_default().push(event);
            }
            EventKind::FatalSignal { comm, signal, .. } if comm == one.group.child => {
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
