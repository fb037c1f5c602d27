//! The kernel killed a process because memory ran out, in the machine or in a cgroup.
//!
//! Such a kill comes without much pressure before it when memory is taken fast. The process that was killed is the one
//! with most memory by the kernel's reckoning, which nearly always is the one that grew. Where another one of the same group
//! grew more, that one is the culprit.

use std::collections::BTreeSet;

use mitra_model::report::Quote;

use crate::growth;
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "oom-kill",
    title: "the OOM killer killed a process",
    area: "memory",
    needs: &[
        "vm.oom_kill",
        "tasks.oom_kills",
        "cgroup.oom_kill",
        "cgroup.memory_max",
        "cgroup.memory_current",
        "cgroup.memory_failcnt",
        "task.rss_anon",
        "task.swap",
    ],
    triggers: &[
        above(&["vm.oom_kill"], f64::MIN_POSITIVE).lasting(0.0),
        above(&["tasks.oom_kills"], f64::MIN_POSITIVE).lasting(0.0),
        Trigger::Event(|kind| matches!(kind, EventKind::OomKill { .. })),
    ],
    observe,
    causes: &[
        explains("cgroup-memory-limit", "the cgroup stayed at its limit until the OOM killer killed"),
        explains("free-memory-low", "memory ran out until the OOM killer killed"),
        effect("pressure-memory", "reclaim failed before the kill"),
        effect("direct-reclaim", "reclaim failed before the kill"),
        effect("page-cache-eviction", "reclaim failed before the kill"),
        effect("major-faults", "program text was evicted before the kill"),
        within("dependency-unreachable", "nothing serves where the process did"),
        within("service-failing", "connections end with the killed process"),
    ],
    cgroup_limit: Some("memory."),
    remedies_of: remedies,
    next: &[measure(
        "the kernel's table of memory by process at the kill",
        "dmesg -T | grep -B 40 'Killed process'",
    )],
    source: include_str!("oom_kill.rs"),
    ..Condition::ROOT
};

struct Kill<'a> {
    at: i64,
    pid: u32,
    comm: &'a str,
    cgroup: Option<String>,
    /// It was because of a group's limit.
    is_of_group: bool,
    anon_bytes: Option<u64>,
    quote: Option<Quote>,
}

/// Kills whose lines are quoted.
const QUOTED: usize = 5;

fn observe(view: &View<'_>) -> Observation {
    let kills = kills(view);
    let counted = ["vm.oom_kill", "tasks.oom_kills"]
        .iter()
        .filter_map(|m| Some(view.system(m)?.total()))
        .fold(None, |most: Option<f64>, n| Some(most.map_or(n, |m| m.max(n))));
    let (Some(first), Some(last)) = (kills.first(), kills.last()) else {
        return match counted {
            // A count without a name: the kernel log and the probe were both out of reach.
            Some(n) if n >= 1.0 => unnamed(view, n),
            Some(_) => Observation::inactive("the OOM killer killed nothing"),
            None => Observation::needs_as("vm.oom_kill (since 4.13), or the kernel log", &["vm.oom_kill"]),
        };
    };
    let named: BTreeSet<&str> = kills.iter().filter_map(|k| k.cgroup.as_deref()).collect();
    let group = match named.len() {
        0 => group_of(view),
        1 => named.first().map(|g| (*g).to_owned()),
        // Kills in several groups have no group in common.
        _ => None,
    };
    let same = kills.iter().all(|k| k.comm == first.comm);
    let mut finding =
        Finding { onset: first.at, end: Some(last.at + SECOND), confidence: 1.0, ..Finding::default() };
    finding.blame_pid(first.comm, first.pid);
    finding.culprit.cgroup.clone_from(&group);
    // Who grew elsewhere took nothing from a group that is at its own limit.
    let is_known_where = group.is_some() || kills.iter().all(|k| !k.is_of_group);
    let grew = if same && is_known_where { grown(view, first, group.as_deref()) } else { None };
    let span = Span { since: first.at - SECOND, until: last.at + 2 * SECOND };
    let limit = group.as_ref().and_then(|g| view.limit_at("cgroup.memory_max", g, last.at));
    let place = match (group.as_ref().map(|group| view.group(group)), limit) {
        (Some(group), Some(limit)) => format!(" in {group}, whose limit is {}", words::bytes(limit)),
        (Some(group), None) => format!(" in {group}"),
        _ if named.len() > 1 => format!(" in {} cgroups", named.len()),
        _ => String::new(),
    };
    let most = kills.iter().filter_map(|k| Some((k.anon_bytes?, k))).max_by_key(|(bytes, _)| *bytes);
    let held = most
        .map(|(bytes, kill)| {
            let who = if same { "it".to_owned() } else { format!("{} ({})", kill.comm, kill.pid) };
            let most = if kills.len() == 1 { "" } else { " at most" };
            format!("; {who} held {}{most} of anonymous memory", words::bytes(bytes as f64))
        })
        .unwrap_or_default();
    finding.statement = if kills.len() == 1 {
        format!("the OOM killer killed {} ({}){place}{held}", first.comm, first.pid)
    } else if same {
        format!("the OOM killer killed {} {} times{place}{held}", first.comm, kills.len())
    } else {
        format!("the OOM killer killed {} processes, {} first{place}{held}", kills.len(), first.comm)
    };
    if let Some(grown) = grew {
        finding.statement = format!("{}; {}", finding.statement, grown.words);
        finding.blame_pid(grown.comm, grown.pid);
        finding.confidence = 0.8;
    }
    finding.prove_nonzero(view, &["vm.oom_kill", "tasks.oom_kills"], "", span);
    let lines: Vec<_> = kills.iter().take(QUOTED).filter_map(|k| k.quote.clone()).collect();
    if !lines.is_empty() {
        let mut evidence = view.evidence_of("event.oom-kill", first.comm, None, kills.len() as f64);
        evidence.quotes = lines;
        finding.evidence.push(evidence);
    }
    if let Some(group) = &group {
        finding.prove(
            view,
            &["cgroup.memory_current", "cgroup.memory_max", "cgroup.memory_failcnt"],
            group,
            span,
        );
    }
    finding.active()
}

/// Before a kill. What grew for longer had the time to be found as a growth.
const GROWTH_NS: i64 = 60 * SECOND;
/// Another one has to have grown by so many times as much as the one that was killed.
const MORE: f64 = 2.0;
/// And by so much of what the killed one held: the kill made room for it.
const MADE_ROOM: f64 = 0.25;

/// Another program that took the memory for which somebody was killed.
struct Grown<'a> {
    comm: &'a str,
    pid: u32,
    words: String,
}

/// The program of the group, or of the machine, that grew most before the kill, where that is not the one that was killed.
fn grown<'a>(view: &View<'a>, kill: &Kill<'_>, group: Option<&str>) -> Option<Grown<'a>> {
    let before = Span { since: kill.at - GROWTH_NS, until: kill.at };
    let is_of = |p: &&Process<'_>| group.is_none_or(|group| p.cgroup == Some(group));
    let list: Vec<Process<'a>> = view.processes().iter().filter(is_of).cloned().collect();
    let tops = growth::takers(view, &list, before);
    // What it took in its last moment is in no sample; one that is in none at all took all of it in that time.
    let first =
        view.processes().iter().find(|p| p.pid == kill.pid).and_then(|p| growth::held(view, p, before));
    let first = first.map_or(0.0, |(first, _)| first);
    let by_kernel = kill.anon_bytes? as f64 - first;
    let own = tops.iter().find(|top| top.comm == kill.comm).map_or(0.0, |top| top.total).max(by_kernel);
    let top = tops.first().filter(|top| top.comm != kill.comm && top.total >= MORE * own)?;
    (top.total >= MADE_ROOM * kill.anon_bytes? as f64).then(|| Grown {
        comm: top.comm,
        pid: top.pid(),
        words: format!(
            "in the minute before {} grew by {}, and {} by {}",
            top.words(),
            words::bytes(top.total),
            kill.comm,
            words::bytes(own)
        ),
    })
}

/// The kills that are known by name, in order of time; the probe and the kernel log tell of the same ones.
fn kills<'a>(view: &View<'a>) -> Vec<Kill<'a>> {
    let mut kills: Vec<Kill<'a>> = Vec::new();
    for event in view.set.events.iter().filter(|e| view.window.contains(e.real)) {
        let kill = match &event.kind {
            EventKind::OomKill { pid, comm, cgroup, anon_bytes } => Kill {
                at: event.real,
                pid: *pid,
                comm,
                cgroup: cgroup.clone(),
                anon_bytes: *anon_bytes,
                is_of_group: cgroup.is_some(),
                quote: view.event_quote(event),
            },
            EventKind::KernelLog { text, .. } => match killed_line(text) {
                Some((pid, comm, anon_bytes)) => {
                    let (quote, is_of_group) = (view.event_quote(event), text.contains(GROUP_LINE));
                    Kill { at: event.real, pid, comm, cgroup: None, is_of_group, anon_bytes, quote }
                }
                None => match limited_line(text) {
                    Some((pid, comm, group)) => {
                        let cgroup = Some(group.to_owned());
                        Kill {
                            at: event.real,
                            pid,
                            comm,
                            cgroup,
                            is_of_group: true,
                            anon_bytes: None,
                            quote: None,
                        }
                    }
                    None => continue,
                },
            },
            _ => continue,
        };
        match kills.iter_mut().find(|k| k.pid == kill.pid && (k.at - kill.at).abs() < 10 * SECOND) {
            Some(known) => {
                // Up to 6.7 the probe knows the pid alone.
                if known.comm.is_empty() {
                    known.comm = kill.comm;
                }
                known.cgroup = known.cgroup.take().or(kill.cgroup);
                known.is_of_group |= kill.is_of_group;
                known.anon_bytes = known.anon_bytes.or(kill.anon_bytes);
                known.quote = known.quote.take().or(kill.quote);
                known.at = known.at.min(kill.at);
            }
            None => kills.push(kill),
        }
    }
    for kill in kills.iter_mut().filter(|k| k.comm.is_empty()) {
        kill.comm = view.process(kill.pid).map_or("a process", |process| process.comm);
    }
    kills.sort_by_key(|k| k.at);
    kills
}

/// `Memory cgroup out of memory: Killed process 812 (hog) total-vm:…kB, anon-rss:262000kB, …`; before 4.19
/// `Kill process` stood in another line and `Killed process 812 (hog)` in this one.
fn killed_line(text: &str) -> Option<(u32, &str, Option<u64>)> {
    let rest = text.split_once("Killed process ")?.1;
    let (pid, rest) = rest.split_once(' ')?;
    let pid = pid.trim_end_matches(',').parse().ok()?;
    let comm = rest.split_once('(')?.1.split_once(')')?.0;
    let anon = rest
        .split_once("anon-rss:")
        .and_then(|(_, r)| r.split_once("kB"))
        .and_then(|(kib, _)| kib.trim().parse::<u64>().ok())
        .map(|kib| kib * 1024);
    Some((pid, comm, anon))
}

/// What the line of a kill contains that is because of a group's limit.
const GROUP_LINE: &str = "emory cgroup out of memory";

/// `oom-kill:constraint=CONSTRAINT_MEMCG,…,oom_memcg=/app,task_memcg=/app/a,task=hog,pid=812,uid=0` (since 5.0): who is killed, and the
/// group whose limit it is. The name may have commas in it.
fn limited_line(text: &str) -> Option<(u32, &str, &str)> {
    let rest = text.split_once("oom-kill:constraint=CONSTRAINT_MEMCG,")?.1;
    let (group, rest) = rest.split_once(",oom_memcg=")?.1.split_once(",task_memcg=")?;
    let (comm, rest) = rest.split_once(",task=")?.1.rsplit_once(",pid=")?;
    Some((rest.split_once(',').map_or(rest, |(pid, _)| pid).parse().ok()?, comm, group))
}

/// The smallest cgroup in which the kernel counted kills.
fn group_of(view: &View<'_>) -> Option<String> {
    view.each("cgroup.oom_kill")
        .filter(|(name, series)| *name != "/" && series.total(view.window).is_some_and(|n| n >= 1.0))
        .map(|(name, _)| name)
        .max_by_key(|name| name.len())
        .map(str::to_owned)
}

fn unnamed(view: &View<'_>, n: f64) -> Observation {
    let Some(high) = view
        .high("vm.oom_kill", "", f64::MIN_POSITIVE, 0.0)
        .or_else(|| view.high("tasks.oom_kills", "", f64::MIN_POSITIVE, 0.0))
    else {
        return Observation::inactive("the OOM killer killed nothing");
    };
    let mut finding = view.finding(&high.run);
    finding.end = Some(high.run.end);
    finding.culprit.cgroup = group_of(view);
    finding.confidence = 0.8;
    finding.statement =
        format!("the OOM killer killed {n:.0} times; only the kernel log tells which processes");
    finding.evidence.extend(view.evidence("vm.oom_kill", "", high.run.span()));
    finding.active()
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let name = finding.culprit.process.as_deref().unwrap_or("the process");
    let action = match finding.culprit.group() {
        Some(group) => format!("raise the memory limit of {group}, or limit the memory of {name}"),
        None => format!("limit the memory of {name}, or add memory"),
    };
    vec![Remedy {
        action,
        command: String::new(),
        verify: "grep oom_kill /proc/vmstat: does not grow".to_owned(),
        risk: "if it leaks, a higher limit only delays the kill".to_owned(),
    }]
}

#[cfg(test)]
mod tests {
    use super::{killed_line, limited_line};

    #[test]
    fn the_kernel_log_names_the_victim() {
        let line = "Memory cgroup out of memory: Killed process 812 (my hog) total-vm:300kB, anon-rss:256kB, file-rss:4kB";
        assert_eq!(killed_line(line), Some((812, "my hog", Some(262_144))));
        assert_eq!(killed_line("Killed process 9"), None);
        assert_eq!(killed_line("oom-kill:constraint=CONSTRAINT_MEMCG"), None);
    }

    #[test]
    fn the_kernel_log_names_the_group_whose_limit_it_is() {
        let line = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/app,\
                    task_memcg=/app/a,task=my,hog,pid=812,uid=0";
        assert_eq!(limited_line(line), Some((812, "my,hog", "/app")));
        assert_eq!(limited_line("oom-kill:constraint=CONSTRAINT_NONE,task=hog,pid=812,uid=0"), None);
    }
}
