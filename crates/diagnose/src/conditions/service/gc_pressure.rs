//! A runtime collects garbage most of the time, and its program hardly gets on.
//!
//! Where the heap has little room left each collection frees little, and the next one follows at once. The CPU time of the
//! threads that collect tells it: in a collection that stops the world no other thread of the process runs, so that the
//! busiest of them takes of a CPU what the program stands still of its time. Known are the threads of HotSpot's collectors
//! (`GC Thread#0`, `ParGC Thread#0`, `G1 Conc#0`, `ZWorker#0`, `Shenandoah GC`; `VM Thread` does the work of the serial one)
//! and of .NET (`.NET Server GC`, `.NET BGC`). Go, Node and .NET's workstation collector collect in threads that do other
//! things too, and are not seen.
//!
//! A program that makes much garbage and drops it collects often and briefly, at a tenth or a fifth of its CPU time: that is
//! work. So is a single full collection, however long: nobody else of the process runs before its end. A collector that works
//! beside its program (G1's marking, CMS, ZGC, Shenandoah) stops nobody; one that does so without a break cannot keep up.

use crate::prelude::*;
use crate::services::{self, SERVICE, Servers, Traffic};

pub const CONDITION: Condition = Condition {
    id: "gc-pressure",
    title: "a runtime spends most of its time in garbage collection",
    area: "service",
    needs: &[
        "task.cpu_time",
        "task.nvcsw",
        "task.rss_anon",
        REQUESTS,
        WAITS,
        GC_TIME,
        OLD_USED,
        OLD_MAX,
        CAUSE,
    ],
    needs_of: &[services::NEEDS],
    triggers: &[Trigger::Signals(Signals {
        metrics: services::SERVICE_SCAN,
        find: are_waited_for,
        need_s: NEED_S,
        can_be_steady: true,
    })],
    observe,
    causes: &[
        explains("timeout-cascade", "clients give up while the world is stopped"),
        explains("retry-storm", "what times out is retried"),
        within("query-regression", "the CPU of each request goes into collections"),
        within("event-loop-blocked", "the thread stands still or collects"),
        within("service-slow", "requests wait while the world is stopped"),
        within("service-silent", "nothing is answered while the world is stopped"),
        within("service-failing", "clients give up while the world is stopped"),
        within("single-thread-bottleneck", "the busy thread collects garbage"),
        within("cpu-hog", "the CPU goes into collections"),
        within("runqueue-saturation", "the tasks are the threads of the collector"),
        within("user-lock-contention", "threads wait for the end of each collection"),
        within("lock-queue", "threads of the runtime wait for the end of each collection"),
        within("worker-pool-exhausted", "workers stand still while the world is stopped"),
        asked("listen-overflow", "nothing is accepted while the world is stopped"),
        effect("cpu-saturated", "the threads of the collector take the CPUs"),
        effect("runqueue-wait", "others wait while the threads of the collector run"),
    ],
    remedies_of: remedies,
    next: &[
        measure(
            "how full the generations are, and the time in collections (FGCT)",
            "jstat -gcutil {pid} 1000",
        ),
        measure("which threads take the time", "pidstat -t -p {pid} 1 5"),
        measure("what holds the objects", "jcmd {pid} GC.heap_dump /var/tmp/heap-{pid}.hprof"),
    ],
    source: include_str!("gc_pressure.rs"),
    ..Condition::ROOT
};

/// Where the heap has no room.
const ADVICE: &[Advice] = &[
    Advice {
        action: "see what fills the heap: what is left after a full collection is in use, or leaks",
        command: "jcmd {pid} GC.heap_info; jcmd {pid} GC.class_histogram | head -30",
        verify: "jstat -gcutil {pid} 1000: the old generation (O) falls below three quarters",
        risk: "the histogram makes a full collection first, which stops the program once more",
    },
    Advice {
        action: "give it a heap with room, if what is in use belongs there: twice that size",
        command: "-Xmx, with -Xlog:gc*:file=gc.log to see each collection (.NET: DOTNET_GCHeapHardLimit)",
        verify: "pidstat -t -p {pid} 1: the threads of the collector take less than a tenth of it",
        risk: "a heap beyond the limit of its cgroup is killed; more heap delays a leak and does not end it",
    },
];

/// What a JVM counts itself.
const GC_TIME: &str = "jvm.gc_time";
const OLD_USED: &str = "jvm.old_used";
const OLD_MAX: &str = "jvm.old_max";
const CAUSE: &str = "jvm.gc_cause";
/// The cause that the JVM can be told to take no notice of.
const EXPLICIT: &str = "System.gc()";
/// Causes of collections that somebody asks for: the program itself, an agent in it, or `jcmd` and `jmap` from outside.
const ASKED: &[&str] = &[
    EXPLICIT,
    "JvmtiEnv ForceGarbageCollection",
    "Heap Inspection Initiated GC",
    "Heap Dump Initiated GC",
    "Diagnostic Command",
];
/// That stands in a statement of such.
const ASKS: &str = "they are requested explicitly";
const REQUESTS: &str = "service.requests";
const WAITS: &str = "service.wait_time";
/// Names of threads that collect while the program stands still, as far as the kernel keeps them: 15 bytes. JDK 8 and later,
/// and .NET.
const STOPPING: &[&str] =
    &["VM Thread", "GC Thread#", "GC task thread#", "Gang worker#", "ParGC Thread#", ".NET Server GC"];
/// Those that collect beside it.
const CONCURRENT: &[&str] = &[
    "G1 Conc#",
    "G1 Main Marker",
    "G1 Refine#",
    "G1 Concurrent",
    "Concurrent Mark",
    "CMS ",
    "ZWorker",
    "ZDriver",
    "XWorker",
    "XDriver",
    "Shenandoah GC",
    ".NET BGC",
];
/// Threads that only such a runtime has.
const RUNTIMES: &[&str] = &["VM Thread", ".NET "];
/// The collector takes as much CPU time as the program that it works for.
const SHARE: f64 = 0.5;
/// A program that stands still for half of its time has lost it, whoever waits for it.
const HALF: f64 = 0.5;
/// People notice a twentieth of the time. Of a service that stands still for twice that every tenth request meets a pause.
const TENTH: f64 = 0.1;
/// A full collection goes through about a gigabyte a second and thread: a heap of that size is done with several times.
const NEED_S: f64 = 6.0;
/// A collector that works beside its program begins anew at once: after a cycle of some ten seconds it rests.
const WITHOUT_BREAK: f64 = 0.9;
const WITHOUT_BREAK_S: f64 = 60.0;
/// Twice what it took before.
const MORE: f64 = 2.0;
/// A process without a past is one that starts, and loads what its heap is for.
const NEW_NEED_S: f64 = 30.0;
/// Of a CPU: the program ran between two collections. Threads that only watch a clock take less.
const BETWEEN: f64 = 0.005;
/// In that many samples: the first and the last one of a single long collection show the time before and after.
const BETWEEN_SAMPLES: usize = 3;
/// The thread that leads a collection sleeps in each of its phases, some ten to thirty times: with more it was not the only one.
const PHASES: f64 = 100.0;
/// Clients wait for a fifth of a client's time: with less nobody lost anything.
const WAITED: f64 = 0.2;
/// Times as long as usual: caches, mixes of requests and queues of half-busy servers make less.
const GROWTH: f64 = 3.0;

/// A runtime that collects.
struct Collects<'v, 'a> {
    process: &'v Process<'a>,
    run: Run,
    /// CPUs that the collector took, what it took before, and what the whole process took.
    gc: f64,
    before: Option<f64>,
    all: f64,
    /// The share of time for which the program stood still.
    stopped: f64,
}

fn observe(view: &View<'_>) -> Observation {
    if !view.has("task.cpu_time") {
        return Observation::needs_as("CPU time of each thread (task.cpu_time)", &["task.cpu_time"]);
    }
    let mut because = "no runtime whose collector has threads of its own was at work".to_owned();
    let mut best: Option<Collects<'_, '_>> = None;
    for process in view.processes().iter().filter(|p| !p.kthread) {
        if !process.rows.iter().any(|row| is_named(view.set, row, RUNTIMES)) {
            continue;
        }
        match collects(view, process) {
            Ok(found) if best.as_ref().is_none_or(|b| found.gc > b.gc) => best = Some(found),
            Ok(_) => {}
            Err(reason) => because = reason,
        }
    }
    match best {
        Some(found) => finding(view, &found).active(),
        None => Observation::Inactive(because),
    }
}

fn is_named(set: &SeriesSet, row: &str, names: &[&str]) -> bool {
    let name = set.text("task.comm", row).and_then(|text| text.last());
    name.is_some_and(|name| names.iter().any(|prefix| name.starts_with(prefix)))
}

/// CPU-seconds per second of the threads that collect, and of the others.
fn split(process: &Process<'_>, set: &SeriesSet, span: Span) -> (Signal, Signal) {
    let of = |collect: bool| {
        let collects = |row: &str| is_named(set, row, STOPPING) || is_named(set, row, CONCURRENT);
        let rows = process.rows.iter().filter(|row| collects(row) == collect);
        Signal::sum(rows.filter_map(|row| set.get("task.cpu_time", row)), span).unwrap_or_default()
    };
    (of(true), of(false))
}

/// CPU-seconds per second of the busiest of its threads with one of some names.
fn busiest(process: &Process<'_>, view: &View<'_>, names: &[&str]) -> Signal {
    let rows = process.rows.iter().filter(|row| is_named(view.set, row, names));
    let signals = rows.filter_map(|row| view.of("task.cpu_time", row));
    signals.max_by(|a, b| a.total().total_cmp(&b.total())).unwrap_or_default()
}

/// Whether a runtime collects most of the time; an error is a reason why one that collects does not.
fn collects<'v, 'a>(view: &'v View<'a>, process: &'v Process<'a>) -> Result<Collects<'v, 'a>, String> {
    let (gc, program) = split(process, view.set, view.window);
    let name = format!("{} ({})", process.comm, process.pid);
    let is_most = if program.t.is_empty() {
        gc.clone().map(|_| 1.0)
    } else {
        gc.zip(&program, |gc, program| step(gc >= SHARE * (gc + program)))
    };
    let and_most = |busy: Signal| busy.zip(&is_most, |busy, is_most| busy * is_most);
    // What a JVM counts itself is known at the end of each collection: of one that lasts its threads tell.
    let counted = view.of(GC_TIME, &process.pid.to_string()).unwrap_or_default();
    let busy = busiest(process, view, STOPPING);
    let stopped = and_most(if counted.total() > busy.total() { counted } else { busy });
    let beside = and_most(busiest(process, view, CONCURRENT));
    let runs = [stopped.run(TENTH, NEED_S), beside.run(WITHOUT_BREAK, WITHOUT_BREAK_S)];
    let [by_pauses, without_break] = runs;
    let Some(run) = without_break.or(by_pauses) else {
        let (gc, program) = (gc.total(), program.total());
        let share = if gc + program > 0.0 { gc / (gc + program) } else { 0.0 };
        return Err(format!("{name} spent {} of its CPU time on collections", words::percent(share)));
    };
    let span = run.span();
    let (gc, program) = (gc.within(span), program.within(span));
    let ran = program.v.iter().filter(|cpu| **cpu >= BETWEEN).count();
    if ran < BETWEEN_SAMPLES && phases(view, process, span) < PHASES {
        return Err(format!("{name} made one collection of {}", words::seconds(run.high_s)));
    }
    let before = usual(view, process, &run);
    let gc = gc.mean().unwrap_or(0.0);
    match before {
        Some(before) if gc < MORE * before => {
            return Err(format!("{name} spent as much time on collections before"));
        }
        None if !run.lasted(NEW_NEED_S) => return Err(format!("{name} had just started")),
        _ => {}
    }
    let stopped = stopped.within(span).mean().unwrap_or(0.0);
    if without_break.is_none() && stopped < HALF && !is_waited_for(view, process, span) {
        return Err(format!(
            "{name} stood still for {} of the time, and no client of it waited longer than before",
            words::percent(stopped)
        ));
    }
    let all = gc + program.mean().unwrap_or(0.0);
    Ok(Collects { process, run, gc, before, all, stopped })
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    if !finding.statement.contains(ASKS) {
        return ADVICE.iter().map(|advice| advice.of(&finding.culprit)).collect();
    }
    let pid = finding.pid();
    let mut remedies = vec![Remedy {
            action: "find who asks for full collections, and stop that: a monitor that runs jcmd GC.class_histogram, jmap \
                     -histo:live or GC.run in a loop, an agent, or System.gc() in the program"
                .to_owned(),
            command: format!(
                "pgrep -af 'jcmd|jmap'; ausearch -x jcmd; jcmd {pid} Thread.print | grep -B2 -A8 'Runtime.gc'"
            ),
            verify: format!("jstat -gccause {pid} 1000: LGCC says something else, and FGC stands still"),
            risk: String::new(),
        }];
    if finding.statement.contains(EXPLICIT) {
        remedies.push(Remedy {
            action: "let the JVM take no notice of System.gc(), or collect beside the program".to_owned(),
            command: "-XX:+DisableExplicitGC, or -XX:+ExplicitGCInvokesConcurrent".to_owned(),
            verify: format!("jstat -gccause {pid} 1000"),
            risk: "memory outside of the heap that direct buffers hold is freed later".to_owned(),
        });
    }
    remedies
}

/// The services of a process, and what their clients wait.
fn own_services<'a>(view: &View<'a>, pid: u32) -> Vec<(&'a str, &'a Series)> {
    let is_own = |row: &str| Servers::of(view, row).processes.iter().any(|p| p.pid == pid);
    view.each(WAITS).filter(|(row, _)| is_own(row)).collect()
}

/// Whether clients of a service of the process wait several times as long as in the baseline.
fn is_waited_for(view: &View<'_>, process: &Process<'_>, span: Span) -> bool {
    let per_request = |set: &SeriesSet, row: &str, span: Span| {
        let total = |metric: &str| set.get(metric, row).and_then(|s| s.total(span));
        Some(total(WAITS)? / total(REQUESTS)?.max(1.0))
    };
    own_services(view, process.pid).into_iter().any(|(row, waits)| {
        let own = Span { since: i64::MIN, until: span.since };
        let (base_set, base) = view.baseline.map_or((view.set, own), |baseline| (view.base_set, baseline));
        let before = per_request(base_set, row, base);
        let grew =
            per_request(view.set, row, span).zip(before).is_none_or(|(now, before)| now >= GROWTH * before);
        waits.mean(span).is_some_and(|waiting| waiting >= WAITED) && grew
    })
}

/// Of each service: one where its clients wait for more than a fifth of the time, and for each answer several times as long
/// as at its best quarter, without what is as quick as failures.
fn are_waited_for(set: &SeriesSet, window: Span) -> Vec<Signal> {
    let of = |(row, waits): (&str, &Series)| {
        let waits = Signal::of(waits, window);
        if waits.max()? < WAITED {
            return None;
        }
        let requests = Signal::of(set.get(REQUESTS, row)?, window);
        let each = waits.zip(&requests, |waits, requests| waits / requests.max(1.0));
        let quick = Traffic::of(set, &SERVICE, &[row], window)?.is_as_quick_as_failures();
        let sound = each.zip(&quick, |each, quick| if quick < 1.0 { each } else { 0.0 });
        let mut asked: Vec<f64> = sound.v.into_iter().filter(|s| *s > 0.0).collect();
        asked.sort_by(f64::total_cmp);
        let usual = asked.get(asked.len() / 4).copied()?;
        Some(each.zip(&waits, |each, waits| step(waits >= WAITED && each >= GROWTH * usual)))
    };
    set.each(WAITS).filter_map(of).collect()
}

/// How often the thread slept that leads collections.
fn phases(view: &View<'_>, process: &Process<'_>, span: Span) -> f64 {
    let rows = process.rows.iter().filter(|row| is_named(view.set, row, RUNTIMES));
    rows.filter_map(|row| view.set.get("task.nvcsw", row)?.total(span)).fold(0.0, f64::max)
}

/// What the collector took in the baseline, or where there is none, before; `None` of a process that was not there.
fn usual(view: &View<'_>, process: &Process<'_>, run: &Run) -> Option<f64> {
    let own = Span { since: i64::MIN, until: run.onset.saturating_add(1) };
    let (set, span) = view.baseline.map_or((view.set, own), |baseline| (view.base_set, baseline));
    let (gc, program) = split(process, set, span);
    let was_there = !gc.t.is_empty() || !program.t.is_empty();
    was_there.then(|| gc.mean().unwrap_or(0.0))
}

/// What the collections of a span were made for, as far as it was seen: between two of them there is none.
fn causes<'a>(view: &View<'a>, pid: &str, span: Span) -> Vec<&'a str> {
    let set: &'a SeriesSet = view.set;
    let Some(texts) = set.text(CAUSE, pid) else { return Vec::new() };
    // One that HotSpot does not word so may be any.
    if texts.changes.iter().any(|(t, text)| span.contains(*t) && text.is_none()) {
        return Vec::new();
    }
    let changed = texts.changes.iter().filter(|(t, _)| span.contains(*t));
    let mut all: Vec<&str> =
        changed.filter_map(|(_, text)| text.as_deref()).chain(texts.at(span.since)).collect();
    all.retain(|cause| *cause != "No GC");
    all.sort_unstable();
    all.dedup();
    all
}

fn finding(view: &View<'_>, found: &Collects<'_, '_>) -> Finding {
    let span = found.run.span();
    let process = found.process;
    let mut finding = view.finding(&found.run);
    finding.blame(process);
    let share = found.gc / found.all.max(1e-9);
    finding.statement = format!(
        "{} ({}) spent {} of its CPU time on collecting garbage, and stood still for {} of the time: its collector took \
         {:.2} CPUs{}",
        process.comm,
        process.pid,
        words::percent(share),
        words::percent(found.stopped),
        found.gc,
        found.before.map(|before| format!(" ({before:.2} before)")).unwrap_or_default(),
    );
    finding.evidence.push(view.task_evidence("task.cpu_time", process, found.before, found.gc, span));
    let leader = process.rows.first().copied().unwrap_or_default();
    finding.prove(view, &["task.rss_anon"], leader, span);
    let pid = process.pid.to_string();
    finding.prove(view, &[GC_TIME, OLD_USED, OLD_MAX], &pid, span);
    let causes = causes(view, &pid, span);
    if !causes.is_empty() && causes.iter().all(|cause| ASKED.contains(cause)) {
        finding.statement.push_str(&format!("; {ASKS} ({})", causes.join(", ")));
    } else if !causes.is_empty() {
        finding.remarks.push(format!("they are made for: {}", causes.join(", ")));
    }
    let level = |metric: &str| view.set.get(metric, &pid)?.last(span);
    if let Some((used, most)) = level(OLD_USED).zip(level(OLD_MAX)).filter(|(_, most)| *most > 0.0) {
        finding.remarks.push(format!(
            "{} of the old generation were left after the last collection, {} of its maximum of {}",
            words::bytes(used),
            words::percent(used / most),
            words::bytes(most)
        ));
    }
    // While the world is stopped they wait, whatever for.
    let waited_s: f64 =
        own_services(view, process.pid).iter().filter_map(|(_, waits)| waits.total(span)).sum();
    let waited_s = Some(waited_s).filter(|s| *s > 0.0);
    (finding.loss_s, finding.client_wait_s) = (waited_s, waited_s);
    finding.confidence = if found.before.is_some() { 0.9 } else { 0.7 };
    finding
}
