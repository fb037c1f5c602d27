//! One thread is at the limit of a CPU while others idle: the program cannot use what the machine has.
//!
//! No run-queue delay, no pressure and an idle machine are how it looks from outside. Work queues inside the program,
//! or in its socket. From 90 % on a queue makes waits ten times the service time (1/(1-utilisation)).
//!
//! A job that moves data to or from a device (gzip in a backup) or builds something up in memory (a compiler) is at the
//! limit of a CPU too and makes progress that can be seen: that is work. A server that was there before and has come to
//! its limit, or a thread that burns a CPU without any such progress, is a bottleneck.
//!
//! A process that came only now and has been at the limit ever since is a job: it is a finding, unless somebody waits for it. So is
//! one that is at the limit from the first sample of a recording on, where nobody knows what it did before.
//!
//! Threads that one lock lets run one at a time (the interpreter's of CPython and Ruby, or one of the program's own) are one thread in
//! turns: together they use one CPU and never more, though another one idles and they do not wait for it.
//!
//! A tool that was not asked for threads prints processes: one that never exceeds a single CPU, and is at its limit, is
//! taken for one thread with less certainty.

use crate::prelude::*;
use crate::services;

pub const CONDITION: Condition = Condition {
    id: "single-thread-bottleneck",
    title: "one thread saturates a CPU while other CPUs are idle",
    area: "cpu",
    needs: &[
        "task.cpu_time",
        "task.run_delay",
        "cgroup.throttled_time",
        "task.read_bytes",
        "task.write_bytes",
        "task.minflt",
        "task.majflt",
        "task.ppid",
        "sys.cpu_idle",
        "sys.cpu_iowait",
        "tasks.busiest",
    ],
    needs_of: &[services::COMMANDS],
    triggers: &[
        // A thread near its limit: from 90 % on, queueing makes waits ten times the service time.
        above(&["tasks.busiest"], 0.9).of_work(),
    ],
    observe,
    may_be_harmless: true,
    causes: &[
        effect("runqueue-wait", "what shares the CPU with the busy thread waits"),
        asked("listen-overflow", "the thread that is busy is the one that accepts"),
        within("socket-buffer-overflow", "the thread that is busy is the one that reads"),
        within("service-slow", "requests queue before the thread that is busy"),
    ],
    remedies_of: remedies,
    next: &[
        measure("where the time goes", "perf record -g -p {pid} -- sleep 10"),
        measure("each of its threads", "pidstat -t -p {pid} 1"),
        measure("whether requests queue at its socket (Recv-Q)", "ss -ltnp"),
    ],
    source: include_str!("single_thread_bottleneck.rs"),
    ..Condition::ROOT
};

/// Utilisation from which on waits are ten times the service time.
const AT_LIMIT: f64 = 0.9;
/// A thread with as much was not far from its limit before.
const NEAR_LIMIT: f64 = 0.75;
/// Half a CPU could have taken work.
const SPARE: f64 = 0.5;
/// Shorter is a burst.
const NEED_S: f64 = 6.0;
/// Who is at the limit so soon after it came has not been asked for anything in between.
const AT_ONCE_S: f64 = 3.0;
/// A trouble takes minutes; what is so for longer from the first moment on is how the machine is.
const STEADY_S: f64 = 300.0;
/// A job that moves a hundred kilobytes a second to or from a device, or touches half a megabyte of new memory a
/// second, gets on.
const PROGRESS_BYTES_S: f64 = 1e5;
const PROGRESS_FAULTS_S: f64 = 128.0;

struct Limit<'v, 'a> {
    process: &'v Process<'a>,
    row: &'a str,
    run: Run,
    used: f64,
    before: Option<f64>,
    /// How many take turns.
    threads: usize,
}

/// What threads that take turns do, in the statement.
const BY_TURNS: &str = "by turns and never more, while";

fn observe(view: &View<'_>) -> Observation {
    if view.set.host.cpus == 0 {
        return Observation::cannot_tell("how many CPUs the machine has: nproc");
    }
    if view.cpus() < 2.0 {
        return Observation::inactive("the machine has one CPU");
    }
    let Some(idle) = view.idle() else { return Observation::needs(&["sys.cpu_idle"]) };
    if !view.has("task.cpu_time") {
        return Observation::needs_as("CPU time of each thread (task.cpu_time)", &["task.cpu_time"]);
    }
    let mut because = "no thread came near the limit of a CPU while another was idle".to_owned();
    let mut best: Option<Limit<'_, '_>> = None;
    for process in view.processes().iter().filter(|p| !p.kthread) {
        for row in &process.rows {
            match at_limit(view, process, row, &idle) {
                Ok(Some(limit)) if best.as_ref().is_none_or(|b| limit.run.high_s > b.run.high_s) => {
                    best = Some(limit)
                }
                Ok(_) => {}
                Err(reason) => because = reason,
            }
        }
    }
    if best.is_none() {
        // A thread at its limit says more than several that are at one together.
        let processes = view.processes().iter().filter(|p| !p.kthread);
        let turns = processes.filter_map(|process| by_turns(view, process, &idle));
        best = turns.max_by(|a, b| a.run.high_s.total_cmp(&b.run.high_s));
    }
    let Some(limit) = best else { return Observation::Inactive(because) };
    let span = limit.run.span();
    let mut finding = view.finding(&limit.run);
    let process = limit.process;
    finding.blame(process);
    let spare = idle.within(span).mean().unwrap_or(0.0);
    let before = limit.before.map(|b| format!(" ({} before)", words::percent(b))).unwrap_or_default();
    let used = words::percent(limit.used);
    finding.statement = match limit.threads {
        1 => {
            let thread = services::thread(view, process, limit.row);
            format!("{thread} used {used} of a CPU{before} while {spare:.1} CPUs were idle")
        }
        many => format!(
            "{many} threads of {} ({}) used {used} of a CPU{before} {BY_TURNS} {spare:.1} CPUs were idle: one of them \
             runs at a time, as under the lock of an interpreter (the GIL of CPython, of Ruby), and whoever answers waits for its turn",
            process.comm, process.pid
        ),
    };
    finding.evidence.push(view.task_evidence("task.cpu_time", process, limit.before, limit.used, span));
    finding.evidence.extend(view.evidence("sys.cpu_idle", "", span));
    finding.evidence.extend(view.evidence("task.run_delay", limit.row, span));
    if let Some((command, text)) = services::costly(view, Some(process.pid), span) {
        finding.remarks.push(text);
        finding.evidence.extend(view.evidence(services::COMMAND_TIME, command, span));
    }
    // That it rose to the limit says more than that it has been there ever since it came.
    finding.confidence = if limit.before.is_some() { 0.9 } else { 0.75 };
    if limit.threads > 1 {
        finding.confidence = 0.8;
    }
    let begins = view.set.span().map_or(i64::MIN, |span| span.since);
    let came = process.first_seen(view.set).filter(|t| *t > begins + SECOND);
    finding.is_harmless = came.is_some_and(|came| words::between(came, limit.run.onset) <= AT_ONCE_S)
        || limit.before.is_none() && began_before(view, &limit.run)
        // It is inferred from what they use: nobody suffers for sure, unless somebody does.
        || limit.threads > 1;
    if !knows_threads(view) {
        finding.confidence *= 0.8;
        finding.remarks.push(
            "threads were not listed; it is taken for one because the process never used more than one CPU"
                .to_owned(),
        );
    }
    finding.active()
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let who = finding.culprit.process.as_deref().unwrap_or("the program");
    // What has a name of its own is hardly one of many workers.
    let own = finding
        .statement
        .strip_prefix("thread ")
        .and_then(|rest| rest.split_once(" of "))
        .map(|(name, _)| name);
    let action = match own {
        _ if finding.statement.contains(BY_TURNS) => format!(
            "let {who} do its long computations in another process (a queue, a pool of processes), or run several of {who}: its threads take \
             turns, and more CPUs do not help"
        ),
        Some(name) => format!(
            "let {who} do what its thread {name} does elsewhere (another process, another time) or in smaller parts: where threads share \
             one interpreter (CPython, Ruby) or one lock, all others wait for it"
        ),
        None => {
            format!(
                "run several of {who} (workers, shards), or make the hot path cheaper: more CPUs do not help"
            )
        }
    };
    let verify = "pidstat -t 1: no thread stays above 90 %".to_owned();
    vec![Remedy { action, command: String::new(), verify, risk: String::new() }]
}

/// Whether a stretch was there when the recording began. Files of other tools always begin in the middle of the trouble: somebody started these
/// because of it.
fn began_before(view: &View<'_>, run: &Run) -> bool {
    let begins = view.set.span().map_or(i64::MAX, |span| span.since);
    !view.is_case && words::between(begins, run.onset) <= AT_ONCE_S
}

/// Whether threads were listed apart from their processes, by a recorder or by pidstat -t.
fn knows_threads(view: &View<'_>) -> bool {
    view.set.source != "files" || view.processes().iter().any(|p| p.rows.len() > 1)
}

/// Whether a thread is a bottleneck; an error is a reason why one at its limit is not.
fn at_limit<'v, 'a>(
    view: &'v View<'a>,
    process: &'v Process<'a>,
    row: &'a str,
    idle: &Signal,
) -> Result<Option<Limit<'v, 'a>>, String> {
    let Some(series) = view.set.get("task.cpu_time", row) else { return Ok(None) };
    if series.max(view.window).is_none_or(|most| most < AT_LIMIT) {
        return Ok(None);
    }
    let used = Signal::of(series, view.window);
    // Counters are read a few milliseconds apart; a tenth over one CPU is more than that makes.
    if !knows_threads(view) && used.max().is_some_and(|most| most > 1.1) {
        return Err(format!("{} ({}) works with several threads", process.comm, process.pid));
    }
    let alone = used.zip(idle, |used, idle| if idle >= SPARE { used } else { 0.0 });
    let Some(run) = alone.run(AT_LIMIT, NEED_S) else { return Ok(None) };
    let span = run.span();
    let all = process.total(view.set, "task.cpu_time", span);
    let mine = used.within(span).total();
    let name = format!("{} ({})", process.comm, process.pid);
    if mine < 0.75 * all {
        return Err(format!("{name} works with several threads"));
    }
    let before = view.before("task.cpu_time", row);
    if before.is_some_and(|b| b >= NEAR_LIMIT) {
        return Err(format!("{name} used as much of a CPU before"));
    }
    if before.is_none() && run.seconds() >= STEADY_S && began_before(view, &run) {
        return Err(format!("{name} uses as much of a CPU for as long as is known"));
    }
    let seconds = run.seconds().max(1e-9);
    let rate = |metric: &str| process.total(view.set, metric, span) / seconds;
    if rate("task.majflt") >= 100.0 {
        return Err(format!("{name} waits for pages"));
    }
    let streams = rate("task.read_bytes") + rate("task.write_bytes") >= PROGRESS_BYTES_S;
    let grows = rate("task.minflt") >= PROGRESS_FAULTS_S;
    if before.is_none() && (streams || grows) {
        return Err(format!("{name} is a job that makes progress"));
    }
    Ok(Some(Limit { process, row, run, used: used.within(span).mean().unwrap_or(0.0), before, threads: 1 }))
}

/// Counters are read a few milliseconds apart: more is the work of two at once.
const ONE_CPU: f64 = 1.03;
/// A tenth of what all of them use.
const TURN: f64 = 0.1;
/// Under a quota, or on one CPU, two that want to run wait for a CPU for as long as they run.
const WAITS: f64 = 0.5;

/// A process whose threads are at the limit of one CPU together, take turns, and do not wait for a CPU.
fn by_turns<'v, 'a>(view: &'v View<'a>, process: &'v Process<'a>, idle: &Signal) -> Option<Limit<'v, 'a>> {
    if process.rows.len() < 2 || !knows_threads(view) {
        return None;
    }
    let used = process.signal(view.set, "task.cpu_time", view.window)?;
    if used.max()? < AT_LIMIT {
        return None;
    }
    let alone = used.zip(idle, |used, idle| if idle >= SPARE { used } else { 0.0 });
    let run = alone.run(AT_LIMIT, NEED_S)?;
    let span = run.span();
    let inside = used.within(span);
    let each =
        |row: &&&'a str| view.set.get("task.cpu_time", row).and_then(|own| own.total(span)).unwrap_or(0.0);
    let take = |row: &&&'a str| each(row) >= TURN * inside.total();
    let turns: Vec<&&'a str> = process.rows.iter().filter(take).collect();
    let busiest = turns.iter().copied().max_by(|a, b| each(a).total_cmp(&each(b)))?;
    let waited = process.total(view.set, "task.run_delay", span);
    let throttled = |group| view.set.get("cgroup.throttled_time", group).and_then(|s| s.total(span));
    if process.cgroup.and_then(throttled).is_some_and(|throttled| throttled > 0.0) {
        return None;
    }
    let before = process.signal(view.base_set, "task.cpu_time", view.baseline?)?.mean()?;
    let is_one_lock = turns.len() >= 2
        && process.uses_just_one_cpu(view.set, span)
        && inside.mean()? <= ONE_CPU
        && each(&busiest) < NEAR_LIMIT * inside.total()
        && waited < WAITS * inside.total()
        && before < NEAR_LIMIT;
    is_one_lock.then(|| Limit {
        process,
        row: busiest,
        used: inside.mean().unwrap_or(0.0),
        before: Some(before),
        threads: turns.len(),
        run,
    })
}
