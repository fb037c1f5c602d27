//! A cgroup sits at its memory limit and its tasks reclaim for every page they want.
//!
//! Why it does is often known better: its working set of files does not fit (`page-cache-thrash`), its anonymous
//! memory does not (`swap-thrash`), or the kernel killed in it (`oom-kill`). A group whose page cache fills up to the
//! limit while nobody waits is as healthy as a machine whose memory is full of cache. Its tasks wait for memory, or for pages of their files
//! that the group had to give up, which count as I/O: each is a major fault. A group whose tasks all wait in its
//! reclaim, as for pages that a slow device has to write back, runs into the limit no more: nobody in it gets that far.

use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "cgroup-memory-limit",
    title: "a cgroup is at its memory limit",
    area: "memory",
    needs: &[
        "cgroup.memory_failcnt",
        "cgroup.memory_current",
        "cgroup.memory_max",
        "cgroup.psi_memory_some",
        "psi.memory_some",
        "probe.memcg_reclaim_time",
        "cgroup.writeback",
        "cgroup.refault_file",
        "cgroup.refault_anon",
        "task.majflt",
        "task.read_bytes",
        "task.write_bytes",
        "task.blkio_delay",
        "task.state",
        "task.kstack",
    ],
    observe,
    causes: &[
        effect("page-cache-eviction", "at its limit a cgroup evicts its own pages"),
        effect("pressure-memory", "tasks of the cgroup wait for its reclaim"),
    ],
    cgroup_limit: Some("memory."),
    remedies: &[Advice {
        action: "raise the memory limit of {cgroup:the cgroup}, or make its programs use less",
        command: "echo BYTES > /sys/fs/cgroup{cgroup:/GROUP}/memory.max   (version 1: memory/…/memory.limit_in_bytes)",
        verify: "its memory.events `max` (version 1: memory.failcnt) stops growing",
        risk: "the memory is taken from others",
    }],
    source: include_str!("cgroup_memory_limit.rs"),
    ..Condition::ROOT
};

/// A charge runs into the limit ten times a second: reclaim is part of the work.
const FAILS_S: f64 = 10.0;
/// A twentieth of the time.
const PRESSURE: f64 = 0.05;

fn observe(view: &View<'_>) -> Observation {
    if !view.has("cgroup.memory_failcnt") {
        if view.has("cgroup.memory_current") {
            return Observation::inactive("no cgroup has a memory limit");
        }
        return Observation::needs(&["cgroup.memory_failcnt"]);
    }
    let mut best: Option<Limited<'_, '_>> = None;
    for (name, series) in view.each("cgroup.memory_failcnt").filter(|(name, _)| *name != "/") {
        let fails = Signal::of(series, view.window);
        let before = view.before("cgroup.memory_failcnt", name);
        let threshold = view.threshold(FAILS_S, &view.base_values("cgroup.memory_failcnt", name));
        let failing = fails.clone().map(|fails| step(fails >= threshold));
        let held = match stalled(view, name) {
            Some(stalled) => failing.zip(&stalled, f64::max),
            None => failing,
        };
        let Some(run) = held.run(1.0, 3.0) else { continue };
        let inside = fails.within(run.span());
        let (Some(during), Some(peak)) = (inside.mean(), inside.max()) else { continue };
        let high = High { run, before, during, peak };
        let pressure = pressure(view, name, high.run.span());
        let fetched = Fetched::of(view, name, high.run.span());
        // Where only the machine's pressure is known it is that of all groups, and the one that fails most often counts.
        let key = |one: &Limited<'_, '_>| (one.waited().unwrap_or(-1.0), one.high.during);
        let one = Limited { name, pressure, fetched, high };
        if best.as_ref().is_none_or(|most| key(&one) > key(most)) {
            best = Some(one);
        }
    }
    let Some(limited) = best else {
        return Observation::inactive("no cgroup ran into its memory limit");
    };
    let waited = limited.waited();
    let Limited { name, fetched, high, .. } = limited;
    let span = high.run.span();
    let Some(pressure) = waited else {
        return Observation::needs_as("psi.memory_some: whether tasks waited", &["psi.memory_some"]);
    };
    if pressure < PRESSURE {
        return Observation::Inactive(format!(
            "{name} ran into its limit and its tasks waited for {} of the time only",
            words::percent(pressure)
        ));
    }
    let limit = view.limit_at("cgroup.memory_max", name, span.until);
    let of_limit = limit.map(|l| format!(" of {}", words::bytes(l))).unwrap_or_default();
    let mut finding = view.finding(&high.run);
    finding.culprit.cgroup = Some(name.to_owned());
    finding.confidence = 0.8;
    let what = if high.during >= FAILS_S {
        format!("ran into its memory limit{of_limit} {} times a second", words::count(high.during))
    } else {
        format!("is held at its memory limit{of_limit}")
    };
    let fetched = fetched.filter(|fetched| fetched.share(span) >= pressure);
    let wanted = if fetched.is_some() { "pages that it had to give up" } else { "memory" };
    finding.statement = format!(
        "{} {what}; its tasks waited for {wanted} for {} of the time",
        view.group(name),
        words::percent(pressure)
    );
    finding.prove(view, &EVIDENCE, name, span);
    if let Some(fetched) = &fetched {
        fetched.tell(view, &mut finding, name, span);
    }
    let writeback = view.set.get("cgroup.writeback", name).and_then(|s| s.mean(span)).unwrap_or(0.0);
    if limit.is_some_and(|limit| writeback >= WRITEBACK * limit) {
        finding.prove(view, &["cgroup.writeback"], name, span);
        let bytes = words::bytes(writeback);
        finding
            .remarks
            .push(format!("its reclaim waits for {bytes} that are being written back to a device"));
    }
    // Pressure counts a second in which somebody waits, however many they are.
    let waited_s = process::group_waited_s(view, name, span, &[WaitKind::Memory]);
    let waited_s = waited_s.max(fetched.map_or(0.0, |fetched| fetched.waited_s));
    finding.loss_s = view.excess(&["psi.memory_some"], span).map(|pressure_s| pressure_s.max(waited_s));
    finding.active()
}

/// What tasks of a group at its limit wait for that had been in memory.
struct Fetched<'v, 'a> {
    /// The processes whose reads are faults.
    by: Vec<&'v Process<'a>>,
    faults: f64,
    waited_s: f64,
    /// Who fills the group with other pages, and how many bytes.
    fills: Option<(&'v Process<'a>, f64)>,
}

/// As often as charges run into the limit.
const FAULTS_S: f64 = FAILS_S;
/// What a fault reads around itself (`read_ahead_kb`, 128 on all devices unless set).
const READ_AROUND: f64 = 131_072.0;
/// Half of them come back, and one program brings half of what they make room for.
const MOST: f64 = 0.5;

/// Task-seconds that a process waited for I/O beyond what it did before.
fn waited_more_s(view: &View<'_>, process: &Process<'_>, span: Span) -> f64 {
    let waited = |set: &SeriesSet, span: Span| {
        process.waiting_for_io_s(set, span).max(process.total(set, "task.blkio_delay", span))
    };
    let usual = view.baseline.map_or(0.0, |baseline| {
        waited(view.base_set, baseline) / baseline.seconds().max(1e-9) * span.seconds()
    });
    (waited(view.set, span) - usual).max(0.0)
}

impl<'v, 'a> Fetched<'v, 'a> {
    fn of(view: &'v View<'a>, group: &str, span: Span) -> Option<Fetched<'v, 'a>> {
        let total = |process: &Process<'_>, metric| process.total(view.set, metric, span);
        let is_by_faults = |process: &&Process<'_>| {
            let faults = total(process, "task.majflt");
            faults >= FAULTS_S * span.seconds() && total(process, "task.read_bytes") <= faults * READ_AROUND
        };
        let members = view.processes().iter().filter(|p| !p.kthread && process::is_inside(p.cgroup, group));
        let (by, others): (Vec<_>, Vec<_>) = members.partition(is_by_faults);
        let faults: f64 = by.iter().map(|process| total(process, "task.majflt")).sum();
        let back = |metric| view.set.get(metric, group).and_then(|series| series.total(span));
        let came_back = back("cgroup.refault_file")?;
        // Memory that was swapped out is another condition's.
        let swapped = back("cgroup.refault_anon").unwrap_or(0.0);
        if by.is_empty() || came_back < MOST * faults || swapped >= MOST * faults {
            return None;
        }
        let waited_s = by.iter().map(|process| waited_more_s(view, process, span)).sum();
        let brings = |p: &Process<'_>| total(p, "task.read_bytes") + total(p, "task.write_bytes");
        let all: f64 = others.iter().map(|process| brings(process)).sum();
        let most = others.into_iter().max_by(|a, b| brings(a).total_cmp(&brings(b)));
        let is_most = |(_, bytes): &(&Process<'_>, f64)| {
            *bytes >= MOST * all && *bytes >= came_back * view.page_bytes()
        };
        let fills = most.map(|process| (process, brings(process))).filter(is_most);
        Some(Fetched { by, faults, waited_s, fills })
    }

    /// The share of the time in which one of them waited, at most all of it.
    fn share(&self, span: Span) -> f64 {
        (self.waited_s / span.seconds().max(1e-9)).min(1.0)
    }

    fn tell(&self, view: &View<'_>, finding: &mut Finding, group: &str, span: Span) {
        let most = |p: &&&Process<'_>| p.total(view.set, "task.majflt", span);
        if let Some(process) = self.by.iter().max_by(|a, b| most(a).total_cmp(&most(b))) {
            let faults = self.faults / span.seconds().max(1e-9);
            finding.remarks.push(format!(
                "{} waited for {} pages/s of files that had been in memory; it is a victim",
                process.comm,
                words::count(faults)
            ));
            finding.evidence.push(view.task_evidence(
                "task.majflt",
                process,
                None,
                most(&process) / span.seconds().max(1e-9),
                span,
            ));
        }
        finding.prove(view, &["cgroup.refault_file"], group, span);
        if let Some((process, bytes)) = self.fills {
            let name = format!("{} ({})", process.comm, process.pid);
            finding
                .statement
                .push_str(&format!(": {name} in it read and wrote {} meanwhile", words::bytes(bytes)));
            finding.blame_pid(process.comm, process.pid);
        }
    }
}

const EVIDENCE: [&str; 4] =
    ["cgroup.memory_failcnt", "cgroup.memory_current", "cgroup.memory_max", "cgroup.psi_memory_some"];
/// A tenth of what the group may have cannot be freed before the device has it.
const WRITEBACK: f64 = 0.1;
/// Reclaim frees some thousand pages at a time: a group at its limit is a little below it.
const AT_LIMIT: f64 = 0.9;

/// One while a group is at its limit and its tasks wait for memory: by its own pressure, or by their kernel stacks.
fn stalled(view: &View<'_>, group: &str) -> Option<Signal> {
    let mut near = view.of("cgroup.memory_current", group)?;
    for (t, used) in near.t.iter().zip(&mut near.v) {
        let limit = view.limit_at("cgroup.memory_max", group, *t);
        *used = step(limit.is_some_and(|limit| *used >= AT_LIMIT * limit));
    }
    let waiting = match view.of("cgroup.psi_memory_some", group) {
        Some(pressure) => pressure.map(|pressure| step(pressure >= PRESSURE)),
        None => process::group_waiting(view, group, &[WaitKind::Memory], &near).map(|n| step(n >= 1.0)),
    };
    Some(near.zip(&waiting, f64::min))
}

/// A group at its limit, and the share of the time in which somebody waited for memory.
struct Limited<'v, 'a> {
    name: &'a str,
    pressure: Option<f64>,
    fetched: Option<Fetched<'v, 'a>>,
    high: High,
}

impl Limited<'_, '_> {
    /// The share of the time in which somebody waited for memory, or for what had been in it.
    fn waited(&self) -> Option<f64> {
        let fetched = self.fetched.as_ref().map(|fetched| fetched.share(self.high.run.span()));
        self.pressure.into_iter().chain(fetched).reduce(f64::max)
    }
}

fn pressure(view: &View<'_>, group: &str, span: Span) -> Option<f64> {
    let own = view.set.get("cgroup.psi_memory_some", group).and_then(|s| s.mean(span));
    let all = || view.system("psi.memory_some")?.within(span).mean();
    own.or_else(all).or_else(|| view.system("probe.memcg_reclaim_time")?.within(span).mean())
}
