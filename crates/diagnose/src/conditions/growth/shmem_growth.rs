//! Shared memory grows: files in tmpfs, `/dev/shm`, System V segments. It belongs to no process, so no process looks large.
//!
//! It cannot be reclaimed but by swapping, and stays after the last process that used it.
//!
//! A cgroup pays for the files that its tasks write to tmpfs, as to `/dev/shm` or to a volume of a pod that lies in memory. What they
//! take of its limit is not there for its page cache and its programs. So where a group is short of memory, and its shared memory has grown
//! before by a tenth of its limit, that is the cause, though it has levelled off long ago and the machine has room.

use crate::growth::{self, Growth, Then};
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "shmem-growth",
    title: "shared memory and tmpfs grow until none is left",
    area: "growth",
    needs: &[
        "mem.shmem",
        "fs.free_bytes",
        "fs.type",
        "task.wchar",
        "task.rss_shmem",
        "cgroup.shmem",
        "cgroup.memory_current",
        "cgroup.memory_max",
    ],
    needs_of: &[growth::NEEDS],
    observe,
    observe_after: Some(observe_after),
    causes: &[
        effect("page-cache-thrash", "the working set fitted before; what has grown takes its place"),
        explains("cgroup-memory-limit", "shared memory takes the room that the group has"),
        effect("free-memory-low", "shared memory leaves nothing free"),
        effect("kswapd-scanning", "memory that cannot be dropped pushes other pages out"),
        effect("direct-reclaim", "memory is wanted faster than kswapd frees it"),
        effect("oom-kill", "memory runs out until the OOM killer kills"),
        effect("page-cache-eviction", "file pages go to make room"),
        effect("swap-thrash", "what does not fit goes to swap and comes back"),
        explains("io-throttled", "file pages that made room are read again, up to the limit"),
        effect("pressure-memory", "tasks that allocate wait"),
    ],
    remedies_of: remedies,
    next: &[measure("where it is", "df -h -t tmpfs; ipcs -m; ls -lS /dev/shm | head")],
    source: include_str!("shmem_growth.rs"),
    ..Condition::ROOT
};

/// How it is said that a process has it in its address space.
const MAPS: &str = "maps";

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let who = finding.culprit.process.as_deref();
    if let Some(who) = who.filter(|_| finding.statement.contains(&format!(" {MAPS} "))) {
        return vec![Remedy {
            action: format!(
                "let {who} use less, run it in a group of its own, or raise the limit of this one"
            ),
            command: format!("grep -i shmem /proc/{}/status; pmap -x {}", finding.pid(), finding.pid()),
            verify: "the shared memory of the group no longer grows: shmem in its memory.stat".to_owned(),
            risk: "what is in shared memory and nobody else has is lost when its last user ends".to_owned(),
        }];
    }
    let path = finding.culprit.path.as_deref().unwrap_or("/dev/shm");
    vec![Remedy {
        action: "delete what is not needed from tmpfs and shared memory, and limit their size".to_owned(),
        command: format!("mount -o remount,size=BYTES {}", words::shell(path)),
        verify: "grep Shmem: /proc/meminfo".to_owned(),
        risk: "writers get ENOSPC at the limit".to_owned(),
    }]
}

/// A tenth of memory.
const GREW_SHARE: f64 = 0.1;

/// What a group is short of memory by.
const SHORT: [&str; 4] = ["page-cache-thrash", "swap-thrash", "cgroup-memory-limit", "oom-kill"];
/// What follows in a group.
const IN_GROUP: &[&str] = &[
    "page-cache-thrash",
    "swap-thrash",
    "cgroup-memory-limit",
    "oom-kill",
    "page-cache-eviction",
    "pressure-memory",
    "io-throttled",
];
/// A group at its limit is a little below it: reclaim frees some thousand pages at a time.
const AT_LIMIT: f64 = 0.9;

fn observe_after(view: &View<'_>, others: &Others<'_>) -> Observation {
    let own = observe(view);
    if matches!(own, Observation::Active(_)) {
        return own;
    }
    let mut short = SHORT.iter().filter_map(|id| others.active.get(id));
    match short.find_map(|found| of_group(view, found)) {
        Some(finding) => finding.active(),
        None => own,
    }
}

/// Shared memory that grew in a group before it got short of memory.
fn of_group(view: &View<'_>, short: &Finding) -> Option<Finding> {
    let group = short.culprit.cgroup.as_deref()?;
    let growth = growth::of(view, "cgroup.shmem", group)?;
    let limit = view.limit_at("cgroup.memory_max", group, growth.run.end)?;
    let used = view.set.get("cgroup.memory_current", group)?.max(view.window)?;
    let step = (3.0 * growth.run.step_s.max(1.0) * SECOND as f64) as i64;
    let takes_room = growth.to - growth.from >= GREW_SHARE * limit && used >= AT_LIMIT * limit;
    if !takes_room || short.onset < growth.run.onset.saturating_sub(step) {
        return None;
    }
    let mut finding = view.finding(&growth.run);
    finding.end = short.end.map(|end| end.max(growth.run.onset));
    finding.governs = Some(IN_GROUP);
    finding.statement = format!(
        "shared memory of {} {}; its limit is {}",
        view.group(group),
        growth.words(),
        words::bytes(limit)
    );
    finding.prove(view, &["cgroup.shmem", "cgroup.memory_current"], group, growth.run.span());
    finding.confidence = 0.8;
    finding.loss_s = short.loss_s;
    name_the_place(view, &mut finding, &growth, Some(group));
    finding.culprit.cgroup = Some(group.to_owned());
    Some(finding)
}

fn observe(view: &View<'_>) -> Observation {
    if view.system("mem.shmem").is_none() {
        return Observation::cannot_tell("mem.shmem (Shmem of /proc/meminfo)");
    }
    if view.memory_bytes().is_none() {
        return Observation::needs(&["mem.total"]);
    }
    let Some(growth) = growth::of(view, "mem.shmem", "").filter(|g| growth::matters(view, g, GREW_SHARE))
    else {
        return Observation::inactive(
            "shared memory grew by less than a tenth of memory and a third of what was left",
        );
    };
    let grew = format!("shared memory {}", growth.words());
    if growth::settled(view, &growth) {
        return Observation::Inactive(format!("{grew}, and levelled off"));
    }
    let is_short = growth::memory_short(view) == Some(true);
    if !is_short && !growth::runs_out(view, &growth) {
        return match growth.then {
            Then::Unknown => {
                Observation::cannot_tell(format!("whether it goes on: {grew} and there is still room"))
            }
            _ => Observation::Inactive(format!("{grew}; there was still room")),
        };
    }
    let mut finding = view.finding(&growth.run);
    let then = if is_short { "and memory ran short" } else { "half of what was available" };
    finding.statement = format!("{grew}, {then}");
    finding.evidence.extend(view.evidence("mem.shmem", "", growth.run.span()));
    finding.confidence = 0.8;
    name_the_place(view, &mut finding, &growth, None);
    finding.active()
}

/// Of what is mapped some may have gone to swap meanwhile, or make room for others.
const MORE: f64 = 3.0;

/// The process whose share of shared memory grew most in the window, and by how many pages. One that came meanwhile had none.
fn most_mapped<'v, 'a>(view: &'v View<'a>, group: Option<&str>) -> Option<(&'v Process<'a>, f64)> {
    let began = view.set.span().map_or(i64::MIN, |span| span.since) + 2 * SECOND;
    // With version 1 the group that is known of a task may be that of another hierarchy.
    let are_known =
        group.is_some_and(|group| view.processes().iter().any(|p| process::is_inside(p.cgroup, group)));
    let is_inside =
        |p: &&Process<'a>| !are_known || group.is_none_or(|group| process::is_inside(p.cgroup, group));
    let grew = |p: &'v Process<'a>| {
        let series = p.rows.first().and_then(|row| view.set.get("task.rss_shmem", row))?;
        let is_new = p.first_seen(view.set).is_some_and(|first| first > began.max(view.window.since));
        let first = if is_new { 0.0 } else { series.first(view.window)? };
        Some((p, series.max(view.window)? - first))
    };
    view.processes().iter().filter(is_inside).filter_map(grew).max_by(|a, b| a.1.total_cmp(&b.1))
}

/// The tmpfs that filled and the process that wrote about as much as was added.
fn name_the_place(view: &View<'_>, finding: &mut Finding, growth: &Growth, group: Option<&str>) {
    let grew = growth.to - growth.from;
    let span = growth.run.span();
    let is_tmpfs = |mount: &str| view.set.text("fs.type", mount).and_then(|t| t.last()) == Some("tmpfs");
    let fell = view
        .each("fs.free_bytes")
        .filter(|(mount, _)| is_tmpfs(mount))
        .filter_map(|(mount, s)| Some((mount, s.first(view.window)? - s.min(view.window)?)))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    if let Some((mount, bytes)) = fell.filter(|(_, bytes)| *bytes >= 0.5 * grew) {
        finding.culprit.path = Some(mount.to_owned());
        finding.statement = format!("{}; {mount} holds {} more", finding.statement, words::bytes(bytes));
        finding.evidence.extend(view.evidence("fs.free_bytes", mount, span));
        finding.confidence = 0.9;
    }
    // Who writes to a tmpfs, or maps what others have, adds nothing by mapping it.
    let is_of_files = finding.culprit.path.is_some();
    if let Some((process, pages)) = most_mapped(view, group).filter(|(_, pages)| {
        let bytes = pages * view.page_bytes();
        !is_of_files && bytes >= 0.5 * grew && bytes <= MORE * grew
    }) {
        finding.blame(process);
        finding.statement = format!(
            "{}; {} ({}) {MAPS} {} more than before",
            finding.statement,
            process.comm,
            process.pid,
            words::bytes(pages * view.page_bytes())
        );
        finding.evidence.push(view.task_evidence("task.rss_shmem", process, None, pages, span));
        return;
    }
    let tops = process::ranking(view.processes(), span, |p| p.total(view.set, "task.wchar", span));
    if let Some(top) = tops.first().filter(|t| t.total >= 0.5 * grew && t.share >= 0.5) {
        finding.blame_pid(top.comm, top.pid());
        // Where it wrote to is not counted.
        finding.infer_culprit();
        finding.statement =
            format!("{}; {} wrote {}", finding.statement, top.words(), words::bytes(top.total));
        finding.evidence.push(view.task_evidence("task.wchar", &top.lead, None, top.rate, span));
    }
}
