//! Everything pauses: the CPUs are in the kernel, and programs that have work to do do nothing for a while.
//!
//! Seen from programs it is a hole: a process that answers thousands of requests a second makes no system call for half a
//! second. Seen from the CPUs it is system time on all of them at once. The time belongs to what the kernel does, not to
//! the program that happens to run: its own CPU use is a symptom.

use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "scheduling-stall",
    title: "the whole machine stalls",
    area: "cpu",
    needs: &[
        "sys.cpu_system",
        "sys.cpu_user",
        "sys.cpu_idle",
        "cpu.system",
        "sys.cpu_iowait",
        "sys.cpu_steal",
        "tcp.PassiveOpens",
        "task.cpu_time",
        "task.system_time",
        "vm.pswpout",
    ],
    triggers: &[
        // The kernel works for three tenths of the time: faults, reclaim, forks, locks.
        above(&["sys.cpu_system"], 0.3).per_cpu().of_files(),
    ],
    observe,
    causes: &[
        effect("session-drop", "a program that does not run misses its heartbeats"),
        effect("listen-overflow", "a server that does not run does not accept"),
        effect("socket-buffer-overflow", "a program that does not run does not read"),
        effect("service-slow", "a server that does not run does not answer"),
    ],
    source: include_str!("scheduling_stall.rs"),
    ..Condition::SYMPTOM
};

/// Half of all CPUs in the kernel: more than a busy network stack or a build takes.
const SYSTEM_SHARE: f64 = 0.5;
/// Heartbeats are sent every few hundred milliseconds; a shorter pause is noticed by nobody.
const PAUSE_S: f64 = 0.2;

fn observe(view: &View<'_>) -> Observation {
    let pauses: Vec<(&Event, f64)> = view
        .set
        .events
        .iter()
        .filter(|e| view.window.contains(e.real))
        .filter_map(|e| match &e.kind {
            EventKind::Pause { seconds, inside: false, .. } if *seconds >= PAUSE_S => Some((e, *seconds)),
            EventKind::Stuck { what, seconds, .. } if what == "soft-lockup" => Some((e, *seconds)),
            _ => None,
        })
        .collect();
    let system = view.high("sys.cpu_system", "", SYSTEM_SHARE * view.cpus(), 3.0);
    let finding = match (&system, pauses.first()) {
        (Some(high), _) => by_system_time(view, high, &pauses),
        (None, Some(_)) => by_pauses(view, &pauses),
        (None, None) => {
            return match view.system("sys.cpu_system") {
                Some(system) => Observation::Inactive(format!(
                    "system time was {} of all CPUs at most",
                    words::percent(system.max().unwrap_or(0.0) / view.cpus())
                )),
                None => Observation::cannot_tell("sys.cpu_system: sar -P ALL 1"),
            };
        }
    };
    finding.active()
}

fn by_system_time(view: &View<'_>, high: &High, pauses: &[(&Event, f64)]) -> Finding {
    let span = high.run.span();
    let cpus = view.cpus();
    let mut finding = view.finding(&high.run);
    let earlier = before_by_cpu(view).or_else(|| high.before.map(|b| b / cpus));
    let before = earlier.map(|b| format!(" after {} before", words::percent(b))).unwrap_or_default();
    let length = words::seconds(high.run.seconds());
    let length = if high.run.lasts {
        format!("for {length}, to the end of what was sampled")
    } else {
        format!("for about {length}")
    };
    let worst = view
        .each("cpu.system")
        .filter_map(|(cpu, s)| Some((cpu, s.max(span)?)))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    let one = worst.map(|(_, v)| format!(", single ones {}", words::percent(v.min(1.0)))).unwrap_or_default();
    finding.statement = format!(
        "all CPUs were in system time, {} of it (at most {}{one}){before}, {length}",
        words::percent(high.during / cpus),
        words::percent(high.peak / cpus),
    );
    finding.evidence.extend(view.evidence("sys.cpu_system", "", span));
    if let Some(first) =
        view.each("cpu.system").map(|(cpu, _)| cpu).next().filter(|_| before_by_cpu(view).is_some())
    {
        finding.evidence.extend(view.evidence("cpu.system", first, span));
    }
    if let Some((cpu, _)) = worst {
        finding.evidence.extend(view.evidence("cpu.system", cpu, span));
    }
    say_what_it_is_not(view, &mut finding, high);
    add_pauses(view, &mut finding, pauses);
    finding
}

/// The mean of all CPUs at the first sample, where the tool printed single ones then and no sum yet.
fn before_by_cpu(view: &View<'_>) -> Option<f64> {
    let first = |s: &Series| s.samples(view.window).next().map(|(t, _, v)| (t, v));
    let cpus: Vec<(i64, f64)> = view.each("cpu.system").filter_map(|(_, s)| first(s)).collect();
    let (at, _) = *cpus.first()?;
    let summed = view.set.get("sys.cpu_system", "").and_then(first)?;
    let is_whole = cpus.len() as f64 >= view.cpus() && cpus.iter().all(|(t, _)| *t == at);
    (is_whole && at < summed.0).then(|| cpus.iter().map(|(_, v)| v).sum::<f64>() / cpus.len() as f64)
}

fn by_pauses(view: &View<'_>, pauses: &[(&Event, f64)]) -> Finding {
    let first = pauses.iter().map(|(e, _)| e.real).min().unwrap_or(view.window.since);
    let mut finding = view.finding_at(first);
    finding.confidence = 0.6;
    finding.statement = "programs stalled".to_owned();
    add_pauses(view, &mut finding, pauses);
    finding
}

fn add_pauses(view: &View<'_>, finding: &mut Finding, pauses: &[(&Event, f64)]) {
    for (event, seconds) in pauses.iter().take(3) {
        let EventKind::Pause { comm, pid, call, .. } = &event.kind else { continue };
        let who = match (comm.as_str(), pid) {
            ("", 0) => "a traced process".to_owned(),
            ("", pid) => format!("process {pid}"),
            (comm, 0) => comm.to_owned(),
            (comm, pid) => format!("{comm} ({pid})"),
        };
        let end = event.real + (seconds * 1e9) as i64;
        finding.statement = format!(
            "{}; {who} did nothing for {} between two system calls (after {call}, {} to {})",
            finding.statement,
            words::seconds(*seconds),
            precise(event.real),
            precise(end)
        );
        finding.evidence.push(view.event_evidence("event.pause", call, *seconds, "s", event));
    }
}

/// A time of day with its microseconds.
fn precise(t: i64) -> String {
    format!(
        "{}.{:06}",
        mitra_model::report::Moment(t).to_string().trim_end_matches('Z'),
        t.rem_euclid(1_000_000_000) / 1000
    )
}

/// The usual suspects, with the numbers that clear them.
fn say_what_it_is_not(view: &View<'_>, finding: &mut Finding, high: &High) {
    let span = high.run.span();
    let cpus = view.cpus();
    let mean = |metric: &str| view.set.get(metric, "").and_then(|s| s.mean(span));
    let small = |metric: &str, limit: f64, what: &str| {
        mean(metric)
            .filter(|v| *v < limit * cpus)
            .map(|v| format!("not {what} ({})", words::percent(v / cpus)))
    };
    let mut list: Vec<String> = Vec::new();
    list.extend(small("sys.cpu_iowait", 0.05, "waiting for a disk: %iowait"));
    list.extend(small("sys.cpu_steal", 0.01, "another virtual machine: %steal"));
    if let Some(out) = view.system("vm.pswpout").and_then(|s| s.max()).filter(|v| *v < 1000.0) {
        list.push(format!("not swap: at most {} pages/s went out", words::count(out)));
        finding.evidence.extend(view.evidence("vm.pswpout", "", Span::ALL));
    }
    list.extend(load(view, high));
    if !list.is_empty() {
        finding.remarks.push(list.join("; "));
    }
    let busy: Option<&str> = process::ranking(view.processes(), Span::ALL, |p| {
        p.total(view.set, "task.cpu_time", Span::ALL) + p.total(view.set, "task.system_time", Span::ALL)
    })
    .first()
    .map(|t| t.comm);
    let who =
        busy.map_or_else(|| "the programs that run".to_owned(), |name| format!("{name} and the others"));
    finding.remarks.push(format!(
        "the CPU time of {who} is a symptom: a process that allocates memory or looks up a name at that moment pays \
         for the kernel's work"
    ));
}

/// Whether the work that came in was the same before.
fn load(view: &View<'_>, high: &High) -> Option<String> {
    let signal = view.system("tcp.PassiveOpens")?;
    let before = signal.within(Span { since: i64::MIN, until: high.run.onset + 1 }).mean()?;
    let during = signal.within(high.run.span()).mean()?;
    ((during / before - 1.0).abs() < 0.25).then(|| {
        format!(
            "not load: {} connections/s came in before and {} during",
            words::count(before),
            words::count(during)
        )
    })
}
